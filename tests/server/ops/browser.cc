#include "tests/server/ops/browser.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/client/cli/run_spaidctl.h"
#include "tests/client/cli/temp_folder.h"

namespace spaid::testing {
namespace {

using cli::TempFolder;

uint32_t BigEndian(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

void Require(bool holds, const char* what) {
  if (holds) return;
  ADD_FAILURE() << "not a PNG as Chromium writes it: " << what;
  std::abort();
}

uint8_t Paeth(int left, int above, int corner) {
  const int p = left + above - corner;
  const int a = std::abs(p - left), b = std::abs(p - above), c = std::abs(p - corner);
  return static_cast<uint8_t>(a <= b && a <= c ? left : b <= c ? above : corner);
}

cli::Finished RunChromium(const TempFolder& folder, const BrowserOptions& options,
                          std::vector<std::string> more) {
  std::vector<std::string> command = {
      // A browser that hangs is a failure, not the end of the tests.
      "timeout",
      "--kill-after=5",
      "90",
      ChromiumPath(),
      "--headless",
      "--disable-gpu",
      "--no-sandbox",  // the tests may run as root, and the pages are ours
      "--hide-scrollbars",
      "--disable-background-networking",
      "--enable-logging=stderr",
      "--user-data-dir=" + folder.File("profile"),
      "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
      std::string("--blink-settings=preferredColorScheme=") + (options.dark ? "0" : "1"),
      "--window-size=" + std::to_string(options.width) + "," + std::to_string(options.height)};
  command.insert(command.end(), more.begin(), more.end());
  return cli::RunProgram(command);
}

}  // namespace

std::string ChromiumPath() {
  if (const char* named = std::getenv("SPAID_CHROMIUM")) return named;
  const char* path = std::getenv("PATH");
  for (const char* name :
       {"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}) {
    std::istringstream folders(path == nullptr ? "/usr/bin" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string file = folder + "/" + name;
      if (access(file.c_str(), X_OK) == 0) return file;
    }
  }
  return "";
}

Image ReadPng(const std::string& bytes) {
  Require(bytes.size() > 33 && bytes.compare(0, 8, "\x89PNG\r\n\x1a\n") == 0, "its signature");
  Image image;
  image.width = static_cast<int>(BigEndian(&bytes[16]));
  image.height = static_cast<int>(BigEndian(&bytes[20]));
  const int color = bytes[25];
  Require(bytes[24] == 8 && (color == 2 || color == 6) && bytes[28] == 0, "its kind");
  Require(image.width > 0 && image.width < 10'000 && image.height > 0 && image.height < 20'000,
          "its size");
  std::string packed;
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const uint32_t size = BigEndian(&bytes[at]);
    Require(size <= bytes.size() - at - 12, "a chunk");
    if (bytes.compare(at + 4, 4, "IDAT") == 0) packed.append(bytes, at + 8, size);
    at += 12 + size;
  }
  const size_t channels = color == 6 ? 4 : 3;
  const size_t row = channels * static_cast<size_t>(image.width);
  std::vector<uint8_t> raw((row + 1) * static_cast<size_t>(image.height));
  uLongf got = raw.size();
  Require(uncompress(raw.data(), &got, reinterpret_cast<const Bytef*>(packed.data()),
                     packed.size()) == Z_OK &&
              got == raw.size(),
          "its data");
  std::vector<uint8_t> above(row, 0);
  for (int y = 0; y < image.height; ++y) {
    uint8_t* const line = &raw[(row + 1) * static_cast<size_t>(y) + 1];
    const uint8_t filter = line[-1];
    for (size_t i = 0; i < row; ++i) {
      const int left = i >= channels ? line[i - channels] : 0;
      const int corner = i >= channels ? above[i - channels] : 0;
      const int add = filter == 1   ? left
                      : filter == 2 ? above[i]
                      : filter == 3 ? (left + above[i]) / 2
                      : filter == 4 ? Paeth(left, above[i], corner)
                                    : 0;
      line[i] = static_cast<uint8_t>(line[i] + add);
    }
    above.assign(line, line + row);
    for (size_t x = 0; x < row; x += channels) {
      image.rgb.insert(image.rgb.end(), line + x, line + x + 3);
    }
  }
  return image;
}

Visit Look(const std::string& url, const BrowserOptions& options) {
  const TempFolder folder;
  const std::string log = folder.File("net.json");
  const cli::Finished ran =
      RunChromium(folder, options, {"--log-net-log=" + log, "--dump-dom", url});
  Visit visit{.exit_code = ran.exit_code, .dom = ran.out, .console = {}, .urls = {}};
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  std::istringstream lines(ran.err);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("CONSOLE") != line.npos) visit.console.push_back(line);
  }
  const auto events = nlohmann::json::parse(TempFolder::Read(log), nullptr, false);
  EXPECT_FALSE(events.is_discarded()) << "no log of the network";
  if (events.is_discarded()) return visit;
  for (const auto& event : events["events"]) {
    if (!event.contains("params") || !event["params"].contains("url")) continue;
    const auto asked = event["params"]["url"].get<std::string>();
    if (asked.rfind("http", 0) != 0) continue;
    if (visit.urls.empty() || visit.urls.back() != asked) visit.urls.push_back(asked);
  }
  return visit;
}

Image Shoot(const std::string& url, const BrowserOptions& options, const std::string& save_as) {
  const TempFolder folder;
  const std::string file = folder.File("page.png");
  const cli::Finished ran = RunChromium(folder, options, {"--screenshot=" + file, url});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const std::string bytes = TempFolder::Read(file);
  if (!save_as.empty()) std::ofstream(save_as, std::ios::binary) << bytes;
  return ReadPng(bytes);
}

std::string KeptAs(const char* name) {
  const char* const folder = std::getenv("SPAID_SCREENSHOTS");
  return folder == nullptr ? "" : std::string(folder) + "/" + name;
}

double Brightness(const Image& image) {
  double sum = 0;
  for (const uint8_t byte : image.rgb) sum += byte;
  return sum / (255.0 * static_cast<double>(image.rgb.size()));
}

double Inked(const Image& image) {
  size_t inked = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      inked += std::equal(image.at(0, 0), image.at(0, 0) + 3, image.at(x, y)) ? 0 : 1;
    }
  }
  return static_cast<double>(inked) / (static_cast<double>(image.width) * image.height);
}

bool ColumnIsBlank(const Image& image, int x) {
  for (int y = 0; y < image.height; ++y) {
    if (!std::equal(image.at(0, 0), image.at(0, 0) + 3, image.at(x, y))) return false;
  }
  return true;
}

}  // namespace spaid::testing
