#include <algorithm>
#include <chrono>
#include <limits>
#include <type_traits>
#include <variant>

#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/bench/cuda/cg_vectors.h"
#include "kernels/bench/cuda/rows_on_device.h"
#include "kernels/bench/cuda/times.h"
#include "kernels/krylov/cuda/product.h"
#include "kernels/krylov/cuda/product_end.h"

namespace spaid::kernels::bench {
namespace {

using namespace spaid::cuda;
using cuda::Context;

// xᵀ y beside y = A x, of each column.
template <int kColumns = 1>
struct Dot {
  static constexpr int kSums = 1;
  const double* x;
  double* dot;
  SumSpace space;
  __device__ bool Skip() const { return false; }
  __device__ void Row(int64_t at, double y, double (&sums)[1]) const {
    sums[0] = fma(x[at], y, sums[0]);
  }
  __device__ void Finish(double (&sums)[kColumns][1]) const {
    SumGrid(sums, space, [this](const double(&total)[1]) { dot[Column<kColumns>()] = total[0]; });
  }
};

// All that the largest matrices here take.
constexpr int64_t kMemory = int64_t{4} << 30;

using AnyRows = std::variant<Csr<double>, Csr<float>>;

AnyRows MakeRows(Context& context, const cuda::Matrix& a, const RowsOptions& options) {
  CsrTuning tuning = tuning::kCsr;
  if (options.as_large) {
    tuning.stream_bytes = 0;
    tuning.many_threads_entries = std::numeric_limits<int32_t>::max();
  }
  if (options.layout == RowsLayout::kSlices) tuning.tiles_at = std::numeric_limits<double>::max();
  if (options.layout == RowsLayout::kTiles) tuning.tiles_at = -1;
  if (options.fp32) {
    return Csr<float>(context, a.pattern(), a.values.get(), false, tuning);
  }
  return Csr<double>(context, a.pattern(), a.values.get(), false, tuning);
}

}  // namespace

struct RowsOnDevice::Body {
  Body(const CscView& csc, const RowsOptions& with)
      : context(0, kMemory),
        options(with),
        n(csc.n_cols),
        a((context.Enter(), UploadMatrix(context, csc, csc.values.data()))),
        rows(MakeRows(context, a, options)),
        dot(context, kMostColumns),
        partial(context, kMostSumBlocks * kMostColumns),
        arrived(context, 1) {
    arrived.Fill(0);
  }

  SumSpace space() const { return {partial.get(), arrived.get()}; }

  Context context;
  const RowsOptions options;
  const int64_t n;
  cuda::Matrix a;
  AnyRows rows;
  Buffer<double> dot, partial;
  Buffer<unsigned> arrived;
};

RowsOnDevice::RowsOnDevice(const CscView& a, const RowsOptions& options)
    : body_(new Body(a, options)) {}
RowsOnDevice::~RowsOnDevice() = default;

bool RowsOnDevice::in_tiles() const {
  return std::visit([](const auto& own) { return own.in_tiles(); }, body_->rows);
}

double RowsOnDevice::stored() const {
  return std::visit(
      [](const auto& own) {
        return static_cast<double>(own.stored()) / static_cast<double>(own.nnz());
      },
      body_->rows);
}

RowsLoop RowsOnDevice::loop() const {
  return std::visit([](const auto& own) { return static_cast<RowsLoop>(own.loop()); }, body_->rows);
}

void RowsOnDevice::set_loop(RowsLoop loop) {
  std::visit([&](auto& own) { own.set_loop(static_cast<SliceLoop>(loop)); }, body_->rows);
}

void RowsOnDevice::Update(const double* values) {
  UploadValues(body_->context, values, body_->a);
  std::visit(
      [&](auto& own) {
        own.UpdateValues(body_->context, body_->a.pattern(), body_->a.values.get());
      },
      body_->rows);
  body_->context.Synchronize();
}

void RowsOnDevice::Multiply(const double* x, double* y, double* dot) {
  MultiplyColumns(1, x, y, dot);
}

void RowsOnDevice::MultiplyColumns(int columns, const double* x, double* y, double* dot) {
  Body& body = *body_;
  const int64_t elements = body.n * columns;
  const Buffer<double> from(body.context, elements), to(body.context, elements);
  from.CopyIn(x, elements);
  const auto launch = [&](auto as) {
    constexpr int kColumns = decltype(as)::value;
    std::visit(
        [&](const auto& own) {
          LaunchProduct<kColumns>(Branch{body.context.stream}, own, from.get(), to.get(),
                                  Dot<kColumns>{from.get(), body.dot.get(), body.space()});
        },
        body.rows);
  };
  switch (columns) {
    case 1:
      launch(std::integral_constant<int, 1>());
      break;
    case 2:
      launch(std::integral_constant<int, 2>());
      break;
    case 4:
      launch(std::integral_constant<int, 4>());
      break;
    default:
      throw Failure(CudaFault::kError, "1, 2 or 4 columns");
  }
  to.CopyOut(y, elements);
  body.dot.CopyOut(dot, columns);
  body.context.Synchronize();
}

double RowsOnDevice::Time(int products, bool with_dot) {
  Body& body = *body_;
  const Buffer<double> p(body.context, body.n), q(body.context, body.n), x(body.context, body.n),
      r(body.context, body.n);
  for (const Buffer<double>* vector : {&p, &q, &x, &r}) vector->Fill(0x3f);  // 4.8e-4
  const CgVectors vectors{body.n, p.get(), q.get(), x.get(), r.get()};
  const cudaStream_t stream = body.context.stream;
  Calls call;
  const double ms = MedianMs(
      products, call, stream, [&] { vectors.Update(stream); },
      [&] {
        std::visit(
            [&](const auto& own) {
              if (with_dot) {
                LaunchProduct(Branch{stream}, own, p.get(), q.get(),
                              Dot<>{p.get(), body.dot.get(), body.space()});
              } else {
                cuda::Product(Branch{stream}, own, p.get(), q.get(), ProductEnd<1, 0>{});
              }
            },
            body.rows);
      });
  if (!call.failure().empty()) throw Failure(CudaFault::kError, call.failure());
  return ms;
}

double RowsOnDevice::TimeLayout(int times) {
  Body& body = *body_;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    body.context.Synchronize();
    const auto begin = std::chrono::steady_clock::now();
    const AnyRows again = MakeRows(body.context, body.a, body.options);
    body.context.Synchronize();
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
    least = std::min(least, ms.count());
  }
  return least;
}

}  // namespace spaid::kernels::bench
