// Traces of calls, as W3C Trace Context names them: whose a call is, and the spans that are told of
// it. Who takes the spans is a SpanSink (server/ops/otlp_exporter.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/clock.h"

namespace spaid::server {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

// One call's place in a trace. Immutable once made.
struct Trace {
  TraceId trace{};
  SpanId parent{};       // all zero: the call is the root
  SpanId span{};         // the call's own
  bool sampled = false;  // its spans are told
  std::string state;     // tracestate, passed on
  std::string id;        // `trace` as 32 hex digits
};
using TracePtr = std::shared_ptr<const Trace>;  // null: the call is in no trace

struct Traceparent {
  TraceId trace{};
  SpanId parent{};
  bool sampled = false;
};
// Reads "00-<32 hex>-<16 hex>-<2 hex>"; nothing for what the W3C calls invalid.
std::optional<Traceparent> ParseTraceparent(std::string_view text);

SpanId NewSpanId();

// Something that took time in a trace. Cheap to make: what a collector is told of it is put into
// words when it is sent.
struct Span {
  // A residual on the way, which becomes an event of the span.
  struct Residual {
    WallTime time;
    int32_t iteration;
    double relative_residual;
  };

  TracePtr of;
  SpanId id{}, parent{};
  std::string_view name;  // "queue", of a call "SolverService/Solve"; static storage
  WallTime begin, end;
  std::vector<Residual> residuals = {};  // of a solve: a few
  // Only of a call.
  bool is_call = false;
  int code = 0;                         // gRPC's
  std::string reason = {}, error = {};  // of its error, and the message; empty: none
  std::string job = {};                 // that it made
};

// Thread-safe.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // Takes a span, or counts it as dropped. Never waits.
  virtual void Add(Span span) = 0;
  // Asks, before the spans of a call are made, if there is room; false: they are counted as one
  // that was dropped.
  virtual bool HasRoom() { return true; }
};

// How traces are sampled that nobody has decided on, or, without `by_parent`, all.
struct Sampling {
  bool by_parent = true;
  double ratio = 1;  // of traces, by their id
};

// Thread-safe.
class Tracer {
 public:
  // `sink` outlives it; null: traces that callers bring are followed in log, jobs and errors, no
  // other begins, and no spans are made.
  explicit Tracer(SpanSink* sink = nullptr, Sampling sampling = {})
      : sink_(sink), sampling_(sampling) {}

  // Returns the trace of a call with these metadata (each may be empty); null: it is in none.
  TracePtr Begin(std::string_view traceparent, std::string_view tracestate) const;
  // Makes `name`, of static storage, a child of the call, from `begin` to `end`. Nothing if it is
  // not sampled.
  void Child(const TracePtr& of, std::string_view name, WallTime begin, WallTime end,
             std::vector<Span::Residual> residuals = {}) const;
  // Makes the call's own span. The same.
  void Call(Span span) const;

 private:
  SpanSink* const sink_;
  const Sampling sampling_;
};

}  // namespace spaid::server
