// The daemons that a client may ask, and which of them a call goes to: proto/spaid/v1/README.md,
// "Several replicas".
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "spaid/client.h"
#include "spaid/v1/job.grpc.pb.h"
#include "spaid/v1/matrix.grpc.pb.h"
#include "spaid/v1/preconditioner.grpc.pb.h"
#include "spaid/v1/server.grpc.pb.h"
#include "spaid/v1/solver.grpc.pb.h"

namespace spaid::internal {

// One daemon, and the stubs of its services.
struct Replica {
  Replica(std::string at, std::shared_ptr<grpc::Channel> by);

  const std::string address;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::MatrixService::Stub> matrices;
  const std::unique_ptr<v1::PreconditionerService::Stub> preconditioners;
  const std::unique_ptr<v1::SolverService::Stub> solver;
  const std::unique_ptr<v1::JobService::Stub> jobs;
  const std::unique_ptr<v1::ServerService::Stub> server;

 private:
  friend class Replicas;
  using Clock = std::chrono::steady_clock;
  // Guarded by Replicas::mutex_.
  Clock::duration away_for_{0};  // 0: it answered last time
  Clock::time_point away_until_{};
  bool tried_ = false;  // by a call that Pick sent there again
};

// Returns the places of `addresses` in the order in which an affinity tries them: by descending
// first 8 bytes of SHA-256 of "AFFINITY ADDRESS". An address more or less leaves the others in
// their order. An empty affinity takes them as they stand.
std::vector<size_t> RendezvousOrder(const std::vector<std::string>& addresses,
                                    std::string_view affinity);

// Thread-safe. One that failed is skipped for a second, then one call tries it again, and so on for
// twice as long each time, up to 30 s.
class Replicas {
 public:
  using Connect = std::function<std::shared_ptr<grpc::Channel>(const std::string& address)>;
  using Clock = Replica::Clock;

  // `addresses`: at least one. `connect` makes a channel that connects by itself.
  Replicas(std::vector<std::string> addresses, const Connect& connect);

  // Returns the first that is not away, in the order of `affinity`; the very first if all are.
  Replica& Pick(std::string_view affinity, Clock::time_point now = Clock::now());
  // Tells how a call ended. `error` null: with an answer. Returns true if the call may be tried
  // elsewhere now: this one is unreachable, broke the connection or drains, and another is not
  // away.
  bool Ended(Replica& replica, const Error* error, Clock::time_point now = Clock::now());

 private:
  const std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::mutex mutex_;
};

}  // namespace spaid::internal
