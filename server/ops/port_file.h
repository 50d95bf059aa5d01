// Writes HOST:PORT of this daemon into a file, for whoever starts it.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace spaid::server {

// Thread-compatible. Movable.
class PortFile {
 public:
  // Writes a temporary file under an unguessable name and renames it: a reader sees the whole
  // address or no file, and nothing is written through a link. Errors: INVALID_ARGUMENT/BAD_FLAG.
  static absl::StatusOr<PortFile> Write(const std::string& file, const std::string& address);
  ~PortFile();
  PortFile(PortFile&& other) noexcept;
  PortFile& operator=(PortFile&&) = delete;

  // Removes the file, unless a newer daemon has replaced it.
  void Remove() const;

 private:
  PortFile(std::string file, int descriptor) : file_(std::move(file)), descriptor_(descriptor) {}

  const std::string file_;
  int descriptor_;  // open, so that no other file gets its inode
};

}  // namespace spaid::server
