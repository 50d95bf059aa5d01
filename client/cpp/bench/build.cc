// Time steps whose M comes on the stream of its build: values go up, M is built on the plan that is
// there, and all of M, or its values alone, comes down, once it is built or while it is
// (partial_result), in turn.
#include <grpcpp/grpcpp.h>
#include <spaid/client.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "client/cpp/arrays.h"
#include "client/cpp/bench/bench.h"
#include "spaid/v1/preconditioner.grpc.pb.h"

namespace spaid::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The 27 neighbours of the nodes of a cube, with so many unknowns a node: the patterns of P27, and,
// with three, of trilinear elasticity.
CscMatrix Cube(int64_t nodes, int64_t unknowns) {
  CscMatrix a;
  a.n = nodes * nodes * nodes * unknowns;
  a.col_ptr.push_back(0);
  const auto near = [&](int64_t x) {
    return std::pair{std::max<int64_t>(0, x - 1), std::min(nodes - 1, x + 1)};
  };
  for (int64_t j = 0; j < a.n; ++j) {
    const int64_t node = j / unknowns;
    const auto [z0, z1] = near(node / (nodes * nodes));
    const auto [y0, y1] = near(node / nodes % nodes);
    const auto [x0, x1] = near(node % nodes);
    for (int64_t z = z0; z <= z1; ++z) {
      for (int64_t y = y0; y <= y1; ++y) {
        for (int64_t x = x0; x <= x1; ++x) {
          for (int64_t u = 0; u < unknowns; ++u) {
            a.row_idx.push_back(static_cast<int32_t>(((z * nodes + y) * nodes + x) * unknowns + u));
          }
        }
      }
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  a.values.resize(a.row_idx.size());
  return a;
}

void Fill(uint64_t seed, CscMatrix* a) {
  std::mt19937_64 random(seed);
  for (int64_t j = 0; j < a->n; ++j) {
    for (int64_t p = a->col_ptr[static_cast<size_t>(j)]; p < a->col_ptr[static_cast<size_t>(j) + 1];
         ++p) {
      const double noise = static_cast<double>(random() >> 11) * 0x1p-53;
      a->values[static_cast<size_t>(p)] =
          a->row_idx[static_cast<size_t>(p)] == j ? 100 + noise : -noise;
    }
  }
}

// Milliseconds since the header was sent.
struct Times {
  double header = 0, first_byte = 0, first_value = 0, last_byte = 0, done = 0;
  double built = 0;   // the job's last event
  double upload = 0;  // of the values, before that
  // The daemon's times of its phases.
  double plan = 0, to_device = 0, build = 0, from_device = 0, assemble = 0;
  std::string name;  // the preconditioner's handle
};

struct Way {
  const char* name;
  bool partial, values_only;
};
constexpr std::array kWays = {Way{"whole", false, false}, Way{"partial", true, false},
                              Way{"values", false, true}, Way{"values_partial", true, true}};

// `pattern`: digest of that of M. `m`: where M goes.
std::optional<Times> Build(v1::PreconditionerService::Stub& stub, const std::string& matrix,
                           const Way& way, const std::string& pattern, std::vector<char>* m) {
  v1::BuildPreconditionerRequest request;
  request.mutable_header()->set_matrix(matrix);
  request.mutable_header()->mutable_spec()->set_engine(v1::ENGINE_KIND_STATIC_SPAI);
  request.mutable_header()->set_stream_result(true);
  request.mutable_header()->set_partial_result(way.partial);
  if (way.values_only) request.mutable_header()->set_known_pattern(pattern);
  grpc::ClientContext context;
  const auto start = Clock::now();
  const auto since = [start] {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const auto stream = stub.BuildPreconditioner(&context);
  stream->Write(request);
  stream->WritesDone();
  Times times;
  v1::BuildPreconditionerResponse response;
  int64_t n = 0, nnz = 0;
  while (stream->Read(&response)) {
    if (response.has_job() && response.job().has_finished()) times.built = since();
    if (response.has_result()) {
      times.header = since();
      n = response.result().n(), nnz = response.result().nnz();
      m->resize(static_cast<size_t>(8 * (n + 1) + 12 * nnz));
      if (response.result().values_only() != way.values_only) {
        std::cerr << "error: M has another pattern than A\n";
        return std::nullopt;
      }
    }
    if (response.has_chunk()) {
      const v1::ArrayChunk& chunk = response.chunk();
      int64_t at = 8 * chunk.offset();
      if (chunk.array() == v1::ARRAY_KIND_INDICES) at = 8 * (n + 1) + 4 * chunk.offset();
      if (chunk.array() == v1::ARRAY_KIND_VALUES) at = 8 * (n + 1) + 4 * nnz + 8 * chunk.offset();
      if (at < 0 ||
          at + static_cast<int64_t>(chunk.data().size()) > static_cast<int64_t>(m->size())) {
        std::cerr << "error: a chunk beyond the end\n";
        return std::nullopt;
      }
      std::memcpy(m->data() + at, chunk.data().data(), chunk.data().size());
      times.last_byte = since();
      if (times.first_byte == 0) times.first_byte = times.last_byte;
      if (times.first_value == 0 && chunk.array() == v1::ARRAY_KIND_VALUES) {
        times.first_value = times.last_byte;
      }
    }
    if (response.has_done()) {
      const v1::Timings& t = response.done().timings();
      times.done = since();
      times.plan = t.plan_ms();
      times.to_device = t.host_to_device_ms();
      times.build = t.build_ms();
      times.from_device = t.device_to_host_ms();
      times.assemble = t.assemble_ms();
      times.name = response.done().preconditioner().name();
    }
  }
  const grpc::Status status = stream->Finish();
  if (status.ok() && !times.name.empty()) return times;
  std::cerr << "error: " << status.error_message() << '\n';
  return std::nullopt;
}

}  // namespace

int RunBuild(const BuildBench& bench) {
  CscMatrix a = Cube(bench.nodes, bench.unknowns);
  Client client({.address = bench.address});
  const auto fail = [](const Error& error) {
    std::cerr << "error: " << error.message << '\n';
    return 1;
  };
  const auto stub = v1::PreconditionerService::NewStub(
      grpc::CreateChannel(bench.address, grpc::InsecureChannelCredentials()));
  const auto pattern = internal::KnownPattern(&a);
  if (!pattern.ok()) return fail(pattern.error());
  Fill(0, &a);
  const auto first = client.Upload(a, "build benchmark");
  if (!first.ok()) return fail(first.error());
  std::vector<char> m;
  std::array<std::vector<Times>, kWays.size()> measured;
  uint64_t seed = 0;
  for (int round = -1; round < bench.rounds; ++round) {  // round -1 makes the plan, and warms up
    for (size_t way = 0; way < kWays.size(); ++way) {
      Fill(++seed, &a);  // new values: the server must not have it
      const auto start = Clock::now();
      const auto stored = client.UploadValues(first->name, a);
      if (!stored.ok()) return fail(stored.error());
      const double upload = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      auto times = Build(*stub, stored->name, kWays[way], *pattern, &m);
      if (!times) return 1;
      times->upload = upload;
      if (round >= 0) measured[way].push_back(*times);
      if (auto error = client.DeletePreconditioner(times->name)) return fail(*error);
      if (auto error = client.DeleteMatrix(stored->name)) return fail(*error);
    }
  }
  if (auto error = client.DeleteMatrix(first->name)) return fail(*error);
  nlohmann::ordered_json result = {
      {"benchmark", "build"},   {"n", a.n}, {"nnz", a.row_idx.size()}, {"bytes", m.size()},
      {"rounds", bench.rounds},
  };
  for (size_t way = 0; way < kWays.size(); ++way) {
    const auto median = [&](auto part) {
      std::vector<double> values;
      for (const Times& times : measured[way]) values.push_back(part(times));
      return Median(values);
    };
    result[kWays[way].name] = {
        {"upload_ms", median([](const Times& t) { return t.upload; })},
        {"header_ms", median([](const Times& t) { return t.header; })},
        {"first_byte_ms", median([](const Times& t) { return t.first_byte; })},
        {"first_value_ms", median([](const Times& t) { return t.first_value; })},
        {"built_ms", median([](const Times& t) { return t.built; })},
        {"last_byte_ms", median([](const Times& t) { return t.last_byte; })},
        {"done_ms", median([](const Times& t) { return t.done; })},
        {"plan_ms", median([](const Times& t) { return t.plan; })},
        {"host_to_device_ms", median([](const Times& t) { return t.to_device; })},
        {"build_ms", median([](const Times& t) { return t.build; })},
        {"device_to_host_ms", median([](const Times& t) { return t.from_device; })},
        {"assemble_ms", median([](const Times& t) { return t.assemble; })},
        // The share of copies to the device that are not made while the values come.
        {"to_device_of_step",
         median([](const Times& t) { return t.to_device / (t.upload + t.last_byte); })},
    };
  }
  std::cout << result.dump(2) << std::endl;
  return 0;
}

}  // namespace spaid::bench
