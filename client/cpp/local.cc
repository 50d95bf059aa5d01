#include "client/cpp/local.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "client/cpp/errors.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace spaid::internal {
namespace {

constexpr int kVersion = 1;
constexpr size_t kMaxMessageBytes = 8 << 10;
constexpr size_t kAlign = 8;  // of a range in its segment
constexpr std::chrono::seconds kRetryAfter{1}, kForeignFor{60};
constexpr time_t kAnswerSeconds = 2;

Error NoMemory(int64_t bytes) {
  return MakeError(Code::kResourceExhausted, kOutOfMemory,
                   "no memory for an array of " + std::to_string(bytes) + " bytes (" +
                       std::strerror(errno) + ")");
}

// Sealed, so that the daemon can rely on its size. -1: errno says why there is none.
int SealedMemfd(int64_t bytes) {
  // Here fallocate would take all the memory there is before it fails, and the kernel end somebody.
  if (bytes / sysconf(_SC_PAGESIZE) > sysconf(_SC_PHYS_PAGES)) {
    errno = ENOMEM;
    return -1;
  }
#ifdef MFD_NOEXEC_SEAL
  int fd = memfd_create("spaid", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd < 0) fd = memfd_create("spaid", MFD_CLOEXEC | MFD_ALLOW_SEALING);
#else
  const int fd = memfd_create("spaid", MFD_CLOEXEC | MFD_ALLOW_SEALING);
#endif
  if (fd < 0) return -1;
  int committed = -1;
  if (ftruncate(fd, bytes) == 0) {
    do {
      committed = fallocate(fd, 0, 0, bytes);
    } while (committed != 0 && errno == EINTR);
  }
  if (committed == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) return fd;
  const int why = errno;
  close(fd);
  errno = why;
  return -1;
}

std::string CannotConnect(const std::string& path, int error) {
  std::string why =
      "cannot connect to the daemon's local socket " + path + " (" + std::strerror(error) + "): ";
  switch (error) {
    case ENOENT:
      return why +
             "is the daemon on this host, runs with this --local-socket, and is its folder "
             "visible from here?";
    case ECONNREFUSED:
      return why + "the daemon that made it has ended";
    case EACCES:
    case EPERM:
      return why + "this user may not open it; it is for the daemon's user and group";
    default:
      return why + "calls send their arrays instead";
  }
}

}  // namespace

void* Begin(const SharedMemory& memory) { return memory.begin(); }

Expected<std::shared_ptr<SharedMemory>> SharedMemory::Create(
    int64_t bytes, const std::shared_ptr<LocalLink>& link) {
  std::shared_ptr<SharedMemory> memory(new SharedMemory);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (link->wanted()) {
    memory->memfd_ = SealedMemfd(bytes);
    if (memory->memfd_ < 0) return NoMemory(bytes);
    flags = MAP_SHARED | MAP_POPULATE;
  }
  void* const begin =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, memory->memfd_, 0);
  if (begin == MAP_FAILED) return NoMemory(bytes);
  memory->begin_ = static_cast<std::byte*>(begin);
  memory->bytes_ = bytes;
  if (link->wanted()) {
    memory->link_ = link;
    link->Add(memory.get());
  }
  return memory;
}

SharedMemory::~SharedMemory() {
  if (const auto link = link_.lock()) link->Remove(this);
  if (begin_ != nullptr) munmap(begin_, static_cast<size_t>(bytes_));
  if (memfd_ >= 0) close(memfd_);
}

LocalLink::LocalLink(std::string path, std::string token)
    : path_(std::move(path)), token_(std::move(token)) {
  if (!wanted()) {
    status_.why =
        "ClientOptions::local_socket is empty; give the path of the daemon's "
        "--local-socket";
  }
}

LocalLink::~LocalLink() { Disconnect(); }

LocalStatus LocalLink::Status() {
  const std::lock_guard lock(mutex_);
  Connected(/*at_once=*/true);
  return status_;
}

void LocalLink::Add(SharedMemory* memory) {
  const std::lock_guard lock(mutex_);
  memory_[memory->begin()] = memory;
  Registered(*memory);
}

void LocalLink::Remove(SharedMemory* memory) {
  const std::lock_guard lock(mutex_);
  memory_.erase(memory->begin());
  if (memory->lease_.empty() || socket_ < 0) return;
  v1::LocalRequest request;
  request.mutable_release()->set_lease(memory->lease_);
  Ask(request);
}

std::optional<v1::ArraySegment> LocalLink::Find(v1::ArrayKind kind,
                                                std::span<const std::byte> bytes) {
  if (!wanted() || bytes.empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  auto after = memory_.upper_bound(bytes.data());
  if (after == memory_.begin()) return std::nullopt;
  SharedMemory& memory = *std::prev(after)->second;
  const auto offset = static_cast<size_t>(bytes.data() - memory.begin());
  const auto size = static_cast<size_t>(memory.bytes());
  if (offset >= size || bytes.size() > size - offset) return std::nullopt;
  if (offset % kAlign != 0 || !Registered(memory)) {
    status_.fallback_bytes += static_cast<int64_t>(bytes.size());
    return std::nullopt;
  }
  v1::ArraySegment segment;
  segment.set_array(kind);
  segment.set_lease(memory.lease_);
  segment.set_offset(static_cast<int64_t>(offset));
  segment.set_bytes(static_cast<int64_t>(bytes.size()));
  return segment;
}

void LocalLink::Forget(bool again) {
  const std::lock_guard lock(mutex_);
  Disconnect();
  Fail("the daemon at ClientOptions::address does not know what was registered at " + path_ +
           "; are they the same daemon, and the tenant the same?",
       "LEASE_UNKNOWN");
  next_try_ = {};  // it may have been restarted
  if (again) foreign_until_ = Clock::now() + kForeignFor;
}

void LocalLink::CountShared(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  status_.shared_bytes += bytes;
}

bool LocalLink::Connected(bool at_once) {
  if (socket_ >= 0) {
    // Nothing comes that was not asked for: at an end it was the daemon's.
    char byte = 0;
    if (recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) return true;
    Disconnect();
  }
  const auto now = Clock::now();
  if (!wanted() || now < foreign_until_ || (!at_once && now < next_try_)) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) {
    Fail(CannotConnect(path_, ENAMETOOLONG));
    return false;
  }
  std::memcpy(address.sun_path, path_.data(), path_.size());
  socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const timeval patience{.tv_sec = kAnswerSeconds, .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (socket_ < 0 ||
      connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    Fail(CannotConnect(path_, errno));
    Disconnect();
    return false;
  }
  v1::LocalRequest request;
  request.mutable_hello()->set_version(kVersion);
  request.mutable_hello()->set_token(token_);
  const auto reply = Ask(request);
  if (!reply || !reply->has_welcome()) {
    Disconnect();
    return false;
  }
  status_.available = true;
  status_.why.clear();
  status_.reason.clear();
  status_.tenant = reply->welcome().tenant();
  return true;
}

bool LocalLink::Registered(SharedMemory& memory) {
  if (!Connected(/*at_once=*/false)) return false;
  if (!memory.lease_.empty()) return true;
  const auto now = Clock::now();
  if (now < memory.next_try_) return false;
  v1::LocalRequest request;
  request.mutable_segment()->set_bytes(memory.bytes());
  const auto reply = Ask(request, memory.memfd_);
  if (!reply || !reply->has_leased()) {
    memory.next_try_ = now + kRetryAfter;
    return false;
  }
  memory.lease_ = reply->leased().name();
  status_.available = true;
  status_.why.clear();
  status_.reason.clear();
  return true;
}

std::optional<v1::LocalReply> LocalLink::Ask(const v1::LocalRequest& request, int descriptor) {
  std::string bytes = request.SerializeAsString();
  iovec data{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  ssize_t done = 0;
  do {
    done = sendmsg(socket_, &message, MSG_NOSIGNAL);
  } while (done < 0 && errno == EINTR);
  // A server that hangs up at once has said why before: that can be read after all.
  const bool hung_up = done < 0 && (errno == EPIPE || errno == ECONNRESET);
  std::array<char, kMaxMessageBytes> answer;
  if (done >= 0 || hung_up) {
    for (int interrupted = 0; interrupted < 16; ++interrupted) {
      done = recv(socket_, answer.data(), answer.size(), 0);
      if (done >= 0 || (errno != EINTR && errno != ECONNRESET)) break;
    }
  }
  v1::LocalReply reply;
  if (done <= 0 || !reply.ParseFromArray(answer.data(), static_cast<int>(done))) {
    const int error = done < 0 ? errno : 0;
    Disconnect();
    Fail("the daemon's local socket " + path_ + " did not answer (" +
         (error == EAGAIN ? "it takes too long"
          : error != 0    ? std::strerror(error)
          : done == 0     ? "it hung up"
                          : "not in this protocol") +
         ")");
    return std::nullopt;
  }
  if (!reply.has_error()) return reply;
  const Error error =
      FromStatus(grpc::Status(static_cast<grpc::StatusCode>(reply.error().code()),
                              reply.error().message(), reply.error().SerializeAsString()),
                 path_);
  Fail(error.message, error.reason);
  return std::nullopt;
}

void LocalLink::Disconnect() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  for (auto& [begin, memory] : memory_) memory->lease_.clear();
}

void LocalLink::Fail(std::string why, std::string reason) {
  status_.available = false;
  status_.why = std::move(why);
  status_.reason = std::move(reason);
  next_try_ = Clock::now() + kRetryAfter;
}

Outgoings::Outgoings(const std::vector<OutgoingArray>& arrays, LocalLink* link) {
  int64_t shared = 0;
  for (const OutgoingArray& array : arrays) {
    if (array.bytes.empty()) continue;
    auto place = link != nullptr ? link->Find(array.kind, array.bytes) : std::nullopt;
    if (place) shared += place->bytes();
    arrays_.push_back(array);
    places_.push_back(std::move(place));
  }
  if (shared > 0) link->CountShared(shared);
}

bool Outgoings::all_shared() const {
  return std::all_of(places_.begin(), places_.end(), [](const auto& place) { return !!place; });
}

void ArraySource::WantAll() {
  for (const OutgoingArray& array : outgoing_.arrays_) Want(array.kind, 0, array.count());
}

bool ArraySource::Want(v1::ArrayKind kind, int64_t offset, int64_t count) {
  for (size_t i = 0; i < outgoing_.arrays_.size(); ++i) {
    const OutgoingArray& array = outgoing_.arrays_[i];
    if (array.kind != kind || !outgoing_.places_[i]) continue;
    // A part is sent: its place need not be one that a segment can be named by.
    if (offset != 0 || count != array.count()) break;
    if (std::find(asked_.begin(), asked_.end(), kind) != asked_.end()) return false;
    asked_.push_back(kind);
    named_.push_back(*outgoing_.places_[i]);
    return true;
  }
  return chunks_.Want(kind, offset, count);
}

}  // namespace spaid::internal
