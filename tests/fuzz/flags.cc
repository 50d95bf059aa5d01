// The daemon's command line, a word a line: it serves, or leaves with one of its exit codes.
#include "server/flags.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using spaid::fuzz::Require;
  std::vector<std::string> words = {"spaid"};
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty() && words.size() < 32) {
    const size_t end = rest.find('\n');
    std::string word(rest.substr(0, end));
    word.resize(word.find('\0') == std::string::npos ? word.size() : word.find('\0'));
    // A file of flags may be a terminal or endless; that is the operator's own.
    if (word.find("flagfile") == std::string::npos) words.push_back(std::move(word));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());

  constexpr int64_t kUsableMemory = int64_t{8} << 30;
  const auto parsed =
      spaid::server::ParseFlags(static_cast<int>(argv.size()), argv.data(), kUsableMemory);
  if (parsed.exit_code) {
    Require(*parsed.exit_code >= 0 && *parsed.exit_code <= 2, "the exit code");
    return 0;
  }
  const spaid::server::BackendOptions& backend = parsed.flags.backend;
  Require(backend.matrix_store_bytes > 0 && backend.matrix_store_bytes <= kUsableMemory,
          "--matrix-store-bytes");
  Require(backend.max_matrix_bytes <= backend.matrix_store_bytes, "--max-matrix-bytes");
  Require(backend.streams.tick.count() > 0, "the tick");
  return 0;
}
