// Listening sockets that are files.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <optional>
#include <string>

namespace spaid::server {

// A socket's file, as it was made.
struct SocketFile {
  std::string path = {};  // empty: none
  dev_t device = 0;
  ino_t inode = 0;
};

// Listens at `name`, a path, or a zero byte and a name that is no file. Replaces a socket that a
// daemon left behind which did not end well: nobody answers there. `type`: SOCK_STREAM,
// SOCK_SEQPACKET. `mode`: that of the file; none: by the umask. Returns a non-blocking descriptor
// and fills in `file`, or returns -1, and errno says why.
int ListenOnFile(const std::string& name, int type, std::optional<mode_t> mode, SocketFile* file);

// Removes the file if it is still the same: a newer daemon may serve at its path.
void RemoveSocketFile(const SocketFile& file);

}  // namespace spaid::server
