// For codes that hold their matrices in Eigen 3.4: a preconditioner that Eigen's solvers take, and
// a solver in place of theirs.
//
//   spaid::Client client({.address = "127.0.0.1:7433"});
//   Eigen::ConjugateGradient<SpMat, Eigen::Lower | Eigen::Upper, spaid::eigen::Preconditioner<>>
//   cg; cg.preconditioner().setClient(client).setSpec({.engine = spaid::Engine::kFsai}); x =
//   cg.compute(a).solve(b);                       // M is made there, applied here
//
//   spaid::eigen::Solver<SpMat> solver;
//   solver.setClient(client).setTolerance(1e-10);
//   x = solver.compute(a).solve(b);                   // all columns of b, solved there
//   if (solver.info() != Eigen::Success) return Fail(solver.lastErrorMessage());
//
// Both take matrices by rows and by columns, with any integers for indices, compressed or not, of
// float or double. Without setClient they connect to $SPAID_ADDRESS, else 127.0.0.1:7433, with the
// token $SPAID_TOKEN. compute() and factorize() of a matrix on the pattern of the one before send
// its values alone. With a client that shares memory with its daemon (ClientOptions::local_socket),
// values, right-hand sides and solutions go that way. Nothing throws for what the daemon says:
// info() is Success, NoConvergence (iterations, stagnation, time, cancelled), NumericalIssue
// (breakdown, an indefinite matrix, numbers that are not finite; or the daemon was not reached or
// did not finish) or InvalidInput (refused), and lastErrorMessage() says why. Reasons of errors,
// besides those of spaid::Client: OTHER_PATTERN (factorize() of a matrix on another pattern than
// analyzePattern() had), NOT_COMPUTED (solve() before compute(), or after a setting that asks for
// it anew). An object serves one thread at a time.
#pragma once

#include <Eigen/IterativeLinearSolvers>
#include <Eigen/SparseCore>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "spaid/client.h"
#include "spaid/eigen_matrix.h"
#include "spaid/system.h"

namespace spaid::eigen {

// Applies an approximate inverse M that the daemon builds, by Eigen, on this host: for
// ConjugateGradient (Engine::kFsai, kAfsai), BiCGSTAB, GMRES and whatever takes a preconditioner by
// Eigen's concept. analyzePattern() sends the pattern; factorize() sends the values, has M built
// and fetches it; compute() does both, or the second alone where the pattern is the same. Where
// there is no M, because info() is not Success, solve() gives NaN. UpLo: the triangle of a
// symmetric A to be read, as for ConjugateGradient, whose default is Lower; by default all of A.
// Engine::kAmg, whose M is no matrix, is refused (PART_NEEDED): Solver takes it. StorageIndex: that
// of M here, which the count of its entries has to fit.
template <class Scalar_ = double, int UpLo = Eigen::Lower | Eigen::Upper, class StorageIndex_ = int>
class Preconditioner
    : public Eigen::SparseSolverBase<Preconditioner<Scalar_, UpLo, StorageIndex_>> {
  using Base = Eigen::SparseSolverBase<Preconditioner>;

 public:
  using Scalar = Scalar_;
  using RealScalar = Scalar_;
  using StorageIndex = StorageIndex_;
  using MMatrix = Eigen::SparseMatrix<Scalar, Eigen::RowMajor, StorageIndex>;
  enum { ColsAtCompileTime = Eigen::Dynamic, MaxColsAtCompileTime = Eigen::Dynamic };

  Preconditioner() { setSpec({.engine = Engine::kAuto}); }
  template <class Matrix>
  explicit Preconditioner(const Matrix& a) : Preconditioner() {
    compute(a);
  }

  // The client outlives this.
  Preconditioner& setClient(Client& client) { return held_.SetClient(client), *this; }
  // Connects by a client of its own.
  Preconditioner& setClientOptions(ClientOptions options) {
    return held_.SetClientOptions(std::move(options)), *this;
  }
  // Chooses the engine and its options; by default Engine::kAuto.
  Preconditioner& setSpec(PreconditionerSpec spec) {
    SolveOptions options;
    options.engine = spec.engine;
    options.spec = std::move(spec);
    return held_.SetOptions(std::move(options)), *this;
  }
  // Deadline, cancellation, progress and priority of the calls.
  Preconditioner& setCallOptions(CallOptions call) { return held_.call = std::move(call), *this; }

  Eigen::Index rows() const { return n_; }
  Eigen::Index cols() const { return n_; }

  template <class Matrix>
  Preconditioner& analyzePattern(const Matrix& a) {
    Begin(a);
    internal::WithStorage<Scalar, UpLo>(a, [&](const auto& stored) { Analyze(stored); });
    return *this;
  }
  template <class Matrix>
  Preconditioner& factorize(const Matrix& a) {
    Begin(a);
    internal::WithStorage<Scalar, UpLo>(a, [&](const auto& stored) { Factorize(stored); });
    return *this;
  }
  template <class Matrix>
  Preconditioner& compute(const Matrix& a) {
    Begin(a);
    internal::WithStorage<Scalar, UpLo>(a, [&](const auto& stored) {
      if (held_.HasPatternOf(stored) || Analyze(stored)) Factorize(stored);
    });
    return *this;
  }

  Eigen::ComputationInfo info() const { return info_; }
  // The last call's error, if it failed, and its text.
  const std::optional<Error>& lastError() const { return error_; }
  std::string lastErrorMessage() const { return error_ ? error_->message : std::string(); }
  // M, or G if M = GᵀG (isFactor).
  const MMatrix& matrix() const { return m_; }
  bool isFactor() const { return is_factor_; }
  // The last build: engine, why, quality, times and bytes. Its `m` is not there.
  const BuildResult& result() const { return built_; }

  using Base::_solve_impl;  // of sparse right-hand sides
  template <class Rhs, class Dest>
  void _solve_impl(const Rhs& b, Eigen::MatrixBase<Dest>& x) const {
    if (!has_m_) {
      x.setConstant(std::numeric_limits<Scalar>::quiet_NaN());
    } else if (is_factor_) {
      x.derived() = m_.transpose() * (m_ * b).eval();
    } else {
      x.derived() = m_ * b;
    }
  }

 private:
  template <class Matrix>
  void Begin(const Matrix& a) {
    this->m_isInitialized = true;
    n_ = a.cols();
    has_m_ = false;
    info_ = Eigen::Success;
    error_.reset();
  }
  // Returns true if there was no error.
  bool Note(std::optional<Error> error) {
    if (!error) return true;
    info_ = internal::InfoOf(*error);
    error_ = std::move(error);
    return false;
  }
  template <class Stored>
  bool Analyze(const Stored& a) {
    known_ = {};
    return Note(held_.Analyze(a));
  }
  template <class Stored>
  void Factorize(const Stored& a) {
    if (TraitsOf(held_.options().engine).by_parts) {
      Note(internal::InvalidArgument(
          "PART_NEEDED",
          "M of engine " + std::string(Name(held_.options().engine)) +
              " is a cycle that the daemon runs, and no matrix to be applied here; take "
              "spaid::eigen::Solver, which solves there",
          "engine"));
      return;
    }
    if (TraitsOf(held_.options().engine).ranks_alone) {
      Note(internal::InvalidArgument(
          "MATRIX_OVER_RANKS",
          "M of engine " + std::string(Name(held_.options().engine)) +
              " lies over the daemon's ranks, and is not sent; take spaid::eigen::Solver, which "
              "solves there",
          "engine"));
      return;
    }
    if (!Note(held_.TakeValues(a, /*may_borrow=*/true))) return;
    if (n_ == 0) {
      m_.resize(0, 0);
      has_m_ = true;
      return;
    }
    auto built =
        held_.system().Build(/*fetch_result=*/true, held_.call, known_.n > 0 ? &known_ : nullptr);
    if (!built.ok()) {
      Note(built.error());
      return;
    }
    built_ = *std::move(built);
    known_ = *std::exchange(built_.m, std::nullopt);
    has_m_ = Note(TakeM(known_));
    known_.values = {};  // of a known M the pattern serves
  }
  std::optional<Error> TakeM(const CscMatrix& m) {
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<StorageIndex>::max());
    if (std::max(m.row_idx.size(), m.col_ptr.size()) > kMost) {
      return internal::InvalidArgument(
          "SIZE_MISMATCH",
          "M has " + std::to_string(m.n) + " columns and " + std::to_string(m.row_idx.size()) +
              " entries, and its StorageIndex counts to " + std::to_string(kMost) +
              "; give Preconditioner a wider one, or choose a sparser M",
          "StorageIndex");
    }
    Eigen::SparseMatrix<double, Eigen::ColMajor, StorageIndex> by_columns(m.n, m.n);
    by_columns.resizeNonZeros(static_cast<Eigen::Index>(m.row_idx.size()));
    const auto narrow = [](auto from) { return static_cast<StorageIndex>(from); };
    std::transform(m.col_ptr.begin(), m.col_ptr.end(), by_columns.outerIndexPtr(), narrow);
    std::transform(m.row_idx.begin(), m.row_idx.end(), by_columns.innerIndexPtr(), narrow);
    std::copy(m.values.begin(), m.values.end(), by_columns.valuePtr());
    m_ = by_columns.template cast<Scalar>();
    is_factor_ = m.is_factor;
    return std::nullopt;
  }

  internal::HeldMatrix<Scalar> held_;
  Eigen::Index n_ = 0;
  MMatrix m_;  // by rows: products gather, by several threads where Eigen has them
  bool has_m_ = false, is_factor_ = false;
  CscMatrix known_;
  BuildResult built_;
  Eigen::ComputationInfo info_ = Eigen::Success;
  std::optional<Error> error_;
};

template <class MatrixType_, int UpLo = Eigen::Lower | Eigen::Upper>
class Solver;

}  // namespace spaid::eigen

namespace Eigen::internal {

template <class MatrixType_, int UpLo>
struct traits<spaid::eigen::Solver<MatrixType_, UpLo>> {
  typedef MatrixType_ MatrixType;
  typedef IdentityPreconditioner Preconditioner;
};

}  // namespace Eigen::internal

namespace spaid::eigen {

// Solves A X = B in the daemon, all columns of B in one call, from a guess or from zero: one of
// Eigen's iterative solvers to the eye. analyzePattern() sends the pattern; values travel with the
// next solve; compute() does both, or the second alone where the pattern is the same. As Eigen's
// solvers do, it refers to A until it is given another; call factorize() when values have changed.
// M of an earlier step serves as setReuse() says. Tolerance: |b - A x| / |b|, by default 1e-8, or
// the precision of float. iterations() and error() are those of the worst column; x is the best
// iterate of each, and the guess where there is an Error.
// UpLo: the triangle of a symmetric A to be read, by default all of A.
template <class MatrixType_, int UpLo>
class Solver : public Eigen::IterativeSolverBase<Solver<MatrixType_, UpLo>> {
  using Base = Eigen::IterativeSolverBase<Solver>;
  using Columns = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic>;

 public:
  using MatrixType = MatrixType_;
  using Scalar = typename MatrixType::Scalar;
  using RealScalar = typename MatrixType::RealScalar;

  Solver() { setOptions({}); }
  template <class Matrix>
  explicit Solver(const Eigen::EigenBase<Matrix>& a) : Solver() {
    compute(a.derived());
  }

  // The client outlives this.
  Solver& setClient(Client& client) { return held_.SetClient(client), *this; }
  // Connects by a client of its own.
  Solver& setClientOptions(ClientOptions options) {
    return held_.SetClientOptions(std::move(options)), *this;
  }
  // Chooses engine, method and their options. `rtol` and `max_iterations` replace those of
  // setTolerance and setMaxIterations; `preconditioner`, `initial_guess` and `solution` are not
  // read.
  Solver& setOptions(SolveOptions options) {
    this->m_tolerance =
        std::max(static_cast<RealScalar>(options.rtol), std::numeric_limits<RealScalar>::epsilon());
    this->m_maxIterations = static_cast<Eigen::Index>(options.max_iterations);
    return held_.SetOptions(std::move(options)), *this;
  }
  // Chooses what becomes of M when values change, where an engine is named; by default
  // ReuseMode::kAuto.
  Solver& setReuse(ReusePolicy reuse) { return held_.SetReuse(reuse), *this; }
  // Deadline, cancellation, progress and priority of the calls.
  Solver& setCallOptions(CallOptions call) { return held_.call = std::move(call), *this; }

  template <class Matrix>
  Solver& analyzePattern(const Eigen::EigenBase<Matrix>& a) {
    Base::analyzePattern(a);
    Begin();
    internal::WithStorage<Scalar, UpLo>(Base::matrix(),
                                        [&](const auto& stored) { Analyze(stored); });
    return *this;
  }
  template <class Matrix>
  Solver& factorize(const Eigen::EigenBase<Matrix>& a) {
    Base::factorize(a);
    Begin();
    internal::WithStorage<Scalar, UpLo>(Base::matrix(),
                                        [&](const auto& stored) { TakeValues(stored); });
    return *this;
  }
  template <class Matrix>
  Solver& compute(const Eigen::EigenBase<Matrix>& a) {
    Base::compute(a);
    Begin();
    internal::WithStorage<Scalar, UpLo>(Base::matrix(), [&](const auto& stored) {
      if (held_.HasPatternOf(stored) || Analyze(stored)) TakeValues(stored);
    });
    return *this;
  }

  // The last call's error, if there was one. None where a solve ended without convergence.
  const std::optional<Error>& lastError() const { return error_; }
  // Says why info() is not Success.
  std::string lastErrorMessage() const { return error_ ? error_->message : unsolved_; }
  // The last solve: outcome and history of each column, engine, method and why, times and bytes.
  // Its `x` is empty.
  const SolveResult& result() const { return solved_; }

  template <class Rhs, class Dest>
  void _solve_with_guess_impl(const Rhs& b, Eigen::MatrixBase<Dest>& x) const {
    SolveColumns(b, x.derived());
  }
  template <class Rhs, class Dest>
  void _solve_with_guess_impl(const Rhs& b, Eigen::SparseMatrixBase<Dest>& x) const {
    using Dense = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;
    Dense dense(x.derived());
    SolveColumns(Dense(b), dense);
    x.derived() = dense.sparseView();
  }

 private:
  void Begin() const {
    this->m_info = Eigen::Success;
    error_.reset();
    unsolved_.clear();
  }
  // Returns true if there was no error.
  bool Note(std::optional<Error> error) const {
    if (!error) return true;
    this->m_info = internal::InfoOf(*error);
    error_ = std::move(error);
    return false;
  }
  template <class Stored>
  bool Analyze(const Stored& a) {
    return Note(held_.Analyze(a));
  }
  template <class Stored>
  void TakeValues(const Stored& a) {
    constexpr bool kOfThis =
        UpLo == (Eigen::Lower | Eigen::Upper);  // a whole copy does not live on
    Note(held_.TakeValues(a, /*may_borrow=*/kOfThis));
  }

  template <class Rhs, class Dest>
  void SolveColumns(const Rhs& b, Dest& x) const {
    eigen_assert(this->m_factorizationIsOk && "call compute() or factorize() first");
    this->m_iterations = 0;
    this->m_error = 0;
    if (error_ && !held_.has_values()) return;  // compute() failed: info() and the error are its
    Begin();
    if (!held_.has_values()) return (void)Note(internal::NotComputed());
    if (held_.n() == 0 || b.cols() == 0) return;
    auto rhs = held_.Room(held_.rhs, b.cols()), solution = held_.Room(held_.solution, b.cols());
    const bool has_guess = (x.array() != Scalar(0)).any();
    auto guess = held_.Room(held_.guess, has_guess ? b.cols() : 0);
    for (const auto* room : {&rhs, &solution, &guess}) {
      if (!room->ok()) return (void)Note(room->error());
    }
    const auto columns = [&](std::span<double> room) {
      return Eigen::Map<Columns>(room.data(), b.rows(), b.cols());
    };
    columns(*rhs) = b.template cast<double>();
    if (has_guess) columns(*guess) = x.template cast<double>();

    SolveOptions options = held_.options();
    options.rtol = static_cast<double>(this->m_tolerance);
    options.max_iterations = this->m_maxIterations;
    options.solution = *solution;
    held_.system().SetOptions(std::move(options), held_.reuse());
    auto solved = held_.system().Solve(*rhs, *guess, held_.call);
    if (!solved.ok()) return (void)Note(solved.error());
    solved_ = *std::move(solved);
    x = columns(*solution).template cast<Scalar>();
    for (size_t k = 0; k < solved_.rhs.size(); ++k) TakeOutcome(k);
  }
  void TakeOutcome(size_t k) const {
    const auto& rhs = solved_.rhs[k];
    this->m_iterations = std::max<Eigen::Index>(this->m_iterations, rhs.iterations);
    this->m_error = std::max(this->m_error, static_cast<RealScalar>(rhs.true_relative_residual));
    const Eigen::ComputationInfo info = internal::InfoOf(rhs.outcome);
    if (info == Eigen::Success || this->m_info == Eigen::NumericalIssue) return;
    if (this->m_info == info) return;  // said already, of an earlier column
    this->m_info = info;
    unsolved_ = "column " + std::to_string(k) + ": " + std::string(Name(rhs.outcome)) + " after " +
                std::to_string(rhs.iterations) + " iterations";
    if (!rhs.detail.empty()) unsolved_ += ": " + rhs.detail;
  }

  mutable internal::HeldMatrix<Scalar> held_;
  mutable SolveResult solved_;
  mutable std::optional<Error> error_;
  mutable std::string unsolved_;
};

}  // namespace spaid::eigen
