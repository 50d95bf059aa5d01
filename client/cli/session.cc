#include "client/cli/session.h"

#include <sys/stat.h>

#include <cmath>
#include <concepts>
#include <type_traits>
#include <utility>

#include "client/cli/gallery.h"
#include "client/cli/interrupt.h"
#include "client/cli/matrix_market.h"
#include "client/cli/printable.h"
#include "client/cpp/options.h"
#include "kernels/gallery/gallery.h"

namespace spaid::cli {
namespace {

constexpr std::string_view kGalleryPrefix = "gallery:";
constexpr std::string_view kHandlePrefix = "matrices/";

std::optional<std::chrono::milliseconds> Milliseconds(const std::optional<double>& seconds) {
  if (!seconds) return std::nullopt;
  // At least one: a limit of 0 would mean none.
  return std::chrono::milliseconds(std::max<int64_t>(1, std::llround(*seconds * 1000)));
}

bool IsHandle(const std::string& name) {
  struct stat info = {};
  return name.starts_with(kHandlePrefix) && stat(name.c_str(), &info) != 0;
}

// Uploads the vectors of the file that `option` names, whose place their handle takes, to where
// `affinity` leads.
std::optional<Error> UploadVectors(Session& session, const std::string& affinity,
                                   const char* option, std::string* named) {
  if (named->empty() || IsHandle(*named)) return std::nullopt;
  auto vectors = ReadVectors(*named);
  if (!vectors.ok()) return vectors.error();
  if (vectors->columns > vectors->rows) {
    return LocalError("BAD_VECTORS", *named + ": " + option + " has " + FormatCount(vectors->rows) +
                                         " rows and " + FormatCount(vectors->columns) +
                                         " columns; a vector is a column");
  }
  const Interrupt::Guard guard("stopping");
  ProgressReporter reporter(session.progress_mode(), stderr);
  reporter.SetPrefix(std::string(option) + ": ");
  CallOptions call = session.Call({}, reporter);
  call.affinity = affinity;
  auto uploaded = session.client.UploadVectors(vectors->rows, static_cast<int>(vectors->columns),
                                               vectors->values, Printable(*named), call);
  reporter.Clear();
  if (!uploaded.ok()) return uploaded.error();
  *named = uploaded->name;
  return std::nullopt;
}

}  // namespace

CallOptions Session::Call(const LimitArgs& limits) const {
  CallOptions call;
  call.timeout = Milliseconds(args_.timeout_s);
  call.max_queue = Milliseconds(limits.max_queue_s);
  call.max_run = Milliseconds(limits.max_run_s);
  call.priority = limits.priority;
  call.stop = Interrupt::Token();
  return call;
}

CallOptions Session::Call(const LimitArgs& limits, ProgressReporter& reporter) const {
  CallOptions call = Call(limits);
  call.on_progress = [&reporter](const Progress& progress) { reporter.Report(progress); };
  return call;
}

CallOptions Session::AdminCall() const {
  CallOptions call = Call();
  call.as_administrator = true;
  return call;
}

ProgressReporter::Mode Session::progress_mode() const {
  return ProgressReporter::ModeFor(args_.json || args_.quiet, stderr);
}

ProgressReporter::Mode Session::step_progress_mode() const {
  const ProgressReporter::Mode mode = progress_mode();
  return mode == ProgressReporter::Mode::kLines ? ProgressReporter::Mode::kNone : mode;
}

void Session::Announce(const std::string& step, ProgressReporter& reporter) const {
  reporter.SetPrefix(step + ": ");
  if (progress_mode() == ProgressReporter::Mode::kLines) out.Note(step);
}

Error LocalError(std::string reason, std::string message) {
  Error error;
  error.code = Code::kInvalidArgument;
  error.reason = std::move(reason);
  error.message = std::move(message);
  return error;
}

Error NoOutcome() {
  Error error = LocalError("NO_OUTCOME", "the server ended the solve without an outcome");
  error.code = Code::kInternal;
  return error;
}

Expected<MatrixSource> OpenMatrix(const MatrixArgs& args, bool pattern) {
  MatrixSource source;
  source.label = Printable(args.matrix);
  if (IsHandle(args.matrix)) {
    source.handle = args.matrix;
    return source;
  }
  auto matrix =
      args.matrix.starts_with(kGalleryPrefix)
          ? GenerateFromText(args.matrix.substr(kGalleryPrefix.size()))
          : ReadMatrix(args.matrix, {.pattern = pattern, .sum_duplicates = args.sum_duplicates});
  if (!matrix.ok()) return matrix.error();
  source.local = *std::move(matrix);
  if (pattern) source.local->values.clear();
  return source;
}

Expected<PreconditionerSpec> ResolveSpec(Session& session, const MatrixSource& matrix,
                                         PreconditionerSpec spec) {
  const std::string affinity = matrix.local ? AffinityOf(*matrix.local) : AffinityOf(matrix.handle);
  if (auto error =
          UploadVectors(session, affinity, "--near-null-space", &spec.amg.near_null_space)) {
    return *std::move(error);
  }
  spec.petsc.near_null_space = spec.amg.near_null_space;  // by one flag
  if (auto error = UploadVectors(session, affinity, "--coordinates", &spec.amg.coordinates)) {
    return *std::move(error);
  }
  if (spec.pattern_matrix.empty()) return spec;
  const std::string pattern = std::exchange(spec.pattern_matrix, "");
  auto source = OpenMatrix({.matrix = pattern}, true);
  if (!source.ok()) return source.error();
  if (!source->local) {
    spec.pattern_matrix = source->handle;
    return spec;
  }
  const Interrupt::Guard guard("stopping");
  ProgressReporter reporter(session.progress_mode(), stderr);
  reporter.SetPrefix("pattern: ");
  CallOptions call = session.Call({}, reporter);
  call.affinity = affinity;
  auto uploaded = session.client.Upload(*source->local, pattern, call);
  if (!uploaded.ok()) return uploaded.error();
  spec.pattern_matrix = uploaded->name;
  return spec;
}

std::vector<double> Multiply(const CscMatrix& a, const std::vector<double>& x) {
  std::vector<double> y(x.size(), 0.0);
  for (size_t base = 0; base < x.size(); base += static_cast<size_t>(a.n)) {
    for (int64_t column = 0; column < a.n; ++column) {
      const double factor = x[base + column];
      for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) {
        y[base + a.row_idx[k]] += a.values[k] * factor;
      }
    }
  }
  return y;
}

Expected<std::vector<double>> ReadVectorsOf(const std::string& path, int64_t n, const char* what) {
  auto vectors = ReadVectors(path);
  if (!vectors.ok()) return vectors.error();
  if (vectors->rows != n) {
    return LocalError("RHS_LENGTH", path + ": " + what + " has " + FormatCount(vectors->rows) +
                                        " rows, the matrix has " + FormatCount(n));
  }
  return std::move(vectors->values);
}

Expected<std::vector<double>> MakeRhs(const MatrixSource& source, int64_t n,
                                      const RhsChoice& choice) {
  if (choice.rhs != "ones" && choice.rhs != "random") {
    return ReadVectorsOf(choice.rhs, n, "the right-hand side");
  }
  if (!source.local) {
    return LocalError("RHS_NEEDS_MATRIX",
                      "--rhs=" + choice.rhs +
                          " computes b = A x and needs the matrix itself, not "
                          "its handle; give the file (it is not sent again), or --rhs=FILE");
  }
  if (choice.rhs == "ones") {
    return Multiply(*source.local, std::vector<double>(static_cast<size_t>(n), 1.0));
  }
  gallery::Uniform uniform(choice.seed);
  std::vector<double> x(static_cast<size_t>(n * choice.count));
  for (double& value : x) value = 2 * uniform() - 1;
  return Multiply(*source.local, x);
}

std::string EngineText(const PreconditionerSpec& spec) {
  std::string text(Name(spec.engine));
  if (TraitsOf(spec.engine).has_power) {
    text += ", p = " + std::to_string(spec.pattern_power);
  }
  if (TraitsOf(spec.engine).by_parts) {
    const Smoother smoother = spec.amg.smoother;
    return text + (smoother == Smoother::kAuto ? "" : ", " + std::string(Name(smoother)));
  }
  std::string steps, per_step;  // of growth
  internal::VisitOptions(spec, spec.engine, [&](const auto& option, const auto& value) {
    if constexpr (std::same_as<std::decay_t<decltype(value)>, int>) {
      if (option.name == "k_max" || option.name == "max_steps") steps = std::to_string(value);
      if (option.name == "step_size") per_step = std::to_string(value);
    }
  });
  if (!steps.empty()) text += ", " + steps + " x " + per_step;
  if (TraitsOf(spec.engine).has_blocks && spec.block_size > 1) {
    text += ", blocks of " + std::to_string(spec.block_size);
  }
  return text;
}

}  // namespace spaid::cli
