#include "client/load/cancellation.h"

#include <utility>

#include "client/load/sleep.h"

namespace spaid::load {

std::string_view Name(CancelIn state) {
  switch (state) {
    case CancelIn::kUpload:
      return "upload";
    case CancelIn::kQueue:
      return "queue";
    case CancelIn::kPlan:
      return "plan";
    case CancelIn::kBuild:
      return "build";
    case CancelIn::kAssemble:
      return "assemble";
    case CancelIn::kSolve:
      return "solve";
    case CancelIn::kDownload:
      return "download";
  }
  return "";
}

Cancellation::Cancellation(CancelIn state, Clock::duration after, std::stop_token run,
                           Client& client)
    : state_(state), after_(after), run_(std::move(run)), client_(client), run_stops_(run_, [this] {
        stop_.request_stop();
      }) {}

void Cancellation::Watch(CallOptions& call) {
  call.stop = stop_.get_token();
  call.on_progress = [this](const Progress& progress) { See(progress); };
}

bool Cancellation::Enters(const Progress& progress) const {
  using Kind = Progress::Kind;
  const auto transfers = [&](Stage stage) {
    return progress.kind == Kind::kTransfer && progress.stage == stage && progress.done > 0 &&
           progress.done < progress.total;
  };
  const auto is_in = [&](Stage stage) {
    return progress.kind == Kind::kStage && progress.stage == stage;
  };
  switch (state_) {
    case CancelIn::kUpload:
      return transfers(Stage::kUpload);
    case CancelIn::kQueue:
      return progress.kind == Kind::kQueued;
    case CancelIn::kPlan:
      return is_in(Stage::kPlan);
    case CancelIn::kBuild:
      return is_in(Stage::kBuild);
    case CancelIn::kAssemble:
      return is_in(Stage::kAssemble);
    case CancelIn::kSolve:
      return is_in(Stage::kSolve);
    case CancelIn::kDownload:
      return transfers(Stage::kDownload);
  }
  return false;
}

void Cancellation::See(const Progress& progress) {
  if (sent_ || !Enters(progress)) return;
  if (!SleepUntil(Clock::now() + after_, run_)) return;
  sent_ = Clock::now();
  if (state_ == CancelIn::kUpload || state_ == CancelIn::kDownload) {
    stop_.request_stop();
  } else {
    (void)client_.Cancel(progress.job);  // what became of it, the call itself will tell
  }
}

std::optional<double> Cancellation::SinceMs() const {
  if (!sent_) return std::nullopt;
  return std::chrono::duration<double, std::milli>(Clock::now() - *sent_).count();
}

}  // namespace spaid::load
