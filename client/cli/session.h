// Provides what every command needs: the client, the output, the options of a call, matrices by any
// name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/output.h"
#include "client/cli/progress.h"
#include "client/cpp/spaid/client.h"

namespace spaid::cli {

class Session {
 public:
  explicit Session(const GlobalArgs& args) : args_(args), out(args), client(args.client) {}

  // Returns call options with deadline, limits and Ctrl-C.
  CallOptions Call(const LimitArgs& limits = {}) const;
  // Returns call options that also show progress by `reporter`, which must outlive the call.
  CallOptions Call(const LimitArgs& limits, ProgressReporter& reporter) const;
  // Returns call options that use --admin-token if one is given.
  CallOptions AdminCall() const;
  ProgressReporter::Mode progress_mode() const;
  // The same for many steps, each of which is announced by a line of its own in a pipe.
  ProgressReporter::Mode step_progress_mode() const;
  // Announces a step of a command of many: a line in a pipe; on a terminal `reporter`'s bar says
  // it.
  void Announce(const std::string& step, ProgressReporter& reporter) const;

 private:
  GlobalArgs args_;

 public:
  Output out;
  Client client;
};

// A matrix as the user named it: its arrays (a file, the gallery), or a handle on the server.
struct MatrixSource {
  std::string label;
  std::optional<CscMatrix> local;
  std::string handle;  // set if `local` is not
};

// Reads or makes the matrix; a handle is taken as it is. `pattern`: values are not needed.
Expected<MatrixSource> OpenMatrix(const MatrixArgs& args, bool pattern);

// The spec for the wire: where it names files (pattern_matrix, near_null_space, coordinates), they
// are uploaded first, to where the matrix that it is for is, or goes.
Expected<PreconditionerSpec> ResolveSpec(Session& session, const MatrixSource& matrix,
                                         PreconditionerSpec spec);

// Returns A x for each column of x, column-major.
std::vector<double> Multiply(const CscMatrix& a, const std::vector<double>& x);

struct RhsChoice {
  std::string rhs;  // ones, random, or a file
  uint64_t seed = 1;
  int count = 1;  // for random
};
// Makes or reads right-hand sides, column-major, n rows. Errors: RHS_LENGTH, RHS_NEEDS_MATRIX (ones
// and random need A's arrays), and a file's.
Expected<std::vector<double>> MakeRhs(const MatrixSource& source, int64_t n,
                                      const RhsChoice& choice);
// Reads a file of vectors of length n. Errors: RHS_LENGTH, and a file's.
Expected<std::vector<double>> ReadVectorsOf(const std::string& path, int64_t n, const char* what);

// Names an engine with its main options: "static-spai, p = 2", "afsai, 30 x 1", "dynamic-spai, 10 x
// 5", "amg, chebyshev".
std::string EngineText(const PreconditionerSpec& spec);

// Makes an error of the command line's own.
Error LocalError(std::string reason, std::string message);
// Makes that of a solve which the server ended without any.
Error NoOutcome();

}  // namespace spaid::cli
