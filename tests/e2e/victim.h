// The test's own program again, as a client that is killed in the middle of what it does.
#pragma once

#include <string>

#include "tests/e2e/daemon.h"

namespace spaid::e2e {

// Runs it to its end, which is SIGKILL (status -9) amid: "upload" (of 16 MiB), "build" (that would
// take long; killed when it has started), "download" (of the preconditioner `of`), "solve" (on the
// matrix `of`; killed while its solution comes). Other threads may do the same.
Ran RunVictim(const Daemon& daemon, const std::string& mode, const std::string& of = "");

// To be asked by main before all else: whether this process is a victim; then it has outlived its
// end, and what it returned is to be returned.
bool IsVictim(int argc, char** argv);
int BeVictim(char** argv);

}  // namespace spaid::e2e
