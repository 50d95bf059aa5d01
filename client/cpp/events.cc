#include "client/cpp/events.h"

#include "client/cpp/convert.h"
#include "client/cpp/errors.h"

namespace spaid::internal {

// A server thins a job's residuals to 100,000, and may have sent some of them before.
constexpr size_t kMaxResiduals = 2'000'000;

std::optional<Error> JobFollower::Take(const v1::JobEvent& event) {
  using Kind = Progress::Kind;
  Progress progress;
  Quality quality;
  Rung rung;
  if (event.number() > 0) {  // a heartbeat has none
    if (event.number() <= last_event_) return std::nullopt;
    last_event_ = event.number();
  }
  progress.event_number = event.number();
  switch (event.event_case()) {
    case v1::JobEvent::kQueued:
      if (!event.queued().job().empty()) job_ = event.queued().job();
      progress.kind = Kind::kQueued;
      progress.queue_position = event.queued().position();
      progress.eta_ms = event.queued().eta_ms();
      break;
    case v1::JobEvent::kStarted:
      progress.kind = Kind::kStarted;
      progress.device = event.started().device();
      break;
    case v1::JobEvent::kProgress: {
      const std::optional<Stage> stage = FromProto(event.progress().stage());
      if (!stage) return std::nullopt;  // a stage of a newer server
      progress.kind = Kind::kStage;
      progress.stage = *stage;
      progress.done = event.progress().done();
      progress.total = event.progress().total();
      progress.device = event.progress().device();
      break;
    }
    case v1::JobEvent::kResiduals:
      progress.kind = Kind::kResiduals;
      for (const v1::Residual& residual : event.residuals().residuals()) {
        if (residual.rhs() < 0 || residual.rhs() >= kMaxRhs || residual.iteration() < 0) {
          return ProtocolViolation("a residual of a right-hand side or an iteration that is none");
        }
        progress.residuals.push_back(FromProto(residual));
      }
      residuals_.insert(residuals_.end(), progress.residuals.begin(), progress.residuals.end());
      if (residuals_.size() > kMaxResiduals) {
        return ProtocolViolation("residuals without end");
      }
      break;
    case v1::JobEvent::kQuality:
      quality = FromProto(event.quality());
      progress.kind = Kind::kQuality;
      progress.quality = &quality;
      break;
    case v1::JobEvent::kRung:
      rung = FromProto(event.rung());
      progress.kind = Kind::kRung;
      progress.rung = &rung;
      break;
    case v1::JobEvent::kFinished:
      finished_ = FromProto(event.finished().job());
      progress.kind = Kind::kFinished;
      progress.job_info = &*finished_;
      break;
    case v1::JobEvent::kHeartbeat:
      progress.kind = Kind::kHeartbeat;
      progress.queue_position = event.heartbeat().position();
      progress.eta_ms = event.heartbeat().eta_ms();
      break;
    case v1::JobEvent::EVENT_NOT_SET:
      return std::nullopt;  // an event of a newer server
  }
  progress.job = job_;
  call_.Report(progress);
  return std::nullopt;
}

void ReportMatrix(const Call& call, const MatrixInfo& matrix) {
  Progress progress;
  progress.kind = Progress::Kind::kMatrix;
  progress.matrix = &matrix;
  call.Report(progress);
}

}  // namespace spaid::internal
