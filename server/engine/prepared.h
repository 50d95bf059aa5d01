// The job factory's own: a build and a solve as they are queued.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/engine/job_factory.h"
#include "server/engine/resolved_build.h"

namespace spaid::server {

// A spec on a matrix, ready to build.
struct JobFactory::Prepared {
  ResolvedBuild build;
  std::optional<Stored<Matrix>> pattern;
  kernels::BuildEstimate estimate;
  Placement placement;
  absl::Status refused;  // no device takes it: an error of the build, not of an estimate
  kernels::StaticSpaiOptions static_spai;  // as asked, of AUTO
  std::string pattern_key;                 // of A, for what is learned; empty: nothing shall be
  // Terms that solves with AUTO's choice take besides the caller's terms; empty: nothing.
  std::optional<kernels::SolveOptions> terms;
  bool learned = false;  // AUTO starts at what it learned
};

struct JobFactory::SolveWork {
  SolveRequest request;
  // Set where a spec was given; or a preconditioner that may have to be built anew.
  std::optional<Prepared> prepared;
  std::optional<Stored<Preconditioner>> found;  // that spec's, there already
  std::string placement;                        // why it runs where it runs
  bool on_gpu = false;                          // it was meant to
  kernels::SolveOptions asked;                  // by the caller; the request's are resolved
  // The request's options borrow it.
  std::shared_ptr<const kernels::NullSpace> null_space;
  // Why the named preconditioner cannot be built for this matrix; OK: it can, or nobody asked.
  absl::Status no_rebuild;
  bool of_this_matrix = false;  // it was
};

}  // namespace spaid::server
