// One file of a spill folder: arrays with their checksums, written once.
//
//   header, 128 bytes: "SPAIDSPL", version, kind, name, number of arrays, bytes of each, and
//   XXH3-64
//       of all that
//   then the arrays, each in blocks of 1 MiB, and behind each block its XXH3-64, seeded by the
//       header's and its place
//
// Numbers are little-endian. The name is that of the file, so that a file by another name is
// refused, and no block passes for another one, of this file or any other. A version is read by the
// daemons that write it and by those that write the next one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/descriptor.h"
#include "server/base/digest.h"

namespace spaid::server {

inline constexpr uint32_t kSpillFileVersion = 1;
inline constexpr size_t kMaxSpillArrays = 8;

enum class SpillKind : uint32_t {
  kPattern = 1,  // column pointers, row indices
  kValues = 2,   // values; of a preconditioner perhaps a row scaling behind them
  kVectors = 3,  // a solve's right-hand sides, guess, null vectors
  kWhole = 4,    // a matrix that lies over ranks: column pointers, row indices, values
};

// Says what may be lost with the machine's power, of written files and of the index.
enum class SpillSync {
  kNone,  // what the system has not written by itself; an end of the daemon alone loses nothing
  kData,  // the newest files: their names may not be on the disk
  kFull,  // nothing
};

// Called at each step of writing, by its name, for tests: what it returns, if not 0, is the errno
// with which the step fails.
using SpillStep = std::function<int(std::string_view step)>;

// An array to be written: bytes that lie here, or that are brought piece by piece while they are
// written.
struct SpillArray {
  // Fills the next piece, of 1 MiB but for the last one. Its error ends the write.
  using Bring = std::function<absl::Status(std::span<std::byte> piece)>;

  SpillArray(std::span<const std::byte> bytes_here)
      : size(static_cast<int64_t>(bytes_here.size())), here(bytes_here) {}
  SpillArray(int64_t bytes, Bring bring_next) : size(bytes), bring(std::move(bring_next)) {}

  int64_t size = 0;
  std::span<const std::byte> here;
  Bring bring;  // null: they lie here
};
using SpillArrays = std::vector<SpillArray>;

// Returns the size of a file with such arrays.
int64_t SpillFileBytes(const SpillArrays& arrays);

// Writes `file`, which does not exist, into `folder`. Errors: RESOURCE_EXHAUSTED (no room),
// UNAVAILABLE (the rest), with the system's words; SpillArray::Bring's. The file is gone then.
absl::Status WriteSpillFile(int folder, const std::string& file, SpillKind kind, const Sha256& name,
                            const SpillArrays& arrays, SpillSync sync, const SpillStep& step);

// Reads a file, array by array. Thread-compatible.
class SpillReader {
 public:
  // Errors: DATA_LOSS (not there, or not what was written, or of another version),
  // RESOURCE_EXHAUSTED (no descriptor is left).
  static absl::StatusOr<SpillReader> Open(int folder, const std::string& file, SpillKind kind,
                                          const Sha256& name);

  // Bytes of each array; together no more than the file has.
  std::span<const int64_t> sizes() const { return {sizes_.data(), arrays_}; }
  // Reads the next array, all of it, into `to`, which has its size. Errors: DATA_LOSS; `to` is of
  // no use then.
  absl::Status Next(std::span<std::byte> to);
  // Gives the next array to `take`, in pieces of 1 MiB but for the last one. Errors: DATA_LOSS,
  // take's.
  using Take = absl::FunctionRef<absl::Status(std::span<const std::byte> piece)>;
  absl::Status Next(Take take);

 private:
  absl::Status Block(size_t array, size_t block, std::span<std::byte> piece);

  Descriptor file_;
  size_t arrays_ = 0, next_ = 0;
  std::array<int64_t, kMaxSpillArrays> sizes_{};
  uint64_t seed_ = 0;
};

}  // namespace spaid::server
