#include "kernels/krylov/krylov.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "kernels/base/clock.h"
#include "kernels/base/device.h"
#include "kernels/base/parallel.h"
#include "kernels/krylov/null_space.h"
#include "kernels/krylov/run.h"
#include "kernels/krylov/solve_each.h"

namespace spaid::kernels {
namespace {

using krylov::Run;
using krylov::System;
using krylov::Team;
using krylov::Terms;

Status Invalid(std::string reason, std::string message, std::string field, int64_t index = -1) {
  return Status(StatusCode::kInvalidArgument, std::move(reason), std::move(message))
      .At(std::move(field), index);
}

// Whether all of them are finite.
bool AreFinite(std::span<const double> v) {
  double sums[8] = {};  // of zeros, and NaNs
  size_t i = 0;
  for (; i + 8 <= v.size(); i += 8) {
    for (size_t k = 0; k < 8; ++k) sums[k] += v[i + k] - v[i + k];
  }
  for (; i < v.size(); ++i) sums[0] += v[i] - v[i];
  for (size_t k = 1; k < 8; ++k) sums[0] += sums[k];
  return sums[0] == 0;
}

Status CheckFinite(std::span<const double> v, int64_t n, const char* field, int threads) {
  std::atomic<int64_t> first = std::ssize(v);
  krylov::ForBlocks(std::ssize(v), threads, [&](int64_t begin, int64_t end) {
    const auto block = v.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    if (AreFinite(block)) return;
    const auto bad =
        std::find_if(block.begin(), block.end(), [](double x) { return !std::isfinite(x); });
    Lower(first, begin + (bad - block.begin()));
  });
  const int64_t at = first;
  if (at == std::ssize(v)) return {};
  return Invalid("NON_FINITE_VALUE",
                 std::string(field) + "[" + std::to_string(at) + "] (row " +
                     std::to_string(at % n) + " of vector " + std::to_string(at / n) +
                     ") is NaN or infinite; send finite values",
                 field, at);
}

void RunMethod(Method method, Run& run) {
  switch (method) {
    case Method::kCg:
      return krylov::RunCg(run);
    case Method::kBicgstab:
      return krylov::RunBicgstab(run);
    case Method::kGmres:
      return krylov::RunGmres(run);
    case Method::kMinres:
      return krylov::RunMinres(run);
    case Method::kIdr:
      return krylov::RunIdr(run);
    case Method::kAuto:
      break;  // refused by CheckSolveInput
  }
}

// Squares of b must neither overflow nor underflow: beyond these, b and x0 are scaled by a power of
// two, which changes no bit of the iteration's mantissas.
constexpr double kLargeNorm = 1e100;
constexpr double kSmallNorm = 1e-100;
// No element of x0 is scaled past 2^kMaxGuessExponent, so that its residual and the squares of that
// stay finite: a b that is tiny against x0 stays tiny.
constexpr int kMaxGuessExponent = 300;

double LargestMagnitude(std::span<const double> v) {
  double largest = 0;
  for (const double e : v) largest = std::max(largest, std::abs(e));
  return largest;
}

// The power of two that b and x0 are scaled by; b is not zero.
int ScaleExponent(double b_norm, std::span<const double> b, std::span<const double> x0) {
  if (b_norm < kLargeNorm && b_norm > kSmallNorm) return 0;
  int exponent = -std::ilogb(LargestMagnitude(b));
  const double guess = LargestMagnitude(x0);
  if (guess == 0) return exponent;
  const int room = kMaxGuessExponent - std::ilogb(guess);
  return exponent > 0 ? std::clamp(room, 0, exponent) : std::min(room, exponent);
}

Array<double> Scaled(std::span<const double> v, int exponent) {
  Array<double> scaled(v.size());
  for (size_t i = 0; i < v.size(); ++i) scaled[i] = std::ldexp(v[i], exponent);
  return scaled;
}

// A right-hand side being solved, scaled into the range of fp64.
struct Prepared {
  std::span<const double> b, x0;  // as they were given, or as a null space has left them
  int exponent = 0;               // they are scaled by 2^exponent
  Array<double> scaled_b, scaled_x0;
  krylov::Task task;
};

// Takes the result of the scaled system back to the scale of `b`, and holds it against that: what
// was scaled out of the range of fp64 makes no solution.
void Unscale(const LinearOperator& a, const Prepared& prepared, Team* team) {
  const std::span<const double> b = prepared.b, x0 = prepared.x0;
  const System& scaled = prepared.task.system;
  const Terms& terms = prepared.task.terms;
  RhsResult* const out = prepared.task.out;
  const int exponent = prepared.exponent;
  const std::span<double> x = scaled.x;
  bool finite = true;
  for (size_t i = 0; i < x.size(); ++i) {
    // The scaled guess may have lost bits, or all of them: what is untouched is the guess itself.
    const bool untouched = x0.empty() ? x[i] == 0 : x[i] == scaled.x0[i];
    x[i] = untouched ? (x0.empty() ? 0 : x0[i]) : std::ldexp(x[i], -exponent);
    finite = finite && std::isfinite(x[i]);
  }
  if (!finite) {
    out->outcome = Outcome::kNonFinite;
    out->detail =
        "the solution, or what was reached of it, exceeds the range of fp64; rescale the "
        "right-hand side, or A";
    if (x0.empty()) {
      std::fill(x.begin(), x.end(), 0.0);
    } else {
      std::copy(x0.begin(), x0.end(), x.begin());
    }
  }
  Array<double> r(x.size());
  a.Apply(x, r, team->threads());
  for (size_t i = 0; i < r.size(); ++i) r[i] = b[i] - r[i];
  const double norm = team->Norm(r);
  if (!std::isfinite(norm) && finite) {
    // Products that overflow at this scale only: the scaled residual is the better figure.
    out->true_residual = std::ldexp(out->true_residual, -exponent);
    return;
  }
  out->true_residual = norm;
  const double scaled_norm = std::ldexp(norm, exponent);
  out->true_relative_residual = scaled_norm / terms.b_norm;
  if (out->outcome == Outcome::kConverged && !(scaled_norm <= terms.target)) {
    out->outcome = Outcome::kStagnated;
    out->detail =
        "the solution holds numbers under the range of fp64, whose rounding is larger than the "
        "tolerance; rescale the right-hand side, or A";
  }
}

// Makes the task for conduct(); false: b is zero, and so the solution is known. `whole`: what `b`
// is the reached part of; may be null.
bool Prepare(std::span<const double> b, std::span<const double> x0, std::span<double> x,
             const Terms& common, const Reach* whole, Team* team, RhsResult* out,
             Prepared* prepared) {
  const SolveOptions& options = *common.options;
  const double b_norm = team->Norm(b);
  if (b_norm == 0) {
    std::fill(x.begin(), x.end(), 0.0);
    out->outcome = Outcome::kConverged;
    out->detail = "the right-hand side is zero, so is the solution";
    const ResidualPoint point{common.rhs, 0, 0.0};
    if (options.keep_history) out->history.push_back(point);
    if (common.context->progress != nullptr) common.context->progress->OnResidual(point);
    return false;
  }
  prepared->b = b;
  prepared->x0 = x0;
  prepared->exponent = ScaleExponent(b_norm, b, x0);
  System system{.b = b, .x0 = x0, .x = x};
  Terms terms = common;
  terms.b_norm = b_norm;
  terms.target = std::max(options.rtol * b_norm, options.atol);
  if (whole != nullptr) terms.target = whole->TargetOfReached(options, b_norm);
  if (const int exponent = prepared->exponent; exponent != 0) {
    system.b = prepared->scaled_b = Scaled(b, exponent);
    system.x0 = prepared->scaled_x0 = Scaled(x0, exponent);
    terms.b_norm = team->Norm(system.b);
    terms.target = whole != nullptr
                       ? std::ldexp(terms.target, exponent)
                       : std::max(options.rtol * terms.b_norm, std::ldexp(options.atol, exponent));
  }
  // The threads share the page faults of fresh memory, too.
  team->For([&](int64_t begin, int64_t end) {
    if (x0.empty()) {
      std::fill(x.begin() + begin, x.begin() + end, 0.0);
    } else {
      std::copy(system.x0.begin() + begin, system.x0.begin() + end, x.begin() + begin);
    }
  });
  prepared->task = {system, terms, out};
  return true;
}

}  // namespace

Status CheckSolveOptions(const SolveOptions& options) {
  if (options.rtol == 0 && options.atol == 0) {
    return Invalid("BAD_TOLERANCE", "rtol = 0 is not allowed where atol = 0: give one over 0",
                   "rtol");
  }
  return CheckRanges(options);
}

Status CheckSolveInput(int64_t n, int64_t m_n, std::span<const double> b,
                       std::span<const double> x0, const SolveOptions& options, int threads) {
  if (options.method == Method::kAuto) {
    return Invalid("METHOD_NOT_RESOLVED", "method AUTO must be resolved first", "method");
  }
  if (Status s = CheckSolveOptions(options); !s.ok()) return s;
  const auto length = static_cast<int64_t>(b.size());
  if (n <= 0 || length == 0 || length % n != 0) {
    return Invalid("RHS_LENGTH_MISMATCH",
                   "rhs has " + std::to_string(length) +
                       " values; a multiple of n = " + std::to_string(n) + " is needed",
                   "rhs");
  }
  if (!x0.empty() && x0.size() != b.size()) {
    return Invalid("RHS_LENGTH_MISMATCH",
                   "initial_guess has " + std::to_string(x0.size()) + " values, rhs has " +
                       std::to_string(length) + "; send as many, or none",
                   "initial_guess");
  }
  if (m_n != n) {
    return Invalid(
        "PRECONDITIONER_SIZE_MISMATCH",
        "the preconditioner is for n = " + std::to_string(m_n) + ", A has n = " + std::to_string(n),
        "preconditioner");
  }
  if (options.null_space != nullptr && options.null_space->n() != n) {
    return Invalid("BAD_NULL_SPACE",
                   "the null space is one of n = " + std::to_string(options.null_space->n()) +
                       ", A has n = " + std::to_string(n),
                   "null_space");
  }
  if (Status s = CheckFinite(b, n, "rhs", threads); !s.ok()) return s;
  return CheckFinite(x0, n, "initial_guess", threads);
}

int64_t RestartLength(const SolveOptions& options, int64_t n) {
  int64_t columns = options.restart;
  if (options.basis_bytes > 0) {
    // The largest m with BasisBytes(m, n) <= basis_bytes: 4 m² + 8 n m + 8 n <= basis_bytes.
    const double size = static_cast<double>(n);
    const double rest = (static_cast<double>(options.basis_bytes) - 8 * size) / 4;
    if (rest > 0) {
      const double most = rest / (size + std::sqrt(size * size + rest));
      // Fewer than n count: the cast must stay in range.
      columns = std::max(columns, static_cast<int64_t>(std::min(most, size)));
    }
  }
  return std::min({columns, options.max_iterations, n});
}

std::string_view HostAlone(const SolveOptions& options) {
  if (options.null_space != nullptr) return "a null space is projected out by the host alone";
  switch (options.method) {
    case Method::kMinres:
      return "MINRES is computed by the host alone";
    case Method::kIdr:
      return "IDR is computed by the host alone";
    case Method::kGmres:
      return options.basis_bytes > 0 ? "a basis of GMRES that grows is the host's alone" : "";
    case Method::kAuto:
    case Method::kCg:
    case Method::kBicgstab:
      break;
  }
  return "";
}

namespace krylov {
namespace {

// Bytes of a basis of m + 1 vectors of n, and of the triangle R.
double BasisBytes(double m, double n) {
  return (m + 1) * n * sizeof(double) + m * m / 2 * sizeof(double);
}

}  // namespace

Status CheckBasis(int64_t n, const SolveOptions& options, double usable) {
  if (options.method != Method::kGmres) return {};
  const int64_t m = RestartLength(options, n);
  const double bytes = BasisBytes(static_cast<double>(m), static_cast<double>(n));
  if (bytes <= usable) return {};
  const char* const field = m > options.restart ? "basis_bytes" : "restart";
  return Status(StatusCode::kResourceExhausted, "BASIS_TOO_LARGE",
                "GMRES with cycles of " + std::to_string(m) + " columns needs " + Figure(bytes) +
                    " bytes for its basis, allowed are " + Figure(usable) + "; lower " + field)
      .At(field);
}

Result<SolveResult> SolveEach(const LinearOperator& a, int64_t m_n, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context, Team* team, size_t at_once,
                              const Conduct& conduct) {
  const auto start = Clock::now();
  if (Status s = CheckSolveInput(a.n(), m_n, b, x0, options, team->threads()); !s.ok()) return s;
  const auto n = static_cast<size_t>(a.n());
  const size_t count = b.size() / n;
  SolveResult result;
  result.x.resize(b.size());
  result.rhs.resize(count);
  // Left by a null space of the right-hand sides and guesses.
  const NullSpace* const space = options.null_space;
  std::vector<Reach> reaches(space != nullptr ? count : 0);
  Array<double> guesses;
  if (space != nullptr) {
    guesses.assign(x0.begin(), x0.end());
    for (size_t k = 0; k < count; ++k) {
      reaches[k] = SplitRhs(*space, b.subspan(k * n, n), team);
      if (!x0.empty()) space->RemoveRight(std::span(guesses).subspan(k * n, n), team);
    }
    x0 = guesses;
  }
  std::vector<Prepared> together;
  together.reserve(at_once);  // tasks point into them
  std::vector<Task> tasks;
  for (size_t k = 0; k < count; ++k) {
    Prepared prepared;
    const Terms terms{.rhs = static_cast<int32_t>(k), .options = &options, .context = &context};
    const Reach* const whole = space != nullptr ? &reaches[k] : nullptr;
    if (Prepare(whole != nullptr ? std::span<const double>(whole->b) : b.subspan(k * n, n),
                x0.empty() ? x0 : x0.subspan(k * n, n), std::span(result.x).subspan(k * n, n),
                terms, whole, team, &result.rhs[k], &prepared)) {
      tasks.push_back(prepared.task);
      together.push_back(std::move(prepared));
    }
    if (tasks.empty() || (tasks.size() < at_once && k + 1 < count)) continue;
    if (Status s = conduct(tasks); !s.ok()) return s;
    for (const Prepared& one : together) {
      if (one.exponent != 0) Unscale(a, one, team);
    }
    tasks.clear();
    together.clear();
  }
  for (size_t k = 0; k < reaches.size(); ++k) {
    TellOfWhole(a, *space, b.subspan(k * n, n), reaches[k], options, team,
                std::span(result.x).subspan(k * n, n), &result.rhs[k]);
  }
  result.solve_ms = MsSince(start);
  return result;
}

}  // namespace krylov

double CountedBytes(int64_t n, int64_t a_bytes, int64_t m_bytes, const SolveOptions& options,
                    int64_t iterations) {
  const auto count = static_cast<double>(iterations);
  double products = count, elements = 0;
  switch (options.method) {
    case Method::kAuto:
      return 0;
    case Method::kCg:
      elements = count * ((m_bytes > 0 ? 2 : 0) + 3 + 2 + 6);  // r z; p; p q; x, r, r r
      break;
    case Method::kMinres:
      elements = count * (2 + 4 + 10 + (m_bytes > 0 ? 4 : 0));  // q p; p, v v; w, x, r, p; p z, z
      break;
    case Method::kIdr: {
      // A cycle of s + 1 products. For k < s: u of r, t and what is left of G and U (3 + 2 (s −
      // k)); g and the dots (1 + s), but k > 0 has g and u less the k before (5 + 2 k) in between;
      // x, r (6). Then t r (2), and x, r with the dots (6 + s). M has one vector more each time.
      const auto s = static_cast<double>(std::min(options.shadow_vectors, n));
      const double cycle = 3 * s + s * (s + 1) + s * (1 + s) + (s - 1) * (5 + s) + 6 * s + 8 + s;
      elements = count * (cycle / (s + 1) + (m_bytes > 0 ? 1 : 0));
      break;
    }
    case Method::kBicgstab:
      products = 2 * count;
      elements = count * (4 + 2 + 3 + 2 + 8);  // p; shadow v; s; t s, t t; x, r, r r, shadow r
      break;
    case Method::kGmres: {
      // In iteration k of a cycle: ‖w‖, the first dot product, the scaling; a pass of four for each
      // of k basis vectors.
      const int64_t restart = RestartLength(options, n);
      const auto sum = [](double k) { return 5 * k + 2 * k * (k + 1); };
      elements = static_cast<double>(iterations / restart) * sum(static_cast<double>(restart)) +
                 sum(static_cast<double>(iterations % restart));
      break;
    }
  }
  return products * static_cast<double>(a_bytes + m_bytes) + 8 * elements * static_cast<double>(n);
}

Result<SolveResult> Solve(const LinearOperator& a, const LinearOperator* m,
                          std::span<const double> b, std::span<const double> x0,
                          const SolveOptions& options, const Context& context) {
  Team team(a.n(), ResolveThreads(context.threads));
  const double usable = static_cast<double>(UsableMemoryBytes()) / 2;
  SolveFigures figures;
  auto result =
      krylov::SolveEach(a, m != nullptr ? m->n() : a.n(), b, x0, options, context, &team,
                        /*at_once=*/1, [&](std::span<const krylov::Task> tasks) {
                          if (Status s = krylov::CheckBasis(a.n(), options, usable); !s.ok())
                            return s;
                          for (const auto& [system, terms, out] : tasks) {
                            const auto start = Clock::now();
                            Run run(a, m, system, terms, &team, out);
                            RunMethod(options.method, run);
                            run.Conclude();
                            figures.check_ms += run.check_ms();
                            figures.iterate_ms += MsSince(start) - run.check_ms() - run.pause_ms();
                            figures.iterations += out->iterations;
                            figures.bytes += CountedBytes(a.n(), a.bytes_per_apply(),
                                                          m != nullptr ? m->bytes_per_apply() : 0,
                                                          options, out->iterations);
                          }
                          return Status();
                        });
  if (result.ok()) result->figures = figures;
  return result;
}

}  // namespace spaid::kernels
