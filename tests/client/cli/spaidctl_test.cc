// The program as a user meets it, as far as that needs no daemon.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <regex>

#include "client/cli/app.h"
#include "client/cli/completion.h"
#include "client/cli/gallery.h"
#include "client/cli/matrix_market.h"
#include "kernels/gallery/gallery.h"
#include "tests/client/cli/run_spaidctl.h"
#include "tests/client/cli/temp_folder.h"

namespace spaid::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A port of the loopback that refuses connections as long as this lives: bound, not listening.
class ClosedPort {
 public:
  ClosedPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~ClosedPort() { close(socket_); }
  const std::string& address() const { return address_; }

 private:
  int socket_;
  std::string address_;
};

// --- usage: exit code 2 ---

class WrongUsage : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(WrongUsage, LeavesWith2AndSaysWhy) {
  const Finished plain = RunSpaidctl(GetParam());
  EXPECT_EQ(plain.exit_code, 2);
  EXPECT_THAT(plain.out, IsEmpty());
  EXPECT_THAT(plain.err, HasSubstr("spaidctl: "));
  EXPECT_THAT(plain.err, HasSubstr("--help"));
  std::vector<std::string> with_json = GetParam();
  with_json.insert(with_json.begin(), "--json");
  const Finished as_json = RunSpaidctl(with_json);
  EXPECT_EQ(as_json.exit_code, 2);
  EXPECT_EQ(json::parse(as_json.out).at("error").at("reason"), "WRONG_USAGE");
}

INSTANTIATE_TEST_SUITE_P(
    CommandLines, WrongUsage,
    testing::Values(std::vector<std::string>{}, std::vector<std::string>{"frobnicate"},
                    std::vector<std::string>{"solve"}, std::vector<std::string>{"solve", "A", "B"},
                    std::vector<std::string>{"solve", "A", "--unknown"},
                    std::vector<std::string>{"solve", "A", "--engine=ilu"},
                    std::vector<std::string>{"solve", "A", "--method=sor"},
                    std::vector<std::string>{"solve", "A", "--local-solver=svd"},
                    std::vector<std::string>{"solve", "A", "--rtol=0"},
                    std::vector<std::string>{"solve", "A", "--rtol=-1"},
                    std::vector<std::string>{"solve", "A", "--rtol=nan"},
                    std::vector<std::string>{"solve", "A", "--rtol=inf"},
                    std::vector<std::string>{"solve", "A", "--atol=-1"},
                    std::vector<std::string>{"solve", "A", "--max-iterations=0"},
                    std::vector<std::string>{"solve", "A", "--pattern-power=17"},
                    std::vector<std::string>{"solve", "A", "--pattern-power=1.5"},
                    std::vector<std::string>{"solve", "A", "--keep-tau=2"},
                    std::vector<std::string>{"solve", "A", "--block-size=0"},
                    std::vector<std::string>{"build", "A", "--block-size=33"},
                    std::vector<std::string>{"build", "A", "--k-max=513"},
                    std::vector<std::string>{"build", "A", "--step-size=0"},
                    std::vector<std::string>{"build", "A", "--epsilon=1"},
                    std::vector<std::string>{"build", "A", "--min-gain=1"},
                    std::vector<std::string>{"build", "A", "--drop-tol=-0.1"},
                    std::vector<std::string>{"build", "A", "--time-budget=0"},
                    std::vector<std::string>{"build", "A", "--fsai-precision=fp16"},
                    std::vector<std::string>{"build", "A", "--column-tol=1"},
                    std::vector<std::string>{"build", "A", "--column-tol=-0.1"},
                    std::vector<std::string>{"build", "A", "--max-steps=513"},
                    std::vector<std::string>{"solve", "A", "--max-column-nnz=-1"},
                    std::vector<std::string>{"compare", "A", "--growth-precision=fp16"},
                    std::vector<std::string>{"solve", "A", "--reuse=auto"},
                    std::vector<std::string>{"solve", "A", "--preconditioner=preconditioners/1",
                                             "--reuse=sometimes"},
                    std::vector<std::string>{"solve", "A", "--preconditioner=preconditioners/1",
                                             "--reuse=auto", "--reuse-factor=0.9"},
                    std::vector<std::string>{"solve", "A", "--preconditioner=preconditioners/1",
                                             "--reuse=auto", "--reuse-factor=nan"},
                    std::vector<std::string>{"solve", "A", "--preconditioner=preconditioners/1",
                                             "--reuse-factor=2"},
                    std::vector<std::string>{"solve", "A", "--detach", "--out=x.mtx"},
                    std::vector<std::string>{"solve", "A", "--detach", "--plot=a.svg"},
                    std::vector<std::string>{"solve", "A", "--engine=jacobi",
                                             "--preconditioner=preconditioners/x"},
                    std::vector<std::string>{"report", "A"},
                    std::vector<std::string>{"report", "A", "--out=a.html", "--ritz-steps=-1"},
                    std::vector<std::string>{"report", "A", "--out=a.html", "--plot=a.svg"},
                    std::vector<std::string>{"build", "A", "--engine=none"},
                    std::vector<std::string>{"build", "A", "--rtol=1e-3"},
                    std::vector<std::string>{"matrices", "--delete"},
                    std::vector<std::string>{"jobs", "--state=lost"},
                    std::vector<std::string>{"watch"}, std::vector<std::string>{"cancel"},
                    std::vector<std::string>{"gallery", "hilbert"},
                    std::vector<std::string>{"gallery", "--size=4"},
                    std::vector<std::string>{"completion", "tcsh"},
                    std::vector<std::string>{"--tls-ca=/no/such/file", "info"},
                    std::vector<std::string>{"--timeout=0", "info"}));

TEST(Help, TeachesEveryCommand) {
  const Finished help = RunSpaidctl({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("SPAID_ADDRESS"));
  for (const char* command :
       {"solve", "build", "estimate", "upload", "matrices", "preconditioners", "jobs", "watch",
        "cancel", "info", "compare", "report", "gallery", "completion"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("\n  ") + command + " "));
    const Finished own = RunSpaidctl({command, "--help"});
    EXPECT_EQ(own.exit_code, 0) << command;
    EXPECT_THAT(own.out, HasSubstr("Examples:\n  spaidctl "));
    EXPECT_THAT(own.out, HasSubstr(command));
  }
}

TEST(Version, IsPrinted) {
  const Finished version = RunSpaidctl({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(std::regex_match(version.out, std::regex("spaidctl \\d+\\.\\d+\\.\\d+\n")));
}

// --- errors: exit code 1 ---

TEST(Unreachable, EveryServerCommandSaysSo) {
  const ClosedPort closed;
  const TempFolder folder;
  const std::string a = folder.Write("A.mtx",
                                     "%%MatrixMarket matrix coordinate real general\n"
                                     "1 1 1\n1 1 2\n");
  const std::vector<std::vector<std::string>> commands = {
      {"info"},       {"solve", a},
      {"build", a},   {"upload", a},
      {"matrices"},   {"watch", "jobs/x"},
      {"compare", a}, {"report", a, "--out=" + folder.File("a.html")}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.begin(), {"--address=" + closed.address(), "--json", "--timeout=20"});
    const Finished finished = RunSpaidctl(command);
    EXPECT_EQ(finished.exit_code, 1) << command[3];
    const json object = json::parse(finished.out);
    EXPECT_EQ(object.at("error").at("code"), "UNAVAILABLE") << command[3];
    EXPECT_THAT(finished.err, HasSubstr(closed.address())) << command[3];
    EXPECT_THAT(finished.err, HasSubstr("UNAVAILABLE")) << command[3];
  }
}

TEST(Unreachable, AddressComesFromTheEnvironmentAndTheFlagWins) {
  const ClosedPort closed, other;
  const Finished from_environment = RunSpaidctl({"info"}, {"SPAID_ADDRESS=" + closed.address()});
  EXPECT_EQ(from_environment.exit_code, 1);
  EXPECT_THAT(from_environment.out, IsEmpty());
  EXPECT_THAT(from_environment.err, HasSubstr(closed.address()));
  const Finished from_flag =
      RunSpaidctl({"info", "--address", other.address()}, {"SPAID_ADDRESS=" + closed.address()});
  EXPECT_THAT(from_flag.err, HasSubstr(other.address()));
}

TEST(LocalErrors, AreToldBeforeTheServerIsAsked) {
  const TempFolder folder;
  const std::string a = folder.Write("A.mtx",
                                     "%%MatrixMarket matrix coordinate real general\n"
                                     "2 2 2\n1 1 2\n2 2 2\n");
  const std::string b = folder.Write("b.mtx", "%%MatrixMarket matrix array real general\n1 1\n1\n");
  struct Case {
    std::vector<std::string> args;
    const char* reason;
  };
  const std::vector<Case> cases = {
      {{"solve", folder.File("none.mtx")}, "FILE_NOT_FOUND"},
      {{"solve", a, "--rhs=" + b}, "RHS_LENGTH"},
      {{"solve", a, "--initial-guess=" + b}, "RHS_LENGTH"},
      {{"solve", a, "--null-space=" + b}, "RHS_LENGTH"},
      {{"solve", a, "--pattern=" + b}, "MATRIX_DENSE"},
      {{"solve", a, "--out=" + folder.File("no/x.mtx")}, "FILE_UNWRITABLE"},
      {{"solve", a, "--plot=" + folder.File("no/a.svg")}, "FILE_UNWRITABLE"},
      {{"compare", a, "--plot=" + folder.path().string()}, "FILE_UNWRITABLE"},
      {{"report", a, "--out=" + folder.File("no/a.html")}, "FILE_UNWRITABLE"},
      {{"report", folder.File("none.mtx"), "--out=" + folder.File("a.html")}, "FILE_NOT_FOUND"},
      {{"solve", "gallery:hilbert"}, "GALLERY_UNKNOWN"},
      {{"solve", "gallery:poisson:0"}, "GALLERY_SIZE"},
      {{"build", b}, "MATRIX_DENSE"},
      {{"upload", "matrices/there"}, "ALREADY_UPLOADED"},
      {{"gallery", "poisson", "--size=100000"}, "GALLERY_SIZE"},
      {{"gallery", "poisson", "--size=2", "--out=" + folder.File("no/A.mtx")}, "FILE_UNWRITABLE"}};
  for (const Case& c : cases) {
    std::vector<std::string> args = c.args;
    args.insert(args.begin(), {"--address=127.0.0.1:1", "--json"});
    const Finished finished = RunSpaidctl(args);
    EXPECT_EQ(finished.exit_code, 1) << c.reason;
    EXPECT_EQ(json::parse(finished.out).at("error").at("reason"), c.reason);
    EXPECT_THAT(finished.err, HasSubstr(c.reason));
    EXPECT_THAT(finished.err, Not(HasSubstr("\033")));
  }
}

TEST(OutputErrors, AFullDiskIsAnError) {
  const Finished finished =
      RunProgram({"sh", "-c", "exec \"$0\" gallery > /dev/full", SpaidctlPath()});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("No space left"));
}

// --- gallery ---

TEST(GalleryCommand, ListsAndWrites) {
  const Finished list = RunSpaidctl({"gallery"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.out, Not(HasSubstr("\033")));
  const json families = json::parse(RunSpaidctl({"gallery", "--json"}).out).at("families");
  ASSERT_EQ(families.size(), gallery::Families().size());
  for (const json& family : families) {
    EXPECT_THAT(list.out, HasSubstr(family.at("name").get<std::string>()));
  }
  const TempFolder folder;
  const std::string path = folder.File("E.mtx.gz");
  const Finished written =
      RunSpaidctl({"gallery", "elasticity", "--size=4", "--out=" + path, "--json"});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  const json object = json::parse(written.out);
  const auto direct = Generate("elasticity", 4);
  const auto read = ReadMatrix(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(object.at("n"), direct->n);
  EXPECT_EQ(object.at("nnz"), direct->col_ptr.back());
  EXPECT_EQ(read->row_idx, direct->row_idx);
  EXPECT_EQ(read->values, direct->values);
}

TEST(Colour, AlwaysAndNeverAreObeyed) {
  EXPECT_THAT(RunSpaidctl({"--color=always", "gallery"}).out, HasSubstr("\033["));
  EXPECT_THAT(RunSpaidctl({"--color=never", "gallery"}).out, Not(HasSubstr("\033")));
}

// --- completion ---

TEST(Completion, BashParsesAndKnowsEveryOption) {
  const TempFolder folder;
  const Finished script = RunSpaidctl({"completion", "bash"});
  ASSERT_EQ(script.exit_code, 0);
  const std::string path = folder.Write("c.bash", script.out);
  const Finished checked = RunProgram({"bash", "-n", path});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;

  Arguments arguments;
  const auto app = MakeApp(arguments);
  const auto all = app->get_subcommands([](CLI::App*) { return true; });
  EXPECT_EQ(all.size(), 14u);
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string text = CompletionScript(*app, shell);
    for (const CLI::App* sub : all) {
      EXPECT_THAT(text, HasSubstr(sub->get_name())) << shell;
      for (const CLI::Option* option : sub->get_options()) {
        for (const std::string& name : option->get_lnames()) EXPECT_THAT(text, HasSubstr(name));
      }
    }
  }
}

// What bash would offer for the words; the last one is being typed.
std::string Offers(const std::vector<std::string>& words) {
  const TempFolder folder;
  std::string script = RunSpaidctl({"completion", "bash"}).out;
  script += "compopt() { :; }\nCOMP_WORDS=(";  // only inside a real completion
  for (const std::string& word : words) script += " '" + word + "'";
  script += ")\nCOMP_CWORD=" + std::to_string(words.size() - 1) +
            "\n_spaidctl\necho \"${COMPREPLY[*]}\"\n";
  const Finished finished = RunProgram({"bash", folder.Write("offer.bash", script)});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, IsEmpty());
  return finished.out;
}

TEST(Completion, BashOffersWhatFits) {
  EXPECT_EQ(Offers({"spaidctl", "so"}), "solve\n");
  EXPECT_EQ(Offers({"spaidctl", "pre"}), "preconditioners\n");
  EXPECT_EQ(Offers({"spaidctl", "rep"}), "report\n");
  EXPECT_EQ(Offers({"spaidctl", "report", "A.mtx", "--ritz"}), "--ritz-steps\n");
  EXPECT_EQ(Offers({"spaidctl", "solve", "A.mtx", "--met"}), "--method\n");
  EXPECT_EQ(Offers({"spaidctl", "solve", "A.mtx", "--method", "="}),
            "auto cg bicgstab gmres minres idr\n");
  EXPECT_EQ(Offers({"spaidctl", "solve", "A.mtx", "--method", "=", "g"}), "gmres\n");
  EXPECT_EQ(Offers({"spaidctl", "solve", "A.mtx", "--method", "b"}), "bicgstab\n");
  EXPECT_EQ(Offers({"spaidctl", "build", "A.mtx", "--engine", "=", ""}),
            "auto jacobi static-spai fsai afsai dynamic-spai amg parasails boomeramg gamg\n");
  EXPECT_EQ(Offers({"spaidctl", "solve", "A.mtx", "--color", "=", "n"}), "never\n");
  EXPECT_EQ(Offers({"spaidctl", "solve", "gallery", ":", "el"}), "elasticity\n");
  EXPECT_EQ(Offers({"spaidctl", "completion", "z"}), "zsh\n");
  EXPECT_EQ(Offers({"spaidctl", "gallery", "po"}), "poisson\n");
}

TEST(Completion, ZshAndFishParseWhereTheyAreInstalled) {
  const TempFolder folder;
  int checked = 0;
  for (const std::string shell : {"zsh", "fish"}) {
    const std::string script = RunSpaidctl({"completion", shell}).out;
    ASSERT_THAT(script, HasSubstr("spaidctl"));
    if (RunProgram({"sh", "-c", "command -v " + shell}).exit_code != 0) continue;
    const Finished parsed = RunProgram({shell, "-n", folder.Write("c", script)});
    EXPECT_EQ(parsed.exit_code, 0) << parsed.err;
    ++checked;
  }
  if (checked == 0) GTEST_SKIP() << "neither zsh nor fish is installed";
}

}  // namespace
}  // namespace spaid::cli
