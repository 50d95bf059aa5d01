// spaidctl watch, cancel
#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/cli/commands.h"
#include "client/cli/describe.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/matrix_market.h"
#include "client/cli/printable.h"

namespace spaid::cli {
namespace {

ExitCode CodeOf(const JobInfo& job) {
  if (job.state != JobState::kSucceeded) return ExitCode::kError;
  const bool converged = std::all_of(job.outcomes.begin(), job.outcomes.end(), [](const auto& o) {
    return o.outcome == Outcome::kConverged;
  });
  return converged ? ExitCode::kOk : ExitCode::kNotConverged;
}

ExitCode Show(const Session& session, const JobInfo& job, ExitCode code) {
  if (session.out.json()) {
    session.out.PrintJson(ToJson(job));
  } else {
    session.out.Print(Printable(job.name) + "\n" + Describe(job, session.out.color()));
  }
  return session.out.Finish(code);
}

}  // namespace

ExitCode RunWatch(Session& session, const WatchArgs& args) {
  ProgressReporter reporter(session.progress_mode(), stderr);
  Job job = session.client.OpenJob(args.job, args.first_event);
  const bool wants_solution = !args.out.empty();
  auto end = [&]() -> Expected<JobEnd> {
    const Interrupt::Guard guard("no longer watching; the job goes on");
    const CallOptions call = session.Call({}, reporter);
    if (wants_solution) return job.Wait(call);
    Expected<JobInfo> info = job.Watch(call);
    if (!info.ok()) return info.error();
    return JobEnd{.info = *std::move(info), .solution = {}, .solution_error = {}};
  }();
  reporter.Clear();
  if (!end.ok()) return session.out.Fail(end.error());
  if (end->solution) {
    const Solution& x = *end->solution;
    if (auto error = WriteVectors(args.out, x.n, x.rhs_count, x.x)) return session.out.Fail(*error);
  }
  if (end->solution_error) return session.out.Fail(*end->solution_error);
  return Show(session, end->info, CodeOf(end->info));
}

ExitCode RunCancel(Session& session, const CancelArgs& args) {
  const Interrupt::Guard guard("stopping");
  auto job = session.client.Cancel(args.job, session.AdminCall());
  if (!job.ok()) return session.out.Fail(job.error());
  return Show(session, *job, ExitCode::kOk);
}

}  // namespace spaid::cli
