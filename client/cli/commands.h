// Runs the commands. Each does its work, prints, and returns the exit code.
#pragma once

#include "client/cli/arguments.h"
#include "client/cli/session.h"

namespace CLI {
class App;
}

namespace spaid::cli {

ExitCode RunSolve(Session& session, const SolveArgs& args);
ExitCode RunBuild(Session& session, const BuildArgs& args);
ExitCode RunEstimate(Session& session, const EstimateArgs& args);
ExitCode RunUpload(Session& session, const UploadArgs& args);
ExitCode RunMatrices(Session& session, const ListArgs& args);
ExitCode RunPreconditioners(Session& session, const ListArgs& args);
ExitCode RunJobs(Session& session, const ListArgs& args);
ExitCode RunWatch(Session& session, const WatchArgs& args);
ExitCode RunCancel(Session& session, const CancelArgs& args);
ExitCode RunInfo(Session& session);
ExitCode RunCompare(Session& session, const CompareArgs& args);
ExitCode RunReport(Session& session, const ReportArgs& args);
// Needs no server.
ExitCode RunGallery(const Output& out, const GalleryArgs& args);

}  // namespace spaid::cli
