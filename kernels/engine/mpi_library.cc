#include "kernels/engine/mpi_library.h"

#include <string>

#include "kernels/base/library.h"

namespace spaid::kernels {

Result<const MpiEntry*> LoadMpi() {
  constexpr char kLibrary[] = "libspaid_mpi.so";
  // Open MPI opens parts of its own, which find MPI by the global names.
  static const OpenedLibrary opened =
      OpenLibrary(LibraryCandidates(kLibrary), kMpiEntry, "MPI library", /*global=*/true);
  if (opened.entry == nullptr) {
    return Status(StatusCode::kUnavailable, "RANKS_UNAVAILABLE",
                  opened.why.empty()
                      ? std::string(kLibrary) + " not found (looked in " + opened.looked +
                            "); build spaid where PETSc and MPI are, or leave mpi "
                            "out of --devices"
                      : opened.why);
  }
  const auto* const entry = static_cast<const MpiEntry*>(opened.entry);
  static const bool adopted = [entry] {
    entry->adopt({});
    return true;
  }();
  static_cast<void>(adopted);
  return entry;
}

}  // namespace spaid::kernels
