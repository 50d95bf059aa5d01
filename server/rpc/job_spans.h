// Tells the spans of a job that has ended: queue, plan, build and solve, children of the call that
// made it, laid end to end by the job's timings; a solve's with a few of its residuals.
#pragma once

#include "server/base/trace.h"
#include "server/sched/job.h"

namespace spaid::server {

// Nothing if the job is in no trace that is sampled. Thread-safe.
void TellJobSpans(const Job& job, const Tracer& tracer);

}  // namespace spaid::server
