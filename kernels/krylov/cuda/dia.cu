#include <algorithm>
#include <cstdlib>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/csr.h"
#include "kernels/krylov/cuda/dia.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;    // lanes that share a column
constexpr int kGrain = 32;  // diagonals begin at multiples of so many values

// Flags of what does not fit the layout.
enum : int32_t { kOffDiagonals = 1, kNotSymmetric = 2 };

// Calls use(i, j, entry) for this thread's entries of A.
template <class Use>
__device__ void ForEntries(const PatternRef& a, const Use& use) {
  const int64_t teams = int64_t{gridDim.x} * kThreads / kTeam;
  for (int64_t j = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam; j < a.n; j += teams) {
    for (int64_t p = a.col_ptr[j] + threadIdx.x % kTeam; p < a.col_ptr[j + 1]; p += kTeam) {
      use(int64_t{a.row_idx[p]}, j, p);
    }
  }
}

// Index of entry (i, j) of A in the values, or, below the diagonal of a half, of the entry that
// equals it, for which `is_mirror` is set; -1: on none of the diagonals.
template <class Value>
__device__ int64_t PlaceOf(const DiaRef<Value>& a, int node, bool half, int64_t i, int64_t j,
                           bool* is_mirror) {
  int64_t row = i / node, column = j / node;
  int row_in = static_cast<int>(i % node), column_in = static_cast<int>(j % node);
  *is_mirror = half && column < row;
  if (*is_mirror) {
    const int64_t other = row;
    row = column;
    column = other;
    const int other_in = row_in;
    row_in = column_in;
    column_in = other_in;
  }
  const int64_t offset = column - row;
  int low = 0, high = a.diagonals;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (a.offset[middle] < offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == a.diagonals || a.offset[low] != offset) return -1;
  const int64_t place = low - (half ? a.diagonals / 2 : 0);
  return ((place * node + row_in) * node + column_in) * a.stride + row;
}

template <class Value>
__global__ void __launch_bounds__(kThreads)
    FillKernel(PatternRef a, const double* from, __grid_constant__ const DiaRef<Value> to, int node,
               bool half, bool by_rows, Value* values, int32_t* flags) {
  bool off = false;
  ForEntries(a, [&](int64_t i, int64_t j, int64_t p) {
    bool is_mirror;
    const int64_t place = PlaceOf(to, node, half, by_rows ? j : i, by_rows ? i : j, &is_mirror);
    off = off || place < 0;
    if (place >= 0 && !is_mirror) values[place] = static_cast<Value>(from[p]);
  });
  if (off) atomicOr(flags, kOffDiagonals);
}

// Checks whether so many columns, spread over all, have all of their entries on the diagonals.
template <class Value>
__global__ void __launch_bounds__(kThreads)
    ProbeKernel(PatternRef a, __grid_constant__ const DiaRef<Value> to, int node, bool half,
                bool by_rows, int64_t columns, int32_t* flags) {
  const int64_t team = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam;
  if (team >= columns) return;
  const int64_t j = team * a.n / columns;
  bool off = false;
  for (int64_t p = a.col_ptr[j] + threadIdx.x % kTeam; p < a.col_ptr[j + 1]; p += kTeam) {
    const int64_t i = a.row_idx[p];
    bool is_mirror;
    off = off || PlaceOf(to, node, half, by_rows ? j : i, by_rows ? i : j, &is_mirror) < 0;
  }
  if (off) *flags = kOffDiagonals;
}

// After FillKernel: checks whether the half that is not stored equals the one that is.
template <class Value>
__global__ void __launch_bounds__(kThreads)
    MirrorKernel(PatternRef a, const double* from, __grid_constant__ const DiaRef<Value> to,
                 int node, const Value* values, int32_t* flags) {
  bool differs = false;
  ForEntries(a, [&](int64_t i, int64_t j, int64_t p) {
    bool is_mirror;
    const int64_t place = PlaceOf(to, node, true, i, j, &is_mirror);
    differs = differs || (is_mirror && place >= 0 && values[place] != static_cast<Value>(from[p]));
  });
  if (differs) atomicOr(flags, kNotSymmetric);
}

int Blocks(const Context& context, int64_t columns) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>(columns * kTeam / kThreads + 1, 1, most));
}

struct Layout {
  int node = 0;  // 0: none
  Offsets offsets;
  bool half = false;
  double cost = 0;  // in values
};

bool IsMirrored(const Offsets& offsets) {
  for (int k = 0; k < offsets.count; ++k) {
    if (offsets.at[k] != -offsets.at[offsets.count - 1 - k]) return false;
  }
  return true;
}

int64_t Stride(int64_t nodes) { return (nodes + kGrain - 1) / kGrain * kGrain; }

// The cheapest block size.
Layout FindLayout(Context& context, const PatternRef& a, bool symmetric, const DiaTuning& tuning) {
  Layout best;
  for (int node = 1; node <= kMaxNode; ++node) {
    if (a.n % node != 0) continue;
    Layout own{node, FindOffsets(context, a, /*whole=*/false, kMaxDiagonals, node)};
    const int count = own.offsets.count;
    if (count == 0) continue;
    own.half = symmetric && IsMirrored(own.offsets);
    const double each = own.half ? std::max((count + 1) / 2.0, tuning.half * count) : count;
    own.cost = each * node * static_cast<double>(a.n);
    if (best.node == 0 || own.cost < best.cost) best = own;
  }
  return best;
}

}  // namespace

template <class Value>
std::optional<Dia<Value>> Dia<Value>::Make(Context& context, const PatternRef& pattern,
                                           const double* values, Order order,
                                           const DiaTuning& tuning) {
  const int64_t nnz = CountEntries(context, pattern);
  const Layout layout = FindLayout(context, pattern, order == Order::kBoth, tuning);
  const auto size = static_cast<int64_t>(sizeof(Value));
  const auto by_rows = static_cast<double>(nnz * (size + static_cast<int64_t>(sizeof(int32_t))));
  if (layout.node == 0 || layout.cost * sizeof(Value) >= by_rows) return std::nullopt;

  Dia made;
  const int count = layout.offsets.count, square = layout.node * layout.node;
  made.nnz_ = nnz;
  made.node_ = layout.node;
  made.half_ = layout.half;
  const int64_t nodes = pattern.n / layout.node, stride = Stride(nodes);
  const int stored = layout.half ? (count + 1) / 2 : count;
  DiaRef<Value>& ref = made.ref_;
  ref.nodes = static_cast<int32_t>(nodes);
  ref.stride = stride;
  ref.diagonals = count;
  std::fill(std::begin(ref.offset), std::end(ref.offset), DiaRef<Value>::kNone);
  for (int k = 0; k < count; ++k) {
    ref.offset[k] =
        order == Order::kRows ? layout.offsets.at[k] : -layout.offsets.at[count - 1 - k];
  }
  if (!made.MayFit(context, pattern, order)) return std::nullopt;
  made.values_ = Buffer<Value>(context, stored * square * stride);
  made.values_.Fill(0);
  // A half is read twice, the second time soon after the first.
  ref.streams = !layout.half && made.bytes() >= tuning.stream_bytes;
  for (int k = 0; k < count; ++k) {
    // Below the diagonal of a half: the values of the mirrored diagonal, indexed by its own rows.
    const bool mirror = layout.half && ref.offset[k] < 0;
    const int64_t place = (mirror ? count - 1 - k : k) - (layout.half ? count / 2 : 0);
    ref.values[k] = made.values_.get() + place * square * stride + (mirror ? ref.offset[k] : 0);
  }
  ref.groups = 1;
  while (ref.groups < kProductThreads / 32 &&
         count * square >= 2 * ref.groups * tuning.group_entries) {
    ref.groups *= 2;
  }
  const int64_t tile = kProductThreads / ref.groups, tiles = (nodes + tile - 1) / tile;
  const int64_t most =
      std::min<int64_t>(kProductMaxBlocks, tuning.blocks * context.multiprocessors);
  made.blocks_ = static_cast<int>(std::clamp<int64_t>(tiles, 1, most));
  const int32_t flags = made.Fill(context, pattern, values, order);
  if (flags != 0) return std::nullopt;
  return made;
}

template <class Value>
bool Dia<Value>::MayFit(Context& context, const PatternRef& pattern, Order order) const {
  constexpr int64_t kColumns = 1 << 15;
  const Buffer<int32_t> flags(context, 1);
  flags.Fill(0);
  const int64_t columns = std::min(kColumns, pattern.n);
  const auto blocks = static_cast<unsigned>((columns * kTeam + kThreads - 1) / kThreads);
  ProbeKernel<<<blocks, kThreads, 0, context.stream>>>(pattern, ref_, node_, half_,
                                                       order == Order::kRows, columns, flags.get());
  CheckLaunch("ProbeKernel");
  return Read(context, flags, 0) == 0;
}

template <class Value>
int32_t Dia<Value>::Fill(Context& context, const PatternRef& pattern, const double* values,
                         Order order) {
  const Buffer<int32_t> flags(context, 1);
  flags.Fill(0);
  const int blocks = Blocks(context, pattern.n);
  FillKernel<<<blocks, kThreads, 0, context.stream>>>(
      pattern, values, ref_, node_, half_, order == Order::kRows, values_.get(), flags.get());
  CheckLaunch("FillKernel");
  if (half_) {
    MirrorKernel<<<blocks, kThreads, 0, context.stream>>>(pattern, values, ref_, node_,
                                                          values_.get(), flags.get());
    CheckLaunch("MirrorKernel");
  }
  return Read(context, flags, 0);
}

template <class Value>
bool Dia<Value>::UpdateValues(Context& context, const PatternRef& pattern, const double* values) {
  const int32_t flags = Fill(context, pattern, values, Order::kColumns);
  if ((flags & kOffDiagonals) != 0) {
    throw Failure(CudaFault::kPlanMismatch, "the matrix has not the operator's pattern");
  }
  return flags == 0;
}

template <class Value>
int64_t Dia<Value>::bytes() const {
  return Arena::Rounded(values_.size() * static_cast<int64_t>(sizeof(Value)));
}

template <class Value>
int64_t Dia<Value>::bytes_per_product() const {
  const int64_t square = int64_t{node_} * node_;
  int64_t values = 0;
  for (int k = half_ ? ref_.diagonals / 2 : 0; k < ref_.diagonals; ++k) {
    values += square * (int64_t{ref_.nodes} - std::abs(int64_t{ref_.offset[k]}));
  }
  return values * static_cast<int64_t>(sizeof(Value)) +
         2 * n() * static_cast<int64_t>(sizeof(double));
}

template class Dia<double>;
template class Dia<float>;

}  // namespace spaid::cuda
