#include "kernels/engine/options.h"

#include <string>

#include "kernels/base/option_range.h"

namespace spaid::kernels {

Status CheckSpec(const PreconditionerSpec& spec) {
  constexpr OptionRange kBlockSize = {1, kMaxBlockSize};
  if (!Contains(kBlockSize, spec.block_size)) {
    return OutOfRange("block_size", spec.block_size, kBlockSize, nullptr);
  }
  switch (spec.engine) {
    case EngineKind::kNone:
    case EngineKind::kJacobi:
      return {};
    case EngineKind::kAuto:
    case EngineKind::kStaticSpai:
      return CheckRanges(spec.static_spai);
    case EngineKind::kFsai:
    case EngineKind::kAfsai:
      return CheckFsaiOptions(spec.fsai);
    case EngineKind::kDynamicSpai:
      return CheckDynamicOptions(spec.dynamic_spai);
  }
  return Status(StatusCode::kInvalidArgument, "BAD_ENGINE",
                "engine = " + std::to_string(static_cast<int>(spec.engine)) +
                    " is none; give AUTO, NONE, JACOBI, STATIC_SPAI, FSAI, AFSAI or DYNAMIC_SPAI")
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
