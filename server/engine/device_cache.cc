#include "server/engine/device_cache.h"

#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/reasons.h"

namespace spaid::server {
namespace {

// The key of an object on a device; another one may have its address later (Kept::gone).
std::string KeyOf(const void* object, size_t device) {
  return absl::StrCat(absl::Hex(reinterpret_cast<uintptr_t>(object)), "|", device);
}

}  // namespace

class DeviceCache::Kept {
 public:
  // `drop`: drops what `of` has on the device.
  template <class T, class Drop>
  Kept(const std::shared_ptr<T>& of, Drop drop)
      : of_(of), drop_([weak = std::weak_ptr<T>(of), drop] {
          if (const auto there = weak.lock()) std::invoke(drop, *there);
        }) {}
  // `layout`: names what the layout depends on, of a tenant's matrix; empty: it serves `of` alone.
  Kept(std::weak_ptr<const void> of, std::string layout,
       std::shared_ptr<const kernels::DeviceOperator> laid_out)
      : of_(std::move(of)), layout_(std::move(layout)), laid_out_(std::move(laid_out)) {}
  ~Kept() {
    if (drop_) drop_();
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  bool gone() const { return of_.expired(); }  // what it was made from is
  bool Is(const std::shared_ptr<const void>& of) const { return of_.lock() == of; }
  const std::string& layout() const { return layout_; }
  const std::shared_ptr<const kernels::DeviceOperator>& laid_out() const { return laid_out_; }

 private:
  std::weak_ptr<const void> of_;
  std::string layout_;
  std::function<void()> drop_;
  std::shared_ptr<const kernels::DeviceOperator> laid_out_;
};

std::vector<int64_t> ShareOfDevices(const kernels::Engine& engine, int64_t parts) {
  std::vector<int64_t> bytes;
  for (size_t d = 0; d < engine.Devices().size(); ++d) {
    bytes.push_back(engine.State(static_cast<int>(d)).limit_bytes / parts);
  }
  return bytes;
}

DeviceCache::DeviceCache(const kernels::Engine& engine, ShareRules shares, const Clock& clock)
    : engine_(engine),
      clock_(clock),
      kept_(std::numeric_limits<int64_t>::max(), ShareOfDevices(engine, 4), std::move(shares)) {}

DeviceCache::Placed DeviceCache::Place(const std::string& tenant,
                                       const std::shared_ptr<const Matrix>& a,
                                       const kernels::Context& context, double* ms) {
  // It lies there, as long as there is a handle.
  if (a->over != nullptr) return engine_.Place(a->csc(), context);
  const auto device = static_cast<size_t>(context.device);
  // A layout is a tenant's own, as plans are.
  const std::string layout =
      absl::StrCat(device, "|", tenant.size(), ":", tenant, a->pattern_fingerprint().ToBytes());
  const auto sent = a->ahead != nullptr ? a->ahead->copy() : nullptr;
  kernels::Context there = context;
  there.ahead = sent.get();
  const auto place = [&](std::shared_ptr<const kernels::DeviceOperator> old) -> Placed {
    a->pattern->ValuesGoTo(context.device);
    if (old != nullptr) {
      auto replaced = engine_.Replace(std::move(old), a->csc(), there);
      if (replaced.ok() || replaced.status().reason() != kernels::reason::kPlanMismatch)
        return replaced;
    }
    return engine_.Place(a->csc(), there);
  };
  auto placed = PlaceKept(tenant, KeyOf(a.get(), device), a, layout, device, place, ms);
  if (placed.ok()) EndAhead(*a);
  return placed;
}

DeviceCache::Placed DeviceCache::Place(const std::string& tenant,
                                       const std::shared_ptr<const kernels::Preconditioner>& m,
                                       kernels::Storage storage,
                                       const kernels::DeviceOperator& a_there,
                                       const kernels::Context& context, double* ms) {
  if (m->form() == kernels::MForm::kOverRanks) return engine_.Place(*m, storage, context);
  const auto device = static_cast<size_t>(context.device);
  const char* const stored = storage == kernels::Storage::kFp32 ? "|fp32" : "";
  // In fp64 in place of the copy that a build of it left.
  return PlaceKept(
      tenant, KeyOf(m.get(), device) + stored, m, /*layout=*/"", device,
      [&](const auto&) { return engine_.Place(*m, storage, context, &a_there); }, ms,
      a_there.order());
}

DeviceCache::Placed DeviceCache::PlaceKept(
    const std::string& tenant, const std::string& key, const std::shared_ptr<const void>& of,
    const std::string& layout, size_t device,
    absl::FunctionRef<Placed(std::shared_ptr<const kernels::DeviceOperator>)> place, double* ms,
    std::optional<const void*> order) {
  if (const auto kept = kept_.Get(key); kept && !kept->gone() && kept->laid_out()) {
    if (!order || kept->laid_out()->order() == *order) return kept->laid_out();
  }
  const TimePoint start = clock_.Now();
  std::shared_ptr<const kernels::DeviceOperator> old;
  if (!layout.empty()) {
    const auto left =
        kept_.Take([&](const Kept& kept) { return kept.gone() && kept.layout() == layout; });
    if (left != nullptr) old = left->laid_out();
  }
  auto placed = place(std::move(old));
  *ms += ToMs(clock_.Now() - start);
  if (!placed.ok()) return placed;
  Put(tenant, key, std::make_shared<const Kept>(of, layout, *placed), device,
      (*placed)->device_bytes());
  return placed;
}

void DeviceCache::KeepCopy(const std::string& tenant, size_t device,
                           const std::shared_ptr<const kernels::Preconditioner>& m) {
  const int64_t bytes = m->device_bytes();
  if (bytes == 0) return;
  // Levels that a device has set up stay beside what solves apply: to drop them is to download
  // them.
  const char* const levels = m->form() == kernels::MForm::kParts ? "|levels" : "";
  // The rest that the pool does not take ends here.
  Put(tenant, KeyOf(m.get(), device) + levels,
      std::make_shared<const Kept>(m, &kernels::Preconditioner::DropDeviceCopy), device, bytes);
}

std::shared_ptr<ValuesAhead> DeviceCache::BeginAhead(
    const std::string& tenant, int device, const std::shared_ptr<const StoredPattern>& pattern,
    Metrics* metrics) {
  auto ahead = std::make_shared<ValuesAhead>(engine_, device, pattern, metrics);
  const auto pool = static_cast<size_t>(device);
  kept_.Prune([](const Kept& one) { return one.gone(); });
  const bool booked = kept_.Put(tenant, KeyOf(ahead.get(), pool),
                                std::make_shared<const Kept>(ahead, &ValuesAhead::Drop),
                                /*bytes=*/0, {pool}, pattern->nnz() * int64_t{sizeof(double)},
                                /*free_room=*/true);
  return booked ? ahead : nullptr;
}

void DeviceCache::EndAhead(const Matrix& a) {
  if (a.ahead != nullptr) kept_.Take([&](const Kept& kept) { return kept.Is(a.ahead); });
}

void DeviceCache::Put(const std::string& tenant, const std::string& key,
                      std::shared_ptr<const Kept> kept, size_t device, int64_t bytes) {
  kept_.Prune([](const Kept& one) { return one.gone(); });
  kept_.Put(tenant, key, std::move(kept), /*bytes=*/0, {device}, bytes);
}

bool DeviceCache::Holds(const Matrix& a, size_t device) const {
  return kept_.Holds(KeyOf(&a, device));
}

}  // namespace spaid::server
