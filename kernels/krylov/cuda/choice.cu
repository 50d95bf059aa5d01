#include <vector>

#include "kernels/krylov/cuda/choice.h"
#include "kernels/krylov/cuda/product.h"
#include "kernels/krylov/cuda/times.h"

namespace spaid::cuda {
namespace {

// The dot product of w with y beside y = A x.
struct DotBeside {
  static constexpr int kSums = 1;
  const double* w;
  double* dot;
  SumSpace space;
  bool skips;  // the launch does nothing

  __device__ bool Skip() const { return skips; }
  __device__ void Row(int64_t at, double y, double (&sums)[1]) const {
    sums[0] = fma(w[at], y, sums[0]);
  }
  __device__ void Finish(double (&sums)[1][1]) const {
    SumGrid(sums, space, [this](const double(&total)[1]) { *dot = total[0]; });
  }
};

}  // namespace

template <class Value>
bool ChooseLoop(Context& context, Rows<Value>& rows, const ChoiceTuning& tuning) {
  if (!rows.streams() || rows.in_tiles() || rows.bytes() < tuning.bytes ||
      rows.nnz() < rows.n() * tuning.entries) {
    return false;
  }
  const SliceLoop rule = rows.loop();
  const SliceLoop other =
      rule == SliceLoop::kLongChunks ? SliceLoop::kShortChunks : SliceLoop::kLongChunks;
  std::vector<double> ms;
  try {
    // x, y, the dot product, and what blocks leave of it.
    const int64_t n = rows.n();
    const Buffer<double> memory(context, 2 * n + 1 + rows.blocks());
    const Buffer<unsigned> arrived(context, 1);
    memory.Fill(0x3f);  // 4.8e-4
    arrived.Fill(0);
    double* const x = memory.get();
    const auto multiply = [&](SliceLoop loop, bool skips) {
      rows.set_loop(loop);
      LaunchProduct(Branch{context.stream}, rows, x, x + n,
                    DotBeside{x, x + 2 * n, {x + 2 * n + 1, arrived.get()}, skips});
    };
    // The first launch of a kernel loads it.
    multiply(rule, true);
    multiply(other, true);
    ms = TimeEach(context, 2, [&](int i) { multiply(i == 0 ? rule : other, false); });
  } catch (const Failure& failure) {
    rows.set_loop(rule);
    if (failure.result() != kSpaidCudaOutOfMemory) throw;
    return false;
  }
  rows.set_loop(ms[1] < tuning.below * ms[0] ? other : rule);
  return true;
}

template bool ChooseLoop(Context& context, Rows<double>& rows, const ChoiceTuning& tuning);
template bool ChooseLoop(Context& context, Rows<float>& rows, const ChoiceTuning& tuning);

}  // namespace spaid::cuda
