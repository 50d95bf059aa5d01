#include "client/load/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/output.h"

namespace spaid::load {
namespace {

using cli::FormatBytes;
using cli::FormatCount;
using cli::FormatFixed;
using cli::FormatMs;
using cli::Style;
using cli::Table;
using nlohmann::ordered_json;

double Rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

bool IsExpected(const LoadOptions& options, const std::string& name) {
  return std::find(options.expect.begin(), options.expect.end(), name) != options.expect.end();
}

// "12 QUEUE_FULL, 1 TIMEOUT"
std::string Counts(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + FormatCount(count) + " " + name;
  }
  return text;
}

struct Row {
  const char* key;    // in the JSON
  const char* title;  // in the table
  const Histogram& times;
};

std::vector<Row> RowsOf(const LoadOptions& options, const Tally& t) {
  std::vector<Row> rows = {{"job", "whole job", t.job},
                           {"upload", "upload", t.upload},
                           {"build", "build", t.build},
                           {"solve", "solve, with its build", t.solve},
                           {"server_queue", "server: queue", t.queue},
                           {"server_setup", "server: set-up", t.setup},
                           {"server_solve", "server: solve", t.iterate},
                           {"server_run", "server: set-up and solve", t.run}};
  if (options.open_loop()) rows.push_back({"lag", "client: began late by", t.lag});
  return rows;
}

Table LatencyTable(const std::string& first) {
  using Align = Table::Align;
  return Table({{first, Align::kLeft},
                {"count", Align::kRight},
                {"p50", Align::kRight},
                {"p90", Align::kRight},
                {"p99", Align::kRight},
                {"p99.9", Align::kRight},
                {"max", Align::kRight},
                {"errors", Align::kRight}});
}

void AddRow(Table& table, const std::string& title, const Histogram& times, int64_t errors = 0) {
  table.Add({title,
             FormatCount(times.count()),
             FormatMs(times.Percentile(0.5)),
             FormatMs(times.Percentile(0.9)),
             FormatMs(times.Percentile(0.99)),
             FormatMs(times.Percentile(0.999)),
             FormatMs(times.max_ms()),
             {errors > 0 ? FormatCount(errors) : "", Style::kBad}});
}

std::string GroupsText(const char* first, const std::map<std::string, Group>& groups, bool color) {
  Table table = LatencyTable(first);
  for (const auto& [name, group] : groups) AddRow(table, name, group.job, group.errors);
  return "\n" + table.Text(color);
}

ordered_json ToJson(const Histogram& times) {
  return {{"count", times.count()},           {"mean_ms", times.mean_ms()},
          {"p50_ms", times.Percentile(0.5)},  {"p90_ms", times.Percentile(0.9)},
          {"p99_ms", times.Percentile(0.99)}, {"p999_ms", times.Percentile(0.999)},
          {"max_ms", times.max_ms()}};
}

ordered_json ToJson(const std::map<std::string, Group>& groups) {
  ordered_json object = ordered_json::object();
  for (const auto& [name, group] : groups) {
    object[name] = {{"errors", group.errors}, {"job", ToJson(group.job)}};
  }
  return object;
}

ordered_json ToJson(const LoadOptions& o) {
  const auto optional = [](const std::optional<double>& value) {
    return value ? ordered_json(*value) : ordered_json(nullptr);
  };
  ordered_json cancel = ordered_json::array();
  for (const CancelIn state : o.cancel) cancel.push_back(std::string(Name(state)));
  return {{"address", o.global.client.address},
          {"loop", o.open_loop() ? "open" : "closed"},
          {"concurrency", o.concurrency},
          {"rate", o.rate},
          {"duration_s", o.duration_s},
          {"jobs", o.jobs},
          {"warmup_s", o.warmup_s},
          {"mix", ToText(o.mix)},
          {"engines", ToText(o.engines)},
          {"build_share", o.build_share},
          {"rhs", o.rhs},
          {"variants", o.variants},
          {"time_steps", o.time_steps},
          {"reuse", std::string(Name(o.reuse))},
          {"method", std::string(Name(o.method))},
          {"rtol", o.rtol},
          {"max_iterations", o.max_iterations},
          {"tenants", o.tenants},
          {"connections", o.connections},
          {"deadline_s", optional(o.deadline_s)},
          {"max_queue_s", optional(o.max_queue_s)},
          {"priority", std::string(Name(o.priority))},
          {"retries", o.retries},
          {"cancel", std::move(cancel)},
          {"cancel_after_s", o.cancel_after_s},
          {"expect", o.expect},
          {"seed", o.seed}};
}

}  // namespace

std::string ReportText(const Report& report, bool color) {
  const LoadOptions& o = report.options;
  const Tally& t = report.result.tally;
  const double wall = report.result.wall_s;
  cli::Facts facts;
  facts.Add("load", o.open_loop()
                        ? "open loop, " + FormatFixed(o.rate, 1) +
                              " jobs/s arriving (Poisson); latency from the scheduled arrival"
                        : "closed loop, " + FormatCount(o.concurrency) + " at a time");
  facts.Add("jobs", FormatCount(t.jobs) + " in " + FormatMs(wall * 1000) + ", " +
                        FormatFixed(Rate(static_cast<double>(t.succeeded), wall), 1) +
                        " done a second: " + FormatCount(t.solves) + " solves, " +
                        FormatCount(t.builds) + " builds");
  if (report.result.interrupted) {
    facts.Add("ended early", FormatCount(t.interrupted) + " jobs were under way", Style::kWarn);
  }
  if (!t.outcomes.empty()) {
    const bool good = t.outcomes.size() == 1 && t.outcomes.contains("CONVERGED");
    facts.Add("outcomes", Counts(t.outcomes), good ? Style::kGood : Style::kWarn);
  }
  facts.Add("errors", t.failed == 0 ? "none" : Counts(t.errors),
            t.failed == 0 ? Style::kGood : Style::kBad);
  if (t.refused > 0) {
    facts.Add("refused", FormatCount(t.refused) + " times for now, tried again " +
                             FormatCount(t.retried) + " times");
  }
  facts.Add("on the server", FormatCount(t.reused) + " answers were there, " +
                                 FormatCount(t.rebuilt) + " rebuilt on a known pattern, " +
                                 FormatCount(t.evicted) + " matrices evicted amid a job");
  const auto bytes = [&](int64_t count) {
    return FormatBytes(count) + " (" +
           FormatBytes(static_cast<int64_t>(Rate(static_cast<double>(count), wall))) + "/s)";
  };
  facts.Add("arrays", bytes(t.bytes_up) + " up, " + bytes(t.bytes_down) + " down");
  if (!report.memory.empty()) {
    facts.Add("daemon's memory", FormatFixed(report.memory.first_mib(), 1) + " to " +
                                     FormatFixed(report.memory.last_mib(), 1) +
                                     " MiB; in the second half " +
                                     FormatFixed(report.memory.KibPer1000Jobs(), 1) +
                                     " KiB more with every 1000 jobs");
  }
  std::string text = facts.Text(color) + "\n";
  Table table = LatencyTable("jobs that succeeded");
  for (const Row& row : RowsOf(o, t)) {
    if (row.times.count() > 0) AddRow(table, row.title, row.times);
  }
  text += table.Text(color);
  if (!t.cancelled.empty()) {
    Table cancelled = LatencyTable("cancelled in");
    for (const auto& [state, times] : t.cancelled) AddRow(cancelled, state, times);
    text += "\n" + cancelled.Text(color);
  }
  if (!t.by_step.empty()) text += GroupsText("time steps", t.by_step, color);
  if (t.by_work.size() > 1) text += GroupsText("matrix and engine", t.by_work, color);
  if (t.by_tenant.size() > 1) text += GroupsText("tenant", t.by_tenant, color);
  // A job that began late waited in this program, for one of the --concurrency jobs to end.
  if (o.open_loop() && t.lag.Percentile(0.99) > std::max(10.0, 0.1 * t.job.Percentile(0.99))) {
    text += "\n  jobs began up to " + FormatMs(t.lag.max_ms()) + " late, as " +
            FormatCount(o.concurrency) +
            " were under way; their latency counts that. The server is slower than\n"
            "  the rate, or give more --concurrency.\n";
  }
  return text;
}

ordered_json ReportJson(const Report& report) {
  const Tally& t = report.result.tally;
  const double wall = report.result.wall_s;
  ordered_json latency = ordered_json::object();
  for (const Row& row : RowsOf(report.options, t)) latency[row.key] = ToJson(row.times);
  ordered_json object = {{"program", "spaid-load"},
                         {"options", ToJson(report.options)},
                         {"interrupted", report.result.interrupted},
                         {"wall_s", wall},
                         {"jobs", t.jobs},
                         {"succeeded", t.succeeded},
                         {"failed", t.failed},
                         {"jobs_per_s", Rate(static_cast<double>(t.succeeded), wall)},
                         {"solves", t.solves},
                         {"builds", t.builds},
                         {"jobs_interrupted", t.interrupted},
                         {"jobs_of_warmup", t.warmup},
                         {"outcomes", t.outcomes},
                         {"errors", t.errors},
                         {"refused", t.refused},
                         {"retried", t.retried},
                         {"evicted", t.evicted},
                         {"reused", t.reused},
                         {"rebuilt", t.rebuilt},
                         {"bytes_up", t.bytes_up},
                         {"bytes_down", t.bytes_down},
                         {"mb_per_s_up", Rate(static_cast<double>(t.bytes_up) / 1e6, wall)},
                         {"mb_per_s_down", Rate(static_cast<double>(t.bytes_down) / 1e6, wall)},
                         {"latency", std::move(latency)},
                         {"by_step", ToJson(t.by_step)},
                         {"by_work", ToJson(t.by_work)},
                         {"by_tenant", ToJson(t.by_tenant)}};
  if (!t.cancelled.empty()) {
    ordered_json& cancelled = object["cancelled"];
    for (const auto& [state, times] : t.cancelled) cancelled[state] = ToJson(times);
  }
  if (!report.memory.empty()) {
    object["daemon_memory"] = {{"first_mib", report.memory.first_mib()},
                               {"last_mib", report.memory.last_mib()},
                               {"kib_per_1000_jobs", report.memory.KibPer1000Jobs()}};
  }
  return object;
}

cli::ExitCode CodeOf(const Report& report) {
  const Tally& t = report.result.tally;
  for (const auto& [reason, count] : t.errors) {
    if (!IsExpected(report.options, reason)) return cli::ExitCode::kError;
  }
  if (t.jobs == 0 && t.cancelled.empty() && !report.result.interrupted) {
    return cli::ExitCode::kError;
  }
  for (const auto& [outcome, count] : t.outcomes) {
    if (outcome != "CONVERGED" && !IsExpected(report.options, outcome)) {
      return cli::ExitCode::kNotConverged;
    }
  }
  return cli::ExitCode::kOk;
}

std::string ProgressLine(const LoadOptions& options, const Tally& tally, double seconds) {
  const double measured = seconds - options.warmup_s;
  if (measured < 0) {
    return "  warming up, " + FormatMs(-measured * 1000) + " to go, " + FormatCount(tally.warmup) +
           " jobs";
  }
  std::string line = "  " + FormatCount(tally.jobs) + " jobs";
  if (options.jobs > 0) line += " of " + FormatCount(options.jobs);
  line += " in " + FormatMs(measured * 1000);
  if (options.duration_s > 0) line += " of " + FormatMs(options.duration_s * 1000);
  line += ", " + FormatFixed(Rate(static_cast<double>(tally.succeeded), measured), 1) + "/s, p50 " +
          FormatMs(tally.job.Percentile(0.5)) + ", p99 " + FormatMs(tally.job.Percentile(0.99));
  if (tally.failed > 0) line += ", " + FormatCount(tally.failed) + " errors";
  return line;
}

}  // namespace spaid::load
