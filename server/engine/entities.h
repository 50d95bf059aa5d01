// What the stores hold: matrices and preconditioners, immutable, ready for use by any number of
// jobs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/engine/engine.h"
#include "server/base/clock.h"
#include "server/base/digest.h"
#include "server/store/handle_store.h"
#include "spaid/v1/matrix.pb.h"
#include "spaid/v1/preconditioner.pb.h"

namespace spaid::server {

struct Matrix {
  kernels::CscMatrix csc;        // canonical and square; `values` empty where pattern_only
  kernels::Diagnosis diagnosis;  // structure alone where pattern_only
  Digest pattern_digest;
  std::optional<Digest> value_digest;  // none where pattern_only
  bool pattern_only = false;
  std::string label;
  WallTime created;

  int64_t n() const { return csc.n_cols; }
  int64_t bytes() const {
    return csc.bytes() + static_cast<int64_t>(sizeof(Matrix) + label.size());
  }
  // Names the content within a tenant: HandleStore's key.
  std::string ContentKey() const { return ContentKey(pattern_digest, value_digest); }
  // The same of digests that a client sent (so that an upload can be answered by `have`).
  static std::string ContentKey(const Digest& pattern, const std::optional<Digest>& values);
};

struct Preconditioner {
  std::shared_ptr<const kernels::Preconditioner> kernel;
  kernels::Quality quality;
  std::string matrix;           // handle it was built from
  v1::PreconditionerSpec spec;  // resolved
  v1::EngineChoice choice;
  v1::Timings timings;  // plan_ms, build_ms, queue_ms, rebuild
  std::string device;
  WallTime created;
  int64_t nnz_a = 0;

  const kernels::CscMatrix& m() const { return kernel->matrix(); }
  int64_t bytes() const {
    return kernel->host_bytes() + static_cast<int64_t>(sizeof(Preconditioner));
  }
};

using MatrixStore = HandleStore<Matrix>;
using PreconditionerStore = HandleStore<Preconditioner>;

// As the wire shows them. `findings`: the sentences too (GetMatrix; lists leave them out).
v1::Matrix ToProto(const Stored<Matrix>& matrix, bool findings);
v1::Preconditioner ToProto(const Stored<Preconditioner>& preconditioner);

}  // namespace spaid::server
