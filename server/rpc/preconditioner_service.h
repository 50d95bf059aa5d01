// spaid.v1.PreconditionerService.
#pragma once

#include "server/rpc/backend.h"
#include "server/rpc/methods.h"
#include "spaid/v1/preconditioner.grpc.pb.h"

namespace spaid::server {

class PreconditionerService {
 public:
  explicit PreconditionerService(Backend* backend) : backend_(backend) {}
  void AddTo(Methods* methods);

  RawBidiReactor* BuildPreconditioner(grpc::CallbackServerContext* context);
  RawBidiReactor* EstimateBuild(grpc::CallbackServerContext* context);
  RawBidiReactor* GetPreconditioner(grpc::CallbackServerContext* context);
  RawBidiReactor* ListPreconditioners(grpc::CallbackServerContext* context);
  RawBidiReactor* DeletePreconditioner(grpc::CallbackServerContext* context);
  RawBidiReactor* DownloadPreconditioner(grpc::CallbackServerContext* context);

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
