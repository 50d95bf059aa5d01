// A linear system that is solved again and again while its values change: time steps, Newton steps.
// Parts that do not change are neither sent nor built again.
//
//   spaid::System system(client, {n, row_ptr, col_idx, values, {}, /*by_rows=*/true},
//                        {.engine = spaid::Engine::kFsai});
//   for (...) {
//     Assemble(values);                         // into the same array
//     system.SetValues(values);
//     auto solved = system.Solve(b);            // one call: 8 bytes an entry up, and b
//     if (!solved.ok()) return Fail(solved.error().message);
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spaid/client.h"

namespace spaid {

// Solves as `options` say, whose `preconditioner`, `reuse` and `initial_guess` are replaced: by M
// of an earlier step, by `reuse`, and by `guess` of each call. Where `engine` is named, M is kept
// or built anew as `reuse` says; with Engine::kAuto the server remembers what solved this pattern.
// Things that the server has lost (evicted, or forgotten with a restart) are sent and built again,
// once a call. Not thread-safe; the client outlives this.
class System {
 public:
  // Borrows the arrays of `a` until it is given others.
  System(Client& client, const CscView& a, SolveOptions options = {},
         ReusePolicy reuse = {.mode = ReuseMode::kAuto});

  // Other values, on the same pattern. Borrowed. SIZE_MISMATCH: not as many.
  std::optional<Error> SetValues(std::span<const double> values);
  std::optional<Error> SetValues(std::span<const float> values);
  // Another matrix, of any pattern and size. M of the one before serves on if the size is the same.
  std::optional<Error> SetMatrix(const CscView& a);
  // Other options for the calls that follow. M of the ones before serves on if it is made in the
  // same way: by the same engine and spec.
  void SetOptions(SolveOptions options, ReusePolicy reuse);

  // Vectors for Engine::kAmg, which alone reads them, in place of those that the spec names:
  // `count` that A nearly maps to zero, n * count numbers by columns, or the coordinates of the
  // nodes, 2 or 3 numbers each, all of one direction before those of the next. Borrowed; sent with
  // the first call that needs them. 0: none. M of those before is forgotten.
  void SetNearNullSpace(int count, std::span<const double> vectors);
  void SetCoordinates(int count, std::span<const double> coordinates);
  // Refuses a temporary, which would be gone when it is sent.
  void SetNearNullSpace(int count, std::vector<double>&& vectors) = delete;
  void SetCoordinates(int count, std::vector<double>&& coordinates) = delete;

  // Sends the pattern alone, before there are values, unless the server has it; the next Solve or
  // Build sends values alone. As Client::Upload.
  std::optional<Error> UploadPattern(const CallOptions& call = {});
  // Sends A, or its values alone, unless the server has them: what Build and Solve do by
  // themselves. As Client::Upload.
  std::optional<Error> Upload(const CallOptions& call = {}, Timings* timings = nullptr);
  // Solves A X = B, b: n × k, column-major; `guess`: as many, or none. As Client::Solve.
  Expected<SolveResult> Solve(std::span<const double> b, std::span<const double> guess = {},
                              const CallOptions& call = {});
  // Builds M for the present values, which the next Solve begins with. As Client::Build.
  Expected<BuildResult> Build(bool fetch_result = false, const CallOptions& call = {},
                              const CscMatrix* known = nullptr);

  // Handles on the server; empty: none yet, or not any more.
  const std::string& matrix() const { return matrix_; }  // of the present values
  const std::string& preconditioner() const { return preconditioner_; }

 private:
  std::optional<Error> CheckCount(size_t values) const;
  // Forgets what `error` says is gone. False: nothing of ours.
  bool Forget(const Error& error);
  void SetVectors(int count, std::span<const double> vectors, bool coordinates);
  // The spec of options_ with the handle of the vectors, which are sent where they have none.
  CallOptions At(const CallOptions& call) const;
  Expected<PreconditionerSpec> Spec(const CallOptions& given);
  Expected<SolveResult> SolveOnce(std::span<const double> b, const SolveOptions& options,
                                  const CallOptions& given);

  Client* client_;
  CscView a_;
  SolveOptions options_;
  std::string matrix_;   // of these values
  std::string pattern_;  // of some values on this pattern
  std::string preconditioner_;
  std::span<const double> vectors_;
  int vector_count_ = 0;
  bool coordinates_ = false;  // what they are
  std::string vectors_handle_;
};

}  // namespace spaid
