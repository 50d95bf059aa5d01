#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "server/ops/html.h"
#include "server/ops/status_page.h"

namespace spaid::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostMessageBytes = 1000;

double Seconds(WallTime when) {
  return std::chrono::duration<double>(when.time_since_epoch()).count();
}

Json OfDevice(const ServerStatus::Device& device) {
  return {{"name", device.name},
          {"model", device.model},
          {"in_use", device.in_use},
          {"healthy", device.lost.empty()},
          {"lost", device.lost},
          {"threads", device.threads},
          {"memory_bytes", device.memory_bytes},
          {"used_bytes", device.used_bytes},
          {"limit_bytes", device.limit_bytes}};
}

Json OfJob(const ServerStatus::Job& job) {
  Json out = {
      {"name", job.name},         {"tenant", job.tenant},     {"kind", job.kind},
      {"what", job.what},         {"priority", job.priority}, {"state", job.state},
      {"matrix", job.matrix},     {"label", job.label},       {"n", job.n},
      {"nnz", job.nnz},           {"devices", job.devices},   {"created", Seconds(job.created)},
      {"queue_ms", job.queue_ms}, {"run_ms", job.run_ms}};
  if (job.state == "queued") {
    out["position"] = job.position;
    out["eta_ms"] = job.eta_ms;
  } else if (job.state == "running") {
    out["stage"] = job.stage;
    out["done"] = job.done;
    out["total"] = job.total;
  } else {
    out["ended"] = Seconds(job.ended);
    out["plan_ms"] = job.plan_ms;
    out["build_ms"] = job.build_ms;
    out["solve_ms"] = job.solve_ms;
    out["rebuild"] = job.rebuild;
    out["reused"] = job.reused;
  }
  if (job.predicted_ms > 0) out["predicted_ms"] = job.predicted_ms;
  if (!job.outcome.empty()) {
    out["outcome"] = job.outcome;
    out["iterations"] = job.iterations;
    out["true_relative_residual"] = job.true_relative_residual;  // null where it is not finite
    out["rhs_count"] = job.rhs_count;
  }
  if (!job.reason.empty())
    out["error"] = {{"reason", job.reason}, {"message", Shortened(job.message, kMostMessageBytes)}};
  if (!job.residuals.empty()) {
    Json& points = out["residuals"] = Json::array();
    for (const auto& [iteration, relative] : job.residuals) points.push_back({iteration, relative});
  }
  return out;
}

template <class T, class F>
Json ListOf(const std::vector<T>& items, F&& of, size_t most) {
  Json list = Json::array();
  for (const T& item : items) {
    if (list.size() == most) break;
    list.push_back(of(item));
  }
  return list;
}

}  // namespace

std::string StatusJson(const ServerStatus& s) {
  Json classes = Json::array(), ratios = Json::array(), stores = Json::array();
  for (const auto& one : s.classes) {
    classes.push_back({{"name", one.name},
                       {"queued", one.queued},
                       {"predicted_ms", one.predicted_ms},
                       {"share", one.share}});
  }
  for (const auto& ratio : s.ratios) {
    ratios.push_back({{"device", ratio.device},
                      {"work", ratio.work},
                      {"ratio", ratio.value},
                      {"jobs", ratio.jobs}});
  }
  for (const auto& store : s.stores) {
    stores.push_back({{"name", store.name},
                      {"entries", store.entries},
                      {"bytes", store.bytes},
                      {"limit_bytes", store.limit_bytes},
                      {"hits", store.hits},
                      {"misses", store.misses},
                      {"evictions", store.evictions}});
  }
  Json counters = Json::object();
  for (const auto& group : s.counters) {
    Json& of_group = counters[group.title] = Json::object();
    for (const auto& counter : group.counters) of_group[counter.what] = counter.value;
  }
  const Json out = {{"version", s.version},
                    {"address", s.address},
                    {"cuda", s.cuda},
                    {"start", Seconds(s.start)},
                    {"now", Seconds(s.now)},
                    {"ready", s.ready},
                    {"draining", s.draining},
                    {"devices", ListOf(s.devices, OfDevice, s.devices.size())},
                    {"queue",
                     {{"queued", s.queued},
                      {"running", s.running},
                      {"max_queued", s.max_queued},
                      {"max_queued_per_tenant", s.max_queued_per_tenant},
                      {"eta_ms", s.eta_ms},
                      {"classes", classes},
                      {"estimate_ratios", ratios}}},
                    {"running_jobs", ListOf(s.running_jobs, OfJob, kMostJobsShown)},
                    {"queued_jobs", ListOf(s.queued_jobs, OfJob, kMostJobsShown)},
                    {"recent_jobs", ListOf(s.recent_jobs, OfJob, kMostJobsShown)},
                    {"stores", stores},
                    {"resident_bytes", s.resident_bytes},
                    {"jobs_ended", s.jobs_ended},
                    {"jobs_refused", s.jobs_refused},
                    {"array_bytes_received", s.bytes_received},
                    {"array_bytes_sent", s.bytes_sent},
                    {"counters", counters}};
  // Names come from clients, whose metadata need not be UTF-8.
  return out.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spaid::server
