#include "kernels/engine/engine_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/auto_tuning.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/local_sample.h"
#include "kernels/engine/preconditioner_engine.h"
#include "kernels/fsai/fsai_sample.h"

namespace spaid::kernels {
namespace {

namespace tuning = auto_tuning;

constexpr int64_t kMuchMemory = int64_t{64} << 20;

double ToDouble(int64_t x) { return static_cast<double>(x); }

struct Candidate {
  PreconditionerSpec spec;
  const char* name = "";
  double setup_ms = 0, iterations = 0, iteration_ms = 0;

  double total_ms() const { return setup_ms + iterations * iteration_ms; }
  std::string Costs() const {
    return Figure(total_ms()) + " ms (set-up " + Figure(setup_ms) + ", " +
           std::to_string(std::llround(iterations)) + " iterations at " + Figure(iteration_ms) +
           ")";
  }
};

// The solve that the engine is for, and where.
struct Costs {
  SolveWork solve;
  Backend backend = Backend::kCpu;
  int threads = 1;
  double longest_column = 0;

  // Share of Jacobi's predicted time that another engine may take to be chosen.
  double worth() const { return backend == Backend::kCuda ? tuning::gpu::kWorth : tuning::kWorth; }
  // Time of a look at rows of FSAI (SampleFsai), where that is no small part of a solve.
  double LookMs() const {
    return backend == Backend::kCpu ? 0
                                    : tuning::gpu::kLookMs + tuning::gpu::kLookRowMs * solve.n +
                                          tuning::gpu::kLookEntryMs * solve.nnz_a;
  }
  // `of_m`: entries of M that a product reads; 0: a diagonal.
  Candidate Of(EngineKind kind, const char* name, double build_ms, double of_m,
               double iterations) const {
    Candidate c;
    c.spec.engine = kind;
    c.name = name;
    c.setup_ms = build_ms;
    if (backend == Backend::kCuda) c.setup_ms += MoveVectorsMs(solve.n, solve.n_rhs);
    c.iterations = std::max(1.0, iterations);
    SolveWork with = solve;
    with.nnz_m = of_m;
    c.iteration_ms = IterationMs(with, backend, threads);
    return c;
  }
  double BuildMs(EngineKind engine, const BuildWork& work) const {
    const BuildRates& rates = TraitsOf(engine).rates;
    return backend == Backend::kCuda ? DeviceBuildMs(rates, work)
                                     : kernels::BuildMs(rates, work, threads);
  }
};

double JacobiIterations(const CscView& a, const LocalSample& sample) {
  const double n = ToDouble(a.n_cols);
  double iterations = tuning::kJacobi * std::pow(std::min(n, tuning::kLarge), tuning::kSize) *
                      std::pow(std::max(1.0, n / tuning::kLarge), tuning::kLargeSize) *
                      std::max(sample.gain, tuning::kLeastGain);
  if (sample.dominance > 0 && sample.low_dominance > tuning::kLeastDominance) {
    iterations =
        std::min(iterations, tuning::kDominant / std::sqrt(sample.dominance) + tuning::kFew);
  }
  return std::min(iterations, n);
}

Candidate Fsai(const Costs& costs, const CscView& a, const LocalSample& sample, double jacobi) {
  const double n = ToDouble(a.n_cols);
  const double ratio =
      tuning::kFsai *
      std::min(1.0, std::exp(-tuning::kFsaiFall * (sample.gain - tuning::kFsaiGain)));
  // The sample counts a long row's last ones alone: what the CPU's costs were fitted with.
  const double entries =
      costs.backend == Backend::kCpu ? n * (sample.entries + 1) : (ToDouble(a.nnz()) + n) / 2;
  const BuildWork work{.rows = n, .nnz_a = ToDouble(a.nnz()), .entries = entries};
  return costs.Of(EngineKind::kFsai, "FSAI", costs.BuildMs(EngineKind::kFsai, work), 2 * entries,
                  ratio * jacobi);
}

// One that AUTO may choose.
struct Growth {
  const char* name;
  int steps, per_step;
};
constexpr Growth kGrowths[] = {
    {"aFSAI of three steps of three", tuning::kAfsaiSteps, tuning::kAfsaiPerStep},
    {"aFSAI of thirty steps of one", tuning::gpu::kAfsaiSteps, tuning::gpu::kAfsaiPerStep},
};

// `gains`: of this adaptive FSAI over static FSAI.
Candidate Afsai(const Costs& costs, const CscView& a, const Growth& growth, double fsai,
                double jacobi, double gains, double row_entries) {
  const double ratio =
      std::exp(-tuning::kAfsaiFall * (std::min(gains, tuning::kMostGainRatio) - 1));
  const double n = ToDouble(a.n_cols), nnz = ToDouble(a.nnz());
  FsaiOptions options;
  options.k_max = growth.steps;
  options.s = growth.per_step;
  const double added = n * (row_entries - 1);
  const BuildWork work{.rows = n,
                       .nnz_a = nnz,
                       .entries = n * row_entries,
                       .gathered = GatheredByGrowth(added, nnz / n, options)};
  Candidate c = costs.Of(EngineKind::kAfsai, growth.name, costs.BuildMs(EngineKind::kAfsai, work),
                         2 * work.entries, std::min(ratio * fsai, tuning::kMostRatio * jacobi));
  c.spec.fsai.k_max = growth.steps;
  c.spec.fsai.s = growth.per_step;
  return c;
}

// Nothing where it would be too slow even if it were as good as it may be: then rows of it are not
// looked at, which takes time itself.
std::optional<Candidate> LookAtAfsai(const Costs& costs, const CscView& a, const Growth& growth,
                                     double fsai, const Candidate& jacobi, int threads) {
  const Candidate at_best = Afsai(costs, a, growth, fsai, jacobi.iterations, tuning::kMostGainRatio,
                                  1 + growth.steps * growth.per_step);
  if (at_best.total_ms() + costs.LookMs() >= costs.worth() * jacobi.total_ms()) return {};
  std::vector<int32_t> rows;
  for (int64_t k = 0; k < std::min<int64_t>(a.n_cols, tuning::kSampledRows); ++k) {
    rows.push_back(static_cast<int32_t>(SampledColumn(a.n_cols, k)));
  }
  FsaiOptions options = at_best.spec.fsai;
  options.adaptive = true;
  const FsaiSample seen = SampleFsai(a, rows, options, threads);
  const double gains = std::max(seen.grown_gain, tuning::kLeastGain) /
                       std::max(seen.static_gain, tuning::kLeastGain);
  return Afsai(costs, a, growth, fsai, jacobi.iterations, gains, seen.grown_entries);
}

// Whether the local problems are those of A's own pattern, which the sample has seen.
bool IsPlain(const StaticSpaiOptions& options, const PatternView* user_pattern) {
  const PatternOptions& pattern = options.pattern;
  return user_pattern == nullptr && pattern.power == 1 && !pattern.keep_tau &&
         !pattern.ensure_row && !pattern.row_match && options.local_solver == LocalSolver::kAuto;
}

struct SpaiCandidate {
  Candidate candidate;
  int64_t host_bytes = 0;  // of the build; 0: not counted, A's own pattern is known without
};

Result<SpaiCandidate> StaticSpai(const Costs& costs, const PreconditionerSpec& asked,
                                 const CscView& a, const LocalSample& sample, double jacobi,
                                 const PatternView* user_pattern, const Context& context) {
  const double n = ToDouble(a.n_cols);
  PreconditionerSpec spec;
  spec.engine = EngineKind::kStaticSpai;
  spec.static_spai = asked.static_spai;
  BuildEstimate estimate;
  estimate.nnz_m = a.nnz();
  double build_ms = 0;
  if (IsPlain(spec.static_spai, user_pattern)) {
    build_ms = costs.BuildMs(EngineKind::kStaticSpai, {.rows = n,
                                                       .nnz_a = ToDouble(a.nnz()),
                                                       .entries = ToDouble(a.nnz()),
                                                       .gathered = n * sample.local_entries,
                                                       .longest = costs.longest_column});
  } else {
    auto counted = FindEngine(spec.engine)->Estimate(spec, a, user_pattern, context);
    if (!counted.ok()) return counted.status();
    estimate = *counted;
    build_ms =
        costs.backend == Backend::kCuda ? estimate.predicted_device_ms : estimate.predicted_ms;
  }
  double ratio =
      tuning::kSpai * std::exp(-tuning::kSpaiFall * std::max(sample.gain, tuning::kLeastGain));
  // Between the diagonal and A's pattern M's entries count, over that their square root: as for
  // p = 2, which takes some 0.55 of the iterations of p = 1 with three to four times its entries.
  const double own = std::max(1.0, ToDouble(a.nnz()) - n);
  const double share = (ToDouble(estimate.nnz_m) - n) / own;
  ratio = share < 1 ? 1 - std::max(0.0, share) * (1 - ratio) : ratio / std::sqrt(share);
  Candidate c =
      costs.Of(spec.engine, "static SPAI", build_ms, ToDouble(estimate.nnz_m), ratio * jacobi);
  c.spec = spec;
  return SpaiCandidate{c, estimate.host_bytes};
}

// Host bytes of a build that may be chosen. Counting takes as long as a small solve: 0 where they
// are few.
Result<int64_t> HostBytes(const SpaiCandidate& spai, const CscView& a, const Context& context) {
  constexpr int64_t kFewEntries = 1'000'000;
  if (spai.host_bytes > 0 || a.nnz() <= kFewEntries) return spai.host_bytes;
  const auto counted =
      FindEngine(spai.candidate.spec.engine)->Estimate(spai.candidate.spec, a, nullptr, context);
  if (!counted.ok()) return counted.status();
  return counted->host_bytes;
}

// The sum of all entries, 1ᵀA1, is negative by more than rounding. A is symmetric with a positive
// diagonal.
bool HasNegativeSum(const CscView& a, const Diagnosis& d, int threads) {
  if (d.not_dominant_rows.count == 0) return false;
  // By parts of one size, so that the sums are the same for any number of threads.
  constexpr int64_t kPart = 1 << 16;
  struct Sums {
    double all = 0, sizes = 0;
  };
  const auto count = static_cast<int64_t>(a.values.size());
  std::vector<Sums> parts(static_cast<size_t>((count + kPart - 1) / kPart));
  ParallelFor(count, kPart, threads, [&](int64_t begin, int64_t end, int) {
    Sums& sums = parts[static_cast<size_t>(begin / kPart)];
    for (int64_t p = begin; p < end; ++p) {
      sums.all += a.values[static_cast<size_t>(p)];
      sums.sizes += std::abs(a.values[static_cast<size_t>(p)]);
    }
  });
  Sums total;
  for (const Sums& part : parts) {
    total.all += part.all;
    total.sizes += part.sizes;
  }
  return total.all < -1e-10 * total.sizes;
}

// "A is symmetric with a positive diagonal (n = 100)" and its like.
std::string WhatAIs(const Diagnosis& d) {
  const std::string n = " (n = " + std::to_string(d.n);
  if (!d.numerically_symmetric) {
    return "A is not symmetric" + n + ", first at column " + std::to_string(d.asymmetry_column) +
           ")";
  }
  return d.negative_diagonal.count == 0
             ? "A is symmetric with a positive diagonal" + n + ")"
             : "A is symmetric with " + std::to_string(d.negative_diagonal.count) +
                   " negative diagonal entries" + n + ")";
}

std::string NameOf(Method method) {
  switch (method) {
    case Method::kCg:
      return "CG";
    case Method::kGmres:
      return "GMRES";
    case Method::kMinres:
      return "MINRES";
    case Method::kIdr:
      return "IDR";
    case Method::kAuto:
    case Method::kBicgstab:
      break;
  }
  return "BiCGSTAB";
}

// "CG of 8 right-hand sides on a GPU": what the figures are of.
std::string NameOf(const Costs& costs) {
  const int64_t n_rhs = costs.solve.n_rhs;
  return NameOf(costs.solve.method) +
         (n_rhs > 1 ? " of " + std::to_string(n_rhs) + " right-hand sides" : std::string()) +
         (costs.backend == Backend::kCuda ? " on a GPU" : " on the CPU");
}

ResolvedSpec Chosen(const Candidate& c, const std::string& reason) {
  return {c.spec, std::string(c.name) + ": " + reason, c.iterations};
}

}  // namespace

Result<ResolvedSpec> ChooseEngine(const PreconditionerSpec& spec, const CscView& a,
                                  const Diagnosis& d, const PatternView* user_pattern,
                                  const Context& context) {
  const int threads = ResolveThreads(context.threads);
  const LocalSample sample = SampleLocally(a, d.numerically_symmetric);
  const bool symmetric = d.numerically_symmetric && d.negative_diagonal.count == 0;
  const bool indefinite = symmetric && (sample.negative_psi || HasNegativeSum(a, d, threads));
  const bool for_cg = spec.method == Method::kCg;
  const Method method = spec.method != Method::kAuto ? spec.method
                        : symmetric && !indefinite   ? Method::kCg
                                                     : Method::kBicgstab;
  const double n = ToDouble(a.n_cols), nnz = ToDouble(a.nnz());
  const Costs costs{
      .solve = {.method = method, .n = n, .nnz_a = nnz, .n_rhs = std::max<int64_t>(1, spec.n_rhs)},
      .backend = spec.backend,
      .threads = threads,
      .longest_column = ToDouble(d.max_column_entries)};
  const double iterations = JacobiIterations(a, sample);
  const BuildWork diagonal{.rows = n, .nnz_a = nnz, .entries = n};
  const Candidate jacobi = costs.Of(EngineKind::kJacobi, "Jacobi",
                                    costs.BuildMs(EngineKind::kJacobi, diagonal), 0, iterations);
  const std::string what = WhatAIs(d), with = NameOf(costs);
  std::string note;

  std::vector<Candidate> others;
  // A pattern that came with the request is static SPAI's.
  if (symmetric && !indefinite && user_pattern == nullptr) {
    const Candidate fsai = Fsai(costs, a, sample, iterations);
    // On the CPU growing so much was best on no matrix (docs/decisions/auto.md).
    const auto growths = std::span(kGrowths).first(costs.backend == Backend::kCuda ? 2 : 1);
    for (const Growth& growth : growths) {
      auto c = LookAtAfsai(costs, a, growth, fsai.iterations, jacobi, threads);
      if (c.has_value()) others.push_back(*std::move(c));
    }
    others.push_back(fsai);
  }
  if (!ForSymmetric(method)) {
    auto spai = StaticSpai(costs, spec, a, sample, iterations, user_pattern, context);
    if (!spai.ok()) return spai.status();
    const Candidate& c = spai->candidate;
    const bool outgrown = !symmetric && sample.growth > tuning::kMostGrowth;
    int64_t host_bytes = 0;
    if (indefinite || outgrown || c.total_ms() <= costs.worth() * jacobi.total_ms()) {
      const auto counted = HostBytes(*spai, a, context);
      if (!counted.ok()) return counted.status();
      host_bytes = *counted;
    }
    if (host_bytes > kMuchMemory && host_bytes > UsableMemoryBytes() / 2) {
      note = "; static SPAI may take " + std::to_string(host_bytes) +
             " bytes, more than half of the usable memory";
    } else if (indefinite) {
      return Chosen(c, what +
                           ", but not definite: its entries have a negative sum, or a local "
                           "pivot is negative, so that CG and FSAI do not apply; predicted "
                           "at " +
                           c.Costs() + " of " + with +
                           "; second choice: Jacobi, which suggests CG, at " + jacobi.Costs());
    } else if (outgrown) {
      return Chosen(c, what +
                           ", and its diagonal says little of its inverse: eliminating the "
                           "entries before a diagonal entry changes its logarithm by " +
                           Figure(std::sqrt(sample.growth)) +
                           " upwards (root mean square), by which Jacobi tends to break "
                           "down; predicted at " +
                           c.Costs() + " of " + with + "; second choice: Jacobi at " +
                           jacobi.Costs());
    } else {
      others.push_back(c);
    }
  }
  if (indefinite && for_cg) note += "; A is not definite, which CG may find";

  const std::string explained = ", the entries before a diagonal entry explain " +
                                Figure(1 - std::exp(-std::max(0.0, sample.gain))) +
                                " of it; predicted with " + with + " at ";
  if (others.empty()) return Chosen(jacobi, what + explained + jacobi.Costs() + note);
  std::sort(others.begin(), others.end(),
            [](const Candidate& x, const Candidate& y) { return x.total_ms() < y.total_ms(); });
  const Candidate& best = others.front();
  const bool as_good_as_singular = sample.gain > tuning::kMostGain;
  if (best.total_ms() > costs.worth() * jacobi.total_ms() || as_good_as_singular) {
    if (as_good_as_singular) {
      note += "; the local problems are as good as singular, where predictions of others fail";
    } else if (best.total_ms() < jacobi.total_ms()) {
      note += ", too little ahead to rely on";
    }
    return Chosen(jacobi, what + explained + jacobi.Costs() + "; second choice: " + best.name +
                              " at " + best.Costs() + note);
  }
  const Candidate& second =
      others.size() > 1 && others[1].total_ms() < jacobi.total_ms() ? others[1] : jacobi;
  return Chosen(best, what + explained + best.Costs() + "; second choice: " + second.name + " at " +
                          second.Costs() + note);
}

}  // namespace spaid::kernels
