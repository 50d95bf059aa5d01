// TLS, mutual TLS and tokens with certificates made here by openssl's program.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <spaid/client.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"
#include "tests/server/ops/health_check.h"

namespace spaid::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void OpenSsl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "openssl");
  const Ran ran = RunProgram(arguments);
  ASSERT_EQ(ran.status, 0) << ran.output;
}

// A certificate authority and what it signs, as PEM files of one folder.
class Authority {
 public:
  Authority(const TempDir& folder, std::string name) : folder_(folder), name_(std::move(name)) {
    OpenSsl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-days", "2", "-subj", "/CN=" + name_, "-keyout", Path(name_ + ".key"), "-out", ca()});
  }
  // NAME.pem and NAME.key, for 127.0.0.1.
  void Sign(const std::string& file, const std::string& subject) const {
    OpenSsl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
             "/CN=" + subject, "-keyout", Path(file + ".key"), "-out", Path(file + ".csr")});
    std::ofstream(Path("san")) << "subjectAltName=IP:127.0.0.1,DNS:localhost\n";
    OpenSsl({"x509", "-req", "-in", Path(file + ".csr"), "-CA", ca(), "-CAkey",
             Path(name_ + ".key"), "-CAcreateserial", "-days", "2", "-extfile", Path("san"), "-out",
             Path(file + ".pem")});
  }
  std::string ca() const { return Path(name_ + ".pem"); }
  std::string Path(const std::string& file) const { return (folder_ / file).string(); }

 private:
  const TempDir& folder_;
  std::string name_;
};

class Tls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RunProgram({"openssl", "version"}).status != 0) {
      GTEST_SKIP() << "no openssl program to make certificates with";
    }
  }
  std::vector<std::string> ServerFlags() const {
    return {"--tls-cert=" + (folder_ / "server.pem").string(),
            "--tls-key=" + (folder_ / "server.key").string()};
  }
  const TempDir folder_;
};

TEST_F(Tls, WorksBothWaysAndKeepsStrangersOut) {
  const Authority ca(folder_, "ca"), stranger(folder_, "stranger");
  ca.Sign("server", "spaid server");
  Daemon daemon(ServerFlags());
  ASSERT_TRUE(daemon.serving()) << daemon.log();

  Client client({.address = daemon.address(), .ca_file = ca.ca()});
  const CscMatrix a = ConvectionDiffusion(20, 20, 0.5);
  const std::vector<double> b = SmoothRhs(a);
  const auto solved = client.Solve(a, b);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_LE(RelativeResidual(a, solved->x, b), 1.001e-8);

  Client distrustful({.address = daemon.address(), .ca_file = stranger.ca(), .max_attempts = 1});
  EXPECT_EQ(distrustful.GetServerInfo().error().code, Code::kUnavailable);
  Client plaintext({.address = daemon.address(), .max_attempts = 1});
  const Error refused = plaintext.GetServerInfo().error();
  EXPECT_EQ(refused.code, Code::kUnavailable);
  EXPECT_THAT(refused.message, HasSubstr(daemon.address()));
  EXPECT_TRUE(client.GetServerInfo().ok());
}

TEST_F(Tls, MutualTlsNamesTheTenant) {
  const Authority ca(folder_, "ca"), stranger(folder_, "stranger");
  ca.Sign("server", "spaid server");
  ca.Sign("blue", "blue");
  ca.Sign("red", "red");
  stranger.Sign("eve", "blue");
  std::vector<std::string> flags = ServerFlags();
  flags.insert(flags.end(), {"--tls-client-ca=" + ca.ca(), "--self-probe-interval=100ms"});
  Daemon daemon(flags);
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const auto as = [&](const std::string& name) {
    return Client({.address = daemon.address(),
                   .ca_file = ca.ca(),
                   .certificate_file = ca.Path(name + ".pem"),
                   .key_file = ca.Path(name + ".key"),
                   .max_attempts = 1});
  };
  Client blue = as("blue"), red = as("red");
  const auto info = blue.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_THAT(info->tenant, HasSubstr("blue"));
  const auto matrix = blue.Upload(Poisson(4, 4));
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_EQ(red.GetMatrix(matrix->name).error().reason, "HANDLE_UNKNOWN");

  EXPECT_FALSE(as("eve").GetServerInfo().ok());  // signed by somebody else
  const Error nobody = Client({.address = daemon.address(), .ca_file = ca.ca(), .max_attempts = 1})
                           .GetServerInfo()
                           .error();
  EXPECT_EQ(nobody.code, Code::kUnauthenticated);
  EXPECT_EQ(nobody.reason, "NO_CREDENTIALS");
  EXPECT_THAT(nobody.message, HasSubstr("certificate"));
  // Health is for everybody.
  std::stringstream roots;
  roots << std::ifstream(ca.ca()).rdbuf();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = roots.str();
  const auto channel = grpc::CreateChannel(daemon.address(), grpc::SslCredentials(options));
  EXPECT_EQ(spaid::testing::Check(channel, "readiness"), 1);
  EXPECT_THAT(daemon.log(), Not(HasSubstr("self_probe")));
}

TEST_F(Tls, WhoShowsACertificateAndATokenIsWhomTheTokenNames) {
  const Authority ca(folder_, "ca"), stranger(folder_, "stranger");
  ca.Sign("server", "spaid server");
  ca.Sign("blue", "blue");
  ca.Sign("root", "root");
  stranger.Sign("eve", "blue");
  const std::string tokens = (folder_ / "tokens").string();
  std::ofstream(tokens) << "secret-of-red-0123456789 red\n";
  std::filesystem::permissions(tokens, std::filesystem::perms::owner_read);
  std::vector<std::string> flags = ServerFlags();
  flags.insert(flags.end(), {"--tls-client-ca=" + ca.ca(), "--tokens=" + tokens,
                             "--allow-anonymous", "--admin-subject=CN=root"});
  Daemon daemon(flags);
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const auto info = [&](const std::string& name, const std::string& token) {
    ClientOptions options{
        .address = daemon.address(), .ca_file = ca.ca(), .token = token, .max_attempts = 1};
    if (!name.empty()) {
      options.certificate_file = ca.Path(name + ".pem");
      options.key_file = ca.Path(name + ".key");
    }
    return Client(options).GetServerInfo();
  };
  const std::string red = "secret-of-red-0123456789";
  const auto as_blue = info("blue", "");
  ASSERT_TRUE(as_blue.ok()) << as_blue.error().message;
  EXPECT_EQ(as_blue->tenant, "CN=blue");
  EXPECT_FALSE(as_blue->administrator);
  EXPECT_EQ(info("blue", red)->tenant, "red");
  EXPECT_EQ(info("blue", "secret-of-nobody-012345").error().reason, "BAD_TOKEN");
  EXPECT_TRUE(info("root", "")->administrator);
  EXPECT_FALSE(info("root", red)->administrator);
  // Asked for, not insisted on; but a stranger's does not do.
  EXPECT_EQ(info("", red)->tenant, "red");
  EXPECT_EQ(info("", "")->tenant, "default");
  EXPECT_FALSE(info("eve", "").ok());
}

TEST_F(Tls, TokensNameTheTenant) {
  const Authority ca(folder_, "ca");
  ca.Sign("server", "spaid server");
  const std::string tokens = (folder_ / "tokens").string();
  std::ofstream(tokens) << "secret-of-blue-0123456789 blue\nsecret-of-red-0123456789 red\n";
  std::filesystem::permissions(tokens, std::filesystem::perms::owner_read);
  std::vector<std::string> flags = ServerFlags();
  flags.push_back("--tokens=" + tokens);
  Daemon daemon(flags);
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const auto with = [&](const std::string& token) {
    return Client({.address = daemon.address(), .ca_file = ca.ca(), .token = token});
  };
  const auto info = with("secret-of-blue-0123456789").GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->tenant, "blue");
  const Error wrong = with("secret-of-nobody").GetServerInfo().error();
  EXPECT_EQ(wrong.code, Code::kUnauthenticated);
  EXPECT_EQ(wrong.reason, "BAD_TOKEN");
}

TEST_F(Tls, ACertificateIsReplacedWithoutARestart) {
  const Authority old_ca(folder_, "old"), new_ca(folder_, "new");
  old_ca.Sign("server", "spaid server");
  Daemon daemon(ServerFlags());
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  ASSERT_TRUE(Client({.address = daemon.address(), .ca_file = old_ca.ca()}).GetServerInfo().ok());

  new_ca.Sign("next", "spaid server");
  std::filesystem::rename(folder_ / "next.key", folder_ / "server.key");
  std::filesystem::rename(folder_ / "next.pem", folder_ / "server.pem");
  // The daemon looks at the files from time to time; each try is a new connection.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool replaced = false;
  while (!replaced && std::chrono::steady_clock::now() < end) {
    replaced = Client({.address = daemon.address(), .ca_file = new_ca.ca()}).GetServerInfo().ok();
  }
  EXPECT_TRUE(replaced) << daemon.log();
  EXPECT_FALSE(Client({.address = daemon.address(), .ca_file = old_ca.ca(), .max_attempts = 1})
                   .GetServerInfo()
                   .ok());
}

// The value of a metric, labels and all; -1: it is not there.
double Metric(const Daemon& daemon, const std::string& name) {
  const auto metrics = httplib::Client("http://" + daemon.ops_address()).Get("/metrics");
  const size_t at = metrics ? metrics->body.find("\n" + name + " ") : std::string::npos;
  return at == std::string::npos ? -1 : std::stod(metrics->body.substr(at + name.size() + 2));
}

TEST_F(Tls, ItIsToldWhenCertificatesExpire) {
  const Authority ca(folder_, "ca");
  ca.Sign("server", "spaid server");
  auto flags = ServerFlags();
  flags.push_back("--tls-client-ca=" + ca.ca());
  Daemon daemon(flags);
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const std::string name = "spaid_tls_certificate_expiry_seconds";
  const double in_two_days = static_cast<double>(std::time(nullptr)) + 2 * 86400;
  for (const char* file : {"{file=\"tls-cert\"}", "{file=\"tls-client-ca\"}"}) {
    EXPECT_NEAR(Metric(daemon, name + file), in_two_days, 300) << file;
  }
  // The first of several in a file counts; a file that cannot be read changes nothing.
  OpenSsl({"req", "-x509", "-key", ca.Path("server.key"), "-days", "1", "-subj", "/CN=one", "-out",
           ca.Path("one.pem")});
  std::ofstream chain(folder_ / "server.pem", std::ios::app);
  chain << std::ifstream(folder_ / "one.pem").rdbuf() << std::flush;
  EXPECT_NEAR(Metric(daemon, name + "{file=\"tls-cert\"}"), in_two_days - 86400, 300);
  std::filesystem::remove(folder_ / "server.pem");
  EXPECT_NEAR(Metric(daemon, name + "{file=\"tls-cert\"}"), in_two_days - 86400, 300);
}

TEST_F(Tls, ABrokenCertificateIsSaidAtTheStart) {
  const Authority ca(folder_, "ca");
  ca.Sign("server", "spaid server");
  std::ofstream(folder_ / "server.pem") << "not a certificate\n";
  Daemon daemon(ServerFlags());
  EXPECT_FALSE(daemon.serving());
  EXPECT_NE(daemon.WaitForExit(), 0);
  EXPECT_THAT(daemon.log(), HasSubstr("server.pem"));
}

}  // namespace
}  // namespace spaid::e2e
