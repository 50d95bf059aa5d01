// The residual as spaidctl shows it, with the real daemon: on a terminal, in a pipe, as an SVG.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/client/cli/run_on_terminal.h"
#include "tests/client/cli/run_spaidctl.h"
#include "tests/client/cli/screen.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/one_daemon.h"

namespace spaid::e2e {
namespace {

using cli::Finished;
using cli::Screen;
using cli::TerminalOptions;
using cli::TerminalRun;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class CliPlot : public OneDaemon {
 protected:
  static Finished Run(std::vector<std::string> args) {
    args.insert(args.begin(), "--address=" + daemon_->address());
    return cli::RunSpaidctl(args);
  }
  static TerminalRun OnTerminal(std::vector<std::string> args,
                                const TerminalOptions& options = {}) {
    args.insert(args.begin(), {cli::SpaidctlPath(), "--address=" + daemon_->address()});
    return cli::RunOnTerminal(args, options);
  }
  static std::vector<std::string> EndlessSolve() {
    return {"solve",       "gallery:aniso:300", "--engine=none",
            "--method=cg", "--rtol=1e-300",     "--max-iterations=2147483647"};
  }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  // The number of coordinates of each polyline, by a parser of XML that is not ours.
  static std::vector<size_t> Curves(const std::string& path) {
    const Finished parsed = cli::RunProgram(
        {"python3", "-c",
         "import sys, xml.etree.ElementTree as e\n"
         "for line in e.parse(sys.argv[1]).iter('{http://www.w3.org/2000/svg}polyline'):\n"
         "  print(len(line.get('points').split()))\n",
         path});
    EXPECT_EQ(parsed.exit_code, 0) << parsed.err;
    std::vector<size_t> counts;
    std::istringstream text(parsed.out);
    for (size_t count = 0; text >> count;) counts.push_back(count);
    return counts;
  }
  TempDir folder_;
};

TEST_F(CliPlot, ATerminalShowsTheResidualFall) {
  const TerminalRun run = OnTerminal({"solve", "gallery:poisson:12", "--engine=jacobi"});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  const Screen screen(run.output);
  const std::vector<std::string>& lines = screen.lines();
  // Of all progress the chart alone has stayed, above what the solve says.
  ASSERT_GT(lines.size(), 11u) << screen.Text();
  EXPECT_THAT(lines[0], StartsWith("  1e0┤")) << screen.Text();
  EXPECT_THAT(screen.Text(), HasSubstr(" asked for 1.0e-08 ┄"));
  EXPECT_THAT(lines[8], StartsWith("     └0─"));
  EXPECT_THAT(lines[9], StartsWith("      iteration "));
  EXPECT_THAT(lines[10], StartsWith("gallery:poisson:12   n 1,728"));
  EXPECT_THAT(lines[11], StartsWith("CONVERGED after "));
  EXPECT_EQ(screen.column(), 0u);
  EXPECT_GT(screen.frames(), 0);
  EXPECT_THAT(run.output, Not(HasSubstr("\033[?25l")));  // the cursor was never hidden
}

TEST_F(CliPlot, ATerminalTellsWhichRightHandSideItIs) {
  const TerminalRun run =
      OnTerminal({"solve", "gallery:poisson:10", "--rhs=random", "--rhs-count=3"});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(Screen(run.output).Text(), HasSubstr("right-hand side 3 of 3, iteration "));
}

TEST_F(CliPlot, NoColourNoChartNoProgressWhereNotWanted) {
  const std::vector<std::string> solve = {"solve", "gallery:poisson:8"};
  const auto with = [&](std::vector<std::string> environment, int columns = 100) {
    return OnTerminal(solve, {.columns = columns, .environment = std::move(environment)}).output;
  };
  EXPECT_THAT(with({"TERM=xterm", "LANG=C.UTF-8"}), HasSubstr("\033[1m"));
  const std::string no_color = with({"TERM=xterm", "LANG=C.UTF-8", "NO_COLOR=1"});
  EXPECT_THAT(no_color, Not(HasSubstr("\033[1m")));
  EXPECT_THAT(no_color, HasSubstr("┤"));
  EXPECT_THAT(with({"TERM=xterm", "LANG=C"}), Not(HasSubstr("┤")));
  EXPECT_THAT(with({"TERM=xterm", "LANG=C"}), HasSubstr("\033[Ksolve  iteration "));
  EXPECT_THAT(with({"TERM=xterm", "LANG=C.UTF-8"}, 40), Not(HasSubstr("┤")));
  const std::string dumb = with({"TERM=dumb", "LANG=C.UTF-8"});
  EXPECT_THAT(dumb, Not(HasSubstr("\033")));
  EXPECT_THAT(Screen(dumb).lines().front(), StartsWith("solve  iteration "));

  std::vector<std::string> quiet = solve;
  quiet.emplace_back("--quiet");
  EXPECT_THAT(Screen(OnTerminal(quiet).output).lines().front(), StartsWith("gallery:poisson:8"));
  quiet.back() = "--json";
  EXPECT_EQ(json::parse(OnTerminal(quiet).output).at("outcome"), "CONVERGED");
}

TEST_F(CliPlot, CtrlCLeavesTheChartAndTheCursorInOrder) {
  TerminalOptions options;
  // In the middle of the third drawing, or after it.
  options.interrupt = [](const std::string& output) { return Screen(output).frames() > 1; };
  const TerminalRun run = OnTerminal(EndlessSolve(), options);
  EXPECT_THAT(run.exit_code, ::testing::AnyOf(1, 3));
  const Screen screen(run.output);
  EXPECT_THAT(screen.lines()[0], StartsWith("  1e0┤")) << screen.Text();
  EXPECT_THAT(screen.lines()[9], HasSubstr("iteration "));
  // Nothing was drawn over the answer.
  EXPECT_THAT(screen.Text(), HasSubstr("\nspaidctl: cancelling the job; again to leave at once\n"));
  const size_t answer = run.output.find("cancelling the job");
  EXPECT_EQ(run.output.find("┤", answer), std::string::npos);
  EXPECT_EQ(screen.column(), 0u);
  EXPECT_GE(screen.row(), 12u);
}

TEST_F(CliPlot, APipeGetsPlainLinesAsBefore) {
  const Finished finished = Run({"solve", "gallery:poisson:10", "--engine=none"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("running on cpu\n"));
  EXPECT_THAT(finished.err, Not(HasSubstr("iteration")));
  EXPECT_THAT(finished.err, Not(HasSubstr("\r")));
  EXPECT_THAT(finished.out, StartsWith("gallery:poisson:10   n 1,000"));
}

TEST_F(CliPlot, PlotHasTheWholeHistory) {
  const std::string path = folder_ / "a.svg";
  std::ofstream(path) << "old";
  const Finished finished = Run({"solve", "gallery:convdiff:12", "--engine=static-spai",
                                 "--method=bicgstab", "--json", "--history", "--plot=" + path});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, IsEmpty());
  const json object = json::parse(finished.out);
  EXPECT_EQ(object.at("plot_file"), path);
  EXPECT_THAT(Curves(path), ElementsAre(object.at("rhs").at(0).at("history").size()));
  const std::string svg = Read(path);
  EXPECT_THAT(svg, HasSubstr(">gallery:convdiff:12</text>"));
  EXPECT_THAT(svg, HasSubstr("n = 1,728  ·  nnz = "));
  EXPECT_THAT(svg, HasSubstr("BiCGSTAB, static SPAI, p = 1  ·  converged"));
  EXPECT_THAT(svg, HasSubstr(">" + std::to_string(object.at("iterations").get<int>()) +
                             " iterations, true relative residual "));
  // People are told where it is.
  const Finished text = Run({"solve", "gallery:poisson:6", "--plot=" + path});
  EXPECT_THAT(text.out, HasSubstr("  plot    " + path + "\n"));
}

TEST_F(CliPlot, PlotHasACurveForEachRightHandSide) {
  const std::string path = folder_ / "b.svg";
  const Finished finished = Run({"solve", "gallery:poisson:8", "--engine=none", "--rhs=random",
                                 "--rhs-count=10", "--max-iterations=5", "--plot=" + path});
  EXPECT_EQ(finished.exit_code, 3);
  EXPECT_EQ(Curves(path).size(), 10u);
  const std::string svg = Read(path);
  EXPECT_THAT(svg, HasSubstr(">right-hand side 8</text>"));
  EXPECT_THAT(svg, HasSubstr(">and 2 more</text>"));
  EXPECT_THAT(svg, HasSubstr("not converged (MAX_ITERATIONS)"));
}

TEST_F(CliPlot, CompareHasACurveForEachSolve) {
  const std::string path = folder_ / "c.svg";
  const Finished finished =
      Run({"compare", "gallery:convdiff:8", "--powers=1", "--plot=" + path, "--json"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const json object = json::parse(finished.out);
  EXPECT_EQ(object.at("plot_file"), path);
  EXPECT_EQ(Curves(path).size(), object.at("rows").size());
  // The quickest are named, whichever these are.
  EXPECT_THAT(Read(path),
              ::testing::ContainsRegex(">[a-zA-Z0-9 ,=]+, (BiCGSTAB|IDR.4.|GMRES.50.)</text>"));
  EXPECT_THAT(Read(path), HasSubstr(">Best: "));
}

TEST_F(CliPlot, AFileThatCannotBeWrittenIsToldBeforeTheSolve) {
  const std::string path = folder_ / "no/a.svg";
  for (const char* command : {"solve", "compare"}) {
    const Finished finished = Run({command, "gallery:poisson:8", "--plot=" + path});
    EXPECT_EQ(finished.exit_code, 1);
    EXPECT_THAT(finished.out, IsEmpty());
    EXPECT_THAT(finished.err, StartsWith("spaidctl: error: " + path + ": cannot be written: "));
  }
  const Finished folder = Run({"solve", "gallery:poisson:8", "--plot=" + (folder_ / "").string()});
  EXPECT_THAT(folder.err, HasSubstr("is a folder; name a file"));
  EXPECT_THAT(Run({"solve", "gallery:poisson:8", "--out=" + path}).err,
              HasSubstr("FILE_UNWRITABLE"));
  EXPECT_TRUE(json::parse(Run({"jobs", "--json"}).out).at("jobs").is_array());
  // What is there stays as it is when the solve is refused.
  const std::string old = folder_ / "old.svg";
  std::ofstream(old) << "old";
  EXPECT_EQ(
      Run({"solve", "gallery:poisson:8", "--engine=static-spai", "--method=cg", "--plot=" + old})
          .exit_code,
      1);
  EXPECT_EQ(Read(old), "old");
}

}  // namespace
}  // namespace spaid::e2e
