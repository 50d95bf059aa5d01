#include "client/cli/solve_progress.h"

#include <string>
#include <string_view>

#include "client/cli/residual_chart.h"

namespace spaid::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
// Rows of the terminal under which the chart would push out of sight what stands above it.
constexpr int kMinRows = kChartRows + 8;

}  // namespace

void SolveProgress::Report(const Progress& p) {
  const bool live =
      mode_ == ProgressReporter::Mode::kBar || mode_ == ProgressReporter::Mode::kPlainBar;
  if (!live) return reporter_.Report(p);
  switch (p.kind) {
    case Progress::Kind::kResiduals: {
      const auto now = std::chrono::steady_clock::now();
      track_.Add(p.residuals, now);
      finished_ = false;
      if (now - last_draw_ >= kRedraw) Draw(false);
      return;
    }
    case Progress::Kind::kHeartbeat:
      if (!track_.empty()) return;
      break;
    case Progress::Kind::kQueued:
    case Progress::Kind::kStarted:  // or started again, after a broken connection
      lines_.Erase();
      track_.Clear();
      break;
    case Progress::Kind::kTransfer:
      // That the last of b went out may be heard of after the first residuals.
      if (p.stage == Stage::kUpload && !track_.empty()) return;
      LeaveStanding();
      break;
    case Progress::Kind::kStage:
      // The next of several right-hand sides: the drawing goes on.
      if (p.stage == Stage::kSolve && p.done > 0) return;
      LeaveStanding();
      break;
    case Progress::Kind::kRung:
    case Progress::Kind::kFinished:
      LeaveStanding();
      break;
    case Progress::Kind::kMatrix:
    case Progress::Kind::kQuality:
      break;
  }
  reporter_.Report(p);
}

void SolveProgress::Draw(bool last) {
  if (track_.empty()) return;
  last_draw_ = std::chrono::steady_clock::now();
  const TerminalSize size = SizeOf(stream_);
  const bool chart = mode_ == ProgressReporter::Mode::kBar && LocaleIsUtf8() &&
                     size.columns >= kChartMinColumns && size.rows >= kMinRows;
  if (chart) {
    reporter_.Clear();
    lines_.Draw(ResidualChart(track_, size.columns, color_));
    if (last) lines_.Leave();
  } else {
    lines_.Erase();
    constexpr std::string_view kName = "solve  ";
    const int room = size.columns - 1 - static_cast<int>(kName.size());
    reporter_.ShowLine(std::string(kName) + track_.Status(room));
    if (last) reporter_.Leave();
  }
}

void SolveProgress::LeaveStanding() {
  if (!finished_) Draw(true);
  finished_ = true;
}

void SolveProgress::Finish() {
  LeaveStanding();
  reporter_.Clear();
}

}  // namespace spaid::cli
