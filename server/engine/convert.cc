#include "server/engine/convert.h"

#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/amg/amg.h"
#include "kernels/engine/build_result.h"
#include "kernels/engine/options.h"
#include "proto/fields.h"
#include "server/base/status.h"
#include "server/engine/resolved_build.h"

namespace spaid {

// The names of the kernels' enums, as the wire has them in lower case with dashes.
namespace wire {

template <class E, size_t kCount>
std::string_view Pick(const std::string_view (&names)[kCount], E value) {
  const auto index = static_cast<size_t>(value);
  return index < kCount ? names[index] : "unknown";
}

template <>
struct EnumNames<kernels::EngineKind> {
  static std::string_view Of(kernels::EngineKind value) { return kernels::TraitsOf(value).name; }
};
template <>
struct EnumNames<kernels::LocalSolver> {
  static std::string_view Of(kernels::LocalSolver value) {
    return Pick({"auto", "qr", "gram"}, value);
  }
};
template <>
struct EnumNames<kernels::ThreadStrategy> {
  static std::string_view Of(kernels::ThreadStrategy value) {
    return Pick({"auto", "constant", "variable", "paper"}, value);
  }
};
template <>
struct EnumNames<kernels::Precision> {
  static std::string_view Of(kernels::Precision value) {
    return Pick({"auto", "fp64", "fp32"}, value);
  }
};
template <>
struct EnumNames<kernels::ScalingMode> {
  static std::string_view Of(kernels::ScalingMode value) {
    return Pick({"none", "equilibrate", "matching", "auto"}, value);
  }
};
template <>
struct EnumNames<kernels::Method> {
  static std::string_view Of(kernels::Method value) {
    return Pick({"auto", "cg", "bicgstab", "gmres", "minres", "idr"}, value);
  }
};
template <>
struct EnumNames<kernels::Coarsening> {
  static std::string_view Of(kernels::Coarsening value) {
    return Pick({"smoothed-aggregation", "plain-aggregation", "classical"}, value);
  }
};
template <>
struct EnumNames<kernels::CycleKind> {
  static std::string_view Of(kernels::CycleKind value) { return Pick({"v", "w"}, value); }
};
template <>
struct EnumNames<kernels::ParasailsSymmetry> {
  static std::string_view Of(kernels::ParasailsSymmetry value) {
    return Pick({"auto", "general", "spd"}, value);
  }
};
template <>
struct EnumNames<kernels::BoomeramgCoarsening> {
  static std::string_view Of(kernels::BoomeramgCoarsening value) {
    return Pick({"hmis", "pmis", "falgout", "cljp"}, value);
  }
};
template <>
struct EnumNames<kernels::BoomeramgInterpolation> {
  static std::string_view Of(kernels::BoomeramgInterpolation value) {
    return Pick({"extended", "classical", "direct", "standard", "multipass"}, value);
  }
};
template <>
struct EnumNames<kernels::AmgPartKind> {
  static std::string_view Of(kernels::AmgPartKind value) {
    return Pick({"scale", "a", "p", "r", "smoother", "near-null", "coarse-inverse"}, value);
  }
};
template <>
struct EnumNames<kernels::NullSpaceChoice> {
  static std::string_view Of(kernels::NullSpaceChoice value) {
    return Pick({"auto", "none", "constants", "given"}, value);
  }
};
template <>
struct EnumNames<server::ReuseMode> {
  static std::string_view Of(server::ReuseMode value) {
    return Pick({"keep", "rebuild", "auto"}, value);
  }
};
template <>
struct EnumNames<kernels::Outcome> {
  static std::string_view Of(kernels::Outcome value) {
    return Pick({"converged", "max-iterations", "stagnated", "breakdown", "indefinite",
                 "non-finite", "time-limit", "cancelled"},
                value);
  }
};
template <>
struct EnumNames<kernels::Stage> {
  static std::string_view Of(kernels::Stage value) {
    return Pick({"plan", "build", "assemble", "solve"}, value);
  }
};
template <>
struct EnumNames<kernels::Layout> {
  static std::string_view Of(kernels::Layout value) { return Pick({"csc", "csr"}, value); }
};
template <>
struct EnumNames<server::Priority> {
  static std::string_view Of(server::Priority value) {
    return Pick({"interactive", "normal", "bulk"}, value);
  }
};

}  // namespace wire

namespace server {
namespace {

using absl::StatusCode;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Path(std::string_view prefix, std::string_view name) {
  if (prefix.empty()) return std::string(name);
  if (name.empty()) return std::string(prefix);
  return std::string(prefix) + "." + std::string(name);
}

ErrorBuilder Bad(std::string_view why, std::string field, const std::string& text) {
  const std::string message = field + " " + text;
  return MakeError(StatusCode::kInvalidArgument, why, message).Field(std::move(field));
}

absl::Status UnknownEnum(std::string field, const google::protobuf::EnumDescriptor& type,
                         int number) {
  return Bad(reason::kUnknownEnum, std::move(field),
             absl::StrCat("is ", number, number == 0 ? " (unspecified)" : ", which is unknown here",
                          "; give one of ", wire::ValueNames(type)));
}

// `E`: of the wire. Unspecified is refused.
template <class T, class E>
absl::StatusOr<T> ParseEnum(E number, std::string field) {
  const auto& type = *google::protobuf::GetEnumDescriptor<E>();
  if (const auto value = wire::EnumFrom<T>(type, number)) return *value;
  return UnknownEnum(std::move(field), type, number);
}

template <class E, class T>
E EnumOf(T value) {
  return static_cast<E>(wire::EnumNumber(*google::protobuf::GetEnumDescriptor<E>(), value));
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(const google::protobuf::Duration& duration,
                                                       std::string field,
                                                       std::string_view why = reason::kBadLimit) {
  constexpr int64_t kTenYears = int64_t{10} * 365 * 24 * 3600;
  const bool positive = duration.seconds() > 0 || (duration.seconds() == 0 && duration.nanos() > 0);
  if (!positive || duration.seconds() > kTenYears || duration.nanos() < 0 ||
      duration.nanos() > 999'999'999) {
    return Bad(why, std::move(field),
               absl::StrCat("is ", duration.seconds(), " s and ", duration.nanos(),
                            " ns; give a time over 0 and under ten years, or leave it unset"));
  }
  return std::chrono::seconds(duration.seconds()) + std::chrono::nanoseconds(duration.nanos());
}

// Reads what the message says of one option. `path`: of the field.
template <class T>
absl::Status ParseOption(const Message& from, const FieldDescriptor& field, std::string path,
                         T* to) {
  if constexpr (std::is_enum_v<T>) {
    const int number = from.GetReflection()->GetEnumValue(from, &field);
    const bool missing = number == 0 && wire::OptionOf(field).required();
    if (missing || !wire::Get(from, field, to)) {
      return UnknownEnum(std::move(path), *field.enum_type(), number);
    }
  } else if constexpr (std::is_same_v<T, double>) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      wire::Get(from, field, to);
    } else if (!wire::IsUnset(from, field)) {  // milliseconds of a Duration: FSAI's
      const auto& duration = static_cast<const google::protobuf::Duration&>(
          from.GetReflection()->GetMessage(from, &field));
      ASSIGN_OR_RETURN(const std::chrono::nanoseconds time,
                       ParseDuration(duration, std::move(path), reason::kBadFsaiOption));
      *to = std::chrono::duration<double, std::milli>(time).count();
    }
  } else {
    wire::Get(from, field, to);
  }
  return absl::OkStatus();
}

// Ranges are not checked here: that is the kernels' task.
template <class Options>
absl::Status ParseOptions(const Message& from, const std::string& path, Options* to) {
  absl::Status status;
  Options::Fields(*to, [&](const char* name, auto& member, const auto&) {
    const FieldDescriptor* field = wire::FindField(from, name);
    if (field == nullptr || !status.ok()) return;  // some options are the kernels' own
    status = ParseOption(from, *field, Path(path, name), &member);
  });
  return status;
}

template <class Options>
void SetOptions(const Options& from, std::string_view engine, Message* to) {
  Options::Fields(from, [&](const char* name, const auto& member, const auto&) {
    const FieldDescriptor* field = wire::FindField(*to, name);
    if (field == nullptr || !wire::Reads(*field, engine)) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, double>) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        if (member > 0) wire::SetNanoseconds(to, *field, std::llround(member * 1e6));
        return;
      }
    }
    wire::Set(to, *field, member);
  });
}

template <class Figures>
void SetFigures(const Figures& from, Message* to) {
  from.Figures([to](const char* name, const auto& figure) {
    wire::Set(to, *wire::FindField(*to, name), figure);
  });
}

absl::StatusOr<bool> ParseLearned(const v1::AutoSpec& spec, const std::string& path) {
  switch (spec.learned()) {
    case v1::LEARNED_UNSPECIFIED:
    case v1::LEARNED_ON:
      return true;
    case v1::LEARNED_OFF:
      return false;
    default:
      return UnknownEnum(Path(path, "learned"), *v1::Learned_descriptor(), spec.learned());
  }
}

absl::StatusOr<ReusePolicy> ParseReuse(const v1::SolveHeader& header, const std::string& path) {
  ReusePolicy policy;
  const v1::ReusePolicy& reuse = header.reuse();
  if (reuse.mode() != v1::REUSE_MODE_UNSPECIFIED) {
    ASSIGN_OR_RETURN(policy.mode, ParseEnum<ReuseMode>(reuse.mode(), Path(path, "mode")));
    if (header.preconditioning_case() != v1::SolveHeader::kPreconditioner) {
      return Bad(reason::kBadReuse, Path(path, "mode"),
                 "says what becomes of a preconditioner that is named, and none is; set "
                 "`preconditioner` to the handle of an earlier one, or leave the mode unset");
    }
  }
  if (reuse.factor() == 0) return policy;
  policy.factor = reuse.factor();
  if (!(policy.factor >= 1) || !std::isfinite(policy.factor)) {
    return Bad(reason::kBadReuse, Path(path, "factor"),
               absl::StrCat("is ", policy.factor, "; give a finite number, 1 or more, or 0 for ",
                            kReuseFactor));
  }
  return policy;
}

const char* FieldOf(GivenMatrix::As as) {
  switch (as) {
    case GivenMatrix::As::kPattern:
      return "pattern_matrix";
    case GivenMatrix::As::kNearNullSpace:
      return "near_null_space";
    case GivenMatrix::As::kCoordinates:
      return "coordinates";
  }
  return "";
}

// Reads which matrix comes along; at most one does.
absl::Status ParseGiven(const Message& from, const std::string& path, GivenMatrix* to) {
  using As = GivenMatrix::As;
  for (const As as : {As::kPattern, As::kNearNullSpace, As::kCoordinates}) {
    const FieldDescriptor* field = wire::FindField(from, FieldOf(as));
    std::string handle;
    if (field != nullptr) wire::Get(from, *field, &handle);
    if (handle.empty()) continue;
    if (!to->handle.empty()) {
      return Bad(reason::kBadAmgOption, Path(path, FieldOf(as)),
                 absl::StrCat("stands beside ", FieldOf(to->as), "; set one of them"));
    }
    *to = {std::move(handle), as};
  }
  return absl::OkStatus();
}

// Refuses options that say something of A's own pattern beside one that replaces it.
absl::Status CheckUserPattern(const ParsedSpec& parsed, std::string_view field) {
  if (parsed.given.handle.empty() || parsed.given.as != GivenMatrix::As::kPattern) {
    return absl::OkStatus();
  }
  const auto refuse = [&](std::string_view why, std::string_view name, const char* does) {
    return Bad(why, Path(field, name),
               absl::StrCat(does,
                            " the pattern of the matrix itself and says nothing of "
                            "pattern_matrix; set one of them"));
  };
  const kernels::PreconditionerSpec& spec = parsed.spec;
  if (spec.engine == kernels::EngineKind::kFsai) {
    if (spec.fsai.drop_tol > 0) return refuse(reason::kBadFsaiOption, "fsai.drop_tol", "shapes");
    if (spec.fsai.power > 1) return refuse(reason::kBadFsaiOption, "fsai.pattern_power", "shapes");
  }
  if (spec.static_spai.pattern.keep_tau) {
    return refuse(reason::kBadKeepTau, "static_spai.keep_tau", "thresholds");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ToAbsl(const kernels::Status& status, std::string_view field_prefix) {
  if (status.ok()) return absl::OkStatus();
  ErrorBuilder error = MakeError(static_cast<StatusCode>(static_cast<int>(status.code())),
                                 status.reason(), status.message());
  if (!status.field().empty()) {
    error = std::move(error).Field(Path(field_prefix, status.field()));
  }
  if (status.index() >= 0) error = std::move(error).Index(status.index());
  return error;
}

absl::StatusOr<ParsedSpec> ParseSpec(const v1::PreconditionerSpec& spec, std::string_view field) {
  ParsedSpec parsed;
  ASSIGN_OR_RETURN(parsed.spec.engine,
                   ParseEnum<kernels::EngineKind>(spec.engine(), Path(field, "engine")));
  const std::string_view engine = Name(parsed.spec.engine);
  const auto read = [&](const FieldDescriptor& message) {
    return wire::Reads(message, engine) && !wire::IsUnset(spec, message);
  };
  absl::Status status;
  kernels::PreconditionerSpec::EachOptions(parsed.spec, [&](const char* name, auto& options) {
    const FieldDescriptor& message = *wire::FindField(spec, name);
    if (!status.ok() || !read(message)) return;
    const Message& from = spec.GetReflection()->GetMessage(spec, &message);
    status = ParseOptions(from, Path(field, name), &options);
    if (status.ok()) status = ParseGiven(from, Path(field, name), &parsed.given);
    if (const auto* regrow = wire::FindField(from, "regrow")) {
      wire::Get(from, *regrow, &parsed.regrow);
    }
  });
  RETURN_IF_ERROR(status);
  wire::Get(spec, *wire::FindField(spec, "regrow"), &parsed.regrow);
  if (parsed.spec.engine == kernels::EngineKind::kAuto) {
    parsed.spec.scaling = kernels::ScalingMode::kAuto;
  }
  RETURN_IF_ERROR(ParseOption(spec, *wire::FindField(spec, "scaling"), Path(field, "scaling"),
                              &parsed.spec.scaling));
  const FieldDescriptor& jacobi = *wire::FindField(spec, "jacobi");
  if (read(jacobi) && spec.jacobi().block_size() != 0) {
    parsed.spec.block_size = spec.jacobi().block_size();
  }
  const FieldDescriptor& automatic = *wire::FindField(spec, "automatic");
  if (read(automatic)) {
    ASSIGN_OR_RETURN(parsed.learned, ParseLearned(spec.automatic(), Path(field, "automatic")));
  }
  if (const kernels::Status bad = kernels::CheckSpec(parsed.spec); !bad.ok()) {
    if (wire::FindField(spec, bad.field().c_str()) != nullptr) return ToAbsl(bad, field);
    std::string message = "jacobi";
    kernels::PreconditionerSpec::EachOptions(parsed.spec, [&](const char* name, const auto&) {
      const FieldDescriptor& one = *wire::FindField(spec, name);
      const bool has = one.message_type()->FindFieldByName(bad.field()) != nullptr;
      if (has && wire::Reads(one, engine)) message = name;
    });
    return ToAbsl(bad, Path(field, message));
  }
  RETURN_IF_ERROR(CheckUserPattern(parsed, field));
  return parsed;
}

v1::PreconditionerSpec ToProto(const kernels::PreconditionerSpec& spec, const GivenMatrix& given,
                               bool regrow) {
  v1::PreconditionerSpec proto;
  proto.set_engine(ToProto(spec.engine));
  const std::string_view engine = Name(spec.engine);
  kernels::PreconditionerSpec::EachOptions(spec, [&](const char* name, const auto& options) {
    const FieldDescriptor& message = *wire::FindField(proto, name);
    if (!wire::Reads(message, engine)) return;
    Message* to = proto.GetReflection()->MutableMessage(&proto, &message);
    SetOptions(options, engine, to);
    if (!given.handle.empty())
      wire::Set(to, *wire::FindField(*to, FieldOf(given.as)), given.handle);
    const FieldDescriptor* field = wire::FindField(*to, "regrow");
    if (field != nullptr && wire::Reads(*field, engine)) wire::Set(to, *field, regrow);
  });
  if (spec.block_size != 1) proto.mutable_jacobi()->set_block_size(spec.block_size);
  // One spec has one form: a default is left out.
  const bool by_default = spec.engine == kernels::EngineKind::kAuto
                              ? spec.scaling == kernels::ScalingMode::kAuto
                              : spec.scaling == kernels::ScalingMode::kNone;
  if (!by_default) proto.set_scaling(EnumOf<v1::Scaling>(spec.scaling));
  proto.set_regrow(regrow);
  return proto;
}

absl::StatusOr<ParsedSolve> ParseSolve(const v1::SolveHeader& header, std::string_view field) {
  ParsedSolve parsed;
  parsed.options.rtol = 0;  // the wire has no default: 0 is 0
  RETURN_IF_ERROR(ParseOptions(header, std::string(field), &parsed.options));
  if (const kernels::Status bad = kernels::CheckSolveOptions(parsed.options); !bad.ok()) {
    return ToAbsl(bad, field);
  }
  if (header.rhs_count() < 0 || header.rhs_count() > kMaxRhsCount) {
    return Bad(
        reason::kBadRhsCount, Path(field, "rhs_count"),
        absl::StrCat("is ", header.rhs_count(), "; give 1 to ", kMaxRhsCount, ", or 0 for 1"));
  }
  parsed.rhs_count = header.rhs_count() == 0 ? 1 : header.rhs_count();
  if (header.null_space() != v1::NULL_SPACE_UNSPECIFIED) {
    ASSIGN_OR_RETURN(parsed.null_space, ParseEnum<kernels::NullSpaceChoice>(
                                            header.null_space(), Path(field, "null_space")));
  }
  if (header.null_vectors() < 0 || header.null_vectors() > kernels::kMostNullVectors) {
    return Bad(reason::kBadNullSpace, Path(field, "null_vectors"),
               absl::StrCat("is ", header.null_vectors(), "; give 1 to ", kernels::kMostNullVectors,
                            ", or 0 for none"));
  }
  if (header.null_vectors() > 0) {
    if (parsed.null_space != kernels::NullSpaceChoice::kAuto) {
      return Bad(reason::kBadNullSpace, Path(field, "null_space"),
                 "says what to project out beside null_vectors, which do; leave one of them unset");
    }
    parsed.null_space = kernels::NullSpaceChoice::kGiven;
    parsed.null_vectors = header.null_vectors();
  }
  ASSIGN_OR_RETURN(parsed.reuse, ParseReuse(header, Path(field, "reuse")));
  return parsed;
}

absl::StatusOr<JobLimits> ParseLimits(const v1::JobLimits& limits, std::string_view field) {
  JobLimits parsed;
  if (limits.has_max_queue()) {
    ASSIGN_OR_RETURN(parsed.max_queue, ParseDuration(limits.max_queue(), Path(field, "max_queue")));
  }
  if (limits.has_max_run()) {
    ASSIGN_OR_RETURN(parsed.max_run, ParseDuration(limits.max_run(), Path(field, "max_run")));
  }
  return parsed;
}

absl::StatusOr<Priority> ParsePriority(v1::Priority priority, std::string_view field) {
  if (priority == v1::PRIORITY_UNSPECIFIED) return Priority::kNormal;
  return ParseEnum<Priority>(priority, std::string(field));
}

absl::StatusOr<kernels::Layout> ParseLayout(v1::Layout layout, std::string_view field) {
  return ParseEnum<kernels::Layout>(layout, std::string(field));
}

v1::EngineKind ToProto(kernels::EngineKind kind) { return EnumOf<v1::EngineKind>(kind); }
v1::PartKind ToProto(kernels::AmgPartKind kind) { return EnumOf<v1::PartKind>(kind); }
v1::Method ToProto(kernels::Method method) { return EnumOf<v1::Method>(method); }
v1::Outcome ToProto(kernels::Outcome outcome) { return EnumOf<v1::Outcome>(outcome); }
v1::Stage ToProto(kernels::Stage stage) { return EnumOf<v1::Stage>(stage); }

v1::Precision ToProto(kernels::Storage storage) {
  return storage == kernels::Storage::kAuto ? v1::PRECISION_UNSPECIFIED
                                            : EnumOf<v1::Precision>(storage);
}

v1::Diagnosis ToProto(const kernels::Diagnosis& from, bool findings) {
  v1::Diagnosis to;
  SetFigures(from, &to);
  if (findings) to.mutable_findings()->Assign(from.findings.begin(), from.findings.end());
  return to;
}

v1::BuildQuality ToProto(const kernels::Quality& from) {
  v1::BuildQuality to;
  if (from.fsai || from.amg || from.petsc) {  // know no residuals of M
    to.set_worst_column(-1);
    to.set_density(from.density);
  } else {
    SetFigures(from, &to);
  }
  from.EachEngine([&](const char* name, const auto& own) {
    if (!own) return;
    Message* message = to.GetReflection()->MutableMessage(&to, wire::FindField(to, name));
    SetFigures(*own, message);
    if (const FieldDescriptor* reused = wire::FindField(*message, "pattern_reused")) {
      wire::Set(message, *reused, from.pattern_reused);
    }
  });
  if (from.scaling != kernels::ScalingMode::kNone) {
    to.set_scaling(EnumOf<v1::Scaling>(from.scaling));
    to.set_scaling_reused(from.scaling_reused);
  }
  to.mutable_warnings()->Assign(from.warnings.begin(), from.warnings.end());
  return to;
}

v1::Part ToProto(const kernels::AmgPart& from) {
  v1::Part to;
  to.set_level(from.level);
  to.set_kind(ToProto(from.kind));
  to.set_rows(from.rows);
  to.set_columns(from.cols);
  to.set_nnz(from.nnz);
  if (from.kind != kernels::AmgPartKind::kSmoother) return to;
  to.set_smoother(EnumOf<v1::Smoother>(from.smoother));
  to.set_rho(from.rho);
  to.set_omega(from.omega);
  to.mutable_coefficients()->Assign(from.coefficients.begin(), from.coefficients.end());
  return to;
}

v1::SolveFigures ToProto(const kernels::SolveFigures& from, double copy_bytes_per_second) {
  v1::SolveFigures to;
  SetFigures(from, &to);
  to.set_copy_bytes_per_second(copy_bytes_per_second);
  if (from.iterate_ms > 0) {
    to.set_iterations_per_second(1e3 * static_cast<double>(from.iterations) / from.iterate_ms);
    to.set_bytes_per_second(1e3 * from.bytes / from.iterate_ms);
  }
  if (copy_bytes_per_second > 0) {
    to.set_copy_share(to.bytes_per_second() / copy_bytes_per_second);
  }
  return to;
}

v1::RhsOutcome ToProto(const kernels::RhsResult& from) {
  v1::RhsOutcome to;
  to.set_outcome(ToProto(from.outcome));
  to.set_iterations(from.iterations);
  to.set_true_residual(from.true_residual);
  to.set_true_relative_residual(from.true_relative_residual);
  to.set_detail(from.detail);
  to.set_unreachable(from.unreachable);
  return to;
}

v1::Rung ToProto(const kernels::Rung& from) {
  v1::Rung to;
  to.set_engine(ToProto(from.engine));
  to.set_method(ToProto(from.method));
  to.set_what(from.what);
  to.set_left(from.left);
  to.set_iterations(from.iterations);
  to.set_relative_residual(from.relative_residual);
  to.set_setup_ms(from.setup_ms);
  to.set_solve_ms(from.solve_ms);
  return to;
}

std::string_view Name(kernels::EngineKind kind) { return kernels::TraitsOf(kind).name; }
std::string_view Name(kernels::Method method) {
  return wire::EnumNames<kernels::Method>::Of(method);
}
std::string_view Name(kernels::Outcome outcome) {
  return wire::EnumNames<kernels::Outcome>::Of(outcome);
}

}  // namespace server
}  // namespace spaid
