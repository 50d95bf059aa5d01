// The status page as a browser shows it, of a daemon that works, has worked, and has lost a device.
// Skipped where there is no Chromium. $SPAID_SCREENSHOTS=FOLDER keeps the pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/collect_status.h"
#include "server/ops/http.h"
#include "tests/client/cli/temp_folder.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"
#include "tests/server/ops/browser.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

using testing::Brightness;
using testing::BrowserOptions;
using testing::ColumnIsBlank;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Image;
using testing::Inked;
using ::testing::IsEmpty;
using testing::KeptAs;
using testing::Look;
using ::testing::Not;
using testing::Shoot;
using testing::Visit;

size_t CountOf(const std::string& what, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

class Browser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::ChromiumPath().empty()) {
      GTEST_SKIP() << "no Chromium (Debian: chromium-headless-shell)";
    }
  }
};

// Else the tests below would see nothing wrong in anything.
TEST_F(Browser, IsSeenToComplainAndToFetch) {
  const cli::TempFolder folder;
  const std::string file = folder.File("page.html");
  std::ofstream(file) << "<script>console.error('a complaint')</script><p id=made></p>"
                         "<script>document.getElementById('made').textContent = 1 + 1</script>"
                         "<img src='http://elsewhere.invalid/x.png'>";
  const Visit visit = Look("file://" + file);
  EXPECT_THAT(visit.dom, HasSubstr("<p id=\"made\">2</p>"));
  EXPECT_THAT(visit.console, Contains(HasSubstr("a complaint")));
  EXPECT_THAT(visit.urls, ElementsAre("http://elsewhere.invalid/x.png"));
  std::ofstream(file) << "";
  EXPECT_EQ(Inked(Shoot("file://" + file)), 0);
}

class WorkingServer : public Browser {
 protected:
  static constexpr char kEvil[] = "<script>document.title='taken'</script><b>eve</b>";

  void Start() {
    BackendOptions backend = Harness::SmallBackend();
    backend.slots = 1;
    harness_ = std::make_unique<Harness>(Harness::Options{
        .backend = backend, .trust_tenant_header = true, .devices = {FakeCpu(), FakeGpu(0)}});
    auto ops = OpsServer::Start(
        "127.0.0.1:0",
        {.metrics = &harness_->metrics,
         .ready = [this] { return harness_->backend->ready(); },
         .status =
             [this] { return CollectStatus(*harness_->backend, harness_->server->address()); }});
    ASSERT_TRUE(ops.ok()) << ops.status();
    ops_ = *std::move(ops);
  }
  void TearDown() override {
    ops_.reset();
    calls_.clear();
    harness_.reset();
  }
  std::string Url(const char* path = "/?refresh=off") const {
    return "http://" + ops_->address() + path;
  }
  // A solve on the CPU; its call.
  SolveCall& Ask(const std::string& tenant) {
    const std::string matrix = harness_->Store(DiagonalMatrix(3, 2), tenant);
    calls_.push_back(std::make_unique<SolveCall>(OpenSolve(*harness_, tenant)));
    calls_.back()->Head(SolveOf(matrix, Jacobi()));
    calls_.back()->Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12}));
    return calls_.back()->Done();
  }
  // One job that failed with its GPU, one that was solved, one that runs and two that wait.
  void Work() {
    harness_->engine.BreakDevice(1);
    BuildCall build = OpenBuild(*harness_, "alice");
    build.Head(BuildOf(harness_->Store(DiagonalMatrix(4, 1), "alice"), StaticSpai())).Done();
    EXPECT_FALSE(build.Finish().ok());
    harness_->engine.residuals = 9;
    EXPECT_TRUE(Ask(kEvil).Finish().ok());
    harness_->engine.residuals_after_hold = 4;
    harness_->engine.HoldSolves();
    Ask("carol");
    harness_->engine.WaitForSolves(2);
    JobName(Ask("dave"));
    JobName(Ask("dave"));
  }

  std::unique_ptr<Harness> harness_;
  std::unique_ptr<OpsServer> ops_;
  std::vector<std::unique_ptr<SolveCall>> calls_;
};

TEST_F(WorkingServer, ShowsWhatItDoes) {
  Start();
  Work();
  const Visit visit = Look(Url());
  EXPECT_THAT(visit.console, IsEmpty());
  EXPECT_THAT(visit.urls, ElementsAre(Url()));  // nothing else, from here or elsewhere
  EXPECT_THAT(visit.dom, HasSubstr("<title>spaid: ready, 1 running, 2 waiting</title>"));
  EXPECT_THAT(visit.dom, HasSubstr("&lt;b&gt;eve&lt;/b&gt;"));
  EXPECT_THAT(visit.dom, Not(HasSubstr("<b>eve</b>")));
  EXPECT_THAT(visit.dom, HasSubstr("DEVICE_LOST"));
  EXPECT_EQ(CountOf(">lost<", visit.dom), 1u);
  EXPECT_EQ(CountOf(">busy<", visit.dom), 1u);
  EXPECT_EQ(CountOf("class=\"tag good\">converged<", visit.dom), 1u);
  // Heads and rows: 1 + 1 runs, 1 + 2 wait, 1 + 2 have ended, 1 + 1 prediction.
  EXPECT_EQ(CountOf("<tr", visit.dom), 10u);
  // Of the solve that runs, and the one that ended.
  EXPECT_EQ(CountOf("<path class=\"line\" d=\"M", visit.dom), 2u);
  EXPECT_THAT(visit.dom, HasSubstr("residual from 1.0e+00 to 1.0e-08 in 8 iterations"));
  EXPECT_THAT(visit.dom, HasSubstr("residual from 1.0e+00 to 1.0e-04 in 4 iterations"));
}

TEST_F(WorkingServer, CanBeReadInLightAndDarkAndOnAPhone) {
  Start();
  Work();
  const Image light = Shoot(Url(), {}, KeptAs("light.png"));
  const Image dark = Shoot(Url(), {.dark = true}, KeptAs("dark.png"));
  EXPECT_EQ(light.width, 1280);
  EXPECT_GT(Brightness(light), 0.85);
  EXPECT_LT(Brightness(dark), 0.25);
  EXPECT_GT(Inked(light), 0.2);
  EXPECT_GT(Inked(dark), 0.2);
  // Nothing is wider than a phone: the right margin stays empty.
  const Image phone = Shoot(Url(), {.width = 390, .height = 3000}, KeptAs("phone.png"));
  EXPECT_EQ(phone.width, 390);
  EXPECT_GT(Inked(phone), 0.2);
  for (int x = phone.width - 10; x < phone.width; ++x) EXPECT_TRUE(ColumnIsBlank(phone, x)) << x;
}

TEST_F(WorkingServer, HasNothingToShowAtFirst) {
  Start();
  const Visit visit = Look(Url("/"));
  EXPECT_THAT(visit.console, IsEmpty());
  EXPECT_THAT(visit.dom, HasSubstr("Nothing runs."));
  EXPECT_THAT(visit.dom, HasSubstr("http-equiv=\"refresh\""));
  EXPECT_EQ(CountOf("<tr", visit.dom), 0u);
  EXPECT_GT(Inked(Shoot(Url("/"), {}, KeptAs("empty.png"))), 0.2);
}

// The program itself, with its own numerics.
TEST_F(Browser, ShowsASolveOfTheRealDaemon) {
  const e2e::Daemon daemon({"--devices=cpu"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const std::string log = daemon.log(), key = " ops_address=";
  const size_t at = log.find(key);
  ASSERT_NE(at, log.npos) << log;
  const std::string url =
      "http://" + log.substr(at + key.size(), log.find_first_of(" \n", at + 1) - at - key.size());
  Client client({.address = daemon.address()});
  const CscMatrix a = e2e::Poisson(60, 60);
  const auto solved = client.Solve(a, e2e::SmoothRhs(a), {.engine = Engine::kStaticSpai});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  const Visit visit = Look(url + "/?refresh=off");
  EXPECT_THAT(visit.console, IsEmpty());
  EXPECT_THAT(visit.urls, ElementsAre(url + "/?refresh=off"));
  EXPECT_THAT(visit.dom, HasSubstr("<b>bicgstab + static-spai</b>"));
  EXPECT_THAT(visit.dom, HasSubstr("n 3,600"));
  EXPECT_THAT(visit.dom, HasSubstr(std::to_string(solved->rhs[0].iterations) + " iterations, "));
  EXPECT_EQ(CountOf("<path class=\"line\" d=\"M", visit.dom), 1u);
  EXPECT_GT(Inked(Shoot(url + "/?refresh=off", {}, KeptAs("daemon.png"))), 0.2);
}

}  // namespace
}  // namespace spaid::server
