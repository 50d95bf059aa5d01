#include "server/ops/health.h"

#include <grpcpp/health_check_service_interface.h>

#include <utility>

namespace spaid::server {

HealthBoard::HealthBoard(grpc::HealthCheckServiceInterface* service,
                         std::vector<std::string> services)
    : service_(service), services_(std::move(services)) {
  service_->SetServingStatus("liveness", true);
  SetReady(false);
}

void HealthBoard::SetReady(bool ready) {
  for (const std::string& name : services_) service_->SetServingStatus(name, ready);
  service_->SetServingStatus("", ready);
  service_->SetServingStatus("readiness", ready);
}

}  // namespace spaid::server
