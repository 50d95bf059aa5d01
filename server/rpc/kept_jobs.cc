#include "server/rpc/kept_jobs.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/guard.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/engine/resolved_build.h"
#include "server/rpc/backend.h"

namespace spaid::server {
namespace {

constexpr char kPrefix[] = "jobs/";
constexpr std::chrono::milliseconds kTryEvery{200};

// Beside the header of a request: what a list shows of its job before it is started.
struct Shown {
  int64_t kind = 0;  // v1::JobKind
  int64_t n = 0, nnz = 0;
  int64_t label_size = 0;  // the label is behind this, then the header
};

std::string PackMeta(v1::JobKind kind, const Matrix& matrix, const std::string& header) {
  const Shown shown{kind, matrix.n(), matrix.nnz(), static_cast<int64_t>(matrix.label.size())};
  std::string meta(reinterpret_cast<const char*>(&shown), sizeof shown);
  return absl::StrCat(meta, matrix.label, header);
}

struct Unpacked {
  Shown shown;
  std::string label, header;
};

std::optional<Unpacked> UnpackMeta(const std::string& meta) {
  Unpacked unpacked;
  Shown& shown = unpacked.shown;
  if (meta.size() < sizeof shown) return std::nullopt;
  std::memcpy(&shown, meta.data(), sizeof shown);
  if (shown.label_size < 0 ||
      static_cast<uint64_t>(shown.label_size) > meta.size() - sizeof shown) {
    return std::nullopt;
  }
  const auto label_size = static_cast<size_t>(shown.label_size);
  unpacked.label = meta.substr(sizeof shown, label_size);
  unpacked.header = meta.substr(sizeof shown + label_size);
  return unpacked;
}

absl::Status NotDurable(const absl::Status& why) {
  return MakeError(absl::StatusCode::kUnavailable, reason::kNotDurable,
                   absl::StrCat("a detached job must outlive the daemon, and its request cannot be "
                                "written to --spill-dir: ",
                                std::string(why.message()),
                                "; try again, or send it without detach and stay"))
      .Field("header.detach")
      .Retry(std::chrono::seconds(5));
}

absl::Status Lost(const absl::Status& why) {
  return MakeError(absl::StatusCode::kUnavailable, reason::kLostByRestart,
                   absl::StrCat("the daemon was started anew, and what the job needs is gone: ",
                                std::string(why.message()), "; send it again"));
}

absl::StatusOr<kernels::Array<double>> NextArray(SpillReader* reader, int64_t bytes) {
  kernels::Array<double> array(static_cast<size_t>(bytes) / sizeof(double));
  RETURN_IF_ERROR(reader->Next(std::as_writable_bytes(std::span(array))));
  return array;
}

}  // namespace

class KeptJobs::Promise final : public JobPromise {
 public:
  Promise(SpillFolder* folder, std::string tenant, std::string name)
      : folder_(folder), tenant_(std::move(tenant)), name_(std::move(name)) {}
  void Fulfilled() override { folder_->DeleteLater(tenant_, name_); }  // what it made may wait

 private:
  SpillFolder* const folder_;
  const std::string tenant_, name_;
};

KeptJobs::KeptJobs(Backend* backend, SpillFolder* folder)
    : backend_(backend), folder_(folder), last_sequence_(folder->LastSequence(kPrefix)) {
  Find();
  if (!found_.empty()) thread_ = std::thread([this] { Run(); });
}

KeptJobs::~KeptJobs() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// A matrix or a preconditioner, by its handle.
absl::Status KeptJobs::SpillNeeded(const SpillRecord& record) const {
  for (const std::string& handle : record.needs) {
    RETURN_IF_ERROR(handle.starts_with("matrices/")
                        ? backend_->matrices().SpillNow(record.tenant, handle)
                        : backend_->preconditioners().SpillNow(record.tenant, handle));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<JobPromise>> KeptJobs::Keep(SpillRecord record,
                                                           const std::vector<SpillBlob>& blobs,
                                                           const v1::PreconditionerSpec* spec) {
  if (spec != nullptr) {
    ASSIGN_OR_RETURN(const ParsedSpec parsed, ParseSpec(*spec, "header.spec"));
    if (!parsed.given.handle.empty()) record.needs.push_back(parsed.given.handle);
  }
  absl::Status status = SpillNeeded(record);
  {
    const std::lock_guard lock(mutex_);
    record.sequence = ++last_sequence_;
  }
  record.pinned = true;
  auto promise = std::make_shared<Promise>(folder_, record.tenant, record.handle);
  if (status.ok()) status = folder_->Write(std::move(record), blobs);
  if (!status.ok()) return NotDurable(status);
  return promise;
}

absl::StatusOr<std::shared_ptr<JobPromise>> KeptJobs::KeepSolve(const Solve& solve) {
  v1::SolveHeader header = solve.header;
  header.set_matrix(solve.matrix.handle);  // in place of an inline one
  header.clear_solution_segment();
  SpillRecord record;
  record.handle = solve.name;
  record.tenant = solve.tenant;
  record.needs = {solve.matrix.handle};
  if (!header.preconditioner().empty()) record.needs.push_back(header.preconditioner());
  record.meta = PackMeta(v1::JOB_KIND_SOLVE, *solve.matrix.value, header.SerializeAsString());
  const SpillBlob arrays{
      SpillKind::kVectors,
      solve.name,
      {std::as_bytes(solve.b), std::as_bytes(solve.x0), std::as_bytes(solve.null_vectors)}};
  return Keep(std::move(record), {arrays}, header.has_spec() ? &header.spec() : nullptr);
}

absl::Status KeptJobs::KeepBuild(const std::string& tenant, const std::shared_ptr<Job>& job,
                                 const v1::BuildHeader& asked, const Stored<Matrix>& matrix) {
  if (job->promised()) return absl::OkStatus();
  v1::BuildHeader header = asked;
  header.set_matrix(matrix.handle);
  header.set_stream_result(false);  // to nobody
  SpillRecord record;
  record.handle = job->name();
  record.tenant = tenant;
  record.needs = {matrix.handle};
  record.meta = PackMeta(v1::JOB_KIND_BUILD, *matrix.value, header.SerializeAsString());
  ASSIGN_OR_RETURN(auto promise, Keep(std::move(record), {}, &header.spec()));
  job->SetPromise(std::move(promise));
  return absl::OkStatus();
}

void KeptJobs::Find() {
  for (const SpillRecordPtr& record : folder_->All(kPrefix)) {
    const auto meta = UnpackMeta(record->meta);
    if (!meta) {
      folder_->Delete(record->tenant, record->handle);
      continue;
    }
    v1::SolveHeader solve;
    const bool solves = meta->shown.kind == v1::JOB_KIND_SOLVE;
    if (solves) (void)solve.ParseFromString(meta->header);
    auto job = Job::Create({.tenant = record->tenant,
                            .kind = solves ? v1::JOB_KIND_SOLVE : v1::JOB_KIND_BUILD,
                            .matrix = record->needs.empty() ? "" : record->needs.front(),
                            .preconditioner = solve.preconditioner(),
                            .what = "kept from before a restart",
                            .label = meta->label,
                            .n = meta->shown.n,
                            .nnz = meta->shown.nnz,
                            .name = record->handle},
                           {}, RealClock());
    job->SetPromise(std::make_shared<Promise>(folder_, record->tenant, record->handle));
    (void)job->Attach({.detach = true, .deadline = std::nullopt});
    backend_->jobs().Add(job);
    found_.push_back({record, std::move(job)});
  }
  if (!found_.empty()) Log(LogLevel::kInfo, "jobs_found", {{"jobs", found_.size()}});
}

void KeptJobs::Run() {
  for (const Found& found : found_) {
    if (!Resume(found)) return;
  }
}

bool KeptJobs::Resume(const Found& found) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return false;
    }
    absl::Status status = Guarded("a job from before a restart", [&] { return Start(found); });
    if (status.ok()) return true;
    if (ReasonOf(status) == reason::kDraining) return false;
    if (!absl::IsResourceExhausted(status) || found.job->stop_cause() != StopCause::kNone) {
      End(found, status);
      return true;
    }
    // Others have the room.
    std::unique_lock lock(mutex_);
    if (stopped_.wait_for(lock, kTryEvery, [this] { return stop_; })) return false;
  }
}

void KeptJobs::End(const Found& found, const absl::Status& why) {
  const StopCause cause = found.job->stop_cause();
  const absl::Status error = cause != StopCause::kNone ? StopError(cause) : Lost(why);
  Log(LogLevel::kWarning, "job_lost",
      {{"job", found.job->name()},
       {"reason", ReasonOf(error)},
       {"text", std::string(why.message())}});
  found.job->Finish(error);
  backend_->jobs().Ended(found.job);
  backend_->metrics().JobEnded(JobKindName(found.job->kind()), JobStateName(found.job->state()),
                               ReasonOf(error), 0, 0);
}

absl::Status KeptJobs::Start(const Found& found) {
  if (found.job->stop_cause() != StopCause::kNone) return StopError(found.job->stop_cause());
  const auto meta = UnpackMeta(found.record->meta);
  return found.job->kind() == v1::JOB_KIND_SOLVE ? StartSolve(found, meta->header)
                                                 : StartBuild(found, meta->header);
}

absl::Status KeptJobs::StartSolve(const Found& found, const std::string& packed) {
  const std::string& tenant = found.job->tenant();
  v1::SolveHeader header;
  if (!header.ParseFromString(packed)) return absl::DataLossError("its request");
  ASSIGN_OR_RETURN(const Stored<Matrix> matrix, backend_->matrices().Load(tenant, header.matrix()));
  std::optional<Stored<Preconditioner>> preconditioner;
  std::optional<v1::PreconditionerSpec> spec;
  if (header.has_spec()) {
    spec = header.spec();
  } else {
    ASSIGN_OR_RETURN(preconditioner,
                     backend_->preconditioners().Load(tenant, header.preconditioner()));
  }
  ASSIGN_OR_RETURN(const ParsedSolve solve, ParseSolve(header, "header"));
  ASSIGN_OR_RETURN(const JobFactory::Terms terms,
                   backend_->DetachedTerms(header.limits(), header.priority()));
  auto reader = folder_->Read(*found.record, 0);
  if (absl::IsDataLoss(reader.status())) folder_->Damaged(*found.record, 0, reader.status());
  RETURN_IF_ERROR(reader);
  const auto sizes = reader->sizes();
  if (sizes.size() != 3) return absl::DataLossError("its right-hand sides");
  // The solution will be as large as they are.
  ASSIGN_OR_RETURN(BudgetShare share,
                   backend_->rhs_budget().Take(tenant, 2 * sizes[0] + sizes[1] + sizes[2]));
  kernels::Array<double> arrays[3];
  for (size_t a = 0; a < 3; ++a) {
    auto array = NextArray(&*reader, sizes[a]);
    if (!array.ok()) {
      folder_->Damaged(*found.record, 0, array.status());
      return array.status();
    }
    arrays[a] = *std::move(array);
  }
  return backend_->job_factory()
      .StartSolve({.tenant = tenant,
                   .matrix = matrix,
                   .preconditioner = std::move(preconditioner),
                   .spec = std::move(spec),
                   .solve = solve,
                   .b = std::move(arrays[0]),
                   .x0 = std::move(arrays[1]),
                   .null_vectors = std::move(arrays[2]),
                   .share = std::move(share),
                   .terms = terms,
                   .promised = found.job})
      .status();
}

absl::Status KeptJobs::StartBuild(const Found& found, const std::string& packed) {
  const std::string& tenant = found.job->tenant();
  v1::BuildHeader header;
  if (!header.ParseFromString(packed)) return absl::DataLossError("its request");
  ASSIGN_OR_RETURN(const Stored<Matrix> matrix, backend_->matrices().Load(tenant, header.matrix()));
  ASSIGN_OR_RETURN(const JobFactory::Terms terms,
                   backend_->DetachedTerms(header.limits(), header.priority()));
  ASSIGN_OR_RETURN(auto ticket, backend_->job_factory().StartBuild({.tenant = tenant,
                                                                    .matrix = matrix,
                                                                    .spec = header.spec(),
                                                                    .terms = terms,
                                                                    .promised = found.job}));
  if (!ticket.ready) return absl::OkStatus();
  // It was built before the restart, or by somebody since.
  auto outcome = std::make_shared<BuildOutcome>();
  found.job->SetPreconditioner(ticket.ready->handle);
  outcome->preconditioner = *std::move(ticket.ready);
  found.job->SetResult(std::move(outcome));
  found.job->Finish(absl::OkStatus());
  backend_->jobs().Ended(found.job);
  return absl::OkStatus();
}

}  // namespace spaid::server
