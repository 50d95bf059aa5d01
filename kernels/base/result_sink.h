// A matrix in CSC that is shown while it is being made, so that whoever sends or stores it need not
// wait for its last column: first its pattern, then how many of its first columns are finished.
//
//   ShownResult shown;                 // stands behind the matrix whose arrays it shows
//   shown.Show(context.result, col_ptr, row_idx, values);
//   ... on any thread, of any columns, in any order: shown.Finished(begin, end);
//   shown.Keep();                      // the arrays stay; else they are withdrawn before they go
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace spaid::kernels {

// Is shown a matrix. Called by the computing threads, one call at a time. Must return quickly and
// must not throw.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  // Pointers and rows are final, values are not. All stay where they are until they are withdrawn,
  // or else as long as the preconditioner that the build returns. Once a build, at the most.
  virtual void OnPattern(std::span<const int64_t> col_ptr, std::span<const int32_t> row_idx,
                         std::span<const double> values) = 0;
  // The values of columns [0, columns) are final: more of them than before.
  virtual void OnColumns(int64_t columns) = 0;
  // The build fails. The arrays go when this has returned.
  virtual void OnWithdrawn() = 0;
};

// A matrix as it is shown to a sink. Where there is none, nothing happens. Movable; a copy shows
// nothing.
class ShownResult {
 public:
  ShownResult();
  ~ShownResult();  // withdraws
  ShownResult(ShownResult&&) noexcept;
  ShownResult& operator=(ShownResult&&) noexcept;
  ShownResult(const ShownResult&) : ShownResult() {}
  ShownResult& operator=(const ShownResult& other);

  // `sink`: borrowed until Keep or the end; may be null. The spans as OnPattern's; col_ptr one
  // longer than there are columns. Not twice.
  void Show(ResultSink* sink, std::span<const int64_t> col_ptr, std::span<const int32_t> row_idx,
            std::span<const double> values);
  bool showing() const { return state_ != nullptr; }
  // Columns [begin, end) are finished, each of them once. Thread-safe.
  void Finished(int64_t begin, int64_t end);
  // All that were not are finished, too.
  void FinishedAll();
  // The arrays stay: there is nothing to withdraw, and nothing more to show.
  void Keep();

 private:
  struct State;
  std::unique_ptr<State> state_;  // null: there is no sink
};

}  // namespace spaid::kernels
