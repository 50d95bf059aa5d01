#include "kernels/krylov/cuda/node_product.h"
#include "kernels/krylov/cuda/product_end.h"

namespace spaid::cuda {
namespace {

template <class Layout>
void Launch(const Branch& branch, const Layout& a, const double* x, double* y,
            const AnyProductEnd& end) {
  std::visit([&](const auto& own) { LaunchProduct<own.kOf>(branch, a, x, y, own); }, end);
}

}  // namespace

void Product(const Branch& branch, const Bsr<double>& a, const double* x, double* y,
             const AnyProductEnd& end) {
  Launch(branch, a, x, y, end);
}
void Product(const Branch& branch, const Bsr<float>& a, const double* x, double* y,
             const AnyProductEnd& end) {
  Launch(branch, a, x, y, end);
}

}  // namespace spaid::cuda
