// Finds a shared library of ours that a program opens while it runs, and the one symbol of it.
#pragma once

#include <string>
#include <vector>

namespace spaid::kernels {

// Names where `file` ("libspaid_cuda.so") is looked for, in order: the folder of the running
// program, ../lib of it, and last the bare name, which means the loader's path.
std::vector<std::string> LibraryCandidates(const std::string& file);

struct OpenedLibrary {
  const void* entry = nullptr;  // the symbol's address; null: see below
  std::string path;             // of the library
  std::string looked;           // in which candidates
  std::string why;              // what is wrong with it; empty without an entry: it is nowhere
};

// Opens the first candidate that exists (a bare name: that loads), for ever. Its symbol begins with
// the build id, which must be this program's. A file that is there but does not fit is an error of
// the installation: the search ends there. `what`: "CUDA library". `global`: other libraries find
// its symbols and those of what it needs. Thread-safe.
OpenedLibrary OpenLibrary(const std::vector<std::string>& candidates, const char* symbol,
                          const std::string& what, bool global = false);

}  // namespace spaid::kernels
