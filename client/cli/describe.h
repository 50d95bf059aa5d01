// Describes what the server tells in words, for several commands.
#pragma once

#include <string>

#include "client/cli/output.h"
#include "client/cpp/spaid/types.h"

namespace spaid::cli {

// Describe a matrix (its facts, then its findings), a preconditioner, a job.
std::string Describe(const MatrixInfo& info, bool color);
Facts MatrixFacts(const MatrixInfo& info);
std::string Describe(const PreconditionerInfo& info, bool color);
std::string Describe(const JobInfo& job, bool color);

// Returns "M", or "G (lower triangular, M = G'G)".
std::string MatrixOf(const CscMatrix& preconditioner);

// Returns the time of a preconditioner by phases: "(plan 3 ms, build 5 ms, …)".
std::string SetupPhases(const Timings& timings);

// Returns what a rung of engine AUTO came to, in a line.
std::string Told(const Rung& rung);

}  // namespace spaid::cli
