#include "kernels/mpi/ranks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace spaid::kernels::mpi {
namespace {

using std::chrono::microseconds;

// The pause before the next look at the other ranks: a sixteenth of what it took so far, so that a
// short work ends soon, and a long one is not disturbed.
microseconds NextPause(std::chrono::steady_clock::time_point since) {
  constexpr microseconds kFirst{100}, kLongest{10'000};
  const auto so_far = std::chrono::steady_clock::now() - since;
  return std::clamp(std::chrono::duration_cast<microseconds>(so_far / 16), kFirst, kLongest);
}

void Tell(MPI_Comm comm, int from, std::string& text) {
  auto size = static_cast<int64_t>(text.size());
  Must(MPI_Bcast(&size, 1, MPI_INT64_T, from, comm));
  text.resize(static_cast<size_t>(size));
  Must(MPI_Bcast(text.data(), static_cast<int>(size), MPI_CHAR, from, comm));
}

// Keeps what one rank has done, for the thread that sums it.
class Done : public ProgressSink {
 public:
  void OnProgress(Stage, int64_t done, int64_t total) override {
    done_.store(done, std::memory_order_relaxed);
    total_.store(total, std::memory_order_relaxed);
  }
  void OnResidual(const ResidualPoint&) override {}
  int64_t done() const { return done_.load(std::memory_order_relaxed); }
  int64_t total() const { return total_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> done_ = 0, total_ = 0;
};

// Sums `values` over all ranks without spinning: a core that waits is a core that computes.
template <size_t kCount>
std::array<int64_t, kCount> SumQuietly(MPI_Comm comm, const std::array<int64_t, kCount>& values) {
  std::array<int64_t, kCount> sums;
  MPI_Request request;
  Must(MPI_Iallreduce(values.data(), sums.data(), static_cast<int>(kCount), MPI_INT64_T, MPI_SUM,
                      comm, &request));
  const auto since = std::chrono::steady_clock::now();
  for (;;) {
    int over = 0;
    Must(MPI_Test(&request, &over, MPI_STATUS_IGNORE));
    if (over) return sums;
    std::this_thread::sleep_for(NextPause(since));
  }
}

}  // namespace

int RankOf(MPI_Comm comm) {
  int rank = 0;
  Must(MPI_Comm_rank(comm, &rank));
  return rank;
}

int RanksOf(MPI_Comm comm) {
  int size = 1;
  Must(MPI_Comm_size(comm, &size));
  return size;
}

Status Agree(MPI_Comm comm, const Status& own) {
  const int ranks = RanksOf(comm);
  int speaker = own.ok() ? ranks : RankOf(comm);
  Must(MPI_Allreduce(MPI_IN_PLACE, &speaker, 1, MPI_INT, MPI_MIN, comm));
  if (speaker == ranks) return {};
  int64_t numbers[2] = {static_cast<int64_t>(own.code()), own.index()};
  std::string reason = own.reason(), message = own.message(), field = own.field();
  Must(MPI_Bcast(numbers, 2, MPI_INT64_T, speaker, comm));
  Tell(comm, speaker, reason);
  Tell(comm, speaker, message);
  Tell(comm, speaker, field);
  return Status(static_cast<StatusCode>(numbers[0]), std::move(reason), std::move(message))
      .At(std::move(field), numbers[1]);
}

void EndAll(std::string_view what) {
  std::fprintf(stderr, "spaid: rank %d is out of memory: %.*s\n", RankOf(PETSC_COMM_WORLD),
               static_cast<int>(what.size()), what.data());
  MPI_Abort(PETSC_COMM_WORLD, 1);
  std::abort();
}

Status AgreeStop(MPI_Comm comm, const StopToken& stop, std::string_view what) {
  const StopReason reason = stop.Poll();
  return Agree(comm, reason == StopReason::kNone ? Status() : StopStatus(reason, what));
}

Status Watched(MPI_Comm comm, const Context& context, Stage stage,
               const std::function<Status(const Context& context)>& work) {
  if (RanksOf(comm) == 1) return work(context);
  StopSource source(context.stop);
  Done done;
  Context inner = context;
  inner.stop = source.token();
  inner.progress = &done;
  Status status;
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;  // guarded by mutex
  std::thread worker([&] {
    status = work(inner);
    const std::lock_guard<std::mutex> lock(mutex);
    over = true;
    ended.notify_one();
  });
  int64_t told = -1;
  const auto since = std::chrono::steady_clock::now();
  for (;;) {
    bool own_over = false;
    {
      std::unique_lock<std::mutex> lock(mutex);
      own_over = ended.wait_for(lock, NextPause(since), [&] { return over; });
    }
    const StopReason reason = context.stop.Poll();
    const auto [cancelled, late, busy, units, total] =
        SumQuietly<5>(comm, {reason == StopReason::kCancelled, reason == StopReason::kTimeLimit,
                             !own_over, done.done(), done.total()});
    if (cancelled > 0) source.Request(StopReason::kCancelled);
    if (late > 0) source.Request(StopReason::kTimeLimit);
    if (context.progress != nullptr && units > told && total > 0) {
      context.progress->OnProgress(stage, told = units, total);
    }
    if (busy == 0) break;
  }
  worker.join();
  return Agree(comm, status);
}

Status AgreeHash(MPI_Comm comm, uint64_t hash) {
  uint64_t most[2] = {hash, ~hash};
  Must(MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_UINT64_T, MPI_MAX, comm));
  if (most[0] == ~most[1]) return {};
  return Status(StatusCode::kInvalidArgument, "OPTIONS_DIFFER",
                "the options are not the same on all ranks; give all the same")
      .At("options");
}

int64_t SumOf(MPI_Comm comm, int64_t own) {
  Must(MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_INT64_T, MPI_SUM, comm));
  return own;
}

int64_t SumBefore(MPI_Comm comm, int64_t own) {
  int64_t before = 0;
  Must(MPI_Exscan(&own, &before, 1, MPI_INT64_T, MPI_SUM, comm));
  return RankOf(comm) == 0 ? 0 : before;  // rank 0's is not defined
}

Array<int64_t> BeginsOf(MPI_Comm comm, int64_t own) {
  Array<int64_t> begin(static_cast<size_t>(RanksOf(comm)) + 1);
  begin[0] = 0;
  Must(MPI_Allgather(&own, 1, MPI_INT64_T, &begin[1], 1, MPI_INT64_T, comm));
  for (size_t r = 1; r < begin.size(); ++r) begin[r] += begin[r - 1];
  return begin;
}

Array<int64_t> internal::ExchangeCounts(MPI_Comm comm, const Array<int64_t>& counts) {
  Array<int64_t> from(counts.size());
  Must(MPI_Alltoall(counts.data(), 1, MPI_INT64_T, from.data(), 1, MPI_INT64_T, comm));
  return from;
}

void internal::ExchangeBytes(MPI_Comm comm, std::span<const std::span<const std::byte>> to,
                             std::span<const std::span<std::byte>> from) {
  // In pieces, as MPI's counts are 32 bits wide.
  constexpr size_t kPiece = size_t{1} << 30;
  std::vector<MPI_Request> requests;
  for (size_t r = 0; r < from.size(); ++r) {
    for (size_t p = 0; p < from[r].size(); p += kPiece) {
      const auto piece = from[r].subspan(p, std::min(kPiece, from[r].size() - p));
      Must(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, static_cast<int>(r), 0,
                     comm, &requests.emplace_back()));
    }
  }
  for (size_t r = 0; r < to.size(); ++r) {
    for (size_t p = 0; p < to[r].size(); p += kPiece) {
      const auto piece = to[r].subspan(p, std::min(kPiece, to[r].size() - p));
      Must(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, static_cast<int>(r), 0,
                     comm, &requests.emplace_back()));
    }
  }
  Must(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
}

}  // namespace spaid::kernels::mpi
