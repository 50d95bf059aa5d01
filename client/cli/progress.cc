#include "client/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "client/cli/describe.h"
#include "client/cli/output.h"
#include "client/cli/printable.h"
#include "client/cli/terminal.h"

namespace spaid::cli {
namespace {

constexpr int64_t kWorthALine = 1'000'000;  // bytes; smaller transfers are over before one reads it
constexpr auto kRedraw = std::chrono::milliseconds(80);
constexpr size_t kBarWidth = 24;

std::string Bar(double fraction) {
  const auto full = static_cast<size_t>(std::clamp(fraction, 0.0, 1.0) * kBarWidth);
  std::string bar(kBarWidth + 2, '.');
  bar.front() = '[';
  bar.back() = ']';
  std::fill_n(bar.begin() + 1, full, '#');
  return bar;
}

std::string Percent(double fraction) {
  return std::to_string(static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100)) + " %";
}

}  // namespace

ProgressReporter::Mode ProgressReporter::ModeFor(bool silent, FILE* stream) {
  if (silent) return Mode::kNone;
  if (isatty(fileno(stream)) != 1) return Mode::kLines;
  return TakesEscapes() ? Mode::kBar : Mode::kPlainBar;
}

void ProgressReporter::Report(const Progress& p) {
  if (mode_ == Mode::kNone) return;
  const double fraction =
      p.total > 0 ? static_cast<double>(p.done) / static_cast<double>(p.total) : -1;
  switch (p.kind) {
    case Progress::Kind::kTransfer: {
      const std::string name(Name(p.stage));
      const std::string of = p.total > 0 ? " of " + FormatBytes(p.total) : "";
      const bool lines = mode_ == Mode::kLines;
      if (lines && p.total < kWorthALine) break;
      Show(name, lines ? name + of : name + "  " + FormatBytes(p.done) + of, fraction);
      break;
    }
    case Progress::Kind::kMatrix:
      if (p.matrix != nullptr) {
        Show("matrix", "matrix on the server as " + p.matrix->name, -1);
      }
      break;
    case Progress::Kind::kQueued:
    case Progress::Kind::kHeartbeat:
      if (p.queue_position == 0 && (mode_ == Mode::kLines || p.kind != Progress::Kind::kQueued))
        break;
      Show("queued " + std::to_string(p.queue_position),
           "queued, " +
               (p.queue_position == 0 ? std::string("next")
                                      : FormatCount(p.queue_position) + " ahead") +
               (p.eta_ms > 0 ? ", starts in about " + FormatMs(p.eta_ms) : ""),
           -1);
      break;
    case Progress::Kind::kStarted:
      Show("started", "running on " + p.device, -1);
      break;
    case Progress::Kind::kStage: {
      const std::string name(Name(p.stage));
      const bool solve = p.stage == Stage::kSolve;
      // A build counts columns, rows or levels: which, its engine knows, and AUTO's may be any.
      const std::string total = FormatCount(p.total) + (solve ? " right-hand sides" : "");
      std::string text = name;
      if (mode_ != Mode::kLines) {
        text += "  " + FormatCount(p.done) + " of " + total;
      } else if (solve && p.total > 0) {
        text += ", " + total;
      }
      Show(name, text, fraction);
      break;
    }
    case Progress::Kind::kResiduals: {
      if (p.residuals.empty() || mode_ == Mode::kLines) break;
      const Residual& last = p.residuals.back();
      double way = -1;
      if (rtol_ > 0 && rtol_ < 1 && last.relative_residual > 0) {
        way = std::log(last.relative_residual) / std::log(rtol_);
      }
      Show("residual",
           "solve  iteration " + FormatCount(last.iteration) + ", residual " +
               FormatResidual(last.relative_residual),
           way);
      break;
    }
    case Progress::Kind::kRung:
      if (!p.rung->left.empty()) Show("rung " + p.rung->what, "left   " + Told(*p.rung), -1);
      break;
    case Progress::Kind::kQuality:
    case Progress::Kind::kFinished:
      break;
  }
}

void ProgressReporter::Show(const std::string& key, const std::string& news, double fraction) {
  const std::string line = Printable(news);
  const auto now = std::chrono::steady_clock::now();
  const bool fresh = key != last_key_;
  last_key_ = key;
  if (mode_ == Mode::kLines) {
    if (fresh) std::fprintf(stream_, "%s%s\n", prefix_.c_str(), line.c_str());
    return;
  }
  if (!fresh && now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  std::string text = prefix_ + line;
  if (fraction >= 0) text = Bar(fraction) + " " + Percent(fraction) + "  " + text;
  Draw(std::move(text));
}

void ProgressReporter::ShowLine(const std::string& text) {
  if (mode_ != Mode::kBar && mode_ != Mode::kPlainBar) return;
  last_key_.clear();
  Draw(prefix_ + text);
}

void ProgressReporter::Draw(std::string text) {
  text = text.substr(0, static_cast<size_t>(std::max(10, SizeOf(stream_).columns - 1)));
  if (mode_ == Mode::kBar) {
    std::fprintf(stream_, "\r\033[K%s", text.c_str());
  } else {
    const size_t size = text.size();
    if (size < drawn_size_) text.append(drawn_size_ - size, ' ');
    std::fprintf(stream_, "\r%s", text.c_str());
    drawn_size_ = size;
  }
  std::fflush(stream_);
  drawn_ = true;
}

void ProgressReporter::Clear() {
  if (drawn_ && mode_ == Mode::kBar) std::fprintf(stream_, "\r\033[K");
  if (drawn_ && mode_ == Mode::kPlainBar) {
    std::fprintf(stream_, "\r%s\r", std::string(drawn_size_, ' ').c_str());
  }
  if (drawn_) std::fflush(stream_);
  drawn_ = false;
  drawn_size_ = 0;
  last_key_.clear();
}

void ProgressReporter::Leave() {
  if (drawn_) std::fprintf(stream_, "\n");
  drawn_ = false;
  drawn_size_ = 0;
  last_key_.clear();
}

}  // namespace spaid::cli
