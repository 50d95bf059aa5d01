// Jacobi and block Jacobi as an engine: always work of the host.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/jacobi.h"
#include "kernels/engine/preconditioner_engine.h"

namespace spaid::kernels {
namespace {

class JacobiPlan final : public EnginePlan {
 public:
  JacobiPlan(PlanFor of, int block_size) : EnginePlan(std::move(of)), block_size_(block_size) {}
  int64_t host_bytes() const override { return static_cast<int64_t>(sizeof(JacobiPlan)); }
  bool serves_new_values() const override { return true; }

 private:
  std::string Differences(const PreconditionerSpec& spec) const override {
    if (block_size_ == spec.block_size) return "";
    return "block_size " + std::to_string(block_size_) + " (not " +
           std::to_string(spec.block_size) + ")";
  }

  Result<Made> MakeM(const PreconditionerSpec& spec, const CscView& a, const Context& context,
                     DeviceTimings* timings) const override {
    Made made;
    if (IsStandIn(a)) {  // else rank 0 has what it takes
      RanksDevice& ranks = *made_for().ranks;
      const auto there = SpreadTimed(ranks, a, context, timings);
      if (!there.ok()) return there.status();
      auto over = ranks.BuildJacobi(**there, context);
      if (!over.ok()) return over.status();
      static_cast<StaticSpaiQuality&>(made.quality) = std::move(over->quality);
      made.over_ranks = std::move(over->there);
      return Result<Made>(std::move(made));
    }
    auto built = spec.block_size == 1 ? BuildJacobi(a, context)
                                      : BuildBlockJacobi(a, spec.block_size, context);
    if (!built.ok()) return built.status();
    made.m = std::move(built->m);
    made.quality = std::move(built->quality);
    return Result<Made>(std::move(made));
  }

  const int block_size_;
};

BuildEstimate EstimateBlocks(const PatternView& a, int block_size, int threads) {
  const int64_t n = a.n_cols, b = block_size;
  BuildEstimate e;
  e.nnz_m = BlockJacobiEntries(n, block_size);
  e.download_bytes = CscBytes(n, e.nnz_m);
  // M by columns and by rows, with the list of row blocks; the residual norms twice, and the
  // condition numbers.
  e.host_bytes = static_cast<int64_t>(sizeof(JacobiPlan) + sizeof(HostPreconditioner)) +
                 2 * CscBytes(n, e.nnz_m) + (n + 2) * static_cast<int64_t>(sizeof(int64_t)) +
                 RowScratchBytes(n, e.nnz_m) +
                 (2 * n + (n + b - 1) / b) * static_cast<int64_t>(sizeof(double));
  // Inverses, and A times them.
  BuildWork work{.rows = static_cast<double>(n),
                 .nnz_a = static_cast<double>(a.nnz()),
                 .entries = static_cast<double>(e.nnz_m)};
  work.flops = 2.0 * static_cast<double>(b) *
               (static_cast<double>(b) * static_cast<double>(n) + static_cast<double>(a.nnz()));
  PredictBuild(TraitsOf(EngineKind::kJacobi).rates, work, threads, &e);
  for (int64_t first = 0; first < n; first += b) {
    const int64_t entries = a.col_ptr[std::min(first + b, n)] - a.col_ptr[first];
    e.n1_max = std::max(e.n1_max, std::min(entries, n));
  }
  e.n2_max = std::min(b, n);
  return e;
}

BuildEstimate EstimateDiagonal(const PatternView& a, int threads) {
  const int64_t n = a.n_cols;
  BuildEstimate e;
  e.nnz_m = n;
  e.download_bytes = CscBytes(n, n);
  // M, and the residual norms twice: as they come and sorted.
  e.host_bytes = static_cast<int64_t>(sizeof(JacobiPlan) + sizeof(HostPreconditioner)) +
                 CscBytes(n, n) + 2 * n * static_cast<int64_t>(sizeof(double));
  PredictBuild(TraitsOf(EngineKind::kJacobi).rates, WorkOfJacobi(a), threads, &e);
  e.n1_max = LongestColumn(a, threads);
  e.n2_max = 1;
  return e;
}

class Jacobi final : public PreconditionerEngine {
 public:
  Jacobi()
      : PreconditionerEngine({.kind = EngineKind::kJacobi,
                              .name = "jacobi",
                              .options_field = "jacobi",
                              .may_be_diagonal = true,
                              .over_ranks = true,
                              .rates = {.cpu = {.fixed = 2e4, .row = 88, .flop = 1},
                                        .gpu = {.row = 8.9,
                                                .flop = 0.06,
                                                .first_entry = 85,
                                                .first_most = 0.54e6,
                                                .nnz_a = 0.175}}}) {}

  PreconditionerSpec OwnOptions(const PreconditionerSpec& spec) const override {
    PreconditionerSpec own = PreconditionerEngine::OwnOptions(spec);
    own.block_size = spec.block_size;
    return own;
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView*, const Context& context) const override {
    const int threads = ResolveThreads(context.threads);
    return spec.block_size == 1 ? EstimateDiagonal(a, threads)
                                : EstimateBlocks(a, spec.block_size, threads);
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec, const CscView&,
                                               const PatternView*, PlanFor of,
                                               const Context&) const override {
    return std::shared_ptr<const Plan>(
        std::make_shared<JacobiPlan>(std::move(of), spec.block_size));
  }
};

}  // namespace

const PreconditionerEngine& JacobiEngine() {
  static const Jacobi engine;
  return engine;
}

}  // namespace spaid::kernels
