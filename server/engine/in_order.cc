#include "server/engine/in_order.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/parallel.h"
#include "server/engine/adapter.h"
#include "server/sched/job.h"

namespace spaid::server {

std::shared_ptr<const KeptPlan> EngineAdapter::FindOrder(const std::string& tenant, const Matrix& a,
                                                         const kernels::Context& context) const {
  const std::string key =
      absl::StrCat("order|", tenant.size(), ":", tenant, a.pattern_fingerprint().ToBytes());
  if (auto kept = plans_.Get(key)) return kept;
  auto order = kernels::ReverseCuthillMcKee(a.csc(), context);
  if (!order.ok()) return nullptr;
  const auto bytes = static_cast<int64_t>(order->size() * sizeof(int32_t));
  const auto found = std::make_shared<const KeptPlan>(KeptPlan{nullptr, *std::move(order)});
  plans_.Put(tenant, key, found, bytes);
  return found;
}

std::unique_ptr<InOrder> EngineAdapter::PutInOrder(
    const Matrix& a, const kernels::Preconditioner* m, std::span<const double> b,
    std::span<const double> x, const kernels::SolveOptions& options, const Job& job,
    const kernels::Context& context) const {
  const TimePoint start = options_.clock->Now();
  const int threads = kernels::ResolveThreads(context.threads);
  // Refusals name the caller's indices: of b and x, and of an M asked for in fp32.
  // Parts of multigrid stay as they are.
  if ((m != nullptr &&
       (options.m_storage == kernels::Storage::kFp32 || m->form() == kernels::MForm::kParts)) ||
      !kernels::CheckSolveInput(a.n(), a.n(), b, x, options, threads).ok() ||
      !kernels::Reordered::Pays(a.csc(), threads)) {
    return nullptr;
  }
  const int64_t nulls = options.null_space != nullptr ? options.null_space->bytes() : 0;
  const auto vectors = static_cast<int64_t>((b.size() + x.size()) / static_cast<size_t>(a.n()));
  auto share = ladder_bytes_.Take(
      job.tenant(), nulls + kernels::Reordered::HostBytes(a.csc(), m, vectors + 1, threads));
  if (!share.ok()) return nullptr;
  auto made = std::make_unique<InOrder>();
  const kernels::Status status = kernels::GuardMemory("the reordering", [&]() -> kernels::Status {
    const auto kept = FindOrder(job.tenant(), a, context);
    if (kept == nullptr) return kernels::StopStatus(context.stop.Poll(), "the reordering");
    auto system =
        kernels::Reordered::Make(a.csc(), options.null_space, {kept, &kept->order}, context);
    if (!system.ok()) return system.status();
    made->system = *std::move(system);
    if (m != nullptr) {
      auto of = made->system->Of(*m, context);
      if (!of.ok()) return of.status();
      made->m = *std::move(of);
    }
    made->b = made->system->Carried(b);
    made->x = made->system->Carried(x);
    return {};
  });
  // A stop, or no memory: the solve finds the one, and does without the other.
  if (!status.ok()) return nullptr;
  made->share = *std::move(share);
  made->ms = ToMs(options_.clock->Now() - start);
  return made;
}

}  // namespace spaid::server
