// spaidctl build, estimate, upload
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/commands.h"
#include "client/cli/describe.h"
#include "client/cli/detach.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/parts.h"
#include "client/cli/printable.h"

namespace spaid::cli {

ExitCode RunBuild(Session& session, const BuildArgs& args) {
  auto source = OpenMatrix(args.matrix, false);
  if (!source.ok()) return session.out.Fail(source.error());
  auto spec = ResolveSpec(session, *source, args.engine);
  if (!spec.ok()) return session.out.Fail(spec.error());
  const bool wanted = !args.precond_out.empty();
  const bool fetch = wanted && !TraitsOf(spec->engine).by_parts;  // those come one by one
  ProgressReporter reporter(session.progress_mode(), stderr);
  const CallOptions call = session.Call(args.limits, reporter);
  if (args.detach) {
    auto job = [&] {
      const Interrupt::Guard guard("cancelling the job");
      return source->local ? session.client.StartBuild(*source->local, *spec, call)
                           : session.client.StartBuild(source->handle, *spec, call);
    }();
    reporter.Clear();
    if (!job.ok()) return session.out.Fail(job.error());
    // Without a job it was there already; what is asked for below is answered at once.
    if (!job->name().empty()) return ReportDetached(session, *job);
  }
  auto built = [&] {
    const Interrupt::Guard guard("cancelling the job");
    return source->local ? session.client.Build(*source->local, *spec, fetch, call)
                         : session.client.Build(source->handle, *spec, fetch, call);
  }();
  reporter.Clear();
  if (!built.ok()) return session.out.Fail(built.error());
  const PreconditionerInfo& m = built->preconditioner;
  std::string written;
  if (wanted) {
    const Interrupt::Guard guard("stopping");
    auto files = WriteM(session, m, built->m ? &*built->m : nullptr, args.precond_out);
    if (!files.ok()) return session.out.Fail(files.error());
    written = *std::move(files);
  }
  if (session.out.json()) {
    nlohmann::json object = ToJson(m);
    object["command"] = "build";
    object["preconditioner"] = m.name;
    AddTimings(object, built->timings);
    if (wanted) object["precond_file"] = args.precond_out;
    session.out.PrintJson(object);
  } else {
    session.out.Print(Printable(m.name) + "\n" + Describe(m, session.out.color()));
    if (built->timings.reused) session.out.Print("  (it was there already: nothing was built)\n");
    if (wanted) session.out.Print("  " + written + "\n");
  }
  return session.out.Finish(ExitCode::kOk);
}

ExitCode RunUpload(Session& session, const UploadArgs& args) {
  auto source = OpenMatrix(args.matrix, args.pattern_only);
  if (!source.ok()) return session.out.Fail(source.error());
  if (!source->local) {
    return session.out.Fail(
        LocalError("ALREADY_UPLOADED", source->handle +
                                           " is on the server already; to see it: "
                                           "spaidctl matrices " +
                                           source->handle));
  }
  ProgressReporter reporter(session.progress_mode(), stderr);
  Timings timings;
  auto info = [&] {
    const Interrupt::Guard guard("stopping the upload");
    const std::string& label = args.label.empty() ? source->label : args.label;
    return session.client.Upload(*source->local, label, session.Call({}, reporter), &timings);
  }();
  reporter.Clear();
  if (!info.ok()) return session.out.Fail(info.error());
  if (session.out.json()) {
    nlohmann::json object = ToJson(*info);
    object["command"] = "upload";
    object["upload_ms"] = timings.upload_ms;
    object["total_ms"] = timings.total_ms;
    object["bytes_up"] = timings.bytes_up;
    object["reused"] = timings.reused;
    session.out.PrintJson(object);
  } else {
    session.out.Print(Printable(info->name) + "\n" + Describe(*info, session.out.color()));
    session.out.Print("  " + FormatBytes(timings.bytes_up) + " sent in " +
                      FormatMs(timings.upload_ms) + "\n");
  }
  return session.out.Finish(ExitCode::kOk);
}

ExitCode RunEstimate(Session& session, const EstimateArgs& args) {
  // Thresholds and matchings look at values; everything else is counted from the pattern.
  const bool pattern_will_do =
      !args.engine.keep_tau && !args.engine.row_match && args.engine.fsai.drop_tol == 0;
  auto source = OpenMatrix(args.matrix, pattern_will_do);
  if (!source.ok()) return session.out.Fail(source.error());
  auto spec = ResolveSpec(session, *source, args.engine);
  if (!spec.ok()) return session.out.Fail(spec.error());
  const Interrupt::Guard guard("stopping");
  std::string handle = source->handle;
  if (source->local) {
    ProgressReporter reporter(session.progress_mode(), stderr);
    auto info = session.client.Upload(*source->local, source->label, session.Call({}, reporter));
    reporter.Clear();
    if (!info.ok()) return session.out.Fail(info.error());
    handle = info->name;
  }
  auto estimate = session.client.Estimate(handle, *spec, session.Call());
  if (!estimate.ok()) return session.out.Fail(estimate.error());
  if (session.out.json()) {
    nlohmann::json object = ToJson(*estimate);
    object["command"] = "estimate";
    object["matrix_handle"] = handle;
    session.out.PrintJson(object);
    return session.out.Finish(ExitCode::kOk);
  }
  Facts facts;
  facts.Add("engine", std::string(Name(estimate->engine)));
  if (!estimate->choice_reason.empty()) facts.Add("chosen", estimate->choice_reason);
  facts.Add("set-up", "about " + FormatMs(estimate->predicted_ms) + " on the CPU");
  if (!estimate->placement.empty()) facts.Add("placed", estimate->placement);
  std::string memory = "at most " + FormatBytes(estimate->host_bytes);
  if (estimate->device_bytes > 0) {
    memory += ", " + FormatBytes(estimate->device_bytes) + " on the device";
    if (estimate->device_bytes_min < estimate->device_bytes) {
      memory += " (" + FormatBytes(estimate->device_bytes_min) + " will do, more slowly)";
    }
  }
  facts.Add("memory", memory);
  const bool factor = TraitsOf(estimate->engine).factored;
  if (estimate->nnz > 0) {  // 0: hypre's and PETSc's, which tell nothing before
    facts.Add(factor ? "nnz(G)" : "nnz(M)", "at most " + FormatCount(estimate->nnz));
  }
  facts.Add("download", FormatBytes(estimate->download_bytes));
  facts.Add("work", FormatFixed(estimate->flops / 1e9, 2) + " Gflop");
  if (estimate->n2_max > 0) {
    facts.Add("largest", FormatCount(estimate->n1_max) + " x " + FormatCount(estimate->n2_max) +
                             " local problem");
  }
  session.out.Print(facts.Text(session.out.color()));
  return session.out.Finish(ExitCode::kOk);
}

}  // namespace spaid::cli
