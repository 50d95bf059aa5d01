#include "client/cli/matrix_market.h"

#include <suitesparse/cholmod.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "client/cli/byte_file.h"
#include "client/cli/market_scan.h"

namespace spaid::cli {
namespace {

static_assert(sizeof(SuiteSparse_long) == sizeof(int64_t));

// One CHOLMOD session. Its own printing is off: our errors speak.
class Cholmod {
 public:
  Cholmod() {
    cholmod_l_start(&common_);
    common_.print = 0;
  }
  ~Cholmod() { cholmod_l_finish(&common_); }
  Cholmod(const Cholmod&) = delete;
  Cholmod& operator=(const Cholmod&) = delete;
  cholmod_common* get() { return &common_; }

  template <class T, int (*Free)(T**, cholmod_common*)>
  auto Own(T* object) {
    auto free = [this](T* p) { Free(&p, &common_); };
    return std::unique_ptr<T, decltype(free)>(object, free);
  }
  auto Own(cholmod_triplet* t) { return Own<cholmod_triplet, cholmod_l_free_triplet>(t); }
  auto Own(cholmod_sparse* a) { return Own<cholmod_sparse, cholmod_l_free_sparse>(a); }
  auto Own(cholmod_dense* x) { return Own<cholmod_dense, cholmod_l_free_dense>(x); }

 private:
  cholmod_common common_;
};

// CHOLMOD reads magnitudes from 1e308 on as infinity, and writes them and infinity as 1e308. NaN
// fails the comparison.
bool IsWritable(double value) { return std::fabs(value) < 1e308; }

Error OutOfMemory(const std::string& path) {
  Error error = FileError(path, "OUT_OF_MEMORY", "does not fit into this machine's memory");
  error.code = Code::kResourceExhausted;
  return error;
}

// The bytes of a file on their way to CHOLMOD, every one of them seen by the scanner first.
class MarketStream {
 public:
  static Expected<std::unique_ptr<MarketStream>> Open(const std::string& path) {
    auto reader = ByteReader::Open(path);
    if (!reader.ok()) return reader.error();
    auto stream = std::unique_ptr<MarketStream>(new MarketStream(path, *std::move(reader)));
    while (!stream->scanner_.header() && !stream->ended_) {
      if (!stream->Pull() && stream->error_) return *stream->error_;
    }
    if (!stream->scanner_.header()) {
      // Finish reports why there is no header.
      return stream->scanner_.Finish().value();
    }
    return stream;
  }

  const MarketHeader& header() const { return *scanner_.header(); }

  // Runs `parse` (which may read the file to any place), then reads what it left to the end. The
  // stream's own error wins over the parser's: it names the line.
  template <class Parse>
  auto ParseAll(const Parse& parse) -> Expected<decltype(parse(std::declval<FILE*>()))> {
    std::function<ssize_t(std::span<char>)> source = [this](std::span<char> to) {
      return Give(to);
    };
    FILE* file = OpenCallbackFile(&source);
    if (file == nullptr) return OutOfMemory(path_);
    auto parsed = parse(file);
    fclose(file);
    while (!ended_ && !error_) Pull();
    if (!error_) error_ = scanner_.Finish();
    if (error_) return *error_;
    return parsed;
  }

 private:
  MarketStream(std::string path, ByteReader reader)
      : path_(std::move(path)),
        reader_(std::move(reader)),
        scanner_(path_, reader_.MaxBytes()),
        buffer_(1 << 18) {}

  // Reads and scans the next piece; what is pending is dropped if nobody wanted it.
  bool Pull() {
    // The header may take several pieces: CHOLMOD must still see the first.
    const size_t kept = started_ ? 0 : filled_;
    if (buffer_.size() - kept < (1 << 16)) buffer_.resize(buffer_.size() * 2);
    auto count = reader_.Read(std::span(buffer_).subspan(kept));
    if (!count.ok()) {
      error_ = count.error();
    } else if (*count == 0) {
      ended_ = true;
      return false;
    } else {
      error_ = scanner_.Feed(std::span<const char>(buffer_).subspan(kept, *count));
      given_ = started_ ? 0 : given_;
      filled_ = kept + *count;
    }
    if (error_) filled_ = given_ = 0;
    return !error_;
  }

  ssize_t Give(std::span<char> to) {
    started_ = true;
    if (given_ == filled_ && !ended_ && !error_) {
      given_ = filled_ = 0;
      Pull();
    }
    if (error_) return -1;
    const size_t count = std::min(to.size(), filled_ - given_);
    std::memcpy(to.data(), buffer_.data() + given_, count);
    given_ += count;
    return static_cast<ssize_t>(count);
  }

  std::string path_;
  ByteReader reader_;
  MarketScanner scanner_;
  std::vector<char> buffer_;
  size_t given_ = 0, filled_ = 0;
  bool started_ = false, ended_ = false;
  std::optional<Error> error_;
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

// Position of an entry of a symmetric file, whichever triangle it is in.
std::pair<int64_t, int64_t> Place(const cholmod_triplet& t, int64_t k) {
  const int64_t i = static_cast<const int64_t*>(t.i)[k];
  const int64_t j = static_cast<const int64_t*>(t.j)[k];
  return t.stype != 0 && i < j ? std::pair(j, i) : std::pair(i, j);
}

// Called only when there is one; finds the first entry whose place was given before.
Error DuplicateError(const std::string& path, const cholmod_triplet& t) {
  std::unordered_map<uint64_t, int64_t> first;
  for (int64_t k = 0; k < static_cast<int64_t>(t.nnz); ++k) {
    const auto [i, j] = Place(t, k);
    const auto [at, fresh] = first.emplace(static_cast<uint64_t>(i) << 32 | j, k);
    if (fresh) continue;
    const int64_t row = static_cast<const int64_t*>(t.i)[k] + 1;
    const int64_t column = static_cast<const int64_t*>(t.j)[k] + 1;
    const bool mirrored = static_cast<const int64_t*>(t.i)[at->second] + 1 != row;
    Error error = FileError(
        path, "DUPLICATE_ENTRY",
        "entry " + std::to_string(k + 1) + ", (" + std::to_string(row) + ", " +
            std::to_string(column) + "), was given before as entry " +
            std::to_string(at->second + 1) +
            (mirrored
                 ? ": a symmetric file holds one triangle; drop the other, or declare it general"
                 : "; correct the file, or ask for the sum with --sum-duplicates"));
    error.metadata.emplace_back("entry", std::to_string(k + 1));
    return error;
  }
  return FileError(path, "DUPLICATE_ENTRY", "holds an entry twice");
}

bool HasMirrored(const cholmod_triplet& t) {
  const auto* i = static_cast<const int64_t*>(t.i);
  const auto* j = static_cast<const int64_t*>(t.j);
  bool lower = false, upper = false;
  for (size_t k = 0; k < t.nnz; ++k) {
    lower |= i[k] > j[k];
    upper |= i[k] < j[k];
  }
  return t.stype != 0 && lower && upper;
}

std::optional<Error> RefuseNonFinite(const std::string& path, const cholmod_triplet& t) {
  if (t.xtype != CHOLMOD_REAL) return std::nullopt;
  const auto* x = static_cast<const double*>(t.x);
  for (size_t k = 0; k < t.nnz; ++k) {
    if (std::isfinite(x[k])) continue;
    Error error =
        FileError(path, "NON_FINITE_VALUE",
                  "entry " + std::to_string(k + 1) + ", (" +
                      std::to_string(static_cast<const int64_t*>(t.i)[k] + 1) + ", " +
                      std::to_string(static_cast<const int64_t*>(t.j)[k] + 1) + "), is " +
                      (std::isnan(x[k]) ? "NaN" : "infinite (or beyond 1e308)") + "; correct it");
    error.metadata.emplace_back("entry", std::to_string(k + 1));
    return error;
  }
  return std::nullopt;
}

// Both triangles, rows sorted, as CSC. The triplets must be free of NaN and infinity.
Expected<CscMatrix> ToCsc(const std::string& path, Cholmod& cholmod, const cholmod_triplet& t,
                          const ReadOptions& options) {
  const auto triangle =
      cholmod.Own(cholmod_l_triplet_to_sparse(const_cast<cholmod_triplet*>(&t), 0, cholmod.get()));
  if (!triangle) return OutOfMemory(path);
  // CHOLMOD sums duplicates in silence; fewer entries tell.
  const int64_t stored = cholmod_l_nnz(triangle.get(), cholmod.get());
  if (stored != static_cast<int64_t>(t.nnz) && (!options.sum_duplicates || HasMirrored(t))) {
    return DuplicateError(path, t);
  }
  const auto full = cholmod.Own(cholmod_l_copy(triangle.get(), 0, 1, cholmod.get()));
  if (!full || (full->sorted == 0 && cholmod_l_sort(full.get(), cholmod.get()) == 0)) {
    return OutOfMemory(path);
  }
  CscMatrix a;
  a.n = static_cast<int64_t>(full->ncol);
  const auto* p = static_cast<const int64_t*>(full->p);
  const auto* i = static_cast<const int64_t*>(full->i);
  a.col_ptr.assign(p, p + a.n + 1);
  const int64_t nnz = a.col_ptr.back();
  a.row_idx.resize(nnz);
  std::transform(i, i + nnz, a.row_idx.begin(),
                 [](int64_t row) { return static_cast<int32_t>(row); });
  if (!options.pattern) {
    const auto* x = static_cast<const double*>(full->x);
    a.values.assign(x, x + nnz);
    // A sum of duplicates may overflow; single values were checked before.
    const auto bad =
        std::find_if(a.values.begin(), a.values.end(), [](double v) { return !std::isfinite(v); });
    if (bad != a.values.end()) {
      return FileError(path, "NON_FINITE_VALUE", "the sum of duplicate entries overflows");
    }
  }
  return a;
}

Error ParserError(const std::string& path, int status) {
  if (status == CHOLMOD_OUT_OF_MEMORY || status == CHOLMOD_TOO_LARGE) return OutOfMemory(path);
  return FileError(path, "BAD_ENTRY", "is not understood by the Matrix Market reader (CHOLMOD)");
}

}  // namespace

Expected<CscMatrix> ReadMatrix(const std::string& path, const ReadOptions& options) {
  auto stream = MarketStream::Open(path);
  if (!stream.ok()) return stream.error();
  const MarketHeader h = (*stream)->header();
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
  Cholmod cholmod;
  auto parsed =
      (*stream)->ParseAll([&](FILE* file) { return cholmod_l_read_triplet(file, cholmod.get()); });
  if (!parsed.ok()) return parsed.error();
  const auto triplets = cholmod.Own(*parsed);
  if (h.entries == 0) {
    // CHOLMOD gives a zero matrix no values; its CSC needs none.
    CscMatrix zero;
    zero.n = h.rows;
    zero.col_ptr.assign(zero.n + 1, 0);
    return zero;
  }
  if (!triplets) return ParserError(path, cholmod.get()->status);
  if (static_cast<int64_t>(triplets->nnz) != h.entries ||
      static_cast<int64_t>(triplets->nrow) != h.rows) {
    return ParserError(path, CHOLMOD_INVALID);
  }
  if (auto refused = RefuseNonFinite(path, *triplets)) return *refused;
  return ToCsc(path, cholmod, *triplets, options);
}

Expected<Vectors> ReadVectors(const std::string& path) {
  auto stream = MarketStream::Open(path);
  if (!stream.ok()) return stream.error();
  const MarketHeader h = (*stream)->header();
  if (auto refused = RefuseField(path, h, false)) return *refused;
  if (h.symmetry != MarketHeader::Symmetry::kGeneral) {
    return FileError(path, "NOT_MATRIX_MARKET",
                     "right-hand sides must be stored as general, not symmetric");
  }
  if (h.rows == 0 || h.columns == 0) {
    return FileError(path, "BAD_SIZE_LINE", "holds no numbers");
  }
  Cholmod cholmod;
  Vectors vectors;
  vectors.rows = h.rows;
  vectors.columns = h.columns;
  if (h.layout == MarketHeader::Layout::kArray) {
    auto parsed =
        (*stream)->ParseAll([&](FILE* file) { return cholmod_l_read_dense(file, cholmod.get()); });
    if (!parsed.ok()) return parsed.error();
    const auto dense = cholmod.Own(*parsed);
    if (!dense || dense->xtype != CHOLMOD_REAL || static_cast<int64_t>(dense->nrow) != h.rows ||
        static_cast<int64_t>(dense->ncol) != h.columns || dense->d != dense->nrow) {
      return ParserError(path, cholmod.get()->status);
    }
    const auto* x = static_cast<const double*>(dense->x);
    vectors.values.assign(x, x + h.rows * h.columns);
  } else {
    auto parsed = (*stream)->ParseAll(
        [&](FILE* file) { return cholmod_l_read_triplet(file, cholmod.get()); });
    if (!parsed.ok()) return parsed.error();
    const auto t = cholmod.Own(*parsed);
    vectors.values.assign(h.rows * h.columns, 0.0);
    if (h.entries > 0) {
      if (!t || static_cast<int64_t>(t->nnz) != h.entries || t->xtype != CHOLMOD_REAL) {
        return ParserError(path, cholmod.get()->status);
      }
      std::vector<bool> given(vectors.values.size());
      for (int64_t k = 0; k < h.entries; ++k) {
        const auto [i, j] = Place(*t, k);
        if (given[j * h.rows + i]) return DuplicateError(path, *t);
        given[j * h.rows + i] = true;
        vectors.values[j * h.rows + i] = static_cast<const double*>(t->x)[k];
      }
    }
  }
  for (size_t k = 0; k < vectors.values.size(); ++k) {
    if (std::isfinite(vectors.values[k])) continue;
    return FileError(path, "NON_FINITE_VALUE",
                     "row " + std::to_string(k % h.rows + 1) + ", column " +
                         std::to_string(k / h.rows + 1) +
                         " is not a finite number below 1e308; correct it");
  }
  return vectors;
}

std::optional<Error> WriteMatrix(const std::string& path, const CscView& a) {
  for (size_t k = 0; k < a.values.size(); ++k) {
    if (!IsWritable(a.values[k])) {
      return FileError(path, "NON_FINITE_VALUE",
                       "was not written: value " + std::to_string(k) +
                           " of the matrix is not finite (or beyond 1e308)");
    }
  }
  auto writer = ByteWriter::Open(path);
  if (!writer.ok()) return writer.error();
  std::vector<int64_t> rows(a.row_idx.begin(), a.row_idx.end());
  cholmod_sparse view = {};
  view.nrow = view.ncol = static_cast<size_t>(a.n);
  view.nzmax = rows.size();
  view.p = const_cast<int64_t*>(a.col_ptr.data());
  view.i = rows.data();
  view.x = const_cast<double*>(a.values.data());
  view.xtype = a.values.empty() ? CHOLMOD_PATTERN : CHOLMOD_REAL;
  view.itype = CHOLMOD_LONG;
  view.dtype = CHOLMOD_DOUBLE;
  view.sorted = 1;
  view.packed = 1;
  Cholmod cholmod;
  if (cholmod_l_write_sparse(writer->file(), &view, nullptr, nullptr, cholmod.get()) < 0 &&
      ferror(writer->file()) == 0) {
    return OutOfMemory(path);
  }
  return writer->Commit();
}

std::optional<Error> WriteVectors(const std::string& path, int64_t rows, int64_t columns,
                                  std::span<const double> values) {
  for (size_t k = 0; k < values.size(); ++k) {
    if (!IsWritable(values[k])) {
      return FileError(
          path, "NON_FINITE_VALUE",
          "was not written: element " + std::to_string(k) + " is not finite (or beyond 1e308)");
    }
  }
  auto writer = ByteWriter::Open(path);
  if (!writer.ok()) return writer.error();
  cholmod_dense view = {};
  view.nrow = view.d = static_cast<size_t>(rows);
  view.ncol = static_cast<size_t>(columns);
  view.nzmax = values.size();
  view.x = const_cast<double*>(values.data());
  view.xtype = CHOLMOD_REAL;
  view.dtype = CHOLMOD_DOUBLE;
  Cholmod cholmod;
  if (cholmod_l_write_dense(writer->file(), &view, nullptr, cholmod.get()) < 0 &&
      ferror(writer->file()) == 0) {
    return OutOfMemory(path);
  }
  return writer->Commit();
}

}  // namespace spaid::cli
