// spaid.v1.SolverService.
#pragma once

#include "server/rpc/backend.h"
#include "server/rpc/stream.h"
#include "spaid/v1/solver.grpc.pb.h"

namespace spaid::server {

class SolverService final
    : public v1::SolverService::WithRawCallbackMethod_Solve<v1::SolverService::Service> {
 public:
  explicit SolverService(Backend* backend) : backend_(backend) {}

  RawBidiReactor* Solve(grpc::CallbackServerContext* context) override;

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
