// spaid.v1.MatrixService.
#pragma once

#include "server/rpc/backend.h"
#include "spaid/v1/matrix.grpc.pb.h"

namespace spaid::server {

class MatrixService final : public v1::MatrixService::CallbackService {
 public:
  explicit MatrixService(Backend* backend) : backend_(backend) {}

  grpc::ServerBidiReactor<v1::UploadMatrixRequest, v1::UploadMatrixResponse>* UploadMatrix(
      grpc::CallbackServerContext* context) override;
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
