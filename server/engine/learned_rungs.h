// Remembers what solved systems on a pattern before, so that AUTO starts there the next time.
//
//   if (auto rung = learned.Find("tenant", pattern_key, Method::kAuto)) ...
//   learned.Learn("tenant", pattern_key, Method::kAuto, {.kind = RungKind::kFsai});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/engine/ladder.h"
#include "server/store/byte_lru.h"

namespace spaid::server {

struct LearnedRung {
  kernels::RungKind kind = kernels::RungKind::kBottom;
  bool scaled = false;  // of A equilibrated, or matched and scaled
};

// By tenant, pattern and the method that was asked for; the least recently used go first, by the
// rule of TenantShares. Lost with the process. Thread-safe.
class LearnedRungs {
 public:
  explicit LearnedRungs(ShareRules shares) : rungs_(kBytes, {}, std::move(shares)) {}

  std::optional<LearnedRung> Find(const std::string& tenant, const std::string& pattern,
                                  kernels::Method asked) {
    const auto found = rungs_.Get(Key(tenant, pattern, asked));
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  // In place of what was known.
  void Learn(const std::string& tenant, const std::string& pattern, kernels::Method asked,
             LearnedRung rung) {
    const std::string key = Key(tenant, pattern, asked);
    rungs_.Put(tenant, key, std::make_shared<const LearnedRung>(rung),
               static_cast<int64_t>(2 * key.size()) + kOverhead);
  }

 private:
  static constexpr int64_t kBytes = int64_t{4} << 20, kOverhead = 300;

  static std::string Key(const std::string& tenant, const std::string& pattern,
                         kernels::Method asked) {
    return absl::StrCat(tenant.size(), ":", tenant, pattern, static_cast<int>(asked));
  }

  ByteLru<LearnedRung> rungs_;
};

}  // namespace spaid::server
