// spaidctl report against the real daemon: matrices of all kinds, its exit codes, its errors, and
// the command lines that it says repeat it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/client/cli/run_spaidctl.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/one_daemon.h"

namespace spaid::e2e {
namespace {

using cli::Finished;
using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr size_t kMostBytes = 1'000'000;

class Report : public OneDaemon {
 protected:
  static Finished Run(std::vector<std::string> args) {
    args.insert(args.begin(), "--address=" + daemon_->address());
    return cli::RunSpaidctl(args);
  }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  // The page of a report that ends with the exit code, seen by a parser of XML.
  std::string PageOf(const std::string& matrix, std::vector<std::string> more = {},
                     int exit_code = 0) const {
    const std::string path = folder_ / "report.html";
    more.insert(more.begin(), {"report", matrix, "--out=" + path, "--quiet"});
    const Finished finished = Run(more);
    EXPECT_EQ(finished.exit_code, exit_code) << matrix << finished.err;
    EXPECT_THAT(finished.err, IsEmpty());
    const Finished parsed = cli::RunProgram(
        {"python3", "-c",
         "import sys, xml.etree.ElementTree as e\n"
         "for node in e.parse(sys.argv[1]).iter():\n"
         "  assert not node.tag.endswith('script') and not {'src', 'href'} & set(node.keys())\n",
         path});
    EXPECT_EQ(parsed.exit_code, 0) << matrix << parsed.err;
    std::string page = Read(path);
    EXPECT_LT(page.size(), kMostBytes) << matrix;
    return page;
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  // Text that is no tag and no entity.
  static std::string Words(const std::string& page) {
    std::string text = std::regex_replace(page, std::regex("<[^>]*>"), "");
    for (const auto& [entity, c] : {std::pair("&lt;", "<"), {"&gt;", ">"}, {"&quot;", "\""}}) {
      text = std::regex_replace(text, std::regex(entity), c);
    }
    return std::regex_replace(text, std::regex("&amp;"), "&");
  }
  TempDir folder_;
};

TEST_F(Report, OfAPositiveDefiniteMatrix) {
  const std::string path = folder_ / "poisson.html";
  const Finished finished =
      Run({"report", "gallery:poisson:12", "-o", path, "--powers=1", "--ritz-steps=40"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("report: " + path + ", "));
  EXPECT_THAT(finished.out, HasSubstr("best: "));
  // Steps are announced in a pipe.
  EXPECT_THAT(finished.err, HasSubstr("static-spai, p = 1, bicgstab\n"));
  EXPECT_THAT(finished.err, HasSubstr("Ritz values: FSAI, p = 1\n"));
  const std::string page = Read(path), words = Words(page);
  EXPECT_THAT(words, HasSubstr("1,728"));
  EXPECT_THAT(words, HasSubstr("19 of 19 pairs of preconditioner and method converged"));
  // By Lanczos where all is symmetric.
  EXPECT_THAT(page, HasSubstr("<td class=\"name\">G A Gᵀ</td><td>Lanczos</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"name\">√D A √D</td><td>Lanczos</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"name\">A M</td><td>Arnoldi</td>"));
  EXPECT_THAT(words, HasSubstr("Residuals of columns"));
  EXPECT_THAT(words, HasSubstr("What it began with, and why: "));
}

TEST_F(Report, OfOneUnknown) {
  const std::string page =
      PageOf(Write("one.mtx", "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 4\n"));
  EXPECT_THAT(Words(page), HasSubstr("converged"));
  EXPECT_THAT(page, HasSubstr(">4.0e+00<"));  // its eigenvalue
}

TEST_F(Report, OfASingularMatrixThatNothingSolves) {
  // An empty row and column, and b in none of its range.
  const std::string page = PageOf(
      Write("singular.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 2\n2 2 3\n"),
      {"--rhs=" + Write("b.mtx", "%%MatrixMarket matrix array real general\n3 1\n1\n1\n1\n"),
       "--max-iterations=50"},
      3);
  EXPECT_THAT(Words(page), HasSubstr("nothing converged"));
  EXPECT_THAT(Words(page), HasSubstr("empty rows"));
}

TEST_F(Report, OfAnUnsymmetricIndefiniteOrIrregularMatrix) {
  EXPECT_THAT(PageOf("gallery:convdiff:10", {"--powers=1"}), HasSubstr("Arnoldi"));
  EXPECT_THAT(Words(PageOf("gallery:stokes:8", {"--powers=1"})), HasSubstr("MINRES"));
  EXPECT_THAT(Words(PageOf("gallery:random:400", {"--powers=1"})), HasSubstr("columns: "));
  PageOf("gallery:graph:300", {"--powers=1"});
}

TEST_F(Report, OfAPattern) {
  const std::string page = PageOf(Write(
      "p.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 4\n1 1\n2 2\n3 3\n1 3\n"));
  EXPECT_THAT(Words(page), HasSubstr("pattern without values"));
  EXPECT_THAT(Words(page), Not(HasSubstr("compared")));
}

TEST_F(Report, KeepsToItsLimits) {
  // With 64,000 unknowns no M is built in a millisecond, which is told in its row.
  const std::string page =
      PageOf("gallery:poisson:40", {"--powers=1", "--max-run=0.001", "--ritz-steps=0"}, 3);
  EXPECT_THAT(page, HasSubstr("MAX_RUN: "));
  EXPECT_THAT(page, HasSubstr("TIME_LIMIT"));
  EXPECT_THAT(page, Not(HasSubstr("Spectrum")));
  EXPECT_THAT(Words(page), HasSubstr("--max-run=0.001"));
  EXPECT_THAT(PageOf("gallery:aniso:40", {"--powers=1", "--max-iterations=1"}, 3),
              HasSubstr("MAX_ITERATIONS"));
  EXPECT_THAT(PageOf("gallery:poisson:8", {"--max-setup=1e-9"}),
              HasSubstr("left out: set-up predicted"));
  // The deadline of a call ends it all; nothing is written then.
  const std::string path = folder_ / "none.html";
  const Finished late = Run({"report", "gallery:aniso:700", "--timeout=0.5", "--out=" + path});
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.err, HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(Report, TellsWhatWasRefusedOrLeftOut) {
  // AUTO and the engines that read a pattern are refused one that is not there.
  const std::string refused =
      PageOf("gallery:poisson:5", {"--pattern=matrices/there", "--powers=1"});
  EXPECT_THAT(refused, HasSubstr("<p class=\"bad\">HANDLE_UNKNOWN: "));
  EXPECT_THAT(refused, HasSubstr("<td class=\"why\" colspan=\"7\">HANDLE_UNKNOWN: "));
  const std::string many = PageOf("gallery:poisson:4", {"--powers=1,2,3,4,5,6"});
  EXPECT_THAT(many, HasSubstr("left out: spectra of 12 preconditioners"));
}

TEST_F(Report, NamesOfOthersAreText) {
  const std::string evil = "<script>alert('x')</script>";
  const std::string text =
      "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 4\n2 1 1\n2 2 5\n";
  // A label that somebody gave the same matrix before.
  const std::string a = Write("a.mtx", text);
  ASSERT_EQ(Run({"upload", a, "--label=<b>" + evil}).exit_code, 0);
  const std::string name = "<script>alert(1)<!-- &.mtx";
  const std::string page = PageOf(Write(name, text));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;&lt;script&gt;alert('x')&lt;"));
  EXPECT_THAT(page, HasSubstr("<title>&lt;script&gt;alert(1)&lt;!-- &amp;.mtx – spaid report"));
}

TEST_F(Report, ItsCommandsDoItAgain) {
  std::ofstream(folder_ / "it's b.mtx") << "%%MatrixMarket matrix array real general\n125 1\n";
  for (int k = 0; k < 125; ++k) {
    std::ofstream(folder_ / "it's b.mtx", std::ios::app) << 1 + k % 7 << "\n";
  }
  const std::string b = folder_ / "it's b.mtx";
  const std::string page =
      PageOf("gallery:poisson:5", {"--powers=2", "--rtol=1e-9", "--rhs=" + b, "--k-max=5"});
  // Each item: what it is, and the command.
  const std::regex item("<li>([^<]*)<code>(.*?)</code></li>");
  int commands = 0;
  for (auto at = std::sregex_iterator(page.begin(), page.end(), item); at != std::sregex_iterator();
       ++at) {
    const std::string command = Words((*at)[2]);
    ASSERT_THAT(command, StartsWith("spaidctl solve gallery:poisson:5 --engine="));
    const std::string program = cli::SpaidctlPath();
    const Finished finished = cli::RunProgram(
        {"sh", "-c", "exec \"$0\" --json" + command.substr(std::string("spaidctl").size()),
         program},
        {"SPAID_ADDRESS=" + daemon_->address()});
    EXPECT_EQ(finished.exit_code, 0) << command << finished.err;
    const json solved = json::parse(finished.out);
    EXPECT_EQ(solved.at("outcome"), "CONVERGED");
    EXPECT_EQ(solved.at("rtol"), 1e-9);
    ++commands;
    if (Words((*at)[1]) == "engine auto") continue;
    // As many iterations as the table says.
    const std::string iterations = std::to_string(solved.at("iterations").get<int>());
    EXPECT_THAT(page, HasSubstr("<td class=\"number\">" + iterations + "</td>")) << command;
  }
  EXPECT_EQ(commands, 20);
  EXPECT_THAT(Words(page), HasSubstr("--k-max=5"));
}

TEST_F(Report, WritesWhereItIsTold) {
  const Finished out = Run({"report", "gallery:poisson:4", "-o", "-", "--quiet"});
  EXPECT_EQ(out.exit_code, 0);
  EXPECT_THAT(out.out, StartsWith("<!DOCTYPE html>"));
  EXPECT_EQ(out.out.substr(out.out.size() - 8), "</html>\n");
  // An old file is there until the new one is whole.
  const std::string path = Write("old.html", "old");
  EXPECT_EQ(Run({"report", "gallery:poisson:4", "--max-setup=nan", "-o", path}).exit_code, 2);
  EXPECT_EQ(Read(path), "old");
  const Finished as_json = Run({"report", "gallery:poisson:4", "--json", "-o", path});
  EXPECT_EQ(as_json.exit_code, 0);
  const json object = json::parse(as_json.out);
  EXPECT_EQ(object.at("command"), "report");
  EXPECT_EQ(object.at("report_file"), path);
  EXPECT_TRUE(object.at("converged").get<bool>());
  EXPECT_THAT(Read(path), StartsWith("<!DOCTYPE html>"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / ""), {}), 1);
}

TEST_F(Report, SaysWhatItCannotDo) {
  const std::string path = folder_ / "no.html";
  const auto reason_of = [&](std::vector<std::string> args, int exit_code = 1) {
    args.insert(args.begin(), {"--json", "report"});
    const Finished finished = Run(args);
    EXPECT_EQ(finished.exit_code, exit_code) << finished.err;
    return json::parse(finished.out).at("error").at("reason").get<std::string>();
  };
  EXPECT_EQ(reason_of({"matrices/there", "-o", path}), "REPORT_NEEDS_MATRIX");
  EXPECT_EQ(reason_of({"gallery:poisson:4", "-o", folder_ / "no/such.html"}), "FILE_UNWRITABLE");
  EXPECT_EQ(reason_of({"gallery:poisson:4", "-o", "-"}, 2), "WRONG_USAGE");
  EXPECT_EQ(reason_of({"gallery:poisson:4"}, 2), "WRONG_USAGE");  // no --out
  EXPECT_EQ(reason_of({"gallery:poisson:4", "-o", path, "--ritz-steps=201"}, 2), "WRONG_USAGE");
  EXPECT_EQ(reason_of({Write("c.mtx",
                             "%%MatrixMarket matrix coordinate complex general\n1 1 1\n"
                             "1 1 1 1\n"),
                       "-o", path}),
            "MATRIX_COMPLEX");
  const std::string two = Write(
      "two.mtx", "%%MatrixMarket matrix array real general\n64 2\n" + [] {
        std::string ones;
        for (int k = 0; k < 128; ++k) ones += "1\n";
        return ones;
      }());
  EXPECT_EQ(reason_of({"gallery:poisson:4", "-o", path, "--rhs=" + two}), "RHS_COUNT");
  EXPECT_FALSE(std::filesystem::exists(path));
  const Finished full =
      cli::RunProgram({"sh", "-c", "exec \"$0\" -q report gallery:poisson:4 --out=- > /dev/full",
                       cli::SpaidctlPath()},
                      {"SPAID_ADDRESS=" + daemon_->address()});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.err, HasSubstr("No space left"));
}

// In the middle of Lanczos, which is the client's own work.
TEST_F(Report, CtrlCEndsIt) {
  const std::string path = folder_ / "stopped.html";
  const Finished finished = cli::RunProgram(
      {"python3", "-c",
       "import signal, subprocess, sys\n"
       "child = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE, text=True)\n"
       "for line in child.stderr:\n"
       "  print(line, end='')\n"
       "  if line.startswith('Ritz values'): child.send_signal(signal.SIGINT)\n"
       "print('exit', child.wait())\n",
       cli::SpaidctlPath(), "--address=" + daemon_->address(), "report", "gallery:poisson:90",
       "--max-iterations=1", "--max-setup=1e-6", "--ritz-steps=200", "--out=" + path});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("no page was written [CANCELLED/STOP_REQUESTED]"));
  EXPECT_THAT(finished.out, HasSubstr("exit 1\n"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Irregular, singular, badly scaled, without a diagonal: whatever the folder has, up to a size that
// is quick.
TEST_F(Report, OfRealMatrices) {
  const char* const folder = std::getenv("SPAID_MATRICES");
  if (folder == nullptr) GTEST_SKIP() << "SPAID_MATRICES names no folder";
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string name = file.path().filename();
    if (!name.ends_with(".mtx.gz") || name.find("_rhs") != name.npos) continue;
    if (file.file_size() > 40'000) continue;
    const std::string path = folder_ / "real.html";
    const Finished finished =
        Run({"-q", "report", file.path(), "--powers=1", "--max-iterations=500", "-o", path});
    EXPECT_THAT(finished.exit_code, AnyOf(0, 3)) << name << finished.err;
    const std::string page = Read(path);
    EXPECT_LT(page.size(), kMostBytes) << name;
    EXPECT_THAT(page, HasSubstr("<title>" + name)) << name;
    EXPECT_THAT(page, Not(HasSubstr("nan,"))) << name;
    const Finished parsed = cli::RunProgram(
        {"python3", "-c", "import sys, xml.etree.ElementTree as e; e.parse(sys.argv[1])", path});
    EXPECT_EQ(parsed.exit_code, 0) << name << parsed.err;
    ++count;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace spaid::e2e
