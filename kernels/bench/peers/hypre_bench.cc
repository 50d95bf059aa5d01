// Times hypre's approximate inverses on a matrix file, one JSON object a run on standard output:
// the yardstick of compare_cpu.py. Not part of the build: compare_cpu.py compiles it with mpicxx
// where libhypre-dev is installed.
//
//   mpirun -n 2 hypre_bench A.bin parasails-spai [runs [max_steps step_size tolerance]]
//
// A.bin: int64 n, int64 nnz, int32 row_ptr[n + 1], int32 col_idx[nnz], double values[nnz].
// Peers: parasails-spai (static SPAI, pattern of A, BiCGSTAB), parasails-fsai (static FSAI, CG),
// fsai (adaptive FSAI, defaults or as given, CG). b = A·1, x0 = 0, relative residual 1e-7, at most
// 10000 iterations.
#include <HYPRE.h>
#include <HYPRE_krylov.h>
#include <HYPRE_parcsr_ls.h>
#include <_hypre_parcsr_ls.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace {

struct Csr {
  int64_t n = 0;
  std::vector<int> row_ptr, col_idx;
  std::vector<double> values;
};

template <class T>
bool ReadArray(FILE* file, std::vector<T>& out, size_t count) {
  out.resize(count);
  return fread(out.data(), sizeof(T), count, file) == count;
}

Csr Read(const char* path) {
  FILE* file = fopen(path, "rb");
  int64_t header[2] = {};
  Csr a;
  if (file == nullptr || fread(header, 8, 2, file) != 2 ||
      !ReadArray(file, a.row_ptr, static_cast<size_t>(header[0] + 1)) ||
      !ReadArray(file, a.col_idx, static_cast<size_t>(header[1])) ||
      !ReadArray(file, a.values, static_cast<size_t>(header[1]))) {
    fprintf(stderr, "hypre_bench: cannot read %s\n", path);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  fclose(file);
  a.n = header[0];
  return a;
}

void Check(HYPRE_Int code, const char* what) {
  if (code == 0 || HYPRE_CheckError(code, HYPRE_ERROR_CONV)) {
    HYPRE_ClearAllErrors();
    return;
  }
  char text[256];
  HYPRE_DescribeError(code, text);
  fprintf(stderr, "hypre_bench: %s: %s\n", what, text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// CPU time of this rank: what a busy machine disturbs least.
double ProcessorMs() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

// A linear-system vector of this rank's rows, every element `value`.
HYPRE_IJVector MakeVector(int lo, int hi, double value) {
  HYPRE_IJVector v;
  HYPRE_IJVectorCreate(MPI_COMM_WORLD, lo, hi, &v);
  HYPRE_IJVectorSetObjectType(v, HYPRE_PARCSR);
  HYPRE_IJVectorInitialize(v);
  std::vector<double> data(static_cast<size_t>(hi - lo + 1), value);
  std::vector<int> rows(data.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = lo + static_cast<int>(i);
  HYPRE_IJVectorSetValues(v, static_cast<int>(data.size()), rows.data(), data.data());
  HYPRE_IJVectorAssemble(v);
  return v;
}

// Entries of this rank's rows of an adaptive G, which the public interface does not tell.
int64_t EntriesOfG(HYPRE_Solver fsai) {
  hypre_ParCSRMatrix* g = hypre_ParFSAIDataGmat(reinterpret_cast<hypre_ParFSAIData*>(fsai));
  int64_t count = 0;
  for (hypre_CSRMatrix* part : {hypre_ParCSRMatrixDiag(g), hypre_ParCSRMatrixOffd(g)}) {
    if (hypre_CSRMatrixI(part) != nullptr) {
      count += hypre_CSRMatrixI(part)[hypre_CSRMatrixNumRows(part)];
    }
  }
  return count;
}

HYPRE_ParVector Par(HYPRE_IJVector v) {
  void* object = nullptr;
  HYPRE_IJVectorGetObject(v, &object);
  return static_cast<HYPRE_ParVector>(object);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  HYPRE_Init();
  if (argc < 3) {
    fprintf(stderr,
            "usage: hypre_bench A.bin parasails-spai|parasails-fsai|fsai [runs [steps size "
            "tolerance]]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const std::string peer = argv[2];
  const int runs = argc > 3 ? atoi(argv[3]) : 5;
  const bool bicgstab = peer == "parasails-spai";
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Csr a = Read(argv[1]);
  const int lo = static_cast<int>(a.n * rank / ranks);
  const int hi = static_cast<int>(a.n * (rank + 1) / ranks) - 1;

  HYPRE_IJMatrix ij;
  HYPRE_IJMatrixCreate(MPI_COMM_WORLD, lo, hi, lo, hi, &ij);
  HYPRE_IJMatrixSetObjectType(ij, HYPRE_PARCSR);
  HYPRE_IJMatrixInitialize(ij);
  for (int i = lo; i <= hi; ++i) {
    int count = a.row_ptr[i + 1] - a.row_ptr[i];
    HYPRE_IJMatrixSetValues(ij, 1, &count, &i, &a.col_idx[a.row_ptr[i]], &a.values[a.row_ptr[i]]);
  }
  HYPRE_IJMatrixAssemble(ij);
  void* object = nullptr;
  HYPRE_IJMatrixGetObject(ij, &object);
  const auto matrix = static_cast<HYPRE_ParCSRMatrix>(object);

  HYPRE_IJVector ones = MakeVector(lo, hi, 1.0), b = MakeVector(lo, hi, 0.0);
  HYPRE_ParCSRMatrixMatvec(1.0, matrix, Par(ones), 0.0, Par(b));

  std::vector<double> setup, setup_cpu, solve;
  HYPRE_Int iterations = 0;
  double residual = 0;
  int64_t entries = 0;  // of G, where it is told
  for (int run = 0; run < runs; ++run) {
    HYPRE_IJVector x = MakeVector(lo, hi, 0.0);
    HYPRE_Solver m = nullptr, krylov = nullptr;
    MPI_Barrier(MPI_COMM_WORLD);
    const double cpu = ProcessorMs();
    const double t0 = MPI_Wtime();
    if (peer == "fsai") {
      HYPRE_FSAICreate(&m);
      // One application an iteration: by default it iterates by itself.
      Check(HYPRE_FSAISetMaxIterations(m, 1), "FSAI options");
      Check(HYPRE_FSAISetTolerance(m, 0), "FSAI options");
      if (argc > 6) {
        Check(HYPRE_FSAISetMaxSteps(m, atoi(argv[4])), "FSAI options");
        Check(HYPRE_FSAISetMaxStepSize(m, atoi(argv[5])), "FSAI options");
        Check(HYPRE_FSAISetKapTolerance(m, atof(argv[6])), "FSAI options");
      }
      Check(HYPRE_FSAISetup(m, matrix, Par(b), Par(x)), "FSAI set-up");
    } else {
      HYPRE_ParaSailsCreate(MPI_COMM_WORLD, &m);
      HYPRE_ParaSailsSetParams(m, 0.0, 0);
      HYPRE_ParaSailsSetFilter(m, 0.0);
      HYPRE_ParaSailsSetSym(m, bicgstab ? 0 : 1);
      HYPRE_ParaSailsSetLogging(m, 0);
      Check(HYPRE_ParaSailsSetup(m, matrix, Par(b), Par(x)), "ParaSails set-up");
    }
    const double used = ProcessorMs() - cpu;  // before it waits for the others
    double all_used = 0;
    MPI_Reduce(&used, &all_used, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    setup_cpu.push_back(all_used);
    MPI_Barrier(MPI_COMM_WORLD);
    const double t1 = MPI_Wtime();
    const auto apply = peer == "fsai" ? HYPRE_FSAISolve : HYPRE_ParaSailsSolve;
    // The set-up is done already: the Krylov solver gets one that does nothing.
    const auto no_setup = +[](HYPRE_Solver, HYPRE_ParCSRMatrix, HYPRE_ParVector,
                              HYPRE_ParVector) -> HYPRE_Int { return 0; };
    if (bicgstab) {
      HYPRE_ParCSRBiCGSTABCreate(MPI_COMM_WORLD, &krylov);
      HYPRE_ParCSRBiCGSTABSetTol(krylov, 1e-7);
      HYPRE_ParCSRBiCGSTABSetMaxIter(krylov, 10000);
      HYPRE_ParCSRBiCGSTABSetPrecond(krylov, apply, no_setup, m);
      HYPRE_ParCSRBiCGSTABSetup(krylov, matrix, Par(b), Par(x));
      Check(HYPRE_ParCSRBiCGSTABSolve(krylov, matrix, Par(b), Par(x)), "BiCGSTAB");
      HYPRE_ParCSRBiCGSTABGetNumIterations(krylov, &iterations);
    } else {
      HYPRE_ParCSRPCGCreate(MPI_COMM_WORLD, &krylov);
      HYPRE_PCGSetTwoNorm(krylov, 1);
      HYPRE_ParCSRPCGSetTol(krylov, 1e-7);
      HYPRE_ParCSRPCGSetMaxIter(krylov, 10000);
      HYPRE_ParCSRPCGSetPrecond(krylov, apply, no_setup, m);
      HYPRE_ParCSRPCGSetup(krylov, matrix, Par(b), Par(x));
      Check(HYPRE_ParCSRPCGSolve(krylov, matrix, Par(b), Par(x)), "CG");
      HYPRE_ParCSRPCGGetNumIterations(krylov, &iterations);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double t2 = MPI_Wtime();
    const int64_t own = peer == "fsai" ? EntriesOfG(m) : 0;
    MPI_Reduce(&own, &entries, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    HYPRE_IJVector r = MakeVector(lo, hi, 0.0);
    double rr = 0, bb = 0;
    HYPRE_ParVectorCopy(Par(b), Par(r));
    HYPRE_ParCSRMatrixMatvec(-1.0, matrix, Par(x), 1.0, Par(r));
    HYPRE_ParVectorInnerProd(Par(r), Par(r), &rr);
    HYPRE_ParVectorInnerProd(Par(b), Par(b), &bb);
    residual = std::sqrt(rr / bb);
    setup.push_back((t1 - t0) * 1e3);
    solve.push_back((t2 - t1) * 1e3);
    HYPRE_IJVectorDestroy(r);
    HYPRE_IJVectorDestroy(x);
    bicgstab ? HYPRE_ParCSRBiCGSTABDestroy(krylov) : HYPRE_ParCSRPCGDestroy(krylov);
    peer == "fsai" ? HYPRE_FSAIDestroy(m) : HYPRE_ParaSailsDestroy(m);
  }
  if (rank == 0) {
    printf(
        "{\"peer\": \"%s\", \"ranks\": %d, \"n\": %lld, \"setup_ms\": %.3f, \"setup_cpu_ms\": "
        "%.3f, "
        "\"solve_ms\": %.3f, \"density\": %.4f, "
        "\"iterations\": %d, \"true_relative_residual\": %.3e}\n",
        peer.c_str(), ranks, static_cast<long long>(a.n), Median(setup), Median(setup_cpu),
        Median(solve), static_cast<double>(entries) / static_cast<double>(a.values.size()),
        static_cast<int>(iterations), residual);
  }
  HYPRE_IJMatrixDestroy(ij);
  HYPRE_IJVectorDestroy(ones);
  HYPRE_IJVectorDestroy(b);
  HYPRE_Finalize();
  MPI_Finalize();
  return 0;
}
