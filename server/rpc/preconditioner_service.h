// spaid.v1.PreconditionerService.
#pragma once

#include "server/rpc/backend.h"
#include "server/rpc/stream.h"
#include "spaid/v1/preconditioner.grpc.pb.h"

namespace spaid::server {

// As MatrixServiceBase, for the inline matrices of builds.
using PreconditionerServiceBase =
    v1::PreconditionerService::WithRawCallbackMethod_BuildPreconditioner<
        v1::PreconditionerService::WithCallbackMethod_EstimateBuild<
            v1::PreconditionerService::WithCallbackMethod_GetPreconditioner<
                v1::PreconditionerService::WithCallbackMethod_ListPreconditioners<
                    v1::PreconditionerService::WithCallbackMethod_DeletePreconditioner<
                        v1::PreconditionerService::WithCallbackMethod_DownloadPreconditioner<
                            v1::PreconditionerService::Service>>>>>>;

class PreconditionerService final : public PreconditionerServiceBase {
 public:
  explicit PreconditionerService(Backend* backend) : backend_(backend) {}

  RawBidiReactor* BuildPreconditioner(grpc::CallbackServerContext* context) override;
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
