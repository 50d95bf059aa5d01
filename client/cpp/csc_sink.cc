#include "client/cpp/csc_sink.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "client/cpp/arrays.h"
#include "client/cpp/errors.h"

namespace spaid::internal {
namespace {

constexpr unsigned kCoresForAThread = 4;
constexpr int64_t kBytesForAThread = int64_t{8} << 20;
constexpr size_t kMaxWaiting = 4;  // chunks, of 1 MiB or so

// Without a branch an entry, so that many are looked at at once.
bool Monotone(std::span<const int64_t> pointers) {
  bool down = false;
  for (size_t j = 1; j < pointers.size(); ++j) down |= pointers[j] < pointers[j - 1];
  return !down;
}

bool Inside(std::span<const int32_t> rows, int64_t n) {
  const auto last = static_cast<uint32_t>(n - 1);
  uint32_t beyond = 0;  // the sign bit: below 0 or above the last
  for (const int32_t row : rows) {
    beyond |= static_cast<uint32_t>(row) | (last - static_cast<uint32_t>(row));
  }
  return beyond >> 31 == 0;
}

}  // namespace

struct CscSink::Parts {
  Parts(int64_t n_columns, int64_t entries, Aside where, int64_t n_rows)
      : n(n_columns),
        rows(n_rows),
        nnz(entries),
        aside(where),
        pointers(v1::ARRAY_KIND_POINTERS, n + 1),
        indices(v1::ARRAY_KIND_INDICES, nnz),
        values(v1::ARRAY_KIND_VALUES, nnz) {}
  ~Parts() { Join(); }

  std::optional<Error> TakeHere(const v1::ArrayChunk& chunk) {
    switch (chunk.array()) {
      case v1::ARRAY_KIND_POINTERS:
        return pointers.Take(chunk);
      case v1::ARRAY_KIND_INDICES:
        return indices.Take(chunk);
      case v1::ARRAY_KIND_VALUES:
        return values.Take(chunk);
      default:
        return ProtocolViolation("a chunk of an array that a matrix does not have");
    }
  }

  // Starts the thread if it is to be had, once.
  bool TakesAside() {
    if (taker.joinable()) return true;
    const bool pays = total_bytes() >= kBytesForAThread &&
                      std::thread::hardware_concurrency() >= kCoresForAThread;
    if (aside == Aside::kNever || (aside == Aside::kWhereItPays && !pays)) return false;
    aside = Aside::kNever;  // begun, or not to be had
    try {
      taker = std::thread([this] { TakeAll(); });
    } catch (const std::exception&) {
    }
    return taker.joinable();
  }

  void HavePattern(const CscMatrix& known) {
    pointers.Have(known.col_ptr);
    indices.Have(known.row_idx);
  }

  void TakeAll() {
    std::unique_lock lock(mutex);
    try {
      if (pattern != nullptr) {
        lock.unlock();
        HavePattern(*pattern);
        lock.lock();
      }
      while (!error) {
        changed.wait(lock, [this] { return over || !waiting.empty(); });
        if (waiting.empty()) return;
        const v1::ArrayChunk chunk = std::move(waiting.front());
        waiting.pop_front();
        lock.unlock();
        changed.notify_all();
        std::optional<Error> failed = TakeHere(chunk);
        lock.lock();
        error = std::move(failed);
      }
    } catch (...) {  // no memory: for the caller to know
      if (!lock.owns_lock()) lock.lock();
      thrown = std::current_exception();
    }
    over = true;
    lock.unlock();
    changed.notify_all();
  }

  // Ends the thread, once it has taken what waits.
  void Join() {
    if (!taker.joinable()) return;
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    taker.join();
  }

  int64_t total_bytes() const { return 8 * (n + 1) + 12 * nnz; }

  const int64_t n, rows, nnz;  // rows: 0 where they are n
  Aside aside;
  int64_t received = 0;                // bytes
  const CscMatrix* pattern = nullptr;  // to be copied, if values alone come
  // The thread's, once it is there, until it is joined.
  ArraySink<int64_t> pointers;
  ArraySink<int32_t> indices;
  ArraySink<double> values;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<v1::ArrayChunk> waiting;  // this and below: guarded by `mutex`
  bool over = false;
  std::optional<Error> error;
  std::exception_ptr thrown;
  std::thread taker;
};

CscSink::CscSink(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CscSink::CscSink(CscSink&&) noexcept = default;
CscSink& CscSink::operator=(CscSink&&) noexcept = default;
CscSink::~CscSink() = default;

Expected<CscSink> CscSink::Create(int64_t n, int64_t nnz, v1::ValueType type, Aside aside,
                                  int64_t rows) {
  // No more entries than can be counted in bytes.
  constexpr int64_t kMaxNnz = std::numeric_limits<int64_t>::max() / 16;
  constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();
  if (n < 1 || n > kMaxRows || rows < 0 || rows > kMaxRows || nnz < 0 ||
      nnz > n * (rows > 0 ? rows : n) || nnz > kMaxNnz) {
    return ProtocolViolation("a result of " + std::to_string(n) + " columns, " +
                             std::to_string(rows > 0 ? rows : n) + " rows and " +
                             std::to_string(nnz) + " entries");
  }
  if (type != v1::VALUE_TYPE_FLOAT64) return ProtocolViolation("values that are not fp64");
  return CscSink(std::make_unique<Parts>(n, nnz, aside, rows == n ? 0 : rows));
}

Expected<CscSink> CscSink::Create(const v1::CscHeader& header, const CscMatrix* known) {
  Expected<CscSink> sink =
      Create(header.n(), header.nnz(), header.value_type(), Aside::kWhereItPays, header.rows());
  if (!sink.ok() || !header.values_only()) return sink;
  if (known == nullptr || known->n != header.n() ||
      static_cast<int64_t>(known->row_idx.size()) != header.nnz()) {
    return ProtocolViolation("values of a pattern that it was not asked for");
  }
  Parts& parts = *sink->parts_;
  parts.pattern = known;
  if (!parts.TakesAside()) parts.HavePattern(*known);
  parts.received = 8 * (header.n() + 1) + 4 * header.nnz();
  return sink;
}

std::optional<Error> CscSink::Take(v1::ArrayChunk chunk) {
  const auto bytes = static_cast<int64_t>(chunk.data().size());
  if (!parts_->TakesAside()) {
    if (auto error = parts_->TakeHere(chunk)) return error;
  } else {
    std::unique_lock lock(parts_->mutex);
    parts_->changed.wait(lock,
                         [this] { return parts_->over || parts_->waiting.size() < kMaxWaiting; });
    if (parts_->thrown) std::rethrow_exception(parts_->thrown);
    if (parts_->error) return parts_->error;
    parts_->waiting.push_back(std::move(chunk));
    lock.unlock();
    parts_->changed.notify_all();
  }
  parts_->received += bytes;
  return std::nullopt;
}

Expected<CscMatrix> CscSink::Finish() {
  Parts& p = *parts_;
  p.Join();
  if (p.thrown) std::rethrow_exception(p.thrown);
  if (p.error) return *p.error;
  if (!p.pointers.Complete() || !p.indices.Complete() || !p.values.Complete()) {
    return ProtocolViolation("the result ended before all of its arrays had come");
  }
  CscMatrix m{p.n, p.pointers.Release(), p.indices.Release(), p.values.Release()};
  if (m.col_ptr.front() != 0 || m.col_ptr.back() != p.nnz || !Monotone(m.col_ptr) ||
      !Inside(m.row_idx, p.rows > 0 ? p.rows : p.n)) {
    return ProtocolViolation("a result that is not a CSC matrix");
  }
  m.rows = p.rows;
  return m;
}

int64_t CscSink::received_bytes() const { return parts_->received; }
int64_t CscSink::total_bytes() const { return parts_->total_bytes(); }

}  // namespace spaid::internal
