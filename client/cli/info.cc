// spaidctl info
#include <nlohmann/json.hpp>

#include "client/cli/commands.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"

namespace spaid::cli {
namespace {

template <class E>
std::string NamesOf(const std::vector<E>& values) {
  std::string text;
  for (const E value : values) text += (text.empty() ? "" : ", ") + std::string(Name(value));
  return text;
}

std::string Limit(int64_t bytes) { return bytes > 0 ? FormatBytes(bytes) : "none"; }

}  // namespace

ExitCode RunInfo(Session& session) {
  const Interrupt::Guard guard("stopping");
  auto info = session.client.GetServerInfo(session.AdminCall());
  if (!info.ok()) return session.out.Fail(info.error());
  if (session.out.json()) {
    nlohmann::json object = ToJson(*info);
    object["command"] = "info";
    session.out.PrintJson(object);
    return session.out.Finish(ExitCode::kOk);
  }
  const bool color = session.out.color();
  Facts facts;
  facts.Add("version", info->version + (info->draining ? "  (draining: shutting down)" : ""),
            info->draining ? Style::kWarn : Style::kPlain);
  facts.Add("up since", FormatTime(info->started));
  facts.Add("you are", info->tenant + (info->administrator ? ", an administrator" : ""));
  facts.Add(info->administrator ? "queue" : "your jobs",
            FormatCount(info->running) + " running, " + FormatCount(info->queued) +
                " waiting of at most " + FormatCount(info->max_queued_jobs) +
                (info->eta_ms > 0 ? "; a new job starts in about " + FormatMs(info->eta_ms) : ""));
  facts.Add("engines", NamesOf(info->engines));
  facts.Add("methods", NamesOf(info->methods));
  facts.Add("matrices", "each at most " + Limit(info->max_matrix_bytes) + ", all at most " +
                            Limit(info->matrix_store_bytes));
  facts.Add("preconditioners", "all at most " + Limit(info->preconditioner_store_bytes));
  facts.Add("right-hand sides", "at most " + FormatCount(info->max_rhs_count) + " a solve");
  facts.Add("CUDA", info->cuda_status);
  std::string text = facts.Text(color) + "\n";
  Table devices({{"device", Table::Align::kLeft},
                 {"kind", Table::Align::kLeft},
                 {"model", Table::Align::kLeft},
                 {"memory", Table::Align::kRight},
                 {"threads", Table::Align::kRight},
                 {"state", Table::Align::kLeft}});
  for (const DeviceInfo& d : info->devices) {
    const std::string state = !d.healthy  ? "lost: " + d.unhealthy_reason
                              : !d.in_use ? "not used"
                              : d.memory_limit_bytes > 0
                                  ? "in use (" + FormatBytes(d.memory_used_bytes) + " of at most " +
                                        FormatBytes(d.memory_limit_bytes) + ")"
                                  : "in use";
    devices.Add({{d.name, Style::kBold},
                 d.kind,
                 d.model + (d.compute_capability.empty() ? "" : " (" + d.compute_capability + ")"),
                 FormatBytes(d.memory_bytes),
                 d.threads > 0 ? std::to_string(d.threads) : "",
                 {state, d.healthy ? Style::kPlain : Style::kBad}});
  }
  text += devices.Text(color);
  if (!info->estimate_ratios.empty()) {
    Table ratios({{"took, of what was predicted", Table::Align::kLeft},
                  {"device", Table::Align::kLeft},
                  {"ratio", Table::Align::kRight},
                  {"jobs", Table::Align::kRight}});
    for (const EstimateRatio& r : info->estimate_ratios) {
      ratios.Add({r.work, r.device, FormatFixed(r.ratio, 2), FormatCount(r.jobs)});
    }
    text += "\n" + ratios.Text(color);
  }
  session.out.Print(text);
  return session.out.Finish(ExitCode::kOk);
}

}  // namespace spaid::cli
