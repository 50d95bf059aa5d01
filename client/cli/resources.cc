// spaidctl matrices, preconditioners, jobs
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/commands.h"
#include "client/cli/describe.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/parts.h"
#include "client/cli/printable.h"

namespace spaid::cli {
namespace {

using nlohmann::json;
using Align = Table::Align;

template <class T>
json ListJson(const char* key, const std::vector<T>& items) {
  json list = json::array();
  for (const T& item : items) list.push_back(ToJson(item));
  return {{"command", key}, {key, std::move(list)}};
}

ExitCode Deleted(const Session& session, const std::string& name,
                 const std::optional<Error>& error) {
  if (error) return session.out.Fail(*error);
  if (session.out.json()) {
    session.out.PrintJson({{"deleted", name}});
  } else {
    session.out.Print("deleted " + name + "\n");
  }
  return session.out.Finish(ExitCode::kOk);
}

template <class T>
ExitCode ShowOne(const Session& session, const Expected<T>& item) {
  if (!item.ok()) return session.out.Fail(item.error());
  if (session.out.json()) {
    session.out.PrintJson(ToJson(*item));
  } else {
    session.out.Print(Printable(item->name) + "\n" + Describe(*item, session.out.color()));
  }
  return session.out.Finish(ExitCode::kOk);
}

}  // namespace

ExitCode RunMatrices(Session& session, const ListArgs& args) {
  const Interrupt::Guard guard("stopping");
  if (args.remove) {
    return Deleted(session, args.name, session.client.DeleteMatrix(args.name, session.Call()));
  }
  if (!args.name.empty()) {
    return ShowOne(session, session.client.GetMatrix(args.name, session.Call()));
  }
  auto all = session.client.ListMatrices(session.Call());
  if (!all.ok()) return session.out.Fail(all.error());
  if (session.out.json()) {
    session.out.PrintJson(ListJson("matrices", *all));
    return session.out.Finish(ExitCode::kOk);
  }
  Table table({{"matrix", Align::kLeft},
               {"n", Align::kRight},
               {"nnz", Align::kRight},
               {"memory", Align::kRight},
               {"created", Align::kLeft},
               {"label", Align::kLeft}});
  for (const MatrixInfo& info : *all) {
    table.Add({info.name, FormatCount(info.n), FormatCount(info.nnz), FormatBytes(info.host_bytes),
               FormatTime(info.created), info.label + (info.pattern_only ? " (pattern)" : "")});
  }
  session.out.Print(table.empty() ? "no matrices on the server\n"
                                  : table.Text(session.out.color()));
  return session.out.Finish(ExitCode::kOk);
}

ExitCode RunPreconditioners(Session& session, const ListArgs& args) {
  const Interrupt::Guard guard("stopping");
  if (args.remove) {
    return Deleted(session, args.name,
                   session.client.DeletePreconditioner(args.name, session.Call()));
  }
  if (!args.download.empty()) {
    const auto info = session.client.GetPreconditioner(args.name, session.Call());
    if (!info.ok()) return session.out.Fail(info.error());
    auto written = WriteM(session, *info, nullptr, args.download);
    if (!written.ok()) return session.out.Fail(written.error());
    if (session.out.json()) {
      session.out.PrintJson({{"preconditioner", args.name},
                             {"precond_file", args.download},
                             {"n", info->n},
                             {"nnz", info->nnz},
                             {"is_factor", info->is_factor}});
    } else {
      session.out.Print(*written + ": n " + FormatCount(info->n) + ", nnz " +
                        FormatCount(info->nnz) + "\n");
    }
    return session.out.Finish(ExitCode::kOk);
  }
  if (!args.name.empty()) {
    return ShowOne(session, session.client.GetPreconditioner(args.name, session.Call()));
  }
  auto all = session.client.ListPreconditioners(session.Call());
  if (!all.ok()) return session.out.Fail(all.error());
  if (session.out.json()) {
    session.out.PrintJson(ListJson("preconditioners", *all));
    return session.out.Finish(ExitCode::kOk);
  }
  Table table({{"preconditioner", Align::kLeft},
               {"engine", Align::kLeft},
               {"n", Align::kRight},
               {"nnz", Align::kRight},
               {"nnz ratio", Align::kRight},
               {"|AM - I|", Align::kRight},
               {"set-up", Align::kRight},
               {"matrix", Align::kLeft}});
  for (const PreconditionerInfo& info : *all) {
    table.Add({info.name, EngineText(info.spec), FormatCount(info.n), FormatCount(info.nnz),
               FormatFixed(info.quality.density, 2),
               info.quality.measured() ? FormatResidual(info.quality.residual_frobenius) : "-",
               FormatMs(info.build_timings.setup_ms()), info.matrix});
  }
  session.out.Print(table.empty() ? "no preconditioners on the server\n"
                                  : table.Text(session.out.color()));
  return session.out.Finish(ExitCode::kOk);
}

ExitCode RunJobs(Session& session, const ListArgs& args) {
  const Interrupt::Guard guard("stopping");
  if (!args.name.empty()) {
    return ShowOne(session, session.client.GetJob(args.name, session.AdminCall()));
  }
  const bool all_tenants = args.all_tenants;
  auto all = session.client.ListJobs(args.state, all_tenants ? session.AdminCall() : session.Call(),
                                     all_tenants);
  if (!all.ok()) return session.out.Fail(all.error());
  if (session.out.json()) {
    session.out.PrintJson(ListJson("jobs", *all));
    return session.out.Finish(ExitCode::kOk);
  }
  std::vector<std::pair<std::string, Align>> columns = {
      {"job", Align::kLeft},     {"kind", Align::kLeft}, {"state", Align::kLeft},
      {"created", Align::kLeft}, {"ran", Align::kRight}, {"says", Align::kLeft}};
  if (all_tenants) columns.emplace_back("tenant", Align::kLeft);
  Table table(std::move(columns));
  for (const JobInfo& job : *all) {
    std::string ran;
    if (job.started && job.ended) {
      ran = FormatMs(std::chrono::duration<double, std::milli>(*job.ended - *job.started).count());
    }
    std::string says;
    if (job.error) {
      says = job.error->reason;
    } else if (!job.outcomes.empty()) {
      says = UpperSnake(Name(job.outcomes.front().outcome)) + " after " +
             FormatCount(job.outcomes.front().iterations);
      if (job.outcome_count > 1) says += " (one of " + std::to_string(job.outcome_count) + ")";
    } else if (job.state == JobState::kRunning && job.stage) {
      says = std::string(Name(*job.stage)) + ", " + FormatCount(job.done) + " of " +
             FormatCount(job.total);
    }
    Style style = Style::kPlain;
    if (job.state == JobState::kFailed || job.state == JobState::kCancelled) style = Style::kBad;
    if (job.state == JobState::kRunning) style = Style::kBold;
    std::vector<Table::Cell> row = {job.name,
                                    std::string(Name(job.kind)),
                                    {std::string(Name(job.state)), style},
                                    FormatTime(job.created),
                                    ran,
                                    says};
    if (all_tenants) row.emplace_back(job.tenant);
    table.Add(std::move(row));
  }
  session.out.Print(table.empty() ? "no jobs\n" : table.Text(session.out.color()));
  return session.out.Finish(ExitCode::kOk);
}

}  // namespace spaid::cli
