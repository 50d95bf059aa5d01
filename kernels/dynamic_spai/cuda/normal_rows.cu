#include <algorithm>
#include <string>
#include <utility>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/dynamic_spai/cuda/normal_rows.h"
#include "kernels/dynamic_spai/cuda/normal_rows_tuning.h"
#include "kernels/sparse/cuda/transpose.h"
#include "kernels/sparse/cuda/unions.h"

namespace spaid::cuda {
namespace {

using fsai::Entry;
using fsai::RowArrays;

constexpr int kThreads = 256, kLanes = 8;
constexpr unsigned kAllLanes = ~0u;

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

__device__ int64_t Thread() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

template <class T, class Combine>
__device__ T OfTeam(T x, const Combine& combine) {
  for (int step = kLanes / 2; step > 0; step /= 2)
    x = combine(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// Â, column by column as A; kLanes threads each. By powers of two first, so that no square is too
// large, or too small.
__global__ void ScaleColumnsKernel(PatternRef a, const double* values, double* scaled) {
  const int64_t j = Thread() / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t begin = j < a.n ? a.col_ptr[j] : 0, end = j < a.n ? a.col_ptr[j + 1] : 0;
  double most = 0;
  for (int64_t p = begin + lane; p < end; p += kLanes) most = fmax(most, fabs(values[p]));
  most = OfTeam(most, [](double x, double y) { return fmax(x, y); });
  const int exponent = most > 0 ? -ilogb(most) : 0;
  double sum = 0;
  for (int64_t p = begin + lane; p < end; p += kLanes) {
    const double x = scalbn(values[p], exponent);
    sum += x * x;
  }
  sum = OfTeam(sum, [](double x, double y) { return x + y; });
  const double by = sum > 0 ? 1 / sqrt(sum) : 0;
  for (int64_t p = begin + lane; p < end; p += kLanes) {
    scaled[p] = scalbn(values[p], exponent) * by;
  }
}

struct Bounds {
  unsigned long long entries;   // of AᵀA, at least
  unsigned long long products;  // that these are the sums of
  int32_t longest_row;
};

// A column of AᵀA has the entries of any row of A that it has an entry in.
__global__ void BoundKernel(PatternRef a, const int64_t* row_ptr, Bounds* bounds) {
  const int64_t j = Thread() / kLanes;
  int most = 0;
  unsigned long long products = 0;
  if (j < a.n) {
    for (int64_t p = a.col_ptr[j] + threadIdx.x % kLanes; p < a.col_ptr[j + 1]; p += kLanes) {
      const int32_t i = a.row_idx[p];
      const auto length = static_cast<int>(row_ptr[i + 1] - row_ptr[i]);
      most = max(most, length);
      products += static_cast<unsigned long long>(length);
    }
  }
  most = OfTeam(most, [](int x, int y) { return max(x, y); });
  unsigned long long sum = threadIdx.x % kLanes == 0 ? static_cast<unsigned long long>(most) : 0;
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, step);
    products += __shfl_xor_sync(kAllLanes, products, step);
  }
  most = __reduce_max_sync(kAllLanes, most);
  if (threadIdx.x % 32 != 0) return;
  if (sum > 0) atomicAdd(&bounds->entries, sum);
  if (products > 0) atomicAdd(&bounds->products, products);
  if (most > bounds->longest_row) atomicMax(&bounds->longest_row, most);
}

// −Â by rows, as NormalRows has it; kLanes threads a row.
template <class Real>
__global__ void OwnRowsKernel(int64_t n, const int64_t* row_ptr, const int32_t* cols,
                              const double* values, int64_t* ptr, Entry<Real>* entries) {
  const int64_t k = Thread() / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t begin = row_ptr[min(k, n)], end = k < n ? row_ptr[k + 1] : begin;
  bool has = false;
  for (int64_t p = begin + lane; p < end; p += kLanes) has |= cols[p] == k;
  const unsigned those = __ballot_sync(kAllLanes, has);
  const bool any = (those >> (threadIdx.x % 32 / kLanes * kLanes) & 0xffu) != 0;
  if (k <= n && lane == 0) ptr[k] = begin + 2 * k;
  if (k >= n) return;
  Entry<Real>* const row = entries + begin + 2 * k;
  const auto set = [&](int64_t at, int64_t index, double value) {
    Entry<Real> entry{};
    entry.index = static_cast<int32_t>(index);
    entry.value = static_cast<Real>(value);
    row[at] = entry;
  };
  if (lane == 0) set(0, n, 1);
  if (lane == 0 && any) set(end - begin + 1, n, 0);
  if (lane == 0 && !any) set(1, k, 0);
  for (int64_t p = begin + lane; p < end; p += kLanes) {
    const int32_t j = cols[p];
    set(j == k ? 1 : 2 + (p - begin) - (any && j > k ? 1 : 0), j, -values[p]);
  }
}

// The columns of AᵀA by length: how many are longer than what the warps take, and those.
__global__ void LongColumnsKernel(int64_t n, const int64_t* ptr, int32_t most, int32_t* list,
                                  int32_t* count, int32_t* longest) {
  const int64_t j = Thread();
  const auto length = static_cast<int32_t>(j < n ? ptr[j + 1] - ptr[j] : 0);
  if (length > most) {
    const int32_t at = atomicAdd(count, 1);
    if (list != nullptr) list[at] = static_cast<int32_t>(j);
  }
  const int32_t of_warp = __reduce_max_sync(kAllLanes, length);
  if (threadIdx.x % 32 == 0 && of_warp > *longest) atomicMax(longest, of_warp);
}

// Where AᵀA goes: Rows of kernels/fsai/cuda/grow_columns.h.
template <class Real>
struct To {
  Entry<Real>* entries;
  const int64_t* ptr;  // of the pattern

  __device__ Entry<Real>* Row(int64_t j) const { return entries + ptr[j]; }
  // Entry t of column j's pattern, whose row is i.
  __device__ void Write(Entry<Real>* row, int64_t j, int t, int32_t i, double value) const {
    Entry<Real> entry{};
    entry.index = i;
    entry.value = static_cast<Real>(value);
    row[i < j ? t + 1 : i == j ? 0 : t] = entry;
  }
  __device__ void WriteDiagonal(Entry<Real>* row, int64_t j) const {
    Entry<Real> entry{};
    entry.index = static_cast<int32_t>(j);
    entry.value = 1;
    row[0] = entry;
  }
};

constexpr int32_t kNobody = -1;

// Columns of AᵀA of more than `over` and at most kSlots entries, a warp each: one row of A after
// the other is added to what a table of the column's entries says.
template <class Real, int kSlots>
__global__ void __launch_bounds__(32 * tuning::kGramWarps)
    GramWarpKernel(PatternRef a, const double* scaled, const int64_t* row_ptr, const int32_t* cols,
                   const double* values, const int64_t* ptr, const int32_t* idx, int32_t over,
                   To<Real> to) {
  constexpr int kPlaces = kSlots <= 192 ? 256 : 1024;
  static_assert(kSlots * 4 <= kPlaces * 3);
  struct Room {
    double sums[kSlots];
    int32_t index[kSlots];
    int16_t table[kPlaces];
  };
  extern __shared__ __align__(16) char rooms[];
  Room& room = reinterpret_cast<Room*>(rooms)[threadIdx.x / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto place_of = [](int32_t i) {
    return static_cast<uint32_t>(i) * 0x9e3779b1u >> (kPlaces == 256 ? 24 : 22);
  };
  const int64_t warps = int64_t{gridDim.x} * tuning::kGramWarps;
  for (int64_t j = int64_t{blockIdx.x} * tuning::kGramWarps + threadIdx.x / 32; j < a.n;
       j += warps) {
    const int64_t first = ptr[j];
    const auto length = static_cast<int>(min(ptr[j + 1] - first, int64_t{kSlots} + 1));
    if (length <= over || length > kSlots) continue;
    __syncwarp();
    for (int t = lane; t < kPlaces / 8; t += 32) {
      reinterpret_cast<int4*>(room.table)[t] = make_int4(-1, -1, -1, -1);
    }
    __syncwarp();
    for (int begin = 0; begin < length; begin += 32) {
      const int t = begin + lane;
      bool open = t < length;
      const int32_t i = open ? idx[first + t] : 0;
      uint32_t place = place_of(i);
      if (open) {
        room.index[t] = i;
        room.sums[t] = 0;
      }
      // Where several want one empty place, the one whose slot is read back has it.
      while (__any_sync(kAllLanes, open)) {
        const bool empty = open && room.table[place] == kNobody;
        __syncwarp();
        if (empty) room.table[place] = static_cast<int16_t>(t);
        __syncwarp();
        if (empty && room.table[place] == t) open = false;
        if (open) place = (place + 1) & (kPlaces - 1);
      }
    }
    __syncwarp();
    const int64_t begin = a.col_ptr[j], end = a.col_ptr[j + 1];
    for (int64_t from = begin; from < end; from += 32) {
      // The rows of the next 32 entries.
      const bool is = from + lane < end;
      const int32_t own = is ? a.row_idx[from + lane] : 0;
      const double own_value = is ? scaled[from + lane] : 0;
      const int64_t own_begin = is ? row_ptr[own] : 0;
      const int own_count = is ? static_cast<int>(row_ptr[own + 1] - own_begin) : 0;
      const int rows = static_cast<int>(min(end - from, int64_t{32}));
      int64_t at = __shfl_sync(kAllLanes, own_begin, 0);
      int count = __shfl_sync(kAllLanes, own_count, 0);
      int32_t col = lane < count ? cols[at + lane] : kNobody;
      double value = lane < count ? values[at + lane] : 0;
      for (int r = 0; r < rows; ++r) {
        const double by = __shfl_sync(kAllLanes, own_value, r);
        // On its way while this one is looked up.
        const int64_t next_at = __shfl_sync(kAllLanes, own_begin, min(r + 1, rows - 1));
        const int next_count = __shfl_sync(kAllLanes, own_count, min(r + 1, rows - 1));
        const int32_t next_col = lane < next_count ? cols[next_at + lane] : kNobody;
        const double next_value = lane < next_count ? values[next_at + lane] : 0;
        for (int e = lane;;) {
          if (col >= 0) {
            uint32_t place = place_of(col);
            int slot = room.table[place];
            while (room.index[slot] != col) {
              place = (place + 1) & (kPlaces - 1);
              slot = room.table[place];
            }
            room.sums[slot] += by * value;
          }
          e += 32;
          if (e - lane >= count) break;
          col = e < count ? cols[at + e] : kNobody;
          value = e < count ? values[at + e] : 0;
        }
        __syncwarp();
        at = next_at;
        count = next_count;
        col = next_col;
        value = next_value;
      }
    }
    Entry<Real>* const row = to.Row(j);
    for (int t = lane; t < length; t += 32) {
      const int32_t i = room.index[t];
      if (i != j) to.Write(row, j, t, i, room.sums[t]);
    }
    if (lane == 0) to.WriteDiagonal(row, j);
  }
}

// Longer columns, list[0, gridDim.x), a block each: an entry is a product of two columns of A, of
// which the shorter one is looked up in the other; kLanes threads each.
template <class Real>
__global__ void __launch_bounds__(kThreads)
    GramBlockKernel(PatternRef a, const double* scaled, const int64_t* ptr, const int32_t* idx,
                    const int32_t* list, To<Real> to) {
  const int64_t j = list[blockIdx.x], first = ptr[j];
  const auto length = static_cast<int>(ptr[j + 1] - first);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  Entry<Real>* const row = to.Row(j);
  constexpr int kTeams = kThreads / kLanes;
  for (int begin = 0; begin < length; begin += kTeams) {
    const int t = begin + static_cast<int>(threadIdx.x) / kLanes;
    const int64_t i = t < length ? idx[first + t] : j;
    int64_t few = a.col_ptr[i], few_end = a.col_ptr[i + 1];
    int64_t many = a.col_ptr[j], many_end = a.col_ptr[j + 1];
    if (few_end - few > many_end - many) {
      int64_t swap = few;
      few = many;
      many = swap;
      swap = few_end;
      few_end = many_end;
      many_end = swap;
    }
    double sum = 0;
    for (int64_t p = few + lane; i != j && p < few_end; p += kLanes) {
      const int32_t wanted = a.row_idx[p];
      int64_t low = many, high = many_end;
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (a.row_idx[middle] < wanted) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      if (low < many_end && a.row_idx[low] == wanted) sum += scaled[p] * scaled[low];
    }
    sum = OfTeam(sum, [](double x, double y) { return x + y; });
    if (t < length && i != j && lane == 0) to.Write(row, j, t, static_cast<int32_t>(i), sum);
  }
  if (threadIdx.x == 0) to.WriteDiagonal(row, j);
}

template <class Real>
class Maker {
 public:
  Maker(Context& context, const Matrix& a, const Caller& caller, GramInfo& info)
      : context_(context), a_(a), caller_(caller), info_(info) {}

  fsai::NormalRows<Real> Make() {
    fsai::NormalRows<Real> rows;
    const int64_t n = rows.n = a_.n;
    scaled_ = Buffer<double>(context_, a_.nnz);
    ScaleColumnsKernel<<<Blocks(n * kLanes), kThreads, 0, context_.stream>>>(
        a_.pattern(), a_.values.get(), scaled_.get());
    CheckLaunch("ScaleColumnsKernel");
    by_rows_ = SortByRows<double>(context_, a_.pattern(), a_.nnz, scaled_.get());
    rows.own.entries = Buffer<Entry<Real>>(context_, a_.nnz + 2 * n);
    rows.own.ptr = Buffer<int64_t>(context_, n + 1);
    OwnRowsKernel<Real><<<Blocks((n + 1) * kLanes), kThreads, 0, context_.stream>>>(
        n, by_rows_.row_ptr.get(), by_rows_.cols.get(), by_rows_.values.get(), rows.own.ptr.get(),
        rows.own.entries.get());
    CheckLaunch("OwnRowsKernel");
    const Bounds bounds = Bound();
    info_.flops = 2 * static_cast<double>(bounds.products);
    rows.own.longest = bounds.longest_row + 2;
    context_.Synchronize();
    caller_.Poll();
    MakeGram(MakePattern(bounds), rows.gram);
    return rows;
  }

 private:
  Bounds Bound() const {
    const Buffer<Bounds> there(context_, 1);
    there.Fill(0);
    BoundKernel<<<Blocks(a_.n * kLanes), kThreads, 0, context_.stream>>>(
        a_.pattern(), by_rows_.row_ptr.get(), there.get());
    CheckLaunch("BoundKernel");
    return Read(context_, there, 0);
  }

  // Bytes that are left for AᵀA, whose pattern is there while its entries are made.
  int64_t Room() const {
    return context_.arena->limit() - context_.arena->used() - tuning::kGramSlackBytes;
  }
  static constexpr int64_t kEntryBytes = sizeof(int32_t) + sizeof(Entry<Real>);

  [[noreturn]] void TooLarge(int64_t at_least, int64_t room) const {
    throw Refusal{kernels::Status(
        kernels::StatusCode::kResourceExhausted, "GRAM_TOO_LARGE",
        "AᵀA has " + std::to_string(at_least) + " entries or more, which take " +
            std::to_string(at_least * kEntryBytes) + " bytes of the device's memory; " +
            std::to_string(room) +
            " are left; rows of A with very many entries make it large: give a device with more "
            "memory, or take static SPAI")};
  }

  DevicePattern MakePattern(const Bounds& bounds) const {
    const int64_t n = a_.n;
    // Beside it: its pointers, and the scratch of a union.
    const int64_t room = Room() - 16 * n, most = std::max<int64_t>(room, 0) / kEntryBytes;
    const auto least = static_cast<int64_t>(bounds.entries);
    if (least > most) TooLarge(least, room);
    try {
      return Unite(context_,
                   {n, a_.col_ptr.get(), a_.row_idx.get(), nullptr, by_rows_.row_ptr.get(),
                    by_rows_.cols.get(), nullptr, nullptr},
                   most, caller_);
    } catch (const PatternTooLarge& too_large) {
      TooLarge(too_large.nnz, room);
    }
  }

  void MakeGram(DevicePattern pattern, RowArrays<Real>& gram) {
    const int64_t n = a_.n;
    info_.nnz = pattern.nnz;
    const Buffer<int32_t> figures(context_, 2);
    figures.Fill(0);
    const auto survey = [&](int32_t* list) {
      LongColumnsKernel<<<Blocks(n), kThreads, 0, context_.stream>>>(
          n, pattern.col_ptr.get(), tuning::kGramManySlots, list, figures.get(), figures.get() + 1);
      CheckLaunch("LongColumnsKernel");
    };
    survey(nullptr);
    int32_t found[2] = {};
    figures.CopyOut(found, 2);
    context_.Synchronize();
    const int32_t longs = found[0];
    gram.longest = found[1];
    const Buffer<int32_t> list(context_, longs);
    if (longs > 0) {
      figures.Fill(0);
      survey(list.get());
    }
    gram.entries = Buffer<Entry<Real>>(context_, pattern.nnz);
    const To<Real> to{gram.entries.get(), pattern.col_ptr.get()};
    const auto warps = [&](auto kernel, int32_t over, int slots, int places) {
      if (gram.longest <= over) return;
      const int bytes = tuning::kGramWarps * (12 * slots + 2 * places);
      Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
            "cudaFuncSetAttribute");
      int resident = 0;
      Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                &resident, kernel, 32 * tuning::kGramWarps, static_cast<size_t>(bytes)),
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
      const int64_t blocks =
          std::min<int64_t>((n + tuning::kGramWarps - 1) / tuning::kGramWarps,
                            int64_t{4} * std::max(resident, 1) * context_.multiprocessors);
      kernel<<<static_cast<unsigned>(blocks), 32 * tuning::kGramWarps, bytes, context_.stream>>>(
          a_.pattern(), scaled_.get(), by_rows_.row_ptr.get(), by_rows_.cols.get(),
          by_rows_.values.get(), pattern.col_ptr.get(), pattern.row_idx.get(), over, to);
      CheckLaunch("GramWarpKernel");
    };
    warps(GramWarpKernel<Real, tuning::kGramFewSlots>, 0, tuning::kGramFewSlots, 256);
    warps(GramWarpKernel<Real, tuning::kGramManySlots>, tuning::kGramFewSlots,
          tuning::kGramManySlots, 1024);
    if (longs > 0) {
      GramBlockKernel<Real><<<static_cast<unsigned>(longs), kThreads, 0, context_.stream>>>(
          a_.pattern(), scaled_.get(), pattern.col_ptr.get(), pattern.row_idx.get(), list.get(),
          to);
      CheckLaunch("GramBlockKernel");
    }
    gram.ptr = std::move(pattern.col_ptr);
    // What it was made of goes, and the stream must be past it by then.
    context_.Synchronize();
  }

  Context& context_;
  const Matrix& a_;
  const Caller& caller_;
  GramInfo& info_;
  Buffer<double> scaled_;
  ByRows<double> by_rows_;
};

}  // namespace

template <class Real>
fsai::NormalRows<Real> MakeNormalRows(Context& context, const Matrix& a, const Caller& caller,
                                      GramInfo& info) {
  return Maker<Real>(context, a, caller, info).Make();
}

template fsai::NormalRows<float> MakeNormalRows<float>(Context&, const Matrix&, const Caller&,
                                                       GramInfo&);
template fsai::NormalRows<double> MakeNormalRows<double>(Context&, const Matrix&, const Caller&,
                                                         GramInfo&);

}  // namespace spaid::cuda
