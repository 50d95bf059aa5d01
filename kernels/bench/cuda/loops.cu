#include <cmath>

#include "kernels/bench/cuda/loops.h"
#include "kernels/krylov/cuda/product.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::kernels::bench {
namespace {

using namespace spaid::cuda;
using cuda::Context;

struct Scalars {
  double rho, alpha, beta, omega, norm;
};

struct Summed {
  Scalars* scalars;
  SumSpace space;
  __device__ bool Skip() const { return false; }
};

// ‖b − A x‖ beside A x.
struct ResidualNorm : Summed {
  static constexpr int kSums = 1;
  const double* b;
  __device__ void Row(int64_t i, double y, double (&sums)[1]) const {
    sums[0] += (b[i] - y) * (b[i] - y);
  }
  __device__ void Finish(double (&sums)[1][1]) const {
    SumGrid(sums, space, [this](const double(&total)[1]) { scalars->norm = sqrt(total[0]); });
  }
};

// alpha = rho / wᵀ(A p), beside A p: w is p in CG, the shadow residual in BiCGSTAB.
struct Alpha : Summed {
  static constexpr int kSums = 1;
  const double* w;
  __device__ void Row(int64_t i, double y, double (&sums)[1]) const { sums[0] += w[i] * y; }
  __device__ void Finish(double (&sums)[1][1]) const {
    SumGrid(sums, space,
            [this](const double(&total)[1]) { scalars->alpha = scalars->rho / total[0]; });
  }
};

// omega beside t = A M s.
struct Omega : Summed {
  static constexpr int kSums = 2;
  const double* s;
  __device__ void Row(int64_t i, double t, double (&sums)[2]) const {
    sums[0] += t * s[i];
    sums[1] += t * t;
  }
  __device__ void Finish(double (&sums)[1][2]) const {
    SumGrid(sums, space, [this](const double(&total)[2]) { scalars->omega = total[0] / total[1]; });
  }
};

// rho = rᵀz and beta from the one before, which is 0 in the beginning.
__global__ void __launch_bounds__(kSumThreads)
    RhoKernel(int64_t n, const double* r, const double* z, Summed to) {
  double sums[1][1] = {};
  ForOwn<1>(n, [&](int64_t i, int64_t, int) { sums[0][0] += r[i] * z[i]; });
  SumGrid(sums, to.space, [&](const double(&total)[1]) {
    to.scalars->beta = to.scalars->rho == 0 ? 0 : total[0] / to.scalars->rho;
    to.scalars->rho = total[0];
  });
}

__global__ void __launch_bounds__(kSumThreads)
    CgDirectionKernel(int64_t n, const double* __restrict__ z, double* __restrict__ p,
                      const Scalars* scalars) {
  const double beta = scalars->beta;
  ForOwn<1>(n, [&](int64_t i, int64_t, int) { p[i] = z[i] + beta * p[i]; });
}

__global__ void __launch_bounds__(kSumThreads)
    CgStepKernel(int64_t n, const double* __restrict__ p, const double* __restrict__ q,
                 double* __restrict__ x, double* __restrict__ r, Summed to) {
  const double alpha = to.scalars->alpha;
  double sums[1][1] = {};
  ForOwn<1>(n, [&](int64_t i, int64_t, int) {
    x[i] += alpha * p[i];
    const double own = r[i] - alpha * q[i];
    r[i] = own;
    sums[0][0] += own * own;
  });
  SumGrid(sums, to.space, [&](const double(&total)[1]) { to.scalars->norm = sqrt(total[0]); });
}

__global__ void __launch_bounds__(kSumThreads)
    HalfKernel(int64_t n, const double* __restrict__ v, double* __restrict__ r,
               const Scalars* scalars) {
  const double alpha = scalars->alpha;
  ForOwn<1>(n, [&](int64_t i, int64_t, int) { r[i] -= alpha * v[i]; });
}

__global__ void __launch_bounds__(kSumThreads)
    FullKernel(int64_t n, const double* __restrict__ p_hat, const double* __restrict__ s_hat,
               const double* __restrict__ t, const double* __restrict__ shadow,
               double* __restrict__ x, double* __restrict__ r, Summed to) {
  const double alpha = to.scalars->alpha, omega = to.scalars->omega;
  double sums[1][2] = {};
  ForOwn<1>(n, [&](int64_t i, int64_t, int) {
    x[i] += alpha * p_hat[i] + omega * s_hat[i];
    const double own = r[i] - omega * t[i];
    r[i] = own;
    sums[0][0] += own * own;
    sums[0][1] += shadow[i] * own;
  });
  SumGrid(sums, to.space, [&](const double(&total)[2]) {
    Scalars& s = *to.scalars;
    s.norm = sqrt(total[0]);
    s.beta = (total[1] / s.rho) * (s.alpha / s.omega);
    s.rho = total[1];
  });
}

__global__ void __launch_bounds__(kSumThreads)
    BicgstabDirectionKernel(int64_t n, const double* __restrict__ r, const double* __restrict__ v,
                            double* __restrict__ p, const Scalars* scalars) {
  const double beta = scalars->beta, omega = scalars->omega;
  ForOwn<1>(n, [&](int64_t i, int64_t, int) { p[i] = r[i] + beta * (p[i] - omega * v[i]); });
}

// The vectors and scalars of both, and when to leave.
class Loop {
 public:
  Loop(Context& context, const Csr<double>& a, const double* b, double rtol, int64_t most)
      : context_(context),
        a_(a),
        n_(a.n()),
        b_(b),
        most_(most),
        x_(Vector()),
        r_(Vector()),
        p_(Vector()),
        scratch_(Vector()),
        scalars_(context, 1),
        partial_(context, kMostSumBlocks * kMostSums),
        arrived_(context, 1) {
    arrived_.Fill(0);
    scalars_.Fill(0);
    x_.Fill(0);
    p_.Fill(0);
    Copy(b_, r_);
    b_norm_ = TrueNorm();
    target_ = rtol * b_norm_;
  }

  Buffer<double> Vector() { return Buffer<double>(context_, n_); }
  void Copy(const double* from, const Buffer<double>& to) {
    Check(cudaMemcpyAsync(to.get(), from, static_cast<size_t>(n_) * sizeof(double),
                          cudaMemcpyDeviceToDevice, context_.stream),
          "cudaMemcpyAsync");
  }
  template <class Epilogue>
  void Product(const double* x, const Buffer<double>& y, const Epilogue& epilogue) {
    LaunchProduct(Branch{context_.stream}, a_, x, y.get(), epilogue);
  }
  template <class... Args, class... Given>
  void Run(void (*kernel)(int64_t, Args...), Given... args) {
    kernel<<<SumBlocks(context_, n_), kSumThreads, 0, context_.stream>>>(n_, args...);
    CheckLaunch("a kernel of the loop");
  }
  Summed summed() const { return {scalars_.get(), {partial_.get(), arrived_.get()}}; }

  // Iterates while the recursion's residual is finite and the truth is above the target.
  template <class Iterate>
  LoopResult Conduct(const Iterate& iterate) {
    LoopResult result;
    Stopwatch watch(context_);
    double truth = b_norm_;
    while (truth > target_ && result.iterations < most_) {
      iterate();
      ++result.iterations;
      const double norm = Norm();
      if (!std::isfinite(norm)) break;
      if (norm <= target_ || result.iterations == most_) truth = TrueNorm();
    }
    result.ms = watch.Stop();
    result.relative_residual = TrueNorm() / b_norm_;
    return result;
  }

  const Buffer<double>& x() const { return x_; }
  const Buffer<double>& r() const { return r_; }
  const Buffer<double>& p() const { return p_; }

 private:
  double Norm() {
    auto* const seen = static_cast<Scalars*>(context_.pinned);
    Check(cudaMemcpyAsync(seen, scalars_.get(), sizeof(Scalars), cudaMemcpyDeviceToHost,
                          context_.stream),
          "cudaMemcpyAsync");
    context_.Synchronize();
    return seen->norm;
  }
  double TrueNorm() {
    Product(x_.get(), scratch_, ResidualNorm{summed(), b_});
    return Norm();
  }

  Context& context_;
  const Csr<double>& a_;
  const int64_t n_;
  const double* const b_;
  const int64_t most_;
  Buffer<double> x_, r_, p_, scratch_;
  Buffer<Scalars> scalars_;
  Buffer<double> partial_;
  Buffer<unsigned> arrived_;
  double b_norm_ = 0, target_ = 0;
};

}  // namespace

LoopResult CgLoop(Context& context, const Csr<double>& a, const Precondition& m, const double* b,
                  double rtol, int64_t max_iterations) {
  Loop loop(context, a, b, rtol, max_iterations);
  const Buffer<double> z = loop.Vector(), q = loop.Vector();
  const double *const r = loop.r().get(), *const p = loop.p().get();
  return loop.Conduct([&] {
    m(r, z.get());
    loop.Run(RhoKernel, r, z.get(), loop.summed());
    loop.Run(CgDirectionKernel, z.get(), loop.p().get(), loop.summed().scalars);
    loop.Product(p, q, Alpha{loop.summed(), p});
    loop.Run(CgStepKernel, p, q.get(), loop.x().get(), loop.r().get(), loop.summed());
  });
}

LoopResult BicgstabLoop(Context& context, const Csr<double>& a, const Precondition& m,
                        const double* b, double rtol, int64_t max_iterations) {
  Loop loop(context, a, b, rtol, max_iterations);
  const Buffer<double> shadow = loop.Vector(), p_hat = loop.Vector(), s_hat = loop.Vector(),
                       v = loop.Vector(), t = loop.Vector();
  const double* const r = loop.r().get();
  loop.Copy(r, shadow);
  loop.Copy(r, loop.p());
  loop.Run(RhoKernel, r, r, loop.summed());
  bool first = true;
  return loop.Conduct([&] {
    if (!first) {
      loop.Run(BicgstabDirectionKernel, r, v.get(), loop.p().get(), loop.summed().scalars);
    }
    first = false;
    m(loop.p().get(), p_hat.get());
    loop.Product(p_hat.get(), v, Alpha{loop.summed(), shadow.get()});
    loop.Run(HalfKernel, v.get(), loop.r().get(), loop.summed().scalars);
    m(r, s_hat.get());
    loop.Product(s_hat.get(), t, Omega{loop.summed(), r});
    loop.Run(FullKernel, p_hat.get(), s_hat.get(), t.get(), shadow.get(), loop.x().get(),
             loop.r().get(), loop.summed());
  });
}

}  // namespace spaid::kernels::bench
