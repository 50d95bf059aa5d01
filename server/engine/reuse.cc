#include "server/engine/reuse.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace spaid::server {
namespace {

using kernels::Outcome;

std::span<const double> Column(std::span<const double> all, int64_t n, int64_t rhs) {
  return all.subspan(static_cast<size_t>(rhs * n), static_cast<size_t>(n));
}

void AddFigures(const kernels::SolveFigures& more, kernels::SolveFigures* all) {
  all->place_ms += more.place_ms;
  all->host_to_device_ms += more.host_to_device_ms;
  all->iterate_ms += more.iterate_ms;
  all->check_ms += more.check_ms;
  all->device_to_host_ms += more.device_to_host_ms;
  all->iterations += more.iterations;
  all->bytes += more.bytes;
}

}  // namespace

SolveTerms SolveTerms::Of(const kernels::SolveOptions& options, bool guess) {
  SolveTerms terms{
      .method = options.method, .rtol = options.rtol, .atol = options.atol, .guess = guess};
  if (options.method == kernels::Method::kGmres) {
    terms.restart = options.restart;
    terms.basis_bytes = options.basis_bytes;
  }
  if (options.method == kernels::Method::kIdr) terms.shadow_vectors = options.shadow_vectors;
  return terms;
}

const int64_t* FirstCounts::FindLocked(const SolveTerms& terms) const {
  const auto found = std::find_if(counts_.begin(), counts_.end(),
                                  [&](const auto& known) { return known.first == terms; });
  return found != counts_.end() ? &found->second : nullptr;
}

std::optional<int64_t> FirstCounts::Find(const SolveTerms& terms) const {
  const std::lock_guard lock(mutex_);
  const int64_t* found = FindLocked(terms);
  if (found == nullptr && terms.guess) {
    SolveTerms without = terms;
    without.guess = false;
    found = FindLocked(without);
  }
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

void FirstCounts::Record(const SolveTerms& terms, int64_t iterations) {
  if (iterations < 1) return;
  const std::lock_guard lock(mutex_);
  if (FindLocked(terms) != nullptr) return;
  if (counts_.size() == kMost) counts_.erase(counts_.begin());
  counts_.emplace_back(terms, iterations);
}

int64_t AllowedIterations(double factor, int64_t first, int64_t most) {
  // A product that is whole but for its rounding is not rounded up.
  constexpr double kRounding = 4 * std::numeric_limits<double>::epsilon();
  const double allowed = std::ceil(factor * static_cast<double>(first) * (1 - kRounding));
  return allowed < static_cast<double>(most) ? static_cast<int64_t>(allowed) : most;
}

int64_t MostIterations(const kernels::SolveResult& solved) {
  int64_t most = 0;
  for (const kernels::RhsResult& rhs : solved.rhs) most = std::max(most, rhs.iterations);
  return most;
}

bool AllConverged(const kernels::SolveResult& solved) {
  return std::all_of(solved.rhs.begin(), solved.rhs.end(),
                     [](const auto& rhs) { return rhs.outcome == Outcome::kConverged; });
}

bool MayMend(const kernels::RhsResult& rhs) {
  return rhs.outcome != Outcome::kConverged && rhs.outcome != Outcome::kCancelled &&
         rhs.outcome != Outcome::kTimeLimit && !rhs.beyond_reach;
}

std::vector<SolveLeg> LegsLeft(const kernels::SolveResult& solved, int64_t most, bool spent_alone) {
  std::vector<SolveLeg> legs;
  for (size_t k = 0; k < solved.rhs.size(); ++k) {
    const kernels::RhsResult& rhs = solved.rhs[k];
    if (!MayMend(rhs) || rhs.iterations >= most) continue;
    if (spent_alone && rhs.outcome != Outcome::kMaxIterations) continue;
    auto leg = std::find_if(legs.begin(), legs.end(),
                            [&](const SolveLeg& one) { return one.before == rhs.iterations; });
    if (leg == legs.end()) leg = legs.insert(leg, SolveLeg{.rhs = {}, .before = rhs.iterations});
    leg->rhs.push_back(static_cast<int32_t>(k));
  }
  return legs;
}

kernels::Array<double> ColumnsOf(const SolveLeg& leg, std::span<const double> all, int64_t n) {
  kernels::Array<double> columns;
  columns.resize(leg.rhs.size() * static_cast<size_t>(n));
  for (size_t k = 0; k < leg.rhs.size(); ++k) {
    const auto from = Column(all, n, leg.rhs[k]);
    std::copy(from.begin(), from.end(), columns.begin() + static_cast<int64_t>(k) * n);
  }
  return columns;
}

void AddLeg(const SolveLeg& leg, int64_t n, kernels::SolveResult more, kernels::SolveResult* all) {
  for (size_t k = 0; k < leg.rhs.size(); ++k) {
    const auto from = Column(more.x, n, static_cast<int64_t>(k));
    std::copy(from.begin(), from.end(), all->x.begin() + leg.rhs[k] * n);
    kernels::RhsResult& rhs = all->rhs[static_cast<size_t>(leg.rhs[k])];
    rhs = std::move(more.rhs[k]);
    rhs.iterations += leg.before;
  }
  AddFigures(more.figures, &all->figures);
  all->solve_ms += more.solve_ms;
  all->m_storage = more.m_storage;
  all->storage_reason = std::move(more.storage_reason);
}

}  // namespace spaid::server
