// Solves one system with every engine and method that fits: the rows of `spaidctl compare`, and of
// a report.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/progress.h"
#include "client/cli/session.h"

namespace spaid::cli {

// The system that is compared on: the matrix here and on the server, and the right-hand side.
struct ComparedSystem {
  MatrixSource source;
  bool pattern_only = false;  // the source has no values: nothing can be solved
  PreconditionerSpec base;    // but for the engine and the power
  ServerInfo server;
  MatrixInfo matrix;
  std::vector<double> b;
};

// Reads the matrix and the pattern of --pattern. Errors: those of OpenMatrix and ResolveSpec.
Expected<ComparedSystem> ReadSystem(Session& session, const CompareArgs& args);
// Asks what the server can, stores the matrix, makes the right-hand side. Errors: those of
// MakeRhs, Client::Upload and Client::GetMatrix; RHS_COUNT.
std::optional<Error> StoreSystem(Session& session, const CompareArgs& args, ComparedSystem& system);

// Returns true for errors that end all; those of one pair become its row.
bool EndsAll(const Error& error);

// One line of the table.
struct ComparedRow {
  PreconditionerSpec spec;
  std::optional<Method> method;  // none: the engine itself did not work out
  std::optional<SolveResult> solved;
  std::optional<Error> error;  // refused, by the build or the solve
  std::string skipped;         // why it was not tried
  double setup_ms = 0;
  double nnz_ratio = 0;
  std::shared_ptr<const PreconditionerInfo> m;  // null: none was built

  bool converged() const { return solved && solved->rhs.front().outcome == Outcome::kConverged; }
  double total_ms() const { return setup_ms + (solved ? solved->timings.solve_ms : 0); }
};

using ComparedRows = std::vector<ComparedRow>;
// Returns the index of the quickest that converged; -1: none.
int Best(const ComparedRows& rows);
// Returns the rows that were solved: those that converged by total time, then the others by
// residual.
std::vector<const ComparedRow*> BestFirst(const ComparedRows& rows);
// Names the pair: "static SPAI, p = 2, GMRES(50)".
std::string TitleOf(const ComparedRow& row, const SolveOptions& options);

// Runs the pairs, one after the other. Borrows all it is given.
class Comparison {
 public:
  Comparison(Session& session, const CompareArgs& args, const ComparedSystem& system,
             ProgressReporter& reporter)
      : session_(session), args_(args), system_(system), reporter_(reporter) {}

  // Fills rows(); returns an error that ends all. Those of one pair are told in its row.
  std::optional<Error> Run();

  const ComparedRows& rows() const { return rows_; }

 private:
  std::optional<Error> TryEngine(const PreconditionerSpec& spec);
  std::optional<Error> TryMethod(ComparedRow row, const std::string& handle);
  std::optional<Error> Refused(ComparedRow row, const Error& error);

  Session& session_;
  const CompareArgs& args_;
  const ComparedSystem& system_;
  ProgressReporter& reporter_;
  ComparedRows rows_;
  bool indefinite_ = false;  // as a solve found
};

}  // namespace spaid::cli
