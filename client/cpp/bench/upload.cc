// Upload of one matrix over loopback against a bare stream of as many bytes, in turn.
#include <spaid/client.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "client/cpp/bench/bench.h"

namespace spaid::bench {
namespace {

// The same in memory that the daemon shares.
class SharedUpload {
 public:
  SharedUpload(const UploadBench& bench, const CscMatrix& a)
      : client_({.address = bench.address, .local_socket = bench.local_socket}), n_(a.n) {
    if (bench.local_socket.empty()) return;
    col_ptr_ = Copy(a.col_ptr);
    row_idx_ = Copy(a.row_idx);
    values_ = Copy(a.values);
  }
  // Seconds of an upload whose first value is `first`; negative: it failed, or was not shared.
  double Run(double first, int64_t bytes) {
    values_[0] = first;
    const int64_t shared = client_.GetLocalStatus().shared_bytes;
    const auto start = std::chrono::steady_clock::now();
    const auto stored =
        client_.Upload({.n = n_, .col_ptr = col_ptr_, .row_idx = row_idx_, .values = values_});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const LocalStatus status = client_.GetLocalStatus();
    if (!stored.ok() || status.shared_bytes - shared != bytes) {
      std::cerr << "error: " << (stored.ok() ? status.why : stored.error().message) << '\n';
      return -1;
    }
    return client_.DeleteMatrix(stored->name) ? -1 : elapsed.count();
  }

 private:
  template <class T>
  SharedArray<T> Copy(const std::vector<T>& values) {
    auto array = client_.Allocate<T>(static_cast<int64_t>(values.size()));
    if (!array.ok()) return {};
    std::copy(values.begin(), values.end(), array->begin());
    return *std::move(array);
  }

  Client client_;
  const int64_t n_;
  SharedArray<int64_t> col_ptr_;
  SharedArray<int32_t> row_idx_;
  SharedArray<double> values_;
};

}  // namespace

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

CscMatrix Band(int64_t bytes, int64_t width) {
  CscMatrix a;
  a.n = std::max<int64_t>(2 * width, bytes / (8 + 12 * width));
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n; ++j) {
    const int64_t first = std::clamp<int64_t>(j - width / 2, 0, a.n - width);
    for (int64_t i = first; i < first + width; ++i) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == j ? 2.0 * static_cast<double>(width) : -1.0);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

int RunUpload(const UploadBench& bench) {
  const BareServer bare;
  if (bare.address().empty()) {
    std::cerr << "error: the bare server could not be started\n";
    return 1;
  }
  CscMatrix a = Band(bench.megabytes << 20, 27);
  const auto bytes = static_cast<int64_t>(8 * a.col_ptr.size() + 12 * a.row_idx.size());
  Client client({.address = bench.address, .send_checksums = bench.checksums});
  SharedUpload shared(bench, a);
  std::vector<double> bare_seconds, upload_seconds, shared_seconds, server_ms, hashed_seconds,
      found_seconds;
  for (int round = -1; round < bench.rounds; ++round) {  // round -1 warms both up
    const double seconds = SendBareStream(bare.address(), bytes);
    if (seconds < 0) return 1;
    a.values[0] = 100.0 + round;  // new content: the server must not have it
    Timings timings;
    const auto start = std::chrono::steady_clock::now();
    const auto stored = client.Upload(a, "upload benchmark", {}, &timings);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (!stored.ok()) {
      std::cerr << "error: " << stored.error().message << '\n';
      return 1;
    }
    if (timings.bytes_up != bytes) {
      std::cerr << "error: the server received " << timings.bytes_up << " bytes of " << bytes
                << "; was the matrix there already?\n";
      return 1;
    }
    const double upload_ms = timings.upload_ms;
    // Found: the first time the server makes SHA-256, too.
    std::vector<double> found;
    for (int time = 0; time < (bench.again ? 2 : 0); ++time) {
      const auto again = std::chrono::steady_clock::now();
      if (!client.Upload(a, "", {}, &timings).ok() || timings.bytes_up != 0) {
        std::cerr << "error: the matrix was not found again\n";
        return 1;
      }
      found.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - again).count());
    }
    if (auto error = client.DeleteMatrix(stored->name)) {
      std::cerr << "error: " << error->message << '\n';
      return 1;
    }
    const double in_shared = bench.local_socket.empty() ? 0 : shared.Run(200.0 + round, bytes);
    if (in_shared < 0) return 1;
    if (round < 0) continue;
    shared_seconds.push_back(in_shared);
    bare_seconds.push_back(seconds);
    upload_seconds.push_back(elapsed.count());
    server_ms.push_back(upload_ms);
    if (found.empty()) continue;
    hashed_seconds.push_back(found[0]);
    found_seconds.push_back(found[1]);
  }
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  nlohmann::ordered_json result = {
      {"benchmark", "upload"},
      {"bytes", bytes},
      {"rounds", bench.rounds},
      {"checksums", bench.checksums},
      {"bare_gb_per_s", gigabytes / Median(bare_seconds)},
      {"upload_gb_per_s", gigabytes / Median(upload_seconds)},
      {"ratio", Median(bare_seconds) / Median(upload_seconds)},
      {"server_upload_ms", Median(server_ms)},
      {"bare_seconds", bare_seconds},
      {"upload_seconds", upload_seconds},
  };
  if (bench.again) {
    result["found_by_sha256_gb_per_s"] = gigabytes / Median(hashed_seconds);
    result["found_again_gb_per_s"] = gigabytes / Median(found_seconds);
  }
  if (!bench.local_socket.empty()) {
    result["shared_gb_per_s"] = gigabytes / Median(shared_seconds);
    result["shared_speedup"] = Median(upload_seconds) / Median(shared_seconds);
    result["shared_seconds"] = shared_seconds;
  }
  std::cout << result.dump(2) << std::endl;
  return 0;
}

}  // namespace spaid::bench
