// Matrices and preconditioners come back from a spill folder the same, with every engine of the
// table.
#include "server/engine/spill_codecs.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/engine/build_result.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/restore.h"
#include "kernels/engine/spec.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/engine/adapter.h"
#include "server/engine/resolved_build.h"
#include "tests/server/engine/matrices.h"
#include "tests/server/store/spill_helpers.h"

namespace spaid::server {
namespace {

std::vector<double> Plain(const kernels::Array<double>& array) {
  return {array.begin(), array.end()};
}

class SpillCodecs : public testing::Test {
 protected:
  SpillCodecs() { Open(); }
  void Open() {
    matrices_.reset();
    preconditioners_.reset();
    folder_.reset();
    folder_ = OpenSpill(temporary_ / "s");
    matrices_ = std::make_unique<MatrixStore>(
        Options("matrices/", "matrix", MatrixCodec(), reason::kMatrixTooLarge));
    preconditioners_ = std::make_unique<PreconditionerStore>(Options(
        "preconditioners/", "preconditioner", PreconditionerCodec(), reason::kBuildTooLarge));
  }
  HandleStoreOptions Options(const char* prefix, const char* what, SpillCodec codec,
                             std::string_view reason) {
    return {.prefix = prefix,
            .what = what,
            .limit_flag = "--limit",
            .max_bytes = 1 << 24,
            .too_large_reason = reason,
            .spill = folder_.get(),
            .codec = std::move(codec)};
  }
  std::shared_ptr<Matrix> Prepare(kernels::CscMatrix raw, PrepareOptions options = {}) {
    auto matrix = adapter_.Prepare(std::move(raw), kernels::Layout::kCsc, options);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    return *matrix;
  }
  std::string Put(std::shared_ptr<Matrix> matrix) {
    const std::vector<std::string> keys{StoredPattern::Key(matrix->pattern->digest(), false)};
    matrix->pattern = matrices_->ShareByKeys<StoredPattern>(
        "t", matrix->pattern, keys,
        [&](const StoredPattern& known) { return matrix->pattern->SameContent(known); });
    const HandleTable::Part part{matrix->pattern, matrix->pattern->bytes()};
    const int64_t bytes = matrix->own_bytes();
    const std::vector<std::string> own{matrix->ContentKey()};
    auto put = matrices_->Put("t", std::move(matrix), bytes, own, {}, {}, part);
    EXPECT_TRUE(put.ok()) << put.status();
    EXPECT_TRUE(matrices_->SpillNow("t", put->handle).ok());
    return put->handle;
  }

  TemporaryFolder temporary_;
  const std::unique_ptr<kernels::Engine> engine_ = kernels::MakeCpuEngine();
  const EngineAdapter adapter_{*engine_, {.threads = 1}};
  std::unique_ptr<SpillFolder> folder_;
  std::unique_ptr<MatrixStore> matrices_;
  std::unique_ptr<PreconditionerStore> preconditioners_;
};

TEST_F(SpillCodecs, MatricesComeBackTheSame) {
  kernels::CscMatrix zero_row = Banded(6);
  for (double& value : zero_row.values) value = value == 5 ? 0 : value;  // findings
  const auto first = Prepare(Banded(30)), second = Prepare(Banded(30, 7)),
             odd = Prepare(std::move(zero_row), {.label = "an odd one"});
  kernels::CscMatrix pattern = Banded(9);
  pattern.values.clear();
  const auto bare = Prepare(std::move(pattern), {.pattern_only = true});
  std::vector<std::string> handles;
  for (const auto& matrix : {first, second, odd, bare}) handles.push_back(Put(matrix));
  EXPECT_EQ(folder_->stats().files, 3 + 3);  // two have one pattern
  Open();
  size_t at = 0;
  for (const auto& want : {first, second, odd, bare}) {
    const std::string& handle = handles[at++];
    const auto got = matrices_->Load("t", handle);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(got->value->SameContent(*want));
    EXPECT_EQ(got->value->bytes(), want->bytes());
    EXPECT_EQ(got->value->value_digest.has_value(), want->value_digest.has_value());
    EXPECT_EQ(ToProto(*got, true).DebugString(),
              ToProto(Stored<Matrix>{.handle = handle, .value = want}, true).DebugString());
    EXPECT_EQ(got->value->diagnosis.findings, want->diagnosis.findings);
  }
  EXPECT_EQ(matrices_->Get("t", handles[0])->value->pattern,
            matrices_->Get("t", handles[1])->value->pattern);
}

TEST_F(SpillCodecs, PreconditionersSolveTheSame) {
  const auto a = Prepare(Banded(60, 5));
  std::vector<kernels::PreconditionerSpec> specs;
  for (const kernels::EngineKind kind : kernels::EngineKinds()) {
    if (kind == kernels::EngineKind::kAuto || kind == kernels::EngineKind::kNone) continue;
    if (kernels::TraitsOf(kind).ranks_alone) continue;  // M lies over them
    specs.push_back({.engine = kind});
    if (kernels::TraitsOf(kind).factored) continue;
    specs.push_back({.engine = kind, .scaling = kernels::ScalingMode::kEquilibrate});
    specs.push_back({.engine = kind, .scaling = kernels::ScalingMode::kMatching});
  }
  ASSERT_GE(specs.size(), 5u);
  const std::vector<double> b(60, 1.0);
  int scaled = 0;
  for (const kernels::PreconditionerSpec& asked : specs) {
    SCOPED_TRACE(absl::StrCat(std::string(Name(asked.engine)), ", scaling ",
                              static_cast<int>(asked.scaling)));
    const auto spec = engine_->Resolve(asked, a->csc(), a->diagnosis, nullptr, {});
    if (spec.status().reason() == "BAD_SCALING") continue;  // not every engine permutes
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    scaled += spec->spec.scaling != kernels::ScalingMode::kNone;
    const auto plan = engine_->MakePlan(spec->spec, a->csc(), nullptr, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    auto built = (*plan)->Build(spec->spec, a->csc(), {});
    ASSERT_TRUE(built.ok()) << built.status().message();
    auto entry = std::make_shared<Preconditioner>();
    entry->kernel = built->preconditioner;
    entry->quality = ToProto(built->quality);
    entry->matrix = "matrices/a";
    entry->spec = ToProto(spec->spec, {});
    entry->device = "cpu";
    entry->nnz_a = a->nnz();
    entry->created = RealClock().WallNow();
    const std::string key = absl::StrCat("key ", specs.size(), entry->spec.SerializeAsString());
    const auto put = preconditioners_->Put("t", entry, entry->bytes(), key);
    ASSERT_TRUE(put.ok());
    ASSERT_TRUE(preconditioners_->SpillNow("t", put->handle).ok());
    Open();
    const auto got = preconditioners_->FindOrLoad("t", key);
    if (kernels::TraitsOf(asked.engine).by_parts) {
      EXPECT_FALSE(got.has_value()) << "it is in memory alone";
      continue;
    }
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->handle, put->handle);
    v1::Preconditioner now = ToProto(*got),
                       then =
                           ToProto(Stored<Preconditioner>{.handle = put->handle, .value = entry});
    // Its rows are laid out when they are wanted, and until then counted by a bound, which has a
    // byte a row for rows with the same columns.
    EXPECT_NEAR(static_cast<double>(now.host_bytes()), static_cast<double>(then.host_bytes()),
                64 + static_cast<double>(a->csc().n_cols));
    now.clear_host_bytes();
    then.clear_host_bytes();
    EXPECT_EQ(now.DebugString(), then.DebugString());
    EXPECT_EQ(got->value->nnz_a, a->nnz());
    EXPECT_EQ(got->value->kernel->form(), entry->kernel->form());
    for (const kernels::Method method : {kernels::Method::kBicgstab, kernels::Method::kGmres}) {
      const kernels::SolveOptions options{.method = method, .rtol = 1e-10};
      const auto want = engine_->Solve(a->csc(), entry->kernel.get(), b, {}, options, {});
      const auto again = engine_->Solve(a->csc(), got->value->kernel.get(), b, {}, options, {});
      ASSERT_TRUE(want.ok() && again.ok());
      EXPECT_EQ(Plain(again->x), Plain(want->x));
      EXPECT_EQ(again->rhs[0].iterations, want->rhs[0].iterations);
      EXPECT_EQ(again->rhs[0].outcome, kernels::Outcome::kConverged);
    }
  }
  EXPECT_GE(scaled, 3);
}

TEST_F(SpillCodecs, RestoreRefusesWhatDoesNotFit) {
  using kernels::EngineKind;
  EXPECT_TRUE(kernels::RestorePreconditioner(EngineKind::kJacobi, Diagonal(3), {}, {}).ok());
  const auto refused = [](EngineKind kind, kernels::CscMatrix m, kernels::Array<double> scaling) {
    return kernels::RestorePreconditioner(kind, std::move(m), std::move(scaling), {})
               .status()
               .reason() == "PRECONDITIONER_MISMATCH";
  };
  EXPECT_TRUE(refused(EngineKind::kAuto, Diagonal(3), {}));
  EXPECT_TRUE(refused(EngineKind::kNone, Diagonal(3), {}));
  EXPECT_TRUE(refused(EngineKind::kJacobi, Diagonal(3), kernels::Array<double>(2)));
  kernels::CscMatrix short_one = Diagonal(3);
  short_one.values.pop_back();
  EXPECT_TRUE(refused(EngineKind::kJacobi, std::move(short_one), {}));
}

// Files that are whole and lie: whoever can write them owns the daemon's folder, and still nothing
// is read beyond an array.
TEST_F(SpillCodecs, FilesThatLieAreRefused) {
  const auto a = Prepare(Banded(9));
  const std::string handle = Put(a);
  const SpillRecord honest = *folder_->Find("t", handle);
  const auto lie = [&](std::vector<int64_t> col_ptr, std::vector<int32_t> row_idx,
                       std::vector<double> values) {
    Open();
    SpillRecord record = honest;
    record.handle = "matrices/lie";
    const std::vector<SpillBlob> blobs{
        {SpillKind::kPattern,
         "a lie",
         {std::as_bytes(std::span(col_ptr)), std::as_bytes(std::span(row_idx))}},
        {SpillKind::kValues, "a lie", {std::as_bytes(std::span(values))}}};
    EXPECT_TRUE(folder_->Write(record, blobs).ok());
    const absl::Status status = matrices_->Load("t", "matrices/lie").status();
    EXPECT_EQ(ReasonOf(status), "HANDLE_EVICTED") << status;
    EXPECT_EQ(matrices_->stats().entries, 0);
  };
  const auto& csc = a->pattern->csc();
  const std::vector<int64_t> col_ptr(csc.col_ptr.begin(), csc.col_ptr.end());
  const std::vector<int32_t> row_idx(csc.row_idx.begin(), csc.row_idx.end());
  const std::vector<double> values = Plain(a->values);
  auto far = row_idx;
  far.back() = 1'000'000;
  lie(col_ptr, far, values);
  auto negative = row_idx;
  negative[0] = -1;
  lie(col_ptr, negative, values);
  auto falling = col_ptr;
  falling[3] = 1'000'000'000'000;
  lie(falling, row_idx, values);
  lie({}, {}, {});
  lie({0}, {}, {});
  lie(col_ptr, row_idx, {1, 2, 3});
  lie({0, 1}, {0}, {1});  // another one's size
  Open();
  EXPECT_TRUE(matrices_->Load("t", handle).ok());
}

TEST_F(SpillCodecs, MessagesThatLieAreRefused) {
  const auto a = Prepare(Banded(9));
  const std::string handle = Put(a);
  SpillRecord record = *folder_->Find("t", handle);
  Open();
  for (const std::string meta : {"", "no message", "\xff\xff\xff"}) {
    record.meta = meta;
    record.handle = "matrices/lie";
    const auto& csc = a->pattern->csc();
    ASSERT_TRUE(folder_
                    ->Write(record, {{SpillKind::kPattern,
                                      "x",
                                      {std::as_bytes(std::span(csc.col_ptr)),
                                       std::as_bytes(std::span(csc.row_idx))}}})
                    .ok());
    EXPECT_EQ(ReasonOf(matrices_->Load("t", "matrices/lie").status()), "HANDLE_EVICTED");
    record.handle = "preconditioners/lie";
    ASSERT_TRUE(folder_->Write(record, {}).ok());
    EXPECT_EQ(ReasonOf(preconditioners_->Load("t", "preconditioners/lie").status()),
              "HANDLE_EVICTED");
  }
}

}  // namespace
}  // namespace spaid::server
