// Command lines of a report say what was done: read back by the program's own parser.
#include "client/cli/report/repeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/app.h"
#include "tests/client/cli/run_spaidctl.h"

namespace spaid::cli {
namespace {

// As a shell takes it apart.
std::vector<std::string> Words(const std::string& command) {
  const Finished finished = RunProgram({"sh", "-c", "printf '%s\\n' " + command});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  std::vector<std::string> words;
  std::istringstream lines(finished.out);
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  return words;
}

SolveArgs Parsed(const std::string& command) {
  Arguments arguments;
  const std::unique_ptr<CLI::App> app = MakeApp(arguments);
  const std::vector<std::string> words = Words(command);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  EXPECT_FALSE(Parse(*app, static_cast<int>(argv.size()), argv.data())) << command;
  EXPECT_EQ(arguments.command, Command::kSolve);
  return arguments.solve;
}

TEST(ShellWord, IsOneWordOfTheShell) {
  EXPECT_EQ(ShellWord("a/b-c.mtx"), "a/b-c.mtx");
  for (const std::string word : {"a b", "it's", "$HOME", "`id`", "a;b", "*", "", "a\"b", "ä"}) {
    EXPECT_THAT(Words(ShellWord(word)), testing::ElementsAre(word));
  }
}

TEST(SolveCommand, IsShortWhereNothingIsSpecial) {
  CompareArgs args;
  args.matrix.matrix = "A.mtx";
  EXPECT_EQ(SolveCommand(args, {.engine = Engine::kJacobi}, Method::kCg),
            "spaidctl solve A.mtx --engine=jacobi --method=cg --rhs=random --seed=1");
  args.rhs = "ones";
  EXPECT_EQ(SolveCommand(args, {.engine = Engine::kAuto, .learned = Learned::kOff}, std::nullopt),
            "spaidctl solve A.mtx --engine=auto --learned=off --rhs=ones");
  EXPECT_EQ(MaxRunFlag(args.limits), "");
  args.limits.max_run_s = 60;
  EXPECT_EQ(MaxRunFlag(args.limits), "--max-run=60");
  args.limits.max_run_s = 0.25;
  EXPECT_EQ(MaxRunFlag(args.limits), "--max-run=0.25");
}

TEST(SolveCommand, SaysEverythingThatWasAskedFor) {
  CompareArgs args;
  args.matrix = {.matrix = "my matrices/it's <b>.mtx", .sum_duplicates = true};
  args.rhs = "right hand side.mtx";
  args.options.rtol = 1.0 / 3e7;
  args.options.max_iterations = 123;
  args.options.restart = 20;
  args.engine.pattern_matrix = "a pattern.mtx";
  PreconditionerSpec spec = args.engine;
  spec.engine = Engine::kStaticSpai;
  spec.pattern_matrix = "patterns/resolved";  // what became of the file
  spec.pattern_power = 2;
  spec.keep_tau = 0.125;
  spec.ensure_row = true;
  spec.post_filter = 0.1;
  spec.local_solver = LocalSolver::kQr;
  spec.scaling = Scaling::kEquilibrate;
  const SolveArgs solve = Parsed(SolveCommand(args, spec, Method::kGmres));
  EXPECT_EQ(solve.matrix.matrix, args.matrix.matrix);
  EXPECT_TRUE(solve.matrix.sum_duplicates);
  EXPECT_EQ(solve.rhs, args.rhs);
  EXPECT_EQ(solve.options.rtol, args.options.rtol);
  EXPECT_EQ(solve.options.max_iterations, 123);
  EXPECT_EQ(solve.options.restart, 20);
  EXPECT_EQ(solve.options.method, Method::kGmres);
  EXPECT_EQ(solve.engine.engine, Engine::kStaticSpai);
  EXPECT_EQ(solve.engine.pattern_matrix, "a pattern.mtx");
  EXPECT_EQ(solve.engine.pattern_power, 2);
  EXPECT_EQ(solve.engine.keep_tau, 0.125);
  EXPECT_TRUE(solve.engine.ensure_row);
  EXPECT_FALSE(solve.engine.row_match);
  EXPECT_EQ(solve.engine.post_filter, 0.1);
  EXPECT_EQ(solve.engine.local_solver, LocalSolver::kQr);
  EXPECT_EQ(solve.engine.scaling, Scaling::kEquilibrate);

  PreconditionerSpec grown;
  grown.engine = Engine::kAfsai;
  grown.fsai.k_max = 7;
  grown.fsai.epsilon = 0.01;
  grown.fsai.time_budget = std::chrono::milliseconds(1500);
  grown.fsai.precision = Precision::kFp32;
  const SolveArgs afsai = Parsed(SolveCommand(args, grown, Method::kCg));
  EXPECT_EQ(afsai.engine.fsai.k_max, 7);
  EXPECT_EQ(afsai.engine.fsai.epsilon, 0.01);
  EXPECT_EQ(afsai.engine.fsai.time_budget, grown.fsai.time_budget);
  EXPECT_EQ(afsai.engine.fsai.precision, Precision::kFp32);
}

}  // namespace
}  // namespace spaid::cli
