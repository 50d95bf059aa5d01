// Multigrid through the real daemon: near-null vectors and coordinates from client and command
// line, and the parts that M consists of, which a program of ten lines applies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/system.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "client/cli/gallery.h"
#include "client/cli/matrix_market.h"
#include "tests/client/cli/run_spaidctl.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

using cli::Finished;
using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

CscMatrix Gallery(const std::string& name) { return *cli::GenerateFromText(name); }

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

class Multigrid : public OneDaemon {
 protected:
  Multigrid() : client_({.address = daemon_->address()}) {}
  static Finished Run(std::vector<std::string> args) {
    args.insert(args.begin(), "--address=" + daemon_->address());
    return cli::RunSpaidctl(args);
  }
  static json RunJson(std::vector<std::string> args, int exit_code = 0) {
    args.insert(args.begin(), "--json");
    const Finished finished = Run(args);
    EXPECT_EQ(finished.exit_code, exit_code) << finished.out << finished.err;
    return json::parse(finished.out);
  }
  // One that is small enough to be quick, and has several levels.
  static constexpr const char* kMatrix = "gallery:poisson:14";

  Client client_;
  TempDir folder_;
};

TEST_F(Multigrid, TakesNearNullVectorsAndSendsThemOnce) {
  const CscMatrix a = Gallery("poisson:14");
  const auto n = static_cast<size_t>(a.n);
  System system(client_, a, {.engine = Engine::kAmg});
  const auto constants = system.Build();
  ASSERT_TRUE(constants.ok()) << constants.error().message;
  ASSERT_TRUE(constants->preconditioner.quality.amg);
  EXPECT_GT(constants->preconditioner.quality.amg->levels.size(), 1u);

  // A bad candidate is told to be one; the better one of before is not taken in its place.
  std::vector<double> wild(n);
  for (size_t i = 0; i < n; ++i) wild[i] = i % 2 == 0 ? 1 : -1;
  system.SetNearNullSpace(1, wild);
  const auto built = system.Build();
  ASSERT_TRUE(built.ok()) << built.error().message;
  const std::string handle = built->preconditioner.spec.amg.near_null_space;
  EXPECT_THAT(handle, HasSubstr("matrices/"));
  EXPECT_GT(built->preconditioner.quality.amg->near_null_rayleigh,
            5 * constants->preconditioner.quality.amg->near_null_rayleigh);
  ASSERT_FALSE(client_.DeleteMatrix(handle)) << "they are sent again";
  const std::vector<double> b = SmoothRhs(a);
  system.SetNearNullSpace(1, wild);
  const auto solved = system.Solve(b);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
  EXPECT_LE(RelativeResidual(a, solved->x, b), 1.01e-8);

  const std::vector<double> twice(2 * n, 1.0);
  system.SetNearNullSpace(2, twice);
  const auto dependent = system.Build();
  ASSERT_FALSE(dependent.ok());
  EXPECT_EQ(dependent.error().reason, "RANK_DEFICIENT");
}

TEST_F(Multigrid, TakesCoordinatesOfElasticity) {
  // elasticity: nodes of a grid of 3 unknowns each, those of one face held; their numbers say
  // where.
  const CscMatrix a = Gallery("elasticity:10");
  const int64_t nodes = a.n / 3;
  System system(client_, a, {.engine = Engine::kAmg});
  const std::vector<double> b = SmoothRhs(a);
  const auto plain = system.Solve(b);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  std::vector<double> x(static_cast<size_t>(a.n));
  const auto side = static_cast<int64_t>(std::llround(std::cbrt(static_cast<double>(nodes))));
  for (int64_t k = 0; k < nodes; ++k) {
    x[static_cast<size_t>(k)] = static_cast<double>(k % side);
    x[static_cast<size_t>(nodes + k)] = static_cast<double>(k / side % side);
    x[static_cast<size_t>(2 * nodes + k)] = static_cast<double>(k / side / side);
  }
  system.SetCoordinates(3, x);
  const auto solved = system.Solve(b);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
  const auto m = client_.GetPreconditioner(solved->preconditioner);
  ASSERT_TRUE(m.ok()) << m.error().message;
  EXPECT_THAT(m->spec.amg.coordinates, HasSubstr("matrices/"));
  EXPECT_EQ(m->quality.amg->node_size, 3);

  system.SetCoordinates(1, x);
  const auto flat = system.Build();
  ASSERT_FALSE(flat.ok()) << "one coordinate";
  EXPECT_EQ(flat.error().reason, "BAD_COORDINATES");
}

TEST_F(Multigrid, IsToldOnTheCommandLine) {
  const CscMatrix a = Gallery("poisson:14");
  const std::string ones = folder_ / "ones.mtx", wide = folder_ / "wide.mtx";
  ASSERT_FALSE(cli::WriteVectors(ones, a.n, 1, std::vector<double>(static_cast<size_t>(a.n), 1.0)));
  ASSERT_FALSE(cli::WriteVectors(wide, 1, 3, std::vector<double>(3, 1.0)));
  const json built = RunJson(
      {"build", kMatrix, "--engine=amg", "--near-null-space=" + ones, "--smoother=chebyshev"});
  EXPECT_THAT(built.at("spec").at("near_null_space").get<std::string>(), HasSubstr("matrices/"));
  EXPECT_EQ(built.at("spec").at("smoother"), "chebyshev");
  EXPECT_EQ(built.at("quality").at("amg").at("smoother"), "chebyshev");
  EXPECT_TRUE(built.at("quality").at("residual_frobenius").is_null());
  const json levels = built.at("quality").at("amg").at("levels");
  ASSERT_GE(levels.size(), 2u);
  EXPECT_EQ(levels[0].at("rows"), a.n);
  EXPECT_EQ(levels[0].at("nnz"), a.col_ptr.back());
  // By the handle of before, too, of which nothing is sent again.
  const json again =
      RunJson({"build", kMatrix, "--engine=amg", "--smoother=chebyshev",
               "--near-null-space=" + built.at("spec").at("near_null_space").get<std::string>()});
  EXPECT_EQ(again.at("preconditioner"), built.at("preconditioner"));
  EXPECT_EQ(RunJson({"build", kMatrix, "--engine=amg", "--near-null-space=" + wide}, 1)
                .at("error")
                .at("reason"),
            "BAD_VECTORS");
  EXPECT_EQ(RunJson({"build", kMatrix, "--engine=amg", "--coordinates=" + ones}, 1)
                .at("error")
                .at("reason"),
            "BAD_COORDINATES");

  const Finished text = Run({"preconditioners", built.at("preconditioner")});
  EXPECT_THAT(text.out, HasSubstr("amg, chebyshev"));
  EXPECT_THAT(text.out, ContainsRegex("smoother +chebyshev \\(beta 2\\.0\\)"));
  EXPECT_THAT(text.out, ContainsRegex("complexity +1\\.[0-9]+ of the entries"));
  EXPECT_THAT(text.out, ContainsRegex("near-null +Rayleigh quotient"));
  EXPECT_THAT(text.out, ContainsRegex("0 +2,744 +[0-9,]+ +[0-9]+ +0 "));
  EXPECT_THAT(text.out, HasSubstr("inverted"));
  const json solved = RunJson({"solve", kMatrix, "--engine=amg", "--cycle=w"});
  EXPECT_EQ(solved.at("method"), "cg");
  EXPECT_EQ(solved.at("engine"), "amg");
  EXPECT_EQ(Run({"build", kMatrix, "--engine=amg", "--strength-threshold=1"}).exit_code, 2);
  EXPECT_EQ(RunJson({"build", kMatrix, "--engine=amg", "--pre-sweeps=0", "--post-sweeps=0"}, 1)
                .at("error")
                .at("reason"),
            "BAD_AMG_OPTION");
}

// The first step of GMRES from zero, with M on the right, is M b up to a factor.
TEST_F(Multigrid, PartsAndTenLinesOfPythonApplyM) {
  const std::vector<std::vector<std::string>> kinds = {
      {kMatrix, "--cycle=v"},
      {kMatrix, "--smoother=chebyshev", "--chebyshev-degree=3", "--cycle=w"},
      {kMatrix, "--smoother=afsai", "--pre-sweeps=2", "--post-sweeps=0"},
      {"gallery:convdiff:12", "--smoother=static-spai"},
      {kMatrix, "--max-levels=2", "--max-coarse-size=5"},
      {"gallery:elasticity:7", "--smoother=jacobi"}};
  int number = 0;
  for (const std::vector<std::string>& kind : kinds) {
    SCOPED_TRACE(kind[0] + " " + kind[1]);
    const std::string parts = folder_ / ("M" + std::to_string(number++)), b = parts + "/b.mtx",
                      z = parts + "/z.mtx", x = parts + "/x.mtx";
    std::vector<std::string> words = {"build",        kind[0],
                                      "--engine=amg", "--hierarchy-precision=fp64",
                                      "--regrow",     "--precond-out=" + parts};
    words.insert(words.end(), kind.begin() + 1, kind.end());
    const json built = RunJson(words);
    EXPECT_EQ(built.at("precond_file"), parts);
    std::set<std::string> files;
    for (const json& part : built.at("parts")) {
      files.insert(part.at("kind").get<std::string>() + part.at("level").dump());
    }
    EXPECT_THAT(files, ::testing::IsSupersetOf({"scale0", "a0", "p0", "r0", "smoother0"}));
    const CscMatrix a = Gallery(kind[0].substr(8));
    std::vector<double> rhs = SmoothRhs(a);
    ASSERT_FALSE(cli::WriteVectors(b, a.n, 1, rhs));
    const Finished applied = cli::RunProgram({"/usr/bin/python3", parts + "/cycle.py", b, z});
    ASSERT_EQ(applied.exit_code, 0) << applied.err;
    const json solved = RunJson(
        {"solve", kind[0], "--preconditioner=" + built.at("preconditioner").get<std::string>(),
         "--method=gmres", "--max-iterations=1", "--rtol=1e-15", "--rhs=" + b, "--out=" + x},
        3);
    EXPECT_EQ(solved.at("engine"), "amg");
    const auto ours = cli::ReadVectors(x), theirs = cli::ReadVectors(z);
    ASSERT_TRUE(ours.ok() && theirs.ok());
    const double norm = Norm(ours->values), other = Norm(theirs->values);
    ASSERT_GT(norm, 0);
    double dot = 0, difference = 0;
    for (size_t i = 0; i < ours->values.size(); ++i) dot += ours->values[i] * theirs->values[i];
    for (size_t i = 0; i < ours->values.size(); ++i) {
      const double turned = (dot < 0 ? -1 : 1) * theirs->values[i] / other;
      difference = std::max(difference, std::fabs(ours->values[i] / norm - turned));
    }
    EXPECT_LE(difference, 1e-10);
  }
}

TEST_F(Multigrid, SaysWhatItsPartsAreAndWhereTheyCannotGo) {
  const json built = RunJson({"build", kMatrix, "--engine=amg"});
  const std::string m = built.at("preconditioner");
  const auto whole = client_.Download(m);
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.error().reason, "PART_NEEDED");
  const auto none = client_.DownloadPart(m, {.level = 99, .kind = PartKind::kP});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().reason, "UNKNOWN_PART");
  const auto info = client_.GetPreconditioner(m);
  ASSERT_TRUE(info.ok());
  ASSERT_FALSE(info->parts.empty());
  for (const Part& part : info->parts) {
    const auto matrix = client_.DownloadPart(m, part);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    EXPECT_EQ(matrix->n, part.columns);
    EXPECT_EQ(matrix->rows > 0 ? matrix->rows : matrix->n, part.rows);
    EXPECT_EQ(static_cast<int64_t>(matrix->row_idx.size()), part.nnz);
  }
  const std::string file = folder_ / "file";
  std::ofstream(file) << "here";
  const json refused = RunJson({"preconditioners", m, "--download=" + file}, 1);
  EXPECT_EQ(refused.at("error").at("reason"), "FILE_UNWRITABLE");
  const std::string parts = folder_ / "parts";
  EXPECT_THAT(Run({"preconditioners", m, "--download=" + parts}).out, HasSubstr("cycle.py"));
  EXPECT_TRUE(std::filesystem::exists(parts + "/A0.mtx"));
  EXPECT_TRUE(std::filesystem::exists(parts + "/P0.mtx"));
}

}  // namespace
}  // namespace spaid::e2e
