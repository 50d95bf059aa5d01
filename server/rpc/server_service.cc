#include "server/rpc/server_service.h"

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/engine/convert.h"
#include "server/engine/devices.h"
#include "server/rpc/unary.h"

namespace spaid::server {
namespace {

void Set(google::protobuf::Duration* out, std::chrono::milliseconds value) {
  out->set_seconds(value.count() / 1000);
  out->set_nanos(static_cast<int32_t>(value.count() % 1000 * 1'000'000));
}

v1::Device* Add(v1::GetServerInfoResponse* response, const kernels::DeviceInfo& device, bool in_use,
                int threads) {
  v1::Device* out = response->add_devices();
  const bool cpu = device.backend == kernels::Backend::kCpu;
  out->set_name(DeviceName(device));
  const bool ranks = device.backend == kernels::Backend::kRanks;
  out->set_kind(cpu ? v1::DEVICE_KIND_CPU : ranks ? v1::DEVICE_KIND_RANKS : v1::DEVICE_KIND_CUDA);
  out->set_model(device.name);
  out->set_uuid(device.uuid);
  out->set_memory_bytes(device.memory_bytes);
  if (!cpu && !ranks) {
    out->set_compute_capability(
        absl::StrCat(device.compute_capability_major, ".", device.compute_capability_minor));
  }
  out->set_threads(cpu && threads > 0 ? threads : device.threads);
  out->set_in_use(in_use);
  out->set_healthy(true);  // one that did not answer at the start is not listed
  return out;
}

void AddInUse(v1::GetServerInfoResponse* response, const Backend& backend, size_t device) {
  v1::Device* out = Add(response, backend.adapter().devices()[device], /*in_use=*/true,
                        backend.options().threads);
  if (const absl::Status status = backend.scheduler().DeviceStatus(device); !status.ok()) {
    out->set_healthy(false);
    out->set_unhealthy_reason(std::string(status.message()));
  }
  const kernels::DeviceState state = backend.adapter().DeviceState(device);
  out->set_memory_used_bytes(state.used_bytes);
  out->set_memory_limit_bytes(state.limit_bytes);
}

// The caller's own part, which tells nothing of others.
void AddOwnQueue(const JobTable::Live& live, v1::QueueInfo* queue) {
  int64_t queued = 0;
  for (size_t p = 0; p < kPriorities; ++p) {
    v1::QueueClass* const of_class = queue->add_classes();
    of_class->set_priority(ToProto(static_cast<Priority>(p)));
    of_class->set_queued(live.queued[p]);
    of_class->set_share(kPriorityShares[p]);
    queued += live.queued[p];
  }
  queue->set_queued(queued);
  queue->set_running(live.running);
}

void AddQueue(const Scheduler::Load& load, v1::QueueInfo* queue) {
  queue->set_queued(load.queued);
  queue->set_running(load.running);
  for (size_t p = 0; p < kPriorities; ++p) {
    v1::QueueClass* const of_class = queue->add_classes();
    of_class->set_priority(ToProto(static_cast<Priority>(p)));
    of_class->set_queued(load.classes[p].queued);
    of_class->set_predicted_ms(load.classes[p].predicted_ms);
    of_class->set_share(kPriorityShares[p]);
  }
  for (const Dispatcher::Ratio& ratio : load.ratios) {
    v1::EstimateRatio* const added = queue->add_estimate_ratios();
    added->set_device(ratio.device);
    added->set_work(ratio.what);
    added->set_ratio(ratio.value);
    added->set_jobs(ratio.jobs);
  }
}

}  // namespace

RawBidiReactor* ServerService::GetServerInfo(grpc::CallbackServerContext* context) {
  return Unary<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
      context, "ServerService/GetServerInfo", backend_,
      [this](const Caller& caller, const v1::GetServerInfoRequest*,
             v1::GetServerInfoResponse* response) -> absl::Status {
        const BackendOptions& options = backend_->options();
        response->set_version(options.version);
        SetTime(backend_->start_time(), response->mutable_start_time());
        for (size_t d = 0; d < backend_->adapter().devices().size(); ++d) {
          AddInUse(response, *backend_, d);
        }
        for (const auto& device : options.idle_devices) {
          Add(response, device, /*in_use=*/false, 0);
        }
        response->set_cuda_status(options.cuda_status);
        for (const auto kind : kernels::EngineKinds()) {
          if (!kernels::TraitsOf(kind).ranks_alone || backend_->adapter().HasRanks()) {
            response->add_engines(ToProto(kind));
          }
        }
        for (const auto method : {v1::METHOD_AUTO, v1::METHOD_CG, v1::METHOD_BICGSTAB,
                                  v1::METHOD_GMRES, v1::METHOD_MINRES, v1::METHOD_IDR}) {
          response->add_methods(method);
        }
        v1::Limits* limits = response->mutable_limits();
        limits->set_max_message_bytes(kMaxMessageBytes);
        limits->set_max_matrix_bytes(options.max_matrix_bytes);
        limits->set_matrix_store_bytes(options.matrix_store_bytes);
        limits->set_preconditioner_store_bytes(options.preconditioner_store_bytes);
        limits->set_max_queued_jobs(options.max_queued_jobs);
        limits->set_max_queued_jobs_per_tenant(MostQueuedOfTenant(options));
        if (options.max_queue.count() > 0) Set(limits->mutable_max_queue(), options.max_queue);
        if (options.max_run.count() > 0) Set(limits->mutable_max_run(), options.max_run);
        limits->set_max_detached_jobs_per_tenant(options.max_detached_jobs_per_tenant);
        limits->set_max_rhs_count(kMaxRhsCount);
        Set(limits->mutable_heartbeat_interval(), options.heartbeat);
        Set(limits->mutable_stalled_reader_timeout(), options.streams.stalled_reader);
        const Scheduler::Load load = backend_->scheduler().load();
        if (caller.administrator) {
          AddQueue(load, response->mutable_queue());
        } else {
          AddOwnQueue(backend_->jobs().CountLive(caller.tenant), response->mutable_queue());
          for (v1::Device& device : *response->mutable_devices()) device.clear_uuid();
        }
        response->mutable_queue()->set_eta_ms(backend_->scheduler().WaitMs(caller.tenant));
        response->set_draining(backend_->draining());
        response->set_tenant(caller.tenant);
        response->set_administrator(caller.administrator);
        return absl::OkStatus();
      });
}

void ServerService::AddTo(Methods* methods) {
  methods->Add("ServerService/GetServerInfo", this, &ServerService::GetServerInfo);
}

}  // namespace spaid::server
