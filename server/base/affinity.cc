#include "server/base/affinity.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/ids.h"

namespace spaid::server {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

bool IsAffinity(std::string_view text) {
  return text.size() == 8 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string_view AffinityOf(std::string_view handle) {
  const size_t dash = handle.rfind('-');
  if (dash == std::string_view::npos) return kNoAffinity;
  const std::string_view end = handle.substr(dash + 1);
  return IsAffinity(end) ? end : kNoAffinity;
}

std::string NewHandle(std::string_view prefix, std::string_view affinity) {
  return absl::StrCat(Absl(prefix), RandomId(), "-", Absl(affinity));
}

std::string KeyUnder(std::string key, std::string_view affinity) {
  // Keys without one are as they were before there were affinities: spill folders have them.
  if (!key.empty() && affinity != kNoAffinity) absl::StrAppend(&key, "|", Absl(affinity));
  return key;
}

}  // namespace spaid::server
