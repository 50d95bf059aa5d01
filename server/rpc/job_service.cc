#include "server/rpc/job_service.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/rpc/chunk_source.h"
#include "server/rpc/job_feed.h"
#include "server/rpc/list_page.h"
#include "server/rpc/stream.h"
#include "server/rpc/unary.h"

namespace spaid::server {
namespace {

// The job that an administrator, or its own tenant, names.
absl::StatusOr<std::shared_ptr<Job>> FindJob(Backend* backend, const Caller& caller,
                                             const std::string& name) {
  return backend->jobs().Get(caller.administrator ? nullptr : &caller.tenant, name);
}

// Whose it is, an administrator is told where it is not theirs, or where all tenants' are listed.
v1::Job SeenBy(const Caller& caller, const Job& job, bool all_tenants, bool brief) {
  v1::Job out = job.Snapshot(brief);
  if (all_tenants || job.tenant() != caller.tenant) out.set_tenant(job.tenant());
  return out;
}

class WatchStream final : public RequestStream<v1::WatchJobRequest, v1::WatchJobResponse> {
 public:
  WatchStream(grpc::CallbackServerContext* context, Backend* backend)
      : RequestStream(context, "JobService/WatchJob", &backend->streams(), &backend->metrics()),
        backend_(backend) {}

 private:
  // The mutex is not held where subscribing may call back.
  void Requested(const v1::WatchJobRequest& request) override {
    request_ = request;
    auto job = Find();
    JobSubscription subscription;
    if (job.ok()) {
      std::weak_ptr<LiveStream> weak = weak_from_this();
      subscription = (*job)->Subscribe(request_.first_event(), [weak] {
        if (auto self = weak.lock()) std::static_pointer_cast<WatchStream>(self)->Pump();
      });
    }
    Section section(this);
    if (job.ok()) {
      feed_.Follow(*std::move(job), {JobWaiter(), std::move(subscription)}, request_.first_event());
      if (ended_locked()) DropLocked(feed_.TakeTies());
    } else {
      EndLocked(job.status());
    }
    PumpLocked();
  }

  absl::StatusOr<std::shared_ptr<Job>> Find() {
    ASSIGN_OR_RETURN(const Caller caller, Identify(backend_->authenticator()));
    RETURN_IF_ERROR(Admit(caller.tenant));
    if (request_.first_event() < 0) {
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadLimit,
                       absl::StrCat("first_event is ", request_.first_event(),
                                    "; events are numbered from 1 (0 means 1)"))
          .Field("first_event");
    }
    ASSIGN_OR_RETURN(auto job, backend_->jobs().Get(caller.tenant, request_.name()));
    if (request_.with_solution() && job->kind() != v1::JOB_KIND_SOLVE) {
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kNotASolve,
                       absl::StrCat(request_.name(),
                                    " is a build and has no solution; its result is under its "
                                    "preconditioner's handle"))
          .Field("with_solution");
    }
    return job;
  }

  bool Next(v1::WatchJobResponse* message) override {
    if (feed_.Next(backend_->scheduler(), message->mutable_event())) {
      HoldSolution();
      return true;
    }
    message->Clear();
    if (!feed_.ended()) return false;
    if (request_.with_solution() && feed_.job()->error().ok()) return NextOfSolution(message);
    EndLocked(absl::OkStatus());
    return false;
  }

  // From the job's end on nobody drops what this stream will send.
  void HoldSolution() {
    if (!request_.with_solution() || outcome_ != nullptr) return;
    outcome_ = std::static_pointer_cast<const SolveOutcome>(feed_.job()->result());
    if (outcome_ != nullptr) solution_ = ChunkSource::OfSolution(outcome_, outcome_->x);
  }

  bool NextOfSolution(v1::WatchJobResponse* message) {
    HoldSolution();
    if (outcome_ == nullptr) {
      EndLocked(MakeError(absl::StatusCode::kNotFound, reason::kSolutionGone,
                          absl::StrCat("the solution of ", request_.name(),
                                       " is not kept any more: its own stream took it, or its room "
                                       "was needed; solve again, with detach where it is to be "
                                       "fetched later"))
                    .Meta("handle", request_.name()));
      return false;
    }
    if (!std::exchange(told_size_, true)) {
      const int32_t count = outcome_->done.outcomes_size();
      message->mutable_solution()->set_rhs_count(count);
      message->mutable_solution()->set_n(static_cast<int64_t>(outcome_->x.size()) / count);
      return true;
    }
    const auto more =
        solution_.Next(message->mutable_chunk(), backend_->streams().ChunkBytes(), &lent_);
    if (more.ok() && *more) return true;
    if (more.ok()) feed_.job()->Fulfil();
    EndLocked(more.status());
    return false;
  }

  void Ticked(Clock::time_point now) override { feed_.Tick(now, backend_->options().heartbeat); }
  void Gone() override { DropLocked(feed_.TakeTies()); }
  void Closed() override { DropLocked(feed_.TakeTies()); }

  Backend* const backend_;
  v1::WatchJobRequest request_;
  JobFeed feed_;
  std::shared_ptr<const SolveOutcome> outcome_;
  ChunkSource solution_;
  bool told_size_ = false;
};

}  // namespace

RawBidiReactor* JobService::GetJob(grpc::CallbackServerContext* context) {
  return Unary<v1::GetJobRequest, v1::GetJobResponse>(
      context, "JobService/GetJob", backend_,
      [this](const Caller& caller, const v1::GetJobRequest* request,
             v1::GetJobResponse* response) -> absl::Status {
        ASSIGN_OR_RETURN(const auto job, FindJob(backend_, caller, request->name()));
        *response->mutable_job() = SeenBy(caller, *job, /*all_tenants=*/false, /*brief=*/false);
        return absl::OkStatus();
      });
}

RawBidiReactor* JobService::ListJobs(grpc::CallbackServerContext* context) {
  return Unary<v1::ListJobsRequest, v1::ListJobsResponse>(
      context, "JobService/ListJobs", backend_,
      [this](const Caller& caller, const v1::ListJobsRequest* request,
             v1::ListJobsResponse* response) -> absl::Status {
        if (!v1::JobState_IsValid(request->state())) {
          return MakeError(absl::StatusCode::kInvalidArgument, reason::kUnknownEnum,
                           absl::StrCat("state is ", static_cast<int>(request->state()),
                                        "; leave it out to list jobs of every state"))
              .Field("state");
        }
        if (!v1::JobKind_IsValid(request->kind())) {
          return MakeError(absl::StatusCode::kInvalidArgument, reason::kUnknownEnum,
                           absl::StrCat("kind is ", static_cast<int>(request->kind()),
                                        "; leave it out to list jobs of every kind"))
              .Field("kind");
        }
        const bool all = request->all_tenants();
        if (all && !caller.administrator) {
          return MakeError(absl::StatusCode::kPermissionDenied, reason::kNotAdministrator,
                           "all_tenants is for administrators; send a token from the server's "
                           "--admin-tokens file, or show the certificate of an --admin-subject, or "
                           "leave it out to list your own jobs")
              .Field("all_tenants");
        }
        ASSIGN_OR_RETURN(const PageRequest page,
                         ParsePage(all ? "all jobs" : absl::StrCat("jobs of ", caller.tenant),
                                   request->page_size(), request->page_token()));
        const auto listed = backend_->jobs().List(all ? nullptr : &caller.tenant,
                                                  {.state = request->state(),
                                                   .kind = request->kind(),
                                                   .matrix = request->matrix(),
                                                   .preconditioner = request->preconditioner()},
                                                  page);
        FillPage(
            page, listed.jobs, listed.sequences, listed.next_token,
            [&](const auto& job) { return SeenBy(caller, *job, all, /*brief=*/true); },
            response->mutable_jobs(), response->mutable_next_page_token());
        return absl::OkStatus();
      });
}

RawBidiReactor* JobService::WatchJob(grpc::CallbackServerContext* context) {
  return Launch<WatchStream>(context, backend_);
}

RawBidiReactor* JobService::CancelJob(grpc::CallbackServerContext* context) {
  return Unary<v1::CancelJobRequest, v1::CancelJobResponse>(
      context, "JobService/CancelJob", backend_,
      [this](const Caller& caller, const v1::CancelJobRequest* request,
             v1::CancelJobResponse* response) -> absl::Status {
        ASSIGN_OR_RETURN(const auto job, FindJob(backend_, caller, request->name()));
        if (job->RequestStop(StopCause::kCancelled)) {
          Log(LogLevel::kInfo, "job_cancel",
              {{"job", job->name()}, {"tenant", job->tenant()}, {"by", caller.tenant}});
        }
        *response->mutable_job() = SeenBy(caller, *job, /*all_tenants=*/false, /*brief=*/false);
        return absl::OkStatus();
      });
}

void JobService::AddTo(Methods* methods) {
  methods->Add("JobService/GetJob", this, &JobService::GetJob);
  methods->Add("JobService/ListJobs", this, &JobService::ListJobs);
  methods->Add("JobService/WatchJob", this, &JobService::WatchJob);
  methods->Add("JobService/CancelJob", this, &JobService::CancelJob);
}

}  // namespace spaid::server
