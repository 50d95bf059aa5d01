#include "kernels/base/library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "kernels/base/build_id.h"

namespace spaid::kernels {

std::vector<std::string> LibraryCandidates(const std::string& file) {
  std::vector<std::string> candidates;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path folder = program.parent_path();
    candidates.push_back((folder / file).string());
    candidates.push_back((folder.parent_path() / "lib" / file).string());
  }
  candidates.push_back(file);
  return candidates;
}

OpenedLibrary OpenLibrary(const std::vector<std::string>& candidates, const char* symbol,
                          const std::string& what, bool global) {
  OpenedLibrary opened;
  for (const std::string& path : candidates) {
    const bool bare = path.find('/') == std::string::npos;
    opened.looked += (opened.looked.empty() ? "" : ", ") + (bare ? "the loader's path" : path);
    if (!bare && access(path.c_str(), F_OK) != 0) continue;
    opened.path = path;
    dlerror();
    void* library = dlopen(path.c_str(), RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (library == nullptr) {
      const char* text = dlerror();
      const std::string why = text != nullptr ? text : "unknown loader error";
      // Only the loader can tell "not on the path" from "there, but broken", and only in words.
      if (bare && why.rfind(path + ": cannot open shared object file", 0) == 0) continue;
      opened.why = "cannot load " + path + ": " + why;
      return opened;
    }
    // Never closed after this: exit handlers live in it, and in what it needs.
    const auto* const id = static_cast<const char*>(dlsym(library, symbol));
    if (id == nullptr) {
      opened.why = path + " is no " + what + " of spaid: it has no symbol " + symbol +
                   "; install it from the same build";
    } else if (std::memcmp(id, SPAID_BUILD_ID, sizeof(SPAID_BUILD_ID)) != 0) {
      opened.why = path + " is of build " + std::string(id, strnlen(id, sizeof(SPAID_BUILD_ID))) +
                   ", this program is of build " + SPAID_BUILD_ID +
                   ": install both from the same build";
    } else {
      opened.entry = id;
    }
    return opened;
  }
  return opened;
}

}  // namespace spaid::kernels
