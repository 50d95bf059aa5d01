#include "client/cpp/convert.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace spaid::internal {
namespace {

int32_t Nanos(int32_t nanos) { return std::clamp(nanos, 0, 999'999'999); }

// Between 1970 and 2197, so that the difference of any two fits.
std::chrono::system_clock::time_point Time(const google::protobuf::Timestamp& in) {
  constexpr int64_t kLatest = int64_t{7} << 30;
  const std::chrono::seconds seconds(std::clamp<int64_t>(in.seconds(), 0, kLatest));
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          seconds + std::chrono::nanoseconds(Nanos(in.nanos()))));
}

// Bytes that one call moved, which callers add up over many.
int64_t Moved(int64_t bytes) { return std::clamp<int64_t>(bytes, 0, int64_t{1} << 44); }

std::string Hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

Occurrence Counted(const v1::Occurrence& in) { return {in.count(), in.count() ? in.first() : -1}; }
Occurrence Counted(const v1::BuildQuality::Counted& in) {
  return {in.count(), in.count() ? in.first() : -1};
}

Diagnosis FromProto(const v1::Diagnosis& in) {
  Diagnosis out;
  out.explicit_zeros = in.explicit_zeros();
  out.structurally_symmetric = in.structurally_symmetric();
  out.numerically_symmetric = in.numerically_symmetric();
  out.asymmetry_row = in.asymmetry_row();
  out.asymmetry_column = in.asymmetry_column();
  out.max_asymmetry = in.max_asymmetry();
  out.missing_diagonal = Counted(in.missing_diagonal());
  out.zero_diagonal = Counted(in.zero_diagonal());
  out.negative_diagonal = Counted(in.negative_diagonal());
  out.empty_rows = Counted(in.empty_rows());
  out.empty_columns = Counted(in.empty_columns());
  out.structural_rank = in.structural_rank();
  out.not_dominant_rows = Counted(in.not_dominant_rows());
  out.zero_sum_rows = Counted(in.zero_sum_rows());
  out.constants_in_null_space = in.constants_in_null_space();
  out.dense_rows = Counted(in.dense_rows());
  out.dense_columns = Counted(in.dense_columns());
  out.max_row_entries = in.max_row_entries();
  out.max_column_entries = in.max_column_entries();
  out.min_abs_value = in.min_abs_value();
  out.max_abs_value = in.max_abs_value();
  out.findings.assign(in.findings().begin(), in.findings().end());
  return out;
}

LocalSolver FromProto(v1::LocalSolver in) {
  switch (in) {
    case v1::LOCAL_SOLVER_QR:
      return LocalSolver::kQr;
    case v1::LOCAL_SOLVER_GRAM:
      return LocalSolver::kGram;
    default:
      return LocalSolver::kAuto;
  }
}

ThreadStrategy FromProto(v1::ThreadStrategy in) {
  switch (in) {
    case v1::THREAD_STRATEGY_CONSTANT:
      return ThreadStrategy::kConstant;
    case v1::THREAD_STRATEGY_VARIABLE:
      return ThreadStrategy::kVariable;
    case v1::THREAD_STRATEGY_PAPER:
      return ThreadStrategy::kPaper;
    default:
      return ThreadStrategy::kAuto;
  }
}

Priority FromProto(v1::Priority in) {
  switch (in) {
    case v1::PRIORITY_INTERACTIVE:
      return Priority::kInteractive;
    case v1::PRIORITY_BULK:
      return Priority::kBulk;
    default:
      return Priority::kNormal;
  }
}

JobState FromProto(v1::JobState in) {
  switch (in) {
    case v1::JOB_STATE_QUEUED:
      return JobState::kQueued;
    case v1::JOB_STATE_RUNNING:
      return JobState::kRunning;
    case v1::JOB_STATE_SUCCEEDED:
      return JobState::kSucceeded;
    case v1::JOB_STATE_CANCELLED:
      return JobState::kCancelled;
    default:
      return JobState::kFailed;
  }
}

DeviceInfo FromProto(const v1::Device& in) {
  DeviceInfo out;
  out.name = in.name();
  switch (in.kind()) {
    case v1::DEVICE_KIND_CPU:
      out.kind = "cpu";
      break;
    case v1::DEVICE_KIND_CUDA:
      out.kind = "cuda";
      break;
    default:
      out.kind = "unknown";
  }
  out.model = in.model();
  out.uuid = in.uuid();
  out.compute_capability = in.compute_capability();
  out.memory_bytes = in.memory_bytes();
  out.threads = in.threads();
  out.in_use = in.in_use();
  out.healthy = in.healthy();
  out.unhealthy_reason = in.unhealthy_reason();
  out.memory_used_bytes = in.memory_used_bytes();
  out.memory_limit_bytes = in.memory_limit_bytes();
  return out;
}

}  // namespace

std::chrono::nanoseconds Span(const google::protobuf::Duration& in) {
  constexpr int64_t kYear = int64_t{366} * 24 * 3600;
  if (in.seconds() < 0 || in.nanos() < 0) return {};
  return std::chrono::seconds(std::min(in.seconds(), kYear)) +
         std::chrono::nanoseconds(Nanos(in.nanos()));
}

MatrixInfo FromProto(const v1::Matrix& in) {
  MatrixInfo out;
  out.name = in.name();
  out.label = in.label();
  out.n = in.n();
  out.nnz = in.nnz();
  out.host_bytes = in.host_bytes();
  out.pattern_only = in.pattern_only();
  out.pattern_digest = Hex(in.digest().pattern());
  out.value_digest = Hex(in.digest().values());
  out.created = Time(in.create_time());
  out.diagnosis = FromProto(in.diagnosis());
  return out;
}

Timings FromProto(const v1::Timings& in) {
  Timings out;
  out.upload_ms = in.upload_ms();
  out.queue_ms = in.queue_ms();
  out.plan_ms = in.plan_ms();
  out.build_ms = in.build_ms();
  out.solve_ms = in.solve_ms();
  out.download_ms = in.download_ms();
  out.total_ms = in.total_ms();
  out.bytes_up = Moved(in.bytes_up());
  out.bytes_down = Moved(in.bytes_down());
  out.rebuild = in.rebuild();
  out.reused = in.reused();
  out.host_to_device_ms = in.host_to_device_ms();
  out.device_to_host_ms = in.device_to_host_ms();
  out.assemble_ms = in.assemble_ms();
  return out;
}

Quality FromProto(const v1::BuildQuality& in) {
  Quality out;
  out.residual_frobenius = in.residual_frobenius();
  out.residual_quantiles.assign(in.residual_quantiles().begin(), in.residual_quantiles().end());
  out.worst_column = in.worst_column();
  out.density = in.density();
  out.gram_columns = in.gram_columns();
  out.qr_columns = in.qr_columns();
  out.iterative_columns = Counted(in.iterative_columns());
  out.not_converged_columns = Counted(in.not_converged_columns());
  out.rescued_columns = Counted(in.rescued_columns());
  out.rank_deficient_columns = Counted(in.rank_deficient_columns());
  out.zero_columns = Counted(in.zero_columns());
  out.non_finite_columns = Counted(in.non_finite_columns());
  out.min_scaled_pivot = in.min_scaled_pivot();
  out.thread_strategy = FromProto(in.thread_strategy());
  if (in.has_fsai()) {
    const v1::FsaiQuality& from = in.fsai();
    FsaiQuality& to = out.fsai.emplace();
    to.kaporin = from.kaporin();
    to.kaporin_by_step.assign(from.kaporin_by_step().begin(), from.kaporin_by_step().end());
    to.converged_rows = from.converged_rows();
    to.nnz_row_max = from.nnz_row_max();
    to.slow_rows = from.slow_rows();
    to.copied_rows = from.copied_rows();
    to.not_spd_rows = Counted(from.not_spd_rows());
    to.not_converged_rows = Counted(from.not_converged_rows());
    to.steps = from.steps();
    to.out_of_time = from.out_of_time();
    to.pattern_reused = from.pattern_reused();
  }
  if (in.has_dynamic_spai()) {
    const v1::DynamicSpaiQuality& from = in.dynamic_spai();
    DynamicSpaiQuality& to = out.dynamic_spai.emplace();
    to.converged_columns = from.converged_columns();
    to.residual_by_step.assign(from.residual_by_step().begin(), from.residual_by_step().end());
    to.nnz_column_max = from.nnz_column_max();
    to.copied_columns = from.copied_columns();
    to.slow_columns = from.slow_columns();
    to.dependent_columns = Counted(from.dependent_columns());
    to.gram_nnz = from.gram_nnz();
    to.pattern_reused = from.pattern_reused();
  }
  out.warnings.assign(in.warnings().begin(), in.warnings().end());
  return out;
}

PreconditionerSpec FromProto(const v1::PreconditionerSpec& in) {
  PreconditionerSpec out;
  out.engine = FromProto(in.engine());
  if (in.has_fsai()) {
    const v1::FsaiSpec& from = in.fsai();
    out.pattern_power = from.pattern_power() == 0 ? 1 : from.pattern_power();
    out.pattern_matrix = from.pattern_matrix();
    out.post_filter = from.post_filter();
    FsaiSpec& to = out.fsai;
    if (from.has_k_max()) to.k_max = from.k_max();
    if (from.step_size() != 0) to.step_size = from.step_size();
    if (from.has_epsilon()) to.epsilon = from.epsilon();
    to.min_gain = from.min_gain();
    if (from.has_time_budget()) {
      to.time_budget = Span(from.time_budget());
    }
    to.regrow = from.regrow();
    to.drop_tol = from.drop_tol();
    if (from.precision() == v1::FSAI_PRECISION_FP32) to.precision = Precision::kFp32;
    if (from.has_symmetry_tolerance()) to.symmetry_tolerance = from.symmetry_tolerance();
    return out;
  }
  if (in.has_dynamic_spai()) {
    const v1::DynamicSpaiSpec& from = in.dynamic_spai();
    out.pattern_matrix = from.pattern_matrix();
    out.post_filter = from.post_filter();
    out.local_solver = FromProto(from.local_solver());
    DynamicSpaiSpec& to = out.dynamic_spai;
    if (from.has_tol()) to.tol = from.tol();
    if (from.has_max_steps()) to.max_steps = from.max_steps();
    if (from.step_size() != 0) to.step_size = from.step_size();
    to.max_column_nnz = from.max_column_nnz();
    if (from.growth_precision() == v1::GROWTH_PRECISION_FP32) {
      to.growth_precision = Precision::kFp32;
    }
    to.regrow = from.regrow();
    return out;
  }
  const v1::StaticSpaiSpec& spai = in.static_spai();
  out.pattern_power = spai.pattern_power() == 0 ? 1 : spai.pattern_power();
  if (spai.has_keep_tau()) out.keep_tau = spai.keep_tau();
  out.pattern_matrix = spai.pattern_matrix();
  out.ensure_row = spai.ensure_row();
  out.row_match = spai.row_match();
  out.post_filter = spai.post_filter();
  out.local_solver = FromProto(spai.local_solver());
  out.thread_strategy = FromProto(spai.thread_strategy());
  out.block_size = in.jacobi().block_size() == 0 ? 1 : in.jacobi().block_size();
  return out;
}

PreconditionerInfo FromProto(const v1::Preconditioner& in) {
  PreconditionerInfo out;
  out.name = in.name();
  out.matrix = in.matrix();
  out.spec = FromProto(in.spec());
  out.choice_reason = in.choice().reason();
  out.placement = in.choice().placement();
  out.n = in.n();
  out.nnz = in.nnz();
  out.host_bytes = in.host_bytes();
  out.is_factor = in.is_factor();
  out.device_bytes = in.device_bytes();
  out.quality = FromProto(in.quality());
  out.build_timings = FromProto(in.build_timings());
  out.created = Time(in.create_time());
  out.device = in.device();
  return out;
}

JobInfo::RhsOutcome FromProto(const v1::RhsOutcome& in) {
  JobInfo::RhsOutcome out;
  out.outcome = FromProto(in.outcome());
  out.iterations = in.iterations();
  out.true_residual = in.true_residual();
  out.true_relative_residual = in.true_relative_residual();
  out.detail = in.detail();
  return out;
}

Residual FromProto(const v1::Residual& in) {
  return {in.rhs(), in.iteration(), in.relative_residual()};
}

SolveFigures FromProto(const v1::SolveFigures& in) {
  return {.place_ms = in.place_ms(),
          .trial_ms = in.trial_ms(),
          .host_to_device_ms = in.host_to_device_ms(),
          .iterate_ms = in.iterate_ms(),
          .check_ms = in.check_ms(),
          .device_to_host_ms = in.device_to_host_ms(),
          .iterations = in.iterations(),
          .iterations_per_second = in.iterations_per_second(),
          .bytes_per_second = in.bytes_per_second(),
          .copy_bytes_per_second = in.copy_bytes_per_second(),
          .copy_share = in.copy_share()};
}

JobInfo FromProto(const v1::Job& in) {
  JobInfo out;
  out.name = in.name();
  out.kind = in.kind() == v1::JOB_KIND_SOLVE ? JobKind::kSolve : JobKind::kBuild;
  out.state = FromProto(in.state());
  out.detached = in.detached();
  out.priority = FromProto(in.priority());
  out.created = Time(in.create_time());
  if (in.has_start_time()) out.started = Time(in.start_time());
  if (in.has_end_time()) out.ended = Time(in.end_time());
  out.matrix = in.matrix();
  out.preconditioner = in.preconditioner();
  out.device = in.device();
  out.devices.assign(in.devices().begin(), in.devices().end());
  out.stage = FromProto(in.stage());
  out.done = in.done();
  out.total = in.total();
  if (in.has_error()) {
    Error error;
    const int code = in.error().code();
    error.code = code >= 1 && code <= 16 ? static_cast<Code>(code) : Code::kUnknown;
    error.reason = in.error().reason();
    error.message = in.error().message();
    out.error = std::move(error);
  }
  for (const v1::RhsOutcome& outcome : in.outcomes()) out.outcomes.push_back(FromProto(outcome));
  out.outcome_count = in.outcome_count();
  out.event_count = in.event_count();
  out.tenant = in.tenant();
  return out;
}

BuildEstimate FromProto(const v1::EstimateBuildResponse& in) {
  BuildEstimate out;
  out.host_bytes = in.host_bytes();
  out.device_bytes = in.device_bytes();
  out.device_bytes_min = in.device_bytes_min();
  out.nnz = in.nnz();
  out.download_bytes = in.download_bytes();
  out.predicted_ms = in.predicted_ms();
  out.flops = in.flops();
  out.n1_max = in.n1_max();
  out.n2_max = in.n2_max();
  out.engine = FromProto(in.choice().engine());
  out.choice_reason = in.choice().reason();
  out.placement = in.choice().placement();
  return out;
}

ServerInfo FromProto(const v1::GetServerInfoResponse& in) {
  ServerInfo out;
  out.version = in.version();
  out.cuda_status = in.cuda_status();
  out.tenant = in.tenant();
  out.administrator = in.administrator();
  out.started = Time(in.start_time());
  for (const v1::Device& device : in.devices()) out.devices.push_back(FromProto(device));
  for (const int engine : in.engines()) {
    out.engines.push_back(FromProto(static_cast<v1::EngineKind>(engine)));
  }
  for (const int method : in.methods()) {
    out.methods.push_back(FromProto(static_cast<v1::Method>(method)));
  }
  out.max_message_bytes = in.limits().max_message_bytes();
  out.max_matrix_bytes = in.limits().max_matrix_bytes();
  out.matrix_store_bytes = in.limits().matrix_store_bytes();
  out.preconditioner_store_bytes = in.limits().preconditioner_store_bytes();
  out.max_queued_jobs = in.limits().max_queued_jobs();
  out.max_rhs_count = in.limits().max_rhs_count();
  out.queued = in.queue().queued();
  out.running = in.queue().running();
  out.eta_ms = in.queue().eta_ms();
  for (const v1::EstimateRatio& ratio : in.queue().estimate_ratios()) {
    out.estimate_ratios.push_back({ratio.device(), ratio.work(), ratio.ratio(), ratio.jobs()});
  }
  out.draining = in.draining();
  return out;
}

Engine FromProto(v1::EngineKind in) { return TraitsOf(static_cast<Engine>(in)).engine; }

Method FromProto(v1::Method in) {
  switch (in) {
    case v1::METHOD_CG:
      return Method::kCg;
    case v1::METHOD_BICGSTAB:
      return Method::kBicgstab;
    case v1::METHOD_GMRES:
      return Method::kGmres;
    default:
      return Method::kAuto;
  }
}

Outcome FromProto(v1::Outcome in) {
  switch (in) {
    case v1::OUTCOME_CONVERGED:
      return Outcome::kConverged;
    case v1::OUTCOME_MAX_ITERATIONS:
      return Outcome::kMaxIterations;
    case v1::OUTCOME_STAGNATED:
      return Outcome::kStagnated;
    case v1::OUTCOME_INDEFINITE:
      return Outcome::kIndefinite;
    case v1::OUTCOME_NON_FINITE:
      return Outcome::kNonFinite;
    case v1::OUTCOME_TIME_LIMIT:
      return Outcome::kTimeLimit;
    case v1::OUTCOME_CANCELLED:
      return Outcome::kCancelled;
    default:
      return Outcome::kBreakdown;
  }
}

std::optional<Stage> FromProto(v1::Stage in) {
  switch (in) {
    case v1::STAGE_PLAN:
      return Stage::kPlan;
    case v1::STAGE_BUILD:
      return Stage::kBuild;
    case v1::STAGE_ASSEMBLE:
      return Stage::kAssemble;
    case v1::STAGE_SOLVE:
      return Stage::kSolve;
    default:
      return std::nullopt;
  }
}

std::optional<Precision> FromProto(v1::Precision in) {
  switch (in) {
    case v1::PRECISION_FP64:
      return Precision::kFp64;
    case v1::PRECISION_FP32:
      return Precision::kFp32;
    default:
      return std::nullopt;
  }
}

// A forged enum value goes out as UNSPECIFIED, which the server refuses by name.
v1::EngineKind ToProto(Engine in) {
  const bool known = TraitsOf(in).engine == in;
  return known ? static_cast<v1::EngineKind>(in) : v1::ENGINE_KIND_UNSPECIFIED;
}

v1::LocalSolver ToProto(LocalSolver in) {
  switch (in) {
    case LocalSolver::kAuto:
      return v1::LOCAL_SOLVER_AUTO;
    case LocalSolver::kQr:
      return v1::LOCAL_SOLVER_QR;
    case LocalSolver::kGram:
      return v1::LOCAL_SOLVER_GRAM;
  }
  return v1::LOCAL_SOLVER_UNSPECIFIED;
}

v1::ThreadStrategy ToProto(ThreadStrategy in) {
  switch (in) {
    case ThreadStrategy::kAuto:
      return v1::THREAD_STRATEGY_AUTO;
    case ThreadStrategy::kConstant:
      return v1::THREAD_STRATEGY_CONSTANT;
    case ThreadStrategy::kVariable:
      return v1::THREAD_STRATEGY_VARIABLE;
    case ThreadStrategy::kPaper:
      return v1::THREAD_STRATEGY_PAPER;
  }
  // The server names the values that there are.
  return static_cast<v1::ThreadStrategy>(-1);
}

v1::Method ToProto(Method in) {
  switch (in) {
    case Method::kAuto:
      return v1::METHOD_AUTO;
    case Method::kCg:
      return v1::METHOD_CG;
    case Method::kBicgstab:
      return v1::METHOD_BICGSTAB;
    case Method::kGmres:
      return v1::METHOD_GMRES;
  }
  return v1::METHOD_UNSPECIFIED;
}

v1::Precision ToProto(Precision in) {
  switch (in) {
    case Precision::kAuto:
      return v1::PRECISION_AUTO;
    case Precision::kFp64:
      return v1::PRECISION_FP64;
    case Precision::kFp32:
      return v1::PRECISION_FP32;
  }
  // The server names the values that there are.
  return static_cast<v1::Precision>(-1);
}

v1::Priority ToProto(Priority in) {
  switch (in) {
    case Priority::kInteractive:
      return v1::PRIORITY_INTERACTIVE;
    case Priority::kNormal:
      return v1::PRIORITY_NORMAL;
    case Priority::kBulk:
      return v1::PRIORITY_BULK;
  }
  // The server names the values that there are.
  return static_cast<v1::Priority>(-1);
}

v1::JobState ToProto(JobState in) {
  switch (in) {
    case JobState::kQueued:
      return v1::JOB_STATE_QUEUED;
    case JobState::kRunning:
      return v1::JOB_STATE_RUNNING;
    case JobState::kSucceeded:
      return v1::JOB_STATE_SUCCEEDED;
    case JobState::kFailed:
      return v1::JOB_STATE_FAILED;
    case JobState::kCancelled:
      return v1::JOB_STATE_CANCELLED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

namespace {

// What an engine does not read stays unset.
void Set(const PreconditionerSpec& in, v1::FsaiSpec* out) {
  const FsaiSpec& fsai = in.fsai;
  if (in.engine == Engine::kAfsai) {
    out->set_k_max(fsai.k_max);
    out->set_step_size(fsai.step_size);
    out->set_epsilon(fsai.epsilon);
    out->set_min_gain(fsai.min_gain);
    if (fsai.time_budget) {
      const int64_t ns = fsai.time_budget->count();
      out->mutable_time_budget()->set_seconds(ns / 1'000'000'000);
      out->mutable_time_budget()->set_nanos(static_cast<int32_t>(ns % 1'000'000'000));
    }
    out->set_regrow(fsai.regrow);
  } else {
    out->set_drop_tol(fsai.drop_tol);
    out->set_pattern_power(in.pattern_power);
  }
  out->set_post_filter(in.post_filter);
  switch (fsai.precision) {
    case Precision::kAuto:
      break;
    case Precision::kFp64:
      out->set_precision(v1::FSAI_PRECISION_FP64);
      break;
    case Precision::kFp32:
      out->set_precision(v1::FSAI_PRECISION_FP32);
      break;
    default:
      out->set_precision(static_cast<v1::FsaiPrecision>(-1));  // as above
  }
  out->set_symmetry_tolerance(fsai.symmetry_tolerance);
  out->set_pattern_matrix(in.pattern_matrix);
}

void Set(const PreconditionerSpec& in, v1::DynamicSpaiSpec* out) {
  const DynamicSpaiSpec& dynamic = in.dynamic_spai;
  out->set_tol(dynamic.tol);
  out->set_max_steps(dynamic.max_steps);
  out->set_step_size(dynamic.step_size);
  out->set_max_column_nnz(dynamic.max_column_nnz);
  switch (dynamic.growth_precision) {
    case Precision::kAuto:
      break;
    case Precision::kFp64:
      out->set_growth_precision(v1::GROWTH_PRECISION_FP64);
      break;
    case Precision::kFp32:
      out->set_growth_precision(v1::GROWTH_PRECISION_FP32);
      break;
    default:
      out->set_growth_precision(static_cast<v1::GrowthPrecision>(-1));  // as above
  }
  out->set_post_filter(in.post_filter);
  out->set_local_solver(ToProto(in.local_solver));
  out->set_pattern_matrix(in.pattern_matrix);
  out->set_regrow(dynamic.regrow);
}

}  // namespace

v1::PreconditionerSpec ToProto(const PreconditionerSpec& in) {
  v1::PreconditionerSpec out;
  out.set_engine(ToProto(in.engine));
  const bool may_be_jacobi = in.engine == Engine::kJacobi || in.engine == Engine::kAuto;
  if (may_be_jacobi && in.block_size != 1) out.mutable_jacobi()->set_block_size(in.block_size);
  if (TraitsOf(in.engine).factored) Set(in, out.mutable_fsai());
  if (in.engine == Engine::kDynamicSpai) Set(in, out.mutable_dynamic_spai());
  if (in.engine != Engine::kStaticSpai && in.engine != Engine::kAuto) return out;
  v1::StaticSpaiSpec& spai = *out.mutable_static_spai();
  spai.set_pattern_power(in.pattern_power);
  if (in.keep_tau) spai.set_keep_tau(*in.keep_tau);
  spai.set_pattern_matrix(in.pattern_matrix);
  spai.set_ensure_row(in.ensure_row);
  spai.set_row_match(in.row_match);
  spai.set_post_filter(in.post_filter);
  spai.set_local_solver(ToProto(in.local_solver));
  spai.set_thread_strategy(ToProto(in.thread_strategy));
  return out;
}

}  // namespace spaid::internal
