#include "kernels/engine/engine_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/auto_tuning.h"
#include "kernels/engine/engine_parts.h"
#include "kernels/engine/local_sample.h"
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

// What all candidates have in common.
class Costs {
 public:
  Costs(const CscView& a, Method method, int threads)
      : a_(a),
        method_(method),
        setup_ms_(1e-6 * tuning::kEntryNs / threads),
        solve_ms_(1e-6 * tuning::kEntryNs /
                  std::min(static_cast<double>(threads), tuning::kSolveThreads)) {}

  // `setup` in entries; `entries` of M that a product with it reads.
  Candidate Make(EngineKind kind, const char* name, double setup, double iterations,
                 double entries) const {
    Candidate c;
    c.spec.engine = kind;
    c.name = name;
    c.setup_ms = setup_ms_ * setup;
    c.iterations = std::max(1.0, iterations);
    const double passes = tuning::kPasses + (method_ == Method::kGmres ? tuning::kGmresPasses : 0);
    const double one = ToDouble(a_.nnz()) + passes * ToDouble(a_.n_cols) + entries;
    c.iteration_ms = solve_ms_ * (method_ == Method::kBicgstab ? 2 : 1) * one;
    return c;
  }

 private:
  const CscView a_;
  const Method method_;
  const double setup_ms_, solve_ms_;
};

double JacobiIterations(const CscView& a, const LocalSample& sample) {
  const double n = ToDouble(a.n_cols);
  double iterations =
      tuning::kJacobi * std::pow(n, tuning::kSize) * std::max(sample.gain, tuning::kLeastGain);
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
  return costs.Make(EngineKind::kFsai, "FSAI",
                    n * (tuning::kFsaiRow + tuning::kFsaiEntry * sample.entries), ratio * jacobi,
                    2 * n * (sample.entries + 1));
}

// `gains`: of the light adaptive FSAI over static FSAI.
Candidate Afsai(const Costs& costs, const CscView& a, double fsai, double jacobi, double gains,
                double row_entries) {
  const double n = ToDouble(a.n_cols);
  const double ratio =
      std::exp(-tuning::kAfsaiFall * (std::min(gains, tuning::kMostGainRatio) - 1));
  Candidate c =
      costs.Make(EngineKind::kAfsai, "aFSAI of three steps of three",
                 n * tuning::kAfsaiRow + tuning::kAfsaiEntry * ToDouble(a.nnz()),
                 std::min(ratio * fsai, tuning::kMostRatio * jacobi), 2 * n * row_entries);
  c.spec.fsai.k_max = tuning::kAfsaiSteps;
  c.spec.fsai.s = tuning::kAfsaiPerStep;
  return c;
}

// Whether the local problems are those of A's own pattern, which the sample has seen.
bool IsPlain(const StaticSpaiOptions& options, const PatternView* user_pattern) {
  const PatternOptions& pattern = options.pattern;
  return user_pattern == nullptr && pattern.power == 1 && !pattern.keep_tau &&
         !pattern.ensure_row && !pattern.row_match && options.local_solver == LocalSolver::kAuto;
}

// `host_bytes`: 0 where they are too few to ask.
Result<Candidate> StaticSpai(const Costs& costs, const PreconditionerSpec& asked, const CscView& a,
                             const Diagnosis& d, const LocalSample& sample, double jacobi,
                             const PatternView* user_pattern, const Context& context,
                             int64_t* host_bytes) {
  constexpr int64_t kFewEntries = 1'000'000;
  const double n = ToDouble(a.n_cols), longest = ToDouble(d.max_column_entries);
  double setup = n * (tuning::kSpaiColumn + tuning::kSpaiEntry * sample.local_entries);
  if (longest > tuning::kLongColumn) setup += std::pow(longest, 3) / tuning::kLongColumnCube;
  const StaticSpaiOptions& options = asked.static_spai;
  const bool plain = IsPlain(options, user_pattern);
  PreconditionerSpec spec;
  spec.engine = EngineKind::kStaticSpai;
  spec.static_spai = options;
  BuildEstimate estimate;
  estimate.nnz_m = a.nnz();
  if (!plain || a.nnz() > kFewEntries) {
    auto counted = EstimateBuild(spec, a, user_pattern, context);
    if (!counted.ok()) return counted.status();
    estimate = *counted;
  }
  *host_bytes = estimate.host_bytes;
  double ratio =
      tuning::kSpai * std::exp(-tuning::kSpaiFall * std::max(sample.gain, tuning::kLeastGain));
  // Between the diagonal and A's pattern M's entries count, over that their square root: as for
  // p = 2, which takes some 0.55 of the iterations of p = 1 with three to four times its entries.
  const double own = std::max(1.0, ToDouble(a.nnz()) - n);
  const double share = (ToDouble(estimate.nnz_m) - n) / own;
  ratio = share < 1 ? 1 - std::max(0.0, share) * (1 - ratio) : ratio / std::sqrt(share);
  Candidate c = costs.Make(EngineKind::kStaticSpai, "static SPAI", setup, ratio * jacobi,
                           ToDouble(estimate.nnz_m));
  if (!plain) c.setup_ms = estimate.predicted_ms;
  c.spec = spec;
  return c;
}

// Of all entries, by more than rounding: 1ᵀA1 < 0.
bool HasNegativeSum(const CscView& a) {
  double sum = 0, size = 0;
  for (const double v : a.values) {
    sum += v;
    size += std::abs(v);
  }
  return sum < -1e-10 * size;
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

const char* NameOf(Method method) {
  return method == Method::kCg ? "CG" : method == Method::kGmres ? "GMRES" : "BiCGSTAB";
}

ResolvedSpec Chosen(const Candidate& c, const std::string& reason) {
  return {c.spec, std::string(c.name) + ": " + reason};
}

}  // namespace

Result<ResolvedSpec> ChooseEngine(const PreconditionerSpec& spec, const CscView& a,
                                  const Diagnosis& d, const PatternView* user_pattern,
                                  const Context& context) {
  const int threads = ResolveThreads(context.threads);
  const LocalSample sample = SampleLocally(a, d.numerically_symmetric);
  const bool symmetric = d.numerically_symmetric && d.negative_diagonal.count == 0;
  const bool indefinite = symmetric && (sample.negative_psi || HasNegativeSum(a));
  const bool for_cg = spec.method == Method::kCg;
  const Method method = spec.method != Method::kAuto ? spec.method
                        : symmetric && !indefinite   ? Method::kCg
                                                     : Method::kBicgstab;
  const Costs costs(a, method, threads);
  const double iterations = JacobiIterations(a, sample);
  const Candidate jacobi = costs.Make(EngineKind::kJacobi, "Jacobi",
                                      tuning::kJacobiRow * ToDouble(a.n_cols), iterations, 0);
  const std::string what = WhatAIs(d);
  std::string note;

  std::vector<Candidate> others;
  // A pattern that came with the request is static SPAI's.
  if (symmetric && !indefinite && user_pattern == nullptr) {
    const Candidate fsai = Fsai(costs, a, sample, iterations);
    // As good as the light adaptive one may be: not worth a look where even that would be too slow.
    Candidate afsai = Afsai(costs, a, fsai.iterations, iterations, tuning::kMostGainRatio,
                            1 + tuning::kAfsaiSteps * tuning::kAfsaiPerStep);
    if (afsai.total_ms() < tuning::kWorth * jacobi.total_ms()) {
      std::vector<int32_t> rows;
      for (int64_t k = 0; k < std::min<int64_t>(a.n_cols, tuning::kSampledRows); ++k) {
        rows.push_back(static_cast<int32_t>(SampledColumn(a.n_cols, k)));
      }
      FsaiOptions options = afsai.spec.fsai;
      options.adaptive = true;
      const FsaiSample seen = SampleFsai(a, rows, options);
      const double gains = std::max(seen.grown_gain, tuning::kLeastGain) /
                           std::max(seen.static_gain, tuning::kLeastGain);
      afsai = Afsai(costs, a, fsai.iterations, iterations, gains, seen.grown_entries);
      others.push_back(afsai);
    }
    others.push_back(fsai);
  }
  if (method != Method::kCg) {
    int64_t host_bytes = 0;
    auto spai =
        StaticSpai(costs, spec, a, d, sample, iterations, user_pattern, context, &host_bytes);
    if (!spai.ok()) return spai.status();
    // Asking takes as long as a small solve.
    if (host_bytes > kMuchMemory && host_bytes > UsableMemoryBytes() / 2) {
      note = "; static SPAI may take " + std::to_string(host_bytes) +
             " bytes, more than half of the usable memory";
    } else if (indefinite) {
      return Chosen(*spai, what +
                               ", but not definite: its entries have a negative sum, or a local "
                               "pivot is negative, so that CG and FSAI do not apply; predicted "
                               "at " +
                               spai->Costs() + " of " + NameOf(method) +
                               "; second choice: Jacobi, which suggests CG, at " + jacobi.Costs());
    } else if (!symmetric && sample.growth > tuning::kMostGrowth) {
      return Chosen(*spai, what +
                               ", and its diagonal says little of its inverse: eliminating the "
                               "entries before a diagonal entry changes its logarithm by " +
                               Figure(std::sqrt(sample.growth)) +
                               " upwards (root mean square), by which Jacobi tends to break "
                               "down; predicted at " +
                               spai->Costs() + " of " + NameOf(method) +
                               "; second choice: Jacobi at " + jacobi.Costs());
    } else {
      others.push_back(*std::move(spai));
    }
  }
  if (indefinite && for_cg) note += "; A is not definite, which CG may find";

  const std::string explained = ", the entries before a diagonal entry explain " +
                                Figure(1 - std::exp(-std::max(0.0, sample.gain))) +
                                " of it; predicted with " + NameOf(method) + " at ";
  if (others.empty()) return Chosen(jacobi, what + explained + jacobi.Costs() + note);
  std::sort(others.begin(), others.end(),
            [](const Candidate& x, const Candidate& y) { return x.total_ms() < y.total_ms(); });
  const Candidate& best = others.front();
  const bool as_good_as_singular = sample.gain > tuning::kMostGain;
  if (best.total_ms() > tuning::kWorth * jacobi.total_ms() || as_good_as_singular) {
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
