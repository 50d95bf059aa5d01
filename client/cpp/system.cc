#include "spaid/system.h"

#include <algorithm>
#include <string>
#include <utility>

#include "client/cpp/arrays.h"
#include "client/cpp/convert.h"
#include "client/cpp/errors.h"
#include "client/cpp/impl.h"

namespace spaid {
namespace {

// A small matrix comes along with its first solve; a larger one is uploaded before, so that the
// server is asked first if it has it.
constexpr size_t kSmallEntries = 16 << 10;
// The matrix, its pattern, M and vectors may all be gone.
constexpr int kMaxTries = 5;

}  // namespace

System::System(Client& client, const CscView& a, SolveOptions options, ReusePolicy reuse)
    : client_(&client), a_(a) {
  SetOptions(std::move(options), reuse);
}

void System::SetOptions(SolveOptions options, ReusePolicy reuse) {
  options.spec.engine = options.engine;
  options.reuse = reuse;
  const auto spec = internal::ToProto(options.spec), before = internal::ToProto(options_.spec);
  if (spec.SerializeAsString() != before.SerializeAsString()) preconditioner_.clear();
  options_ = std::move(options);
}

std::optional<Error> System::CheckCount(size_t values) const {
  if (values == a_.row_idx.size()) return std::nullopt;
  return internal::MakeError(Code::kInvalidArgument, internal::kSizeMismatch,
                             "values has " + std::to_string(values) + " elements, the pattern " +
                                 std::to_string(a_.row_idx.size()) +
                                 "; for another pattern there is SetMatrix",
                             "values");
}

std::optional<Error> System::SetValues(std::span<const double> values) {
  if (auto error = CheckCount(values.size())) return error;
  a_.values = values;
  a_.values_f32 = {};
  matrix_.clear();
  return std::nullopt;
}

std::optional<Error> System::SetValues(std::span<const float> values) {
  if (auto error = CheckCount(values.size())) return error;
  a_.values = {};
  a_.values_f32 = values;
  matrix_.clear();
  return std::nullopt;
}

std::optional<Error> System::SetMatrix(const CscView& a) {
  const internal::WidePointers wide(a);
  if (auto error = internal::CheckSpans(wide.view())) return error;
  if (a.n != a_.n) preconditioner_.clear();
  a_ = a;
  matrix_.clear();
  pattern_.clear();
  return std::nullopt;
}

void System::SetVectors(int count, std::span<const double> vectors, bool coordinates) {
  vectors_ = vectors;
  vector_count_ = count;
  coordinates_ = coordinates;
  vectors_handle_.clear();
  preconditioner_.clear();
}

void System::SetNearNullSpace(int count, std::span<const double> vectors) {
  SetVectors(count, vectors, false);
}

void System::SetCoordinates(int count, std::span<const double> coordinates) {
  SetVectors(count, coordinates, true);
}

// All that a system has lies in one place, also what comes when its pattern is another one.
CallOptions System::At(const CallOptions& call) const {
  CallOptions at = call;
  for (const std::string* handle : {&preconditioner_, &matrix_, &pattern_, &vectors_handle_}) {
    if (at.affinity.empty()) at.affinity = AffinityOf(*handle);
  }
  return at;
}

Expected<PreconditionerSpec> System::Spec(const CallOptions& given) {
  PreconditionerSpec spec = options_.spec;
  const bool reads = spec.engine == Engine::kAmg || (spec.engine == Engine::kGamg && !coordinates_);
  if (!reads || vector_count_ == 0) return spec;
  if (vectors_handle_.empty()) {
    CallOptions call = At(given);
    if (call.affinity.empty()) call.affinity = AffinityOf(a_);
    const int64_t n = static_cast<int64_t>(vectors_.size()) / std::max(1, vector_count_);
    auto stored = client_->UploadVectors(n, vector_count_, vectors_, "", call);
    if (!stored.ok()) return stored.error();
    vectors_handle_ = stored->name;
  }
  spec.amg.near_null_space = coordinates_ ? "" : vectors_handle_;
  spec.amg.coordinates = coordinates_ ? vectors_handle_ : "";
  spec.petsc.near_null_space = vectors_handle_;
  return spec;
}

std::optional<Error> System::UploadPattern(const CallOptions& call) {
  CscView pattern = a_;
  pattern.values = {};
  pattern.values_f32 = {};
  auto stored = client_->Upload(pattern, "", At(call));
  if (!stored.ok()) return stored.error();
  pattern_ = stored->name;
  return std::nullopt;
}

bool System::Forget(const Error& error) {
  bool ours = false;
  for (std::string* handle : {&matrix_, &pattern_, &preconditioner_, &vectors_handle_}) {
    if (handle->empty() || !internal::IsGone(error, *handle)) continue;
    handle->clear();
    ours = true;
  }
  return ours;
}

Expected<SolveResult> System::SolveOnce(std::span<const double> b, const SolveOptions& options,
                                        const CallOptions& given) {
  const CallOptions at = At(given);
  const internal::Call call(at);
  Client::Impl& client = *client_->impl_;
  if (!matrix_.empty()) return client.Solve({.matrix = matrix_}, a_.n, b, options, call);
  if (!pattern_.empty() || a_.row_idx.size() <= kSmallEntries) {
    return client.Solve({.matrix = pattern_, .a = &a_}, a_.n, b, options, call);
  }
  Timings upload;
  auto stored = client.Upload(a_, "", call, upload);
  if (!stored.ok()) return stored.error();
  matrix_ = pattern_ = stored->name;  // known even if it is gone when the solve comes
  auto solved = client.Solve({.matrix = matrix_}, a_.n, b, options, call);
  if (solved.ok()) internal::AddUpload(upload, solved->timings);
  return solved;
}

Expected<SolveResult> System::Solve(std::span<const double> b, std::span<const double> guess,
                                    const CallOptions& call) {
  for (int left = kMaxTries;; --left) {
    SolveOptions options = options_;
    options.initial_guess = guess;
    Expected<PreconditionerSpec> spec = Spec(call);
    if (!spec.ok()) return spec.error();
    options.spec = *std::move(spec);
    if (options.engine != Engine::kAuto) options.preconditioner = preconditioner_;
    if (options.preconditioner.empty()) options.reuse = {};  // of an M that there is
    Expected<SolveResult> solved = SolveOnce(b, options, call);
    if (!solved.ok()) {
      if (left > 1 && Forget(solved.error())) continue;
      return solved;
    }
    matrix_ = pattern_ = solved->matrix;
    if (!solved->preconditioner.empty()) preconditioner_ = solved->preconditioner;
    return solved;
  }
}

std::optional<Error> System::Upload(const CallOptions& call, Timings* timings) {
  if (!matrix_.empty()) return std::nullopt;
  const CallOptions at = At(call);
  auto stored = pattern_.empty() ? client_->Upload(a_, "", at, timings)
                                 : client_->UploadValues(pattern_, a_, "", at, timings);
  if (!stored.ok()) return stored.error();
  matrix_ = pattern_ = stored->name;
  return std::nullopt;
}

Expected<BuildResult> System::Build(bool fetch_result, const CallOptions& call,
                                    const CscMatrix* known) {
  for (int left = kMaxTries;; --left) {
    Timings upload;
    if (auto error = Upload(call, &upload)) return *std::move(error);
    const Expected<PreconditionerSpec> spec = Spec(call);
    if (!spec.ok()) return spec.error();
    Expected<BuildResult> built = client_->Build(matrix_, *spec, fetch_result, call, known);
    if (!built.ok()) {
      if (left > 1 && Forget(built.error())) continue;
      return built;
    }
    internal::AddUpload(upload, built->timings);
    preconditioner_ = built->preconditioner.name;
    return built;
  }
}

}  // namespace spaid
