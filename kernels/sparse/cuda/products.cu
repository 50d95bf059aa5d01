#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/sparse/cuda/product_rows.h"
#include "kernels/sparse/cuda/products.h"
#include "kernels/sparse/cuda/products_tuning.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {
namespace {

using namespace products;

// Entries of a row that a table has places for twice.
__host__ __device__ int ClassOfEntries(int64_t entries, int64_t most_slots) {
  int k = 0;
  for (int64_t slots = kLeastSlots; slots < 2 * entries; slots *= 2) ++k;
  return (int64_t{kLeastSlots} << k) <= most_slots ? k : kLongClass;
}

// For so many products in a row, if there are: small rows in tables that surely do, others in some
// that do where an entry is the sum of a few.
__host__ __device__ int ClassOfProducts(double products) {
  const double surely = 2 * products, few = products / tuning::kProductsASlot;
  const double slots = surely < tuning::kSureSlots ? surely
                       : few < tuning::kSureSlots  ? tuning::kSureSlots
                                                   : few;
  int k = 0;
  while (k < kLongClass && static_cast<double>(kLeastSlots << k) < slots) ++k;
  return k;
}

struct Survey {
  unsigned long long entries;
  int32_t longest, empty, uncounted;
};

int Blocks(const Context& context, int64_t work, int64_t a_block) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((work + a_block - 1) / a_block, 1, most));
}

// The class of a row by its products, were all rows of B of their mean length.
struct ByGuess {
  const int64_t* ptr;
  double mean;
  __device__ int operator()(int64_t i) const {
    return ClassOfProducts(static_cast<double>(ptr[i + 1] - ptr[i]) * mean);
  }
};
// By its entries; -1: it has none.
struct ByEntries {
  const int64_t* ptr;
  __device__ int operator()(int64_t i) const {
    const int64_t entries = ptr[i + 1] - ptr[i];
    return entries == 0 ? -1 : ClassOfEntries(entries, kMostSlotsOfValues);
  }
};
// The length of rows that are not counted yet, as LongerKernel found it; -1 for others.
struct Uncounted {
  const int32_t* entries;
  __device__ int operator()(int64_t i) const {
    return entries[i] < 0 ? kUncounted - entries[i] : -1;
  }
};

// kUncounted less their class, by their products, for the entries of rows that are not counted. A
// warp a row.
__global__ void __launch_bounds__(kThreads)
    LongerKernel(PatternRef a, PatternRef b, int64_t columns, int32_t* entries) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; i < a.n;
       i += int64_t{gridDim.x} * kThreads / 32) {
    if (entries[i] != kUncounted) continue;
    int64_t products = 0;
    for (int64_t p = a.col_ptr[i] + lane; p < a.col_ptr[i + 1]; p += 32) {
      const int32_t k = a.row_idx[p];
      products += b.col_ptr[k + 1] - b.col_ptr[k];
    }
    for (int step = 16; step > 0; step /= 2) products += __shfl_xor_sync(~0u, products, step);
    if (lane != 0) continue;
    entries[i] = kUncounted - ClassOfEntries(min(products, columns), kMostSlotsOfCounts);
  }
}

// A warp's lanes of one class: their number, and which of them the caller is.
struct Peers {
  __device__ explicit Peers(int k) {
    const uint32_t all = __match_any_sync(~0u, k);
    const uint32_t lane = threadIdx.x % 32;
    count = __popc(all);
    before = __popc(all & ((1u << lane) - 1));
    first = __ffs(static_cast<int>(all)) - 1;
  }
  int count, before, first;
};

template <class ClassOf>
__global__ void __launch_bounds__(kThreads)
    CountClassesKernel(int64_t n, ClassOf class_of, Classes* classes) {
  __shared__ int32_t count[kClasses];
  if (threadIdx.x < kClasses) count[threadIdx.x] = 0;
  __syncthreads();
  for (int64_t first = int64_t{blockIdx.x} * kThreads; first < n;
       first += int64_t{gridDim.x} * kThreads) {
    const int64_t i = first + threadIdx.x;
    const int k = i < n ? class_of(i) : -1;
    const Peers peers(k);
    if (k >= 0 && peers.before == 0) atomicAdd(count + k, peers.count);
  }
  __syncthreads();
  if (threadIdx.x < kClasses && count[threadIdx.x] > 0) {
    atomicAdd(classes->count + threadIdx.x, count[threadIdx.x]);
  }
}

// Lists the rows class by class, within one about as they come.
template <class ClassOf>
__global__ void __launch_bounds__(kThreads)
    PlaceKernel(int64_t n, ClassOf class_of, Classes* classes, int32_t* list) {
  __shared__ int32_t count[kClasses], begin[kClasses];
  for (int64_t first = int64_t{blockIdx.x} * kThreads; first < n;
       first += int64_t{gridDim.x} * kThreads) {
    if (threadIdx.x < kClasses) count[threadIdx.x] = 0;
    __syncthreads();
    const int64_t i = first + threadIdx.x;
    const int k = i < n ? class_of(i) : -1;
    const Peers peers(k);
    int32_t at = 0;
    if (k >= 0 && peers.before == 0) at = atomicAdd(count + k, peers.count);
    at = __shfl_sync(~0u, at, peers.first) + peers.before;
    __syncthreads();
    if (threadIdx.x < kClasses && count[threadIdx.x] > 0) {
      begin[threadIdx.x] = classes->Begin(static_cast<int>(threadIdx.x)) +
                           atomicAdd(classes->placed + threadIdx.x, count[threadIdx.x]);
    }
    __syncthreads();
    if (k >= 0) list[begin[k] + at] = static_cast<int32_t>(i);
    __syncthreads();
  }
}

// Entries of rows, for their scan, and what the host has to know of them.
__global__ void __launch_bounds__(kThreads)
    SurveyKernel(int64_t n, const int32_t* entries, int64_t* ptr, Survey* survey) {
  unsigned long long all = 0;
  int32_t longest = 0, empty = 0, uncounted = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i <= n;
       i += int64_t{gridDim.x} * kThreads) {
    const int32_t own = i < n ? entries[i] : 0;
    ptr[i] = max(own, 0);
    all += static_cast<unsigned long long>(max(own, 0));
    longest = max(longest, own);
    empty += i < n && own == 0 ? 1 : 0;
    uncounted += own < 0 ? 1 : 0;
  }
  __syncwarp();
  for (int step = 16; step > 0; step /= 2) all += __shfl_xor_sync(~0u, all, step);
  longest = __reduce_max_sync(~0u, longest);
  empty = __reduce_add_sync(~0u, empty);
  uncounted = __reduce_add_sync(~0u, uncounted);
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(&survey->entries, all);
  atomicMax(&survey->longest, longest);
  if (empty > 0) atomicAdd(&survey->empty, empty);
  if (uncounted > 0) atomicAdd(&survey->uncounted, uncounted);
}

// Makes row pointers of entries.
Buffer<Survey> BeginLook(Context& context, const Buffer<int32_t>& entries, RowMatrix& to) {
  to.col_ptr = Buffer<int64_t>(context, to.n + 1);
  Buffer<Survey> there(context, 1);
  there.Fill(0);
  SurveyKernel<<<Blocks(context, to.n + 1, kThreads), kThreads, 0, context.stream>>>(
      to.n, entries.get(), to.col_ptr.get(), there.get());
  CheckLaunch("SurveyKernel");
  Scan(context, to.col_ptr, to.n + 1);
  return there;
}

void Take(const Survey& survey, RowMatrix& to) {
  to.nnz = static_cast<int64_t>(survey.entries);
  to.longest = survey.longest;
  to.empty = survey.empty;
}

// The same, and waits for what it finds; returns how many rows are uncounted.
int32_t Look(Context& context, const Buffer<int32_t>& entries, RowMatrix& to) {
  const Survey survey = Read(context, BeginLook(context, entries, to), 0);
  Take(survey, to);
  return survey.uncounted;
}

void MakeRoom(Context& context, RowMatrix& to) {
  to.row_idx = Buffer<int32_t>(context, to.nnz);
  to.values = Buffer<double>(context, to.nnz);
}

// C = A B, pass by pass.
class Product {
 public:
  Product(Context& context, const RowMatrix& a, const RowMatrix& b)
      : context_(context),
        a_(a),
        b_(b),
        columns_(b.columns),
        mean_(b.n > 0 ? static_cast<double>(b.nnz) / static_cast<double>(b.n) : 0),
        lanes_(mean_ < 6    ? 4
               : mean_ < 12 ? 8
               : mean_ < 24 ? 16
                            : 32),
        classes_(context, 1),
        list_(context, a.n),
        f_{a.pattern(), a.values.get(), b.pattern(), b.values.get()} {
    if (a.columns == b.n) return;
    throw Failure(
        CudaFault::kError,
        "a product takes a right factor of as many rows as the left one has columns; they "
        "are " +
            std::to_string(b.n) + " and " + std::to_string(a.columns));
  }

  // All of `c` but its columns and values.
  void Count(RowMatrix& c) {
    c.n = a_.n;
    c.columns = columns_;
    const Buffer<int32_t> entries(context_, a_.n);
    entries.Fill(0xff);  // kUncounted: that stay those in no table, too
    const Target to{entries.get()};
    Arrange(ByGuess{a_.col_ptr.get(), mean_});
    const int most =
        a_.longest > 0 ? ClassOfProducts(static_cast<double>(a_.longest) * mean_) : kLongClass;
    LaunchClasses<Pass::kCount>(std::min(most + 1, kLongClass), tuning::kProbes, to,
                                [&](int) { return a_.n; });
    if (Look(context_, entries, c) > 0) {
      LongerKernel<<<Blocks(context_, a_.n, kThreads / 32), kThreads, 0, context_.stream>>>(
          a_.pattern(), b_.pattern(), columns_, entries.get());
      CheckLaunch("LongerKernel");
      Arrange(Uncounted{entries.get()});
      const Classes there = ReadClasses();
      LaunchClasses<Pass::kCount>(kLongClass, kMostSlotsOfCounts, to,
                                  [&](int k) { return there.count[k]; });
      LaunchLong<Pass::kCount>(there.count[kLongClass], to);
      Look(context_, entries, c);
    }
  }

  // Columns, too, or the values of known ones.
  template <Pass kPass>
  void Values(RowMatrix& c, RowOrder order) {
    if (c.nnz == 0) return;
    const Target to{nullptr, c.col_ptr.get(), c.row_idx.get(), c.values.get(),
                    order == RowOrder::kAscending};
    Arrange(ByEntries{c.col_ptr.get()});
    const int most = ClassOfEntries(c.longest, kMostSlotsOfValues);
    LaunchClasses<kPass>(std::min(most + 1, kLongClass), kMostSlotsOfValues, to,
                         [&](int) { return c.n; });
    if (most == kLongClass) LaunchLong<kPass>(ReadClasses().count[kLongClass], to);
  }

 private:
  template <class ClassOf>
  void Arrange(const ClassOf& class_of) {
    classes_.Fill(0);
    const int blocks = Blocks(context_, a_.n, kThreads);
    CountClassesKernel<<<blocks, kThreads, 0, context_.stream>>>(a_.n, class_of, classes_.get());
    CheckLaunch("CountClassesKernel");
    PlaceKernel<<<blocks, kThreads, 0, context_.stream>>>(a_.n, class_of, classes_.get(),
                                                          list_.get());
    CheckLaunch("PlaceKernel");
  }
  Classes ReadClasses() { return Read(context_, classes_, 0); }

  // Side by side, the longest rows first: some classes have a few rows alone, beside which the
  // device would be idle.
  template <Pass kPass, class MostRows>
  void LaunchClasses(int classes, int probes, const Target& to, const MostRows& most_rows) {
    Branches branches(context_);
    std::vector<cudaStream_t> streams = {context_.stream};
    for (int b = 0; b < std::min(classes - 1, tuning::kBranches); ++b) {
      streams.push_back(branches.Fork(b).stream);
    }
    size_t launches = 0;
    for (int k = classes - 1; k >= 0; --k) {
      if (most_rows(k) == 0) continue;
      stream_ = streams[launches++ % streams.size()];
      LaunchClass<kPass>(k, most_rows(k), probes, to);
    }
  }

  template <int kLanes, int kSlots, Pass kPass>
  void Launch(int k, int64_t most_rows, int probes, const Target& to) {
    using Of = Shape<kLanes, kSlots, kPass>;
    const auto kernel = &RowsKernel<kLanes, kSlots, kPass>;
    if (Of::kBytes > 48 << 10) AllowSharedMemory(context_, kernel, Of::kBytes);
    kernel<<<Blocks(context_, most_rows, Of::kRows), Of::kBlock, Of::kBytes, stream_>>>(
        f_, classes_.get(), k, list_.get(), std::min(probes, kSlots), to);
    CheckLaunch("RowsKernel");
  }
  // Few lanes where rows of B are short.
  template <int kSlots, Pass kPass>
  void LaunchSmall(int k, int64_t most_rows, int probes, const Target& to) {
    constexpr int kFew = kSlots > 128 ? 8 : 4, kMost = kSlots > 32 ? 32 : 8;
    switch (std::min(lanes_, kMost)) {
      case 4:
        return Launch<kFew, kSlots, kPass>(k, most_rows, probes, to);
      case 8:
        return Launch<8, kSlots, kPass>(k, most_rows, probes, to);
      case 16:
        return Launch<std::min(16, kMost), kSlots, kPass>(k, most_rows, probes, to);
      default:
        return Launch<kMost, kSlots, kPass>(k, most_rows, probes, to);
    }
  }
  template <int kRoom, Pass kPass>
  void LaunchSingle(int k, int64_t most_rows, const Target& to) {
    constexpr int kBlock = tuning::kSingleThreads;
    SingleRowsKernel<kRoom, kPass><<<Blocks(context_, most_rows, kBlock), kBlock, 0, stream_>>>(
        f_, classes_.get(), k, list_.get(), to);
    CheckLaunch("SingleRowsKernel");
  }
  template <Pass kPass>
  void LaunchClass(int k, int64_t most_rows, int probes, const Target& to) {
    if (b_.longest == 1 && k == 0) return LaunchSingle<16, kPass>(k, most_rows, to);
    if (b_.longest == 1 && k == 1) return LaunchSingle<32, kPass>(k, most_rows, to);
    switch (k) {
      case 0:
        return LaunchSmall<32, kPass>(k, most_rows, probes, to);
      case 1:
        return LaunchSmall<64, kPass>(k, most_rows, probes, to);
      case 2:
        return LaunchSmall<128, kPass>(k, most_rows, probes, to);
      case 3:
        return LaunchSmall<256, kPass>(k, most_rows, probes, to);
      case 4:
        return Launch<32, 512, kPass>(k, most_rows, probes, to);
      case 5:
        return Launch<32, 1024, kPass>(k, most_rows, probes, to);
      case 6:
        return Launch<32, 2048, kPass>(k, most_rows, probes, to);
      case 7:
        return Launch<32, 4096, kPass>(k, most_rows, probes, to);
      default:
        if constexpr (kPass == Pass::kCount) Launch<32, 8192, kPass>(k, most_rows, probes, to);
    }
  }
  template <Pass kPass>
  void LaunchLong(int64_t rows, const Target& to) {
    if (rows == 0) return;
    const int64_t words = (columns_ + 31) / 32;
    const int64_t a_block = 4 * words + (kPass == Pass::kCount ? 0 : 8 * columns_);
    const int64_t left = context_.arena->limit() - context_.arena->used();
    const int64_t most = std::min(rows, int64_t{tuning::kLongBlocks} * context_.multiprocessors);
    const int64_t room = std::min(left / 4, tuning::kLongBytes * (a_.nnz + b_.nnz));
    const int64_t blocks = std::clamp<int64_t>(room / a_block, 1, most);
    const Buffer<uint32_t> marks(context_, blocks * words);
    const Buffer<double> sums(context_, kPass == Pass::kCount ? 0 : blocks * columns_);
    marks.Fill(0);
    LongRowsKernel<kPass><<<static_cast<unsigned>(blocks), kThreads, 0, context_.stream>>>(
        f_, classes_.get(), list_.get(), columns_, marks.get(), sums.get(), to);
    CheckLaunch("LongRowsKernel");
  }

  Context& context_;
  const RowMatrix &a_, &b_;
  const int64_t columns_;
  const double mean_;  // entries of a row of B
  const int lanes_;
  const Buffer<Classes> classes_;
  const Buffer<int32_t> list_;
  const Factors f_;
  cudaStream_t stream_ = nullptr;  // of the class at hand
};

}  // namespace

void PointRows(Context& context, const Buffer<int32_t>& entries, RowMatrix& to) {
  Look(context, entries, to);
}

void SizeRows(Context& context, const Buffer<int32_t>& entries, RowMatrix& to) {
  PointRows(context, entries, to);
  MakeRoom(context, to);
}

void SizeRows(Context& context, const Buffer<int32_t>& of_one, RowMatrix& one,
              const Buffer<int32_t>& of_other, RowMatrix& other, const HostCopy& too) {
  const Buffer<Survey> first = BeginLook(context, of_one, one),
                       second = BeginLook(context, of_other, other);
  Survey found[2];
  context.Download({first.To(found, 1), second.To(found + 1, 1), too});
  Take(found[0], one);
  Take(found[1], other);
  MakeRoom(context, one);
  MakeRoom(context, other);
}

RowMatrix UploadRows(Context& context, const kernels::PatternView& rows, const double* values) {
  RowMatrix to;
  static_cast<Matrix&>(to) = UploadMatrix(context, rows, values);
  to.columns = rows.n_rows;
  for (int64_t i = 0; i < to.n; ++i) {
    const auto entries = static_cast<int64_t>(rows.column(i).size());
    to.longest = std::max(to.longest, entries);
    to.empty += entries == 0 ? 1 : 0;
  }
  return to;
}

kernels::CscMatrix DownloadRows(const Context& context, const RowMatrix& rows) {
  kernels::CscMatrix to;
  to.n_rows = rows.columns;
  to.n_cols = rows.n;
  to.col_ptr.resize(static_cast<size_t>(rows.n) + 1);
  to.row_idx.resize(static_cast<size_t>(rows.nnz));
  to.values.resize(to.row_idx.size());
  context.Download({rows.col_ptr.To(to.col_ptr.data(), rows.n + 1),
                    rows.row_idx.To(to.row_idx.data(), rows.nnz),
                    rows.values.To(to.values.data(), rows.nnz)});
  return to;
}

std::optional<RowMatrix> MultiplyUpTo(Context& context, int64_t most_entries, const RowMatrix& a,
                                      const RowMatrix& b, RowOrder order) {
  Product product(context, a, b);
  RowMatrix c;
  product.Count(c);
  if (c.nnz > most_entries) return std::nullopt;
  MakeRoom(context, c);
  product.Values<Pass::kValues>(c, order);
  return c;
}

RowMatrix Multiply(Context& context, const RowMatrix& a, const RowMatrix& b, RowOrder order) {
  return *MultiplyUpTo(context, std::numeric_limits<int64_t>::max(), a, b, order);
}

RowMatrix CountProduct(Context& context, const RowMatrix& a, const RowMatrix& b) {
  RowMatrix c;
  Product(context, a, b).Count(c);
  return c;
}

void FillProduct(Context& context, const RowMatrix& a, const RowMatrix& b, RowMatrix& counted,
                 RowOrder order) {
  if (counted.values.size() == 0) MakeRoom(context, counted);
  Product(context, a, b).Values<Pass::kValues>(counted, order);
}

void MultiplyOn(Context& context, const RowMatrix& a, const RowMatrix& b, RowMatrix& c) {
  Product(context, a, b).Values<Pass::kKnown>(c, RowOrder::kAsFound);
}

RowMatrix Transpose(Context& context, const RowMatrix& a) {
  auto rows = SortByRows<double>(context, a.pattern(), a.nnz, a.values.get(), a.columns);
  RowMatrix to;
  to.n = a.columns;
  to.nnz = a.nnz;
  to.columns = a.n;
  to.longest = rows.longest;
  to.empty = rows.empty;
  to.col_ptr = std::move(rows.row_ptr);
  to.row_idx = std::move(rows.cols);
  to.values = std::move(rows.values);
  return to;
}

}  // namespace spaid::cuda
