#include "kernels/static_spai/static_spai_cuda.h"

#include <algorithm>
#include <functional>
#include <latch>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/parallel.h"
#include "kernels/base/split.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/host_columns.h"
#include "kernels/static_spai/quality.h"
#include "kernels/static_spai/static_spai_plan.h"

namespace spaid::kernels {
namespace {

// A device's part in a plan.
struct Piece {
  Piece(const std::shared_ptr<CudaDevice>& on, IndexRange range)
      : device(on), columns(range), matrix(on), plan(on) {}
  const CudaPlanFigures& figures() const { return plan.object->figures; }

  const std::shared_ptr<CudaDevice> device;
  const IndexRange columns;
  CudaObject<CudaMatrix> matrix;
  CudaObject<CudaSpaiPlan> plan;  // goes before the matrix
};

// Adds what pieces took that ran at the same time: of each time the longest.
void Add(const std::vector<StaticSpaiCudaTimings>& pieces, StaticSpaiCudaTimings& to) {
  const auto longest = [&](double StaticSpaiCudaTimings::*part) {
    double most = 0;
    for (const StaticSpaiCudaTimings& piece : pieces) most = std::max(most, piece.*part);
    to.*part += most;
  };
  longest(&StaticSpaiCudaTimings::host_to_device_ms);
  longest(&StaticSpaiCudaTimings::device_plan_ms);
  longest(&StaticSpaiCudaTimings::device_pattern_ms);
  longest(&StaticSpaiCudaTimings::device_build_ms);
  longest(&StaticSpaiCudaTimings::device_to_host_ms);
  to.tables_in_waves = false;
  to.rescued_groups = 0;
  to.qr_ms = to.predicted_qr_ms = 0;
  for (const StaticSpaiCudaTimings& piece : pieces) {
    to.tables_in_waves = to.tables_in_waves || piece.tables_in_waves;
    to.device_bytes = std::max(to.device_bytes, piece.device_bytes);
    to.rescued_groups += piece.rescued_groups;
    to.qr_ms = std::max(to.qr_ms, piece.qr_ms);
    to.predicted_qr_ms = std::max(to.predicted_qr_ms, piece.predicted_qr_ms);
  }
  to.thread_strategy = pieces.front().thread_strategy;
}

}  // namespace

void SpaiOnDevice::FreeLocked() {
  pattern.object.reset();
  matrix.object.reset();
}

class StaticSpaiCudaPlan : public std::enable_shared_from_this<StaticSpaiCudaPlan> {
 public:
  // One a device, ascending.
  std::vector<std::unique_ptr<Piece>> pieces;
  bool of_a = false;  // M has the pattern of A, and there is no other copy of it
  Pattern pattern;    // of M; sizes alone where it is A's
  int64_t nnz_m = 0;
  uint64_t pattern_hash = 0;  // of A
  int64_t nnz_a = 0;
  bool by_qr = false;
};

// Of a plan of one piece.
class StaticSpaiCudaM {
 public:
  explicit StaticSpaiCudaM(const StaticSpaiCudaPlan& of)
      : plan(of.shared_from_this()), device(of.pieces.front()->device), m(device) {}
  const CudaBuildFigures& figures() const { return m.object->figures; }

  const std::shared_ptr<const StaticSpaiCudaPlan> plan;
  const std::shared_ptr<CudaDevice> device;
  CudaObject<CudaSpaiM> m;
};

const std::shared_ptr<CudaDevice>& DeviceOf(const StaticSpaiCudaM& m) { return m.device; }

const CudaSpaiM& Object(const StaticSpaiCudaM& m) { return *m.m.object; }

int64_t DeviceBytes(const StaticSpaiCudaM& m) {
  const int64_t nnz = m.figures().nnz_m;
  return DeviceBytes(*m.plan) + 8 * nnz +
         (m.figures().compacted ? 4 * nnz + 8 * (m.plan->pattern.n_cols + 1) : 0);
}

int64_t DeviceBytes(const StaticSpaiCudaPlan& plan) {
  int64_t most = 0;
  for (const auto& piece : plan.pieces) {
    // Of QR two orders of the groups, from the first build on.
    const CudaPlanFigures& figures = piece->figures();
    most = std::max(most, figures.device_bytes + (plan.by_qr ? 8 * figures.groups : 0));
  }
  return most + 12 * plan.nnz_a + 8 * (plan.pattern.n_cols + 1);  // and the matrix
}

int64_t HostBytes(const StaticSpaiCudaPlan& plan) {
  return static_cast<int64_t>(sizeof(plan)) +
         static_cast<int64_t>(4 * plan.pattern.row_idx.size() + 8 * plan.pattern.col_ptr.size());
}

namespace {

// What each device is asked for.
struct PlanRequest {
  const CscView& a;
  const PatternView* user_pattern;
  const StaticSpaiOptions& options;
  const Context& context;
  PatternLimit limit;
  std::span<const int32_t> match;
  SpaiOnDevice* there;  // null, or on the only device
};

// Runs what the host has to do beside the devices, on half of the threads: others copy to and from
// the devices, and launches wait where their thread has to share a core. Before them where there is
// so little that a thread would take longer.
Status BesideDevices(size_t pieces, int64_t nnz, int threads,
                     const std::function<Status(int threads)>& host,
                     const std::function<Status(size_t i)>& piece) {
  constexpr int64_t kWorthThread = 1 << 18;
  if (nnz >= kWorthThread) {
    const int half = std::max(1, ResolveThreads(threads) / 2);
    return AtOnce(pieces + 1, [&](size_t i) { return i == 0 ? host(half) : piece(i - 1); });
  }
  if (Status status = host(threads); !status.ok()) return status;
  return AtOnce(pieces, piece);
}

// Plans the piece, and fetches its part of the pattern, for which the first one makes room.
Status PlanPiece(const PlanRequest& request, Piece& piece, StaticSpaiCudaPlan& plan,
                 std::once_flag& room, StaticSpaiCudaTimings& timings) {
  const CscView& a = request.a;
  const StaticSpaiOptions& options = request.options;
  CudaDevice& device = *piece.device;
  SpaiOnDevice* const there = request.there;
  const auto lock = device.Lock();
  auto start = Clock::now();
  Status status;
  if (there != nullptr) {
    std::swap(piece.matrix.object, there->matrix.object);
  } else {
    // Values come with the builds; only a threshold reads them before.
    const bool reads_values =
        options.pattern.keep_tau.has_value() && request.user_pattern == nullptr;
    status = piece.matrix.Take(
        device.context().UploadMatrix(a, reads_values ? a.values : std::span<const double>()));
  }
  timings.host_to_device_ms += MsSince(start);
  if (status.ok()) {
    const CudaPatternRequest pattern{options.pattern, request.limit, request.match,
                                     request.user_pattern,
                                     there != nullptr ? there->pattern.object.get() : nullptr};
    const auto columns =
        plan.pieces.size() > 1 ? std::optional<IndexRange>(piece.columns) : std::nullopt;
    status = piece.plan.Take(piece.matrix.object->PlanStaticSpai(pattern, options.local_solver,
                                                                 columns, request.context));
    if (there != nullptr) there->FreeLocked();
  }
  if (status.ok() && !piece.figures().of_a) {
    start = Clock::now();
    std::call_once(room, [&] {
      plan.pattern.col_ptr.resize(static_cast<size_t>(a.n_cols) + 1);
      plan.pattern.row_idx.resize(static_cast<size_t>(piece.figures().nnz_m));
    });
    status = piece.plan.object->DownloadPattern(
        plan.pattern.col_ptr.data() + piece.columns.begin,
        plan.pattern.row_idx.data() + piece.figures().first_entry);
    timings.device_to_host_ms += MsSince(start);
  }
  if (!status.ok()) {
    // The matrix after what was made of it; both here and now.
    piece.plan.object.reset();
    piece.matrix.object.reset();
    return status;
  }
  const CudaPlanFigures& figures = piece.figures();
  timings.device_plan_ms += figures.ms;
  timings.tables_in_waves = figures.in_waves;
  timings.device_pattern_ms += figures.pattern_ms;
  timings.device_bytes = std::max(timings.device_bytes, figures.peak_bytes);
  return {};
}

Result<std::shared_ptr<const StaticSpaiCudaPlan>> MakePlan(
    std::span<const std::shared_ptr<CudaDevice>> devices, const CscView& a,
    const PatternView* user_pattern, const StaticSpaiOptions& options, const Context& context,
    StaticSpaiCudaTimings& timings, SpaiOnDevice* there) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  if (Status status = CheckColumns(a, context.threads); !status.ok()) return status;
  if (Status status = CheckPattern(a, user_pattern, options.pattern); !status.ok()) return status;
  auto plan = std::make_shared<StaticSpaiCudaPlan>();
  plan->pattern.n_rows = plan->pattern.n_cols = a.n_cols;
  plan->nnz_a = a.nnz();
  plan->by_qr = options.local_solver == LocalSolver::kQr;
  Array<int32_t> match;
  if (options.pattern.row_match) {
    auto permutation = RowPermutation(a, context);
    if (!permutation.ok()) return permutation.status();
    match = *std::move(permutation);
  }
  const PatternView base = user_pattern != nullptr ? *user_pattern : a;
  const PlanRequest request{
      a, user_pattern, options, context, LimitPattern(base, options.pattern), match, there};
  if (const StopReason reason = context.stop.Poll(); reason != StopReason::kNone) {
    return StopStatus(reason, "plan of static SPAI");
  }
  const double mean =
      static_cast<double>(a.nnz()) / static_cast<double>(std::max<int64_t>(1, a.n_cols));
  const std::vector<IndexRange> ranges = CutByColumns(devices.size(), base.col_ptr.data(), a.n_cols,
                                                      options.pattern.power, mean, context.threads);
  for (size_t i = 0; i < ranges.size(); ++i) {
    plan->pieces.push_back(std::make_unique<Piece>(devices[i], ranges[i]));
  }
  std::once_flag room;
  std::vector<StaticSpaiCudaTimings> own(ranges.size());
  const Status status = BesideDevices(
      ranges.size(), a.nnz(), context.threads,
      [&](int threads) {
        plan->pattern_hash = HashPattern(a, threads);
        return Status();
      },
      [&](size_t i) { return PlanPiece(request, *plan->pieces[i], *plan, room, own[i]); });
  if (!status.ok()) return status;
  Add(own, timings);
  plan->of_a = plan->pieces.front()->figures().of_a;
  plan->nnz_m = plan->pieces.front()->figures().nnz_m;
  return std::shared_ptr<const StaticSpaiCudaPlan>(std::move(plan));
}

// What all pieces of a build read and fill: each the values, norms, pivots and flags of its
// columns.
struct BuildRequest {
  const StaticSpaiCudaPlan& plan;
  const CscView& a;
  const StaticSpaiOptions& options;
  const Context& context;
  SharedProgress& progress;
  StaticSpaiResult& result;
  Array<uint8_t>& flags;
  std::latch& pattern_there;  // of result.m; until then nobody else touches it
};

// The piece's columns are finished, but for those that were left to the host.
void ShowPiece(const IndexRange& columns, const Array<uint8_t>& flags, ShownResult& shown) {
  if (!shown.showing()) return;
  const auto begin = flags.begin() + columns.begin, end = flags.begin() + columns.end;
  for (auto at = begin; at != end;) {
    const auto left = std::find(at, end, 0);
    shown.Finished(at - flags.begin(), left - flags.begin());
    at = std::find_if(left, end, [](uint8_t flag) { return flag != 0; });
  }
}

// `m`: what is made. Where it is compacted, which a plan of several pieces never is, the pattern of
// the result is filled, too.
Status BuildPiece(const BuildRequest& request, size_t i, CudaObject<CudaSpaiM>& m,
                  StaticSpaiCudaTimings& timings) {
  const Piece& piece = *request.plan.pieces[i];
  StaticSpaiResult& result = request.result;
  const int64_t columns = piece.columns.size();
  PieceProgress progress(request.progress, i, columns, columns);
  Context context = request.context;
  context.progress = &progress;
  const auto lock = piece.device->Lock();
  auto start = Clock::now();
  Status status = piece.matrix.object->UploadValues(request.a.values);
  timings.host_to_device_ms += MsSince(start);
  if (status.ok()) {
    status = m.Take(piece.plan.object->Build(*piece.matrix.object, request.options, context));
  }
  request.pattern_there.wait();
  if (!status.ok()) return status;
  const CudaBuildFigures& figures = m.object->figures;
  timings.device_build_ms += figures.ms;
  timings.tables_in_waves = piece.figures().in_waves;
  timings.rescued_groups = figures.rescued_groups;
  timings.thread_strategy = figures.thread_strategy;
  timings.qr_ms = figures.qr_ms;
  timings.predicted_qr_ms = figures.predicted_qr_ms;
  timings.device_bytes = std::max(timings.device_bytes, figures.peak_bytes);
  start = Clock::now();
  if (figures.compacted) {
    result.m.row_idx.resize(static_cast<size_t>(figures.nnz_m));
    result.m.values.resize(static_cast<size_t>(figures.nnz_m));
    status = m.object->DownloadPattern(result.m.col_ptr.data(), result.m.row_idx.data());
  }
  if (status.ok()) {
    const int64_t first = piece.columns.begin;
    status = m.object->Download(
        result.m.values.data() + piece.figures().first_entry, result.residual_norms.data() + first,
        result.min_scaled_pivots.data() + first, request.flags.data() + first);
    timings.device_to_host_ms += MsSince(start);
  }
  if (!status.ok()) {
    m.object.reset();
    return status;
  }
  m.object->Trim();
  ShowPiece(piece.columns, request.flags, result.shown);
  return {};
}

Result<StaticSpaiResult> BuildM(const StaticSpaiCudaPlan& plan, const CscView& a,
                                const StaticSpaiOptions& options, const Context& context,
                                StaticSpaiCudaTimings& timings,
                                std::shared_ptr<const StaticSpaiCudaM>* kept) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  // All that the devices rely on; they begin before the whole pattern has been looked at.
  if (a.n_cols != plan.pattern.n_cols || a.nnz() != plan.nnz_a) {
    return CheckPlanPattern(a, plan.pattern.n_cols, plan.nnz_a, plan.pattern_hash, 1);
  }
  const auto n = static_cast<size_t>(a.n_cols);
  StaticSpaiResult result;
  result.m.n_rows = result.m.n_cols = a.n_cols;
  result.m.col_ptr.resize(n + 1);
  result.m.row_idx.resize(static_cast<size_t>(plan.nnz_m));
  result.m.values.resize(static_cast<size_t>(plan.nnz_m));
  result.residual_norms.resize(n);
  result.min_scaled_pivots.resize(n);
  Array<uint8_t> flags;
  flags.assign(n, 0);
  std::latch pattern_there(1);
  const auto lay_out = [&](int threads) -> Status {
    // Whatever comes of it: the devices wait for it.
    const struct Opens {
      std::latch& latch;
      ~Opens() { latch.count_down(); }
    } opens{pattern_there};
    if (Status status =
            CheckPlanPattern(a, plan.pattern.n_cols, plan.nnz_a, plan.pattern_hash, threads);
        !status.ok()) {
      return status;
    }
    const PatternView pattern = plan.of_a ? PatternView(a) : PatternView(plan.pattern);
    ParallelCopy(pattern.col_ptr, result.m.col_ptr, threads);
    ParallelCopy(pattern.row_idx, result.m.row_idx, threads);
    // Of a filtered M the sizes come in the end.
    if (options.post_filter == 0) ShowM(context, result);
    return {};
  };
  const size_t pieces = plan.pieces.size();
  SharedProgress progress(context.progress, Stage::kBuild, a.n_cols, pieces);
  const BuildRequest request{plan, a, options, context, progress, result, flags, pattern_there};
  std::vector<StaticSpaiCudaTimings> own(pieces);
  bool compacted = false;
  // Of several devices no copy of M stays on any.
  const auto m = pieces == 1 ? std::make_shared<StaticSpaiCudaM>(plan) : nullptr;
  const Status status = BesideDevices(pieces, plan.nnz_a, context.threads, lay_out, [&](size_t i) {
    if (m != nullptr) return BuildPiece(request, i, m->m, own[i]);
    CudaObject<CudaSpaiM> part(plan.pieces[i]->device);
    return BuildPiece(request, i, part, own[i]);
  });
  if (!status.ok()) return status;
  if (m != nullptr) {
    compacted = m->figures().compacted;
    const bool whole = std::find(flags.begin(), flags.end(), 0) == flags.end();
    if (kept != nullptr && whole && (options.post_filter == 0 || compacted)) *kept = m;
  }
  Add(own, timings);
  const auto start = Clock::now();
  timings.host_columns = std::count(flags.begin(), flags.end(), 0);
  if (timings.host_columns > 0) {
    if (const StopReason stopped = SolveLeftColumns(a, options, context, result, flags);
        stopped != StopReason::kNone) {
      return StopStatus(stopped, "build of static SPAI");
    }
  }
  timings.host_solve_ms += MsSince(start);
  if (options.post_filter > 0 && !compacted) {
    auto filtered =
        PostFilter(result.m, options.post_filter,
                   Context{.stop = {}, .progress = nullptr, .threads = context.threads});
    if (!filtered.ok()) return filtered.status();
    result.m = std::move(filtered).value();
  }
  if (!result.shown.showing()) ShowM(context, result);
  result.shown.FinishedAll();
  Summarise(flags, a.nnz(), context.threads, result);
  result.quality.thread_strategy = timings.thread_strategy;
  return result;
}

}  // namespace

Result<std::shared_ptr<const StaticSpaiCudaPlan>> PlanStaticSpaiCuda(
    std::span<const std::shared_ptr<CudaDevice>> devices, const CscView& a,
    const PatternView* user_pattern, const StaticSpaiOptions& options, const Context& context,
    StaticSpaiCudaTimings* timings, std::unique_ptr<SpaiOnDevice> there) {
  StaticSpaiCudaTimings own;
  return GuardMemory("plan of static SPAI", [&] {
    return MakePlan(devices, a, user_pattern, options, context, timings != nullptr ? *timings : own,
                    there.get());
  });
}

Result<std::shared_ptr<const StaticSpaiCudaPlan>> PlanStaticSpaiCuda(
    const std::shared_ptr<CudaDevice>& device, const CscView& a, const PatternView* user_pattern,
    const StaticSpaiOptions& options, const Context& context, StaticSpaiCudaTimings* timings) {
  return PlanStaticSpaiCuda(std::span(&device, 1), a, user_pattern, options, context, timings);
}

Result<StaticSpaiResult> BuildStaticSpaiCuda(const StaticSpaiCudaPlan& plan, const CscView& a,
                                             const StaticSpaiOptions& options,
                                             const Context& context, StaticSpaiCudaTimings* timings,
                                             std::shared_ptr<const StaticSpaiCudaM>* kept) {
  StaticSpaiCudaTimings own;
  return GuardMemory("build of static SPAI", [&] {
    return BuildM(plan, a, options, context, timings != nullptr ? *timings : own, kept);
  });
}

Result<CscMatrix> Download(const StaticSpaiCudaM& m) {
  return GuardMemory("download of static SPAI", [&]() -> Result<CscMatrix> {
    CscMatrix out;
    const Pattern& pattern = m.plan->pattern;
    out.n_rows = out.n_cols = pattern.n_cols;
    const auto nnz = static_cast<size_t>(m.figures().nnz_m);
    out.values.resize(nnz);
    const bool compacted = m.figures().compacted, own_pattern = compacted || m.plan->of_a;
    if (own_pattern) {
      out.col_ptr.resize(static_cast<size_t>(pattern.n_cols) + 1);
      out.row_idx.resize(nnz);
    } else {
      out.col_ptr = pattern.col_ptr;
      out.row_idx = pattern.row_idx;
    }
    const auto lock = m.device->Lock();
    const CudaSpaiM& there = *m.m.object;
    Status status = there.Download(out.values.data(), nullptr, nullptr, nullptr);
    if (status.ok() && own_pattern) {
      status = compacted ? there.DownloadPattern(out.col_ptr.data(), out.row_idx.data())
                         : m.plan->pieces.front()->plan.object->DownloadPattern(out.col_ptr.data(),
                                                                                out.row_idx.data());
    }
    if (!status.ok()) return status;
    return out;
  });
}

}  // namespace spaid::kernels
