#include <algorithm>
#include <string>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/static_spai/cuda/table_waves.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
// Bytes of a group beside its table: its structure's number, and the table's offset.
constexpr int64_t kGroupBytes = 4 + 8;
// Bytes for the scratch of sums, and rounding.
constexpr int64_t kSpare = 1 << 18;

int Blocks(int64_t threads) { return static_cast<int>((threads + kThreads - 1) / kThreads); }

__device__ int64_t Thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

__global__ void GroupBytesKernel(int32_t n_groups, const int32_t* groups,
                                 const int32_t* structure_of, const Structure* structures,
                                 int64_t* bytes) {
  const int64_t i = Thread();
  if (i > n_groups) return;
  bytes[i] = i < n_groups ? kGroupBytes + 4 * structures[structure_of[groups[i]]].words() : 0;
}

// Lists each structure of the wave once, in no particular order.
__global__ void ListKernel(const int32_t* groups, int32_t count, const int32_t* structure_of,
                           const Structure* structures, int32_t wave, int32_t* wave_of,
                           int32_t* list, int32_t* size) {
  const int64_t i = Thread();
  if (i >= count) return;
  const int32_t s = structure_of[groups[i]];
  if (structures[s].entries == 0 || atomicExch(&wave_of[s], wave) == wave) return;
  list[atomicAdd(size, 1)] = s;
}

__global__ void WordsKernel(const int32_t* list, int32_t size, const Structure* structures,
                            int64_t* words) {
  const int64_t i = Thread();
  if (i <= size) words[i] = i < size ? structures[list[i]].words() : 0;
}

}  // namespace

TableWaves::TableWaves(Context& context, const StaticSpaiPlan& plan, const Matrix& a)
    : context_(context),
      plan_(plan),
      a_(a),
      structures_(context, plan.n_structures),
      wave_of_(context, plan.n_structures) {
  Copy(context, plan.structures, structures_, plan.n_structures);
  wave_of_.Fill(0);
}

void TableWaves::Follow(const int32_t* groups, int32_t count) {
  tables_ = {};
  groups_ = groups;
  bytes_.resize(static_cast<size_t>(count) + 1);
  const Buffer<int64_t> bytes(context_, count + 1);
  GroupBytesKernel<<<Blocks(count + 1), kThreads, 0, context_.stream>>>(
      count, groups, plan_.structure_of.get(), plan_.structures.get(), bytes.get());
  CheckLaunch("GroupBytesKernel");
  Scan(context_, bytes, count + 1);
  bytes.CopyOut(bytes_.data(), count + 1);
  context_.Synchronize();
}

int32_t TableWaves::Fit(int32_t begin, int32_t count) const {
  int64_t room = context_.arena->limit() - context_.arena->used() - kSpare;
  if (plan_.most_table_bytes > 0) room = std::min(room, plan_.most_table_bytes);
  const auto first = bytes_.begin() + begin;
  // The first group whose end exceeds the memory.
  const auto end = std::upper_bound(first + 1, first + count + 1, *first + room);
  const auto fits = static_cast<int32_t>(end - (first + 1));
  if (fits == 0) {
    throw Failure(CudaFault::kOutOfMemory,
                  "device memory: the gather table of one local problem takes " +
                      std::to_string(first[1] - first[0]) + " bytes, and " +
                      std::to_string(std::max<int64_t>(room, 0)) + " are left of the limit of " +
                      std::to_string(context_.arena->limit()) +
                      " beside the build; all tables take " + std::to_string(plan_.table_bytes));
  }
  return fits;
}

int32_t TableWaves::Make(int32_t begin, int32_t most, GramArgs& args) {
  tables_ = {};
  const int32_t count = Fit(begin, most);
  ++wave_;
  const Buffer<int32_t> list(context_, count), size(context_, 1);
  size.Fill(0);
  ListKernel<<<Blocks(count), kThreads, 0, context_.stream>>>(
      groups_ + begin, count, plan_.structure_of.get(), structures_.get(), wave_, wave_of_.get(),
      list.get(), size.get());
  CheckLaunch("ListKernel");
  const int32_t n_structures = Read(context_, size, 0);
  args.structures = structures_.get();
  args.tables = nullptr;
  if (n_structures == 0) return count;
  const Buffer<int64_t> words(context_, n_structures + 1);
  WordsKernel<<<Blocks(n_structures + 1), kThreads, 0, context_.stream>>>(
      list.get(), n_structures, structures_.get(), words.get());
  CheckLaunch("WordsKernel");
  Scan(context_, words, n_structures + 1);
  const int64_t all = Read(context_, words, n_structures);
  tables_ = MakeTables(context_, a_, plan_, plan_.representative.get(), list.get(), n_structures,
                       words.get(), all, structures_.get());
  args.tables = tables_.get();
  return count;
}

}  // namespace spaid::cuda
