// Learns the ratio of measured to predicted times of jobs, and corrects predictions by it.
//
//   Predictions predictions(/*devices=*/2);
//   predictions.ExpectedMs(work, device);                  // corrected by what was learned
//   predictions.Learn(work, device, took_ms, /*iterations=*/250);
//
// Ratios are learned per tenant, so that nobody's jobs distort what is expected of another's;
// within a tenant by device, kind of work and, if there were such jobs, size. For a tenant whose
// jobs of a kind are not known yet, the median over the tenants is used: each tenant counts once,
// however many jobs it ran, and if there are fewer than three, the uncorrected prediction counts
// for the rest.
//
// Two ratios are learned from a solve: of the time per iteration, and of the number of iterations.
// A solve that was long only because of its iterations says nothing about the machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/sched/fair_queue.h"

namespace spaid::server {

// Predictions below this teach nothing: their ratio is overhead and noise.
inline constexpr double kMinPredictedMs = 0.1;

// Not thread-safe.
class Predictions {
 public:
  // The most tenants remembered. Beyond, the one without a weight of its own that learned longest
  // ago is forgotten.
  static constexpr size_t kTenants = 256;

  // The ratio of measured to predicted time of one kind of work on one device: the tenants' median.
  struct Ratio {
    size_t device = 0;
    std::string what;
    double value = 1;
    int64_t jobs = 0;  // sum over all tenants
  };

  explicit Predictions(size_t max_tenants = kTenants,
                       const std::map<std::string, double>& tenant_weights = {})
      : max_tenants_(max_tenants), tenant_weights_(tenant_weights) {}

  // Returns the work's own prediction.
  static double UnlearnedMs(const Work& work);
  double ExpectedMs(const Work& work, size_t device) const;
  // Learns from a job. `iterations`: made by a solve, ignored for other work. A solve that made
  // none teaches nothing: it had no time to be long or short.
  void Learn(const Work& work, size_t device, double took_ms, double iterations);

  // Whether the tenant's jobs of this kind have taught something.
  bool Learned(const Work& work) const;

  std::vector<Ratio> Ratios() const;
  size_t tenants() const { return by_name_.size(); }

 private:
  struct Mean {
    double value = 1;
    int64_t jobs = 0;
    void Add(double measured);
  };
  struct Cell {
    Mean time, iterations;
  };
  // The ratios of one kind of work, by size: the predictions of short and long jobs are often wrong
  // for different reasons.
  static constexpr size_t kSizes = 16, kAll = kSizes;
  static size_t SizeOf(double predicted_ms);  // by factors of four
  using Kind = std::array<Cell, kSizes + 1>;
  using Key = std::pair<size_t, std::string>;  // device, kind of work
  struct Less {                                // compares keys, also in the form of KeyView
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return a.first != b.first ? a.first < b.first
                                : std::string_view(a.second) < std::string_view(b.second);
    }
  };
  using KeyView = std::pair<size_t, std::string_view>;
  struct Tenant {
    std::string name;
    std::map<Key, Kind, Less> kinds;
  };
  struct Median {
    Cell cell;           // for a tenant that is not known
    double ratio = 1;    // median of the tenants' ratios of time
    bool known = false;  // no tenant has learned since
  };

  static double ExpectedOf(const Work& work, const Cell& cell);
  const Median& MedianOf(const KeyView& key, size_t size) const;
  void DropOldest();

  const size_t max_tenants_;
  const std::map<std::string, double> tenant_weights_;
  std::list<Tenant> tenants_;  // who learned last is first
  std::unordered_map<std::string, std::list<Tenant>::iterator> by_name_;
  mutable std::map<Key, std::array<Median, kSizes + 1>, Less> medians_;
};

}  // namespace spaid::server
