#include "tests/client/petsc/support.h"

#include <httplib.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace spaid::petsc_test {
namespace {

int g_rank = -1, g_size = -1;

void Broadcast(std::string* text) {
  auto length = static_cast<int>(text->size());
  MPI_Bcast(&length, 1, MPI_INT, 0, PETSC_COMM_WORLD);
  text->resize(static_cast<size_t>(length));
  MPI_Bcast(text->data(), length, MPI_CHAR, 0, PETSC_COMM_WORLD);
}

PetscErrorCode Collect(MPI_Comm, int, const char*, const char*, PetscErrorCode code,
                       PetscErrorType type, const char* words, void* context) {
  auto* failure = static_cast<Failure*>(context);
  if (type == PETSC_ERROR_INITIAL && failure->words.empty()) {
    *failure = {static_cast<int>(code), words != nullptr ? words : ""};
  }
  return code;
}

void Insert(Mat a, const std::function<Row(PetscInt)>& row) {
  PetscInt begin = 0, end = 0;
  MatGetOwnershipRange(a, &begin, &end);
  for (PetscInt i = begin; i < end; ++i) {
    for (const auto& [j, value] : row(i)) MatSetValue(a, i, j, value, INSERT_VALUES);
  }
  MatAssemblyBegin(a, MAT_FINAL_ASSEMBLY);
  MatAssemblyEnd(a, MAT_FINAL_ASSEMBLY);
}

}  // namespace

int Rank() {
  if (g_rank < 0) MPI_Comm_rank(PETSC_COMM_WORLD, &g_rank);
  return g_rank;
}

int Size() {
  if (g_size < 0) MPI_Comm_size(PETSC_COMM_WORLD, &g_size);
  return g_size;
}

Failure FailureOf(const std::function<PetscErrorCode()>& call) {
  Failure failure;
  PetscPushErrorHandler(Collect, &failure);
  const auto code = static_cast<int>(call());
  PetscPopErrorHandler();
  EXPECT_EQ(code != 0, failure.code != 0) << failure.words;
  return failure;
}

Mat Assemble(PetscInt n, const std::function<Row(PetscInt)>& row, PetscInt block) {
  Mat a = nullptr;
  MatCreate(PETSC_COMM_WORLD, &a);
  MatSetSizes(a, PETSC_DECIDE, PETSC_DECIDE, n, n);
  MatSetType(a, MATAIJ);
  MatSetBlockSize(a, block);
  MatSetUp(a);
  Insert(a, row);
  return a;
}

void Refill(Mat a, const std::function<Row(PetscInt)>& row) { Insert(a, row); }

std::function<Row(PetscInt)> Grid(PetscInt side, double scale, double convection, PetscInt height) {
  if (height == 0) height = side;
  return [=](PetscInt i) {
    const PetscInt y = i / side, x = i % side;
    Row row;
    if (y > 0) row.emplace_back(i - side, -scale);
    if (x > 0) row.emplace_back(i - 1, -scale * (1 + convection));
    row.emplace_back(i, 4 * scale);
    if (x + 1 < side) row.emplace_back(i + 1, -scale * (1 - convection));
    if (y + 1 < height) row.emplace_back(i + side, -scale);
    return row;
  };
}

std::function<Row(PetscInt)> Band(PetscInt n) {
  return [=](PetscInt i) {
    const auto at = static_cast<double>(i);
    Row row;
    if (i >= 3) row.emplace_back(i - 3, 0.5 + std::sin(at));
    if (i >= 1) row.emplace_back(i - 1, -1 + 0.1 * std::cos(2 * at));
    row.emplace_back(i, 6 + std::sin(3 * at));
    if (i + 1 < n) row.emplace_back(i + 1, 0.3 * std::cos(at));
    if (i + 3 < n) row.emplace_back(i + 3, 0.7);
    return row;
  };
}

std::vector<double> Whole(Vec v) {
  VecScatter scatter = nullptr;
  Vec all = nullptr;
  VecScatterCreateToAll(v, &scatter, &all);
  VecScatterBegin(scatter, v, all, INSERT_VALUES, SCATTER_FORWARD);
  VecScatterEnd(scatter, v, all, INSERT_VALUES, SCATTER_FORWARD);
  PetscInt n = 0;
  const PetscScalar* values = nullptr;
  VecGetSize(all, &n);
  VecGetArrayRead(all, &values);
  std::vector<double> whole(values, values + n);
  VecRestoreArrayRead(all, &values);
  VecScatterDestroy(&scatter);
  VecDestroy(&all);
  return whole;
}

Dense ToDense(Mat like, const std::function<PetscErrorCode(Vec, Vec)>& apply) {
  Vec x = nullptr, y = nullptr;
  MatCreateVecs(like, &x, &y);
  PetscInt n = 0;
  VecGetSize(x, &n);
  Dense dense;
  for (PetscInt k = 0; k < n; ++k) {
    VecSet(x, 0);
    if (Rank() == 0) VecSetValue(x, k, 1, INSERT_VALUES);
    VecAssemblyBegin(x);
    VecAssemblyEnd(x);
    EXPECT_EQ(static_cast<int>(apply(x, y)), 0);
    dense.push_back(Whole(y));
  }
  VecDestroy(&x);
  VecDestroy(&y);
  return dense;
}

double RelativeResidual(Mat a, Vec x, Vec b) {
  Vec r = nullptr;
  PetscReal r2 = 0, b2 = 0;
  VecDuplicate(b, &r);
  MatMult(a, x, r);
  VecAXPY(r, -1, b);
  VecNorm(r, NORM_2, &r2);
  VecNorm(b, NORM_2, &b2);
  VecDestroy(&r);
  return r2 / b2;
}

Vec Filled(Mat a, const std::function<double(PetscInt)>& value) {
  Vec v = nullptr;
  MatCreateVecs(a, &v, nullptr);
  PetscInt begin = 0, end = 0;
  VecGetOwnershipRange(v, &begin, &end);
  for (PetscInt i = begin; i < end; ++i) VecSetValue(v, i, value(i), INSERT_VALUES);
  VecAssemblyBegin(v);
  VecAssemblyEnd(v);
  return v;
}

Solver::Solver(Mat a, const std::string& options, Mat p) {
  PetscOptionsClear(nullptr);
  std::istringstream words("-pc_type spaid " + options);
  std::string all;
  for (std::string word; words >> word;) {
    const bool is_name = word.size() > 1 && word[0] == '-' && std::isalpha(word[1]) != 0;
    all += (is_name ? "-t_" + word.substr(1) : word) + " ";
  }
  PetscOptionsInsertString(nullptr, all.c_str());
  KSPCreate(PetscObjectComm(reinterpret_cast<PetscObject>(a)), &ksp_);
  KSPSetOptionsPrefix(ksp_, "t_");
  KSPSetOperators(ksp_, a, p != nullptr ? p : a);
}

Solver::~Solver() { KSPDestroy(&ksp_); }

PetscErrorCode Solver::Solve(Vec b, Vec x) {
  Mat a = nullptr, p = nullptr;
  PetscErrorCode code = KSPGetOperators(ksp_, &a, &p);
  if (!code) code = KSPSetOperators(ksp_, a, p);
  return code ? code : KSPSolve(ksp_, b, x);
}

PC Solver::pc() const {
  PC pc = nullptr;
  KSPGetPC(ksp_, &pc);
  return pc;
}

KSPConvergedReason Solver::reason() const {
  KSPConvergedReason reason = KSP_CONVERGED_ITERATING;
  KSPGetConvergedReason(ksp_, &reason);
  return reason;
}

PetscInt Solver::iterations() const {
  PetscInt its = 0;
  KSPGetIterationNumber(ksp_, &its);
  return its;
}

std::string Solver::View() const {
  const e2e::TempDir folder;
  std::string path = (folder / "view").string();
  Broadcast(&path);
  PetscViewer viewer = nullptr;
  PetscViewerASCIIOpen(PETSC_COMM_WORLD, path.c_str(), &viewer);
  KSPView(ksp_, viewer);
  PetscViewerDestroy(&viewer);
  std::string text;
  if (Rank() == 0) {
    std::ifstream file(path);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  Broadcast(&text);
  return text;
}

std::unique_ptr<e2e::Daemon> WithDaemon::daemon;
std::string WithDaemon::address;

void WithDaemon::StartDaemon(const std::vector<std::string>& flags) {
  if (Rank() == 0) {
    daemon = std::make_unique<e2e::Daemon>(flags);
    ASSERT_TRUE(daemon->serving()) << daemon->log();
    address = daemon->address();
  }
  Broadcast(&address);
  setenv("SPAID_ADDRESS", address.c_str(), 1);
}

void WithDaemon::EndDaemon() { daemon.reset(); }

double WithDaemon::Metric(const std::string& name, const std::string& label) {
  double sum = 0;
  if (Rank() == 0) {
    httplib::Client http("http://" + daemon->ops_address());
    const auto metrics = http.Get("/metrics");
    EXPECT_TRUE(metrics);
    std::istringstream lines(metrics ? metrics->body : "");
    bool found = false;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(name + "{") && !line.starts_with(name + " ")) continue;
      if (line.find(label) == std::string::npos) continue;
      found = true;
      sum += std::stod(line.substr(line.rfind(' ')));
    }
    EXPECT_TRUE(found || !label.empty()) << name;
  }
  MPI_Bcast(&sum, 1, MPI_DOUBLE, 0, PETSC_COMM_WORLD);
  return sum;
}

}  // namespace spaid::petsc_test
