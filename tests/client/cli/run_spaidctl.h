// Runs the real spaidctl: the one beside the test program, or in ../../../bin as `cmake --install`
// lays them out.
#pragma once

#include <string>
#include <vector>

namespace spaid::cli {

struct Finished {
  int exit_code = -1;  // -1: it did not exit by itself
  std::string out, err;
};

// `environment` entries "NAME=VALUE" are added. SPAID_* and NO_COLOR of the test's own are not
// passed.
Finished RunSpaidctl(const std::vector<std::string>& args,
                     const std::vector<std::string>& environment = {});
std::string SpaidctlPath();
// Another program of ours, in the same place.
std::string ProgramPath(const std::string& name);
// Any program, found in PATH, in the same way.
Finished RunProgram(const std::vector<std::string>& command,
                    const std::vector<std::string>& environment = {});

}  // namespace spaid::cli
