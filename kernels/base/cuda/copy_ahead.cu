#include <memory>
#include <utility>

#include "kernels/base/cuda/device.h"
#include "kernels/base/reasons.h"

namespace spaid::kernels {
namespace {

// Memory for `bytes`, of which the lane may write from now on. It is freed on any thread, between
// computations, behind what the lane still writes.
std::shared_ptr<char> MemoryFor(const std::shared_ptr<CudaDevice>& device, cuda::Context& context,
                                cuda::AheadLane& lane, int64_t bytes) {
  auto memory = std::make_unique<cuda::Buffer<char>>(context, bytes);
  lane.Follow(context.stream);
  char* const data = memory->get();
  return {data, [device, &context, &lane, memory = memory.release()](char*) {
            device->Free([&context, &lane, memory] {
              try {
                context.Enter();
                lane.LeadTo(context.stream);
              } catch (const cuda::Failure&) {
                // The device answers no more: the next computation says so.
              }
              delete memory;
            });
          }};
}

}  // namespace

Result<std::shared_ptr<CopyAhead>> BeginCopyAhead(const std::shared_ptr<CudaDevice>& device,
                                                  const void* host, int64_t bytes) {
  std::shared_ptr<CopyAhead> ahead;  // a null is none yet
  const auto lock = device->TryLock();
  if (!lock || device->lost()) return ahead;
  const Status status = cuda::Guard(*device, [&](cuda::Context& context) {
    if (bytes > context.arena->limit() - context.arena->used()) return;
    cuda::AheadLane* const lane = static_cast<cuda::Device&>(*device).ahead_lane();
    if (lane == nullptr) return;
    ahead = std::make_shared<cuda::CopyAhead>(
        device, *lane, MemoryFor(device, context, *lane, bytes), host, bytes);
  });
  // Others have the memory that is under the limit.
  if (!status.ok() && status.reason() != reason::kDeviceOutOfMemory) return status;
  return ahead;
}

}  // namespace spaid::kernels
