#include "server/ops/status_page.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/ops/html.h"
#include "server/ops/status_style.h"

namespace spaid::server {
namespace {

using Job = ServerStatus::Job;

constexpr double kLeastMs = 0.005;  // that is worth telling
constexpr size_t kMostMessage = 300, kMostModel = 80, kMostLost = 300;
constexpr size_t kMostRows = 64;  // for devices, predictions, counters

std::string Words(const std::string& name) { return absl::StrReplaceAll(name, {{"_", " "}}); }

double AgeMs(WallTime from, WallTime to) { return std::max(0.0, Milliseconds(to - from).count()); }

std::string Tag(const std::string& kind, const std::string& text) {
  return absl::StrCat("<span class=\"tag ", kind, "\">", text, "</span>");
}

std::string Small(const std::string& text) {
  return text.empty() ? std::string() : absl::StrCat("<small>", text, "</small>");
}

// Stays on one line.
std::string Unbroken(const std::string& text) {
  return absl::StrCat("<span class=\"whole\">", text, "</span>");
}

// `full`: more than this share of it is worth a look.
std::string Bar(double share, const std::string& what, double full = 2) {
  const double percent = 100 * std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0);
  return absl::StrFormat(
      "<span class=\"bar%s\" role=\"img\" aria-label=\"%s: %.0f %%\"><i "
      "style=\"width:%.1f%%\"></i></span>",
      share > full ? " full" : "", what, percent, percent);
}

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string Heading(const std::string& text, const std::string& more = {}) {
  return absl::StrCat("<h2>", text, Small(more), "</h2>\n");
}

std::string Tile(const std::string& name, const std::string& value, const std::string& more) {
  return absl::StrCat("<div class=\"card tile\"><span>", name, "</span><b>", value, "</b>",
                      Small(more), "</div>\n");
}

// A cell; `head` is its column's, where there is no room for a row of heads.
std::string Cell(const std::string& head, const std::string& content,
                 const std::string& kind = {}) {
  return absl::StrCat("<td", kind.empty() ? "" : absl::StrCat(" class=\"", kind, "\""),
                      " data-head=\"", head, "\">", content, "</td>");
}

std::string TableOpen(const std::string& kind, const std::vector<std::string>& heads) {
  std::string out =
      absl::StrCat("<div class=\"card table\"><table class=\"", kind, "\"><thead><tr>");
  for (const std::string& head : heads) {
    const bool number = absl::StartsWith(head, "#");
    absl::StrAppend(&out, number ? "<th class=\"number\">" : "<th>", number ? head.substr(1) : head,
                    "</th>");
  }
  return out + "</tr></thead><tbody>\n";
}

constexpr char kTableClose[] = "</tbody></table></div>\n";

// --- What is told of a job ---

// Formats the kind of a job, and as much of its name as tells it from others.
std::string NameCell(const Job& job) {
  constexpr size_t kShort = 13;
  const std::string shown =
      job.name.size() > kShort + 3 ? job.name.substr(0, kShort) + "…" : job.name;
  return absl::StrCat("<td class=\"name\">", Escaped(job.kind), " <b>", Escaped(job.what),
                      "</b><small class=\"id\" title=\"", Escaped(job.name), "\">", Escaped(shown),
                      "</small></td>");
}

std::string TenantCell(const Job& job) {
  return Cell("tenant", absl::StrCat(Foreign(job.tenant, 60), Small(Escaped(job.priority))));
}

std::string MatrixCell(const Job& job) {
  std::string size;
  if (job.n > 0)
    size = Unbroken("n " + CountText(job.n)) + ", " + Unbroken("nnz " + CountText(job.nnz));
  const std::string name = job.label.empty() ? std::string() : Foreign(job.label, 60);
  if (name.empty()) return Cell("matrix", size.empty() ? "–" : size);
  return Cell("matrix", name + Small(size));
}

std::string DeviceCell(const Job& job) {
  std::string names = Escaped(absl::StrJoin(job.devices, ", "));
  return Cell("device", names.empty() ? "–" : names);
}

std::string CurveCell(const Job& job) {
  const std::string curve = Sparkline(job.residuals);
  if (curve.empty()) return "<td class=\"wide\"></td>";
  const bool missed = !job.outcome.empty() && job.outcome != "converged";
  return absl::StrCat("<td class=\"wide", missed ? " missed" : "", "\">", curve, "</td>");
}

std::string Phases(const Job& job) {
  std::vector<std::string> phases = {Unbroken("waited " + DurationText(job.queue_ms))};
  const auto add = [&](const char* name, double ms) {
    if (ms >= kLeastMs) phases.push_back(Unbroken(absl::StrCat(name, " ", DurationText(ms))));
  };
  add("plan", job.plan_ms);
  add("build", job.build_ms);
  add("solve", job.solve_ms);
  const double told = job.plan_ms + job.build_ms + job.solve_ms;
  if (told > 0 && job.run_ms - told > 0.1 * job.run_ms) add("other", job.run_ms - told);
  if (job.rebuild) phases.push_back(Unbroken("plan was there"));
  if (job.reused) phases.push_back(Unbroken("M was there"));
  return absl::StrJoin(phases, ", ");
}

std::string Residual(const Job& job) {
  if (job.residuals.empty()) return "";
  const auto& last = job.residuals.back();
  return absl::StrCat("iteration ", CountText(last.iteration), ": ", ResidualText(last.relative));
}

// Whether its stage counts levels, those that are made and the next: a build of multigrid does.
bool InLevels(const Job& job) { return job.stage == "build" && absl::StrContains(job.what, "amg"); }

std::string RunningRow(const Job& job) {
  const double share = Share(job.done, job.total);
  std::string progress = job.stage.empty() ? std::string("started") : Escaped(job.stage);
  if (job.total > 0) {
    absl::StrAppend(&progress, " <span class=\"soft\">", CountText(job.done), " of ",
                    CountText(job.total), InLevels(job) ? " levels" : "", "</span>");
  }
  absl::StrAppend(&progress, Bar(share, "of this stage"), Small(Residual(job)));
  std::string predicted;
  if (job.predicted_ms > 0) predicted = "of " + DurationText(job.predicted_ms) + " predicted";
  return absl::StrCat("<tr>", NameCell(job), TenantCell(job), MatrixCell(job), DeviceCell(job),
                      Cell("progress", progress, "progress"),
                      Cell("runs", DurationText(job.run_ms) + Small(predicted), "time"),
                      CurveCell(job), "</tr>\n");
}

std::string QueuedRow(const Job& job) {
  const std::string place =
      job.position == 0 ? "next" : absl::StrCat(CountText(job.position), " ahead");
  std::string predicted;
  if (job.predicted_ms > 0) predicted = DurationText(job.predicted_ms) + " predicted";
  return absl::StrCat(
      "<tr>", NameCell(job), TenantCell(job), MatrixCell(job),
      Cell("place", place + Small(predicted)), Cell("waits", DurationText(job.queue_ms), "time"),
      Cell("starts in about", job.eta_ms < kLeastMs ? "now" : DurationText(job.eta_ms), "time"),
      "</tr>\n");
}

std::string Result(const Job& job) {
  const bool good = job.state == "succeeded" && (job.outcome.empty() || job.outcome == "converged");
  const char* const kind = good ? "good" : job.state == "failed" ? "bad" : "warn";
  const std::string& word = job.outcome.empty() || job.state == "failed" ? job.state : job.outcome;
  std::string out = Tag(kind, Escaped(Words(word)));
  if (!job.outcome.empty()) {
    std::string figures = absl::StrCat(CountText(job.iterations), " iterations, ",
                                       Unbroken(ResidualText(job.true_relative_residual)));
    if (job.rhs_count > 1) {
      absl::StrAppend(&figures, "; one of ", CountText(job.rhs_count), " right-hand sides");
    }
    out += Small(figures);
  }
  if (!job.reason.empty()) {
    absl::StrAppend(&out, " <b class=\"id\">", Escaped(job.reason), "</b>",
                    Small(Foreign(job.message, kMostMessage)));
  }
  return out;
}

std::string RecentRow(const Job& job, WallTime now) {
  const std::string run =
      job.state == "succeeded" || job.run_ms > 0 ? DurationText(job.run_ms) : std::string("–");
  const std::string age = AgeText(AgeMs(job.ended, now)) + " ago";
  return absl::StrCat("<tr>", NameCell(job), TenantCell(job), MatrixCell(job), DeviceCell(job),
                      Cell("result", Result(job), "result"), Cell("ran", run + Small(Phases(job))),
                      Cell("ended", age + Small(UtcText(job.ended)), "time"), CurveCell(job),
                      "</tr>\n");
}

// --- Sections ---

std::string Header(const ServerStatus& s) {
  const std::string state = s.draining ? Tag("warn", "draining")
                            : s.ready  ? Tag("good", "ready")
                                       : Tag("bad", "not ready");
  return absl::StrCat("<header><h1>", kStatusMark, "spaid <small>", Escaped(s.version),
                      "</small></h1>", state, "<div class=\"facts\">gRPC on ", Escaped(s.address),
                      " · up ", AgeText(AgeMs(s.start, s.now)), " · ", UtcDateText(s.now),
                      "</div></header>\n");
}

std::string Tiles(const ServerStatus& s) {
  const auto in_use = std::count_if(s.devices.begin(), s.devices.end(),
                                    [](const auto& device) { return device.in_use; });
  const auto healthy = std::count_if(s.devices.begin(), s.devices.end(), [](const auto& device) {
    return device.in_use && device.lost.empty();
  });
  return absl::StrCat(
      "<div class=\"tiles\">\n", Tile("running", CountText(s.running), "jobs"),
      Tile("waiting", CountText(s.queued),
           absl::StrCat("of ", CountText(s.max_queued), " at most")),
      Tile("wait", s.eta_ms < kLeastMs ? "none" : DurationText(s.eta_ms), "of a job sent now"),
      Tile("devices", absl::StrCat(healthy, " of ", in_use), "healthy"),
      Tile("ended", CountText(s.jobs_ended),
           absl::StrCat("jobs; ", CountText(s.jobs_refused), " refused")),
      Tile("arrays received", BytesText(s.bytes_received), BytesText(s.bytes_sent) + " sent"),
      "</div>\n");
}

std::string DeviceCard(const ServerStatus::Device& device, const std::vector<Job>& running) {
  std::vector<std::string> here;
  for (const Job& job : running) {
    if (std::find(job.devices.begin(), job.devices.end(), device.name) != job.devices.end()) {
      here.push_back(absl::StrCat(Escaped(job.kind), " of ", Foreign(job.tenant, 30)));
    }
  }
  const std::string tag = !device.in_use         ? Tag("", "not used")
                          : !device.lost.empty() ? Tag("bad", "lost")
                          : here.empty()         ? Tag("good", "idle")
                                                 : Tag("busy", "busy");
  std::string out =
      absl::StrCat("<div class=\"card\"><div class=\"head\"><b>", Escaped(device.name), "</b>", tag,
                   "</div><p>", Foreign(device.model, kMostModel), "</p>");
  if (!device.lost.empty()) {
    absl::StrAppend(&out, "<p class=\"why\">", Foreign(device.lost, kMostLost), "</p>");
  } else if (device.limit_bytes > 0) {
    absl::StrAppend(&out, "<div class=\"pair\"><small>memory taken</small><small>",
                    BytesText(device.used_bytes), " of ", BytesText(device.limit_bytes),
                    "</small></div>",
                    Bar(Share(device.used_bytes, device.limit_bytes), "memory taken", 0.9));
  } else {
    std::vector<std::string> has;
    if (device.threads > 0)
      has.push_back(
          absl::StrCat(device.threads, device.threads == 1 ? " thread" : " threads", " a job"));
    if (device.memory_bytes > 0) has.push_back(BytesText(device.memory_bytes) + " of memory");
    out += Small(absl::StrJoin(has, ", "));
  }
  constexpr size_t kMostHere = 4;
  if (here.size() > kMostHere) {
    const size_t more = here.size() - kMostHere;
    here.resize(kMostHere);
    here.push_back(absl::StrCat("and ", more, " more"));
  }
  if (!here.empty()) absl::StrAppend(&out, "<p>", absl::StrJoin(here, ", "), "</p>");
  return out + "</div>\n";
}

std::string Devices(const ServerStatus& s) {
  std::string out = Heading("Devices", Foreign(s.cuda, kMostLost)) + "<div class=\"grid\">\n";
  for (size_t d = 0; d < std::min(s.devices.size(), kMostRows); ++d) {
    out += DeviceCard(s.devices[d], s.running_jobs);
  }
  return out + "</div>\n";
}

std::string Listed(size_t shown, size_t all) {
  return shown < all
             ? absl::StrCat("the first ", shown, " of ", CountText(static_cast<int64_t>(all)))
             : std::string();
}

std::string Running(const ServerStatus& s) {
  const size_t shown = std::min(s.running_jobs.size(), kMostJobsShown);
  std::string out = Heading("Running", Listed(shown, s.running_jobs.size()));
  if (shown == 0) return out + "<div class=\"card none\">Nothing runs.</div>\n";
  out += TableOpen("jobs", {"job", "tenant", "matrix", "device", "progress", "runs", "residual"});
  for (size_t j = 0; j < shown; ++j) out += RunningRow(s.running_jobs[j]);
  return out + kTableClose;
}

std::string Queue(const ServerStatus& s) {
  std::string limits = absl::StrCat(CountText(s.queued), " of ", CountText(s.max_queued));
  if (s.max_queued_per_tenant > 0) {
    absl::StrAppend(&limits, ", ", CountText(s.max_queued_per_tenant), " of one tenant at most");
  }
  std::string out = Heading("Queue", limits) + "<div class=\"grid\">\n";
  double shares = 0;
  for (const auto& one : s.classes) shares += one.share;
  for (const auto& one : s.classes) {
    absl::StrAppend(
        &out, "<div class=\"card\"><div class=\"head\"><b>", Escaped(one.name), "</b> ",
        Small(absl::StrFormat("%.0f %% of the time", 100 * one.share / shares)),
        one.queued > 0 ? Tag("busy", CountText(one.queued)) : Tag("", "none"), "</div>",
        Small(one.queued > 0 ? DurationText(one.predicted_ms) + " of devices’ time predicted"
                             : std::string("nothing waits")),
        "</div>\n");
  }
  out += "</div>\n";
  const size_t shown = std::min(s.queued_jobs.size(), kMostJobsShown);
  if (shown == 0) return out;
  if (static_cast<int64_t>(shown) < s.queued) {
    absl::StrAppend(&out, "<p class=\"soft\">Those that start first:</p>\n");
  } else {
    absl::StrAppend(&out, "<p></p>\n");
  }
  out += TableOpen("jobs", {"job", "tenant", "matrix", "place", "waits", "starts in about"});
  for (size_t j = 0; j < shown; ++j) out += QueuedRow(s.queued_jobs[j]);
  return out + kTableClose;
}

std::string Recent(const ServerStatus& s) {
  const size_t shown = std::min(s.recent_jobs.size(), kMostJobsShown);
  std::string out = Heading("Recent jobs", shown > 0 ? "the last one to end first" : "");
  if (shown == 0) return out + "<div class=\"card none\">No job has ended yet.</div>\n";
  out += TableOpen("jobs",
                   {"job", "tenant", "matrix", "device", "result", "ran", "ended", "residual"});
  for (size_t j = 0; j < shown; ++j) out += RecentRow(s.recent_jobs[j], s.now);
  return out + kTableClose;
}

std::string Stores(const ServerStatus& s) {
  std::string out =
      Heading("Stores", absl::StrCat(BytesText(s.resident_bytes), " resident in all")) +
      "<div class=\"grid\">\n";
  for (const auto& store : s.stores) {
    absl::StrAppend(&out, "<div class=\"card\"><div class=\"head\"><b>", Escaped(store.name),
                    "</b>", Small(CountText(store.entries)), "</div><div class=\"pair\"><small>",
                    BytesText(store.bytes), "</small><small>of ", BytesText(store.limit_bytes),
                    "</small></div>", Bar(Share(store.bytes, store.limit_bytes), "full", 0.9),
                    Small(absl::StrCat(CountText(store.hits), " found, ", CountText(store.misses),
                                       " not, ", CountText(store.evictions), " evicted")),
                    "</div>\n");
  }
  return out + "</div>\n";
}

std::string Predictions(const ServerStatus& s) {
  if (s.ratios.empty()) return "";
  std::string out = Heading("Predictions", "what jobs took over what was predicted") +
                    TableOpen("", {"device", "work", "#took over predicted", "#jobs"});
  for (size_t r = 0; r < std::min(s.ratios.size(), kMostRows); ++r) {
    const auto& ratio = s.ratios[r];
    absl::StrAppend(&out, "<tr><td>", Escaped(ratio.device), "</td><td>", Escaped(ratio.work),
                    "</td><td class=\"number\">", absl::StrFormat("%.2f", ratio.value),
                    "</td><td class=\"number\">", CountText(ratio.jobs), "</td></tr>\n");
  }
  return out + kTableClose;
}

std::string CountersOf(const ServerStatus& s) {
  std::string cards;
  for (const auto& group : s.counters) {
    if (group.counters.empty()) continue;
    absl::StrAppend(&cards, "<div class=\"card\"><h3>", Escaped(group.title), "</h3>");
    for (size_t c = 0; c < std::min(group.counters.size(), kMostRows); ++c) {
      absl::StrAppend(&cards, "<div class=\"pair\"><span>", Escaped(group.counters[c].what),
                      "</span><b>", CountText(group.counters[c].value), "</b></div>");
    }
    cards += "</div>\n";
  }
  if (cards.empty()) return "";
  return absl::StrCat(Heading("Since the start"), "<div class=\"grid\">\n", cards, "</div>\n");
}

std::string Footer(int refresh_seconds) {
  const std::string refresh =
      refresh_seconds > 0
          ? absl::StrCat("New every ", refresh_seconds, " s (<a href=\"/?refresh=off\">stop</a>).")
          : "Stands still (<a href=\"/\">keep it new</a>).";
  return absl::StrCat("<footer>", refresh,
                      " The same for programs: <a href=\"/status.json\">/status.json</a>, "
                      "<a href=\"/metrics\">/metrics</a>.</footer>\n");
}

}  // namespace

std::string StatusPage(const ServerStatus& s, const StatusPageOptions& options) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  if (options.refresh_seconds > 0) {
    absl::StrAppend(&out, "<meta http-equiv=\"refresh\" content=\"", options.refresh_seconds,
                    "\">\n");
  }
  absl::StrAppend(&out,
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<title>spaid: ",
                  s.draining ? "draining"
                  : s.ready  ? "ready"
                             : "not ready",
                  ", ", s.running, " running, ", s.queued,
                  " waiting</title>\n<link rel=\"icon\" "
                  "href=\"",
                  kStatusIcon, "\">\n<style>", kStatusStyle, "</style></head>\n<body>\n");
  absl::StrAppend(&out, Header(s), "<main>\n", Tiles(s), Devices(s), Running(s));
  absl::StrAppend(&out, Queue(s), Recent(s), Stores(s), CountersOf(s), Predictions(s), "</main>\n");
  absl::StrAppend(&out, Footer(options.refresh_seconds), "</body></html>\n");
  return out;
}

}  // namespace spaid::server
