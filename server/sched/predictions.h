// What jobs took over what they were predicted to take: how wrong predictions are on this machine.
//
//   Predictions predictions(/*devices=*/2);
//   predictions.ExpectedMs(work, device);                  // corrected by what was learned
//   predictions.Learn(work, device, took_ms, /*iterations=*/250);
//
// Learned tenant by tenant, so that nobody's jobs bend what is expected of another's; within a
// tenant by device, kind of work and, where there were such, about the same size. For a
// tenant whose jobs of a kind are not known yet, the median over the tenants is expected: each of
// these has one voice, however many jobs it ran, and where they are fewer than three, the
// prediction has the rest.
//
// Two things are learned of a solve: what an iteration takes, and how many iterations there are. A
// solve that was long only by its iterations says nothing of the machine.
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

// Under this, the measured ratio is overhead and noise.
inline constexpr double kMinPredictedMs = 0.1;

// Not thread-safe.
class Predictions {
 public:
  // Tenants remembered: beyond, the one that learned longest ago is forgotten, of those without a
  // weight of their own.
  static constexpr size_t kTenants = 256;

  // Measured over predicted time of one kind of work on one device: the median over the tenants.
  struct Ratio {
    size_t device = 0;
    std::string what;
    double value = 1;
    int64_t jobs = 0;  // of all tenants
  };

  explicit Predictions(size_t max_tenants = kTenants,
                       const std::map<std::string, double>& tenant_weights = {})
      : max_tenants_(max_tenants), tenant_weights_(tenant_weights) {}

  // As the work says itself.
  static double UnlearnedMs(const Work& work);
  double ExpectedMs(const Work& work, size_t device) const;
  // `iterations`: that a solve made; of other work unread. One that made none teaches nothing: it
  // had no time to be long or short.
  void Learn(const Work& work, size_t device, double took_ms, double iterations);

  std::vector<Ratio> Ratios() const;
  size_t tenants() const { return by_name_.size(); }

 private:
  struct Learned {
    double value = 1;
    int64_t jobs = 0;
    void Add(double measured);
  };
  struct Cell {
    Learned time, iterations;
  };
  // One kind of work's ratios, by size: the prediction of a short job is often wrong for another
  // reason than that of a long one.
  static constexpr size_t kSizes = 16, kAll = kSizes;
  static size_t SizeOf(double predicted_ms);  // by factors of four
  using Kind = std::array<Cell, kSizes + 1>;
  using Key = std::pair<size_t, std::string>;  // device, kind of work
  struct Less {                                // of keys, and of pairs that would be
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
    Cell cell;           // of a tenant that is not known
    double ratio = 1;    // of the tenants' times
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
