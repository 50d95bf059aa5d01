// spaidctl: parse, then hand over to the command.
#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>

#include "client/cli/app.h"
#include "client/cli/commands.h"
#include "client/cli/completion.h"
#include "client/cli/interrupt.h"

namespace spaid::cli {
namespace {

ExitCode RunOnServer(const Arguments& args) {
  Session session(args.global);
  switch (args.command) {
    case Command::kSolve:
      return RunSolve(session, args.solve);
    case Command::kBuild:
      return RunBuild(session, args.build);
    case Command::kEstimate:
      return RunEstimate(session, args.estimate);
    case Command::kUpload:
      return RunUpload(session, args.upload);
    case Command::kMatrices:
      return RunMatrices(session, args.list);
    case Command::kPreconditioners:
      return RunPreconditioners(session, args.list);
    case Command::kJobs:
      return RunJobs(session, args.list);
    case Command::kWatch:
      return RunWatch(session, args.watch);
    case Command::kCancel:
      return RunCancel(session, args.cancel);
    case Command::kCompare:
      return RunCompare(session, args.compare);
    case Command::kReport:
      return RunReport(session, args.report);
    case Command::kInfo:
    case Command::kGallery:
    case Command::kCompletion:
      break;
  }
  return RunInfo(session);
}

ExitCode Main(int argc, char** argv) {
  Arguments args;
  const std::unique_ptr<CLI::App> app = MakeApp(args);
  if (const auto leave = Parse(*app, argc, argv)) return *leave;
  const Output out(args.global);
  if (args.command == Command::kGallery) return RunGallery(out, args.gallery);
  if (args.command == Command::kCompletion) {
    const std::string script = CompletionScript(*app, args.shell);
    std::fwrite(script.data(), 1, script.size(), stdout);
    return out.Finish(ExitCode::kOk);
  }
  Interrupt::Install("spaidctl");
  return RunOnServer(args);
}

}  // namespace
}  // namespace spaid::cli

int main(int argc, char** argv) { return static_cast<int>(spaid::cli::Main(argc, argv)); }
