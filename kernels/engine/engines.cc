// The table of engines: here a new one is entered, in one line for itself and one for its kind.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "kernels/engine/preconditioner_engine.h"

namespace spaid::kernels {

// Each in a file of its own.
const PreconditionerEngine& AutoEngine();
const PreconditionerEngine& NoEngine();
const PreconditionerEngine& JacobiEngine();
const PreconditionerEngine& StaticSpaiEngine();
const PreconditionerEngine& FsaiEngine();
const PreconditionerEngine& AfsaiEngine();
const PreconditionerEngine& DynamicSpaiEngine();
const PreconditionerEngine& AmgEngine();
const PreconditionerEngine& ParasailsEngine();
const PreconditionerEngine& BoomeramgEngine();
const PreconditionerEngine& GamgEngine();

std::span<const PreconditionerEngine* const> Engines() {
  static const std::array kEngines = {&AutoEngine(),        &NoEngine(),   &JacobiEngine(),
                                      &StaticSpaiEngine(),  &FsaiEngine(), &AfsaiEngine(),
                                      &DynamicSpaiEngine(), &AmgEngine(),  &ParasailsEngine(),
                                      &BoomeramgEngine(),   &GamgEngine()};
  return kEngines;
}

const PreconditionerEngine* FindEngine(EngineKind kind) {
  const auto all = Engines();
  const auto found = std::find_if(all.begin(), all.end(), [&](const PreconditionerEngine* engine) {
    return engine->traits().kind == kind;
  });
  return found != all.end() ? *found : nullptr;
}

const EngineTraits& TraitsOf(EngineKind kind) {
  static const EngineTraits kUnknown;
  const PreconditionerEngine* engine = FindEngine(kind);
  return engine != nullptr ? engine->traits() : kUnknown;
}

std::string WireName(EngineKind kind) {
  std::string name(TraitsOf(kind).name);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

std::span<const EngineKind> EngineKinds() {
  static const auto kKinds = [] {
    std::vector<EngineKind> kinds;
    for (const PreconditionerEngine* engine : Engines()) kinds.push_back(engine->traits().kind);
    return kinds;
  }();
  return kKinds;
}

MForm FormOf(const PreconditionerSpec& spec) {
  const EngineTraits& engine = TraitsOf(spec.engine);
  if (engine.by_parts) return MForm::kParts;
  if (engine.ranks_alone) return MForm::kOverRanks;
  return spec.scaling != ScalingMode::kNone && !engine.factored ? MForm::kScaledRows
                                                                : MForm::kMatrix;
}

bool ForCg(const PreconditionerSpec& spec) {
  const PreconditionerEngine* engine = FindEngine(spec.engine);
  return engine != nullptr && engine->ForCg(spec);
}

bool TimeDecides(const PreconditionerSpec& spec) {
  const PreconditionerEngine* engine = FindEngine(spec.engine);
  return engine != nullptr && engine->TimeDecides(spec);
}

}  // namespace spaid::kernels
