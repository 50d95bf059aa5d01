// The ranks of an MPI job as one device, the way rank 0 sees it: A, plans and M lie over all ranks,
// each rank with its share of the rows. Its code is libspaid_mpi.so's; nothing of MPI or PETSc is
// named here.
//
//   Result<Joined> joined = (*LoadMpi())->join(terms);             // kernels/engine/mpi_library.h
//   if (joined->device == nullptr) return 0;                        // not rank 0: all is over
//   auto a_there = joined->device->SpreadMatrix(a, context);
//   auto solved = joined->device->Solve(**a_there, nullptr, b, x0, options, context);
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/cuda_loader.h"
#include "kernels/base/device.h"
#include "kernels/base/status.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/fsai/fsai.h"
#include "kernels/krylov/krylov.h"
#include "kernels/mpi/petsc_options.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/validation.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

// A matrix, or a plan, that lies over the ranks. Ends on all of them with its last owner here.
// Immutable; thread-safe.
class OverRanks {
 public:
  virtual ~OverRanks() = default;
  virtual int64_t bytes() const = 0;  // on all ranks together
  virtual int64_t nnz() const = 0;    // of a matrix, or of G; of a plan that of M
};

// A matrix that lies over the ranks alone is known on rank 0 by a stand-in: its size, one number in
// place of all pointers, which those have together that came on one pattern, and one value, which
// no other has. SpreadMatrix finds by it what lies there.
inline bool IsStandIn(const PatternView& a) { return a.n_cols > 0 && a.col_ptr.size() == 1; }

// A matrix on its way to the ranks, of which rank 0 never holds more than a piece. Ends on all
// ranks with this, unless it has arrived. Not thread-safe; calls block.
class RanksInput {
 public:
  virtual ~RanksInput() = default;
  // The next entries of either array, in order.
  virtual Status Add(std::span<const int32_t> indices) = 0;
  virtual Status Add(std::span<const double> values) = 0;
  struct Arrived {
    std::shared_ptr<const OverRanks> matrix;
    CscMatrix stand_in;
    Diagnosis diagnosis;
  };
  // Once all have come. Errors: those of mpi::SpreadBlocks, for the whole.
  virtual Result<Arrived> Finish(const Context& context) = 0;
};

// A matrix, M or G on its way to rank 0, which never holds more than a piece: canonical pointers,
// indices and values, by columns or by rows. Its copy on the ranks, if it takes one, ends with
// this. Not thread-safe; calls block.
class RanksOutput {
 public:
  virtual ~RanksOutput() = default;
  virtual int64_t n() const = 0;
  virtual int64_t nnz() const = 0;
  // Elements from `first` on of either array: of the n + 1 pointers, of indices or values.
  virtual Status Read(int64_t first, std::span<int64_t> pointers) = 0;
  virtual Status Read(int64_t first, std::span<int32_t> indices) = 0;
  virtual Status Read(int64_t first, std::span<double> values) = 0;
};

// Thread-safe: what several threads ask for is done one after the other, as ranks do everything
// together. Calls block until that is done; of `context`, stop and progress are read: each rank
// computes with its share of its host's cores. Where a rank dies, or is not heard of any more, the
// program ends (JoinTerms::lost).
class RanksDevice {
 public:
  using Made = Result<std::shared_ptr<const OverRanks>>;

  RanksDevice(const RanksDevice&) = delete;
  RanksDevice& operator=(const RanksDevice&) = delete;
  // Ends the other ranks in order, with status 0.
  virtual ~RanksDevice() = default;

  const DeviceInfo& info() const { return info_; }
  struct Rank {
    std::string host;
    int threads = 0;           // that it computes with
    int64_t memory_bytes = 0;  // its share of its host's
  };
  const std::vector<Rank>& ranks() const { return ranks_; }
  // Bytes of all that lies over the ranks, of all ranks together.
  virtual int64_t used_bytes() const = 0;
  // All ranks answer, or the program ends.
  virtual Status Probe() = 0;

  // Upper bounds for the rank with most: all that a build takes there at once, plan, A and M
  // included, and what of that has been fetched from other ranks.
  struct RankBytes {
    int64_t all = 0, halo = 0;
  };
  struct BuildToBound {
    // One of these.
    const StaticSpaiOptions* static_spai = nullptr;
    const DynamicSpaiOptions* dynamic_spai = nullptr;
    const FsaiOptions* fsai = nullptr;
    const PatternView* user_pattern = nullptr;  // by columns; null: none
    // By an estimate of one process, upper bounds: entries of M, or of G; of a column of M (static
    // SPAI); of AᵀA (dynamic SPAI).
    int64_t nnz_m = 0, column_nnz = 0, gram_nnz = 0;
  };
  // From the pattern of a whole A, without a word to the ranks. Errors: OUT_OF_MEMORY.
  virtual Result<RankBytes> Bound(const PatternView& a, const BuildToBound& build) const = 0;
  // Sizes of what ranks own of a matrix that lies there alone: a bound reads them in place of its
  // pattern.
  struct Shares {
    int64_t n = 0, nnz = 0;
    int64_t longest_column = 0, longest_row = 0;  // entries
    int64_t long_columns = 0;                     // CountLong
    // Upper bounds on AᵀA: entries, those of a column, those of the columns that a rank owns.
    int64_t gram_nnz = 0, gram_longest = 0, gram_own = 0;
    // The most of any rank: columns; entries of its columns or of its rows; of its rows.
    int64_t columns = 0, entries = 0, of_rows = 0;
  };
  virtual Shares SharesOf(const OverRanks& a) const = 0;  // without a word to the ranks
  virtual Result<RankBytes> Bound(const Shares& a, const BuildToBound& build) const = 0;

  // Begins a matrix of `pointers.size() - 1` rows (kCsr) or columns. Errors: INVALID_ARGUMENT/
  // BAD_POINTERS; RESOURCE_EXHAUSTED/DEVICE_OUT_OF_MEMORY where the ranks have no memory left for
  // it, /OUT_OF_MEMORY.
  virtual Result<std::unique_ptr<RanksInput>> BeginInput(std::span<const int64_t> pointers,
                                                         int64_t nnz, Layout layout,
                                                         bool sort_and_sum) = 0;
  // The same of a matrix with the pattern of one that came so, of which values alone are added: in
  // `layout`, in the order of the canonical pattern.
  virtual Result<std::unique_ptr<RanksInput>> BeginInput(const OverRanks& like, Layout layout) = 0;
  // Spreads a canonical matrix with values: the one that lies there already, where somebody still
  // holds one with the same arrays. Errors: those of mpi::SpreadWhole.
  virtual Made SpreadMatrix(const CscView& a, const Context& context) = 0;
  // Tells whether two matrices are the same to the last bit; false where they are spread otherwise.
  virtual Result<bool> Same(const OverRanks& a, const OverRanks& b) = 0;
  // Computes y = A x. Errors: OUT_OF_MEMORY.
  virtual Status Multiply(const OverRanks& a, std::span<const double> x, std::span<double> y) = 0;
  // Begins to bring A, or M, or G where M = GᵀG, to rank 0. Takes memory for a copy on the ranks
  // where it lies there in the other layout. Errors: FAILED_PRECONDITION/MATRIX_OVER_RANKS of an M
  // that is no matrix; RESOURCE_EXHAUSTED/DEVICE_OUT_OF_MEMORY, /OUT_OF_MEMORY.
  virtual Result<std::unique_ptr<RanksOutput>> BeginOutput(const OverRanks& of, Layout layout) = 0;
  // Spreads M, or G by columns of M = GᵀG (`factor`), to be multiplied by. Errors: the same.
  virtual Made SpreadM(const CscView& m, bool factor, const Context& context) = 0;
  // HybridSPAI (hybrid_spai.h) of a matrix that lies over the ranks. `user_pattern` may be null.
  // Errors: those of mpi::PlanHybridSpai.
  virtual Made PlanStaticSpai(const OverRanks& a, const PatternView* user_pattern,
                              const StaticSpaiOptions& options, const Context& context) = 0;
  struct Grown {
    std::shared_ptr<const OverRanks> plan;  // of static SPAI, on the pattern that has grown
    DynamicSpaiQuality quality;
  };
  // Dynamic SPAI (hybrid_dynamic_spai.h) up to its numbers. `initial` may be null. Errors: those of
  // mpi::GrowHybridDynamicSpai and mpi::PlanHybridSpai.
  virtual Result<Grown> GrowDynamicSpai(const OverRanks& a, const PatternView* initial,
                                        const DynamicSpaiOptions& options,
                                        const Context& context) = 0;
  struct Built {
    // The whole M, here, canonical; of FSAI G by rows, as FsaiResult::g_rows. No columns where A is
    // a stand-in.
    CscMatrix m;
    std::shared_ptr<const OverRanks> there;
    StaticSpaiQuality quality;
    FsaiQuality fsai;      // of FSAI, which has no other
    PetscQuality petsc;    // of BuildPetsc, which has no other, and no m
    double gather_ms = 0;  // the time in which M came here
  };
  // Errors: those of mpi::BuildHybridSpai.
  virtual Result<Built> BuildStaticSpai(const OverRanks& plan, const OverRanks& a,
                                        const Context& context) = 0;
  // FSAI, static or adaptive (hybrid_fsai.h). `user_rows`: by rows, as FsaiPattern has it; may be
  // null. Errors: those of mpi::BuildHybridFsai.
  virtual Result<Built> BuildFsai(const OverRanks& a, const PatternView* user_rows,
                                  const FsaiOptions& options, const Context& context) = 0;
  // Builds the inverse of the diagonal (hybrid_jacobi.h). Errors: mpi::BuildHybridJacobi's.
  virtual Result<Built> BuildJacobi(const OverRanks& a, const Context& context) = 0;
  // ParaSails, BoomerAMG or GAMG (petsc_preconditioner.h). `near_null`: n x count vectors, one
  // after the other; may be empty. Errors: those of mpi::BuildPetsc.
  virtual Result<Built> BuildPetsc(const OverRanks& a, PetscMethod method,
                                   const PetscEngineOptions& options,
                                   std::span<const double> near_null, const Context& context) = 0;
  // PETSc's CG, BiCGSTAB or GMRES, one right-hand side after the other (spread_krylov.h). `m`:
  // null: none; what SpreadM or a build made. b, x0: n x n_rhs; x0 may be empty. Of
  // the figures, host_to_device_ms and device_to_host_ms are those of vectors to and from the
  // ranks. Errors: those of mpi::SolveSpread.
  virtual Result<SolveResult> Solve(const OverRanks& a, const OverRanks* m,
                                    std::span<const double> b, std::span<const double> x0,
                                    const SolveOptions& options, const Context& context) = 0;

 protected:
  RanksDevice() = default;
  DeviceInfo info_;
  std::vector<Rank> ranks_;
};

// Terms that each process of the job joins on.
struct JoinTerms {
  std::string program;  // version and options, which must be the same on all ranks
  int threads = 0;      // of a rank; 0: its share of the cores that it may use
  // For so long other ranks than 0 keep what was freed (kernels/base/memory.h); 0: they do not.
  std::chrono::milliseconds keep_freed{0};
  // Told once, on a thread of its own, that a rank has died or is silent, in one sentence, which is
  // empty where rank 0 tells it for all. It ends the program: nothing over the ranks will end any
  // more.
  std::function<void(const std::string& sentence)> lost;
};

struct Joined {
  std::unique_ptr<RanksDevice> device;  // on rank 0; null: another rank, whose work is done
};

// The one symbol of libspaid_mpi.so, kMpiEntry.
struct MpiEntry {
  char build_id[17];
  void (*adopt)(const ProcessState& program);  // before all that follows
  // Starts MPI and PETSc. Returns on rank 0 when all ranks have joined, on others when rank 0 has
  // ended, or has an error that it has: a launcher that saw them end with 1 would end rank 0 before
  // that has spoken. Once a process. Errors: UNAVAILABLE/RANKS_UNAVAILABLE (MPI does not do what is
  // needed, or a rank did not come), INVALID_ARGUMENT/OPTIONS_DIFFER.
  Result<Joined> (*join)(const JoinTerms& terms);
};
inline constexpr char kMpiEntry[] = "spaid_mpi_entry";

}  // namespace spaid::kernels
