// How a terminal shows the residual: the series, what a running solve tells of its end, the chart,
// and the drawing over and over again.
#include "client/cli/residual_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "client/cli/residual_series.h"
#include "client/cli/solve_progress.h"
#include "client/cli/terminal.h"
#include "tests/client/cli/screen.h"

namespace spaid::cli {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<Residual> Points(const std::vector<double>& values) {
  std::vector<Residual> points;
  for (size_t k = 0; k < values.size(); ++k) {
    points.push_back({.iteration = static_cast<int32_t>(k), .relative_residual = values[k]});
  }
  return points;
}

// 1, 10^-per_iteration, …
std::vector<Residual> Falling(int count, double per_iteration) {
  std::vector<double> values;
  for (int k = 0; k < count; ++k) values.push_back(std::pow(10.0, -per_iteration * k));
  return Points(values);
}

DecadeAxis AxisOf(const std::vector<double>& values, double target = 0) {
  const std::vector<Residual> points = Points(values);
  const std::span<const Residual> span = points;
  return MakeDecadeAxis({&span, 1}, target);
}

// --- the series ---

TEST(Decimate, KeepsPeaksAndEndsInOrder) {
  std::vector<double> values(10'000, 1.0);
  values[3'333] = 1e-9;
  values[7'777] = 1e6;
  values[5'000] = kNan;
  values[6'000] = 0;
  const std::vector<Residual> all = Points(values), few = Decimate(all, 100);
  EXPECT_LE(few.size(), 110u);
  EXPECT_EQ(few.front().iteration, 0);
  EXPECT_EQ(few.back().iteration, 9'999);
  std::vector<int32_t> kept;
  for (size_t k = 0; k < few.size(); ++k) {
    if (k > 0) {
      EXPECT_GT(few[k].iteration, few[k - 1].iteration);
    }
    if (few[k].relative_residual != 1) kept.push_back(few[k].iteration);
  }
  EXPECT_THAT(kept, ElementsAre(3'333, 5'000, 6'000, 7'777));
  EXPECT_EQ(Decimate(all, 10'000).size(), 10'000u);
  EXPECT_EQ(Decimate({}, 10).size(), 0u);
}

TEST(DecadeAxis, HoldsThePointsAndTheTarget) {
  DecadeAxis axis = AxisOf({1, 0.5, 2e-3});
  EXPECT_EQ(axis.top, 0);
  EXPECT_EQ(axis.bottom, -3);
  EXPECT_FALSE(axis.has_target);
  axis = AxisOf({3, 0.5}, 1e-8);
  EXPECT_EQ(axis.top, 1);
  EXPECT_EQ(axis.bottom, -9);  // the target is not on the edge
  EXPECT_TRUE(axis.has_target);
  EXPECT_FALSE(AxisOf({1, 0.5}, 1e-300).has_target);
  EXPECT_EQ(AxisOf({1, 0.5}, 1e-300).bottom, -1);
  EXPECT_TRUE(AxisOf({1, 1e-200}, 1e-300).has_target);
}

TEST(DecadeAxis, LivesWithWhatHasNoLogarithm) {
  for (const std::vector<double>& values :
       {std::vector<double>{}, {0}, {kNan, kInfinity, -1}, {1, 1, 1}}) {
    const DecadeAxis axis = AxisOf(values);
    EXPECT_EQ(axis.top, 0);
    EXPECT_EQ(axis.bottom, -1);
  }
  const DecadeAxis axis = AxisOf({1, 1e-4, 0, kInfinity});
  EXPECT_EQ(axis.bottom, -4);
  EXPECT_EQ(axis.Place(1), 0);
  EXPECT_DOUBLE_EQ(axis.Place(1e-2), 0.5);
  EXPECT_EQ(axis.Place(0), 1);
  EXPECT_EQ(axis.Place(1e9), 0);
  EXPECT_EQ(AxisOf({std::numeric_limits<double>::denorm_min()}).bottom, -324);
}

TEST(Ticks, AreRoundAndFew) {
  EXPECT_THAT(DecadeTicks({.top = 0, .bottom = -4}, 5), ElementsAre(0, -1, -2, -3, -4));
  EXPECT_THAT(DecadeTicks({.top = 1, .bottom = -9}, 6), ElementsAre(0, -2, -4, -6, -8));
  EXPECT_THAT(DecadeTicks({.top = 0, .bottom = -9}, 4), ElementsAre(0, -3, -6, -9));
  EXPECT_THAT(DecadeTicks({.top = 0, .bottom = -300}, 4), ElementsAre(0, -100, -200, -300));
  EXPECT_THAT(IterationTicks(1, 8), ElementsAre(0, 1));
  EXPECT_THAT(IterationTicks(7, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(IterationTicks(281, 8), ElementsAre(0, 50, 100, 150, 200, 250));
  EXPECT_THAT(IterationTicks(2'147'483'647, 4), ElementsAre(0, 1'000'000'000, 2'000'000'000));
}

TEST(Targets, AreRelativeToEachRightHandSide) {
  const std::vector<double> b = {3, 4, 0, 0, 0, 0.5};
  EXPECT_THAT(RelativeTargets(b, 2, 1e-8, 0), ElementsAre(1e-8, 1e-8, 1e-8));
  EXPECT_THAT(RelativeTargets(b, 2, 1e-8, 1e-3), ElementsAre(2e-4, 1e-8, 2e-3));
}

// --- the track ---

TEST(Track, CountsIterationsASecond) {
  ResidualTrack track;
  const ResidualTrack::Time start{};
  track.Add(Falling(1, 1), start);
  EXPECT_FALSE(track.Rate());
  track.Add(std::vector<Residual>{{0, 10, 0.1}}, start + 100ms);
  EXPECT_FALSE(track.Rate());  // too short to tell
  track.Add(std::vector<Residual>{{0, 100, 0.01}}, start + 1s);
  EXPECT_DOUBLE_EQ(*track.Rate(), 100);
  // Only the last seconds count.
  track.Add(std::vector<Residual>{{0, 101, 0.01}}, start + 10s);
  track.Add(std::vector<Residual>{{0, 121, 0.01}}, start + 12s);
  EXPECT_DOUBLE_EQ(*track.Rate(), 10);
}

TEST(Track, KnowsHowFarItIsWhereTheResidualFallsSteadily) {
  ResidualTrack track({1e-8});
  track.Add(Falling(41, 0.1), {});
  EXPECT_EQ(track.ToGo(), 40);
  ResidualTrack long_way({1e-8});
  long_way.Add(Falling(401, 0.001), {});
  EXPECT_EQ(long_way.ToGo(), 7'600);  // two digits are as much as it is worth
}

TEST(Track, SaysNothingWhereTheResidualDoesNotFall) {
  const auto to_go = [](const std::vector<double>& values, double target = 1e-8) {
    ResidualTrack track({target});
    track.Add(Points(values), {});
    return track.ToGo();
  };
  std::vector<double> rising, flat, noisy, stalled;
  for (int k = 0; k < 200; ++k) {
    rising.push_back(std::pow(10.0, 0.01 * k));
    flat.push_back(0.1);
    noisy.push_back(std::pow(10.0, -1 + std::sin(k * 2.4) - 1e-4 * k));
    stalled.push_back(std::pow(10.0, k < 140 ? -0.02 * k : -2.8 - 1e-5 * (k - 140)));
  }
  EXPECT_EQ(to_go(rising), std::nullopt);
  EXPECT_EQ(to_go(flat), std::nullopt);
  EXPECT_EQ(to_go(noisy), std::nullopt);
  EXPECT_EQ(to_go(stalled), std::nullopt);
  EXPECT_EQ(to_go({1, 0.1, 0.01}), std::nullopt);  // too few
  EXPECT_EQ(to_go({}), std::nullopt);
  EXPECT_EQ(to_go(std::vector<double>(50, kNan)), std::nullopt);
  EXPECT_EQ(to_go(std::vector<double>(50, 0.0)), std::nullopt);
  ResidualTrack no_target;
  no_target.Add(Falling(41, 0.1), {});
  EXPECT_EQ(no_target.ToGo(), std::nullopt);
}

TEST(Chart, StaysInsideWhateverTheOrderOfIterations) {
  ResidualTrack track({1e-8});
  track.Add(std::vector<Residual>{{.iteration = 5, .relative_residual = 1},
                                  {.iteration = INT32_MAX, .relative_residual = 1e300},
                                  {.iteration = 0, .relative_residual = 5e-324},
                                  {.iteration = 7, .relative_residual = 1e-3}},
            {});
  const std::vector<std::string> lines = ResidualChart(track, 80, false);
  for (const std::string& line : lines) EXPECT_LE(ScreenWidth(line), 80);
  EXPECT_GT(lines.size(), 2u);
}

TEST(Track, FollowsTheRightHandSideAtHand) {
  ResidualTrack track({1e-8, 1e-6, 1e-8});
  EXPECT_EQ(track.Status(80), "");
  track.Add(Falling(41, 0.1), {});
  EXPECT_EQ(track.Status(200),
            "right-hand side 1 of 3, iteration 40, residual 1.0e-04, asked for 1.0e-08, "
            "about 40 to go");
  track.Add(std::vector<Residual>{{0, 41, 5e-5}, {1, 0, 1.0}, {1, 1, 0.5}}, {});
  EXPECT_EQ(track.points().size(), 2u);
  EXPECT_EQ(track.target(), 1e-6);
  EXPECT_EQ(track.Status(200),
            "right-hand side 2 of 3, iteration 1, residual 5.0e-01, asked for 1.0e-06");
  EXPECT_EQ(track.Status(65), "right-hand side 2 of 3, iteration 1, residual 5.0e-01");
  EXPECT_EQ(track.Status(10).size(), 10u);
}

// A GPU solves several at once: their residuals come in turns.
TEST(Track, FollowsOneOfSeveralThatAreSolvedAtOnce) {
  ResidualTrack track({1e-8, 1e-8, 1e-8, 1e-8});
  track.Add(std::vector<Residual>{{0, 0, 0.0}, {1, 0, 1.0}, {2, 0, 1.0}}, {});
  EXPECT_EQ(track.rhs(), 0);  // zero: that was all of it
  for (int32_t k = 1; k <= 40; k += 10) {
    std::vector<Residual> batch;
    for (const int32_t rhs : {1, 2}) {
      const int32_t last = rhs == 1 ? 25 : 40;
      for (int32_t i = k; i < std::min(k + 10, last + 1); ++i) batch.push_back({rhs, i, 0.5});
    }
    track.Add(batch, {});
    EXPECT_EQ(track.rhs(), k < 20 ? 1 : 2) << k;
  }
  EXPECT_EQ(track.points().size(), 41u);  // all of its own
  track.Add(std::vector<Residual>{{3, 0, 1.0}, {3, 1, 0.5}}, {});
  EXPECT_EQ(track.rhs(), 3);
  EXPECT_EQ(track.points().size(), 2u);
}

TEST(Track, IsBounded) {
  ResidualTrack track({1e-8});
  for (int k = 0; k < 100'000; ++k) {
    track.Add(std::vector<Residual>{{0, k, k == 40'000 ? 1e-5 : 1.0}},
              ResidualTrack::Time(k * 1ms));
  }
  EXPECT_LE(track.points().size(), 8192u);
  EXPECT_EQ(track.points().back().iteration, 99'999);
  EXPECT_TRUE(std::any_of(track.points().begin(), track.points().end(),
                          [](const Residual& point) { return point.relative_residual == 1e-5; }));
}

// --- the chart ---

TEST(Chart, DrawsALineOfOnesAlongTheTop) {
  ResidualTrack track;
  track.Add(Points({1, 1, 1}), {});
  const std::vector<std::string> lines = ResidualChart(track, kChartMinColumns, false);
  ASSERT_EQ(lines.size(), static_cast<size_t>(kChartRows) + 2);
  // 47 columns, of which " 1e-1┤" takes six; the two uppermost dots of each braille character.
  std::string ones = "  1e0┤";
  for (int k = 0; k < 41; ++k) ones += "⠉";
  EXPECT_EQ(lines[0], ones);
  for (int row = 1; row < kChartRows - 1; ++row) EXPECT_EQ(lines[row], "     │");
  EXPECT_EQ(lines[kChartRows - 1], " 1e-1┤");
  std::string axis = "     └0";
  for (int k = 0; k < 39; ++k) axis += "─";
  EXPECT_EQ(lines[kChartRows], axis + "2");
  EXPECT_EQ(lines[kChartRows + 1], "      iteration 2, residual 1.0e+00");
}

TEST(Chart, FallsFromTheTopLeftToTheTarget) {
  ResidualTrack track({1e-7});
  track.Add(Falling(71, 0.1), {});
  const std::vector<std::string> lines = ResidualChart(track, 80, false);
  EXPECT_THAT(lines.front(), StartsWith("  1e0┤⠉"));
  EXPECT_THAT(lines[kChartRows - 2], StartsWith("     │┄ asked for 1.0e-07 ┄┄"));
  EXPECT_EQ(lines[kChartRows - 1], " 1e-8┤");  // the curve ends a decade above
  EXPECT_EQ(lines.back(), "      iteration 70, residual 1.0e-07");
  for (const std::string& line : lines) EXPECT_LE(ScreenWidth(line), 79);
}

TEST(Chart, LeavesGapsAndStandsOnZero) {
  ResidualTrack track({1e-8});
  track.Add(Points({1, kNan, 0.1, kInfinity, 0}), {});
  const std::vector<std::string> lines = ResidualChart(track, 60, false);
  EXPECT_EQ(lines.size(), static_cast<size_t>(kChartRows) + 2);
  EXPECT_THAT(lines[kChartRows - 1], EndsWith("⢀"));  // the rightmost, lowest dot
  EXPECT_EQ(ResidualChart(ResidualTrack(), 60, false).size(), 0u);
}

TEST(Chart, ColoursOnlyWhereTold) {
  ResidualTrack track({1e-8});
  track.Add(Falling(40, 0.1), {});
  for (const std::string& line : ResidualChart(track, 80, false)) {
    EXPECT_THAT(line, Not(HasSubstr("\033")));
  }
  const std::vector<std::string> plain = ResidualChart(track, 80, false);
  const std::vector<std::string> coloured = ResidualChart(track, 80, true);
  EXPECT_THAT(coloured.front(), HasSubstr("\033[1m"));
  for (size_t k = 0; k < plain.size(); ++k) {
    EXPECT_EQ(ScreenWidth(plain[k]), ScreenWidth(coloured[k])) << k;
  }
}

// --- on the screen ---

class Setting {  // an environment variable, for a time
 public:
  Setting(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Setting() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(TerminalTraits, ComeFromTheEnvironment) {
  const Setting all("LC_ALL", nullptr), ctype("LC_CTYPE", nullptr);
  for (const auto& [lang, utf8] : std::vector<std::pair<const char*, bool>>{
           {"de_DE.UTF-8", true}, {"C.utf8", true}, {"C", false}, {"", false}, {nullptr, false}}) {
    const Setting setting("LANG", lang);
    EXPECT_EQ(LocaleIsUtf8(), utf8) << (lang == nullptr ? "unset" : lang);
  }
  const Setting lang("LANG", "de_DE.UTF-8"), first("LC_ALL", "C");
  EXPECT_FALSE(LocaleIsUtf8());
  for (const auto& [term, escapes] : std::vector<std::pair<const char*, bool>>{
           {"xterm-256color", true}, {"dumb", false}, {nullptr, false}}) {
    const Setting setting("TERM", term);
    EXPECT_EQ(TakesEscapes(), escapes);
  }
  EXPECT_EQ(ScreenWidth("\033[1;32m⠑┤ab\033[0m"), 4);
  EXPECT_EQ(ScreenWidth("ab\033["), 2);
}

class OnScreen : public testing::Test {
 protected:
  ~OnScreen() override { std::fclose(stream_); }
  std::string Written() {
    std::fflush(stream_);
    std::rewind(stream_);
    std::string text(1 << 20, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), stream_));
    return text;
  }
  static Progress Event(Progress::Kind kind) {
    Progress progress;
    progress.kind = kind;
    progress.device = "cpu";
    return progress;
  }
  static Progress News(std::vector<Residual> residuals) {
    Progress progress = Event(Progress::Kind::kResiduals);
    progress.residuals = std::move(residuals);
    return progress;
  }
  using Mode = ProgressReporter::Mode;
  const Setting utf8_{"LC_ALL", "C.UTF-8"};
  FILE* stream_ = std::tmpfile();
};

TEST_F(OnScreen, LinesAreDrawnOverOneAnother) {
  LiveLines lines(stream_);
  lines.Draw({"one", "two"});
  EXPECT_EQ(Written(), "\rone\033[K\ntwo\033[K\n\0337");
  lines.Draw({"three"});
  EXPECT_EQ(Screen(Written()).Text(), "three\n\n");
  lines.Leave();
  lines.Draw({"four"});
  const Screen screen(Written());
  EXPECT_EQ(screen.Text(), "three\nfour\n");
  EXPECT_EQ(screen.row(), 2u);
  lines.Erase();
  EXPECT_EQ(Screen(Written()).lines().front(), "three");
  EXPECT_EQ(Screen(Written()).row(), 1u);
}

TEST_F(OnScreen, AChartReplacesTheBarAndStays) {
  SolveProgress progress(Mode::kBar, stream_, {1e-8}, false);
  progress.Report(Event(Progress::Kind::kStarted));
  EXPECT_EQ(Screen(Written()).Text(), "running on cpu\n");
  progress.Report(News(Falling(41, 0.1)));
  progress.Report(News({{0, 41, 8e-5}}));
  Progress upload = Event(Progress::Kind::kTransfer);  // heard of late
  upload.stage = Stage::kUpload;
  progress.Report(upload);
  progress.Report(Event(Progress::Kind::kHeartbeat));
  progress.Finish();
  progress.Finish();
  const Screen screen(Written());
  ASSERT_EQ(screen.lines().size(), static_cast<size_t>(kChartRows) + 2) << screen.Text();
  EXPECT_THAT(screen.lines().front(), StartsWith("  1e0┤"));
  EXPECT_THAT(screen.lines().back(), StartsWith("      iteration 41, residual 8.0e-05"));
  EXPECT_EQ(screen.row(), screen.lines().size());
  EXPECT_EQ(screen.column(), 0u);
}

TEST_F(OnScreen, NewsInQuickSuccessionAreDrawnTenTimesASecond) {
  const auto start = std::chrono::steady_clock::now();
  SolveProgress progress(Mode::kBar, stream_, {1e-8}, false);
  for (int k = 0; k < 500; ++k) progress.Report(News({{0, k, 1.0}}));
  progress.Finish();
  const auto tenths = (std::chrono::steady_clock::now() - start) / 100ms;
  const Screen screen(Written());
  EXPECT_LE(screen.frames(), tenths + 2);
  EXPECT_THAT(screen.lines().back(), HasSubstr("iteration 499"));
  EXPECT_EQ(screen.bottom(), static_cast<size_t>(kChartRows) + 1);
}

TEST_F(OnScreen, AJobThatStartsAgainDrawsItsOwnChart) {
  SolveProgress progress(Mode::kBar, stream_, {1e-8}, false);
  progress.Report(News(Falling(41, 0.1)));
  progress.Report(Event(Progress::Kind::kStarted));
  EXPECT_EQ(Screen(Written()).lines().front(), "running on cpu");
  progress.Report(News(Falling(3, 0.1)));
  progress.Finish();
  const Screen screen(Written());
  EXPECT_EQ(screen.lines().size(), static_cast<size_t>(kChartRows) + 2);
  EXPECT_THAT(screen.lines().back(), HasSubstr("iteration 2,"));
}

TEST_F(OnScreen, OneLineWhereBrailleCannotBeShown) {
  const Setting plain("LC_ALL", "C");
  {
    SolveProgress progress(Mode::kBar, stream_, {1e-8}, true);
    progress.Report(News(Falling(41, 0.1)));
  }
  EXPECT_EQ(Written(),
            "\r\033[Ksolve  iteration 40, residual 1.0e-04, asked for 1.0e-08, about 40 to go"
            "\r\033[Ksolve  iteration 40, residual 1.0e-04, asked for 1.0e-08, about 40 to go\n");
}

TEST_F(OnScreen, NoEscapeSequencesOnADumbTerminal) {
  {
    SolveProgress progress(Mode::kPlainBar, stream_, {1e-8}, false);
    progress.Report(Event(Progress::Kind::kStarted));
    progress.Report(News({{0, 1, 0.5}}));
  }
  EXPECT_THAT(Written(), Not(HasSubstr("\033")));
  EXPECT_EQ(Screen(Written()).Text(), "solve  iteration 1, residual 5.0e-01, asked for 1.0e-08\n");
}

TEST_F(OnScreen, APipeGetsWhatItAlwaysGot) {
  {
    SolveProgress progress(Mode::kLines, stream_, {1e-8}, false);
    progress.Report(Event(Progress::Kind::kStarted));
    progress.Report(News(Falling(41, 0.1)));
  }
  EXPECT_EQ(Written(), "running on cpu\n");
}

TEST_F(OnScreen, SilenceIsSilence) {
  {
    SolveProgress progress(Mode::kNone, stream_, {1e-8}, false);
    progress.Report(Event(Progress::Kind::kStarted));
    progress.Report(News(Falling(41, 0.1)));
  }
  EXPECT_EQ(Written(), "");
}

}  // namespace
}  // namespace spaid::cli
