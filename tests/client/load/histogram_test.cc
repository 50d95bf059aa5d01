#include "client/load/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace spaid::load {
namespace {

TEST(Histogram, OfNothingIsNothing) {
  const Histogram h;
  EXPECT_EQ(h.count(), 0);
  EXPECT_EQ(h.Percentile(0.5), 0);
  EXPECT_EQ(h.mean_ms(), 0);
}

TEST(Histogram, OfOneTimeIsThatTime) {
  Histogram h;
  h.Add(12.345);
  for (const double q : {0.001, 0.5, 0.999, 1.0}) EXPECT_EQ(h.Percentile(q), 12.345);
  EXPECT_EQ(h.max_ms(), 12.345);
  EXPECT_EQ(h.mean_ms(), 12.345);
}

// Hand-checked: 1 .. 100 ns are buckets of their own.
TEST(Histogram, CountsFromBelow) {
  Histogram h;
  for (int ns = 100; ns >= 1; --ns) h.Add(ns * 1e-6);
  EXPECT_NEAR(h.Percentile(0.5), 50e-6, 1.001e-6);
  EXPECT_NEAR(h.Percentile(0.01), 1e-6, 1.001e-6);
  EXPECT_NEAR(h.Percentile(0.99), 99e-6, 1.001e-6);
  EXPECT_NEAR(h.Percentile(1), 100e-6, 1e-12);
}

// Against sorted times over nine decades: never less than the truth, at most 1/128 more.
TEST(Histogram, PercentilesAreThoseOfTheTimesToUnderAPercent) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> decade(-3.0, 6.0);
  Histogram h;
  std::vector<double> times;
  for (int k = 0; k < 100'000; ++k) {
    times.push_back(std::pow(10.0, decade(generator)));
    h.Add(times.back());
  }
  std::sort(times.begin(), times.end());
  for (const double q : {0.0001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double truth = times[static_cast<size_t>(std::ceil(q * 100'000)) - 1];
    EXPECT_GE(h.Percentile(q), truth * (1 - 1e-12)) << q;
    EXPECT_LE(h.Percentile(q), truth * (1 + 1.0 / 128) + 1e-6) << q;  // a nanosecond
  }
}

TEST(Histogram, TakesWhatIsNoTime) {
  Histogram h;
  h.Add(-1);
  h.Add(std::numeric_limits<double>::quiet_NaN());
  h.Add(1e300);
  EXPECT_EQ(h.count(), 3);
  EXPECT_EQ(h.Percentile(0.5), 0);
  EXPECT_EQ(h.max_ms(), 1e300);
}

}  // namespace
}  // namespace spaid::load
