#include "server/rpc/job_spans.h"

#include <algorithm>
#include <string>
#include <utility>

namespace spaid::server {
namespace {

WallTime ToWallTime(const google::protobuf::Timestamp& time) {
  return WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(time.seconds()) + std::chrono::nanoseconds(time.nanos())));
}

}  // namespace

void TellJobSpans(const Job& job, const Tracer& tracer) {
  const TracePtr& trace = job.description().trace;
  if (trace == nullptr || !trace->sampled) return;
  const v1::Job shown = job.Snapshot(/*brief=*/true);
  const v1::Timings timings = job.timings();
  const WallTime end = ToWallTime(shown.end_time());
  const WallTime start = shown.has_start_time() ? ToWallTime(shown.start_time()) : end;
  tracer.Child(trace, "queue", ToWallTime(shown.create_time()), start);
  WallTime at = start;
  // Copies to a device come before what they are for, copies from it behind.
  for (const auto& [name, ms] : {std::pair("plan", timings.plan_ms()),
                                 std::pair("build", timings.build_ms() + timings.assemble_ms() +
                                                        timings.device_to_host_ms()),
                                 std::pair("solve", timings.solve_ms())}) {
    if (ms <= 0) continue;
    const WallTime until =
        std::min(end, at + std::chrono::duration_cast<WallTime::duration>(Milliseconds(ms)));
    tracer.Child(trace, name, at, until);
    at = until;
  }
}

}  // namespace spaid::server
