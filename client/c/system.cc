// Systems: arrays taken from the caller, solves and builds.
#include "spaid/system.h"

#include <algorithm>
#include <concepts>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/c/last_error.h"
#include "client/c/objects.h"

using spaid::Code;
using spaid::c::Fail;
using spaid::c::Guard;
using spaid::c::RequireAll;

namespace spaid::c {
namespace {

constexpr int kAllFlags = SPAID_ONE_BASED | SPAID_COPY | SPAID_SORT_AND_SUM;

// Arrays as the caller has them, and what messages call them.
struct Arrays {
  const void* ptr;
  int ptr_bits;
  const void* idx;
  int idx_bits;
  const double* values;
  int flags;
  bool by_rows;

  int64_t base() const { return flags & SPAID_ONE_BASED ? 1 : 0; }
  const char* ptr_name() const { return by_rows ? "row_ptr" : "col_ptr"; }
  const char* idx_name() const { return by_rows ? "col_idx" : "row_idx"; }
  int64_t Pointer(int64_t k) const {
    return ptr_bits == 32 ? static_cast<const int32_t*>(ptr)[k]
                          : static_cast<const int64_t*>(ptr)[k];
  }
};

int CheckBits(const char* name, int bits) {
  if (bits == 32 || bits == 64) return 0;
  return Fail(Code::kInvalidArgument, "BAD_OPTION",
              std::string(name) + " is " + std::to_string(bits) + "; it must be 32 or 64", name);
}

// The server checks all pointers; these are what the library itself goes by.
int CheckPointers(const Arrays& of, int64_t n) {
  const int64_t first = of.Pointer(0), nnz = of.Pointer(n) - of.base();
  if (first != of.base()) {
    return Fail(
        Code::kInvalidArgument, "BAD_POINTERS",
        std::string(of.ptr_name()) + " begins with " + std::to_string(first) + ", not with " +
            std::to_string(of.base()) + "; is it " +
            (of.base() == 0 ? "1-based (SPAID_ONE_BASED)" : "0-based (no SPAID_ONE_BASED)") +
            ", or of other than " + std::to_string(of.ptr_bits) + " bits?",
        of.ptr_name());
  }
  if (nnz < 0 || (nnz > n * n && !(of.flags & SPAID_SORT_AND_SUM))) {
    return Fail(Code::kInvalidArgument, "BAD_POINTERS",
                std::string(of.ptr_name()) + " ends with " + std::to_string(nnz + of.base()) +
                    ", which no matrix of " + std::to_string(n) +
                    " rows has; is it of other than " + std::to_string(of.ptr_bits) + " bits?",
                of.ptr_name());
  }
  return 0;
}

int Check(const Arrays& of, int64_t n) {
  if (of.flags & ~kAllFlags) {
    return Fail(Code::kInvalidArgument, "BAD_OPTION",
                "flags is " + std::to_string(of.flags) + "; add those of enum spaid_flags",
                "flags");
  }
  if (const int status = CheckBits("ptr_bits", of.ptr_bits)) return status;
  if (const int status = CheckBits("idx_bits", of.idx_bits)) return status;
  if (n < 1 || n > std::numeric_limits<int32_t>::max()) {
    return Fail(Code::kInvalidArgument, "SIZE_MISMATCH",
                "n is " + std::to_string(n) + "; it must be in 1 .. 2147483647", "n");
  }
  return CheckPointers(of, n);
}

// Copies indices to 32 bits and base 0.
template <class Index>
int CopyIndices(const Arrays& of, spaid_system& system) {
  const std::span from(static_cast<const Index*>(of.idx), static_cast<size_t>(system.nnz));
  system.idx.resize(from.size());
  for (size_t k = 0; k < from.size(); ++k) {
    const int64_t index = int64_t{from[k]} - of.base();
    if (index < 0 || index >= system.n) {
      Error error;
      error.code = Code::kInvalidArgument;
      error.reason = "INDEX_OUT_OF_RANGE";
      error.field = of.idx_name();
      error.metadata = {{"index", std::to_string(k)}, {"value", std::to_string(from[k])}};
      error.message = std::string(of.idx_name()) + "[" + std::to_string(k) + "] is " +
                      std::to_string(from[k]) + "; indices go from " + std::to_string(of.base()) +
                      " to " + std::to_string(system.n - 1 + of.base());
      return Fail(std::move(error));
    }
    system.idx[k] = static_cast<int32_t>(index);
  }
  return 0;
}

void CopyPointers(const Arrays& of, spaid_system& system) {
  system.ptr.resize(static_cast<size_t>(system.n) + 1);
  for (int64_t k = 0; k <= system.n; ++k)
    system.ptr[static_cast<size_t>(k)] = of.Pointer(k) - of.base();
}

std::span<const double> TakeValues(spaid_system& system, const double* values) {
  const std::span given(values, static_cast<size_t>(system.nnz));
  if (!system.copies_values) return given;
  system.values.assign(given.begin(), given.end());
  return system.values;
}

int MakeSystem(spaid_client* client, spaid_long n, const Arrays& of, spaid_system** system) {
  return Guard([&] {
    if (system != nullptr) *system = nullptr;
    if (const int status = RequireAll({{"client", client},
                                       {of.ptr_name(), of.ptr},
                                       {of.idx_name(), of.idx},
                                       {"values", of.values},
                                       {"system", system}})) {
      return status;
    }
    if (const int status = Check(of, n)) return status;
    const bool copy = of.flags & SPAID_COPY;
    auto made = std::make_unique<spaid_system>(client->connection, copy);
    made->n = n;
    made->nnz = of.Pointer(n) - of.base();
    CscView a{.n = n, .by_rows = of.by_rows, .sort_and_sum = (of.flags & SPAID_SORT_AND_SUM) != 0};
    if (copy || of.base() != 0) {
      CopyPointers(of, *made);
      a.col_ptr = made->ptr;
    } else if (of.ptr_bits == 64) {
      a.col_ptr = {static_cast<const int64_t*>(of.ptr), static_cast<size_t>(n) + 1};
    } else {
      a.col_ptr_32 = {static_cast<const int32_t*>(of.ptr), static_cast<size_t>(n) + 1};
    }
    if (copy || of.base() != 0 || of.idx_bits == 64) {
      const int status =
          of.idx_bits == 64 ? CopyIndices<int64_t>(of, *made) : CopyIndices<int32_t>(of, *made);
      if (status != 0) return status;
      a.row_idx = made->idx;
    } else {
      a.row_idx = {static_cast<const int32_t*>(of.idx), static_cast<size_t>(made->nnz)};
    }
    a.values = TakeValues(*made, of.values);
    made->system.emplace(made->connection->client, a);
    *system = made.release();
    return 0;
  });
}

// The one call that runs on a system.
class Running {
 public:
  explicit Running(spaid_system& system) : system_(system), owns_(!system.busy.exchange(true)) {
    if (!owns_) return;
    const std::lock_guard lock(system.mutex);
    system.running.emplace();
    stop_ = *system.running;
  }
  ~Running() {
    if (!owns_) return;
    {
      const std::lock_guard lock(system_.mutex);
      system_.running.reset();
    }
    system_.busy = false;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Returns 0, or the status of an error: another call is running.
  int status() const {
    if (owns_) return 0;
    return Fail(Code::kFailedPrecondition, "SYSTEM_BUSY",
                "another call is running on this system; wait for it, or make a system a thread",
                "system");
  }
  void Stop() { stop_.request_stop(); }
  // Returns the status of a call that has succeeded: 0, or that of a stop which came too late to
  // end it, so that whoever stops a call finds it stopped.
  int end() const {
    if (!stop_.stop_requested()) return 0;
    return Fail(Code::kCancelled, "STOP_REQUESTED", "the caller asked to stop");
  }
  std::stop_token token() const { return stop_.get_token(); }

 private:
  spaid_system& system_;
  const bool owns_;
  std::stop_source stop_{std::nostopstate};
};

// Tells one report of the client as news of the C interface: a call for each residual.
class News {
 public:
  News(const spaid_system& system, Running& running) : system_(system), running_(running) {}

  void Tell(const Progress& from) {
    spaid_progress news{.stage = StageOf(from),
                        .done = from.done,
                        .total = from.total,
                        .rhs = -1,
                        .iteration = 0,
                        .relative_residual = 0};
    if (from.kind != Progress::Kind::kResiduals) return Tell(news);
    for (const Residual& residual : from.residuals) {
      news.rhs = residual.rhs;
      news.iteration = residual.iteration;
      news.relative_residual = residual.relative_residual;
      Tell(news);
    }
  }

 private:
  static const char* StageOf(const Progress& from) {
    switch (from.kind) {
      case Progress::Kind::kTransfer:
      case Progress::Kind::kStage:
        return Name(from.stage).data();
      case Progress::Kind::kResiduals:
        return Name(Stage::kSolve).data();
      case Progress::Kind::kQueued:
        return "queue";
      default:
        return nullptr;  // of no stage
    }
  }
  void Tell(const spaid_progress& news) {
    if (stopped_ || news.stage == nullptr) return;
    stopped_ = system_.progress(system_.progress_data, &news) != 0;
    if (stopped_) running_.Stop();
  }

  const spaid_system& system_;
  Running& running_;
  bool stopped_ = false;
};

// Sets what a call takes from the options and from the system itself.
CallOptions Prepare(spaid_system& system, const internal::OptionSet& set, SolveOptions solve,
                    Running& running) {
  solve.null_vectors = system.null_vectors;
  system.system->SetOptions(std::move(solve), set.reuse);
  CallOptions call = set.call;
  call.stop = running.token();
  if (system.progress != nullptr) {
    call.on_progress = [news = News(system, running)](const Progress& from) mutable {
      news.Tell(from);
    };
  }
  return call;
}

internal::OptionSet Chosen(const spaid_options* options) {
  return options != nullptr ? options->set : internal::OptionSet();
}

// Hands a copy of `count` vectors, of size(n, count) numbers together, to `take`.
template <class Size, class Take>
int TakeVectors(spaid_system* system, int count, const char* name, const double* vectors, Size size,
                Take take) {
  return Guard([&] {
    if (const int status = RequireAll({{"system", system}})) return status;
    Running running(*system);
    if (const int status = running.status()) return status;
    if (count < 0) {
      return Fail(Code::kInvalidArgument, "BAD_OPTION",
                  "count is " + std::to_string(count) + "; it must be 0 or more", "count");
    }
    if (count == 0) {
      take({});
      return 0;
    }
    if (const int status = RequireAll({{name, vectors}})) return status;
    take(std::vector<double>(vectors, vectors + size(system->n, count)));
    return 0;
  });
}

int StatusOf(const SolveResult& solved) {
  for (const SolveResult::Rhs& rhs : solved.rhs) {
    if (rhs.outcome != Outcome::kConverged) return static_cast<int>(rhs.outcome);
  }
  return 0;
}

}  // namespace
}  // namespace spaid::c

int spaid_system_csr(spaid_client* client, spaid_long n, const void* row_ptr, int ptr_bits,
                     const void* col_idx, int idx_bits, const double* values, int flags,
                     spaid_system** system) {
  return spaid::c::MakeSystem(client, n,
                              {row_ptr, ptr_bits, col_idx, idx_bits, values, flags, true}, system);
}

int spaid_system_csc(spaid_client* client, spaid_long n, const void* col_ptr, int ptr_bits,
                     const void* row_idx, int idx_bits, const double* values, int flags,
                     spaid_system** system) {
  return spaid::c::MakeSystem(client, n,
                              {col_ptr, ptr_bits, row_idx, idx_bits, values, flags, false}, system);
}

int spaid_system_set_values(spaid_system* system, const double* values) {
  return Guard([&] {
    if (const int status = RequireAll({{"system", system}, {"values", values}})) return status;
    spaid::c::Running running(*system);
    if (const int status = running.status()) return status;
    auto error = system->system->SetValues(spaid::c::TakeValues(*system, values));
    return error ? Fail(*std::move(error)) : 0;
  });
}

int spaid_system_set_null_vectors(spaid_system* system, int count, const double* vectors) {
  return spaid::c::TakeVectors(
      system, count, "vectors", vectors, [](int64_t n, int k) { return n * k; },
      [&](std::vector<double> taken) { system->null_vectors = std::move(taken); });
}

int spaid_system_set_near_null_space(spaid_system* system, int count, const double* vectors) {
  return spaid::c::TakeVectors(
      system, count, "vectors", vectors, [](int64_t n, int k) { return n * k; },
      [&](std::vector<double> taken) {
        system->near_null = std::move(taken);
        system->system->SetNearNullSpace(count, system->near_null);
      });
}

int spaid_system_set_coordinates(spaid_system* system, int count, const double* coordinates) {
  // Nodes have as many unknowns as coordinates: the server refuses what is over.
  return spaid::c::TakeVectors(
      system, count, "coordinates", coordinates, [](int64_t n, int d) { return n / d * d; },
      [&](std::vector<double> taken) {
        system->near_null = std::move(taken);
        system->system->SetCoordinates(count, system->near_null);
      });
}

int spaid_system_set_progress(spaid_system* system, spaid_progress_function function, void* data) {
  return Guard([&] {
    if (const int status = RequireAll({{"system", system}})) return status;
    spaid::c::Running running(*system);
    if (const int status = running.status()) return status;
    system->progress = function;
    system->progress_data = data;
    return 0;
  });
}

void spaid_system_free(spaid_system* system) { delete system; }

int spaid_solve(spaid_system* system, const spaid_options* options, int rhs_count, const double* b,
                const double* guess, double* x, spaid_report** report) {
  return Guard([&] {
    if (report != nullptr) *report = nullptr;
    if (const int status = RequireAll({{"system", system}, {"b", b}, {"x", x}})) return status;
    spaid::c::Running running(*system);
    if (const int status = running.status()) return status;
    if (rhs_count < 1) {
      return Fail(Code::kInvalidArgument, "BAD_OPTION",
                  "rhs_count is " + std::to_string(rhs_count) + "; at least 1 is needed",
                  "rhs_count");
    }
    const size_t size = static_cast<size_t>(system->n) * static_cast<size_t>(rhs_count);
    const spaid::internal::OptionSet set = spaid::c::Chosen(options);
    spaid::SolveOptions solve = set.solve;
    solve.solution = {x, size};
    const spaid::CallOptions call = spaid::c::Prepare(*system, set, std::move(solve), running);
    const std::span<const double> begin(guess, guess != nullptr ? size : 0);
    auto solved = system->system->Solve({b, size}, begin, call);
    if (!solved.ok()) return Fail(solved.error());
    if (const int stopped = running.end()) return stopped;
    const int status = spaid::c::StatusOf(*solved);
    if (report != nullptr) {
      *report = new spaid_report{spaid::c::FiguresOf(*solved), std::move(solved->rhs)};
    }
    return status;
  });
}

int spaid_build(spaid_system* system, const spaid_options* options,
                spaid_preconditioner** preconditioner, spaid_report** report) {
  return Guard([&] {
    if (preconditioner != nullptr) *preconditioner = nullptr;
    if (report != nullptr) *report = nullptr;
    if (const int status = RequireAll({{"system", system}})) return status;
    spaid::c::Running running(*system);
    if (const int status = running.status()) return status;
    const spaid::internal::OptionSet set = spaid::c::Chosen(options);
    const spaid::CallOptions call = spaid::c::Prepare(*system, set, set.solve, running);
    const auto known = system->last_m.lock();
    auto built = system->system->Build(preconditioner != nullptr, call, known.get());
    if (!built.ok()) return Fail(built.error());
    if (const int stopped = running.end()) return stopped;
    std::unique_ptr<spaid_report> told;
    if (report != nullptr) told.reset(new spaid_report{spaid::c::FiguresOf(*built), {}});
    if (preconditioner != nullptr) {
      auto m = std::make_shared<const spaid::CscMatrix>(*std::move(built->m));
      system->last_m = m;
      *preconditioner = new spaid_preconditioner{std::move(m)};
    }
    if (report != nullptr) *report = told.release();
    return 0;
  });
}

int spaid_cancel(spaid_system* system) {
  return Guard([&] {
    if (const int status = RequireAll({{"system", system}})) return status;
    std::optional<std::stop_source> running;
    {
      const std::lock_guard lock(system->mutex);
      running = system->running;
    }
    if (running) running->request_stop();
    return 0;
  });
}
