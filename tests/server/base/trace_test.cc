#include "server/base/trace.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace spaid::server {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

class Kept : public SpanSink {
 public:
  void Add(Span span) override { spans.push_back(std::move(span)); }
  std::vector<Span> spans;
};

TEST(Traceparent, IsReadAsTheW3CHasIt) {
  const auto parsed = ParseTraceparent(kParent);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->trace[0], 0x4b);
  EXPECT_EQ(parsed->trace[15], 0x36);
  EXPECT_EQ(parsed->parent[1], 0xf0);
  EXPECT_TRUE(parsed->sampled);
  std::string text = kParent;
  text.back() = '2';
  EXPECT_FALSE(ParseTraceparent(text)->sampled) << "the last bit alone";
  text[1] = '7';
  EXPECT_TRUE(ParseTraceparent(text)) << "a later version";
  EXPECT_TRUE(ParseTraceparent(text + "-more"));
  EXPECT_FALSE(ParseTraceparent(text + "more"));
  EXPECT_FALSE(ParseTraceparent(std::string(kParent) + "-more")) << "version 00 has no more";
}

TEST(Traceparent, AnyOtherIsNone) {
  const std::string good = kParent;
  for (const auto& [at, with] : std::vector<std::pair<size_t, std::string>>{
           {0, "ff"}, {2, "_"}, {3, "G"}, {3, "A"}, {35, "0"}, {36, "x"}, {52, "+"}, {53, "0x"}}) {
    std::string text = good;
    EXPECT_FALSE(ParseTraceparent(text.replace(at, with.size(), with))) << text;
  }
  std::string zero = good;
  EXPECT_FALSE(ParseTraceparent(zero.replace(3, 32, std::string(32, '0'))));
  zero = good;
  EXPECT_FALSE(ParseTraceparent(zero.replace(36, 16, std::string(16, '0'))));
  EXPECT_FALSE(ParseTraceparent(""));
  EXPECT_FALSE(ParseTraceparent(good.substr(1)));
}

TEST(Tracer, WithoutASinkFollowsWhatIsBroughtAndBeginsNothing) {
  const Tracer tracer;
  EXPECT_EQ(tracer.Begin("", ""), nullptr);
  EXPECT_EQ(tracer.Begin("nonsense", ""), nullptr);
  const TracePtr trace = tracer.Begin(kParent, "a=1");
  ASSERT_NE(trace, nullptr);
  EXPECT_EQ(trace->id, kTrace);
  EXPECT_FALSE(trace->sampled);
  tracer.Child(trace, "queue", {}, {});  // into nothing
  tracer.Call({.of = trace, .name = "call", .begin = {}, .end = {}});
}

TEST(Tracer, ChildrenAreTheCallsAndEndAfterTheyBegin) {
  Kept kept;
  const Tracer tracer(&kept);
  const TracePtr trace = tracer.Begin(kParent, "a=1");
  EXPECT_EQ(trace->state, "a=1");
  const WallTime late(std::chrono::seconds(2)), early(std::chrono::seconds(1));
  tracer.Child(trace, "queue", late, early, {{early, 3, 0.5}});
  tracer.Call({.of = trace, .name = "call", .begin = early, .end = late});
  ASSERT_EQ(kept.spans.size(), 2u);
  EXPECT_EQ(kept.spans[0].parent, trace->span);
  EXPECT_EQ(kept.spans[0].end, late) << "a clock that was set back";
  ASSERT_EQ(kept.spans[0].residuals.size(), 1u);
  EXPECT_EQ(kept.spans[0].residuals[0].iteration, 3);
  EXPECT_EQ(kept.spans[1].id, trace->span);
  EXPECT_EQ(kept.spans[1].parent, ParseTraceparent(kParent)->parent);
  EXPECT_TRUE(kept.spans[1].is_call);
  EXPECT_NE(kept.spans[0].id, kept.spans[1].id);
}

TEST(Tracer, SamplesByItsParentOrByRatio) {
  Kept kept;
  std::string unsampled = kParent;
  unsampled.back() = '0';
  const Tracer by_parent(&kept, {.by_parent = true, .ratio = 0});
  EXPECT_TRUE(by_parent.Begin(kParent, "")->sampled);
  EXPECT_FALSE(by_parent.Begin(unsampled, "")->sampled);
  EXPECT_EQ(by_parent.Begin("", ""), nullptr);
  const Tracer all(&kept, {.by_parent = false, .ratio = 1});
  EXPECT_TRUE(all.Begin(unsampled, "")->sampled);
  // A ratio decides by the id, so that all who see a trace decide alike.
  const Tracer half(&kept, {.by_parent = false, .ratio = 0.5});
  EXPECT_FALSE(half.Begin("00-00000000000000010080000000000000-00f067aa0ba902b7-01", "")->sampled);
  EXPECT_TRUE(half.Begin("00-0000000000000001007ffffffff00000-00f067aa0ba902b7-01", "")->sampled);
  int begun = 0;
  for (int k = 0; k < 1000; ++k) begun += half.Begin("", "") != nullptr ? 1 : 0;
  EXPECT_GT(begun, 350);
  EXPECT_LT(begun, 650);
}

}  // namespace
}  // namespace spaid::server
