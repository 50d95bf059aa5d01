#include "kernels/engine/options.h"

#include <string>

#include "kernels/base/option_range.h"
#include "kernels/engine/preconditioner_engine.h"

namespace spaid::kernels {
namespace {

Status BadScaling(const std::string& text) {
  return Status(StatusCode::kInvalidArgument, "BAD_SCALING", text).At("scaling");
}

// Whether the engine can build by A so scaled.
Status CheckScaling(const EngineTraits& engine, ScalingMode mode) {
  const std::string given = "scaling = " + WireName(mode);
  switch (mode) {
    case ScalingMode::kNone:
      return {};
    case ScalingMode::kEquilibrate:
    case ScalingMode::kMatching:
    case ScalingMode::kAuto:
      break;
    default:
      return BadScaling("scaling = " + std::to_string(static_cast<int>(mode)) +
                        " is unknown; give NONE, EQUILIBRATE, MATCHING or AUTO");
  }
  if (engine.kind == EngineKind::kNone) {
    return BadScaling(given + " is for what is built, and engine NONE builds nothing; leave it " +
                      "unset, or name an engine");
  }
  if (engine.by_parts && mode != ScalingMode::kAuto) {
    return BadScaling(given + " is not for " + WireName(engine.kind) +
                      ", which scales A by its diagonal itself; leave it unset");
  }
  if (engine.ranks_alone && mode != ScalingMode::kAuto) {
    return BadScaling(given + " is not for " + WireName(engine.kind) +
                      ", which has A as it is; leave it unset");
  }
  if (mode != ScalingMode::kMatching) return {};
  if (engine.factored) {
    return BadScaling(given + " permutes the columns of A, and " + WireName(engine.kind) +
                      " needs a symmetric matrix; give EQUILIBRATE or AUTO, or name " +
                      WireName(EngineKind::kStaticSpai));
  }
  if (engine.may_be_diagonal) {
    return BadScaling(given + " permutes the columns of A, and " + WireName(engine.kind) +
                      " inverts its own diagonal; give EQUILIBRATE or AUTO, or name " +
                      WireName(EngineKind::kStaticSpai));
  }
  return {};
}

}  // namespace

std::string WireName(ScalingMode mode) {
  switch (mode) {
    case ScalingMode::kNone:
      return "NONE";
    case ScalingMode::kEquilibrate:
      return "EQUILIBRATE";
    case ScalingMode::kMatching:
      return "MATCHING";
    case ScalingMode::kAuto:
      return "AUTO";
  }
  return "unknown";
}

Status CheckSpec(const PreconditionerSpec& spec) {
  constexpr OptionRange kBlockSize = {1, kMaxBlockSize};
  if (!Contains(kBlockSize, spec.block_size)) {
    return OutOfRange("block_size", spec.block_size, kBlockSize, nullptr);
  }
  const PreconditionerEngine* engine = FindEngine(spec.engine);
  if (engine != nullptr) {
    if (Status s = CheckScaling(engine->traits(), spec.scaling); !s.ok()) return s;
    return engine->Check(spec);
  }
  std::string names;
  for (const EngineKind kind : EngineKinds()) {
    const bool last = kind == EngineKinds().back();
    names += (names.empty() ? "" : last ? " or " : ", ") + WireName(kind);
  }
  return Status(StatusCode::kInvalidArgument, "BAD_ENGINE",
                "engine = " + std::to_string(static_cast<int>(spec.engine)) + " is none; give " +
                    names)
      .At("engine");
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
