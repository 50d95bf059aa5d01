#include "server/base/tenant_shares.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

namespace spaid::server {
namespace {

// The part of a limit that is kept for tenants that are not over their share, and the part for
// those with a weight of their own.
constexpr int64_t kKept = 8, kKeptForWeights = 16;

}  // namespace

TenantShares::TenantShares(Options options)
    : options_(std::move(options)), used_(options_.limits.size()) {
  crowd_->used.resize(used_.size());
}

TenantShares::Account TenantShares::Join(const std::string& tenant) {
  Account account = nullptr;
  if (const auto own = by_tenant_.find(tenant); own != by_tenant_.end()) {
    account = &own->second;
  } else {
    const auto weight = options_.rules.weights.find(tenant);
    const bool has_weight = weight != options_.rules.weights.end();
    if (!has_weight && told_apart_ >= options_.rules.max_tenants) {
      account = crowd_.get();
    } else {
      State state;
      state.weight = has_weight ? weight->second : 1;
      state.has_weight = has_weight;
      state.used.resize(used_.size());
      const auto added = by_tenant_.emplace(tenant, std::move(state)).first;
      account = &added->second;
      account->tenant = &added->first;
      told_apart_ += has_weight ? 0 : 1;
    }
  }
  ++account->joined;
  account->touched = Now();
  return account;
}

void TenantShares::Leave(Account account) {
  if (account->joined <= 0) std::abort();  // left more often than joined
  if (--account->joined > 0) return;
  for (const int64_t used : account->used) {
    if (used != 0) std::abort();  // something was forgotten
  }
  if (account == crowd_.get()) return;
  told_apart_ -= account->has_weight ? 0 : 1;
  by_tenant_.erase(by_tenant_.find(*account->tenant));
}

TenantShares::Account TenantShares::Find(const std::string& tenant) {
  if (const auto own = by_tenant_.find(tenant); own != by_tenant_.end()) return &own->second;
  return crowd_->joined > 0 ? crowd_.get() : nullptr;
}

const std::string& TenantShares::NameOf(Account account) {
  static const std::string* const others = new std::string("\x7fothers");
  return account->tenant != nullptr ? *account->tenant : *others;
}

void TenantShares::Add(Account account, int64_t amount, size_t of) {
  int64_t& used = account->used.at(of);
  used += amount;
  used_[of] += amount;
  if (used < 0) std::abort();  // more given back than taken
}

double TenantShares::ActiveWeights(TimePoint now) const {
  double sum = Active(*crowd_, now) ? crowd_->weight : 0;
  for (const auto& [unused, state] : by_tenant_) sum += Active(state, now) ? state.weight : 0;
  return sum;
}

double TenantShares::ShareOf(Account account, size_t of) const {
  const TimePoint now = Now();
  if (!Active(*account, now)) return 0;
  return static_cast<double>(limit(of)) * account->weight / ActiveWeights(now);
}

bool TenantShares::OverShare(Account account, int64_t more, size_t of) const {
  return static_cast<double>(UsedBy(account, of) + more) > ShareOf(account, of);
}

TenantShares::Account TenantShares::Yields(Account account, int64_t more,
                                           absl::FunctionRef<bool(Account)> has_some, size_t of) {
  const TimePoint now = Now();
  const double weights = ActiveWeights(now);
  const bool over = OverShare(account, more, of);
  Account most = nullptr;
  double most_over = 0;
  const auto look = [&](State& other) {
    if (&other == account || other.joined == 0 || other.used[of] == 0) return;
    // How many times its share it has.
    double times = std::numeric_limits<double>::infinity();
    if (Active(other, now)) {
      times = static_cast<double>(other.used[of]) * weights /
              (static_cast<double>(limit(of)) * other.weight);
      if (over || times <= 1) return;
    }
    if (times > most_over && has_some(&other)) {
      most = &other;
      most_over = times;
    }
  };
  look(*crowd_);
  for (auto& [unused, other] : by_tenant_) look(other);
  if (most == nullptr && has_some(account)) most = account;
  return most;
}

int64_t TenantShares::CeilingFor(Account account, int64_t own, int64_t sum, bool alone,
                                 size_t of) const {
  const int64_t all = limit(of), most = all - all / kKept;
  if (sum <= most || (alone && sum == own)) return all;
  // Beside one more that may come.
  const double share = static_cast<double>(all) * account->weight / (ActiveWeights(Now()) + 1);
  if (static_cast<double>(own) > share) return most;  // `alone`, too
  return account->has_weight || options_.rules.weights.empty() ? all : all - all / kKeptForWeights;
}

int64_t TenantShares::MissingFor(Account account, int64_t more, bool alone, size_t of) const {
  if (more <= 0) return 0;
  const int64_t own = UsedBy(account, of) + more, sum = used(of) + more;
  return std::max(int64_t{0}, sum - CeilingFor(account, own, sum, alone, of));
}

bool TenantShares::Admits(Account account, int64_t more, bool alone, size_t of) const {
  return MissingFor(account, more, alone, of) == 0;
}

}  // namespace spaid::server
