// Shared by the Gram kernels: products of 8 x 8 tiles, chunks of Â, and the limits of the checks.
#pragma once

#include <cstdint>

#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/cuda/gram.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::cuda {

namespace checks = kernels::static_spai_tuning;

inline constexpr unsigned kAllLanes = ~0u;

// c += A B on the fp64 tensor cores, A 8 x 4, B 4 x 8, one warp. Lane l holds A[l / 4][l % 4],
// B[l % 4][l / 4], and c0, c1 of C[l / 4][2 (l % 4) + 0, 1].
__device__ inline void MultiplyTiles(double a, double b, double& c0, double& c1) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(c0), "+d"(c1)
      : "d"(a), "d"(b));
}

// Copies from global to shared memory without registers; done when WaitForCopies returns.
__device__ inline void CopyAsync(double* to, const double* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
__device__ inline void WaitForCopies() { asm volatile("cp.async.wait_all;" : : : "memory"); }

__device__ inline double WarpSum(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
__device__ inline double WarpMin(double value) {
  for (int step = 16; step > 0; step /= 2) {
    value = fmin(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}
__device__ inline double WarpMax(double value) {
  for (int step = 16; step > 0; step /= 2) {
    value = fmax(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}
__device__ inline double WarpProduct(double value) {
  for (int step = 16; step > 0; step /= 2) value *= __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// A group and its structure, the same in all threads that solve it.
struct LocalGroup {
  __device__ LocalGroup(const GramArgs& args, int32_t g) {
    const int32_t begin = args.group_ptr[g];
    members = args.members + begin;
    width = args.group_ptr[g + 1] - begin;
    const int32_t k = members[0];
    j = args.m_idx + args.m_ptr[k];
    n2 = static_cast<int>(args.m_ptr[k + 1] - args.m_ptr[k]);
    const Structure& structure = args.structures[args.structure_of[g]];
    n1 = structure.n1;
    chunks = structure.chunks;
    starts = args.tables + structure.table;
    masks = starts + chunks + 1;
    list = args.tables + structure.list();
    targets = args.tables + structure.targets();
  }
  const int32_t* members;  // width
  const int32_t* j;        // n2
  int width, n2, n1, chunks;
  const uint32_t* starts;   // chunks + 1
  const uint32_t* masks;    // chunks * kMaskWords
  const uint32_t* list;     // PackEntry
  const uint32_t* targets;  // width
};

// Writes the chunks of a group into shared memory, one after the other. A thread's next entries are
// loaded while it works on the chunk before: list entries two chunks ahead, their values one ahead.
//
//   ChunkPipe<kThreads, kAhead> pipe(group, thread, from);
//   for (int c = 0; c < group.chunks; ++c) { ...all are done with the chunk, and it is zero...;
//     pipe.Write(c, chunk); ...wait for all...; ...use it... }
template <int kThreads, int kAhead>
class ChunkPipe {
 public:
  // `from`: the values of each column of J.
  __device__ ChunkPipe(const LocalGroup& group, int thread, const double* const* from)
      : group_(group), thread_(static_cast<uint32_t>(thread)), from_(from) {
    end_ = group.starts[0];
    next_end_ = group.starts[1];
    FetchWords(end_, next_end_);
    FetchValues();
    Advance(0);
  }

  // `chunk` must be zero, and not in use.
  __device__ void Write(int c, double* chunk) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (words_[i] != kNoRow) chunk[words_[i] & 0xfff] = values_[i];
    }
    for (uint32_t e = begin_ + thread_ + kAhead * kThreads; e < end_; e += kThreads) {
      const uint32_t word = __ldg(&group_.list[e]);
      chunk[word & 0xfff] = Value(word);
    }
    if (c + 1 >= group_.chunks) return;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) words_[i] = next_words_[i];
    FetchValues();
    Advance(c + 1);
  }

 private:
  __device__ double Value(uint32_t word) const {
    return __ldg(from_[word >> 12 & 127] + (word >> 19));
  }
  __device__ uint32_t Word(uint32_t at, uint32_t end) const {
    return at < end ? __ldg(&group_.list[at]) : kNoRow;
  }
  __device__ void FetchWords(uint32_t begin, uint32_t end) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      words_[i] = Word(begin + thread_ + static_cast<uint32_t>(i * kThreads), end);
    }
  }
  __device__ void FetchValues() {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) values_[i] = words_[i] != kNoRow ? Value(words_[i]) : 0;
  }
  // words_ and values_ are those of chunk c: loads ahead for the one after it.
  __device__ void Advance(int c) {
    begin_ = end_;
    end_ = next_end_;
    if (c + 1 >= group_.chunks) return;
    next_end_ = __ldg(&group_.starts[c + 2]);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      next_words_[i] = Word(end_ + thread_ + static_cast<uint32_t>(i * kThreads), next_end_);
    }
  }

  const LocalGroup& group_;
  const uint32_t thread_;
  const double* const* const from_;
  uint32_t begin_, end_, next_end_;  // entries of the chunk to be written, and of the one after it
  uint32_t words_[kAhead], next_words_[kAhead];
  double values_[kAhead];
};

// Corrected steps of a problem, at most, by the smallest eigenvalue of its scaled Gram matrix
// (static_spai_tuning.h): 1 where one always suffices, kWeakSteps where they go on until one is
// Small, 0 where the factor says nothing.
__device__ inline int StepsFor(double eigenvalue, int n2) {
  if (eigenvalue >= checks::kGoodEigenvalue) return 1;
  constexpr double kEpsilon = 2.220446049250313e-16;
  const double least = fmax(checks::kLeastEigenvalue, checks::kLeastRoundings * kEpsilon * n2);
  return eigenvalue >= least ? checks::kWeakSteps : 0;
}

// Whether a step that lowers ‖r‖², `squared` before it, by `change` = gᵀδ does so by no more than
// the accuracy rule allows, so that the next one may be left out (GroupSolver::Correct).
__device__ inline bool Small(double change, double squared) {
  const double norm = sqrt(fmax(0.0, squared - change));
  return change <= checks::kStepShare * norm * norm + checks::kStepNorm * norm;
}

// Element of the start vector of inverse iteration: pseudo-random signs (gram_checks.h).
__device__ inline double StartSign(int q) {
  uint32_t word = static_cast<uint32_t>(q) * 0x9e3779b9u;
  word = (word ^ (word >> 15)) * 0x85ebca6bu;
  return (word ^ (word >> 13)) & 1 ? 1.0 : -1.0;
}

}  // namespace spaid::cuda
