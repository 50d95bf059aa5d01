// spaid.v1.MatrixService.
#pragma once

#include "server/rpc/backend.h"
#include "server/rpc/stream.h"
#include "spaid/v1/matrix.grpc.pb.h"

namespace spaid::server {

// The generated CallbackService, but for the raw messages of uploads. A method that is missing here
// would be a synchronous one.
using MatrixServiceBase = v1::MatrixService::WithRawCallbackMethod_UploadMatrix<
    v1::MatrixService::WithCallbackMethod_GetMatrix<
        v1::MatrixService::WithCallbackMethod_ListMatrices<
            v1::MatrixService::WithCallbackMethod_DeleteMatrix<v1::MatrixService::Service>>>>;

class MatrixService final : public MatrixServiceBase {
 public:
  explicit MatrixService(Backend* backend) : backend_(backend) {}

  RawBidiReactor* UploadMatrix(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetMatrix(grpc::CallbackServerContext* context,
                                      const v1::GetMatrixRequest* request,
                                      v1::GetMatrixResponse* response) override;
  grpc::ServerUnaryReactor* ListMatrices(grpc::CallbackServerContext* context,
                                         const v1::ListMatricesRequest* request,
                                         v1::ListMatricesResponse* response) override;
  grpc::ServerUnaryReactor* DeleteMatrix(grpc::CallbackServerContext* context,
                                         const v1::DeleteMatrixRequest* request,
                                         v1::DeleteMatrixResponse* response) override;

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
