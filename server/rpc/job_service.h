// spaid.v1.JobService.
#pragma once

#include "server/rpc/backend.h"
#include "spaid/v1/job.grpc.pb.h"

namespace spaid::server {

class JobService final : public v1::JobService::CallbackService {
 public:
  explicit JobService(Backend* backend) : backend_(backend) {}

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override;

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
