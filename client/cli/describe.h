// Words for what the server tells, shared by several commands.
#pragma once

#include <string>

#include "client/cli/output.h"
#include "client/cpp/spaid/client.h"

namespace spaid::cli {

// The matrix's facts, then its findings.
std::string Describe(const MatrixInfo& info, bool color);
std::string Describe(const PreconditionerInfo& info, bool color);
std::string Describe(const JobInfo& job, bool color);

// "M", or "G (lower triangular, M = G'G)".
std::string MatrixOf(const CscMatrix& preconditioner);

// "(plan 3 ms, build 5 ms, …)": where the time of a preconditioner went.
std::string SetupPhases(const Timings& timings);

}  // namespace spaid::cli
