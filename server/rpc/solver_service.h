// spaid.v1.SolverService.
#pragma once

#include "server/rpc/backend.h"
#include "spaid/v1/solver.grpc.pb.h"

namespace spaid::server {

class SolverService final : public v1::SolverService::CallbackService {
 public:
  explicit SolverService(Backend* backend) : backend_(backend) {}

  grpc::ServerBidiReactor<v1::SolveRequest, v1::SolveResponse>* Solve(
      grpc::CallbackServerContext* context) override;

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
