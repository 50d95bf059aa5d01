// Reports a job that outlives the command.
#pragma once

#include "client/cli/session.h"

namespace spaid::cli {

// Prints the job's name and how to come back to it.
ExitCode ReportDetached(const Session& session, const Job& job);

}  // namespace spaid::cli
