// spaid.v1.PreconditionerService.
#pragma once

#include "server/rpc/backend.h"
#include "spaid/v1/preconditioner.grpc.pb.h"

namespace spaid::server {

class PreconditionerService final : public v1::PreconditionerService::CallbackService {
 public:
  explicit PreconditionerService(Backend* backend) : backend_(backend) {}

  grpc::ServerBidiReactor<v1::BuildPreconditionerRequest, v1::BuildPreconditionerResponse>*
  BuildPreconditioner(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* EstimateBuild(grpc::CallbackServerContext* context,
                                          const v1::EstimateBuildRequest* request,
                                          v1::EstimateBuildResponse* response) override;
  grpc::ServerUnaryReactor* GetPreconditioner(grpc::CallbackServerContext* context,
                                              const v1::GetPreconditionerRequest* request,
                                              v1::GetPreconditionerResponse* response) override;
  grpc::ServerUnaryReactor* ListPreconditioners(grpc::CallbackServerContext* context,
                                                const v1::ListPreconditionersRequest* request,
                                                v1::ListPreconditionersResponse* response) override;
  grpc::ServerUnaryReactor* DeletePreconditioner(
      grpc::CallbackServerContext* context, const v1::DeletePreconditionerRequest* request,
      v1::DeletePreconditionerResponse* response) override;
  grpc::ServerWriteReactor<v1::DownloadPreconditionerResponse>* DownloadPreconditioner(
      grpc::CallbackServerContext* context,
      const v1::DownloadPreconditionerRequest* request) override;

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
