// The objects behind the pointers of <spaid/spaid.h>.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/cpp/option_text.h"
#include "spaid/client.h"
#include "spaid/spaid.h"
#include "spaid/system.h"

namespace spaid::c {

// A client with the memory that it gave out. Systems hold it, so that it may be freed before them.
struct Connection {
  explicit Connection(ClientOptions options) : client(std::move(options)) {}
  Client client;
  std::mutex mutex;
  std::map<const void*, SharedArray<std::byte>> memory;  // guarded by mutex
};

// Options with the defaults of the environment.
internal::OptionSet DefaultOptions();

// Figures and texts of a report, by names.
using Figures = std::map<std::string, std::variant<double, std::string>, std::less<>>;
Figures FiguresOf(const SolveResult& solved);
Figures FiguresOf(const BuildResult& built);
Figures FiguresOf(const ServerInfo& info, const LocalStatus& local);

}  // namespace spaid::c

struct spaid_options {
  spaid::internal::OptionSet set;
};

struct spaid_client {
  std::shared_ptr<spaid::c::Connection> connection;
};

struct spaid_preconditioner {
  std::shared_ptr<const spaid::CscMatrix> m;
};

struct spaid_report {
  spaid::c::Figures figures;
  std::vector<spaid::SolveResult::Rhs> rhs;  // of a solve
};

struct spaid_system {
  spaid_system(std::shared_ptr<spaid::c::Connection> from, bool copies)
      : connection(std::move(from)), copies_values(copies) {}

  const std::shared_ptr<spaid::c::Connection> connection;
  const bool copies_values;
  std::vector<int64_t> ptr;  // these three: where the caller's own will not do
  std::vector<int32_t> idx;
  std::vector<double> values;
  int64_t n = 0, nnz = 0;
  std::optional<spaid::System> system;
  std::vector<double> null_vectors;
  std::vector<double> near_null;  // or coordinates
  spaid_progress_function progress = nullptr;
  void* progress_data = nullptr;
  std::weak_ptr<const spaid::CscMatrix> last_m;  // whose pattern the next may have

  std::atomic<bool> busy = false;
  std::mutex mutex;
  std::optional<std::stop_source> running;  // guarded by mutex; set while a call runs
};
