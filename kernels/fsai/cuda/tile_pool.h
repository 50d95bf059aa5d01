// A pool of tiles of L that the rows of one block share. A row needs few tiles in the beginning and
// many in the end, less than half of its maximum on average: so more rows are grown at once than
// with a full set of tiles for each.
//
// A row keeps its tiles until it ends. Where too few are left it waits for others to end; where all
// wait, one gives its tiles back and begins anew when another has ended. Results do not depend on
// any of this.
#pragma once

#include <cstdint>

#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

class TilePool {
 public:
  static constexpr int kTileBytes = 16 * kTileVectors;

  // Bytes of the pool: a head, then the tiles and one that is zero; a multiple of 16.
  static __host__ __device__ int64_t Bytes(int tiles) {
    return HeadBytes(tiles) + (int64_t{tiles} + 1) * kTileBytes;
  }

  __device__ TilePool(char* at, int tiles)
      : head_(reinterpret_cast<Head*>(at)),
        ring_(reinterpret_cast<uint32_t*>(at + sizeof(Head))),
        mask_(static_cast<uint32_t>(Places(tiles)) - 1),
        count_(static_cast<uint32_t>(tiles)),
        tiles_(at + HeadBytes(tiles)) {}

  // Base of the tiles' offsets, which are in bytes.
  __device__ char* tiles() const { return tiles_; }
  __device__ uint32_t count() const { return count_; }
  // Offset of the zero tile, which belongs to no row.
  __device__ uint32_t zero() const { return count_ * kTileBytes; }

  // Called by all threads of the block, before a barrier; each of its warps makes rows.
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

  // This and all that follow are called by a warp. Takes a tile for each of the first `count`
  // lanes, at most count(). Waits. False: all rows wait, so that this one has to give its tiles
  // back.
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

  // After the last Give of a row.
  __device__ void RowEnds(uint32_t lane) {
    if (lane == 0) atomicAdd(&head_->finished, 1u);
  }
  __device__ void WarpEnds(uint32_t lane) {
    if (lane == 0) atomicSub(&head_->running, 1u);
  }

  // After the last Give of a row that gave up: waits until another has ended, or none is being
  // made.
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
  // Free tiles; positions in the ring of the first of them, and of the next one that is given back;
  // rows that wait, that are being made, that have ended.
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

  // Reserves tiles for one lane; returns their position in the ring, or kEmpty.
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
      // If all rows wait, one of them gives up.
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
