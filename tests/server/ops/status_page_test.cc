#include "server/ops/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/ops/html.h"

namespace spaid::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

size_t CountOf(std::string_view what, std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) {
    ++count;
  }
  return count;
}

// A tag without what stands in quotes.
std::string WithoutValues(const std::string& tag) {
  std::string out;
  for (size_t at = 0; at < tag.size(); ++at) {
    if (const size_t end = tag[at] == '"' ? tag.find('"', at + 1) : tag.npos; end != tag.npos) {
      at = end;
    } else {
      out += tag[at];
    }
  }
  return out;
}

// The first breach of: each element that is opened is closed, in order; nothing runs, and nothing
// is fetched. Empty: there is none.
std::string Malformed(std::string_view html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != html.npos; at = html.find('<', at)) {
    const size_t end = html.find('>', at);
    if (end == html.npos) return "a tag without an end";
    const std::string whole(html.substr(at + 1, end - at - 1));
    const std::string tag = WithoutValues(whole);
    at = end + 1;
    if (tag.starts_with("!")) continue;
    const size_t slash = tag.starts_with("/") ? 1 : 0;
    const std::string name = tag.substr(slash, tag.find_first_of(" /", slash) - slash);
    if (slash == 1) {
      if (open.empty() || open.back() != name) return "</" + name + "> closes nothing";
      open.pop_back();
    } else if (name != "meta" && name != "link" && !tag.ends_with("/")) {
      open.push_back(name);
      if (name == "style") at = html.find("</style>", at);
    }
    if (tag.find_first_of("\"'<&") != tag.npos) return "an attribute ends early: <" + whole + ">";
    if (tag.find(" on") != tag.npos) return "a handler in <" + tag + ">";
    if (name == "script" || name == "img" || name == "iframe") return "<" + tag + ">";
  }
  return open.empty() ? "" : "<" + open.back() + "> is left open";
}

ServerStatus EmptyServer() {
  ServerStatus status;
  status.version = "1.2.3";
  status.address = "127.0.0.1:7433";
  status.now = WallTime(std::chrono::seconds(1'700'000'000));
  status.start = status.now - std::chrono::minutes(90);
  status.ready = true;
  status.devices = {{.name = "cpu", .model = "a CPU", .threads = 2, .memory_bytes = 1 << 30}};
  status.max_queued = 1024;
  status.classes = {{"interactive", 0, 0, 16}, {"normal", 0, 0, 4}, {"bulk", 0, 0, 1}};
  return status;
}

std::vector<ServerStatus::Residual> Falling(int points) {
  std::vector<ServerStatus::Residual> curve;
  for (int i = 0; i < points; ++i) curve.push_back({i, std::pow(10, -8.0 * i / (points - 1))});
  return curve;
}

ServerStatus::Job Solved(const ServerStatus& of) {
  return {.name = "jobs/0123456789abcdef0123456789abcdef",
          .tenant = "alice",
          .kind = "solve",
          .what = "cg + jacobi",
          .priority = "normal",
          .state = "succeeded",
          .matrix = "matrices/1",
          .label = "a cube",
          .n = 4752,
          .nnz = 322524,
          .devices = {"cpu"},
          .ended = of.now - std::chrono::seconds(12),
          .queue_ms = 0.31,
          .run_ms = 22.4,
          .plan_ms = 1.2,
          .solve_ms = 12.7,
          .outcome = "converged",
          .iterations = 166,
          .true_relative_residual = 9.9e-9,
          .rhs_count = 1,
          .residuals = Falling(167)};
}

TEST(Html, EscapesWhatHtmlReads) {
  EXPECT_EQ(Escaped("a<b>&\"'c"), "a&lt;b&gt;&amp;&quot;&#39;c");
  EXPECT_EQ(Escaped(std::string_view("a\0\x1b\x7f\nz", 6)),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\nz");
}

TEST(Html, CutsForeignTextBetweenCharactersAndIsolatesIt) {
  EXPECT_EQ(Foreign("abc", 3), "<bdi>abc</bdi>");
  EXPECT_EQ(Foreign("abcd", 3), "<bdi>abc…</bdi>");
  EXPECT_EQ(Foreign("ab\xC3\xA9z", 3), "<bdi>ab…</bdi>");
  EXPECT_EQ(Foreign("<<<<", 2), "<bdi>&lt;&lt;…</bdi>");
}

TEST(Html, FiguresAreShort) {
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(4752), "4,752");
  EXPECT_EQ(CountText(-1234567), "-1,234,567");
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{78} << 30), "78 GiB");
  EXPECT_EQ(BytesText((int64_t{1} << 30) - 1), "1.0 GiB");
  EXPECT_EQ(DurationText(0.31), "0.31 ms");
  EXPECT_EQ(DurationText(12.7), "12.7 ms");
  EXPECT_EQ(DurationText(999.9), "1.00 s");
  EXPECT_EQ(DurationText(59'999), "1 min 0 s");
  EXPECT_EQ(DurationText(125'000), "2 min 5 s");
  EXPECT_EQ(DurationText(11'520'000), "3 h 12 min");
  EXPECT_EQ(DurationText(std::nan("")), "–");
  EXPECT_EQ(AgeText(59'999), "59 s");
  EXPECT_EQ(AgeText(3.7 * 86'400'000), "3 d 16 h");
  EXPECT_EQ(ResidualText(9.94e-9), "9.9e-09");
  EXPECT_EQ(UtcDateText(WallTime(std::chrono::seconds(1'700'000'000))), "2023-11-14 22:13:20 UTC");
}

TEST(Sparkline, RunsFromTopLeftToBottomRight) {
  const std::string svg = Sparkline({{0, 1.0}, {5, 1e-1}, {10, 1e-2}});
  EXPECT_THAT(svg, HasSubstr("class=\"line\" d=\"M4.0 4.0L84.0 22.0L164.0 40.0\""));
  EXPECT_THAT(svg, HasSubstr("<title>residual from 1.0e+00 to 1.0e-02 in 10 iterations</title>"));
  EXPECT_THAT(svg,
              HasSubstr("class=\"decades\" d=\"M4.0 4.0H164.0M4.0 22.0H164.0M4.0 40.0H164.0\""));
  EXPECT_EQ(Malformed(svg), "");
}

TEST(Sparkline, LeavesOutWhatHasNoLogarithm) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Sparkline({}), "");
  EXPECT_EQ(Sparkline({{0, 1.0}}), "");
  EXPECT_EQ(Sparkline({{0, 1.0}, {1, 0.0}, {2, inf}, {3, std::nan("")}, {4, -1.0}}), "");
  const std::string gap = Sparkline({{0, 1.0}, {1, 0.1}, {2, inf}, {3, 0.1}, {4, 0.01}});
  EXPECT_EQ(CountOf("M", gap.substr(gap.find("class=\"line\""))), 2u) << gap;
  EXPECT_THAT(gap, Not(HasSubstr("nan")));
  EXPECT_THAT(gap, Not(HasSubstr("inf")));
}

TEST(Sparkline, StaysBoundedOnExtremes) {
  const std::string svg =
      Sparkline({{0, 1e308}, {0, std::numeric_limits<double>::denorm_min()}, {0, 1.0}});
  EXPECT_LT(svg.size(), 1000u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(StatusPage, AnEmptyServerIsAWholePage) {
  const std::string page = StatusPage(EmptyServer());
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  EXPECT_EQ(Malformed(page), "");
  EXPECT_THAT(page, HasSubstr("<title>spaid: ready, 0 running, 0 waiting</title>"));
  EXPECT_THAT(page, HasSubstr("up 1 h 30 min"));
  EXPECT_THAT(page, HasSubstr("Nothing runs."));
  EXPECT_THAT(page, HasSubstr("No job has ended yet."));
  EXPECT_THAT(page, HasSubstr("<meta http-equiv=\"refresh\" content=\"5\">"));
  EXPECT_THAT(page, HasSubstr("76 % of the time"));
  EXPECT_THAT(StatusPage(EmptyServer(), {.refresh_seconds = 0}), Not(HasSubstr("http-equiv")));
}

TEST(StatusPage, NothingAtAllIsNoError) {
  EXPECT_EQ(Malformed(StatusPage({})), "");
  EXPECT_TRUE(nlohmann::json::accept(StatusJson({})));
}

TEST(StatusPage, TellsOfDevices) {
  ServerStatus status = EmptyServer();
  status.devices.push_back({.name = "gpu:0",
                            .model = "a GPU",
                            .memory_bytes = int64_t{80} << 30,
                            .used_bytes = int64_t{39} << 30,
                            .limit_bytes = int64_t{78} << 30});
  status.devices.push_back({.name = "gpu:1", .model = "a GPU", .lost = "an <illegal> access"});
  status.devices.push_back({.name = "gpu:2", .model = "a GPU", .in_use = false});
  status.running_jobs = {
      {.tenant = "alice", .kind = "build", .state = "running", .devices = {"cpu"}}};
  const std::string page = StatusPage(status);
  EXPECT_EQ(Malformed(page), "");
  EXPECT_THAT(page, HasSubstr("2 of 3"));
  EXPECT_THAT(page, HasSubstr("39 GiB of 78 GiB"));
  EXPECT_THAT(page, HasSubstr("width:50.0%"));
  EXPECT_THAT(page, HasSubstr("an &lt;illegal&gt; access"));
  EXPECT_THAT(page, HasSubstr("build of <bdi>alice</bdi>"));
  for (const char* state : {">busy<", ">idle<", ">lost<", ">not used<"}) {
    EXPECT_EQ(CountOf(state, page), 1u) << state;
  }
}

TEST(StatusPage, SaysWhetherItTakesWork) {
  ServerStatus status = EmptyServer();
  status.ready = false;
  EXPECT_THAT(StatusPage(status), HasSubstr("<span class=\"tag bad\">not ready</span>"));
  status.draining = true;
  EXPECT_THAT(StatusPage(status), HasSubstr("<span class=\"tag warn\">draining</span>"));
}

TEST(StatusPage, CountsLevelsOfMultigrid) {
  ServerStatus status = EmptyServer();
  status.running = 1;
  ServerStatus::Job running = Solved(status);
  running.state = "running";
  running.outcome = "";
  running.stage = "build";
  running.what = "cg + amg";
  running.done = 2;
  running.total = 3;
  status.running_jobs = {running};
  EXPECT_THAT(StatusPage(status), HasSubstr("2 of 3 levels"));
}

TEST(StatusPage, TellsOfJobs) {
  ServerStatus status = EmptyServer();
  status.running = 1;
  status.queued = 7;
  ServerStatus::Job running = Solved(status);
  running.state = "running";
  running.outcome = "";
  running.stage = "build";
  running.done = 1000;
  running.total = 4000;
  running.run_ms = 1500;
  running.predicted_ms = 4000;
  ServerStatus::Job queued = Solved(status);
  queued.state = "queued";
  queued.position = 1;
  queued.eta_ms = 2500;
  queued.residuals.clear();
  status.running_jobs = {running};
  status.queued_jobs = {queued};
  status.recent_jobs = {Solved(status)};
  const std::string page = StatusPage(status);
  EXPECT_EQ(Malformed(page), "");
  EXPECT_THAT(page, HasSubstr("1,000 of 4,000<"));
  EXPECT_THAT(page, HasSubstr("width:25.0%"));
  EXPECT_THAT(page, HasSubstr("1.50 s<small>of 4.00 s predicted"));
  EXPECT_THAT(page, HasSubstr("iteration 166: 1.0e-08"));
  EXPECT_THAT(page, HasSubstr("1 ahead"));
  EXPECT_THAT(page, HasSubstr("2.50 s"));
  EXPECT_THAT(page, HasSubstr("Those that start first:"));
  EXPECT_THAT(page, HasSubstr("<span class=\"tag good\">converged</span>"));
  EXPECT_THAT(page, HasSubstr("166 iterations, <span class=\"whole\">9.9e-09</span>"));
  EXPECT_THAT(page, HasSubstr("12 s ago"));
  EXPECT_THAT(page, HasSubstr("plan 1.20 ms"));
  EXPECT_THAT(page, HasSubstr("other 8.50 ms"));
  EXPECT_THAT(page, Not(HasSubstr("build 0.00 ms")));
  EXPECT_THAT(page, HasSubstr("nnz 322,524"));
  EXPECT_EQ(CountOf("class=\"curve\"", page), 2u);
}

TEST(StatusPage, TellsFailureFromTrouble) {
  ServerStatus status = EmptyServer();
  ServerStatus::Job lost = Solved(status), slow = Solved(status), stopped = Solved(status);
  lost.state = "failed";
  lost.outcome = "";
  lost.reason = "DEVICE_LOST";
  lost.message = "gpu:0 has failed";
  slow.outcome = "max_iterations";
  slow.rhs_count = 8;
  stopped.state = "cancelled";
  stopped.outcome = "cancelled";
  status.recent_jobs = {lost, slow, stopped};
  const std::string page = StatusPage(status);
  EXPECT_THAT(page, HasSubstr("<span class=\"tag bad\">failed</span>"));
  EXPECT_THAT(page, HasSubstr("DEVICE_LOST"));
  EXPECT_THAT(page, HasSubstr("gpu:0 has failed"));
  EXPECT_THAT(page, HasSubstr("<span class=\"tag warn\">max iterations</span>"));
  EXPECT_THAT(page, HasSubstr("one of 8 right-hand sides"));
  EXPECT_THAT(page, HasSubstr("<span class=\"tag warn\">cancelled</span>"));
  EXPECT_EQ(CountOf("class=\"wide missed\"", page), 2u);
}

// Whatever a client or a driver may have had a hand in.
TEST(StatusPage, NothingForeignIsMarkup) {
  const std::string evil =
      "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;</style></table>";
  ServerStatus status = EmptyServer();
  status.version = status.address = status.cuda = evil;
  status.devices = {{.name = evil, .model = evil, .lost = evil}};
  status.classes = {{evil, 1, 1, 1}};
  status.ratios = {{evil, evil, 1, 1}};
  status.stores = {{.name = evil}};
  status.counters = {{evil, {{evil, 1}}}};
  ServerStatus::Job job = Solved(status);
  job.name = job.tenant = job.kind = job.what = job.priority = job.label = evil;
  job.devices = {evil, evil};
  job.stage = job.reason = job.message = evil;
  for (const char* state : {"succeeded", "failed", evil.c_str()}) {
    job.state = state;
    for (const char* outcome : {"", "converged", evil.c_str()}) {
      job.outcome = outcome;
      status.recent_jobs.push_back(job);
    }
  }
  status.queued = status.running = 1;
  status.queued_jobs = status.running_jobs = {job};
  const std::string page = StatusPage(status);
  EXPECT_EQ(Malformed(page), "");
  EXPECT_EQ(CountOf("<script", page), 0u);
  EXPECT_EQ(CountOf("<img", page), 0u);
  EXPECT_EQ(CountOf("</style>", page), 1u);
  EXPECT_GT(CountOf("&lt;script&gt;", page), 50u);
  const auto json = nlohmann::json::parse(StatusJson(status));
  EXPECT_EQ(json["recent_jobs"][0]["tenant"], evil);
}

TEST(StatusPage, IsBoundedWhateverItIsGiven) {
  ServerStatus status = EmptyServer();
  ServerStatus::Job job = Solved(status);
  job.state = "failed";
  job.tenant = job.label = std::string(5'000, 't');
  job.message = std::string(20'000, 'm');
  status.recent_jobs.assign(100, job);
  status.running_jobs.assign(100, job);
  status.queued_jobs.assign(100, job);
  status.queued = 100'000;
  status.devices.assign(100, {.name = "gpu:0", .lost = std::string(20'000, 'l')});
  status.ratios.assign(100, {"cpu", "solve", 1, 1});
  status.counters = {{"many", std::vector<ServerStatus::Counter>(100, {"one", 1})}};
  const std::string page = StatusPage(status);
  EXPECT_EQ(Malformed(page), "");
  EXPECT_EQ(CountOf("<tr>", page), 4 + 3 * kMostJobsShown + 64);
  EXPECT_LT(page.size(), 600'000u);
  const auto json = nlohmann::json::parse(StatusJson(status));
  EXPECT_EQ(json["recent_jobs"].size(), kMostJobsShown);
}

TEST(StatusJson, HasWhatThePageHas) {
  ServerStatus status = EmptyServer();
  status.recent_jobs = {Solved(status)};
  status.recent_jobs[0].true_relative_residual = std::nan("");
  status.recent_jobs[0].tenant = "not UTF-8: \xFF";
  status.counters = {{"jobs ended", {{"succeeded", 3}}}};
  const auto json = nlohmann::json::parse(StatusJson(status));
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["now"], 1'700'000'000.0);
  EXPECT_EQ(json["devices"][0]["healthy"], true);
  EXPECT_EQ(json["queue"]["classes"][2]["name"], "bulk");
  EXPECT_EQ(json["counters"]["jobs ended"]["succeeded"], 3);
  const auto& job = json["recent_jobs"][0];
  EXPECT_EQ(job["iterations"], 166);
  EXPECT_TRUE(job["true_relative_residual"].is_null());
  EXPECT_EQ(job["tenant"], "not UTF-8: \xEF\xBF\xBD");
  EXPECT_EQ(job["residuals"].size(), 167u);
  EXPECT_EQ(job["residuals"][0], (nlohmann::json{0, 1.0}));
  EXPECT_FALSE(job.contains("error"));
}

}  // namespace
}  // namespace spaid::server
