#include "kernels/krylov/null_space.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/krylov/judge.h"

namespace spaid::kernels {
namespace {

using krylov::Figure;
using krylov::Team;

constexpr double kEps = std::numeric_limits<double>::epsilon();
// From a vector of length 1 the vectors before it must leave more than this: what is left is taken
// for one of the null space, with errors that much larger.
constexpr double kLeastIndependent = 1e-6;
// The part that a projection leaves of b, or takes of it, is rounding where it is this share or
// less.
constexpr double kRounding = 16 * kEps;
// The target of the part that is reached is no less than this share of the whole target.
constexpr double kLeastShare = 0.1;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

Status Bad(const char* reason, std::string message, int64_t index = -1) {
  return Status(StatusCode::kInvalidArgument, reason, std::move(message)).At("null_space", index);
}

double Remove(const std::vector<Array<double>>& vectors, std::span<double> v, Team* team) {
  double removed = 0;
  double* const to = v.data();
  for (const Array<double>& vector : vectors) {
    const double factor = team->Dot(vector, v);
    const double* const from = vector.data();
    team->For([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] -= factor * from[i];
    });
    removed = std::hypot(removed, factor);
  }
  return removed;
}

// False: v is zero, or so small beside what it was that it is rounding.
bool Normalise(std::span<double> v, double least, Team* team) {
  const double norm = team->Norm(v);
  if (!(norm > least)) return false;
  for (double& e : v) e /= norm;
  return true;
}

// Makes v, of length 1, orthonormal to `before`. False: it depends on them.
bool Orthonormalise(const std::vector<Array<double>>& before, std::span<double> v, Team* team) {
  Remove(before, v, team);
  Remove(before, v, team);
  return Normalise(v, kLeastIndependent, team);
}

Array<double> Constants(int64_t n) {
  Array<double> ones;
  ones.assign(Z(n), 1 / std::sqrt(static_cast<double>(n)));
  return ones;
}

// A and Aᵀ times vectors of length 1, relative to ‖A‖; A is scaled by a power of two, so that
// nothing leaves the range of fp64.
class Products {
 public:
  Products(const CscView& a, double max_abs_value) : a_(a), y_(Z(a.n_cols)) {
    if (max_abs_value > 0) factor_ = std::ldexp(1.0, -std::ilogb(max_abs_value) / 2);
    Array<double> rows;
    rows.assign(Z(a.n_cols), 0.0);
    double columns = 0;
    for (int64_t j = 0; j < a.n_cols; ++j) {
      double sum = 0;
      for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
        const double size = std::abs(At(p));
        sum += size;
        rows[Z(a.row_idx[Z(p)])] += size;
      }
      columns = std::max(columns, sum);
    }
    const double largest_row = *std::max_element(rows.begin(), rows.end());
    norm_ = std::sqrt(columns) * std::sqrt(largest_row);
  }

  struct Sizes {
    double right = 0, left = 0;  // ‖A z‖ / ‖A‖, ‖Aᵀ z‖ / ‖A‖
  };
  Sizes Of(std::span<const double> z, Team* team) {
    if (norm_ == 0) return {};
    std::fill(y_.begin(), y_.end(), 0.0);
    double left = 0;
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      double dot = 0;
      for (int64_t p = a_.col_ptr[Z(j)]; p < a_.col_ptr[Z(j) + 1]; ++p) {
        const double value = At(p);
        dot += value * z[Z(a_.row_idx[Z(p)])];
        y_[Z(a_.row_idx[Z(p)])] += value * z[Z(j)];
      }
      left = std::hypot(left, dot);
    }
    return {team->Norm(y_) / norm_, left / norm_};
  }

 private:
  // In two steps: a factor of its own may be out of the range.
  double At(int64_t p) const { return a_.values[Z(p)] * factor_ * factor_; }

  const CscView& a_;
  double factor_ = 1, norm_ = 0;
  Array<double> y_;
};

using Made = std::shared_ptr<const NullSpace>;

// The null space of constants that the diagnosis has found.
Made OfConstants(const CscView& a, bool right, bool left) {
  std::vector<Array<double>> rights, lefts;
  if (right) rights.push_back(Constants(a.n_cols));
  if (left && !right) lefts.push_back(Constants(a.n_cols));
  return std::make_shared<NullSpace>(a, std::move(rights), std::move(lefts), right && left,
                                     right ? "constants" : "constants, of the transpose alone");
}

Result<Made> OfVectors(const CscView& a, const Diagnosis& d, std::span<const double> vectors,
                       std::string what) {
  const int64_t n = a.n_cols;
  const auto length = static_cast<int64_t>(vectors.size());
  if (length == 0 || length % n != 0 || length / n > kMostNullVectors) {
    return Bad("BAD_NULL_SPACE", "null_space has " + std::to_string(length) + " values; 1 to " +
                                     std::to_string(kMostNullVectors) +
                                     " vectors of n = " + std::to_string(n) + " are needed");
  }
  for (int64_t i = 0; i < length; ++i) {
    if (std::isfinite(vectors[Z(i)])) continue;
    return Bad("NON_FINITE_VALUE",
               "null_space[" + std::to_string(i) + "] (row " + std::to_string(i % n) +
                   " of vector " + std::to_string(i / n) +
                   ") is NaN or infinite; send finite values",
               i);
  }
  Team team(n, 1);
  Products products(a, d.max_abs_value);
  std::vector<Array<double>> right;
  bool both = true;
  for (int64_t k = 0; k < length / n; ++k) {
    const auto given = vectors.subspan(Z(k * n), Z(n));
    Array<double> z(given.begin(), given.end());
    const bool zero = !Normalise(z, 0, &team);
    if (!zero) {
      const Products::Sizes sizes = products.Of(z, &team);
      if (!(sizes.right <= kMostOfNullSpace)) {
        return Bad("NOT_IN_NULL_SPACE",
                   what + ": vector " + std::to_string(k) +
                       " is not in the null space of A: |A z| is " + Figure(sizes.right) +
                       " of |A| |z|, and at most " + Figure(kMostOfNullSpace) +
                       " is rounding; send vectors with A z = 0 to all digits, or none",
                   k);
      }
      both = both && sizes.left <= kMostOfNullSpace;
    }
    if (zero || !Orthonormalise(right, z, &team)) {
      return Bad("BAD_NULL_SPACE",
                 "vector " + std::to_string(k) + " of null_space " +
                     (zero ? "is zero" : "depends on the vectors before it") + "; leave it out",
                 k);
    }
    right.push_back(std::move(z));
  }
  both = both || d.numerically_symmetric;
  std::vector<Array<double>> left;
  if (!both && d.constants_in_left_null_space) left.push_back(Constants(n));
  return Made(
      std::make_shared<NullSpace>(a, std::move(right), std::move(left), both, std::move(what)));
}

}  // namespace

NullSpace::NullSpace(const CscView& of, std::vector<Array<double>> right,
                     std::vector<Array<double>> left, bool left_is_right, std::string what)
    : n_(of.n_cols),
      col_ptr_(of.col_ptr.data()),
      values_(of.values.data()),
      right_(std::move(right)),
      left_(std::move(left)),
      left_is_right_(left_is_right),
      what_(std::move(what)) {}

double NullSpace::RemoveRight(std::span<double> v, Team* team) const {
  return Remove(right_, v, team);
}

double NullSpace::RemoveLeft(std::span<double> v, Team* team) const {
  return Remove(left(), v, team);
}

Result<std::shared_ptr<const NullSpace>> MakeNullSpace(const CscView& a, const Diagnosis& d,
                                                       const NullSpaceRequest& request) {
  const bool right = d.constants_in_null_space;
  const bool left = d.constants_in_left_null_space || (right && d.numerically_symmetric);
  switch (request.choice) {
    case NullSpaceChoice::kNone:
      break;
    case NullSpaceChoice::kAuto:
      if (right || left) return OfConstants(a, right, left);
      break;
    case NullSpaceChoice::kConstants:
      if (right) return OfConstants(a, right, left);
      return OfVectors(a, d, Constants(a.n_cols), "constants");
    case NullSpaceChoice::kGiven: {
      const int64_t count = static_cast<int64_t>(request.vectors.size()) / a.n_cols;
      return OfVectors(a, d, request.vectors,
                       std::to_string(count) + (count == 1 ? " given vector" : " given vectors"));
    }
  }
  return Made();
}

std::shared_ptr<const NullSpace> ScaledNullSpace(const NullSpace& space, const Scaling& s,
                                                 const CscView& scaled) {
  const int64_t n = space.n();
  Team team(n, 1);
  const auto carry = [&](const std::vector<Array<double>>& from, const auto& scale,
                         std::vector<Array<double>>* to) {
    for (const Array<double>& vector : from) {
      Array<double> carried(Z(n));
      scale(vector, carried);
      if (!Normalise(carried, 0, &team) || !Orthonormalise(*to, carried, &team)) return false;
      to->push_back(std::move(carried));
    }
    return true;
  };
  std::vector<Array<double>> right, left;
  const bool carried =
      carry(
          space.right(), [&](const Array<double>& z, Array<double>& to) { ScaleGuess(s, z, to); },
          &right) &&
      carry(
          space.left(),
          [&](const Array<double>& w, Array<double>& to) {
            for (int64_t i = 0; i < n; ++i) {
              to[Z(i)] = s.row.empty() ? w[Z(i)] : w[Z(i)] / s.row[Z(i)];
            }
          },
          &left);
  if (!carried) return nullptr;
  return std::make_shared<NullSpace>(scaled, std::move(right), std::move(left),
                                     /*left_is_right=*/false, space.what());
}

bool Reach::IsRounding(double left) const { return unreachable > 0 && left <= kRounding * norm; }

bool Reach::Beyond(const SolveOptions& options) const {
  return unreachable > std::max(Target(options), kRounding * norm);
}

double Reach::TargetOfReached(const SolveOptions& options, double b_norm) const {
  const double target = Target(options);
  if (Beyond(options)) return std::max(options.rtol * b_norm, options.atol);
  const double share = target > 0 ? std::min(1.0, unreachable / target) : 0;
  return target * std::max(kLeastShare, std::sqrt((1 - share) * (1 + share)));
}

Reach SplitRhs(const NullSpace& space, std::span<const double> b, Team* team) {
  Reach reach;
  reach.norm = team->Norm(b);
  reach.b.assign(b.begin(), b.end());
  reach.unreachable = space.RemoveLeft(reach.b, team);
  space.RemoveLeft(reach.b, team);
  if (reach.IsRounding(team->Norm(reach.b))) {
    std::fill(reach.b.begin(), reach.b.end(), 0.0);
    reach.unreachable = reach.norm;
  }
  return reach;
}

void TellOfWhole(const LinearOperator& a, const NullSpace& space, std::span<const double> b,
                 const Reach& reach, const SolveOptions& options, Team* team, std::span<double> x,
                 RhsResult* out) {
  space.RemoveRight(x, team);
  space.RemoveRight(x, team);
  Array<double> r(x.size());
  a.Apply(x, r, team->threads());
  for (size_t i = 0; i < r.size(); ++i) r[i] = b[i] - r[i];
  TellOfWhole(reach, team->Norm(r), options, out);
}

void TellOfWhole(const Reach& reach, double residual, const SolveOptions& options, RhsResult* out) {
  const double of_reached = out->true_relative_residual;
  const bool reached = out->outcome == Outcome::kConverged;
  out->true_residual = residual;
  out->true_relative_residual = reach.norm > 0 ? out->true_residual / reach.norm : 0;
  out->unreachable = reach.norm > 0 ? reach.unreachable / reach.norm : 0;
  out->beyond_reach = reach.Beyond(options);
  if (out->true_residual <= reach.Target(options)) {
    if (!reached) out->detail.clear();
    out->outcome = Outcome::kConverged;
    return;
  }
  if (out->beyond_reach) {
    std::string detail = "b has a part of relative size " + Figure(out->unreachable) +
                         " that no x reaches (along the null space of Aᵀ); the rest is ";
    if (reached) {
      out->outcome = Outcome::kStagnated;
      detail += of_reached > 0 ? "solved to " + Figure(of_reached) : std::string("zero");
    } else {
      detail += "left at " + Figure(of_reached) + ": " + out->detail;
    }
    out->detail = std::move(detail);
    return;
  }
  if (!reached) return;
  out->outcome = Outcome::kStagnated;
  out->detail = "the part of b that A reaches is solved to " + Figure(of_reached) +
                ", and what rounding of A x leaves along the null space of Aᵀ is over the "
                "tolerance; ask for less";
}

}  // namespace spaid::kernels
