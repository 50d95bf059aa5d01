#include "server/rpc/job_spans.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace spaid::server {
namespace {

constexpr size_t kMaxResiduals = 16;

}  // namespace

void TellJobSpans(const Job& job, const Tracer& tracer) {
  const TracePtr& trace = job.description().trace;
  if (trace == nullptr || !trace->sampled) return;
  const Job::Times times = job.times();
  const v1::Timings timings = job.timings();
  const WallTime end = times.ended.value_or(times.created);
  const WallTime start = times.started.value_or(end);
  tracer.Child(trace, "queue", times.created, start);
  WallTime at = start;
  const auto next = [&](double ms) {
    return std::min(end, at + std::chrono::duration_cast<WallTime::duration>(Milliseconds(ms)));
  };
  // Copies to a device come before what they are for, copies from it behind.
  for (const auto& [name, ms] :
       {std::pair<std::string_view, double>("plan", timings.plan_ms()),
        std::pair<std::string_view, double>(
            "build", timings.build_ms() + timings.assemble_ms() + timings.device_to_host_ms())}) {
    if (ms <= 0) continue;
    tracer.Child(trace, name, at, next(ms));
    at = next(ms);
  }
  if (timings.solve_ms() <= 0) return;
  const WallTime solved = next(timings.solve_ms());
  std::vector<Span::Residual> residuals;
  for (const JobLog::Mark& mark : job.Marks(kMaxResiduals)) {
    residuals.push_back(
        {std::clamp(mark.time, at, std::max(at, solved)), mark.iteration, mark.relative_residual});
  }
  tracer.Child(trace, "solve", at, solved, std::move(residuals));
}

}  // namespace spaid::server
