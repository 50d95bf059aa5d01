#include <algorithm>
#include <string>

#include "kernels/base/cuda/shared_memory.h"
#include "kernels/static_spai/cuda/gram_thread.h"
#include "kernels/static_spai/cuda/tiles.h"

namespace spaid::cuda {
namespace {

constexpr int kWarps = 4;  // a block

__host__ __device__ constexpr int Lower(int a, int b) { return a * (a + 1) / 2 + b; }

// --- Plan: one warp a table ---

struct Source {
  PatternRef a, m;
  const int32_t* members;
  const int32_t* group_ptr;
  const int32_t* representative;
  const Structure* structures;
  const uint32_t* tables;
};

__global__ void __launch_bounds__(32)
    LaneTableKernel(Source in, const int32_t* structure_of_lane, LaneTable* tables) {
  __shared__ uint8_t row_of[kMaxLaneEntries];
  __shared__ uint8_t entry_at[kMaxLaneEntries][kMaxLaneColumns];  // e + 1 of (row, a), 0: none
  const int lane = static_cast<int>(threadIdx.x);
  LaneTable& table = tables[blockIdx.x];
  const int32_t s = structure_of_lane[blockIdx.x];
  const Structure structure = in.structures[s];
  const int32_t k = in.members[in.group_ptr[in.representative[s]]];
  const int64_t j_begin = in.m.col_ptr[k];
  const int n2 = static_cast<int>(in.m.col_ptr[k + 1] - j_begin);
  for (int i = lane; i < kMaxLaneEntries * kMaxLaneColumns; i += 32) {
    entry_at[i / kMaxLaneColumns][i % kMaxLaneColumns] = 0;
  }
  if (lane == 0) {
    table.n2 = n2;
    table.entries = structure.entries;
    table.offset[0] = 0;
    for (int a = 0; a < n2; ++a) {
      const int32_t j = in.m.row_idx[j_begin + a];
      table.shift[a] = j - k;
      table.offset[a + 1] =
          table.offset[a] + static_cast<int32_t>(in.a.col_ptr[j + 1] - in.a.col_ptr[j]);
    }
  }
  __syncwarp();
  const uint32_t* const starts = in.tables + structure.table;
  const uint32_t* const list = in.tables + structure.list();
  for (int c = 0; c < structure.chunks; ++c) {
    for (uint32_t p = starts[c] + static_cast<uint32_t>(lane); p < starts[c + 1]; p += 32) {
      const uint32_t word = list[p], a = word >> 12 & 127;
      const int e = table.offset[a] + static_cast<int>(word >> 19);
      const int row = c * kChunkRows +
                      static_cast<int>(ChunkRow(static_cast<uint32_t>(TilesFor(n2)), word & 0xfff));
      row_of[e] = static_cast<uint8_t>(row);
      entry_at[row][a] = static_cast<uint8_t>(e + 1);
    }
  }
  __syncwarp();
  if (lane != 0) return;
  int product = 0;
  for (int a = 0; a < n2; ++a) {
    for (int b = 0; b <= a; ++b) {
      table.pair_begin[Lower(a, b)] = static_cast<uint16_t>(product);
      for (int e = table.offset[a]; e < table.offset[a + 1]; ++e) {
        const int other = entry_at[row_of[e]][b];
        if (other == 0) continue;
        table.products[product++] = static_cast<uint16_t>(e | (other - 1) << 8);
      }
    }
  }
  table.pair_begin[Lower(n2, 0)] = static_cast<uint16_t>(product);
  const auto target = static_cast<int>(in.tables[structure.targets()]);
  int at = 0;
  for (int a = 0; a < n2; ++a) table.target[a] = entry_at[target][a];
  for (int row = 0; row < structure.n1; ++row) {
    for (int a = 0; a < n2; ++a) {
      if (entry_at[row][a] == 0) continue;
      table.rows[at++] =
          static_cast<uint16_t>(static_cast<uint32_t>(entry_at[row][a] - 1 + (a << 8)) |
                                (row == target ? LaneTable::kTarget : 0));
    }
    table.rows[at - 1] |= static_cast<uint16_t>(LaneTable::kLast);
  }
}

// --- Build ---

template <int kColumns>
class Lane {
 public:
  // `entries`, `vectors`: this lane's memory, elements 32 apart.
  __device__ Lane(const GramArgs& args, const LaneTable& table, int32_t k, double* entries,
                  double* vectors)
      : args_(args), table_(table), k_(k), entries_(entries), vectors_(vectors) {}

  // All lanes of a warp execute the same code; `store` false: a lane without a group.
  __device__ void Solve(bool store) {
    Load();
    FormGram();
    Factor();
    double x[kColumns];
    TakeTarget();
#pragma unroll
    for (int a = 0; a < kColumns; ++a) x[a] = rhs_[a];
    Substitute(x);
    double squared = Residual(x);
    double fit = 0;
#pragma unroll
    for (int a = 0; a < kColumns; ++a) fit += rhs_[a] * x[a];
    // At the minimum ‖r‖² = 1 − (Âx)_k (GroupSolver::AtMinimum).
    const bool done =
        pivot_ >= checks::kStrongPivot && fabs(squared - (1 - fit)) <= checks::kMinimumTolerance;
    const bool well = WellConditioned();  // by the whole warp
    bool fine = fine_ && well;
    if (__any_sync(kAllLanes, store && fine && !done)) {
      double g[kColumns];
      Gradient(x, g);
      Substitute(g);
#pragma unroll
      for (int a = 0; a < kColumns; ++a) x[a] += done ? 0 : g[a];
      squared = Residual(x);
    }
    fine = fine && sqrt(squared) <= checks::kWorthlessResidual;
    double m[kColumns];
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
      m[a] = x[a] * scale_[a];
      fine = fine && isfinite(m[a]);
    }
    if (args_.post_filter > 0) {
      double largest = 0;
#pragma unroll
      for (int a = 0; a < kColumns; ++a) largest = fmax(largest, fabs(m[a]));
#pragma unroll
      for (int a = 0; a < kColumns; ++a) {
        if (fabs(m[a]) < args_.post_filter * largest && table_.shift[a] != 0) m[a] = x[a] = 0;
      }
      squared = Residual(x);
    }
    if (!store) return;
    args_.pivots[k_] = pivot_;
    if (!fine) return;  // left to a rescue
    double* const to = args_.m_values + args_.m_ptr[k_];
#pragma unroll
    for (int a = 0; a < kColumns; ++a) to[a] = m[a];
    args_.residual_norms[k_] = sqrt(squared);
    args_.flags[k_] = kernels::kColumnGram;
  }

 private:
  __device__ double Entry(uint32_t e) const { return entries_[e * kLanes]; }

  // All copies are started before one is waited for.
  __device__ void Load() {
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
      const int32_t j = k_ + table_.shift[a];
      const double* const from = args_.a_values + args_.a_ptr[j];
      const int begin = table_.offset[a], length = table_.offset[a + 1] - begin;
      for (int i = 0; i < length; ++i) {
        CopyAsync(&entries_[(begin + i) * kLanes], from + i);
      }
      scale_[a] = args_.scale[j];
    }
    WaitForCopies();
  }

  __device__ void FormGram() {
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
#pragma unroll
      for (int b = 0; b <= a; ++b) {
        double sum = 0;
        const int end = table_.pair_begin[Lower(a, b) + 1];
#pragma unroll 2
        for (int p = table_.pair_begin[Lower(a, b)]; p < end; ++p) {
          const uint32_t product = table_.products[p];
          sum += Entry(product & 255) * Entry(product >> 8);
        }
        lower_[Lower(a, b)] = sum;
      }
    }
  }

  // Cholesky in place; the diagonal becomes its inverse.
  __device__ void Factor() {
    fine_ = true;
    pivot_ = determinant_ = 1;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const double whole = lower_[Lower(j, j)];
      double pivot = whole;
#pragma unroll
      for (int c = 0; c < j; ++c) pivot -= lower_[Lower(j, c)] * lower_[Lower(j, c)];
      fine_ = fine_ && pivot > args_.pivot_limit * whole;
      pivot_ = fmin(pivot_, pivot / whole);
      determinant_ *= pivot / whole;
      const double inverse = rsqrt(pivot);
      lower_[Lower(j, j)] = inverse;
#pragma unroll
      for (int a = j + 1; a < kColumns; ++a) {
        double sum = lower_[Lower(a, j)];
#pragma unroll
        for (int c = 0; c < j; ++c) sum -= lower_[Lower(a, c)] * lower_[Lower(j, c)];
        lower_[Lower(a, j)] = sum * inverse;
      }
    }
  }

  // x := (L Lᵀ)⁻¹ x.
  __device__ void Substitute(double (&x)[kColumns]) const {
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
#pragma unroll
      for (int b = 0; b < a; ++b) x[a] -= lower_[Lower(a, b)] * x[b];
      x[a] *= lower_[Lower(a, a)];
    }
#pragma unroll
    for (int a = kColumns - 1; a >= 0; --a) {
#pragma unroll
      for (int b = a + 1; b < kColumns; ++b) x[a] -= lower_[Lower(b, a)] * x[b];
      x[a] *= lower_[Lower(a, a)];
    }
  }

  // As LaneSolver::WellConditioned (kernels/static_spai/lane_solver.cc).
  __device__ bool WellConditioned() const {
    const bool good = determinant_ / 3 >= checks::kGoodEigenvalue;
    if (__all_sync(kAllLanes, good)) return true;
    double z[kColumns];
#pragma unroll
    for (int a = 0; a < kColumns; ++a) z[a] = StartSign(a);
    const auto step = [&] {
      Substitute(z);
      double sum = 0;
#pragma unroll
      for (int a = 0; a < kColumns; ++a) sum += z[a] * z[a];
      const double norm = sqrt(sum);
#pragma unroll
      for (int a = 0; a < kColumns; ++a) z[a] /= norm;
      return norm;
    };
    const bool at_once = checks::kStartShare * step() * checks::kGoodEigenvalue <= 1;
    step();
    return good || at_once || step() * checks::kGoodEigenvalue <= 1;
  }

  // Âᵀe_k is a row of Â.
  __device__ void TakeTarget() {
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
      const int e = table_.target[a];
      rhs_[a] = e > 0 ? Entry(static_cast<uint32_t>(e - 1)) : 0;
    }
  }

  // ‖Âx − e‖².
  __device__ double Residual(const double (&x)[kColumns]) {
#pragma unroll
    for (int a = 0; a < kColumns; ++a) vectors_[a * kLanes] = x[a];
    double squared = 0, residual = 0;
#pragma unroll 4
    for (int p = 0; p < table_.entries; ++p) {
      const uint32_t word = table_.rows[p];
      residual += Entry(word & 255) * vectors_[(word >> 8 & 15) * kLanes];
      if ((word & LaneTable::kLast) != 0) {
        if ((word & LaneTable::kTarget) != 0) residual -= 1;
        squared += residual * residual;
        residual = 0;
      }
    }
    return squared;
  }

  // g = Âᵀ(e − Âx).
  __device__ void Gradient(const double (&x)[kColumns], double (&g)[kColumns]) {
    double* const sums = vectors_ + kColumns * kLanes;
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
      vectors_[a * kLanes] = x[a];
      sums[a * kLanes] = 0;
    }
    double residual = 0;
    for (int p = 0, begin = 0; p < table_.entries; ++p) {
      const uint32_t word = table_.rows[p];
      residual += Entry(word & 255) * vectors_[(word >> 8 & 15) * kLanes];
      if ((word & LaneTable::kLast) == 0) continue;
      if ((word & LaneTable::kTarget) != 0) residual -= 1;
      for (; begin <= p; ++begin) {
        const uint32_t own = table_.rows[begin];
        sums[(own >> 8 & 15) * kLanes] -= Entry(own & 255) * residual;
      }
      residual = 0;
    }
#pragma unroll
    for (int a = 0; a < kColumns; ++a) g[a] = sums[a * kLanes];
  }

  const GramArgs& args_;
  const LaneTable& table_;
  const int32_t k_;
  double* const entries_;
  double* const vectors_;
  double lower_[kColumns * (kColumns + 1) / 2];
  double rhs_[kColumns], scale_[kColumns];
  double pivot_ = 1, determinant_ = 1;
  bool fine_ = true;
};

// Shared memory of one warp, in doubles.
__host__ __device__ constexpr int WarpDoubles(int columns, int entries) {
  return static_cast<int>(sizeof(LaneTable) / sizeof(double)) + (entries + 2 * columns) * kLanes;
}
static_assert(sizeof(LaneTable) % sizeof(double) == 0);

// The structures of one size: [first, last) of them, whose tasks are [first_task, last_task).
struct LaneWork {
  const LaneTable* tables;
  const int32_t* begin;
  const int32_t* tasks;
  int32_t first, last, first_task, last_task;
};

// `entries`: of a structure with so many columns, at most.
template <int kColumns>
__global__ void __launch_bounds__(32 * kWarps)
    LanesKernel(GramArgs args, LaneWork work, int entries) {
  extern __shared__ double memory[];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  double* const own = memory + warp * WarpDoubles(kColumns, entries);
  auto* const table = reinterpret_cast<LaneTable*>(own);
  double* const vectors = own + sizeof(LaneTable) / sizeof(double);
  int32_t loaded = -1;
  const int32_t stride = static_cast<int32_t>(gridDim.x) * kWarps;
  for (int32_t task = work.first_task + static_cast<int32_t>(blockIdx.x) * kWarps + warp;
       task < work.last_task; task += stride) {
    int32_t s = work.first;  // the last structure that does not begin after the task
    for (int32_t size = work.last - work.first; size > 1;) {
      const int32_t half = size / 2;
      if (work.tasks[s + half] <= task) s += half;
      size -= half;
    }
    if (s != loaded) {
      __syncwarp();
      const auto* const from = reinterpret_cast<const double*>(&work.tables[s]);
      for (int i = lane; i < static_cast<int>(sizeof(LaneTable) / sizeof(double)); i += 32) {
        own[i] = from[i];
      }
      __syncwarp();
      loaded = s;
    }
    const int32_t begin = work.begin[s] + (task - work.tasks[s]) * kLanes;
    const bool store = begin + lane < work.begin[s + 1];
    const int32_t g = args.groups[store ? begin + lane : begin];
    Lane<kColumns>(args, *table, args.members[args.group_ptr[g]],
                   vectors + 2 * kColumns * kLanes + lane, vectors + lane)
        .Solve(store);
  }
}

template <int kColumns>
void Launch(const Context& context, const GramArgs& args, const LaneWork& work, int entries) {
  const int shared = kWarps * WarpDoubles(kColumns, entries) * static_cast<int>(sizeof(double));
  const auto kernel = LanesKernel<kColumns>;
  AllowSharedMemory(context, kernel, shared);
  int blocks = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32 * kWarps, shared),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int needed = (work.last_task - work.first_task + kWarps - 1) / kWarps;
  kernel<<<std::min(blocks * context.multiprocessors, needed), 32 * kWarps, shared,
           context.stream>>>(args, work, entries);
  CheckLaunch("LanesKernel");
}

}  // namespace

void MakeLaneTables(Context& context, const Matrix& a, const int32_t* structure_of_lane,
                    const int32_t* representative, StaticSpaiPlan& plan) {
  if (plan.lane_structures == 0) return;
  const Source in{a.pattern(),    plan.pattern(),        plan.members.get(), plan.group_ptr.get(),
                  representative, plan.structures.get(), plan.tables.get()};
  LaneTableKernel<<<plan.lane_structures, 32, 0, context.stream>>>(in, structure_of_lane,
                                                                   plan.lane_tables.get());
  CheckLaunch("LaneTableKernel");
}

void LaunchLanes(const Context& context, int n2, const StaticSpaiPlan& plan, const GramArgs& args) {
  const LaneWork work{plan.lane_tables.get(),       plan.lane_begin.get(),
                      plan.lane_tasks.get(),        plan.lane_size_begin[n2],
                      plan.lane_size_begin[n2 + 1], plan.lane_task_begin[n2],
                      plan.lane_task_begin[n2 + 1]};
  const int entries = plan.lane_entries[n2];
  switch (n2) {
    case 1:
      return Launch<1>(context, args, work, entries);
    case 2:
      return Launch<2>(context, args, work, entries);
    case 3:
      return Launch<3>(context, args, work, entries);
    case 4:
      return Launch<4>(context, args, work, entries);
    case 5:
      return Launch<5>(context, args, work, entries);
    case 6:
      return Launch<6>(context, args, work, entries);
    case 7:
      return Launch<7>(context, args, work, entries);
    case 8:
      return Launch<8>(context, args, work, entries);
    case 9:
      return Launch<9>(context, args, work, entries);
    case 10:
      return Launch<10>(context, args, work, entries);
    default:
      throw Failure(CudaFault::kError, "no lane kernel for " + std::to_string(n2) + " columns");
  }
}

}  // namespace spaid::cuda
