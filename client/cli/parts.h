// Writes the matrices that M of multigrid consists of, and the program that applies them.
#pragma once

#include <optional>
#include <string>

#include "client/cli/session.h"

namespace spaid::cli {

// The name of a part's file: "P0.mtx", "scale0.mtx", "inverse2.mtx".
std::string FileOf(const Part& part);

// Returns a Python program (NumPy, SciPy) that applies M by the files beside it.
std::string CycleProgram(const PreconditionerInfo& m);

// Writes M to the file `path`, and says so: "M is in M.mtx". Where M is a cycle, `path` is a
// folder, made where it is not there, of its parts and of cycle.py. `here`: M, if it came along;
// null: it is downloaded. Errors: those of Download and DownloadPart; FILE_UNWRITABLE, and others
// of files.
Expected<std::string> WriteM(Session& session, const PreconditionerInfo& m, const CscMatrix* here,
                             const std::string& path);

}  // namespace spaid::cli
