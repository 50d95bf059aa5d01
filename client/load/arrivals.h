// Generates the arrival times of an open loop's jobs.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/gallery/gallery.h"

namespace spaid::load {

// A Poisson process: independent gaps, exponential with mean 1 / rate. The same on every machine.
class PoissonArrivals {
 public:
  PoissonArrivals(double rate, uint64_t seed) : rate_(rate), uniform_(seed) {}
  // Returns the seconds from the start to the next arrival.
  double Next() { return now_ -= std::log1p(-uniform_()) / rate_; }

 private:
  double rate_, now_ = 0;
  gallery::Uniform uniform_;
};

}  // namespace spaid::load
