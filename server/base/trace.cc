#include "server/base/trace.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"

namespace spaid::server {
namespace {

// Ids need to be different, not secret.
template <size_t kSize>
std::array<uint8_t, kSize> RandomBytes() {
  thread_local std::mt19937_64 random{[] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }()};
  std::array<uint8_t, kSize> bytes;
  for (size_t at = 0; at < kSize; at += 8) {
    const uint64_t word = random();
    for (size_t k = 0; k < 8; ++k) bytes[at + k] = static_cast<uint8_t>(word >> (8 * k));
  }
  bytes[0] |= 1;  // never all zero, which is no id
  return bytes;
}

int Hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

template <size_t kSize>
bool ReadHex(std::string_view text, std::array<uint8_t, kSize>* bytes) {
  for (size_t k = 0; k < kSize; ++k) {
    const int high = Hex(text[2 * k]), low = Hex(text[2 * k + 1]);
    if (high < 0 || low < 0) return false;
    (*bytes)[k] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

template <size_t kSize>
bool IsZero(const std::array<uint8_t, kSize>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

// By the last 7 bytes of the id, as all who sample by ratio do.
bool InRatio(const TraceId& trace, double ratio) {
  if (ratio >= 1) return true;
  uint64_t low = 0;
  for (size_t k = 9; k < 16; ++k) low = low << 8 | trace[k];
  return static_cast<double>(low) < ratio * std::ldexp(1.0, 56);
}

}  // namespace

std::optional<Traceparent> ParseTraceparent(std::string_view text) {
  constexpr size_t kSize = 55;  // of version 00; later ones may go on behind a dash
  std::array<uint8_t, 1> version, flags;
  Traceparent parsed;
  if (text.size() < kSize || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
      !ReadHex(text, &version) || !ReadHex(text.substr(3), &parsed.trace) ||
      !ReadHex(text.substr(36), &parsed.parent) || !ReadHex(text.substr(53), &flags)) {
    return std::nullopt;
  }
  const bool more = text.size() > kSize;
  if (version[0] == 0xff || (more && (version[0] == 0 || text[kSize] != '-')) ||
      IsZero(parsed.trace) || IsZero(parsed.parent)) {
    return std::nullopt;
  }
  parsed.sampled = (flags[0] & 1) != 0;
  return parsed;
}

SpanId NewSpanId() { return RandomBytes<8>(); }

TracePtr Tracer::Begin(std::string_view traceparent, std::string_view tracestate) const {
  constexpr size_t kMaxState = 512;  // what everybody must pass on
  const auto brought = traceparent.empty() ? std::nullopt : ParseTraceparent(traceparent);
  if (!brought && sink_ == nullptr) return nullptr;
  Trace trace;
  if (brought) {
    trace.trace = brought->trace;
    trace.parent = brought->parent;
    if (tracestate.size() <= kMaxState) trace.state = tracestate;
  } else {
    trace.trace = RandomBytes<16>();
  }
  const bool decided = brought && sampling_.by_parent;
  trace.sampled = sink_ != nullptr &&
                  (decided ? brought->sampled : InRatio(trace.trace, sampling_.ratio)) &&
                  sink_->HasRoom();
  if (!brought && !trace.sampled) return nullptr;
  trace.span = NewSpanId();
  trace.id = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(trace.trace.data()), trace.trace.size()));
  return std::make_shared<const Trace>(std::move(trace));
}

void Tracer::Child(const TracePtr& of, std::string_view name, WallTime begin, WallTime end,
                   std::vector<Span::Residual> residuals) const {
  if (of == nullptr || !of->sampled) return;
  sink_->Add({.of = of,
              .id = NewSpanId(),
              .parent = of->span,
              .name = name,
              .begin = begin,
              .end = std::max(begin, end),
              .residuals = std::move(residuals)});
}

void Tracer::Call(Span span) const {
  if (span.of == nullptr || !span.of->sampled) return;
  span.id = span.of->span;
  span.parent = span.of->parent;
  span.is_call = true;
  sink_->Add(std::move(span));
}

}  // namespace spaid::server
