#include "server/rpc/socket_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "server/base/descriptor.h"

namespace spaid::server {

int ListenOnFile(const std::string& name, int type, std::optional<mode_t> mode, SocketFile* file) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const bool abstract = name.front() == '\0';
  std::memcpy(address.sun_path, name.data(), name.size());
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (!abstract) {
    struct stat there = {};
    const Descriptor probe(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    if (lstat(name.c_str(), &there) == 0 && S_ISSOCK(there.st_mode) &&
        connect(probe.get(), generic, size) != 0 && errno == ECONNREFUSED) {
      unlink(name.c_str());
    }
  }
  const int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  // Before there is a file, so that it is never wider than that; and then what the umask took.
  if (mode) fchmod(fd, *mode);
  if (bind(fd, generic, size) != 0 || (mode && !abstract && chmod(name.c_str(), *mode) != 0) ||
      listen(fd, SOMAXCONN) != 0) {
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
  }
  struct stat own = {};
  if (!abstract && lstat(name.c_str(), &own) == 0) *file = {name, own.st_dev, own.st_ino};
  return fd;
}

void RemoveSocketFile(const SocketFile& file) {
  struct stat there = {};
  if (!file.path.empty() && lstat(file.path.c_str(), &there) == 0 && there.st_dev == file.device &&
      there.st_ino == file.inode) {
    unlink(file.path.c_str());
  }
}

}  // namespace spaid::server
