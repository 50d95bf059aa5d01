#include "server/rpc/job_service.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/rpc/job_feed.h"
#include "server/rpc/server_service.h"
#include "server/rpc/stream.h"
#include "server/rpc/unary.h"

namespace spaid::server {
namespace {

// Of a page of jobs: well under what a message may have.
constexpr size_t kMaxListBytes = kMaxMessageBytes / 2;
constexpr size_t kListOverhead = 8;  // of an item, at the most

class WatchStream final : public WriteStream<v1::WatchJobResponse> {
 public:
  WatchStream(grpc::CallbackServerContext* context, const v1::WatchJobRequest& request,
              Backend* backend)
      : OutStream(context, "JobService/WatchJob", &backend->streams(), &backend->metrics()),
        backend_(backend),
        request_(request) {}

  // Once, after Launch and before the handler returns, the mutex not held: subscribing may call
  // back.
  void Subscribe() {
    std::shared_ptr<Job> job;
    {
      Section section(this);
      job = job_;
    }
    if (job == nullptr) return;
    std::weak_ptr<LiveStream> weak = weak_from_this();
    JobSubscription subscription = job->Subscribe(request_.first_event(), [weak] {
      if (auto self = weak.lock()) std::static_pointer_cast<WatchStream>(self)->Pump();
    });
    Section section(this);
    feed_.Follow(std::move(job), {JobWaiter(), std::move(subscription)}, request_.first_event());
    PumpLocked();
  }

 private:
  void Start() override {
    auto job = Find();
    if (!job.ok()) return EndLocked(job.status());
    job_ = *std::move(job);
  }

  absl::StatusOr<std::shared_ptr<Job>> Find() {
    ASSIGN_OR_RETURN(const std::string tenant, backend_->authenticator().Tenant(*context_));
    if (request_.first_event() < 0) {
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadLimit,
                       absl::StrCat("first_event is ", request_.first_event(),
                                    "; events are numbered from 1 (0 means 1)"))
          .Field("first_event");
    }
    return backend_->jobs().Get(tenant, request_.name());
  }

  bool Next(v1::WatchJobResponse* message) override {
    if (feed_.Next(backend_->scheduler(), message->mutable_event())) return true;
    message->Clear();
    if (feed_.ended()) EndLocked(absl::OkStatus());
    return false;
  }

  void Ticked(Clock::time_point now) override { feed_.Tick(now, backend_->options().heartbeat); }
  void Gone() override { DropLocked(feed_.TakeTies()); }
  void Closed() override { DropLocked(feed_.TakeTies()); }

  Backend* const backend_;
  const v1::WatchJobRequest request_;
  std::shared_ptr<Job> job_;
  JobFeed feed_;
};

}  // namespace

grpc::ServerUnaryReactor* JobService::GetJob(grpc::CallbackServerContext* context,
                                             const v1::GetJobRequest* request,
                                             v1::GetJobResponse* response) {
  return Unary(context, "JobService/GetJob", backend_,
               [&](const std::string& tenant) -> absl::Status {
                 ASSIGN_OR_RETURN(const auto job, backend_->jobs().Get(tenant, request->name()));
                 *response->mutable_job() = job->Snapshot();
                 return absl::OkStatus();
               });
}

grpc::ServerUnaryReactor* JobService::ListJobs(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsResponse* response) {
  return Unary(context, "JobService/ListJobs", backend_,
               [&](const std::string& tenant) -> absl::Status {
                 if (!v1::JobState_IsValid(request->state())) {
                   return MakeError(absl::StatusCode::kInvalidArgument, reason::kUnknownEnum,
                                    absl::StrCat("state is ", static_cast<int>(request->state()),
                                                 "; leave it out to list jobs of every state"))
                       .Field("state");
                 }
                 ASSIGN_OR_RETURN(const PageRequest page,
                                  ParsePage(request->page_size(), request->page_token()));
                 const auto listed = backend_->jobs().List(tenant, request->state(), page);
                 response->set_next_page_token(listed.next_token);
                 size_t bytes = 0;
                 for (size_t i = 0; i < listed.jobs.size(); ++i) {
                   v1::Job job = listed.jobs[i]->Snapshot(/*brief=*/true);
                   bytes += job.ByteSizeLong() + kListOverhead;
                   if (i > 0 && bytes > kMaxListBytes) {
                     response->set_next_page_token(listed.tokens[i - 1]);
                     break;
                   }
                   *response->add_jobs() = std::move(job);
                 }
                 return absl::OkStatus();
               });
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobService::WatchJob(
    grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) {
  auto stream = std::make_shared<WatchStream>(context, *request, backend_);
  WatchStream* reactor = Launch(stream);
  stream->Subscribe();
  return reactor;
}

grpc::ServerUnaryReactor* JobService::CancelJob(grpc::CallbackServerContext* context,
                                                const v1::CancelJobRequest* request,
                                                v1::CancelJobResponse* response) {
  return Unary(context, "JobService/CancelJob", backend_,
               [&](const std::string& tenant) -> absl::Status {
                 ASSIGN_OR_RETURN(const auto job, backend_->jobs().Get(tenant, request->name()));
                 if (job->RequestStop(StopCause::kCancelled)) {
                   Log(LogLevel::kInfo, "job_cancel", {{"job", job->name()}, {"tenant", tenant}});
                 }
                 *response->mutable_job() = job->Snapshot();
                 return absl::OkStatus();
               });
}

}  // namespace spaid::server
