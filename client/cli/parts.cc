#include "client/cli/parts.h"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

#include "client/cli/byte_file.h"
#include "client/cli/describe.h"
#include "client/cli/matrix_market.h"

namespace spaid::cli {
namespace {

// Behind the settings of one M. The cycle is that of kernels/amg/cycle.cc, in fp64.
constexpr const char* kProgram = R"(
folder = pathlib.Path(__file__).parent


def read(name):
    path = folder / f"{name}.mtx"
    return scipy.io.mmread(str(path)).tocsr() if path.exists() else None


A, P, R, S = ([read(f"{kind}{level}") for level in range(len(smoothers))] for kind in "APRS")
inverse = [read(f"inverse{level}") for level in range(len(smoothers))]
scale_in, scale_out = (scipy.sparse.diags(column) for column in read("scale0").toarray().T)
symmetric = A[0] is not None and abs(A[0] - A[0].T).max() <= 1e-6 * abs(A[0]).max()


def smooth(level, r, after):
    """The step from the residual r; its adjoint after the coarser level."""
    name, rho, omega, coefficients = smoothers[level]
    s = S[level]
    if name == "chebyshev":
        d = 4 / (3 * rho) * (s @ r)
        x = coefficients[0] * d
        for i, beta in enumerate(coefficients[1:], 1):
            r = r - A[level] @ d
            d = (2 * i - 1) / (2 * i + 3) * d + (8 * i + 4) / ((2 * i + 3) * rho) * (s @ r)
            x = x + beta * d
        return x
    if name in ("fsai", "afsai"):
        return omega * (s.T @ (s @ r))
    return (s.T if after and symmetric else s) @ r


def cycle(level, r):
    if inverse[level] is not None:
        return inverse[level] @ r
    last = P[level] is None  # it is smoothed twice
    x = 0 * r
    for _ in range(1 if last else pre):
        x = x + smooth(level, r - A[level] @ x, False)
    for _ in range(0 if last else visits):
        x = x + P[level] @ cycle(level + 1, R[level] @ (r - A[level] @ x))
    for _ in range(1 if last else post):
        x = x + smooth(level, r - A[level] @ x, True)
    return x


def apply(r):
    """M r, of a vector or of columns."""
    return scale_out @ cycle(0, scale_in @ r)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} R.mtx Z.mtx    writes Z = M R")
    scipy.io.mmwrite(sys.argv[2], apply(np.asarray(scipy.io.mmread(sys.argv[1]))), precision=17)
)";

// The shortest digits that read back as the same number.
std::string Exact(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, std::end(digits), value).ptr};
}

Error Unwritable(const std::string& folder, const std::error_code& why) {
  return LocalError("FILE_UNWRITABLE", folder + ": is not a folder that can be written (" +
                                           why.message() +
                                           "); parts of multigrid are files of a folder");
}

std::optional<Error> WriteText(const std::string& path, const std::string& text) {
  auto writer = ByteWriter::Open(path);
  if (!writer.ok()) return writer.error();
  std::fwrite(text.data(), 1, text.size(), writer->file());
  return writer->Commit();
}

std::optional<Error> WriteParts(Session& session, const PreconditionerInfo& m,
                                const std::string& folder, ProgressReporter& reporter) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (!std::filesystem::is_directory(folder)) {
    return Unwritable(folder, failed ? failed : std::make_error_code(std::errc::not_a_directory));
  }
  for (const Part& part : m.parts) {
    auto matrix = session.client.DownloadPart(m.name, part, session.Call({}, reporter));
    if (!matrix.ok()) return matrix.error();
    if (auto error = WriteMatrix(folder + "/" + FileOf(part), *matrix)) return error;
  }
  return WriteText(folder + "/cycle.py", CycleProgram(m));
}

}  // namespace

std::string FileOf(const Part& part) {
  const std::string level = std::to_string(part.level) + ".mtx";
  switch (part.kind) {
    case PartKind::kScale:
      return "scale" + level;
    case PartKind::kA:
      return "A" + level;
    case PartKind::kP:
      return "P" + level;
    case PartKind::kR:
      return "R" + level;
    case PartKind::kSmoother:
      return "S" + level;
    case PartKind::kCoarseInverse:
      return "inverse" + level;
    case PartKind::kNearNull:
      return "B" + level;
  }
  return "part" + level;  // of a newer server
}

std::string CycleProgram(const PreconditionerInfo& m) {
  const AmgSpec& spec = m.spec.amg;
  const size_t levels = m.quality.amg ? m.quality.amg->levels.size() : 1;
  // "smoothers" of an inverted level are not looked at.
  std::vector<std::string> smoothers(levels, "(\"\", 0, 0, [])");
  for (const Part& part : m.parts) {
    if (part.kind != PartKind::kSmoother || static_cast<size_t>(part.level) >= levels) continue;
    std::string coefficients;
    for (const double beta : part.coefficients) {
      coefficients += (coefficients.empty() ? "" : ", ") + Exact(beta);
    }
    smoothers[static_cast<size_t>(part.level)] = "(\"" + std::string(Name(part.smoother)) + "\", " +
                                                 Exact(part.rho) + ", " + Exact(part.omega) +
                                                 ", [" + coefficients + "])";
  }
  std::string text = "#!/usr/bin/env python3\n\"\"\"Applies M of " + m.name +
                     ", a cycle of multigrid, by the files beside this one.\n\n"
                     "    python3 cycle.py R.mtx Z.mtx       Z = M R\n"
                     "    from cycle import apply            z = apply(r)\n\"\"\"\n"
                     "import pathlib\nimport sys\n\nimport numpy as np\nimport scipy.io\n"
                     "import scipy.sparse\n\n"
                     "smoothers = [  # of each level: name, rho, omega, coefficients\n";
  for (const std::string& smoother : smoothers) text += "    " + smoother + ",\n";
  return text + "]\npre, post, visits = " + std::to_string(spec.pre_sweeps) + ", " +
         std::to_string(spec.post_sweeps) + ", " + (spec.cycle == Cycle::kW ? "2" : "1") + "\n" +
         kProgram;
}

Expected<std::string> WriteM(Session& session, const PreconditionerInfo& m, const CscMatrix* here,
                             const std::string& path) {
  ProgressReporter reporter(session.progress_mode(), stderr);
  if (TraitsOf(m.spec.engine).by_parts) {
    auto error = WriteParts(session, m, path, reporter);
    reporter.Clear();
    if (error) return *std::move(error);
    return "the parts of M are in " + path + ", and cycle.py, which applies them";
  }
  CscMatrix downloaded;
  if (here == nullptr) {
    auto matrix = session.client.Download(m.name, session.Call({}, reporter));
    reporter.Clear();
    if (!matrix.ok()) return matrix.error();
    downloaded = *std::move(matrix);
    here = &downloaded;
  }
  if (auto error = WriteMatrix(path, *here)) return *std::move(error);
  return MatrixOf(*here) + " is in " + path;
}

}  // namespace spaid::cli
