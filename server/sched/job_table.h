// Finds jobs by name, per tenant: the live ones, and the ended ones for a while.
//
//   table.Add(job);                                  // before it is submitted
//   SchedulerOptions{.on_ended = [&](auto& job) { table.Ended(job); }};
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/base/paging.h"
#include "server/base/tenant_shares.h"
#include "server/sched/priority.h"
#include "spaid/v1/job.pb.h"

namespace spaid::server {

class Job;

// Selects the jobs of a list; the defaults: all.
struct JobFilter {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  v1::JobKind kind = v1::JOB_KIND_UNSPECIFIED;
  std::string matrix = {}, preconditioner = {};  // handles
};

// Bounds the ended jobs that are kept, the newest first. Tenants share number and bytes
// (TenantShares): whoever is over its share loses its oldest first. The scheduler bounds live ones.
struct JobTableOptions {
  int64_t max_ended = 1000;
  int64_t max_ended_bytes = 64 << 20;  // event logs and outcomes
  std::chrono::seconds max_age{3600};
  const Clock* clock = &RealClock();  // outlives the table
  ShareRules shares = {};
};

// Thread-safe.
class JobTable {
 public:
  struct Page {
    std::vector<std::shared_ptr<Job>> jobs;  // newest first
    std::vector<uint64_t> sequences;         // one per job, for PageToken
    std::string next_token;                  // empty: the end
  };

  explicit JobTable(JobTableOptions options);

  void Add(const std::shared_ptr<Job>& job);
  // Forgets a job that was refused, so that nobody has its name.
  void Remove(const Job& job);
  // Starts the retention of a job that has ended. Jobs that were never added are ignored.
  void Ended(const std::shared_ptr<Job>& job);
  // Finds a job; `tenant` null: any tenant's. Errors: NOT_FOUND/HANDLE_UNKNOWN (also for another
  // tenant's job, and one that ended too long ago).
  absl::StatusOr<std::shared_ptr<Job>> Get(const std::string* tenant, const std::string& name);
  absl::StatusOr<std::shared_ptr<Job>> Get(const std::string& tenant, const std::string& name) {
    return Get(&tenant, name);
  }
  // Lists jobs; `tenant` null: every tenant's. Jobs that change meanwhile are seen as they were or
  // as they are.
  Page List(const std::string* tenant, const JobFilter& filter, const PageRequest& page);
  Page List(const std::string& tenant, const JobFilter& filter, const PageRequest& page) {
    return List(&tenant, filter, page);
  }
  // Counts jobs that have not ended: those that wait, by priority, and those that run.
  struct Live {
    int64_t queued[kPriorities] = {};
    int64_t running = 0;
  };
  Live CountLive(const std::string& tenant) const;
  // Returns the jobs of all tenants that ended last, the last one first.
  std::vector<std::shared_ptr<Job>> LastEnded(size_t max_jobs);
  // Releases kept results of tenants for whom of(tenant) is true, those of the jobs that ended
  // first, until `bytes` are free or none is left.
  void DropResults(int64_t bytes, const std::function<bool(const std::string& tenant)>& of);
  int64_t size() const;
  int64_t ended_bytes() const;  // held by the ended jobs that are kept

 private:
  struct Entry {
    std::shared_ptr<Job> job;
    uint64_t sequence;
  };
  struct EndedEntry {
    std::string name;
    TimePoint when;
    int64_t bytes;
    TenantShares::Account account;
  };
  using BySequence = std::map<uint64_t, std::shared_ptr<Job>>;
  using EndedJobs = std::map<uint64_t, EndedEntry>;  // in the order in which they ended
  void PruneLocked(std::vector<std::shared_ptr<Job>>* dropped);
  // Forgets an ended job.
  void DropLocked(EndedJobs::iterator it, std::vector<std::shared_ptr<Job>>* dropped);
  void EraseLocked(const std::string& name, std::vector<std::shared_ptr<Job>>* dropped);

  const JobTableOptions options_;
  mutable std::mutex mutex_;
  uint64_t next_sequence_ = 1;
  std::unordered_map<std::string, Entry> by_name_;
  BySequence all_;
  std::map<std::string, BySequence> by_tenant_;
  EndedJobs ended_;
  TenantShares kept_;  // jobs that ended, and their bytes
  std::unordered_map<TenantShares::Account, std::set<uint64_t>> ended_of_;  // none is empty
};

}  // namespace spaid::server
