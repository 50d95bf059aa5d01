// spaidctl against the real daemon: what it prints, its JSON, its exit codes, Ctrl-C.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spaid/client.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "client/cli/gallery.h"
#include "client/cli/matrix_market.h"
#include "golden.h"
#include "tests/client/cli/json_keys.h"
#include "tests/client/cli/run_spaidctl.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"

extern char** environ;

namespace spaid::e2e {
namespace {

using cli::Finished;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// How spaidctl may be started: its environment, and what it inherits.
struct Start {
  const char* name;
  bool threads_before_main = false;  // a library's own, which any signal may reach
  bool blocked = false, ignored = false;
};

class Cli : public OneDaemon {
 protected:
  static Finished Run(std::vector<std::string> args) {
    args.insert(args.begin(), "--address=" + daemon_->address());
    return cli::RunSpaidctl(args);
  }
  // Exactly one object on stdout, nothing on stderr.
  static json RunJson(std::vector<std::string> args, int exit_code = 0) {
    args.insert(args.begin(), "--json");
    const Finished finished = Run(args);
    EXPECT_EQ(finished.exit_code, exit_code) << finished.out << finished.err;
    if (exit_code == 0) {
      EXPECT_THAT(finished.err, IsEmpty());
    }
    return json::parse(finished.out);
  }
  // A solve that runs for long unless it is told to stop: thousands of iterations, half a million
  // rows.
  static std::vector<std::string> EndlessSolve() {
    return {"solve",       "gallery:aniso:700", "--engine=none",
            "--method=cg", "--rtol=1e-300",     "--max-iterations=2147483647"};
  }
  static std::string DetachEndless() {
    std::vector<std::string> args = EndlessSolve();
    args.emplace_back("--detach");
    return RunJson(args).at("job");
  }
  static void ExpectCancelledByCtrlC(const Start& start);
  TempDir folder_;
};

TEST_F(Cli, SolvesAFileAndWritesTheSolution) {
  const CscMatrix a = ConvectionDiffusion(30, 20, 0.5);
  const std::vector<double> b = SmoothRhs(a);
  const std::string a_file = folder_ / "A.mtx.gz", b_file = folder_ / "b.mtx",
                    x_file = folder_ / "x.mtx";
  ASSERT_FALSE(cli::WriteMatrix(a_file, a));
  ASSERT_FALSE(cli::WriteVectors(b_file, a.n, 1, b));
  const json object = RunJson({"solve", a_file, "--rhs=" + b_file, "--engine=static-spai",
                               "--method=bicgstab", "--rtol=1e-9", "--out=" + x_file});
  EXPECT_EQ(object.at("outcome"), "CONVERGED");
  EXPECT_EQ(object.at("engine"), "static-spai");
  EXPECT_EQ(object.at("method"), "bicgstab");
  EXPECT_EQ(object.at("device"), "cpu");
  EXPECT_EQ(object.at("n"), a.n);
  EXPECT_EQ(object.at("nnz"), a.col_ptr.back());
  EXPECT_GT(object.at("iterations"), 0);
  EXPECT_LE(object.at("true_relative_residual"), 1e-9);
  EXPECT_GT(object.at("setup_ms"), 0);
  EXPECT_GT(object.at("solve_ms"), 0);
  EXPECT_GE(object.at("total_ms").get<double>(), object.at("solve_ms").get<double>());
  EXPECT_NEAR(object.at("nnz_ratio").get<double>(), 1, 1e-12);
  const auto x = cli::ReadVectors(x_file);
  ASSERT_TRUE(x.ok()) << x.error().message;
  EXPECT_LE(RelativeResidual(a, x->values, b), 1.001e-9);
}

TEST_F(Cli, SolveSpeaksToPeople) {
  const Finished finished = Run({"solve", "gallery:poisson:10", "--rhs=random", "--rhs-count=2"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("CONVERGED after "));
  EXPECT_THAT(finished.out, HasSubstr("n 1,000   nnz 6,400"));
  EXPECT_THAT(finished.out, HasSubstr("chosen"));  // AUTO says why
  EXPECT_THAT(finished.out, ::testing::Not(HasSubstr("\033")));
  EXPECT_THAT(finished.err, HasSubstr("running on cpu\n"));  // plain progress lines in a pipe
  EXPECT_THAT(Run({"-q", "solve", "gallery:poisson:10"}).err, IsEmpty());
}

TEST_F(Cli, AutoClimbsAndTellsEachRung) {
  // 10,000 unknowns, indefinite.
  const std::vector<std::string> solve = {"solve", "gallery:helmholtz:100", "--rhs=random"};
  std::vector<std::string> from_the_bottom = solve;
  from_the_bottom.push_back("--learned=off");
  const json solved = RunJson(from_the_bottom);
  EXPECT_EQ(solved.at("outcome"), "CONVERGED");
  const json& rungs = solved.at("rungs");
  ASSERT_GE(rungs.size(), 2u);
  EXPECT_NE(rungs.front().at("left"), "");
  EXPECT_EQ(rungs.back().at("left"), "");
  EXPECT_EQ(solved.at("method"), rungs.back().at("method"));
  EXPECT_EQ(solved.at("engine"), rungs.back().at("engine"));
  EXPECT_LE(rungs.back().at("relative_residual").get<double>(), 1e-8);
  int64_t iterations = 0;
  for (const json& rung : rungs) iterations += rung.at("iterations").get<int64_t>();
  EXPECT_EQ(solved.at("iterations"), iterations);
  EXPECT_EQ(RunJson(from_the_bottom).at("iterations"), iterations)
      << "the same request ends the same";
  const Finished told = Run(solve);
  EXPECT_THAT(told.out, ::testing::ContainsRegex("tried +jacobi, cg: "));
  EXPECT_THAT(told.out, ::testing::ContainsRegex("solved by +dynamic SPAI"));
  EXPECT_THAT(told.err, HasSubstr("left   jacobi, cg: "));
  // The rung that did it is where the next one begins, and it says so.
  std::vector<std::string> explained = solve;
  explained.push_back("--explain");
  const Finished again = Run(explained);
  EXPECT_THAT(again.out, HasSubstr("it solved an earlier system on this pattern"));
  EXPECT_THAT(again.out, ::testing::ContainsRegex("next time +AUTO begins with"));
  EXPECT_THAT(again.out, Not(HasSubstr("tried ")));
  explained.push_back("--engine=jacobi");
  explained.push_back("--max-iterations=1");
  EXPECT_THAT(Run(explained).out, HasSubstr("the engine was named"));
}

TEST_F(Cli, SolveStoresMAsToldAndShowsItsSpeed) {
  const json solved =
      RunJson({"solve", "gallery:convdiff:20", "--engine=static-spai", "--m-precision=fp32"});
  EXPECT_EQ(solved.at("m_precision"), "fp32");
  EXPECT_EQ(solved.at("figures").at("iterations"), solved.at("iterations"));
  EXPECT_GT(solved.at("figures").at("copy_bytes_per_second").get<double>(), 0);
  const Finished finished = Run({"solve", "gallery:convdiff:20", "--engine=static-spai"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, ::testing::ContainsRegex("M stored +fp(32|64): "));
  EXPECT_THAT(finished.out,
              ::testing::ContainsRegex("speed +[0-9,]+ iterations/s, .* of a copy's"));
  EXPECT_EQ(Run({"solve", "gallery:convdiff:20", "--m-precision=fp16"}).exit_code, 2);
}

TEST_F(Cli, ExitCodeThreeIsAnHonestOutcome) {
  const json object = RunJson(
      {"solve", "gallery:aniso:60", "--engine=none", "--method=bicgstab", "--max-iterations=3"}, 3);
  EXPECT_EQ(object.at("outcome"), "MAX_ITERATIONS");
  EXPECT_GT(object.at("true_relative_residual"), 1e-8);
  EXPECT_TRUE(object.contains("findings"));
  const Finished text = Run({"solve", "gallery:graph:300", "--rhs=random", "--engine=none",
                             "--method=bicgstab", "--max-iterations=2"});
  EXPECT_EQ(text.exit_code, 3);
  EXPECT_THAT(text.out, HasSubstr("What the matrix says:\n  - "));
}

TEST_F(Cli, SingularSystemsAreSolvedAsFarAsTheyCanBe) {
  // Nothing flows through the boundary: 5-point Laplacian, each row's sum zero.
  constexpr int kNx = 20, kNy = 15;
  CscMatrix a = Poisson(kNx, kNy);
  for (int64_t j = 0; j < a.n; ++j) {
    double sum = 0;
    int64_t diagonal = 0;
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      if (a.row_idx[p] == j) {
        diagonal = p;
      } else {
        sum += a.values[p];
      }
    }
    a.values[diagonal] = -sum;
  }
  std::vector<double> x(a.n), ones(a.n, 1.0);
  for (int64_t i = 0; i < a.n; ++i) x[i] = std::sin(static_cast<double>(i));
  const std::vector<double> b = Multiply(a, x);
  std::vector<double> shifted = b;
  for (double& v : shifted) v += 1;
  const std::string a_file = folder_ / "A.mtx", b_file = folder_ / "b.mtx",
                    shifted_file = folder_ / "shifted.mtx", ones_file = folder_ / "ones.mtx",
                    x_file = folder_ / "x.mtx";
  ASSERT_FALSE(cli::WriteMatrix(a_file, a));
  ASSERT_FALSE(cli::WriteVectors(b_file, a.n, 1, b));
  ASSERT_FALSE(cli::WriteVectors(shifted_file, a.n, 1, shifted));
  ASSERT_FALSE(cli::WriteVectors(ones_file, a.n, 1, ones));

  for (const std::string engine : {"auto", "jacobi", "fsai", "static-spai"}) {
    const json solved =
        RunJson({"solve", a_file, "--rhs=" + b_file, "--engine=" + engine, "--out=" + x_file});
    EXPECT_EQ(solved.at("outcome"), "CONVERGED") << engine;
    EXPECT_EQ(solved.at("null_space"), "constants");
    EXPECT_LE(solved.at("unreachable").get<double>(), 1e-14);
    const auto found = cli::ReadVectors(x_file);
    ASSERT_TRUE(found.ok());
    double sum = 0;
    for (const double v : found->values) sum += v;
    EXPECT_NEAR(sum, 0, 1e-9) << engine;

    // √n of ‖b + 1‖ cannot be reached; AUTO does not climb for it.
    const json stuck = RunJson({"solve", a_file, "--rhs=" + shifted_file, "--engine=" + engine}, 3);
    EXPECT_EQ(stuck.at("outcome"), "STAGNATED") << engine;
    const double b_norm = std::sqrt(std::inner_product(b.begin(), b.end(), b.begin(), 0.0));
    const double share =
        std::sqrt(double{kNx * kNy}) / std::hypot(std::sqrt(double{kNx * kNy}), b_norm);
    EXPECT_NEAR(stuck.at("unreachable").get<double>(), share, 1e-9) << engine;
    EXPECT_NEAR(stuck.at("true_relative_residual").get<double>(), share, 1e-7);
    EXPECT_THAT(stuck.at("detail").get<std::string>(), HasSubstr("that no x reaches"));
    EXPECT_THAT(stuck.at("detail").get<std::string>(), HasSubstr("the rest is solved to"));
    EXPECT_EQ(stuck.at("rungs").size(), 0u) << stuck.at("rungs");
  }
  std::vector<double> both = shifted;
  both.insert(both.end(), b.begin(), b.end());
  ASSERT_FALSE(cli::WriteVectors(shifted_file, a.n, 2, both));
  const json rhs = RunJson({"solve", a_file, "--rhs=" + shifted_file}, 3).at("rhs");
  EXPECT_EQ(rhs[0].at("outcome"), "STAGNATED");
  EXPECT_GT(rhs[0].at("unreachable").get<double>(), 0.1);
  EXPECT_EQ(rhs[1].at("outcome"), "CONVERGED");
  EXPECT_LE(rhs[1].at("unreachable").get<double>(), 1e-14);
  const json given =
      RunJson({"solve", a_file, "--rhs=" + b_file, "--engine=jacobi", "--null-space=" + ones_file});
  EXPECT_EQ(given.at("null_space"), "1 given vector");
  EXPECT_EQ(RunJson({"solve", a_file, "--rhs=" + b_file, "--engine=jacobi", "--null-space=none"})
                .at("null_space"),
            "");
  EXPECT_EQ(RunJson({"solve", a_file, "--rhs=" + b_file, "--null-space=" + b_file}, 1)
                .at("error")
                .at("reason"),
            "NOT_IN_NULL_SPACE");
  const Finished told = Run({"solve", a_file, "--rhs=" + shifted_file, "--engine=jacobi"});
  EXPECT_EQ(told.exit_code, 3);
  EXPECT_THAT(told.out, ::testing::ContainsRegex("null space +constants, projected out"));
}

TEST_F(Cli, RefusalsOfTheServerAreErrors) {
  const Finished finished =
      Run({"solve", "gallery:poisson:8", "--engine=static-spai", "--method=cg"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("PRECONDITIONER_NOT_SPD"));
  EXPECT_EQ(RunJson({"matrices", "matrices/unknown"}, 1).at("error").at("reason"),
            "HANDLE_UNKNOWN");
  EXPECT_EQ(RunJson({"watch", "jobs/unknown"}, 1).at("error").at("code"), "NOT_FOUND");
}

TEST_F(Cli, FilesThatCannotBeSolvedAreErrorsWithTheirReason) {
  const std::string head = "%%MatrixMarket matrix coordinate ";
  const std::vector<std::array<std::string, 2>> files = {
      {"MATRIX_COMPLEX", head + "complex general\n1 1 1\n1 1 1.0 0.5\n"},
      {"MATRIX_PATTERN", head + "pattern general\n1 1 1\n1 1\n"},
      {"MATRIX_SKEW_SYMMETRIC", head + "real skew-symmetric\n2 2 1\n2 1 1.0\n"},
      {"FILE_TRUNCATED", head + "real general\n2 2 2\n1 1 1.0\n"},
      {"NOT_MATRIX_MARKET", "1 1 1\n1 1 1.0\n"},
      {"NOT_SQUARE", head + "real general\n2 3 2\n1 1 1.0\n2 2 1.0\n"}};
  for (const auto& [reason, text] : files) {
    const std::string file = folder_ / (reason + ".mtx");
    std::ofstream(file) << text;
    const json error = RunJson({"solve", file}, 1).at("error");
    EXPECT_EQ(error.at("reason"), reason) << error;
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr(file));
    const Finished said = Run({"solve", file});
    EXPECT_EQ(said.exit_code, 1);
    EXPECT_THAT(said.err, HasSubstr(reason));
    EXPECT_THAT(said.out, IsEmpty());
  }
  EXPECT_EQ(Run({"info"}).exit_code, 0);
}

TEST_F(Cli, BlocksOfJacobiAreNamed) {
  const json built =
      RunJson({"build", "gallery:elasticity:5", "--engine=jacobi", "--block-size=3"});
  EXPECT_EQ(built.at("spec").at("block_size"), 3);
  const json solved =
      RunJson({"solve", "gallery:elasticity:5", "--engine=jacobi", "--block-size=3"});
  EXPECT_EQ(solved.at("method"), "cg");
  EXPECT_EQ(
      RunJson({"build", "gallery:elasticity:5", "--engine=jacobi"}).at("spec").at("block_size"), 1);
}

TEST_F(Cli, BuildKeepsMAndSolveTakesItByHandle) {
  const std::string m_file = folder_ / "M.mtx";
  const json built = RunJson({"build", "gallery:convdiff:12", "--pattern-power=2",
                              "--local-solver=qr", "--precond-out=" + m_file});
  const std::string name = built.at("preconditioner");
  EXPECT_THAT(name, StartsWith("preconditioners/"));
  EXPECT_EQ(built.at("spec").at("pattern_power"), 2);
  const auto a = cli::Generate("convdiff", 12);
  const auto m = cli::ReadMatrix(m_file);
  ASSERT_TRUE(m.ok()) << m.error().message;
  EXPECT_NEAR(InverseResidual(*a, *m), built.at("quality").at("residual_frobenius").get<double>(),
              1e-9);

  const json solved = RunJson({"solve", "gallery:convdiff:12", "--preconditioner=" + name});
  EXPECT_EQ(solved.at("preconditioner"), name);

  // By the matrix's handle, with b from a file.
  const std::string b_file = folder_ / "b.mtx";
  ASSERT_FALSE(cli::WriteVectors(b_file, a->n, 1, std::vector<double>(a->n, 1.0)));
  const std::string matrix = built.at("matrix");
  EXPECT_EQ(RunJson({"solve", matrix, "--rhs=" + b_file}).at("n"), a->n);
  EXPECT_EQ(RunJson({"solve", matrix}, 1).at("error").at("reason"), "RHS_NEEDS_MATRIX");

  const json listed = RunJson({"preconditioners"});
  EXPECT_THAT(listed.dump(), HasSubstr(name));
  const std::string again = folder_ / "M2.mtx.gz";
  EXPECT_EQ(RunJson({"preconditioners", name, "--download=" + again}).at("n"), a->n);
  EXPECT_EQ(cli::ReadMatrix(again)->values, m->values);
  EXPECT_EQ(RunJson({"preconditioners", name, "--delete"}).at("deleted"), name);
  EXPECT_EQ(RunJson({"preconditioners", name}, 1).at("error").at("code"), "NOT_FOUND");
}

TEST_F(Cli, BuildsFsaiAndSaysThatItIsAFactor) {
  const std::string g_file = folder_ / "G.mtx";
  const std::vector<std::string> build = {"build", "gallery:poisson:9", "--engine=afsai",
                                          "--k-max=6", "--step-size=2"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> words = build;
    words.insert(words.end(), more);
    return words;
  };
  const json built = RunJson(with({"--precond-out=" + g_file}));
  const std::string name = built.at("preconditioner");
  EXPECT_TRUE(built.at("is_factor"));
  EXPECT_EQ(built.at("spec").at("k_max"), 6);
  EXPECT_EQ(built.at("spec").at("step_size"), 2);
  EXPECT_TRUE(built.at("quality").at("residual_frobenius").is_null());
  EXPECT_LT(built.at("quality").at("fsai").at("kaporin").get<double>(), 1);
  const auto g = cli::ReadMatrix(g_file);
  ASSERT_TRUE(g.ok()) << g.error().message;
  EXPECT_EQ(static_cast<int64_t>(g->values.size()), built.at("nnz").get<int64_t>());
  const json sparser = RunJson(with({"--min-gain=0.05"}));
  EXPECT_EQ(sparser.at("spec").at("min_gain"), 0.05);
  EXPECT_LT(sparser.at("nnz").get<int64_t>(), built.at("nnz").get<int64_t>());
  for (int64_t j = 0; j < g->n; ++j) EXPECT_EQ(g->row_idx[g->col_ptr[j]], j) << "lower triangular";

  const Finished text = Run({"preconditioners", name});
  EXPECT_THAT(text.out, HasSubstr("afsai, 6 x 2"));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("kaporin +0\\.[0-9]+ of Jacobi's"));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("growth +6 steps at most"));
  EXPECT_THAT(Run({"preconditioners", name, "--download=" + g_file}).out,
              HasSubstr("G (lower triangular, M = G'G) is in " + g_file));
  const json solved = RunJson({"solve", "gallery:poisson:9", "--preconditioner=" + name});
  EXPECT_EQ(solved.at("method"), "cg");
  EXPECT_EQ(solved.at("engine"), "afsai");

  const json estimate =
      RunJson({"estimate", "gallery:poisson:9", "--engine=afsai", "--k-max=6", "--step-size=2"});
  EXPECT_GE(estimate.at("nnz"), built.at("nnz"));
  const json fixed = RunJson({"build", "gallery:poisson:9", "--engine=fsai", "--pattern-power=2",
                              "--drop-tol=0.05", "--post-filter=0.01", "--fsai-precision=fp32"});
  EXPECT_EQ(fixed.at("spec").at("pattern_power"), 2);
  EXPECT_EQ(fixed.at("spec").at("drop_tol"), 0.05);
  EXPECT_EQ(fixed.at("spec").at("precision"), "fp32");
  EXPECT_TRUE(RunJson(with({"--regrow"})).at("spec").at("regrow"));
  EXPECT_EQ(RunJson(with({"--time-budget=60"})).at("spec").at("time_budget_ms"), 60000);
  EXPECT_EQ(RunJson({"build", "gallery:convdiff:6", "--engine=fsai"}, 1).at("error").at("reason"),
            "NOT_SYMMETRIC");
  EXPECT_EQ(Run(with({"--epsilon=1"})).exit_code, 2);
}

TEST_F(Cli, BuildsDynamicSpaiAndTellsHowItGrew) {
  const std::string m_file = folder_ / "M.mtx";
  const std::vector<std::string> build = {"build", "gallery:convdiff:9", "--engine=dynamic-spai",
                                          "--column-tol=0.2", "--max-steps=4"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> words = build;
    words.insert(words.end(), more);
    return words;
  };
  const json built = RunJson(with({"--precond-out=" + m_file}));
  const std::string name = built.at("preconditioner");
  EXPECT_FALSE(built.at("is_factor"));
  EXPECT_EQ(built.at("spec").at("tol"), 0.2);
  EXPECT_EQ(built.at("spec").at("max_steps"), 4);
  EXPECT_EQ(built.at("spec").at("step_size"), 5);
  EXPECT_GT(built.at("quality").at("residual_frobenius").get<double>(), 0);
  const json growth = built.at("quality").at("dynamic_spai");
  EXPECT_EQ(growth.at("residual_by_step").size(), 5u);
  EXPECT_LE(growth.at("nnz_column_max").get<int64_t>(), 1 + 4 * 5);
  const auto m = cli::ReadMatrix(m_file);
  ASSERT_TRUE(m.ok()) << m.error().message;
  EXPECT_EQ(static_cast<int64_t>(m->values.size()), built.at("nnz").get<int64_t>());

  const Finished text = Run({"preconditioners", name});
  EXPECT_THAT(text.out, HasSubstr("dynamic-spai, 4 x 5"));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("growth +[0-9]+ of 729 columns met their"));
  EXPECT_THAT(text.out, HasSubstr("|AM - I|"));
  const json solved = RunJson({"solve", "gallery:convdiff:9", "--preconditioner=" + name});
  EXPECT_EQ(solved.at("method"), "bicgstab");
  EXPECT_EQ(solved.at("engine"), "dynamic-spai");

  std::vector<std::string> estimate = build;
  estimate[0] = "estimate";
  EXPECT_GE(RunJson(estimate).at("nnz"), built.at("nnz"));
  const json spec = RunJson(with({"--step-size=3", "--max-column-nnz=6", "--growth-precision=fp32",
                                  "--post-filter=0.01", "--local-solver=qr", "--regrow"}))
                        .at("spec");
  EXPECT_EQ(spec.at("step_size"), 3);
  EXPECT_EQ(spec.at("max_column_nnz"), 6);
  EXPECT_EQ(spec.at("growth_precision"), "fp32");
  EXPECT_EQ(spec.at("post_filter"), 0.01);
  EXPECT_EQ(spec.at("local_solver"), "qr");
  EXPECT_TRUE(spec.at("regrow"));
}

TEST_F(Cli, TellsWhatBecameOfTheMThatWasNamed) {
  const auto put = [&](const char* file, const char* corner) {
    const std::string path = folder_ / file;
    std::ofstream(path) << "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 " << corner
                        << "\n2 1 1\n2 2 3\n";
    return path;
  };
  const std::string first = put("first.mtx", "4"), next = put("next.mtx", "5");
  const std::string m = RunJson({"build", first, "--engine=fsai"}).at("preconditioner");
  const std::string named = "--preconditioner=" + m;
  const json kept = RunJson({"solve", first, named, "--reuse=auto"});
  EXPECT_EQ(kept.at("reuse").at("decision"), "kept");
  EXPECT_EQ(kept.at("reuse").at("first_iterations"), kept.at("iterations"));
  const json second = RunJson({"solve", next, named, "--reuse=auto", "--reuse-factor=3"});
  EXPECT_EQ(second.at("reuse").at("decision"), "kept");
  EXPECT_EQ(second.at("preconditioner"), m);
  const json rebuilt = RunJson({"solve", next, named, "--reuse=rebuild"});
  EXPECT_EQ(rebuilt.at("reuse").at("decision"), "rebuilt");
  EXPECT_NE(rebuilt.at("preconditioner"), m);
  const Finished text = Run({"solve", next, named, "--reuse=rebuild"});
  EXPECT_THAT(text.out, ::testing::ContainsRegex("rebuilt +the request rebuilds M"));
  EXPECT_THAT(text.out, HasSubstr(rebuilt.at("preconditioner").get<std::string>()));
  EXPECT_THAT(Run({"solve", next, named}).out,
              ::testing::ContainsRegex("kept +the request keeps M"));
}

TEST_F(Cli, ScalesWhatIsBadlyScaled) {
  const std::string file = folder_ / "S.mtx";
  std::ofstream(file) << "%%MatrixMarket matrix coordinate real general\n3 3 5\n"
                         "1 2 1e12\n1 3 2e12\n2 1 3e-9\n3 3 4\n3 1 1e-2\n";
  const std::vector<std::string> build = {"build", file, "--engine=static-spai",
                                          "--scaling=matching"};
  const json built = RunJson(build);
  EXPECT_EQ(built.at("spec").at("scaling"), "matching");
  EXPECT_EQ(built.at("quality").at("scaling"), "matching");
  EXPECT_FALSE(built.at("quality").at("scaling_reused"));
  std::vector<std::string> anew = build;
  anew.push_back("--regrow");
  EXPECT_TRUE(RunJson(anew).at("spec").at("regrow"));
  const std::string name = built.at("preconditioner");
  EXPECT_THAT(Run({"preconditioners", name}).out, ::testing::ContainsRegex("scaling +matching"));
  const json solved = RunJson({"solve", file, "--preconditioner=" + name, "--method=bicgstab"});
  EXPECT_EQ(solved.at("outcome"), "CONVERGED");
  EXPECT_LE(solved.at("true_relative_residual").get<double>(), 1e-8);
  std::vector<std::string> estimate = build;
  estimate[0] = "estimate";
  EXPECT_GE(RunJson(estimate).at("nnz"), built.at("nnz"));
  const json refused = RunJson({"build", file, "--engine=fsai", "--scaling=matching"}, 1);
  EXPECT_EQ(refused.at("error").at("reason"), "BAD_SCALING");
  EXPECT_EQ(refused.at("error").at("field"), "header.spec.scaling");
  EXPECT_EQ(Run({"build", file, "--scaling=all"}).exit_code, 2);
}

TEST_F(Cli, UploadEstimateListAndDelete) {
  const std::string pattern = folder_ / "P.mtx";
  std::ofstream(pattern) << "%%MatrixMarket matrix coordinate pattern symmetric\n"
                            "3 3 5\n1 1\n2 2\n3 3\n2 1\n3 2\n";
  const json uploaded = RunJson({"upload", pattern, "--pattern-only", "--label=path"});
  EXPECT_TRUE(uploaded.at("pattern_only"));
  EXPECT_EQ(uploaded.at("nnz"), 7);
  const json estimate = RunJson({"estimate", pattern, "--pattern-power=2"});
  EXPECT_GE(estimate.at("nnz"), 9);
  EXPECT_GT(estimate.at("host_bytes"), 0);
  // The pattern as the base of a build on a matrix with values.
  const std::string a_file = folder_ / "A.mtx";
  std::ofstream(a_file) << "%%MatrixMarket matrix coordinate real general\n"
                           "3 3 3\n1 1 2\n2 2 4\n3 3 8\n";
  EXPECT_EQ(RunJson({"build", a_file, "--pattern=" + pattern}).at("nnz"), 7);

  const std::string name = uploaded.at("name");
  EXPECT_THAT(Run({"matrices"}).out, HasSubstr(name));
  EXPECT_THAT(Run({"matrices", name}).out, HasSubstr("pattern only"));
  EXPECT_EQ(RunJson({"matrices", name, "--delete"}).at("deleted"), name);
  EXPECT_EQ(RunJson({"matrices", name}, 1).at("error").at("code"), "NOT_FOUND");
}

TEST_F(Cli, InfoShowsTheServer) {
  const json info = RunJson({"info"});
  EXPECT_THAT(info.at("engines").dump(), HasSubstr("static-spai"));
  const Finished text = Run({"info"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr(info.at("version").get<std::string>()));
  EXPECT_THAT(text.out, HasSubstr("cpu"));
}

TEST_F(Cli, DetachedJobIsWatchedAndCancelled) {
  const std::string job = DetachEndless();
  EXPECT_THAT(job, StartsWith("jobs/"));
  EXPECT_THAT(RunJson({"jobs"}).dump(), HasSubstr(job));
  EXPECT_THAT(RunJson({"jobs", job}).at("state"), ::testing::AnyOf("queued", "running"));
  EXPECT_EQ(RunJson({"cancel", job}).at("job"), job);
  const json ended = RunJson({"watch", job}, 1);
  EXPECT_EQ(ended.at("state"), "cancelled");
}

TEST_F(Cli, AdministratorsSeeAndCancelEverybodysJobs) {
  const auto tokens = [&](const std::string& name, const std::string& text) {
    const std::string file = folder_ / name;
    std::ofstream(file) << text;
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    return file;
  };
  Daemon daemon({"--tokens=" + tokens("tokens", "anna-token-0123456789 anna\n"),
                 "--admin-tokens=" + tokens("admins", "root-token-0123456789 operators\n")});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const std::string anna = "SPAID_TOKEN=anna-token-0123456789";
  const std::string root = "SPAID_ADMIN_TOKEN=root-token-0123456789";
  const auto run = [&](std::vector<std::string> args, const std::vector<std::string>& environment) {
    args.insert(args.begin(), {"--json", "--address=" + daemon.address()});
    return cli::RunSpaidctl(args, environment);
  };
  EXPECT_THAT(run({"jobs"}, {}).err, HasSubstr("NO_CREDENTIALS"));
  std::vector<std::string> endless = EndlessSolve();
  endless.emplace_back("--detach");
  const Finished started = run(endless, {anna});
  ASSERT_EQ(started.exit_code, 0) << started.err;
  const std::string job = json::parse(started.out).at("job");

  EXPECT_THAT(run({"jobs", "--all-tenants"}, {anna}).err, HasSubstr("NOT_ADMINISTRATOR"));
  const Finished listed = run({"jobs", "--all-tenants"}, {root});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_EQ(json::parse(listed.out).at("jobs").at(0).at("job"), job);
  EXPECT_EQ(json::parse(listed.out).at("jobs").at(0).at("tenant"), "anna");
  const Finished table =
      cli::RunSpaidctl({"--address=" + daemon.address(), "jobs", "--all-tenants"}, {root});
  EXPECT_THAT(table.out, HasSubstr("anna"));
  const json info = json::parse(run({"info"}, {anna, root}).out);
  EXPECT_EQ(info.at("administrator"), true);
  EXPECT_EQ(info.at("queued").get<int>() + info.at("running").get<int>(), 1);
  EXPECT_EQ(json::parse(run({"info"}, {anna}).out).at("administrator"), false);

  EXPECT_EQ(run({"cancel", job}, {root}).exit_code, 0);
  EXPECT_EQ(json::parse(run({"watch", job}, {anna}).out).at("state"), "cancelled");
  const Finished one = run({"jobs", job}, {root});
  EXPECT_EQ(json::parse(one.out).at("tenant"), "anna");
}

TEST_F(Cli, WatchGivesTheOutcomesExitCode) {
  const std::string good = RunJson({"solve", "gallery:poisson:8", "--detach"}).at("job");
  const json converged = RunJson({"watch", good});
  EXPECT_EQ(converged.at("outcomes").at(0).at("outcome"), "CONVERGED");
  const std::string bad = RunJson({"solve", "gallery:aniso:60", "--engine=none", "--detach",
                                   "--method=bicgstab", "--max-iterations=2"})
                              .at("job");
  EXPECT_EQ(RunJson({"watch", bad}, 3).at("outcomes").at(0).at("outcome"), "MAX_ITERATIONS");
}

TEST_F(Cli, WatchFetchesWhatADetachedSolveFound) {
  const std::string x_file = folder_ / "x.mtx";
  const std::string job =
      RunJson({"solve", "gallery:poisson:8", "--rhs=ones", "--rtol=1e-10", "--detach"}).at("job");
  RunJson({"watch", job, "--out=" + x_file});
  const auto x = cli::ReadVectors(x_file);
  ASSERT_TRUE(x.ok()) << x.error().message;
  EXPECT_EQ(x->rows, 512);
  EXPECT_EQ(x->columns, 1);
  for (const double value : x->values) EXPECT_NEAR(value, 1, 1e-6);
}

TEST_F(Cli, CompareMarksTheBest) {
  const json table = RunJson({"compare", "gallery:poisson:12", "--powers=1"});
  ASSERT_TRUE(table.at("best").is_number());
  std::vector<std::string> pairs;
  double best_total = INFINITY;
  for (const json& row : table.at("rows")) {
    pairs.push_back(row.at("engine").get<std::string>() + "/" +
                    row.at("method").get<std::string>());
    ASSERT_EQ(row.at("outcome"), "CONVERGED") << row.dump();
    best_total = std::min(best_total, row.at("total_ms").get<double>());
  }
  EXPECT_THAT(pairs, ::testing::UnorderedElementsAre(
                         "none/cg", "none/bicgstab", "none/gmres", "jacobi/cg", "jacobi/bicgstab",
                         "jacobi/gmres", "static-spai/bicgstab", "static-spai/gmres",
                         "dynamic-spai/bicgstab", "dynamic-spai/gmres", "fsai/cg", "fsai/bicgstab",
                         "fsai/gmres", "afsai/cg", "afsai/bicgstab", "afsai/gmres", "amg/cg",
                         "amg/bicgstab", "amg/gmres"));
  EXPECT_EQ(table.at("rows").at(table.at("best").get<size_t>()).at("total_ms"), best_total);
  const Finished text = Run({"compare", "gallery:convdiff:6", "--powers=1,2"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("<- best total"));
  EXPECT_THAT(text.out, HasSubstr("static-spai, p = 2"));
  EXPECT_THAT(text.out, HasSubstr(" idr "));
  // CG and MINRES do not fit a nonsymmetric matrix, nor does FSAI.
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr(" cg ")));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr(" minres ")));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("fsai")));
  // What is predicted to take too long is left out, and said to be.
  EXPECT_THAT(Run({"compare", "gallery:poisson:12", "--max-setup=1e-6"}).out,
              HasSubstr("left out: set-up predicted"));
  EXPECT_EQ(Run({"compare", "gallery:aniso:40", "--powers=1", "--max-iterations=1"}).exit_code, 3);
}

TEST_F(Cli, CompareTriesMinresWhereAIsSymmetricAndIndefinite) {
  const auto pairs_of = [&](const std::string& matrix) {
    std::set<std::string> pairs;
    const json table = RunJson({"compare", matrix, "--powers=1"});
    for (const json& row : table.at("rows")) {
      const json& method = row.at("method");
      if (method.is_string())
        pairs.insert(row.at("engine").get<std::string>() + "/" + method.get<std::string>());
    }
    return pairs;
  };
  // Its diagonal is positive: CG finds out.
  const std::set<std::string> helmholtz = pairs_of("gallery:helmholtz:12");
  EXPECT_THAT(helmholtz, ::testing::IsSupersetOf({"none/cg", "none/minres", "jacobi/minres"}));
  EXPECT_THAT(helmholtz, ::testing::Not(::testing::Contains(HasSubstr("/idr"))));
  // Its diagonal has zeros: Jacobi is no M for MINRES.
  const std::set<std::string> stokes = pairs_of("gallery:stokes:6");
  EXPECT_THAT(stokes, ::testing::Contains("none/minres"));
  EXPECT_THAT(stokes, ::testing::Not(::testing::Contains("none/cg")));
  EXPECT_THAT(stokes, ::testing::Not(::testing::Contains("jacobi/minres")));
}

void Cli::ExpectCancelledByCtrlC(const Start& start) {
  SCOPED_TRACE(start.name);
  std::vector<std::string> words = {cli::SpaidctlPath(), "--address=" + daemon_->address()};
  for (const std::string& word : EndlessSolve()) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  std::string preload = "LD_PRELOAD=" SPAID_THREADS_BEFORE_MAIN;
  std::string any_order = "ASAN_OPTIONS=verify_asan_link_order=0";
  if (start.threads_before_main) {
    environment.push_back(preload.data());
    environment.push_back(any_order.data());
  }
  environment.push_back(nullptr);
  // Its progress lines tell when the solve runs.
  int progress[2];
  ASSERT_EQ(pipe2(progress, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, progress[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t mask;
  sigemptyset(&mask);
  if (start.blocked) sigaddset(&mask, SIGINT);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const auto before = signal(SIGINT, start.ignored ? SIG_IGN : SIG_DFL);
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, argv[0], &actions, &attributes, argv.data(), environment.data()),
            0);
  signal(SIGINT, before);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(progress[1]);
  std::string said;
  char c = 0;
  while (said.find("running on") == std::string::npos && read(progress[0], &c, 1) == 1) said += c;
  ASSERT_THAT(said, HasSubstr("running on"));
  kill(child, SIGINT);
  while (read(progress[0], &c, 1) == 1) said += c;
  close(progress[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_THAT(said, HasSubstr("cancelling the job"));
  // 1 where the call was cut, 3 where the job's CANCELLED outcome still came.
  EXPECT_THAT(WEXITSTATUS(status), ::testing::AnyOf(1, 3));
  const json jobs = RunJson({"jobs"});
  const std::string last = jobs.at("jobs").at(0).at("job");
  const Finished watched = Run({"--json", "watch", last});
  EXPECT_THAT(json::parse(watched.out).dump(),
              ::testing::AnyOf(HasSubstr("cancelled"), HasSubstr("CANCELLED")));
}

// Scripts rely on the keys: tests/client/cli/golden/command_keys.txt has them.
TEST_F(Cli, EveryKeyOfEveryCommandIsThere) {
  std::set<std::string> lines;
  const auto run = [&](const std::string& name, const std::vector<std::string>& args,
                       int exit_code = 0) {
    json object = RunJson(args, exit_code);
    if (object.contains("estimate_ratios")) object.erase("estimate_ratios");  // of jobs before
    cli::AddKeys(name, object, &lines);
    return object;
  };
  const auto file = [&](const char* name) { return (folder_ / name).string(); };
  const std::string a = "gallery:poisson:6", m_file = file("M.mtx");
  run("info", {"info"});
  run("gallery", {"gallery"});
  run("gallery.out", {"gallery", "poisson", "--size=4", "--out=" + file("P.mtx")});
  const std::string matrix = run("upload", {"upload", a}).at("name");
  run("estimate", {"estimate", a});
  const std::string built =
      run("build", {"build", a, "--precond-out=" + m_file}).at("preconditioner");
  run("build.afsai", {"build", a, "--engine=afsai", "--regrow"});
  run("build.dynamic", {"build", a, "--engine=dynamic-spai", "--regrow"});
  run("build.amg",
      {"build", a, "--engine=amg", "--max-coarse-size=20", "--precond-out=" + file("M")});
  run("solve", {"solve", a, "--engine=static-spai", "--history", "--out=" + file("x.mtx"),
                "--plot=" + file("x.svg")});
  run("solve.handle", {"solve", a, "--preconditioner=" + built});
  run("solve.stopped", {"solve", a, "--engine=none", "--max-iterations=1"}, 3);
  run("solve.refused", {"solve", a, "--engine=jacobi", "--preconditioner=preconditioners/none"}, 2);
  const std::string job = run("solve.detach", {"solve", a, "--detach"}).at("job");
  run("watch", {"watch", job});
  run("jobs", {"jobs", job});
  run("cancel", {"cancel", job});
  run("compare", {"compare", a, "--powers=1", "--plot=" + file("c.svg")});
  run("report", {"report", a, "--powers=1", "--ritz-steps=5", "--out=" + file("r.html")});
  run("compare.left_out", {"compare", a, "--powers=1", "--max-setup=1e-6"});
  run("matrices", {"matrices"});
  run("preconditioners", {"preconditioners", built});
  run("preconditioners.download", {"preconditioners", built, "--download=" + file("M2.mtx")});
  run("preconditioners.delete", {"preconditioners", built, "--delete"});
  run("matrices.none", {"matrices", "matrices/none"}, 1);
  EXPECT_EQ(cli::Lines(lines), kGoldenCommandKeys);
}

TEST_F(Cli, CtrlCCancelsTheJob) {
  ExpectCancelledByCtrlC({.name = "plainly"});
  ExpectCancelledByCtrlC({.name = "with threads before main", .threads_before_main = true});
  ExpectCancelledByCtrlC({.name = "with SIGINT blocked", .blocked = true});
  ExpectCancelledByCtrlC({.name = "with SIGINT ignored", .ignored = true});
}

}  // namespace
}  // namespace spaid::e2e
