#include "server/ops/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

// A connection of bytes. Whatever hangs longer than a minute fails the test.
class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval minute{.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False once the other side is gone.
  bool Send(const std::string& text) {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // To the end of the connection.
  std::string ReadAll() {
    std::string text;
    std::array<char, 4096> buffer{};
    ssize_t count = 0;
    while ((count = recv(fd_, buffer.data(), buffer.size(), 0)) > 0) {
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    return text;
  }

 private:
  int fd_;
};

std::string Ask(int port, const std::string& request) {
  Client client(port);
  EXPECT_TRUE(client.Send(request));
  return client.ReadAll();
}

std::string Get(int port, const std::string& path) {
  return Ask(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
}

bool Is(const std::string& answer, int status) {
  return answer.rfind("HTTP/1.1 " + std::to_string(status) + " ", 0) == 0;
}

// /now is answered at once; every other page is made: "page" and its path.
HttpServer::Pages TwoPages() {
  return {.at_once = [](const HttpRequest& request) -> std::optional<HttpResponse> {
            if (request.path != "/now") return std::nullopt;
            return HttpResponse{.type = "text/plain", .body = "now"};
          },
          .make =
              [](const HttpRequest& request) {
                return HttpResponse{.type = "text/plain", .body = "page " + request.path};
              }};
}

std::unique_ptr<HttpServer> Started(HttpOptions options = {},
                                    HttpServer::Pages pages = TwoPages()) {
  auto server = HttpServer::Start("127.0.0.1", 0, options, std::move(pages));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(HttpHead, IsReadOnceItHasEnded) {
  EXPECT_FALSE(ParseHttpHead(""));
  EXPECT_FALSE(ParseHttpHead("GET / HTTP/1.1\r\nHost: x\r\n"));
  const auto head = ParseHttpHead("GET /a?b&c=1 HTTP/1.1\r\nhOST:  x:1 \r\nA: b\r\n\r\nbody");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->error, 0);
  EXPECT_EQ(head->request.method, "GET");
  EXPECT_EQ(head->request.path, "/a");
  EXPECT_EQ(head->request.host, "x:1");
  EXPECT_TRUE(head->request.HasParameter("b"));
  EXPECT_TRUE(head->request.HasParameter("c"));
  EXPECT_FALSE(head->request.HasParameter("1"));
  EXPECT_EQ(ParseHttpHead("GET / HTTP/1.0\r\n\r\n")->error, 0);
}

TEST(HttpHead, IsRefusedWhereItIsMalformed) {
  for (const char* bad :
       {"\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n",
        "G(T / HTTP/1.1\r\n\r\n", "GET x HTTP/1.1\r\n\r\n", "GET http://x/ HTTP/1.1\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\n\r\n", "GET / FTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", "GET / HTTP/1.1\r\nA : b\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", "\x16\x03\x01\r\n\r\n"}) {
    EXPECT_EQ(ParseHttpHead(bad)->error, 400) << bad;
  }
  EXPECT_EQ(ParseHttpHead("GET / HTTP/2.0\r\n\r\n")->error, 505);
}

TEST(HttpServer, AnswersOneRequestAConnection) {
  const auto server = Started();
  const std::string answer = Get(server->port(), "/x?y");
  EXPECT_TRUE(Is(answer, 200)) << answer;
  EXPECT_NE(answer.find("\r\nContent-Length: 7\r\n"), std::string::npos);
  EXPECT_NE(answer.find("\r\nConnection: close\r\n"), std::string::npos);
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n")), "\r\n\r\npage /x");
  const std::string head = Ask(server->port(), "HEAD /x HTTP/1.1\r\n\r\n");
  EXPECT_NE(head.find("\r\nContent-Length: 7\r\n"), std::string::npos);
  EXPECT_EQ(head.substr(head.find("\r\n\r\n")), "\r\n\r\n");
  EXPECT_TRUE(Is(Ask(server->port(), "nonsense\r\n\r\n"), 400));
}

TEST(HttpServer, PassesOverRangesAndBodies) {
  const auto server = Started();
  std::string ranges = "GET /x HTTP/1.1\r\nRange: bytes=0-";
  for (int k = 0; k < 2000; ++k) ranges += ",0-";
  EXPECT_EQ(Ask(server->port(), ranges + "\r\n\r\n"), Get(server->port(), "/x"));
  const std::string body(1 << 20, 'x');
  const std::string answer =
      Ask(server->port(), "POST /x HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n" + body);
  EXPECT_TRUE(Is(answer, 405)) << answer;
  EXPECT_NE(answer.find("\r\nAllow: GET, HEAD\r\n"), std::string::npos);
}

TEST(HttpServer, CutsAHeadWithoutEnd) {
  const auto server = Started();
  Client client(server->port());
  ASSERT_TRUE(client.Send("GET /x HTTP/1.1\r\n"));
  const std::string lines(1 << 10, 'x');
  for (int k = 0; k < 1 << 16 && server->figures().too_large == 0; ++k) {
    client.Send("h: " + lines + "\r\n");
  }
  EXPECT_EQ(server->figures().too_large, 1);
  EXPECT_TRUE(Is(Get(server->port(), "/" + std::string(17 << 10, 'a')), 431));
  EXPECT_TRUE(Is(Get(server->port(), "/" + std::string(15 << 10, 'a')), 200));
}

// The time counts in all, not from byte to byte.
TEST(HttpServer, EndsARequestThatTrickles) {
  const auto server = Started({.timeout = milliseconds(1000)});
  Client client(server->port());
  client.Send("GET /x HTTP/1.1\r\nX: ");
  std::thread trickle([&] {
    while (client.Send("y")) std::this_thread::sleep_for(milliseconds(10));
  });
  EXPECT_TRUE(Is(client.ReadAll(), 408));
  trickle.join();
  Client silent(server->port());
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(server->figures().timed_out, 2);
}

TEST(HttpServer, CutsAReaderThatTakesNothing) {
  HttpServer::Pages pages = TwoPages();
  pages.make = [](const HttpRequest&) {
    return HttpResponse{.type = "text/plain", .body = std::string(64 << 20, 'x')};
  };
  const auto server = Started({.timeout = milliseconds(300)}, pages);
  Client client(server->port());
  ASSERT_TRUE(client.Send("GET /x HTTP/1.1\r\n\r\n"));
  while (server->figures().timed_out == 0) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_LT(client.ReadAll().size(), size_t{64} << 20);
}

TEST(HttpServer, ClosesTheOldestForTheNewest) {
  const auto server = Started({.max_connections = 8, .timeout = milliseconds(60'000)});
  std::deque<Client> idle;
  for (int k = 0; k < 8; ++k) {
    idle.emplace_back(server->port());
    idle.back().Send("GET /x HTTP/1.1\r\nX: ");
  }
  while (server->figures().open < 8) std::this_thread::yield();
  EXPECT_TRUE(Is(Get(server->port(), "/now"), 200));
  EXPECT_TRUE(Is(Get(server->port(), "/x"), 200));
  EXPECT_EQ(idle.front().ReadAll(), "");
  EXPECT_LE(server->figures().open, 8);
  EXPECT_GE(server->figures().crowded_out, 1);
  // The youngest may still ask.
  idle.back().Send("y\r\n\r\n");
  EXPECT_TRUE(Is(idle.back().ReadAll(), 200));
}

// Pages that hang, and hundreds who wait for them or never ask: probes are answered.
TEST(HttpServer, AnswersProbesWhateverHangs) {
  std::promise<void> release;
  HttpServer::Pages pages = TwoPages();
  pages.make = [hung = release.get_future().share()](const HttpRequest&) {
    hung.wait();
    return HttpResponse{.type = "text/plain", .body = "late"};
  };
  const auto server = Started({.timeout = milliseconds(60'000)}, pages);
  std::deque<Client> clients;
  for (int k = 0; k < 300; ++k) {
    clients.emplace_back(server->port());
    clients.back().Send(k % 2 == 0 ? "GET /x HTTP/1.1\r\n\r\n" : "GET /x HTTP/1.1\r\nX: ");
    if (k % 50 == 0) {
      EXPECT_TRUE(Is(Get(server->port(), "/now"), 200)) << k;
    }
  }
  EXPECT_TRUE(Is(Get(server->port(), "/now"), 200));
  Client last(server->port());
  last.Send("GET /x HTTP/1.1\r\n\r\n");
  release.set_value();
  EXPECT_NE(last.ReadAll().find("late"), std::string::npos);
}

TEST(HttpServer, EndsWithConnectionsInEveryPhase) {
  auto server = Started();
  Client asking(server->port()), asked(server->port()), answered(server->port());
  asking.Send("GET ");
  asked.Send("GET /x HTTP/1.1\r\n\r\n");
  answered.Send("GET /now HTTP/1.1\r\n\r\n");
  while (server->figures().open < 1) std::this_thread::yield();
  server.reset();
  EXPECT_EQ(asking.ReadAll(), "");
}

}  // namespace
}  // namespace spaid::server
