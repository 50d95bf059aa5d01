#include "server/sched/predictions.h"

#include <algorithm>
#include <cmath>

namespace spaid::server {
namespace {

// Weight of a new measurement of actual over predicted time, in the logarithm: the ratios of one
// machine scatter by factors.
constexpr double kRatioWeight = 0.25;
constexpr double kLeastRatio = 1e-3, kMostRatio = 1e3;
// Bounds what is learned of iterations: solves may make any number of them.
constexpr double kMostIterations = 1e7;

// Not of an empty one; of an even number the lower one in the middle.
double MedianOfRatios(std::vector<double>& ratios) {
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>((ratios.size() - 1) / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

// The median of few, or of an even number, counts those who know nothing, too: what a single tenant
// has taught is nothing that another one may rely on.
double ExpectedRatio(std::vector<double>& ratios) {
  while (ratios.size() < 3 || ratios.size() % 2 == 0) ratios.push_back(1);
  return MedianOfRatios(ratios);
}

}  // namespace

size_t Predictions::SizeOf(double predicted_ms) {
  constexpr int kSmallest = -2;  // 4^-2 ms, under kMinPredictedMs
  const int octave = std::ilogb(std::max(predicted_ms, kMinPredictedMs));
  const int size = (octave - (octave & 1)) / 2 - kSmallest;
  return static_cast<size_t>(std::clamp(size, 0, static_cast<int>(kSizes) - 1));
}

void Predictions::Mean::Add(double measured) {
  ++jobs;
  // The mean while there are few jobs: the first one often has to wait for what is only done once.
  value *= std::pow(measured / value, std::max(kRatioWeight, 1 / static_cast<double>(jobs)));
}

double Predictions::UnlearnedMs(const Work& work) {
  return std::max(work.predicted_ms, kMinPredictedMs);
}

double Predictions::ExpectedOf(const Work& work, const Cell& cell) {
  double ms = work.predicted_ms;
  if (work.iterations > 0) {
    const double iterations = std::clamp(work.iterations * cell.iterations.value, 1.0,
                                         std::max(work.max_iterations, 1.0));
    ms += (iterations - work.iterations) * work.iteration_ms;
  }
  return std::max(ms, kMinPredictedMs) * cell.time.value;
}

double Predictions::ExpectedMs(const Work& work, size_t device) const {
  const KeyView key(device, work.what);
  const size_t size = SizeOf(work.predicted_ms);
  if (const auto own = by_name_.find(work.tenant); own != by_name_.end()) {
    const auto kind = own->second->kinds.find(key);
    if (kind != own->second->kinds.end()) {
      const Cell& of_size = kind->second[size];
      return ExpectedOf(work, of_size.time.jobs > 0 ? of_size : kind->second[kAll]);
    }
  }
  const Cell& of_size = MedianOf(key, size).cell;
  return ExpectedOf(work, of_size.time.jobs > 0 ? of_size : MedianOf(key, kAll).cell);
}

const Predictions::Median& Predictions::MedianOf(const KeyView& key, size_t size) const {
  static const Median kUnknown;
  const auto known = medians_.find(key);
  if (known == medians_.end()) return kUnknown;
  Median& median = known->second[size];
  if (median.known) return median;
  median = {.cell = {}, .ratio = 1, .known = true};
  std::vector<double> times, iterations;
  for (const Tenant& tenant : tenants_) {
    const auto kind = tenant.kinds.find(key);
    if (kind == tenant.kinds.end()) continue;
    const Cell& cell = kind->second[size];
    if (cell.time.jobs == 0) continue;
    times.push_back(cell.time.value);
    iterations.push_back(cell.iterations.value);
    median.cell.time.jobs += cell.time.jobs;
  }
  if (times.empty()) return median;
  median.ratio = MedianOfRatios(times);
  median.cell.time.value = ExpectedRatio(times);
  median.cell.iterations.value = ExpectedRatio(iterations);
  return median;
}

bool Predictions::Learned(const Work& work) const {
  const auto own = by_name_.find(work.tenant);
  return own != by_name_.end() &&
         std::any_of(own->second->kinds.begin(), own->second->kinds.end(),
                     [&](const auto& kind) { return kind.first.second == work.what; });
}

void Predictions::DropOldest() {
  const auto oldest = std::find_if(tenants_.rbegin(), tenants_.rend(), [this](const Tenant& t) {
    return tenant_weights_.count(t.name) == 0;
  });
  if (oldest == tenants_.rend()) return;
  for (const auto& [key, kind] : oldest->kinds) {
    for (Median& median : medians_[key]) median.known = false;
  }
  by_name_.erase(oldest->name);
  tenants_.erase(std::next(oldest).base());
}

void Predictions::Learn(const Work& work, size_t device, double took_ms, double iterations) {
  double predicted_ms = work.predicted_ms;
  const bool solves = work.iterations > 0;
  if (solves) {
    if (iterations < 1) return;
    predicted_ms += (iterations - work.iterations) * work.iteration_ms;
  }
  const double time =
      std::clamp(took_ms / std::max(predicted_ms, kMinPredictedMs), kLeastRatio, kMostRatio);
  const auto [it, is_new] = by_name_.try_emplace(work.tenant);
  if (is_new) {
    tenants_.push_front({work.tenant, {}});
    it->second = tenants_.begin();
  } else {
    tenants_.splice(tenants_.begin(), tenants_, it->second);
  }
  const Key key(device, work.what);
  Kind& kind = tenants_.front().kinds[key];
  const size_t size = SizeOf(work.predicted_ms);
  for (const size_t k : {size, kAll}) {
    kind[k].time.Add(time);
    if (solves) {
      kind[k].iterations.Add(
          std::clamp(iterations / work.iterations, 1 / kMostIterations, kMostIterations));
    }
  }
  auto& medians = medians_[key];
  medians[size].known = medians[kAll].known = false;
  if (by_name_.size() > max_tenants_) DropOldest();
}

std::vector<Predictions::Ratio> Predictions::Ratios() const {
  std::vector<Ratio> ratios;
  for (const auto& [key, medians] : medians_) {
    const Median& median = MedianOf({key.first, key.second}, kAll);
    if (median.cell.time.jobs == 0) continue;
    ratios.push_back({key.first, key.second, median.ratio, median.cell.time.jobs});
  }
  return ratios;
}

}  // namespace spaid::server
