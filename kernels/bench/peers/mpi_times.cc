// HybridSPAI over the ranks of MPI beside one process, and beside hypre's ParaSails through PETSc;
// growth of dynamic SPAI and adaptive FSAI over them beside one process; and an iteration of
// SolveSpread beside PETSc's own driver. A line of CSV for each figure on standard output.
//
//   OPENBLAS_NUM_THREADS=1 mpiexec -n 2 --bind-to none spaid_mpi_times [rounds=7] [only=NAME]
//       [iterations=300]
//
// All figures of a matrix are taken by turns in each round, and are medians. `wall_ms`: of the
// slowest rank; `cpu_ms`: the processor's time of the busiest rank, which is what to trust on a
// machine with other work. One rank has one thread. ParaSails has the pattern of A, as HybridSPAI
// has (levels 0, threshold 0, no filter); with an OpenBLAS of many threads it is four times as slow
// by two ranks. Iterations: BiCGSTAB of PETSc to 1e-8, b = A x with a seeded x.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/fsai/fsai.h"
#include "kernels/mpi/hybrid_dynamic_spai.h"
#include "kernels/mpi/hybrid_fsai.h"
#include "kernels/mpi/hybrid_spai.h"
#include "kernels/mpi/spread_krylov.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels::bench {

using mpi::Must;  // beside the one of results

namespace {

constexpr char kPlan[] = "plan of HybridSPAI";
constexpr char kGrowth[] = "growth of dynamic SPAI";
constexpr char kAdaptive[] = "build of adaptive FSAI";

double ProcessorMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double Median(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
  return of[of.size() / 2];
}

int Rank() {
  int rank = 0;
  Must(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  return rank;
}

// Waits for all ranks without the processor, so that the ranks that wait take nothing from those
// that compute.
void MeetQuietly() {
  MPI_Request request;
  Must(MPI_Ibarrier(PETSC_COMM_WORLD, &request));
  for (int over = 0;;) {
    Must(MPI_Test(&request, &over, MPI_STATUS_IGNORE));
    if (over) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

class Times {
 public:
  template <class Body>
  void Run(const std::string& what, const Body& body) {
    MeetQuietly();
    const auto start = Clock::now();
    const double before = ProcessorMs();
    body();
    double took[2] = {MsSince(start), ProcessorMs() - before};
    MeetQuietly();
    Must(MPI_Allreduce(MPI_IN_PLACE, took, 2, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD));
    if (!of_.contains(what)) order_.push_back(what);
    of_[what].wall.push_back(took[0]);
    of_[what].cpu.push_back(took[1]);
  }

  // `divisor`: of figures that are told by iteration. `halo_bytes`: of a figure, of the rank that
  // fetches most.
  void Print(const std::string& matrix, const CscMatrix& a,
             const std::map<std::string, double>& divisor,
             const std::map<std::string, int>& iterations,
             std::map<std::string, int64_t> halo_bytes) const {
    for (auto& [what, bytes] : halo_bytes) {
      Must(MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_INT64_T, MPI_MAX, PETSC_COMM_WORLD));
    }
    int ranks = 1;
    Must(MPI_Comm_size(PETSC_COMM_WORLD, &ranks));
    for (const std::string& what : order_) {
      const Taken& taken = of_.at(what);
      const double each = divisor.contains(what) ? divisor.at(what) : 1;
      if (Rank() != 0) continue;
      std::printf("%s,%lld,%lld,%d,%s,%zu,%.4g,%.4g,", matrix.c_str(),
                  static_cast<long long>(a.n_cols), static_cast<long long>(a.nnz()), ranks,
                  what.c_str(), taken.wall.size(), Median(taken.wall) / each,
                  Median(taken.cpu) / each);
      if (iterations.contains(what)) std::printf("%d", iterations.at(what));
      std::printf(",");
      if (halo_bytes.contains(what)) {
        std::printf("%lld", static_cast<long long>(halo_bytes.at(what)));
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }

 private:
  struct Taken {
    std::vector<double> wall, cpu;
  };
  std::map<std::string, Taken> of_;
  std::vector<std::string> order_;
};

mpi::KspOwner MakeKsp(Mat a, Mat m) {
  KSP ksp = nullptr;
  Must(KSPCreate(PETSC_COMM_WORLD, &ksp));
  Must(KSPSetOperators(ksp, a, m != nullptr ? m : a));
  Must(KSPSetType(ksp, KSPBCGS));
  Must(KSPSetPCSide(ksp, PC_RIGHT));
  Must(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  PC pc = nullptr;
  Must(KSPGetPC(ksp, &pc));
  if (m != nullptr) {
    Must(PCSetType(pc, PCMAT));
  } else {
    Must(PCSetType(pc, PCHYPRE));
    Must(PCHYPRESetType(pc, "parasails"));
    Must(PetscOptionsSetValue(nullptr, "-pc_hypre_parasails_nlevels", "0"));
    Must(PetscOptionsSetValue(nullptr, "-pc_hypre_parasails_thresh", "0"));
    Must(PetscOptionsSetValue(nullptr, "-pc_hypre_parasails_filter", "0"));
    Must(PetscOptionsSetValue(nullptr, "-pc_hypre_parasails_sym", "nonsymmetric"));
    Must(PCSetFromOptions(pc));
  }
  return mpi::KspOwner(ksp);
}

int IterationsOf(KSP ksp, Vec b, Vec x) {
  Must(KSPSetTolerances(ksp, 1e-8, 0, PETSC_DEFAULT, 10000));
  Must(VecSet(x, 0));
  Must(KSPSolve(ksp, b, x));
  PetscInt iterations = 0;
  Must(KSPGetIterationNumber(ksp, &iterations));
  KSPConvergedReason reason = KSP_CONVERGED_ITERATING;
  Must(KSPGetConvergedReason(ksp, &reason));
  return reason > 0 ? static_cast<int>(iterations) : -1;
}

// `spd`: with FSAI.
void Measure(const std::string& name, const CscMatrix& whole, bool spd, int rounds,
             int iterations) {
  const Context one{.threads = 1};
  const CscView view = whole;
  int rank = 0;
  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  const mpi::SpreadMatrix a =
      Must(mpi::SpreadWhole(PETSC_COMM_WORLD, rank == 0 ? &view : nullptr, one));
  Mat rows = a.rows.get();
  Vec b = nullptr, x = nullptr;
  Must(MatCreateVecs(rows, &x, &b));
  const mpi::VecOwner owned_b(b), owned_x(x);
  PetscScalar* values = nullptr;
  Must(VecGetArray(x, &values));
  gallery::Uniform random(static_cast<uint64_t>(Rank()) + 1);
  for (int64_t i = 0; i < a.own().size(); ++i) values[i] = 2 * random() - 1;
  Must(VecRestoreArray(x, &values));
  Must(MatMult(rows, x, b));

  Times times;
  mpi::HybridSpaiResult m;
  mpi::KspOwner sails;
  std::map<std::string, int64_t> halo_bytes;
  for (int round = 0; round < rounds; ++round) {
    for (const int threads : {1, 2}) {
      const Context context{.threads = threads};
      std::shared_ptr<const StaticSpaiPlan> plan;
      const std::string with = " of one process by " + std::to_string(threads) + " threads";
      times.Run("plan" + with, [&] {
        if (Rank() == 0) plan = Must(PlanStaticSpai(whole, nullptr, {}, context));
      });
      times.Run("build" + with, [&] {
        if (Rank() == 0) Must(BuildStaticSpai(*plan, whole, {}, context));
      });
    }
    std::optional<mpi::HybridSpaiPlan> plan;
    times.Run(kPlan, [&] { plan = Must(mpi::PlanHybridSpai(a, nullptr, {}, one)); });
    halo_bytes[kPlan] = plan->halo_bytes();
    m = {};
    times.Run("build of HybridSPAI", [&] { m = Must(mpi::BuildHybridSpai(*plan, a, one)); });
    times.Run(std::string(kGrowth) + " of one process by 1 threads", [&] {
      if (Rank() == 0) Must(GrowDynamicSpai(whole, nullptr, {}, one));
    });
    times.Run(kGrowth, [&] {
      halo_bytes[kGrowth] = Must(mpi::GrowHybridDynamicSpai(a, nullptr, {}, one)).halo_bytes;
    });
    if (spd) {
      times.Run(std::string(kAdaptive) + " of one process by 1 threads", [&] {
        if (Rank() == 0) Must(BuildFsai(whole, nullptr, {}, one));
      });
      times.Run(kAdaptive, [&] {
        halo_bytes[kAdaptive] = Must(mpi::BuildHybridFsai(a, nullptr, {}, one)).halo_bytes;
      });
    }
    sails = MakeKsp(rows, nullptr);
    times.Run("set-up of ParaSails", [&] { Must(KSPSetUp(sails.get())); });
  }
  const mpi::KspOwner plain = MakeKsp(rows, m.rows.get());
  std::map<std::string, int> counts;
  counts["build of HybridSPAI"] = IterationsOf(plain.get(), b, x);
  counts["set-up of ParaSails"] = IterationsOf(sails.get(), b, x);

  std::vector<double> own_b(static_cast<size_t>(a.own().size())), own_x(own_b.size());
  const PetscScalar* from = nullptr;
  Must(VecGetArrayRead(b, &from));
  std::copy_n(from, own_b.size(), own_b.begin());
  Must(VecRestoreArrayRead(b, &from));
  const SolveOptions options{.method = Method::kGmres,
                             .rtol = 1e-300,
                             .max_iterations = iterations,
                             .restart = 30,
                             .keep_history = false};
  Must(KSPSetType(plain.get(), KSPGMRES));
  Must(KSPSetTolerances(plain.get(), 1e-300, 0, PETSC_DEFAULT, iterations));
  std::map<std::string, double> by_iteration;
  for (int round = 0; round < rounds; ++round) {
    times.Run("iteration of PETSc's GMRES", [&] {
      Must(VecSet(x, 0));
      Must(KSPSolve(plain.get(), b, x));
    });
    PetscInt done = 0;
    Must(KSPGetIterationNumber(plain.get(), &done));
    by_iteration["iteration of PETSc's GMRES"] = std::max<double>(1, done);
    RhsResult result;
    std::ranges::fill(own_x, 0.0);
    times.Run("iteration of SolveSpread's GMRES", [&] {
      result = Must(mpi::SolveSpread(a, m.rows.get(), own_b, own_x, options, one));
    });
    by_iteration["iteration of SolveSpread's GMRES"] =
        std::max<double>(1, static_cast<double>(result.iterations));
  }
  times.Print(name, whole, by_iteration, counts, halo_bytes);
}

int Main(int argc, char** argv) {
  KeepFreedMemory();  // as the daemon does
  int rounds = 7, iterations = 300;
  std::string_view only;
  for (int k = 1; k < argc; ++k) {
    const std::string_view given = argv[k];
    if (given.starts_with("rounds=")) rounds = std::max(1, std::atoi(argv[k] + 7));
    if (given.starts_with("only=")) only = given.substr(5);
    if (given.starts_with("iterations=")) iterations = std::max(1, std::atoi(argv[k] + 11));
  }
  if (Rank() == 0)
    std::printf("matrix,n,nnz,ranks,what,rounds,wall_ms,cpu_ms,iterations,halo_bytes\n");
  const auto measure = [&](const char* name, bool spd, const auto& make) {
    if (std::string_view(name).starts_with(only)) Measure(name, make(), spd, rounds, iterations);
  };
  measure("P7_60", false, [] { return ConvectionDiffusion(60, 20); });
  measure("P27_40", true, [] { return Laplacian27(40); });
  measure("E80_20", true, [] { return Elasticity(20); });
  measure("E80_20 permuted", true, [] { return PermuteNodes(Elasticity(20), 3, 64); });
  return 0;
}

}  // namespace
}  // namespace spaid::kernels::bench

int main(int argc, char** argv) {
  if (PetscInitialize(nullptr, nullptr, nullptr, nullptr)) return 1;
  const int status = spaid::kernels::bench::Main(argc, argv);
  return PetscFinalize() ? 1 : status;
}
