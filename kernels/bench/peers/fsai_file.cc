// Builds FSAI on a matrix file and solves with CG, one JSON object a run on standard output: our
// side of compare_fsai.py. As hypre_bench does: b = A·1, x0 = 0, relative residual 1e-7, at most
// 10000 iterations; the file is that of hypre_bench.
//
//   spaid_fsai_file A.bin [adaptive=1] [k_max=30] [s=1] [epsilon=0.001] [min_gain=0] [power=1]
//                   [drop_tol=0] [fp32=0] [copy=1] [threads=2] [runs=5] [solve=1] [limit=10000]
//   spaid_fsai_file --write=A.bin poisson|varying|aniso|elasticity|p27 SIZE
//
// copy=0: every row is grown. varying: poisson with coefficients that vary.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "kernels/bench/matrix_file.h"
#include "kernels/bench/problems.h"
#include "kernels/fsai/fsai.h"
#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"

namespace spaid::kernels::bench {
namespace {

template <class T>
void Put(std::FILE* file, const std::vector<T>& array) {
  if (std::fwrite(array.data(), sizeof(T), array.size(), file) != array.size()) {
    Die("the file is cut short");
  }
}

int Write(const std::string& path, const std::string& name, int size) {
  CscMatrix a;
  if (name == "poisson") {
    a = ConvectionDiffusion(size, 0);
  } else if (name == "varying") {
    a = WithVaryingCoefficients(ConvectionDiffusion(size, 0));
  } else if (name == "p27") {
    a = Laplacian27(size);
  } else if (name == "elasticity") {
    a = Elasticity(size);
  } else if (name == "aniso") {
    a = Anisotropic(size, 1e-3, std::numbers::pi / 8);
  } else {
    Die("no problem " + name);
  }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) Die("cannot write " + path);
  const std::vector<int64_t> header = {a.n_cols, a.nnz()};
  const std::vector<int32_t> pointers(a.col_ptr.begin(), a.col_ptr.end());
  const std::vector<int32_t> indices(a.row_idx.begin(), a.row_idx.end());
  const std::vector<double> values(a.values.begin(), a.values.end());
  Put(file, header);
  Put(file, pointers);
  Put(file, indices);
  Put(file, values);
  return std::fclose(file);
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// CPU time of all threads: what a busy machine disturbs least.
double ProcessorMs() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

int Run(const std::string& path, std::map<std::string, double> with) {
  const CscMatrix a = ReadMatrix(path);
  const auto value = [&](const char* name, double otherwise) {
    const auto at = with.find(name);
    return at == with.end() ? otherwise : at->second;
  };
  FsaiOptions options;
  options.adaptive = value("adaptive", 1) != 0;
  options.k_max = static_cast<int>(value("k_max", 30));
  options.s = static_cast<int>(value("s", 1));
  options.epsilon = value("epsilon", 1e-3);
  options.min_gain = value("min_gain", 0);
  options.power = static_cast<int>(value("power", 1));
  options.drop_tol = value("drop_tol", 0);
  if (value("copy", 1) == 0) options.repeat_hash_bits = 0;
  if (value("fp32", 0) != 0) options.precision = Precision::kFp32;
  const Context context{
      .stop = {}, .progress = nullptr, .threads = static_cast<int>(value("threads", 2))};
  const CsrOperator op = CsrOperator::FromColumns(a);
  const Array<double> ones(static_cast<size_t>(a.n_cols), 1.0);
  Array<double> b(ones.size());
  op.Apply(ones, b, context.threads);
  std::vector<double> setup, setup_cpu, solve;
  FsaiQuality quality;
  int64_t iterations = 0;
  double residual = 0;
  for (int run = 0; run < static_cast<int>(value("runs", 5)); ++run) {
    const double cpu = ProcessorMs();
    const auto t0 = std::chrono::steady_clock::now();
    const Result<FsaiResult> g = BuildFsai(a, nullptr, options, context);
    if (!g.ok()) Die(g.status().message());
    const auto t1 = std::chrono::steady_clock::now();
    setup_cpu.push_back(ProcessorMs() - cpu);
    quality = g->quality;
    setup.push_back(std::chrono::duration<double, std::milli>(t1 - t0).count());
    if (value("solve", 1) == 0) continue;
    const auto t2 = std::chrono::steady_clock::now();
    const auto m = FactoredOperator::FromRows(g->g_rows, context);
    if (!m.ok()) Die(m.status().message());
    const SolveOptions cg{.method = Method::kCg,
                          .rtol = 1e-7,
                          .max_iterations = static_cast<int64_t>(value("limit", 10000)),
                          .keep_history = false};
    const auto solved = Solve(op, &*m, b, {}, cg, context);
    if (!solved.ok()) Die(solved.status().message());
    const auto t3 = std::chrono::steady_clock::now();
    solve.push_back(std::chrono::duration<double, std::milli>(t3 - t2).count());
    iterations = solved->rhs[0].iterations;
    residual = solved->rhs[0].true_relative_residual;
  }
  std::printf(
      "{\"peer\": \"spaid\", \"n\": %lld, \"nnz\": %lld, \"setup_ms\": %.3f, \"setup_cpu_ms\": "
      "%.3f, \"solve_ms\": %.3f, "
      "\"iterations\": %lld, \"true_relative_residual\": %.3e, \"density\": %.4f, \"kaporin\": "
      "%.6g, \"counted_flops\": %.4g, \"not_spd_rows\": %lld, \"steps\": %d, \"copied_rows\": "
      "%lld}\n",
      static_cast<long long>(a.n_cols), static_cast<long long>(a.nnz()), Median(setup),
      Median(setup_cpu), solve.empty() ? 0.0 : Median(solve), static_cast<long long>(iterations),
      residual, quality.density, quality.kaporin, quality.flops,
      static_cast<long long>(quality.not_spd_rows), quality.steps,
      static_cast<long long>(quality.copied_rows));
  return 0;
}

}  // namespace
}  // namespace spaid::kernels::bench

int main(int argc, char** argv) {
  namespace bench = spaid::kernels::bench;
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 3 && args[0].rfind("--write=", 0) == 0) {
    return bench::Write(args[0].substr(8), args[1], std::atoi(args[2].c_str()));
  }
  if (args.empty()) bench::Die("usage: spaid_fsai_file A.bin [name=value]...");
  std::map<std::string, double> with;
  for (size_t i = 1; i < args.size(); ++i) {
    const size_t at = args[i].find('=');
    if (at == std::string::npos) bench::Die("not name=value: " + args[i]);
    with[args[i].substr(0, at)] = std::atof(args[i].c_str() + at + 1);
  }
  return bench::Run(args[0], with);
}
