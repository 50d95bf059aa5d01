// Parses a Matrix Market file as its bytes stream by, and names the line of an error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

struct MarketHeader {
  enum class Layout { kCoordinate, kArray };
  enum class Field { kReal, kInteger, kComplex, kPattern };
  enum class Symmetry { kGeneral, kSymmetric, kSkewSymmetric, kHermitian };
  Layout layout = Layout::kCoordinate;
  Field field = Field::kReal;
  Symmetry symmetry = Symmetry::kGeneral;
  int64_t rows = 0, columns = 0;
  int64_t entries = 0;  // data lines that must follow
};

// The data lines in the order of the file, counted from 0. An array has no places, a pattern no
// values.
struct MarketEntries {
  std::vector<int32_t> rows, columns;
  std::vector<double> values;  // real parts of complex numbers
};

// Feed it every byte of the file in order, then call Finish. Not thread-safe.
class MarketScanner {
 public:
  // `max_bytes`: the file is no longer than this; a header that promises more entries is refused
  // before anything is allocated for them.
  MarketScanner(std::string path, int64_t max_bytes)
      : path_(std::move(path)), max_bytes_(max_bytes) {}

  // Parses further bytes. After an error, later calls return it again. Reasons: NOT_MATRIX_MARKET,
  // BAD_SIZE_LINE, BAD_ENTRY, INDEX_OUT_OF_RANGE, TOO_MANY_ENTRIES, LINE_TOO_LONG, FILE_TRUNCATED.
  std::optional<Error> Feed(std::span<const char> bytes);
  // Ends the file. Reasons: FILE_EMPTY, NOT_MATRIX_MARKET, FILE_TRUNCATED.
  std::optional<Error> Finish();

  // Set once the size line has been read.
  const std::optional<MarketHeader>& header() const { return header_; }
  // Returns the entries read so far; all of them after Finish.
  MarketEntries& entries() { return entries_; }

 private:
  std::optional<Error> Line(std::string_view line);
  std::optional<Error> Banner(std::string_view line);
  std::optional<Error> SizeLine(std::string_view line);
  std::optional<Error> Entry(std::string_view line);
  void MakeRoom();
  Error At(std::string reason, std::string text) const;

  std::string path_;
  int64_t max_bytes_;
  std::string partial_;  // an unfinished line
  int64_t line_ = 0;
  int64_t seen_entries_ = 0;
  bool have_banner_ = false;
  MarketHeader draft_;
  std::optional<MarketHeader> header_;
  MarketEntries entries_;
  std::optional<Error> error_;
};

}  // namespace spaid::cli
