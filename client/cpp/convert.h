// Between the wire's messages and the structs of types.h. Pure; nothing here can fail: an enum
// value that this client does not know becomes the closest one named below, as newer servers may
// send it.
#pragma once

#include "spaid/client.h"
#include "spaid/v1/job.pb.h"
#include "spaid/v1/matrix.pb.h"
#include "spaid/v1/preconditioner.pb.h"
#include "spaid/v1/preconditioner_spec.pb.h"
#include "spaid/v1/server.pb.h"
#include "spaid/v1/solve_types.pb.h"
#include "spaid/v1/solver.pb.h"
#include "spaid/v1/timings.pb.h"

namespace spaid::internal {

// Right-hand sides of one solve.
constexpr int32_t kMaxRhs = 1 << 20;

// As long as the server says, but within a year: what is counted on from there cannot overflow.
std::chrono::nanoseconds Span(const google::protobuf::Duration& in);

MatrixInfo FromProto(const v1::Matrix& in);
Timings FromProto(const v1::Timings& in);
Quality FromProto(const v1::BuildQuality& in);
PreconditionerSpec FromProto(const v1::PreconditionerSpec& in);
PreconditionerInfo FromProto(const v1::Preconditioner& in);
JobInfo FromProto(const v1::Job& in);
JobInfo::RhsOutcome FromProto(const v1::RhsOutcome& in);
Rung FromProto(const v1::Rung& in);
Residual FromProto(const v1::Residual& in);
SolveFigures FromProto(const v1::SolveFigures& in);
Reuse FromProto(const v1::Reuse& in);
BuildEstimate FromProto(const v1::EstimateBuildResponse& in);
ServerInfo FromProto(const v1::GetServerInfoResponse& in);
Engine FromProto(v1::EngineKind in);  // unknown: kNone
Method FromProto(v1::Method in);      // unknown: kAuto
Outcome FromProto(v1::Outcome in);    // unknown: kBreakdown, never kConverged
std::optional<Stage> FromProto(v1::Stage in);
std::optional<Precision> FromProto(v1::Precision in);

// A forged enum value goes out as -1, which the server refuses by its field.
v1::JobState ToProto(JobState in);
v1::Priority ToProto(Priority in);
v1::NullSpace ToProto(NullSpace in);
v1::Part ToProto(const Part& in);  // its level and kind
v1::ReusePolicy ToProto(const ReusePolicy& in);
// Options that in.engine does not read stay unset.
v1::PreconditionerSpec ToProto(const PreconditionerSpec& in);
// The options of the iteration.
void Set(const SolveOptions& in, v1::SolveHeader* out);

}  // namespace spaid::internal
