// Between the wire's messages and the kernels' structs, by the names that both list: options by
// Fields, figures by Figures. An enum's unknown number is INVALID_ARGUMENT/UNKNOWN_ENUM with the
// field; what UNSPECIFIED means, spaid/v1/options.proto says. Ranges are checked by the kernels.
//
// `field`: path of the message from the request, for errors ("header.spec").
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/ladder.h"
#include "kernels/krylov/null_space.h"
#include "server/engine/reuse.h"
#include "server/sched/job.h"
#include "spaid/v1/arrays.pb.h"
#include "spaid/v1/preconditioner.pb.h"
#include "spaid/v1/preconditioner_spec.pb.h"
#include "spaid/v1/solve_types.pb.h"
#include "spaid/v1/solver.pb.h"

namespace spaid::kernels {
struct AmgPart;  // kernels/amg/amg.h
enum class AmgPartKind;
struct Quality;  // build_result.h
enum class ThreadStrategy;
}  // namespace spaid::kernels

namespace spaid::server {

inline constexpr int kMaxRhsCount = 1024;

// Code, reason, message, field (with `field_prefix` and a dot before it, where both are there),
// index.
absl::Status ToAbsl(const kernels::Status& status, std::string_view field_prefix = {});

struct GivenMatrix;  // resolved_build.h
struct ParsedSpec;

// Errors: UNKNOWN_ENUM, MISSING_FIELD (no engine: the message is unset), BAD_PATTERN_POWER,
// BAD_KEEP_TAU, BAD_POST_FILTER, BAD_BLOCK_SIZE, BAD_FSAI_OPTION, BAD_DYNAMIC_OPTION,
// BAD_AMG_OPTION. An engine's options are checked for that engine, those of static SPAI and Jacobi
// for AUTO, too, and not read otherwise.
absl::StatusOr<ParsedSpec> ParseSpec(const v1::PreconditionerSpec& spec, std::string_view field);
// The wire's form of a resolved spec; options appear where the engine reads them.
v1::PreconditionerSpec ToProto(const kernels::PreconditionerSpec& spec, const GivenMatrix& given,
                               bool regrow = false);

// The part of a SolveHeader that says how to solve.
struct ParsedSolve {
  kernels::SolveOptions options;  // method may be kAuto; null_space is null
  int rhs_count = 1;
  kernels::NullSpaceChoice null_space = kernels::NullSpaceChoice::kAuto;
  int null_vectors = 0;  // kGiven: so many will come
  ReusePolicy reuse;
};
// Errors: UNKNOWN_ENUM, BAD_TOLERANCE, BAD_MAX_ITERATIONS, BAD_RESTART, BAD_RHS_COUNT,
// BAD_NULL_SPACE, BAD_REUSE.
absl::StatusOr<ParsedSolve> ParseSolve(const v1::SolveHeader& header, std::string_view field);

// Errors: BAD_LIMIT (zero, negative, malformed or over 10 years).
absl::StatusOr<Priority> ParsePriority(v1::Priority priority, std::string_view field);
absl::StatusOr<JobLimits> ParseLimits(const v1::JobLimits& limits, std::string_view field);

absl::StatusOr<kernels::Layout> ParseLayout(v1::Layout layout, std::string_view field);

v1::EngineKind ToProto(kernels::EngineKind kind);
v1::PartKind ToProto(kernels::AmgPartKind kind);
v1::Part ToProto(const kernels::AmgPart& part);
v1::Precision ToProto(kernels::Storage storage);
v1::Method ToProto(kernels::Method method);
v1::Outcome ToProto(kernels::Outcome outcome);
v1::Stage ToProto(kernels::Stage stage);
v1::Diagnosis ToProto(const kernels::Diagnosis& diagnosis, bool findings);
v1::BuildQuality ToProto(const kernels::Quality& quality);
v1::RhsOutcome ToProto(const kernels::RhsResult& result);
v1::Rung ToProto(const kernels::Rung& rung);
// `copy_bytes_per_second`: of the device; 0: not known.
v1::SolveFigures ToProto(const kernels::SolveFigures& figures, double copy_bytes_per_second);

// "static-spai", "bicgstab", "max-iterations": the names in logs and metrics.
std::string_view Name(kernels::EngineKind kind);
std::string_view Name(kernels::Method method);
std::string_view Name(kernels::Outcome outcome);

}  // namespace spaid::server
