// Time that a solve takes a client, of which most is right-hand side and solution on their way: two
// iterations.
#include <spaid/client.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "client/cpp/bench/bench.h"

namespace spaid::bench {
namespace {

// A diagonal matrix with two kinds of entries, so that CG takes two iterations.
CscMatrix Diagonal(int64_t n) {
  CscMatrix a{.n = n};
  a.col_ptr.resize(static_cast<size_t>(n) + 1);
  std::iota(a.col_ptr.begin(), a.col_ptr.end(), int64_t{0});
  a.row_idx.resize(static_cast<size_t>(n));
  std::iota(a.row_idx.begin(), a.row_idx.end(), 0);
  for (int64_t i = 0; i < n; ++i) a.values.push_back(i % 2 == 0 ? 1.0 : 2.0);
  return a;
}

}  // namespace

int RunSolve(const SolveBench& bench) {
  const int64_t n = (bench.megabytes << 20) / 8;
  Client client({.address = bench.address, .local_socket = bench.local_socket});
  const auto stored = client.Upload(Diagonal(n));
  if (!stored.ok()) {
    std::cerr << "error: " << stored.error().message << '\n';
    return 1;
  }
  std::vector<double> wire_b(static_cast<size_t>(n), 1.0);
  auto shared_b = client.Allocate<double>(n), shared_x = client.Allocate<double>(n);
  if (!shared_b.ok() || !shared_x.ok()) return 1;
  std::fill(shared_b->begin(), shared_b->end(), 1.0);
  SolveOptions options{.engine = Engine::kNone, .method = Method::kCg, .rtol = 1e-6};
  SolveOptions in_place = options;
  in_place.solution = *shared_x;
  std::vector<double> wire, shared;
  for (int round = -1; round < bench.rounds; ++round) {  // round -1 warms both up
    for (const bool local : {false, true}) {
      if (local && bench.local_socket.empty()) continue;
      const auto start = std::chrono::steady_clock::now();
      const auto solved = local ? client.Solve(stored->name, *shared_b, in_place)
                                : client.Solve(stored->name, wire_b, options);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (!solved.ok() || solved->rhs[0].outcome != Outcome::kConverged) {
        std::cerr << "error: " << (solved.ok() ? solved->rhs[0].detail : solved.error().message)
                  << '\n';
        return 1;
      }
      if (round >= 0) (local ? shared : wire).push_back(elapsed.count());
    }
  }
  nlohmann::ordered_json result = {{"benchmark", "solve"}, {"unknowns", n}, {"wire_seconds", wire}};
  if (!shared.empty()) result["shared_seconds"] = shared;
  std::cout << result.dump(2) << std::endl;
  return client.DeleteMatrix(stored->name) ? 1 : 0;
}

}  // namespace spaid::bench
