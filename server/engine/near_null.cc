#include "server/engine/near_null.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace spaid::server {
absl::StatusOr<std::shared_ptr<const kernels::NearNullArrays>> NearNullOf(
    const Matrix& given, GivenMatrix::As as, int64_t n, const std::string& options_field) {
  const bool coordinates = as == GivenMatrix::As::kCoordinates;
  const std::string field =
      absl::StrCat(options_field, coordinates ? ".coordinates" : ".near_null_space");
  const auto bad = [&](const std::string& text) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     coordinates ? reason::kBadCoordinates : reason::kBadNearNullSpace, text)
        .Field(field);
  };
  if (given.pattern_only) {
    return MakeError(absl::StatusCode::kFailedPrecondition, reason::kValuesNeeded,
                     coordinates
                         ? "the matrix named by coordinates is a pattern without values"
                         : "the matrix named by near_null_space is a pattern without values")
        .Field(field);
  }
  const kernels::CscView columns = given.csc();
  std::vector<int64_t> stored;
  for (int64_t j = 0; j < columns.n_cols; ++j) {
    if (!columns.column(j).empty()) stored.push_back(j);
  }
  const auto count = static_cast<int64_t>(stored.size());
  if (!coordinates && (given.n() != n || count < 1 || count > kernels::kMostNearNull)) {
    return bad(absl::StrCat("near_null_space has ", given.n(), " rows and ", count,
                            " columns that store anything; give the ", n,
                            " rows of the matrix and 1 to ", kernels::kMostNearNull, " columns"));
  }
  if (coordinates && (count < 2 || count > 3 || given.n() * count != n)) {
    return bad(absl::StrCat("coordinates has ", given.n(), " rows and ", count,
                            " columns that store anything; give a row for each node and 2 or "
                            "3 columns, as many as a node has of the ",
                            n, " unknowns"));
  }
  auto made = std::make_shared<kernels::NearNullArrays>();
  kernels::Array<double>& dense = coordinates ? made->coordinates : made->vectors;
  (coordinates ? made->dimension : made->count) = static_cast<int>(count);
  dense.assign(static_cast<size_t>(given.n() * count), 0.0);
  for (int64_t k = 0; k < count; ++k) {
    const auto rows = columns.column(stored[static_cast<size_t>(k)]);
    const auto values = columns.column_values(stored[static_cast<size_t>(k)]);
    for (size_t p = 0; p < rows.size(); ++p) {
      dense[static_cast<size_t>(k * given.n() + rows[p])] = values[p];
    }
  }
  return std::shared_ptr<const kernels::NearNullArrays>(std::move(made));
}

}  // namespace spaid::server
