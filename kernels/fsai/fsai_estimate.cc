// Counts before there is anything.

#include <algorithm>
#include <cmath>

#include "kernels/fsai/fsai.h"

namespace spaid::kernels {}  // namespace spaid::kernels
