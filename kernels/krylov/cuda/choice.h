// How products by a large matrix by rows are formed: chosen by time, once, when the matrix has been
// laid out. Whatever is chosen, products and the sums beside them are the same bits (SliceLoop), so
// that results depend on no clock.
#pragma once

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/csr.h"

namespace spaid::cuda {

// Times a product and its dot product with x, as in CG, by either loop with chunks on their way,
// and sets the one that keeps for all products to come. Only where `rows` streams, is large enough,
// its rows are not so short that one of the two is ahead anyway, and it is not in tiles; and where
// there is memory for two vectors. Returns whether it did. Takes about two products; waits.
template <class Value>
bool ChooseLoop(Context& context, Rows<Value>& rows, const ChoiceTuning& tuning = tuning::kChoice);

}  // namespace spaid::cuda
