#include "client/cli/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "client/cli/json.h"
#include "client/cli/printable.h"
#include "client/cli/progress.h"
#include "client/cli/session.h"
#include "client/cli/solve_report.h"

namespace spaid::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(Format, Counts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-123456), "-123,456");
}

TEST(Format, MillisecondsReadWellAtEveryScale) {
  EXPECT_EQ(FormatMs(0), "0 ms");
  EXPECT_EQ(FormatMs(0.4219), "0.42 ms");
  EXPECT_EQ(FormatMs(9.996), "10.0 ms");
  EXPECT_EQ(FormatMs(99.96), "100 ms");
  EXPECT_EQ(FormatMs(999.6), "1.00 s");
  EXPECT_EQ(FormatMs(12'345), "12.3 s");
  EXPECT_EQ(FormatMs(119'960), "2 min 00 s");
  EXPECT_EQ(FormatMs(123'400), "2 min 03 s");
  EXPECT_EQ(FormatMs(std::nan("")), "-");
}

TEST(Format, WhatAServerSaysIsTextOnly) {
  EXPECT_EQ(Printable("ordinary: \xc3\xa4 \xe2\x82\xac"), "ordinary: \xc3\xa4 \xe2\x82\xac");
  EXPECT_EQ(Printable("\x1b[2J\r\n\x7f"), "\\x1b[2J\\x0d\\x0a\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");           // U+009B, a CSI by itself
  EXPECT_EQ(Printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // U+202E: from right to left
  EXPECT_EQ(Printable("\xff\xe2\x82"), "\\xff\\xe2\\x82");  // no UTF-8
  Facts facts;
  facts.Add("label", "a\x1b]0;b\x07");
  EXPECT_THAT(facts.Text(false), HasSubstr("a\\x1b]0;b\\x07"));
  Table table({{"label", Table::Align::kLeft}});
  table.Add({"a\nb"});
  EXPECT_THAT(table.Text(false), HasSubstr("a\\x0ab"));
}

TEST(Format, FiguresWithoutBound) {
  EXPECT_EQ(FormatMs(1e300), "over 10,000 years");
  EXPECT_EQ(FormatMs(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Format, BytesAndResiduals) {
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.00 kB");
  EXPECT_EQ(FormatBytes(12'345'678), "12.3 MB");
  EXPECT_EQ(FormatBytes(999'900), "1.00 MB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "9.22 EB");
  EXPECT_EQ(FormatResidual(7.31e-9), "7.3e-09");
  EXPECT_EQ(FormatResidual(0), "0");
  EXPECT_EQ(FormatResidual(std::nan("")), "NaN");
}

TEST(Format, TimesAndNames) {
  EXPECT_EQ(FormatTime(std::chrono::system_clock::from_time_t(951782400)), "2000-02-29T00:00:00Z");
  EXPECT_EQ(UpperSnake("max-iterations"), "MAX_ITERATIONS");
  EXPECT_EQ(CodeName(Code::kUnauthenticated), "UNAUTHENTICATED");
}

TEST(TableText, AlignsAndLeavesNoTrailingBlanks) {
  Table table({{"name", Table::Align::kLeft},
               {"count", Table::Align::kRight},
               {"note", Table::Align::kLeft}});
  table.Add({"a", "1,234", "x"});
  table.Add({"größer", "5", ""});
  EXPECT_EQ(table.Text(false),
            "  name    count  note\n"
            "  a       1,234  x\n"
            "  größer      5\n");
}

TEST(TableText, ColoursOnlyWhenAsked) {
  Table table({{"n", Table::Align::kLeft}});
  table.Add({{"bad", Style::kBad}});
  EXPECT_THAT(table.Text(false), Not(HasSubstr("\033")));
  EXPECT_THAT(table.Text(true), HasSubstr("\033[1;31mbad\033[0m"));
}

TEST(FactsText, AlignsNames) {
  Facts facts;
  facts.Add("n", "5");
  facts.Add("device", "cpu");
  EXPECT_EQ(facts.Text(false), "  n       5\n  device  cpu\n");
}

// --- progress ---

class ProgressTest : public testing::Test {
 protected:
  ~ProgressTest() override { std::fclose(stream_); }
  std::string Printable() {
    std::fflush(stream_);
    std::rewind(stream_);
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), stream_));
    return text;
  }
  static Progress Event(Progress::Kind kind, Stage stage = Stage::kUpload, int64_t done = 0,
                        int64_t total = 0) {
    Progress progress;
    progress.kind = kind;
    progress.stage = stage;
    progress.done = done;
    progress.total = total;
    return progress;
  }
  static Progress Residuals() {
    Progress progress = Event(Progress::Kind::kResiduals);
    progress.residuals = {{0, 12, 1e-5}};
    return progress;
  }
  static void ReportAll(ProgressReporter& reporter) {
    reporter.Report(Event(Progress::Kind::kTransfer, Stage::kUpload, 10, 10));  // too small to tell
    reporter.Clear();
    for (int64_t done = 0; done <= 2'000'000; done += 200'000) {
      reporter.Report(Event(Progress::Kind::kTransfer, Stage::kUpload, done, 2'000'000));
    }
    Progress queued = Event(Progress::Kind::kQueued);
    queued.queue_position = 2;
    queued.eta_ms = 1500;
    reporter.Report(queued);
    queued.queue_position = 0;
    reporter.Report(queued);
    Progress started = Event(Progress::Kind::kStarted);
    started.device = "cpu";
    reporter.Report(started);
    for (int64_t done = 0; done <= 1000; done += 10) {
      reporter.Report(Event(Progress::Kind::kStage, Stage::kBuild, done, 1000));
    }
    reporter.Report(Residuals());
  }
  FILE* stream_ = std::tmpfile();
};

TEST_F(ProgressTest, SaysEachStepOnceInAPipe) {
  EXPECT_EQ(ProgressReporter::ModeFor(false, stream_), ProgressReporter::Mode::kLines);
  {
    ProgressReporter reporter(ProgressReporter::Mode::kLines, stream_);
    ReportAll(reporter);
  }
  EXPECT_EQ(Printable(),
            "upload of 2.00 MB\n"
            "queued, 2 ahead, starts in about 1.50 s\n"
            "running on cpu\n"
            "build\n");
}

TEST_F(ProgressTest, DrawsABarAndTakesItAway) {
  ProgressReporter reporter(ProgressReporter::Mode::kBar, stream_, 1e-8);
  reporter.Report(Residuals());
  // Five of eight decades.
  EXPECT_THAT(Printable(),
              HasSubstr("[###############.........] 62 %  solve  iteration 12, residual "
                        "1.0e-05"));
  EXPECT_THAT(Printable(), Not(HasSubstr("\n")));
  reporter.Clear();
  EXPECT_TRUE(Printable().ends_with("\r\033[K"));
}

TEST_F(ProgressTest, IsSilentWhenToldTo) {
  EXPECT_EQ(ProgressReporter::ModeFor(true, stream_), ProgressReporter::Mode::kNone);
  ProgressReporter reporter(ProgressReporter::Mode::kNone, stream_);
  ReportAll(reporter);
  EXPECT_EQ(Printable(), "");
}

// --- the solve's report ---

class SolveReportTest : public testing::Test {
 protected:
  SolveReportTest() {
    args_.matrix.matrix = "A.mtx";
    result_.method = Method::kBicgstab;
    result_.engine = Engine::kStaticSpai;
    result_.matrix = "matrices/m";
    result_.device = "cpu";
    result_.nnz_ratio = 1.25;
    result_.timings = {.upload_ms = 1,
                       .queue_ms = 2,
                       .plan_ms = 10,
                       .build_ms = 30,
                       .solve_ms = 20,
                       .total_ms = 70};
    AddRhs(Outcome::kConverged, 40, 7e-9);
  }
  void AddRhs(Outcome outcome, int64_t iterations, double residual) {
    SolveResult::Rhs rhs;
    rhs.outcome = outcome;
    rhs.iterations = iterations;
    rhs.true_relative_residual = residual;
    result_.rhs.push_back(rhs);
  }
  SolveReport Report() {
    return {.args = args_,
            .result = result_,
            .n = 1000,
            .nnz = 5000,
            .info = info_,
            .diagnosis_error = {}};
  }
  SolveArgs args_;
  SolveResult result_;
  std::optional<MatrixInfo> info_;
};

TEST_F(SolveReportTest, JsonHasTheKeysThatScriptsRelyOn) {
  const nlohmann::json object = SolveJson(Report());
  EXPECT_EQ(object.at("outcome"), "CONVERGED");
  EXPECT_EQ(object.at("iterations"), 40);
  EXPECT_EQ(object.at("true_relative_residual"), 7e-9);
  EXPECT_EQ(object.at("setup_ms"), 40);
  EXPECT_EQ(object.at("solve_ms"), 20);
  EXPECT_EQ(object.at("total_ms"), 70);
  EXPECT_EQ(object.at("nnz_ratio"), 1.25);
  EXPECT_EQ(object.at("engine"), "static-spai");
  EXPECT_EQ(object.at("method"), "bicgstab");
  EXPECT_EQ(object.at("device"), "cpu");
  EXPECT_EQ(object.at("n"), 1000);
  EXPECT_EQ(object.at("nnz"), 5000);
  EXPECT_FALSE(object.contains("findings"));
}

TEST_F(SolveReportTest, SplitsTheSetUpOfADevice) {
  EXPECT_THAT(SolveText(Report(), false), Not(HasSubstr("to the device")));
  EXPECT_THAT(SolveText(Report(), false), Not(HasSubstr("placed")));
  result_.device = "gpu:0";
  result_.placement = "gpu:0: predicted at 900 ms on the CPU";
  result_.timings.host_to_device_ms = 4;
  result_.timings.device_to_host_ms = 5;
  result_.timings.assemble_ms = 1;
  const nlohmann::json object = SolveJson(Report());
  EXPECT_EQ(object.at("setup_ms"), 50);
  EXPECT_EQ(object.at("host_to_device_ms"), 4);
  EXPECT_EQ(object.at("device_to_host_ms"), 5);
  EXPECT_EQ(object.at("assemble_ms"), 1);
  EXPECT_EQ(object.at("placement"), result_.placement);
  const std::string text = SolveText(Report(), false);
  EXPECT_THAT(text, HasSubstr(FormatMs(50) + "  (plan " + FormatMs(10)));
  EXPECT_THAT(text, HasSubstr("to the device " + FormatMs(4) + ", back " + FormatMs(5) + ")"));
  EXPECT_THAT(text, HasSubstr("on the CPU"));
  result_.timings.rebuild = true;
  EXPECT_THAT(SolveText(Report(), false), HasSubstr("by an old plan"));
}

TEST_F(SolveReportTest, TellsHowMIsStoredAndHowFastItWent) {
  EXPECT_THAT(SolveText(Report(), false), Not(HasSubstr("M stored")));
  EXPECT_EQ(SolveJson(Report()).at("m_precision"), "");
  result_.m_precision = Precision::kFp32;
  EXPECT_THAT(SolveText(Report(), false), ContainsRegex("M stored +in fp32\n"));
  result_.precision_reason = "fp32: an iteration moves 160 MB, 200 with fp64";
  result_.figures = {.place_ms = 1,
                     .trial_ms = 0,
                     .host_to_device_ms = 2,
                     .iterate_ms = 12,
                     .check_ms = 3,
                     .device_to_host_ms = 4,
                     .iterations = 40,
                     .iterations_per_second = 3333.3,
                     .bytes_per_second = 18.2e9,
                     .copy_bytes_per_second = 28e9,
                     .copy_share = 0.65};
  std::string text = SolveText(Report(), false);
  EXPECT_THAT(text, ContainsRegex("M stored +fp32: an iteration moves 160 MB, 200 with fp64\n"));
  EXPECT_THAT(text, HasSubstr("(iterations 12.0 ms, residual checks 3.00 ms, layout of A and M "
                              "1.00 ms, to the device 2.00 ms, back 4.00 ms)"));
  EXPECT_THAT(text, HasSubstr("3,333 iterations/s, 18.20 GB/s, 0.65 of a copy's 28.0\n"));
  result_.figures.trial_ms = 5;
  result_.figures.copy_bytes_per_second = 0;
  text = SolveText(Report(), false);
  EXPECT_THAT(text, HasSubstr("18.20 GB/s\n")) << "no copy was measured";
  const nlohmann::json object = SolveJson(Report());
  EXPECT_EQ(object.at("m_precision"), "fp32");
  EXPECT_EQ(object.at("precision_reason"), result_.precision_reason);
  EXPECT_EQ(object.at("figures").at("iterate_ms"), 12);
  EXPECT_EQ(object.at("figures").at("check_ms"), 3);
  EXPECT_EQ(object.at("figures").at("place_ms"), 1);
  EXPECT_EQ(object.at("figures").at("trial_ms"), 5);
  EXPECT_EQ(object.at("figures").at("host_to_device_ms"), 2);
  EXPECT_EQ(object.at("figures").at("device_to_host_ms"), 4);
  EXPECT_EQ(object.at("figures").at("iterations_per_second"), 3333.3);
  EXPECT_EQ(object.at("figures").at("bytes_per_second"), 18.2e9);
  EXPECT_EQ(object.at("figures").at("copy_share"), 0.65);
}

TEST_F(SolveReportTest, SpeaksOfTheWorstRightHandSide) {
  AddRhs(Outcome::kMaxIterations, 30, 1e-3);
  AddRhs(Outcome::kConverged, 99, 9e-9);
  EXPECT_EQ(&WorstRhs(result_), &result_.rhs[1]);
  const nlohmann::json object = SolveJson(Report());
  EXPECT_EQ(object.at("outcome"), "MAX_ITERATIONS");
  EXPECT_EQ(object.at("iterations"), 99);
  EXPECT_EQ(object.at("rhs").size(), 3u);
  EXPECT_EQ(object.at("rhs")[0].at("outcome"), "CONVERGED");
  EXPECT_THAT(SolveText(Report(), false), HasSubstr("MAX_ITERATIONS after 99 iterations"));
}

TEST_F(SolveReportTest, HistoryOnlyIfAsked) {
  result_.rhs[0].history = {{0, 1, 0.5}, {0, 2, 0.25}};
  EXPECT_FALSE(SolveJson(Report()).at("rhs")[0].contains("history"));
  args_.history = true;
  EXPECT_EQ(SolveJson(Report()).at("rhs")[0].at("history").dump(), "[[1,0.5],[2,0.25]]");
}

TEST_F(SolveReportTest, TextTellsTheFindingsOnlyWhenItDidNotConverge) {
  result_.choice_reason = "the diagonal is weak";
  info_ = MatrixInfo{};
  info_->diagnosis.findings = {"12 rows have a zero diagonal"};
  std::string text = SolveText(Report(), false);
  EXPECT_THAT(text, HasSubstr("CONVERGED after 40 iterations"));
  EXPECT_THAT(text, HasSubstr("the diagonal is weak"));
  EXPECT_THAT(text, HasSubstr("plan 10.0 ms, build 30.0 ms"));
  EXPECT_THAT(text, Not(HasSubstr("zero diagonal")));
  result_.rhs[0].outcome = Outcome::kStagnated;
  result_.rhs[0].detail = "no progress for 50 iterations";
  text = SolveText(Report(), false);
  EXPECT_THAT(text, HasSubstr("STAGNATED"));
  EXPECT_THAT(text, HasSubstr("no progress for 50 iterations"));
  EXPECT_THAT(text, HasSubstr("  - 12 rows have a zero diagonal"));
  SolveReport report = Report();
  report.info.reset();
  report.diagnosis_error = LocalError("HANDLE_EVICTED", "the matrix was evicted");
  EXPECT_THAT(SolveText(report, false), HasSubstr("no diagnosis: the matrix was evicted"));
  EXPECT_EQ(SolveJson(report).at("findings_error").at("reason"), "HANDLE_EVICTED");
}

TEST(Json, ErrorsCarryReasonAndPlace) {
  Error error = LocalError("ZERO_COLUMN", "column 5 is zero");
  error.field = "matrix";
  error.retry_after = std::chrono::milliseconds(250);
  error.metadata = {{"index", "5"}};
  EXPECT_EQ(ToJson(error).dump(),
            R"({"code":"INVALID_ARGUMENT","field":"matrix","message":"column 5 is zero",)"
            R"("metadata":{"index":"5"},"reason":"ZERO_COLUMN","retry_after_ms":250})");
}

TEST(Rhs, OnesAndRandomAreProductsWithA) {
  MatrixSource source;
  source.local = CscMatrix{.n = 2, .col_ptr = {0, 2, 3}, .row_idx = {0, 1, 1}, .values = {2, 3, 5}};
  const auto ones = MakeRhs(source, 2, {.rhs = "ones"});
  ASSERT_TRUE(ones.ok());
  EXPECT_THAT(*ones, testing::ElementsAre(2, 8));
  const auto random = MakeRhs(source, 2, {.rhs = "random", .seed = 3, .count = 2});
  ASSERT_TRUE(random.ok());
  ASSERT_EQ(random->size(), 4u);
  // b = A x: x is found again by forward substitution, and lies in [-1, 1].
  for (const size_t base : {0u, 2u}) {
    const double x0 = (*random)[base] / 2, x1 = ((*random)[base + 1] - 3 * x0) / 5;
    EXPECT_LE(std::fabs(x0), 1);
    EXPECT_LE(std::fabs(x1), 1);
  }
  EXPECT_NE((*random)[0], (*random)[2]);
  EXPECT_EQ(*MakeRhs(source, 2, {.rhs = "random", .seed = 3, .count = 2}), *random);
  EXPECT_NE(*MakeRhs(source, 2, {.rhs = "random", .seed = 4, .count = 2}), *random);

  source.local.reset();
  source.handle = "matrices/x";
  const auto refused = MakeRhs(source, 2, {.rhs = "ones"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "RHS_NEEDS_MATRIX");
}

}  // namespace
}  // namespace spaid::cli
