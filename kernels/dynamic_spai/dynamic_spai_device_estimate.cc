// The phases of cuda/normal_rows.cu, of kernels/fsai/cuda/build.cu and of static SPAI on
// the grown pattern, each with all that is there at once; bounds of bytes are kept as doubles,
// which hold any of them well enough.
#include "kernels/dynamic_spai/dynamic_spai_device_estimate.h"

#include <algorithm>
#include <cmath>

#include "kernels/static_spai/static_spai_plan.h"

namespace spaid::kernels {
namespace {

// A column that needs more room is the host's.
constexpr double kMostRoom = 64 << 20;
// Workspaces in the device's memory, on any device at most. Others are made in shared memory.
constexpr double kRooms = 2 * 256, kSharedRoom = 160 << 10;
// A union of more rows than that is collected in a bitmap, of as many at once.
constexpr double kUnique = 6144;
// Counters, sums, rounding of blocks, scratch of scans and sorts.
constexpr double kSlack = 4 << 20;

double ToDouble(int64_t x) { return static_cast<double>(x); }

double RoundUp(double x, double to) { return std::ceil(x / to) * to; }

int64_t ToCount(double x) { return x < 9e18 ? static_cast<int64_t>(x) : INT64_MAX; }

// Room for one column in the device's memory (fsai/cuda/rows.h, LayOut), of so many
// candidates.
double RoomBytes(double candidates, double pivots, double real, const DynamicSpaiOptions& options) {
  const double slots = RoundUp(candidates, 32), blocks = std::ceil(pivots * real / 16);
  const double tiles = slots / 32 * blocks * 33 * 16, table = 8 * std::max(64.0, 8 * slots / 3);
  return std::min(kMostRoom, tiles + slots * (3 * real + 4.25) + table + pivots * (3 * real + 12) +
                                 16 * (options.max_steps + 3.0) + 8 * options.per_step + 13 * 16);
}

// A search for groups of rows alike (fsai/cuda/repeats.cu).
double GroupBytes(double most, double rows) { return 96 * std::min(rows, most + (1 << 19)) + 1536; }

struct Bytes {
  double whole, least;
};

Bytes GrowthBytes(double n, double nnz, bool has_initial, const DynamicSpaiBounds& bounds,
                  const DynamicSpaiOptions& options) {
  const double gram = ToDouble(bounds.gram_nnz), longest = ToDouble(bounds.gram_longest);
  const double real = options.growth_precision == Precision::kFp32 ? 4 : 8, entry = 2 * real,
               pointers = 8 * (n + 1);
  const double a = pointers + 12 * nnz;
  // Â by columns and by rows, and, negative, as growth begins with it; sorting by rows takes 16.25
  // bytes an entry, and 13 a row.
  const double scaled = 8 * nnz, by_rows = pointers + 12 * nnz,
               own = pointers + entry * (nnz + 2 * n);
  const double sorting = a + scaled + by_rows + 16.25 * nnz + 13 * n;
  // The pattern of AᵀA beside what makes it, then its entries.
  const double packed = entry * gram + pointers;
  const double made = a + scaled + by_rows + own + pointers + 4 * gram;
  const double bitmaps = longest > kUnique ? kRooms * n / 8 : 0;
  const double uniting = made + 8 * n + bitmaps, uniting_least = made + 8 * n + n / 8;
  const double making = made + 4 * n + packed, making_least = made + 4 * n + entry * gram;

  const double pivots = ToDouble(bounds.longest);
  const double added = std::min(ToDouble(int64_t{options.per_step} * options.max_steps), n) + 1;
  const double size = n * added + (has_initial ? ToDouble(bounds.initial) : 0);
  const double start = has_initial ? pointers + 4 * ToDouble(bounds.initial) : 0;
  const double candidates = std::max(1.0, std::min(n, (pivots + 1) * (longest + 2)));
  const double room = RoomBytes(candidates, pivots, real, options);
  const double rooms = room > kSharedRoom ? std::min(kRooms, n) * room : room;
  const double kinds = options.repeat_hash_bits > 0 ? 8 * n : 0;
  const double search = options.repeat_hash_bits > 0
                            ? std::max((12 + real) * n + GroupBytes(n / 8, n),
                                       40 * n + (20 + 8 * (options.max_steps + 4.0)) * n / 8 +
                                           GroupBytes(n / 4 + (1 << 18), n))
                            : 0;
  const double held = a + own + packed + start + 8 * n + kinds;
  // Entries as they are made, and as they are kept.
  const double growing =
      held + 4 * size + 12 * n + std::max({search + rooms, rooms, 4 * size + 9 * n});
  const double joining = a + start + 8 * n + 2 * (pointers + 4 * size);
  // Waves: each takes a third of what is left beside a room.
  const double part = std::max(size / 64, 4 * (pivots + 1));
  const double least_held = a + own + entry * gram + pointers + start + 8 * n;
  const double wave = least_held + pointers + 4 * size + room + 3 * 8 * part +
                      3 * 21 * std::max(n / 64, 4.0) + 20 * n;
  const double whole = std::max({sorting, uniting, making, growing, joining});
  return {whole, std::min(whole, std::max({sorting, uniting_least, making_least, wave, joining}))};
}

}  // namespace

void EstimateOnDevice(const PatternView& a, bool has_initial, const DynamicSpaiBounds& bounds,
                      const DynamicSpaiOptions& options, DynamicSpaiCounts& counts) {
  const double n = ToDouble(a.n_cols), nnz = ToDouble(a.nnz()), nnz_m = ToDouble(bounds.nnz_m);
  const Bytes growth = GrowthBytes(n, nnz, has_initial, bounds, options);

  StaticSpaiCounts numbers;
  numbers.n = a.n_cols;
  numbers.nnz_a = a.nnz();
  numbers.nnz_m = bounds.nnz_m;
  numbers.n2_max = bounds.longest;
  int64_t longest_a = 0;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    longest_a = std::max(longest_a,
                         a.col_ptr[static_cast<size_t>(j) + 1] - a.col_ptr[static_cast<size_t>(j)]);
  }
  DeviceProblems problems;
  // Each entry of M brings a column of A.
  const double most = std::min(ToDouble(bounds.longest) * ToDouble(longest_a), nnz);
  problems.Add(most, std::min(n, nnz_m * ToDouble(longest_a) / std::max(most, 1.0) + 1));
  problems.words += 7 * n;
  const double pattern = 8 * (n + 1) + 4 * nnz_m;
  BoundDeviceBytes(problems, 2 * pattern + 4 * n, NumbersOf(options), numbers);
  // The grown pattern stays until there is a plan.
  counts.device_bytes =
      std::max(ToCount(growth.whole + kSlack), ToCount(ToDouble(numbers.device_bytes) + pattern));
  counts.device_bytes_min = std::max(ToCount(growth.least + kSlack),
                                     ToCount(ToDouble(numbers.device_bytes_min) + pattern));
}

}  // namespace spaid::kernels
