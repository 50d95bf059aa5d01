#include "server/engine/parts.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/amg/amg.h"
#include "server/base/status.h"
#include "server/engine/convert.h"

namespace spaid::server {
namespace {

struct CountedPart {
  kernels::CscMatrix matrix;
  BudgetShare share;
};

std::string Listed(const kernels::AmgHierarchy& hierarchy) {
  std::string list;
  for (const kernels::AmgPart& part : hierarchy.parts()) {
    absl::StrAppend(&list, list.empty() ? "" : ", ",
                    v1::PartKind_Name(ToProto(part.kind)).substr(10), " of level ", part.level);
  }
  return list;
}

const kernels::AmgPart* FindPart(const std::vector<kernels::AmgPart>& parts,
                                 const v1::Part& named) {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const kernels::AmgPart& part) {
    return part.level == named.level() && ToProto(part.kind) == named.kind();
  });
  return found == parts.end() ? nullptr : &*found;
}

}  // namespace

absl::Status CheckPart(const Preconditioner& m, const v1::DownloadPreconditionerRequest& request) {
  if (kernels::TraitsOf(m.kernel->kind()).ranks_alone) {
    return MatrixOverRanks("it is not sent; solve with it by its handle", "preconditioner");
  }
  const kernels::AmgHierarchy* hierarchy = m.kernel->hierarchy();
  if (hierarchy == nullptr) {
    if (!request.has_part()) return absl::OkStatus();
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kUnknownPart,
                     "the preconditioner is a matrix and has no parts; leave part unset")
        .Field("part");
  }
  if (!request.has_part()) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kPartNeeded,
                     absl::StrCat("the preconditioner is multigrid's, a cycle and no matrix; name "
                                  "a part of it: ",
                                  Listed(*hierarchy)))
        .Field("part");
  }
  if (FindPart(hierarchy->parts(), request.part()) == nullptr) {
    return MakeError(
               absl::StatusCode::kInvalidArgument, reason::kUnknownPart,
               absl::StrCat("the preconditioner has no such part; it has ", Listed(*hierarchy)))
        .Field("part");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const kernels::CscMatrix>> CopyPart(ByteBudget& budget,
                                                                   const std::string& tenant,
                                                                   const Preconditioner& m,
                                                                   const v1::Part& part) {
  const kernels::AmgHierarchy& hierarchy = *m.kernel->hierarchy();
  const std::vector<kernels::AmgPart> parts = hierarchy.parts();
  const kernels::AmgPart& found = *FindPart(parts, part);
  auto copy = std::make_shared<CountedPart>();
  ASSIGN_OR_RETURN(copy->share,
                   budget.Take(tenant, 12 * found.nnz + 8 * (found.cols + found.rows + 2)));
  auto made = hierarchy.Part(found.level, found.kind);
  if (!made.ok()) return ToAbsl(made.status());
  copy->matrix = *std::move(made);
  return std::shared_ptr<const kernels::CscMatrix>(copy, &copy->matrix);
}

}  // namespace spaid::server
