// Jobs by their names: Client::Watch and its like, and Job.
#include <algorithm>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "client/cpp/arrays.h"
#include "client/cpp/convert.h"
#include "client/cpp/events.h"
#include "client/cpp/impl.h"

namespace spaid {

using namespace internal;  // NOLINT(build/namespaces): our own, in our own file

Expected<JobInfo> Client::Impl::GetJob(const std::string& name, const Call& call) {
  v1::GetJobRequest request;
  request.set_name(name);
  if (broken) return *broken;
  auto response = Unary(call, AffinityOf(name), Repeat::kSafe, &Replica::jobs,
                        &v1::JobService::Stub::GetJob, request);
  if (!response.ok()) return response.error();
  return FromProto(response->job());
}

Expected<JobInfo> Client::Impl::CancelJob(const std::string& name, const Call& call) {
  v1::CancelJobRequest request;
  request.set_name(name);
  if (broken) return *broken;
  auto response = Unary(call, AffinityOf(name), Repeat::kSafe, &Replica::jobs,
                        &v1::JobService::Stub::CancelJob, request);
  if (!response.ok()) return response.error();
  return FromProto(response->job());
}

Expected<JobInfo> Client::Impl::Watch(const std::string& name, const Call& call,
                                      int64_t& last_event, std::optional<JobInfo>& ended,
                                      Solution* solution) {
  JobFollower follower(call, name, last_event);
  bool progressed = false;

  // One connection. Goes on behind the last event that was seen, so nothing is reported twice.
  auto once = [&](Replica& replica, grpc::ClientContext& context) -> Expected<JobInfo> {
    progressed = false;
    v1::WatchJobRequest request;
    request.set_name(name);
    const int64_t last = follower.last_event();
    request.set_first_event(last < INT64_MAX ? last + 1 : last);
    request.set_with_solution(solution != nullptr);
    const std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> reader =
        replica.jobs->WatchJob(&context, request);
    v1::WatchJobResponse response;
    std::optional<ArraySink<double>> sink;
    std::optional<Error> own;
    while (!own && reader->Read(&response)) {
      if (response.has_solution() && solution != nullptr) {
        if (sink) {
          own = ProtocolViolation("a second solution");
          break;
        }
        const int64_t n = response.solution().n(), count = response.solution().rhs_count();
        if (n < 1 || n > INT32_MAX || count < 1 || count > kMaxRhs) {
          own = ProtocolViolation("a solution of an impossible size");
          break;
        }
        solution->n = n;
        solution->rhs_count = static_cast<int32_t>(count);
        sink.emplace(v1::ARRAY_KIND_SOLUTION, n * count);
      } else if (response.has_chunk()) {
        own = sink ? sink->Take(response.chunk())
                   : ProtocolViolation("a chunk before the solution's size");
      } else if (response.has_event()) {
        // Events count as progress, for they are finite; a truncated solution, which may begin
        // again and again, does not.
        progressed = true;
        last_event = std::max(last_event, response.event().number());
        own = follower.Take(response.event());
        follower.residuals().clear();
        if (follower.finished()) ended = follower.finished();
      }
    }
    if (own) context.TryCancel();
    const grpc::Status status = reader->Finish();
    if (own) return *std::move(own);
    // A watch for events only does not care what follows the last of them.
    if (ended && solution == nullptr) return *ended;
    if (!status.ok()) return FromStatus(status, replica.address);
    if (!ended) {  // it had ended before the first event that was asked for
      Expected<JobInfo> info = GetJob(name, call);
      if (!info.ok()) return info;
      if (!info->ended) return ProtocolViolation("the events ended before the job had");
      ended = *std::move(info);
    }
    if (!sink && solution != nullptr) *solution = {};  // nor what an earlier stream began
    if (sink) {
      if (!sink->Complete()) return ProtocolViolation("the solution ended early");
      solution->x = sink->Release();
    }
    return *ended;
  };
  return Attempt<JobInfo>(call, AffinityOf(name), Repeat::kFollow, once,
                          [&] { return progressed; });
}

Expected<JobInfo> Client::GetJob(const std::string& name, const CallOptions& options) {
  return impl_->GetJob(name, Call(options));
}

Expected<JobInfo> Client::Cancel(const std::string& name, const CallOptions& options) {
  return impl_->CancelJob(name, Call(options));
}

Expected<JobInfo> Client::Watch(const std::string& name, const CallOptions& options,
                                int64_t first_event, Solution* solution) {
  int64_t last_event = std::max<int64_t>(first_event, 1) - 1;
  std::optional<JobInfo> ended;
  return impl_->Watch(name, Call(options), last_event, ended, solution);
}

Job Client::OpenJob(const std::string& name, int64_t first_event) {
  Job job(impl_, name);
  job.last_event_ = std::max<int64_t>(first_event, 1) - 1;
  return job;
}

// `run(call)` makes the job, on a stream that is left as soon as it is queued: it has all its input
// then, and before that leaving would take it away. Returns the preconditioner's handle. `matrix`:
// its handle, where that is known.
template <class Run>
Expected<Job> Client::Start(const std::string& matrix, const CallOptions& call, Run run) {
  Job job(impl_, "");
  job.matrix_ = matrix;
  std::stop_source leave;
  const std::stop_callback forward(call.stop, [&leave] { leave.request_stop(); });
  CallOptions detached = call;
  detached.detach = true;
  detached.stop = leave.get_token();
  detached.on_progress = [&](const Progress& progress) {
    if (progress.kind == Progress::Kind::kMatrix && progress.matrix != nullptr) {
      job.matrix_ = progress.matrix->name;
    }
    job.last_event_ = std::max(job.last_event_, progress.event_number);
    const bool queued =
        progress.kind != Progress::Kind::kTransfer && progress.kind != Progress::Kind::kMatrix;
    if (queued && !progress.job.empty()) {
      job.name_ = progress.job;
      leave.request_stop();
    }
    if (call.on_progress) call.on_progress(progress);
  };
  const Expected<std::string> preconditioner = run(detached);
  if (!job.name_.empty()) return job;  // whatever became of its first stream
  if (!preconditioner.ok()) return preconditioner.error();
  JobInfo& ended = job.ended_.emplace();
  ended.state = JobState::kSucceeded;
  ended.detached = true;
  ended.matrix = job.matrix_;
  ended.preconditioner = *preconditioner;
  return job;
}

namespace {

Expected<std::string> HandleOf(const Expected<SolveResult>& result) {
  if (!result.ok()) return result.error();
  return result->preconditioner;
}

Expected<std::string> HandleOf(const Expected<BuildResult>& result) {
  if (!result.ok()) return result.error();
  return result->preconditioner.name;
}

}  // namespace

Expected<Job> Client::StartSolve(const std::string& matrix, std::span<const double> b,
                                 const SolveOptions& solve, const CallOptions& call) {
  return Start(matrix, call,
               [&](const CallOptions& c) { return HandleOf(Solve(matrix, b, solve, c)); });
}

Expected<Job> Client::StartSolve(const CscView& a, std::span<const double> b,
                                 const SolveOptions& solve, const CallOptions& call) {
  return Start("", call, [&](const CallOptions& c) { return HandleOf(Solve(a, b, solve, c)); });
}

Expected<Job> Client::StartBuild(const std::string& matrix, const PreconditionerSpec& spec,
                                 const CallOptions& call) {
  return Start(matrix, call,
               [&](const CallOptions& c) { return HandleOf(Build(matrix, spec, false, c)); });
}

Expected<Job> Client::StartBuild(const CscView& a, const PreconditionerSpec& spec,
                                 const CallOptions& call) {
  return Start("", call, [&](const CallOptions& c) { return HandleOf(Build(a, spec, false, c)); });
}

Expected<JobInfo> Job::Watch(const CallOptions& options) {
  if (ended_) return *ended_;
  return impl_->Watch(name_, Call(options), last_event_, ended_, nullptr);
}

Expected<JobEnd> Job::Wait(const CallOptions& options) {
  JobEnd end;
  if (name_.empty()) {
    end.info = *ended_;
    return end;
  }
  const Call call(options);
  Solution solution = {};
  Expected<JobInfo> info = impl_->Watch(name_, call, last_event_, ended_, &solution);
  if (!info.ok() && info.error().reason == "NOT_A_SOLVE") {
    end.solution_error = info.error();
    info = ended_ ? *ended_ : impl_->Watch(name_, call, last_event_, ended_, nullptr);
  } else if (!info.ok() && info.error().reason == "SOLUTION_GONE" && ended_) {
    end.solution_error = info.error();
    info = *ended_;
  }
  if (!info.ok()) return info.error();
  end.info = *std::move(info);
  if (solution.rhs_count > 0) end.solution = std::move(solution);
  return end;
}

Expected<JobInfo> Job::Cancel(const CallOptions& options) const {
  if (name_.empty()) return *ended_;
  return impl_->CancelJob(name_, Call(options));
}

Expected<JobInfo> Job::Snapshot(const CallOptions& options) const {
  if (name_.empty()) return *ended_;
  return impl_->GetJob(name_, Call(options));
}

}  // namespace spaid
