// The SVG of --plot: hand-checkable coordinates, and well-formed whatever it is given.
#include "client/cli/convergence_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>

#include "client/cli/solve_report.h"
#include "tests/client/cli/run_spaidctl.h"
#include "tests/client/cli/temp_folder.h"

namespace spaid::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<Residual> Points(const std::vector<double>& values) {
  std::vector<Residual> points;
  for (size_t k = 0; k < values.size(); ++k) {
    points.push_back({.iteration = static_cast<int32_t>(k), .relative_residual = values[k]});
  }
  return points;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Python's parser takes it; what it has as the text of its <title>.
std::string ParsedTitle(const std::string& svg) {
  const TempFolder folder;
  const Finished parsed = RunProgram(
      {"python3", "-c",
       "import sys, xml.etree.ElementTree as e\n"
       "root = e.parse(sys.argv[1]).getroot()\n"
       "assert root.tag == '{http://www.w3.org/2000/svg}svg', root.tag\n"
       "x, y, w, h = map(float, root.get('viewBox').split())\n"
       "assert (x, y, w, h) == (0, 0, float(root.get('width')), float(root.get('height')))\n"
       "for name in ('x', 'x1', 'x2', 'cx', 'y', 'y1', 'y2', 'cy'):\n"
       "  for node in root.iter():\n"
       "    at = float(node.get(name, 0))\n"
       "    assert 0 <= at <= (w if 'x' in name else h), (name, at)\n"
       "sys.stdout.buffer.write(root[0].text.encode())\n",
       folder.Write("a.svg", svg)});
  EXPECT_EQ(parsed.exit_code, 0) << parsed.err << svg.substr(0, 2000);
  return parsed.out;
}

ConvergencePlot PlotOf(const std::vector<Residual>& points) {
  ConvergencePlot plot;
  plot.title = "A.mtx";
  plot.subtitle = "n = 5";
  plot.caption = "2 iterations";
  plot.curves.push_back({.name = "one", .history = points, .end = {}});
  return plot;
}

TEST(ConvergencePlot, PutsPointsWhereTheyBelong) {
  const std::vector<Residual> points = Points({1, 0.1, 0.01});
  ConvergencePlot plot = PlotOf(points);
  // Two decades over 346 units from 80 on, two iterations over 570 from 78 on.
  std::string svg = ConvergenceSvg(plot);
  EXPECT_THAT(svg, HasSubstr("points=\"78.00,80.00 363.00,253.00 648.00,426.00\""));
  EXPECT_EQ(Count(svg, "class=\"tolerance\""), 0u);
  // Three decades: the tolerance is not on the edge.
  plot.tolerance = 0.01;
  plot.curves[0].end = Residual{.iteration = 2, .relative_residual = 0.01};
  svg = ConvergenceSvg(plot);
  EXPECT_THAT(svg, HasSubstr("<line x1=\"78.00\" y1=\"310.67\" x2=\"648.00\" y2=\"310.67\""));
  EXPECT_THAT(svg, HasSubstr(">1.0e-02</text>"));
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"648.00\" cy=\"310.67\" r=\"4.00\""));
  EXPECT_THAT(svg, HasSubstr("10<tspan dy=\"-5\" font-size=\"9\">−2</tspan>"));
  EXPECT_EQ(ParsedTitle(svg), "Convergence of A.mtx");
  EXPECT_THAT(svg, HasSubstr("<desc id=\"desc\">"));
}

TEST(ConvergencePlot, MarksZeroAndWhatIsNotFinite) {
  const std::vector<Residual> points = Points({1, 0.1, kNan, kNan, 0.01, 0, 0.01});
  const std::string svg = ConvergenceSvg(PlotOf(points));
  EXPECT_EQ(Count(svg, "<polyline"), 2u);
  EXPECT_EQ(Count(svg, "class=\"not-finite\""), 1u);
  EXPECT_EQ(Count(svg, "class=\"zero\""), 1u);
  EXPECT_THAT(svg, HasSubstr("553.00,426.00"));  // zero: at the bottom, iteration 5 of 6
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  ParsedTitle(svg);
}

TEST(ConvergencePlot, LivesWithNothingToDraw) {
  for (const std::vector<double>& values : {std::vector<double>{},
                                            {0},
                                            {kNan},
                                            {1},
                                            {std::numeric_limits<double>::infinity(), 1e300}}) {
    const std::vector<Residual> points = Points(values);
    ConvergencePlot plot = PlotOf(points);
    plot.tolerance = 1e-300;  // too far below
    plot.curves[0].end = Residual{.iteration = 0, .relative_residual = kNan};
    const std::string svg = ConvergenceSvg(plot);
    ParsedTitle(svg);
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
  }
  ParsedTitle(ConvergenceSvg({}));
}

TEST(ConvergencePlot, EscapesNames) {
  const std::vector<Residual> points = Points({1, 0.1});
  ConvergencePlot plot = PlotOf(points);
  plot.title = "a<b>&\"c\"'\x01\xff\xc3\xbc\xed\xa0\x80.mtx";
  plot.curves.push_back(plot.curves.front());
  plot.curves[0].name = "<script>";
  const std::string svg = ConvergenceSvg(plot);
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(ParsedTitle(svg),
            "Convergence of a<b>&\"c\"'" + bad + bad + "\xc3\xbc" + bad + bad + bad + ".mtx");
}

TEST(ConvergencePlot, ShortensALongNameAtItsBeginning) {
  const std::vector<Residual> points = Points({1, 0.1});
  ConvergencePlot plot = PlotOf(points);
  plot.title = std::string(300, 'x') + "/ä/file.mtx";
  const std::string svg = ConvergenceSvg(plot);
  EXPECT_THAT(svg, HasSubstr(">…xxx"));
  EXPECT_THAT(svg, HasSubstr("x/ä/file.mtx</text>"));
  EXPECT_EQ(ParsedTitle(svg), "Convergence of " + plot.title);  // where there is room
}

TEST(ConvergencePlot, NamesEightCurvesAndCountsTheRest) {
  const std::vector<Residual> points = Points({1, 0.1, 0.01});
  ConvergencePlot plot = PlotOf(points);
  EXPECT_THAT(ConvergenceSvg(plot), Not(HasSubstr(">one</text>")));  // alone it needs no legend
  plot.curves.clear();
  for (int k = 1; k <= 8; ++k) {
    plot.curves.push_back({.name = "curve " + std::to_string(k), .history = points, .end = {}});
  }
  EXPECT_THAT(ConvergenceSvg(plot), HasSubstr(">curve 8</text>"));
  EXPECT_THAT(ConvergenceSvg(plot), Not(HasSubstr(" more</text>")));
  for (int k = 9; k <= 20; ++k) plot.curves.push_back(plot.curves.front());
  plot.curves.back().name = "the last";
  const std::string svg = ConvergenceSvg(plot);
  EXPECT_EQ(Count(svg, "<polyline"), 20u);
  EXPECT_THAT(svg, HasSubstr(">and 12 more</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("the last")));
  ParsedTitle(svg);
}

TEST(ConvergencePlot, IsOfBoundedSize) {
  std::vector<double> values;
  for (int k = 0; k < 1'000'000; ++k) values.push_back(std::exp(-1e-5 * k) * (k % 7 + 1));
  const std::vector<Residual> points = Points(values);
  EXPECT_LT(ConvergenceSvg(PlotOf(points)).size(), 50'000u);
  ConvergencePlot many = PlotOf(points);
  many.curves.resize(1000, many.curves.front());
  // 50 points each.
  EXPECT_LT(ConvergenceSvg(many).size(), 2'000'000u);
}

TEST(ConvergencePlot, SaysWhatWasSolved) {
  SolveArgs args;
  args.matrix.matrix = "A.mtx";
  args.engine.pattern_power = 2;
  SolveResult result;
  result.method = Method::kGmres;
  result.engine = Engine::kStaticSpai;
  result.timings = {.build_ms = 12, .solve_ms = 34};
  for (const int64_t iterations : {40, 50}) {
    SolveResult::Rhs rhs;
    rhs.outcome = iterations == 40 ? Outcome::kConverged : Outcome::kStagnated;
    rhs.iterations = iterations;
    rhs.true_relative_residual = 1e-7 * static_cast<double>(iterations);
    rhs.history = Points({1, 0.1});
    result.rhs.push_back(rhs);
  }
  SolveReport report{.args = args,
                     .result = result,
                     .n = 1000,
                     .nnz = 5000,
                     .info = {},
                     .diagnosis_error = {},
                     .targets = {1e-8, 1e-9}};
  ConvergencePlot plot = SolvePlot(report);
  EXPECT_EQ(plot.title, "A.mtx");
  EXPECT_EQ(plot.subtitle,
            "n = 1,000  ·  nnz = 5,000  ·  GMRES(50), static SPAI, p = 2  ·  not converged "
            "(STAGNATED)");
  EXPECT_EQ(plot.caption,
            "2 right-hand sides, 40 to 50 iterations, worst true relative residual 5.0e-06 "
            "(circles), set-up 12.0 ms, solve 34.0 ms");
  EXPECT_EQ(plot.tolerance, 1e-9);
  ASSERT_EQ(plot.curves.size(), 2u);
  EXPECT_EQ(plot.curves[1].name, "right-hand side 2");
  EXPECT_EQ(plot.curves[1].end->iteration, 50);

  result.rhs.pop_back();
  result.engine = Engine::kNone;
  result.method = Method::kCg;
  result.timings.build_ms = 0;
  plot = SolvePlot(report);
  EXPECT_THAT(plot.subtitle, HasSubstr("CG, no preconditioner  ·  converged"));
  EXPECT_EQ(plot.caption, "40 iterations, true relative residual 4.0e-06 (circle), solve 34.0 ms");
  // The power of an M given by its handle is not known here.
  args.options.preconditioner = "preconditioners/x";
  result.engine = Engine::kStaticSpai;
  EXPECT_THAT(SolvePlot(report).subtitle, HasSubstr("CG, static SPAI  ·  "));
}

TEST(WritePlot, ReplacesAFileOrSaysWhyNot) {
  const TempFolder folder;
  const std::vector<Residual> points = Points({1, 0.1});
  const std::string path = folder.Write("a.svg", "old");
  EXPECT_FALSE(WritePlot(path, PlotOf(points)));
  EXPECT_THAT(TempFolder::Read(path), HasSubstr("</svg>"));
  EXPECT_EQ(folder.FileCount(), 1u);
  const auto error = WritePlot(folder.File("no/a.svg"), PlotOf(points));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->reason, "FILE_UNWRITABLE");
}

}  // namespace
}  // namespace spaid::cli
