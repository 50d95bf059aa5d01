// Errors of the C interface: each in words, with its reason and what is at fault; none of them a
// crash.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/c/c_problem.h"

namespace spaid::c {
namespace {

// Nobody answers there.
ClientPtr Nobody() { return Connect(Set({{"address", "127.0.0.1:1"}, {"timeout", "5"}})); }

SystemPtr Make(const ClientPtr& client, const Three& a) {
  spaid_system* system = nullptr;
  EXPECT_EQ(spaid_system_csr(client.get(), 3, a.row_ptr.data(), 32, a.col_idx.data(), 32,
                             a.by_rows.data(), 0, &system),
            0)
      << spaid_last_error();
  return SystemPtr(system);
}

TEST(CErrors, NamesTheArgumentThatIsNull) {
  const Three a;
  const ClientPtr client = Nobody();
  const SystemPtr system = Make(client, a);
  const Options options = Set({});
  spaid_client* new_client = nullptr;
  spaid_system* new_system = nullptr;
  spaid_report* report = nullptr;
  void* memory = nullptr;
  double x[3], number;
  const char* text = nullptr;
  const int *ptr = a.row_ptr.data(), *idx = a.col_idx.data();
  const double *values = a.by_rows.data(), *b = a.b.data();
  const struct {
    const char* at_fault;
    std::function<int()> call;
  } kCalls[] = {
      {"options", [&] { return spaid_options_new(nullptr); }},
      {"options", [&] { return spaid_options_set(nullptr, "rtol", "1"); }},
      {"name", [&] { return spaid_options_set(options.get(), nullptr, "1"); }},
      {"value", [&] { return spaid_options_set(options.get(), "rtol", nullptr); }},
      {"client", [&] { return spaid_client_new(options.get(), nullptr); }},
      {"client", [&] { return spaid_client_info(nullptr, &report); }},
      {"report", [&] { return spaid_client_info(client.get(), nullptr); }},
      {"client", [&] { return spaid_allocate(nullptr, 8, &memory); }},
      {"memory", [&] { return spaid_allocate(client.get(), 8, nullptr); }},
      {"client", [&] { return spaid_release(nullptr, x); }},
      {"client",
       [&] { return spaid_system_csr(nullptr, 3, ptr, 32, idx, 32, values, 0, &new_system); }},
      {"row_ptr",
       [&] {
         return spaid_system_csr(client.get(), 3, nullptr, 32, idx, 32, values, 0, &new_system);
       }},
      {"row_idx",
       [&] {
         return spaid_system_csc(client.get(), 3, ptr, 32, nullptr, 32, values, 0, &new_system);
       }},
      {"values",
       [&] {
         return spaid_system_csc(client.get(), 3, ptr, 32, idx, 32, nullptr, 0, &new_system);
       }},
      {"system",
       [&] { return spaid_system_csc(client.get(), 3, ptr, 32, idx, 32, values, 0, nullptr); }},
      {"system", [&] { return spaid_system_set_values(nullptr, values); }},
      {"values", [&] { return spaid_system_set_values(system.get(), nullptr); }},
      {"system", [&] { return spaid_system_set_null_vectors(nullptr, 1, b); }},
      {"system", [&] { return spaid_system_set_near_null_space(nullptr, 1, b); }},
      {"system", [&] { return spaid_system_set_coordinates(nullptr, 2, b); }},
      {"system", [&] { return spaid_system_set_progress(nullptr, nullptr, nullptr); }},
      {"system", [&] { return spaid_solve(nullptr, nullptr, 1, b, nullptr, x, nullptr); }},
      {"b", [&] { return spaid_solve(system.get(), nullptr, 1, nullptr, nullptr, x, nullptr); }},
      {"x", [&] { return spaid_solve(system.get(), nullptr, 1, b, nullptr, nullptr, nullptr); }},
      {"system", [&] { return spaid_build(nullptr, nullptr, nullptr, nullptr); }},
      {"system", [&] { return spaid_cancel(nullptr); }},
      {"preconditioner",
       [&] {
         return spaid_preconditioner_csc(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
       }},
      {"preconditioner", [&] { return spaid_apply(nullptr, SPAID_M, 1, b, x); }},
      {"report", [&] { return spaid_report_outcome(nullptr, 0); }},
      {"report", [&] { return static_cast<int>(spaid_report_iterations(nullptr, 0)); }},
      {"report", [&] { return static_cast<int>(spaid_report_residual(nullptr, 0)); }},
      {"report",
       [&] { return static_cast<int>(spaid_report_history(nullptr, 0, 0, nullptr, nullptr)); }},
      {"report", [&] { return spaid_report_number(nullptr, "n", &number); }},
      {"value", [&] { return spaid_report_number(nullptr, "n", nullptr); }},
      {"report", [&] { return spaid_report_text(nullptr, "n", &text); }},
      {"text", [&] { return spaid_report_text(nullptr, "n", nullptr); }},
  };
  for (const auto& [at_fault, call] : kCalls) {
    SCOPED_TRACE(at_fault);
    EXPECT_EQ(call(), SPAID_INVALID_ARGUMENT);
    EXPECT_EQ(Reason(), "NULL_ARGUMENT");
    EXPECT_EQ(Field(), at_fault);
    EXPECT_NE(std::string(spaid_last_error()).find(at_fault), std::string::npos);
  }
  EXPECT_EQ(spaid_report_name(nullptr, 0), nullptr);
  EXPECT_EQ(spaid_last_error_detail(nullptr), nullptr);
  spaid_options_free(nullptr);
  spaid_client_free(nullptr);
  spaid_system_free(nullptr);
  spaid_preconditioner_free(nullptr);
  spaid_report_free(nullptr);
  ASSERT_EQ(spaid_client_new(nullptr, &new_client), 0) << "the defaults";
  spaid_client_free(new_client);
}

TEST(CErrors, NamesOptionsAndTheirCures) {
  const Options options = Set({});
  EXPECT_EQ(spaid_options_set(options.get(), "k_max", "3"), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Reason(), "UNKNOWN_OPTION");
  EXPECT_EQ(Field(), "k_max");
  EXPECT_NE(std::string(spaid_last_error()).find(" k-max,"), std::string::npos)
      << spaid_last_error();
  EXPECT_EQ(spaid_options_set(options.get(), "k-max", "many"), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Reason(), "BAD_OPTION");
  EXPECT_STREQ(spaid_last_error(),
               "option 'k-max' is 'many'; it must be a whole number of at least 0 and at most 512");
  EXPECT_EQ(spaid_last_error_detail("index"), nullptr);
}

TEST(CErrors, AreOfTheThreadThatMadeThem) {
  EXPECT_LT(spaid_options_new(nullptr), 0);
  std::thread([] {
    EXPECT_STREQ(spaid_last_error(), "");
    EXPECT_EQ(spaid_last_error_detail("reason"), nullptr);
    EXPECT_LT(spaid_cancel(nullptr), 0);
    EXPECT_EQ(Field(), "system");
  }).join();
  EXPECT_EQ(Field(), "options");
}

struct BadSystem {
  const char* what;
  spaid_long n;
  std::vector<int64_t> ptr, idx;
  int ptr_bits, idx_bits, flags;
  const char *reason, *field, *said;
};

TEST(CErrors, NamesTheArrayAndThePlace) {
  const int64_t big = int64_t{1} << 32;
  const BadSystem kSystems[] = {
      {"index too large for 32 bits",
       2,
       {0, 1, 2},
       {0, big},
       64,
       64,
       0,
       "INDEX_OUT_OF_RANGE",
       "col_idx",
       "col_idx[1] is 4294967296"},
      {"index too large for n",
       2,
       {0, 1, 2},
       {0, 2},
       64,
       64,
       0,
       "INDEX_OUT_OF_RANGE",
       "col_idx",
       "col_idx[1] is 2; indices go from 0 to 1"},
      {"0 in 1-based indices",
       2,
       {1, 2, 3},
       {0, 1},
       64,
       64,
       SPAID_ONE_BASED,
       "INDEX_OUT_OF_RANGE",
       "col_idx",
       "col_idx[0] is 0; indices go from 1 to 2"},
      {"0-based pointers",
       2,
       {0, 1, 2},
       {1, 2},
       64,
       64,
       SPAID_ONE_BASED,
       "BAD_POINTERS",
       "row_ptr",
       "no SPAID_ONE_BASED"},
      {"1-based pointers",
       2,
       {1, 2, 3},
       {1, 2},
       64,
       64,
       0,
       "BAD_POINTERS",
       "row_ptr",
       "SPAID_ONE_BASED"},
      {"pointers of 64 bits", 2, {0, big, 2}, {0, 1}, 64, 64, 0, nullptr, nullptr, nullptr},
      {"more than a matrix has",
       2,
       {0, 1, 5},
       {0, 1, 0, 1, 0},
       64,
       64,
       0,
       "BAD_POINTERS",
       "row_ptr",
       "other than 64 bits"},
      {"pointers that go back",
       2,
       {0, 1, -1},
       {0},
       64,
       64,
       0,
       "BAD_POINTERS",
       "row_ptr",
       "ends with -1"},
      {"bits of pointers", 2, {0, 1, 2}, {0, 1}, 16, 64, 0, "BAD_OPTION", "ptr_bits", "32 or 64"},
      {"bits of indices", 2, {0, 1, 2}, {0, 1}, 64, 8, 0, "BAD_OPTION", "idx_bits", "32 or 64"},
      {"flags", 2, {0, 1, 2}, {0, 1}, 64, 64, 64, "BAD_OPTION", "flags", "spaid_flags"},
      {"no rows", 0, {0}, {0}, 64, 64, 0, "SIZE_MISMATCH", "n", "1 .. 2147483647"},
      {"too many rows", big, {0}, {0}, 64, 64, 0, "SIZE_MISMATCH", "n", "1 .. 2147483647"},
  };
  const ClientPtr client = Nobody();
  const std::vector<double> values(8, 1.0);
  for (const BadSystem& bad : kSystems) {
    SCOPED_TRACE(bad.what);
    spaid_system* system = reinterpret_cast<spaid_system*>(&system);
    const int status =
        spaid_system_csr(client.get(), bad.n, bad.ptr.data(), bad.ptr_bits, bad.idx.data(),
                         bad.idx_bits, values.data(), bad.flags, &system);
    const SystemPtr owned(system);
    if (bad.reason == nullptr) {  // in the middle: the daemon's to find
      EXPECT_EQ(status, 0);
      continue;
    }
    EXPECT_EQ(status, SPAID_INVALID_ARGUMENT);
    EXPECT_EQ(system, nullptr);
    EXPECT_EQ(Reason(), bad.reason);
    EXPECT_EQ(Field(), bad.field);
    EXPECT_NE(std::string(spaid_last_error()).find(bad.said), std::string::npos)
        << spaid_last_error();
    if (std::string(bad.reason) == "INDEX_OUT_OF_RANGE") {
      EXPECT_NE(spaid_last_error_detail("index"), nullptr);
      EXPECT_EQ(spaid_last_error_detail("value"),
                std::to_string(
                    bad.idx[static_cast<size_t>(std::atoi(spaid_last_error_detail("index")))]));
    }
  }
}

TEST(CErrors, SaysThatNobodyAnswers) {
  const Three a;
  const SystemPtr system = Make(Nobody(), a);
  double x[3];
  spaid_report* report = reinterpret_cast<spaid_report*>(&report);
  EXPECT_EQ(spaid_solve(system.get(), nullptr, 1, a.b.data(), nullptr, x, &report),
            SPAID_UNAVAILABLE);
  EXPECT_EQ(report, nullptr);
  EXPECT_EQ(Reason(), "UNREACHABLE");
  EXPECT_NE(std::string(spaid_last_error()).find("127.0.0.1:1"), std::string::npos);
  EXPECT_EQ(spaid_solve(system.get(), nullptr, 0, a.b.data(), nullptr, x, nullptr),
            SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Field(), "rhs_count");
  spaid_preconditioner* m = reinterpret_cast<spaid_preconditioner*>(&m);
  EXPECT_EQ(spaid_build(system.get(), nullptr, &m, &report), SPAID_UNAVAILABLE);
  EXPECT_EQ(m, nullptr);
  EXPECT_EQ(spaid_client_info(Nobody().get(), &report), SPAID_UNAVAILABLE);
  EXPECT_EQ(report, nullptr);
}

TEST(CErrors, TakesTheAddressFromTheEnvironment) {
  ASSERT_EQ(setenv("SPAID_ADDRESS", "127.0.0.1:2", 1), 0);
  spaid_client* made = nullptr;
  ASSERT_EQ(spaid_client_new(nullptr, &made), 0);
  const ClientPtr client(made), other = Connect("127.0.0.1:3");
  ASSERT_EQ(unsetenv("SPAID_ADDRESS"), 0);
  spaid_report* report = nullptr;
  EXPECT_EQ(spaid_client_info(client.get(), &report), SPAID_UNAVAILABLE);
  EXPECT_NE(std::string(spaid_last_error()).find("127.0.0.1:2"), std::string::npos);
  EXPECT_EQ(spaid_client_info(other.get(), &report), SPAID_UNAVAILABLE);
  EXPECT_NE(std::string(spaid_last_error()).find("127.0.0.1:3"), std::string::npos)
      << "what is set wins";
}

TEST(CErrors, NamesEveryStatus) {
  EXPECT_STREQ(spaid_status_name(0), "converged");
  EXPECT_STREQ(spaid_status_name(SPAID_CANCELLED), "cancelled");
  EXPECT_STREQ(spaid_status_name(SPAID_NON_FINITE), "non-finite");
  EXPECT_STREQ(spaid_status_name(8), "unknown");
  EXPECT_STREQ(spaid_status_name(SPAID_STOPPED), "CANCELLED");
  EXPECT_STREQ(spaid_status_name(SPAID_INVALID_ARGUMENT), "INVALID_ARGUMENT");
  EXPECT_STREQ(spaid_status_name(SPAID_UNAUTHENTICATED), "UNAUTHENTICATED");
  EXPECT_STREQ(spaid_status_name(-17), "unknown");
  EXPECT_STREQ(spaid_status_name(INT32_MIN), "unknown");
}

// Makes a system whose copy does not fit the address space, and prints what it is told.
int CopyBeyondMemory() {
  const ClientPtr client = Nobody();
  const int64_t n = 1 << 20, row = 256, nnz = n * row;  // 3 GiB, none of it touched but zero pages
  const auto map = [](int64_t bytes) {
    return mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  };
  auto* const ptr = static_cast<int64_t*>(map(8 * (n + 1)));
  const void* const idx = map(4 * nnz);
  const void* const values = map(8 * nnz);
  for (int64_t k = 0; k <= n; ++k) ptr[k] = k * row;
  FILE* const statm = std::fopen("/proc/self/statm", "r");
  long pages = 0;
  if (statm == nullptr || std::fscanf(statm, "%ld", &pages) != 1) return 1;
  std::fclose(statm);
  const auto limit = static_cast<rlim_t>(pages) * 4096 + (256 << 20);
  const rlimit space = {limit, limit};
  if (setrlimit(RLIMIT_AS, &space) != 0) return 1;
  spaid_system* system = nullptr;
  const int status = spaid_system_csr(client.get(), n, ptr, 64, idx, 32,
                                      static_cast<const double*>(values), SPAID_COPY, &system);
  std::fprintf(stderr, "%d %s: %s", status, Reason().c_str(), spaid_last_error());
  return 0;
}

TEST(CErrorsDeathTest, OutOfMemoryIsAnErrorLikeOthers) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer ends a process that runs out of memory";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(CopyBeyondMemory()), testing::ExitedWithCode(0),
              "-8 OUT_OF_MEMORY: this process has no memory left");
}

}  // namespace
}  // namespace spaid::c
