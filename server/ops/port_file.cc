#include "server/ops/port_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/ids.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {

absl::StatusOr<PortFile> PortFile::Write(const std::string& file, const std::string& address) {
  const std::string partial = absl::StrCat(file, ".", RandomId());
  const std::string text = address + "\n";
  const int descriptor =
      open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  const bool opened = descriptor >= 0;
  const bool written =
      opened && write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written || std::rename(partial.c_str(), file.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    if (opened) {
      close(descriptor);
      unlink(partial.c_str());
    }
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadFlag,
                     absl::StrCat("--port-file=", file, " cannot be written: ", why));
  }
  return PortFile(file, descriptor);
}

PortFile::PortFile(PortFile&& other) noexcept
    : file_(other.file_), descriptor_(std::exchange(other.descriptor_, -1)) {}

PortFile::~PortFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void PortFile::Remove() const {
  struct stat own = {}, there = {};
  if (fstat(descriptor_, &own) != 0 || lstat(file_.c_str(), &there) != 0) return;
  if (own.st_dev == there.st_dev && own.st_ino == there.st_ino) unlink(file_.c_str());
}

}  // namespace spaid::server
