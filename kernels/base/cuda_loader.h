// Finds libspaid_cuda.so and asks it for devices; what device.h tells the rest of the program.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/device.h"

namespace spaid::kernels {

// Where the library is looked for, in order: the folder of the running program, ../lib of it, and
// last the bare name, which means the loader's path.
std::vector<std::string> CudaLibraryCandidates();

// Opens the first candidate that exists (a bare name: that loads) and lists its devices. A file
// that is there but does not fit is an error of the installation: the search ends there, and the
// status says what is wrong with it. Thread-safe.
CudaDevices LoadCudaDevices(const std::vector<std::string>& candidates);

}  // namespace spaid::kernels
