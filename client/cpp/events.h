// Passes job events to the user's progress callback.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/call.h"
#include "spaid/client.h"
#include "spaid/v1/job.pb.h"

namespace spaid::internal {

// Follows one job, on one stream or, if that breaks, on several.
class JobFollower {
 public:
  // `last_event`: the events up to this one are known already.
  explicit JobFollower(const Call& call, std::string job = {}, int64_t last_event = 0)
      : call_(call), job_(std::move(job)), last_event_(last_event) {}

  // Reports the event, unless it is known already, and keeps what later calls need. An event that
  // no job can have is an error, and is not reported.
  std::optional<Error> Take(const v1::JobEvent& event);

  const std::string& job() const { return job_; }  // empty until the queued event
  int64_t last_event() const { return last_event_; }
  const std::optional<JobInfo>& finished() const { return finished_; }
  std::vector<Residual>& residuals() { return residuals_; }

 private:
  const Call& call_;
  std::string job_;
  int64_t last_event_;
  std::optional<JobInfo> finished_;
  std::vector<Residual> residuals_;
};

void ReportMatrix(const Call& call, const MatrixInfo& matrix);

}  // namespace spaid::internal
