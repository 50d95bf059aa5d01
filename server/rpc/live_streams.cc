#include "server/rpc/live_streams.h"

#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/base/guard.h"
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

namespace {

const Tracer& NoSpans() {
  static const auto* tracer = new Tracer;
  return *tracer;
}

}  // namespace

LiveStreams::LiveStreams(StreamLimits limits, Connections* connections, const Tracer* tracer)
    : limits_(std::move(limits)),
      connections_(connections),
      tracer_(tracer != nullptr ? tracer : &NoSpans()),
      places_({.limits = {limits_.max_streams}, .rules = limits_.shares}),
      ticker_([this] { Run(); }) {}

LiveStreams::~LiveStreams() {
  {
    std::lock_guard lock(mu_);
    stop_ = true;
  }
  stopping_.notify_all();
  ticker_.join();
}

void LiveStreams::Add(std::shared_ptr<LiveStream> stream) {
  const LiveStream* key = stream.get();
  std::lock_guard lock(mu_);
  streams_.emplace(key, std::move(stream));
}

absl::Status LiveStreams::Admit(const LiveStream* stream, const std::string& tenant) {
  std::lock_guard lock(mu_);
  const TenantShares::Account account = places_.Join(tenant);
  absl::Cleanup leave = [&] { places_.Leave(account); };
  if (!places_.Admits(account, 1)) {
    return MakeError(absl::StatusCode::kResourceExhausted, reason::kTooManyStreams,
                     absl::StrCat("this tenant has ", places_.UsedBy(account),
                                  " streams open; the server may have ", limits_.max_streams,
                                  " (--max-streams), the last of which are for tenants with less "
                                  "than their share; try again when some have ended"))
        .Meta("limit", limits_.max_streams)
        .Retry(kBusyRetry);
  }
  place_of_.emplace(stream, account);
  places_.Add(account, 1);
  std::move(leave).Cancel();
  return absl::OkStatus();
}

void LiveStreams::Background(const LiveStream* stream) {
  {
    std::lock_guard lock(mu_);
    background_.insert(stream);
  }
  changed_.notify_all();
}

void LiveStreams::Remove(const LiveStream* stream) {
  {
    std::lock_guard lock(mu_);
    streams_.erase(stream);
    background_.erase(stream);
    if (const auto place = place_of_.extract(stream)) {
      places_.Add(place.mapped(), -1);
      places_.Leave(place.mapped());
    }
  }
  changed_.notify_all();
}

int64_t LiveStreams::size() const {
  std::lock_guard lock(mu_);
  return places_.used();
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
  return changed_.wait_until(lock, deadline,
                             [this] { return streams_.size() == background_.size(); });
}

void LiveStreams::Run() {
  std::unique_lock lock(mu_);
  auto next = std::chrono::steady_clock::now() + limits_.tick;
  while (!stopping_.wait_until(lock, next, [this] { return stop_; })) {
    const auto now = std::chrono::steady_clock::now();
    next = now + limits_.tick;
    std::vector<std::shared_ptr<LiveStream>> alive;
    // Without memory for that, the next tick will do.
    (void)Guarded("a tick", [&] {
      alive = server::Alive(streams_);
      return absl::OkStatus();
    });
    lock.unlock();
    for (const auto& stream : alive) stream->Tick(now);
    alive.clear();  // may run the last reference's destructor: not under the lock
    lock.lock();
  }
}

}  // namespace spaid::server
