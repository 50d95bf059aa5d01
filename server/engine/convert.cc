#include "server/engine/convert.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/engine/build_result.h"
#include "kernels/engine/options.h"
#include "server/base/status.h"
#include "server/engine/resolved_build.h"

namespace spaid::server {
namespace {

using absl::StatusCode;

std::string Path(std::string_view prefix, std::string_view name) {
  if (prefix.empty()) return std::string(name);
  if (name.empty()) return std::string(prefix);
  return std::string(prefix) + "." + std::string(name);
}

ErrorBuilder Bad(std::string_view why, std::string field, const std::string& text) {
  const std::string message = field + " " + text;
  return MakeError(StatusCode::kInvalidArgument, why, message).Field(std::move(field));
}

absl::Status UnknownEnum(std::string field, int number, const char* allowed) {
  return Bad(reason::kUnknownEnum, std::move(field),
             absl::StrCat("is ", number, number == 0 ? " (unspecified)" : ", which is unknown here",
                          "; give one of ", allowed));
}

bool InUnitInterval(double v) { return std::isfinite(v) && v >= 0 && v <= 1; }

absl::Status ParseLocalSolver(v1::LocalSolver from, const std::string& field,
                              kernels::LocalSolver* to) {
  switch (from) {
    case v1::LOCAL_SOLVER_AUTO:
      *to = kernels::LocalSolver::kAuto;
      return absl::OkStatus();
    case v1::LOCAL_SOLVER_QR:
      *to = kernels::LocalSolver::kQr;
      return absl::OkStatus();
    case v1::LOCAL_SOLVER_GRAM:
      *to = kernels::LocalSolver::kGram;
      return absl::OkStatus();
    default:
      return UnknownEnum(Path(field, "local_solver"), from, "AUTO, QR, GRAM");
  }
}

absl::Status ParseStaticSpai(const v1::StaticSpaiSpec& from, const std::string& field,
                             ParsedSpec* to) {
  kernels::StaticSpaiOptions& options = to->spec.static_spai;
  if (from.pattern_power() < 0 || from.pattern_power() > kMaxPatternPower) {
    return Bad(reason::kBadPatternPower, Path(field, "pattern_power"),
               absl::StrCat("is ", from.pattern_power(), "; give 1 to ", kMaxPatternPower,
                            ", or 0 for 1"));
  }
  options.pattern.power = from.pattern_power() == 0 ? 1 : from.pattern_power();
  if (from.has_keep_tau()) {
    if (!InUnitInterval(from.keep_tau())) {
      return Bad(reason::kBadKeepTau, Path(field, "keep_tau"),
                 absl::StrCat("is ", from.keep_tau(), "; give a value in 0 .. 1"));
    }
    if (!from.pattern_matrix().empty()) {
      return Bad(reason::kBadKeepTau, Path(field, "keep_tau"),
                 "thresholds the pattern of the matrix itself and says nothing of pattern_matrix; "
                 "set one of them");
    }
    options.pattern.keep_tau = from.keep_tau();
  }
  to->pattern_matrix = from.pattern_matrix();
  options.pattern.ensure_row = from.ensure_row();
  options.pattern.row_match = from.row_match();
  if (!InUnitInterval(from.post_filter())) {
    return Bad(reason::kBadPostFilter, Path(field, "post_filter"),
               absl::StrCat("is ", from.post_filter(), "; give a value in 0 .. 1"));
  }
  options.post_filter = from.post_filter();
  RETURN_IF_ERROR(ParseLocalSolver(from.local_solver(), field, &options.local_solver));
  switch (from.thread_strategy()) {
    case v1::THREAD_STRATEGY_UNSPECIFIED:
    case v1::THREAD_STRATEGY_AUTO:
      options.thread_strategy = kernels::ThreadStrategy::kAuto;
      break;
    case v1::THREAD_STRATEGY_CONSTANT:
      options.thread_strategy = kernels::ThreadStrategy::kConstant;
      break;
    case v1::THREAD_STRATEGY_VARIABLE:
      options.thread_strategy = kernels::ThreadStrategy::kVariable;
      break;
    case v1::THREAD_STRATEGY_PAPER:
      options.thread_strategy = kernels::ThreadStrategy::kPaper;
      break;
    default:
      return UnknownEnum(Path(field, "thread_strategy"), from.thread_strategy(),
                         "AUTO, CONSTANT, VARIABLE, PAPER");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(const google::protobuf::Duration& duration,
                                                       std::string field,
                                                       std::string_view why = reason::kBadLimit) {
  constexpr int64_t kTenYears = int64_t{10} * 365 * 24 * 3600;
  const bool positive = duration.seconds() > 0 || (duration.seconds() == 0 && duration.nanos() > 0);
  if (!positive || duration.seconds() > kTenYears || duration.nanos() < 0 ||
      duration.nanos() > 999'999'999) {
    return Bad(why, std::move(field),
               absl::StrCat("is ", duration.seconds(), " s and ", duration.nanos(),
                            " ns; give a time over 0 and under ten years, or leave it unset"));
  }
  return std::chrono::seconds(duration.seconds()) + std::chrono::nanoseconds(duration.nanos());
}

absl::Status ParseFsai(const v1::FsaiSpec& from, const std::string& field, ParsedSpec* to) {
  kernels::FsaiOptions& options = to->spec.fsai;
  if (from.has_k_max()) options.k_max = from.k_max();
  if (from.step_size() != 0) options.s = from.step_size();
  if (from.has_epsilon()) options.epsilon = from.epsilon();
  options.min_gain = from.min_gain();
  options.drop_tol = from.drop_tol();
  if (from.pattern_power() != 0) options.power = from.pattern_power();
  options.post_filter = from.post_filter();
  switch (from.precision()) {
    case v1::FSAI_PRECISION_UNSPECIFIED:
    case v1::FSAI_PRECISION_FP64:
      options.precision = kernels::FsaiPrecision::kFp64;
      break;
    case v1::FSAI_PRECISION_FP32:
      options.precision = kernels::FsaiPrecision::kFp32;
      break;
    default:
      return UnknownEnum(Path(field, "precision"), from.precision(), "FP64, FP32");
  }
  if (from.has_symmetry_tolerance()) options.symmetry_tolerance = from.symmetry_tolerance();
  if (from.has_time_budget()) {
    ASSIGN_OR_RETURN(
        const std::chrono::nanoseconds budget,
        ParseDuration(from.time_budget(), Path(field, "time_budget"), reason::kBadFsaiOption));
    options.time_budget_ms = std::chrono::duration<double, std::milli>(budget).count();
  }
  if (const kernels::Status status = kernels::CheckSpec(to->spec); !status.ok()) {
    return ToAbsl(status, field);
  }
  to->pattern_matrix = from.pattern_matrix();
  to->regrow = from.regrow();
  if (to->spec.engine == kernels::EngineKind::kFsai && !to->pattern_matrix.empty()) {
    for (const auto& [name, set] : {std::pair{"drop_tol", options.drop_tol > 0},
                                    std::pair{"pattern_power", options.power > 1}}) {
      if (!set) continue;
      return Bad(reason::kBadFsaiOption, Path(field, name),
                 "shapes the pattern of the matrix itself and says nothing of pattern_matrix; set "
                 "one of them");
    }
  }
  return absl::OkStatus();
}

absl::Status ParseDynamicSpai(const v1::DynamicSpaiSpec& from, const std::string& field,
                              ParsedSpec* to) {
  kernels::DynamicSpaiOptions& options = to->spec.dynamic_spai;
  if (from.has_tol()) options.tol = from.tol();
  if (from.has_max_steps()) options.max_steps = from.max_steps();
  if (from.step_size() != 0) options.per_step = from.step_size();
  options.max_column_nnz = from.max_column_nnz();
  switch (from.growth_precision()) {
    case v1::GROWTH_PRECISION_UNSPECIFIED:
    case v1::GROWTH_PRECISION_FP64:
      options.fp32_growth = false;
      break;
    case v1::GROWTH_PRECISION_FP32:
      options.fp32_growth = true;
      break;
    default:
      return UnknownEnum(Path(field, "growth_precision"), from.growth_precision(), "FP64, FP32");
  }
  options.post_filter = from.post_filter();
  if (from.local_solver() != v1::LOCAL_SOLVER_UNSPECIFIED) {
    RETURN_IF_ERROR(ParseLocalSolver(from.local_solver(), field, &options.local_solver));
  }
  if (const kernels::Status status = kernels::CheckSpec(to->spec); !status.ok()) {
    return ToAbsl(status, field);
  }
  to->pattern_matrix = from.pattern_matrix();
  to->regrow = from.regrow();
  return absl::OkStatus();
}

void Set(const kernels::Occurrence& from, v1::Occurrence* to) {
  to->set_count(from.count);
  to->set_first(from.first);
}

void Set(int64_t count, int64_t first, v1::BuildQuality::Counted* to) {
  to->set_count(count);
  to->set_first(first);
}

}  // namespace

absl::Status ToAbsl(const kernels::Status& status, std::string_view field_prefix) {
  if (status.ok()) return absl::OkStatus();
  ErrorBuilder error = MakeError(static_cast<StatusCode>(static_cast<int>(status.code())),
                                 status.reason(), status.message());
  if (!status.field().empty()) {
    error = std::move(error).Field(Path(field_prefix, status.field()));
  }
  if (status.index() >= 0) error = std::move(error).Index(status.index());
  return error;
}

absl::StatusOr<ParsedSpec> ParseSpec(const v1::PreconditionerSpec& spec, std::string_view field) {
  ParsedSpec parsed;
  parsed.spec.engine = static_cast<kernels::EngineKind>(spec.engine());
  const auto kinds = kernels::EngineKinds();
  if (std::find(kinds.begin(), kinds.end(), parsed.spec.engine) == kinds.end()) {
    const std::string names = absl::StrJoin(
        kinds, ", ", [](std::string* out, auto kind) { out->append(kernels::WireName(kind)); });
    return UnknownEnum(Path(field, "engine"), spec.engine(), names.c_str());
  }
  const auto reads_options_of = [&](kernels::EngineKind engine) {
    return parsed.spec.engine == engine || parsed.spec.engine == kernels::EngineKind::kAuto;
  };
  if (reads_options_of(kernels::EngineKind::kStaticSpai) && spec.has_static_spai()) {
    RETURN_IF_ERROR(ParseStaticSpai(spec.static_spai(), Path(field, "static_spai"), &parsed));
  }
  if (reads_options_of(kernels::EngineKind::kJacobi)) {
    const int block_size = spec.jacobi().block_size();
    if (block_size < 0 || block_size > kMaxBlockSize) {
      return Bad(reason::kBadBlockSize, Path(field, "jacobi.block_size"),
                 absl::StrCat("is ", block_size, "; give 1 to ", kMaxBlockSize, ", or 0 for 1"));
    }
    parsed.spec.block_size = block_size == 0 ? 1 : block_size;
  }
  if (kernels::TraitsOf(parsed.spec.engine).options_field == "fsai") {
    RETURN_IF_ERROR(ParseFsai(spec.fsai(), Path(field, "fsai"), &parsed));
  }
  if (parsed.spec.engine == kernels::EngineKind::kDynamicSpai) {
    RETURN_IF_ERROR(ParseDynamicSpai(spec.dynamic_spai(), Path(field, "dynamic_spai"), &parsed));
  }
  return parsed;
}

namespace {

v1::LocalSolver ToProto(kernels::LocalSolver solver) {
  switch (solver) {
    case kernels::LocalSolver::kAuto:
      return v1::LOCAL_SOLVER_AUTO;
    case kernels::LocalSolver::kQr:
      return v1::LOCAL_SOLVER_QR;
    case kernels::LocalSolver::kGram:
      return v1::LOCAL_SOLVER_GRAM;
  }
  return v1::LOCAL_SOLVER_UNSPECIFIED;
}

void Set(const kernels::FsaiOptions& from, bool adaptive, const std::string& pattern_matrix,
         bool regrow, v1::FsaiSpec* to) {
  if (adaptive) {
    to->set_regrow(regrow);
    to->set_k_max(from.k_max);
    to->set_step_size(from.s);
    to->set_epsilon(from.epsilon);
    to->set_min_gain(from.min_gain);
    if (from.time_budget_ms > 0) {
      const auto ns = std::llround(from.time_budget_ms * 1e6);
      to->mutable_time_budget()->set_seconds(ns / 1'000'000'000);
      to->mutable_time_budget()->set_nanos(static_cast<int32_t>(ns % 1'000'000'000));
    }
  } else {
    to->set_drop_tol(from.drop_tol);
    to->set_pattern_power(from.power);
  }
  to->set_post_filter(from.post_filter);
  to->set_precision(from.precision == kernels::FsaiPrecision::kFp32 ? v1::FSAI_PRECISION_FP32
                                                                    : v1::FSAI_PRECISION_FP64);
  to->set_symmetry_tolerance(from.symmetry_tolerance);
  to->set_pattern_matrix(pattern_matrix);
}

void Set(const kernels::DynamicSpaiOptions& from, const std::string& pattern_matrix, bool regrow,
         v1::DynamicSpaiSpec* to) {
  to->set_regrow(regrow);
  to->set_tol(from.tol);
  to->set_max_steps(from.max_steps);
  to->set_step_size(from.per_step);
  to->set_max_column_nnz(from.max_column_nnz);
  to->set_growth_precision(from.fp32_growth ? v1::GROWTH_PRECISION_FP32
                                            : v1::GROWTH_PRECISION_FP64);
  to->set_post_filter(from.post_filter);
  to->set_local_solver(ToProto(from.local_solver));
  to->set_pattern_matrix(pattern_matrix);
}

}  // namespace

v1::PreconditionerSpec ToProto(const kernels::PreconditionerSpec& spec,
                               const std::string& pattern_matrix, bool regrow) {
  v1::PreconditionerSpec proto;
  proto.set_engine(ToProto(spec.engine));
  if (kernels::TraitsOf(spec.engine).options_field == "fsai") {
    Set(spec.fsai, spec.engine == kernels::EngineKind::kAfsai, pattern_matrix, regrow,
        proto.mutable_fsai());
  }
  if (spec.engine == kernels::EngineKind::kDynamicSpai) {
    Set(spec.dynamic_spai, pattern_matrix, regrow, proto.mutable_dynamic_spai());
  }
  if (spec.block_size != 1) proto.mutable_jacobi()->set_block_size(spec.block_size);
  if (spec.engine != kernels::EngineKind::kStaticSpai &&
      spec.engine != kernels::EngineKind::kAuto) {
    return proto;
  }
  const kernels::StaticSpaiOptions& options = spec.static_spai;
  auto* to = proto.mutable_static_spai();
  to->set_pattern_power(options.pattern.power);
  if (options.pattern.keep_tau) to->set_keep_tau(*options.pattern.keep_tau);
  to->set_pattern_matrix(pattern_matrix);
  to->set_ensure_row(options.pattern.ensure_row);
  to->set_row_match(options.pattern.row_match);
  to->set_post_filter(options.post_filter);
  to->set_local_solver(ToProto(options.local_solver));
  to->set_thread_strategy(ToProto(options.thread_strategy));
  return proto;
}

absl::StatusOr<ParsedSolve> ParseSolve(const v1::SolveHeader& header, std::string_view field) {
  ParsedSolve parsed;
  kernels::SolveOptions& options = parsed.options;
  switch (header.method()) {
    case v1::METHOD_AUTO:
      options.method = kernels::Method::kAuto;
      break;
    case v1::METHOD_CG:
      options.method = kernels::Method::kCg;
      break;
    case v1::METHOD_BICGSTAB:
      options.method = kernels::Method::kBicgstab;
      break;
    case v1::METHOD_GMRES:
      options.method = kernels::Method::kGmres;
      break;
    default:
      return UnknownEnum(Path(field, "method"), header.method(), "AUTO, CG, BICGSTAB, GMRES");
  }
  if (!std::isfinite(header.atol()) || header.atol() < 0) {
    return Bad(reason::kBadTolerance, Path(field, "atol"),
               absl::StrCat("is ", header.atol(), "; give a finite value, 0 or more"));
  }
  if (!std::isfinite(header.rtol()) || header.rtol() < 0 ||
      (header.rtol() == 0 && header.atol() == 0)) {
    return Bad(reason::kBadTolerance, Path(field, "rtol"),
               absl::StrCat("is ", header.rtol(),
                            "; give a finite value over 0 (or 0 together with an atol over 0)"));
  }
  options.rtol = header.rtol();
  options.atol = header.atol();
  if (header.max_iterations() < 0) {
    return Bad(reason::kBadMaxIterations, Path(field, "max_iterations"),
               absl::StrCat("is ", header.max_iterations(), "; give 1 or more, or 0 for 10000"));
  }
  options.max_iterations = header.max_iterations() == 0 ? 10000 : header.max_iterations();
  if (header.restart() < 0) {
    return Bad(reason::kBadRestart, Path(field, "restart"),
               absl::StrCat("is ", header.restart(), "; give 1 or more, or 0 for 50"));
  }
  options.restart = header.restart() == 0 ? 50 : header.restart();
  if (header.rhs_count() < 0 || header.rhs_count() > kMaxRhsCount) {
    return Bad(
        reason::kBadRhsCount, Path(field, "rhs_count"),
        absl::StrCat("is ", header.rhs_count(), "; give 1 to ", kMaxRhsCount, ", or 0 for 1"));
  }
  parsed.rhs_count = header.rhs_count() == 0 ? 1 : header.rhs_count();
  switch (header.preconditioner_storage()) {
    case v1::PRECISION_UNSPECIFIED:
    case v1::PRECISION_AUTO:
      options.m_storage = kernels::Storage::kAuto;
      break;
    case v1::PRECISION_FP64:
      options.m_storage = kernels::Storage::kFp64;
      break;
    case v1::PRECISION_FP32:
      options.m_storage = kernels::Storage::kFp32;
      break;
    default:
      return UnknownEnum(Path(field, "preconditioner_storage"), header.preconditioner_storage(),
                         "AUTO, FP64, FP32");
  }
  return parsed;
}

absl::StatusOr<JobLimits> ParseLimits(const v1::JobLimits& limits, std::string_view field) {
  JobLimits parsed;
  if (limits.has_max_queue()) {
    ASSIGN_OR_RETURN(parsed.max_queue, ParseDuration(limits.max_queue(), Path(field, "max_queue")));
  }
  if (limits.has_max_run()) {
    ASSIGN_OR_RETURN(parsed.max_run, ParseDuration(limits.max_run(), Path(field, "max_run")));
  }
  return parsed;
}

absl::StatusOr<Priority> ParsePriority(v1::Priority priority, std::string_view field) {
  switch (priority) {
    case v1::PRIORITY_INTERACTIVE:
      return Priority::kInteractive;
    case v1::PRIORITY_UNSPECIFIED:
    case v1::PRIORITY_NORMAL:
      return Priority::kNormal;
    case v1::PRIORITY_BULK:
      return Priority::kBulk;
    default:
      return UnknownEnum(std::string(field), priority, "INTERACTIVE, NORMAL, BULK");
  }
}

absl::StatusOr<kernels::Layout> ParseLayout(v1::Layout layout, std::string_view field) {
  switch (layout) {
    case v1::LAYOUT_CSC:
      return kernels::Layout::kCsc;
    case v1::LAYOUT_CSR:
      return kernels::Layout::kCsr;
    default:
      return UnknownEnum(std::string(field), layout, "CSC, CSR");
  }
}

v1::ThreadStrategy ToProto(kernels::ThreadStrategy strategy) {
  switch (strategy) {
    case kernels::ThreadStrategy::kAuto:
      return v1::THREAD_STRATEGY_AUTO;
    case kernels::ThreadStrategy::kConstant:
      return v1::THREAD_STRATEGY_CONSTANT;
    case kernels::ThreadStrategy::kVariable:
      return v1::THREAD_STRATEGY_VARIABLE;
    case kernels::ThreadStrategy::kPaper:
      return v1::THREAD_STRATEGY_PAPER;
  }
  return v1::THREAD_STRATEGY_UNSPECIFIED;
}

v1::EngineKind ToProto(kernels::EngineKind kind) { return static_cast<v1::EngineKind>(kind); }

v1::Precision ToProto(kernels::Storage storage) {
  switch (storage) {
    case kernels::Storage::kAuto:
      return v1::PRECISION_UNSPECIFIED;
    case kernels::Storage::kFp64:
      return v1::PRECISION_FP64;
    case kernels::Storage::kFp32:
      return v1::PRECISION_FP32;
  }
  return v1::PRECISION_UNSPECIFIED;
}

v1::Method ToProto(kernels::Method method) {
  switch (method) {
    case kernels::Method::kAuto:
      return v1::METHOD_AUTO;
    case kernels::Method::kCg:
      return v1::METHOD_CG;
    case kernels::Method::kBicgstab:
      return v1::METHOD_BICGSTAB;
    case kernels::Method::kGmres:
      return v1::METHOD_GMRES;
  }
  return v1::METHOD_UNSPECIFIED;
}

v1::Outcome ToProto(kernels::Outcome outcome) {
  switch (outcome) {
    case kernels::Outcome::kConverged:
      return v1::OUTCOME_CONVERGED;
    case kernels::Outcome::kMaxIterations:
      return v1::OUTCOME_MAX_ITERATIONS;
    case kernels::Outcome::kStagnated:
      return v1::OUTCOME_STAGNATED;
    case kernels::Outcome::kBreakdown:
      return v1::OUTCOME_BREAKDOWN;
    case kernels::Outcome::kIndefinite:
      return v1::OUTCOME_INDEFINITE;
    case kernels::Outcome::kNonFinite:
      return v1::OUTCOME_NON_FINITE;
    case kernels::Outcome::kTimeLimit:
      return v1::OUTCOME_TIME_LIMIT;
    case kernels::Outcome::kCancelled:
      return v1::OUTCOME_CANCELLED;
  }
  return v1::OUTCOME_UNSPECIFIED;
}

v1::Stage ToProto(kernels::Stage stage) {
  switch (stage) {
    case kernels::Stage::kPlan:
      return v1::STAGE_PLAN;
    case kernels::Stage::kBuild:
      return v1::STAGE_BUILD;
    case kernels::Stage::kAssemble:
      return v1::STAGE_ASSEMBLE;
    case kernels::Stage::kSolve:
      return v1::STAGE_SOLVE;
  }
  return v1::STAGE_UNSPECIFIED;
}

v1::Diagnosis ToProto(const kernels::Diagnosis& from, bool findings) {
  v1::Diagnosis to;
  to.set_explicit_zeros(from.explicit_zeros);
  to.set_structurally_symmetric(from.structurally_symmetric);
  to.set_numerically_symmetric(from.numerically_symmetric);
  to.set_asymmetry_row(from.asymmetry_row);
  to.set_asymmetry_column(from.asymmetry_column);
  to.set_max_asymmetry(from.max_asymmetry);
  Set(from.missing_diagonal, to.mutable_missing_diagonal());
  Set(from.zero_diagonal, to.mutable_zero_diagonal());
  Set(from.negative_diagonal, to.mutable_negative_diagonal());
  Set(from.empty_rows, to.mutable_empty_rows());
  Set(from.empty_columns, to.mutable_empty_columns());
  to.set_structural_rank(from.structural_rank);
  Set(from.not_dominant_rows, to.mutable_not_dominant_rows());
  Set(from.zero_sum_rows, to.mutable_zero_sum_rows());
  to.set_constants_in_null_space(from.constants_in_null_space);
  Set(from.dense_rows, to.mutable_dense_rows());
  Set(from.dense_columns, to.mutable_dense_columns());
  to.set_max_row_entries(from.max_row_entries);
  to.set_max_column_entries(from.max_column_entries);
  to.set_min_abs_value(from.min_abs_value);
  to.set_max_abs_value(from.max_abs_value);
  if (findings) to.mutable_findings()->Assign(from.findings.begin(), from.findings.end());
  return to;
}

v1::BuildQuality ToProto(const kernels::Quality& from) {
  v1::BuildQuality to;
  if (from.fsai) {
    const kernels::FsaiQuality& q = *from.fsai;
    v1::FsaiQuality* fsai = to.mutable_fsai();
    fsai->set_kaporin(q.kaporin);
    fsai->mutable_kaporin_by_step()->Assign(q.kaporin_by_step.begin(), q.kaporin_by_step.end());
    fsai->set_converged_rows(q.converged_rows);
    Set(q.not_spd_rows, q.first_not_spd, fsai->mutable_not_spd_rows());
    fsai->set_nnz_row_max(q.nnz_row_max);
    fsai->set_slow_rows(q.slow_rows);
    fsai->set_copied_rows(q.copied_rows);
    Set(q.not_converged_rows, q.first_not_converged, fsai->mutable_not_converged_rows());
    fsai->set_steps(q.steps);
    fsai->set_out_of_time(q.out_of_time);
    fsai->set_pattern_reused(from.pattern_reused);
    to.set_worst_column(-1);
    to.set_density(from.density);
    to.mutable_warnings()->Assign(from.warnings.begin(), from.warnings.end());
    return to;
  }
  if (from.dynamic_spai) {
    const kernels::DynamicSpaiQuality& q = *from.dynamic_spai;
    v1::DynamicSpaiQuality* growth = to.mutable_dynamic_spai();
    growth->set_converged_columns(q.converged_columns);
    growth->mutable_residual_by_step()->Assign(q.residual_by_step.begin(),
                                               q.residual_by_step.end());
    growth->set_nnz_column_max(q.nnz_column_max);
    growth->set_copied_columns(q.copied_columns);
    growth->set_slow_columns(q.slow_columns);
    Set(q.dependent_columns, q.first_dependent, growth->mutable_dependent_columns());
    growth->set_gram_nnz(q.gram_nnz);
    growth->set_pattern_reused(from.pattern_reused);
  }
  to.set_residual_frobenius(from.residual_frobenius);
  to.mutable_residual_quantiles()->Assign(from.residual_quantiles.begin(),
                                          from.residual_quantiles.end());
  to.set_worst_column(from.worst_column);
  to.set_density(from.density);
  to.set_gram_columns(from.gram_columns);
  to.set_qr_columns(from.qr_columns);
  Set(from.iterative_columns, from.first_iterative, to.mutable_iterative_columns());
  Set(from.not_converged_columns, from.first_not_converged, to.mutable_not_converged_columns());
  Set(from.rescued_columns, from.first_rescued, to.mutable_rescued_columns());
  Set(from.rank_deficient_columns, from.first_rank_deficient, to.mutable_rank_deficient_columns());
  Set(from.zero_columns, from.first_zero_column, to.mutable_zero_columns());
  Set(from.non_finite_columns, from.first_non_finite, to.mutable_non_finite_columns());
  to.set_min_scaled_pivot(from.min_scaled_pivot);
  if (from.thread_strategy != kernels::ThreadStrategy::kAuto) {
    to.set_thread_strategy(ToProto(from.thread_strategy));
  }
  to.mutable_warnings()->Assign(from.warnings.begin(), from.warnings.end());
  return to;
}

v1::SolveFigures ToProto(const kernels::SolveFigures& from, double copy_bytes_per_second) {
  v1::SolveFigures to;
  to.set_place_ms(from.place_ms);
  to.set_trial_ms(from.trial_ms);
  to.set_host_to_device_ms(from.host_to_device_ms);
  to.set_iterate_ms(from.iterate_ms);
  to.set_check_ms(from.check_ms);
  to.set_device_to_host_ms(from.device_to_host_ms);
  to.set_iterations(from.iterations);
  to.set_copy_bytes_per_second(copy_bytes_per_second);
  if (from.iterate_ms > 0) {
    to.set_iterations_per_second(1e3 * static_cast<double>(from.iterations) / from.iterate_ms);
    to.set_bytes_per_second(1e3 * from.bytes / from.iterate_ms);
  }
  if (copy_bytes_per_second > 0) {
    to.set_copy_share(to.bytes_per_second() / copy_bytes_per_second);
  }
  return to;
}

v1::RhsOutcome ToProto(const kernels::RhsResult& from) {
  v1::RhsOutcome to;
  to.set_outcome(ToProto(from.outcome));
  to.set_iterations(from.iterations);
  to.set_true_residual(from.true_residual);
  to.set_true_relative_residual(from.true_relative_residual);
  to.set_detail(from.detail);
  return to;
}

std::string_view Name(kernels::EngineKind kind) { return kernels::TraitsOf(kind).name; }

std::string_view Name(kernels::Method method) {
  switch (method) {
    case kernels::Method::kAuto:
      return "auto";
    case kernels::Method::kCg:
      return "cg";
    case kernels::Method::kBicgstab:
      return "bicgstab";
    case kernels::Method::kGmres:
      return "gmres";
  }
  return "unknown";
}

std::string_view Name(kernels::Outcome outcome) {
  switch (outcome) {
    case kernels::Outcome::kConverged:
      return "converged";
    case kernels::Outcome::kMaxIterations:
      return "max-iterations";
    case kernels::Outcome::kStagnated:
      return "stagnated";
    case kernels::Outcome::kBreakdown:
      return "breakdown";
    case kernels::Outcome::kIndefinite:
      return "indefinite";
    case kernels::Outcome::kNonFinite:
      return "non-finite";
    case kernels::Outcome::kTimeLimit:
      return "time-limit";
    case kernels::Outcome::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace spaid::server
