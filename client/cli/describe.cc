#include "client/cli/describe.h"

#include "client/cli/printable.h"
#include "client/cli/session.h"

namespace spaid::cli {
namespace {

std::string YesNo(bool value) { return value ? "yes" : "no"; }

std::string Symmetry(const Diagnosis& d) {
  if (d.numerically_symmetric) return "symmetric";
  if (!d.structurally_symmetric) return "no";
  std::string text = "pattern only";
  if (d.asymmetry_row >= 0) {
    text += ", differs first at (" + std::to_string(d.asymmetry_row) + ", " +
            std::to_string(d.asymmetry_column) + "), by at most " + FormatResidual(d.max_asymmetry);
  }
  return text;
}

void AddCounted(Facts& facts, const std::string& name, const Occurrence& o, Style style) {
  if (o.count == 0) return;
  facts.Add(name, FormatCount(o.count) + " (first: " + std::to_string(o.first) + ")", style);
}

void AddFacts(Facts& facts, const FsaiQuality& q, bool adaptive, int64_t n) {
  facts.Add("kaporin", FormatFixed(q.kaporin, 4) + " of Jacobi's");
  if (adaptive) {
    facts.Add("growth", q.pattern_reused
                            ? "none: on the pattern that an earlier build grew (--regrow: anew)"
                            : FormatCount(q.steps) + " steps at most, " +
                                  FormatCount(q.converged_rows) + " of " + FormatCount(n) +
                                  " rows ended by epsilon");
  }
  facts.Add("longest", FormatCount(q.nnz_row_max) + " entries in a row of G");
  if (q.slow_rows > 0) facts.Add("slow rows", FormatCount(q.slow_rows));
  if (q.copied_rows > 0) facts.Add("copied rows", FormatCount(q.copied_rows));
  AddCounted(facts, "not SPD rows", q.not_spd_rows, Style::kBad);
  AddCounted(facts, "not converged rows", q.not_converged_rows, Style::kWarn);
}

void AddFacts(Facts& facts, const DynamicSpaiQuality& q, int64_t n) {
  std::string growth = "none: on the pattern that an earlier build grew (--regrow: anew)";
  if (!q.pattern_reused) {
    growth =
        FormatCount(q.converged_columns) + " of " + FormatCount(n) + " columns met their tolerance";
    if (!q.residual_by_step.empty()) {
      growth += ", mean |A m - e| " + FormatResidual(q.residual_by_step.front()) + " to " +
                FormatResidual(q.residual_by_step.back());
    }
  }
  facts.Add("growth", growth);
  if (q.nnz_column_max > 0) {
    facts.Add("longest", FormatCount(q.nnz_column_max) + " entries in a column of M");
  }
  if (q.slow_columns > 0) facts.Add("slow columns", FormatCount(q.slow_columns));
  if (q.copied_columns > 0) facts.Add("copied columns", FormatCount(q.copied_columns));
  AddCounted(facts, "dependent columns", q.dependent_columns, Style::kWarn);
}

void AddFacts(Facts& facts, const AmgQuality& q) {
  facts.Add("smoother", std::string(Name(q.smoother)) + " (beta " + FormatFixed(q.beta, 1) + ")");
  facts.Add("complexity", FormatFixed(q.operator_complexity, 2) + " of the entries, " +
                              FormatFixed(q.grid_complexity, 2) + " of the rows of A");
  facts.Add("near-null", "Rayleigh quotient " + FormatResidual(q.near_null_rayleigh));
  if (q.node_size > 1) facts.Add("node", FormatCount(q.node_size) + " unknowns");
  facts.Add("precision", std::string(Name(q.precision)));
  if (q.pattern_reused) {
    facts.Add("aggregates", "those that an earlier build found (--regrow: anew)");
  }
  if (q.singular_coarse_pivots > 0) {
    facts.Add("singular", FormatCount(q.singular_coarse_pivots) +
                              " unknowns of the last level are left out of its inverse");
  }
}

void AddFacts(Facts& facts, const PetscQuality& q) {
  if (q.levels == 0) return;
  facts.Add("levels", FormatCount(q.levels));
  facts.Add("complexity", FormatFixed(q.operator_complexity, 2) + " of the entries, " +
                              FormatFixed(q.grid_complexity, 2) + " of the rows of A");
}

std::string Remark(const AmgQuality& q, size_t level) {
  if (level + 1 == q.levels.size()) return q.inverted ? "inverted" : "smoothed";
  const AmgQuality::Level& of = q.levels[level];
  const std::string boxes = of.boxes ? "boxes" : "";
  if (!of.guarded) return boxes;
  return boxes + (of.boxes ? ", " : "") + "P not smoothed";
}

std::string LevelTable(const AmgQuality& q, bool color) {
  using Align = Table::Align;
  Table table({{"level", Align::kRight},
               {"rows", Align::kRight},
               {"entries", Align::kRight},
               {"aggregates", Align::kRight},
               {"isolated", Align::kRight},
               {"nnz(P)", Align::kRight},
               {"nnz(S)", Align::kRight},
               {"", Align::kLeft}});
  for (size_t l = 0; l < q.levels.size(); ++l) {
    const AmgQuality::Level& level = q.levels[l];
    const bool last = l + 1 == q.levels.size();
    const auto unless_last = [last](int64_t count) { return last ? "-" : FormatCount(count); };
    table.Add({std::to_string(l), FormatCount(level.rows), FormatCount(level.nnz),
               unless_last(level.aggregates), unless_last(level.isolated), unless_last(level.nnz_p),
               level.nnz_smoother > 0 ? FormatCount(level.nnz_smoother) : "-", Remark(q, l)});
  }
  return table.Text(color);
}

}  // namespace

Facts MatrixFacts(const MatrixInfo& info) {
  const Diagnosis& d = info.diagnosis;
  Facts facts;
  if (!info.label.empty()) facts.Add("label", info.label);
  facts.Add("n", FormatCount(info.n));
  facts.Add("nnz", FormatCount(info.nnz) + (info.pattern_only ? "  (pattern only)" : ""));
  facts.Add("memory", FormatBytes(info.host_bytes));
  facts.Add("created", FormatTime(info.created));
  if (info.pattern_only) {
    facts.Add("symmetric", YesNo(d.structurally_symmetric) + " (pattern)");
  } else {
    facts.Add("symmetric", Symmetry(d));
    facts.Add(
        "values",
        FormatResidual(d.min_abs_value) + " to " + FormatResidual(d.max_abs_value) +
            " in magnitude" +
            (d.explicit_zeros > 0 ? ", " + FormatCount(d.explicit_zeros) + " explicit zeros" : ""));
  }
  facts.Add("longest", FormatCount(d.max_row_entries) + " entries in a row, " +
                           FormatCount(d.max_column_entries) + " in a column");
  AddCounted(facts, "no diagonal", d.missing_diagonal, Style::kWarn);
  AddCounted(facts, "zero diagonal", d.zero_diagonal, Style::kWarn);
  AddCounted(facts, "negative diagonal", d.negative_diagonal, Style::kPlain);
  AddCounted(facts, "empty rows", d.empty_rows, Style::kBad);
  AddCounted(facts, "empty columns", d.empty_columns, Style::kBad);
  AddCounted(facts, "not dominant rows", d.not_dominant_rows, Style::kPlain);
  AddCounted(facts, "zero-sum rows", d.zero_sum_rows, Style::kPlain);
  if (!d.numerically_symmetric) {
    AddCounted(facts, "zero-sum columns", d.zero_sum_columns, Style::kPlain);
  }
  AddCounted(facts, "dense rows", d.dense_rows, Style::kPlain);
  AddCounted(facts, "dense columns", d.dense_columns, Style::kPlain);
  if (d.structural_rank >= 0 && d.structural_rank < info.n) {
    facts.Add("structural rank", FormatCount(d.structural_rank) + " (singular)", Style::kBad);
  }
  return facts;
}

std::string Describe(const MatrixInfo& info, bool color) {
  std::string text = MatrixFacts(info).Text(color);
  for (const std::string& finding : info.diagnosis.findings) {
    text += "  - " + Printable(finding) + "\n";
  }
  return text;
}

std::string MatrixOf(const CscMatrix& preconditioner) {
  return preconditioner.is_factor ? "G (lower triangular, M = G'G)" : "M";
}

std::string Told(const Rung& rung) {
  return rung.what + ": " + FormatResidual(rung.relative_residual) + " after " +
         FormatCount(rung.iterations) + " iterations, set-up " + FormatMs(rung.setup_ms) +
         ", solve " + FormatMs(rung.solve_ms) + (rung.left.empty() ? "" : "; " + rung.left);
}

std::string SetupPhases(const Timings& t) {
  std::string text = t.rebuild ? "(by an old plan: " : "(plan " + FormatMs(t.plan_ms) + ", ";
  text += "build " + FormatMs(t.build_ms) + ", assemble " + FormatMs(t.assemble_ms);
  if (t.host_to_device_ms + t.device_to_host_ms > 0) {
    text += ", to the device " + FormatMs(t.host_to_device_ms) + ", back " +
            FormatMs(t.device_to_host_ms);
  }
  return text + ")";
}

std::string Describe(const PreconditionerInfo& info, bool color) {
  const Quality& q = info.quality;
  Facts facts;
  facts.Add("engine", EngineText(info.spec));
  if (!info.choice_reason.empty()) facts.Add("chosen", info.choice_reason);
  facts.Add("matrix", info.matrix);
  facts.Add("n", FormatCount(info.n));
  facts.Add(info.is_factor ? "nnz(G)" : "nnz",
            FormatCount(info.nnz) + "  (" + FormatFixed(q.density, 2) + " of nnz(A))");
  facts.Add("memory", FormatBytes(info.host_bytes) +
                          (info.device_bytes > 0
                               ? ", and " + FormatBytes(info.device_bytes) + " on " + info.device
                               : ""));
  facts.Add("set-up",
            FormatMs(info.build_timings.setup_ms()) + "  " + SetupPhases(info.build_timings));
  facts.Add("device", info.device);
  if (!info.placement.empty()) facts.Add("placed", info.placement);
  if (q.scaling != Scaling::kNone) {
    const char* reused = ", by the factors of an earlier build (--regrow: anew)";
    facts.Add("scaling", std::string(Name(q.scaling)) + (q.scaling_reused ? reused : ""));
  }
  if (q.fsai) {
    AddFacts(facts, *q.fsai, info.spec.engine == Engine::kAfsai, info.n);
  } else if (q.measured()) {
    facts.Add("|AM - I|", FormatResidual(q.residual_frobenius) + " (Frobenius)");
  }
  if (q.amg) AddFacts(facts, *q.amg);
  if (q.petsc) AddFacts(facts, *q.petsc);
  if (q.dynamic_spai) AddFacts(facts, *q.dynamic_spai, info.n);
  if (q.residual_quantiles.size() == 8) {
    facts.Add("columns", "median " + FormatResidual(q.residual_quantiles[3]) + ", 99 % below " +
                             FormatResidual(q.residual_quantiles[6]) + ", worst " +
                             FormatResidual(q.residual_quantiles[7]) + " (column " +
                             std::to_string(q.worst_column) + ")");
  }
  if (q.gram_columns > 0 || q.qr_columns > 0) {
    facts.Add("solved by",
              FormatCount(q.gram_columns) + " columns Gram, " + FormatCount(q.qr_columns) + " QR");
  }
  AddCounted(facts, "iterative columns", q.iterative_columns, Style::kPlain);
  AddCounted(facts, "not converged columns", q.not_converged_columns, Style::kWarn);
  AddCounted(facts, "rescued columns", q.rescued_columns, Style::kPlain);
  AddCounted(facts, "rank-deficient columns", q.rank_deficient_columns, Style::kWarn);
  AddCounted(facts, "zero columns", q.zero_columns, Style::kBad);
  AddCounted(facts, "non-finite columns", q.non_finite_columns, Style::kBad);
  std::string text = facts.Text(color);
  if (q.amg) text += LevelTable(*q.amg, color);
  for (const std::string& warning : q.warnings) {
    text += "  " + Styled("warning: ", Style::kWarn, color) + Printable(warning) + "\n";
  }
  return text;
}

std::string Describe(const JobInfo& job, bool color) {
  Facts facts;
  facts.Add("kind", std::string(Name(job.kind)) + (job.detached ? ", detached" : ""));
  if (job.priority != Priority::kNormal) {
    facts.Add("priority", std::string(Name(job.priority)));
  }
  const bool bad = job.state == JobState::kFailed || job.state == JobState::kCancelled;
  facts.Add("state", std::string(Name(job.state)), bad ? Style::kBad : Style::kPlain);
  facts.Add("created", FormatTime(job.created));
  if (job.started) facts.Add("started", FormatTime(*job.started));
  if (job.ended) facts.Add("ended", FormatTime(*job.ended));
  if (!job.tenant.empty()) facts.Add("tenant", job.tenant);
  facts.Add("matrix", job.matrix);
  if (!job.preconditioner.empty()) facts.Add("preconditioner", job.preconditioner);
  if (!job.device.empty()) facts.Add("device", job.device);
  if (job.stage && job.state == JobState::kRunning) {
    facts.Add("stage", std::string(Name(*job.stage)) + ", " + FormatCount(job.done) + " of " +
                           FormatCount(job.total));
  }
  for (const auto& o : job.outcomes) {
    facts.Add("outcome",
              UpperSnake(Name(o.outcome)) + " after " + FormatCount(o.iterations) +
                  " iterations, residual " + FormatResidual(o.true_relative_residual) +
                  (o.detail.empty() ? "" : "; " + o.detail),
              o.outcome == Outcome::kConverged ? Style::kGood : Style::kBad);
  }
  if (job.error) {
    facts.Add("error", job.error->message + " [" + job.error->reason + "]", Style::kBad);
  }
  return facts.Text(color);
}

}  // namespace spaid::cli
