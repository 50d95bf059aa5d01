// Makes the operators whose spectra a report shows: A, and A preconditioned.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "client/cli/report/ritz.h"
#include "client/cpp/spaid/types.h"

namespace spaid::cli {

struct SpectrumOperator {
  Operator apply;
  bool symmetric = false;
  std::string name;  // "A", "A M", "G A Gᵀ", "√D A √D": similar to each other where M is the same
};

// Returns the operator of A alone (`m` null), or of A and M with the spectrum of MA: symmetric
// where A is and M is G'G, or a positive diagonal. Borrows both, which must have values. The result
// holds buffers of its own: one thread at a time.
SpectrumOperator OperatorOf(const CscMatrix& a, bool a_symmetric, const CscMatrix* m);

// Says why the spectrum with the `index`-th M (from 0) is left out: it is no matrix, or over 1 GiB,
// or there are 12 others already. Empty: it is not.
std::string WhyLeftOut(const PreconditionerInfo& m, size_t index);
// Says why what a server sent as M cannot be multiplied with A: nothing came, or another size.
// Empty: it can.
std::string WhyUnfit(const CscMatrix& a, const std::optional<CscMatrix>& m);

}  // namespace spaid::cli
