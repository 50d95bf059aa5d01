// Shares a bounded resource (bytes of a store, places in a queue, streams) among tenants, and says
// who gives way when several want more than there is. One rule for all of them:
//
// A tenant's share is the limit times its weight over the weights of all active tenants, those who
// have something there and used it lately. While there is room anybody may take it, and a tenant
// that is alone may take everything. Under pressure whoever is over its share gives way first:
//   - what can be taken back (stored things) is taken from the tenant most over its share, for one
//     that is not; a tenant over its share takes back its own things only (Yields);
//   - an eighth of what cannot be taken back (places, bytes in flight) is kept for tenants that are
//     not over their share (Admits).
//
//   TenantShares shares({.limits = {100}});
//   const TenantShares::Account account = shares.Join("alice");
//   if (shares.Admits(account, 10)) shares.Add(account, 10);
//   shares.Add(account, -10);
//   shares.Leave(account);
//
// Names may be invented to get many shares. So only `max_tenants` tenants are told apart; all
// others are one account with one share. A tenant with a weight of its own always has an account,
// and if there are any, the last sixteenth of what cannot be taken back is for them alone.
//
// Shares by longest weighted queue: B. Suter et al., IEEE J. Sel. Areas Commun. 17 (1999) 1159; a
// reserve for newcomers: A. Choudhury, E. Hahne, IEEE/ACM Trans. Netw. 6 (1998) 130.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/base/clock.h"

namespace spaid::server {

struct ShareRules {
  std::map<std::string, double> weights = {};  // by tenant, over 0; a tenant without one has 1
  int64_t max_tenants = 256;                   // tenants without a weight that are told apart
};

// Not thread-safe. Every call takes at most time proportional to the number of accounts. A call
// that throws (in the allocator) changes nothing.
class TenantShares {
  struct State;

 public:
  // Stands for one tenant, or for all that are not told apart. Valid until Leave was called as
  // often as Join.
  using Account = State*;

  // The `active_for` of stores: as long as ended jobs are kept.
  static constexpr std::chrono::hours kLately{1};

  struct Options {
    std::vector<int64_t> limits;  // one per resource; `of` below is an index into it
    ShareRules rules = {};
    // A tenant that has not used its things for this long has no share.
    std::chrono::nanoseconds active_for = std::chrono::nanoseconds::max();
    const Clock* clock = &RealClock();  // outlives this
  };

  explicit TenantShares(Options options);
  TenantShares(TenantShares&&) = default;  // accounts stay good

  // Announces one more thing of the tenant and makes it active. Leave as often as Join.
  Account Join(const std::string& tenant);
  void Leave(Account account);
  // Returns the tenant's account, or that of all who are not told apart; null: neither has
  // anything.
  Account Find(const std::string& tenant);
  // Returns the tenant's name, or one name, which no tenant has, for all that are not told apart.
  static const std::string& NameOf(Account account);
  // Adds `amount`, which may be negative, to what the account has; its sum stays at least 0.
  void Add(Account account, int64_t amount, size_t of = 0);
  // Notes that the account's things are in use now.
  void Touch(Account account) { account->touched = Now(); }

  int64_t limit(size_t of = 0) const { return options_.limits.at(of); }
  int64_t used(size_t of = 0) const { return used_.at(of); }
  int64_t UsedBy(Account account, size_t of = 0) const { return account->used.at(of); }
  // Returns the number of accounts that have something.
  int64_t tenants() const {
    return static_cast<int64_t>(by_tenant_.size()) + (crowd_->joined > 0 ? 1 : 0);
  }
  bool Active(Account account) const { return Active(*account, Now()); }

  double ShareOf(Account account, size_t of = 0) const;
  bool OverShare(Account account, int64_t more, size_t of = 0) const;
  // Returns the account that gives up something so that `account` gets `more`, among those for
  // which `has_some` is true; null: none has to, and `account` is refused.
  Account Yields(Account account, int64_t more, absl::FunctionRef<bool(Account)> has_some,
                 size_t of = 0);
  // Returns true if `account` may have `more` of what cannot be taken back. `alone`: it becomes
  // part of the only thing that the tenant has there, which may take everything while nobody else
  // has any.
  bool Admits(Account account, int64_t more, bool alone = false, size_t of = 0) const;
  // Applies the same rule to amounts that are counted elsewhere: returns true if `account` may hold
  // `own` of the `sum` that cannot be taken back.
  bool MayHold(Account account, int64_t own, int64_t sum, bool alone, size_t of = 0) const {
    return sum <= CeilingFor(account, own, sum, alone, of);
  }
  // Returns how much must be given back before Admits is true; 0: it is.
  int64_t MissingFor(Account account, int64_t more, bool alone = false, size_t of = 0) const;

 private:
  struct State {
    const std::string* tenant = nullptr;  // null: those that are not told apart
    double weight = 1;
    bool has_weight = false;
    int64_t joined = 0;
    TimePoint touched = {};
    std::vector<int64_t> used;
  };

  bool timed() const { return options_.active_for != std::chrono::nanoseconds::max(); }
  TimePoint Now() const { return timed() ? options_.clock->Now() : TimePoint(); }
  bool Active(const State& state, TimePoint now) const {
    return state.joined > 0 && (!timed() || now - state.touched <= options_.active_for);
  }
  double ActiveWeights(TimePoint now) const;
  // Returns the most that all accounts together may have if `account` has `own` of their `sum`.
  int64_t CeilingFor(Account account, int64_t own, int64_t sum, bool alone, size_t of) const;

  const Options options_;
  std::vector<int64_t> used_;
  std::unordered_map<std::string, State> by_tenant_;
  std::unique_ptr<State> crowd_ = std::make_unique<State>();  // all who are not told apart
  int64_t told_apart_ = 0;                                    // without a weight of their own
};

}  // namespace spaid::server
