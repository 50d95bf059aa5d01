// spaid.v1.JobService.
#pragma once

#include "server/rpc/backend.h"
#include "server/rpc/methods.h"
#include "spaid/v1/job.grpc.pb.h"

namespace spaid::server {

class JobService {
 public:
  explicit JobService(Backend* backend) : backend_(backend) {}
  void AddTo(Methods* methods);

  RawBidiReactor* GetJob(grpc::CallbackServerContext* context);
  RawBidiReactor* ListJobs(grpc::CallbackServerContext* context);
  RawBidiReactor* WatchJob(grpc::CallbackServerContext* context);
  RawBidiReactor* CancelJob(grpc::CallbackServerContext* context);

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
