#include "client/cpp/affinity.h"

#include <algorithm>
#include <string>

#include "client/cpp/arrays.h"
#include "client/cpp/impl.h"
#include "spaid/client.h"

namespace spaid {

bool internal::IsAffinity(std::string_view text) {
  return text.size() == 8 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string AffinityOf(std::string_view handle) {
  const size_t dash = handle.rfind('-');
  if (dash == std::string_view::npos || !internal::IsAffinity(handle.substr(dash + 1))) return "";
  return std::string(handle.substr(dash + 1));
}

std::string AffinityOf(const CscView& a) {
  const internal::WidePointers wide(a);
  if (internal::CheckSpans(wide.view())) return "";
  return internal::PatternAffinity(wide.view());
}

std::string internal::AffinityBeside(const PreconditionerSpec& spec,
                                     const std::string& preconditioner) {
  for (const std::string* handle :
       {&preconditioner, &spec.pattern_matrix, &spec.amg.near_null_space, &spec.amg.coordinates,
        &spec.petsc.near_null_space}) {
    if (std::string affinity = AffinityOf(*handle); !affinity.empty()) return affinity;
  }
  return "";
}

}  // namespace spaid
