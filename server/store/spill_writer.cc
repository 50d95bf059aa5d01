#include "server/store/spill_writer.h"

#include <utility>

#include "server/base/guard.h"
#include "server/base/log.h"

namespace spaid::server {

SpillWriter::SpillWriter(SpillFolder* folder, std::vector<WriteOne> sources)
    : folder_(folder), sources_(std::move(sources)), thread_([this] { Run(); }) {}

SpillWriter::~SpillWriter() {
  stop_ = true;
  folder_->Wake();
  thread_.join();
}

void SpillWriter::Run() {
  std::vector<SpillFolder::TenantAndHandle> later;  // to be deleted when all before is written
  while (!stop_) {
    const uint64_t seen = folder_->wakes();
    bool wrote = false;
    const absl::Status status = Guarded("the spill writer", [&] {
      for (auto& one : folder_->TakeLater()) later.push_back(std::move(one));
      for (const WriteOne& source : sources_) wrote = (!stop_ && source()) || wrote;
      if (!wrote) {
        for (const auto& [tenant, handle] : later) folder_->Delete(tenant, handle);
        later.clear();
      }
      folder_->WriteDeletes();
      return absl::OkStatus();
    });
    if (!status.ok()) {
      Log(LogLevel::kWarning, "spill_failed", {{"cause", std::string(status.message())}});
    }
    if (wrote) continue;
    {
      const std::lock_guard lock(mutex_);
      rested_at_ = seen;
    }
    rested_.notify_all();
    folder_->WaitForWake(seen);
  }
}

bool SpillWriter::Flush(std::chrono::milliseconds limit) {
  folder_->Wake();
  const uint64_t now = folder_->wakes();
  std::unique_lock lock(mutex_);
  return rested_.wait_for(lock, limit, [&] { return rested_at_ >= now; });
}

}  // namespace spaid::server
