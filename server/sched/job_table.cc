#include "server/sched/job_table.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/text.h"
#include "server/sched/job.h"

namespace spaid::server {
namespace {

// The resources of ended jobs that tenants share.
enum Of : size_t { kJobs, kBytes };

bool Passes(const JobFilter& filter, const Job& job) {
  return (filter.kind == v1::JOB_KIND_UNSPECIFIED || job.kind() == filter.kind) &&
         (filter.matrix.empty() || job.matrix() == filter.matrix) &&
         (filter.state == v1::JOB_STATE_UNSPECIFIED || job.state() == filter.state) &&
         (filter.preconditioner.empty() || job.preconditioner() == filter.preconditioner);
}

}  // namespace

JobTable::JobTable(JobTableOptions options)
    : options_(std::move(options)),
      kept_({.limits = {options_.max_ended, options_.max_ended_bytes}, .rules = options_.shares}) {}

void JobTable::Add(const std::shared_ptr<Job>& job) {
  std::lock_guard lock(mutex_);
  const uint64_t sequence = next_sequence_++;
  by_name_[job->name()] = {job, sequence};
  by_tenant_[job->tenant()][sequence] = job;
  all_[sequence] = job;
}

void JobTable::EraseLocked(const std::string& name, std::vector<std::shared_ptr<Job>>* dropped) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return;
  const auto tenant = by_tenant_.find(it->second.job->tenant());
  tenant->second.erase(it->second.sequence);
  all_.erase(it->second.sequence);
  if (tenant->second.empty()) by_tenant_.erase(tenant);
  dropped->push_back(std::move(it->second.job));
  by_name_.erase(it);
}

void JobTable::Remove(const Job& job) {
  std::vector<std::shared_ptr<Job>> dropped;
  std::lock_guard lock(mutex_);
  EraseLocked(job.name(), &dropped);
}

void JobTable::Ended(const std::shared_ptr<Job>& job) {
  std::vector<std::shared_ptr<Job>> dropped;  // logs may be large: freed after the lock is gone
  const int64_t bytes = job->bytes();
  std::lock_guard lock(mutex_);
  if (!by_name_.contains(job->name())) return;
  const TenantShares::Account account = kept_.Join(job->tenant());
  const uint64_t turn = next_sequence_++;
  kept_.Add(account, 1, kJobs);
  kept_.Add(account, bytes, kBytes);
  ended_[turn] = {job->name(), options_.clock->Now(), bytes, account};
  ended_of_[account].insert(turn);
  const auto any = [](TenantShares::Account) { return true; };
  while (kept_.used(kJobs) > options_.max_ended || kept_.used(kBytes) > options_.max_ended_bytes) {
    const size_t of = kept_.used(kJobs) > options_.max_ended ? kJobs : kBytes;
    const auto own = ended_of_.find(kept_.Yields(account, 0, any, of));
    if (own == ended_of_.end()) break;
    const bool last = own->first == account && own->second.size() == 1;
    DropLocked(ended_.find(*own->second.begin()), &dropped);
    if (last) break;
  }
  PruneLocked(&dropped);
}

void JobTable::DropLocked(EndedJobs::iterator it, std::vector<std::shared_ptr<Job>>* dropped) {
  EndedEntry& entry = it->second;
  if (const auto known = by_name_.find(entry.name); known != by_name_.end()) {
    known->second.job->Fulfil();  // nobody can fetch its result any more
  }
  EraseLocked(entry.name, dropped);
  const auto own = ended_of_.find(entry.account);
  own->second.erase(it->first);
  if (own->second.empty()) ended_of_.erase(own);
  kept_.Add(entry.account, -1, kJobs);
  kept_.Add(entry.account, -entry.bytes, kBytes);
  kept_.Leave(entry.account);
  ended_.erase(it);
}

void JobTable::PruneLocked(std::vector<std::shared_ptr<Job>>* dropped) {
  const TimePoint oldest = options_.clock->Now() - options_.max_age;
  while (!ended_.empty() && ended_.begin()->second.when < oldest) {
    DropLocked(ended_.begin(), dropped);
  }
}

void JobTable::DropResults(int64_t bytes,
                           const std::function<bool(const std::string& tenant)>& of) {
  std::vector<std::shared_ptr<const JobResult>> dropped;  // large: freed after the lock is gone
  std::lock_guard lock(mutex_);
  for (const auto& [turn, entry] : ended_) {
    if (bytes <= 0) break;
    const auto it = by_name_.find(entry.name);
    if (it == by_name_.end() || !of(it->second.job->tenant())) continue;
    if (auto result = it->second.job->DropResult()) {
      bytes -= result->bytes();
      dropped.push_back(std::move(result));
    }
  }
}

absl::StatusOr<std::shared_ptr<Job>> JobTable::Get(const std::string* tenant,
                                                   const std::string& name) {
  std::vector<std::shared_ptr<Job>> dropped;
  std::lock_guard lock(mutex_);
  PruneLocked(&dropped);
  const auto it = by_name_.find(name);
  if (it == by_name_.end() || (tenant != nullptr && it->second.job->tenant() != *tenant)) {
    auto error = MakeError(absl::StatusCode::kNotFound, reason::kHandleUnknown,
                           absl::StrCat("there is no job ", Repeated(name),
                                        " (it never was, or it ended too long ago to be kept)"));
    if (!MayRepeat(name)) return error;
    return std::move(error).Meta("handle", name);
  }
  return it->second.job;
}

JobTable::Page JobTable::List(const std::string* tenant, const JobFilter& filter,
                              const PageRequest& request) {
  std::vector<std::shared_ptr<Job>> dropped;
  std::lock_guard lock(mutex_);
  PruneLocked(&dropped);
  Page page;
  const BySequence* from = &all_;
  if (tenant != nullptr) {
    const auto mine = by_tenant_.find(*tenant);
    if (mine == by_tenant_.end()) return page;
    from = &mine->second;
  }
  auto it = from->lower_bound(request.before);
  while (it != from->begin()) {
    --it;
    if (!Passes(filter, *it->second)) continue;
    if (static_cast<int32_t>(page.jobs.size()) == request.size) {
      page.next_token = PageToken(request.list, page.sequences.back());
      break;
    }
    page.jobs.push_back(it->second);
    page.sequences.push_back(it->first);
  }
  return page;
}

JobTable::Live JobTable::CountLive(const std::string& tenant) const {
  Live live;
  std::lock_guard lock(mutex_);
  const auto mine = by_tenant_.find(tenant);
  if (mine == by_tenant_.end()) return live;
  for (const auto& [sequence, job] : mine->second) {
    switch (job->state()) {
      case v1::JOB_STATE_QUEUED:
        ++live.queued[static_cast<size_t>(job->priority())];
        break;
      case v1::JOB_STATE_RUNNING:
        ++live.running;
        break;
      default:
        break;
    }
  }
  return live;
}

std::vector<std::shared_ptr<Job>> JobTable::LastEnded(size_t max_jobs) {
  std::vector<std::shared_ptr<Job>> dropped, last;
  std::lock_guard lock(mutex_);
  PruneLocked(&dropped);
  for (auto it = ended_.rbegin(); it != ended_.rend() && last.size() < max_jobs; ++it) {
    if (const auto own = by_name_.find(it->second.name); own != by_name_.end()) {
      last.push_back(own->second.job);
    }
  }
  return last;
}

int64_t JobTable::ended_bytes() const {
  std::lock_guard lock(mutex_);
  return kept_.used(kBytes);
}

int64_t JobTable::size() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(by_name_.size());
}

}  // namespace spaid::server
