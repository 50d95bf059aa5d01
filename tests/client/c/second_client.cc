// Another shared library with a client inside, like libspaidpetsc.so: it meets libspaid.so in one
// process.
#include <spaid/client.h>

#include <cstdint>
#include <vector>

// Solves 2 x = 6 at the daemon; 3, or < 0.
extern "C" __attribute__((visibility("default"))) double second_client_solves(const char* address) {
  const std::vector<int64_t> ptr = {0, 1};
  const std::vector<int32_t> idx = {0};
  const std::vector<double> values = {2}, b = {6};
  spaid::Client client({.address = address});
  const auto solved = client.Solve({.n = 1, .col_ptr = ptr, .row_idx = idx, .values = values}, b);
  return solved.ok() ? solved->x[0] : -static_cast<double>(solved.error().code);
}
