// spaid.v1.SolverService.
#pragma once

#include "server/rpc/backend.h"
#include "server/rpc/methods.h"
#include "spaid/v1/solver.grpc.pb.h"

namespace spaid::server {

class SolverService {
 public:
  explicit SolverService(Backend* backend) : backend_(backend) {}
  void AddTo(Methods* methods);

  RawBidiReactor* Solve(grpc::CallbackServerContext* context);

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
