// Turns requests into jobs for the reactors: finds results that exist, shares builds in flight, and
// queues the rest.
//
//   JobFactory::BuildRequest request{.tenant = t, .matrix = stored, .spec = header.spec(), ...};
//   ASSIGN_OR_RETURN(auto ticket, job_factory.StartBuild(request));
//   if (ticket.ready) Reply(*ticket.ready);                       // it existed: no job
//   else Follow(ticket.job, std::move(ticket.waiter));            // result(): BuildOutcome
//
// Calls take O(nnz) time (an estimate is counted): they belong on an executor's thread, not on a
// reactor's.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/engine/adapter.h"
#include "server/sched/coalescer.h"
#include "server/sched/job.h"
#include "server/sched/job_table.h"
#include "server/sched/scheduler.h"
#include "server/store/byte_budget.h"
#include "spaid/v1/solver.pb.h"

namespace spaid::server {

// The result of a build's job: Job::result(), cast statically if kind() is JOB_KIND_BUILD.
struct BuildOutcome : JobResult {
  Stored<Preconditioner> preconditioner;
};

// The result of a solve's job.
struct SolveOutcome : JobResult {
  kernels::Array<double> x;  // n x rhs_count, column-major
  // Complete but for the transport's timings (upload_ms, download_ms, total_ms, bytes).
  v1::SolveDone done;
  BudgetShare share;  // bytes of right-hand sides, guess and solution
  int64_t bytes() const override { return share.bytes(); }
};

// Thread-safe.
class JobFactory {
 public:
  struct Parts {  // borrowed; outlive the factory and every job
    const EngineAdapter* adapter = nullptr;
    MatrixStore* matrices = nullptr;
    PreconditionerStore* preconditioners = nullptr;
    Scheduler* scheduler = nullptr;
    JobTable* jobs = nullptr;
    const Clock* clock = &RealClock();
    Metrics* metrics = nullptr;  // may be null
    ShareRules shares = {};      // of what is learned
  };

  // The terms on which a job is requested.
  struct Terms {
    JobLimits limits;                   // the request's own and the server's, the stricter of each
    bool own_limits = false;            // the request names some: its build is shared with nobody
    std::optional<TimePoint> deadline;  // the RPC's
    bool detach = false;
    Priority priority = Priority::kNormal;
    TracePtr trace = {};
  };

  struct BuildRequest {
    std::string tenant;
    Stored<Matrix> matrix;
    v1::PreconditionerSpec spec;
    std::string field = "header.spec";  // for errors
    Terms terms;
    kernels::StopToken stop = {};  // stops the preparation; the job stops when its waiters leave
    // A job that an earlier daemon promised, in the job table already: it is nobody else's.
    std::shared_ptr<Job> promised = {};
  };
  struct BuildTicket {
    std::optional<Stored<Preconditioner>> ready;  // else:
    std::shared_ptr<Job> job;
    JobWaiter waiter;
    bool shared = false;  // somebody else's job; timings.reused
  };

  struct SolveRequest {
    std::string tenant;
    Stored<Matrix> matrix;
    // Exactly one: a handle's preconditioner, or a spec (ENGINE_KIND_NONE: without).
    std::optional<Stored<Preconditioner>> preconditioner;
    std::optional<v1::PreconditionerSpec> spec;
    ParsedSolve solve;
    kernels::Array<double> b;                  // n x rhs_count
    kernels::Array<double> x0;                 // the same, or empty
    kernels::Array<double> null_vectors = {};  // n x solve.null_vectors
    // The share that these and the solution count for; kept until the result dies.
    BudgetShare share;
    Terms terms;
    kernels::StopToken stop = {};  // stops the preparation
    // The promise of a new job, by this name; or a job that an earlier daemon promised, in the job
    // table already.
    std::string job_name = {};
    std::shared_ptr<JobPromise> promise = {};
    std::shared_ptr<Job> promised = {};
  };
  struct SolveTicket {
    std::shared_ptr<Job> job;
    JobWaiter waiter;
  };

  struct Estimate {
    kernels::BuildEstimate figures;
    v1::EngineChoice choice;
  };

  explicit JobFactory(Parts parts) : parts_(parts), learned_(parts.shares) {}

  // Finds, joins or queues a build. Errors: ParseSpec's, Resolve's, BUILD_TOO_LARGE,
  // NOTHING_TO_BUILD (ENGINE_KIND_NONE), VALUES_NEEDED, NOT_FOUND (the spec's pattern_matrix),
  // QUEUE_FULL, DRAINING. Other errors are the job's.
  absl::StatusOr<BuildTicket> StartBuild(BuildRequest request);

  // Queues a solve, with the build of its M if that does not exist. Errors: as for StartBuild, and
  // PRECONDITIONER_SIZE_MISMATCH, PRECONDITIONER_NOT_SPD, NOT_SYMMETRIC, RHS_LENGTH_MISMATCH, those
  // of kernels::MakeNullSpace.
  absl::StatusOr<SolveTicket> StartSolve(SolveRequest request);

  absl::StatusOr<Estimate> EstimateBuild(const std::string& tenant, const Matrix& matrix,
                                         const v1::PreconditionerSpec& spec, std::string field,
                                         kernels::StopToken stop = {});

 private:
  struct Prepared;  // a spec on a matrix, ready to build
  struct SolveWork;
  class ReusingSolve;  // reusing_solve.h
  // Resolves, estimates and places a build. `solve`: the one that it is for; null: none is known.
  // AUTO: of the rung `found`, or else of the one that was learned.
  absl::StatusOr<Prepared> Prepare(const std::string& tenant, const Matrix& a,
                                   const v1::PreconditionerSpec& spec, const std::string& field,
                                   bool for_estimate, const kernels::StopToken& stop,
                                   const ParsedSolve* solve = nullptr,
                                   std::optional<LearnedRung> found = {}) const;
  // NOTHING_TO_BUILD where the engine is NONE.
  absl::Status CheckBuilds(const Prepared& prepared, const std::string& field) const;
  // Finds out in the build's job what AUTO shall build, and learns it. `asked`: as AUTO resolved.
  absl::StatusOr<Prepared> ProbeFor(const std::string& tenant,
                                    const std::shared_ptr<const Matrix>& a,
                                    const v1::PreconditionerSpec& spec, const std::string& field,
                                    const Prepared& asked, Job& job, const Assignment& at) const;
  // Remembers what solved A's pattern, or that nothing did.
  void Learn(const SolveWork& work, const kernels::SolveResult& solved, LearnedRung rung) const;
  absl::Status RunSolve(SolveWork& work, Job& job, const Assignment& at) const;
  // Returns the key by which the store knows M of `a`.
  static std::string KeyOfM(const Prepared& prepared, const Stored<Matrix>& a);
  // Builds and stores; the work of a build's job, and the first half of a solve's. `must_store`
  // false: where the store has no room, the result comes without a handle, and its quality warns.
  absl::StatusOr<Stored<Preconditioner>> BuildAndStore(const std::string& tenant,
                                                       const Stored<Matrix>& a,
                                                       const Prepared& prepared, bool must_store,
                                                       Job& job, const Assignment& at) const;
  // Readies the named preconditioner for a build of this matrix, where the request's policy has
  // one: work->prepared, or why it has none. Errors: those of a stop, INTERNAL.
  absl::Status PrepareRebuild(const SolveRequest& request, int64_t n_rhs, SolveWork* work) const;
  // Describes a build to the scheduler.
  Work WorkOf(const std::string& tenant, const Matrix& a, const Prepared& prepared) const;
  // `known`: to the job table, where it stays if it is refused.
  absl::Status Submit(const std::shared_ptr<Job>& job, bool known, Work work, JobWork run) const;

  Parts parts_;
  JobCoalescer coalescer_;
  mutable LearnedRungs learned_;
};

}  // namespace spaid::server
