#include "server/rpc/job_feed.h"

#include <utility>

#include "server/sched/scheduler.h"

namespace spaid::server {
namespace {

// Read from the job at a time: what a stream holds at the most, beside the message in flight.
constexpr size_t kBatch = 8;

}  // namespace

void JobFeed::Follow(std::shared_ptr<Job> job, Ties ties, int64_t first_event) {
  job_ = std::move(job);
  ties_ = std::move(ties);
  next_ = first_event < 1 ? 1 : first_event;
  last_ = Clock::now();
}

bool JobFeed::Next(const Scheduler& scheduler, v1::JobEvent* event) {
  if (!following() || ended_) return false;
  if (pending_.empty() && !end_read_) {
    JobEvents read = job_->Read(next_, kBatch);
    next_ = read.next;
    end_read_ = read.end;
    for (v1::JobEvent& e : read.events) pending_.push_back(std::move(e));
  }
  if (!pending_.empty()) {
    *event = std::move(pending_.front());
    pending_.pop_front();
  } else if (end_read_) {
    ended_ = true;
    return false;
  } else if (heartbeat_due_) {
    const auto place = scheduler.Where(*job_);
    *event = job_->Heartbeat(place ? place->position : 0, place ? place->eta_ms : 0);
  } else {
    return false;
  }
  heartbeat_due_ = false;
  last_ = Clock::now();
  if (pending_.empty() && end_read_) ended_ = true;
  return true;
}

bool JobFeed::Tick(Clock::time_point now, std::chrono::milliseconds interval) {
  if (following() && !ended_ && now - last_ >= interval) heartbeat_due_ = true;
  return heartbeat_due_;
}

}  // namespace spaid::server
