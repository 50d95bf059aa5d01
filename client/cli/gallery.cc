#include "client/cli/gallery.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <string>
#include <utility>

#include "kernels/gallery/gallery.h"

namespace spaid::cli {
namespace {

Error MakeError(std::string reason, std::string message) {
  Error error;
  error.code = Code::kInvalidArgument;
  error.reason = std::move(reason);
  error.message = std::move(message);
  error.field = "gallery";
  return error;
}

}  // namespace

Expected<CscMatrix> Generate(std::string_view family, int64_t size) {
  const auto families = gallery::Families();
  const auto f = std::find_if(families.begin(), families.end(),
                              [&](const gallery::Family& one) { return one.name == family; });
  if (f == families.end()) {
    std::string names;
    for (const gallery::Family& one : families)
      names += (names.empty() ? "" : ", ") + std::string(one.name);
    return MakeError("GALLERY_UNKNOWN",
                     "the gallery has no \"" + std::string(family) + "\"; it has " + names);
  }
  if (size == 0) size = f->default_size;
  if (size < f->min_size || size > f->max_size) {
    return MakeError("GALLERY_SIZE",
                     "gallery:" + std::string(family) + " takes sizes from " +
                         std::to_string(f->min_size) + " to " + std::to_string(f->max_size) + " (" +
                         std::string(f->size_meaning) + "), not " + std::to_string(size));
  }
  try {
    gallery::Matrix a = f->make(size);
    return CscMatrix{.n = a.n,
                     .col_ptr = std::move(a.col_ptr),
                     .row_idx = std::move(a.row_idx),
                     .values = std::move(a.values)};
  } catch (const std::bad_alloc&) {  // the standard library's only word for it
    Error error = MakeError("OUT_OF_MEMORY", "gallery:" + std::string(family) + " of size " +
                                                 std::to_string(size) +
                                                 " does not fit into this machine's memory");
    error.code = Code::kResourceExhausted;
    return error;
  }
}

Expected<CscMatrix> GenerateFromText(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return Generate(text, 0);
  const std::string_view digits = text.substr(colon + 1);
  int64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (error != std::errc() || end != digits.data() + digits.size() || size == 0) {
    return MakeError("GALLERY_SIZE", "gallery:" + std::string(text) + ": \"" + std::string(digits) +
                                         "\" is not a size; write gallery:NAME:SIZE");
  }
  return Generate(text.substr(0, colon), size);
}

}  // namespace spaid::cli
