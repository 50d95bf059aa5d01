// Headless Chromium as a test uses it: a page as it became, what its console said, what was asked
// of the network, and how it looks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spaid::testing {

// The program: $SPAID_CHROMIUM, or the first of chromium-headless-shell, chromium,
// chromium-browser, google-chrome in the PATH. Empty: there is none.
std::string ChromiumPath();

// Pixels, row by row, of three bytes.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;

  const uint8_t* at(int x, int y) const { return &rgb[3 * (static_cast<size_t>(y) * width + x)]; }
};
// Of 8 bits a channel, not interlaced, with or without alpha. Aborts on anything else.
Image ReadPng(const std::string& bytes);

struct BrowserOptions {
  bool dark = false;
  int width = 1280, height = 1600;
};
struct Visit {
  int exit_code = -1;
  std::string dom;                   // after scripts, had there been any
  std::vector<std::string> console;  // its lines: errors, what the security policy kept out
  std::vector<std::string> urls;     // asked of the network, in order, http and https
};
Visit Look(const std::string& url, const BrowserOptions& options = {});
// What is seen. `save_as`: a file for people, too; empty: none.
Image Shoot(const std::string& url, const BrowserOptions& options = {},
            const std::string& save_as = "");

// The file in the folder $SPAID_SCREENSHOTS, for `save_as`; empty where there is none.
std::string KeptAs(const char* name);
double Brightness(const Image& image);  // 0: black, 1: white
// The share of pixels that differ from the page's background, which the corner has.
double Inked(const Image& image);
bool ColumnIsBlank(const Image& image, int x);

}  // namespace spaid::testing
