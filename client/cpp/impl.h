// The implementation of Client: the daemons, and the loop of attempts that every call runs in.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/cpp/call.h"
#include "client/cpp/chunk_source.h"
#include "client/cpp/errors.h"
#include "client/cpp/local.h"
#include "client/cpp/replicas.h"
#include "client/cpp/retry.h"
#include "spaid/client.h"

namespace spaid {

namespace internal {

// Describes `a` without digests; the spans are checked.
v1::MatrixHeader MatrixHeaderOf(const CscView& a, const std::string& label);
std::vector<OutgoingArray> ArraysOf(const CscView& a);

// Returns true if `error` says that this handle is gone: evicted, or of another life of the daemon.
bool IsGone(const Error& error, const std::string& handle);

// Returns the affinity of the first thing that a request names besides A, which must lie where A
// does; empty: it names none.
std::string AffinityBeside(const PreconditionerSpec& spec, const std::string& preconditioner = "");

// Adds what an upload took to the figures of the call that it was made for.
void AddUpload(const Timings& upload, Timings& timings);

}  // namespace internal

struct Client::Impl {
  explicit Impl(ClientOptions given);

  using Call = internal::Call;
  using Repeat = internal::Repeat;
  using Replica = internal::Replica;

  // Each runs to its end, with all attempts, within the call's deadline.
  // `same_pattern_as`: the handle of a matrix whose pattern `a` has: its values alone are sent.
  // `beside`: the affinity of what it goes with; empty: none, it goes by its own pattern.
  Expected<MatrixInfo> Upload(const CscView& a, const std::string& label, const Call& call,
                              Timings& timings, const std::string& same_pattern_as = "",
                              const std::string& beside = "");
  // `known`, here and below: null, or a matrix whose pattern M may have.
  Expected<BuildResult> Build(const std::string& matrix, const PreconditionerSpec& spec,
                              bool fetch_result, const CscMatrix* known, const Call& call);
  // Solves with a stored matrix, or with one that comes along, whose pattern may be a stored one's.
  struct Source {
    std::string matrix;          // its handle, if it is stored; else, if set, that of one with its
                                 // pattern: the values of `a` alone are sent
    const CscView* a = nullptr;  // null: it is stored
  };
  Expected<SolveResult> Solve(const Source& source, int64_t n, std::span<const double> b,
                              const SolveOptions& options, const Call& call);
  // `part`: null where M is a matrix.
  Expected<CscMatrix> Download(const std::string& preconditioner, const Part* part,
                               const CscMatrix* known, const Call& call);
  // Reports the events after `last_event`, which advances with each, also if a callback throws;
  // `ended` is set with the last one. See Job.
  Expected<JobInfo> Watch(const std::string& name, const Call& call, int64_t& last_event,
                          std::optional<JobInfo>& ended, Solution* solution);
  Expected<JobInfo> GetJob(const std::string& name, const Call& call);
  Expected<JobInfo> CancelJob(const std::string& name, const Call& call);
  Expected<MatrixInfo> GetMatrix(const std::string& name, const Call& call);

  // Returns n of a stored matrix: remembered (a handle is immutable), else asked for.
  Expected<int64_t> Order(const std::string& matrix, const Call& call);
  void RememberOrder(const std::string& matrix, int64_t n);

  // Runs `once(replica, context) -> Expected<T>` until it succeeds, may not be repeated, or is out
  // of time. `affinity`: what the call goes by, unless its options say otherwise; may be empty.
  template <class T, class Once>
  Expected<T> Attempt(const Call& call, std::string_view affinity, Repeat repeat, Once once) {
    return Attempt<T>(call, affinity, repeat, once, [] { return false; });
  }
  // If `progressed()` returns true, the attempt that just failed brought something, and the count
  // of attempts begins anew.
  template <class T, class Once, class Progressed>
  Expected<T> Attempt(const Call& call, std::string_view affinity, Repeat repeat, Once once,
                      Progressed progressed) {
    if (broken) return *broken;
    if (auto error = call.CheckRoute()) return *std::move(error);
    if (!call.options().affinity.empty()) affinity = call.options().affinity;
    for (int attempt = 1, lost = 0;; ++attempt) {
      if (call.stop().stop_requested()) return call.Stopped();
      if (call.WouldPass(std::chrono::milliseconds(0))) return call.TimedOut();
      Replica& replica = replicas->Pick(affinity);
      Expected<T> result = [&] {
        grpc::ClientContext context;
        Prepare(call, affinity, context);
        std::stop_callback cancel(call.stop(), [&context] { context.TryCancel(); });
        return once(replica, context);
      }();
      // The stop's own reset is nothing that the replica did.
      if (!result.ok() && call.stop().stop_requested() &&
          result.error().reason == internal::kConnectionLost) {
        return call.Stopped();
      }
      const bool elsewhere = replicas->Ended(replica, result.ok() ? nullptr : &result.error());
      if (result.ok()) return result;
      if (progressed()) attempt = lost = 0;
      const Error& error = result.error();
      if (internal::LostInMidCall(error)) ++lost;
      if (call.stop().stop_requested() && error.code == Code::kCancelled) return call.Stopped();
      auto wait = internal::NextDelay(retry, attempt, lost, error, repeat, internal::Jitter());
      if (wait && elsewhere) wait = std::chrono::milliseconds(0);
      if (!wait || call.WouldPass(*wait)) return result;
      if (!internal::SleepUnlessStopped(*wait, call.stop())) return call.Stopped();
    }
  }

  // `stub`: &Replica::jobs, …
  template <class Stub, class Request, class Response>
  Expected<Response> Unary(const Call& call, std::string_view affinity, Repeat repeat,
                           const std::unique_ptr<Stub> Replica::*stub,
                           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                        Response*),
                           const Request& request) {
    const auto once = [&](Replica& replica, grpc::ClientContext& context) -> Expected<Response> {
      Response response;
      const grpc::Status status = ((*(replica.*stub)).*method)(&context, request, &response);
      if (!status.ok()) return internal::FromStatus(status, replica.address);
      return response;
    };
    return Attempt<Response>(call, affinity, repeat, once);
  }

  void Prepare(const Call& call, std::string_view affinity, grpc::ClientContext& context) const;
  // As Upload and Solve, of what was checked. `shared`: arrays in shared memory are named, not
  // sent.
  Expected<MatrixInfo> UploadOver(bool shared, const CscView& a, const std::string& label,
                                  const Call& call, Timings& timings,
                                  const std::string& same_pattern_as, const std::string& beside);
  Expected<SolveResult> SolveOver(bool shared, const Source& source, int64_t n,
                                  std::span<const double> b, const SolveOptions& options,
                                  const Call& call);

  const ClientOptions options;
  std::string traceparent, tracestate;  // the options', or the environment's
  internal::RetryPolicy retry;
  std::optional<Error> broken;  // the error of every call if the options cannot work
  const std::shared_ptr<internal::LocalLink> link;
  std::unique_ptr<internal::Replicas> replicas;  // null: broken

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, int64_t> orders_;  // guarded by mutex_; bounded
};

}  // namespace spaid
