#include "client/load/tally.h"

#include "client/cli/output.h"

namespace spaid::load {

std::string ReasonOf(const Error& error) {
  return error.reason.empty() ? std::string(cli::CodeName(error.code)) : error.reason;
}

void Tally::Add(const Record& r) {
  ++jobs;
  refused += r.refused;
  retried += r.retried;
  evicted += r.evicted;
  bytes_up += r.bytes_up;
  bytes_down += r.bytes_down;
  const auto to_groups = [&](auto add) {
    add(by_work[r.work]);
    add(by_tenant[r.tenant]);
    if (!r.step.empty()) add(by_step[r.step]);
  };
  lag.Add(r.lag_ms);
  if (r.error) {
    ++failed;
    ++errors[ReasonOf(*r.error)];
    to_groups([](Group& group) { ++group.errors; });
    return;
  }
  ++succeeded;
  to_groups([&](Group& group) { group.job.Add(r.job_ms); });
  job.Add(r.job_ms);
  if (r.upload_ms) upload.Add(*r.upload_ms);
  if (r.build_ms) build.Add(*r.build_ms);
  if (r.solve_ms) solve.Add(*r.solve_ms);
  queue.Add(r.timings.queue_ms);
  setup.Add(r.timings.setup_ms());
  run.Add(r.timings.setup_ms() + r.timings.solve_ms);
  rebuilt += r.timings.rebuild ? 1 : 0;
  reused += r.timings.reused ? 1 : 0;
  if (r.build) {
    ++builds;
  } else {
    ++solves;
    iterate.Add(r.timings.solve_ms);
    ++outcomes[cli::UpperSnake(Name(r.outcome))];
  }
}

}  // namespace spaid::load
