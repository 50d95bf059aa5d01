#include "client/cli/parts.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

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


A, P, R, S = ([read(f"{kind}{level}") for level in range(levels)] for kind in "APRS")
scale, inverse = read("scale"), read("inverse")  # no inverse: the last level is smoothed
symmetric = abs(A[0] - A[0].T).max() <= 1e-12 * abs(A[0]).max()
last = levels - 1
betas = {1: [1.125], 2: [1.02387287570313, 1.26408905371085],
         3: [1.00842544782028, 1.08867839208730, 1.33753125909618],
         4: [1.00391310427285, 1.04035811188593, 1.14863498546254, 1.38268869241000]}


def smooth(level, r, after):
    """What a step adds to x, for the residual r; its adjoint after the coarser level."""
    s = S[level]
    polynomial = level == last and symmetric  # of a last level that is not inverted
    if smoother == "chebyshev" or polynomial:
        beta = betas[4 if polynomial else degree]
        d = 4 / 3 * (s @ r)
        x = beta[0] * d
        for k in range(1, len(beta)):
            r = r - A[level] @ d
            d = (2 * k - 1) / (2 * k + 3) * d + (8 * k + 4) / (2 * k + 3) * (s @ r)
            x = x + beta[k] * d
        return x
    if smoother in ("fsai", "afsai"):
        return s.T @ (s @ r)
    return (s.T if after and symmetric else s) @ r


def cycle(level, r):
    if level == last and inverse is not None:
        return inverse @ r
    x = 0 * r
    for _ in range(pre if level < last else 1):
        x = x + smooth(level, r - A[level] @ x, False)
    for _ in range(visits if level < last else 0):
        x = x + P[level] @ cycle(level + 1, R[level] @ (r - A[level] @ x))
    for _ in range(post if level < last else 1):
        x = x + smooth(level, r - A[level] @ x, True)
    return x


def apply(r):
    """M r, of a vector or of columns."""
    return scale @ cycle(0, abs(scale) @ r)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} R.mtx Z.mtx    writes Z = M R")
    scipy.io.mmwrite(sys.argv[2], apply(np.asarray(scipy.io.mmread(sys.argv[1]))), precision=17)
)";

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
      return "scale.mtx";
    case PartKind::kA:
      return "A" + level;
    case PartKind::kP:
      return "P" + level;
    case PartKind::kR:
      return "R" + level;
    case PartKind::kSmoother:
      return "S" + level;
    case PartKind::kCoarseInverse:
      return "inverse.mtx";
    case PartKind::kNearNull:
      return "B" + level;
  }
  return "part" + level;  // of a newer server
}

std::string CycleProgram(const PreconditionerInfo& m) {
  const AmgSpec& spec = m.spec.amg;
  const AmgQuality quality = m.quality.amg.value_or(AmgQuality());
  return "#!/usr/bin/env python3\n\"\"\"Applies M of " + m.name +
         ", a cycle of multigrid, by the files beside this one.\n\n"
         "    python3 cycle.py R.mtx Z.mtx       Z = M R\n"
         "    from cycle import apply            z = apply(r)\n\"\"\"\n"
         "import pathlib\nimport sys\n\nimport numpy as np\nimport scipy.io\n\n"
         "levels, smoother, degree = " +
         std::to_string(quality.levels.size()) + ", \"" + std::string(Name(quality.smoother)) +
         "\", " + std::to_string(spec.chebyshev_degree) +
         "\npre, post, visits = " + std::to_string(spec.pre_sweeps) + ", " +
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
