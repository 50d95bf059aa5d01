// The page of spaidctl report as a browser shows it. Skipped where there is no Chromium.
// $SPAID_SCREENSHOTS=FOLDER keeps the pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/client/cli/run_spaidctl.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/one_daemon.h"
#include "tests/server/ops/browser.h"

namespace spaid::e2e {
namespace {

using spaid::testing::Brightness;
using spaid::testing::ColumnIsBlank;
using spaid::testing::Image;
using spaid::testing::Inked;
using spaid::testing::KeptAs;
using spaid::testing::Look;
using spaid::testing::Shoot;
using spaid::testing::Visit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ReportPage : public OneDaemon {
 protected:
  void SetUp() override {
    OneDaemon::SetUp();
    if (spaid::testing::ChromiumPath().empty()) {
      GTEST_SKIP() << "no Chromium (Debian: chromium-headless-shell)";
    }
  }
  std::string UrlOf(const std::string& matrix) {
    const std::string path = folder_ / "report.html";
    const cli::Finished finished = cli::RunSpaidctl(
        {"--address=" + daemon_->address(), "-q", "report", matrix, "--out=" + path});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return "file://" + path;
  }
  TempDir folder_;
};

TEST_F(ReportPage, FetchesNothingAndComplainsOfNothing) {
  const Visit visit = Look(UrlOf("gallery:convdiff:12"));
  EXPECT_EQ(visit.exit_code, 0);
  EXPECT_THAT(visit.console, IsEmpty());
  EXPECT_THAT(visit.urls, IsEmpty());
  EXPECT_THAT(visit.dom, HasSubstr("<title>gallery:convdiff:12 – spaid report</title>"));
  EXPECT_THAT(visit.dom, Not(HasSubstr("<script")));
  EXPECT_THAT(visit.dom, HasSubstr("class=\"curve c0\""));
}

TEST_F(ReportPage, CanBeReadInLightAndDarkAndOnAPhone) {
  const std::string url = UrlOf("gallery:convdiff:12");
  const Image light = Shoot(url, {.height = 5000}, KeptAs("report.png"));
  const Image dark = Shoot(url, {.dark = true, .height = 5000}, KeptAs("report_dark.png"));
  EXPECT_GT(Brightness(light), 0.85);
  EXPECT_LT(Brightness(dark), 0.25);
  EXPECT_GT(Inked(light), 0.2);
  EXPECT_GT(Inked(dark), 0.2);
  // Nothing is wider than a phone: the right margin stays empty.
  const Image phone = Shoot(url, {.width = 390, .height = 9000}, KeptAs("report_phone.png"));
  EXPECT_GT(Inked(phone), 0.2);
  for (int x = phone.width - 10; x < phone.width; ++x) EXPECT_TRUE(ColumnIsBlank(phone, x)) << x;
}

// A spy plot says it where it is: the diagonal is blue, the corners off it are not.
TEST_F(ReportPage, ShowsThePatternItself) {
  const std::string url = UrlOf("gallery:poisson:6");
  const Image page = Shoot(url, {.width = 390, .height = 2000}, KeptAs("report_spy.png"));
  size_t blue = 0;
  for (int y = 0; y < page.height; ++y) {
    for (int x = 0; x < page.width; ++x) {
      const uint8_t* const pixel = page.at(x, y);
      blue += pixel[2] > 120 && pixel[0] < 60 && pixel[1] < 150 ? 1 : 0;
    }
  }
  EXPECT_GT(blue, 1000u);
  EXPECT_LT(blue, static_cast<size_t>(page.width) * page.height / 10);
}

}  // namespace
}  // namespace spaid::e2e
