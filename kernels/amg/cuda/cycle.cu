#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/amg/cuda/cycle.h"
#include "kernels/amg/cuda/few_rows.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/node_product.h"
#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/cuda/product.h"
#include "kernels/sparse/cuda/symmetry.h"

namespace spaid::cuda {
namespace {

using kernels::SmootherKind;
using layout::Blocks, layout::Lane, layout::ThreadOfGrid, layout::ThreadsOfGrid;
using layout::WarpOfGrid, layout::WarpsOfGrid;
constexpr int kThreads = layout::kThreads;

// to = in ∘ r, scaled to the exponent of r's largest element.
template <class Value>
__global__ void __launch_bounds__(kThreads)
    InKernel(int64_t n, const double* __restrict__ in, const double* __restrict__ r,
             AppliedScale* scale, Value* __restrict__ to) {
  if (scale->runs == 0) return;
  const double largest = __longlong_as_double(static_cast<long long>(scale->largest));
  const int exponent = largest > 0 && isfinite(largest) ? ilogb(largest) : 0;
  if (ThreadOfGrid() == 0) scale->exponent = exponent;
  const double down = ldexp(1.0, -exponent);
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const double scaled = r[i] * down;
    to[i] = static_cast<Value>(scaled * in[i]);
  }
}

// Makes elements of vectors of those of a product, y. Without `inverse`: to = base + more + factor
// y. With it a step of Chebyshev's smoother: g = base - y, d_to = keep d + step D⁻¹ g, to = more +
// beta d_to. Pointers that are null stand for zeros, or nothing is written there; `base` and `more`
// may be `to`, `base` may be `g`.
template <class Value>
struct CycleStep {
  using WritesItself = void;
  static constexpr int kSums = 1;

  const AppliedScale* scale;
  const Value *base = nullptr, *more = nullptr;
  Value* to = nullptr;
  double factor = 1;
  const Value *inverse = nullptr, *d = nullptr;
  Value *d_to = nullptr, *g = nullptr;
  double keep = 0, step = 0, beta = 0;

  __device__ bool Skip() const { return scale->runs == 0; }
  __device__ void Row(int64_t i, double y, double (&)[1]) const {
    const double first = base != nullptr ? static_cast<double>(base[i]) : 0;
    const double second = more != nullptr ? static_cast<double>(more[i]) : 0;
    if (inverse == nullptr) {
      to[i] = static_cast<Value>(fma(factor, y, first + second));
      return;
    }
    const double residual = first - y;
    if (g != nullptr) g[i] = static_cast<Value>(residual);
    const double before = d != nullptr ? keep * static_cast<double>(d[i]) : 0;
    const double own = fma(step * static_cast<double>(inverse[i]), residual, before);
    d_to[i] = static_cast<Value>(own);
    to[i] = static_cast<Value>(fma(beta, own, second));
  }
  __device__ void Finish(double (&)[1][1]) const {}
};

// The same without a product.
template <class Value>
__global__ void __launch_bounds__(kThreads) ElementsKernel(int64_t n, CycleStep<Value> step) {
  if (step.Skip()) return;
  double none[1];
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) step.Row(i, 0, none);
}

// x = M r, where M is dense, by rows: a warp a row.
template <class Value>
__global__ void __launch_bounds__(kThreads)
    DenseKernel(int64_t n, const Value* __restrict__ m, const Value* __restrict__ r,
                const AppliedScale* scale, Value* __restrict__ x) {
  if (scale->runs == 0) return;
  for (int64_t i = WarpOfGrid(); i < n; i += WarpsOfGrid()) {
    double sum = 0;
    for (int64_t j = Lane(); j < n; j += 32) {
      sum = fma(static_cast<double>(m[i * n + j]), static_cast<double>(r[j]), sum);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (Lane() == 0) x[i] = static_cast<Value>(sum);
  }
}

__global__ void WidenKernel(int64_t count, const float* __restrict__ from,
                            double* __restrict__ to) {
  for (int64_t i = ThreadOfGrid(); i < count; i += ThreadsOfGrid()) to[i] = from[i];
}

template <class Value>
__global__ void NarrowKernel(int64_t count, const double* __restrict__ from,
                             Value* __restrict__ to) {
  for (int64_t i = ThreadOfGrid(); i < count; i += ThreadsOfGrid()) {
    to[i] = static_cast<Value>(from[i]);
  }
}

// in = S left, out = sign S right; a factor that is null is ones.
__global__ void ScalesKernel(int64_t n, const double* __restrict__ scale,
                             const double* __restrict__ left, const double* __restrict__ right,
                             double sign, double* __restrict__ in, double* __restrict__ out) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const double own = scale != nullptr ? scale[i] : 1;
    in[i] = own * (left != nullptr ? left[i] : 1);
    out[i] = sign * own * (right != nullptr ? right[i] : 1);
  }
}

template <class Value>
Buffer<Value> Upload(Context& context, const kernels::Array<Value>& from) {
  Buffer<Value> to(context, static_cast<int64_t>(from.size()));
  to.CopyIn(from.data(), to.size());
  return to;
}

template <class Value>
Buffer<Value> Narrowed(Context& context, const Buffer<double>& from) {
  Buffer<Value> to(context, from.size());
  if (from.size() == 0) return to;
  NarrowKernel<<<Blocks(context, from.size(), kThreads), kThreads, 0, context.stream>>>(
      from.size(), from.get(), to.get());
  CheckLaunch("NarrowKernel");
  return to;
}

// Values on the device as layouts want them.
Buffer<double> InDoubles(Context& context, const kernels::Array<double>& from) {
  return Upload(context, from);
}
Buffer<double> InDoubles(Context& context, const kernels::Array<float>& from) {
  const Buffer<float> narrow = Upload(context, from);
  Buffer<double> wide(context, narrow.size());
  WidenKernel<<<Blocks(context, wide.size(), kThreads), kThreads, 0, context.stream>>>(
      wide.size(), narrow.get(), wide.get());
  CheckLaunch("WidenKernel");
  return wide;
}

__global__ void RowLengthsKernel(PatternRef from, const int32_t* __restrict__ order,
                                 int64_t* __restrict__ length) {
  for (int64_t k = ThreadOfGrid(); k < from.n; k += ThreadsOfGrid()) {
    length[k] = from.col_ptr[order[k] + 1] - from.col_ptr[order[k]];
  }
}
__global__ void CarryRowsKernel(PatternRef from, const double* __restrict__ values,
                                const int32_t* __restrict__ order, const int64_t* __restrict__ ptr,
                                int32_t* __restrict__ columns, double* __restrict__ to) {
  for (int64_t k = WarpOfGrid(); k < from.n; k += WarpsOfGrid()) {
    const int64_t begin = from.col_ptr[order[k]];
    for (int64_t p = Lane(); p < ptr[k + 1] - ptr[k]; p += 32) {
      columns[ptr[k] + p] = from.row_idx[begin + p];
      to[ptr[k] + p] = values[begin + p];
    }
  }
}

// A matrix by rows whose k-th row is the order[k]-th.
Matrix RowsInOrder(Context& context, const PatternRef& from, int64_t nnz, const double* values,
                   const UnknownOrder& order) {
  Matrix to;
  to.n = from.n;
  to.nnz = nnz;
  to.col_ptr = Buffer<int64_t>(context, from.n + 1);
  to.row_idx = Buffer<int32_t>(context, nnz);
  to.values = Buffer<double>(context, nnz);
  RowLengthsKernel<<<Blocks(context, from.n, kThreads), kThreads, 0, context.stream>>>(
      from, order.order.get(), to.col_ptr.get());
  CheckLaunch("RowLengthsKernel");
  Scan(context, to.col_ptr, from.n + 1);
  CarryRowsKernel<<<Blocks(context, from.n, layout::kWarps), kThreads, 0, context.stream>>>(
      from, values, order.order.get(), to.col_ptr.get(), to.row_idx.get(), to.values.get());
  CheckLaunch("CarryRowsKernel");
  return to;
}

// An order of unknowns on the host.
struct Places {
  Places() = default;
  Places(const Context& context, const UnknownOrder& from)
      : order(static_cast<size_t>(from.order.size())), place(order.size()) {
    from.order.CopyOut(order.data(), from.order.size());
    from.place.CopyOut(place.data(), from.place.size());
    context.Synchronize();
  }
  std::vector<int32_t> order, place;
};

template <class Value>
class Cycle final : public Applied {
 public:
  using Layout = std::variant<std::monostate, Csr<Value>, Dia<Value>, Bsr<Value>, FewRows<Value>>;
  using Parts = kernels::CycleParts<Value>;
  using Rows = kernels::Rows<Value>;

  Cycle(Context& context, const Parts& parts, int64_t bytes, const UnknownOrder* order,
        const kernels::Context& host)
      : Applied(context, parts.levels.front().n),
        context_(context),
        host_(&host),
        bytes_(bytes),
        pre_(parts.pre),
        post_(parts.post),
        visits_(parts.visits),
        inverse_(Upload(context, parts.inverse)) {
    if (order != nullptr) places_ = Places(context, *order);
    in_ = InOrder(parts.in);
    out_ = InOrder(parts.out);
    for (const kernels::CycleLevel<Value>& from : parts.levels) {
      levels_.push_back(Place(from));
      places_ = {};  // the first level's alone
    }
    context.Synchronize();
    host_ = nullptr;
  }

  Cycle(Context& context, const Hierarchy& made, int64_t bytes, const UnknownOrder* order,
        const kernels::Context& host)
      : Applied(context, made.levels.front().n),
        context_(context),
        host_(&host),
        bytes_(bytes),
        pre_(made.options.pre_sweeps),
        post_(made.options.post_sweeps),
        visits_(made.options.cycle == kernels::CycleKind::kW ? 2 : 1),
        inverse_(Narrowed<Value>(context, made.inverse.rows)),
        in_(context, n()),
        out_(context, n()) {
    const SetUpLevel& top = made.levels.front();
    ScalesKernel<<<Blocks(context, n(), kThreads), kThreads, 0, context.stream>>>(
        n(), made.scale.get(), top.left.get(), top.right.get(), made.sign, in_.get(), out_.get());
    CheckLaunch("ScalesKernel");
    for (Buffer<double>* const of : {&in_, &out_}) *of = Carried(std::move(*of), order);
    const Buffer<int32_t> bad(context, 1);  // none is: the set-up has looked
    for (size_t l = 0; l < made.levels.size(); ++l) {
      levels_.push_back(Place(made.levels[l],
                              l + 1 < made.levels.size() ? &made.levels[l + 1] : nullptr,
                              l == 0 ? order : nullptr, l == 0 && made.exactly_symmetric, bad));
    }
    context.Synchronize();
    host_ = nullptr;
  }

  int64_t bytes_per_product() const override { return bytes_; }

  AppliedResult Launch(const Context& context, const double* r) const override {
    InKernel<<<Blocks(context, n(), kThreads), kThreads, 0, context.stream>>>(
        n(), in_.get(), r, scale(), levels_.front().r_in.get());
    CheckLaunch("InKernel");
    const Value* const x = Visit(0);
    if constexpr (std::is_same_v<Value, float>) {
      return {x, nullptr, out_.get()};
    } else {
      return {nullptr, x, out_.get()};
    }
  }

 private:
  struct Level {
    int64_t n = 0;
    Layout a, p, r, s, st;
    SmootherKind kind = SmootherKind::kL1Jacobi;
    Buffer<Value> diagonal;
    std::vector<double> coefficients;
    double rho = 1, omega = 1;
    // Right-hand side; solutions, by turns; a residual; of smoothers: directions by turns, and a
    // residual or a product between two factors.
    Buffer<Value> r_in, x[2], t, d[2], g;
  };

  void CheckStop() const {
    const kernels::StopReason stopped = host_->stop.Poll();
    if (stopped != kernels::StopReason::kNone) {
      throw Refusal{kernels::StopStatus(stopped, "laying the hierarchy out on the device")};
    }
  }

  Level Place(const kernels::CycleLevel<Value>& from) {
    Level level;
    level.n = from.n;
    level.kind = from.kind;
    level.rho = from.rho;
    level.omega = from.omega;
    level.coefficients = from.coefficients;
    level.diagonal = InOrder(from.diagonal);
    level.a = Square(from.a);
    level.s = Square(from.s);
    level.st = Square(from.st);
    level.p = Rectangular(from.p, true, from.r.n);
    level.r = Rectangular(from.r, false, from.n);
    MakeVectors(level);
    return level;
  }

  // `order`: null, or that of the level's unknowns. `is_symmetric`: A is known to be, exactly.
  Level Place(const SetUpLevel& from, const SetUpLevel* below, const UnknownOrder* order,
              bool is_symmetric, const Buffer<int32_t>& bad) {
    CheckStop();
    Level level;
    level.n = from.n;
    level.kind = from.kind;
    level.rho = from.rho;
    level.omega = from.omega;
    level.coefficients = from.coefficients;
    if (from.kind == SmootherKind::kChebyshev && from.diagonal.size() > 0) {
      Buffer<double> diagonal(context_, from.n);
      Copy(context_, from.diagonal, diagonal, from.n);
      diagonal = Carried(std::move(diagonal), order);
      level.diagonal = Narrowed<Value>(context_, diagonal);
    }
    const auto scaled = [&](const RowMatrix& rows, const Factor& left, const Factor& right) {
      Buffer<double> values(context_, rows.nnz);
      LayOut<Value>(context_, rows, left, right, values.get(), bad.get());
      return values;
    };
    const auto square = [&](const RowMatrix& of, const Factor& left, const Factor& right,
                            std::optional<bool> symmetric) {
      if (of.n == 0) return Layout();
      const Buffer<double> values = scaled(of, left, right);
      if (order == nullptr) return Square(of, of.longest, values, symmetric);
      // By columns of A carried: rows of its transpose.
      const Matrix columns = PermuteByRows(context_, of.pattern(), of.nnz, values.get(), *order);
      const Matrix rows = Transpose(context_, columns.pattern(), columns.nnz, columns.values.get());
      return Square(rows, of.longest, rows.values, symmetric);
    };
    const bool is_known = is_symmetric && from.left.size() == 0;
    level.a = square(from.a, {&from.left}, {&from.right},
                     is_known ? std::optional<bool>(true) : std::nullopt);
    level.s = square(from.g, {}, {}, /*symmetric=*/false);
    level.st = square(from.gt, {}, {}, /*symmetric=*/false);
    if (below != nullptr) {
      Buffer<double> of_p = scaled(from.p, {&from.right, true}, {&below->right});
      Buffer<double> of_r = scaled(from.r, {&below->left}, {&from.left, true});
      if (order == nullptr) {
        level.p = Rectangular(from.p, from.p.longest, of_p, below->n);
        level.r = Rectangular(from.r, from.r.longest, of_r, from.n);
      } else {
        const Matrix p = RowsInOrder(context_, from.p.pattern(), from.p.nnz, of_p.get(), *order);
        level.p = Rectangular(p, from.p.longest, p.values, below->n);
        const RowMatrix r = ColumnsInOrder(from.r, std::move(of_r), *order);
        level.r = Rectangular(r, from.r.longest, r.values, from.n);
      }
    }
    MakeVectors(level);
    return level;
  }

  // In that order; null: as it is.
  Buffer<double> Carried(Buffer<double> from, const UnknownOrder* order) const {
    if (order == nullptr) return from;
    Buffer<double> to(context_, from.size());
    Carry(context_, *order, from.get(), to.get());
    return to;
  }

  RowMatrix ColumnsInOrder(const RowMatrix& pattern, Buffer<double> values,
                           const UnknownOrder& order) const {
    RowMatrix of;
    of.n = pattern.n;
    of.nnz = pattern.nnz;
    of.columns = pattern.columns;
    of.col_ptr = Buffer<int64_t>(context_, of.n + 1);
    of.row_idx = Buffer<int32_t>(context_, of.nnz);
    Copy(context_, pattern.col_ptr, of.col_ptr, of.n + 1);
    Copy(context_, pattern.row_idx, of.row_idx, of.nnz);
    of.values = std::move(values);
    const RowMatrix turned = Transpose(context_, of);
    RowMatrix carried;
    static_cast<Matrix&>(carried) =
        RowsInOrder(context_, turned.pattern(), turned.nnz, turned.values.get(), order);
    carried.columns = turned.columns;
    return Transpose(context_, carried);
  }

  void MakeVectors(Level& level) const {
    const auto vector = [&] { return Buffer<Value>(context_, level.n); };
    level.r_in = vector();
    for (Buffer<Value>& x : level.x) x = vector();
    level.t = vector();
    if (level.kind == SmootherKind::kChebyshev) {
      for (Buffer<Value>& d : level.d) d = vector();
    }
    if (level.kind == SmootherKind::kChebyshev || level.kind == SmootherKind::kFsai ||
        level.kind == SmootherKind::kAfsai) {
      level.g = vector();
    }
  }

  template <class Element>
  Buffer<Element> InOrder(const kernels::Array<Element>& from) const {
    if (places_.order.empty() || from.empty()) return Upload(context_, from);
    kernels::Array<Element> to(from.size());
    for (size_t k = 0; k < to.size(); ++k) to[k] = from[static_cast<size_t>(places_.order[k])];
    Buffer<Element> there = Upload(context_, to);
    context_.Synchronize();
    return there;
  }

  // On the device, by rows: those of the first level in the order of A's unknowns, and so its
  // columns.
  struct Sent {
    Matrix matrix;
    Buffer<double> values;
  };
  Sent Send(const Rows& rows, bool rows_in_order, bool columns_in_order) {
    CheckStop();
    const kernels::Pattern& pattern = *rows.pattern;
    if (places_.order.empty()) {
      return {UploadMatrix(context_, pattern, nullptr), InDoubles(context_, rows.value)};
    }
    const auto& ptr = pattern.col_ptr;
    kernels::Pattern to = pattern;
    kernels::Array<Value> values(rows.value.size());
    std::vector<std::pair<int32_t, Value>> row;
    int64_t filled = 0;
    for (size_t k = 0; k + 1 < ptr.size(); ++k) {
      const size_t i = rows_in_order ? static_cast<size_t>(places_.order[k]) : k;
      to.col_ptr[k] = filled;
      row.clear();
      for (auto p = static_cast<size_t>(ptr[i]); p < static_cast<size_t>(ptr[i + 1]); ++p) {
        const int32_t column = pattern.row_idx[p];
        row.emplace_back(columns_in_order ? places_.place[static_cast<size_t>(column)] : column,
                         rows.value[p]);
      }
      std::sort(row.begin(), row.end());
      for (const auto& [column, value] : row) {
        to.row_idx[static_cast<size_t>(filled)] = column;
        values[static_cast<size_t>(filled++)] = value;
      }
    }
    Sent sent{UploadMatrix(context_, to, nullptr), InDoubles(context_, values)};
    context_.Synchronize();
    return sent;
  }

  Layout Square(const Rows& rows) {
    if (rows.empty()) return {};
    const Sent sent = Send(rows, true, true);
    return Square(sent.matrix, Longest(*rows.pattern), sent.values);
  }

  // `longest`: entries of a row at most; 0: not known. `known`: whether it is exactly symmetric,
  // where that need not be looked for.
  Layout Square(const Matrix& rows, int64_t longest, const Buffer<double>& values,
                std::optional<bool> known = std::nullopt) {
    if (!levels_.empty() && FewRows<Value>::Serves(rows, longest)) {
      return MakeFewRows<Value>(context_, rows.pattern(), rows.nnz, values.get());
    }
    const bool symmetric =
        known ? *known : IsExactlySymmetric(context_, rows.pattern(), values.get());
    Operator op =
        MakeOperator(context_, rows.pattern(), values.get(),
                     symmetric ? Order::kBoth : Order::kRows, std::is_same_v<Value, float>);
    return std::visit(
        [](auto& own) -> Layout {
          if constexpr (std::is_constructible_v<Layout, decltype(std::move(own))>) {
            return std::move(own);
          } else {
            throw Failure(CudaFault::kError, "a layout of another precision");
          }
        },
        op);
  }

  // P has its rows, R its columns, of this level.
  Layout Rectangular(const Rows& rows, bool is_p, int64_t columns) {
    if (rows.empty()) return {};
    const Sent sent = Send(rows, is_p, !is_p);
    return Rectangular(sent.matrix, Longest(*rows.pattern), sent.values, columns);
  }

  Layout Rectangular(const Matrix& rows, int64_t longest, const Buffer<double>& values,
                     int64_t columns) const {
    if (FewRows<Value>::Serves(rows, longest)) {
      return MakeFewRows<Value>(context_, rows.pattern(), rows.nnz, values.get());
    }
    return Csr<Value>(context_, rows.pattern(), values.get(), /*by_rows=*/true, tuning::kCsr,
                      columns);
  }

  static int64_t Longest(const kernels::Pattern& rows) {
    int64_t longest = 0;
    for (size_t i = 0; i + 1 < rows.col_ptr.size(); ++i) {
      longest = std::max(longest, rows.col_ptr[i + 1] - rows.col_ptr[i]);
    }
    return longest;
  }

  CycleStep<Value> Step() const { return {.scale = scale()}; }

  void Multiply(const Layout& m, const Value* x, const CycleStep<Value>& step) const {
    std::visit(
        [&](const auto& own) {
          using Own = std::decay_t<decltype(own)>;
          if constexpr (std::is_same_v<Own, FewRows<Value>>) {
            LaunchProduct(context_, own, x, step);
          } else if constexpr (!std::is_same_v<Own, std::monostate>) {
            LaunchProduct(Branch{context_.stream}, own, x, static_cast<Value*>(nullptr), step);
          }
        },
        m);
  }

  // t = r - A x; x null: r itself.
  const Value* Residual(const Level& level, const Value* x) const {
    if (x == nullptr) return level.r_in.get();
    CycleStep<Value> step = Step();
    step.base = level.r_in.get();
    step.factor = -1;
    step.to = level.t.get();
    Multiply(level.a, x, step);
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
    CycleStep<Value> step = Step();
    switch (level.kind) {
      case SmootherKind::kFsai:
      case SmootherKind::kAfsai: {
        const Value* const residual = Residual(level, x);
        CycleStep<Value> between = Step();
        between.to = level.g.get();
        Multiply(level.s, residual, between);
        step.base = x;
        step.factor = level.omega;
        step.to = Own(level, x);
        Multiply(level.st, level.g.get(), step);
        return step.to;
      }
      case SmootherKind::kStaticSpai: {
        const Value* const residual = Residual(level, x);
        const bool other = transposed && !std::holds_alternative<std::monostate>(level.st);
        step.base = x;
        step.to = Own(level, x);
        Multiply(other ? level.st : level.s, residual, step);
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
        Multiply(level.a, x, step);
        return step.to;
    }
  }

  const Value* Chebyshev(const Level& level, const Value* x) const {
    CycleStep<Value> step = Step();
    step.inverse = level.diagonal.get();
    step.base = level.r_in.get();
    step.more = x;
    step.to = Other(level, x);
    step.d_to = level.d[0].get();
    step.step = 4 / (3 * level.rho);
    step.beta = level.coefficients[0];
    if (x != nullptr) {
      step.g = level.g.get();
      Multiply(level.a, x, step);
    } else {
      ElementsKernel<<<Blocks(context_, level.n, kThreads), kThreads, 0, context_.stream>>>(level.n,
                                                                                            step);
      CheckLaunch("ElementsKernel");
    }
    for (size_t k = 1; k < level.coefficients.size(); ++k) {
      const auto i = static_cast<double>(k);
      if (step.g != nullptr) step.base = step.g;
      step.g = level.g.get();
      step.more = step.to;
      step.d = step.d_to;
      step.d_to = level.d[k % 2].get();
      step.keep = (2 * i - 1) / (2 * i + 3);
      step.step = (8 * i + 4) / ((2 * i + 3) * level.rho);
      step.beta = level.coefficients[k];
      Multiply(level.a, step.d, step);
    }
    return step.to;
  }

  // The solution of level l for its right-hand side, in one of its vectors.
  const Value* Visit(size_t l) const {
    const Level& level = levels_[l];
    if (l + 1 == levels_.size()) return Coarsest(level);
    const Value* x = nullptr;
    for (int sweep = 0; sweep < pre_; ++sweep) x = Smooth(level, false, x);
    for (int visit = 0; visit < visits_; ++visit) {
      CycleStep<Value> down = Step();
      down.to = levels_[l + 1].r_in.get();
      Multiply(level.r, Residual(level, x), down);
      const Value* const below = Visit(l + 1);
      CycleStep<Value> up = Step();
      up.base = x;
      up.to = Own(level, x);
      Multiply(level.p, below, up);
      x = up.to;
    }
    for (int sweep = 0; sweep < post_; ++sweep) x = Smooth(level, true, x);
    return x;
  }

  const Value* Coarsest(const Level& level) const {
    if (inverse_.size() == 0) return Smooth(level, true, Smooth(level, false, nullptr));
    DenseKernel<<<Blocks(context_, level.n, layout::kWarps), kThreads, 0, context_.stream>>>(
        level.n, inverse_.get(), level.r_in.get(), scale(), level.x[0].get());
    CheckLaunch("DenseKernel");
    return level.x[0].get();
  }

  Context& context_;
  const kernels::Context* host_;  // while this is made
  const int64_t bytes_;
  const int pre_, post_, visits_;
  const Buffer<Value> inverse_;  // by rows; empty: the last level is smoothed
  Buffer<double> in_, out_;
  Places places_;  // while the first level is made: the order of A's unknowns; empty: their own
  std::vector<Level> levels_;
};

}  // namespace

template <class Value>
std::unique_ptr<const Applied> MakeCycle(Context& context, const kernels::CycleParts<Value>& parts,
                                         int64_t bytes, const UnknownOrder* order,
                                         const kernels::Context& host) {
  return std::make_unique<Cycle<Value>>(context, parts, bytes, order, host);
}

std::unique_ptr<const Applied> MakeCycle(Context& context, const Hierarchy& made, int64_t bytes,
                                         const UnknownOrder* order, const kernels::Context& host) {
  if (made.options.hierarchy_precision == kernels::Precision::kFp64) {
    return std::make_unique<Cycle<double>>(context, made, bytes, order, host);
  }
  return std::make_unique<Cycle<float>>(context, made, bytes, order, host);
}

template std::unique_ptr<const Applied> MakeCycle(Context&, const kernels::CycleParts<float>&,
                                                  int64_t, const UnknownOrder*,
                                                  const kernels::Context&);
template std::unique_ptr<const Applied> MakeCycle(Context&, const kernels::CycleParts<double>&,
                                                  int64_t, const UnknownOrder*,
                                                  const kernels::Context&);

}  // namespace spaid::cuda
