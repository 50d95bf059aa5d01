#include "client/cli/json.h"

#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/output.h"

namespace spaid::cli {
namespace {

using nlohmann::json;

json ToJson(const Occurrence& o) { return {{"count", o.count}, {"first", o.first}}; }

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

json ToJson(const Diagnosis& d) {
  return {{"explicit_zeros", d.explicit_zeros},
          {"structurally_symmetric", d.structurally_symmetric},
          {"numerically_symmetric", d.numerically_symmetric},
          {"asymmetry_row", d.asymmetry_row},
          {"asymmetry_column", d.asymmetry_column},
          {"max_asymmetry", d.max_asymmetry},
          {"missing_diagonal", ToJson(d.missing_diagonal)},
          {"zero_diagonal", ToJson(d.zero_diagonal)},
          {"negative_diagonal", ToJson(d.negative_diagonal)},
          {"empty_rows", ToJson(d.empty_rows)},
          {"empty_columns", ToJson(d.empty_columns)},
          {"structural_rank", d.structural_rank},
          {"not_dominant_rows", ToJson(d.not_dominant_rows)},
          {"zero_sum_rows", ToJson(d.zero_sum_rows)},
          {"constants_in_null_space", d.constants_in_null_space},
          {"dense_rows", ToJson(d.dense_rows)},
          {"dense_columns", ToJson(d.dense_columns)},
          {"max_row_entries", d.max_row_entries},
          {"max_column_entries", d.max_column_entries},
          {"min_abs_value", d.min_abs_value},
          {"max_abs_value", d.max_abs_value},
          {"findings", d.findings}};
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
          {"diagnosis", ToJson(info.diagnosis)}};
}

json ToJson(const Quality& q) {
  json fsai = nullptr;
  if (q.fsai) {
    fsai = {{"kaporin", q.fsai->kaporin},
            {"kaporin_by_step", q.fsai->kaporin_by_step},
            {"converged_rows", q.fsai->converged_rows},
            {"nnz_row_max", q.fsai->nnz_row_max},
            {"slow_rows", q.fsai->slow_rows},
            {"copied_rows", q.fsai->copied_rows},
            {"not_spd_rows", ToJson(q.fsai->not_spd_rows)},
            {"not_converged_rows", ToJson(q.fsai->not_converged_rows)},
            {"steps", q.fsai->steps},
            {"out_of_time", q.fsai->out_of_time},
            {"pattern_reused", q.fsai->pattern_reused}};
  }
  json dynamic_spai = nullptr;
  if (q.dynamic_spai) {
    dynamic_spai = {{"converged_columns", q.dynamic_spai->converged_columns},
                    {"residual_by_step", q.dynamic_spai->residual_by_step},
                    {"nnz_column_max", q.dynamic_spai->nnz_column_max},
                    {"copied_columns", q.dynamic_spai->copied_columns},
                    {"slow_columns", q.dynamic_spai->slow_columns},
                    {"dependent_columns", ToJson(q.dynamic_spai->dependent_columns)},
                    {"gram_nnz", q.dynamic_spai->gram_nnz},
                    {"pattern_reused", q.dynamic_spai->pattern_reused}};
  }
  return {{"residual_frobenius", q.fsai ? json(nullptr) : json(q.residual_frobenius)},
          {"residual_quantiles", q.residual_quantiles},
          {"worst_column", q.worst_column},
          {"density", q.density},
          {"gram_columns", q.gram_columns},
          {"qr_columns", q.qr_columns},
          {"iterative_columns", ToJson(q.iterative_columns)},
          {"not_converged_columns", ToJson(q.not_converged_columns)},
          {"rescued_columns", ToJson(q.rescued_columns)},
          {"rank_deficient_columns", ToJson(q.rank_deficient_columns)},
          {"zero_columns", ToJson(q.zero_columns)},
          {"non_finite_columns", ToJson(q.non_finite_columns)},
          {"min_scaled_pivot", q.min_scaled_pivot},
          {"thread_strategy", std::string(Name(q.thread_strategy))},
          {"fsai", std::move(fsai)},
          {"dynamic_spai", std::move(dynamic_spai)},
          {"warnings", q.warnings}};
}

json ToJson(const PreconditionerSpec& s) {
  json object = {{"engine", std::string(Name(s.engine))}};
  if (s.engine == Engine::kJacobi) object["block_size"] = s.block_size;
  if (s.engine == Engine::kFsai || s.engine == Engine::kAfsai) {
    if (s.engine == Engine::kAfsai) {
      object["k_max"] = s.fsai.k_max;
      object["step_size"] = s.fsai.step_size;
      object["epsilon"] = s.fsai.epsilon;
      object["min_gain"] = s.fsai.min_gain;
      object["time_budget_ms"] =
          s.fsai.time_budget
              ? json(std::chrono::duration<double, std::milli>(*s.fsai.time_budget).count())
              : json(nullptr);
      object["regrow"] = s.fsai.regrow;
    } else {
      object["pattern_power"] = s.pattern_power;
      object["drop_tol"] = s.fsai.drop_tol;
    }
    object["pattern_matrix"] = s.pattern_matrix;
    object["post_filter"] = s.post_filter;
    object["precision"] = std::string(Name(s.fsai.precision));
    object["symmetry_tolerance"] = s.fsai.symmetry_tolerance;
  }
  if (s.engine == Engine::kDynamicSpai) {
    object["tol"] = s.dynamic_spai.tol;
    object["max_steps"] = s.dynamic_spai.max_steps;
    object["step_size"] = s.dynamic_spai.step_size;
    object["max_column_nnz"] = s.dynamic_spai.max_column_nnz;
    object["growth_precision"] = std::string(Name(s.dynamic_spai.growth_precision));
    object["regrow"] = s.dynamic_spai.regrow;
    object["pattern_matrix"] = s.pattern_matrix;
    object["post_filter"] = s.post_filter;
    object["local_solver"] = std::string(Name(s.local_solver));
  }
  if (s.engine != Engine::kStaticSpai) return object;
  object["pattern_power"] = s.pattern_power;
  object["keep_tau"] = s.keep_tau ? json(*s.keep_tau) : json(nullptr);
  object["pattern_matrix"] = s.pattern_matrix;
  object["ensure_row"] = s.ensure_row;
  object["row_match"] = s.row_match;
  object["post_filter"] = s.post_filter;
  object["local_solver"] = std::string(Name(s.local_solver));
  object["thread_strategy"] = std::string(Name(s.thread_strategy));
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
                 {"device", info.device}};
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
          {"detail", o.detail}};
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
          {"tenant", job.tenant}};
}

json ToJson(const BuildEstimate& e) {
  return {{"engine", std::string(Name(e.engine))},
          {"choice_reason", e.choice_reason},
          {"placement", e.placement},
          {"nnz", e.nnz},
          {"host_bytes", e.host_bytes},
          {"device_bytes", e.device_bytes},
          {"device_bytes_min", e.device_bytes_min},
          {"download_bytes", e.download_bytes},
          {"predicted_ms", e.predicted_ms},
          {"flops", e.flops},
          {"n1_max", e.n1_max},
          {"n2_max", e.n2_max}};
}

json ToJson(const ServerInfo& info) {
  json devices = json::array();
  for (const DeviceInfo& d : info.devices) {
    devices.push_back({{"name", d.name},
                       {"kind", d.kind},
                       {"model", d.model},
                       {"uuid", d.uuid},
                       {"compute_capability", d.compute_capability},
                       {"memory_bytes", d.memory_bytes},
                       {"threads", d.threads},
                       {"in_use", d.in_use},
                       {"healthy", d.healthy},
                       {"unhealthy_reason", d.unhealthy_reason},
                       {"memory_used_bytes", d.memory_used_bytes},
                       {"memory_limit_bytes", d.memory_limit_bytes}});
  }
  json ratios = json::array();
  for (const EstimateRatio& r : info.estimate_ratios) {
    ratios.push_back(
        {{"device", r.device}, {"work", r.work}, {"ratio", r.ratio}, {"jobs", r.jobs}});
  }
  return {{"version", info.version},
          {"cuda_status", info.cuda_status},
          {"tenant", info.tenant},
          {"administrator", info.administrator},
          {"started", FormatTime(info.started)},
          {"devices", std::move(devices)},
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
          {"estimate_ratios", std::move(ratios)},
          {"draining", info.draining}};
}

json ToJson(const SolveFigures& f) {
  return {{"place_ms", f.place_ms},
          {"trial_ms", f.trial_ms},
          {"host_to_device_ms", f.host_to_device_ms},
          {"iterate_ms", f.iterate_ms},
          {"check_ms", f.check_ms},
          {"device_to_host_ms", f.device_to_host_ms},
          {"iterations", f.iterations},
          {"iterations_per_second", f.iterations_per_second},
          {"bytes_per_second", f.bytes_per_second},
          {"copy_bytes_per_second", f.copy_bytes_per_second},
          {"copy_share", f.copy_share}};
}

void AddTimings(json& object, const Timings& t) {
  object["setup_ms"] = t.setup_ms();
  object["upload_ms"] = t.upload_ms;
  object["queue_ms"] = t.queue_ms;
  object["plan_ms"] = t.plan_ms;
  object["build_ms"] = t.build_ms;
  object["assemble_ms"] = t.assemble_ms;
  object["host_to_device_ms"] = t.host_to_device_ms;
  object["device_to_host_ms"] = t.device_to_host_ms;
  object["solve_ms"] = t.solve_ms;
  object["download_ms"] = t.download_ms;
  object["total_ms"] = t.total_ms;
  object["bytes_up"] = t.bytes_up;
  object["bytes_down"] = t.bytes_down;
  object["rebuild"] = t.rebuild;
  object["reused"] = t.reused;
}

}  // namespace spaid::cli
