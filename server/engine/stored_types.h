// Defines the values of the stores: matrices and preconditioners, immutable, ready for use by any
// number of jobs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/engine/engine.h"
#include "server/base/clock.h"
#include "server/base/digest.h"
#include "server/engine/reuse.h"
#include "server/store/handle_store.h"
#include "spaid/v1/matrix.pb.h"
#include "spaid/v1/preconditioner.pb.h"

namespace spaid::server {

// A value that is made when it is first asked for. Thread-safe.
template <class T>
class Lazy {
 public:
  // Returns the value; the first caller makes it, others wait for it meanwhile.
  template <class Make>
  const T& Get(const Make& make) const {
    std::call_once(once_, [&] {
      value_ = make();
      made_.store(true, std::memory_order_release);
    });
    return *value_;
  }
  // Returns the value if it has been made, else null.
  const T* Known() const { return made_.load(std::memory_order_acquire) ? &*value_ : nullptr; }

 private:
  mutable std::once_flag once_;
  mutable std::atomic<bool> made_{false};
  mutable std::optional<T> value_;
};

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

  // Returns HandleStore's key within a tenant. Forged content may have the same one: compare before
  // sharing.
  std::string ContentKey() const { return ContentKey(pattern_digest, value_digest); }
  // Returns that key for digests that a client sent.
  static std::string ContentKey(const Digest& pattern, const std::optional<Digest>& values);
  // Compares byte for byte. O(nnz).
  bool SameContent(const Matrix& other) const;

  // All below: O(nnz) time when they are first asked for, nothing afterwards.

  struct ContentSha256 {
    Sha256 pattern;
    std::optional<Sha256> values;  // none where pattern_only
    friend bool operator==(const ContentSha256&, const ContentSha256&) = default;
  };
  const ContentSha256& sha256() const;
  const ContentSha256* known_sha256() const { return sha256_.Known(); }  // null: nobody has asked
  // Return keys for what is made from the pattern, or from the values too. Equal content has equal
  // keys, also if one matrix was deleted before the other came; different content has different
  // ones.
  const Fingerprint& pattern_fingerprint() const;
  const Fingerprint& value_fingerprint() const;

 private:
  Lazy<ContentSha256> sha256_;
  Lazy<Fingerprint> pattern_fingerprint_, value_fingerprint_;
};

struct Preconditioner {
  std::shared_ptr<const kernels::Preconditioner> kernel;
  v1::BuildQuality quality;
  std::string matrix;           // handle it was built from
  v1::PreconditionerSpec spec;  // resolved
  v1::EngineChoice choice;
  v1::Timings timings;  // plan_ms, build_ms, queue_ms, rebuild
  std::string device;
  WallTime created;
  int64_t nnz_a = 0;
  // Remember solves with it; and those with the M for whose A its pattern was grown or its scaling
  // found, where that is another one, as far as it is known.
  std::shared_ptr<FirstCounts> first_counts = std::make_shared<FirstCounts>();
  std::shared_ptr<const FirstCounts> earlier_counts;

  const kernels::CscMatrix& m() const { return kernel->matrix(); }
  int64_t bytes() const {
    return kernel->host_bytes() +
           static_cast<int64_t>(sizeof(Preconditioner) + FirstCounts::kBytes);
  }
};

using MatrixStore = HandleStore<Matrix>;
using PreconditionerStore = HandleStore<Preconditioner>;

// Convert to the wire's messages. `findings`: with the sentences of the diagnosis (GetMatrix; lists
// leave them out).
v1::Matrix ToProto(const Stored<Matrix>& matrix, bool findings);
v1::Preconditioner ToProto(const Stored<Preconditioner>& preconditioner);

}  // namespace spaid::server
