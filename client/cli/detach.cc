#include "client/cli/detach.h"

#include <nlohmann/json.hpp>

#include "client/cli/printable.h"

namespace spaid::cli {

ExitCode ReportDetached(const Session& session, const Job& job) {
  if (session.out.json()) {
    session.out.PrintJson({{"job", job.name()}, {"detached", true}, {"matrix", job.matrix()}});
  } else {
    session.out.Print(Printable(job.name()) + "\n");
    session.out.Note("the job goes on; follow it with: spaidctl watch " + job.name());
  }
  return session.out.Finish(ExitCode::kOk);
}

}  // namespace spaid::cli
