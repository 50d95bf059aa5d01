// Defines the values of the stores: matrices and preconditioners, immutable, ready for use by any
// number of jobs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "kernels/engine/engine.h"
#include "kernels/mpi/ranks_device.h"
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

// A sparsity pattern in canonical CSC, which matrices of one tenant share. Immutable; thread-safe.
class StoredPattern {
 public:
  StoredPattern(kernels::Pattern csc, Digest digest) : csc_(std::move(csc)), digest_(digest) {}

  const kernels::Pattern& csc() const { return csc_; }
  const Digest& digest() const { return digest_; }
  int64_t n() const { return csc_.n_cols; }
  int64_t nnz() const { return csc_.nnz(); }
  int64_t bytes() const;

  // Keys within a tenant, by XXH3 of its arrays by columns or by rows. Forged patterns may have the
  // same ones: compare before sharing.
  static std::string Key(const Digest& digest, bool by_rows);
  // Compares byte for byte. O(nnz).
  bool SameContent(const StoredPattern& other) const;

  // Structural rank of the pattern, once a matrix without zeros has been diagnosed; null: unknown.
  const int64_t* structural_rank() const { return rank_.Known(); }
  void LearnRank(int64_t rank) const {
    rank_.Get([rank] { return rank; });
  }
  // The GPU, by the engine's index, to which a computation last took values on this pattern, and
  // where those of the next time step will probably be wanted; kNowhere: none.
  static constexpr int kNowhere = -1;
  int values_go_to() const { return values_go_to_; }
  void ValuesGoTo(int device) const { values_go_to_ = device; }

  // All below: O(nnz) time when they are first asked for, nothing afterwards. By rows: SHA-256 of
  // the arrays as they would be sent by rows, at the price of a copy of the pattern meanwhile.
  const Sha256& sha256(bool by_rows = false) const;
  const Sha256* known_sha256(bool by_rows = false) const {
    return (by_rows ? sha256_by_rows_ : sha256_).Known();
  }
  // Returns a key for what is made from the pattern. Equal content has equal keys, also if one
  // matrix was deleted before the other came; different content has different ones.
  const Fingerprint& fingerprint() const;

 private:
  const kernels::Pattern csc_;
  const Digest digest_;
  Lazy<Sha256> sha256_, sha256_by_rows_;
  Lazy<Fingerprint> fingerprint_;
  Lazy<int64_t> rank_;
  mutable std::atomic<int> values_go_to_{kNowhere};
};

class ErrorBuilder;  // server/base/status.h
class ValuesAhead;   // values_ahead.h

struct Matrix {
  std::shared_ptr<const StoredPattern> pattern;
  kernels::Array<double> values;       // in the pattern's order; empty where pattern_only
  kernels::Diagnosis diagnosis;        // structure alone where pattern_only
  std::optional<Digest> value_digest;  // none where pattern_only
  bool pattern_only = false;
  std::string label;
  WallTime created;
  std::shared_ptr<ValuesAhead> ahead;  // what has been sent ahead of `values`; null: nothing
  // Not null: A lies over the ranks alone; `pattern` and `values` are a stand-in
  // (kernels/mpi/ranks_device.h).
  std::shared_ptr<const kernels::OverRanks> over;

  kernels::CscView csc() const {
    return {{n(), n(), pattern->csc().col_ptr, pattern->csc().row_idx}, values};
  }
  int64_t n() const { return pattern->n(); }
  int64_t nnz() const { return over != nullptr ? over->nnz() : pattern->nnz(); }
  int64_t bytes() const { return own_bytes() + pattern->bytes(); }
  int64_t own_bytes() const {  // without the pattern
    return static_cast<int64_t>(values.size() * sizeof(double) + sizeof(Matrix) + label.size());
  }

  // Returns HandleStore's key within a tenant, by XXH3 of the arrays by columns. Forged content may
  // have the same one: compare before sharing.
  std::string ContentKey() const { return ContentKey(pattern->digest(), value_digest, false); }
  // Returns that key for digests that a client sent, or, `by_rows`, that of arrays by rows.
  static std::string ContentKey(const Digest& pattern, const std::optional<Digest>& values,
                                bool by_rows);
  // Compares byte for byte. O(nnz).
  bool SameContent(const Matrix& other) const;

  // As those of the pattern. Values by rows come in the order of `places` (kernels::TurnedRows),
  // which is asked for where they are not known.
  const Sha256& values_sha256() const;
  const Sha256* known_values_sha256(bool by_rows = false) const {
    return (by_rows ? sha256_by_rows_ : sha256_).Known();
  }
  const Sha256& values_sha256_by_rows(std::span<const int32_t> places) const;
  // The same of arrays that lie over the ranks. `make`: brings them here, piece by piece
  // (EngineAdapter::HashOverRanks).
  struct OverSha256 {
    Sha256 pattern, values;
  };
  template <class Make>
  const OverSha256& over_sha256(bool by_rows, const Make& make) const {
    return (by_rows ? over_sha256_by_rows_ : over_sha256_).Get(make);
  }
  const OverSha256* known_over_sha256(bool by_rows) const {
    return (by_rows ? over_sha256_by_rows_ : over_sha256_).Known();
  }
  const Fingerprint& pattern_fingerprint() const { return pattern->fingerprint(); }
  const Fingerprint& value_fingerprint() const;

 private:
  Lazy<Sha256> sha256_, sha256_by_rows_;
  Lazy<OverSha256> over_sha256_, over_sha256_by_rows_;
  Lazy<Fingerprint> fingerprint_;
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
  // Takes O(nnz) time when it is first asked for, nothing afterwards.
  const Digest& pattern_digest() const;
  int64_t bytes() const {
    return kernel->host_bytes() +
           static_cast<int64_t>(sizeof(Preconditioner) + FirstCounts::kBytes);
  }

 private:
  Lazy<Digest> pattern_digest_;
};

using MatrixStore = HandleStore<Matrix>;
using PreconditionerStore = HandleStore<Preconditioner>;

// The error of whoever is asked for what ranks do not do with a matrix that lies there alone, or
// with an M that does. `why`: "... ; ...", with the cure. `what` lies there.
ErrorBuilder MatrixOverRanks(const std::string& why, std::string_view what = "matrix");

// Convert to the wire's messages, also what is in the spill folder alone. `findings`: with the
// sentences of the diagnosis (GetMatrix; lists leave them out).
v1::Matrix ToProto(const Stored<Matrix>& matrix, bool findings);
v1::Preconditioner ToProto(const Stored<Preconditioner>& preconditioner);

}  // namespace spaid::server
