// Small decisions read off a fuzzer's bytes: numbers first, then whatever is left. Zeros once the
// bytes are used up, so that every input means something.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace spaid::fuzz {

// Not thread-safe.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }
  uint8_t Byte() {
    if (left_.empty()) return 0;
    const uint8_t byte = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    return byte;
  }
  // 0 .. below - 1; `below` is 1 .. 65536.
  int Below(int below) {
    const int number = below <= 256 ? Byte() : Byte() << 8 | Byte();
    return number % below;
  }
  std::string Bytes(size_t count) {
    std::string bytes(left_.substr(0, count));
    left_.remove_prefix(bytes.size());
    bytes.resize(count);
    return bytes;
  }
  std::string_view rest() const { return left_; }

 private:
  std::string_view left_;
};

// Ends the process with `what` where `holds` is false: what a fuzzer takes for a crash.
inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

}  // namespace spaid::fuzz
