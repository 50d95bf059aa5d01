#include "client/load/memory.h"

#include <fstream>
#include <string>

namespace spaid::load {
namespace {

constexpr size_t kMaxSamples = 4096;

}  // namespace

double ResidentMib(int64_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024.0;
  }
  return -1;
}

void MemoryTrack::Add(int64_t jobs, double mib) {
  if (seen_++ % stride_ != 0) return;
  if (samples_.size() == kMaxSamples) {
    for (size_t i = 0; i < kMaxSamples / 2; ++i) samples_[i] = samples_[2 * i];
    samples_.resize(kMaxSamples / 2);
    stride_ *= 2;
  }
  samples_.emplace_back(static_cast<double>(jobs), mib);
}

double MemoryTrack::KibPer1000Jobs() const {
  double x = 0, y = 0, xx = 0, xy = 0;
  const size_t begin = samples_.size() / 2;
  const auto count = static_cast<double>(samples_.size() - begin);
  for (size_t i = begin; i < samples_.size(); ++i) {
    x += samples_[i].first / count, y += samples_[i].second / count;
  }
  for (size_t i = begin; i < samples_.size(); ++i) {
    const auto [jobs, mib] = samples_[i];
    xx += (jobs - x) * (jobs - x);
    xy += (jobs - x) * (mib - y);
  }
  return xx > 0 ? xy / xx * 1000 * 1024 : 0;
}

}  // namespace spaid::load
