#include "client/cpp/replicas.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "client/cpp/errors.h"

namespace spaid::internal {
namespace {

constexpr std::chrono::seconds kFirstAway{1}, kLongestAway{30};

std::array<unsigned char, 8> Weight(std::string_view affinity, const std::string& address) {
  const std::string text = std::string(affinity) + " " + address;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::array<unsigned char, 8> first;
  std::copy_n(digest.begin(), first.size(), first.begin());
  return first;
}

// The daemon is not there, or is about to go.
bool IsAway(const Error& error) {
  return error.code == Code::kUnavailable &&
         (error.reason == kUnreachable || error.reason == kConnectionLost ||
          error.reason == "DRAINING");
}

// The daemon has said something. These codes may be this side's own.
bool IsAnswer(const Error* error) {
  return error == nullptr ||
         (error->code != Code::kUnavailable && error->code != Code::kDeadlineExceeded &&
          error->code != Code::kCancelled);
}

}  // namespace

Replica::Replica(std::string at, std::shared_ptr<grpc::Channel> by)
    : address(std::move(at)),
      channel(std::move(by)),
      matrices(v1::MatrixService::NewStub(channel)),
      preconditioners(v1::PreconditionerService::NewStub(channel)),
      solver(v1::SolverService::NewStub(channel)),
      jobs(v1::JobService::NewStub(channel)),
      server(v1::ServerService::NewStub(channel)) {}

std::vector<size_t> RendezvousOrder(const std::vector<std::string>& addresses,
                                    std::string_view affinity) {
  std::vector<size_t> order(addresses.size());
  std::iota(order.begin(), order.end(), 0);
  if (affinity.empty() || order.size() < 2) return order;
  std::vector<std::array<unsigned char, 8>> weights;
  for (const std::string& address : addresses) weights.push_back(Weight(affinity, address));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  return order;
}

Replicas::Replicas(std::vector<std::string> addresses, const Connect& connect)
    : addresses_(std::move(addresses)) {
  for (const std::string& address : addresses_) {
    replicas_.push_back(std::make_unique<Replica>(address, connect(address)));
  }
}

Replica& Replicas::Pick(std::string_view affinity, Clock::time_point now) {
  const std::vector<size_t> order = RendezvousOrder(addresses_, affinity);
  const std::lock_guard lock(mutex_);
  for (const size_t i : order) {
    Replica& replica = *replicas_[i];
    if (replica.away_for_ == Clock::duration(0)) return replica;
    if (now < replica.away_until_) continue;
    replica.away_until_ = now + replica.away_for_;  // this call tries it, the others do not wait
    replica.tried_ = true;
    return replica;
  }
  return *replicas_[order.front()];
}

bool Replicas::Ended(Replica& replica, const Error* error, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (error == nullptr || !IsAway(*error)) {
    if (IsAnswer(error)) replica.away_for_ = {};
    return false;
  }
  // Calls that were under way together fail together: that is one failure.
  if (std::exchange(replica.tried_, false) || replica.away_for_ == Clock::duration(0)) {
    replica.away_for_ =
        std::clamp<Clock::duration>(2 * replica.away_for_, kFirstAway, kLongestAway);
  }
  replica.away_until_ = now + replica.away_for_;
  return std::any_of(replicas_.begin(), replicas_.end(), [&](const auto& other) {
    return other->away_for_ == Clock::duration(0) || now >= other->away_until_;
  });
}

}  // namespace spaid::internal
