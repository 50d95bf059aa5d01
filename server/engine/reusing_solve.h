// The job of a solve that names a preconditioner: keeps it, builds it anew for this matrix first,
// or does that when it has had the iterations that it may take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/job_factory.h"
#include "server/engine/prepared.h"
#include "server/engine/reuse.h"

namespace spaid::server {

// Runs one such solve, once. Borrows all that it is given.
class JobFactory::ReusingSolve {
 public:
  ReusingSolve(const JobFactory& factory, SolveWork& work, Job& job, const Assignment& at);

  // `m`: the named one; becomes that with which the solve ended. A build that is refused leaves the
  // old one, and `told` says why; a stop while M is built anew leaves the iterate that was reached.
  // Errors: those of EngineAdapter::Solve; of a build those of a lost device and our own, and where
  // there is no iterate yet those of a stop.
  absl::StatusOr<Solved> Run(Stored<Preconditioner>* m, v1::Reuse* told);

 private:
  absl::StatusOr<Solved> Whole(const Stored<Preconditioner>& m) const;
  absl::StatusOr<Solved> RunRebuild(Stored<Preconditioner>* m, v1::Reuse* told) const;
  absl::StatusOr<Solved> RunAuto(Stored<Preconditioner>* m, v1::Reuse* told) const;
  absl::StatusOr<Solved> RunLeg(const Stored<Preconditioner>& m, const SolveLeg& leg,
                                std::span<const double> x0, int64_t max_iterations) const;
  // Builds M of this matrix. `*refused`: OK, or why there is none, and `m` is what it was. Errors:
  // what ends the job, or leaves it with what it has.
  absl::Status Rebuild(Stored<Preconditioner>* m, v1::Reuse* told, absl::Status* refused) const;
  // Says why AUTO keeps M after the solve with it. `allowed`: iterations, where there is a first
  // count.
  std::string WhyKept(const kernels::SolveResult& solved, int64_t allowed) const;
  std::string TimesFirst() const;
  // Says why the pattern of M, or its scaling, does not serve any more; empty: it does.
  std::string WhyRegrow(const Preconditioner& m) const;

  const JobFactory& factory_;
  SolveWork& work_;
  const SolveRequest& request_;
  Job& job_;
  const Assignment& at_;
  const EngineAdapter& adapter_;
  const SolveTerms terms_;
  const int64_t n_;
  std::optional<int64_t> first_;  // iterations of the named one's first solve
};

}  // namespace spaid::server
