#include "server/rpc/local_socket.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/status.pb.h"
#include "server/base/guard.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/rpc/backend.h"

namespace spaid::server {
namespace {

constexpr int kVersion = 1;
constexpr size_t kMaxMessageBytes = 8 << 10;
constexpr std::chrono::milliseconds kLookEvery{100};

std::string UserName(uid_t uid) { return absl::StrCat("user ", uid); }

absl::Status Broken(const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kUnexpectedMessage,
                   absl::StrCat(what, "; see proto/spaid/v1/local.proto"));
}

// Never waits: an answer that finds no room is one that nobody reads.
bool Send(int fd, const v1::LocalReply& reply) {
  const std::string bytes = reply.SerializeAsString();
  return send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

v1::LocalReply ErrorReply(const absl::Status& error) {
  v1::LocalReply reply;
  *reply.mutable_error() = ToRpcStatus(error);
  return reply;
}

}  // namespace

// Holds one message as it came.
struct LocalSocket::Message {
  char bytes[kMaxMessageBytes];
  size_t size = 0;
  std::vector<Descriptor> descriptors;
  bool cut = false;  // more bytes, or more descriptors, than one may send at once

  // Returns 1: it is there; 0: not yet; -1: the connection has ended.
  int Receive(int fd) {
    // Room for one descriptor: the kernel drops what else comes.
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec data{.iov_base = bytes, .iov_len = sizeof bytes};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = CMSG_LEN(sizeof(int));
    const ssize_t got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int received = -1;
        std::memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof received);
        descriptors.emplace_back(received);
      }
    }
    size = static_cast<size_t>(got);
    cut = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    return got == 0 ? -1 : 1;
  }
};

absl::StatusOr<std::unique_ptr<LocalSocket>> LocalSocket::Listen(LocalSocketOptions options,
                                                                 Backend* backend) {
  SocketFile file;
  Descriptor listener(ListenOnFile(options.path, SOCK_SEQPACKET, 0660, &file));
  if (!listener.open()) {
    return MakeError(
        absl::StatusCode::kUnavailable, reason::kCannotListen,
        absl::StrCat("cannot listen at --local-socket=", options.path, " (", std::strerror(errno),
                     "): another daemon serves there, or the file cannot be made"));
  }
  return std::unique_ptr<LocalSocket>(
      new LocalSocket(std::move(options), std::move(listener), std::move(file), backend));
}

LocalSocket::LocalSocket(LocalSocketOptions options, Descriptor listener, SocketFile file,
                         Backend* backend)
    : options_(std::move(options)),
      backend_(backend),
      listener_(std::move(listener)),
      file_(std::move(file)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      places_({.limits = {options_.max_connections}}) {
  for (const int fd : {listener_.get(), stop_.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  CountConnections();
  thread_ = std::thread([this] { Run(); });
}

LocalSocket::~LocalSocket() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof one);
  thread_.join();
  RemoveSocketFile(file_);
  while (!connections_.empty()) Close(connections_.begin()->first);
}

void LocalSocket::Run() {
  epoll_event events[32];
  for (;;) {
    const bool rearm = paused_;
    const bool waits = rearm || std::any_of(connections_.begin(), connections_.end(),
                                            [](const auto& c) { return !c.second.known; });
    const int wait = waits ? static_cast<int>(kLookEvery.count()) : -1;
    const int count = epoll_wait(epoll_.get(), events, std::size(events), wait);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_.get()) return;
      // Without memory this one goes, not the daemon.
      const absl::Status status = Guarded("a local connection", [&] {
        if (fd == listener_.get()) {
          Accept();
        } else if (const auto found = connections_.find(fd);
                   found != connections_.end() && !Serve(found->second)) {
          Close(fd);
        }
        return absl::OkStatus();
      });
      if (!status.ok() && fd != listener_.get()) Close(fd);
    }
    CloseSilent(Clock::now());
    if (rearm) {
      paused_ = false;
      epoll_event event{.events = EPOLLIN, .data = {.fd = listener_.get()}};
      epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
    }
  }
}

void LocalSocket::Accept() {
  Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.open()) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
    Log(LogLevel::kWarning, "no_descriptors", {{"error", std::strerror(errno)}});
    epoll_event event{.events = 0, .data = {.fd = listener_.get()}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
    paused_ = true;
    return;
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  const auto refuse = [&](const absl::Status& why) {
    Refused(peer.uid, why);
    Send(socket.get(), ErrorReply(why));
  };
  if (peer.uid != geteuid() && !options_.uids.contains(peer.uid)) {
    return refuse(MakeError(absl::StatusCode::kPermissionDenied, reason::kPeerRefused,
                            absl::StrCat("user ", peer.uid,
                                         " may not share memory with the server; its --local-uids "
                                         "lists who may, beside its own user")));
  }
  const TenantShares::Account account = places_.Join(UserName(peer.uid));
  if (!places_.Admits(account, 1)) {
    places_.Leave(account);
    return refuse(MakeError(absl::StatusCode::kResourceExhausted, reason::kTooManyConnections,
                            absl::StrCat("--local-socket has ", options_.max_connections,
                                         " connections (--local-connections), the last of which "
                                         "are for users with less than their share; close some"))
                      .Meta("limit", options_.max_connections));
  }
  const int fd = socket.get();
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return places_.Leave(account);
  places_.Add(account, 1);
  connections_[fd] = {
      .socket = std::move(socket), .uid = peer.uid, .account = account, .opened = Clock::now()};
  CountConnections();
}

void LocalSocket::Close(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  for (const std::string& lease : found->second.leases) backend_->segments().Release(lease);
  places_.Add(found->second.account, -1);
  places_.Leave(found->second.account);
  connections_.erase(found);
  CountConnections();
}

void LocalSocket::CloseSilent(Clock::time_point now) {
  std::vector<int> silent;
  for (const auto& [fd, connection] : connections_) {
    if (!connection.known && now - connection.opened > options_.hello) silent.push_back(fd);
  }
  for (const int fd : silent) {
    backend_->metrics().LocalRefused(reason::kStalledSender);
    Close(fd);
  }
}

bool LocalSocket::Serve(Connection& connection) {
  Message message;
  const int received = message.Receive(connection.socket.get());
  if (received <= 0) return received == 0;
  bool keep = true;
  auto reply = Answer(connection, message, &keep);
  message.descriptors.clear();  // before anybody knows of the answer
  if (!reply.ok()) {
    Refused(connection.uid, reply.status());
    reply = ErrorReply(reply.status());
  }
  return Send(connection.socket.get(), *reply) && keep;
}

absl::StatusOr<v1::LocalReply> LocalSocket::Answer(Connection& connection, Message& message,
                                                   bool* keep) {
  const auto cut = [&](const std::string& what) {
    *keep = false;
    return Broken(what);
  };
  if (message.cut) {
    return cut(absl::StrCat("a message has more than ", kMaxMessageBytes,
                            " bytes, or more than one descriptor beside it"));
  }
  v1::LocalRequest request;
  if (!request.ParseFromArray(message.bytes, static_cast<int>(message.size))) {
    return cut("a message that cannot be parsed");
  }
  const bool segment = request.request_case() == v1::LocalRequest::kSegment;
  if (!segment && !message.descriptors.empty()) {
    return cut("a descriptor beside a message that takes none");
  }
  if (connection.known == request.has_hello()) {
    return cut(connection.known ? "a second hello" : "a message before the hello");
  }
  v1::LocalReply reply;
  switch (request.request_case()) {
    case v1::LocalRequest::kHello:
      return Welcome(connection, request.hello(), keep);
    case v1::LocalRequest::kSegment: {
      if (message.descriptors.empty()) return cut("a segment without its descriptor");
      ASSIGN_OR_RETURN(
          std::string lease,
          backend_->segments().Lease(connection.tenant, std::move(message.descriptors.front()),
                                     request.segment().bytes()));
      absl::Cleanup undo = [&] { backend_->segments().Release(lease); };
      connection.leases.insert(lease);
      std::move(undo).Cancel();
      reply.mutable_leased()->set_name(std::move(lease));
      return reply;
    }
    case v1::LocalRequest::kRelease: {
      const std::string& lease = request.release().lease();
      if (connection.leases.erase(lease) == 0) {
        return MakeError(absl::StatusCode::kNotFound, reason::kLeaseUnknown,
                         "this connection has no such lease")
            .Field("release.lease");
      }
      backend_->segments().Release(lease);
      reply.mutable_released();
      return reply;
    }
    default:
      return cut("a message without a request that this server knows");
  }
}

absl::StatusOr<v1::LocalReply> LocalSocket::Welcome(Connection& connection,
                                                    const v1::LocalHello& hello, bool* keep) {
  *keep = false;
  if (hello.version() != kVersion) {
    return Broken(
        absl::StrCat("version ", hello.version(), " is not known; this server has ", kVersion));
  }
  const auto own = options_.tenants.find(connection.uid);
  ASSIGN_OR_RETURN(Caller caller,
                   backend_->authenticator().IdentifyLocal(
                       hello.token(), own == options_.tenants.end() ? nullptr : &own->second));
  *keep = connection.known = true;
  connection.tenant = std::move(caller.tenant);
  v1::LocalReply reply;
  reply.mutable_welcome()->set_tenant(connection.tenant);
  return reply;
}

void LocalSocket::Refused(uid_t uid, const absl::Status& why) {
  backend_->metrics().LocalRefused(ReasonOf(why));
  Log(LogLevel::kWarning, "local_refused",
      {{"uid", uid}, {"reason", ReasonOf(why)}, {"text", std::string(why.message())}});
}

void LocalSocket::CountConnections() {
  backend_->metrics().SetLocalConnections(static_cast<int64_t>(connections_.size()),
                                          options_.max_connections);
}

}  // namespace spaid::server
