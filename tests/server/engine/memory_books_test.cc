// What is booked for preparing a matrix and for a solve bounds what they take: by an allocator that
// counts.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/engine/build_result.h"
#include "server/engine/adapter.h"
#include "server/engine/resolved_build.h"
#include "server/sched/job.h"

namespace {

std::atomic<int64_t> live{0}, peak{0};

void* Counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t now = live += static_cast<int64_t>(malloc_usable_size(memory));
  int64_t before = peak;
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
  return memory;
}

void Free(void* memory) noexcept {
  if (memory != nullptr) live -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return Counted(std::malloc(std::max<size_t>(bytes, 1))); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto to = static_cast<size_t>(alignment);
  return Counted(std::aligned_alloc(to, (bytes + to - 1) / to * to));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace spaid::server {
namespace {

// Small things: strings, jobs, threads' queues.
constexpr int64_t kSmall = 128 << 10;

// Bytes that `work` had at its peak beside what there was before.
template <class Work>
int64_t PeakOf(const Work& work) {
  const int64_t before = live;
  peak = before;
  work();
  return peak - before;
}

// The matrix of a grid of `side` x `side`, its arrays under the size that is rounded to huge pages.
// `skew` takes the symmetry.
kernels::CscMatrix Grid(int64_t side, double skew = 0, bool diagonal = true) {
  kernels::CscMatrix a;
  const int64_t n = a.n_rows = a.n_cols = side * side;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    const auto add = [&](int64_t i, double v) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(v);
    };
    if (j >= side) add(j - side, -1 - skew);
    if (j % side > 0) add(j - 1, -1);
    if (diagonal) add(j, 4.5);
    if (j % side + 1 < side) add(j + 1, -1);
    if (j + side < n) add(j + side, diagonal ? -1 : 0);
    a.col_ptr.push_back(a.nnz());
  }
  a.row_idx.shrink_to_fit();
  a.values.shrink_to_fit();
  a.col_ptr.shrink_to_fit();
  return a;
}

// Rows and columns by powers of two.
kernels::CscMatrix Uneven(kernels::CscMatrix a) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      a.values[p] = std::ldexp(a.values[p], 7 * (a.row_idx[p] % 5) - static_cast<int>(3 * (j % 4)));
    }
  }
  return a;
}

// Each entry `times` over, in no order.
kernels::CscMatrix Repeated(const kernels::CscMatrix& a, int64_t times) {
  kernels::CscMatrix m;
  m.n_rows = m.n_cols = a.n_cols;
  m.col_ptr.push_back(0);
  m.row_idx.reserve(static_cast<size_t>(times * a.nnz()));
  m.values.reserve(static_cast<size_t>(times * a.nnz()));
  std::minstd_rand random(1);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    std::vector<int64_t> entries;
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      entries.insert(entries.end(), static_cast<size_t>(times), p);
    }
    std::shuffle(entries.begin(), entries.end(), random);
    for (const int64_t p : entries) {
      m.row_idx.push_back(a.row_idx[p]);
      m.values.push_back(a.values[p]);
    }
    m.col_ptr.push_back(m.nnz());
  }
  return m;
}

// A single dense column, which is what sorting takes most for.
kernels::CscMatrix OneLongColumn(int64_t n) {
  kernels::CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.assign(static_cast<size_t>(n) + 1, n);
  a.col_ptr[0] = 0;
  for (int64_t i = n - 1; i >= 0; --i) a.row_idx.push_back(static_cast<int32_t>(i));
  a.values.assign(static_cast<size_t>(n), 2.0);
  return a;
}

class MemoryBooks : public testing::Test {
 protected:
  std::shared_ptr<const Matrix> Prepare(kernels::CscMatrix raw, PrepareOptions options,
                                        kernels::Layout layout) {
    auto made = adapter_.Prepare(std::move(raw), layout, options);
    EXPECT_TRUE(made.ok()) << made.status();
    return *made;
  }

  // The least that it must take, too, in parts of the book: a book that is far too high would not
  // be true either.
  void ExpectBooked(const char* what, kernels::CscMatrix raw, const PrepareOptions& options,
                    kernels::Layout layout, double at_least) {
    SCOPED_TRACE(what);
    if (options.pattern_only) raw.values = kernels::Array<double>();
    const int64_t before = live - raw.bytes();
    const int64_t booked = EngineAdapter::PrepareBytes(raw.n_cols, raw.nnz(), layout, options);
    std::shared_ptr<const Matrix> matrix;
    const int64_t taken = PeakOf([&] { matrix = Prepare(std::move(raw), options, layout); });
    EXPECT_LE(taken, booked + kSmall);
    EXPECT_GE(static_cast<double>(taken), at_least * static_cast<double>(booked));
    EXPECT_LE(live - before, matrix->bytes() + kSmall) << "what is kept is what is counted";
  }

  std::unique_ptr<kernels::Engine> engine_ = kernels::MakeCpuEngine();
  EngineAdapter adapter_{*engine_, {.threads = 2}};
};

TEST_F(MemoryBooks, OfUploads) {
  const PrepareOptions plain, sorted{.sort_and_sum = true}, pattern{.pattern_only = true},
      sorted_pattern{.sort_and_sum = true, .pattern_only = true};
  const auto csc = kernels::Layout::kCsc, csr = kernels::Layout::kCsr;
  ExpectBooked("columns", Grid(200), plain, csc, 0);
  ExpectBooked("asymmetric columns", Grid(200, 0.5), plain, csc, 0.25);
  ExpectBooked("zeros and no diagonal", Grid(200, 0, false), plain, csc, 0.5);
  ExpectBooked("rows", Grid(200, 0.5), plain, csr, 0.6);
  ExpectBooked("a pattern", Grid(200), pattern, csc, 0.3);
  ExpectBooked("a pattern by rows", Grid(200), pattern, csr, 0.3);
  ExpectBooked("unsorted", Repeated(Grid(200), 1), sorted, csc, 0);
  ExpectBooked("duplicates", Repeated(Grid(80), 10), sorted, csc, 0);
  ExpectBooked("unsorted rows", Repeated(Grid(200), 1), sorted, csr, 0.6);
  ExpectBooked("an unsorted pattern", Repeated(Grid(200), 1), sorted_pattern, csc, 0);
  ExpectBooked("a long column", OneLongColumn(200'000), sorted, csc, 0.3);
  ExpectBooked("a diagonal", Grid(1), plain, csc, 0);
}

TEST_F(MemoryBooks, OfSolves) {
  const kernels::CscMatrix raw = Grid(200, 0.5), symmetric = Grid(200);
  const auto a = Prepare(raw, {}, kernels::Layout::kCsc);
  const auto spd = Prepare(symmetric, {}, kernels::Layout::kCsc);
  const auto built = [&](kernels::EngineKind kind, const std::shared_ptr<const Matrix>& of,
                         kernels::ScalingMode scaling = kernels::ScalingMode::kNone) {
    kernels::PreconditionerSpec spec;
    spec.engine = kind;
    spec.scaling = scaling;
    auto plan = engine_->MakePlan(spec, of->csc(), nullptr, {.threads = 2});
    EXPECT_TRUE(plan.ok());
    auto made = (*plan)->Build(spec, of->csc(), {.threads = 2});
    EXPECT_TRUE(made.ok());
    return made->preconditioner;
  };
  const auto spai = built(kernels::EngineKind::kStaticSpai, a);
  const auto fsai = built(kernels::EngineKind::kFsai, spd);
  const auto uneven = Prepare(Uneven(raw), {}, kernels::Layout::kCsc);
  const auto by_rows =
      built(kernels::EngineKind::kStaticSpai, uneven, kernels::ScalingMode::kMatching);
  ASSERT_EQ(by_rows->form(), kernels::MForm::kScaledRows);
  struct Case {
    const char* what;
    kernels::Method method;
    std::shared_ptr<const Matrix> a;
    std::shared_ptr<const kernels::Preconditioner> m;
    double scale = 1;  // of b and the guess
  };
  using kernels::Method;
  for (const Case& c : std::vector<Case>{{"cg", Method::kCg, spd, nullptr},
                                         {"cg with factors", Method::kCg, spd, fsai},
                                         {"bicgstab", Method::kBicgstab, a, nullptr},
                                         {"bicgstab scaled", Method::kBicgstab, a, spai, 1e150},
                                         {"bicgstab with m", Method::kBicgstab, a, spai},
                                         {"minres", Method::kMinres, spd, nullptr},
                                         {"minres with factors", Method::kMinres, spd, fsai},
                                         {"idr", Method::kIdr, a, nullptr},
                                         {"idr scaled", Method::kIdr, a, spai, 1e150},
                                         {"gmres", Method::kGmres, a, nullptr},
                                         {"gmres scaled", Method::kGmres, a, spai, 1e150},
                                         {"bicgstab by rows", Method::kBicgstab, uneven, by_rows},
                                         {"gmres by rows", Method::kGmres, uneven, by_rows},
                                         {"idr by rows", Method::kIdr, uneven, by_rows}}) {
    for (const int64_t n_rhs : {1, 5}) {
      SCOPED_TRACE(std::string(c.what) + " " + std::to_string(n_rhs));
      kernels::SolveOptions options{.method = c.method, .rtol = 1e-6, .max_iterations = 60};
      options.m_storage = kernels::Storage::kFp32;
      if (c.m == nullptr) options.m_storage = kernels::Storage::kAuto;
      const kernels::MForm form = c.m != nullptr ? c.m->form() : kernels::MForm::kMatrix;
      const auto size = static_cast<size_t>(n_rhs * c.a->n());
      std::vector<double> b(size), x0(size);
      std::minstd_rand random(7);
      for (double& v : b) v = c.scale * (static_cast<double>(random() % 1000) - 500);
      for (double& v : x0) v = c.scale * static_cast<double>(random() % 3);
      const int64_t nnz_m = c.m ? StoredEntries(c.m->kind(), c.a->n(), c.m->nnz()) : 0;
      const int64_t booked = adapter_.SolveHostBytes(*c.a, nnz_m, n_rhs, options, form);
      const auto job = Job::Create(
          {.tenant = "t", .kind = v1::JOB_KIND_SOLVE, .matrix = {}, .preconditioner = {}}, {},
          RealClock());
      job->Start({"cpu"});
      absl::Status status;
      const int64_t taken = PeakOf([&] {
        status = adapter_.Solve(c.a, c.m, b, x0, options, {.device = "cpu"}, *job).status();
      });
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_LE(taken, booked + kSmall);
      // Nor far too much, of what a symmetric A and a short cycle of GMRES spare.
      EXPECT_GE((c.method == Method::kBicgstab ? 2 : 6) * taken, booked);
    }
  }
}

TEST_F(MemoryBooks, OfSolvesInAnotherOrder) {
  using kernels::EngineKind;
  for (const EngineKind kind :
       {EngineKind::kNone, EngineKind::kFsai, EngineKind::kStaticSpai, EngineKind::kJacobi}) {
    for (const int threads : {1, 4}) {
      SCOPED_TRACE(std::string(kernels::TraitsOf(kind).name) + ", threads " +
                   std::to_string(threads));
      kernels::CscMatrix a = Grid(200, kind == EngineKind::kStaticSpai ? 0.5 : 0);
      if (kind == EngineKind::kNone) {  // the most that a union of A and its transpose has
        a = Repeated(a, 1);
        for (int64_t j = 0; j < a.n_cols; ++j) {
          for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
            a.row_idx[p] = static_cast<int32_t>((j * 7 + 31 * (p - a.col_ptr[j])) % a.n_cols);
          }
          std::sort(a.row_idx.begin() + a.col_ptr[j], a.row_idx.begin() + a.col_ptr[j + 1]);
        }
      }
      const kernels::Context context{.threads = threads};
      std::shared_ptr<const kernels::Preconditioner> m;
      if (kind != EngineKind::kNone) {
        const kernels::PreconditionerSpec spec{.engine = kind};
        const auto plan = engine_->MakePlan(spec, a, nullptr, context);
        ASSERT_TRUE(plan.ok());
        m = (*plan)->Build(spec, a, context)->preconditioner;
      }
      const std::vector<double> b(static_cast<size_t>(3 * a.n_cols), 1.0);
      const int64_t taken = PeakOf([&] {
        auto order = kernels::ReverseCuthillMcKee(a.pattern(), context);
        auto there = kernels::Reordered::Make(
            a, nullptr, std::make_shared<const kernels::UnknownOrder>(*std::move(order)), context);
        std::shared_ptr<const kernels::Preconditioner> of_there;
        if (m != nullptr) of_there = *(*there)->Of(*m, context);
        auto carried = (*there)->Carried(b);
        (*there)->TakeBack(carried);
      });
      const int64_t booked = kernels::Reordered::HostBytes(a, m.get(), 4, threads);
      EXPECT_LE(taken, booked + kSmall);
      EXPECT_GE(3 * taken, booked);
    }
  }
}

// Estimates bound the peak of a plan and its build by a scaled A.
TEST_F(MemoryBooks, OfBuildsByAScaledMatrix) {
  using kernels::EngineKind;
  using kernels::ScalingMode;
  const auto a = Prepare(Uneven(Grid(90, 0.5)), {}, kernels::Layout::kCsc);
  kernels::CscMatrix even = Grid(90);
  for (int64_t j = 0; j < even.n_cols; ++j) {
    for (int64_t p = even.col_ptr[j]; p < even.col_ptr[j + 1]; ++p) {
      const auto power = static_cast<int>(5 * (even.row_idx[p] % 4) + 5 * (j % 4));
      even.values[p] = std::ldexp(even.values[p], power);
    }
  }
  const auto spd = Prepare(std::move(even), {}, kernels::Layout::kCsc);
  struct Case {
    EngineKind engine;
    ScalingMode scaling;
    const Matrix& a;
  };
  for (const Case& c : {Case{EngineKind::kStaticSpai, ScalingMode::kMatching, *a},
                        {EngineKind::kStaticSpai, ScalingMode::kEquilibrate, *a},
                        {EngineKind::kStaticSpai, ScalingMode::kAuto, *a},
                        {EngineKind::kDynamicSpai, ScalingMode::kMatching, *a},
                        {EngineKind::kJacobi, ScalingMode::kEquilibrate, *a},
                        {EngineKind::kFsai, ScalingMode::kEquilibrate, *spd},
                        {EngineKind::kAmg, ScalingMode::kNone, *a},
                        {EngineKind::kAmg, ScalingMode::kNone, *spd},
                        {EngineKind::kAfsai, ScalingMode::kAuto, *spd}}) {
    for (const int threads : {1, 4}) {
      SCOPED_TRACE(std::string(kernels::TraitsOf(c.engine).name) + ", scaling " +
                   std::to_string(static_cast<int>(c.scaling)) + ", threads " +
                   std::to_string(threads));
      kernels::PreconditionerSpec spec;
      spec.engine = c.engine;
      spec.scaling = c.scaling;
      const kernels::Context context{.threads = threads};
      const auto estimate = engine_->Estimate(spec, c.a.csc(), nullptr, context);
      ASSERT_TRUE(estimate.ok()) << estimate.status().message();
      kernels::Result<kernels::BuildResult> built = kernels::BuildResult{};
      const int64_t taken = PeakOf([&] {
        const auto plan = engine_->MakePlan(spec, c.a.csc(), nullptr, context);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        built = (*plan)->Build(spec, c.a.csc(), context);
      });
      ASSERT_TRUE(built.ok()) << built.status().message();
      EXPECT_EQ(built->quality.scaling == ScalingMode::kNone, c.scaling == ScalingMode::kNone);
      EXPECT_LE(taken, estimate->host_bytes + kSmall);
    }
  }
}

}  // namespace
}  // namespace spaid::server
