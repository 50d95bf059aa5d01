#include "tests/server/rpc/local_client.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "google/rpc/error_details.pb.h"

namespace spaid::server {

Memory::Memory(int64_t bytes, unsigned seals)
    : fd_(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
  EXPECT_EQ(ftruncate(fd(), bytes), 0);
  EXPECT_EQ(fcntl(fd(), F_ADD_SEALS, seals), 0);
  void* const begin =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd(), 0);
  EXPECT_NE(begin, MAP_FAILED);
  begin_ = static_cast<char*>(begin);
}

Memory::~Memory() { Unmap(); }

void Memory::Unmap() {
  if (begin_ != nullptr) munmap(begin_, static_cast<size_t>(bytes_));
  begin_ = nullptr;
}

v1::ArraySegment Memory::Put(v1::ArrayKind array, const void* from, int64_t bytes) {
  v1::ArraySegment segment;
  segment.set_array(array);
  segment.set_offset(used_);
  segment.set_bytes(bytes);
  EXPECT_LE(used_ + bytes, bytes_);
  if (from != nullptr) std::memcpy(begin_ + used_, from, static_cast<size_t>(bytes));
  used_ += (bytes + 7) / 8 * 8;
  return segment;
}

LocalClient::LocalClient(const std::string& path, std::optional<std::string> token)
    : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const timeval minute{.tv_sec = 60, .tv_usec = 0};  // a hang is a failure
  setsockopt(fd(), SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  if (connect(fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) socket_.Reset();
  if (connected() && token) {
    EXPECT_TRUE(Hello(*token).has_welcome());
  }
}

bool LocalClient::Send(const std::string& bytes, const std::vector<int>& descriptors) const {
  iovec data{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  return sendmsg(fd(), &message, MSG_NOSIGNAL) >= 0;
}

std::optional<v1::LocalReply> LocalClient::Receive() const {
  char bytes[16 << 10];
  ssize_t got = -1;
  // A side that has hung up on what it did not read tells so once; what it said before follows.
  do {
    got = recv(fd(), bytes, sizeof bytes, 0);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  EXPECT_FALSE(got < 0 && errno == EAGAIN) << "no answer in a minute";
  v1::LocalReply reply;
  if (got <= 0 || !reply.ParseFromArray(bytes, static_cast<int>(got))) return std::nullopt;
  return reply;
}

std::optional<v1::LocalReply> LocalClient::Ask(const v1::LocalRequest& request,
                                               const std::vector<int>& descriptors) const {
  Send(request.SerializeAsString(), descriptors);
  return Receive();
}

v1::LocalReply LocalClient::Hello(const std::string& token, int version) const {
  v1::LocalRequest request;
  request.mutable_hello()->set_version(version);
  request.mutable_hello()->set_token(token);
  return Ask(request).value_or(v1::LocalReply());
}

std::string LocalClient::Register(int memfd, int64_t bytes) const {
  v1::LocalRequest request;
  request.mutable_segment()->set_bytes(bytes);
  return Ask(request, {memfd}).value_or(v1::LocalReply()).leased().name();
}

std::string LocalClient::WhyNot(int memfd, int64_t bytes) const {
  v1::LocalRequest request;
  request.mutable_segment()->set_bytes(bytes);
  return ReasonOf(Ask(request, {memfd}).value_or(v1::LocalReply()));
}

std::string ReasonOf(const v1::LocalReply& reply) {
  if (reply.has_error()) {
    EXPECT_FALSE(reply.error().message().empty());
  }
  for (const auto& any : reply.error().details()) {
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&info)) return info.reason();
  }
  return "";
}

}  // namespace spaid::server
