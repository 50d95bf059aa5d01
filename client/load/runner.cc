#include "client/load/runner.h"

#include <algorithm>
#include <condition_variable>
#include <thread>
#include <utility>

#include "client/load/sleep.h"

namespace spaid::load {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTick(250);
constexpr milliseconds kFirstBackOff(10);
constexpr milliseconds kGonePause(100);  // for a worker whose daemon is gone or going
constexpr int64_t kMaxEvictions = 3;     // per job's matrix

double MsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

milliseconds AtLeastOneMs(double seconds) {
  return milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000 + 0.5)));
}

Error LocalError(const char* reason, std::string message) {
  Error error;
  error.code = Code::kInvalidArgument;
  error.reason = reason;
  error.message = std::move(message);
  return error;
}

Outcome WorstOf(const SolveResult& result) {
  for (const auto& rhs : result.rhs) {
    if (rhs.outcome != Outcome::kConverged) return rhs.outcome;
  }
  return Outcome::kConverged;
}

// Whether it was told to stop and did, before it was done.
bool Stopped(const Record& record) {
  return record.error ? record.error->code == Code::kCancelled
                      : record.outcome == Outcome::kCancelled;
}

}  // namespace

Expected<std::vector<Tenant>> Connect(const LoadOptions& options, const std::stop_token& stop) {
  std::vector<ClientOptions> wanted = {options.global.client};
  if (!options.tokens_file.empty()) {
    auto tokens = ReadTokens(options.tokens_file);
    if (!tokens.ok()) return tokens.error();
    wanted.assign(tokens->size(), options.global.client);
    for (size_t k = 0; k < wanted.size(); ++k) wanted[k].token = (*tokens)[k];
  } else if (!options.tenants.empty()) {
    auto names = ParseTenants(options.tenants);
    if (!names.ok()) return names.error();
    wanted.assign(names->size(), options.global.client);
    for (size_t k = 0; k < wanted.size(); ++k) wanted[k].tenant = (*names)[k];
  }
  std::vector<Tenant> tenants;
  for (ClientOptions& client : wanted) {
    Tenant& tenant = tenants.emplace_back();
    // The first answer is worth some patience; of the jobs, every refusal counts.
    auto info = Client(client).GetServerInfo({.stop = stop});
    if (!info.ok()) return info.error();
    tenant.name = info->tenant;
    if (!client.tenant.empty() && info->tenant != client.tenant) {
      return LocalError("TENANT_NOT_BELIEVED",
                        "the daemon takes tenant " + client.tenant + " for " + info->tenant +
                            "; start it with --trust-tenant-header, or give --tokens");
    }
    client.max_attempts = 1;
    for (int k = 0; k < options.connections; ++k) {
      tenant.connections.push_back(std::make_unique<Client>(client));
    }
  }
  return tenants;
}

Runner::Runner(const LoadOptions& options, const Workload& workload, std::vector<Tenant>& tenants)
    : options_(options),
      workload_(workload),
      tenants_(tenants),
      arrivals_(options.open_loop() ? options.rate : 1, options.seed) {}

RunResult Runner::Run(const std::stop_token& stop,
                      const std::function<void(const Tally&, double)>& tick) {
  stop_ = stop;
  start_ = Clock::now();
  measured_from_ = start_ + Seconds(options_.warmup_s);
  end_ = options_.duration_s > 0 ? measured_from_ + Seconds(options_.duration_s)
                                 : Clock::time_point::max();
  RunResult result;
  {
    std::atomic<int64_t> working = options_.concurrency;
    std::mutex mutex;
    std::condition_variable idle;
    std::vector<std::jthread> workers;
    for (int64_t k = 0; k < options_.concurrency; ++k) {
      workers.emplace_back([&, k] {
        Work(static_cast<size_t>(k));
        const std::lock_guard lock(mutex);
        if (--working == 0) idle.notify_one();
      });
    }
    std::unique_lock lock(mutex);
    while (!idle.wait_for(lock, kTick, [&] { return working == 0; })) {
      const std::lock_guard tally_lock(mutex_);
      tick(tally_, std::chrono::duration<double>(Clock::now() - start_).count());
    }
  }
  result.wall_s = std::max(0.0, MsBetween(measured_from_, Clock::now()) / 1000);
  result.interrupted = stop.stop_requested();
  const std::lock_guard lock(mutex_);
  result.tally = std::move(tally_);
  return result;
}

std::optional<Runner::Ticket> Runner::Next() {
  Ticket ticket{.job = next_job_++, .scheduled = Clock::now(), .measured = false};
  {
    const std::lock_guard lock(mutex_);
    if (options_.open_loop()) ticket.scheduled = start_ + Seconds(arrivals_.Next());
    ticket.measured = ticket.scheduled >= measured_from_;
    if (ticket.scheduled >= end_ || stop_.stop_requested()) return std::nullopt;
    if (ticket.measured && options_.jobs > 0 && measured_++ >= options_.jobs) return std::nullopt;
  }
  if (ticket.scheduled > Clock::now() && !SleepUntil(ticket.scheduled, stop_)) return std::nullopt;
  return ticket;
}

void Runner::Work(size_t worker) {
  if (options_.time_steps > 0) {
    Simulations(worker);
  } else {
    Independent(worker);
  }
}

void Runner::Independent(size_t worker) {
  std::vector<double> values;
  while (const auto ticket = Next()) {
    RunJob(*ticket, workload_.PlanOf(ticket->job), worker, values, nullptr, "");
  }
}

// Each worker is a code that steps through time: one pattern, new values with every step.
void Runner::Simulations(size_t worker) {
  std::vector<double> values;
  Client& client = PlaceOf(0, worker).client;
  for (bool more = true; more;) {
    Plan plan;
    std::optional<System> system;
    for (int64_t step = 0; step < options_.time_steps; ++step) {
      const auto ticket = Next();
      if (!ticket) {
        more = false;
        break;
      }
      if (step == 0) {
        plan = workload_.PlanOf(ticket->job);
        const CscMatrix& a = workload_.problem(plan.problem).a;
        system.emplace(client, CscView{a.n, a.col_ptr, a.row_idx, a.values}, OptionsOf(plan),
                       ReusePolicy{.mode = options_.reuse});
      }
      plan.build = false;
      plan.scale = Workload::ScaleOf(options_.seed, ticket->job);
      RunJob(*ticket, plan, worker, values, &*system, step == 0 ? "first step" : "later steps");
    }
    if (system && !system->matrix().empty()) (void)client.DeleteMatrix(system->matrix());
  }
}

// A closed loop's workers belong to tenants, so that a slow one holds up nobody else's.
Runner::Place Runner::PlaceOf(int64_t job, size_t worker) const {
  const size_t turn = options_.open_loop() ? static_cast<size_t>(job) : worker;
  const Tenant& tenant = tenants_[turn % tenants_.size()];
  return {tenant, *tenant.connections[turn / tenants_.size() % tenant.connections.size()]};
}

SolveOptions Runner::OptionsOf(const Plan& plan) const {
  return {.engine = workload_.engine(plan.engine),
          .method = options_.method,
          .rtol = options_.rtol,
          .max_iterations = options_.max_iterations};
}

void Runner::RunJob(const Ticket& ticket, const Plan& plan, size_t worker,
                    std::vector<double>& values, System* system, const char* step) {
  const Problem& problem = workload_.problem(plan.problem);
  values.resize(problem.a.values.size());
  for (size_t k = 0; k < values.size(); ++k) values[k] = problem.a.values[k] * plan.scale;
  const CscView a{.n = problem.a.n,
                  .col_ptr = problem.a.col_ptr,
                  .row_idx = problem.a.row_idx,
                  .values = values};
  const Place place = PlaceOf(ticket.job, worker);
  Client& client = place.client;

  Record record;
  record.work = workload_.Describe(plan);
  record.tenant = place.tenant.name;
  record.step = step;
  record.build = plan.build;
  const Clock::time_point begin = Clock::now();
  std::optional<Cancellation> cancellation;
  if (!options_.cancel.empty()) {
    const size_t k = static_cast<size_t>(ticket.job) % options_.cancel.size();
    cancellation.emplace(
        options_.cancel[k],
        Seconds(options_.cancel_after_s * Workload::Random(options_.seed, ticket.job)), stop_,
        client);
  }
  record.error =
      Send(plan, a, client, system, begin, cancellation ? &*cancellation : nullptr, record);
  const Clock::time_point end = Clock::now();
  if (cancellation) record.stop_ms = cancellation->SinceMs();
  // A closed loop's values are made before its job begins.
  record.job_ms = MsBetween(options_.open_loop() ? ticket.scheduled : begin, end);
  record.lag_ms = options_.open_loop() ? MsBetween(ticket.scheduled, begin) : 0;

  {
    const std::lock_guard lock(mutex_);
    if (record.error && stop_.stop_requested()) {
      ++tally_.interrupted;
    } else if (!ticket.measured) {
      ++tally_.warmup;
    } else if (record.stop_ms && Stopped(record)) {
      tally_.cancelled[std::string(Name(cancellation->state()))].Add(*record.stop_ms);
    } else {
      tally_.Add(record);
    }
  }
  if (record.error && record.error->code == Code::kUnavailable && !options_.open_loop()) {
    SleepUntil(Clock::now() + kGonePause, stop_);
  }
}

std::optional<Error> Runner::Send(const Plan& plan, const CscView& a, Client& client,
                                  System* system, Clock::time_point begin,
                                  Cancellation* cancellation, Record& record) {
  const auto call_options = [&] {
    CallOptions call{.priority = options_.priority, .stop = stop_};
    if (options_.deadline_s) {
      const auto left = begin + Seconds(*options_.deadline_s) - Clock::now();
      call.timeout = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(left));
    }
    if (options_.max_queue_s) call.max_queue = AtLeastOneMs(*options_.max_queue_s);
    if (cancellation != nullptr) cancellation->Watch(call);
    return call;
  };
  // `call() -> Expected<…>`, once more for each retry; its time is counted with all of them.
  int64_t retries = options_.retries;
  const auto timed = [&](std::optional<double>& ms, auto call) {
    const Clock::time_point from = Clock::now();
    for (milliseconds back_off = kFirstBackOff;; back_off *= 2) {
      auto result = call();
      // A daemon that went away may have a replica, or come back.
      const bool gone = !result.ok() && result.error().code == Code::kUnavailable && retries > 0;
      if (result.ok() || (!result.error().retry_after && !gone)) {
        ms = MsBetween(from, Clock::now());
        return result;
      }
      ++record.refused;
      const Clock::time_point again =
          Clock::now() + std::max(result.error().retry_after.value_or(milliseconds(0)), back_off);
      const bool late = options_.deadline_s && again >= begin + Seconds(*options_.deadline_s);
      if (retries-- <= 0 || late || !SleepUntil(again, stop_)) return result;
      ++record.retried;
    }
  };
  const SolveOptions solve = OptionsOf(plan);
  const std::vector<double>& b = workload_.problem(plan.problem).b;
  const auto take = [&record](const SolveResult& solved) {
    record.timings = solved.timings;
    record.outcome = WorstOf(solved);
  };
  if (system != nullptr) {
    const std::string before = system->matrix();
    if (auto error = system->SetValues(a.values)) return error;
    const auto solved =
        timed(record.solve_ms, [&] { return system->Solve(b, {}, call_options()); });
    if (!solved.ok()) return solved.error();
    take(*solved);
    record.bytes_up = record.timings.bytes_up;
    record.bytes_down = record.timings.bytes_down;
    // The next matrix takes its place on the device. An error does not matter: it may be gone.
    if (!before.empty() && before != system->matrix()) {
      (void)client.DeleteMatrix(before, call_options());
    }
    return std::nullopt;
  }
  PreconditionerSpec spec;
  spec.engine = solve.engine;
  for (;;) {
    Timings upload;
    const auto matrix =
        timed(record.upload_ms, [&] { return client.Upload(a, "", call_options(), &upload); });
    record.bytes_up += upload.bytes_up;
    if (!matrix.ok()) return matrix.error();
    std::optional<Error> error;
    if (plan.build) {
      const auto built = timed(
          record.build_ms, [&] { return client.Build(matrix->name, spec, false, call_options()); });
      if (built.ok()) {
        record.timings = built->timings;
      } else {
        error = built.error();
      }
    } else {
      const auto solved = timed(
          record.solve_ms, [&] { return client.Solve(matrix->name, b, solve, call_options()); });
      if (solved.ok()) {
        take(*solved);
      } else {
        error = solved.error();
      }
    }
    record.bytes_up += record.timings.bytes_up;
    record.bytes_down += record.timings.bytes_down;
    // Others' matrices may take the place of this one between the two calls, or its replica goes.
    const bool lost =
        error && (error->reason == "HANDLE_EVICTED" || error->reason == "HANDLE_UNKNOWN");
    if (!lost || ++record.evicted > kMaxEvictions) return error;
  }
}

}  // namespace spaid::load
