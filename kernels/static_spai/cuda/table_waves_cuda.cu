#include <algorithm>
#include <string>

#include "kernels/base/cuda/arrays_cuda.h"
#include "kernels/static_spai/cuda/table_waves_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
// What a group costs beside its table: its structure's number, and where the table begins.
constexpr int64_t kGroupBytes = 4 + 8;
// For queues, the scratch of sums, and rounding.
constexpr int64_t kSpare = 1 << 18;

int Blocks(int64_t threads) { return static_cast<int>((threads + kThreads - 1) / kThreads); }

__device__ int64_t Thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

__global__ void GroupBytesKernel(int32_t n_groups, const int32_t* order,
                                 const int32_t* structure_of, const Structure* structures,
                                 int64_t* bytes) {
  const int64_t i = Thread();
  if (i > n_groups) return;
  bytes[i] = i < n_groups ? kGroupBytes + 4 * structures[structure_of[order[i]]].words() : 0;
}

// Each structure of the wave once, in no order.
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
      wave_of_(context, plan.n_structures),
      bytes_(static_cast<size_t>(plan.n_groups) + 1) {
  Copy(context, plan.structures, structures_, plan.n_structures);
  wave_of_.Fill(0);
  {
    const Buffer<int64_t> bytes(context, plan.n_groups + 1);
    GroupBytesKernel<<<Blocks(plan.n_groups + 1), kThreads, 0, context.stream>>>(
        plan.n_groups, plan.order.get(), plan.structure_of.get(), plan.structures.get(),
        bytes.get());
    CheckLaunch("GroupBytesKernel");
    Scan(context, bytes, plan.n_groups + 1);
    bytes.CopyOut(bytes_.data(), plan.n_groups + 1);
    context.Synchronize();
  }
  room_ = context.arena->limit() - context.arena->used() - kSpare;
}

int32_t TableWaves::Count(int32_t begin, int32_t count) const {
  const auto first = bytes_.begin() + begin;
  // The first group whose end is beyond the room.
  const auto end = std::upper_bound(first + 1, first + count + 1, *first + room_);
  const auto fits = static_cast<int32_t>(end - (first + 1));
  if (fits == 0) {
    throw Failure(kSpaidCudaOutOfMemory,
                  "device memory: the gather table of one local problem takes " +
                      std::to_string(first[1] - first[0]) + " bytes, and " +
                      std::to_string(std::max<int64_t>(room_, 0)) + " are left of the limit of " +
                      std::to_string(context_.arena->limit()) +
                      " beside the build; all tables take " + std::to_string(plan_.table_bytes));
  }
  return fits;
}

void TableWaves::Make(int32_t begin, int32_t count, GramArgs& args) {
  tables_ = {};
  ++wave_;
  const Buffer<int32_t> list(context_, count), size(context_, 1);
  size.Fill(0);
  ListKernel<<<Blocks(count), kThreads, 0, context_.stream>>>(
      plan_.order.get() + begin, count, plan_.structure_of.get(), structures_.get(), wave_,
      wave_of_.get(), list.get(), size.get());
  CheckLaunch("ListKernel");
  const int32_t n_structures = Read(context_, size, 0);
  args.structures = structures_.get();
  args.tables = nullptr;
  if (n_structures == 0) return;
  const Buffer<int64_t> words(context_, n_structures + 1);
  WordsKernel<<<Blocks(n_structures + 1), kThreads, 0, context_.stream>>>(
      list.get(), n_structures, structures_.get(), words.get());
  CheckLaunch("WordsKernel");
  Scan(context_, words, n_structures + 1);
  const int64_t all = Read(context_, words, n_structures);
  tables_ = MakeTables(context_, a_, plan_, plan_.representative.get(), list.get(), n_structures,
                       words.get(), all, structures_.get());
  args.tables = tables_.get();
}

}  // namespace spaid::cuda
