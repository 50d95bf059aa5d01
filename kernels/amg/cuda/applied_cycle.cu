#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/amg/cuda/applied_cycle.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/node_product.h"
#include "kernels/krylov/cuda/product.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::cuda {
namespace {

using kernels::SmootherKind;
using layout::Blocks, layout::Lane, layout::ThreadOfGrid, layout::ThreadsOfGrid;
using layout::WarpOfGrid, layout::WarpsOfGrid;
constexpr int kThreads = layout::kThreads;

// to = in ∘ r, scaled to the exponent of r's largest element, for each column.
template <int kColumns, class Value>
__global__ void __launch_bounds__(kThreads)
    InKernel(int64_t n, const double* __restrict__ in, const double* __restrict__ r,
             AppliedScale* scales, Value* __restrict__ to) {
  AppliedScale& scale = scales[Column<kColumns>()];
  if (scale.runs == 0) return;
  const double largest = __longlong_as_double(static_cast<long long>(scale.largest));
  const int exponent = largest > 0 && isfinite(largest) ? ilogb(largest) : 0;
  if (ThreadOfGrid() < kColumns) scale.exponent = exponent;
  const double down = ldexp(1.0, -exponent);
  for (int64_t at = ThreadOfGrid(); at < n * kColumns; at += ThreadsOfGrid()) {
    const double scaled = r[at] * down;
    to[at] = static_cast<Value>(scaled * in[at / kColumns]);
  }
}

// Makes elements of vectors of those of a product, y. Without `inverse`: to = base + more + factor
// y. With it a step of Chebyshev's smoother: g = base - y, d_to = keep d + step D⁻¹ g, to = more +
// beta d_to. Pointers that are null stand for zeros, or nothing is written there; `base` and `more`
// may be `to`, `base` may be `g`.
template <class Value, int kColumns>
struct CycleStep {
  static constexpr int kSums = 0;

  const AppliedScale* scales;
  const Value *base = nullptr, *more = nullptr;
  Value* to = nullptr;
  double factor = 1;
  const Value *inverse = nullptr, *d = nullptr;
  Value *d_to = nullptr, *g = nullptr;
  double keep = 0, step = 0, beta = 0;

  __device__ bool Runs(int column) const { return scales[column].runs != 0; }
  __device__ bool Skip() const { return !Runs(Column<kColumns>()); }
  __device__ void Row(int64_t at, double y) const {
    const double first = base != nullptr ? static_cast<double>(base[at]) : 0;
    const double second = more != nullptr ? static_cast<double>(more[at]) : 0;
    if (inverse == nullptr) {
      to[at] = static_cast<Value>(fma(factor, y, first + second));
      return;
    }
    const double residual = first - y;
    if (g != nullptr) g[at] = static_cast<Value>(residual);
    const double before = d != nullptr ? keep * static_cast<double>(d[at]) : 0;
    const double own = fma(step * static_cast<double>(inverse[at / kColumns]), residual, before);
    d_to[at] = static_cast<Value>(own);
    to[at] = static_cast<Value>(fma(beta, own, second));
  }
};

// The same without a product.
template <class Step>
__global__ void __launch_bounds__(kThreads) ElementsKernel(int64_t elements, Step step) {
  if (step.Skip()) return;
  for (int64_t at = ThreadOfGrid(); at < elements; at += ThreadsOfGrid()) step.Row(at, 0);
}

// x = M r, where M is dense, by rows: a warp a row.
template <int kColumns, class Value>
__global__ void __launch_bounds__(kThreads)
    DenseKernel(int64_t n, const Value* __restrict__ m, const Value* __restrict__ r,
                const AppliedScale* scales, Value* __restrict__ x) {
  if (!AnyRuns<kColumns>(scales[Column<kColumns>()].runs != 0)) return;
  for (int64_t i = WarpOfGrid(); i < n; i += WarpsOfGrid()) {
    double sums[kColumns] = {};
    for (int64_t j = Lane(); j < n; j += 32) {
      const auto entry = static_cast<double>(m[i * n + j]);
      double row[kColumns];
      product::LoadRow<kColumns>(r + j * kColumns, true, row);
#pragma unroll
      for (int v = 0; v < kColumns; ++v) sums[v] = fma(entry, row[v], sums[v]);
    }
#pragma unroll
    for (int v = 0; v < kColumns; ++v) {
      for (int step = 16; step > 0; step /= 2) sums[v] += __shfl_xor_sync(~0u, sums[v], step);
      if (Lane() == v && scales[v].runs != 0) x[i * kColumns + v] = static_cast<Value>(sums[v]);
    }
  }
}

template <class Value, int kColumns>
class AppliedCycle final : public Applied {
 public:
  AppliedCycle(Context& context, std::shared_ptr<const CycleOnDevice<Value>> of)
      : Applied(context, of->levels.front().n, kColumns), context_(context), of_(std::move(of)) {
    for (const LevelOnDevice<Value>& on : of_->levels) {
      const auto vector = [&] { return Buffer<Value>(context, on.n * kColumns); };
      Level& level = levels_.emplace_back(on);
      level.r_in = vector();
      for (Buffer<Value>& x : level.x) x = vector();
      level.t = vector();
      if (on.kind == SmootherKind::kChebyshev) {
        for (Buffer<Value>& d : level.d) d = vector();
      }
      if (on.kind == SmootherKind::kChebyshev || on.kind == SmootherKind::kFsai ||
          on.kind == SmootherKind::kAfsai) {
        level.g = vector();
      }
    }
  }

  Traffic traffic() const override {
    int64_t vectors = 32 * n();
    for (const Level& level : levels_) {
      vectors += 8 * level.on.n * static_cast<int64_t>(sizeof(Value));
    }
    return {of_->bytes - vectors, vectors};
  }

  std::unique_ptr<const Applied> ForColumns(int columns) const override {
    return MakeAppliedCycle<Value>(context_, of_, columns);
  }

  AppliedResult Launch(const Context& context, const double* r) const override {
    InKernel<kColumns><<<Blocks(context, n() * kColumns, kThreads), kThreads, 0, context.stream>>>(
        n(), of_->in.get(), r, scales(), levels_.front().r_in.get());
    CheckLaunch("InKernel");
    const Value* const x = Visit(0);
    if constexpr (std::is_same_v<Value, float>) {
      return {x, nullptr, of_->out.get()};
    } else {
      return {nullptr, x, of_->out.get()};
    }
  }

 private:
  using Step = CycleStep<Value, kColumns>;

  struct Level {
    explicit Level(const LevelOnDevice<Value>& level) : on(level) {}

    const LevelOnDevice<Value>& on;
    // Right-hand side; solutions, by turns; a residual; of smoothers: directions by turns, and a
    // residual or a product between two factors.
    Buffer<Value> r_in, x[2], t, d[2], g;
  };

  Step NewStep() const { return {.scales = scales()}; }

  void Multiply(const typename LevelOnDevice<Value>::Layout& m, const Value* x,
                const Step& step) const {
    std::visit(
        [&](const auto& own) {
          using Own = std::decay_t<decltype(own)>;
          if constexpr (std::is_same_v<Own, FewRows<Value>>) {
            LaunchProduct<kColumns>(context_, own, x, step);
          } else if constexpr (!std::is_same_v<Own, std::monostate>) {
            LaunchProduct<kColumns>(Branch{context_.stream}, own, x, static_cast<Value*>(nullptr),
                                    step);
          }
        },
        m);
  }

  // t = r - A x; x null: r itself.
  const Value* Residual(const Level& level, const Value* x) const {
    if (x == nullptr) return level.r_in.get();
    Step step = NewStep();
    step.base = level.r_in.get();
    step.factor = -1;
    step.to = level.t.get();
    Multiply(level.on.a, x, step);
    return step.to;
  }

  // The buffer of x, where it is one of the level's solutions, to be updated in place.
  static Value* Own(const Level& level, const Value* x) {
    return x == level.x[1].get() ? level.x[1].get() : level.x[0].get();
  }
  static Value* Other(const Level& level, const Value* x) {
    return x == level.x[0].get() ? level.x[1].get() : level.x[0].get();
  }

  // x + S (r - A x), or with Sᵀ; x null: zero.
  const Value* Smooth(const Level& level, bool transposed, const Value* x) const {
    Step step = NewStep();
    switch (level.on.kind) {
      case SmootherKind::kFsai:
      case SmootherKind::kAfsai: {
        const Value* const residual = Residual(level, x);
        Step between = NewStep();
        between.to = level.g.get();
        Multiply(level.on.s, residual, between);
        step.base = x;
        step.factor = level.on.omega;
        step.to = Own(level, x);
        Multiply(level.on.st, level.g.get(), step);
        return step.to;
      }
      case SmootherKind::kStaticSpai: {
        const Value* const residual = Residual(level, x);
        const bool other = transposed && !std::holds_alternative<std::monostate>(level.on.st);
        step.base = x;
        step.to = Own(level, x);
        Multiply(other ? level.on.st : level.on.s, residual, step);
        return step.to;
      }
      case SmootherKind::kChebyshev:
        return Chebyshev(level, x);
      default:  // the diagonal is in the level's scaling
        if (x == nullptr) return level.r_in.get();
        step.base = level.r_in.get();
        step.more = x;
        step.factor = -1;
        step.to = Other(level, x);
        Multiply(level.on.a, x, step);
        return step.to;
    }
  }

  const Value* Chebyshev(const Level& level, const Value* x) const {
    Step step = NewStep();
    step.inverse = level.on.diagonal.get();
    step.base = level.r_in.get();
    step.more = x;
    step.to = Other(level, x);
    step.d_to = level.d[0].get();
    step.step = 4 / (3 * level.on.rho);
    step.beta = level.on.coefficients[0];
    if (x != nullptr) {
      step.g = level.g.get();
      Multiply(level.on.a, x, step);
    } else {
      const int64_t elements = level.on.n * kColumns;
      ElementsKernel<<<Blocks(context_, elements, kThreads), kThreads, 0, context_.stream>>>(
          elements, step);
      CheckLaunch("ElementsKernel");
    }
    for (size_t k = 1; k < level.on.coefficients.size(); ++k) {
      const auto i = static_cast<double>(k);
      if (step.g != nullptr) step.base = step.g;
      step.g = level.g.get();
      step.more = step.to;
      step.d = step.d_to;
      step.d_to = level.d[k % 2].get();
      step.keep = (2 * i - 1) / (2 * i + 3);
      step.step = (8 * i + 4) / ((2 * i + 3) * level.on.rho);
      step.beta = level.on.coefficients[k];
      Multiply(level.on.a, step.d, step);
    }
    return step.to;
  }

  // The solution of level l for its right-hand side, in one of its vectors.
  const Value* Visit(size_t l) const {
    const Level& level = levels_[l];
    if (l + 1 == levels_.size()) return Coarsest(level);
    const Value* x = nullptr;
    for (int sweep = 0; sweep < of_->pre; ++sweep) x = Smooth(level, false, x);
    for (int visit = 0; visit < of_->visits; ++visit) {
      Step down = NewStep();
      down.to = levels_[l + 1].r_in.get();
      Multiply(level.on.r, Residual(level, x), down);
      const Value* const below = Visit(l + 1);
      Step up = NewStep();
      up.base = x;
      up.to = Own(level, x);
      Multiply(level.on.p, below, up);
      x = up.to;
    }
    for (int sweep = 0; sweep < of_->post; ++sweep) x = Smooth(level, true, x);
    return x;
  }

  const Value* Coarsest(const Level& level) const {
    if (of_->inverse.size() == 0) return Smooth(level, true, Smooth(level, false, nullptr));
    DenseKernel<kColumns>
        <<<Blocks(context_, level.on.n, layout::kWarps), kThreads, 0, context_.stream>>>(
            level.on.n, of_->inverse.get(), level.r_in.get(), scales(), level.x[0].get());
    CheckLaunch("DenseKernel");
    return level.x[0].get();
  }

  Context& context_;
  const std::shared_ptr<const CycleOnDevice<Value>> of_;
  std::vector<Level> levels_;
};

}  // namespace

template <class Value>
std::unique_ptr<const Applied> MakeAppliedCycle(Context& context,
                                                std::shared_ptr<const CycleOnDevice<Value>> of,
                                                int columns) {
  return WithColumns(columns, [&](auto own) -> std::unique_ptr<const Applied> {
    return std::make_unique<AppliedCycle<Value, own>>(context, std::move(of));
  });
}

template std::unique_ptr<const Applied> MakeAppliedCycle(
    Context&, std::shared_ptr<const CycleOnDevice<float>>, int);
template std::unique_ptr<const Applied> MakeAppliedCycle(
    Context&, std::shared_ptr<const CycleOnDevice<double>>, int);

}  // namespace spaid::cuda
