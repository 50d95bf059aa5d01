#include "kernels/mpi/session.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/mpi/hybrid_dynamic_spai.h"
#include "kernels/mpi/hybrid_jacobi.h"
#include "kernels/mpi/petsc_preconditioner.h"
#include "kernels/mpi/rank_bytes.h"
#include "kernels/mpi/ranks.h"
#include "kernels/mpi/spread_diagnosis.h"
#include "kernels/mpi/spread_krylov.h"
#include "kernels/mpi/spread_transpose.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

int64_t BytesOf(Mat rows) {
  MatInfo info;
  Must(MatGetInfo(rows, MAT_LOCAL, &info));
  return static_cast<int64_t>(info.nz_used) * kEntryBytes;
}

// Tells residuals under the number of their right-hand side.
class OneOfMany final : public ProgressSink {
 public:
  OneOfMany(ProgressSink* outer, int64_t rhs) : outer_(outer), rhs_(static_cast<int32_t>(rhs)) {}
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    outer_->OnProgress(stage, done, total);
  }
  void OnResidual(const ResidualPoint& point) override {
    ResidualPoint told = point;
    told.rhs = rhs_;
    outer_->OnResidual(told);
  }

 private:
  ProgressSink* const outer_;
  const int32_t rhs_;
};

// Parts of a vector of rank 0 to their owners, and back.
struct VectorShares {
  std::vector<int> counts, begins;

  explicit VectorShares(const SpreadMatrix& a) {
    for (size_t r = 0; r + 1 < a.begin.size(); ++r) {
      begins.push_back(static_cast<int>(a.begin[r]));
      counts.push_back(static_cast<int>(a.begin[r + 1] - a.begin[r]));
    }
  }
  void Scatter(MPI_Comm comm, const double* whole, std::span<double> own) const {
    Must(MPI_Scatterv(whole, counts.data(), begins.data(), MPI_DOUBLE, own.data(),
                      static_cast<int>(own.size()), MPI_DOUBLE, 0, comm));
  }
  void Gather(MPI_Comm comm, std::span<const double> own, double* whole) const {
    Must(MPI_Gatherv(own.data(), static_cast<int>(own.size()), MPI_DOUBLE, whole, counts.data(),
                     begins.data(), MPI_DOUBLE, 0, comm));
  }
};

// The whole M on rank 0, of the columns that each rank has: [i] is column own[i].
Status GatherColumns(MPI_Comm comm, const Array<int32_t>& own, const CscMatrix& columns, int64_t n,
                     CscMatrix* m) {
  const auto ranks = Z(RanksOf(comm));
  const auto to_root = [&]<class T>(std::span<const T> array) {
    std::vector<Array<T>> to(ranks);
    to[0].assign(array.begin(), array.end());
    return Exchange(comm, std::move(to));
  };
  Array<int64_t> lengths;
  for (size_t i = 0; i < own.size(); ++i) {
    lengths.push_back(columns.col_ptr[i + 1] - columns.col_ptr[i]);
  }
  const auto here = to_root(std::span<const int32_t>(own));
  const auto length = to_root(std::span<const int64_t>(lengths));
  Status status = Locally(comm, "M on its way to rank 0", [&]() -> Status {
    if (m == nullptr) return {};
    m->n_rows = m->n_cols = n;
    m->col_ptr.assign(Z(n) + 1, 0);
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t i = 0; i < here[r].size(); ++i) m->col_ptr[Z(here[r][i]) + 1] = length[r][i];
    }
    for (size_t j = 0; j < Z(n); ++j) m->col_ptr[j + 1] += m->col_ptr[j];
    m->row_idx.resize(Z(m->col_ptr.back()));
    m->values.resize(m->row_idx.size());
    return {};
  });
  if (!status.ok()) return status;
  const auto lay_down = [&]<class T>(const Array<T>& array, Array<T>* whole) {
    const auto parts = to_root(std::span<const T>(array));
    for (size_t r = 0; whole != nullptr && r < ranks; ++r) {
      const T* from = parts[r].data();
      for (size_t i = 0; i < here[r].size(); ++i) {
        std::copy_n(from, length[r][i], whole->begin() + m->col_ptr[Z(here[r][i])]);
        from += length[r][i];
      }
    }
  };
  lay_down(columns.row_idx, m != nullptr ? &m->row_idx : nullptr);
  lay_down(columns.values, m != nullptr ? &m->values : nullptr);
  return {};
}

}  // namespace

Status Session::Do(const Order& order, AtRoot* root) {
  return OrEndAll("an order of rank 0", [&]() -> Status {
    switch (order.what) {
      case Order::What::kFree:
        held_.erase(order.made);
        return {};
      case Order::What::kSpread:
        return Spread(order, root);
      case Order::What::kPlan:
        return Plan(order, root);
      case Order::What::kGrow:
        return Grow(order, root);
      case Order::What::kBuild:
        return Build(order, root);
      case Order::What::kFsai:
        return Fsai(order, root);
      case Order::What::kPetsc:
        return Petsc(order, root);
      case Order::What::kSolve:
        return Solve(order, root);
      case Order::What::kBegin:
        return Begin(order, root);
      case Order::What::kIndices:
      case Order::What::kValues:
        return TakePiece(order, root);
      case Order::What::kArrived:
        return Arrived(order, root);
      case Order::What::kJacobi:
        return Jacobi(order, root);
      case Order::What::kMultiply:
        return Multiply(order, root);
      case Order::What::kSame:
        return Same(order, root);
      case Order::What::kOutput:
        return Output(order, root);
      case Order::What::kPiece:
        return SendPiece(order, root);
      default:
        return Agree(comm_, {});  // kAnswer; kEnd, so that all have left what was before
    }
  });
}

Context Session::ContextOf(const AtRoot* root) const {
  Context context;
  context.threads = threads_;
  if (root != nullptr) {
    context.stop = root->context.stop;
    context.progress = root->context.progress;
  }
  return context;
}

void Session::Keep(const Order& order, Held held, int64_t bytes, int64_t nnz, AtRoot* root) {
  const int64_t all = SumOf(comm_, bytes);
  if (root != nullptr) {
    root->bytes = all;
    root->nnz = nnz;
  }
  held_[order.made] = std::move(held);
}

Status Session::Spread(const Order& order, AtRoot* root) {
  auto spread = SpreadWhole(comm_, root != nullptr ? root->matrix : nullptr, ContextOf(root));
  if (!spread.ok()) return spread.status();
  Held held;
  const int64_t nnz = spread->nnz;
  int64_t bytes = BytesOf(spread->rows.get());
  if (order.flag) {
    held.rows = std::move(spread->rows);
    if (order.factor) held.m = MakeFactored(held.rows.get());
  } else {
    bytes += spread->columns.bytes();
    held.matrix = std::make_shared<const SpreadMatrix>(*std::move(spread));
  }
  Keep(order, std::move(held), bytes, nnz, root);
  return {};
}

Result<std::optional<SpreadPattern>> Session::UserPattern(const Order& order, const SpreadMatrix& a,
                                                          const AtRoot* root) {
  std::optional<SpreadPattern> user;
  if (!order.flag) return user;
  auto spread = SpreadWhole(a, root != nullptr ? root->pattern : nullptr);
  if (!spread.ok()) return spread.status();
  user = *std::move(spread);
  return user;
}

Status Session::Plan(const Order& order, AtRoot* root) {
  const SpreadMatrix& a = *held_.at(order.a).matrix;
  const auto user = UserPattern(order, a, root);
  if (!user.ok()) return user.status();
  StaticSpaiOptions options;
  Unpack(order, options);
  return PlanOn(order, a, *user ? &**user : nullptr, options, root);
}

Status Session::Grow(const Order& order, AtRoot* root) {
  const SpreadMatrix& a = *held_.at(order.a).matrix;
  auto initial = UserPattern(order, a, root);
  if (!initial.ok()) return initial.status();
  HybridDynamicOptions options;
  Unpack(order, options.dynamic);
  auto grown = GrowHybridDynamicSpai(a, *initial ? &**initial : nullptr, options, ContextOf(root));
  if (!grown.ok()) return grown.status();
  if (root != nullptr) root->growth = std::move(grown->quality);
  return PlanOn(order, a, &grown->m, NumbersOf(options.dynamic), root);
}

Status Session::PlanOn(const Order& order, const SpreadMatrix& a, const SpreadPattern* pattern,
                       const StaticSpaiOptions& options, AtRoot* root) {
  auto plan = PlanHybridSpai(a, pattern, {.spai = options}, ContextOf(root));
  if (!plan.ok()) return plan.status();
  Held held;
  held.plan = std::make_unique<HybridSpaiPlan>(*std::move(plan));
  const int64_t bytes = held.plan->bytes(), nnz = held.plan->nnz_m();
  Keep(order, std::move(held), bytes, nnz, root);
  return {};
}

Status Session::Build(const Order& order, AtRoot* root) {
  const SpreadMatrix& a = *held_.at(order.a).matrix;
  auto built = BuildHybridSpai(*held_.at(order.plan).plan, a, ContextOf(root));
  if (!built.ok()) return built.status();
  const int64_t nnz = SumOf(comm_, built->columns.nnz());
  const auto gathering = Clock::now();
  if (order.gather) {
    Status status = GatherColumns(comm_, built->here, built->columns, a.n,
                                  root != nullptr ? &root->built.m : nullptr);
    if (!status.ok()) return status;
  }
  if (root != nullptr) {
    root->built.quality = std::move(built->quality);
    root->built.gather_ms = MsSince(gathering);
  }
  Held held;
  held.rows = std::move(built->rows);
  const int64_t bytes = BytesOf(held.rows.get());
  Keep(order, std::move(held), bytes, nnz, root);
  return {};
}

Status Session::Fsai(const Order& order, AtRoot* root) {
  const SpreadMatrix& a = *held_.at(order.a).matrix;
  const auto user = UserPattern(order, a, root);
  if (!user.ok()) return user.status();
  HybridFsaiOptions options;
  Unpack(order, options.fsai);
  options.fsai.adaptive = order.adaptive;
  auto built = BuildHybridFsai(a, *user ? &**user : nullptr, options, ContextOf(root));
  if (!built.ok()) return built.status();
  const auto gathering = Clock::now();
  Array<int32_t> here(Z(a.own().size()));
  std::iota(here.begin(), here.end(), static_cast<int32_t>(a.own().begin));
  if (order.gather) {
    Status status =
        GatherColumns(comm_, here, built->rows, a.n, root != nullptr ? &root->built.m : nullptr);
    if (!status.ok()) return status;
  }
  if (root != nullptr) {
    root->built.fsai = std::move(built->quality);
    root->built.gather_ms = MsSince(gathering);
  }
  Held held;
  held.rows = std::move(built->g);
  held.m = std::move(built->m);
  const int64_t bytes = BytesOf(held.rows.get());
  Keep(order, std::move(held), bytes, built->nnz, root);
  return {};
}

Status Session::Petsc(const Order& order, AtRoot* root) {
  const SpreadMatrix& a = *held_.at(order.a).matrix;
  PetscEngineOptions options;
  Unpack(order, options);
  std::vector<double> near_null;
  Status status = Locally(comm_, "near-null vectors", [&]() -> Status {
    near_null.resize(Z(order.count * a.own().size()));
    return {};
  });
  if (!status.ok()) return status;
  const VectorShares shares(a);
  for (int64_t k = 0; k < order.count; ++k) {
    shares.Scatter(comm_, root != nullptr ? root->near_null.data() + k * a.n : nullptr,
                   std::span(near_null).subspan(Z(k * a.own().size()), Z(a.own().size())));
  }
  auto built = BuildPetsc(a, order.method, options, near_null, ContextOf(root));
  if (!built.ok()) return built.status();
  if (root != nullptr) root->built.petsc = built->quality;
  Held held;
  held.m = std::move(built->m);
  Keep(order, std::move(held), built->bytes, built->nnz, root);
  return {};
}

Status Session::Jacobi(const Order& order, AtRoot* root) {
  const SpreadMatrix& a = *held_.at(order.a).matrix;
  auto built = BuildHybridJacobi(a, ContextOf(root));
  if (!built.ok()) return built.status();
  Status status = Locally(comm_, "Jacobi's M on its way to rank 0", [&]() -> Status {
    if (root == nullptr) return {};
    root->built.quality = std::move(built->quality);
    if (!order.gather) return {};
    CscMatrix& m = root->built.m;
    m.n_rows = m.n_cols = a.n;
    m.col_ptr.resize(Z(a.n) + 1);
    std::iota(m.col_ptr.begin(), m.col_ptr.end(), int64_t{0});
    m.row_idx.resize(Z(a.n));
    std::iota(m.row_idx.begin(), m.row_idx.end(), 0);
    m.values = std::move(built->diagonal);
    return {};
  });
  if (!status.ok()) return status;
  Held held;
  held.rows = std::move(built->rows);
  const int64_t bytes = BytesOf(held.rows.get());
  Keep(order, std::move(held), bytes, a.n, root);
  return {};
}

Status Session::Multiply(const Order& order, AtRoot* root) {
  const SpreadMatrix& a = *held_.at(order.a).matrix;
  const VectorShares shares(a);
  std::vector<double> x;
  Status status = Locally(comm_, "a product", [&]() -> Status {
    x.resize(Z(a.own().size()));
    return {};
  });
  if (!status.ok()) return status;
  shares.Scatter(comm_, root != nullptr ? root->x.data() : nullptr, x);
  Vec from = nullptr, to = nullptr;
  Must(MatCreateVecs(a.rows.get(), &from, &to));
  const VecOwner from_owner(from), to_owner(to);
  PetscScalar* array = nullptr;
  Must(VecGetArrayWrite(from, &array));
  std::ranges::copy(x, array);
  Must(VecRestoreArrayWrite(from, &array));
  Must(MatMult(a.rows.get(), from, to));
  const PetscScalar* product = nullptr;
  Must(VecGetArrayRead(to, &product));
  shares.Gather(comm_, {product, x.size()}, root != nullptr ? root->y.data() : nullptr);
  Must(VecRestoreArrayRead(to, &product));
  return {};
}

Status Session::Same(const Order& order, AtRoot* root) {
  const SpreadMatrix &a = *held_.at(order.a).matrix, &b = *held_.at(order.m).matrix;
  // By bits: a zero has a sign.
  const auto same = [](const auto& x, const auto& y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
  };
  const bool here = same(a.begin, b.begin) && same(a.columns.col_ptr, b.columns.col_ptr) &&
                    same(a.columns.row_idx, b.columns.row_idx) &&
                    same(a.columns.values, b.columns.values);
  const bool everywhere = SumOf(comm_, here ? 0 : 1) == 0;
  if (root != nullptr) root->same = everywhere;
  return {};
}

Status Session::Output(const Order& order, AtRoot* root) {
  const Held& of = held_.at(order.a);
  if (of.matrix == nullptr && of.rows == nullptr) {
    return Status(StatusCode::kFailedPrecondition, "MATRIX_OVER_RANKS",
                  "the preconditioner is one of hypre's or PETSc's, and no matrix")
        .At("preconditioner");
  }
  const Mat rows = of.matrix != nullptr ? of.matrix->rows.get() : of.rows.get();
  const bool lies_there = of.matrix != nullptr && !order.by_rows;
  std::shared_ptr<const CscMatrix> own;
  if (lies_there) {
    own = {of.matrix, &of.matrix->columns};
  } else if (order.by_rows) {
    Status status = Locally(comm_, "a matrix on its way to rank 0", [&]() -> Status {
      own = std::make_shared<const CscMatrix>(OwnRows(rows));
      return {};
    });
    if (!status.ok()) return status;
  } else {
    auto columns = OwnColumns(rows);
    if (!columns.ok()) return columns.status();
    own = std::make_shared<const CscMatrix>(*std::move(columns));
  }
  Held held;
  held.output = std::make_unique<SpreadOutput>(comm_, std::move(own), !lies_there);
  const int64_t bytes = held.output->bytes(), nnz = held.output->nnz();
  Keep(order, std::move(held), bytes, nnz, root);
  return {};
}

Status Session::SendPiece(const Order& order, AtRoot* root) {
  const SpreadOutput& output = *held_.at(order.a).output;
  switch (order.array) {
    case Order::Array::kPointers:
      output.SendPointers(order.first, order.entries,
                          root != nullptr ? root->pointers_to : std::span<int64_t>());
      break;
    case Order::Array::kIndices:
      output.SendIndices(order.first, order.entries,
                         root != nullptr ? root->indices_to : std::span<int32_t>());
      break;
    case Order::Array::kValues:
      output.SendValues(order.first, order.entries,
                        root != nullptr ? root->values_to : std::span<double>());
      break;
  }
  return {};
}

Status Session::Begin(const Order& order, AtRoot* root) {
  Held held;
  held.input = std::make_unique<SpreadInput>(
      comm_, order.n, order.nnz, order.by_rows ? Layout::kCsr : Layout::kCsc, order.sort_and_sum);
  Status status = order.a != 0 ? held.input->Begin(*held_.at(order.a).matrix)
                               : held.input->Begin(root != nullptr ? root->pointers
                                                                   : std::span<const int64_t>());
  if (!status.ok()) return status;
  Keep(order, std::move(held), 0, 0, root);
  return {};
}

// Nothing is agreed upon: whatever may be wrong with the entries is found when all are here.
Status Session::TakePiece(const Order& order, AtRoot* root) {
  SpreadInput& input = *held_.at(order.a).input;
  if (order.what == Order::What::kIndices) {
    input.TakeIndices(order.first, order.entries,
                      root != nullptr ? root->indices : std::span<const int32_t>());
  } else {
    input.TakeValues(order.first, order.entries,
                     root != nullptr ? root->values : std::span<const double>());
  }
  return {};
}

Status Session::Arrived(const Order& order, AtRoot* root) {
  const auto arriving = held_.extract(order.a);
  auto spread = arriving.mapped().input->Finish(ContextOf(root));
  if (!spread.ok()) return spread.status();
  auto diagnosis = DiagnoseSpread(*spread);
  if (!diagnosis.ok()) return diagnosis.status();
  auto shares = SharesOf(*spread, threads_);
  if (!shares.ok()) return shares.status();
  if (root != nullptr) {
    root->diagnosis = *std::move(diagnosis);
    root->shares = *std::move(shares);
  }
  Held held;
  held.matrix = std::make_shared<const SpreadMatrix>(*std::move(spread));
  const int64_t bytes = BytesOf(held.matrix->rows.get()) + held.matrix->columns.bytes();
  const int64_t nnz = held.matrix->nnz;
  Keep(order, std::move(held), bytes, nnz, root);
  return {};
}

Status Session::Solve(const Order& order, AtRoot* root) {
  const SpreadMatrix& a = *held_.at(order.a).matrix;
  Mat m = order.m != 0 ? held_.at(order.m).multiplier() : nullptr;
  SolveOptions options;
  Unpack(order, options);
  options.keep_history = order.keep_history;
  Status status = Locally(comm_, "solutions", [&]() -> Status {
    if (root != nullptr) root->solved.x.resize(root->b.size());
    return {};
  });
  std::optional<SpreadNullSpace> space;
  if (order.null_space) space.emplace(a, root != nullptr ? root->null_space : nullptr);
  for (int64_t rhs = 0; rhs < order.count && status.ok(); ++rhs) {
    status = SolveOne(a, m, space ? &*space : nullptr, options, order.flag, rhs, root);
  }
  if (root != nullptr && status.ok()) {
    SolveFigures& figures = root->solved.figures;
    for (const RhsResult& one : root->solved.rhs) figures.iterations += one.iterations;
    const auto of_product = [&](int64_t nnz) { return nnz * kEntryBytes + (a.n + 1) * 8; };
    figures.bytes = CountedBytes(a.n, of_product(a.nnz), m != nullptr ? of_product(order.nnz_m) : 0,
                                 options, figures.iterations);
  }
  return status;
}

Status Session::SolveOne(const SpreadMatrix& a, Mat m, const SpreadNullSpace* space,
                         const SolveOptions& options, bool guess, int64_t rhs, AtRoot* root) {
  const VectorShares shares(a);
  const auto start = Clock::now();
  std::vector<double> b(Z(a.own().size())), x(b.size());
  const int64_t first = rhs * a.n;
  shares.Scatter(comm_, root != nullptr ? root->b.data() + first : nullptr, b);
  if (guess) shares.Scatter(comm_, root != nullptr ? root->x0.data() + first : nullptr, x);
  const double there_ms = MsSince(start);
  Context context = ContextOf(root);
  std::optional<OneOfMany> told;
  if (context.progress != nullptr) context.progress = &told.emplace(context.progress, rhs);
  auto result = SolveSpread(a, m, b, x, options, context, space);
  if (!result.ok()) return result.status();
  const double solved_ms = MsSince(start);
  shares.Gather(comm_, x, root != nullptr ? root->solved.x.data() + first : nullptr);
  if (root != nullptr) {
    SolveFigures& figures = root->solved.figures;
    figures.host_to_device_ms += there_ms;
    figures.iterate_ms += solved_ms - there_ms;
    figures.device_to_host_ms += MsSince(start) - solved_ms;
    for (ResidualPoint& point : result->history) point.rhs = static_cast<int32_t>(rhs);
    root->solved.rhs.push_back(*std::move(result));
  }
  return {};
}

}  // namespace spaid::kernels::mpi
