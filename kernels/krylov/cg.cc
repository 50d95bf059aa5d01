#include <cmath>
#include <utility>

#include "kernels/krylov/run.h"

namespace spaid::kernels::krylov {
void RunCg(Run& run) {
  Team& team = run.team();
  const auto n = static_cast<size_t>(team.n());
  double* x = run.system().x.data();
  Array<double> r(n), p(n), q(n), z_store(run.has_m() ? n : 0);
  if (!run.Start(r)) return;

  bool fresh = true;  // p must be set from z alone
  double rho = 0, rr = 0;
  while (run.MayIterate()) {
    Array<double>& z = run.has_m() ? z_store : r;
    if (run.has_m()) run.ApplyM(r, z);
    const double rho_new = (run.has_m() || fresh) ? team.Dot(r, z) : rr;
    if (!std::isfinite(rho_new)) {
      run.End(Outcome::kNonFinite, "rᵀMr is not finite: the preconditioner overflows");
      return;
    }
    if (rho_new <= 0) {
      run.End(Outcome::kIndefinite, NotDefinite("the preconditioner is not positive definite: rᵀMr",
                                                rho_new, run.iterations()));
      return;
    }
    const double beta = fresh ? 0 : rho_new / rho;
    rho = rho_new;
    {
      const double* zs = z.data();
      double* ps = p.data();
      if (fresh) {
        team.For([=](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ps[i] = zs[i];
        });
      } else {
        team.For([=](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ps[i] = zs[i] + beta * ps[i];
        });
      }
    }
    fresh = false;

    run.ApplyA(p, q);
    const double pq = team.Dot(p, q);
    if (!std::isfinite(pq)) {
      run.End(Outcome::kNonFinite, "pᵀAp is not finite at iteration " +
                                       std::to_string(run.iterations()) + "; rescale A");
      return;
    }
    if (pq <= 0) {
      run.End(Outcome::kIndefinite,
              NotDefinite("A is not positive definite: pᵀAp", pq, run.iterations()));
      return;
    }
    const double alpha = rho / pq;
    const double* ps = p.data();
    const double* qs = q.data();
    double* rs = r.data();
    rr = team.Sum<1>([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) x[i] += alpha * ps[i];
      for (int64_t i = begin; i < end; ++i) rs[i] -= alpha * qs[i];
      return std::array<double, 1>{BlockDot(rs, rs, begin, end)};
    })[0];
    const double norm = std::sqrt(rr);
    if (!run.Record(norm, [&](double* previous) {
          team.For([=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) previous[i] = x[i] - alpha * ps[i];
          });
        })) {
      return;
    }
    if (!run.VerifyDue(norm)) continue;
    switch (run.Verify(norm, q, r)) {
      case Verdict::kEnd:
        return;
      case Verdict::kContinue:
        break;
      case Verdict::kRestart:
        std::swap(r, q);
        fresh = true;
        break;
    }
  }
}

}  // namespace spaid::kernels::krylov
