// Multigrid on the CPU: milliseconds of a build, of a rebuild for other values and of a solve, by
// one and by two threads, by the processor's and the wall's clock, iterations and bytes; a line of
// CSV for each problem on standard output. On a shared machine trust the processor's of one thread.
//
//   spaid_amg_times [rounds=7] [only=NAME] [OPTION=NUMBER...] [FILE...]
//
// Without files (matrix_file.h) on the five problems of the tables. b = A x with a seeded random x
// in [-1, 1], x0 = 0, relative residual 1e-7, CG where A is symmetric, else BiCGSTAB. Build,
// rebuild, solve and both thread counts alternate; each figure is a median of so many rounds.
// `only`: the one problem whose name begins so. Options are those of AmgOptions by the names that
// clients know, choices by their numbers.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/bench/matrix_file.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"

namespace spaid::kernels::bench {
namespace {

constexpr std::array<int, 2> kThreads = {1, 2};

// By columns, as engines get it.
CscMatrix Columns(const gallery::Matrix& a) { return Transpose(CscView(Transposed(a))); }

// Symmetric to the last bit.
gallery::Matrix Exactly(gallery::Matrix a) {
  gallery::Symmetrize({a.col_ptr, a.row_idx, a.values});
  return a;
}

double Median(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
  return of[of.size() / 2];
}

// Milliseconds of all threads together.
double ProcessorMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// Runs body; what it took of both clocks.
struct Taken {
  std::vector<double> wall, processor;
  template <class Body>
  void Run(const Body& body) {
    const auto start = Clock::now();
    const double before = ProcessorMs();
    body();
    processor.push_back(ProcessorMs() - before);
    wall.push_back(MsSince(start));
  }
};
struct Times {
  Taken build, rebuild, solve;
};

void Measure(const std::string& name, const CscMatrix& a, const AmgOptions& options, int rounds) {
  const bool symmetric = Must(IsExactlySymmetric(a, {}));
  const CsrOperator op = CsrOperator::FromColumns(a);
  std::mt19937_64 random(12345);
  std::vector<double> x(static_cast<size_t>(a.n_cols)), b(x.size());
  for (double& v : x) v = 0x1.0p-52 * static_cast<double>(random() >> 11) - 1;
  op.Apply(x, b, 2);
  const SolveOptions solve{.method = symmetric ? Method::kCg : Method::kBicgstab,
                           .rtol = 1e-7,
                           .max_iterations = 1000,
                           .keep_history = false};
  std::array<Times, kThreads.size()> times;
  AmgResult last;
  RhsResult solved;
  for (int round = 0; round < rounds; ++round) {
    for (size_t t = 0; t < kThreads.size(); ++t) {
      const Context context{.stop = {}, .progress = nullptr, .threads = kThreads[t]};
      last = {};
      times[t].build.Run([&] { last = Must(BuildAmg(a, symmetric, {}, options, context)); });
      AmgResult again;
      times[t].rebuild.Run([&] { again = Must(RebuildAmg(last.plan, a, {}, context)); });
      times[t].solve.Run(
          [&] { solved = Must(Solve(op, again.hierarchy.get(), b, {}, solve, context)).rhs[0]; });
    }
  }
  std::printf("%s,%lld,%lld,%s,%d,%.2f,%d,%s", name.c_str(), static_cast<long long>(a.n_cols),
              static_cast<long long>(a.nnz()), Name(last.quality.smoother).data(),
              static_cast<int>(last.quality.levels.size()), last.quality.operator_complexity,
              static_cast<int>(solved.iterations),
              solved.outcome == Outcome::kConverged ? "yes" : "no");
  const auto print = [](const Taken& build, const Taken& rebuild, const Taken& solving,
                        std::vector<double> Taken::*clock) {
    const double whole = Median(build.*clock), again = Median(rebuild.*clock);
    std::printf(",%.1f,%.1f,%.2f,%.1f", whole, again, again / whole, Median(solving.*clock));
  };
  for (const Times& of : times) {
    for (const auto clock : {&Taken::processor, &Taken::wall}) {
      print(of.build, of.rebuild, of.solve, clock);
    }
  }
  std::printf(",%.1f,%.1f\n", 1e-6 * static_cast<double>(last.hierarchy->host_bytes()),
              1e-6 * static_cast<double>(HostBytes(*last.plan)));
  std::fflush(stdout);
}

// Sets the option that `given` names, "name=number". False: it names none.
bool SetOption(std::string_view given, AmgOptions* options) {
  bool found = false;
  AmgOptions::Fields(*options, [&](std::string_view name, auto& field, const auto&) {
    if (!given.starts_with(name) || !given.substr(name.size()).starts_with("=")) return;
    const std::string number(given.substr(name.size() + 1));
    field = static_cast<std::remove_reference_t<decltype(field)>>(std::atof(number.c_str()));
    found = true;
  });
  return found;
}

int Main(int argc, char** argv) {
  KeepFreedMemory();  // as the daemon does
  int rounds = 7;
  AmgOptions options;
  std::vector<std::string> files;
  std::string_view only;
  for (int k = 1; k < argc; ++k) {
    const std::string_view given = argv[k];
    const auto number = [&](size_t prefix) { return std::atoi(argv[k] + prefix); };
    if (given.starts_with("rounds=")) {
      rounds = std::max(1, number(7));
    } else if (given.starts_with("only=")) {
      only = given.substr(5);
    } else if (!SetOption(given, &options)) {
      files.emplace_back(given);
    }
  }
  if (const Status status = CheckAmgOptions(options); !status.ok()) Die(status.message());
  std::printf("case,n,nnz,smoother,levels,operator complexity,iterations,converged");
  for (const int threads : kThreads) {
    for (const char* const clock : {"processor", "wall"}) {
      std::printf(",build %d %s,rebuild %d %s,ratio %d %s,solve %d %s", threads, clock, threads,
                  clock, threads, clock, threads, clock);
    }
  }
  std::printf(",hierarchy MB,plan MB\n");
  for (const std::string& file : files) {
    const size_t slash = file.rfind('/') + 1;
    Measure(file.substr(slash, file.rfind('.') - slash), ReadMatrix(file), options, rounds);
  }
  if (!files.empty()) return 0;
  constexpr auto kExact = gallery::Rounding::kBenchmarks;
  constexpr double kSixth = 0.5235987755982988;
  const auto measure = [&](const char* name, const auto& make) {
    if (std::string_view(name).starts_with(only)) Measure(name, Columns(make()), options, rounds);
  };
  measure("poisson 64³", [] { return gallery::ConvectionDiffusion3d(64, 0); });
  measure("varcoef 64³", [] { return gallery::Jumps3d(64, 4, 3); });
  measure("convdiff 50³", [] { return gallery::ConvectionDiffusion3d(50, 20); });
  measure("aniso 400²",
          [] { return Exactly(gallery::RotatedAnisotropy2d(400, 1e-3, kSixth, kExact)); });
  measure("elasticity 20³", [] { return Exactly(gallery::Elasticity3d(20, kExact)); });
  return 0;
}

}  // namespace
}  // namespace spaid::kernels::bench

int main(int argc, char** argv) { return spaid::kernels::bench::Main(argc, argv); }
