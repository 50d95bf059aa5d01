// spaidctl watch, cancel
#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/cli/commands.h"
#include "client/cli/describe.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/matrix_market.h"

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
    session.out.Print(job.name + "\n" + Describe(job, session.out.color()));
  }
  return session.out.Finish(code);
}

}  // namespace

ExitCode RunWatch(Session& session, const WatchArgs& args) {
  ProgressReporter reporter(session.progress_mode(), stderr);
  Solution solution;
  auto job = [&] {
    const Interrupt::Guard guard("no longer watching; the job goes on");
    return session.client.Watch(args.job, session.Call({}, reporter), args.first_event,
                                args.out.empty() ? nullptr : &solution);
  }();
  reporter.Clear();
  if (!job.ok()) return session.out.Fail(job.error());
  if (solution.rhs_count > 0) {
    if (auto error = WriteVectors(args.out, solution.n, solution.rhs_count, solution.x)) {
      return session.out.Fail(*error);
    }
  }
  return Show(session, *job, CodeOf(*job));
}

ExitCode RunCancel(Session& session, const CancelArgs& args) {
  const Interrupt::Guard guard("stopping");
  auto job = session.client.Cancel(args.job, session.Call());
  if (!job.ok()) return session.out.Fail(job.error());
  return Show(session, *job, ExitCode::kOk);
}

}  // namespace spaid::cli
