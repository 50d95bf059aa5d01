// Types that calls of the client take and give: matrices, options, and results with their figures.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "spaid/enums.h"

namespace spaid {

// Canonical gRPC codes.
enum class Code {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// Describes why a call failed.
struct Error {
  Code code = Code::kUnknown;
  std::string reason;   // UPPER_SNAKE, stable: "INDEX_OUT_OF_RANGE"; empty if the server gave none
  std::string message;  // for people: what, where, the cure
  std::string field;    // the field at fault, where one is
  std::optional<std::chrono::milliseconds> retry_after;
  std::vector<std::pair<std::string, std::string>> metadata;  // "index", "limit", "actual", …
};

// Holds a value or an Error. Taking the value if it is not ok(), or the error if it is, throws
// std::bad_variant_access.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::move(value)) {}      // NOLINT
  Expected(Error error) : state_(std::move(error)) {}  // NOLINT
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// A square matrix, borrowed: column pointers (n + 1), 0-based row indices (nnz), values (nnz).
// Values may be fp64 or fp32 (set one), or neither: a pattern. With `by_rows` the same arrays are
// CSR.
struct CscView {
  int64_t n = 0;
  std::span<const int64_t> col_ptr = {};
  std::span<const int32_t> row_idx = {};
  std::span<const double> values = {};
  std::span<const float> values_f32 = {};
  bool by_rows = false;
  bool sort_and_sum = false;                 // let the server sort indices and sum duplicates
  std::span<const int32_t> col_ptr_32 = {};  // in place of col_ptr, from codes that have these
};

// A matrix in CSC, owned.
struct CscMatrix {
  int64_t n = 0;
  std::vector<int64_t> col_ptr = {};
  std::vector<int32_t> row_idx = {};
  std::vector<double> values = {};
  bool is_factor = false;  // a preconditioner's G, lower triangular, with M = GᵀG
  int64_t rows = 0;        // of a Part that is not square; else 0: n
  operator CscView() const {
    return {.n = n, .col_ptr = col_ptr, .row_idx = row_idx, .values = values};
  }
};

// Structs that have `Fields` list their members for whoever shows or copies all of them: it calls
// visit(name, member) for each, by its name on the wire, which is that in spaidctl's JSON, too.
namespace internal {
template <class Visit, class Member, class... Rest>
void Each(Visit& visit, const char* name, Member& member, Rest&&... rest) {
  visit(name, member);
  if constexpr (sizeof...(rest) > 0) Each(visit, rest...);
}
}  // namespace internal

// How often something is there, and the first index (0-based; -1: nowhere).
struct Occurrence {
  int64_t count = 0, first = -1;
};

// See Diagnosis in proto/spaid/v1/matrix.proto; field for field.
struct Diagnosis {
  int64_t explicit_zeros = 0;
  bool structurally_symmetric = false, numerically_symmetric = false;
  int64_t asymmetry_row = -1, asymmetry_column = -1;
  double max_asymmetry = 0;
  Occurrence missing_diagonal, zero_diagonal, negative_diagonal, empty_rows, empty_columns;
  int64_t structural_rank = -1;
  Occurrence not_dominant_rows, zero_sum_rows;
  bool constants_in_null_space = false;
  Occurrence zero_sum_columns;
  bool constants_in_left_null_space = false;
  Occurrence dense_rows, dense_columns;
  int64_t max_row_entries = 0, max_column_entries = 0;
  double min_abs_value = 0, max_abs_value = 0;
  std::vector<std::string> findings;
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(
        visit, "explicit_zeros", self.explicit_zeros, "structurally_symmetric",
        self.structurally_symmetric, "numerically_symmetric", self.numerically_symmetric,
        "asymmetry_row", self.asymmetry_row, "asymmetry_column", self.asymmetry_column,
        "max_asymmetry", self.max_asymmetry, "missing_diagonal", self.missing_diagonal,
        "zero_diagonal", self.zero_diagonal, "negative_diagonal", self.negative_diagonal,
        "empty_rows", self.empty_rows, "empty_columns", self.empty_columns, "structural_rank",
        self.structural_rank, "not_dominant_rows", self.not_dominant_rows, "zero_sum_rows",
        self.zero_sum_rows, "constants_in_null_space", self.constants_in_null_space,
        "zero_sum_columns", self.zero_sum_columns, "constants_in_left_null_space",
        self.constants_in_left_null_space, "dense_rows", self.dense_rows, "dense_columns",
        self.dense_columns, "max_row_entries", self.max_row_entries, "max_column_entries",
        self.max_column_entries, "min_abs_value", self.min_abs_value, "max_abs_value",
        self.max_abs_value, "findings", self.findings);
  }
};

struct MatrixInfo {
  std::string name;  // handle
  std::string label;
  int64_t n = 0, nnz = 0, host_bytes = 0;
  bool pattern_only = false;
  std::string pattern_digest, value_digest;  // hex
  std::chrono::system_clock::time_point created;
  Diagnosis diagnosis;
};

// Times in milliseconds by the server's clock, and bytes of arrays. `rebuild`: the plan was reused
// for new values; `reused`: the result existed already.
struct Timings {
  double upload_ms = 0, queue_ms = 0, plan_ms = 0, build_ms = 0, solve_ms = 0, download_ms = 0,
         total_ms = 0;
  int64_t bytes_up = 0, bytes_down = 0;
  bool rebuild = false, reused = false;
  // Copies to a GPU and back (for a solve also laying out A and M there, if they were not yet), and
  // making M ready for products; not part of plan_ms and build_ms.
  double host_to_device_ms = 0, device_to_host_ms = 0, assemble_ms = 0;
  double setup_ms() const {
    return host_to_device_ms + plan_ms + build_ms + assemble_ms + device_to_host_ms;
  }
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "upload_ms", self.upload_ms, "queue_ms", self.queue_ms, "plan_ms",
                   self.plan_ms, "build_ms", self.build_ms, "solve_ms", self.solve_ms,
                   "download_ms", self.download_ms, "total_ms", self.total_ms, "bytes_up",
                   self.bytes_up, "bytes_down", self.bytes_down, "rebuild", self.rebuild, "reused",
                   self.reused, "host_to_device_ms", self.host_to_device_ms, "device_to_host_ms",
                   self.device_to_host_ms, "assemble_ms", self.assemble_ms);
  }
};

// Options of kFsai and kAfsai, beside pattern_matrix and post_filter. See FsaiSpec in
// proto/spaid/v1/preconditioner_spec.proto.
struct FsaiSpec {
  // kAfsai: at most k_max steps of growth per row, of step_size entries, until psi <= epsilon a_ii.
  int k_max = 30, step_size = 1;
  double epsilon = 1e-3;
  double min_gain = 0;  // kAfsai: a step that lowers psi by less than this share of it is the last
  std::optional<std::chrono::nanoseconds> time_budget = {};  // for growth
  double drop_tol = 0;  // kFsai: smaller entries of A do not count for the pattern
  Precision precision = Precision::kFp64;  // set-up arithmetic; kAuto: the server's, which is fp64
  double symmetry_tolerance = 1e-10;
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "k_max", self.k_max, "step_size", self.step_size, "epsilon", self.epsilon,
                   "min_gain", self.min_gain, "time_budget", self.time_budget, "drop_tol",
                   self.drop_tol, "precision", self.precision, "symmetry_tolerance",
                   self.symmetry_tolerance);
  }
};

// Options of kDynamicSpai, beside pattern_matrix, post_filter and local_solver. See DynamicSpaiSpec
// in proto/spaid/v1/preconditioner_spec.proto.
struct DynamicSpaiSpec {
  double tol = 0.3;                   // a column ends when ‖A m_k − e_k‖₂ <= tol
  int max_steps = 10, step_size = 5;  // steps of growth, and entries that each adds
  int max_column_nnz = 0;             // limit of growth per column; 0: what the steps add
  Precision growth_precision = Precision::kFp64;  // values are fp64; kAuto: the server's, fp64
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "tol", self.tol, "max_steps", self.max_steps, "step_size", self.step_size,
                   "max_column_nnz", self.max_column_nnz, "growth_precision",
                   self.growth_precision);
  }
};

// Options of kAmg. See AmgSpec in proto/spaid/v1/preconditioner_spec.proto.
struct AmgSpec {
  Coarsening coarsening = Coarsening::kSmoothedAggregation;
  double strength_threshold = 0.15;
  int node_size = 0;  // unknowns of a node, consecutive; 0: found by the pattern
  // Handles of Client::UploadVectors: vectors that A nearly maps to zero, or the nodes'
  // coordinates.
  std::string near_null_space = {}, coordinates = {};
  Smoother smoother = Smoother::kAuto;
  int pre_sweeps = 1, post_sweeps = 1;
  int chebyshev_degree = 2;
  Cycle cycle = Cycle::kV;
  int max_levels = 20, max_coarse_size = 500;
  double max_growth = 0.7, max_operator_complexity = 3;
  Precision hierarchy_precision = Precision::kAuto;
  // Growth of the rows of G of Smoother::kAfsai, as in FsaiSpec.
  int k_max = 3, step_size = 2;
  double epsilon = 1e-3;
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "coarsening", self.coarsening, "strength_threshold",
                   self.strength_threshold, "node_size", self.node_size, "near_null_space",
                   self.near_null_space, "coordinates", self.coordinates, "smoother", self.smoother,
                   "pre_sweeps", self.pre_sweeps, "post_sweeps", self.post_sweeps,
                   "chebyshev_degree", self.chebyshev_degree, "cycle", self.cycle, "max_levels",
                   self.max_levels, "max_coarse_size", self.max_coarse_size, "max_growth",
                   self.max_growth, "max_operator_complexity", self.max_operator_complexity,
                   "hierarchy_precision", self.hierarchy_precision, "k_max", self.k_max,
                   "step_size", self.step_size, "epsilon", self.epsilon);
  }
};

// Options of kParasails, kBoomeramg and kGamg. See PetscSpec in
// proto/spaid/v1/preconditioner_spec.proto.
struct PetscSpec {
  int levels = 1;  // kParasails, with the next three
  double threshold = 0.1, filter = 0.1;
  ParasailsSymmetry symmetry = ParasailsSymmetry::kAuto;
  double strong_threshold = 0.25;  // kBoomeramg, with the next five
  BoomeramgCoarsening coarsening = BoomeramgCoarsening::kHmis;
  BoomeramgInterpolation interpolation = BoomeramgInterpolation::kExtended;
  int interpolation_entries = 4, aggressive_levels = 0, max_levels = 25;
  double drop_threshold = 0;  // kGamg, with the next two
  int smooths = 1;
  std::string near_null_space = {};  // a handle of Client::UploadVectors
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "levels", self.levels, "threshold", self.threshold, "filter", self.filter,
                   "symmetry", self.symmetry, "strong_threshold", self.strong_threshold,
                   "coarsening", self.coarsening, "interpolation", self.interpolation,
                   "interpolation_entries", self.interpolation_entries, "aggressive_levels",
                   self.aggressive_levels, "max_levels", self.max_levels, "drop_threshold",
                   self.drop_threshold, "smooths", self.smooths, "near_null_space",
                   self.near_null_space);
  }
};

struct PreconditionerSpec {
  Engine engine = Engine::kStaticSpai;
  int pattern_power = 1;                // kStaticSpai, kFsai: p of (E + |base|)^p
  std::optional<double> keep_tau = {};  // threshold pattern
  // Handle of an uploaded pattern: that of M, that of G (its lower triangle), or where they grow
  // from.
  std::string pattern_matrix = {};
  bool ensure_row = false, row_match = false;
  double post_filter = 0;
  LocalSolver local_solver = LocalSolver::kAuto;
  ThreadStrategy thread_strategy = ThreadStrategy::kAuto;
  int block_size = 1;              // kJacobi: rows of the diagonal blocks that M inverts, 1 to 32
  Learned learned = Learned::kOn;  // kAuto
  std::optional<Scaling> scaling = {};  // none: kNone, for kAuto kAuto
  // Keep no factors of a scaling, no pattern that grew, and no aggregates of an earlier build with
  // other values.
  bool regrow = false;
  FsaiSpec fsai = {};
  DynamicSpaiSpec dynamic_spai = {};
  AmgSpec amg = {};
  PetscSpec petsc = {};
  // But for `engine`. Those of fsai, dynamic_spai, amg and petsc by themselves.
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "pattern_power", self.pattern_power, "keep_tau", self.keep_tau,
                   "pattern_matrix", self.pattern_matrix, "ensure_row", self.ensure_row,
                   "row_match", self.row_match, "post_filter", self.post_filter, "local_solver",
                   self.local_solver, "thread_strategy", self.thread_strategy, "block_size",
                   self.block_size, "learned", self.learned, "scaling", self.scaling, "regrow",
                   self.regrow, "fsai", self.fsai, "dynamic_spai", self.dynamic_spai, "amg",
                   self.amg, "petsc", self.petsc);
  }
};

// See FsaiQuality in proto/spaid/v1/preconditioner_spec.proto; field for field.
struct FsaiQuality {
  double kaporin = 1;
  std::vector<double> kaporin_by_step;
  int64_t converged_rows = 0, nnz_row_max = 0, slow_rows = 0;
  int64_t copied_rows = 0;  // equal to other rows bit for bit
  Occurrence not_spd_rows, not_converged_rows;
  int steps = 0;
  bool out_of_time = false, pattern_reused = false;
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "kaporin", self.kaporin, "kaporin_by_step", self.kaporin_by_step,
                   "converged_rows", self.converged_rows, "nnz_row_max", self.nnz_row_max,
                   "slow_rows", self.slow_rows, "copied_rows", self.copied_rows, "not_spd_rows",
                   self.not_spd_rows, "not_converged_rows", self.not_converged_rows, "steps",
                   self.steps, "out_of_time", self.out_of_time, "pattern_reused",
                   self.pattern_reused);
  }
};

// See DynamicSpaiQuality in proto/spaid/v1/preconditioner_spec.proto; field for field.
struct DynamicSpaiQuality {
  int64_t converged_columns = 0;
  std::vector<double> residual_by_step;
  int64_t nnz_column_max = 0, copied_columns = 0, slow_columns = 0;
  Occurrence dependent_columns;
  int64_t gram_nnz = 0;
  bool pattern_reused = false;
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "converged_columns", self.converged_columns, "residual_by_step",
                   self.residual_by_step, "nnz_column_max", self.nnz_column_max, "copied_columns",
                   self.copied_columns, "slow_columns", self.slow_columns, "dependent_columns",
                   self.dependent_columns, "gram_nnz", self.gram_nnz, "pattern_reused",
                   self.pattern_reused);
  }
};

// See AmgQuality in proto/spaid/v1/preconditioner_spec.proto; field for field.
struct AmgQuality {
  struct Level {
    int64_t rows = 0, nnz = 0, aggregates = 0, isolated = 0;
    bool guarded = false;  // P is not smoothed, for the next level would have grown
    double rho = 0;
    int64_t nnz_p = 0, nnz_smoother = 0;
    bool boxes = false;  // aggregates are boxes of a grid
    template <class Self, class Visit>
    static void Fields(Self& self, Visit&& visit) {
      internal::Each(visit, "rows", self.rows, "nnz", self.nnz, "aggregates", self.aggregates,
                     "isolated", self.isolated, "guarded", self.guarded, "rho", self.rho, "nnz_p",
                     self.nnz_p, "nnz_smoother", self.nnz_smoother, "boxes", self.boxes);
    }
  };
  std::vector<Level> levels;               // that of A first
  Smoother smoother = Smoother::kAuto;     // never that
  Precision precision = Precision::kAuto;  // never that
  int node_size = 1;
  double operator_complexity = 1, grid_complexity = 1;  // entries, and rows, of all levels over A's
  double near_null_rayleigh = 0, beta = 0;
  int64_t singular_coarse_pivots = 0;
  bool inverted = false;        // the last level; else it is smoothed
  bool pattern_reused = false;  // aggregates of earlier values
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "levels", self.levels, "smoother", self.smoother, "precision",
                   self.precision, "node_size", self.node_size, "operator_complexity",
                   self.operator_complexity, "grid_complexity", self.grid_complexity,
                   "near_null_rayleigh", self.near_null_rayleigh, "beta", self.beta,
                   "singular_coarse_pivots", self.singular_coarse_pivots, "inverted", self.inverted,
                   "pattern_reused", self.pattern_reused);
  }
};

// See PetscQuality in proto/spaid/v1/preconditioner_spec.proto; field for field.
struct PetscQuality {
  int levels = 0;                                       // of kGamg; 0: PETSc does not tell
  double operator_complexity = 0, grid_complexity = 0;  // entries, and rows, of all over A's
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "levels", self.levels, "operator_complexity", self.operator_complexity,
                   "grid_complexity", self.grid_complexity);
  }
};

struct Quality {
  double residual_frobenius = 0;
  std::vector<double> residual_quantiles;  // at 0, 10, 25, 50, 75, 90, 99, 100 %
  int64_t worst_column = -1;
  double density = 0;
  int64_t gram_columns = 0, qr_columns = 0;
  Occurrence iterative_columns;      // too large for a dense factor: solved by CGLS
  Occurrence not_converged_columns;  // the part of these stopped at the iteration limit
  Occurrence rescued_columns, rank_deficient_columns, zero_columns, non_finite_columns;
  double min_scaled_pivot = 0;
  ThreadStrategy thread_strategy = ThreadStrategy::kAuto;  // kAuto: no GPU solved by QR
  Scaling scaling = Scaling::kNone;  // kEquilibrate, kMatching: what A was scaled by before
  bool scaling_reused = false;       // its factors were found for earlier values
  std::optional<FsaiQuality> fsai;   // if M = GᵀG, which has no measured residuals
  std::optional<DynamicSpaiQuality> dynamic_spai;  // kDynamicSpai: how its pattern grew
  std::optional<AmgQuality>
      amg;  // kAmg, which has no measured residuals; density: of all its parts
  std::optional<PetscQuality> petsc;  // kParasails, kBoomeramg, kGamg: the same
  std::vector<std::string> warnings;
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "residual_frobenius", self.residual_frobenius, "residual_quantiles",
                   self.residual_quantiles, "worst_column", self.worst_column, "density",
                   self.density, "gram_columns", self.gram_columns, "qr_columns", self.qr_columns,
                   "iterative_columns", self.iterative_columns, "not_converged_columns",
                   self.not_converged_columns, "rescued_columns", self.rescued_columns,
                   "rank_deficient_columns", self.rank_deficient_columns, "zero_columns",
                   self.zero_columns, "non_finite_columns", self.non_finite_columns,
                   "min_scaled_pivot", self.min_scaled_pivot, "thread_strategy",
                   self.thread_strategy, "scaling", self.scaling, "scaling_reused",
                   self.scaling_reused, "fsai", self.fsai, "dynamic_spai", self.dynamic_spai, "amg",
                   self.amg, "petsc", self.petsc, "warnings", self.warnings);
  }
  bool measured() const { return !fsai && !amg && !petsc; }  // residual_frobenius is there
};

// One of the matrices that M of kAmg consists of. See Part in proto/spaid/v1/preconditioner.proto.
struct Part {
  int level = 0;  // 0: A's
  PartKind kind = PartKind::kA;
  int64_t rows = 0, columns = 0, nnz = 0;
  // How a smoother is applied.
  Smoother smoother = Smoother::kAuto;
  double rho = 0, omega = 0;
  std::vector<double> coefficients = {};
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "level", self.level, "kind", self.kind, "rows", self.rows, "columns",
                   self.columns, "nnz", self.nnz, "smoother", self.smoother, "rho", self.rho,
                   "omega", self.omega, "coefficients", self.coefficients);
  }
};

struct PreconditionerInfo {
  std::string name, matrix;
  PreconditionerSpec spec;    // resolved
  std::string choice_reason;  // why AUTO chose it; empty if it was named
  std::string placement;      // why on this device; empty if there is only one
  int64_t n = 0, nnz = 0, host_bytes = 0;
  bool is_factor = false;  // M = GᵀG; nnz is that of G
  // Bytes of its copy on `device`, kept for solves, and of the plan that it keeps; 0: none.
  int64_t device_bytes = 0;
  Quality quality;
  Timings build_timings;
  std::chrono::system_clock::time_point created;
  std::string device;
  std::vector<Part> parts;  // kAmg: to be downloaded one by one
};

struct Residual {
  int32_t rhs = 0, iteration = 0;
  double relative_residual = 0;
};

struct JobInfo {
  std::string name;
  JobKind kind = JobKind::kBuild;
  JobState state = JobState::kQueued;
  bool detached = false;
  Priority priority = Priority::kNormal;
  std::chrono::system_clock::time_point created;
  std::optional<std::chrono::system_clock::time_point> started, ended;
  std::string matrix, preconditioner, device;
  std::vector<std::string> devices;  // that it is split over, if more than one
  std::optional<Stage> stage;
  int64_t done = 0, total = 0;
  std::optional<Error> error;
  struct RhsOutcome {
    Outcome outcome;
    int64_t iterations = 0;
    double true_residual = 0, true_relative_residual = 0;
    std::string detail;
    double unreachable = 0;  // the share of |b| that no x reaches, where A is known to be singular
  };
  std::vector<RhsOutcome> outcomes;  // in ListJobs: the first that did not converge, or the first
  int64_t outcome_count = 0;         // right-hand sides of an ended solve
  int64_t event_count = 0;
  std::string tenant;    // its owner; set for administrators only: others' jobs, and lists of all
  std::string trace_id;  // of the call that made it; empty: it was in no trace
};

// One of the preconditioners and methods that Engine::kAuto tried, as it ended. See Rung in
// proto/spaid/v1/solve_types.proto; field for field.
struct Rung {
  Engine engine = Engine::kNone;
  Method method = Method::kAuto;
  std::string what;              // for people, with options
  std::string left;              // why it was left; empty: it solved the system
  int64_t iterations = 0;        // of all right-hand sides
  double relative_residual = 0;  // |b - A x| / |b| of the worst right-hand side, when it was left
  double setup_ms = 0, solve_ms = 0;
};

// A report of a running call. `kind` says which of the parts is set.
struct Progress {
  enum class Kind {
    kTransfer,
    kMatrix,
    kQueued,
    kStarted,
    kStage,
    kResiduals,
    kQuality,
    kRung,
    kHeartbeat,
    kFinished
  };
  Kind kind = Kind::kStage;
  std::string job;               // once known
  int64_t event_number = 0;      // job events only
  Stage stage = Stage::kUpload;  // kTransfer, kStage
  int64_t done = 0, total = 0;   // kTransfer: bytes; kStage: units of the stage
  int64_t queue_position = 0;    // kQueued, kHeartbeat
  double eta_ms = 0;             // kQueued, kHeartbeat
  std::string device;            // kStarted, kStage
  std::vector<Residual> residuals;
  const MatrixInfo* matrix = nullptr;  // kMatrix
  const Quality* quality = nullptr;    // kQuality
  const Rung* rung = nullptr;          // kRung: Engine::kAuto left it
  const JobInfo* job_info = nullptr;   // kFinished
};

// Options of any call. A call ignores options that do not apply to it (`detach`: only builds and
// solves use it).
struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // gRPC deadline: queue, run and transfer
  std::optional<std::chrono::milliseconds> max_queue = {}, max_run = {};
  Priority priority = Priority::kNormal;
  std::stop_token stop = {};  // cancels the call (and its job, unless detached)
  std::function<void(const Progress&)> on_progress = {};  // called on the calling thread
  bool detach = false;                                    // the job survives a dropped call
  // Send ClientOptions::admin_token, if one is set, in place of `token`.
  bool as_administrator = false;
  // Go where the handles with this AffinityOf are, in place of where the arrays or the handle of
  // the call lead: for things that a later call names together. Empty: by those.
  std::string affinity = {};
  // In place of those of ClientOptions, where the first is set.
  std::string traceparent = {}, tracestate = {};
};

// Time steps: read where SolveOptions::preconditioner is set, refused elsewhere unless it is kKeep.
struct ReusePolicy {
  ReuseMode mode = ReuseMode::kKeep;
  double factor = 1.5;  // kAuto: M is rebuilt beyond so many times its first count of iterations
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "mode", self.mode, "factor", self.factor);
  }
};

struct SolveOptions {
  Engine engine = Engine::kAuto;    // shorthand for spec.engine; ignored if `preconditioner` is set
  PreconditionerSpec spec = {};     // its engine is replaced by `engine`
  std::string preconditioner = {};  // handle: use this one instead
  ReusePolicy reuse = {};           // of it
  Method method = Method::kAuto;
  double rtol = 1e-8, atol = 0;
  int64_t max_iterations = 10000, restart = 50;
  int64_t basis_bytes = 0;     // GMRES: cycles grow past `restart` within these; 0: they do not
  int64_t shadow_vectors = 4;  // s of IDR(s)
  std::span<const double> initial_guess = {};  // n * rhs_count, or empty
  // For a singular A: the solution is the one orthogonal to what is projected out. `null_vectors`:
  // n * k numbers, column-major, k vectors z with A z = 0, at most 32, in place of `null_space`.
  NullSpace null_space = NullSpace::kAuto;
  std::span<const double> null_vectors = {};
  bool omit_solution = false;
  Precision m_precision = Precision::kAuto;
  // Takes the solution, of n * rhs_count elements; SolveResult::x stays empty. Void until the
  // solve has ended without an Error: it may be written before.
  std::span<double> solution = {};
  // Those of the iteration.
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "method", self.method, "rtol", self.rtol, "max_iterations",
                   self.max_iterations, "restart", self.restart, "preconditioner_storage",
                   self.m_precision, "atol", self.atol, "basis_bytes", self.basis_bytes,
                   "shadow_vectors", self.shadow_vectors);
  }
};

// See SolveFigures in proto/spaid/v1/solver.proto; field for field. Milliseconds.
struct SolveFigures {
  double place_ms = 0, trial_ms = 0, host_to_device_ms = 0, iterate_ms = 0, check_ms = 0,
         device_to_host_ms = 0;
  int64_t iterations = 0;  // sum over all right-hand sides
  double iterations_per_second = 0, bytes_per_second = 0;
  double copy_bytes_per_second = 0, copy_share = 0;  // of a copy on the device; 0: not measured
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "place_ms", self.place_ms, "trial_ms", self.trial_ms, "host_to_device_ms",
                   self.host_to_device_ms, "iterate_ms", self.iterate_ms, "check_ms", self.check_ms,
                   "device_to_host_ms", self.device_to_host_ms, "iterations", self.iterations,
                   "iterations_per_second", self.iterations_per_second, "bytes_per_second",
                   self.bytes_per_second, "copy_bytes_per_second", self.copy_bytes_per_second,
                   "copy_share", self.copy_share);
  }
};

// See Reuse in proto/spaid/v1/solve_types.proto; field for field.
struct Reuse {
  ReuseDecision decision = ReuseDecision::kKept;
  std::string reason;            // for people
  int64_t first_iterations = 0;  // of the named M's first converged solve; 0: none is known
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "decision", self.decision, "reason", self.reason, "first_iterations",
                   self.first_iterations);
  }
};

struct SolveResult {
  std::vector<double> x;  // n * rhs_count, column-major; the best iterate of each
  struct Rhs : JobInfo::RhsOutcome {
    std::vector<Residual> history;
  };
  std::vector<Rhs> rhs;
  Method method = Method::kAuto;
  Engine engine = Engine::kNone;
  std::string choice_reason;             // why this engine
  std::string placement, m_placement;    // why the solve ran on its device; M's build on its own
  std::optional<Precision> m_precision;  // kFp64 or kFp32; empty: no M, or a diagonal one
  std::string precision_reason;          // why, if that was kAuto's choice
  std::string matrix, preconditioner, device, job;
  double nnz_ratio = 0;
  SolveFigures figures;
  std::optional<Quality> quality;
  Timings timings;
  // The rungs of Engine::kAuto, if its first choice did not do; `method` is the last one's,
  // `preconditioner` and `quality` are the first one's.
  std::vector<Rung> rungs;
  std::string null_space;  // what was projected out, for people; empty: nothing
  // Set where SolveOptions::preconditioner was; `preconditioner` is the handle of the M that the
  // solve ended with, for the next step. Empty: it could not be kept, and the old one is still
  // there.
  std::optional<Reuse> reuse;
};

// The solution of a solve, as Client::Watch returns it.
struct Solution {
  int64_t n = 0;
  int32_t rhs_count = 0;  // 0: the job failed and has none
  std::vector<double> x;  // n * rhs_count, column-major; the best iterate of each
};

struct BuildResult {
  PreconditionerInfo preconditioner;
  Timings timings;
  std::optional<CscMatrix> m;  // if asked for; G if M = GᵀG (is_factor)
};

struct BuildEstimate {
  int64_t host_bytes = 0, device_bytes = 0, nnz = 0, download_bytes = 0;
  int64_t device_bytes_min = 0;  // suffices for certain, with tables made in waves
  double predicted_ms = 0, flops = 0;
  int64_t n1_max = 0, n2_max = 0;
  Engine engine = Engine::kNone;
  std::string choice_reason, placement;  // why this engine; why on this device
  // But for those of the choice: engine, choice_reason, placement.
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "host_bytes", self.host_bytes, "device_bytes", self.device_bytes, "nnz",
                   self.nnz, "download_bytes", self.download_bytes, "device_bytes_min",
                   self.device_bytes_min, "predicted_ms", self.predicted_ms, "flops", self.flops,
                   "n1_max", self.n1_max, "n2_max", self.n2_max);
  }
};

struct DeviceInfo {
  std::string name, kind, model, uuid, compute_capability;
  int64_t memory_bytes = 0;
  int threads = 0;
  bool in_use = false, healthy = false;
  std::string unhealthy_reason;
  int64_t memory_used_bytes = 0, memory_limit_bytes = 0;  // of a GPU in use: by the server
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "name", self.name, "kind", self.kind, "model", self.model, "uuid",
                   self.uuid, "compute_capability", self.compute_capability, "memory_bytes",
                   self.memory_bytes, "threads", self.threads, "in_use", self.in_use, "healthy",
                   self.healthy, "unhealthy_reason", self.unhealthy_reason, "memory_used_bytes",
                   self.memory_used_bytes, "memory_limit_bytes", self.memory_limit_bytes);
  }
};

// See EstimateRatio in proto/spaid/v1/server.proto.
struct EstimateRatio {
  std::string device, work;
  double ratio = 1;
  int64_t jobs = 0;
  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    internal::Each(visit, "device", self.device, "work", self.work, "ratio", self.ratio, "jobs",
                   self.jobs);
  }
};

struct ServerInfo {
  std::string version, cuda_status, tenant;
  bool administrator = false;  // else queued and running are the caller's own, and uuids empty
  std::chrono::system_clock::time_point started;
  std::vector<DeviceInfo> devices;
  std::vector<Engine> engines;
  std::vector<Method> methods;
  int64_t max_message_bytes = 0, max_matrix_bytes = 0, matrix_store_bytes = 0,
          preconditioner_store_bytes = 0, max_queued_jobs = 0, max_rhs_count = 0;
  int64_t queued = 0, running = 0;
  double eta_ms = 0;
  std::vector<EstimateRatio> estimate_ratios;  // for administrators
  bool draining = false;
};

}  // namespace spaid
