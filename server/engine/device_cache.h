// Keeps on GPUs what work to come will want, within a quarter of what the daemon may take of each:
// matrices and preconditioners laid out for solves, and the copies of M that builds leave.
//
//   DeviceCache cache(engine, options.shares, RealClock());
//   auto a_there = cache.Place(tenant, a, context, &place_ms);       // there already, or placed
//   auto m_there = cache.Place(tenant, m, Storage::kFp64, **a_there, context, &place_ms);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/engine/engine.h"
#include "server/base/clock.h"
#include "server/engine/stored_types.h"
#include "server/engine/values_ahead.h"
#include "server/store/byte_lru.h"

namespace spaid::server {

// For each of the engine's devices, one part in `parts` of what may be taken of it.
std::vector<int64_t> ShareOfDevices(const kernels::Engine& engine, int64_t parts);

// Thread-safe. What is on a device is a tenant's own, and goes with what it was made from, but for
// the layout of a matrix, of which the next one of the pattern has the use.
class DeviceCache {
 public:
  using Placed = kernels::Engine::Placed;

  // `engine` and `clock` outlive this.
  DeviceCache(const kernels::Engine& engine, ShareRules shares, const Clock& clock);

  // On context.device, a GPU: kept there, or placed now, with its milliseconds added to `ms`. Where
  // a matrix of the tenant with this pattern was there, and is no more, the values take its place.
  // M lies in the order of the unknowns of `a_there`; for a matrix in another it is placed anew.
  // Errors: Engine::Place's.
  Placed Place(const std::string& tenant, const std::shared_ptr<const Matrix>& a,
               const kernels::Context& context, double* ms);
  Placed Place(const std::string& tenant, const std::shared_ptr<const kernels::Preconditioner>& m,
               kernels::Storage storage, const kernels::DeviceOperator& a_there,
               const kernels::Context& context, double* ms);

  // Bounds what a build left on `device`: the copy is dropped when its room is wanted.
  void KeepCopy(const std::string& tenant, size_t device,
                const std::shared_ptr<const kernels::Preconditioner>& m);

  bool Holds(const Matrix& a, size_t device) const;  // laid out
  // Books room for values on `pattern` that are sent to `device` ahead, while they come: only what
  // is free, for nothing goes for what may be in vain. Null: there is none.
  std::shared_ptr<ValuesAhead> BeginAhead(const std::string& tenant, int device,
                                          const std::shared_ptr<const StoredPattern>& pattern,
                                          Metrics* metrics);
  // Drops what was sent ahead of the values of `a`: whoever wanted it has it.
  void EndAhead(const Matrix& a);

  // Drops what is on it. How much there was.
  int64_t Drop(size_t device) { return kept_.DropPool(device); }

 private:
  // Made from something that may go before it: the copy of M that its build left, or values that
  // were sent ahead, both of which are dropped with this, or a matrix, or M, laid out.
  class Kept;

  // `order`: that of the unknowns in which it must lie; nothing: any.
  Placed PlaceKept(const std::string& tenant, const std::string& key,
                   const std::shared_ptr<const void>& of, const std::string& layout, size_t device,
                   absl::FunctionRef<Placed(std::shared_ptr<const kernels::DeviceOperator>)> place,
                   double* ms, std::optional<const void*> order = {});
  void Put(const std::string& tenant, const std::string& key, std::shared_ptr<const Kept> kept,
           size_t device, int64_t bytes);

  const kernels::Engine& engine_;
  const Clock& clock_;
  ByteLru<Kept> kept_;
};

}  // namespace spaid::server
