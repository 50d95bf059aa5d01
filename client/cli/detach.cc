#include "client/cli/detach.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace spaid::cli {

CallOptions Detachment::Apply(CallOptions call) {
  call.detach = true;
  forward_ = std::make_unique<std::stop_callback<std::function<void()>>>(
      call.stop, [drop = drop_]() mutable { drop.request_stop(); });
  call.stop = drop_.get_token();
  call.on_progress = [this, inner = std::move(call.on_progress)](const Progress& progress) {
    if (inner) inner(progress);
    if (progress.kind == Progress::Kind::kMatrix && progress.matrix != nullptr) {
      matrix_ = progress.matrix->name;
    }
    // A job has all its input when it is queued; before that, leaving would take its input away.
    const bool queued =
        progress.kind != Progress::Kind::kTransfer && progress.kind != Progress::Kind::kMatrix;
    if (!queued || progress.job.empty() || !job_.empty()) return;
    job_ = progress.job;
    drop_.request_stop();
  };
  return call;
}

ExitCode Detachment::Report(const Session& session, const Error* error) const {
  if (job_.empty()) {
    if (error != nullptr) return session.out.Fail(*error);
    return session.out.Fail(LocalError("NO_JOB", "the server told no job name to detach from"));
  }
  if (session.out.json()) {
    session.out.PrintJson({{"job", job_}, {"detached", true}, {"matrix", matrix_}});
  } else {
    session.out.Print(job_ + "\n");
    session.out.Note("the job goes on; follow it with: spaidctl watch " + job_);
  }
  return session.out.Finish(ExitCode::kOk);
}

}  // namespace spaid::cli
