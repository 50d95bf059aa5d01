#include "server/engine/job_factory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/engine/cost.h"
#include "server/base/affinity.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/engine/devices.h"
#include "server/engine/prepared.h"
#include "server/engine/resolved_build.h"
#include "server/engine/reusing_solve.h"

namespace spaid::server {
namespace {

// Iterations of all right-hand sides.
double PredictIterations(const Matrix& a, const ParsedSolve& solve) {
  const double each = kernels::GuessedIterations(static_cast<double>(a.n()));
  return solve.rhs_count * std::min(each, static_cast<double>(solve.options.max_iterations));
}

// An iteration of one right-hand side. `stored_m`: StoredEntries.
kernels::SolveWork IterationOf(const Matrix& a, int64_t stored_m, kernels::Method method,
                               kernels::MForm form = kernels::MForm::kMatrix) {
  return {.method = method,
          .n = static_cast<double>(a.n()),
          .nnz_a = static_cast<double>(a.nnz()),
          .nnz_m = static_cast<double>(stored_m),
          .parts = form == kernels::MForm::kParts};
}

// To get A and M to a GPU that has them not, from the host's memory, and to lay them out there.
double MoveMs(const Matrix& a, int64_t nnz_m) {
  return kernels::MoveMs(static_cast<double>(a.nnz() + nnz_m));
}

absl::Status CheckLength(size_t got, int64_t n, int rhs_count, const char* field) {
  const int64_t want = n * rhs_count;
  if (static_cast<int64_t>(got) == want) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kRhsLengthMismatch,
                   absl::StrCat(field, " holds ", got, " numbers; ", n, " unknowns and ", rhs_count,
                                " right-hand sides need ", want))
      .Field(field)
      .Meta("actual", static_cast<int64_t>(got))
      .Meta("limit", want);
}

// nnz(M) / nnz(A), or of G.
double RatioOf(const kernels::Rung& rung, const Matrix& a) {
  const int64_t nnz = kernels::TraitsOf(rung.engine).factored ? rung.nnz_m / 2 : rung.nnz_m;
  return static_cast<double>(nnz) / std::max(1.0, static_cast<double>(a.nnz()));
}

// Whether a solve was cut short by something that makes its iterate nobody's answer: the caller
// gets the error instead. A CancelJob and max_run have outcomes of their own.
bool IsError(StopCause cause, const kernels::SolveResult& solved) {
  if (cause == StopCause::kNone || cause == StopCause::kCancelled || cause == StopCause::kMaxRun) {
    return false;
  }
  return std::any_of(solved.rhs.begin(), solved.rhs.end(), [](const kernels::RhsResult& rhs) {
    return rhs.outcome == kernels::Outcome::kCancelled ||
           rhs.outcome == kernels::Outcome::kTimeLimit;
  });
}

}  // namespace

absl::StatusOr<JobFactory::Prepared> JobFactory::Prepare(
    const std::string& tenant, const Matrix& a, const v1::PreconditionerSpec& spec,
    const std::string& field, bool for_estimate, const kernels::StopToken& stop,
    const ParsedSolve* solve, std::optional<LearnedRung> found) const {
  ASSIGN_OR_RETURN(ParsedSpec parsed, ParseSpec(spec, field));
  Prepared prepared;
  const bool by_auto = parsed.spec.engine == kernels::EngineKind::kAuto;
  if (!parsed.given.handle.empty()) {
    ASSIGN_OR_RETURN(prepared.pattern, parts_.matrices->Load(tenant, parsed.given.handle));
    if (prepared.pattern->value->over != nullptr) {
      return MatrixOverRanks("it is no pattern and no vectors of another build; upload these anew")
          .Field(field);
    }
  }
  const Matrix* pattern = prepared.pattern ? prepared.pattern->value.get() : nullptr;
  std::string why;
  kernels::RungKind rung = kernels::RungKind::kBottom;
  if (by_auto) {
    const kernels::SolveOptions options =
        solve != nullptr ? solve->options : kernels::SolveOptions{.method = kernels::Method::kAuto};
    parsed.spec.method = options.method;
    prepared.static_spai = parsed.spec.static_spai;
    std::optional<LearnedRung> known = found;
    if (pattern == nullptr && !a.pattern_only && parsed.learned) {
      prepared.pattern_key = a.pattern_fingerprint().ToBytes();
      if (!known) known = learned_.Find(tenant, prepared.pattern_key, options.method);
      prepared.learned = known.has_value();
    }
    if (known) {
      rung = known->kind;
      const std::vector<double> none;
      // Multigrid smooths by what a GPU sets up, where there is one.
      const auto& devices = parts_.adapter->devices();
      const bool gpu = std::any_of(devices.begin(), devices.end(), [](const auto& device) {
        return device.backend == kernels::Backend::kCuda;
      });
      const bool amg = rung == kernels::RungKind::kAmg;
      const kernels::LadderCase of{
          .a = a.csc(),
          .diagnosis = a.diagnosis,
          .b = none,
          .options = options,
          .ladder = {},
          .static_spai = prepared.static_spai,
          .backend = gpu && amg ? kernels::Backend::kCuda : kernels::Backend::kCpu,
          .threads = parts_.adapter->threads(),
          .over = a.over.get()};
      auto terms = kernels::TermsOf(rung, of);
      // If something is to be built, what solved without a matrix M is of no use.
      if (terms && solve == nullptr &&
          (terms->spec.engine == kernels::EngineKind::kNone ||
           kernels::TraitsOf(terms->spec.engine).by_parts)) {
        terms.reset();
        prepared.learned = false;
      }
      if (terms) {
        parsed.spec = terms->spec;
        if (known->scaled && parsed.spec.engine != kernels::EngineKind::kNone) {
          parsed.spec.scaling = kernels::ScalingMode::kAuto;
        }
        parsed.given = {};
        prepared.terms = terms->options;
        why = absl::StrCat(terms->name, ": ",
                           found ? "a solve with a right-hand side of its own came to it"
                                 : "it solved an earlier system on this pattern");
      } else {
        rung = kernels::RungKind::kBottom;
      }
    }
  }
  auto build = parts_.adapter->Resolve(parsed, a, pattern, for_estimate, stop);
  if (!build.ok()) return WithFieldPrefix(build.status(), field);
  prepared.build = *std::move(build);
  prepared.build.by_auto = by_auto;
  prepared.build.rung = rung;
  // Systems that AUTO solves on a GPU with Jacobi it solves there with what it learned, too.
  if (prepared.terms && solve != nullptr &&
      kernels::FormOf(prepared.build.spec) == kernels::MForm::kMatrix) {
    const double solve_ms = PredictIterations(a, *solve) *
                            IterationMs(IterationOf(a, 0, prepared.terms->method),
                                        kernels::Backend::kCpu, parts_.adapter->threads());
    prepared.build.for_gpu =
        parts_.adapter->PlaceSolve(a, /*nnz_m=*/0, solve->rhs_count, *prepared.terms, solve_ms)
            .on_gpu;
  }
  if (!why.empty()) prepared.build.choice.set_reason(why);
  auto estimate = parts_.adapter->Estimate(prepared.build, a, pattern, stop);
  if (!estimate.ok()) return WithFieldPrefix(estimate.status(), field);
  prepared.estimate = *estimate;
  auto placement = parts_.adapter->Place(prepared.build, prepared.estimate);
  if (placement.ok()) {
    prepared.placement = *std::move(placement);
    prepared.build.choice.set_placement(prepared.placement.why);
    if (!prepared.placement.on_gpu) {
      prepared.estimate.device_bytes = prepared.estimate.device_bytes_min = 0;
    }
    if (prepared.placement.over_ranks) {
      prepared.estimate.device_bytes = prepared.estimate.device_bytes_min =
          prepared.placement.device_bytes;
      prepared.estimate.predicted_device_ms = prepared.placement.predicted_ms;
      prepared.estimate.host_bytes = prepared.placement.host_bytes;
    }
  } else {
    prepared.refused = placement.status();
    prepared.build.choice.set_placement(std::string(prepared.refused.message()));
  }
  return prepared;
}

Work JobFactory::WorkOf(const std::string& tenant, const Matrix& a,
                        const Prepared& prepared) const {
  const kernels::BuildEstimate& estimate = prepared.estimate;
  const Placement& placement = prepared.placement;
  const bool there = placement.on_gpu && estimate.predicted_device_ms > 0;
  Work work{.what = "build " + std::string(Name(prepared.build.spec.engine)),
            .predicted_ms = there ? estimate.predicted_device_ms : estimate.predicted_ms,
            .devices = placement.devices,
            .fallback = placement.fallback,
            .device_bytes = placement.device_bytes,
            .host_bytes = estimate.host_bytes};
  if (placement.on_gpu) {
    work.max_devices =
        placement.over_ranks ? 1 : parts_.adapter->MaxDevices(prepared.build, estimate);
    work.resident = parts_.adapter->PlannedOn(tenant, prepared.build);
    // A plan is some tenth of a build; then A has to get there.
    work.move_ms = 0.3 * work.predicted_ms + MoveMs(a, 0);
  }
  return work;
}

absl::Status JobFactory::Submit(const std::shared_ptr<Job>& job, bool known, Work work,
                                JobWork run) const {
  if (!known) parts_.jobs->Add(job);
  absl::Status status = parts_.scheduler->Submit(job, std::move(work), std::move(run));
  if (!status.ok() && !known) parts_.jobs->Remove(*job);
  return status;
}

std::string JobFactory::KeyOfM(const Prepared& prepared, const Stored<Matrix>& a) {
  return KeyUnder(prepared.build.content_key, AffinityOf(a.handle));
}

absl::StatusOr<Stored<Preconditioner>> JobFactory::BuildAndStore(const std::string& tenant,
                                                                 const Stored<Matrix>& a,
                                                                 const Prepared& prepared,
                                                                 bool must_store, Job& job,
                                                                 const Assignment& at) const {
  // Another job may have built it since this one was asked for.
  const std::string key = KeyOfM(prepared, a);
  if (auto found = parts_.preconditioners->FindOrLoad(tenant, key)) {
    job.UpdateTimings([](v1::Timings& timings) { timings.set_reused(true); });
    job.SetPreconditioner(found->handle);
    job.ReportQuality(found->value->quality);
    if (parts_.metrics) parts_.metrics->Reused();
    return *std::move(found);
  }
  const Matrix* pattern = prepared.pattern ? prepared.pattern->value.get() : nullptr;
  ASSIGN_OR_RETURN(BuiltPreconditioner built,
                   parts_.adapter->Build(tenant, prepared.build, *a.value, pattern, at, job));
  job.UpdateTimings([&](v1::Timings& timings) {
    timings.set_plan_ms(built.plan_ms);
    timings.set_build_ms(built.build_ms);
    timings.set_assemble_ms(built.assemble_ms);
    timings.set_host_to_device_ms(built.host_to_device_ms);
    timings.set_device_to_host_ms(built.device_to_host_ms);
    timings.set_rebuild(built.rebuild);
  });
  auto entry = std::make_shared<Preconditioner>();
  entry->kernel = std::move(built.kernel);
  entry->quality = std::move(built.quality);
  entry->matrix = a.handle;
  entry->spec = prepared.build.proto;
  entry->choice = prepared.build.choice;
  if (prepared.placement.on_gpu && at.device == kCpuName) {
    entry->choice.set_placement("cpu: the GPU failed while the build waited for it");
  }
  entry->timings = job.timings();
  entry->device = at.devices.size() > 1 ? absl::StrJoin(at.devices, ", ") : at.device;
  entry->created = parts_.clock->WallNow();
  entry->nnz_a = a.value->nnz();
  entry->first_counts = std::move(built.first_counts);
  entry->earlier_counts = std::move(built.earlier_counts);
  const int64_t bytes = entry->bytes();
  auto stored =
      parts_.preconditioners->Put(tenant, entry, bytes, key, {}, {}, AffinityOf(a.handle));
  if (stored.ok()) {
    job.SetPreconditioner(stored->handle);
    job.ReportQuality(stored->value->quality);
    return stored;
  }
  if (must_store) {
    job.ReportQuality(entry->quality);
    return stored.status();
  }
  entry->quality.add_warnings(absl::StrCat(
      "the preconditioner serves this solve only, it was not kept: ", stored.status().message()));
  job.ReportQuality(entry->quality);
  return Stored<Preconditioner>{.handle = "", .value = std::move(entry), .existed = false};
}

absl::Status JobFactory::CheckBuilds(const Prepared& prepared, const std::string& field) const {
  if (prepared.build.spec.engine != kernels::EngineKind::kNone) return absl::OkStatus();
  const std::string& why = prepared.build.choice.reason();
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kNothingToBuild,
                   why.empty()
                       ? absl::StrCat(field,
                                      ".engine is NONE, which is no preconditioner; name an "
                                      "engine, or AUTO")
                       : absl::StrCat("AUTO chose NONE, which is no preconditioner (", why,
                                      "); solve without one, or repair the matrix"))
      .Field(field + ".engine");
}

absl::StatusOr<JobFactory::Prepared> JobFactory::ProbeFor(const std::string& tenant,
                                                          const std::shared_ptr<const Matrix>& a,
                                                          const v1::PreconditionerSpec& spec,
                                                          const std::string& field,
                                                          const Prepared& asked, Job& job,
                                                          const Assignment& at) const {
  ASSIGN_OR_RETURN(const LearnedRung rung, parts_.adapter->Probe(a, asked.static_spai, at, job));
  if (const StopCause cause = job.stop_cause(); cause != StopCause::kNone) return StopError(cause);
  if (!asked.pattern_key.empty()) {
    learned_.Learn(tenant, asked.pattern_key, kernels::Method::kAuto, rung);
  }
  ASSIGN_OR_RETURN(Prepared prepared, Prepare(tenant, *a, spec, field, /*for_estimate=*/false,
                                              /*stop=*/{}, /*solve=*/nullptr, rung));
  RETURN_IF_ERROR(CheckBuilds(prepared, field));
  RETURN_IF_ERROR(prepared.refused);
  RETURN_IF_ERROR(parts_.adapter->AdmitBuild(prepared.estimate));
  RETURN_IF_ERROR(parts_.adapter->AdmitResult(prepared.estimate));
  job.SetWhat(std::string(Name(prepared.build.spec.engine)));
  if (at.turn != nullptr) at.turn->Expect(prepared.estimate.predicted_ms);
  return prepared;
}

absl::StatusOr<JobFactory::BuildTicket> JobFactory::StartBuild(BuildRequest request) {
  RETURN_IF_ERROR(parts_.matrices->CheckUse(request.tenant, request.matrix.handle));
  ASSIGN_OR_RETURN(Prepared made,
                   Prepare(request.tenant, *request.matrix.value, request.spec, request.field,
                           /*for_estimate=*/false, request.stop));
  // AUTO that knows nothing of the pattern finds out in the job.
  const bool probes = made.build.by_auto && !made.learned && !made.pattern &&
                      request.matrix.value->diagnosis.empty_columns.count == 0;
  if (!probes) RETURN_IF_ERROR(CheckBuilds(made, request.field));
  const auto prepared = std::make_shared<const Prepared>(std::move(made));
  std::string content = KeyOfM(*prepared, request.matrix);
  if (probes) {
    absl::StrAppend(&content, "|auto|", request.spec.SerializeAsString(), request.matrix.handle);
  }

  BuildTicket result;
  // Read back now: `existing` is asked while others wait.
  const auto read_back =
      probes ? std::nullopt : parts_.preconditioners->FindOrLoad(request.tenant, content);
  const auto existing = [&] {
    if (probes) return false;
    result.ready = parts_.preconditioners->Find(request.tenant, content);
    return result.ready.has_value();
  };
  const Job::AttachOptions attach{.detach = request.terms.detach,
                                  .deadline = request.terms.deadline,
                                  .priority = request.terms.priority};
  const auto submit = [&]() -> absl::StatusOr<JobCoalescer::Ticket> {
    RETURN_IF_ERROR(prepared->refused);
    RETURN_IF_ERROR(parts_.adapter->AdmitBuild(prepared->estimate));
    RETURN_IF_ERROR(parts_.adapter->AdmitResult(prepared->estimate));
    JobCoalescer::Ticket ticket;
    ticket.job = request.promised;
    if (ticket.job == nullptr) {
      ticket.job = Job::Create({.tenant = request.tenant,
                                .kind = v1::JOB_KIND_BUILD,
                                .matrix = request.matrix.handle,
                                .preconditioner = {},
                                .priority = request.terms.priority,
                                .what = std::string(Name(prepared->build.spec.engine)),
                                .label = request.matrix.value->label,
                                .n = request.matrix.value->n(),
                                .nnz = request.matrix.value->nnz(),
                                .trace = request.terms.trace},
                               request.terms.limits, *parts_.clock);
    }
    auto waiter = ticket.job->Attach(attach);
    if (!waiter) return StopError(ticket.job->stop_cause());  // a promised one, told to stop
    ticket.waiter = *std::move(waiter);
    const JobWork run = [this, tenant = request.tenant, matrix = request.matrix,
                         spec = request.spec, field = request.field, probes,
                         prepared](Job& job, const Assignment& at) -> absl::Status {
      auto outcome = std::make_shared<BuildOutcome>();
      const Prepared* to_build = prepared.get();
      std::optional<Prepared> chosen;
      if (probes) {
        ASSIGN_OR_RETURN(chosen, ProbeFor(tenant, matrix.value, spec, field, *prepared, job, at));
        to_build = &*chosen;
      }
      ASSIGN_OR_RETURN(outcome->preconditioner,
                       BuildAndStore(tenant, matrix, *to_build, /*must_store=*/true, job, at));
      job.SetResult(std::move(outcome));
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(Submit(ticket.job, request.promised != nullptr,
                           WorkOf(request.tenant, *request.matrix.value, *prepared), run));
    return ticket;
  };

  // A job that may end by one caller's own limits is not for others to wait on; the server's are
  // everybody's.
  const bool shareable = !request.terms.own_limits && request.promised == nullptr;
  // A job that is shared becomes detached by whoever joins it so.
  if (request.terms.detach && !existing()) {
    RETURN_IF_ERROR(parts_.scheduler->AdmitDetached(request.tenant));
  }
  JobCoalescer::Ticket ticket;
  if (shareable) {
    const std::string key = absl::StrCat(request.tenant.size(), ":", request.tenant, content);
    ASSIGN_OR_RETURN(ticket, coalescer_.Join(key, attach, existing, submit));
  } else if (!existing()) {
    ASSIGN_OR_RETURN(ticket, submit());
  }
  if (result.ready && parts_.metrics) parts_.metrics->Reused();
  if (ticket.shared && parts_.metrics) parts_.metrics->JobShared();
  result.job = std::move(ticket.job);
  result.waiter = std::move(ticket.waiter);
  result.shared = ticket.shared;
  return result;
}

absl::StatusOr<JobFactory::SolveTicket> JobFactory::StartSolve(SolveRequest request) {
  RETURN_IF_ERROR(parts_.matrices->CheckUse(request.tenant, request.matrix.handle));
  if (request.preconditioner) {
    RETURN_IF_ERROR(
        parts_.preconditioners->CheckUse(request.tenant, request.preconditioner->handle));
  }
  const Matrix& a = *request.matrix.value;
  RETURN_IF_ERROR(CheckLength(request.b.size(), a.n(), request.solve.rhs_count, "rhs"));
  if (!request.x0.empty()) {
    RETURN_IF_ERROR(
        CheckLength(request.x0.size(), a.n(), request.solve.rhs_count, "initial_guess"));
  }
  auto work = std::make_shared<SolveWork>();
  kernels::EngineKind kind = kernels::EngineKind::kNone;
  Work estimate;
  estimate.devices = parts_.adapter->PlaceHostWork().devices;
  int64_t nnz_m = 0;
  bool builds_on_cpu = false;                     // could be a GPU's, better off there
  kernels::MForm form = kernels::MForm::kMatrix;  // that M has, or may have
  bool for_cg = true;
  if (request.preconditioner) {
    const Preconditioner& m = *request.preconditioner->value;
    if (m.m().n_cols != a.n()) {
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kPreconditionerSizeMismatch,
                       absl::StrCat("the preconditioner is of size ", m.m().n_cols,
                                    ", the matrix of ", a.n(), "; they must be equal"))
          .Field("header.preconditioner");
    }
    kind = m.kernel->kind();
    nnz_m = m.kernel->nnz();
    form = m.kernel->form();
    for_cg = m.kernel->for_cg();
    if (form == kernels::MForm::kOverRanks && a.over == nullptr &&
        !kernels::TraitsOf(kind).ranks_alone) {
      return MakeError(
                 absl::StatusCode::kFailedPrecondition, reason::kMatrixOverRanks,
                 "the preconditioner lies over the ranks alone, and the matrix does not; solve "
                 "with one that does, or build another")
          .Field("header.preconditioner");
    }
  } else if (request.spec) {
    ASSIGN_OR_RETURN(work->prepared, Prepare(request.tenant, a, *request.spec, "header.spec",
                                             /*for_estimate=*/false, request.stop, &request.solve));
    kind = work->prepared->build.spec.engine;
    nnz_m = work->prepared->estimate.nnz_m;
    if (kind != kernels::EngineKind::kNone) {
      // Held from now on, so that it cannot be evicted while this solve waits.
      work->found = parts_.preconditioners->FindOrLoad(request.tenant,
                                                       KeyOfM(*work->prepared, request.matrix));
      form = work->found ? work->found->value->kernel->form()
                         : kernels::FormOf(work->prepared->build.spec);
      for_cg = kernels::ForCg(work->prepared->build.spec);
      if (!work->found) {
        RETURN_IF_ERROR(work->prepared->refused);
        RETURN_IF_ERROR(parts_.adapter->AdmitBuild(work->prepared->estimate));
        estimate = WorkOf(request.tenant, a, *work->prepared);
        builds_on_cpu =
            kernels::TraitsOf(kind).on_gpu != nullptr && !work->prepared->placement.host_alone;
      }
    }
  } else {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kMissingField,
                     "neither header.preconditioner nor header.spec is set; set one (a spec with "
                     "engine NONE solves without a preconditioner)")
        .Field("header.preconditioning");
  }
  work->asked = request.solve.options;
  if (work->prepared && work->prepared->terms) {
    const kernels::SolveOptions& terms = *work->prepared->terms;
    request.solve.options.method = terms.method;
    request.solve.options.restart = terms.restart;
    request.solve.options.shadow_vectors = terms.shadow_vectors;
  }
  ASSIGN_OR_RETURN(request.solve.options.method,
                   parts_.adapter->ResolveMethod(request.solve.options.method, for_cg, a));
  ASSIGN_OR_RETURN(work->null_space,
                   parts_.adapter->FindNullSpace(
                       a, {.choice = request.solve.null_space, .vectors = request.null_vectors}));
  request.null_vectors = {};
  request.solve.options.null_space = work->null_space.get();
  if (a.over != nullptr) form = kernels::MForm::kOverRanks;
  if (form == kernels::MForm::kOverRanks) {
    const std::string_view why = kernels::NotOverRanks(request.solve.options, form);
    if (!why.empty()) {
      return MatrixOverRanks(absl::StrCat(std::string(why), "; ask for what they do"),
                             a.over != nullptr ? "matrix" : "preconditioner");
    }
  }
  int64_t stored_m = StoredEntries(kind, a.n(), nnz_m);
  const int64_t n_rhs = static_cast<int64_t>(request.b.size()) / a.n();
  RETURN_IF_ERROR(parts_.adapter->AdmitSolve(a, stored_m, n_rhs, request.solve.options, form));
  if (request.preconditioner) {
    RETURN_IF_ERROR(PrepareRebuild(request, n_rhs, work.get()));
    if (work->prepared) {
      nnz_m = std::max(nnz_m, work->prepared->estimate.nnz_m);
      stored_m = StoredEntries(kind, a.n(), nnz_m);
      form = std::max(form, kernels::FormOf(work->prepared->build.spec));
      estimate = WorkOf(request.tenant, a, *work->prepared);
      if (request.solve.reuse.mode == ReuseMode::kAuto) estimate.what = "perhaps " + estimate.what;
      builds_on_cpu =
          kernels::TraitsOf(kind).on_gpu != nullptr && !work->prepared->placement.host_alone;
    }
  }
  // The build's peak, or the solve's beside what was built: by columns and by rows.
  int64_t built = estimate.host_bytes > 0 ? 2 * work->prepared->estimate.download_bytes : 0;
  // Right-hand sides, guesses and answers of another leg.
  if (request.preconditioner && work->prepared) built += 3 * n_rhs * a.n() * 8;
  estimate.host_bytes = std::max(
      estimate.host_bytes,
      built + parts_.adapter->SolveHostBytes(a, stored_m, n_rhs, request.solve.options, form));
  const double iterations = PredictIterations(a, request.solve);
  const kernels::SolveWork iteration = IterationOf(a, stored_m, request.solve.options.method, form);
  const int threads = parts_.adapter->threads();
  estimate.iterations = iterations;
  estimate.iteration_ms = IterationMs(iteration, kernels::Backend::kCpu, threads);
  estimate.max_iterations =
      static_cast<double>(request.solve.options.max_iterations) * request.solve.rhs_count;
  estimate.yields = true;
  estimate.what = absl::StrCat(estimate.what.empty() ? "" : estimate.what + " and ", "solve");
  // A build on a GPU is followed by its solve there, one on the CPU by its solve there; but some
  // solves are the host's, wherever M was built.
  const bool builds_on_gpu = estimate.device_bytes > 0;
  bool over_ranks = builds_on_gpu && work->prepared->placement.over_ranks;
  const std::string host_alone(EngineAdapter::HostAlone(over_ranks, request.solve.options, form));
  work->on_gpu = builds_on_gpu && host_alone.empty();
  if (builds_on_gpu && !host_alone.empty()) {
    work->placement = absl::StrCat(over_ranks ? "rank 0, whose ranks build its M: "
                                              : "the host of the GPU where its M is built: ",
                                   host_alone);
  } else if (builds_on_gpu || builds_on_cpu) {
    if (parts_.adapter->devices().size() > 1) {
      work->placement =
          absl::StrCat(request.preconditioner ? "where its M would be" : "where its M is",
                       " built: ", work->prepared->build.choice.placement());
    }
  } else {
    const Placement placement = parts_.adapter->PlaceSolve(
        a, stored_m, n_rhs, request.solve.options, iterations * estimate.iteration_ms, form);
    over_ranks = placement.over_ranks;
    work->placement = placement.why;
    work->on_gpu = placement.on_gpu;
    if (placement.on_gpu) {
      estimate.devices = placement.devices;
      estimate.fallback = placement.fallback;
      estimate.device_bytes = placement.device_bytes;
      estimate.resident = parts_.adapter->LaidOutOn(a);
      estimate.move_ms = MoveMs(a, stored_m);
    }
  }
  double solve_ms = iterations * estimate.iteration_ms;
  if (work->on_gpu && !over_ranks) {
    estimate.iteration_ms = IterationMs(iteration, kernels::Backend::kCuda, threads);
    solve_ms = iterations * estimate.iteration_ms + kernels::MoveVectorsMs(iteration.n, n_rhs);
  }
  // The solve has one GPU alone: the others would wait for it.
  if (estimate.predicted_ms < 4 * solve_ms) estimate.max_devices = 1;
  estimate.predicted_ms += solve_ms;

  std::string what(Name(request.solve.options.method));
  if (kind != kernels::EngineKind::kNone) what += " + " + std::string(Name(kind));
  SolveTicket ticket;
  ticket.job = request.promised;
  if (ticket.job == nullptr) {
    ticket.job = Job::Create(
        {.tenant = request.tenant,
         .kind = v1::JOB_KIND_SOLVE,
         .matrix = request.matrix.handle,
         .preconditioner = request.preconditioner ? request.preconditioner->handle : std::string(),
         .priority = request.terms.priority,
         .what = std::move(what),
         .label = a.label,
         .n = a.n(),
         .nnz = a.nnz(),
         .name = request.job_name,
         .trace = request.terms.trace},
        request.terms.limits, *parts_.clock);
    ticket.job->SetPromise(std::move(request.promise));
  }
  auto waiter =
      ticket.job->Attach({.detach = request.terms.detach, .deadline = request.terms.deadline});
  if (!waiter) return StopError(ticket.job->stop_cause());  // a promised one, told to stop
  ticket.waiter = *std::move(waiter);
  work->request = std::move(request);
  const bool known = work->request.promised != nullptr;
  RETURN_IF_ERROR(Submit(ticket.job, known, estimate, [this, work](Job& job, const Assignment& at) {
    return RunSolve(*work, job, at);
  }));
  return ticket;
}

void JobFactory::Learn(const SolveWork& work, const kernels::SolveResult& solved,
                       LearnedRung rung) const {
  const bool converged = std::all_of(
      solved.rhs.begin(), solved.rhs.end(),
      [](const kernels::RhsResult& rhs) { return rhs.outcome == kernels::Outcome::kConverged; });
  // A solve that did well at the bottom needs no memory, and what did not do is not to be begun
  // with.
  if (!converged) rung = {};
  const Prepared& prepared = *work.prepared;
  if (rung.kind == kernels::RungKind::kBottom && !prepared.learned) return;
  learned_.Learn(work.request.tenant, prepared.pattern_key, work.asked.method, rung);
}

absl::Status JobFactory::RunSolve(SolveWork& work, Job& job, const Assignment& at) const {
  SolveRequest& request = work.request;
  auto outcome = std::make_shared<SolveOutcome>();
  v1::SolveDone& done = outcome->done;
  std::optional<Stored<Preconditioner>> m = request.preconditioner;
  EngineAdapter::Ladder ladder;
  ladder.asked = work.asked;
  const bool by_auto = work.prepared && work.prepared->build.by_auto;
  if (by_auto) {
    const ResolvedBuild& build = work.prepared->build;
    ladder.rung = {build.rung, build.spec.scaling != kernels::ScalingMode::kNone};
    ladder.static_spai = work.prepared->static_spai;
    // Nobody knows how close a guess is.
    if (!m && build.rung == kernels::RungKind::kBottom && !work.prepared->learned &&
        build.spec.engine == kernels::EngineKind::kJacobi && request.x0.empty()) {
      parts_.adapter->BeginAbove(*request.matrix.value, request.b, at, &ladder);
    }
  }
  if (m) {
    done.mutable_choice()->set_engine(m->value->choice.engine());
  } else {
    *done.mutable_choice() = work.prepared->build.choice;
    if (!ladder.reason.empty()) done.mutable_choice()->set_reason(ladder.reason);
    if (ladder.straight) {
      // The ladder makes what it begins with.
    } else if (work.found) {
      m = work.found;
      job.UpdateTimings([](v1::Timings& timings) { timings.set_reused(true); });
      job.SetPreconditioner(m->handle);
      job.ReportQuality(m->value->quality);
      if (parts_.metrics) parts_.metrics->Reused();
    } else if (work.prepared->build.spec.engine != kernels::EngineKind::kNone) {
      ASSIGN_OR_RETURN(m, BuildAndStore(request.tenant, request.matrix, *work.prepared,
                                        /*must_store=*/false, job, at));
    }
  }
  if (m) ladder.engine = m->value->kernel->kind();
  if (by_auto) {
    ladder.straight = ladder.straight || (ladder.rung.kind != kernels::RungKind::kBottom && !m);
    ladder.what =
        std::string(Name(ladder.engine)) + ", " + std::string(Name(request.solve.options.method));
  }
  const v1::Timings so_far = job.timings();
  ladder.setup_ms = so_far.plan_ms() + so_far.build_ms() + so_far.assemble_ms();
  Solved there;
  if (request.preconditioner) {
    ASSIGN_OR_RETURN(there, ReusingSolve(*this, work, job, at).Run(&*m, done.mutable_reuse()));
  } else {
    ASSIGN_OR_RETURN(there,
                     parts_.adapter->Solve(request.matrix.value, m ? m->value->kernel : nullptr,
                                           request.b, request.x0, request.solve.options, at, job,
                                           by_auto ? &ladder : nullptr));
    if (m && there.rungs.empty() && AllConverged(there.result)) {
      m->value->first_counts->Record(SolveTerms::Of(request.solve.options, !request.x0.empty()),
                                     MostIterations(there.result));
    }
  }
  kernels::SolveResult& solved = there.result;
  if (const StopCause cause = job.stop_cause(); IsError(cause, solved)) return StopError(cause);
  if (by_auto && !work.prepared->pattern_key.empty()) Learn(work, solved, *there.rung);

  std::vector<v1::RhsOutcome> outcomes;
  for (const kernels::RhsResult& rhs : solved.rhs) outcomes.push_back(ToProto(rhs));
  job.UpdateTimings([&](v1::Timings& timings) {
    timings.set_solve_ms(solved.solve_ms);
    if (at.device != kCpuName) {
      timings.set_host_to_device_ms(timings.host_to_device_ms() + solved.figures.place_ms);
    }
  });
  done.mutable_outcomes()->Assign(outcomes.begin(), outcomes.end());
  done.set_method(ToProto(request.solve.options.method));
  done.set_matrix(request.matrix.handle);
  if (m) {
    const Preconditioner& used = *m->value;
    done.mutable_choice()->set_placement(used.choice.placement());
    done.set_preconditioner(m->handle);
    done.set_nnz_ratio(static_cast<double>(used.kernel->nnz()) /
                       std::max(1.0, static_cast<double>(request.matrix.value->nnz())));
    *done.mutable_quality() = used.quality;
  }
  if (work.null_space != nullptr) done.set_null_space(work.null_space->what());
  if (!there.rungs.empty()) {
    for (const kernels::Rung& rung : there.rungs) *done.add_rungs() = ToProto(rung);
    done.set_method(done.rungs().rbegin()->method());
    done.mutable_choice()->set_engine(done.rungs().rbegin()->engine());
    done.set_nnz_ratio(RatioOf(there.rungs.back(), *request.matrix.value));
  }
  *done.mutable_timings() = job.timings();
  done.set_device(at.device);
  done.set_placement(work.on_gpu && at.device == kCpuName
                         ? "cpu: the GPU failed while the solve waited for it"
                         : work.placement);
  done.set_preconditioner_storage(ToProto(solved.m_storage));
  done.set_storage_reason(solved.storage_reason);
  *done.mutable_figures() = ToProto(solved.figures, there.copy_bytes_per_second);
  done.set_job(job.name());
  outcome->x = std::move(solved.x);
  outcome->share = std::move(request.share);
  job.SetOutcomes(std::move(outcomes));
  job.SetResult(std::move(outcome));
  return absl::OkStatus();
}

absl::StatusOr<JobFactory::Estimate> JobFactory::EstimateBuild(const std::string& tenant,
                                                               const Matrix& matrix,
                                                               const v1::PreconditionerSpec& spec,
                                                               std::string field,
                                                               kernels::StopToken stop) {
  ASSIGN_OR_RETURN(Prepared prepared,
                   Prepare(tenant, matrix, spec, field, /*for_estimate=*/true, stop));
  return Estimate{prepared.estimate, prepared.build.choice};
}

}  // namespace spaid::server
