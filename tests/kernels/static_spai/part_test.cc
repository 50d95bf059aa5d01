// Columns of M that are planned and solved apart from the others have the bits that they have among
// them.
#include <bit>
#include <memory>

#include "kernels/gallery/gallery.h"
#include "kernels/static_spai/static_spai_part.h"
#include "tests/kernels/static_spai/helpers.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels {
namespace {

constexpr size_t kParts = 3;

struct PartInput {
  Pattern pattern;
  Array<int32_t> members, group_ptr;
  ShiftClasses classes;
};

// Every third group from `part` on, of those of a whole plan.
PartInput Take(const StaticSpaiPlan& whole, const ShiftClasses& classes, size_t part) {
  PartInput own;
  const GroupsView groups = whole.groups();
  const auto n = static_cast<size_t>(whole.pattern.n_cols);
  std::vector<uint8_t> here(n, 0);
  own.group_ptr.push_back(0);
  own.classes.uses = classes.uses;
  own.classes.first.assign(classes.uses.size(), -1);
  for (auto g = static_cast<int64_t>(part); g < groups.size(); g += kParts) {
    const int32_t c = classes.of[static_cast<size_t>(g)];
    const auto own_g = static_cast<int32_t>(own.classes.of.size());
    own.classes.of.push_back(c);
    if (c >= 0 && own.classes.first[static_cast<size_t>(c)] < 0) {
      own.classes.first[static_cast<size_t>(c)] = own_g;
    }
    for (const int32_t k : groups.group(g)) {
      own.members.push_back(k);
      here[static_cast<size_t>(k)] = 1;
    }
    own.group_ptr.push_back(static_cast<int32_t>(own.members.size()));
  }
  own.pattern.n_rows = own.pattern.n_cols = whole.pattern.n_cols;
  own.pattern.col_ptr.push_back(0);
  for (size_t k = 0; k < n; ++k) {
    const auto j = PatternView(whole.pattern).column(static_cast<int64_t>(k));
    if (here[k] != 0) {
      own.pattern.row_idx.insert(own.pattern.row_idx.end(), j.begin(), j.end());
    }
    own.pattern.col_ptr.push_back(own.pattern.nnz());
  }
  return own;
}

void ExpectPartsHaveTheBitsOfTheWhole(const CscMatrix& a, const StaticSpaiOptions& options,
                                      const std::string& what) {
  const auto plan = PlanStaticSpai(a, nullptr, options, {.threads = 2});
  ASSERT_TRUE(plan.ok()) << what;
  const auto whole = BuildStaticSpai(**plan, a, options, {.threads = 2});
  ASSERT_TRUE(whole.ok()) << what;
  ShiftClasses columns, classes;
  ASSERT_EQ(ClassifyColumns(a, {.threads = 2}, columns), StopReason::kNone);
  ASSERT_EQ(ClassifyGroups((*plan)->groups(), columns, {.threads = 2}, classes), StopReason::kNone);
  const size_t parts =
      std::min(kParts, static_cast<size_t>((*plan)->groups().size()));  // none without a group
  std::vector<std::unique_ptr<PartPlanner>> planners;
  std::vector<LaneOffer> offers(classes.uses.size());
  for (size_t part = 0; part < parts; ++part) {
    PartInput own = Take(**plan, classes, part);
    planners.push_back(std::make_unique<PartPlanner>(
        a, std::move(own.pattern), std::move(own.members), std::move(own.group_ptr), options, 2));
    const std::vector<LaneOffer> more = planners.back()->Survey(std::move(own.classes));
    for (size_t c = 0; c < more.size(); ++c) {
      if (more[c].lanes != 0) offers[c] = more[c];
    }
  }
  std::vector<ColumnResult> outcomes;
  int64_t different = 0;
  for (const auto& planner : planners) {
    const auto of_part = planner->Finish(offers, (*plan)->counts.nnz_m, {.threads = 2});
    ASSERT_TRUE(of_part.ok()) << what;
    const auto part = BuildStaticSpaiPart(**of_part, a, options, {.threads = 2});
    ASSERT_TRUE(part.ok()) << what;
    for (const ColumnResult& outcome : part->outcomes) {
      outcomes.push_back(outcome);
      const auto found = CscView(part->m).column_values(outcome.column);
      const auto expected = CscView(whole->m).column_values(outcome.column);
      ASSERT_EQ(found.size(), expected.size()) << what;
      for (size_t p = 0; p < found.size(); ++p) {
        different += std::bit_cast<uint64_t>(found[p]) != std::bit_cast<uint64_t>(expected[p]);
      }
    }
  }
  EXPECT_EQ(different, 0) << what;
  ASSERT_EQ(std::ssize(outcomes), a.n_cols) << what;
  const StaticSpaiQuality quality = Summarise(outcomes, a.nnz(), whole->m.nnz(), 2);
  EXPECT_EQ(quality.residual_frobenius, whole->quality.residual_frobenius) << what;
  EXPECT_EQ(quality.residual_quantiles, whole->quality.residual_quantiles) << what;
  EXPECT_EQ(quality.gram_columns, whole->quality.gram_columns) << what;
  EXPECT_EQ(quality.density, whole->quality.density) << what;
}

TEST(Part, HasTheBitsOfTheWhole) {
  std::vector<oracle::NamedMatrix> matrices = oracle::Zoo(6);
  matrices.push_back({"Laplacian", oracle::Laplacian2d(40, 40), true});
  matrices.push_back({"elasticity", oracle::From(gallery::Elasticity3d(7)), true});
  matrices.push_back({"circuit", oracle::From(gallery::Circuit(1500, 3, 500)), true});
  for (const oracle::NamedMatrix& entry : matrices) {
    for (const LocalSolver solver : {LocalSolver::kAuto, LocalSolver::kGram, LocalSolver::kQr}) {
      StaticSpaiOptions options = With(solver);
      ExpectPartsHaveTheBitsOfTheWhole(entry.a, options, entry.name);
      options.post_filter = 0.2;
      ExpectPartsHaveTheBitsOfTheWhole(entry.a, options, entry.name + ", filtered");
    }
  }
}

}  // namespace
}  // namespace spaid::kernels
