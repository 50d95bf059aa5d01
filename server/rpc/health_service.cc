#include "server/rpc/health_service.h"

#include <google/protobuf/empty.pb.h>
#include <google/protobuf/unknown_field_set.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace spaid::server {
namespace {

// Debian ships no generated code of these messages, which have a field each: read and written as
// fields that a message without any does not know.
using google::protobuf::Empty;
constexpr int kService = 1;  // in HealthCheckRequest
constexpr int kStatus = 1;   // in HealthCheckResponse
enum : uint64_t { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

constexpr size_t kMaxWatches = 256;

std::string ServiceOf(const Empty& request) {
  const auto& fields = request.GetReflection()->GetUnknownFields(request);
  std::string service;
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    if (field.number() == kService &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      service = field.length_delimited();
    }
  }
  return service;
}

void SetStatus(uint64_t status, Empty* response) {
  response->GetReflection()->MutableUnknownFields(response)->AddVarint(kStatus, status);
}

class CheckCall final : public RequestStream<Empty, Empty> {
 public:
  CheckCall(grpc::CallbackServerContext* context, const HealthService* service, Backend* backend)
      : RequestStream(context, "Health/Check", &backend->streams(), &backend->metrics()),
        service_(service) {}

 private:
  void Requested(const Empty& request) override {
    const auto serving = service_->Serving(ServiceOf(request));
    Section section(this);
    if (serving) {
      status_ = *serving ? kServing : kNotServing;
      EndLocked(absl::OkStatus());
    } else {
      EndLocked(absl::NotFoundError("no such service"));
    }
    PumpLocked();
  }
  bool Next(Empty* message) override {
    if (!status_) return false;
    SetStatus(*std::exchange(status_, std::nullopt), message);
    return true;
  }

  const HealthService* const service_;
  std::optional<uint64_t> status_;  // to be said
};

}  // namespace

class HealthService::WatchStream final : public RequestStream<Empty, Empty> {
 public:
  WatchStream(grpc::CallbackServerContext* context, HealthService* service, Backend* backend)
      : RequestStream(context, "Health/Watch", &backend->streams(), &backend->metrics()),
        service_(service),
        streams_(&backend->streams()) {}

 private:
  void Requested(const Empty& request) override {
    const bool room = service_->Follow(std::static_pointer_cast<WatchStream>(shared_from_this()));
    if (room) streams_->Background(this);
    Section section(this);
    if (room) {
      name_ = ServiceOf(request);
      following_ = true;
    } else {
      EndLocked(MakeError(absl::StatusCode::kResourceExhausted, reason::kTooManyStreams,
                          absl::StrCat("the server's health is watched by ", kMaxWatches,
                                       " already; use Check"))
                    .Meta("limit", static_cast<int64_t>(kMaxWatches))
                    .Retry(std::chrono::seconds(10)));
    }
    PumpLocked();
  }
  bool Next(Empty* message) override {
    if (!following_) return false;
    const auto serving = service_->Serving(name_);
    const uint64_t now = !serving ? kServiceUnknown : *serving ? kServing : kNotServing;
    if (std::exchange(told_, now) == now) return false;
    SetStatus(now, message);
    return true;
  }
  void Closed() override { service_->Leave(this); }

  HealthService* const service_;
  LiveStreams* const streams_;
  std::string name_;
  uint64_t told_ = 0;
  bool following_ = false;
};

void HealthService::AddTo(Methods* methods) {
  methods->AddPath("/grpc.health.v1.Health/Check",
                   [this](grpc::CallbackServerContext* c) { return Check(c); });
  methods->AddPath("/grpc.health.v1.Health/Watch",
                   [this](grpc::CallbackServerContext* c) { return Watch(c); });
}

RawBidiReactor* HealthService::Check(grpc::CallbackServerContext* context) {
  return Launch<CheckCall>(context, this, backend_);
}

RawBidiReactor* HealthService::Watch(grpc::CallbackServerContext* context) {
  return Launch<WatchStream>(context, this, backend_);
}

std::optional<bool> HealthService::Serving(const std::string& service) const {
  const std::lock_guard lock(mu_);
  const auto it = serving_.find(service);
  if (it == serving_.end()) return std::nullopt;
  return it->second;
}

void HealthService::SetServingStatus(const std::string& service, bool serving) {
  {
    const std::lock_guard lock(mu_);
    serving_[service] = serving && !shut_down_;
  }
  Tell();
}

void HealthService::SetServingStatus(bool serving) {
  {
    const std::lock_guard lock(mu_);
    for (auto& [service, now] : serving_) now = serving && !shut_down_;
  }
  Tell();
}

void HealthService::Shutdown() {
  {
    const std::lock_guard lock(mu_);
    shut_down_ = true;
  }
  SetServingStatus(false);
}

bool HealthService::Follow(const std::shared_ptr<WatchStream>& watch) {
  const std::lock_guard lock(mu_);
  if (watches_.size() >= kMaxWatches) return false;
  watches_.emplace(watch.get(), watch);
  return true;
}

void HealthService::Leave(const WatchStream* watch) {
  const std::lock_guard lock(mu_);
  watches_.erase(watch);
}

// Without the mutex: who is told asks what there is to tell.
void HealthService::Tell() {
  std::vector<std::shared_ptr<WatchStream>> watches;
  {
    const std::lock_guard lock(mu_);
    for (const auto& [key, weak] : watches_) {
      if (auto watch = weak.lock()) watches.push_back(std::move(watch));
    }
  }
  for (const auto& watch : watches) watch->Pump();
}

}  // namespace spaid::server
