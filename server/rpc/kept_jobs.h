// Detached jobs that a restart does not forget: their requests lie in the spill folder until nobody
// needs them any more, and a daemon that finds some there does them, by their names.
//
//   ASSIGN_OR_RETURN(auto promise, kept_jobs.KeepSolve(request));   // blocks; it is durable now
//   ... the job is started, and only now the client hears of it ...
//
// A job whose request was written, and of which nobody heard as the daemon was killed right then,
// is done as well.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/stored_types.h"
#include "server/sched/job.h"
#include "server/store/spill_folder.h"
#include "spaid/v1/preconditioner.pb.h"
#include "spaid/v1/solver.pb.h"

namespace spaid::server {

class Backend;

// Thread-safe.
class KeptJobs {
 public:
  // Puts the jobs that it finds into the table, and begins to start them, the oldest first, on a
  // thread of its own: one waits until there is room for it. `backend` and `folder` outlive this.
  KeptJobs(Backend* backend, SpillFolder* folder);
  ~KeptJobs();  // those that are not started yet stay in the folder
  KeptJobs(const KeptJobs&) = delete;
  KeptJobs& operator=(const KeptJobs&) = delete;

  // Write a request, and what its handles name where that is not in the folder yet. Block. Errors:
  // UNAVAILABLE/NOT_DURABLE.
  struct Solve {
    const std::string& tenant;
    const std::string& name;  // "jobs/…", of the job to be made
    const v1::SolveHeader& header;
    const Stored<Matrix>& matrix;  // the header's, or the one that it brought
    std::span<const double> b, x0, null_vectors;
  };
  absl::StatusOr<std::shared_ptr<JobPromise>> KeepSolve(const Solve& solve);
  // Promises a job that there is already; nothing to do where it has a promise.
  absl::Status KeepBuild(const std::string& tenant, const std::shared_ptr<Job>& job,
                         const v1::BuildHeader& header, const Stored<Matrix>& matrix);

 private:
  struct Found {
    SpillRecordPtr record;
    std::shared_ptr<Job> job;
  };
  class Promise;

  absl::StatusOr<std::shared_ptr<JobPromise>> Keep(SpillRecord record,
                                                   const std::vector<SpillBlob>& blobs,
                                                   const v1::PreconditionerSpec* spec);
  absl::Status SpillNeeded(const SpillRecord& record) const;
  void Find();
  void Run();
  // Starts it, and waits for room; false: this ends.
  bool Resume(const Found& found);
  absl::Status Start(const Found& found);
  absl::Status StartSolve(const Found& found, const std::string& header);
  absl::Status StartBuild(const Found& found, const std::string& header);
  void End(const Found& found, const absl::Status& why);

  Backend* const backend_;
  SpillFolder* const folder_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  uint64_t last_sequence_ = 0;
  std::vector<Found> found_;
  std::thread thread_;
};

}  // namespace spaid::server
