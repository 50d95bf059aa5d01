// spaidctl solve
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/byte_file.h"
#include "client/cli/commands.h"
#include "client/cli/detach.h"
#include "client/cli/interrupt.h"
#include "client/cli/matrix_market.h"
#include "client/cli/residual_series.h"
#include "client/cli/solve_progress.h"
#include "client/cli/solve_report.h"

namespace spaid::cli {

ExitCode RunSolve(Session& session, const SolveArgs& args) {
  // A long solve must not end with a file that nobody can write.
  for (const std::string& file : {args.out, args.plot}) {
    if (file.empty()) continue;
    if (auto error = ByteWriter::Check(file)) return session.out.Fail(*error);
  }
  auto source = OpenMatrix(args.matrix, false);
  if (!source.ok()) return session.out.Fail(source.error());
  std::optional<MatrixInfo> info;
  if (!source->local) {
    const Interrupt::Guard guard("stopping");
    auto fetched = session.client.GetMatrix(source->handle, session.Call());
    if (!fetched.ok()) return session.out.Fail(fetched.error());
    info = *std::move(fetched);
  }
  const int64_t n = info ? info->n : source->local->n;
  const int64_t nnz = info ? info->nnz : source->local->col_ptr.back();
  auto b = MakeRhs(*source, n, {.rhs = args.rhs, .seed = args.seed, .count = args.rhs_count});
  if (!b.ok()) return session.out.Fail(b.error());
  std::vector<double> guess;
  if (!args.initial_guess.empty()) {
    auto read = ReadVectorsOf(args.initial_guess, n, "the initial guess");
    if (!read.ok()) return session.out.Fail(read.error());
    if (read->size() != b->size()) {
      return session.out.Fail(LocalError(
          "GUESS_COUNT", args.initial_guess + ": the initial guess needs as many columns as there "
                                              "are right-hand sides"));
    }
    guess = *std::move(read);
  }
  SolveOptions options = args.options;
  std::vector<double> null_vectors;
  if (args.null_space == "none") {
    options.null_space = NullSpace::kNone;
  } else if (args.null_space == "constants") {
    options.null_space = NullSpace::kConstants;
  } else if (args.null_space != "auto") {
    auto read = ReadVectorsOf(args.null_space, n, "the null space");
    if (!read.ok()) return session.out.Fail(read.error());
    null_vectors = *std::move(read);
    options.null_vectors = null_vectors;
  }
  if (options.preconditioner.empty()) {
    auto spec = ResolveSpec(session, *source, args.engine);
    if (!spec.ok()) return session.out.Fail(spec.error());
    options.spec = *std::move(spec);
    options.engine = args.engine.engine;
  }
  options.initial_guess = guess;
  options.omit_solution = args.out.empty();

  std::vector<double> targets = RelativeTargets(*b, n, options.rtol, options.atol);
  SolveProgress progress(session.progress_mode(), stderr, targets, session.out.error_color());
  CallOptions call = session.Call(args.limits);
  call.on_progress = [&progress](const Progress& news) { progress.Report(news); };
  if (args.detach) {
    auto job = [&] {
      const Interrupt::Guard guard("cancelling the job");
      return source->local ? session.client.StartSolve(*source->local, *b, options, call)
                           : session.client.StartSolve(source->handle, *b, options, call);
    }();
    progress.Finish();
    return job.ok() ? ReportDetached(session, *job) : session.out.Fail(job.error());
  }
  auto result = [&] {
    const Interrupt::Guard guard("cancelling the job");
    return source->local ? session.client.Solve(*source->local, *b, options, call)
                         : session.client.Solve(source->handle, *b, options, call);
  }();
  progress.Finish();
  if (!result.ok()) return session.out.Fail(result.error());
  if (result->rhs.empty()) {
    return session.out.Fail(NoOutcome());
  }

  SolveReport report{.args = args,
                     .result = *result,
                     .n = n,
                     .nnz = nnz,
                     .info = std::move(info),
                     .diagnosis_error = {},
                     .targets = std::move(targets)};
  const bool converged = WorstRhs(*result).outcome == Outcome::kConverged;
  if (!converged && !report.info) {
    auto fetched = session.client.GetMatrix(result->matrix, session.Call());
    if (fetched.ok()) {
      report.info = *std::move(fetched);
    } else {
      report.diagnosis_error = fetched.error();
    }
  }
  if (!args.out.empty()) {
    const auto count = static_cast<int64_t>(result->rhs.size());
    if (auto error = WriteVectors(args.out, n, count, result->x)) return session.out.Fail(*error);
  }
  if (!args.plot.empty()) {
    if (auto error = WritePlot(args.plot, SolvePlot(report))) return session.out.Fail(*error);
  }
  if (session.out.json()) {
    session.out.PrintJson(SolveJson(report));
  } else {
    session.out.Print(SolveText(report, session.out.color()));
  }
  return session.out.Finish(converged ? ExitCode::kOk : ExitCode::kNotConverged);
}

}  // namespace spaid::cli
