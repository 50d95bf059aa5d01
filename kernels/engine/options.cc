#include "kernels/engine/options.h"

#include <cmath>
#include <string>
#include <utility>

#include "kernels/engine/preconditioner_engine.h"
#include "kernels/static_spai/static_spai_plan.h"

namespace spaid::kernels {
namespace {

Status Bad(const char* reason, const char* field, const std::string& value, const char* range) {
  return Status(StatusCode::kInvalidArgument, reason,
                std::string(field) + " = " + value + " is out of range; give " + range)
      .At(field);
}

bool InUnitInterval(double v) { return std::isfinite(v) && v >= 0 && v <= 1; }

}  // namespace

Status CheckStaticSpai(const StaticSpaiOptions& options) {
  const PatternOptions& pattern = options.pattern;
  if (pattern.power < 1 || pattern.power > kMaxPatternPower) {
    return Bad("BAD_PATTERN_POWER", "pattern_power", std::to_string(pattern.power), "1 to 16");
  }
  if (pattern.keep_tau && !InUnitInterval(*pattern.keep_tau)) {
    return Bad("BAD_KEEP_TAU", "keep_tau", std::to_string(*pattern.keep_tau),
               "a finite value in 0 .. 1");
  }
  if (pattern.max_nnz < 0) {
    return Bad("BAD_MAX_NNZ", "max_nnz", std::to_string(pattern.max_nnz),
               "0 (no limit) or a positive count");
  }
  // Of the rest static SPAI is the judge, so that what passes here is not refused by the plan.
  if (Status status = CheckOptions(PatternView{}, options); !status.ok()) return status;
  switch (options.local_solver) {
    case LocalSolver::kAuto:
    case LocalSolver::kQr:
    case LocalSolver::kGram:
      break;
    default:
      return Bad("BAD_LOCAL_SOLVER", "local_solver",
                 std::to_string(static_cast<int>(options.local_solver)), "AUTO, QR or GRAM");
  }
  switch (options.thread_strategy) {
    case ThreadStrategy::kAuto:
    case ThreadStrategy::kConstant:
    case ThreadStrategy::kVariable:
    case ThreadStrategy::kPaper:
      return {};
  }
  return Bad("BAD_THREAD_STRATEGY", "thread_strategy",
             std::to_string(static_cast<int>(options.thread_strategy)),
             "AUTO, CONSTANT, VARIABLE or PAPER");
}

Status CheckSpec(const PreconditionerSpec& spec) {
  if (spec.block_size < 1 || spec.block_size > kMaxBlockSize) {
    return Bad("BAD_BLOCK_SIZE", "block_size", std::to_string(spec.block_size), "1 to 32");
  }
  const PreconditionerEngine* engine = FindEngine(spec.engine);
  if (engine != nullptr) return engine->Check(spec);
  std::string names;
  for (const EngineKind kind : EngineKinds()) {
    const bool last = kind == EngineKinds().back();
    names += (names.empty() ? "" : last ? " or " : ", ") + WireName(kind);
  }
  return Bad("BAD_ENGINE", "engine", std::to_string(static_cast<int>(spec.engine)), names.c_str());
}

Status CheckResolved(const PreconditionerSpec& spec) {
  if (spec.engine == EngineKind::kAuto) {
    return Status(StatusCode::kInvalidArgument, "ENGINE_NOT_RESOLVED",
                  "engine AUTO must be resolved before a plan is made")
        .At("engine");
  }
  return CheckSpec(spec);
}

}  // namespace spaid::kernels
