// The C++ client of spaid: the one header a user includes. No protobuf and no gRPC types; views in,
// values out.
//
//   spaid::Client client({.address = "127.0.0.1:7433"});
//   spaid::CscView a{n, col_ptr, row_idx, values};                 // your arrays, borrowed
//   auto solved = client.Solve(a, b, {.engine = spaid::Engine::kStaticSpai, .rtol = 1e-8});
//   if (!solved.ok()) return Fail(solved.error().message);         // refused, unreachable, …
//   if (solved->rhs[0].outcome == spaid::Outcome::kConverged) Use(solved->x);
//
// Thread-safe: one Client may serve many threads. Calls block; `CallOptions` brings deadline,
// cancellation and progress. Idempotent calls are tried again on UNAVAILABLE with back-off; a
// matrix that the server evicted, or forgot with a restart, is uploaded again, once, where the
// client still has the arrays. For time steps there is System (spaid/system.h).
// Texts that come from the server (labels, names, errors) are as it sent them: not fit for a
// terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spaid/shared_array.h"
#include "spaid/types.h"

namespace spaid {

struct ClientOptions {
  // HOST:PORT or unix:PATH; several, with commas between them: replicas, of which each matrix, by
  // its pattern, has one (AffinityOf). One that cannot be reached, or drains, is skipped for a
  // while; what it stored is sent to another where the arrays are at hand.
  std::string address = "127.0.0.1:7433";
  std::string ca_file = {}, certificate_file = {},
              key_file = {};     // PEM; any set: TLS; the last two: mTLS
  std::string token = {};        // bearer token
  std::string admin_token = {};  // for calls with CallOptions::as_administrator
  std::string tenant = {};       // believed only by --trust-tenant-header
  // The span that calls are part of, as W3C Trace Context writes it:
  // "00-<32 hex digits>-<16>-01", and what goes along with it. Empty: $TRACEPARENT and $TRACESTATE,
  // if there are such.
  std::string traceparent = {}, tracestate = {};
  // For idempotent calls; two if the connection breaks in mid-call, which the call itself may have
  // caused.
  int max_attempts = 4;
  // Ask the server if it has the arrays before sending them: by XXH3; also by SHA-256 if it may
  // have them, and for small matrices.
  bool send_digests = true;
  bool send_checksums = true;
  int64_t chunk_bytes = 1 << 20;  // 8 .. 3 MiB
  // Path of the --local-socket of a daemon on this host: arrays of Client::Allocate are shared with
  // it, not sent. Empty: all is sent.
  std::string local_socket = {};
};

// Returns what calls about one matrix have in common, by which they all reach the daemon that has
// it: 8 hex digits, of the pattern (of the arrays as they are: one by rows may have another than by
// columns), or those that a handle ends in. Empty: the handle has none, or the arrays do not fit
// each other.
std::string AffinityOf(const CscView& a);
std::string AffinityOf(std::string_view handle);

class Job;

// Asks for a page of jobs, newest first, at most `page_size` (1 to 1000); the server may give
// fewer.
struct JobQuery {
  std::optional<JobState> state = {};  // only jobs in this state
  bool all_tenants = false;            // for administrators; else NOT_ADMINISTRATOR
  int32_t page_size = 100;
  std::string page_token = {};  // the previous page's next_page_token; empty: the first page
};
struct JobPage {
  std::vector<JobInfo> jobs;
  std::string next_page_token;  // empty: this is the last one
};

// A connection to one daemon, or to some replicas. Lists and GetServerInfo are of the first replica
// that can be reached. Thread-safe; moving is not. Never throws on a failed call: every call
// returns the Error that the server gave (its reasons: proto/spaid/v1/README.md), or one of the
// client's own: UNREACHABLE, CONNECTION_LOST, TIMEOUT, STOP_REQUESTED, SIZE_MISMATCH, BAD_OPTION,
// UNREADABLE_FILE, CHECKSUM_MISMATCH, PROTOCOL_VIOLATION.
class Client {
 public:
  // Connects with the first call. Files that cannot be read are an Error of every call.
  explicit Client(ClientOptions options);
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  Expected<ServerInfo> GetServerInfo(const CallOptions& call = {});

  // Makes an array for any call, which a daemon on this host reads and writes where it lies
  // (ClientOptions::local_socket); without such a daemon it is sent like any other. Worth while
  // from some hundred KiB on: each takes pages of its own, and a place at the daemon
  // (--local-segments). Errors: OUT_OF_MEMORY, BAD_OPTION (`n` < 0 or too large).
  template <class T>
  Expected<SharedArray<T>> Allocate(int64_t n) {
    if (n == 0) return SharedArray<T>();
    auto memory = AllocateBytes(n, static_cast<int64_t>(sizeof(T)));
    if (!memory.ok()) return memory.error();
    return SharedArray<T>(*std::move(memory), static_cast<size_t>(n));
  }
  // Says whether arrays are shared, and if not, why. Asks the daemon.
  LocalStatus GetLocalStatus();

  // Stores A, or finds it by its digests without sending it; the handle is `name`. `label`: at most
  // 200 bytes of plain text, for people; a matrix that was there already keeps its own. Reads the
  // arrays twice (digests, chunks), copies none. A matrix that is not square and canonical is
  // refused, with the first place (`error().metadata` has "index"); RESOURCE_EXHAUSTED over the
  // server's limits. Where the server has the pattern already, only values are sent.
  Expected<MatrixInfo> Upload(const CscView& a, const std::string& label = "",
                              const CallOptions& call = {}, Timings* timings = nullptr);
  // The same of a matrix with the pattern of another one, entry for entry in the layout of `a`: its
  // values alone are sent, and nobody checks that it is so. All of it, where that one is gone.
  // Errors besides: PATTERN_SIZE_MISMATCH.
  Expected<MatrixInfo> UploadValues(const std::string& same_pattern_as, const CscView& a,
                                    const std::string& label = "", const CallOptions& call = {},
                                    Timings* timings = nullptr);
  // Stores `count` vectors of n numbers, by columns, for options that name vectors by a handle
  // (AmgSpec::near_null_space, coordinates): as the first columns of a matrix of n rows, of which
  // the others are empty. Copies the vectors. Errors: SIZE_MISMATCH (not n * count numbers, or more
  // vectors than n), and those of Upload.
  Expected<MatrixInfo> UploadVectors(int64_t n, int count, std::span<const double> vectors,
                                     const std::string& label = "", const CallOptions& call = {});
  // Describes a matrix. NOT_FOUND: HANDLE_UNKNOWN or HANDLE_EVICTED, here and wherever a handle is
  // named.
  Expected<MatrixInfo> GetMatrix(const std::string& name, const CallOptions& call = {});
  Expected<std::vector<MatrixInfo>> ListMatrices(const CallOptions& call = {});  // all pages
  // Deletes a matrix; jobs that use it keep it until they end.
  std::optional<Error> DeleteMatrix(const std::string& name, const CallOptions& call = {});

  // Builds M for the matrix, by handle, or by arrays (uploaded first, or found by digest; again
  // where the server evicts it in between). With `fetch_result`, M itself is downloaded, too, its
  // first columns while the last are being built; where the build fails they are discarded. A
  // second build of the same matrix and spec is answered from the store (`timings.reused`).
  // `known`: an M from before; where the pattern is the same, values alone are downloaded.
  Expected<BuildResult> Build(const std::string& matrix, const PreconditionerSpec& spec,
                              bool fetch_result = false, const CallOptions& call = {},
                              const CscMatrix* known = nullptr);
  Expected<BuildResult> Build(const CscView& a, const PreconditionerSpec& spec,
                              bool fetch_result = false, const CallOptions& call = {},
                              const CscMatrix* known = nullptr);
  // Estimates that build, from the pattern alone; for dynamic SPAI the time uses values, too.
  Expected<BuildEstimate> Estimate(const std::string& matrix, const PreconditionerSpec& spec,
                                   const CallOptions& call = {});
  Expected<PreconditionerInfo> GetPreconditioner(const std::string& name, const CallOptions& = {});
  Expected<std::vector<PreconditionerInfo>> ListPreconditioners(const CallOptions& = {});
  std::optional<Error> DeletePreconditioner(const std::string& name, const CallOptions& = {});
  // Downloads M in CSC, sorted; G if M = GᵀG (is_factor). `known`: as for Build. Of Engine::kAmg,
  // whose M is no matrix: PART_NEEDED.
  Expected<CscMatrix> Download(const std::string& preconditioner, const CallOptions& call = {},
                               const CscMatrix* known = nullptr);
  // Downloads one of PreconditionerInfo::parts, by its level and kind. UNKNOWN_PART: there is none.
  Expected<CscMatrix> DownloadPart(const std::string& preconditioner, const Part& part,
                                   const CallOptions& call = {});

  // Solves A X = B. b: n × rhs_count, column-major, rhs_count = b.size() / n. An outcome other than
  // converged is no Error: look at `rhs[k].outcome`. Errors: RHS_LENGTH_MISMATCH, BAD_TOLERANCE, …
  Expected<SolveResult> Solve(const std::string& matrix, std::span<const double> b,
                              const SolveOptions& options = {}, const CallOptions& call = {});
  Expected<SolveResult> Solve(const CscView& a, std::span<const double> b,
                              const SolveOptions& options = {}, const CallOptions& call = {});

  Expected<JobInfo> GetJob(const std::string& name, const CallOptions& call = {});
  Expected<std::vector<JobInfo>> ListJobs(std::optional<JobState> state = {},  // all pages
                                          const CallOptions& call = {}, bool all_tenants = false);
  Expected<JobPage> ListJobPage(const JobQuery& query, const CallOptions& call = {});
  // Reports every event from `first_event` on until the job has ended, none twice; reconnects by
  // itself as a Job does.
  // `solution`, if set, receives the solution of a detached solve, or of one whose call broke
  // (errors: NOT_A_SOLVE; SOLUTION_GONE if the server did not keep it).
  Expected<JobInfo> Watch(const std::string& name, const CallOptions& call, int64_t first_event = 1,
                          Solution* solution = nullptr);
  Expected<JobInfo> Cancel(const std::string& name, const CallOptions& call = {});

  // Start work that outlives this call, this client and this process, and return once it is queued;
  // `call.detach` is implied. Errors: as for Solve and Build. If the preconditioner exists already,
  // no job is made: the Job has ended, its name is empty, and its Wait returns the handle.
  Expected<Job> StartSolve(const std::string& matrix, std::span<const double> b,
                           const SolveOptions& options = {}, const CallOptions& call = {});
  Expected<Job> StartSolve(const CscView& a, std::span<const double> b,
                           const SolveOptions& options = {}, const CallOptions& call = {});
  Expected<Job> StartBuild(const std::string& matrix, const PreconditionerSpec& spec,
                           const CallOptions& call = {});
  Expected<Job> StartBuild(const CscView& a, const PreconditionerSpec& spec,
                           const CallOptions& call = {});
  // Returns a job by its name, to be watched from `first_event` on. Does not ask the server: an
  // unknown name is NOT_FOUND in the first call of the Job.
  Job OpenJob(const std::string& name, int64_t first_event = 1);

 private:
  friend class Job;
  friend class System;
  struct Impl;
  Expected<std::shared_ptr<internal::SharedMemory>> AllocateBytes(int64_t count, int64_t each);
  template <class Run>
  Expected<Job> Start(const std::string& matrix, const CallOptions& call, Run run);

  std::shared_ptr<Impl> impl_;
};

// The end of a job.
struct JobEnd {
  JobInfo info;                      // state, outcomes, error
  std::optional<Solution> solution;  // if a solve ended with an outcome
  // Set if the job did not fail and there is no solution: SOLUTION_GONE (the server did not keep
  // it; solve again), NOT_A_SOLVE (a build; its result is info.preconditioner).
  std::optional<Error> solution_error;
};

// A handle of a job on the server, which follows its events:
//
//   auto job = client.StartSolve(a, b);
//   if (!job.ok()) return Fail(job.error());
//   Save(job->name());                          // client.OpenJob(name), in another process
//   auto end = job->Wait({.on_progress = Show});
//   if (end.ok() && end->solution) Use(end->solution->x);
//
// Watch and Wait outlive broken connections: they reconnect, with back-off, and continue after the
// last event, so that none is lost and none comes twice. They give up (UNREACHABLE,
// CONNECTION_LOST) after ClientOptions::max_attempts in a row that brought nothing; the handle
// remains usable and continues where it was. A daemon that was restarted has forgotten its jobs:
// NOT_FOUND. A Job holds the connection of the client that made it, and may outlive that client.
// Copies follow on their own. Watch and Wait: one thread at a time; Cancel and Snapshot: any
// thread.
class Job {
 public:
  const std::string& name() const { return name_; }      // "jobs/…"
  const std::string& matrix() const { return matrix_; }  // its handle; empty after OpenJob
  int64_t last_event() const { return last_event_; }     // the last one reported; 0: none

  // Reports the next events to `call.on_progress` until the job has ended, and returns how it
  // ended; at once if it had. A stop or a timeout ends the watch, not the job.
  Expected<JobInfo> Watch(const CallOptions& call = {});
  // Watches the job to its end and returns its solution, too.
  Expected<JobEnd> Wait(const CallOptions& call = {});
  // Tells the job to stop; Wait returns when it has, with its best iterate.
  Expected<JobInfo> Cancel(const CallOptions& call = {}) const;
  // Returns the job's present state.
  Expected<JobInfo> Snapshot(const CallOptions& call = {}) const;

 private:
  friend class Client;
  Job(std::shared_ptr<Client::Impl> impl, std::string name)
      : impl_(std::move(impl)), name_(std::move(name)) {}

  std::shared_ptr<Client::Impl> impl_;
  std::string name_, matrix_;
  int64_t last_event_ = 0;
  std::optional<JobInfo> ended_;
};

}  // namespace spaid
