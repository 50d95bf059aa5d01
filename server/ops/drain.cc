#include "server/ops/drain.h"

#include "server/base/log.h"

namespace spaid::server {

bool Drain(const DrainOptions& options, const DrainSteps& steps) {
  const TimePoint start = RealClock().Now();
  Log(LogLevel::kInfo, "drain_begin",
      {{"grace_ms", options.grace.count()}, {"deadline_ms", options.deadline.count()}});
  steps.not_ready();
  const bool hurry = steps.wait(options.grace);
  Log(LogLevel::kInfo, "drain_refusing", {{"hurry", hurry}});
  steps.refuse_new();
  const TimePoint deadline =
      RealClock().Now() + (hurry ? std::chrono::milliseconds(0) : options.deadline);
  const bool worked = steps.finish_work(deadline);
  const bool streamed = steps.finish_streams(deadline);
  steps.shut_down();
  Log(worked && streamed ? LogLevel::kInfo : LogLevel::kWarning, "drain_end",
      {{"work_finished", worked},
       {"streams_finished", streamed},
       {"ms", ToMs(RealClock().Now() - start)}});
  return worked && streamed;
}

}  // namespace spaid::server
