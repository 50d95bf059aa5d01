#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/amg/cuda/applied_cycle.h"
#include "kernels/amg/cuda/cycle.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/operator.h"
#include "kernels/sparse/cuda/symmetry.h"

namespace spaid::cuda {
namespace {

using kernels::SmootherKind;
using layout::Blocks, layout::Lane, layout::ThreadOfGrid, layout::ThreadsOfGrid;
using layout::WarpOfGrid, layout::WarpsOfGrid;
constexpr int kThreads = layout::kThreads;

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

// Lays the levels out.
template <class Value>
class Placing {
 public:
  using Level = LevelOnDevice<Value>;
  using Layout = typename Level::Layout;
  using Rows = kernels::Rows<Value>;

  Placing(Context& context, const kernels::CycleParts<Value>& parts, int64_t bytes,
          const UnknownOrder* order, const kernels::Context& host)
      : context_(context), host_(host) {
    if (order != nullptr) places_ = Places(context, *order);
    to_.bytes = bytes;
    to_.pre = parts.pre;
    to_.post = parts.post;
    to_.visits = parts.visits;
    to_.inverse = Upload(context, parts.inverse);
    to_.in = InOrder(parts.in);
    to_.out = InOrder(parts.out);
    for (const kernels::CycleLevel<Value>& from : parts.levels) {
      to_.levels.push_back(Place(from));
      places_ = {};  // the first level's alone
    }
    context.Synchronize();
  }

  Placing(Context& context, const Hierarchy& made, int64_t bytes, const UnknownOrder* order,
          const kernels::Context& host)
      : context_(context), host_(host) {
    const SetUpLevel& top = made.levels.front();
    to_.bytes = bytes;
    to_.pre = made.options.pre_sweeps;
    to_.post = made.options.post_sweeps;
    to_.visits = made.options.cycle == kernels::CycleKind::kW ? 2 : 1;
    to_.inverse = Narrowed<Value>(context, made.inverse.rows);
    to_.in = Buffer<double>(context, top.n);
    to_.out = Buffer<double>(context, top.n);
    ScalesKernel<<<Blocks(context, top.n, kThreads), kThreads, 0, context.stream>>>(
        top.n, made.scale.get(), top.left.get(), top.right.get(), made.sign, to_.in.get(),
        to_.out.get());
    CheckLaunch("ScalesKernel");
    for (Buffer<double>* const of : {&to_.in, &to_.out}) *of = Carried(std::move(*of), order);
    const Buffer<int32_t> bad(context, 1);  // none is: the set-up has looked
    for (size_t l = 0; l < made.levels.size(); ++l) {
      to_.levels.push_back(Place(made.levels[l],
                                 l + 1 < made.levels.size() ? &made.levels[l + 1] : nullptr,
                                 l == 0 ? order : nullptr, l == 0 && made.exactly_symmetric, bad));
    }
    context.Synchronize();
  }

  CycleOnDevice<Value> Take() { return std::move(to_); }

 private:
  void CheckStop() const {
    const kernels::StopReason stopped = host_.stop.Poll();
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
    if (!to_.levels.empty() && FewRows<Value>::Serves(rows, longest)) {
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

  Context& context_;
  const kernels::Context& host_;
  Places places_;  // while the first level is made: the order of A's unknowns; empty: their own
  CycleOnDevice<Value> to_;
};

template <class Value, class From>
std::unique_ptr<const Applied> Make(Context& context, const From& from, int64_t bytes,
                                    const UnknownOrder* order, const kernels::Context& host) {
  return MakeAppliedCycle<Value>(context,
                                 std::make_shared<const CycleOnDevice<Value>>(
                                     Placing<Value>(context, from, bytes, order, host).Take()),
                                 /*columns=*/1);
}

}  // namespace

template <class Value>
std::unique_ptr<const Applied> MakeCycle(Context& context, const kernels::CycleParts<Value>& parts,
                                         int64_t bytes, const UnknownOrder* order,
                                         const kernels::Context& host) {
  return Make<Value>(context, parts, bytes, order, host);
}

std::unique_ptr<const Applied> MakeCycle(Context& context, const Hierarchy& made, int64_t bytes,
                                         const UnknownOrder* order, const kernels::Context& host) {
  if (made.options.hierarchy_precision == kernels::Precision::kFp64) {
    return Make<double>(context, made, bytes, order, host);
  }
  return Make<float>(context, made, bytes, order, host);
}

template std::unique_ptr<const Applied> MakeCycle(Context&, const kernels::CycleParts<float>&,
                                                  int64_t, const UnknownOrder*,
                                                  const kernels::Context&);
template std::unique_ptr<const Applied> MakeCycle(Context&, const kernels::CycleParts<double>&,
                                                  int64_t, const UnknownOrder*,
                                                  const kernels::Context&);

}  // namespace spaid::cuda
