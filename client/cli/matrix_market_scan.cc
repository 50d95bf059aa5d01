#include "client/cli/matrix_market_scan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "client/cli/byte_file.h"

namespace spaid::cli {
namespace {

// The format's own limit.
constexpr size_t kMaxLine = 1024;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

// Splits into at most N fields; the count says how many there are in all.
template <size_t N>
size_t Fields(std::string_view line, std::array<std::string_view, N>& fields) {
  size_t count = 0;
  size_t at = 0;
  while (true) {
    while (at < line.size() && IsSpace(line[at])) ++at;
    if (at == line.size()) return count;
    const size_t begin = at;
    while (at < line.size() && !IsSpace(line[at])) ++at;
    if (count < N) fields[count] = line.substr(begin, at - begin);
    ++count;
  }
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool ParseCount(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseNumber(std::string_view text, double& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return false;
  if (error == std::errc::result_out_of_range) {
    // A number too, which from_chars does not round: 0, a denormal or infinity. Infinity is refused
    // by name later.
    value = std::strtod(std::string(text).c_str(), nullptr);
    return true;
  }
  return error == std::errc();
}

std::string Printable(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 40)) {
    shown += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
  }
  if (text.size() > 40) shown += "...";
  return "\"" + shown + "\"";
}

}  // namespace

Error MarketScanner::At(std::string reason, std::string text) const {
  Error error = FileError(path_, std::move(reason), "line " + std::to_string(line_) + ": " + text);
  error.metadata.emplace_back("line", std::to_string(line_));
  return error;
}

std::optional<Error> MarketScanner::Feed(std::span<const char> bytes) {
  if (error_) return error_;
  std::string_view rest(bytes.data(), bytes.size());
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view piece = rest.substr(0, end);
    if (partial_.size() + piece.size() > kMaxLine) {
      ++line_;
      error_ = line_ == 1 ? FileError(path_, "NOT_MATRIX_MARKET",
                                      "is not a Matrix Market file: its first line must begin with "
                                      "%%MatrixMarket")
                          : At("LINE_TOO_LONG",
                               "longer than the 1024 characters that Matrix Market allows");
      return error_;
    }
    if (end == std::string_view::npos) {
      partial_ += piece;
      return std::nullopt;
    }
    ++line_;
    if (partial_.empty()) {
      error_ = Line(piece);
    } else {
      partial_ += piece;
      error_ = Line(partial_);
      partial_.clear();
    }
    if (error_) return error_;
    rest.remove_prefix(end + 1);
  }
  return std::nullopt;
}

std::optional<Error> MarketScanner::Finish() {
  if (error_) return error_;
  if (!partial_.empty()) {
    ++line_;
    error_ = Line(partial_);
    partial_.clear();
    if (error_) return error_;
  }
  if (line_ == 0) {
    error_ = FileError(path_, "FILE_EMPTY", "is empty; a Matrix Market file was expected");
  } else if (!header_) {
    error_ = At("FILE_TRUNCATED", "the file ends before the size line; fetch it again");
  } else if (seen_entries_ < header_->entries) {
    error_ = At("FILE_TRUNCATED", "the file ends after " + std::to_string(seen_entries_) + " of " +
                                      std::to_string(header_->entries) +
                                      " promised entries; fetch or write it again");
  }
  return error_;
}

std::optional<Error> MarketScanner::Line(std::string_view line) {
  if (!have_banner_) return Banner(line);
  if (line.starts_with('%')) return std::nullopt;
  if (std::all_of(line.begin(), line.end(), IsSpace)) return std::nullopt;
  return header_ ? Entry(line) : SizeLine(line);
}

std::optional<Error> MarketScanner::Banner(std::string_view line) {
  std::array<std::string_view, 5> raw;
  const size_t count = Fields(line, raw);
  if (count == 0 || Lower(raw[0]) != "%%matrixmarket") {
    return FileError(path_, "NOT_MATRIX_MARKET",
                     "is not a Matrix Market file: its first line must begin with %%MatrixMarket, "
                     "not " +
                         Printable(line));
  }
  if (count != 5 || Lower(raw[1]) != "matrix") {
    return At(
        "NOT_MATRIX_MARKET",
        "the banner must read %%MatrixMarket matrix LAYOUT FIELD SYMMETRY, not " + Printable(line));
  }
  const std::string layout = Lower(raw[2]), field = Lower(raw[3]), symmetry = Lower(raw[4]);
  if (layout == "coordinate") {
    draft_.layout = MarketHeader::Layout::kCoordinate;
  } else if (layout == "array") {
    draft_.layout = MarketHeader::Layout::kArray;
  } else {
    return At("NOT_MATRIX_MARKET",
              "unknown layout " + Printable(layout) + "; coordinate and array are known");
  }
  if (field == "real" || field == "double") {
    draft_.field = MarketHeader::Field::kReal;
  } else if (field == "integer") {
    draft_.field = MarketHeader::Field::kInteger;
  } else if (field == "complex") {
    draft_.field = MarketHeader::Field::kComplex;
  } else if (field == "pattern" && layout == "coordinate") {
    draft_.field = MarketHeader::Field::kPattern;
  } else {
    return At("NOT_MATRIX_MARKET",
              "unknown field " + Printable(field) + " of a" +
                  (layout == "array" ? "n array" : " coordinate") +
                  " file; real, integer, complex and (coordinate only) pattern "
                  "are known");
  }
  if (symmetry == "general") {
    draft_.symmetry = MarketHeader::Symmetry::kGeneral;
  } else if (symmetry == "symmetric") {
    draft_.symmetry = MarketHeader::Symmetry::kSymmetric;
  } else if (symmetry == "skew-symmetric") {
    draft_.symmetry = MarketHeader::Symmetry::kSkewSymmetric;
  } else if (symmetry == "hermitian") {
    draft_.symmetry = MarketHeader::Symmetry::kHermitian;
  } else {
    return At("NOT_MATRIX_MARKET",
              "unknown symmetry " + Printable(symmetry) +
                  "; general, symmetric, skew-symmetric and hermitian are known");
  }
  have_banner_ = true;
  return std::nullopt;
}

std::optional<Error> MarketScanner::SizeLine(std::string_view line) {
  const bool coordinate = draft_.layout == MarketHeader::Layout::kCoordinate;
  std::array<std::string_view, 3> raw;
  const size_t wanted = coordinate ? 3 : 2;
  std::array<int64_t, 3> sizes = {};
  bool good = Fields(line, raw) == wanted;
  for (size_t k = 0; good && k < wanted; ++k) good = ParseCount(raw[k], sizes[k]) && sizes[k] >= 0;
  if (!good) {
    return At("BAD_SIZE_LINE", std::string("expected \"") +
                                   (coordinate ? "ROWS COLUMNS ENTRIES" : "ROWS COLUMNS") +
                                   "\", found " + Printable(line));
  }
  draft_.rows = sizes[0];
  draft_.columns = sizes[1];
  constexpr int64_t kMaxDimension = std::numeric_limits<int32_t>::max();
  if (draft_.rows > kMaxDimension || draft_.columns > kMaxDimension) {
    return At("BAD_SIZE_LINE", "at most " + std::to_string(kMaxDimension) +
                                   " rows and columns are supported, found " + Printable(line));
  }
  if (coordinate) {
    draft_.entries = sizes[2];
    // Fits: both factors are below 2^31.
    if (draft_.entries > draft_.rows * draft_.columns) {
      return At("BAD_SIZE_LINE", std::to_string(draft_.entries) + " entries do not fit into " +
                                     std::to_string(draft_.rows) + " x " +
                                     std::to_string(draft_.columns));
    }
  } else if (draft_.symmetry == MarketHeader::Symmetry::kGeneral) {
    draft_.entries = draft_.rows * draft_.columns;
  } else {
    const int64_t skew = draft_.symmetry == MarketHeader::Symmetry::kSkewSymmetric ? 1 : 0;
    draft_.entries = draft_.rows * (draft_.rows + 1 - 2 * skew) / 2;
  }
  // The shortest entry is "1 1\n" of a pattern, "1 1 1\n" with a value, "1\n" in an array; the last
  // one may lack its line end.
  int64_t shortest = 2;
  if (coordinate) shortest = draft_.field == MarketHeader::Field::kPattern ? 4 : 6;
  if (draft_.entries > 1 && draft_.entries - 1 > max_bytes_ / shortest) {
    return At("FILE_TRUNCATED", "promises " + std::to_string(draft_.entries) +
                                    " entries, which the whole file is too short to hold; fetch or "
                                    "write it again");
  }
  header_ = draft_;
  return std::nullopt;
}

std::optional<Error> MarketScanner::Entry(std::string_view line) {
  const MarketHeader& h = *header_;
  if (seen_entries_ == h.entries) {
    return At("TOO_MANY_ENTRIES", "the size line promises " + std::to_string(h.entries) +
                                      " entries, but more follow: " + Printable(line) +
                                      "; correct the size line or cut the file there");
  }
  const bool coordinate = h.layout == MarketHeader::Layout::kCoordinate;
  size_t values = h.field == MarketHeader::Field::kComplex ? 2 : 1;
  if (h.field == MarketHeader::Field::kPattern) values = 0;
  const size_t wanted = (coordinate ? 2 : 0) + values;
  std::array<std::string_view, 4> raw;
  const size_t count = Fields(line, raw);
  if (count != wanted) {
    return At("BAD_ENTRY", "expected " + std::to_string(wanted) + " fields, found " +
                               std::to_string(count) + ": " + Printable(line));
  }
  size_t first_value = 0;
  int64_t i = 0, j = 0;
  if (coordinate) {
    if (!ParseCount(raw[0], i) || !ParseCount(raw[1], j)) {
      return At("BAD_ENTRY", "row and column must be whole numbers, found " + Printable(line));
    }
    if (i < 1 || i > h.rows || j < 1 || j > h.columns) {
      const bool zero = i == 0 || j == 0;
      return At("INDEX_OUT_OF_RANGE",
                "entry (" + std::to_string(i) + ", " + std::to_string(j) + ") is outside 1.." +
                    std::to_string(h.rows) + " x 1.." + std::to_string(h.columns) +
                    (zero ? "; Matrix Market counts from 1: add 1 to every index" : ""));
    }
    first_value = 2;
  }
  std::array<double, 2> numbers = {};
  for (size_t k = first_value; k < wanted; ++k) {
    if (!ParseNumber(raw[k], numbers[k - first_value])) {
      return At("BAD_ENTRY", Printable(raw[k]) + " is not a number");
    }
  }
  MakeRoom();
  if (coordinate) {
    entries_.rows.push_back(static_cast<int32_t>(i - 1));
    entries_.columns.push_back(static_cast<int32_t>(j - 1));
  }
  if (values > 0) entries_.values.push_back(numbers[0]);
  ++seen_entries_;
  return std::nullopt;
}

// Room for what the header promises is taken as entries come, and in the end no more than that.
void MarketScanner::MakeRoom() {
  const auto grow = [this](auto& list) {
    if (list.size() < list.capacity()) return;
    const auto promised = static_cast<size_t>(header_->entries);
    list.reserve(std::min(promised, std::max<size_t>(2 * list.size(), 4096)));
  };
  if (header_->layout == MarketHeader::Layout::kCoordinate) {
    grow(entries_.rows);
    grow(entries_.columns);
  }
  if (header_->field != MarketHeader::Field::kPattern) grow(entries_.values);
}

}  // namespace spaid::cli
