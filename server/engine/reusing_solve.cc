#include "server/engine/reusing_solve.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

// Whether a build's error is about the build, and not about the device, the job or our own code.
bool IsRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kResourceExhausted:
      return true;
    default:
      return false;
  }
}

// The spec of a stored preconditioner, to be built again.
absl::StatusOr<v1::PreconditionerSpec> SpecOf(const Preconditioner& m, bool regrow) {
  ASSIGN_OR_RETURN(const ParsedSpec parsed, ParseSpec(m.spec, "header.preconditioner"));
  return ToProto(parsed.spec, parsed.given, regrow);
}

std::string Counted(int64_t iterations) {
  return absl::StrCat(iterations, iterations == 1 ? " iteration" : " iterations");
}

std::string NotRebuilt(const absl::Status& why) {
  return absl::StrCat("M could not be built of this matrix (", ReasonOf(why), ": ", why.message(),
                      ")");
}

}  // namespace

absl::Status JobFactory::PrepareRebuild(const SolveRequest& request, int64_t n_rhs,
                                        SolveWork* work) const {
  if (request.solve.reuse.mode == ReuseMode::kKeep) return absl::OkStatus();
  const Stored<Preconditioner>& m = *request.preconditioner;
  if (m.value->matrix == request.matrix.handle) {
    work->of_this_matrix = true;
    return absl::OkStatus();
  }
  const Matrix& a = *request.matrix.value;
  const auto prepare = [&]() -> absl::StatusOr<Prepared> {
    ASSIGN_OR_RETURN(const v1::PreconditionerSpec spec, SpecOf(*m.value, /*regrow=*/false));
    ASSIGN_OR_RETURN(Prepared prepared, Prepare(request.tenant, a, spec, "header.preconditioner",
                                                /*for_estimate=*/false, request.stop));
    RETURN_IF_ERROR(prepared.refused);
    RETURN_IF_ERROR(parts_.adapter->AdmitBuild(prepared.estimate));
    RETURN_IF_ERROR(parts_.adapter->AdmitSolve(
        a, StoredEntries(prepared.build.spec.engine, a.n(), prepared.estimate.nnz_m), n_rhs,
        request.solve.options, kernels::FormOf(prepared.build.spec)));
    return prepared;
  };
  absl::StatusOr<Prepared> prepared = prepare();
  if (!prepared.ok()) {
    // Without a device for the build there may be one for the solve.
    const bool lost = ReasonOf(prepared.status()) == reason::kDeviceLost;
    if (!lost && !IsRefusal(prepared.status())) return prepared.status();
    work->no_rebuild = prepared.status();
    return absl::OkStatus();
  }
  // The matrix that it is of may have been deleted and sent again.
  const auto found =
      parts_.preconditioners->FindOrLoad(request.tenant, KeyOfM(*prepared, request.matrix));
  work->of_this_matrix = found && found->handle == m.handle;
  if (!work->of_this_matrix) work->prepared = *std::move(prepared);
  return absl::OkStatus();
}

JobFactory::ReusingSolve::ReusingSolve(const JobFactory& factory, SolveWork& work, Job& job,
                                       const Assignment& at)
    : factory_(factory),
      work_(work),
      request_(work.request),
      job_(job),
      at_(at),
      adapter_(*factory.parts_.adapter),
      terms_(SolveTerms::Of(request_.solve.options, !request_.x0.empty())),
      n_(request_.matrix.value->n()) {}

absl::StatusOr<Solved> JobFactory::ReusingSolve::Run(Stored<Preconditioner>* m, v1::Reuse* told) {
  const std::shared_ptr<const Preconditioner> named = m->value;
  first_ = named->first_counts->Find(terms_);
  told->set_decision(v1::REUSE_DECISION_KEPT);
  absl::StatusOr<Solved> solved;
  if (work_.of_this_matrix) {
    told->set_reason("M is of this matrix");
    solved = Whole(*m);
  } else if (request_.solve.reuse.mode == ReuseMode::kRebuild) {
    solved = RunRebuild(m, told);
  } else if (request_.solve.reuse.mode == ReuseMode::kAuto) {
    solved = RunAuto(m, told);
  } else {
    told->set_reason("the request keeps M");
    solved = Whole(*m);
  }
  if (!first_) first_ = named->first_counts->Find(terms_);
  told->set_first_iterations(first_.value_or(0));
  return solved;
}

absl::StatusOr<Solved> JobFactory::ReusingSolve::Whole(const Stored<Preconditioner>& m) const {
  ASSIGN_OR_RETURN(Solved solved, adapter_.Solve(request_.matrix.value, m.value->kernel, request_.b,
                                                 request_.x0, request_.solve.options, at_, job_));
  if (AllConverged(solved.result)) {
    m.value->first_counts->Record(terms_, MostIterations(solved.result));
  }
  return solved;
}

absl::StatusOr<Solved> JobFactory::ReusingSolve::RunRebuild(Stored<Preconditioner>* m,
                                                            v1::Reuse* told) const {
  absl::Status refused = work_.no_rebuild;
  if (refused.ok()) RETURN_IF_ERROR(Rebuild(m, told, &refused));
  if (!refused.ok()) {
    told->set_reason(NotRebuilt(refused) + ": solved with the old one");
  } else if (told->reason().empty()) {
    told->set_reason("the request rebuilds M");
  }
  return Whole(*m);
}

absl::StatusOr<Solved> JobFactory::ReusingSolve::RunAuto(Stored<Preconditioner>* m,
                                                         v1::Reuse* told) const {
  const kernels::SolveOptions& options = request_.solve.options;
  const double factor = request_.solve.reuse.factor;
  // Half of them for the M that is rebuilt, where nothing tells what the old one should take.
  const int64_t allowed = first_ ? AllowedIterations(factor, *first_, options.max_iterations)
                                 : (options.max_iterations + 1) / 2;
  SolveLeg all;
  all.rhs.resize(static_cast<size_t>(request_.solve.rhs_count));
  std::iota(all.rhs.begin(), all.rhs.end(), 0);
  ASSIGN_OR_RETURN(Solved total,
                   RunLeg(*m, all, request_.x0, work_.prepared ? allowed : options.max_iterations));
  const auto end = [&](std::string reason) -> Solved&& {
    told->set_reason(std::move(reason));
    adapter_.CountSolve(options.method, total.result);
    return std::move(total);
  };
  if (AllConverged(total.result)) {
    m->value->first_counts->Record(terms_, MostIterations(total.result));
  }
  std::vector<SolveLeg> legs =
      LegsLeft(total.result, options.max_iterations, /*spent_alone=*/false);
  if (legs.empty() || !work_.prepared) {
    return end(WhyKept(total.result, allowed));
  }

  const auto& worst =
      *std::max_element(total.result.rhs.begin(), total.result.rhs.end(),
                        [](const auto& x, const auto& y) { return MayMend(x) < MayMend(y); });
  std::string why = "the old M did not solve it";
  if (worst.outcome == kernels::Outcome::kMaxIterations) {
    absl::StrAppend(&why, " in ", Counted(allowed), ", ",
                    first_ ? TimesFirst() : "half of max_iterations");
  } else {
    absl::StrAppend(&why, ": ", std::string(Name(worst.outcome)), " after ",
                    Counted(worst.iterations));
  }
  absl::Status refused;
  const absl::Status built = Rebuild(m, told, &refused);
  if (!built.ok()) {
    const StopCause cause = job_.stop_cause();
    if (cause == StopCause::kNone || ReasonOf(built) == reason::kDeviceLost) return built;
    for (kernels::RhsResult& rhs : total.result.rhs) {
      if (!MayMend(rhs)) continue;
      const bool time = cause == StopCause::kMaxRun || cause == StopCause::kDeadline;
      rhs.outcome = time ? kernels::Outcome::kTimeLimit : kernels::Outcome::kCancelled;
      rhs.detail = "stopped while M was built anew; x is what the old one had reached";
    }
    return end(absl::StrCat(why, "; stopped while it was built anew"));
  }
  if (!refused.ok()) {
    absl::StrAppend(&why, "; ", NotRebuilt(refused));
    legs = LegsLeft(total.result, options.max_iterations, /*spent_alone=*/true);
    if (!legs.empty()) absl::StrAppend(&why, ": went on with the old one");
  } else if (!told->reason().empty()) {
    absl::StrAppend(&why, "; ", told->reason());
  }
  for (const SolveLeg& leg : legs) {
    ASSIGN_OR_RETURN(Solved more, RunLeg(*m, leg, ColumnsOf(leg, total.result.x, n_),
                                         options.max_iterations - leg.before));
    AddLeg(leg, n_, std::move(more.result), &total.result);
  }
  return end(std::move(why));
}

std::string JobFactory::ReusingSolve::TimesFirst() const {
  return absl::StrCat(request_.solve.reuse.factor, " times the first count of ", *first_);
}

std::string JobFactory::ReusingSolve::WhyKept(const kernels::SolveResult& solved,
                                              int64_t allowed) const {
  const bool converged = AllConverged(solved);
  const int64_t most = MostIterations(solved);
  const std::string taken = Counted(most);
  if (!work_.no_rebuild.ok() && (!converged || (first_ && most > allowed))) {
    return absl::StrCat(taken, " with the old M: ", NotRebuilt(work_.no_rebuild));
  }
  if (converged) {
    return first_ ? absl::StrCat(taken, ", at most ", allowed, ", ", TimesFirst())
                  : absl::StrCat(taken, ", the first count of this M that is known");
  }
  if (job_.stop_cause() != StopCause::kNone) {
    return absl::StrCat("stopped after ", taken, " with the old M");
  }
  if (most >= request_.solve.options.max_iterations) {
    return absl::StrCat(taken, ", and max_iterations leave none for another M");
  }
  return absl::StrCat(taken, ", and another M could not change how it ended");
}

absl::StatusOr<Solved> JobFactory::ReusingSolve::RunLeg(const Stored<Preconditioner>& m,
                                                        const SolveLeg& leg,
                                                        std::span<const double> x0,
                                                        int64_t max_iterations) const {
  kernels::SolveOptions options = request_.solve.options;
  options.max_iterations = max_iterations;
  std::span<const double> b = request_.b;
  kernels::Array<double> own;
  if (leg.rhs.size() < static_cast<size_t>(request_.solve.rhs_count)) {
    own = ColumnsOf(leg, request_.b, n_);
    b = own;
  }
  return adapter_.Solve(request_.matrix.value, m.value->kernel, b, x0, options, at_, job_,
                        /*ladder=*/nullptr, &leg);
}

absl::Status JobFactory::ReusingSolve::Rebuild(Stored<Preconditioner>* m, v1::Reuse* told,
                                               absl::Status* refused) const {
  const auto build = [&]() -> absl::StatusOr<Stored<Preconditioner>> {
    const Prepared* to_build = &*work_.prepared;
    std::optional<Prepared> anew;
    if (std::string why = WhyRegrow(*m->value); !why.empty()) {
      ASSIGN_OR_RETURN(const v1::PreconditionerSpec spec, SpecOf(*m->value, /*regrow=*/true));
      ASSIGN_OR_RETURN(anew, factory_.Prepare(request_.tenant, *request_.matrix.value, spec,
                                              "header.preconditioner", /*for_estimate=*/false,
                                              /*stop=*/{}));
      to_build = &*anew;
      told->set_reason(std::move(why));
    }
    job_.SetWhat(absl::StrCat("rebuild of ", std::string(Name(to_build->build.spec.engine))));
    auto built = factory_.BuildAndStore(request_.tenant, request_.matrix, *to_build,
                                        /*must_store=*/false, job_, at_);
    job_.SetWhat("");
    if (built.ok()) {
      told->set_decision(anew ? v1::REUSE_DECISION_REGROWN : v1::REUSE_DECISION_REBUILT);
    }
    return built;
  };
  auto built = build();
  if (built.ok()) {
    *m = *std::move(built);
    return absl::OkStatus();
  }
  if (!IsRefusal(built.status()) || job_.stop_cause() != StopCause::kNone) return built.status();
  *refused = built.status();
  return absl::OkStatus();
}

std::string JobFactory::ReusingSolve::WhyRegrow(const Preconditioner& m) const {
  if (m.earlier_counts == nullptr) return "";
  const std::optional<int64_t> earlier = m.earlier_counts->Find(terms_);
  if (!earlier) return "";
  const double factor = request_.solve.reuse.factor;
  const std::string what =
      absl::StrCat("what it was grown or scaled by is of an earlier matrix, where it took ",
                   Counted(*earlier), " at first");
  if (!first_) {
    // It has not solved anything yet, and not what it was tried on now.
    return request_.solve.reuse.mode == ReuseMode::kAuto
               ? what + ", and it never has solved anything since"
               : "";
  }
  if (*first_ <= AllowedIterations(factor, *earlier, INT64_MAX)) return "";
  return absl::StrCat(what, ", and its own first count was ", *first_);
}

}  // namespace spaid::server
