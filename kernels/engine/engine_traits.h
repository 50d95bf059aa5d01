// The kinds of preconditioners: what they are called, and what may be done with them, so that
// nobody else asks which one it is. The table of them is in engines.cc.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/build_work.h"

namespace spaid::kernels {

// The value is the number of the same EngineKind on the wire. kAuto and kNone are in the table,
// too: one becomes another one before anything is built, and with the other nothing is.
enum class EngineKind {
  kAuto = 1,
  kNone,
  kJacobi,
  kStaticSpai,
  kFsai,
  kAfsai,
  kDynamicSpai,
  kAmg,
  kParasails,
  kBoomeramg,
  kGamg,
};

// How an engine's builds do on a GPU.
struct GpuBuilds {
  // A build that the CPU is predicted to finish in less is not worth a GPU, milliseconds.
  double worth_ms = 0;
  double waves_cost = 1;       // so many times as long takes a build in waves
  const char* waves = "";      // says what those are, of a build that fits in them alone
  const char* too_large = "";  // says that it does not fit even so
  const char* cure = "";       // options that make it smaller
  // Says which builds are the host's all the same, those whose estimate has no device bytes.
  const char* host_alone = "";
  // Several GPUs finish a build sooner than one where the CPU is predicted to spend so much on it
  // (BuildEstimate::predicted_ms, 16 threads).
  double splits_from_ms = std::numeric_limits<double>::infinity();
};

// How M is there: what solves by it go by.
enum class MForm {
  kMatrix,
  kScaledRows,  // a matrix, made by A with its rows scaled: Engine::Solve
  kParts,       // EngineTraits::by_parts
  kOverRanks,   // lies over the ranks alone: of an A that does, or EngineTraits::ranks_alone
};

struct EngineTraits {
  EngineKind kind = EngineKind::kNone;
  // Name in flags, logs and metrics: "static-spai". In upper snake case the name on the wire.
  std::string_view name = "unknown";
  // The field of its options in the wire's PreconditionerSpec.
  std::string_view options_field = "";
  // M = GᵀG, of an SPD A; what is stored is G, lower triangular.
  bool factored = false;
  // M is symmetric positive definite where A is: CG takes it.
  bool for_cg = true;
  // An M with as many entries as rows is a diagonal, and costs what a vector does.
  bool may_be_diagonal = false;
  // M is a cycle on parts, no matrix: Preconditioner::matrix() has no entries.
  bool by_parts = false;
  // Reads near-null vectors (PreconditionerSpec::near_null).
  bool takes_near_null = false;
  // Its pattern is one that the caller gave, or grows from that.
  bool takes_pattern = false;
  // The values of A decide its pattern, or its aggregates, while it is built (BuildResult::grown).
  bool grows_pattern = false;
  const GpuBuilds* on_gpu = nullptr;  // null: builds are work of the host
  // Several processes build it together (kernels/mpi); a diagonal only of an A that lies there
  // alone.
  bool over_ranks = false;
  bool ranks_alone = false;  // and nobody else; M stays there, and is no matrix here
  BuildRates rates = {};     // of its builds, plan and all
};

// A value that is no engine's has those of the name "unknown". Thread-safe, as all here.
const EngineTraits& TraitsOf(EngineKind kind);

// "STATIC_SPAI": as messages name it.
std::string WireName(EngineKind kind);

// All, in the order of the enum.
std::span<const EngineKind> EngineKinds();

}  // namespace spaid::kernels
