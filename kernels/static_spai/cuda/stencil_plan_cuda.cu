// Whether a matrix is one of few diagonals, and the tables for it. A sample of the nodes proposes
// the diagonals; then every entry of every column must lie on one of them, so that a diagonal that
// the sample has not met (one of few entries) leaves the matrix to the general path.
#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "kernels/static_spai/cuda/plan_cuda.h"
#include "kernels/static_spai/cuda/stencil_cuda.h"
#include "kernels/static_spai/cuda/stencil_tuning_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that look at one node
constexpr int kSampleThreads = 1024;
constexpr int kSample = 512;  // nodes
constexpr int kNone = INT32_MIN;

struct Survey {
  int32_t node;                    // unknowns of a node; 0: no block size fits
  int32_t count;                   // of offsets; over kMaxDiagonals: too many
  int32_t offsets[kMaxDiagonals];  // in no order
};

// The lanes of a group look at columns [j, j + node): true where what this lane saw is as it must
// be, the same rows in all of them and whole blocks of rows.
__device__ bool NodeAgrees(const PatternRef& a, int64_t j, int node, int lane, int lanes) {
  const int64_t begin = a.col_ptr[j], count = a.col_ptr[j + 1] - begin;
  bool agrees = count % node == 0;
  for (int t = 1; t < node; ++t) {
    agrees = agrees && a.col_ptr[j + t + 1] - a.col_ptr[j + t] == count;
  }
  for (int64_t p = lane; agrees && p < count; p += lanes) {
    const int32_t row = a.row_idx[begin + p];
    const auto in_block = static_cast<int32_t>(p % node);
    agrees = row % node == in_block && row - a.row_idx[begin + p - in_block] == in_block;
    for (int t = 1; agrees && t < node; ++t) agrees = a.row_idx[a.col_ptr[j + t] + p] == row;
  }
  return agrees;
}

// A node of [0, nodes), all of them where they are few; else spread without a period, which a grid
// might share.
__device__ int64_t SampleNode(int i, int64_t nodes) {
  if (nodes <= kSample) return i;
  const uint64_t word = static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15u;
  return static_cast<int64_t>(__umul64hi(word, static_cast<uint64_t>(nodes)));
}

// `node` 0: the largest block size that the sample allows. One block; a warp looks at a node.
__global__ void __launch_bounds__(kSampleThreads)
    SurveyKernel(PatternRef a, int node, Survey* survey) {
  constexpr int kSlots = 4 * kMaxDiagonals;
  __shared__ int32_t table[kSlots];
  __shared__ int32_t count, broken[kMaxNode + 1], places[kMaxDiagonals];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  for (int i = static_cast<int>(threadIdx.x); i < kSlots; i += kSampleThreads) table[i] = kNone;
  if (threadIdx.x <= kMaxNode) broken[threadIdx.x] = 0;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (node == 0) {
    for (int size = 2; size <= kMaxNode; ++size) {
      if (a.n % size != 0) {
        if (threadIdx.x == 0) broken[size] = 1;
        continue;
      }
      const int64_t nodes = a.n / size;
      for (int i = warp; i < kSample && i < nodes; i += kSampleThreads / 32) {
        const bool agrees = NodeAgrees(a, SampleNode(i, nodes) * size, size, lane, 32);
        if (__any_sync(~0u, !agrees)) {
          broken[size] = 1;
          break;
        }
      }
    }
    __syncthreads();
    node = 1;
    for (int size = 2; size <= kMaxNode; ++size) node = broken[size] == 0 ? size : node;
  }
  const int64_t nodes = a.n / node;
  for (int i = warp; i < kSample && i < nodes; i += kSampleThreads / 32) {
    const int64_t own = SampleNode(i, nodes);
    const int64_t end = a.col_ptr[own * node + 1];
    for (int64_t p = a.col_ptr[own * node] + lane * node; p < end; p += 32 * node) {
      const auto offset = static_cast<int32_t>(a.row_idx[p] / node - own);
      uint32_t at = static_cast<uint32_t>(offset) * 0x9e3779b9u >> 16;
      // Too many offsets: nothing more is wanted, and a full table is slow to search.
      if (*const_cast<volatile int32_t*>(&count) > kMaxDiagonals) break;
      for (int probe = 0; probe < kSlots; ++probe, ++at) {
        int32_t* const slot = &table[at % kSlots];
        int32_t key = *const_cast<volatile int32_t*>(slot);
        if (key == kNone) key = atomicCAS(slot, kNone, offset);
        if (key == offset) break;
        if (key == kNone) {
          const int32_t place = atomicAdd(&count, 1);
          if (place < kMaxDiagonals) places[place] = offset;
          break;
        }
      }
      if (*const_cast<volatile int32_t*>(&count) > kMaxDiagonals) break;
    }
  }
  __syncthreads();
  if (threadIdx.x < kMaxDiagonals) survey->offsets[threadIdx.x] = places[threadIdx.x];
  if (threadIdx.x == 0) {
    survey->node = node;
    survey->count = count;
  }
}

struct Offsets {
  int32_t count = 0;
  int32_t at[kMaxDiagonals] = {};  // ascending
};

// The diagonals that each node has, to what is not null (the low ones, to `low`); wrong: 1 where a
// column does not fit.
__global__ void __launch_bounds__(kThreads)
    MaskKernel(PatternRef a, int node, Offsets offsets, uint64_t* masks, uint32_t* low,
               int32_t* wrong) {
  __shared__ int32_t sorted[kMaxDiagonals];
  if (threadIdx.x < kMaxDiagonals) {
    sorted[threadIdx.x] =
        static_cast<int>(threadIdx.x) < offsets.count ? offsets.at[threadIdx.x] : INT32_MAX;
  }
  __syncthreads();
  const int64_t own = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam;
  const int lane = static_cast<int>(threadIdx.x % kTeam);
  const bool real = own < a.n / node;
  uint64_t mask = 0;
  bool fits = true;
  int64_t count = 0;
  if (real) {
    const int64_t begin = a.col_ptr[own * node];
    count = a.col_ptr[own * node + 1] - begin;
    if (node > 1) fits = NodeAgrees(a, own * node, node, lane, kTeam);
    for (int64_t p = int64_t{lane} * node; p < count; p += kTeam * node) {
      const auto offset = static_cast<int32_t>(a.row_idx[begin + p] / node - own);
      int at = 0;
#pragma unroll
      for (int step = kMaxDiagonals / 2; step > 0; step /= 2) {
        if (sorted[at + step] <= offset) at += step;
      }
      fits = fits && sorted[at] == offset;
      mask |= uint64_t{1} << at;
    }
  }
  for (int step = kTeam / 2; step > 0; step /= 2) mask |= __shfl_xor_sync(~0u, mask, step, kTeam);
  if (!real) return;
  if (!fits || count != int64_t{node} * __popcll(mask)) *wrong = 1;
  if (lane == 0 && masks != nullptr) masks[own] = mask;
  if (lane == 0 && low != nullptr) low[own] = static_cast<uint32_t>(mask);
}

// The offsets of a pattern, ascending; count 0 where they are more than `limit` or fill less than
// kLeastFill. `node` 0: finds it.
Offsets FindOffsets(Context& context, const PatternRef& a, int64_t nnz, int limit, int& node) {
  Offsets offsets;
  const Buffer<Survey> survey(context, 1);
  SurveyKernel<<<1, kSampleThreads, 0, context.stream>>>(a, node, survey.get());
  CheckLaunch("SurveyKernel");
  Survey found{};
  survey.CopyOut(&found, 1);
  context.Synchronize();
  node = found.node;
  const double room = static_cast<double>(found.count) * node * static_cast<double>(a.n);
  if (found.count > limit || static_cast<double>(nnz) < stencil_tuning::kLeastFill * room) {
    return offsets;
  }
  offsets.count = found.count;
  std::copy_n(found.offsets, found.count, offsets.at);
  std::sort(offsets.at, offsets.at + offsets.count);
  return offsets;
}

// False where a column does not fit.
bool FillMasks(Context& context, const PatternRef& a, int node, const Offsets& offsets,
               uint64_t* masks, uint32_t* low) {
  const int64_t nodes = a.n / node;
  const Buffer<int32_t> wrong(context, 1);
  wrong.Fill(0);
  const auto blocks = static_cast<int>((nodes * kTeam + kThreads - 1) / kThreads);
  MaskKernel<<<blocks, kThreads, 0, context.stream>>>(a, node, offsets, masks, low, wrong.get());
  CheckLaunch("MaskKernel");
  int32_t found = 0;
  wrong.CopyOut(&found, 1);
  context.Synchronize();
  return found == 0;
}

// Where `value` stands in the first `count` of a sorted list, −1: nowhere.
int32_t Find(const int32_t* list, int32_t count, int64_t value) {
  const int32_t* const at = std::lower_bound(list, list + count, value);
  return at != list + count && *at == value ? static_cast<int32_t>(at - list) : -1;
}

StencilTables MakeTables(const Offsets& a, const Offsets& m, int64_t nodes) {
  StencilTables tables;
  tables.diagonals = a.count;
  tables.offsets = m.count;
  std::copy_n(a.at, a.count, tables.a_offset);
  std::copy_n(m.at, m.count, tables.m_offset);
  for (int q = 0; q < m.count; ++q) {
    tables.target[q] = Find(a.at, a.count, -int64_t{m.at[q]});
  }
  // A difference that no two nodes have needs no diagonal: `place` says 0 there, and nobody reads.
  std::vector<int32_t> products;
  for (int p = 0; p < m.count; ++p) {
    for (int q = 0; q <= p; ++q) {
      const int64_t difference = int64_t{m.at[p]} - m.at[q];
      if (difference < nodes) products.push_back(static_cast<int32_t>(difference));
    }
  }
  std::sort(products.begin(), products.end());
  products.erase(std::unique(products.begin(), products.end()), products.end());
  tables.products = static_cast<int32_t>(products.size());
  std::copy(products.begin(), products.end(), tables.b_offset);
  for (int p = 0; p < m.count; ++p) {
    for (int q = 0; q <= p; ++q) {
      const int32_t at = Find(tables.b_offset, tables.products, int64_t{m.at[p]} - m.at[q]);
      tables.place[p * (p + 1) / 2 + q] = static_cast<uint16_t>(std::max(at, 0));
    }
  }
  // Row c + a_offset[first] of column c is row (c + d) + a_offset[second] of column c + d.
  std::vector<std::pair<int32_t, uint16_t>> pairs;
  for (int first = 0; first < a.count; ++first) {
    for (int second = 0; second <= first; ++second) {
      const int32_t at =
          Find(tables.b_offset, tables.products, int64_t{a.at[first]} - a.at[second]);
      if (at >= 0) pairs.emplace_back(at, static_cast<uint16_t>(first | second << 8));
    }
  }
  std::vector<uint8_t> made(products.size(), 0);
  for (const auto& pair : pairs) made[static_cast<size_t>(pair.first)] = 1;
  for (size_t d = 0; d < made.size(); ++d) {
    if (made[d] == 0) pairs.emplace_back(static_cast<int32_t>(d), StencilTables::kNoPair);
  }
  std::sort(pairs.begin(), pairs.end());
  for (size_t i = 0; i < pairs.size(); ++i) {
    tables.pair[i] = pairs[i].second;
    ++tables.pair_begin[pairs[i].first + 1];
  }
  for (int d = 0; d < tables.products; ++d) tables.pair_begin[d + 1] += tables.pair_begin[d];

  std::vector<std::pair<int64_t, uint32_t>> rows;
  for (int q = 0; q < m.count; ++q) {
    for (int d = 0; d < a.count; ++d) {
      rows.emplace_back(int64_t{m.at[q]} + a.at[d], static_cast<uint32_t>(q | d << 8));
    }
  }
  std::sort(rows.begin(), rows.end());
  tables.rows = static_cast<int32_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool last = i + 1 == rows.size() || rows[i + 1].first != rows[i].first;
    tables.row[i] = rows[i].second | (last ? StencilTables::kLast : 0) |
                    (rows[i].first == 0 ? StencilTables::kTarget : 0);
  }
  return tables;
}

// Nodes of a range, 0: none that pays fits the work space that estimates count with.
int32_t RangeOf(const StencilPlan& plan, int64_t nnz_a) {
  using namespace stencil_tuning;
  const int64_t square = int64_t{plan.node} * plan.node;
  const int64_t product_bytes = 8 * square * plan.products;
  const int64_t node_bytes = product_bytes + 8 * square * plan.offsets + plan.node;
  const int64_t work = WorkBytes(nnz_a);
  if (plan.nodes * node_bytes <= work) return std::min(plan.nodes, MostNodes(plan.slots()));
  const int64_t halo = int64_t{plan.highest} - plan.lowest;
  const int64_t range = (work - halo * product_bytes) / node_bytes;
  if (range < std::max<int64_t>(kLeastRange, halo / 2)) return 0;
  return static_cast<int32_t>(std::min<int64_t>(range, MostNodes(plan.slots())));
}

// Whether what a build allocates has room beside what is there: the general path may need less.
bool HasRoom(const Context& context, const Matrix& a, int64_t nnz_m, const StencilPlan& plan) {
  const int64_t n = a.n, square = int64_t{plan.node} * plan.node;
  const int64_t halo = int64_t{plan.highest} - plan.lowest;
  const int64_t work =
      8 * square * plan.products * std::min<int64_t>(plan.nodes, plan.range + halo) +
      (8 * square * plan.offsets + plan.node) * plan.range;
  const int64_t by_diagonals = 8 * (int64_t{plan.diagonals} * plan.node * n + 2 * plan.nodes);
  const int64_t results = 8 * nnz_m + (3 * 8 + 1) * n;
  constexpr int64_t kRounding = 1 << 18;
  return work + by_diagonals + results + kRounding <=
         context.arena->limit() - context.arena->used();
}

bool TryNode(Context& context, const Matrix& a, const StaticSpaiPlan& plan, bool same, int node,
             StencilPlan& stencil) {
  const int64_t n = a.n;
  const Offsets of_a =
      FindOffsets(context, a.pattern(), a.nnz, same ? kMaxOffsets : kMaxDiagonals, node);
  stencil.node = node;
  if (of_a.count == 0 || node == 0) return false;
  const Offsets of_m =
      same ? of_a : FindOffsets(context, plan.pattern(), plan.nnz_m, kMaxOffsets, node);
  if (of_m.count == 0) return false;
  stencil.nodes = static_cast<int32_t>(n / node);
  stencil.diagonals = of_a.count;
  stencil.offsets = of_m.count;
  stencil.lowest = of_m.at[0];
  stencil.highest = of_m.at[of_m.count - 1];
  if (node == 1 && stencil.slots() > kMaxTeamSlots) return false;
  // Kernels address A by diagonals, and B, by 32 bits.
  if ((int64_t{of_a.count} * node + 1) * n > INT32_MAX) return false;
  stencil.a_mask = Buffer<uint64_t>(context, stencil.nodes);
  stencil.m_mask = Buffer<uint32_t>(context, stencil.nodes);
  uint32_t* const m_mask = stencil.m_mask.get();
  if (!FillMasks(context, a.pattern(), node, of_a, stencil.a_mask.get(), same ? m_mask : nullptr) ||
      (!same && !FillMasks(context, plan.pattern(), node, of_m, nullptr, m_mask))) {
    return false;
  }
  const StencilTables tables = MakeTables(of_a, of_m, stencil.nodes);
  stencil.products = tables.products;
  stencil.pairs = tables.pair_begin[tables.products];
  const int64_t farthest = std::max(std::abs(int64_t{stencil.lowest}), int64_t{stencil.highest});
  if (farthest * tables.products * node * node > INT32_MAX) return false;
  stencil.range = RangeOf(stencil, a.nnz);
  if (stencil.range == 0 || !HasRoom(context, a, plan.nnz_m, stencil)) return false;
  stencil.tables = Buffer<StencilTables>(context, 1);
  stencil.tables.CopyIn(&tables, 1);
  context.Synchronize();
  return true;
}

}  // namespace

StencilPlan MakeStencilPlan(Context& context, const Matrix& a, const StaticSpaiPlan& plan,
                            bool same) {
  StencilPlan stencil;
  if (TryNode(context, a, plan, same, 0, stencil)) return stencil;
  if (stencil.node > 1) {
    stencil = {};
    if (TryNode(context, a, plan, same, 1, stencil)) return stencil;
  }
  return {};
}

int64_t StencilPlan::device_bytes() const {
  const auto bytes = [](const auto& buffer) {
    return Arena::Rounded(buffer.size() * static_cast<int64_t>(sizeof(*buffer.get())));
  };
  return bytes(tables) + bytes(a_mask) + bytes(m_mask);
}

}  // namespace spaid::cuda
