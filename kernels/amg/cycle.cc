#include "kernels/amg/cycle.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "kernels/amg/cycle_parts.h"
#include "kernels/amg/cycle_rows.h"
#include "kernels/amg/parts.h"
#include "kernels/base/parallel.h"
#include "kernels/sparse/make_rows.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

template <class Value>
class Cycle final : public AmgHierarchy {
 public:
  using Vector = Array<Value>;

  using Level = CycleLevel<Value>;

  explicit Cycle(CycleParts<Value> parts) : parts_(std::move(parts)) {}

  int64_t n() const override { return levels_.front().n; }
  bool symmetric() const override { return parts_.symmetric; }
  std::variant<const CycleParts<float>*, const CycleParts<double>*> cycle() const override {
    return &parts_;
  }

  void Apply(std::span<const double> x, std::span<double> y, int threads) const override {
    auto work = Take();
    // To a largest element in [1, 2): neither overflow nor underflow in fp32.
    const double largest = Largest(x, threads);
    const int exponent = largest > 0 && std::isfinite(largest) ? std::ilogb(largest) : 0;
    const double down = std::ldexp(1.0, -exponent), up = std::ldexp(1.0, exponent);
    Buffers& top = work->front();
    ForRange(n(), threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double scaled = x[Z(i)] * down;
        top.r[Z(i)] = static_cast<Value>(scaled * in_[Z(i)]);
      }
    });
    Visit(0, *work, threads);
    ForRange(n(), threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double found = static_cast<double>(top.x[Z(i)]) * up;
        y[Z(i)] = found * out_[Z(i)];
      }
    });
    Give(std::move(work));
  }

  int64_t bytes_per_apply() const override {
    int64_t bytes = 32 * n();
    for (const Level& level : levels_) {
      const int64_t other = level.kind == SmootherKind::kStaticSpai ? 0 : level.st.bytes();
      bytes += (pre_ + post_) * (level.a.bytes() + level.s.bytes() + other) + level.p.bytes() +
               level.r.bytes() + 8 * level.n * static_cast<int64_t>(sizeof(Value));
    }
    return bytes + static_cast<int64_t>(inverse_.size() * sizeof(Value));
  }

  int64_t nnz() const override {
    int64_t entries = static_cast<int64_t>(inverse_.size());
    for (const Level& level : levels_) {
      for (const auto* rows : {&level.a, &level.p, &level.r, &level.s, &level.st}) {
        entries += rows->nnz();
      }
    }
    return entries;
  }

  std::vector<AmgPart> parts() const override {
    std::vector<LevelOutline> outlines;
    for (const Level& level : levels_) {
      outlines.push_back({.n = level.n,
                          .below = level.r.n,
                          .nnz_a = level.a.nnz(),
                          .nnz_p = level.p.nnz(),
                          .nnz_r = level.r.nnz(),
                          .nnz_smoother = level.s.nnz(),
                          .inverted = level.a.empty(),
                          .last = level.p.empty(),
                          .near_null = level.near_null.count,
                          .kind = level.kind,
                          .rho = level.rho,
                          .omega = level.omega,
                          .coefficients = level.coefficients});
    }
    return ListParts(outlines);
  }

  Result<CscMatrix> Part(int l, AmgPartKind kind) const override {
    for (const AmgPart& part : parts()) {
      if (part.level != l || part.kind != kind) continue;
      return GuardMemory("a part of the hierarchy", [&] { return MakePart(part); });
    }
    return Status(StatusCode::kInvalidArgument, "UNKNOWN_PART",
                  "the hierarchy has no part " + std::string(Name(kind)) + " of level " +
                      std::to_string(l) + " of " + std::to_string(levels_.size()) +
                      "; take one of those that it lists")
        .At("part", l);
  }

  int64_t host_bytes() const override {
    int64_t bytes = static_cast<int64_t>(inverse_.size() * sizeof(Value)) +
                    16 * static_cast<int64_t>(in_.size());
    for (const Level& level : levels_) {
      for (const auto* rows : {&level.a, &level.p, &level.r, &level.s, &level.st}) {
        bytes += rows->bytes();
      }
      const size_t vectors =
          level.diagonal.size() + level.left.size() + level.right.size() + 5 * Z(level.n);
      bytes += static_cast<int64_t>(vectors * sizeof(Value) +
                                    level.near_null.values.size() * sizeof(double));
    }
    return bytes;
  }

 private:
  // Vectors of a level: right-hand side, solution, and what smoothers need.
  struct Buffers {
    Vector r, x, t, d, g;
  };
  using Work = std::vector<Buffers>;

  std::unique_ptr<Work> Take() const {
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        auto work = std::move(spare_.back());
        spare_.pop_back();
        return work;
      }
    }
    auto work = std::make_unique<Work>(levels_.size());
    for (size_t l = 0; l < levels_.size(); ++l) {
      const size_t n = Z(levels_[l].n);
      for (Vector* v : {&(*work)[l].r, &(*work)[l].x, &(*work)[l].t, &(*work)[l].d, &(*work)[l].g})
        v->resize(n);
    }
    return work;
  }
  Result<CscMatrix> MakePart(const AmgPart& part) const {
    const Level& level = levels_[Z(part.level)];
    const auto dense = [&](const auto& element) {
      return DenseColumns(part.rows, part.cols, element);
    };
    switch (part.kind) {
      case AmgPartKind::kA:
        return Columns(level.a, level.n, level.left, level.right);
      case AmgPartKind::kP:
        return Columns(level.p, part.cols, Inverse(level.right), levels_[Z(part.level) + 1].right);
      case AmgPartKind::kR:
        return Columns(level.r, part.cols, levels_[Z(part.level) + 1].left, Inverse(level.left));
      case AmgPartKind::kSmoother:
        if (!level.s.empty()) return Columns(level.s, level.n, Vector(), Vector());
        return DiagonalMatrix(level.n, [&](int64_t i) {
          if (level.kind == SmootherKind::kChebyshev)
            return static_cast<double>(level.diagonal[Z(i)]);
          const auto left = static_cast<double>(level.left[Z(i)]);
          return level.right.empty() ? left : left * static_cast<double>(level.right[Z(i)]);
        });
      case AmgPartKind::kCoarseInverse:
        return dense([&](int64_t i, int64_t j) {
          return static_cast<double>(inverse_[Z(i * level.n + j)]);
        });
      case AmgPartKind::kNearNull:
        return dense([&](int64_t i, int64_t j) {
          return level.near_null.ones() ? 1.0 : level.near_null.values[Z(j * level.n + i)];
        });
      case AmgPartKind::kScale:
        break;
    }
    return dense([&](int64_t i, int64_t j) {
      const Vector& factor = j == 0 ? level.left : level.right;
      return (j == 0 ? in_ : out_)[Z(i)] /
             (factor.empty() ? 1.0 : static_cast<double>(factor[Z(i)]));
    });
  }

  void Give(std::unique_ptr<Work> work) const {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(work));
  }

  template <class Body>
  static void ForRange(int64_t n, int threads, const Body& body) {
    if (n < kSerialWork) threads = 1;
    ParallelFor(n, kBlockWork, threads, [&](int64_t begin, int64_t end, int) { body(begin, end); });
  }

  double Largest(std::span<const double> x, int threads) const {
    std::vector<double> parts(Z((n() + kBlockWork - 1) / kBlockWork), 0.0);
    ParallelFor(n(), kBlockWork, n() < kSerialWork ? 1 : threads,
                [&](int64_t begin, int64_t end, int) {
                  double largest = 0;
                  for (int64_t i = begin; i < end; ++i) {
                    const double size = std::fabs(x[Z(i)]);
                    if (!(size <= largest)) largest = size;  // a NaN stays
                  }
                  parts[Z(begin / kBlockWork)] = largest;
                });
    double largest = 0;
    for (const double part : parts) {
      if (!(part <= largest)) largest = part;
    }
    return largest;
  }

  static void ResidualOf(const Level& level, const Vector& r, const Vector& x, Vector& t,
                         int threads) {
    Over(level.a, threads, [&](int64_t begin, int64_t end) {
      Residual(level.a, begin, end, r.data(), x.data(), t.data());
    });
  }

  // x (+)= S r or Sᵀ r; `first`: x is not there yet. Writes d and g.
  void Smooth(const Level& level, const Vector& r, bool transposed, bool first, Buffers& b,
              int threads) const {
    switch (level.kind) {
      case SmootherKind::kFsai:
      case SmootherKind::kAfsai:
        Over(level.s, threads, [&](int64_t begin, int64_t end) {
          Product(level.s, begin, end, r.data(), b.g.data());
        });
        AddProduct(level.st, b.g, static_cast<Value>(level.omega), first, b, threads);
        return;
      case SmootherKind::kStaticSpai:
        AddProduct(transposed && !level.st.empty() ? level.st : level.s, r, Value{1}, first, b,
                   threads);
        return;
      case SmootherKind::kChebyshev:
        return Chebyshev(level, r, first, b, threads);
      default:  // the diagonal is in the level's scaling
        ForRange(level.n, threads, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) b.x[Z(i)] = first ? r[Z(i)] : b.x[Z(i)] + r[Z(i)];
        });
    }
  }

  static void AddProduct(const Rows<Value>& m, const Vector& v, Value factor, bool first,
                         Buffers& b, int threads) {
    Over(m, threads, [&](int64_t begin, int64_t end) {
      Product(m, begin, end, v.data(), b.d.data());
      for (int64_t i = begin; i < end; ++i) {
        b.x[Z(i)] = first ? factor * b.d[Z(i)] : b.x[Z(i)] + factor * b.d[Z(i)];
      }
    });
  }

  // d = 4/(3ρ) D⁻¹ r; for i = 1 … k: x += β_i d, and but for the last r -= A d,
  // d = (2i-1)/(2i+3) d + (8i+4)/((2i+3)ρ) D⁻¹ r. The residual is b.g.
  void Chebyshev(const Level& level, const Vector& r, bool first, Buffers& b, int threads) const {
    const auto degree = static_cast<int>(level.coefficients.size());
    const auto start = static_cast<Value>(4 / (3 * level.rho));
    ForRange(level.n, threads, [&](int64_t begin, int64_t end) {
      const auto beta = static_cast<Value>(level.coefficients[0]);
      for (int64_t i = begin; i < end; ++i) {
        b.g[Z(i)] = r[Z(i)];
        b.d[Z(i)] = start * level.diagonal[Z(i)] * r[Z(i)];
        b.x[Z(i)] = first ? beta * b.d[Z(i)] : b.x[Z(i)] + beta * b.d[Z(i)];
      }
    });
    for (int k = 1; k < degree; ++k) {
      const auto keep = static_cast<Value>((2.0 * k - 1) / (2.0 * k + 3));
      const auto step = static_cast<Value>((8.0 * k + 4) / ((2.0 * k + 3) * level.rho));
      const auto beta = static_cast<Value>(level.coefficients[static_cast<size_t>(k)]);
      Over(level.a, threads, [&](int64_t begin, int64_t end) {
        Residual(level.a, begin, end, b.g.data(), b.d.data(), b.g.data());
      });
      ForRange(level.n, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          b.d[Z(i)] = keep * b.d[Z(i)] + step * level.diagonal[Z(i)] * b.g[Z(i)];
          b.x[Z(i)] += beta * b.d[Z(i)];
        }
      });
    }
  }

  // b.x of level l from b.r.
  void Visit(size_t l, Work& work, int threads) const {
    const Level& level = levels_[l];
    Buffers& b = work[l];
    if (l + 1 == levels_.size()) return Coarsest(level, b, threads);
    if (pre_ == 0) std::fill(b.x.begin(), b.x.end(), Value{0});
    for (int sweep = 0; sweep < pre_; ++sweep) {
      if (sweep > 0) ResidualOf(level, b.r, b.x, b.t, threads);
      Smooth(level, sweep == 0 ? b.r : b.t, false, sweep == 0, b, threads);
    }
    for (int visit = 0; visit < visits_; ++visit) {
      ResidualOf(level, b.r, b.x, b.t, threads);
      Buffers& below = work[l + 1];
      Over(level.r, threads, [&](int64_t begin, int64_t end) {
        Product(level.r, begin, end, b.t.data(), below.r.data());
      });
      Visit(l + 1, work, threads);
      AddProduct(level.p, below.x, Value{1}, false, b, threads);
    }
    for (int sweep = 0; sweep < post_; ++sweep) {
      ResidualOf(level, b.r, b.x, b.t, threads);
      Smooth(level, b.t, true, false, b, threads);
    }
  }

  void Coarsest(const Level& level, Buffers& b, int threads) const {
    if (!inverse_.empty()) {
      for (int64_t i = 0; i < level.n; ++i) {
        Value sum = 0;
        for (int64_t j = 0; j < level.n; ++j) sum += inverse_[Z(i * level.n + j)] * b.r[Z(j)];
        b.x[Z(i)] = sum;
      }
      return;
    }
    Smooth(level, b.r, false, true, b, threads);
    ResidualOf(level, b.r, b.x, b.t, threads);
    Smooth(level, b.t, true, false, b, threads);
  }

  const CycleParts<Value> parts_;
  const std::vector<Level>& levels_ = parts_.levels;
  const Vector& inverse_ = parts_.inverse;
  const Array<double>&in_ = parts_.in, &out_ = parts_.out;
  const int pre_ = parts_.pre, post_ = parts_.post, visits_ = parts_.visits;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Work>> spare_;
};

// Factors by which a level with a diagonal smoother W is scaled, so that its steps are x += r - A
// x: left A right, with √W twice where A is symmetric, else W and ones, for W has A's signs. Empty:
// ones.
struct Scales {
  Scales(const Smoother& smoother, bool symmetric) {
    if (smoother.kind != SmootherKind::kL1Jacobi && smoother.kind != SmootherKind::kJacobi) return;
    left = smoother.diagonal;
    if (!symmetric) return;
    for (double& value : left) value = std::sqrt(value);
    right = left;
  }
  Array<double> left, right;
};

template <class Value>
Result<std::shared_ptr<const AmgHierarchy>> Make(std::vector<AmgLevel> from, CoarseInverse inverse,
                                                 UnitScaled a, const AmgOptions& options,
                                                 const Context& context) {
  const int threads = ResolveThreads(context.threads);
  std::vector<CycleLevel<Value>> levels;
  Scales above(from.front().smoother, a.symmetric);
  const Scales top = above;
  for (size_t l = 0; l < from.size(); ++l) {
    CycleLevel<Value> level;
    level.n = from[l].a.n();
    level.kind = from[l].smoother.kind;
    level.rho = from[l].smoother.rho;
    level.omega = from[l].smoother.omega;
    level.coefficients = from[l].smoother.coefficients;
    const Scales below(from[std::min(l + 1, from.size() - 1)].smoother, a.symmetric);
    if (l + 1 < from.size()) {
      // Between scaled unknowns, and scaled residuals.
      level.p = LayOut<Value>(std::move(from[l].p), Inverse(above.right), below.right, threads);
      level.r = LayOut<Value>(std::move(from[l].r), below.left, Inverse(above.left), threads);
    }
    if (l + 1 < from.size() || inverse.n == 0) {
      level.a = LayOut<Value>(std::move(from[l].a), above.left, above.right, threads);
    }
    level.s = LayOut<Value>(std::move(from[l].smoother.rows), {}, {}, threads);
    level.st = LayOut<Value>(std::move(from[l].smoother.transposed), {}, {}, threads);
    level.left = Rounded<Value>(above.left);
    level.right = Rounded<Value>(above.right);
    level.near_null = std::move(from[l].near_null);
    if (level.kind == SmootherKind::kChebyshev) {
      level.diagonal = Rounded<Value>(from[l].smoother.diagonal);
    }
    for (const Rows<Value>* rows : {&level.a, &level.p, &level.r, &level.s, &level.st}) {
      if (!AllFinite(*rows, threads)) {
        return BeyondPrecision(l);
      }
    }
    levels.push_back(std::move(level));
    above = below;
  }
  auto dense = Rounded<Value>(inverse.rows);
  // r̂ = left S r, z = sign S right ẑ.
  Array<double> in(Z(levels.front().n)), out(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const double scale = a.scale.empty() ? 1 : a.scale[i];
    in[i] = scale * (top.left.empty() ? 1 : top.left[i]);
    out[i] = a.sign * scale * (top.right.empty() ? 1 : top.right[i]);
  }
  const bool symmetric = a.symmetric && a.sign > 0 && options.pre_sweeps == options.post_sweeps;
  return std::shared_ptr<const AmgHierarchy>(std::make_shared<Cycle<Value>>(
      CycleParts<Value>{.levels = std::move(levels),
                        .inverse = std::move(dense),
                        .in = std::move(in),
                        .out = std::move(out),
                        .pre = options.pre_sweeps,
                        .post = options.post_sweeps,
                        .visits = options.cycle == CycleKind::kW ? 2 : 1,
                        .symmetric = symmetric}));
}

}  // namespace

Status BeyondPrecision(size_t level) {
  return Status(StatusCode::kFailedPrecondition, "FLOAT32_OVERFLOW",
                "values of level " + std::to_string(level) +
                    " of the hierarchy are beyond the range of its precision; take "
                    "hierarchy_precision fp64")
      .At("hierarchy_precision");
}

Result<std::shared_ptr<const AmgHierarchy>> MakeCycle(std::vector<AmgLevel> levels,
                                                      CoarseInverse inverse, UnitScaled a,
                                                      const AmgOptions& options,
                                                      const Context& context) {
  return GuardMemory("the hierarchy", [&] {
    return options.hierarchy_precision == Precision::kFp64
               ? Make<double>(std::move(levels), std::move(inverse), std::move(a), options, context)
               : Make<float>(std::move(levels), std::move(inverse), std::move(a), options, context);
  });
}

}  // namespace spaid::kernels
