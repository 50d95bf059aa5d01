#include "client/cli/json.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "client/cli/output.h"
#include "client/cpp/options.h"

namespace spaid::cli {
namespace {

using nlohmann::json;

// For any member, and for a struct by its Fields.
template <class T>
json Value(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(Name(value));
  } else if constexpr (std::is_same_v<T, Occurrence>) {
    return {{"count", value.count}, {"first", value.first}};
  } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
    return std::chrono::duration<double, std::milli>(value).count();
  } else if constexpr (requires { value.has_value(); }) {
    return value ? Value(*value) : json(nullptr);
  } else if constexpr (requires { T::Fields(value, [](const char*, const auto&) {}); }) {
    json object = json::object();
    T::Fields(value, [&](const char* name, const auto& member) { object[name] = Value(member); });
    return object;
  } else if constexpr (requires {
                         T::value_type::Fields(value.front(), [](const char*, auto&) {});
                       }) {
    json list = json::array();
    for (const auto& item : value) list.push_back(Value(item));
    return list;
  } else {
    return value;
  }
}

json OptionalTime(const std::optional<std::chrono::system_clock::time_point>& time) {
  return time ? json(FormatTime(*time)) : json(nullptr);
}

template <class E>
json Names(const std::vector<E>& values) {
  json names = json::array();
  for (const E value : values) names.push_back(std::string(Name(value)));
  return names;
}

}  // namespace

json ToJson(const Error& error) {
  json object = {{"code", std::string(CodeName(error.code))},
                 {"reason", error.reason},
                 {"message", error.message}};
  if (!error.field.empty()) object["field"] = error.field;
  if (error.retry_after) object["retry_after_ms"] = error.retry_after->count();
  for (const auto& [key, value] : error.metadata) object["metadata"][key] = value;
  return object;
}

json ToJson(const MatrixInfo& info) {
  return {{"name", info.name},
          {"label", info.label},
          {"n", info.n},
          {"nnz", info.nnz},
          {"host_bytes", info.host_bytes},
          {"pattern_only", info.pattern_only},
          {"pattern_digest", info.pattern_digest},
          {"value_digest", info.value_digest},
          {"created", FormatTime(info.created)},
          {"diagnosis", Value(info.diagnosis)}};
}

json ToJson(const Quality& quality) {
  json object = Value(quality);
  if (!quality.measured()) object["residual_frobenius"] = nullptr;
  return object;
}

json ToJson(const PreconditionerSpec& spec) {
  json object = {{"engine", std::string(Name(spec.engine))}};
  if (spec.engine == Engine::kAuto) return object;
  internal::VisitOptions(
      spec, spec.engine, [&object](const internal::OptionInfo& option, const auto& member) {
        using Member = std::remove_cvref_t<decltype(member)>;
        constexpr bool kTime = std::is_same_v<Member, std::optional<std::chrono::nanoseconds>>;
        object[option.name + (kTime ? "_ms" : "")] = Value(member);
      });
  return object;
}

json ToJson(const PreconditionerInfo& info) {
  json object = {{"name", info.name},
                 {"matrix", info.matrix},
                 {"spec", ToJson(info.spec)},
                 {"engine", std::string(Name(info.spec.engine))},
                 {"choice_reason", info.choice_reason},
                 {"placement", info.placement},
                 {"n", info.n},
                 {"nnz", info.nnz},
                 {"is_factor", info.is_factor},
                 {"nnz_ratio", info.quality.density},
                 {"host_bytes", info.host_bytes},
                 {"device_bytes", info.device_bytes},
                 {"quality", ToJson(info.quality)},
                 {"created", FormatTime(info.created)},
                 {"device", info.device},
                 {"parts", Value(info.parts)}};
  json build = json::object();
  AddTimings(build, info.build_timings);
  object["build_timings"] = std::move(build);
  return object;
}

json ToJson(const JobInfo::RhsOutcome& o) {
  return {{"outcome", UpperSnake(Name(o.outcome))},
          {"iterations", o.iterations},
          {"true_residual", o.true_residual},
          {"true_relative_residual", o.true_relative_residual},
          {"detail", o.detail},
          {"unreachable", o.unreachable}};
}

json ToJson(const Rung& r) {
  return {{"engine", std::string(Name(r.engine))},
          {"method", std::string(Name(r.method))},
          {"what", r.what},
          {"left", r.left},
          {"iterations", r.iterations},
          {"relative_residual", r.relative_residual},
          {"setup_ms", r.setup_ms},
          {"solve_ms", r.solve_ms}};
}

json ToJson(const JobInfo& job) {
  json outcomes = json::array();
  for (const auto& outcome : job.outcomes) outcomes.push_back(ToJson(outcome));
  return {{"job", job.name},
          {"kind", std::string(Name(job.kind))},
          {"state", std::string(Name(job.state))},
          {"detached", job.detached},
          {"priority", std::string(Name(job.priority))},
          {"created", FormatTime(job.created)},
          {"started", OptionalTime(job.started)},
          {"ended", OptionalTime(job.ended)},
          {"matrix", job.matrix},
          {"preconditioner", job.preconditioner},
          {"device", job.device},
          {"devices", job.devices},
          {"stage", job.stage ? json(std::string(Name(*job.stage))) : json(nullptr)},
          {"done", job.done},
          {"total", job.total},
          {"error", job.error ? ToJson(*job.error) : json(nullptr)},
          {"outcomes", std::move(outcomes)},
          {"outcome_count", job.outcome_count},
          {"event_count", job.event_count},
          {"tenant", job.tenant},
          {"trace_id", job.trace_id}};
}

json ToJson(const BuildEstimate& estimate) {
  json object = Value(estimate);
  object["engine"] = std::string(Name(estimate.engine));
  object["choice_reason"] = estimate.choice_reason;
  object["placement"] = estimate.placement;
  return object;
}

json ToJson(const ServerInfo& info) {
  return {{"version", info.version},
          {"cuda_status", info.cuda_status},
          {"tenant", info.tenant},
          {"administrator", info.administrator},
          {"started", FormatTime(info.started)},
          {"devices", Value(info.devices)},
          {"engines", Names(info.engines)},
          {"methods", Names(info.methods)},
          {"max_message_bytes", info.max_message_bytes},
          {"max_matrix_bytes", info.max_matrix_bytes},
          {"matrix_store_bytes", info.matrix_store_bytes},
          {"preconditioner_store_bytes", info.preconditioner_store_bytes},
          {"max_queued_jobs", info.max_queued_jobs},
          {"max_rhs_count", info.max_rhs_count},
          {"queued", info.queued},
          {"running", info.running},
          {"eta_ms", info.eta_ms},
          {"estimate_ratios", Value(info.estimate_ratios)},
          {"draining", info.draining}};
}

json ToJson(const SolveFigures& figures) { return Value(figures); }

json ToJson(const Reuse& reuse) { return Value(reuse); }

void AddTimings(json& object, const Timings& timings) {
  object["setup_ms"] = timings.setup_ms();
  object.update(Value(timings));
}

}  // namespace spaid::cli
