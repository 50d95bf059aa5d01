// The client's side of --local-socket against servers made by hand, which are not there, say no,
// nothing, or nonsense; and what it sends of arrays in shared memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "spaid/v1/local.pb.h"
#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using ::testing::HasSubstr;
using testing::ScriptedServer;

using SolveStream = grpc::ServerReaderWriter<v1::SolveResponse, v1::SolveRequest>;

// Answers each message of each connection, one after the other, by `answer`; "": hangs up.
class LocalServer {
 public:
  using Answer = std::function<std::string(const v1::LocalRequest&, int descriptor)>;
  explicit LocalServer(Answer answer) : answer_(std::move(answer)) {
    char name[] = "/tmp/spaid-local-XXXXXX";
    folder_ = mkdtemp(name);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof address.sun_path - 1);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 10), 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~LocalServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    std::filesystem::remove_all(folder_);
  }
  std::string path() const { return folder_ + "/local"; }

 private:
  void Run() {
    for (;;) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      while (Serve(fd)) {
      }
      close(fd);
    }
  }
  bool Serve(int fd) {
    char bytes[8192], control[CMSG_SPACE(sizeof(int))];
    iovec data{.iov_base = bytes, .iov_len = sizeof bytes};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) return false;
    int descriptor = -1;
    if (const cmsghdr* c = CMSG_FIRSTHDR(&message)) {
      std::memcpy(&descriptor, CMSG_DATA(c), sizeof descriptor);
    }
    v1::LocalRequest request;
    EXPECT_TRUE(request.ParseFromArray(bytes, static_cast<int>(got)));
    const std::string answer = answer_(request, descriptor);
    if (descriptor >= 0) close(descriptor);
    return !answer.empty() && send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) >= 0;
  }

  const Answer answer_;
  std::string folder_;
  int listener_ = -1;
  std::thread thread_;
};

std::string Welcome() {
  v1::LocalReply reply;
  reply.mutable_welcome()->set_tenant("alice");
  return reply.SerializeAsString();
}

std::string Refusal(int code, const std::string& message) {
  v1::LocalReply reply;
  reply.mutable_error()->set_code(code);
  reply.mutable_error()->set_message(message);
  return reply.SerializeAsString();
}

// Leases all that comes, by the names leases/0, leases/1, …
LocalServer::Answer Lessor() {
  return [count = 0](const v1::LocalRequest& request, int) mutable {
    v1::LocalReply reply;
    if (request.has_hello()) return Welcome();
    if (request.has_segment())
      reply.mutable_leased()->set_name("leases/" + std::to_string(count++));
    if (request.has_release()) reply.mutable_released();
    return reply.SerializeAsString();
  };
}

LocalStatus StatusAt(const std::string& path) {
  Client client({.address = "127.0.0.1:1", .local_socket = path});
  return client.GetLocalStatus();
}

TEST(LocalStatusOf, NoSocket) {
  EXPECT_THAT(StatusAt("").why, HasSubstr("local_socket is empty"));
  EXPECT_THAT(StatusAt("/nowhere/local").why, HasSubstr("--local-socket"));
  EXPECT_THAT(StatusAt(std::string(300, 'x')).why, HasSubstr("too long"));
  LocalServer server(Lessor());
  const std::string left = server.path() + "2";
  std::ofstream(left).put('x');
  EXPECT_THAT(StatusAt(left).why, HasSubstr("has ended"));
  EXPECT_FALSE(StatusAt(left).available);
  EXPECT_TRUE(StatusAt(server.path()).available);
  EXPECT_EQ(StatusAt(server.path()).tenant, "alice");
}

TEST(LocalStatusOf, AServerThatRefuses) {
  LocalServer server([](const v1::LocalRequest&, int) { return Refusal(7, "user 3 may not"); });
  const LocalStatus status = StatusAt(server.path());
  EXPECT_FALSE(status.available);
  EXPECT_EQ(status.why, "user 3 may not");
}

TEST(LocalStatusOf, AServerThatHangsUpOrTalksNonsense) {
  LocalServer mute([](const v1::LocalRequest&, int) { return ""; });
  EXPECT_THAT(StatusAt(mute.path()).why, HasSubstr("hung up"));
  LocalServer mad([](const v1::LocalRequest&, int) { return "\xff\xff\xff"; });
  EXPECT_THAT(StatusAt(mad.path()).why, HasSubstr("protocol"));
  LocalServer wrong([](const v1::LocalRequest&, int) {
    v1::LocalReply reply;
    reply.mutable_leased()->set_name("leases/x");
    return reply.SerializeAsString();
  });
  EXPECT_FALSE(StatusAt(wrong.path()).available);
}

TEST(Allocate, GivesMemoryInAnyCase) {
  Client client({.address = "127.0.0.1:1"});
  const auto array = client.Allocate<double>(1000);
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(array->size(), 1000u);
  EXPECT_EQ((*array)[999], 0);
  (*array)[999] = 3;
  const auto none = client.Allocate<int32_t>(0);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->span().empty());
  EXPECT_EQ(client.Allocate<double>(-1).error().reason, "BAD_OPTION");
  EXPECT_EQ(client.Allocate<double>(INT64_MAX / 4).error().reason, "BAD_OPTION");
  EXPECT_EQ(client.Allocate<double>(INT64_MAX / 16).error().reason, "OUT_OF_MEMORY");
}

TEST(Allocate, SharesMemoryThatNobodyCanCut) {
  int seals = 0;
  int64_t size = 0;
  LocalServer server([&, lessor = Lessor()](const v1::LocalRequest& request, int fd) mutable {
    if (request.has_segment()) {
      seals = fcntl(fd, F_GET_SEALS);
      struct stat file {};
      fstat(fd, &file);
      size = file.st_size;
      EXPECT_EQ(size, request.segment().bytes());
    }
    return lessor(request, fd);
  });
  Client client({.address = "127.0.0.1:1", .local_socket = server.path()});
  SharedArray<double> moved;
  {
    auto array = client.Allocate<double>(1001);
    ASSERT_TRUE(array.ok());
    moved = *std::move(array);
  }
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
  EXPECT_EQ(size, 8008);
  EXPECT_EQ(moved.size(), 1001u);
  { const Client gone = std::move(client); }
  moved[1000] = 1;  // outlives its client
}

// A solve of n = 3 whose stream is kept.
struct Solved {
  explicit Solved(int64_t solution_bytes)
      : server({.get_matrix =
                    [](grpc::ServerContext&, const v1::GetMatrixRequest&,
                       v1::GetMatrixResponse& response) {
                      response.mutable_matrix()->set_n(3);
                      return grpc::Status::OK;
                    },
                .solve =
                    [this, solution_bytes](grpc::ServerContext&, SolveStream& stream) {
                      v1::SolveRequest request;
                      while (stream.Read(&request)) requests.push_back(request);
                      v1::SolveResponse response;
                      response.mutable_done()->add_outcomes()->set_outcome(v1::OUTCOME_CONVERGED);
                      response.mutable_done()->set_solution_bytes(solution_bytes);
                      stream.Write(response);
                      return grpc::Status::OK;
                    }}) {}
  std::vector<v1::SolveRequest> requests;
  ScriptedServer server;
};

TEST(SolveOfSharedArrays, NamesThemAndSendsTheRest) {
  LocalServer local(Lessor());
  Solved solved(24);
  Client client({.address = solved.server.address(), .local_socket = local.path()});
  const auto memory = client.Allocate<double>(9);
  ASSERT_TRUE(memory.ok());
  const std::vector<double> guess(3, 1.0);
  SolveOptions options{.initial_guess = guess};
  options.solution = memory->span().last(3);
  const auto result = client.Solve("matrices/a", memory->span().subspan(3, 3), options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_TRUE(result->x.empty());
  ASSERT_EQ(solved.requests.size(), 3u);
  const v1::ArraySegment& place = solved.requests[0].header().solution_segment();
  EXPECT_EQ(place.lease(), "leases/0");
  EXPECT_EQ(place.array(), v1::ARRAY_KIND_SOLUTION);
  EXPECT_EQ(place.offset(), 48);
  EXPECT_EQ(place.bytes(), 24);
  EXPECT_EQ(solved.requests[1].segment().array(), v1::ARRAY_KIND_RHS);
  EXPECT_EQ(solved.requests[1].segment().offset(), 24);
  EXPECT_EQ(solved.requests[2].chunk().array(), v1::ARRAY_KIND_INITIAL_GUESS);
  EXPECT_EQ(client.GetLocalStatus().shared_bytes, 48);
}

TEST(SolveOfSharedArrays, BelievesNoSolutionThatItDidNotAskFor) {
  LocalServer local(Lessor());
  Solved solved(24);
  Client client({.address = solved.server.address(), .local_socket = local.path()});
  const std::vector<double> b(3, 1.0);
  const auto result = client.Solve("matrices/a", b);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().reason, "PROTOCOL_VIOLATION");
}

TEST(SolveOfSharedArrays, BelievesNoPartOfASolution) {
  LocalServer local(Lessor());
  Solved solved(16);
  Client client({.address = solved.server.address(), .local_socket = local.path()});
  const auto x = client.Allocate<double>(3);
  const std::vector<double> b(3, 1.0);
  SolveOptions options;
  options.solution = *x;
  EXPECT_EQ(client.Solve("matrices/a", b, options).error().reason, "PROTOCOL_VIOLATION");
}

TEST(SolveOfSharedArrays, SendsWhatCannotBeNamed) {
  LocalServer local([](const v1::LocalRequest& request, int) {
    return request.has_hello() ? Welcome() : Refusal(8, "full");
  });
  Solved solved(0);
  Client client({.address = solved.server.address(), .local_socket = local.path()});
  const auto b = client.Allocate<double>(3);
  ASSERT_TRUE(b.ok());
  const auto result = client.Solve("matrices/a", *b, {.omit_solution = true});
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(solved.requests.size(), 2u);
  EXPECT_TRUE(solved.requests[1].has_chunk());
  EXPECT_EQ(client.GetLocalStatus().fallback_bytes, 24);
  EXPECT_EQ(client.GetLocalStatus().why, "full");
}

}  // namespace
}  // namespace spaid
