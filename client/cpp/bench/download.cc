// Download of one M over loopback, whole and values alone, against a bare stream of as many bytes,
// in turn.
#include <spaid/client.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/bench/bench.h"

namespace spaid::bench {
namespace {

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int Fail(const Error& error) {
  std::cerr << "error: " << error.message << '\n';
  return 1;
}

}  // namespace

int RunDownload(const DownloadBench& bench) {
  const BareServer bare;
  if (bare.address().empty()) {
    std::cerr << "error: the bare server could not be started\n";
    return 1;
  }
  // Three entries a column: static SPAI of as many bytes is built in no time.
  const CscMatrix a = Band(bench.megabytes << 20, 3);
  const auto bytes = static_cast<int64_t>(8 * a.col_ptr.size() + 12 * a.row_idx.size());
  Client client({.address = bench.address});
  const auto built = client.Build(a, {.engine = Engine::kStaticSpai});
  if (!built.ok()) return Fail(built.error());
  const std::string& name = built->preconditioner.name;
  std::vector<double> bare_seconds, seconds, values_seconds;
  CscMatrix known;
  for (int round = -1; round < bench.rounds; ++round) {  // round -1 warms both up
    const double floor = ReceiveBareStream(bare.address(), bytes);
    if (floor < 0) return 1;
    Expected<CscMatrix> m = CscMatrix();
    const double whole = Seconds([&] { m = client.Download(name); });
    if (!m.ok()) return Fail(m.error());
    known = *std::move(m);
    const double values = Seconds([&] { m = client.Download(name, {}, &known); });
    if (!m.ok()) return Fail(m.error());
    if (round < 0) continue;
    bare_seconds.push_back(floor);
    seconds.push_back(whole);
    values_seconds.push_back(values);
  }
  if (const auto error = client.DeletePreconditioner(name)) return Fail(*error);
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const nlohmann::ordered_json result = {
      {"benchmark", "download"},
      {"bytes", bytes},
      {"rounds", bench.rounds},
      {"bare_gb_per_s", gigabytes / Median(bare_seconds)},
      {"download_gb_per_s", gigabytes / Median(seconds)},
      {"ratio", Median(bare_seconds) / Median(seconds)},
      {"values_speedup", Median(seconds) / Median(values_seconds)},
      {"bare_seconds", bare_seconds},
      {"download_seconds", seconds},
      {"values_seconds", values_seconds},
  };
  std::cout << result.dump(2) << std::endl;
  return 0;
}

}  // namespace spaid::bench
