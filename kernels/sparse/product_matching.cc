// Minimises the sum of c_ij = max_k log2 |a_kj| − log2 |a_ij| >= 0 over perfect matchings. Duals u,
// v are feasible, c_ij − u_i − v_j >= 0, and tight on matched entries, from beginning to end.
#include "kernels/sparse/product_matching.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/sparse/pattern.h"

namespace spaid::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Entries looked at between two looks at the stop token: some tens of microseconds.
constexpr int64_t kStepsPerPoll = 8192;
constexpr int64_t kWorkPerEntry = 200;
constexpr int64_t kLeastWork = 10'000'000;
// Rounds of the reduction before the searches, and the entries that it may look at for each of A.
constexpr int kReductions = 2;
constexpr int64_t kReductionPerEntry = 10;
// Searches at once pay for so many columns, and as long as one in so many gets a row.
constexpr int64_t kLeastRoots = 64;
constexpr int64_t kWorthPhase = 8;
constexpr int64_t kEntriesPerBatch = int64_t{1} << 15;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// The state of a row in a search; else its place in the heap.
enum Place : int32_t {
  kUnseen = -1,
  kReady = -2,  // as near as the nearest one that is left
  kDone = -3,   // its distance is final
  kDead = -4,   // no free row is behind it, ever
};

// Together, because a search meets rows in no order.
struct Row {
  double u = 0;
  double distance = kInfinity;  // of a search: reduced cost of the shortest path to here
  int64_t entry = -1;           // of a search: the last of that path
  int32_t column = -1;          // matched
  int32_t from = -1;            // of a search: the column of `entry`
  int32_t place = kUnseen;
  int32_t root = -1;  // of a search from many columns: the one that the path begins at
};

// Rows of a search by their distance, the nearest first.
class Heap {
 public:
  explicit Heap(Array<Row>& rows) : rows_(rows) {}

  bool empty() const { return heap_.empty(); }
  int32_t nearest() const { return heap_.front(); }
  // A row that is new, or has come nearer.
  void Lower(int32_t i) {
    if (rows_[Z(i)].place < 0) {
      rows_[Z(i)].place = static_cast<int32_t>(heap_.size());
      heap_.push_back(i);
    }
    Rise(Z(rows_[Z(i)].place), i);
  }
  void Remove(int32_t i) {
    const size_t at = Z(rows_[Z(i)].place);
    const int32_t last = heap_.back();
    heap_.pop_back();
    if (last == i) return;
    // The last one takes its place, and goes where it belongs.
    if (at > 0 && rows_[Z(last)].distance < rows_[Z(heap_[(at - 1) / 2])].distance) {
      Rise(at, last);
    } else {
      Sink(at, last);
    }
  }
  void Clear() { heap_.clear(); }

 private:
  void Put(size_t at, int32_t i) {
    heap_[at] = i;
    rows_[Z(i)].place = static_cast<int32_t>(at);
  }
  void Rise(size_t at, int32_t i) {
    const double distance = rows_[Z(i)].distance;
    while (at > 0) {
      const size_t parent = (at - 1) / 2;
      if (!(distance < rows_[Z(heap_[parent])].distance)) break;
      Put(at, heap_[parent]);
      at = parent;
    }
    Put(at, i);
  }
  void Sink(size_t at, int32_t i) {
    const double distance = rows_[Z(i)].distance;
    for (;;) {
      size_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() &&
          rows_[Z(heap_[child + 1])].distance < rows_[Z(heap_[child])].distance) {
        ++child;
      }
      if (!(rows_[Z(heap_[child])].distance < distance)) break;
      Put(at, heap_[child]);
      at = child;
    }
    Put(at, i);
  }

  Array<Row>& rows_;
  std::vector<int32_t> heap_;
};

class ProductMatcher {
 public:
  ProductMatcher(const CscView& a, int64_t max_work, const Context& context)
      : a_(a), max_work_(max_work), context_(context), heap_(rows_) {
    context_.progress = nullptr;
  }

  Status Run() {
    if (const StopReason stopped = Costs(); stopped != StopReason::kNone) {
      return StopStatus(stopped, "the maximum product matching");
    }
    if (Start() && Grow() && Reduce() && Phases()) {
      for (int64_t j = 0; j < a_.n_cols; ++j) {
        if (entry_of_column_[Z(j)] < 0 && !Search(static_cast<int32_t>(j))) break;
      }
    }
    if (stopped_ != StopReason::kNone) return StopStatus(stopped_, "the maximum product matching");
    if (work_ > max_work_) {
      return Status(StatusCode::kResourceExhausted, "MATCHING_TOO_LONG",
                    "the maximum product matching looked at more than " +
                        std::to_string(max_work_) + " entries; equilibrate the matrix instead");
    }
    Shift();
    return {};
  }

  ProductMatching Take() {
    ProductMatching out;
    const int64_t n = a_.n_cols;
    out.row_of_column.resize(Z(n));
    out.row_log2.resize(Z(n));
    out.column_log2.resize(Z(n));
    for (int64_t j = 0; j < n; ++j) {
      const int64_t entry = entry_of_column_[Z(j)];
      out.row_of_column[Z(j)] = entry < 0 ? -1 : a_.row_idx[Z(entry)];
      out.size += entry >= 0;
    }
    out.column_of_row = ColumnsOfRows(out.row_of_column);
    // Rows as far from 1 as columns.
    double row_least = kInfinity, row_largest = -kInfinity;
    double column_least = kInfinity, column_largest = -kInfinity;
    for (int64_t k = 0; k < n; ++k) {
      if (rows_[Z(k)].u < kInfinity) {
        row_least = std::min(row_least, rows_[Z(k)].u);
        row_largest = std::max(row_largest, rows_[Z(k)].u);
      }
      if (largest_[Z(k)] > -kInfinity) {
        column_least = std::min(column_least, v_[Z(k)] - largest_[Z(k)]);
        column_largest = std::max(column_largest, v_[Z(k)] - largest_[Z(k)]);
      }
    }
    double shift = 0;
    if (out.size > 0) {
      shift = std::round((column_least + column_largest - row_least - row_largest) / 4);
    }
    for (int64_t k = 0; k < n; ++k) {
      out.row_log2[Z(k)] = rows_[Z(k)].u < kInfinity ? rows_[Z(k)].u + shift : 0;
      out.column_log2[Z(k)] = largest_[Z(k)] > -kInfinity ? v_[Z(k)] - largest_[Z(k)] - shift : 0;
    }
    out.work = work_;
    return out;
  }

 private:
  // Counts `steps` of work; true once there must be no more.
  bool Stopped(int64_t steps) {
    work_ += steps;
    polled_ += steps;
    if (polled_ >= kStepsPerPoll && stopped_ == StopReason::kNone) {
      polled_ = 0;
      stopped_ = context_.stop.Poll();
    }
    return stopped_ != StopReason::kNone || work_ > max_work_;
  }
  int64_t Begin(int64_t j) const { return a_.col_ptr[Z(j)]; }
  int64_t End(int64_t j) const { return a_.col_ptr[Z(j) + 1]; }
  int32_t RowOf(int64_t entry) const { return a_.row_idx[Z(entry)]; }
  double Without(int64_t entry) const { return cost_[Z(entry)] - rows_[Z(RowOf(entry))].u; }

  // The largest v that is feasible; 0 for a column of zeros.
  double Tightest(int64_t j) const {
    double v = kInfinity;
    for (int64_t p = Begin(j); p < End(j); ++p) {
      if (cost_[Z(p)] < kInfinity) v = std::min(v, Without(p));
    }
    return v < kInfinity ? v : 0;
  }

  StopReason Costs() {
    const int64_t n = a_.n_cols;
    cost_.resize(Z(a_.nnz()));
    largest_.resize(Z(n));
    v_.assign(Z(n), 0.0);
    entry_of_column_.assign(Z(n), -1);
    rows_.assign(Z(n), Row{});
    const int64_t batch =
        std::max<int64_t>(1, n * kEntriesPerBatch / std::max<int64_t>(1, a_.nnz()));
    return ParallelFor(n, batch, context_, Stage::kPlan, [&](int64_t begin, int64_t end, int) {
      for (int64_t j = begin; j < end; ++j) {
        double largest = -kInfinity;
        for (int64_t p = Begin(j); p < End(j); ++p) {
          const double v = a_.values[Z(p)];
          const bool counts = v != 0 && std::isfinite(v);
          cost_[Z(p)] = counts ? -std::log2(std::abs(v)) : kInfinity;
          if (counts) largest = std::max(largest, -cost_[Z(p)]);
        }
        largest_[Z(j)] = largest;
        for (int64_t p = Begin(j); p < End(j); ++p) {
          if (cost_[Z(p)] < kInfinity) cost_[Z(p)] += largest;
        }
      }
    });
  }

  void Match(int32_t j, int64_t entry) {
    entry_of_column_[Z(j)] = entry;
    rows_[Z(RowOf(entry))].column = j;
  }

  // Feasible duals, and each column to the first free row where they are tight: the diagonal if it
  // is one of those.
  bool Start() {
    for (Row& row : rows_) row.u = kInfinity;
    for (int64_t p = 0; p < a_.nnz(); ++p) {
      Row& row = rows_[Z(RowOf(p))];
      row.u = std::min(row.u, cost_[Z(p)]);
    }
    for (Row& row : rows_) {
      if (row.u == kInfinity) row.u = 0;
    }
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      if (Stopped(1 + 2 * (End(j) - Begin(j)))) return false;
      const double v = v_[Z(j)] = Tightest(j);
      for (int64_t p = Begin(j); p < End(j); ++p) {
        if (RowOf(p) == j && cost_[Z(p)] < kInfinity && Without(p) == v && rows_[Z(j)].column < 0) {
          Match(static_cast<int32_t>(j), p);
        }
      }
    }
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      if (entry_of_column_[Z(j)] >= 0) continue;
      if (Stopped(1 + End(j) - Begin(j))) return false;
      for (int64_t p = Begin(j); p < End(j); ++p) {
        if (Tight(p, j) && rows_[Z(RowOf(p))].column < 0) {
          Match(static_cast<int32_t>(j), p);
          break;
        }
      }
    }
    return true;
  }

  bool Tight(int64_t entry, int64_t j) const {
    return cost_[Z(entry)] < kInfinity && Without(entry) <= v_[Z(j)];
  }

  // Tight augmenting paths of three entries; each column gives its row away once at most.
  bool Grow() {
    Array<int64_t> next;
    next.assign(a_.col_ptr.begin(), a_.col_ptr.end() - 1);
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      if (entry_of_column_[Z(j)] >= 0) continue;
      if (Stopped(1 + End(j) - Begin(j))) return false;
      for (int64_t p = Begin(j); p < End(j) && entry_of_column_[Z(j)] < 0; ++p) {
        if (!Tight(p, j)) continue;
        const int32_t other = rows_[Z(RowOf(p))].column;
        const int64_t from = next[Z(other)];
        for (int64_t& q = next[Z(other)]; q < End(other); ++q) {
          if (!Tight(q, other) || rows_[Z(RowOf(q))].column >= 0) continue;
          Match(other, q);
          Match(static_cast<int32_t>(j), p);
          break;
        }
        if (Stopped(1 + next[Z(other)] - from)) return false;
      }
    }
    return true;
  }

  // Augmenting row reduction (Jonker, Volgenant, Computing 38 (1987) 325): a column without a row
  // takes its best one from whoever has it, and lowers that row's dual until its second best is as
  // good; who lost it goes on. Rows that are matched stay so.
  bool Reduce() {
    std::vector<int32_t> free, later;
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      if (entry_of_column_[Z(j)] < 0) free.push_back(static_cast<int32_t>(j));
    }
    const int64_t enough = work_ + kReductionPerEntry * a_.nnz();
    for (int pass = 0; pass < kReductions && !free.empty(); ++pass) {
      later.clear();
      for (int32_t j : free) {
        while (j >= 0) {
          if (Stopped(1 + End(j) - Begin(j))) return false;
          if (work_ > enough) return true;
          int64_t best = -1, second = -1;
          double least = kInfinity, next = kInfinity;
          for (int64_t p = Begin(j); p < End(j); ++p) {
            const double cost = Without(p);
            if (!(cost < next)) continue;
            if (cost < least) {
              next = std::exchange(least, cost);
              second = std::exchange(best, p);
            } else {
              next = cost;
              second = p;
            }
          }
          if (second < 0) break;  // without another choice there is no price to pay
          const bool gains = least < next;
          if (gains) {
            rows_[Z(RowOf(best))].u -= next - least;
          } else if (rows_[Z(RowOf(second))].column < 0) {
            best = second;
          }
          v_[Z(j)] = next;
          const int32_t loser = rows_[Z(RowOf(best))].column;
          Match(j, best);
          if (loser >= 0) entry_of_column_[Z(loser)] = -1;
          if (loser >= 0 && !gains) later.push_back(loser);
          j = gains ? loser : -1;
        }
      }
      free.swap(later);
    }
    return true;
  }

  // Searches from all free columns at once, as long as they find rows for many: half of them each.
  bool Phases() {
    std::vector<int32_t> roots;
    target_.assign(Z(a_.n_cols), -1);
    for (;;) {
      roots.clear();
      for (int64_t j = 0; j < a_.n_cols; ++j) {
        if (entry_of_column_[Z(j)] < 0) roots.push_back(static_cast<int32_t>(j));
      }
      if (std::ssize(roots) < kLeastRoots) return true;
      int64_t found = 0;
      if (!Phase(roots, found)) return false;
      if (found * kWorthPhase < std::ssize(roots)) return true;
    }
  }

  // A row gets its distance from the nearest root, and belongs to that root's tree; the first free
  // row of a tree ends a path, and trees share no row. Up to the distance at which the search ends,
  // distances are what duals change by, which makes all paths tight.
  bool Phase(const std::vector<int32_t>& roots, int64_t& found) {
    seen_.clear();
    done_.clear();
    ready_.clear();
    heap_.Clear();
    double level = 0;
    for (const int32_t root : roots) {
      if (!Reach(root, root, level)) return false;
    }
    while (2 * found < std::ssize(roots)) {
      int32_t i;
      if (!ready_.empty()) {
        i = ready_.back();
        ready_.pop_back();
      } else if (!heap_.empty()) {
        i = heap_.nearest();
        heap_.Remove(i);
        level = rows_[Z(i)].distance;
      } else {
        break;
      }
      Row& row = rows_[Z(i)];
      row.place = kDone;
      done_.push_back(i);
      if (row.column >= 0) {
        if (!Reach(row.column, row.root, level)) return false;
      } else if (target_[Z(row.root)] < 0) {
        target_[Z(row.root)] = i;
        ++found;
      }
    }
    changed_.clear();
    for (const int32_t i : done_) {
      Row& row = rows_[Z(i)];
      if (row.column >= 0) changed_.push_back(row.column);
      row.u += row.distance - level;
    }
    for (const int32_t root : roots) {
      const int32_t target = std::exchange(target_[Z(root)], -1);
      if (target >= 0) {
        Flip(root, target);
        changed_.push_back(root);
      } else {
        v_[Z(root)] += level;
      }
    }
    Settle();
    return true;
  }

  bool Reach(int32_t j, int32_t root, double level) {
    if (Stopped(1 + End(j) - Begin(j))) return false;
    const double v = v_[Z(j)];
    for (int64_t p = Begin(j); p < End(j); ++p) {
      const int32_t i = RowOf(p);
      Row& row = rows_[Z(i)];
      const double distance = level + std::max(0.0, cost_[Z(p)] - row.u - v);
      if (!(distance < row.distance) || row.place <= kDone) continue;
      See(i, distance, level, j, p);
      row.root = root;
    }
    return true;
  }

  // A shorter path to row i.
  void See(int32_t i, double distance, double level, int32_t from, int64_t entry) {
    Row& row = rows_[Z(i)];
    if (row.distance == kInfinity) seen_.push_back(i);
    row.distance = distance;
    row.from = from;
    row.entry = entry;
    if (distance > level) {
      heap_.Lower(i);
    } else if (row.place != kReady) {
      if (row.place >= 0) heap_.Remove(i);
      row.place = kReady;
      ready_.push_back(i);
    }
  }

  // Matches along the path to a free row.
  void Flip(int32_t root, int32_t target) {
    for (int32_t i = target;;) {
      const int32_t j = rows_[Z(i)].from;
      const int64_t before = entry_of_column_[Z(j)];
      Match(j, rows_[Z(i)].entry);
      if (j == root) break;
      i = RowOf(before);
    }
  }

  // After a search: the changed columns are tight where they are matched.
  void Settle() {
    for (const int32_t j : changed_) v_[Z(j)] = Without(entry_of_column_[Z(j)]);
    for (const int32_t i : seen_) {
      rows_[Z(i)].distance = kInfinity;
      rows_[Z(i)].place = kUnseen;
    }
  }

  // The shortest augmenting path from column `root`; without one the column is left over. False
  // where the work ends.
  bool Search(int32_t root) {
    seen_.clear();
    done_.clear();
    ready_.clear();
    heap_.Clear();
    double level = 0;            // distance of the rows that are looked at
    double nearest = kInfinity;  // distance of the nearest free row
    int32_t target = -1;
    for (int32_t j = root;;) {
      if (Stopped(1 + End(j) - Begin(j))) return false;
      const double v = v_[Z(j)];
      for (int64_t p = Begin(j); p < End(j); ++p) {
        const int32_t i = RowOf(p);
        Row& row = rows_[Z(i)];
        // Rounding may have left a reduced cost below zero.
        const double distance = level + std::max(0.0, cost_[Z(p)] - row.u - v);
        // The infinite cost of a zero ends here, too.
        if (!(distance < nearest) || !(distance < row.distance) || row.place <= kDone) continue;
        if (row.column >= 0) {
          See(i, distance, level, j, p);
        } else {
          if (row.distance == kInfinity) seen_.push_back(i);
          row.distance = nearest = distance;
          row.from = j;
          row.entry = p;
          target = i;
        }
      }
      if (nearest <= level) break;
      int32_t i;
      if (!ready_.empty()) {
        i = ready_.back();
        ready_.pop_back();
      } else if (!heap_.empty() && rows_[Z(heap_.nearest())].distance < nearest) {
        i = heap_.nearest();
        heap_.Remove(i);
        level = rows_[Z(i)].distance;
      } else {
        break;
      }
      rows_[Z(i)].place = kDone;
      done_.push_back(i);
      j = rows_[Z(i)].column;
    }
    if (target >= 0) {
      Augment(root, target, nearest);
    } else {
      Bury(root);
    }
    return true;
  }

  void Augment(int32_t root, int32_t target, double nearest) {
    changed_.assign(1, root);
    for (const int32_t i : done_) {
      Row& row = rows_[Z(i)];
      changed_.push_back(row.column);
      row.u += row.distance - nearest;
    }
    Flip(root, target);
    Settle();
  }

  // All rows seen are matched, and to columns all of whose rows are seen, or dead: no path leads
  // out of them. That makes a generation of the dead.
  void Bury(int32_t root) {
    const auto generation = static_cast<int32_t>(begin_of_dead_.size());
    begin_of_dead_.push_back(std::ssize(dead_));
    dead_.push_back(root);
    v_[Z(root)] = Tightest(root);
    for (const int32_t i : done_) {
      rows_[Z(i)].place = kDead;
      rows_[Z(i)].from = generation;
      dead_.push_back(rows_[Z(i)].column);
    }
  }

  // Searches did not care for the reduced costs of dead rows in columns that lived longer. Columns
  // of a generation have rows of its own and of earlier ones alone: its rows give as much to its
  // columns as those later columns need, the last generation first. Then columns and rows that are
  // left over go to their tightest entries; they do not meet.
  void Shift() {
    Array<double> given;
    const int64_t generations = std::ssize(begin_of_dead_);
    given.assign(Z(generations), 0.0);
    Array<uint8_t> dead_column;
    dead_column.assign(Z(a_.n_cols), 0);
    for (const int32_t j : dead_) dead_column[Z(j)] = 1;
    const auto ask = [&](int64_t j, int64_t generation, double has) {
      for (int64_t p = Begin(j); p < End(j); ++p) {
        const Row& row = rows_[Z(RowOf(p))];
        if (row.place != kDead || row.from == generation || cost_[Z(p)] == kInfinity) continue;
        double& gives = given[Z(row.from)];
        gives = std::max(gives, has - (Without(p) - v_[Z(j)]));
      }
    };
    if (generations > 0) {
      for (int64_t j = 0; j < a_.n_cols; ++j) {
        if (dead_column[Z(j)] == 0) ask(j, -1, 0);
      }
    }
    for (int64_t g = generations - 1; g >= 0; --g) {
      const int64_t end = g + 1 < generations ? begin_of_dead_[Z(g) + 1] : std::ssize(dead_);
      for (int64_t k = begin_of_dead_[Z(g)]; k < end; ++k) ask(dead_[Z(k)], g, given[Z(g)]);
      for (int64_t k = begin_of_dead_[Z(g)]; k < end; ++k) v_[Z(dead_[Z(k)])] += given[Z(g)];
    }
    for (Row& row : rows_) {
      if (row.place == kDead) row.u -= given[Z(row.from)];
      if (row.column < 0) row.u = kInfinity;
    }
    if (dead_.empty()) return;  // nothing is left over
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      if (entry_of_column_[Z(j)] < 0) v_[Z(j)] = Tightest(j);
    }
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      for (int64_t p = Begin(j); p < End(j); ++p) {
        Row& row = rows_[Z(RowOf(p))];
        if (row.column < 0) row.u = std::min(row.u, cost_[Z(p)] - v_[Z(j)]);
      }
    }
  }

  const CscView a_;
  const int64_t max_work_;
  Context context_;
  StopReason stopped_ = StopReason::kNone;
  int64_t work_ = 0, polled_ = 0;
  Array<double> cost_;     // c, infinite for zeros
  Array<double> largest_;  // log2 of each column's largest entry, −infinity: none
  Array<double> v_;
  Array<int64_t> entry_of_column_;  // matched, −1: none
  Array<Row> rows_;
  Heap heap_;
  Array<int32_t> target_;  // of each root of a phase: the free row that was found
  std::vector<int32_t> seen_, done_, ready_, changed_;
  std::vector<int32_t> dead_;           // columns that no search reaches any more, by generations
  std::vector<int64_t> begin_of_dead_;  // of each generation
};

}  // namespace

Result<ProductMatching> MaximumProductMatching(const CscView& a,
                                               const ProductMatchingOptions& options,
                                               const Context& context) {
  ProductMatcher matcher(
      a, options.max_work > 0 ? options.max_work : kWorkPerEntry * a.nnz() + kLeastWork, context);
  Status status = matcher.Run();
  if (!status.ok()) return status;
  return matcher.Take();
}

}  // namespace spaid::kernels
