#include "kernels/engine/options.h"

#include <string>

#include "kernels/base/option_range.h"
#include "kernels/engine/preconditioner_engine.h"

namespace spaid::kernels {

Status CheckSpec(const PreconditionerSpec& spec) {
  constexpr OptionRange kBlockSize = {1, kMaxBlockSize};
  if (!Contains(kBlockSize, spec.block_size)) {
    return OutOfRange("block_size", spec.block_size, kBlockSize, nullptr);
  }
  const PreconditionerEngine* engine = FindEngine(spec.engine);
  if (engine != nullptr) return engine->Check(spec);
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
