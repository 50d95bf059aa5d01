#include "kernels/mpi/spread_null_space.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/mpi/ranks.h"

namespace spaid::kernels::mpi {
namespace {

double NormOf(Vec v) {
  PetscReal norm = 0;
  Must(VecNorm(v, NORM_2, &norm));
  return norm;
}

VecOwner Vector(Mat like) {
  Vec made = nullptr;
  Must(MatCreateVecs(like, &made, nullptr));
  return VecOwner(made);
}

// A matrix between projections.
struct Between {
  const SpreadNullSpace* space;
  Mat of;
  bool m;
  VecOwner reached;  // of M's argument
};

PetscErrorCode Multiply(Mat shell, Vec x, Vec y) {
  Between* between = nullptr;
  Must(MatShellGetContext(shell, &between));
  if (!between->m) {
    Must(MatMult(between->of, x, y));
    between->space->RemoveLeft(y);
    return static_cast<PetscErrorCode>(0);
  }
  Must(VecCopy(x, between->reached.get()));
  between->space->RemoveLeft(between->reached.get());
  Must(MatMult(between->of, between->reached.get(), y));
  between->space->RemoveRight(y);
  return static_cast<PetscErrorCode>(0);
}

PetscErrorCode Destroy(Mat shell) {
  Between* between = nullptr;
  Must(MatShellGetContext(shell, &between));
  delete between;
  return static_cast<PetscErrorCode>(0);
}

}  // namespace

SpreadNullSpace::SpreadNullSpace(const SpreadMatrix& a, const NullSpace* whole) {
  int64_t counts[3] = {};
  if (whole != nullptr) {
    counts[0] = std::ssize(whole->right());
    counts[2] = &whole->left() == &whole->right();
    counts[1] = counts[2] != 0 ? 0 : std::ssize(whole->left());
  }
  Must(MPI_Bcast(counts, 3, MPI_INT64_T, 0, a.comm));
  left_is_right_ = counts[2] != 0;
  std::vector<int> sizes, begins;
  for (size_t r = 0; r + 1 < a.begin.size(); ++r) {
    begins.push_back(static_cast<int>(a.begin[r]));
    sizes.push_back(static_cast<int>(a.begin[r + 1] - a.begin[r]));
  }
  const auto spread = [&](int64_t count, const std::vector<Array<double>>* from) {
    std::vector<VecOwner> vectors;
    for (int64_t k = 0; k < count; ++k) {
      vectors.push_back(Vector(a.rows.get()));
      PetscScalar* to = nullptr;
      Must(VecGetArrayWrite(vectors.back().get(), &to));
      Must(MPI_Scatterv(from != nullptr ? (*from)[static_cast<size_t>(k)].data() : nullptr,
                        sizes.data(), begins.data(), MPI_DOUBLE, to,
                        static_cast<int>(a.own().size()), MPI_DOUBLE, 0, a.comm));
      Must(VecRestoreArrayWrite(vectors.back().get(), &to));
    }
    return vectors;
  };
  right_ = spread(counts[0], whole != nullptr ? &whole->right() : nullptr);
  left_ = spread(counts[1], whole != nullptr ? &whole->left() : nullptr);
}

double SpreadNullSpace::Remove(const std::vector<VecOwner>& vectors, Vec v) {
  double removed = 0;
  for (const VecOwner& vector : vectors) {
    PetscScalar factor = 0;
    Must(VecDot(v, vector.get(), &factor));
    Must(VecAXPY(v, -factor, vector.get()));
    removed = std::hypot(removed, factor);
  }
  return removed;
}

Reach SpreadNullSpace::Split(Vec b) const {
  Reach reach;
  reach.norm = NormOf(b);
  reach.unreachable = RemoveLeft(b);
  RemoveLeft(b);
  if (reach.IsRounding(NormOf(b))) {
    Must(VecSet(b, 0));
    reach.unreachable = reach.norm;
  }
  return reach;
}

MatOwner SpreadNullSpace::Shell(Mat of, bool m) const {
  PetscInt own = 0, n = 0;
  Must(MatGetLocalSize(of, &own, nullptr));
  Must(MatGetSize(of, &n, nullptr));
  auto between = std::make_unique<Between>(Between{this, of, m, m ? Vector(of) : nullptr});
  Mat made = nullptr;
  Must(MatCreateShell(PetscObjectComm(reinterpret_cast<PetscObject>(of)), own, own, n, n,
                      between.release(), &made));
  Must(MatShellSetOperation(made, MATOP_MULT, reinterpret_cast<void (*)()>(Multiply)));
  Must(MatShellSetOperation(made, MATOP_DESTROY, reinterpret_cast<void (*)()>(Destroy)));
  return MatOwner(made);
}

}  // namespace spaid::kernels::mpi
