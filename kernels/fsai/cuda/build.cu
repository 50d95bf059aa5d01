#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/fsai/cuda/fsai.h"
#include "kernels/fsai/cuda/grow_columns.h"
#include "kernels/fsai/cuda/output_chunks.h"
#include "kernels/fsai/cuda/pack.h"
#include "kernels/fsai/cuda/prescribed_rows.h"
#include "kernels/fsai/cuda/repeats.h"
#include "kernels/fsai/cuda/row_parts.h"
#include "kernels/fsai/cuda/rows_tuning.h"
#include "kernels/fsai/cuda/workspace.h"

namespace spaid::cuda {
namespace {

using fsai::Form;
using fsai::Shape;
using fsai::Team;

constexpr int kThreads = 256;
struct Counters {
  uint32_t queue, overflow, not_spd, converged;
  int32_t first_not_spd;
  unsigned long long products;
};

// Marks rows that are left to the host: no entries; columns: −1 as the only entry.
template <class Real, Form kForm>
__global__ void FsaiLeaveKernel(const __grid_constant__ fsai::Work<Real> work, const int32_t* rows,
                                uint32_t count) {
  const uint32_t t = blockIdx.x * kThreads + threadIdx.x;
  if (t >= count) return;
  const int32_t row = rows[t];
  work.out_count[row - work.first_out] = kForm == Form::kColumn ? 1 : 0;
  if (kForm == Form::kColumn) work.out_idx[fsai::OutOf(work, row)] = -1;
  work.psi_ratio[row] = 1;
}

__global__ void FsaiLongestInitialKernel(const int64_t* ptr, int64_t n, int32_t* longest) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int32_t count = i < n ? static_cast<int32_t>(ptr[i + 1] - ptr[i]) : 0;
  const int32_t most = __reduce_max_sync(~0u, count);
  if (threadIdx.x % 32 == 0 && most > *longest) atomicMax(longest, most);
}

__global__ void FsaiSampleKernel(int64_t n, int32_t count, int32_t* rows) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  // The middles of `count` equal parts.
  if (i < count) rows[i] = static_cast<int32_t>((2 * i + 1) * n / (2 * count));
}

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

// The matrices from which rows are made; freed once all are made.
template <class Real>
struct Source {
  int64_t n = 0;
  Buffer<fsai::Entry<Real>> entries, own_entries;
  Buffer<int64_t> ptr, own_ptr;
  fsai::Rows<Real> rows{}, own{};
  int32_t longest = 0;
  int half_exponent = 0;  // PackedRows
};

// `most`: Work::most.
template <class Real, Form kForm>
class Builder {
  static constexpr bool kColumn = kForm == Form::kColumn;

 public:
  Builder(Context& context, Source<Real> source, const kernels::PatternView* pattern,
          const FsaiPattern* there, const kernels::FsaiOptions& options, int64_t most,
          const Caller& caller, FsaiFigures& figures)
      : context_(context),
        source_(std::move(source)),
        n_(source_.n),
        options_(options),
        most_(most),
        caller_(caller),
        figures_(figures),
        grow_(options.adaptive),
        k_max_(grow_ ? options.k_max : 0) {
    if (pattern == nullptr) return;
    if (there == nullptr) uploaded_ = UploadPattern(context, *pattern);
    if (there == nullptr) there = &uploaded_;
    initial_ptr_ = there->row_ptr.get();
    initial_idx_ = there->col_idx.get();
    host_ptr_ = pattern->col_ptr.data();
  }

  FsaiG Build(const NextRows& next) {
    Prepare();
    // A post-filter drops entries that growth has read, so that equal rows cannot be told.
    if (grow_ && options_.repeat_hash_bits > 0 && options_.post_filter == 0) FindLike();
    FsaiG g;
    g.psi_ratio = Buffer<double>(context_, n_);
    psi_ratio_ = g.psi_ratio.get();
    // Each range searches for its own repeats, which takes longer than making the few rows left.
    const bool whole_part = like_.size() > 0;
    for (range_ = next(whole_part); range_.size() > 0; range_ = next(whole_part)) {
      int waves = 0;
      for (int64_t first = range_.begin; first < range_.end; ++waves) {
        const int64_t end = WaveEnd(first);
        g.chunks.push_back(Wave(first, end));
        first = end;
        Report(end);
      }
      figures_.waves = std::max(figures_.waves, waves);
      made_ += range_.size();
    }
    // Only the rows are needed from here on.
    source_ = {};
    like_ = {};
    own_like_ = {};
    Summarise();
    return g;
  }

 private:
  void FindLike() {
    like_ = fsai::LikeRows<Real>(context_, source_.rows, n_, options_.repeat_hash_bits);
    if (!kColumn || like_.size() == 0) return;
    own_like_ = fsai::LikeRows<Real>(context_, source_.own, n_, options_.repeat_hash_bits);
    if (own_like_.size() == 0) like_ = {};
  }

  // `rows`: all rows of the range before this one are finished.
  void Report(int64_t rows) {
    reported_ = std::max(reported_, made_ + rows - range_.begin);
    caller_.Report(reported_, made_ + range_.size());
  }

  bool HasInitial() const { return host_ptr_ != nullptr; }
  void Prepare() {
    const Buffer<int32_t> longest(context_, 1);
    int32_t longest_initial = 1;
    if (HasInitial()) {
      longest.Fill(0);
      FsaiLongestInitialKernel<<<Blocks(n_), kThreads, 0, context_.stream>>>(initial_ptr_, n_,
                                                                             longest.get());
      CheckLaunch("FsaiLongestInitialKernel");
      longest_initial = Read(context_, longest, 0);
    }
    workspace_.emplace(context_,
                       fsai::WorkspaceNeeds{n_, grow_, k_max_, options_.s, most_, source_.longest,
                                            longest_initial, HasInitial()});
    counters_ = Buffer<Counters>(context_, 1);
    Counters zero{};
    zero.first_not_spd = static_cast<int32_t>(n_);
    counters_.CopyIn(&zero, 1);
    log_sums_ = Buffer<int64_t>(context_, options_.k_max + 2);
    log_sums_.Fill(0);
    // ln(ψ/a_ii) is under 2^10; the sum of all must fit.
    log_scale_ = std::ldexp(1.0, 62 - 10 - (std::ilogb(static_cast<double>(n_)) + 1));
    context_.Synchronize();
    if (grow_) {
      first_shape_ = Pilot();
    } else {
      first_shape_ = workspace_->OnPattern(std::min<int64_t>(longest_initial - 1, 32));
      // The kernel of dense systems has no post-filter.
      if (options_.post_filter == 0) {
        prescribed_ =
            fsai::MeasurePrescribedRows(context_, initial_ptr_, initial_idx_, n_, longest_initial);
      }
    }
  }

  fsai::Work<Real> MakeWork(const Shape& shape) {
    fsai::Work<Real> work{};
    Counters* const counters = counters_.get();
    work.a = source_.rows;
    work.own = source_.own;
    work.n = n_;
    work.shape = shape;
    work.queue = &counters->queue;
    work.k_max = k_max_;
    work.per_step = options_.s;
    work.most = static_cast<int32_t>(std::min<int64_t>(most_, std::numeric_limits<int32_t>::max()));
    work.epsilon = options_.epsilon;
    work.min_gain = options_.min_gain;
    work.post_filter = options_.post_filter;
    work.initial_ptr = initial_ptr_;
    work.initial_idx = initial_idx_;
    work.psi_ratio = psi_ratio_;
    work.log_sums = log_sums_.get();
    work.log_scale = log_scale_;
    work.products = &counters->products;
    work.overflow_count = &counters->overflow;
    work.not_spd_count = &counters->not_spd;
    work.first_not_spd = &counters->first_not_spd;
    work.converged_count = &counters->converged;
    return work;
  }

  int64_t OutStride() const { return workspace_->Added() + (HasInitial() && !kColumn ? 0 : 1); }

  // The workspace that most rows need, measured by some of them.
  Shape Pilot() {
    const int32_t count = static_cast<int32_t>(std::min<int64_t>(n_, tuning::kFsaiSampleRows));
    const Buffer<int32_t> rows(context_, count), overflow(context_, count);
    const Buffer<int32_t> out_count(context_, n_);
    const Buffer<int2> taken(context_, count);
    FsaiSampleKernel<<<Blocks(count), kThreads, 0, context_.stream>>>(n_, count, rows.get());
    CheckLaunch("FsaiSampleKernel");
    const Shape shape = workspace_->Sample();
    // The sample's G is not used; all rows write to one place.
    const Buffer<int32_t> out_idx(context_, shape.pivots + 1);
    const Buffer<Real> out_values(context_, shape.pivots + 1);
    const Buffer<double> psi(context_, n_);
    fsai::Work<Real> work = MakeWork(shape);
    work.rows = rows.get();
    work.count = count;
    work.out_idx = out_idx.get();
    work.out_values = out_values.get();
    work.out_count = out_count.get();
    work.psi_ratio = psi.get();
    work.out_stride = 0;
    work.overflow = overflow.get();
    work.taken = taken.get();
    // With initial entries they cannot.
    const Team team = workspace_->TeamOf(shape, /*sample=*/true);
    if (HasInitial() || team == Team::kGlobal) return shape;
    fsai::LaunchRows<Real, kForm>(context_, work, team, true, 0);
    std::vector<int2> sizes(static_cast<size_t>(count));
    taken.CopyOut(sizes.data(), count);
    Counters fresh{};
    fresh.first_not_spd = static_cast<int32_t>(n_);
    context_.Synchronize();
    counters_.CopyIn(&fresh, 1);
    log_sums_.Fill(0);
    context_.Synchronize();
    const auto most = [&](auto part) {
      std::vector<int32_t> all;
      for (const int2& size : sizes) {
        if (size.x > 0) all.push_back(part(size));
      }
      if (all.empty()) return 0;
      std::sort(all.begin(), all.end());
      // The largest, unless a few take much more than the others.
      const int32_t largest = all.back(), usual = all[(all.size() - 1) * 9 / 10];
      return largest * 4 <= usual * 5 ? largest : usual;
    };
    const int32_t slots = most([](int2 size) { return size.x; });
    const int32_t tiles = most([](int2 size) { return size.y; });
    if (slots == 0) return shape;
    const Shape found = workspace_->ForGrowth(slots, tiles);
    // Teams other than kGrow have the last column of L in tiles, too.
    if (team != Team::kGrow || workspace_->TeamOf(found) == Team::kGrow) return found;
    return workspace_->ForGrowth(slots, tiles + found.slots / fsai::kPassSlots);
  }

  int64_t Entries(int64_t first, int64_t end) const {
    return (end - first) * OutStride() + (HasInitial() ? host_ptr_[end] - host_ptr_[first] : 0);
  }

  // Bytes of an entry while it is made, and in a chunk.
  static constexpr int64_t kMadeBytes = (kColumn ? 0 : sizeof(Real)) + sizeof(int32_t);
  static constexpr int64_t kKeptBytes = (kColumn ? 0 : sizeof(double)) + sizeof(int32_t);

  // End of the wave that begins at `first`: all rows where memory suffices; else as many as take a
  // third of what is left, since their output stays. fsai_device_estimate.cc counts as this does.
  int64_t WaveEnd(int64_t first) const {
    const int64_t made = kMadeBytes, kept = kKeptBytes;
    const int64_t left = context_.arena->limit() - context_.arena->used() - tuning::kFsaiSlackBytes;
    const int64_t workspace =
        fsai::WorkspaceBytes<Real>(workspace_->Largest(), options_.s, Team::kGlobal);
    const auto bytes = [&](int64_t end, int64_t at_once) {
      const int64_t entries = Entries(first, end), rows = end - first;
      return made * entries + 12 * rows + std::max(at_once, kept * entries + 9 * rows);
    };
    if (first == range_.begin && bytes(range_.end, workspace) <= left) return range_.end;
    const int64_t most = (left - workspace) / 3;
    int64_t low = first + 1, high = range_.end;
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (bytes(middle, 0) <= most) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  FsaiChunk Wave(int64_t first, int64_t end) {
    const int64_t rows = end - first, size = Entries(first, end);
    const Buffer<int32_t> out_idx(context_, size), out_count(context_, rows);
    const Buffer<Real> out_values(context_, kColumn ? 0 : size);
    fsai::Work<Real> work = MakeWork(first_shape_);
    work.first = work.first_out = first;
    work.count = static_cast<int32_t>(rows);
    work.out_idx = out_idx.get();
    work.out_values = out_values.get();
    work.out_count = out_count.get();
    work.out_stride = OutStride();
    fsai::RepeatedRows repeats;
    if (like_.size() > 0) {
      repeats = fsai::FindRepeats(
          context_, like_, kColumn ? own_like_ : like_, Made(work),
          [&](const int32_t* some, int32_t count, int64_t* records, const int32_t* record_of) {
            fsai::Work<Real> few = work;
            few.rows = some;
            few.count = count;
            few.records = records;
            few.record_of = record_of;
            Make(few, first);
          });
      figures_.quality.copied_rows += repeats.copied;
    }
    if (repeats.grown > 0) {
      work.rows = repeats.rest.get();
      work.count = repeats.rest_count;
    }
    Make(work, end - work.count);
    int32_t longest = 0;
    FsaiChunk chunk = fsai::Compact<Real>(context_, work, rows, repeats.source.get(),
                                          std::ldexp(1.0, -half_exponent_), longest);
    figures_.quality.nnz_row_max = std::max<int64_t>(figures_.quality.nnz_row_max, longest);
    return chunk;
  }

  fsai::MadeRows Made(const fsai::Work<Real>& work) const {
    return {work.first,       work.count,    work.out_stride, work.initial_ptr,
            work.initial_idx, work.out_idx,  work.out_count,  work.psi_ratio,
            work.k_max,       work.log_sums, work.products,   work.converged_count};
  }

  // Makes the rows of `work`, in larger and larger workspaces; `finished`: number of rows before
  // them.
  void Make(fsai::Work<Real> work, int64_t finished) {
    const int64_t all = work.count;
    int64_t count = all;
    Buffer<int32_t> overflow(context_, count), again(context_, 0);
    Shape shape = first_shape_;
    const Shape largest = workspace_->Largest();
    bool by_dense_systems = prescribed_.entries > 0, no_larger = false;
    while (count > 0) {
      work.shape = shape;
      work.overflow = overflow.get();
      const Team team = no_larger ? Team::kGlobal : workspace_->TeamOf(shape);
      if (by_dense_systems) {
        Launch(work, count, finished, true, [&](const auto& part) {
          fsai::LaunchPrescribedRows<Real>(context_, part, prescribed_);
        });
      } else if (team == Team::kGlobal) {
        figures_.quality.slow_rows += count;
        RunGlobal(work, largest, count, finished + all - count);
      } else {
        LaunchTeams(work, team, count, 0, finished + all - count);
      }
      Counters now{};
      counters_.CopyOut(&now, 1);
      context_.Synchronize();
      if (now.overflow == 0) break;
      if (team == Team::kGlobal && !by_dense_systems) {
        // The rows left are the host's.
        FsaiLeaveKernel<Real, kForm><<<Blocks(now.overflow), kThreads, 0, context_.stream>>>(
            work, overflow.get(), now.overflow);
        figures_.left_rows += now.overflow;
        CheckLaunch("FsaiLeaveKernel");
        break;
      }
      std::swap(overflow, again);
      overflow = Buffer<int32_t>(context_, now.overflow);
      work.rows = again.get();
      count = now.overflow;
      if (!by_dense_systems) {
        const Shape next = workspace_->Next(shape, largest);
        no_larger = next.slots == shape.slots && next.tiles == shape.tiles;
        shape = next;
      }
      by_dense_systems = false;
    }
  }

  void LaunchTeams(const fsai::Work<Real>& work, Team team, int64_t count, int workspaces,
                   int64_t finished) {
    Launch(work, count, finished, team != Team::kGlobal, [&](const auto& part) {
      fsai::LaunchRows<Real, kForm>(context_, part, team, grow_, workspaces);
    });
  }

  // Calls launch(work) for parts so small that a stop is soon noticed. `finished`: number of rows
  // before these; `shared`: rows are made in shared memory.
  template <class LaunchPart>
  void Launch(fsai::Work<Real> work, int64_t count, int64_t finished, bool shared,
              const LaunchPart& launch) {
    Reset(offsetof(Counters, not_spd));
    const double pivots = work.shape.pivots;
    const double row = tuning::kFsaiRowWork + pivots * pivots * work.shape.slots;
    const int64_t least = shared ? tuning::kFsaiLaunchRows : tuning::kFsaiGlobalLaunchRows;
    const int64_t most = std::max(static_cast<int64_t>(tuning::kFsaiLaunchWork / row),
                                  least * context_.multiprocessors);
    for (int64_t done = 0; done < count; done += work.count) {
      if (done > 0) {
        Counters now{};
        counters_.CopyOut(&now, 1);
        context_.Synchronize();
        Report(finished + done - now.overflow);
        Reset(offsetof(Counters, overflow));
      }
      work.count = static_cast<int32_t>(std::min(most, count - done));
      launch(work);
      work.first += work.count;
      if (work.rows != nullptr) work.rows += work.count;
    }
  }

  void Reset(size_t bytes) {
    Check(cudaMemsetAsync(counters_.get(), 0, bytes, context_.stream), "cudaMemsetAsync");
  }

  void RunGlobal(fsai::Work<Real>& work, const Shape& largest, int64_t count, int64_t finished) {
    work.shape = largest;
    const int64_t workspace = fsai::WorkspaceBytes<Real>(largest, options_.s, Team::kGlobal);
    const int64_t left = context_.arena->limit() - context_.arena->used();
    const int64_t workspaces = std::max<int64_t>(
        1, std::min<int64_t>({count, 2 * context_.multiprocessors, left / 2 / workspace}));
    const Buffer<char> memory(context_, workspaces * workspace);
    work.workspaces = memory.get();
    LaunchTeams(work, Team::kGlobal, count, static_cast<int>(workspaces), finished);
  }

  void Summarise() {
    Counters counters{};
    std::vector<int64_t> sums(static_cast<size_t>(options_.k_max) + 2);
    counters_.CopyOut(&counters, 1);
    log_sums_.CopyOut(sums.data(), options_.k_max + 2);
    context_.Synchronize();
    const auto mean = [&](int64_t sum) {
      return static_cast<double>(sum) / log_scale_ / static_cast<double>(n_);
    };
    figures_.log_ratios.clear();
    for (int step = 0; step <= k_max_; ++step) {
      figures_.log_ratios.push_back(mean(sums[static_cast<size_t>(step)]));
    }
    figures_.log_ratio = mean(sums[static_cast<size_t>(k_max_) + 1]);
    kernels::FsaiQuality& quality = figures_.quality;
    quality.not_spd_rows = counters.not_spd;
    quality.first_not_spd = counters.not_spd > 0 ? counters.first_not_spd : -1;
    quality.converged_rows = counters.converged;
    quality.steps = k_max_;
    quality.flops = 2.0 * fsai::kPassSlots * static_cast<double>(counters.products);
  }

  Context& context_;
  Source<Real> source_;
  const int64_t n_;
  const kernels::FsaiOptions& options_;
  const int64_t most_;
  const Caller& caller_;
  FsaiFigures& figures_;
  const bool grow_;
  const int32_t k_max_;

  const int half_exponent_ = source_.half_exponent;
  FsaiPattern uploaded_;
  const int64_t* initial_ptr_ = nullptr;
  const int32_t* initial_idx_ = nullptr;
  const int64_t* host_ptr_ = nullptr;  // initial_ptr_ on the host
  std::optional<fsai::WorkspaceSizes<Real, kForm>> workspace_;
  Buffer<Counters> counters_;
  Buffer<int64_t> log_sums_;
  double log_scale_ = 1;
  kernels::IndexRange range_ = {};   // that is being made
  int64_t made_ = 0, reported_ = 0;  // rows: of the ranges before; told
  double* psi_ratio_ = nullptr;
  Shape first_shape_;
  fsai::PrescribedRows prescribed_;
  Buffer<int32_t> like_, own_like_;  // by LikeRows
};

}  // namespace

NextRows Once(kernels::IndexRange rows) {
  return [left = rows](bool) mutable { return std::exchange(left, {}); };
}

FsaiPattern UploadPattern(Context& context, const kernels::PatternView& pattern) {
  FsaiPattern there{Buffer<int64_t>(context, pattern.n_cols + 1),
                    Buffer<int32_t>(context, pattern.nnz())};
  there.row_ptr.CopyIn(pattern.col_ptr.data(), pattern.n_cols + 1);
  there.col_idx.CopyIn(pattern.row_idx.data(), pattern.nnz());
  return there;
}

namespace {

template <class Real>
FsaiG BuildBy(Context& context, const Matrix& a, const kernels::PatternView* pattern,
              const FsaiPattern* there, const kernels::FsaiOptions& options, const NextRows& next,
              const Caller& caller, FsaiFigures& figures) {
  fsai::PackedRows<Real> packed = fsai::Pack<Real>(context, a, options.symmetry_tolerance);
  const auto& faults = packed.faults;
  if (faults.not_positive < a.n || faults.not_symmetric < a.n) {
    figures.fault = faults.not_positive < a.n ? faults.not_positive : faults.not_symmetric;
    return {};
  }
  Source<Real> source;
  source.n = a.n;
  source.rows = packed.rows();
  source.entries = std::move(packed.entries);
  source.longest = packed.faults.longest;
  source.half_exponent = packed.half_exponent;
  return Builder<Real, Form::kRow>(context, std::move(source), pattern, there, options, a.n, caller,
                                   figures)
      .Build(next);
}

}  // namespace

FsaiG BuildFsai(Context& context, const Matrix& a, const kernels::PatternView* pattern,
                const FsaiPattern* there, const kernels::FsaiOptions& options, const NextRows& next,
                const Caller& caller, FsaiFigures& figures) {
  const auto build =
      options.precision == kernels::Precision::kFp32 ? &BuildBy<float> : &BuildBy<double>;
  return build(context, a, pattern, there, options, next, caller, figures);
}

namespace fsai {

template <class Real>
ColumnPatterns GrowColumns(Context& context, NormalRows<Real> rows,
                           const kernels::PatternView* initial, const kernels::FsaiOptions& options,
                           int64_t most, kernels::IndexRange columns, const Caller& caller,
                           FsaiFigures& figures) {
  Source<Real> source;
  source.n = rows.n;
  source.rows = rows.gram.rows();
  source.own = rows.own.rows();
  source.longest = std::max(rows.gram.longest, rows.own.longest);
  source.entries = std::move(rows.gram.entries);
  source.ptr = std::move(rows.gram.ptr);
  source.own_entries = std::move(rows.own.entries);
  source.own_ptr = std::move(rows.own.ptr);
  FsaiG made = Builder<Real, Form::kColumn>(context, std::move(source), initial, nullptr, options,
                                            most, caller, figures)
                   .Build(Once(columns));
  FsaiChunk all = Join(context, made.chunks);
  return {std::move(all.row_ptr), std::move(all.col_idx), figures.left_rows};
}

template ColumnPatterns GrowColumns<float>(Context&, NormalRows<float>, const kernels::PatternView*,
                                           const kernels::FsaiOptions&, int64_t,
                                           kernels::IndexRange, const Caller&, FsaiFigures&);
template ColumnPatterns GrowColumns<double>(Context&, NormalRows<double>,
                                            const kernels::PatternView*,
                                            const kernels::FsaiOptions&, int64_t,
                                            kernels::IndexRange, const Caller&, FsaiFigures&);

}  // namespace fsai
}  // namespace spaid::cuda
