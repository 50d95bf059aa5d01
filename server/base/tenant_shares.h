// Who gives way where several tenants want more of one thing than there is: bytes of a store,
// places in a queue, streams. One rule for all of them:
//
// A tenant's share is the part of the limit that its weight is of those of all who are active: who
// have something there and used it lately. While there is room anybody may take it, and who is
// alone takes everything. Under pressure who is over its share gives way first:
//   what can be taken back (stored things) is taken from the tenant most over its share, for one
//     that is not; who is over its share itself takes of its own alone (Yields);
//   of what cannot (places, bytes in flight) an eighth is kept for those who are not over their
//     share (Admits).
//
//   TenantShares shares({.limits = {100}});
//   const TenantShares::Account account = shares.Join("alice");
//   if (shares.Admits(account, 10)) shares.Add(account, 10);
//   shares.Add(account, -10);
//   shares.Leave(account);
//
// Names may be made up by those who want many shares. So only so many tenants are told apart; all
// beyond them are one account, with one share. Who has a weight of its own always has an account,
// and the last sixteenth of what cannot be taken back is for those alone, where there are any.
//
// Shares by longest weighted queue: B. Suter et al., IEEE J. Sel. Areas Commun. 17 (1999) 1159;
// room kept for newcomers: A. Choudhury, E. Hahne, IEEE/ACM Trans. Netw. 6 (1998) 130.
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
  std::map<std::string, double> weights = {};  // over 0, by tenant; 1 where there is none
  int64_t max_tenants = 256;                   // without a weight, that are told apart
};

// Not thread-safe. Every call takes time by the number of accounts at the most. What throws (the
// allocator) changes nothing.
class TenantShares {
  struct State;

 public:
  // Stands for a tenant, or for all that are not told apart. Good until it was left as often as
  // joined.
  using Account = State*;

  // What `active_for` is of things that are kept for use: as long as ended jobs are.
  static constexpr std::chrono::hours kLately{1};

  struct Options {
    std::vector<int64_t> limits;  // of what is counted; `of` below is an index
    ShareRules rules = {};
    // Who has not touched what it has there for so long has no share.
    std::chrono::nanoseconds active_for = std::chrono::nanoseconds::max();
    const Clock* clock = &RealClock();  // outlives this
  };

  explicit TenantShares(Options options);
  TenantShares(TenantShares&&) = default;  // accounts stay good

  // One more thing of the tenant's will be there: it is active. Leave as often as Join.
  Account Join(const std::string& tenant);
  void Leave(Account account);
  // The account of what the tenant has there; null: nothing, or nobody is beyond those told apart.
  Account Find(const std::string& tenant);
  // The tenant's, or one name for all that are not told apart, which no tenant has.
  static const std::string& NameOf(Account account);
  // `amount` more, or less, of what is shared; the account's sum stays at least 0.
  void Add(Account account, int64_t amount, size_t of = 0);
  // What it has is used.
  void Touch(Account account) { account->touched = Now(); }

  int64_t limit(size_t of = 0) const { return options_.limits.at(of); }
  int64_t used(size_t of = 0) const { return used_.at(of); }
  int64_t UsedBy(Account account, size_t of = 0) const { return account->used.at(of); }
  // Accounts that something was joined for.
  int64_t tenants() const {
    return static_cast<int64_t>(by_tenant_.size()) + (crowd_->joined > 0 ? 1 : 0);
  }
  bool Active(Account account) const { return Active(*account, Now()); }

  double ShareOf(Account account, size_t of = 0) const;
  bool OverShare(Account account, int64_t more, size_t of = 0) const;
  // Who gives up something for `more` of `account`'s, of those that have something to give; null:
  // nobody need, `account` is refused.
  Account Yields(Account account, int64_t more, absl::FunctionRef<bool(Account)> has_some,
                 size_t of = 0);
  // Whether `account` may have `more` of what cannot be taken back. `alone`: it becomes part of the
  // only thing that the tenant has there, which may be as large as everything where nobody else has
  // any.
  bool Admits(Account account, int64_t more, bool alone = false, size_t of = 0) const;
  // Whether it may go on with `own` of the `sum` that cannot be taken back, by the same rule: of
  // what is counted elsewhere.
  bool MayHold(Account account, int64_t own, int64_t sum, bool alone, size_t of = 0) const {
    return sum <= CeilingFor(account, own, sum, alone, of);
  }
  // What must be given back before it may; 0: nothing.
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
  // The most that all together may have where `account` then has `own` of their `sum`.
  int64_t CeilingFor(Account account, int64_t own, int64_t sum, bool alone, size_t of) const;

  const Options options_;
  std::vector<int64_t> used_;
  std::unordered_map<std::string, State> by_tenant_;
  std::unique_ptr<State> crowd_ = std::make_unique<State>();  // all who are not told apart
  int64_t told_apart_ = 0;                                    // without a weight of their own
};

}  // namespace spaid::server
