// The accuracy rule of the Gram path on every column of every family of the gallery, at a quarter
// of its default size.
#include <algorithm>
#include <string>

#include "client/cli/gallery.h"
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::cli {
namespace {

TEST(Gallery, GramKeepsUpWithQrInEveryColumn) {
  namespace k = kernels;
  for (const GalleryFamily& family : GalleryFamilies()) {
    const std::string name(family.name);
    SCOPED_TRACE(name);
    const auto a = Generate(name, std::max(family.min_size, family.default_size / 4));
    ASSERT_TRUE(a.ok()) << a.error().message;
    const k::CscView view{{a->n, a->n, a->col_ptr, a->row_idx}, a->values};
    const k::StaticSpaiResult qr = k::Build(view, nullptr, k::With(k::LocalSolver::kQr));
    for (const k::LocalSolver solver : {k::LocalSolver::kGram, k::LocalSolver::kAuto}) {
      const k::StaticSpaiResult result = k::Build(view, nullptr, k::With(solver));
      k::ExpectGramAccuracy(view, result, qr, name);
      EXPECT_EQ(result.quality.zero_columns, qr.quality.zero_columns);
    }
  }
}

}  // namespace
}  // namespace spaid::cli
