#include "kernels/dense/cholesky.h"

#include <cmath>

#include "kernels/dense/simd.h"

namespace spaid::kernels {
namespace {

constexpr Mask8 kLaneIndex = {0, 1, 2, 3, 4, 5, 6, 7};

// Loads `Segments` vectors of each of the 8 panel columns and subtracts the contribution of all
// columns left of the panel.
template <int Segments>
SPAID_INLINE void UpdatePanel(int64_t panel, int64_t segment, int64_t ld, const double* a,
                              Vec8 (&acc)[8][Segments]) {
  const int64_t first = panel * kLanes, row = segment * kLanes;
  for (int c = 0; c < 8; ++c) {
    for (int s = 0; s < Segments; ++s) {
      acc[c][s] = *reinterpret_cast<const Vec8*>(a + (first + c) * ld + row + s * kLanes);
    }
  }
  for (int64_t k = 0; k < first; ++k) {
    const double* column = a + k * ld;
    const double* multiplier = column + first;
    Vec8 l[Segments];
    for (int s = 0; s < Segments; ++s) {
      l[s] = *reinterpret_cast<const Vec8*>(column + row + s * kLanes);
    }
    for (int c = 0; c < 8; ++c) {
      for (int s = 0; s < Segments; ++s) acc[c][s] -= l[s] * multiplier[c];
    }
  }
}

// Rows below the diagonal block: L(rows, panel) = acc * (diagonal block)^-T.
template <int Segments>
SPAID_INLINE void SolvePanel(int64_t panel, int64_t segment, int64_t ld, const double* inverse,
                             double* a) {
  Vec8 acc[8][Segments];
  UpdatePanel<Segments>(panel, segment, ld, a, acc);
  const int64_t first = panel * kLanes;
  for (int c = 0; c < 8; ++c) {
    double* column = a + (first + c) * ld;
    for (int s = 0; s < Segments; ++s) {
      acc[c][s] *= inverse[c];
      *reinterpret_cast<Vec8*>(column + (segment + s) * kLanes) = acc[c][s];
    }
    for (int d = c + 1; d < 8; ++d) {
      for (int s = 0; s < Segments; ++s) acc[d][s] -= acc[c][s] * column[first + d];
    }
  }
}

template <class Block>
SPAID_INLINE void SolveBlock(int64_t n, int64_t ld, const double* l, const double* inverse,
                             double* x) {
  auto* y = reinterpret_cast<Block*>(x);
  for (int64_t j = 0; j < n; ++j) {
    const Block t = y[j] * inverse[j];
    y[j] = t;
    const double* column = l + j * ld;
    for (int64_t i = j + 1; i < n; ++i) y[i] -= column[i] * t;
  }
  for (int64_t j = n - 1; j >= 0; --j) {
    const double* column = l + j * ld;
    Block sum0 = y[j], sum1 = {}, sum2 = {}, sum3 = {};
    int64_t i = j + 1;
    for (; i + 3 < n; i += 4) {
      sum0 -= column[i] * y[i];
      sum1 -= column[i + 1] * y[i + 1];
      sum2 -= column[i + 2] * y[i + 2];
      sum3 -= column[i + 3] * y[i + 3];
    }
    for (; i < n; ++i) sum0 -= column[i] * y[i];
    y[j] = ((sum0 + sum1) + (sum2 + sum3)) * inverse[j];
  }
}

// y := L⁻ᵀ y, the leading `panels` panels of L.
SPAID_INLINE void SolveBackward(int64_t panels, int64_t ld, const double* l,
                                const double* inverse_diagonal, Vec8* y) {
  for (int64_t p = panels - 1; p >= 0; --p) {
    const double* columns = l + p * kLanes * ld;
    const double* inverse = inverse_diagonal + p * kLanes;
    Vec8 rest = y[p], solved = {};
    if (p + 1 < panels) {
      Vec8 dot[8] = {};
      for (int64_t s = p + 1; s < panels; ++s) {
#pragma GCC unroll 8
        for (int c = 0; c < 8; ++c) {
          dot[c] += reinterpret_cast<const Vec8*>(columns + c * ld)[s] * y[s];
        }
      }
#pragma GCC unroll 8
      for (int c = 0; c < 8; ++c) {
        const Vec8& d = dot[c];
        rest[c] -= ((d[0] + d[4]) + (d[2] + d[6])) + ((d[1] + d[5]) + (d[3] + d[7]));
      }
    }
#pragma GCC unroll 8
    for (int c = 7; c >= 0; --c) {
      const double t = rest[c] * inverse[c];
      solved[c] = t;
      rest -= reinterpret_cast<const Vec8*>(columns + c * ld)[p] * t;
    }
    y[p] = solved;
  }
}

}  // namespace

SPAID_HOT_KERNEL
double CholeskyFactor(int64_t np, int64_t ld, double* a, double* inverse_diagonal, double limit,
                      double* scaled_determinant) {
  const int64_t panels = np / kLanes;
  double smallest = 1, product = 1;
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t first = p * kLanes;
    double* inverse = inverse_diagonal + first;
    double original[8];
    for (int c = 0; c < 8; ++c) original[c] = a[(first + c) * ld + first + c];
    Vec8 acc[8][1];
    UpdatePanel<1>(p, p, ld, a, acc);
    for (int c = 0; c < 8; ++c) {
      const double pivot = acc[c][0][c];
      if (!(pivot > limit * original[c]) || !(pivot > 0) || !std::isfinite(pivot)) {
        const double scaled = pivot / original[c];
        return scaled > 0 && scaled <= limit ? scaled : 0;
      }
      const double scaled = pivot / original[c];
      if (scaled < smallest) smallest = scaled;
      product *= scaled;
      inverse[c] = 1 / std::sqrt(pivot);
      const Mask8 below = kLaneIndex > static_cast<int64_t>(c);
      const Vec8 column = below ? acc[c][0] * inverse[c] : Vec8{};
      *reinterpret_cast<Vec8*>(a + (first + c) * ld + first) = column;
      for (int d = c + 1; d < 8; ++d) acc[d][0] -= column * column[d];
    }
    // Mirror the diagonal block: backward substitution then reads rows of L as columns.
    for (int c = 1; c < 8; ++c) {
      for (int b = 0; b < c; ++b) {
        a[(first + c) * ld + first + b] = a[(first + b) * ld + first + c];
      }
    }
    int64_t segment = p + 1;
    for (; segment + 1 < panels; segment += 2) SolvePanel<2>(p, segment, ld, inverse, a);
    if (segment < panels) SolvePanel<1>(p, segment, ld, inverse, a);
  }
  if (scaled_determinant != nullptr) *scaled_determinant = product;
  return smallest;
}

// A panel's part of x stays in a register: eight scalar stores followed by a vector load would
// stall.
SPAID_HOT_KERNEL
void CholeskySolve(int64_t np, int64_t ld, const double* l, const double* inverse_diagonal,
                   double* x) {
  auto* y = reinterpret_cast<Vec8*>(x);
  const int64_t panels = np / kLanes;
  for (int64_t p = 0; p < panels; ++p) {
    const double* columns = l + p * kLanes * ld;
    const double* inverse = inverse_diagonal + p * kLanes;
    Vec8 rest = y[p], solved = {};
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      const double t = rest[c] * inverse[c];
      solved[c] = t;
      rest -= reinterpret_cast<const Vec8*>(columns + c * ld)[p] * t;
    }
    y[p] = solved;
    for (int64_t s = p + 1; s < panels; ++s) {
      Vec8 sum = y[s];
#pragma GCC unroll 8
      for (int c = 0; c < 8; ++c) {
        sum -= reinterpret_cast<const Vec8*>(columns + c * ld)[s] * solved[c];
      }
      y[s] = sum;
    }
  }
  SolveBackward(panels, ld, l, inverse_diagonal, y);
}

// Lᵀ x = e_(q-1): what stands right of column q - 1 meets zeros.
SPAID_HOT_KERNEL
void CholeskyInverseRow(int64_t q, int64_t ld, const double* l, const double* inverse_diagonal,
                        double* x) {
  auto* y = reinterpret_cast<Vec8*>(x);
  const int64_t panels = PadToLanes(q) / kLanes;
  for (int64_t p = 0; p < panels; ++p) y[p] = Vec8{};
  y[panels - 1] = kLaneIndex == (q - 1) % kLanes ? Vec8{} + 1.0 : Vec8{};
  SolveBackward(panels, ld, l, inverse_diagonal, y);
}

SPAID_HOT_KERNEL
void CholeskySolve4(int64_t n, int64_t ld, const double* l, const double* inverse_diagonal,
                    double* x) {
  SolveBlock<Vec4>(n, ld, l, inverse_diagonal, x);
}

SPAID_HOT_KERNEL
void CholeskySolve8(int64_t n, int64_t ld, const double* l, const double* inverse_diagonal,
                    double* x) {
  SolveBlock<Vec8>(n, ld, l, inverse_diagonal, x);
}

}  // namespace spaid::kernels
