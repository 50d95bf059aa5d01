// Time steps through the real daemon: what is sent, what is healed, and the programs of
// client/examples.
#include <spaid/system.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

// The same matrix by rows.
struct Rows {
  explicit Rows(const CscMatrix& a) : n(a.n), ptr(static_cast<size_t>(a.n) + 1) {
    for (const int32_t row : a.row_idx) ++ptr[static_cast<size_t>(row) + 1];
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) ptr[i + 1] += ptr[i];
    std::vector<int64_t> next(ptr.begin(), ptr.end() - 1);
    idx.resize(a.row_idx.size());
    from.resize(a.row_idx.size());
    for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
      for (auto p = static_cast<size_t>(a.col_ptr[j]); p < static_cast<size_t>(a.col_ptr[j + 1]);
           ++p) {
        const auto q = static_cast<size_t>(next[static_cast<size_t>(a.row_idx[p])]++);
        idx[q] = static_cast<int32_t>(j);
        from[q] = p;
      }
    }
    ptr32.assign(ptr.begin(), ptr.end());
  }
  std::vector<double> Values(const CscMatrix& a) const {
    std::vector<double> values;
    for (const size_t p : from) values.push_back(a.values[p]);
    return values;
  }

  int64_t n;
  std::vector<int64_t> ptr;
  std::vector<int32_t> ptr32, idx;
  std::vector<size_t> from;
};

CscMatrix Drifted(CscMatrix a, int step) {
  for (size_t p = 0; p < a.values.size(); ++p) {
    a.values[p] *= 1 + 0.01 * step * std::sin(static_cast<double>(p % 17));
  }
  return a;
}

using SystemTest = OneDaemon;

TEST_F(SystemTest, AStepSendsValuesAndRightHandSideAlone) {
  Client client({.address = daemon_->address()});
  for (const bool by_rows : {false, true}) {
    // Small enough to come along with its first solve, and too large for that.
    for (const int side : {20, 120}) {
      const CscMatrix first = ConvectionDiffusion(side, side + (by_rows ? 1 : 0), 1.5);
      const Rows rows(first);
      CscMatrix a = first;
      std::vector<double> values;
      const auto view = [&]() -> CscView {
        values = by_rows ? rows.Values(a) : a.values;
        if (!by_rows) return {a.n, first.col_ptr, first.row_idx, values};
        return {.n = a.n,
                .row_idx = rows.idx,
                .values = values,
                .by_rows = true,
                .col_ptr_32 = rows.ptr32};
      };
      System system(client, view(), {.engine = Engine::kStaticSpai});
      const auto pattern_bytes = static_cast<int64_t>(8 * (a.n + 1) + 4 * a.row_idx.size());
      for (int step = 0; step < 6; ++step) {
        a = Drifted(first, step);
        view();
        ASSERT_FALSE(system.SetValues(values));
        const std::vector<double> b = SmoothRhs(a);
        const auto solved = system.Solve(b);
        ASSERT_TRUE(solved.ok()) << solved.error().message;
        EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
        EXPECT_LT(RelativeResidual(a, solved->x, b), 1e-7);
        const auto moved = static_cast<int64_t>(8 * a.values.size() + 8 * b.size());
        EXPECT_EQ(solved->timings.bytes_up, moved + (step == 0 ? pattern_bytes : 0)) << step;
        EXPECT_EQ(solved->reuse.has_value(), step > 0);
        EXPECT_EQ(system.preconditioner(), solved->preconditioner);
      }
    }
  }
}

TEST_F(SystemTest, ThePatternMayGoFirst) {
  Client client({.address = daemon_->address()});
  const CscMatrix a = Poisson(27, 32);
  const std::vector<float> floats(a.values.begin(), a.values.end());
  const std::vector<double> b = SmoothRhs(a);
  System system(client, {a.n, a.col_ptr, a.row_idx}, {.engine = Engine::kFsai});
  ASSERT_FALSE(system.UploadPattern());
  const auto expect_solves = [&](int64_t value_bytes) {
    const auto solved = system.Solve(b);
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_EQ(solved->timings.bytes_up, value_bytes + static_cast<int64_t>(8 * b.size()));
    EXPECT_LT(RelativeResidual(a, solved->x, b), 1e-7);
  };
  ASSERT_FALSE(system.SetValues(a.values));
  expect_solves(static_cast<int64_t>(8 * a.values.size()));
  ASSERT_FALSE(system.SetValues(floats));
  expect_solves(static_cast<int64_t>(4 * floats.size()));
  EXPECT_EQ(system.SetValues(std::span(floats).first(2))->reason, "SIZE_MISMATCH");

  const CscMatrix other = OtherValues(a);
  ASSERT_FALSE(system.SetValues(other.values));
  const auto built = system.Build();
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(built->timings.bytes_up, static_cast<int64_t>(8 * other.values.size()));
  System nobody(client, {a.n, a.col_ptr, std::span(a.row_idx).first(3)});
  EXPECT_EQ(nobody.UploadPattern()->reason, "BAD_POINTERS");
}

TEST_F(SystemTest, SendsNothingTwice) {
  Client client({.address = daemon_->address()});
  const CscMatrix a = Poisson(33, 31);
  System system(client, a, {.engine = Engine::kFsai});
  const std::vector<double> b = SmoothRhs(a);
  ASSERT_TRUE(system.Solve(b).ok());
  const auto again = system.Solve(b);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->timings.bytes_up, static_cast<int64_t>(8 * b.size()));
  // A matrix that comes along is found to be there.
  System other(client, a, {.engine = Engine::kFsai});
  ASSERT_TRUE(other.Solve(b).ok());
  EXPECT_EQ(other.matrix(), system.matrix());
}

TEST_F(SystemTest, UploadsWhatIsNotThereYet) {
  Client client({.address = daemon_->address()});
  const CscMatrix a = Poisson(27, 29);
  System system(client, a, {.engine = Engine::kFsai});
  const auto nnz = static_cast<int64_t>(a.values.size());
  Timings timings;
  ASSERT_FALSE(system.Upload({}, &timings));
  EXPECT_EQ(timings.bytes_up, 12 * nnz + 8 * (a.n + 1));
  EXPECT_FALSE(system.matrix().empty());
  const std::vector<double> b = SmoothRhs(a), values = Drifted(a, 1).values;
  const auto solved = system.Solve(b);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->timings.bytes_up, 8 * a.n);
  ASSERT_FALSE(system.SetValues(values));
  ASSERT_FALSE(system.Upload({}, &timings));
  EXPECT_EQ(timings.bytes_up, 8 * nnz);
  timings = {};
  ASSERT_FALSE(system.Upload({}, &timings));  // nothing is left to be sent
  EXPECT_EQ(timings.bytes_up, 0);
}

TEST_F(SystemTest, SolvesForSeveralRightHandSidesFromAGuess) {
  Client client({.address = daemon_->address()});
  const CscMatrix a = Poisson(24, 25);
  std::vector<double> b = SmoothRhs(a);
  const size_t n = b.size();
  b.resize(3 * n);
  for (size_t i = 0; i < n; ++i) b[n + i] = 2 * b[i], b[2 * n + i] = 1;
  System system(client, a, {.engine = Engine::kFsai});
  const auto solved = system.Solve(b);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  for (size_t k = 0; k < 3; ++k) {
    const std::span<const double> x(solved->x);
    EXPECT_LT(RelativeResidual(a, x.subspan(k * n, n), std::span(b).subspan(k * n, n)), 1e-7);
  }
  const auto known = system.Solve(b, solved->x);
  ASSERT_TRUE(known.ok());
  for (const auto& rhs : known->rhs) EXPECT_LE(rhs.iterations, 1);
}

TEST_F(SystemTest, BuildMakesTheMThatSolvesBeginWith) {
  Client client({.address = daemon_->address()});
  const CscMatrix a = Poisson(26, 27);
  System system(client, a, {.engine = Engine::kFsai});
  const auto built = system.Build(/*fetch_result=*/true);
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_TRUE(built->m);
  const std::vector<double> b = SmoothRhs(a);
  const auto solved = system.Solve(b);
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->preconditioner, built->preconditioner.name);
  EXPECT_EQ(solved->timings.bytes_up, static_cast<int64_t>(8 * b.size()));
}

TEST_F(SystemTest, OfAnMWithAKnownPatternValuesAloneComeDown) {
  Client client({.address = daemon_->address()});
  const CscMatrix a = Poisson(22, 23), other = OtherValues(a);
  PreconditionerSpec spec;
  spec.engine = Engine::kStaticSpai;
  const auto first = client.Build(a, spec, /*fetch_result=*/true);
  const auto second = client.Build(other, spec);
  ASSERT_TRUE(first.ok() && second.ok());
  const auto download = [&](const CscMatrix* known, int64_t* bytes) {
    auto m = client.Download(second->preconditioner.name,
                             {.on_progress = [&](const Progress& p) { *bytes = p.done; }}, known);
    EXPECT_TRUE(m.ok()) << m.error().message;
    return *std::move(m);
  };
  int64_t whole = 0, ignored = 0;
  const CscMatrix plain = download(nullptr, &whole);
  const CscMatrix quick = download(&*first->m, &ignored);
  EXPECT_EQ(quick.col_ptr, plain.col_ptr);
  EXPECT_EQ(quick.row_idx, plain.row_idx);
  EXPECT_EQ(quick.values, plain.values);
  EXPECT_EQ(download(&a, &ignored).values, plain.values) << "another pattern, or M's by chance";
  EXPECT_EQ(download(&other, &ignored).values, plain.values);
}

// Step by step, M comes on the stream of its build.
TEST_F(SystemTest, BuildsOfAKnownPatternBringValuesAlone) {
  Client client({.address = daemon_->address()});
  const CscMatrix a = Poisson(23, 24), next = Drifted(a, 1);
  SolveOptions options;
  options.engine = Engine::kStaticSpai;
  System system(client, a, options);
  const auto first = system.Build(/*fetch_result=*/true);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto values = static_cast<int64_t>(8 * first->m->values.size());
  EXPECT_GT(first->timings.bytes_down, values);
  ASSERT_FALSE(system.SetValues(next.values));
  const auto second = system.Build(/*fetch_result=*/true, {}, &*first->m);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_TRUE(second->timings.rebuild);
  EXPECT_EQ(second->timings.bytes_down, values);
  EXPECT_EQ(second->m->col_ptr, first->m->col_ptr);
  EXPECT_EQ(second->m->row_idx, first->m->row_idx);
  EXPECT_NE(second->m->values, first->m->values);
  const auto stored = client.Download(second->preconditioner.name);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ(stored->values, second->m->values);
  // The pattern of another matrix is none of M's.
  const CscMatrix smaller = Poisson(23, 23);
  PreconditionerSpec spec;
  spec.engine = Engine::kStaticSpai;
  const auto other = client.Build(smaller, spec, /*fetch_result=*/true, {}, &*first->m);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(other->m->n, smaller.n);
  EXPECT_GT(other->timings.bytes_down, static_cast<int64_t>(8 * other->m->values.size()));
}

TEST_F(SystemTest, OtherPatternsAndSizes) {
  Client client({.address = daemon_->address()});
  CscMatrix a = Poisson(20, 21);
  System system(client, a, {.engine = Engine::kFsai});
  for (const auto& [nx, ny] : {std::pair(20, 21), std::pair(21, 20), std::pair(13, 14)}) {
    a = Poisson(nx, ny);
    ASSERT_FALSE(system.SetMatrix(a));
    const std::vector<double> b = SmoothRhs(a);
    const auto solved = system.Solve(b);
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_LT(RelativeResidual(a, solved->x, b), 1e-7);
  }
  const std::vector<double> few(3);
  EXPECT_EQ(system.SetValues(few)->reason, "SIZE_MISMATCH");
  CscView bad = a;
  bad.n = 5;
  EXPECT_EQ(system.SetMatrix(bad)->reason, "SIZE_MISMATCH");
  EXPECT_TRUE(system.Solve(SmoothRhs(a)).ok()) << "what was there stays";
}

TEST_F(SystemTest, AutoNeedsNoM) {
  Client client({.address = daemon_->address()});
  const CscMatrix first = Poisson(40, 41);
  CscMatrix a = first;
  System system(client, first);
  for (int step = 0; step < 3; ++step) {
    a = Drifted(first, 0);
    for (double& value : a.values) value *= 1 + step;
    ASSERT_FALSE(system.SetValues(a.values));
    const std::vector<double> b = SmoothRhs(a);
    const auto solved = system.Solve(b);
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_LT(RelativeResidual(a, solved->x, b), 1e-7);
  }
}

// Whatever of the three is gone, and all of them.
TEST_F(SystemTest, HealsWhatWasDropped) {
  Client client({.address = daemon_->address()});
  const CscMatrix first = Poisson(28, 29);
  CscMatrix a = first;
  System system(client, a, {.engine = Engine::kFsai});
  for (int step = 0; step < 4; ++step) {
    a.values = first.values;
    for (double& value : a.values) value *= 1 + step;
    ASSERT_FALSE(system.SetValues(a.values));
    const std::vector<double> b = SmoothRhs(a);
    const std::string old = system.matrix();
    const auto solved = system.Solve(b);
    ASSERT_TRUE(solved.ok()) << step << ": " << solved.error().message;
    EXPECT_LT(RelativeResidual(a, solved->x, b), 1e-7);
    if (step % 2 == 0) {
      ASSERT_FALSE(client.DeleteMatrix(system.matrix()));
    }
    if (step > 0) {
      ASSERT_FALSE(client.DeletePreconditioner(system.preconditioner()));
    }
    // With the values that it had.
    const auto again = system.Solve(b);
    ASSERT_TRUE(again.ok()) << step << ": " << again.error().message;
    EXPECT_LT(RelativeResidual(a, again->x, b), 1e-7);
  }
}

TEST_F(SystemTest, UploadValuesSendsAllWhereThePatternIsGone) {
  Client client({.address = daemon_->address()});
  const CscMatrix a = Poisson(23, 22), other = OtherValues(a);
  const auto stored = client.Upload(a);
  ASSERT_TRUE(stored.ok());
  Timings timings;
  auto values = client.UploadValues(stored->name, other, "", {}, &timings);
  ASSERT_TRUE(values.ok()) << values.error().message;
  EXPECT_EQ(timings.bytes_up, static_cast<int64_t>(8 * other.values.size()));
  EXPECT_EQ(values->pattern_digest, stored->pattern_digest);
  values = client.UploadValues("matrices/00000000000000000000000000000000", OtherValues(other), "",
                               {}, &timings);
  ASSERT_TRUE(values.ok()) << values.error().message;
  const auto wrong = client.UploadValues(stored->name, Poisson(5, 5));
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().reason, "PATTERN_SIZE_MISMATCH");
}

TEST(SystemAcrossARestart, GoesOn) {
  auto daemon = std::make_unique<Daemon>();
  ASSERT_TRUE(daemon->serving()) << daemon->log();
  const std::string address = daemon->address();
  Client client({.address = address});
  const CscMatrix first = Poisson(28, 29);
  CscMatrix a = first;
  System system(client, a, {.engine = Engine::kFsai});
  for (int life = 0; life < 3; ++life) {
    for (double& value : a.values) value *= 1.5;
    ASSERT_FALSE(system.SetValues(a.values));
    const std::vector<double> b = SmoothRhs(a);
    const auto solved = system.Solve(b);
    ASSERT_TRUE(solved.ok()) << life << ": " << solved.error().message;
    EXPECT_LT(RelativeResidual(a, solved->x, b), 1e-7);
    daemon.reset();  // which forgets all
    daemon = std::make_unique<Daemon>(std::vector<std::string>{}, address.c_str());
    ASSERT_TRUE(daemon->serving()) << daemon->log();
  }
}

// Beside this test, or where the build has them.
std::string Example(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return folder / ("spaid_example_" + name);
}

TEST_F(SystemTest, ExamplesRun) {
  const Ran heat = RunProgram({Example("heat"), daemon_->address(), "40", "5"});
  EXPECT_EQ(heat.status, 0) << heat.output;
  EXPECT_NE(heat.output.find("step 5: "), std::string::npos) << heat.output;
  EXPECT_NE(heat.output.find("M kept"), std::string::npos) << heat.output;
  const Ran contact = RunProgram({Example("contact"), daemon_->address(), "12", "2"});
  EXPECT_EQ(contact.status, 0) << contact.output;
  EXPECT_NE(contact.output.find("load 2, step 1: "), std::string::npos) << contact.output;
  EXPECT_NE(RunProgram({Example("heat"), "127.0.0.1:1"}).status, 0);
}

}  // namespace
}  // namespace spaid::e2e
