#include "server/sched/coalescer.h"

#include <algorithm>
#include <utility>

namespace spaid::server {

absl::StatusOr<JobCoalescer::Ticket> JobCoalescer::Join(
    const std::string& key, const Job::AttachOptions& attach, const std::function<bool()>& existing,
    const std::function<absl::StatusOr<Ticket>()>& submit) {
  std::lock_guard lock(mutex_);
  if (const auto it = in_flight_.find(key); it != in_flight_.end()) {
    if (auto job = it->second.lock()) {
      if (auto waiter = job->Attach(attach)) {
        return Ticket{std::move(job), *std::move(waiter), true};
      }
    }
    // It has ended or is being stopped. Where it succeeded, its result was stored before it ended,
    // so that `existing` sees it.
    in_flight_.erase(it);
  }
  if (existing()) return Ticket{};
  auto ticket = submit();
  if (!ticket.ok()) return ticket;
  if (in_flight_.size() >= sweep_at_) {
    std::erase_if(in_flight_, [](const auto& entry) {
      const auto job = entry.second.lock();
      return !job || job->ended();
    });
    sweep_at_ = std::max<size_t>(64, 2 * in_flight_.size());
  }
  in_flight_[key] = ticket->job;
  return ticket;
}

}  // namespace spaid::server
