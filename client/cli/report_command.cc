// spaidctl report
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/app.h"
#include "client/cli/byte_file.h"
#include "client/cli/commands.h"
#include "client/cli/comparison.h"
#include "client/cli/convergence_plot.h"
#include "client/cli/interrupt.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/operators.h"
#include "client/cli/report/report.h"

namespace spaid::cli {
namespace {

constexpr int kLengthBins = 32;

// A file whose header says `pattern` is looked at all the same.
Expected<ComparedSystem> ReadForReport(Session& session, const CompareArgs& args) {
  auto system = ReadSystem(session, args);
  if (!system.ok() && system.error().reason == "MATRIX_PATTERN") {
    auto pattern = OpenMatrix(args.matrix, true);
    if (!pattern.ok()) return pattern.error();
    ComparedSystem without_values;
    without_values.source = *std::move(pattern);
    without_values.pattern_only = true;
    return without_values;
  }
  if (system.ok() && !system->source.local) {
    return LocalError("REPORT_NEEDS_MATRIX",
                      args.matrix.matrix +
                          ": a report draws the matrix and multiplies by it, and needs its file, "
                          "not its handle; give the file (it is not sent again)");
  }
  return system;
}

// Runs everything that the report tells, one after the other.
class Gathering {
 public:
  Gathering(Session& session, const ReportArgs& args, Report& report, Comparison& comparison,
            ProgressReporter& reporter)
      : session_(session),
        args_(args.compare),
        report_(report),
        comparison_(comparison),
        reporter_(reporter) {}

  // An error is one that ends all.
  std::optional<Error> Run() {
    // AUTO first: it would find there what the comparison has built.
    if (auto error = SolveByAuto()) return error;
    if (auto error = comparison_.Run()) return error;
    if (report_.ritz_options.steps == 0) return std::nullopt;
    if (auto error = AddSpectrum(EngineTitle(Engine::kNone, 0, 1), nullptr)) return error;
    return AddSpectraOfM();
  }

 private:
  const CscMatrix& a() const { return *report_.system.source.local; }

  std::optional<Error> SolveByAuto() {
    SolveOptions options = args_.options;
    options.spec = report_.system.base;
    options.spec.engine = options.engine = Engine::kAuto;
    // The page tells the whole climb, and the daemon is as it was.
    options.spec.learned = Learned::kOff;
    options.method = Method::kAuto;
    options.omit_solution = true;
    report_.auto_run.spec = options.spec;
    session_.Announce("auto", reporter_);
    auto solved = session_.client.Solve(report_.system.matrix.name, report_.system.b, options,
                                        session_.Call(args_.limits, reporter_));
    reporter_.Clear();
    if (!solved.ok()) {
      if (EndsAll(solved.error())) return solved.error();
      report_.auto_run.error = solved.error();
    } else if (solved->rhs.empty()) {
      report_.auto_run.error = NoOutcome();
    } else {
      report_.auto_run.solved = *std::move(solved);
    }
    return std::nullopt;
  }

  std::optional<Error> AddSpectrum(const std::string& name, const CscMatrix* m) {
    session_.Announce("Ritz values: " + name, reporter_);
    const bool symmetric = report_.system.matrix.diagnosis.numerically_symmetric;
    const SpectrumOperator op = OperatorOf(a(), symmetric, m);
    Spectrum spectrum{
        .name = name, .of_a = m == nullptr, .operator_name = op.name, .ritz = {}, .left_out = {}};
    spectrum.ritz = op.symmetric ? Lanczos(op.apply, a().n, report_.ritz_options)
                                 : Arnoldi(op.apply, a().n, report_.ritz_options);
    if (spectrum.ritz.end == RitzEnd::kStopped) {
      Error error = LocalError("STOP_REQUESTED", "stopped; no page was written");
      error.code = Code::kCancelled;
      return error;
    }
    report_.spectra.push_back(std::move(spectrum));
    return std::nullopt;
  }

  void LeaveOut(const std::string& name, std::string why) {
    report_.spectra.push_back(
        {.name = name, .of_a = false, .operator_name = {}, .ritz = {}, .left_out = std::move(why)});
  }

  std::optional<Error> AddSpectraOfM() {
    const PreconditionerInfo* last = nullptr;
    size_t count = 0;
    for (const ComparedRow& row : comparison_.rows()) {
      if (!row.m || row.m.get() == last) continue;
      last = row.m.get();
      const std::string name =
          EngineTitle(row.spec.engine, row.spec.pattern_power, row.spec.block_size);
      if (const std::string why = WhyLeftOut(*row.m, count++); !why.empty()) {
        LeaveOut(name, why);
        continue;
      }
      session_.Announce(name + ": M", reporter_);
      // It is there, or is built again where the server has given it up.
      auto built = session_.client.Build(report_.system.matrix.name, row.spec, true,
                                         session_.Call(args_.limits, reporter_));
      reporter_.Clear();
      if (!built.ok()) {
        if (EndsAll(built.error())) return built.error();
        LeaveOut(name, built.error().reason + ": " + built.error().message);
      } else if (const std::string why = WhyUnfit(a(), built->m); !why.empty()) {
        LeaveOut(name, why);
      } else if (auto error = AddSpectrum(name, &*built->m)) {
        return error;
      }
    }
    return std::nullopt;
  }

  Session& session_;
  const CompareArgs& args_;
  Report& report_;
  Comparison& comparison_;
  ProgressReporter& reporter_;
};

std::optional<Error> WritePage(const std::string& path, const std::string& page) {
  if (path == "-") {
    std::fwrite(page.data(), 1, page.size(), stdout);
    return std::nullopt;  // Output::Finish sees whether it went out
  }
  auto writer = ByteWriter::Open(path);
  if (!writer.ok()) return writer.error();
  std::fwrite(page.data(), 1, page.size(), writer->file());
  return writer->Commit();
}

std::string SummaryOf(const Report& report, const std::string& out, size_t bytes) {
  const MatrixInfo& matrix = report.system.matrix;
  std::string text = report.args.matrix.matrix + "   n " + FormatCount(matrix.n) + "   nnz " +
                     FormatCount(matrix.nnz);
  const int best = Best(report.rows);
  if (report.system.pattern_only) {
    text += "   pattern only: nothing was solved";
  } else if (best < 0) {
    text += "   nothing converged";
  } else {
    const ComparedRow& row = report.rows[static_cast<size_t>(best)];
    text += "   best: " + TitleOf(row, report.args.options) + ", " + FormatMs(row.total_ms());
  }
  return text + "\nreport: " + out + ", " + FormatBytes(static_cast<int64_t>(bytes));
}

}  // namespace

ExitCode RunReport(Session& session, const ReportArgs& args) {
  const bool to_stdout = args.out == "-";
  if (to_stdout && session.out.json()) {
    session.out.Fail(
        LocalError("WRONG_USAGE", "--json and --out=- both write to standard output; name a file"));
    return ExitCode::kUsage;
  }
  if (!to_stdout) {
    if (auto error = ByteWriter::Check(args.out)) return session.out.Fail(*error);
  }
  auto system = ReadForReport(session, args.compare);
  if (!system.ok()) return session.out.Fail(system.error());
  const Interrupt::Guard guard("stopping the report");
  if (auto error = StoreSystem(session, args.compare, *system)) return session.out.Fail(*error);

  ProgressReporter steps(session.step_progress_mode(), stderr, args.compare.options.rtol);
  Comparison comparison(session, args.compare, *system, steps);
  Report report{.args = args.compare,
                .system = *system,
                .rows = comparison.rows(),
                .raster = MakeRaster(*system->source.local, kSpyCells),
                .lengths = MakeLengths(*system->source.local, kLengthBins),
                .client_version = std::string(Version()),
                .made = std::chrono::system_clock::now()};
  report.ritz_options.steps = args.ritz_steps;
  report.ritz_options.stop = Interrupt::Token();
  if (!system->pattern_only) {
    Gathering gathering(session, args, report, comparison, steps);
    if (auto error = gathering.Run()) return session.out.Fail(*error);
  }
  steps.Clear();
  const std::string page = PageOf(report);
  if (auto error = WritePage(args.out, page)) return session.out.Fail(*error);

  const int best = Best(comparison.rows());
  if (session.out.json()) {
    session.out.PrintJson({{"command", "report"},
                           {"matrix", args.compare.matrix.matrix},
                           {"matrix_handle", system->matrix.name},
                           {"report_file", args.out},
                           {"converged", best >= 0}});
  } else if (!to_stdout) {
    session.out.Print(SummaryOf(report, args.out, page.size()) + "\n");
  }
  return session.out.Finish(best >= 0 || system->pattern_only ? ExitCode::kOk
                                                              : ExitCode::kNotConverged);
}

}  // namespace spaid::cli
