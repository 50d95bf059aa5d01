#include "client/cpp/convert.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <type_traits>

#include "client/cpp/options.h"
#include "proto/fields.h"

namespace spaid::internal {
namespace {

int32_t Nanos(int32_t nanos) { return std::clamp(nanos, 0, 999'999'999); }

// Between 1970 and 2197, so that the difference of any two fits.
std::chrono::system_clock::time_point Time(const google::protobuf::Timestamp& in) {
  constexpr int64_t kLatest = int64_t{7} << 30;
  const std::chrono::seconds seconds(std::clamp<int64_t>(in.seconds(), 0, kLatest));
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          seconds + std::chrono::nanoseconds(Nanos(in.nanos()))));
}

// Bytes that one call moved, which callers add up over many.
int64_t Moved(int64_t bytes) { return std::clamp<int64_t>(bytes, 0, int64_t{1} << 44); }

std::string Hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

template <class E, class P>
E FromNumber(P number, E unknown) {
  return wire::EnumFrom<E>(*google::protobuf::GetEnumDescriptor<P>(), number).value_or(unknown);
}

template <class P, class E>
P ToNumber(E value) {
  return static_cast<P>(wire::EnumNumber(*google::protobuf::GetEnumDescriptor<P>(), value));
}

template <class T>
concept HasFields = requires(T t) {
  T::Fields(t, [](const char*, auto&) {});
};

// Fills what the message has of the struct's members.
template <class T>
void Read(const wire::Message& in, T* out) {
  T::Fields(*out, [&in](const char* name, auto& member) {
    using Member = std::decay_t<decltype(member)>;
    const auto* field = wire::FindField(in, name);
    if (field == nullptr) return;
    if constexpr (HasFields<Member>) {
      Read(in.GetReflection()->GetMessage(in, field), &member);
    } else if constexpr (std::same_as<Member, std::optional<std::chrono::nanoseconds>>) {
      if (!wire::IsUnset(in, *field)) {
        member = Span(static_cast<const google::protobuf::Duration&>(
            in.GetReflection()->GetMessage(in, field)));
      }
    } else if constexpr (wire::ListOfStructs<Member>) {
      wire::Get(in, *field, &member);
    } else if constexpr (requires { requires HasFields<typename Member::value_type>; }) {
      if (wire::IsUnset(in, *field)) return;
      Read(in.GetReflection()->GetMessage(in, field), &member.emplace());
    } else {
      wire::Get(in, *field, &member);  // an enum that is not known here leaves the default
    }
  });
}

template <class T>
T Read(const wire::Message& in) {
  T out;
  Read(in, &out);
  return out;
}

}  // namespace

std::chrono::nanoseconds Span(const google::protobuf::Duration& in) {
  constexpr int64_t kYear = int64_t{366} * 24 * 3600;
  if (in.seconds() < 0 || in.nanos() < 0) return {};
  return std::chrono::seconds(std::min(in.seconds(), kYear)) +
         std::chrono::nanoseconds(Nanos(in.nanos()));
}

MatrixInfo FromProto(const v1::Matrix& in) {
  MatrixInfo out;
  out.name = in.name();
  out.label = in.label();
  out.n = in.n();
  out.nnz = in.nnz();
  out.host_bytes = in.host_bytes();
  out.pattern_only = in.pattern_only();
  out.pattern_digest = Hex(in.digest().pattern());
  out.value_digest = Hex(in.digest().values());
  out.created = Time(in.create_time());
  Read(in.diagnosis(), &out.diagnosis);
  return out;
}

Timings FromProto(const v1::Timings& in) {
  auto out = Read<Timings>(in);
  out.bytes_up = Moved(in.bytes_up());
  out.bytes_down = Moved(in.bytes_down());
  return out;
}

Quality FromProto(const v1::BuildQuality& in) { return Read<Quality>(in); }

PreconditionerSpec FromProto(const v1::PreconditionerSpec& in) {
  PreconditionerSpec out;
  out.engine = FromProto(in.engine());
  // A message has fields of its engine's struct, and of those that engines share.
  for (const std::string& name : SpecMessages()) {
    if (name.empty()) {
      PreconditionerSpec::Fields(out, [&](const char* member_name, auto& member) {
        if constexpr (!HasFields<std::decay_t<decltype(member)>>) {
          const auto* own = wire::FindField(in, member_name);
          if (own != nullptr) wire::Get(in, *own, &member);
        }
      });
      continue;
    }
    const auto* field = wire::FindField(in, name.c_str());
    if (wire::IsUnset(in, *field)) continue;
    const wire::Message& message = in.GetReflection()->GetMessage(in, field);
    Read(message, &out);
    PreconditionerSpec::Fields(out, [&](const char* member_name, auto& member) {
      if constexpr (HasFields<std::decay_t<decltype(member)>>) {
        if (name == member_name) Read(message, &member);
      }
    });
  }
  return out;
}

PreconditionerInfo FromProto(const v1::Preconditioner& in) {
  PreconditionerInfo out;
  out.name = in.name();
  out.matrix = in.matrix();
  out.spec = FromProto(in.spec());
  out.choice_reason = in.choice().reason();
  out.placement = in.choice().placement();
  out.n = in.n();
  out.nnz = in.nnz();
  out.host_bytes = in.host_bytes();
  out.is_factor = in.is_factor();
  out.device_bytes = in.device_bytes();
  out.quality = FromProto(in.quality());
  out.build_timings = FromProto(in.build_timings());
  out.created = Time(in.create_time());
  out.device = in.device();
  for (const v1::Part& part : in.parts()) out.parts.push_back(Read<Part>(part));
  return out;
}

JobInfo::RhsOutcome FromProto(const v1::RhsOutcome& in) {
  JobInfo::RhsOutcome out;
  out.outcome = FromProto(in.outcome());
  out.iterations = in.iterations();
  out.true_residual = in.true_residual();
  out.true_relative_residual = in.true_relative_residual();
  out.detail = in.detail();
  out.unreachable = in.unreachable();
  return out;
}

Rung FromProto(const v1::Rung& in) {
  return {.engine = FromProto(in.engine()),
          .method = FromProto(in.method()),
          .what = in.what(),
          .left = in.left(),
          .iterations = in.iterations(),
          .relative_residual = in.relative_residual(),
          .setup_ms = in.setup_ms(),
          .solve_ms = in.solve_ms()};
}

Residual FromProto(const v1::Residual& in) {
  return {in.rhs(), in.iteration(), in.relative_residual()};
}

SolveFigures FromProto(const v1::SolveFigures& in) { return Read<SolveFigures>(in); }
Reuse FromProto(const v1::Reuse& in) { return Read<Reuse>(in); }

JobInfo FromProto(const v1::Job& in) {
  JobInfo out;
  out.name = in.name();
  out.kind = in.kind() == v1::JOB_KIND_SOLVE ? JobKind::kSolve : JobKind::kBuild;
  out.state = FromNumber(in.state(), JobState::kFailed);
  out.detached = in.detached();
  out.priority = FromNumber(in.priority(), Priority::kNormal);
  out.created = Time(in.create_time());
  if (in.has_start_time()) out.started = Time(in.start_time());
  if (in.has_end_time()) out.ended = Time(in.end_time());
  out.matrix = in.matrix();
  out.preconditioner = in.preconditioner();
  out.device = in.device();
  out.devices.assign(in.devices().begin(), in.devices().end());
  out.stage = FromProto(in.stage());
  out.done = in.done();
  out.total = in.total();
  if (in.has_error()) {
    Error error;
    const int code = in.error().code();
    error.code = code >= 1 && code <= 16 ? static_cast<Code>(code) : Code::kUnknown;
    error.reason = in.error().reason();
    error.message = in.error().message();
    out.error = std::move(error);
  }
  for (const v1::RhsOutcome& outcome : in.outcomes()) out.outcomes.push_back(FromProto(outcome));
  out.outcome_count = in.outcome_count();
  out.event_count = in.event_count();
  out.tenant = in.tenant();
  out.trace_id = in.trace_id();
  return out;
}

BuildEstimate FromProto(const v1::EstimateBuildResponse& in) {
  auto out = Read<BuildEstimate>(in);
  out.engine = FromProto(in.choice().engine());
  out.choice_reason = in.choice().reason();
  out.placement = in.choice().placement();
  return out;
}

ServerInfo FromProto(const v1::GetServerInfoResponse& in) {
  ServerInfo out;
  out.version = in.version();
  out.cuda_status = in.cuda_status();
  out.tenant = in.tenant();
  out.administrator = in.administrator();
  out.started = Time(in.start_time());
  for (const v1::Device& device : in.devices()) {
    auto& one = out.devices.emplace_back(Read<DeviceInfo>(device));
    if (one.kind == "unspecified") one.kind = "unknown";
  }
  for (const int engine : in.engines()) {
    out.engines.push_back(FromProto(static_cast<v1::EngineKind>(engine)));
  }
  for (const int method : in.methods()) {
    out.methods.push_back(FromProto(static_cast<v1::Method>(method)));
  }
  out.max_message_bytes = in.limits().max_message_bytes();
  out.max_matrix_bytes = in.limits().max_matrix_bytes();
  out.matrix_store_bytes = in.limits().matrix_store_bytes();
  out.preconditioner_store_bytes = in.limits().preconditioner_store_bytes();
  out.max_queued_jobs = in.limits().max_queued_jobs();
  out.max_rhs_count = in.limits().max_rhs_count();
  out.queued = in.queue().queued();
  out.running = in.queue().running();
  out.eta_ms = in.queue().eta_ms();
  for (const v1::EstimateRatio& ratio : in.queue().estimate_ratios()) {
    out.estimate_ratios.push_back(Read<EstimateRatio>(ratio));
  }
  out.draining = in.draining();
  return out;
}

Engine FromProto(v1::EngineKind in) { return FromNumber(in, Engine::kNone); }
Method FromProto(v1::Method in) { return FromNumber(in, Method::kAuto); }
Outcome FromProto(v1::Outcome in) { return FromNumber(in, Outcome::kBreakdown); }

std::optional<Stage> FromProto(v1::Stage in) {
  return wire::EnumFrom<Stage>(*v1::Stage_descriptor(), in);
}

std::optional<Precision> FromProto(v1::Precision in) {
  const Precision out = FromNumber(in, Precision::kAuto);
  return out == Precision::kAuto ? std::nullopt : std::optional(out);
}

v1::Priority ToProto(Priority in) { return ToNumber<v1::Priority>(in); }
v1::NullSpace ToProto(NullSpace in) { return ToNumber<v1::NullSpace>(in); }
v1::Part ToProto(const Part& in) {
  v1::Part out;
  out.set_level(in.level);
  out.set_kind(ToNumber<v1::PartKind>(in.kind));
  return out;
}
v1::ReusePolicy ToProto(const ReusePolicy& in) {
  v1::ReusePolicy out;
  out.set_mode(ToNumber<v1::ReuseMode>(in.mode));
  out.set_factor(in.factor);
  return out;
}
v1::JobState ToProto(JobState in) { return ToNumber<v1::JobState>(in); }

v1::PreconditionerSpec ToProto(const PreconditionerSpec& in) {
  v1::PreconditionerSpec out;
  out.set_engine(ToNumber<v1::EngineKind>(in.engine));
  VisitOptions(in, in.engine, [&out](const OptionInfo& option, const auto& member) {
    wire::Message* message = option.message != nullptr ? out.GetReflection()->MutableMessage(
                                                             &out, option.message, nullptr)
                                                       : &out;
    wire::Set(message, *option.field, member);
  });
  // One spec has one form.
  if (in.block_size == 1) out.clear_jacobi();
  if (in.learned == Learned::kOn) out.clear_automatic();
  return out;
}

void Set(const SolveOptions& in, v1::SolveHeader* out) {
  SolveOptions::Fields(in, [out](const char* name, const auto& member) {
    wire::Set(out, *wire::FindField(*out, name), member);
  });
}

}  // namespace spaid::internal
