#include "client/cli/matrix_market.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <new>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "client/cli/byte_file.h"
#include "client/cli/matrix_market_scan.h"

namespace spaid::cli {
namespace {

// CHOLMOD, and with it much of what reads this format, takes magnitudes from 1e308 on for infinity:
// neither read nor written here, so that a file says the same to everybody. NaN fails the
// comparison.
bool IsPortable(double value) { return std::fabs(value) < 1e308; }

Error OutOfMemory(const std::string& path) {
  Error error = FileError(path, "OUT_OF_MEMORY", "does not fit into this machine's memory");
  error.code = Code::kResourceExhausted;
  return error;
}

// A file on its way through the scanner.
class MarketStream {
 public:
  // Reads up to the size line at least.
  static Expected<MarketStream> Open(const std::string& path) {
    auto reader = ByteReader::Open(path);
    if (!reader.ok()) return reader.error();
    MarketStream stream(path, *std::move(reader));
    while (!stream.scanner_.header()) {
      if (auto error = stream.Pull()) return *error;
    }
    return stream;
  }

  const MarketHeader& header() const { return *scanner_.header(); }

  Expected<MarketEntries> ReadAll() {
    while (!ended_) {
      if (auto error = Pull()) return *error;
    }
    return std::move(scanner_.entries());
  }

 private:
  MarketStream(const std::string& path, ByteReader reader)
      : reader_(std::move(reader)), scanner_(path, reader_.MaxBytes()), buffer_(1 << 18) {}

  // Reads and scans the next piece, or the end.
  std::optional<Error> Pull() {
    const auto count = reader_.Read(buffer_);
    if (!count.ok()) return count.error();
    if (*count > 0) return scanner_.Feed(std::span<const char>(buffer_).first(*count));
    ended_ = true;
    return scanner_.Finish();  // refuses a file without a size line
  }

  ByteReader reader_;
  MarketScanner scanner_;
  std::vector<char> buffer_;
  bool ended_ = false;
};

std::optional<Error> RefuseField(const std::string& path, const MarketHeader& h,
                                 bool pattern_allowed) {
  using Field = MarketHeader::Field;
  using Symmetry = MarketHeader::Symmetry;
  if (h.symmetry == Symmetry::kHermitian) {
    return FileError(
        path, "MATRIX_HERMITIAN",
        "is Hermitian, and spaid solves real systems; write a real matrix as symmetric");
  }
  if (h.field == Field::kComplex) {
    return FileError(path, "MATRIX_COMPLEX",
                     "is complex, and spaid solves real systems; split it into the real system "
                     "[Re -Im; Im Re] of twice the size");
  }
  if (h.symmetry == Symmetry::kSkewSymmetric) {
    return FileError(
        path, "MATRIX_SKEW_SYMMETRIC",
        "is stored skew-symmetric, which is not read; write both triangles as general");
  }
  if (h.field == Field::kPattern && !pattern_allowed) {
    return FileError(path, "MATRIX_PATTERN",
                     "holds a pattern without values; a solve and a build need values (upload "
                     "--pattern-only, estimate and --pattern take patterns)");
  }
  return std::nullopt;
}

// Position of an entry: in a symmetric file that in the lower triangle, whichever it is in.
std::pair<int32_t, int32_t> Place(const MarketEntries& t, bool symmetric, size_t k) {
  const int32_t i = t.rows[k], j = t.columns[k];
  return symmetric && i < j ? std::pair(j, i) : std::pair(i, j);
}

// Called only when there is one; finds the first entry whose place was given before.
Error DuplicateError(const std::string& path, const MarketEntries& t, bool symmetric) {
  std::unordered_map<uint64_t, size_t> first;
  for (size_t k = 0; k < t.rows.size(); ++k) {
    const auto [i, j] = Place(t, symmetric, k);
    const auto [at, fresh] =
        first.emplace(static_cast<uint64_t>(i) << 32 | static_cast<uint64_t>(j), k);
    if (fresh) continue;
    const bool mirrored = t.rows[at->second] != t.rows[k];
    Error error = FileError(
        path, "DUPLICATE_ENTRY",
        "entry " + std::to_string(k + 1) + ", (" + std::to_string(int64_t{t.rows[k]} + 1) + ", " +
            std::to_string(int64_t{t.columns[k]} + 1) + "), was given before as entry " +
            std::to_string(at->second + 1) +
            (mirrored
                 ? ": a symmetric file holds one triangle; drop the other, or declare it general"
                 : "; correct the file, or ask for the sum with --sum-duplicates"));
    error.metadata.emplace_back("entry", std::to_string(k + 1));
    return error;
  }
  return FileError(path, "DUPLICATE_ENTRY", "holds an entry twice");
}

bool HasBothTriangles(const MarketEntries& t) {
  bool lower = false, upper = false;
  for (size_t k = 0; k < t.rows.size(); ++k) {
    lower |= t.rows[k] > t.columns[k];
    upper |= t.rows[k] < t.columns[k];
  }
  return lower && upper;
}

std::optional<Error> RefuseUnportable(const std::string& path, const MarketEntries& t) {
  for (size_t k = 0; k < t.values.size(); ++k) {
    if (IsPortable(t.values[k])) continue;
    Error error = FileError(
        path, "NON_FINITE_VALUE",
        "entry " + std::to_string(k + 1) + ", (" + std::to_string(int64_t{t.rows[k]} + 1) + ", " +
            std::to_string(int64_t{t.columns[k]} + 1) + "), is " +
            (std::isnan(t.values[k]) ? "NaN" : "infinite (or beyond 1e308)") + "; correct it");
    error.metadata.emplace_back("entry", std::to_string(k + 1));
    return error;
  }
  return std::nullopt;
}

// Turns counts[k + 1] into the places at which bucket k begins.
void SumUp(std::vector<int64_t>& counts) {
  std::partial_sum(counts.begin(), counts.end(), counts.begin());
}

// The entries at their places, sorted by column, row and order in the file; the triangle that Place
// names of a symmetric file. Leaves `t` its places, for errors.
CscMatrix SortedByColumn(const MarketEntries& t, bool symmetric, int64_t n) {
  const size_t count = t.rows.size();
  const bool values = !t.values.empty();
  // By row first: the pass by columns keeps that order, and each row's order in the file.
  std::vector<int64_t> next(n + 1);
  CscMatrix a;
  a.n = n;
  a.col_ptr.resize(n + 1);
  for (size_t k = 0; k < count; ++k) {
    const auto [i, j] = Place(t, symmetric, k);
    ++next[i + 1];
    ++a.col_ptr[j + 1];
  }
  SumUp(next);
  SumUp(a.col_ptr);
  std::vector<int64_t> by_row(count);
  for (size_t k = 0; k < count; ++k) {
    by_row[next[Place(t, symmetric, k).first]++] = static_cast<int64_t>(k);
  }
  next.assign(a.col_ptr.begin(), a.col_ptr.end());
  a.row_idx.resize(count);
  if (values) a.values.resize(count);
  for (const int64_t k : by_row) {
    const auto [i, j] = Place(t, symmetric, k);
    const int64_t at = next[j]++;
    a.row_idx[at] = i;
    if (values) a.values[at] = t.values[k];
  }
  return a;
}

// Adds up the neighbours of one place, in their order.
void SumDuplicates(CscMatrix& a) {
  int64_t kept = 0, begin = 0;
  for (int64_t j = 0; j < a.n; ++j) {
    const int64_t first = kept, end = a.col_ptr[j + 1];
    for (int64_t p = begin; p < end; ++p) {
      const bool again = kept > first && a.row_idx[kept - 1] == a.row_idx[p];
      if (!again) a.row_idx[kept++] = a.row_idx[p];
      if (a.values.empty()) continue;
      if (again) {
        a.values[kept - 1] += a.values[p];
      } else {
        a.values[kept - 1] = a.values[p];
      }
    }
    begin = end;
    a.col_ptr[j + 1] = kept;
  }
  a.row_idx.resize(kept);
  if (!a.values.empty()) a.values.resize(kept);
}

// Both triangles from the lower one.
CscMatrix Expanded(const CscMatrix& lower) {
  CscMatrix a;
  a.n = lower.n;
  a.col_ptr.resize(a.n + 1);
  for (int64_t j = 0; j < a.n; ++j) {
    for (int64_t p = lower.col_ptr[j]; p < lower.col_ptr[j + 1]; ++p) {
      ++a.col_ptr[j + 1];
      if (lower.row_idx[p] != j) ++a.col_ptr[lower.row_idx[p] + 1];
    }
  }
  SumUp(a.col_ptr);
  a.row_idx.resize(a.col_ptr.back());
  if (!lower.values.empty()) a.values.resize(a.col_ptr.back());
  std::vector<int64_t> next(a.col_ptr.begin(), a.col_ptr.end() - 1);
  // A column of the upper triangle fills by ascending rows, and before its part of the lower one.
  for (const bool upper : {true, false}) {
    for (int64_t j = 0; j < a.n; ++j) {
      for (int64_t p = lower.col_ptr[j]; p < lower.col_ptr[j + 1]; ++p) {
        const int64_t i = lower.row_idx[p];
        if (upper && i == j) continue;
        const int64_t at = next[upper ? i : j]++;
        a.row_idx[at] = static_cast<int32_t>(upper ? j : i);
        if (!lower.values.empty()) a.values[at] = lower.values[p];
      }
    }
  }
  return a;
}

// Both triangles, rows sorted, as CSC. The values must be portable.
Expected<CscMatrix> ToCsc(const std::string& path, const MarketHeader& h, MarketEntries t,
                          const ReadOptions& options) {
  const bool symmetric = h.symmetry == MarketHeader::Symmetry::kSymmetric;
  if (options.pattern) t.values = {};
  CscMatrix a = SortedByColumn(t, symmetric, h.rows);
  SumDuplicates(a);
  if (a.row_idx.size() != t.rows.size()) {
    if (!options.sum_duplicates || (symmetric && HasBothTriangles(t))) {
      return DuplicateError(path, t, symmetric);
    }
    // Single values were checked before.
    if (!std::all_of(a.values.begin(), a.values.end(), [](double v) { return std::isfinite(v); })) {
      return FileError(path, "NON_FINITE_VALUE", "the sum of duplicate entries overflows");
    }
  }
  t = {};
  return symmetric ? Expanded(a) : std::move(a);
}

// The text of a file, built piece by piece.
class TextWriter {
 public:
  explicit TextWriter(FILE* file) : file_(file) {}
  ~TextWriter() { Flush(); }
  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;

  TextWriter& operator<<(std::string_view text) {
    text_.append(text);
    if (text_.size() > (1 << 16)) Flush();
    return *this;
  }
  // The shortest digits that read back as the same number.
  template <class Number>
  requires std::is_arithmetic_v<Number> TextWriter& operator<<(Number number) {
    std::array<char, 32> digits;
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    return *this << std::string_view(digits.data(), end);
  }

 private:
  // A failure stays with the file: ByteWriter::Commit tells it.
  void Flush() {
    std::fwrite(text_.data(), 1, text_.size(), file_);
    text_.clear();
  }

  FILE* file_;
  std::string text_;
};

// To the last bit: a zero of either sign is read back as it was.
bool IsSymmetric(const CscView& a) {
  std::vector<int64_t> next(a.col_ptr.begin(), a.col_ptr.end() - 1);
  for (int64_t j = 0; j < a.n; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const int64_t i = a.row_idx[p];
      // As j grows, column i's entries are met in their own order, if they are all mirrored.
      const int64_t mirrored = next[i]++;
      if (mirrored >= a.col_ptr[i + 1] || a.row_idx[mirrored] != j) return false;
      if (!a.values.empty() &&
          std::bit_cast<uint64_t>(a.values[p]) != std::bit_cast<uint64_t>(a.values[mirrored])) {
        return false;
      }
    }
  }
  return true;
}

Expected<CscMatrix> ReadMatrixOrThrow(const std::string& path, const ReadOptions& options) {
  auto stream = MarketStream::Open(path);
  if (!stream.ok()) return stream.error();
  const MarketHeader h = stream->header();
  if (auto refused = RefuseField(path, h, options.pattern)) return *refused;
  if (h.layout == MarketHeader::Layout::kArray) {
    return FileError(path, "MATRIX_DENSE",
                     "holds a dense array, not a sparse matrix; right-hand sides (--rhs) are given "
                     "that way");
  }
  if (h.rows != h.columns || h.rows == 0) {
    return FileError(path, "NOT_SQUARE",
                     "is " + std::to_string(h.rows) + " x " + std::to_string(h.columns) +
                         "; a square matrix of at least one row is needed");
  }
  auto entries = stream->ReadAll();
  if (!entries.ok()) return entries.error();
  if (auto refused = RefuseUnportable(path, *entries)) return *refused;
  return ToCsc(path, h, *std::move(entries), options);
}

Expected<Vectors> ReadVectorsOrThrow(const std::string& path) {
  auto stream = MarketStream::Open(path);
  if (!stream.ok()) return stream.error();
  const MarketHeader h = stream->header();
  if (auto refused = RefuseField(path, h, false)) return *refused;
  if (h.symmetry != MarketHeader::Symmetry::kGeneral) {
    return FileError(path, "NOT_MATRIX_MARKET",
                     "right-hand sides must be stored as general, not symmetric");
  }
  if (h.rows == 0 || h.columns == 0) {
    return FileError(path, "BAD_SIZE_LINE", "holds no numbers");
  }
  auto entries = stream->ReadAll();
  if (!entries.ok()) return entries.error();
  Vectors vectors;
  vectors.rows = h.rows;
  vectors.columns = h.columns;
  if (h.layout == MarketHeader::Layout::kArray) {
    vectors.values = std::move(entries->values);
  } else {
    vectors.values.assign(h.rows * h.columns, 0.0);
    std::vector<bool> given(vectors.values.size());
    for (size_t k = 0; k < entries->rows.size(); ++k) {
      const int64_t at = entries->columns[k] * h.rows + entries->rows[k];
      if (given[at]) return DuplicateError(path, *entries, false);
      given[at] = true;
      vectors.values[at] = entries->values[k];
    }
  }
  for (size_t k = 0; k < vectors.values.size(); ++k) {
    if (IsPortable(vectors.values[k])) continue;
    return FileError(path, "NON_FINITE_VALUE",
                     "row " + std::to_string(k % h.rows + 1) + ", column " +
                         std::to_string(k / h.rows + 1) +
                         " is not a finite number below 1e308; correct it");
  }
  return vectors;
}

std::optional<Error> Write(const std::string& path, const CscView& a, int64_t rows) {
  for (size_t k = 0; k < a.values.size(); ++k) {
    if (!IsPortable(a.values[k])) {
      return FileError(path, "NON_FINITE_VALUE",
                       "was not written: value " + std::to_string(k) +
                           " of the matrix is not finite (or beyond 1e308)");
    }
  }
  auto writer = ByteWriter::Open(path);
  if (!writer.ok()) return writer.error();
  const bool symmetric = rows == a.n && IsSymmetric(a);
  // The first entry of column j that is written.
  const auto first = [&](int64_t j) {
    if (!symmetric) return a.col_ptr[j];
    const auto begin = a.row_idx.begin();
    return std::lower_bound(begin + a.col_ptr[j], begin + a.col_ptr[j + 1], j) - begin;
  };
  int64_t entries = 0;
  for (int64_t j = 0; j < a.n; ++j) entries += a.col_ptr[j + 1] - first(j);
  {
    TextWriter text(writer->file());
    text << "%%MatrixMarket matrix coordinate " << (a.values.empty() ? "pattern" : "real")
         << (symmetric ? " symmetric\n" : " general\n") << rows << " " << a.n << " " << entries
         << "\n";
    for (int64_t j = 0; j < a.n; ++j) {
      for (int64_t p = first(j); p < a.col_ptr[j + 1]; ++p) {
        text << int64_t{a.row_idx[p]} + 1 << " " << j + 1;
        if (!a.values.empty()) text << " " << a.values[p];
        text << "\n";
      }
    }
  }
  return writer->Commit();
}

// Turns the standard library's exceptions for lack of memory into errors.
template <class Read>
auto Caught(const std::string& path, const Read& read) -> decltype(read()) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(path);
  } catch (const std::length_error&) {
    return OutOfMemory(path);
  }
}

}  // namespace

Expected<CscMatrix> ReadMatrix(const std::string& path, const ReadOptions& options) {
  return Caught(path, [&] { return ReadMatrixOrThrow(path, options); });
}

Expected<Vectors> ReadVectors(const std::string& path) {
  return Caught(path, [&] { return ReadVectorsOrThrow(path); });
}

std::optional<Error> WriteMatrix(const std::string& path, const CscView& a) {
  return Write(path, a, a.n);
}

std::optional<Error> WriteMatrix(const std::string& path, const CscMatrix& a) {
  return Write(path, a, a.rows > 0 ? a.rows : a.n);
}

std::optional<Error> WriteVectors(const std::string& path, int64_t rows, int64_t columns,
                                  std::span<const double> values) {
  for (size_t k = 0; k < values.size(); ++k) {
    if (!IsPortable(values[k])) {
      return FileError(
          path, "NON_FINITE_VALUE",
          "was not written: element " + std::to_string(k) + " is not finite (or beyond 1e308)");
    }
  }
  auto writer = ByteWriter::Open(path);
  if (!writer.ok()) return writer.error();
  {
    TextWriter text(writer->file());
    text << "%%MatrixMarket matrix array real general\n" << rows << " " << columns << "\n";
    for (const double value : values) text << value << "\n";
  }
  return writer->Commit();
}

}  // namespace spaid::cli
