#include "kernels/mpi/join.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/base/memory.h"
#include "kernels/base/parallel.h"
#include "kernels/base/reasons.h"
#include "kernels/mpi/halo.h"
#include "kernels/mpi/heartbeat.h"
#include "kernels/mpi/rank_bytes.h"
#include "kernels/mpi/ranks.h"
#include "kernels/mpi/session.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/mpi/spread_transpose.h"
#include "kernels/sparse/hash.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

Status Unavailable(std::string message) {
  return Status(StatusCode::kUnavailable, "RANKS_UNAVAILABLE", std::move(message));
}

// --- Starting ---

Status StartMpi() {
  int already = 0;
  MPI_Initialized(&already);
  if (already != 0) return Unavailable("MPI was started in this process before");
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
    return Unavailable("MPI does not start; start the program by mpirun or srun");
  }
  // Options of PETSc's are the command's, not those of whoever has a .petscrc or an environment.
  for (const char* option : {"-skip_petscrc", "-no_signal_handler"}) {
    Must(PetscOptionsSetValue(nullptr, option, "true"));
  }
  Must(PetscInitializeNoArguments());
  if (provided < MPI_THREAD_SERIALIZED) {
    return Unavailable(
        "this MPI serves programs of one thread alone; install one that is built with threads");
  }
  return {};
}

std::string HostName() {
  char name[MPI_MAX_PROCESSOR_NAME + 1] = {};
  int length = 0;
  Must(MPI_Get_processor_name(name, &length));
  return std::string(name, Z(length));
}

// The texts of all ranks, on all of them.
std::vector<std::string> AllTexts(MPI_Comm comm, const std::string& own) {
  std::vector<std::string> all(Z(RanksOf(comm)));
  for (size_t r = 0; r < all.size(); ++r) {
    std::string text = own;
    auto size = static_cast<int64_t>(text.size());
    Must(MPI_Bcast(&size, 1, MPI_INT64_T, static_cast<int>(r), comm));
    text.resize(Z(size));
    Must(MPI_Bcast(text.data(), static_cast<int>(size), MPI_CHAR, static_cast<int>(r), comm));
    all[r] = std::move(text);
  }
  return all;
}

Status ComparePrograms(const std::vector<std::string>& programs,
                       const std::vector<RanksDevice::Rank>& ranks) {
  for (size_t r = 1; r < programs.size(); ++r) {
    if (programs[r] == programs[0]) continue;
    return Status(StatusCode::kInvalidArgument, "OPTIONS_DIFFER",
                  "rank " + std::to_string(r) + " on " + ranks[r].host + " is \"" + programs[r] +
                      "\", rank 0 on " + ranks[0].host + " is \"" + programs[0] +
                      "\"; start all with the same program and options");
  }
  return {};
}

// Cores that this rank computes with: an equal part of those that the ranks of its host may use
// together, of its own at the most.
int ShareOfCores(MPI_Comm host) {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof(own), &own) != 0) return 1;
  cpu_set_t all = own;
  Must(MPI_Allreduce(MPI_IN_PLACE, &all, sizeof(all), MPI_BYTE, MPI_BOR, host));
  // ResolveThreads knows a quota that the mask does not tell.
  const int usable = std::min(ResolveThreads(0) * RanksOf(host), CPU_COUNT(&all));
  return std::max(1, std::min(ResolveThreads(0), usable / RanksOf(host)));
}

std::vector<RanksDevice::Rank> Describe(MPI_Comm comm, const JoinTerms& terms) {
  MPI_Comm host = MPI_COMM_NULL;
  Must(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  const int share = ShareOfCores(host);  // collective, whatever this rank is told
  const int64_t own[2] = {terms.threads > 0 ? terms.threads : share,
                          UsableMemoryBytes() / RanksOf(host)};
  Must(MPI_Comm_free(&host));
  const std::vector<std::string> hosts = AllTexts(comm, HostName());
  std::vector<int64_t> numbers(2 * hosts.size());
  Must(MPI_Allgather(own, 2, MPI_INT64_T, numbers.data(), 2, MPI_INT64_T, comm));
  std::vector<RanksDevice::Rank> ranks;
  for (size_t r = 0; r < hosts.size(); ++r) {
    ranks.push_back({hosts[r], static_cast<int>(numbers[2 * r]), numbers[2 * r + 1]});
  }
  return ranks;
}

// "4 ranks on 2 hosts"
std::string Summary(const std::vector<RanksDevice::Rank>& ranks) {
  std::map<std::string, int> hosts;
  for (const RanksDevice::Rank& rank : ranks) ++hosts[rank.host];
  const auto count = [](size_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  return count(ranks.size(), "rank") + " on " + count(hosts.size(), "host");
}

Result<std::unique_ptr<Heartbeat>> StartHeartbeat(MPI_Comm comm, const JoinTerms& terms) {
  std::optional<Heartbeat::Door> door;
  std::string invitation;
  Status status;
  if (RankOf(comm) == 0) {
    auto opened = Heartbeat::Door::Open();
    status = opened.status();
    if (opened.ok()) invitation = door.emplace(*std::move(opened)).invitation();
  }
  if (status = Agree(comm, status); !status.ok()) return status;
  invitation = AllTexts(comm, invitation)[0];
  auto beats = RankOf(comm) == 0 ? Heartbeat::Wait(*std::move(door), RanksOf(comm), {}, terms.lost)
                                 : Heartbeat::Join(invitation, RankOf(comm), {}, terms.lost);
  if (status = Agree(comm, beats.status()); !status.ok()) return status;
  return beats;
}

// Everything that a process has of the job, on the one thread that calls MPI.
struct Member {
  int rank = 0;
  std::vector<RanksDevice::Rank> ranks;
  std::unique_ptr<Heartbeat> heartbeat;

  Status Start(const JoinTerms& terms) {
    if (Status status = StartMpi(); !status.ok()) return status;
    const MPI_Comm comm = PETSC_COMM_WORLD;
    rank = RankOf(comm);
    ranks = Describe(comm, terms);
    if (Status status = ComparePrograms(AllTexts(comm, terms.program), ranks); !status.ok()) {
      return status;
    }
    auto beats = StartHeartbeat(comm, terms);
    if (!beats.ok()) return beats.status();
    heartbeat = *std::move(beats);
    return {};
  }

  // Collective, after the last order.
  void End() {
    if (heartbeat != nullptr) heartbeat->Leave();
    int started = 0;
    MPI_Initialized(&started);
    if (started == 0) return;
    PetscBool petsc = PETSC_FALSE;
    static_cast<void>(PetscInitialized(&petsc));
    if (petsc == PETSC_TRUE) static_cast<void>(PetscFinalize());
    MPI_Finalize();
  }
};

// --- Rank 0 ---

// Two hashes of all arrays: who finds a matrix by them takes it for the same, unseen. What makes
// one of them alike for other arrays does not do so with the other.
struct Fingerprint {
  uint64_t first = 0, second = 0;
  auto operator<=>(const Fingerprint&) const = default;

  template <class T>
  void Add(std::span<const T> array) {
    first = HashMix(first, HashArray(array, 1));
    uint64_t chain[4] = {1, 2, 3, 4};
    for (size_t i = 0; i < array.size(); ++i) {
      uint64_t& link = chain[i % 4];
      link = std::rotl((link + static_cast<uint64_t>(array[i])) * 0xd6e8feb86659fd93u, 31);
    }
    for (const uint64_t link : chain) second = HashMix(second, link);
  }
};

Fingerprint FingerprintOf(const CscView& a) {
  Fingerprint print{static_cast<uint64_t>(a.n_cols), 0};
  print.Add(a.col_ptr);
  print.Add(a.row_idx);
  // Values as bits: equal to the sign of a zero.
  print.Add(std::span(reinterpret_cast<const uint64_t*>(a.values.data()), a.values.size()));
  return print;
}

class Numbered;

// State that those who hold something over the ranks share with the thread of MPI. Thread-safe.
struct Desk {
  struct Task {
    Order order;
    AtRoot* root = nullptr;
    std::promise<Status>* done = nullptr;  // null: nobody waits
  };

  std::mutex mutex;  // guards what follows
  std::condition_variable news;
  std::deque<Task> tasks;
  bool closed = false;  // nothing lies over the ranks any more
  int64_t last_number = 0;
  int64_t used_bytes = 0;    // on all ranks, of what lies there and what is on its way
  int64_t coming_bytes = 0;  // of these, what is on its way
  std::map<Fingerprint, std::weak_ptr<const Numbered>> spread;  // matrices

  void Post(const Task& task) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (closed) {
      if (task.done != nullptr) task.done->set_value(Unavailable("the ranks have ended"));
      return;
    }
    tasks.push_back(task);
    news.notify_one();
  }
  Status Run(const Order& order, AtRoot* root) {
    std::promise<Status> done;
    auto status = done.get_future();
    Post({order, root, &done});
    return status.get();
  }
  Task Take() {
    std::unique_lock<std::mutex> lock(mutex);
    news.wait(lock, [&] { return !tasks.empty(); });
    const Task task = tasks.front();
    tasks.pop_front();
    if (task.order.what == Order::What::kEnd) closed = true;
    return task;
  }
};

// Bytes on the ranks that something may take while it comes there, or is made: in the book with
// what lies there until this ends.
class Room {
 public:
  // Errors: RESOURCE_EXHAUSTED/DEVICE_OUT_OF_MEMORY, which begins with `what`.
  static Result<std::unique_ptr<Room>> Take(std::shared_ptr<Desk> desk, int64_t bytes,
                                            int64_t memory_bytes, const std::string& what) {
    const std::lock_guard<std::mutex> lock(desk->mutex);
    if (bytes > memory_bytes - desk->used_bytes) {
      std::string coming;
      if (desk->coming_bytes > 0) {
        coming = ", " + std::to_string(desk->coming_bytes) +
                 " of these for what is on its way: try again when that has come";
      }
      return Status(StatusCode::kResourceExhausted, reason::kDeviceOutOfMemory,
                    what + ", which may take " + std::to_string(bytes) +
                        " bytes over all ranks, which have " + std::to_string(memory_bytes) +
                        " and use " + std::to_string(desk->used_bytes) + coming +
                        "; delete other matrices, or take more hosts");
    }
    desk->used_bytes += bytes;
    desk->coming_bytes += bytes;
    return std::unique_ptr<Room>(new Room(std::move(desk), bytes));
  }
  ~Room() {
    const std::lock_guard<std::mutex> lock(desk_->mutex);
    desk_->used_bytes -= bytes_;
    desk_->coming_bytes -= bytes_;
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

 private:
  Room(std::shared_ptr<Desk> desk, int64_t bytes) : desk_(std::move(desk)), bytes_(bytes) {}

  const std::shared_ptr<Desk> desk_;
  const int64_t bytes_;
};

// Something that lies over the ranks under a number.
class Numbered final : public OverRanks {
 public:
  // `root`: what the order that made it has left.
  Numbered(std::shared_ptr<Desk> desk, const Order& order, int64_t rows, const AtRoot& root)
      : number(order.made),
        n(rows),
        factor(order.factor || order.what == Order::What::kFsai),
        stands_in(order.what == Order::What::kArrived),
        pattern(order.m != 0 ? order.m : order.made),
        shares(root.shares),
        desk_(std::move(desk)),
        bytes_(root.bytes),
        nnz_(root.nnz) {}
  ~Numbered() override {
    {
      const std::lock_guard<std::mutex> lock(desk_->mutex);
      desk_->used_bytes -= bytes_;
      std::erase_if(desk_->spread, [](const auto& entry) { return entry.second.expired(); });
    }
    desk_->Post({.order = {.what = Order::What::kFree, .made = number}});
  }
  int64_t bytes() const override { return bytes_; }
  int64_t nnz() const override { return nnz_; }

  const int64_t number, n;
  const bool factor;                 // G of M = GᵀG
  const bool stands_in;              // a matrix that rank 0 knows by a stand-in
  const int64_t pattern;             // number of the first that came on its pattern
  const RanksDevice::Shares shares;  // of that

 private:
  const std::shared_ptr<Desk> desk_;
  const int64_t bytes_, nnz_;
};

const Numbered& Of(const OverRanks& over) { return static_cast<const Numbered&>(over); }

class Rank0 final : public RanksDevice {
 public:
  // Starts the thread of MPI, and comes back when all ranks are there. `other`: set where this is
  // another rank, all of whose work is done then.
  Rank0(const JoinTerms& terms, Status* status, bool* other) {
    std::promise<void> ready;
    thread_ = std::thread([this, &terms, status, other, &ready] {
      Member member;
      *status = member.Start(terms);
      *other = member.rank != 0;
      if (*other && status->ok()) Serve(member, terms.keep_freed);
      ranks_ = member.ranks;
      if (*other || !status->ok()) {
        member.End();
        ready.set_value();
        return;
      }
      ready.set_value();  // what is borrowed from the caller is not read any more
      Obey(*desk_, member);
    });
    ready.get_future().wait();
    if (*other || !status->ok()) {
      thread_.join();
      return;
    }
    info_.backend = Backend::kRanks;
    info_.index = static_cast<int>(ranks_.size());
    info_.name = Summary(ranks_);
    for (const Rank& rank : ranks_) {
      info_.threads += rank.threads;
      info_.memory_bytes += rank.memory_bytes;
    }
  }

  ~Rank0() override {
    if (!thread_.joinable()) return;
    desk_->Post({.order = {.what = Order::What::kEnd}});
    thread_.join();
  }

  int64_t used_bytes() const override {
    const std::lock_guard<std::mutex> lock(desk_->mutex);
    return desk_->used_bytes;
  }

  Status Probe() override { return desk_->Run({.what = Order::What::kAnswer}, nullptr); }

  Result<RankBytes> Bound(const PatternView& a, const BuildToBound& build) const override {
    return BoundRankBytes(a, build, Shape());
  }
  Shares SharesOf(const OverRanks& a) const override { return Of(a).shares; }
  Result<RankBytes> Bound(const Shares& a, const BuildToBound& build) const override {
    return BoundRankBytes(a, build, Shape());
  }

  Result<bool> Same(const OverRanks& a, const OverRanks& b) override {
    AtRoot root;
    const Order order{.what = Order::What::kSame, .a = Of(a).number, .m = Of(b).number};
    if (Status status = desk_->Run(order, &root); !status.ok()) return status;
    return root.same;
  }

  Status Multiply(const OverRanks& a, std::span<const double> x, std::span<double> y) override {
    AtRoot root;
    root.x = x;
    root.y = y;
    return desk_->Run({.what = Order::What::kMultiply, .a = Of(a).number}, &root);
  }

  Result<std::unique_ptr<RanksOutput>> BeginOutput(const OverRanks& of, Layout layout) override {
    // A copy of it, by columns or rows; A lies there by columns.
    const bool lies_there = Of(of).stands_in && layout == Layout::kCsc;
    const int64_t on_its_way = 2 * kTransposePieceBytes * std::ssize(ranks_);
    const int64_t copy = lies_there ? 0 : kEntryBytes * of.nnz() + on_its_way;
    auto room = Room::Take(desk_, copy + 16 * Of(of).n, info_.memory_bytes,
                           "a matrix is turned before it is sent");
    if (!room.ok()) return room.status();
    AtRoot root;
    auto made =
        Make({.what = Order::What::kOutput, .a = Of(of).number, .by_rows = layout == Layout::kCsr},
             &root, Of(of).n);
    if (!made.ok()) return made.status();
    return std::unique_ptr<RanksOutput>(std::make_unique<Output>(*this, *std::move(made)));
  }

  Result<std::unique_ptr<RanksInput>> BeginInput(std::span<const int64_t> pointers, int64_t nnz,
                                                 Layout layout, bool sort_and_sum) override {
    AtRoot root;
    root.pointers = pointers;
    return Begin({.what = Order::What::kBegin,
                  .n = std::ssize(pointers) - 1,
                  .nnz = nnz,
                  .by_rows = layout == Layout::kCsr,
                  .sort_and_sum = sort_and_sum},
                 &root);
  }
  Result<std::unique_ptr<RanksInput>> BeginInput(const OverRanks& like, Layout layout) override {
    AtRoot root;
    return Begin({.what = Order::What::kBegin,
                  .a = Of(like).number,
                  .n = Of(like).n,
                  .nnz = like.nnz(),
                  .by_rows = layout == Layout::kCsr},
                 &root, Of(like).pattern);
  }

  Made SpreadMatrix(const CscView& a, const Context& context) override {
    const Fingerprint print = FingerprintOf(a);
    // Two that bring the same matrix at once bring it once.
    const std::lock_guard<std::mutex> one_at_a_time(spread_mutex_);
    {
      const std::lock_guard<std::mutex> lock(desk_->mutex);
      const auto found = desk_->spread.find(print);
      if (found != desk_->spread.end()) {
        if (auto there = found->second.lock()) return Made(std::move(there));
      }
    }
    AtRoot root;
    root.context = context;
    root.matrix = &a;
    if (IsStandIn(a)) {
      return Status(StatusCode::kInternal, "INTERNAL", "the matrix lies over the ranks no more");
    }
    const auto made = Make({.what = Order::What::kSpread}, &root, a.n_cols);
    if (!made.ok()) return made.status();
    const std::lock_guard<std::mutex> lock(desk_->mutex);
    desk_->spread[print] = *made;
    return Made(*made);
  }

  Made SpreadM(const CscView& m, bool factor, const Context& context) override {
    AtRoot root;
    root.context = context;
    root.matrix = &m;
    auto made =
        Make({.what = Order::What::kSpread, .flag = true, .factor = factor}, &root, m.n_cols);
    if (!made.ok()) return made.status();
    return Made(*std::move(made));
  }

  Made PlanStaticSpai(const OverRanks& a, const PatternView* user_pattern,
                      const StaticSpaiOptions& options, const Context& context) override {
    AtRoot root;
    root.context = context;
    root.pattern = user_pattern;
    Order order{.what = Order::What::kPlan, .flag = user_pattern != nullptr, .a = Of(a).number};
    Pack(options, order);
    auto made = Make(order, &root, Of(a).n);
    if (!made.ok()) return made.status();
    return Made(*std::move(made));
  }

  Result<Grown> GrowDynamicSpai(const OverRanks& a, const PatternView* initial,
                                const DynamicSpaiOptions& options,
                                const Context& context) override {
    AtRoot root;
    root.context = context;
    root.pattern = initial;
    Order order{.what = Order::What::kGrow, .flag = initial != nullptr, .a = Of(a).number};
    Pack(options, order);
    auto made = Make(order, &root, Of(a).n);
    if (!made.ok()) return made.status();
    return Grown{*std::move(made), std::move(root.growth)};
  }

  Result<Built> BuildStaticSpai(const OverRanks& plan, const OverRanks& a,
                                const Context& context) override {
    AtRoot root;
    root.context = context;
    auto made = Make({.what = Order::What::kBuild,
                      .a = Of(a).number,
                      .gather = !Of(a).stands_in,
                      .plan = Of(plan).number},
                     &root, Of(a).n);
    if (!made.ok()) return made.status();
    root.built.there = *std::move(made);
    return std::move(root.built);
  }

  Result<Built> BuildFsai(const OverRanks& a, const PatternView* user_rows,
                          const FsaiOptions& options, const Context& context) override {
    AtRoot root;
    root.context = context;
    root.pattern = user_rows;
    Order order{.what = Order::What::kFsai,
                .flag = user_rows != nullptr,
                .adaptive = options.adaptive,
                .a = Of(a).number,
                .gather = !Of(a).stands_in};
    Pack(options, order);
    auto made = Make(order, &root, Of(a).n);
    if (!made.ok()) return made.status();
    root.built.there = *std::move(made);
    return std::move(root.built);
  }

  Result<Built> BuildJacobi(const OverRanks& a, const Context& context) override {
    AtRoot root;
    root.context = context;
    auto made = Make({.what = Order::What::kJacobi, .a = Of(a).number, .gather = !Of(a).stands_in},
                     &root, Of(a).n);
    if (!made.ok()) return made.status();
    root.built.there = *std::move(made);
    return std::move(root.built);
  }

  Result<Built> BuildPetsc(const OverRanks& a, PetscMethod method,
                           const PetscEngineOptions& options, std::span<const double> near_null,
                           const Context& context) override {
    AtRoot root;
    root.context = context;
    root.near_null = near_null;
    Order order{.what = Order::What::kPetsc,
                .count = static_cast<int32_t>(std::ssize(near_null) / Of(a).n),
                .a = Of(a).number,
                .method = method};
    Pack(options, order);
    auto made = Make(order, &root, Of(a).n);
    if (!made.ok()) return made.status();
    root.built.there = *std::move(made);
    return std::move(root.built);
  }

  Result<SolveResult> Solve(const OverRanks& a, const OverRanks* m, std::span<const double> b,
                            std::span<const double> x0, const SolveOptions& options,
                            const Context& context) override {
    const int64_t n = Of(a).n, m_n = m != nullptr ? Of(*m).n : n;
    if (Status bad = CheckSolveInput(n, m_n, b, x0, options); !bad.ok()) return bad;
    AtRoot root;
    root.context = context;
    root.b = b;
    root.x0 = x0;
    root.null_space = options.null_space;
    Order order{.what = Order::What::kSolve,
                .flag = !x0.empty(),
                .keep_history = options.keep_history,
                .null_space = options.null_space != nullptr,
                .count = static_cast<int32_t>(std::ssize(b) / n),
                .nnz_m = m != nullptr ? Of(*m).nnz() * (Of(*m).factor ? 2 : 1) : 0,
                .a = Of(a).number,
                .m = m != nullptr ? Of(*m).number : 0};
    Pack(options, order);
    if (Status status = desk_->Run(order, &root); !status.ok()) return status;
    return std::move(root.solved);
  }

 private:
  // A matrix that comes piece by piece.
  class Input final : public RanksInput {
   public:
    // `pattern`: Numbered's of the one whose pattern it has; 0: its own.
    Input(Rank0& device, int64_t n, int64_t number, int64_t pattern, std::unique_ptr<Room> room)
        : device_(device), n_(n), pattern_(pattern), number_(number), room_(std::move(room)) {}
    ~Input() override {
      if (number_ != 0) {
        device_.desk_->Post({.order = {.what = Order::What::kFree, .made = number_}});
      }
    }
    Status Add(std::span<const int32_t> indices) override {
      AtRoot root;
      root.indices = indices;
      return Send(Order::What::kIndices, std::ssize(indices), indices_, root);
    }
    Status Add(std::span<const double> values) override {
      AtRoot root;
      root.values = values;
      return Send(Order::What::kValues, std::ssize(values), values_, root);
    }
    Result<Arrived> Finish(const Context& context) override {
      AtRoot root;
      root.context = context;
      const Order order{
          .what = Order::What::kArrived, .a = std::exchange(number_, 0), .m = pattern_};
      auto made = device_.Make(order, &root, n_);
      room_.reset();
      if (!made.ok()) return made.status();
      Arrived arrived;
      arrived.stand_in = {n_, n_, {(*made)->pattern}, {0}, {static_cast<double>((*made)->number)}};
      arrived.diagnosis = std::move(root.diagnosis);
      const std::lock_guard<std::mutex> lock(device_.desk_->mutex);
      device_.desk_->spread[FingerprintOf(arrived.stand_in)] = *made;
      arrived.matrix = *std::move(made);
      return arrived;
    }

   private:
    Status Send(Order::What what, int64_t count, int64_t& sent, AtRoot& root) {
      const Order order{.what = what, .a = number_, .first = sent, .entries = count};
      sent += count;
      return device_.desk_->Run(order, &root);
    }

    Rank0& device_;
    const int64_t n_, pattern_;
    int64_t number_;              // 0: it has arrived, or failed
    std::unique_ptr<Room> room_;  // null: the same
    int64_t indices_ = 0, values_ = 0;
  };

  // One that goes piece by piece.
  class Output final : public RanksOutput {
   public:
    Output(Rank0& device, std::shared_ptr<const Numbered> there)
        : device_(device), there_(std::move(there)) {}
    int64_t n() const override { return there_->n; }
    int64_t nnz() const override { return there_->nnz(); }
    Status Read(int64_t first, std::span<int64_t> pointers) override {
      AtRoot root;
      root.pointers_to = pointers;
      return Ask(Order::Array::kPointers, first, std::ssize(pointers), root);
    }
    Status Read(int64_t first, std::span<int32_t> indices) override {
      AtRoot root;
      root.indices_to = indices;
      return Ask(Order::Array::kIndices, first, std::ssize(indices), root);
    }
    Status Read(int64_t first, std::span<double> values) override {
      AtRoot root;
      root.values_to = values;
      return Ask(Order::Array::kValues, first, std::ssize(values), root);
    }

   private:
    Status Ask(Order::Array array, int64_t first, int64_t count, AtRoot& root) {
      return device_.desk_->Run({.what = Order::What::kPiece,
                                 .a = there_->number,
                                 .first = first,
                                 .entries = count,
                                 .array = array},
                                &root);
    }

    Rank0& device_;
    const std::shared_ptr<const Numbered> there_;
  };

  Result<std::unique_ptr<RanksInput>> Begin(Order order, AtRoot* root, int64_t pattern = 0) {
    // Nobody has so many entries that the product is no number.
    const int64_t nnz = std::min(order.nnz, std::numeric_limits<int64_t>::max() / kSpreadEntry);
    auto room = Room::Take(desk_, kSpreadEntry * nnz, info_.memory_bytes,
                           "the matrix is put in order when it has come");
    if (!room.ok()) return room.status();
    order.made = NextNumber();
    if (Status status = desk_->Run(order, root); !status.ok()) return status;
    return std::unique_ptr<RanksInput>(
        std::make_unique<Input>(*this, order.n, order.made, pattern, *std::move(room)));
  }

  RanksShape Shape() const {
    RanksShape shape{.ranks = static_cast<int>(ranks_.size())};
    for (const Rank& rank : ranks_) {
      shape.threads = std::max(shape.threads, rank.threads);
      shape.halo_limit = std::max(shape.halo_limit, rank.memory_bytes / kHaloShare);
    }
    return shape;
  }

  Result<std::shared_ptr<const Numbered>> Make(Order order, AtRoot* root, int64_t n) {
    order.made = NextNumber();
    if (Status status = desk_->Run(order, root); !status.ok()) return status;
    auto made = std::make_shared<const Numbered>(desk_, order, n, *root);
    const std::lock_guard<std::mutex> lock(desk_->mutex);
    desk_->used_bytes += root->bytes;
    return made;
  }

  int64_t NextNumber() {
    const std::lock_guard<std::mutex> lock(desk_->mutex);
    return ++desk_->last_number;
  }

  // The thread of MPI on rank 0.
  static void Obey(Desk& desk, Member& member) {
    Session session(PETSC_COMM_WORLD, member.ranks[0].threads);
    for (bool over = false; !over;) {
      const Desk::Task task = desk.Take();
      over = task.order.what == Order::What::kEnd;
      TellOrder(PETSC_COMM_WORLD, task.order);
      Status status = session.Do(task.order, task.root);
      if (task.done != nullptr) task.done->set_value(std::move(status));
    }
    session.Clear();
    member.End();
  }

  // The thread of MPI on another rank.
  static void Serve(Member& member, std::chrono::milliseconds keep_freed) {
    if (keep_freed.count() > 0) KeepFreedMemory();
    const auto idle = [keep_freed] { ReleaseFreedLarge(keep_freed); };
    Session session(PETSC_COMM_WORLD, member.ranks[Z(member.rank)].threads);
    for (bool over = false; !over;) {
      const Order order = AwaitOrder(PETSC_COMM_WORLD, idle);
      over = order.what == Order::What::kEnd;
      static_cast<void>(session.Do(order, nullptr));  // rank 0 has the same
    }
    session.Clear();
  }

  const std::shared_ptr<Desk> desk_ = std::make_shared<Desk>();
  std::mutex spread_mutex_;  // taken before the desk's
  std::thread thread_;
};

}  // namespace

Result<Joined> Join(const JoinTerms& terms) {
  Status status;
  bool other = false;
  auto device = std::make_unique<Rank0>(terms, &status, &other);
  Joined joined;
  if (other) return joined;
  if (!status.ok()) return status;
  joined.device = std::move(device);
  return joined;
}

}  // namespace spaid::kernels::mpi
