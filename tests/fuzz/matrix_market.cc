// The Matrix Market reader: a file says the same in whatever pieces it comes, what is read is a CSC
// matrix in form, and what is written of it reads back as the same.
#include "client/cli/matrix_market.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/matrix_market_scan.h"
#include "tests/fuzz/input.h"

namespace spaid::cli {
namespace {

using fuzz::Require;

constexpr int64_t kMostRows =
    1 << 12;  // for larger ones the sums of the arrays are all that is met

// A file in memory. Its name is good while it lives.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", 0)) { Require(descriptor_ >= 0, "memfd"); }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void Write(std::string_view text) {
    Require(write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
            "the file is not written");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  const int descriptor_;
};

struct Scanned {
  std::optional<Error> error;
  std::optional<MarketHeader> header;
  MarketEntries entries;
};

Scanned Scan(std::string_view text, size_t piece) {
  MarketScanner scanner("A.mtx", static_cast<int64_t>(text.size()));
  Scanned scanned;
  for (size_t at = 0; at < text.size() && !scanned.error; at += piece) {
    scanned.error = scanner.Feed(text.substr(at, piece));
  }
  if (!scanned.error) scanned.error = scanner.Finish();
  scanned.header = scanner.header();
  scanned.entries = std::move(scanner.entries());
  return scanned;
}

bool SameBits(std::span<const double> a, std::span<const double> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  });
}

void RequireInForm(const MarketHeader& header, const MarketEntries& entries) {
  const auto in = [](const std::vector<int32_t>& indices, int64_t count) {
    return std::all_of(indices.begin(), indices.end(),
                       [count](int32_t i) { return i >= 0 && i < count; });
  };
  Require(in(entries.rows, header.rows) && in(entries.columns, header.columns), "an index");
  const auto count = static_cast<size_t>(header.entries);
  const bool array = header.layout == MarketHeader::Layout::kArray;
  Require(entries.rows.size() == (array ? 0 : count), "the count of rows");
  Require(entries.columns.size() == entries.rows.size(), "the count of columns");
  const bool values = header.field != MarketHeader::Field::kPattern;
  Require(entries.values.size() == (values ? count : 0), "the count of values");
}

void RequireInForm(const CscMatrix& a) {
  Require(a.col_ptr.size() == static_cast<size_t>(a.n) + 1 && a.col_ptr[0] == 0, "col_ptr");
  Require(a.col_ptr.back() == static_cast<int64_t>(a.row_idx.size()), "the end of col_ptr");
  Require(a.values.empty() || a.values.size() == a.row_idx.size(), "values");
  for (int64_t j = 0; j < a.n; ++j) {
    Require(a.col_ptr[j] <= a.col_ptr[j + 1], "col_ptr falls");
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      Require(a.row_idx[p] >= 0 && a.row_idx[p] < a.n, "a row");
      Require(p == a.col_ptr[j] || a.row_idx[p - 1] < a.row_idx[p], "rows are not sorted");
    }
  }
}

void RequireReadsBack(const CscMatrix& a) {
  const std::string path = "/dev/shm/spaid-fuzz-" + std::to_string(getpid()) + ".mtx";
  const auto refused = WriteMatrix(
      path, CscView{.n = a.n, .col_ptr = a.col_ptr, .row_idx = a.row_idx, .values = a.values});
  if (refused) {  // a sum of duplicates may be larger than what a file may hold
    Require(refused->reason == "NON_FINITE_VALUE", "not written");
    return;
  }
  const auto again = ReadMatrix(path, {.pattern = a.values.empty()});
  unlink(path.c_str());
  Require(again.ok(), "what was written is not read");
  Require(again->col_ptr == a.col_ptr && again->row_idx == a.row_idx, "another pattern");
  Require(SameBits(again->values, a.values), "other values");
}

}  // namespace
}  // namespace spaid::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spaid::cli;  // NOLINT(google-build-using-namespace)
  spaid::fuzz::Input input(data, size);
  const auto piece = 1 + static_cast<size_t>(input.Below(64));
  const int choice = input.Byte();
  const std::string_view text = input.rest();

  const Scanned whole = Scan(text, std::max<size_t>(text.size(), 1));
  const Scanned pieces = Scan(text, piece);
  Require(whole.error.has_value() == pieces.error.has_value(), "another outcome in pieces");
  if (whole.error) {
    Require(whole.error->reason == pieces.error->reason, "another reason in pieces");
    Require(whole.error->message == pieces.error->message, "another text in pieces");
    return 0;
  }
  Require(whole.entries.rows == pieces.entries.rows, "other rows in pieces");
  Require(whole.entries.columns == pieces.entries.columns, "other columns in pieces");
  Require(SameBits(whole.entries.values, pieces.entries.values), "other values in pieces");
  RequireInForm(*whole.header, whole.entries);
  if (whole.header->rows > kMostRows || whole.header->columns > kMostRows) return 0;

  MemoryFile file;
  file.Write(text);
  const auto a =
      ReadMatrix(file.path(), {.pattern = (choice & 1) != 0, .sum_duplicates = (choice & 2) != 0});
  if (a.ok()) {
    RequireInForm(*a);
    RequireReadsBack(*a);
  }
  if (const auto b = ReadVectors(file.path()); b.ok()) {
    Require(b->values.size() == static_cast<size_t>(b->rows * b->columns), "the vectors' size");
  }
  return 0;
}
