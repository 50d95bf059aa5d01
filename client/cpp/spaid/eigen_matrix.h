// A matrix of Eigen's as the daemon holds it: what spaid/eigen.h is made of. Not for programs.
#pragma once

#include <Eigen/SparseCore>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "spaid/system.h"

namespace spaid::eigen {

namespace internal {

inline Error InvalidArgument(const char* reason, std::string message, const char* field) {
  return {.code = Code::kInvalidArgument,
          .reason = reason,
          .message = std::move(message),
          .field = field,
          .retry_after = {},
          .metadata = {}};
}

inline Error NotComputed() {
  return {.code = Code::kFailedPrecondition,
          .reason = "NOT_COMPUTED",
          .message =
              "there is no matrix to solve with; call compute() after the client and its "
              "options are set",
          .field = {},
          .retry_after = {},
          .metadata = {}};
}

// Refused, or not reached and not finished: then nothing need be wrong with the input.
inline Eigen::ComputationInfo InfoOf(const Error& error) {
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kPermissionDenied:
    case Code::kResourceExhausted:
    case Code::kFailedPrecondition:
    case Code::kOutOfRange:
    case Code::kUnimplemented:
    case Code::kUnauthenticated:
      return Eigen::InvalidInput;
    default:
      return Eigen::NumericalIssue;
  }
}

inline Eigen::ComputationInfo InfoOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kConverged:
      return Eigen::Success;
    case Outcome::kBreakdown:
    case Outcome::kIndefinite:
    case Outcome::kNonFinite:
      return Eigen::NumericalIssue;
    default:
      return Eigen::NoConvergence;
  }
}

// Connects as spaidctl does where no flag says otherwise.
inline ClientOptions ClientOptionsOfEnvironment() {
  ClientOptions options;
  if (const char* address = std::getenv("SPAID_ADDRESS")) options.address = address;
  if (const char* token = std::getenv("SPAID_TOKEN")) options.token = token;
  return options;
}

// Calls run(a) with a matrix of Eigen's compressed or uncompressed storage, which is `a` itself
// where it has that, and all of A where only the triangle `kUpLo` is to be read.
template <class Scalar, int kUpLo, class Matrix, class Run>
void WithStorage(const Matrix& a, Run run) {
  static_assert(std::is_same_v<typename Matrix::Scalar, Scalar>,
                "the matrix and its preconditioner have different scalars");
  using Stored = Eigen::SparseMatrix<Scalar, Matrix::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor,
                                     typename Matrix::StorageIndex>;
  if constexpr (kUpLo == (Eigen::Lower | Eigen::Upper)) {
    const Eigen::Ref<const Stored> stored(a);
    run(stored);
  } else {
    const Stored whole = a.template selfadjointView<kUpLo>();
    run(whole);
  }
}

// A pattern in the widths of the wire.
struct Pattern {
  int64_t n = 0;
  bool by_rows = false;
  std::vector<int64_t> pointers{0};
  std::vector<int32_t> indices;
};

// Calls take(begin, end) with the places of each column's entries, or row's, until it returns
// false.
template <class Matrix, class Take>
bool EachRange(const Matrix& a, Take take) {
  const auto* const begin = a.outerIndexPtr();
  const auto* const counts = a.innerNonZeroPtr();  // null: compressed
  for (Eigen::Index j = 0; j < a.outerSize(); ++j) {
    const auto first = static_cast<std::ptrdiff_t>(begin[j]);
    const auto count = static_cast<std::ptrdiff_t>(counts ? counts[j] : begin[j + 1] - begin[j]);
    if (!take(first, first + count)) return false;
  }
  return true;
}

template <class Matrix>
Pattern PatternOf(const Matrix& a) {
  Pattern pattern;
  pattern.n = a.outerSize();
  pattern.by_rows = Matrix::IsRowMajor;
  pattern.pointers.reserve(static_cast<size_t>(pattern.n) + 1);
  pattern.indices.reserve(static_cast<size_t>(a.nonZeros()));
  EachRange(a, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
    const auto* const indices = a.innerIndexPtr();
    pattern.indices.insert(pattern.indices.end(), indices + first, indices + end);
    pattern.pointers.push_back(static_cast<int64_t>(pattern.indices.size()));
    return true;
  });
  return pattern;
}

template <class Matrix>
bool HasPattern(const Matrix& a, const Pattern& pattern) {
  if (a.outerSize() != pattern.n || a.innerSize() != pattern.n ||
      bool{Matrix::IsRowMajor} != pattern.by_rows) {
    return false;
  }
  const int64_t* pointer = pattern.pointers.data();
  return EachRange(a, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
    const int64_t before = *pointer++;
    const auto* const indices = a.innerIndexPtr();
    return end - first == *pointer - before &&
           std::equal(indices + first, indices + end, pattern.indices.data() + before);
  });
}

// Memory for an array of a call, kept from call to call: shared with the daemon, or not.
template <class T>
class Buffer {
 public:
  // Returns room for n elements, which hold anything. Errors: OUT_OF_MEMORY, of shared memory.
  Expected<std::span<T>> Room(Client& client, bool shared, size_t n) {
    if (!shared) {
      own_.resize(n);
      return std::span<T>(own_);
    }
    if (shared_.size() < n) {
      auto memory = client.Allocate<T>(static_cast<int64_t>(n));
      if (!memory.ok()) return memory.error();
      shared_ = *std::move(memory);
    }
    return shared_.span().first(n);
  }

 private:
  std::vector<T> own_;
  SharedArray<T> shared_;
};

// A matrix of Eigen's as the daemon holds it, and the connection to the daemon. Not thread-safe.
template <class Scalar>
class HeldMatrix {
  static_assert(!Eigen::NumTraits<Scalar>::IsComplex,
                "spaid has real matrices only: write a complex A = B + iC as [B -C; C B]");
  static_assert(std::is_same_v<Scalar, double> || std::is_same_v<Scalar, float>,
                "spaid has matrices of double and float");

 public:
  // Each makes the next call begin with analyzePattern().
  void SetClient(Client& client) {
    Disconnect();
    client_ = &client;
  }
  void SetClientOptions(ClientOptions options) {
    Disconnect();
    owned_ = std::make_unique<Client>(std::move(options));
    client_ = owned_.get();
  }
  void SetOptions(SolveOptions options) {
    Drop();
    options_ = std::move(options);
  }
  void SetReuse(ReusePolicy reuse) {
    Drop();
    reuse_ = reuse;
  }
  const SolveOptions& options() const { return options_; }
  const ReusePolicy& reuse() const { return reuse_; }

  template <class Matrix>
  bool HasPatternOf(const Matrix& a) const {
    return analyzed_ && HasPattern(a, pattern_);
  }

  // Has the daemon hold the pattern of `a`.
  template <class Matrix>
  std::optional<Error> Analyze(const Matrix& a) {
    Drop();
    if (a.rows() != a.cols()) {
      return InvalidArgument("SIZE_MISMATCH",
                             "A is " + std::to_string(a.rows()) + " x " + std::to_string(a.cols()) +
                                 "; only a square system can be solved",
                             "n");
    }
    pattern_ = PatternOf(a);
    if (pattern_.n > 0) {
      if (client_ == nullptr) SetClientOptions(ClientOptionsOfEnvironment());
      shared_ = client_->GetLocalStatus().available;
      const CscView view{.n = pattern_.n,
                         .col_ptr = pattern_.pointers,
                         .row_idx = pattern_.indices,
                         .by_rows = pattern_.by_rows};
      system_.emplace(*client_, view, options_, reuse_);
      if (auto error = system_->UploadPattern(call)) return error;
    }
    analyzed_ = true;
    return std::nullopt;
  }

  // Takes the values, which go up with the next call. Borrows them where they lie in one piece and
  // `may_borrow`.
  template <class Matrix>
  std::optional<Error> TakeValues(const Matrix& a, bool may_borrow) {
    has_values_ = false;
    if (!HasPatternOf(a)) {
      return InvalidArgument(
          "OTHER_PATTERN",
          "A has not the pattern that analyzePattern() had, or the client or its "
          "options were set since; call compute(), or analyzePattern() again",
          "A");
    }
    if (pattern_.n > 0) {
      if (auto error = SetValues(a, may_borrow)) return error;
    }
    has_values_ = true;
    return std::nullopt;
  }
  // Returns true if TakeValues went well, and nothing was set since.
  bool has_values() const { return has_values_; }

  int64_t n() const { return pattern_.n; }
  System& system() { return *system_; }  // where n() > 0 and Analyze went well
  // Room for n() * columns numbers in one of the buffers below.
  Expected<std::span<double>> Room(Buffer<double>& buffer, Eigen::Index columns) {
    return buffer.Room(*client_, shared_, static_cast<size_t>(pattern_.n * columns));
  }

  Buffer<double> rhs, solution, guess;
  CallOptions call;

 private:
  template <class Matrix>
  std::optional<Error> SetValues(const Matrix& a, bool may_borrow) {
    const bool in_one_piece = a.innerNonZeroPtr() == nullptr && a.outerIndexPtr()[0] == 0;
    if (in_one_piece && may_borrow && !shared_) {
      return system_->SetValues(std::span<const Scalar>(a.valuePtr(), pattern_.indices.size()));
    }
    auto room = values_.Room(*client_, shared_, pattern_.indices.size());
    if (!room.ok()) return room.error();
    Scalar* to = room->data();
    EachRange(a, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
      to = std::copy(a.valuePtr() + first, a.valuePtr() + end, to);
      return true;
    });
    return system_->SetValues(std::span<const Scalar>(*room));
  }
  // Memory that is shared is so with one client's daemon.
  void Disconnect() {
    Drop();
    owned_.reset();
    values_ = {};
    rhs = {};
    solution = {};
    guess = {};
  }
  void Drop() {
    system_.reset();
    analyzed_ = has_values_ = false;
  }

  std::unique_ptr<Client> owned_;
  Client* client_ = nullptr;
  SolveOptions options_;
  ReusePolicy reuse_{.mode = ReuseMode::kAuto};
  Pattern pattern_;
  bool analyzed_ = false, has_values_ = false, shared_ = false;
  Buffer<Scalar> values_;
  std::optional<System> system_;
};

}  // namespace internal

}  // namespace spaid::eigen
