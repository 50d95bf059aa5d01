// The phases of cuda/build.cu, each with all that is there at once; bounds of bytes are kept
// as doubles, which hold any of them well enough.
#include "kernels/fsai/fsai_device_estimate.h"

#include <algorithm>
#include <cmath>

namespace spaid::kernels {
namespace {

constexpr double kMostWorkspace = 64 << 20;  // a row that needs more is the host's
constexpr double kSlack =
    2 << 20;  // counters, sums, rounding of blocks, scratch of scans and sorts

double ToDouble(int64_t x) { return static_cast<double>(x); }

double RoundUp(double x, double to) { return std::ceil(x / to) * to; }

// Bytes of the workspace of one row in the device's memory (cuda/rows.h, LayOut), with so many
// candidates.
double WorkspaceBytes(double candidates, double pivots, double real, const FsaiOptions& options) {
  const double slots = RoundUp(candidates, 32), blocks = std::ceil(pivots * real / 16);
  const double tiles = slots / 32 * blocks * 33 * 16, table = 8 * std::max(64.0, 8 * slots / 3);
  return std::min(kMostWorkspace, tiles + slots * (3 * real + 4.25) + table +
                                      pivots * (3 * real + 12) + 16 * (options.k_max + 2.0) +
                                      8 * options.s + 13 * 16);
}

int64_t ToCount(double x) { return x < 9e18 ? static_cast<int64_t>(x) : INT64_MAX; }

}  // namespace

void EstimateOnDevice(int64_t n_rows, int64_t nnz_a, int64_t longest_column,
                      const FsaiRowCounts& rows, const FsaiOptions& options, FsaiCounts& counts) {
  const bool fp32 = options.precision == Precision::kFp32;
  const double n = ToDouble(n_rows), nnz = ToDouble(nnz_a), nnz_g = ToDouble(rows.entries);
  const double real = fp32 ? 4 : 8, made = real + 4, kept = 12, pointers = 8 * (n + 1);

  // A, packed to rows of one length where that adds at most a half.
  const double entry = fp32 ? 8 : 16, stride = RoundUp(ToDouble(longest_column), fp32 ? 2 : 1);
  const double packed = entry * (stride * n <= 1.5 * nnz ? stride * n : nnz);
  const double a = pointers + 12 * nnz, psi = 8 * n;

  // Rows on a pattern, of `size` entries, and `pivots` of them the most in a row.
  struct Bytes {
    double whole, least;
  };
  const auto build = [&](double pattern, double size, double pivots, double candidates) {
    const double held = a + pattern, g = pointers + kept * nnz_g;
    const double workspace = WorkspaceBytes(candidates, pivots, real, options);
    const double rest = kept * size + 9 * n;
    const double whole = held + packed + psi + made * size + 12 * n + std::max(workspace, rest);
    // Before the waves: A on its way into rows, and a sample of them.
    const double before = held + packed + 20 * n;
    // Waves: each takes a third of what is left beside a workspace; in the end two copies of G.
    const double part = std::max(size / 64, 4 * (pivots + 1));
    const double wave = held + packed + psi + g + workspace + 3 * (made + kept) * part +
                        3 * 21 * std::max(n / 64, 4.0);
    const double join = held + psi + 2 * g;
    const double least = std::max({before, std::min(whole, std::max(wave, join))});
    // G by columns; sorting them takes 16.25 bytes an entry beside their indices, and 13 a row.
    const double columns = held + g + pointers + 4 * nnz_g + 16.25 * nnz_g + 13 * n;
    return Bytes{std::max({before, whole, columns}), least};
  };

  const double most = n - 1;
  const auto reach = [&](double pivots) {
    return std::max(1.0, std::min(n, (pivots + 1) * ToDouble(longest_column)));
  };
  Bytes bytes{};
  // Longer rows are the host's.
  const double on_pattern = std::clamp(ToDouble(rows.longest) - 1, 1.0, 2048.0);
  const double pattern = pointers + 4 * nnz_g;
  // On a pattern; of adaptive FSAI the builds with new values.
  bytes = build(pattern, nnz_g, on_pattern, on_pattern);
  if (options.adaptive) {
    const double added = std::min(ToDouble(int64_t{options.s} * options.k_max), most);
    const double initial = ToDouble(rows.initial_entries);
    const double pivots =
        std::max(1.0, std::min(added + std::max(0.0, ToDouble(rows.initial_longest) - 1), most));
    const bool from_pattern = rows.initial_entries > 0;
    const Bytes grown =
        build(from_pattern ? pointers + 4 * initial : 0,
              initial + n * (added + (from_pattern ? 0 : 1)), pivots, reach(pivots));
    bytes = {std::max(bytes.whole, grown.whole), std::max(bytes.least, grown.least)};
  }
  counts.device_bytes = ToCount(bytes.whole + kSlack);
  counts.device_bytes_min = ToCount(std::min(bytes.whole, bytes.least) + kSlack);
}

}  // namespace spaid::kernels
