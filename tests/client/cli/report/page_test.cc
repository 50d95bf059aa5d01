// The page of a report, from made-up results: well-formed, harmless, bounded, and true to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/gallery.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/html.h"
#include "client/cli/report/operators.h"
#include "client/cli/report/report.h"
#include "tests/client/cli/run_spaidctl.h"
#include "tests/client/cli/temp_folder.h"

namespace spaid::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr char kEvil[] = "<script>alert(1)</script>\"'&amp;\x1b[31m\xe2\x80\xae\xff";

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Fails where a parser of XML or one of HTML finds anything wrong, or anything that could run or
// fetch. Returns the text that a reader sees.
std::string Checked(const std::string& page) {
  const TempFolder folder;
  const Finished finished = RunProgram(
      {"python3", "-c",
       "import html.parser, sys, xml.etree.ElementTree as e\n"
       "text = open(sys.argv[1], encoding='utf-8').read()\n"
       "root = e.fromstring(text)\n"
       "name = lambda node: node.tag.split('}')[1]\n"
       "assert name(root) == 'html', root.tag\n"
       "for node in root.iter():\n"
       "  assert name(node) in ('html head meta title style body header main footer div section p "
       "'\n"
       "    'span b small h1 h2 h3 ul ol li code figure table thead tbody tr th td svg g path line "
       "'\n"
       "    'rect circle polyline text tspan').split(), name(node)\n"
       "  for key, value in node.items():\n"
       "    assert not key.startswith('on') and key not in ('href', 'src', 'style'), key\n"
       "    if key in ('d', 'points') or key[0] in 'xyr' or key in ('cx', 'cy'):\n"
       "      assert 'nan' not in value and 'inf' not in value, value\n"
       "class Parser(html.parser.HTMLParser):\n"
       "  open = []\n"
       "  def handle_starttag(self, tag, attrs): self.open.append(tag)\n"
       "  def handle_startendtag(self, tag, attrs): pass\n"
       "  def handle_endtag(self, tag): assert self.open.pop() == tag, tag\n"
       "parser = Parser()\n"
       "parser.feed(text)\n"
       "parser.close()\n"
       "assert not parser.open, parser.open\n"
       "sys.stdout.buffer.write('\\n'.join(root[1].itertext()).encode())\n",
       folder.Write("a.html", page)});
  EXPECT_EQ(finished.exit_code, 0) << finished.err << page.substr(0, 500);
  EXPECT_EQ(Count(page, "http"), 2u) << "the name of XHTML, and http-equiv";
  EXPECT_LT(page.size(), 1'000'000u);
  return finished.out;
}

// All that a page is made of, and that it borrows.
struct Made {
  CompareArgs args;
  ComparedSystem system;
  ComparedRows rows;
  PatternRaster raster;
  PatternLengths lengths;
  AutoRun auto_run;
  std::vector<Spectrum> spectra;

  explicit Made(const CscMatrix& a) {
    args.matrix.matrix = "some/folder/A.mtx";
    system.matrix.n = a.n;
    system.matrix.nnz = a.col_ptr.back();
    system.server.version = "9.9.9";
    DeviceInfo& cpu = system.server.devices.emplace_back();
    cpu.name = "cpu";
    cpu.model = "Test CPU";
    cpu.threads = 4;
    cpu.in_use = true;
    raster = MakeRaster(a, kSpyCells);
    lengths = MakeLengths(a, 32);
    rows.reserve(400);  // what Add returns remains where it is
  }
  ComparedRow& Add(Engine engine, Method method, Outcome outcome, std::vector<double> history,
                   double solve_ms) {
    ComparedRow row;
    row.spec.engine = engine;
    row.method = method;
    row.solved.emplace();
    row.solved->device = "cpu";
    SolveResult::Rhs& rhs = row.solved->rhs.emplace_back();
    rhs.outcome = outcome;
    rhs.iterations = static_cast<int64_t>(history.size()) - 1;
    rhs.true_relative_residual = history.back();
    for (size_t k = 0; k < history.size(); ++k) {
      rhs.history.push_back(
          {.iteration = static_cast<int32_t>(k), .relative_residual = history[k]});
    }
    row.solved->timings.solve_ms = row.solved->figures.iterate_ms = solve_ms;
    rows.push_back(std::move(row));
    return rows.back();
  }
  std::string Page() const {
    return PageOf({.args = args,
                   .system = system,
                   .rows = rows,
                   .raster = raster,
                   .lengths = lengths,
                   .auto_run = auto_run,
                   .spectra = spectra,
                   .client_version = "1.2.3",
                   .made = std::chrono::system_clock::time_point()});
  }
};

std::shared_ptr<PreconditionerInfo> SomeM(Engine engine) {
  auto m = std::make_shared<PreconditionerInfo>();
  m->spec.engine = engine;
  m->nnz = 1234;
  m->quality.density = 0.5;
  m->quality.residual_quantiles = {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.9, 1};
  return m;
}

CscMatrix Poisson() { return *Generate("poisson", 4); }

TEST(Page, TellsWhatWasFound) {
  Made made(Poisson());
  made.system.matrix.diagnosis.findings = {"The diagonal dominates."};
  made.Add(Engine::kNone, Method::kCg, Outcome::kMaxIterations, {1, 0.5, 0.4}, 1);
  ComparedRow& best =
      made.Add(Engine::kStaticSpai, Method::kGmres, Outcome::kConverged, {1, 0.1, 1e-9}, 5);
  best.setup_ms = 2;
  best.m = SomeM(Engine::kStaticSpai);
  made.Add(Engine::kJacobi, Method::kBicgstab, Outcome::kConverged, {1, 0.1, 1e-3, 1e-9}, 20);
  ComparedRow refused;
  refused.spec.engine = Engine::kFsai;
  refused.error = Error{.code = Code::kFailedPrecondition,
                        .reason = "NOT_SPD",
                        .message = "no factor",
                        .field = {},
                        .retry_after = {},
                        .metadata = {}};
  made.rows.push_back(refused);
  ComparedRow skipped;
  skipped.spec.engine = Engine::kDynamicSpai;
  skipped.skipped = "left out: set-up predicted to take 3 min 00 s (--max-setup)";
  made.rows.push_back(skipped);
  SolveResult climbed = *best.solved;
  climbed.choice_reason = "Jacobi: what costs least";
  climbed.engine = Engine::kStaticSpai;
  climbed.method = Method::kBicgstab;
  climbed.rungs = {
      {.what = "jacobi, cg", .left = "it stagnated", .iterations = 40, .setup_ms = 1},
      {.what = "static SPAI", .left = {}, .iterations = 60, .setup_ms = 2, .solve_ms = 4}};
  made.auto_run.solved = climbed;
  const std::string page = made.Page();
  const std::string text = Checked(page);
  EXPECT_THAT(page, HasSubstr("<title>A.mtx – spaid report</title>"));
  EXPECT_THAT(text, HasSubstr("2 of 3 pairs of preconditioner and method converged"));
  EXPECT_THAT(page, HasSubstr("<b>static SPAI, p = 1, GMRES(50)</b>, 2 iterations, 7.00 ms with"));
  EXPECT_THAT(text, HasSubstr("The diagonal dominates."));
  // The quickest first, then what did not converge, then what was not solved.
  const size_t first =
      page.find("<td class=\"number\">1</td><td class=\"name\">static SPAI, p = 1");
  const size_t second = page.find("<td class=\"number\">2</td><td class=\"name\">Jacobi");
  const size_t third = page.find("<td class=\"number\">3</td><td class=\"name\">no precond");
  const size_t fourth = page.find("NOT_SPD: no factor");
  const size_t fifth = page.find("left out: set-up predicted");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_LT(third, fourth);
  EXPECT_LT(fourth, fifth);
  EXPECT_NE(fifth, page.npos);
  EXPECT_EQ(Count(page, "<tr class=\"best\">"), 2u) << "of the table, and of AUTO's rungs";
  EXPECT_THAT(text, HasSubstr("MAX_ITERATIONS"));
  EXPECT_THAT(text, HasSubstr("it stagnated"));
  EXPECT_THAT(text, HasSubstr("Jacobi: what costs least"));
  EXPECT_THAT(page, HasSubstr("7.00 ms with all set-ups"));
  EXPECT_EQ(Count(page, "class=\"curve c"), 3u * 3) << "two figures and the legend";
  EXPECT_THAT(text, HasSubstr("spaidctl 1.2.3"));
  EXPECT_THAT(text, HasSubstr("spaid 9.9.9"));
  EXPECT_THAT(text, HasSubstr("Test CPU, 4 threads"));
}

TEST(BestFirst, OrdersByTimeThenByResidual) {
  Made made(Poisson());
  made.Add(Engine::kNone, Method::kCg, Outcome::kNonFinite, {1, kNan}, 1);
  made.Add(Engine::kNone, Method::kGmres, Outcome::kStagnated, {1, 0.5}, 2);
  made.Add(Engine::kNone, Method::kIdr, Outcome::kTimeLimit, {1, 0.1}, 9);
  made.Add(Engine::kJacobi, Method::kCg, Outcome::kConverged, {1, 1e-9}, 7);
  made.Add(Engine::kJacobi, Method::kGmres, Outcome::kConverged, {1, 1e-8}, 5);
  EXPECT_EQ(Best(made.rows), 4);
  const std::vector<const ComparedRow*> rows = BestFirst(made.rows);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0], &made.rows[4]);
  EXPECT_EQ(rows[1], &made.rows[3]);
  EXPECT_EQ(rows[2], &made.rows[2]);
  EXPECT_EQ(rows[3], &made.rows[1]);
  EXPECT_EQ(rows[4], &made.rows[0]);
}

TEST(Page, PutsCurvesWhereTheyBelong) {
  const std::vector<Residual> history = {{.iteration = 0, .relative_residual = 1},
                                         {.iteration = 1, .relative_residual = 0.1},
                                         {.iteration = 2, .relative_residual = 0.01}};
  Curve curve{.history = history,
              .converged = true,
              .iterations = 2,
              .true_relative_residual = 0.01,
              .setup_ms = 10,
              .iterate_ms = 10};
  // Over 390 units from 46 on, and 258 from 28 on.
  EXPECT_THAT(ConvergenceFigure({&curve, 1}, CurveAxis::kIterations, 0),
              HasSubstr("points=\"46.00,28.00 241.00,157.00 436.00,286.00\""));
  // After 10 of 20 ms.
  EXPECT_THAT(ConvergenceFigure({&curve, 1}, CurveAxis::kTime, 0),
              HasSubstr("points=\"241.00,28.00 338.50,157.00 436.00,286.00\""));
  // One that goes on is cut at the edge, between its points.
  const std::vector<Residual> slow = {{.iteration = 0, .relative_residual = 1},
                                      {.iteration = 4, .relative_residual = 0.01}};
  const std::vector<Curve> both = {
      curve, {.history = slow, .iterations = 4, .true_relative_residual = 0.01}};
  EXPECT_THAT(ConvergenceFigure(both, CurveAxis::kIterations, 0),
              HasSubstr("points=\"46.00,28.00 436.00,157.00\""));
}

TEST(Page, LetsNobodyInject) {
  Made made(Poisson());
  made.args.matrix.matrix = "dir/" + std::string(kEvil) + ".mtx";
  made.args.rhs = kEvil;
  made.system.matrix.label = kEvil;
  made.system.matrix.diagnosis.findings = {kEvil};
  made.system.server.version = kEvil;
  made.system.server.devices[0].name = made.system.server.devices[0].model = kEvil;
  ComparedRow& row = made.Add(Engine::kStaticSpai, Method::kCg, Outcome::kConverged, {1, 0}, 1);
  row.solved->device = kEvil;
  made.Add(Engine::kNone, Method::kCg, Outcome::kConverged, {1, 0}, 1);  // on another device
  auto m = SomeM(Engine::kStaticSpai);
  m->quality.warnings = {kEvil};
  row.m = m;
  ComparedRow refused;
  refused.error = Error{.code = Code::kInternal,
                        .reason = kEvil,
                        .message = kEvil,
                        .field = {},
                        .retry_after = {},
                        .metadata = {}};
  made.rows.push_back(refused);
  made.auto_run.solved = *made.rows[0].solved;
  made.auto_run.solved->choice_reason = kEvil;
  made.auto_run.solved->rhs[0].detail = kEvil;
  made.auto_run.solved->rungs = {{.what = kEvil, .left = kEvil}};
  made.spectra.push_back({.name = kEvil, .left_out = kEvil});
  const std::string page = made.Page();
  Checked(page);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(page, Not(HasSubstr("\xe2\x80\xae")));
  EXPECT_GT(Count(page, "&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;amp;\\x1b[31m"), 12u);
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(Page, LivesWithNumbersThatAreNone) {
  Made made(*Generate("poisson", 1));
  made.Add(Engine::kNone, Method::kCg, Outcome::kNonFinite, {1, kNan, INFINITY, 0, 1e300, kNan}, 0);
  made.Add(Engine::kJacobi, Method::kCg, Outcome::kBreakdown, {0}, kNan);
  made.rows.back().solved->rhs[0].history.clear();
  auto m = SomeM(Engine::kJacobi);
  m->quality.residual_quantiles.assign(8, 0);
  made.rows.back().m = m;
  made.spectra.push_back({.name = "zero", .ritz = {.values = {{0.0, true}}, .steps = 1}});
  made.spectra.push_back({.name = "none", .ritz = {.values = {}, .end = RitzEnd::kNotFinite}});
  made.auto_run.error = Error{.code = Code::kInternal,
                              .reason = "BROKEN",
                              .message = "it broke",
                              .field = {},
                              .retry_after = {},
                              .metadata = {}};
  const std::string text = Checked(made.Page());
  EXPECT_THAT(text, HasSubstr("0 of 2 pairs"));
  EXPECT_THAT(text, HasSubstr("nothing converged"));
  EXPECT_THAT(text, HasSubstr("BROKEN: it broke"));
  EXPECT_THAT(text, HasSubstr("then numbers were not finite"));
}

TEST(Page, OfAPatternHasNothingThatNeedsValues) {
  Made made(Poisson());
  made.system.pattern_only = true;
  const std::string page = made.Page();
  const std::string text = Checked(page);
  EXPECT_THAT(text, HasSubstr("pattern without values"));
  EXPECT_THAT(text, HasSubstr("Where it has entries"));
  EXPECT_THAT(text, Not(HasSubstr("compared")));
  EXPECT_THAT(text, Not(HasSubstr("To repeat it")));
}

TEST(Page, SaysWhatAKrylovSpaceEndedBy) {
  Made made(Poisson());
  const std::vector<std::pair<RitzEnd, std::string>> ends = {
      {RitzEnd::kInvariant, "7, then the Krylov space was invariant"},
      {RitzEnd::kMemory, "7, as many as fit into 537 MB"},
      {RitzEnd::kTime, "7, as many as were made in 10.0 s"}};
  for (const auto& [end, text] : ends) {
    made.spectra = {{.name = "Jacobi",
                     .operator_name = "A M",
                     .ritz = {.values = {{-0.5, false}, {{0, 1}, true}}, .steps = 7, .end = end}}};
    const std::string page = made.Page();
    EXPECT_THAT(Checked(page), HasSubstr(text));
    EXPECT_THAT(page, HasSubstr(">~ 5.0e-01<"));  // not settled
    EXPECT_THAT(page, HasSubstr("Re θ from -5.0e-01 to 0, |Im θ| ≤ 1.0e+00"));
  }
}

// Everything at once, as large as it can be: neighbours of other shades, 300 rows with long
// histories, spectra of 200 values, long texts.
TEST(Page, IsOfBoundedSize) {
  Made made(Poisson());
  made.raster = {.n = 1'000'000'000, .size = kSpyCells};
  for (int k = 0; k < kSpyCells * kSpyCells; ++k) {
    made.raster.counts.push_back(k % 2 == 0 ? 1 : 1'000'000);
  }
  made.raster.most = 1'000'000;
  const std::string long_text(4000, '<');
  made.args.matrix.matrix = long_text;
  made.system.matrix.label = long_text;
  made.system.matrix.diagnosis.findings.assign(200, long_text);
  std::vector<double> history;
  for (int k = 0; k < 10'000; ++k) history.push_back(std::exp(-1e-3 * k) * (k % 7 + 1));
  for (int k = 0; k < 300; ++k) {
    ComparedRow& row =
        made.Add(Engine::kDynamicSpai, Method::kBicgstab, Outcome::kStagnated, history, k);
    auto m = SomeM(Engine::kDynamicSpai);
    m->quality.warnings.assign(20, long_text);
    row.m = m;
  }
  for (int k = 0; k < 13; ++k) {
    Spectrum spectrum{.name = "dynamic SPAI", .operator_name = "A M", .ritz = {}};
    for (int v = 0; v < 200; ++v) {
      spectrum.ritz.values.push_back({std::polar(1.0 + 0.01 * v, 0.1 * v), v % 2 == 0});
    }
    made.spectra.push_back(spectrum);
  }
  made.auto_run.solved = *made.rows[0].solved;
  made.auto_run.solved->rungs.assign(100, {.what = long_text, .left = long_text});
  const std::string page = made.Page();
  EXPECT_THAT(Checked(page), HasSubstr("And 100 more, left out."));
}

TEST(Foreign, CutsAndEscapes) {
  EXPECT_EQ(Foreign("a<b", 10), "a&lt;b");
  EXPECT_EQ(Foreign("äöüß", 4), "äöüß");
  EXPECT_EQ(Foreign("äöüßx", 4), "äöü…");
  EXPECT_EQ(Foreign(std::string(1000, '&'), 2), "&amp;…");
}

}  // namespace
}  // namespace spaid::cli
