#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/engine/build_result.h"

namespace spaid::kernels {

std::vector<std::pair<std::string, int64_t>> Quality::Counts() const {
  std::vector<std::pair<std::string, int64_t>> counts;
  const auto add = [&counts](std::string name, const auto& figure) {
    if constexpr (std::is_same_v<std::decay_t<decltype(figure)>, Occurrence>) {
      counts.emplace_back(name.substr(0, name.rfind('_')), figure.count);
    }
  };
  Figures(add);
  EachEngine([&add](const char*, const auto& own) {
    if (own) own->Figures(add);
  });
  return counts;
}

}  // namespace spaid::kernels
