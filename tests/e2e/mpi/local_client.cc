// A client on the host of rank 0: hands over a matrix in shared memory, and new values for it.
//
//   local_client ADDRESS SOCKET N     prints both handles, and bytes that were not shared
//
// The matrix is kept_test.py's band of five diagonals.
#include <spaid/client.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

template <class T>
spaid::SharedArray<T> Shared(spaid::Client& client, const std::vector<T>& from) {
  auto array = client.Allocate<T>(static_cast<int64_t>(from.size()));
  if (!array.ok()) {
    std::fprintf(stderr, "%s\n", array.error().message.c_str());
    std::exit(1);
  }
  std::copy(from.begin(), from.end(), array->begin());
  return *std::move(array);
}

std::string NameOf(const spaid::Expected<spaid::MatrixInfo>& stored) {
  if (stored.ok()) return stored->name;
  std::fprintf(stderr, "%s: %s\n", stored.error().reason.c_str(), stored.error().message.c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  spaid::Client client({.address = argv[1], .local_socket = argv[2]});
  const int64_t n = std::atoll(argv[3]);
  std::vector<int64_t> col_ptr{0};
  std::vector<int32_t> row_idx;
  std::vector<double> values;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = std::max<int64_t>(0, j - 2); i <= std::min(n - 1, j + 2); ++i) {
      row_idx.push_back(static_cast<int32_t>(i));
      values.push_back(i == j ? 60.0 : -1.0 - 0.25 * static_cast<double>(i - j) / 2);
    }
    col_ptr.push_back(static_cast<int64_t>(row_idx.size()));
  }
  const auto pointers = Shared(client, col_ptr);
  const auto indices = Shared(client, row_idx);
  const auto first = Shared(client, values);
  for (double& value : values) value *= 2;
  const auto second = Shared(client, values);
  const std::string a =
      NameOf(client.Upload({.n = n, .col_ptr = pointers, .row_idx = indices, .values = first}));
  const std::string b = NameOf(
      client.UploadValues(a, {.n = n, .col_ptr = pointers, .row_idx = indices, .values = second}));
  const spaid::LocalStatus status = client.GetLocalStatus();
  std::printf("%s %s %lld\n", a.c_str(), b.c_str(), static_cast<long long>(status.fallback_bytes));
}
