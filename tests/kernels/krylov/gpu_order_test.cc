// The order of scattered unknowns on a CUDA device: that it is one, and near; matrices in it
// against the CPU's; solves that carry their vectors there and back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bench/problems.h"
#include "kernels/fsai/fsai_cuda.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/solve_device_estimate.h"
#include "kernels/sparse/cuda/reorder.h"
#include "kernels/sparse/cuda/symmetry.h"
#include "kernels/sparse/reorder.h"
#include "kernels/sparse/transpose.h"
#include "kernels/static_spai/static_spai_cuda.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/solve_on_device.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using Places = std::vector<int32_t>;

class GpuOrder : public ::testing::Test {
 protected:
  static cuda::Context& context() { return ContextOf(*Device()); }

  static cuda::Matrix Upload(const CscMatrix& a) {
    context().Enter();
    return cuda::UploadMatrix(context(), a, a.values.data());
  }
  static std::optional<cuda::UnknownOrder> Find(const CscMatrix& a, int node = 1) {
    const cuda::Matrix there = Upload(a);
    return cuda::FindOrder(context(), there.pattern(), node);
  }
  template <class T>
  static std::vector<T> Host(const cuda::Buffer<T>& buffer, int64_t count) {
    std::vector<T> host(static_cast<size_t>(count));
    buffer.CopyOut(host.data(), count);
    context().Synchronize();
    return host;
  }
  // Old index at each new place, once it is known to be a permutation with its inverse.
  static Places Checked(const cuda::UnknownOrder& found) {
    const int64_t n = found.order.size();
    const Places order = Host(found.order, n), place = Host(found.place, n);
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t k = 0; k < n; ++k) {
      const auto old = static_cast<size_t>(order[static_cast<size_t>(k)]);
      if (old >= seen.size() || seen[old] || place[old] != k) {
        ADD_FAILURE() << "place " << k << " has unknown " << old;
        return {};
      }
      seen[old] = true;
    }
    return order;
  }
};

// The mean of |k − l| over the entries, in this order.
double MeanDistance(const CscMatrix& a, const Places& order) {
  Places place(order.size());
  for (size_t k = 0; k < order.size(); ++k)
    place[static_cast<size_t>(order[k])] = static_cast<int>(k);
  double sum = 0;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (const int32_t i : a.pattern().column(j)) {
      sum += std::abs(place[static_cast<size_t>(i)] - place[static_cast<size_t>(j)]);
    }
  }
  return sum / static_cast<double>(a.nnz());
}

CscMatrix Shuffled(CscMatrix a, int node = 1) {
  const int64_t all = a.n_cols;
  return bench::PermuteNodes(std::move(a), node, all);
}

TEST_F(GpuOrder, AChainComesLinkByLink) {
  const CscMatrix chain = Neumann(40);
  const CscMatrix a = Shuffled(chain);
  const auto found = Find(a);
  ASSERT_TRUE(found);
  const Places order = Checked(*found);
  // A link has at most two neighbours: the one before and the one behind it.
  for (size_t k = 0; k + 1 < order.size(); ++k) {
    const auto rows = a.pattern().column(order[k]);
    EXPECT_NE(std::find(rows.begin(), rows.end(), order[k + 1]), rows.end()) << k;
  }
}

TEST_F(GpuOrder, MeshesAreAsNearAsOnTheCpu) {
  for (const auto& [name, a] : {std::pair{"P7", bench::ConvectionDiffusion(40, 0)},
                                {"P27", bench::Laplacian27(30)},
                                {"aniso", bench::Anisotropic(300, 1e-3, 0.4)}}) {
    const CscMatrix shuffled = Shuffled(a);
    const auto found = Find(shuffled);
    ASSERT_TRUE(found) << name;
    const Places order = Checked(*found);
    const auto cpu = ReverseCuthillMcKee(shuffled, {});
    ASSERT_TRUE(cpu.ok());
    EXPECT_LE(MeanDistance(shuffled, order),
              1.2 * MeanDistance(shuffled, Places(cpu->begin(), cpu->end())))
        << name;
    EXPECT_EQ(Host(Find(shuffled)->order, a.n_cols), order) << name << ": another order";
  }
}

TEST_F(GpuOrder, NodesStayTogether) {
  const CscMatrix a = bench::Scattered(bench::Elasticity(14), 3);
  const auto found = Find(a, 3);
  ASSERT_TRUE(found);
  const Places order = Checked(*found);
  for (size_t k = 0; k < order.size(); ++k) {
    ASSERT_EQ(order[k], order[k / 3 * 3] / 3 * 3 + static_cast<int32_t>(k % 3)) << k;
  }
}

// Two chains, of which the second is found after the first; unknowns without neighbours; and one
// that touches all of the first chain.
TEST_F(GpuOrder, ComponentsHubsAndLonelyUnknownsHaveTheirPlaces) {
  constexpr int64_t kChain = 2000, kLonely = 100, kN = 2 * kChain + kLonely + 1;
  CscMatrix a;
  a.n_rows = a.n_cols = kN;
  a.col_ptr.push_back(0);
  const auto chain = [](int64_t j) { return j < 2 * kChain; };
  for (int64_t j = 0; j < kN; ++j) {
    for (int64_t i = std::max<int64_t>(0, j - 1); i <= std::min(j + 1, kN - 1); ++i) {
      const bool link = chain(i) && chain(j) && i / kChain == j / kChain;
      if (i != j && !link) continue;
      a.row_idx.push_back(static_cast<int32_t>(i));
    }
    if (j == kN - 1) {
      a.row_idx.pop_back();
      for (int64_t i = 0; i < kChain; ++i) a.row_idx.push_back(static_cast<int32_t>(i));
      a.row_idx.push_back(static_cast<int32_t>(j));
    } else if (j < kChain) {
      a.row_idx.push_back(static_cast<int32_t>(kN - 1));
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  a.values.assign(a.row_idx.size(), 1.0);
  const CscMatrix shuffled = Shuffled(a);
  const auto found = Find(shuffled);
  ASSERT_TRUE(found);
  const Places order = Checked(*found);
  ASSERT_EQ(order.size(), static_cast<size_t>(kN));
  // Lonely ones come last, in the order of their numbers.
  for (size_t k = order.size() - kLonely; k < order.size(); ++k) {
    EXPECT_EQ(shuffled.pattern().column(order[k]).size(), 1u) << k;
    if (k > order.size() - kLonely) {
      EXPECT_LT(order[k - 1], order[k]) << k;
    }
  }
}

TEST_F(GpuOrder, WhereAllAreNearToAllThereIsNone) {
  constexpr int64_t kN = 5000;
  CscMatrix random;
  random.n_rows = random.n_cols = kN;
  random.col_ptr.push_back(0);
  std::mt19937 generator(1);
  for (int64_t j = 0; j < kN; ++j) {
    for (int k = 0; k < 8; ++k) random.row_idx.push_back(static_cast<int32_t>(generator() % kN));
    const auto begin = random.row_idx.begin() + random.col_ptr.back();
    std::sort(begin, random.row_idx.end());
    random.row_idx.erase(std::unique(begin, random.row_idx.end()), random.row_idx.end());
    random.col_ptr.push_back(static_cast<int64_t>(random.row_idx.size()));
  }
  random.values.assign(random.row_idx.size(), 1.0);
  EXPECT_FALSE(Find(random));
  EXPECT_FALSE(Find(Diagonal(Vector(1000, 1.0))));
  EXPECT_FALSE(Find(Neumann(5)));
}

TEST_F(GpuOrder, PermutedMatricesAreTheCpus) {
  for (const auto& [name, a] : {std::pair{"convection", bench::ConvectionDiffusion(12, 40)},
                                {"circuit", bench::Circuit(6000, 2, 5500)},
                                {"a chain", Neumann(50)}}) {
    const int64_t n = a.n_cols;
    Array<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(3);
    std::shuffle(order.begin(), order.end(), random);
    Array<int32_t> place(order.size());
    for (size_t k = 0; k < order.size(); ++k) {
      place[static_cast<size_t>(order[k])] = static_cast<int32_t>(k);
    }
    const cuda::Matrix there = Upload(a);
    cuda::UnknownOrder own{{context(), n}, {context(), n}};
    own.order.CopyIn(order.data(), n);
    own.place.CopyIn(place.data(), n);
    const cuda::Matrix rows =
        cuda::PermuteByRows(context(), there.pattern(), a.nnz(), there.values.get(), own);
    const CscMatrix want = Transpose(*PermuteSymmetric(a, order, {}));
    const auto pointers = Host(rows.col_ptr, n + 1);
    const auto columns = Host(rows.row_idx, a.nnz());
    const auto values = Host(rows.values, a.nnz());
    EXPECT_TRUE(std::equal(pointers.begin(), pointers.end(), want.col_ptr.begin())) << name;
    EXPECT_TRUE(std::equal(columns.begin(), columns.end(), want.row_idx.begin())) << name;
    EXPECT_TRUE(std::equal(values.begin(), values.end(), want.values.begin())) << name;
  }
}

TEST_F(GpuOrder, SymmetryIsTheCpus) {
  std::vector<CscMatrix> all;
  for (const uint64_t seed : {1, 2}) {
    for (oracle::NamedMatrix& named : oracle::Zoo(seed)) all.push_back(std::move(named.a));
  }
  all.push_back(bench::ConvectionDiffusion(20, 0));
  // On the diagonal, and beside it.
  for (const size_t at : {size_t{0}, size_t{1}, all.back().values.size() - 1}) {
    CscMatrix changed = bench::ConvectionDiffusion(20, 0);
    changed.values[at] = std::numeric_limits<double>::quiet_NaN();
    all.push_back(changed);
  }
  // An explicit zero without a mirror.
  CscMatrix zero = Rows({{1, 0, 0}, {5, 1, 0}, {0, 0, 1}});
  zero.values[1] = 0;
  all.push_back(zero);
  int symmetric = 0;
  for (const CscMatrix& a : all) {
    const cuda::Matrix there = Upload(a);
    const bool is = cuda::IsExactlySymmetric(context(), there.pattern(), there.values.get());
    EXPECT_EQ(is, *IsExactlySymmetric(a, {}));
    symmetric += is ? 1 : 0;
  }
  EXPECT_GT(symmetric, 0);
  EXPECT_FALSE(*IsExactlySymmetric(zero, {}));
}

struct Mesh {
  const char* name;
  CscMatrix a;
  bool spd;
};

// A ⊗ S of a definite S: two unknowns a node, in whole blocks.
CscMatrix InNodes(const CscMatrix& a) {
  constexpr double kS[2][2] = {{2, 0.5}, {0.5, 1}};
  CscMatrix nodes;
  nodes.n_rows = nodes.n_cols = 2 * a.n_cols;
  nodes.col_ptr.push_back(0);
  for (int64_t j = 0; j < nodes.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j / 2]; p < a.col_ptr[j / 2 + 1]; ++p) {
      for (int i = 0; i < 2; ++i) {
        nodes.row_idx.push_back(2 * a.row_idx[static_cast<size_t>(p)] + i);
        nodes.values.push_back(kS[i][j % 2] * a.values[static_cast<size_t>(p)]);
      }
    }
    nodes.col_ptr.push_back(static_cast<int64_t>(nodes.row_idx.size()));
  }
  return nodes;
}

// Large enough for an order of their own.
std::vector<Mesh> Meshes() {
  std::vector<Mesh> all;
  all.push_back({"P7", bench::Scattered(bench::ConvectionDiffusion(70, 0), 1), true});
  all.push_back({"convection", Shuffled(bench::ConvectionDiffusion(70, 40)), false});
  all.push_back({"nodes", InNodes(bench::Scattered(bench::ConvectionDiffusion(64, 0), 1)), true});
  return all;
}

std::shared_ptr<const CudaOperator> Jacobi(const CscMatrix& a, const CudaOperator* beside) {
  Vector inverse = DiagonalOf(a);
  for (double& v : inverse) v = 1 / v;
  return CudaOperator::OfDiagonal(Device(), inverse, beside).value();
}

TEST_F(GpuOrder, SolvesCarryTheirVectorsThereAndBack) {
  for (const Mesh& mesh : Meshes()) {
    const CscMatrix& a = mesh.a;
    const auto a_there = CudaOperator::OfMatrix(Device(), a, false, {}).value();
    ASSERT_NE(a_there->order(), nullptr) << mesh.name;
    std::vector<std::pair<std::string, std::shared_ptr<const CudaOperator>>> ms;
    ms.emplace_back("Jacobi", Jacobi(a, a_there.get()));
    std::shared_ptr<const BuiltOnDevice> spai;
    FsaiCudaOutputs fsai;
    CscMatrix g_rows;
    if (mesh.spd) {
      FsaiOptions options;
      options.adaptive = true;
      options.k_max = 4;
      const auto grown = PlanFsaiCuda({&Device(), 1}, a, nullptr, {}).value();
      g_rows = GrowFsaiCuda(*grown, nullptr, a, options, {}, nullptr, &fsai).value().g_rows;
      ms.emplace_back("FSAI, built", CudaOperator::OfBuilt(*fsai.g, false, a_there.get()).value());
      ms.emplace_back("FSAI", CudaOperator::OfFactors(Device(), fsai.g_columns, g_rows, false, {},
                                                      a_there.get())
                                  .value());
    } else {
      const auto plan = PlanStaticSpaiCuda({&Device(), 1}, a, nullptr, {}, {}).value();
      const auto m = BuildStaticSpaiCuda(*plan, a, {}, {}, nullptr, &spai).value();
      ms.emplace_back("SPAI, built", CudaOperator::OfBuilt(*spai, true, a_there.get()).value());
      ms.emplace_back("SPAI",
                      CudaOperator::OfMatrix(Device(), m.m, false, {}, a_there.get()).value());
    }
    const Vector b = RandomVector(3 * a.n_cols, 5), x0 = RandomVector(3 * a.n_cols, 6);
    for (const auto& [kind, m_there] : ms) {
      EXPECT_EQ(m_there->order(), a_there->order()) << mesh.name << ", " << kind;
      for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
        if (method == Method::kCg && !mesh.spd) continue;
        const SolveOptions options{.method = method, .rtol = 1e-6, .max_iterations = 2000};
        const auto n = static_cast<size_t>(method == Method::kGmres ? a.n_cols : 3 * a.n_cols);
        const std::span<const double> own(b.data(), n);
        for (const bool guess : {false, true}) {
          const std::string what =
              std::string(mesh.name) + ", " + kind + ", " + Name(method) + (guess ? ", x0" : "");
          const auto solved =
              SolveCuda(*a_there, m_there.get(), a, own,
                        guess ? std::span<const double>(x0.data(), n) : std::span<const double>(),
                        options, {});
          ASSERT_TRUE(solved.ok()) << what << ": " << solved.status().message();
          if (method != Method::kGmres) {
            for (const RhsResult& rhs : solved->rhs) {
              EXPECT_EQ(rhs.outcome, Outcome::kConverged) << what << ": " << rhs.detail;
            }
          }
          ExpectHonest(a, own, options, *solved, what);
        }
      }
    }
  }
}

// Products in the order are those of the CPU, by rows and by blocks.
TEST_F(GpuOrder, TheFirstIterationsAreTheCpus) {
  for (const Mesh& mesh : Meshes()) {
    const CscMatrix& a = mesh.a;
    const auto a_there = CudaOperator::OfMatrix(Device(), a, false, {}).value();
    const Vector b = RandomVector(a.n_cols, 8);
    const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-14, .max_iterations = 3};
    const SolveResult gpu = SolveCuda(*a_there, nullptr, a, b, {}, options, {}).value();
    const SolveResult cpu = Solve(CsrOperator::FromColumns(a), nullptr, b, {}, options, {}).value();
    ASSERT_EQ(gpu.rhs[0].history.size(), cpu.rhs[0].history.size()) << mesh.name;
    for (size_t k = 0; k < cpu.rhs[0].history.size(); ++k) {
      const double want = cpu.rhs[0].history[k].relative_residual;
      EXPECT_NEAR(gpu.rhs[0].history[k].relative_residual, want, 1e-9 * want) << mesh.name;
    }
    double largest = 0;
    for (const double v : cpu.x) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < cpu.x.size(); ++i) {
      ASSERT_NEAR(gpu.x[i], cpu.x[i], 1e-9 * largest) << mesh.name << ", " << i;
    }
  }
}

TEST_F(GpuOrder, NewValuesKeepTheOrder) {
  for (const Mesh& mesh : Meshes()) {
    CscMatrix a = mesh.a;
    auto old = CudaOperator::OfMatrix(Device(), a, false, {}).value();
    const void* const order = old->order();
    const auto jacobi = Jacobi(a, old.get());
    for (int64_t j = 0; j < a.n_cols; ++j) {  // stays symmetric, and definite
      for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
        a.values[static_cast<size_t>(p)] *= a.row_idx[static_cast<size_t>(p)] == j ? 2.5 : 1.25;
      }
    }
    const auto there = CudaOperator::WithValues(old, a, {}).value();
    old.reset();
    EXPECT_EQ(there->order(), order) << mesh.name;
    const Vector b = RandomVector(a.n_cols, 9);
    const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8, .max_iterations = 2000};
    const SolveResult solved = SolveCuda(*there, jacobi.get(), a, b, {}, options, {}).value();
    EXPECT_EQ(solved.rhs[0].outcome, Outcome::kConverged) << mesh.name;
    ExpectHonest(a, b, options, solved, mesh.name);
    if (!mesh.spd) continue;
    a.values[1] += 1e-3;
    EXPECT_EQ(CudaOperator::WithValues(there, a, {}).status().reason(), "PLAN_MISMATCH");
  }
  const auto there = CudaOperator::OfMatrix(Device(), Meshes()[0].a, false, {}).value();
  EXPECT_EQ(CudaOperator::WithValues(there, Neumann(7), {}).status().reason(), "PLAN_MISMATCH");
}

TEST_F(GpuOrder, AnMInAnotherOrderIsRefused) {
  const CscMatrix a = Meshes()[0].a;
  const auto a_there = CudaOperator::OfMatrix(Device(), a, false, {}).value();
  const auto again = CudaOperator::OfMatrix(Device(), a, false, {}).value();
  const Vector b = RandomVector(a.n_cols, 1);
  for (const auto& m : {Jacobi(a, nullptr), Jacobi(a, again.get())}) {
    const auto refused = SolveCuda(*a_there, m.get(), a, b, {}, {.method = Method::kCg}, {});
    EXPECT_EQ(refused.status().reason(), "PLAN_MISMATCH");
    EXPECT_NE(refused.status().message().find("order"), std::string::npos);
  }
}

TEST_F(GpuOrder, ADeviceOfTheEstimatedSizeSuffices) {
  for (const Mesh& mesh : Meshes()) {
    const CscMatrix& a = mesh.a;
    const Vector b = RandomVector(a.n_cols, 15);
    const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-6, .max_iterations = 50};
    const auto device = OpenGpu(SolveDeviceBytes(a.n_cols, a.nnz(), a.nnz(), 1, options)).value();
    const auto a_there = CudaOperator::OfMatrix(device, a, false, {});
    ASSERT_TRUE(a_there.ok()) << mesh.name << ": " << a_there.status().message();
    ASSERT_NE((*a_there)->order(), nullptr) << mesh.name;
    const auto m_there = CudaOperator::OfMatrix(device, a, false, {}, a_there->get());
    ASSERT_TRUE(m_there.ok()) << mesh.name << ": " << m_there.status().message();
    EXPECT_EQ(device->used_bytes(), (*a_there)->device_bytes() + (*m_there)->device_bytes());
    const auto solved = SolveCuda(**a_there, m_there->get(), a, b, {}, options, {});
    ASSERT_TRUE(solved.ok()) << mesh.name << ": " << solved.status().message();
  }
}

TEST_F(GpuOrder, GridsAndSmallMatricesKeepTheirs) {
  for (const CscMatrix& a : {bench::ConvectionDiffusion(70, 0), Shuffled(bench::Laplacian27(20)),
                             bench::WithVaryingCoefficients(bench::Elasticity(30))}) {
    EXPECT_EQ(CudaOperator::OfMatrix(Device(), a, false, {}).value()->order(), nullptr);
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
