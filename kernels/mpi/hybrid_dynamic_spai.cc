#include "kernels/mpi/hybrid_dynamic_spai.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/base/step_progress.h"
#include "kernels/dynamic_spai/gram.h"
#include "kernels/dynamic_spai/growth_parts.h"
#include "kernels/mpi/halo.h"
#include "kernels/mpi/ranks.h"
#include "kernels/mpi/spread_growth.h"
#include "kernels/mpi/spread_pattern.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

constexpr char kGrowth[] = "growth of dynamic SPAI over several ranks";
constexpr double kGramShare = 0.25;  // of the time, about

Status Check(const SpreadMatrix& a, const SpreadPattern* initial,
             const HybridDynamicOptions& options) {
  const PatternView whole{a.n, a.n, {}, {}};
  const PatternView pattern{initial != nullptr ? initial->n_rows : 0, a.n, {}, {}};
  if (Status status =
          CheckDynamicSpai(whole, initial != nullptr ? &pattern : nullptr, options.dynamic);
      !status.ok()) {
    return status;
  }
  return CheckHaloBytes(options.halo_bytes);
}

// The longest row of the whole, the first of them.
RowLengths LongestRow(const SpreadMatrix& a, const CscMatrix& own_rows) {
  RowLengths lengths;
  for (int64_t i = 0; i < own_rows.n_cols; ++i) {
    const int64_t length = own_rows.col_ptr[Z(i) + 1] - own_rows.col_ptr[Z(i)];
    if (length > lengths.longest) lengths = {length, a.own().begin + i, 0};
  }
  int64_t longest = lengths.longest;
  Must(MPI_Allreduce(MPI_IN_PLACE, &longest, 1, MPI_INT64_T, MPI_MAX, a.comm));
  if (lengths.longest < longest) lengths.row = a.n;
  Must(MPI_Allreduce(MPI_IN_PLACE, &lengths.row, 1, MPI_INT64_T, MPI_MIN, a.comm));
  lengths.longest = longest;
  return lengths;
}

// The columns of B̂ (kernels/dynamic_spai/gram.h) and the rows of −Â that this rank owns.
struct OwnGram {
  CscMatrix columns, minus_rows;
  double flops = 0;
};

// The rows of −Â that this rank owns, as columns.
Result<CscMatrix> OwnMinusRows(const SpreadMatrix& a, const Array<UnitScale>& own_scales) {
  CscMatrix rows;
  Array<double> power, rest;
  Numbering seen(a.n);
  Status status = Locally(a.comm, kGrowth, [&]() -> Status {
    rows = OwnRows(a.rows.get());
    for (const UnitScale& scale : own_scales) {
      power.push_back(scale.power);
      rest.push_back(scale.rest);
    }
    seen.Insert(rows.row_idx);
    seen.Close();
    return {};
  });
  if (!status.ok()) return status;
  const Halo halo(a.comm, a.begin, a.columns.col_ptr, seen.global());
  power = halo.Items<double>(power);
  rest = halo.Items<double>(rest);
  for (size_t p = 0; p < rows.values.size(); ++p) {
    const auto at = Z(seen.Local(rows.row_idx[p]));
    rows.values[p] = -UnitScale{power[at], rest[at]}(rows.values[p]);
  }
  return rows;
}

Result<OwnGram> MakeOwnGram(const SpreadMatrix& a, int64_t most, HaloBudget& budget,
                            const Context& context) {
  const IndexRange own = a.own();
  const Array<UnitScale> own_scales = FindScales(a.columns, context.threads);
  Result<CscMatrix> minus_rows = OwnMinusRows(a, own_scales);
  if (!minus_rows.ok()) return minus_rows.status();
  OwnGram out;
  out.minus_rows = *std::move(minus_rows);
  const RowLengths lengths = LongestRow(a, out.minus_rows);
  const int64_t of_memory = GramLimit() / RanksHere(a.comm);
  const int64_t limit = most > 0 ? most : of_memory;

  Numbering needed(a.n);
  needed.Insert(a.columns.row_idx);
  needed.Close();
  Halo halo(a.comm, a.begin, out.minus_rows.col_ptr, needed.global());
  Status status = budget.Take(a.comm, halo, sizeof(int32_t) + sizeof(double));
  if (!status.ok()) return status;
  const Array<int32_t> indices = halo.Entries<int32_t>(out.minus_rows.row_idx);
  const Array<double> values = halo.Entries<double>(out.minus_rows.values);
  status = Watched(a.comm, context, Stage::kBuild, [&](const Context& inner) {
    return GuardMemory(kGrowth, [&]() -> Status {
      if (own.size() == 0) {
        out.columns = {a.n, 0, {0}, {}, {}};
        return {};
      }
      // Own columns and what they meet, in numbers of this part.
      Numbering of(a.n);
      Array<int32_t> own_numbers;
      for (int64_t j = own.begin; j < own.end; ++j) own_numbers.push_back(static_cast<int32_t>(j));
      of.Insert(own_numbers);
      of.Insert(needed.global());
      of.Insert(indices);
      of.Close();
      const Pattern columns = Compress(of, own_numbers, a.columns.col_ptr, a.columns.row_idx);
      Pattern rows = Compress(of, needed.global(), halo.ptr(), indices);
      CscMatrix minus{of.size(), of.size(), std::move(rows.col_ptr), std::move(rows.row_idx),
                      values};
      const int64_t first = of.Local(own_numbers[0]);
      std::vector<UnitScale> scales(Z(of.size()));
      std::ranges::copy(own_scales, scales.begin() + first);
      Result<GramMatrix> gram = MakeGramOf({PatternView(columns), a.columns.values}, scales,
                                           std::move(minus), lengths, limit, inner);
      if (!gram.ok()) return gram.status();
      out.flops = gram->flops;
      // B̂ has no columns but the own ones, which are consecutive.
      const CscView made = gram->columns;
      CscMatrix& b = out.columns;
      b.n_rows = a.n;
      b.n_cols = own.size();
      b.col_ptr.assign(made.col_ptr.begin() + first, made.col_ptr.begin() + first + own.size() + 1);
      b.row_idx.resize(Z(gram->nnz));
      std::ranges::transform(made.row_idx.first(Z(gram->nnz)), b.row_idx.begin(),
                             [&](int32_t i) { return of.global()[Z(i)]; });
      b.values.assign(made.values.begin(), made.values.begin() + gram->nnz);
      return {};
    });
  });
  if (!status.ok()) return status;
  return out;
}

// Sums what the ranks have.
DynamicSpaiQuality Summarise(const SpreadMatrix& a, const SpreadGrown& grown, const OwnGram& gram) {
  RowTally tally = grown.tally;
  int64_t longest = 0;
  for (int64_t k = 0; k < grown.rows.n_cols; ++k) {
    longest = std::max(longest, grown.rows.col_ptr[Z(k) + 1] - grown.rows.col_ptr[Z(k)]);
  }
  std::vector<double> logs = grown.log_by_step;
  double flops[2] = {tally.flops, gram.flops};
  int64_t sums[] = {tally.converged, tally.copied, tally.not_spd, gram.columns.nnz()};
  int64_t first = tally.not_spd > 0 ? tally.first_not_spd : a.n;
  Must(MPI_Allreduce(MPI_IN_PLACE, logs.data(), static_cast<int>(logs.size()), MPI_DOUBLE, MPI_SUM,
                     a.comm));
  Must(MPI_Allreduce(MPI_IN_PLACE, flops, 2, MPI_DOUBLE, MPI_SUM, a.comm));
  Must(MPI_Allreduce(MPI_IN_PLACE, sums, 4, MPI_INT64_T, MPI_SUM, a.comm));
  Must(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT64_T, MPI_MIN, a.comm));
  Must(MPI_Allreduce(MPI_IN_PLACE, &longest, 1, MPI_INT64_T, MPI_MAX, a.comm));
  tally.flops = flops[0];
  tally.converged = sums[0];
  tally.copied = sums[1];
  tally.not_spd = sums[2];
  tally.first_not_spd = sums[2] > 0 ? first : -1;
  return SummariseGrowth(tally, std::move(logs), a.n, longest, sums[3], flops[1]);
}

Result<HybridDynamicPattern> Grow(const SpreadMatrix& a, const SpreadPattern* initial,
                                  const HybridDynamicOptions& options,
                                  const Context& with_progress) {
  const DynamicSpaiOptions& dynamic = options.dynamic;
  if (Status s = Agree(a.comm, Check(a, initial, options)); !s.ok()) return s;
  if (Status s = AgreeOptions(a.comm, dynamic, initial != nullptr); !s.ok()) return s;
  Context context = with_progress;
  const int threads = context.threads;
  if (Status s = Agree(a.comm, CheckColumnValues(a.columns, threads, a.own().begin)); !s.ok()) {
    return s;
  }
  StepProgress progress(with_progress.progress, Stage::kBuild, a.n);
  if (with_progress.progress != nullptr) context.progress = &progress;
  HaloBudget budget{options.halo_bytes > 0 ? options.halo_bytes : DefaultHaloBytes(a.comm), 0};
  progress.NextStep(kGramShare);
  Result<OwnGram> gram = MakeOwnGram(a, options.gram_entries, budget, context);
  if (!gram.ok()) return gram.status();

  progress.NextStep(1);
  PatternView own_initial;
  if (initial != nullptr) own_initial = *initial;
  const Pattern starts =
      DynamicStarts(initial != nullptr ? &own_initial : nullptr, a.own().size(), a.own().begin);
  SpreadRows rows{.columns = gram->columns,
                  .diagonal = {},
                  .problems = gram->minus_rows,
                  .initial = starts,
                  .rules = DynamicRules(dynamic),
                  .repeat_hash_bits = dynamic.repeat_hash_bits};
  Result<SpreadGrown> grown = GrowSpread(a, rows, budget, context, kGrowth);
  if (!grown.ok()) return grown.status();
  HybridDynamicPattern out;
  out.quality = Summarise(a, *grown, *gram);
  out.halo_bytes = budget.fetched;
  out.rounds = grown->rounds;
  out.m = {a.n, a.own().size(), std::move(grown->rows.col_ptr), std::move(grown->rows.row_idx)};
  return out;
}

}  // namespace

Result<HybridDynamicPattern> GrowHybridDynamicSpai(const SpreadMatrix& a,
                                                   const SpreadPattern* initial,
                                                   const HybridDynamicOptions& options,
                                                   const Context& context) {
  return OrEndAll(kGrowth, [&] { return Grow(a, initial, options, context); });
}

}  // namespace spaid::kernels::mpi
