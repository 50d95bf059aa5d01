#include "kernels/engine/first_rung.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <random>

#include "kernels/amg/amg.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/smoothers.h"
#include "kernels/amg/suitability.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/jacobi.h"
#include "kernels/engine/ladder_rungs.h"
#include "kernels/fsai/fsai.h"
#include "kernels/fsai/sampled_kaporin.h"
#include "kernels/sparse/jacobi_column.h"

namespace spaid::kernels {
namespace {

// Seen on some 50 grids and meshes of 10^4 to 2.7 10^6 unknowns (docs/decisions/auto.md), by
// Kaporin's reduction k of FSAI that ends soon. Where k >= 0.91, CG by Jacobi takes 4 to 18 times
// n^(1/4) iterations (4 where k = 0.9985, 15 to 18 where nodes have three unknowns), multigrid 10
// to 21, and FSAI over 0.48 of Jacobi's. Where k <= 0.83, Jacobi takes 30 to 39 times n^(1/4), on
// nodes 44 to 63, and FSAI 0.11 to 0.33 of these; where coefficients jump, which the diagonal
// tells, Jacobi takes 860 to 1,810 at any size and FSAI 200 to 395. Multigrid takes 25 to 48 there,
// 39 to 65 on jumps and 40 to 78 on nodes, each of 1.3 to 1.7 times the time that entries tell.
// Between there was none.
constexpr double kRegular = 0.87, kEven = 0.99, kShareOfFsai = 0.25;
constexpr double kEvenTimes = 1.0 / 3, kNodesTimes = 1.4, kIrregularTimes = 3;
constexpr double kIrregularNodesTimes = 4.2, kUnevenIterations = 1300, kUnevenOfFsai = 280;
constexpr double kAmgIterations = 20, kAmgIrregular = 40, kAmgUneven = 60, kAmgOfNodes = 75;
constexpr double kIrregularCycle = 1.5;
constexpr double kUneven = 0.5;  // decades
constexpr double kUsualDecades = 7;
// Multigrid's set-up over what the engine predicts for any A: less where rows are regular, as
// aggregates then are boxes and rows alike. For nodes of one unknown, and of several.
struct SetUpShares {
  double regular, irregular;
};
constexpr SetUpShares kOfOne{0.7, 1.1}, kOfNodes{0.4, 1.4};

// Rows that are grown, and columns of whole nodes that are summed: enough for a mean of k within
// 0.02.
constexpr int64_t kRows = 128, kColumns = 1024;
constexpr double kEntryBytes = 12;
// A leading part of A by which nodes are detected.
constexpr int64_t kLeading = 12'000;
// The most of constants in the sampled columns, where none of the boundary may be: over it A is
// no elliptic operator, as masses are not, which CG solves soon however its rows look.
constexpr double kMostRayleigh = 2 * kMostRayleighForAmg;
// Up to which the sample is enough, and nobody looks at all of A: on a grid of 128^3 it is off by a
// seventh.
constexpr double kClearRayleigh = 0.7 * kMostRayleighForAmg;

using Rows = DeviceTerms::Rows;

double ToDouble(int64_t x) { return static_cast<double>(x); }

struct Sample {
  double rayleigh = 0, beta = 0;  // as LookForAmg's, of the worst unknown of a node
  double spread = 0;              // standard deviation of the decades of the diagonal
};

Sample TakeSample(const CscView& a, int block) {
  std::minstd_rand random;  // a stride would be that of a grid
  std::array<double, kMostUnknowns> energy{}, squares{};
  double beta = 0, decades = 0, of_decades = 0;
  const int64_t nodes = kColumns / block;
  for (int64_t k = 0; k < nodes; ++k) {
    const int64_t first = block * (static_cast<int64_t>(random()) % (a.n_cols / block));
    for (int64_t own = 0; own < block; ++own) {
      const int64_t j = first + own;
      const auto rows = a.column(j);
      const auto values = a.column_values(j);
      double absolute = 0, along = 0, diagonal = 0;
      for (size_t p = 0; p < rows.size(); ++p) {
        if (rows[p] % block == own) along += values[p];
        if (rows[p] == j) diagonal = std::fabs(values[p]);
        absolute += std::fabs(values[p]);
      }
      energy[static_cast<size_t>(own)] += along;
      squares[static_cast<size_t>(own)] += diagonal;
      beta = std::max(beta, absolute / diagonal);
      const double exponent = std::log10(diagonal);
      decades += exponent;
      of_decades += exponent * exponent;
    }
  }
  const auto taken = static_cast<double>(nodes * block);
  const double mean = decades / taken;
  Sample sample{.beta = beta, .spread = std::sqrt(std::max(0.0, of_decades / taken - mean * mean))};
  for (size_t own = 0; own < static_cast<size_t>(block); ++own) {
    sample.rayleigh = std::max(sample.rayleigh, std::fabs(energy[own]) / squares[own]);
  }
  return sample;
}

bool IsClear(const Sample& sample) { return sample.rayleigh <= kClearRayleigh; }

int LeadingBlockSize(const CscView& a) {
  PatternView part = a;
  part.n_cols = std::min(a.n_cols, kLeading);
  const int block = DetectBlockSize(part);
  return a.n_cols % block == 0 ? block : 1;
}

PlannedRung RungOf(RungKind kind, const LadderCase& c, bool positive) {
  for (PlannedRung& rung : PlannedRungs(c, positive, RungKind::kLightAfsai)) {
    if (rung.kind == kind) return std::move(rung);
  }
  return {};
}

// The look at all of A counts that a sample has not spared. `known`: block and rows are.
void SetAmg(const Engine& engine, const LadderCase& c, const Sample& sample, bool known,
            const Context& context, DeviceTerms* terms) {
  PlannedRung rung = RungOf(RungKind::kAmg, c, terms->positive);
  AmgOptions& options = rung.spec.amg;
  options.smoother = ChooseSmoother(SmootherKind::kAuto, terms->positive, sample.beta);
  options.block_size = terms->block;
  const double setup_ms = SetupMs(engine, c, context, &rung);
  const int64_t limit = engine.State(context.device).limit_bytes;
  if (limit > 0 && rung.estimate.device_bytes_min > limit) return;
  const SetUpShares& shares = !known || terms->block > 1 ? kOfNodes : kOfOne;
  const double share = !terms->positive && known     ? 1
                       : known && terms->irregular() ? shares.irregular
                                                     : shares.regular;
  const double move_ms = std::min(setup_ms, MoveMs(terms->nnz));
  const bool looks = !IsClear(sample);
  terms->amg_setup_ms = move_ms + share * (setup_ms - move_ms) +
                        (known && looks ? StreamMs(kEntryBytes * terms->nnz, c.threads) : 0);
  terms->amg_entries = UsualAmgEntries(c.a.n_cols, c.a.nnz(), options);
}

RungKind Least(const RungTimes& times) {
  if (times.bottom_ms <= std::min(times.fsai_ms, times.amg_ms)) return RungKind::kBottom;
  return times.fsai_ms <= times.amg_ms ? RungKind::kLightAfsai : RungKind::kAmg;
}

// Whether Jacobi is foretold to take less than the set-ups alone.
bool EndsSooner(const DeviceTerms& terms) {
  return ForetellTimes(terms).bottom_ms <= std::min(terms.fsai_setup_ms, terms.amg_setup_ms);
}

}  // namespace

namespace {

bool Jumps(const DeviceTerms& t) { return t.irregular() && t.uneven && t.block == 1; }

// Jacobi's for seven decades.
double IterationsOf(const DeviceTerms& t) {
  if (Jumps(t)) return kUnevenIterations;
  const bool nodes = t.block > 1;
  switch (t.rows) {
    case Rows::kEven:
      return kEvenTimes * GuessedIterations(t.n);
    case Rows::kIrregular:
      return (nodes ? kIrregularNodesTimes : kIrregularTimes) * GuessedIterations(t.n);
    default:
      return (nodes ? kNodesTimes : 1) * GuessedIterations(t.n);
  }
}

}  // namespace

RungTimes ForetellTimes(const DeviceTerms& t) {
  SolveWork work{.method = t.positive ? Method::kCg : Method::kBicgstab,
                 .n = t.n,
                 .nnz_a = t.nnz,
                 .n_rhs = t.n_rhs};
  const auto iteration_ms = [&] { return IterationMs(work, Backend::kCuda, /*threads=*/1); };
  const double share = t.decades / kUsualDecades;
  const double iterations = IterationsOf(t);
  RungTimes times{.bottom_ms = t.bottom_setup_ms + share * iterations * iteration_ms()};
  if (t.irregular()) {
    work.nnz_m = kLightEntries * t.n;
    const double of_fsai = Jumps(t) ? kUnevenOfFsai : kShareOfFsai * iterations;
    times.fsai_ms = t.fsai_setup_ms + share * of_fsai * iteration_ms();
  }
  work.nnz_m = t.amg_entries;
  work.parts = true;
  double cycles = kAmgIterations;
  if (t.irregular()) {
    cycles = t.block > 1 ? kAmgOfNodes : Jumps(t) ? kAmgUneven : kAmgIrregular;
    work.nnz_m *= kIrregularCycle;
  }
  times.amg_ms = t.amg_setup_ms + cycles * share * iteration_ms();
  return times;
}

namespace {

Rows RowsOf(const CscView& a, const Sample& sample, const FsaiOptions& light, int threads) {
  if (sample.rayleigh > kMostRayleigh) return Rows::kRegular;
  const double kaporin = SampledKaporin(a, light, kRows, threads);
  return kaporin < kRegular ? Rows::kIrregular : kaporin > kEven ? Rows::kEven : Rows::kRegular;
}

RungKind Foretold(const Engine& engine, const LadderCase& c, const Context& context) {
  const bool positive = TakenForPositive(c);
  const Method asked = c.options.method;
  const bool method =
      asked == Method::kAuto || asked == (positive ? Method::kCg : Method::kBicgstab);
  if (c.backend != Backend::kCuda || c.over != nullptr || c.ladder.to_build || !method ||
      c.diagnosis.zero_diagonal.count > 0 || c.a.n_cols == 0) {
    return RungKind::kBottom;
  }
  DeviceTerms terms{.n = ToDouble(c.a.n_cols),
                    .nnz = ToDouble(c.a.nnz()),
                    .n_rhs = std::ssize(c.b) / c.a.n_cols,
                    .positive = positive,
                    .rows = positive ? Rows::kIrregular : Rows::kRegular};
  if (c.options.rtol > 0) terms.decades = std::max(0.0, -std::log10(c.options.rtol));
  if (ForetellTimes(terms).bottom_ms <= MoveMs(terms.nnz)) return RungKind::kBottom;
  terms.bottom_setup_ms =
      BuildMs(TraitsOf(EngineKind::kJacobi).rates, WorkOfJacobi(c.a), ResolveThreads(c.threads));
  const bool may_amg = MaySuitAmg(c);
  FsaiOptions light;
  if (positive) {
    light = RungOf(RungKind::kLightAfsai, c, positive).spec.fsai;
    terms.fsai_setup_ms = DeviceBuildMs(TraitsOf(EngineKind::kAfsai).rates,
                                        WorkOfGrowth(c.a.n_cols, c.a.nnz(), light));
  }
  if (may_amg) SetAmg(engine, c, /*sample=*/{}, /*known=*/false, context, &terms);
  DeviceTerms worst = terms;  // for Jacobi
  worst.block = kMostUnknowns;
  if (EndsSooner(worst)) return RungKind::kBottom;
  terms.block = LeadingBlockSize(c.a);
  const Sample sample = TakeSample(c.a, terms.block);
  if (may_amg && IsClear(sample)) c.look->Take({true, sample.beta, terms.block});
  if (positive) terms.rows = RowsOf(c.a, sample, light, ResolveThreads(c.threads));
  terms.uneven = sample.spread > kUneven;
  if (!terms.irregular()) terms.fsai_setup_ms = kNoRung;
  if (EndsSooner(terms)) return RungKind::kBottom;
  if (may_amg) SetAmg(engine, c, sample, /*known=*/true, context, &terms);
  RungTimes times = ForetellTimes(terms);
  if (Least(times) != RungKind::kAmg) return Least(times);
  if (!SuitsAmg(c).suits) times.amg_ms = kNoRung;
  return Least(times);
}

}  // namespace

RungKind FirstRung(const Engine& engine, const LadderCase& c, const Context& context) {
  const Result<RungKind> rung = GuardMemory(
      "AUTO's first rung", [&]() -> Result<RungKind> { return Foretold(engine, c, context); });
  return rung.ok() ? *rung : RungKind::kBottom;
}

}  // namespace spaid::kernels
