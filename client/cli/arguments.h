// Holds the command line as plain data: app.cc fills it, the commands read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/spaid/client.h"

namespace spaid::cli {

enum class ExitCode {
  kOk = 0,
  kError = 1,
  kUsage = 2,
  kNotConverged = 3,  // the solve ended without convergence
};

enum class Color { kAuto, kAlways, kNever };

struct GlobalArgs {
  std::string program = "spaidctl";  // before messages on stderr
  ClientOptions client;
  std::optional<double> timeout_s;
  bool json = false;
  bool quiet = false;
  Color color = Color::kAuto;
};

struct MatrixArgs {
  std::string matrix;  // file, gallery:NAME[:SIZE], or handle matrices/...
  bool sum_duplicates = false;
};

struct LimitArgs {
  std::optional<double> max_queue_s, max_run_s;
  Priority priority = Priority::kNormal;
};

struct SolveArgs {
  MatrixArgs matrix;
  PreconditionerSpec engine = {.engine = Engine::kAuto};
  SolveOptions options;  // of the iteration, and the preconditioner's handle
  LimitArgs limits;
  std::string rhs = "ones";  // file, ones, random
  uint64_t seed = 1;
  int rhs_count = 1;
  std::string initial_guess, out, plot;
  std::string null_space = "auto";  // file, constants, auto, none
  bool history = false;
  bool explain = false;
  bool detach = false;
};

struct BuildArgs {
  MatrixArgs matrix;
  PreconditionerSpec engine;  // pattern_matrix: file, gallery: or handle
  LimitArgs limits;
  std::string precond_out;
  bool detach = false;
};

struct EstimateArgs {
  MatrixArgs matrix;
  PreconditionerSpec engine;  // pattern_matrix: file, gallery: or handle
};

struct UploadArgs {
  MatrixArgs matrix;
  std::string label;
  bool pattern_only = false;
};

struct ListArgs {
  std::string name;  // one to show; empty: all
  bool remove = false;
  std::string download;           // preconditioners: file for M
  std::optional<JobState> state;  // jobs
  bool all_tenants = false;       // jobs
};

struct WatchArgs {
  std::string job;
  std::string out;  // file for the solution
  int64_t first_event = 1;
};

struct CancelArgs {
  std::string job;
};

struct CompareArgs {
  MatrixArgs matrix;
  PreconditionerSpec engine;  // but for the engine and the power
  SolveOptions options;       // of the iteration
  LimitArgs limits;
  std::vector<int> powers = {1, 2};
  std::string rhs = "random";
  uint64_t seed = 1;
  double max_setup_s = 30;
  std::string plot;
};

struct ReportArgs {
  ReportArgs() { compare.limits.max_run_s = 60; }
  CompareArgs compare;
  std::string out;  // file for the page; "-": standard output
  int ritz_steps = 60;
};

struct GalleryArgs {
  std::string family;
  int64_t size = 0;  // 0: the family's default
  std::string out;
};

enum class Command {
  kSolve,
  kBuild,
  kEstimate,
  kUpload,
  kMatrices,
  kPreconditioners,
  kJobs,
  kWatch,
  kCancel,
  kInfo,
  kCompare,
  kReport,
  kGallery,
  kCompletion,
};

struct Arguments {
  GlobalArgs global;
  Command command = Command::kInfo;
  SolveArgs solve;
  BuildArgs build;
  EstimateArgs estimate;
  UploadArgs upload;
  ListArgs list;
  WatchArgs watch;
  CancelArgs cancel;
  CompareArgs compare;
  ReportArgs report;
  GalleryArgs gallery;
  std::string shell;  // completion
};

}  // namespace spaid::cli
