// spaid.v1.MatrixService.
#pragma once

#include "server/rpc/backend.h"
#include "server/rpc/methods.h"
#include "spaid/v1/matrix.grpc.pb.h"

namespace spaid::server {

class MatrixService {
 public:
  explicit MatrixService(Backend* backend) : backend_(backend) {}
  void AddTo(Methods* methods);

  RawBidiReactor* UploadMatrix(grpc::CallbackServerContext* context);
  RawBidiReactor* GetMatrix(grpc::CallbackServerContext* context);
  RawBidiReactor* ListMatrices(grpc::CallbackServerContext* context);
  RawBidiReactor* DeleteMatrix(grpc::CallbackServerContext* context);

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
