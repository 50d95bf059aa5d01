#include "server/rpc/live_streams.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

using Map = std::unordered_map<const LiveStream*, std::weak_ptr<LiveStream>>;

constexpr std::chrono::seconds kBusyRetry{1};

std::vector<std::shared_ptr<LiveStream>> Alive(const Map& streams) {
  std::vector<std::shared_ptr<LiveStream>> alive;
  alive.reserve(streams.size());
  for (const auto& [unused, weak] : streams) {
    if (auto stream = weak.lock()) alive.push_back(std::move(stream));
  }
  return alive;
}

}  // namespace

LiveStreams::LiveStreams(StreamLimits limits) : limits_(limits), ticker_([this] { Run(); }) {}

LiveStreams::~LiveStreams() {
  {
    std::lock_guard lock(mu_);
    stop_ = true;
  }
  changed_.notify_all();
  ticker_.join();
}

absl::Status LiveStreams::Add(std::shared_ptr<LiveStream> stream) {
  const LiveStream* key = stream.get();
  std::lock_guard lock(mu_);
  if (static_cast<int64_t>(streams_.size()) >= limits_.max_streams) {
    return MakeError(absl::StatusCode::kResourceExhausted, reason::kTooManyStreams,
                     absl::StrCat("the server has ", limits_.max_streams,
                                  " streams open, which is its limit (--max-streams); try again "
                                  "when some have ended"))
        .Meta("limit", limits_.max_streams)
        .Retry(kBusyRetry);
  }
  streams_.emplace(key, std::move(stream));
  return absl::OkStatus();
}

void LiveStreams::Remove(const LiveStream* stream) {
  {
    std::lock_guard lock(mu_);
    streams_.erase(stream);
  }
  changed_.notify_all();
}

int64_t LiveStreams::size() const {
  std::lock_guard lock(mu_);
  return static_cast<int64_t>(streams_.size());
}

std::vector<std::shared_ptr<LiveStream>> LiveStreams::Alive() const {
  std::lock_guard lock(mu_);
  return server::Alive(streams_);
}

void LiveStreams::CutAll(const absl::Status& status) {
  for (const auto& stream : Alive()) stream->Cut(status);
}

void LiveStreams::CutIdle(const absl::Status& status) {
  for (const auto& stream : Alive()) stream->CutIdle(status);
}

bool LiveStreams::WaitEmpty(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mu_);
  return changed_.wait_until(lock, deadline, [this] { return streams_.empty(); });
}

void LiveStreams::Run() {
  std::unique_lock lock(mu_);
  auto next = std::chrono::steady_clock::now() + limits_.tick;
  while (!changed_.wait_until(lock, next, [this] { return stop_; })) {
    std::vector<std::shared_ptr<LiveStream>> alive = server::Alive(streams_);
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    for (const auto& stream : alive) stream->Tick(now);
    alive.clear();  // may run the last reference's destructor: not under the lock
    next = now + limits_.tick;
    lock.lock();
  }
}

}  // namespace spaid::server
