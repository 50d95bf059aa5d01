// Tiles of L that the rows of one block share. A row needs few when it begins and many before it
// ends, less than half of its most on average: so more rows are grown at once than would have room
// for all of theirs.
//
// A row keeps what it has until it ends. Where too few are left it waits for others to end; where
// all wait, one gives its tiles back and begins anew when another has ended. Results do not depend
// on any of this.
#pragma once

#include <cstdint>

#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

class TilePool {
 public:
  static constexpr int kTileBytes = 16 * kTileVectors;

  // All of it: a head, then the tiles and one that is zero; a multiple of 16.
  static __host__ __device__ int64_t Bytes(int tiles) {
    return HeadBytes(tiles) + (int64_t{tiles} + 1) * kTileBytes;
  }

  __device__ TilePool(char* at, int tiles)
      : head_(reinterpret_cast<Head*>(at)),
        ring_(reinterpret_cast<uint32_t*>(at + sizeof(Head))),
        mask_(static_cast<uint32_t>(Places(tiles)) - 1),
        count_(static_cast<uint32_t>(tiles)),
        tiles_(at + HeadBytes(tiles)) {}

  // Where offsets of tiles, which are in bytes, begin.
  __device__ char* tiles() const { return tiles_; }
  __device__ uint32_t count() const { return count_; }
  // Of the one that is zero, and nobody's.
  __device__ uint32_t zero() const { return count_ * kTileBytes; }

  // By all threads of the block, before a barrier; each of its warps makes rows.
  __device__ void Begin() {
    for (uint32_t t = threadIdx.x; t <= mask_; t += blockDim.x) {
      ring_[t] = t < count_ ? t * kTileBytes : kEmpty;
    }
    for (uint32_t t = threadIdx.x; t < kTileBytes / 4; t += blockDim.x) {
      reinterpret_cast<uint32_t*>(tiles_ + zero())[t] = 0;
    }
    if (threadIdx.x == 0) {
      *head_ = {static_cast<int>(count_), 0, count_, 0, blockDim.x / 32, 0};
    }
  }

  // All that follow: by a warp. A tile for each of the first `count` lanes, at most count(). Waits.
  // False: all wait, so that this row is to give back what it has.
  __device__ bool Take(uint32_t lane, uint32_t count, uint32_t& offset) {
    uint32_t begin = 0;
    if (lane == 0) begin = Reserve(static_cast<int>(count));
    begin = __shfl_sync(~0u, begin, 0);
    if (begin == kEmpty) return false;
    if (lane < count) {
      uint32_t* const place = ring_ + ((begin + lane) & mask_);
      do {
        offset = atomicExch(place, kEmpty);
      } while (offset == kEmpty);
    }
    __threadfence_block();
    __syncwarp();
    return true;
  }

  // Gives back the tile of each lane that has one (`has`).
  __device__ void Give(uint32_t lane, bool has, uint32_t offset) {
    const unsigned those = __ballot_sync(~0u, has);
    if (those == 0) return;
    __threadfence_block();
    uint32_t begin = 0;
    if (lane == 0) begin = atomicAdd(&head_->last, __popc(those));
    begin = __shfl_sync(~0u, begin, 0);
    if (has) {
      uint32_t* const place = ring_ + ((begin + __popc(those & ((1u << lane) - 1))) & mask_);
      while (atomicCAS(place, kEmpty, offset) != kEmpty) {
      }
    }
    __threadfence_block();
    __syncwarp();
    if (lane == 0) atomicAdd(&head_->available, __popc(those));
  }

  // Behind the last Give of a row.
  __device__ void RowEnds(uint32_t lane) {
    if (lane == 0) atomicAdd(&head_->finished, 1u);
  }
  __device__ void WarpEnds(uint32_t lane) {
    if (lane == 0) atomicSub(&head_->running, 1u);
  }

  // Behind the last Give of a row that gave up: until another has ended, or none is being made.
  __device__ void AwaitAnother(uint32_t lane) {
    if (lane == 0) {
      const uint32_t finished = Read(&head_->finished);
      atomicSub(&head_->running, 1u);
      while (Read(&head_->finished) == finished && Read(&head_->running) > 0) __nanosleep(500);
      atomicAdd(&head_->running, 1u);
    }
    __syncwarp();
  }

 private:
  // Tiles that can be taken; where in the ring the first of them is, and where the next one goes,
  // going round; rows that wait, that are being made, that ended.
  struct alignas(16) Head {
    int available;
    uint32_t first, last, waiting, running, finished;
  };
  static constexpr uint32_t kEmpty = ~0u;

  static __host__ __device__ int Places(int tiles) {
    int places = 32;
    while (places < tiles) places *= 2;
    return places;
  }
  static __host__ __device__ int64_t HeadBytes(int tiles) {
    return static_cast<int64_t>(sizeof(Head)) + 4 * Places(tiles);
  }
  template <class T>
  static __device__ T Read(T* x) {
    return *static_cast<volatile T*>(x);
  }

  // Of one lane: where in the ring its tiles are, or kEmpty.
  __device__ uint32_t Reserve(int count) {
    for (bool waits = false;; waits = true) {
      if (Read(&head_->available) >= count) {
        if (atomicSub(&head_->available, count) >= count) {
          if (waits) atomicSub(&head_->waiting, 1u);
          return atomicAdd(&head_->first, static_cast<uint32_t>(count));
        }
        atomicAdd(&head_->available, count);
      }
      if (!waits) atomicAdd(&head_->waiting, 1u);
      // One of all that wait.
      const uint32_t waiting = Read(&head_->waiting);
      if (waiting >= Read(&head_->running) &&
          atomicCAS(&head_->waiting, waiting, waiting - 1) == waiting) {
        return kEmpty;
      }
      __nanosleep(200);
    }
  }

  Head* head_;
  uint32_t* ring_;
  uint32_t mask_, count_;
  char* tiles_;
};

}  // namespace spaid::cuda::fsai
