// --local-socket and the calls that name what clients share there: honest ones, and hostile ones
// made by hand.
#include "server/rpc/local_socket.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/ids.h"
#include "server/base/status.h"
#include "tests/server/rpc/harness.h"
#include "tests/server/rpc/local_client.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

constexpr char kToken[] = "0123456789abcdef-alice";

// Waits for what the socket's thread does by itself.
template <class Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

int OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

v1::ArraySegment Named(v1::ArraySegment segment, const std::string& lease) {
  segment.set_lease(lease);
  return segment;
}

// The three arrays in one segment.
struct SharedMatrix {
  explicit SharedMatrix(const Csc& a)
      : n(a.n),
        header(HeaderOf(a)),
        memory(8 * static_cast<int64_t>(a.pointers.size() + 2 * a.indices.size() + 2)),
        arrays{memory.Put(v1::ARRAY_KIND_POINTERS, a.pointers),
               memory.Put(v1::ARRAY_KIND_INDICES, a.indices),
               memory.Put(v1::ARRAY_KIND_VALUES, a.values)} {}
  int64_t n;
  v1::MatrixHeader header;
  Memory memory;
  std::vector<v1::ArraySegment> arrays;
};

class LocalSocketTest : public ::testing::Test {
 protected:
  static Harness::Options Backend() {
    Harness::Options options{.backend = Harness::SmallBackend(), .trust_tenant_header = true};
    options.backend.segments = {.max_bytes = 64 << 20, .max_segments = 16};
    options.backend.max_matrix_bytes = 16 << 20;
    options.backend.matrix_store_bytes = 64 << 20;
    return options;
  }

  LocalSocketTest() { std::filesystem::create_directory(folder_); }
  ~LocalSocketTest() override {
    local_.reset();
    std::filesystem::remove_all(folder_);
  }
  void SetUp() override { Listen({}); }
  void Listen(LocalSocketOptions options) {
    local_.reset();
    options.path = path();
    auto listening = LocalSocket::Listen(options, h_.backend.get());
    ASSERT_TRUE(listening.ok()) << listening.status();
    local_ = *std::move(listening);
  }
  std::string path() const { return (folder_ / "local").string(); }
  bool Quiet() { return h_.backend->segments().stats().segments == 0; }

  Uploaded Upload(const SharedMatrix& a, const std::string& lease, const std::string& tenant = "") {
    Uploaded uploaded;
    UploadCall call = OpenUpload(h_, tenant);
    call.Head(a.header);
    for (const auto& array : a.arrays) call.Segment(Named(array, lease));
    call.Done();
    uploaded.status = call.Finish(&uploaded.events);
    if (uploaded.status.ok()) uploaded.matrix = uploaded.events.back().done().matrix();
    return uploaded;
  }
  // Whether calls know the lease.
  bool Knows(const std::string& lease, const std::string& tenant = "") {
    const SharedMatrix a(DiagonalMatrix(3));
    const Uploaded uploaded = Upload(a, lease, tenant);
    if (!uploaded.status.ok() && Decode(uploaded.status).reason == "LEASE_UNKNOWN") return false;
    return true;
  }

  Harness h_{Backend()};
  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() / RandomId();
  std::unique_ptr<LocalSocket> local_;
};

TEST_F(LocalSocketTest, UploadsWhatIsShared) {
  const Csc diagonal = DiagonalMatrix(200'000);  // several pieces each
  const SharedMatrix a(diagonal);
  const LocalClient client(path());
  const Uploaded shared = Upload(a, client.Register(a.memory));
  ASSERT_TRUE(shared.status.ok()) << shared.status.error_message();
  EXPECT_EQ(shared.matrix.nnz(), 200'000);
  EXPECT_EQ(shared.events.back().done().timings().bytes_up(), 20 * 200'000 + 8);
  const Uploaded sent = h_.Upload(HeaderOf(diagonal), {}, "");
  EXPECT_FALSE(sent.status.ok());  // arrays are wanted
  // A stored copy: what is shared may change afterwards.
  const auto stored = h_.backend->matrices().Get("default", shared.matrix.name());
  ASSERT_TRUE(stored.ok());
  a.memory.at<double>(a.arrays[2].offset())[5] = -1;
  EXPECT_EQ(stored->value->csc().values[5], 6);
}

TEST_F(LocalSocketTest, TheSameContentIsTheSameMatrix) {
  const Csc diagonal = DiagonalMatrix(100);
  const SharedMatrix a(diagonal);
  const LocalClient client(path());
  const std::string sent = h_.Store(diagonal);
  EXPECT_EQ(Upload(a, client.Register(a.memory)).matrix.name(), sent);
}

TEST_F(LocalSocketTest, FloatsAndChunksBesideSegments) {
  const Csc a = DiagonalMatrix(1000);
  Memory memory(1 << 16);
  const auto floats = memory.Put(v1::ARRAY_KIND_VALUES, std::vector<float>(1000, 2));
  const auto half = memory.Put(v1::ARRAY_KIND_INDICES,
                               std::vector<int32_t>(a.indices.begin() + 500, a.indices.end()));
  const LocalClient client(path());
  const std::string lease = client.Register(memory);
  v1::MatrixHeader header = HeaderOf(a);
  header.set_value_type(v1::VALUE_TYPE_FLOAT32);
  UploadCall call = OpenUpload(h_);
  v1::ArraySegment rest = Named(half, lease);
  rest.set_start(500);
  call.Head(header)
      .Chunk(ChunkOf(v1::ARRAY_KIND_INDICES, 0,
                     std::vector<int32_t>(a.indices.begin(), a.indices.begin() + 500)))
      .Segment(Named(floats, lease))
      .Chunk(ChunkOf(v1::ARRAY_KIND_POINTERS, 0, a.pointers))
      .Segment(rest)
      .Done();
  std::vector<v1::UploadMatrixResponse> events;
  const grpc::Status status = call.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto stored = h_.backend->matrices().Get("default", events.back().done().matrix().name());
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->value->csc().values[999], 2);
  EXPECT_EQ(stored->value->csc().row_idx[999], 999);
}

// By rows the pattern is turned between its segments and that of the values, which are then the
// only thing that another matrix on the pattern has to come with.
TEST_F(LocalSocketTest, ByRowsAndValuesAlone) {
  const Csc a{.n = 3, .pointers = {0, 2, 3, 4}, .indices = {0, 2, 1, 0}, .values = {1, 2, 3, 4}};
  SharedMatrix rows(a);
  rows.header.set_layout(v1::LAYOUT_CSR);
  const LocalClient client(path());
  const std::string lease = client.Register(rows.memory);
  const Uploaded first = Upload(rows, lease);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  const auto values_of = [&](const std::string& name) {
    const auto stored = h_.backend->matrices().Get("default", name);
    EXPECT_TRUE(stored.ok()) << stored.status();
    const kernels::CscView csc = stored->value->csc();
    return std::vector<double>(csc.values.begin(), csc.values.end());
  };
  EXPECT_EQ(values_of(first.matrix.name()), (std::vector<double>{1, 4, 3, 2}));
  rows.memory.at<double>(rows.arrays[2].offset())[1] = 7;
  rows.header.set_same_pattern_as(first.matrix.name());
  rows.arrays = {rows.arrays[2]};
  const Uploaded second = Upload(rows, lease);
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_EQ(values_of(second.matrix.name()), (std::vector<double>{1, 4, 3, 7}));
}

// Solves diag(1, 2, 3, ...) x = b with b, the inline matrix and x in one segment.
TEST_F(LocalSocketTest, SolvesInPlace) {
  const Csc a = DiagonalMatrix(4);
  Memory memory(4096);
  const LocalClient client(path());
  const std::string lease = client.Register(memory);
  v1::SolveHeader header;
  *header.mutable_inline_matrix() = HeaderOf(a);
  *header.mutable_spec() = Jacobi();
  header.set_method(v1::METHOD_BICGSTAB);
  header.set_rtol(1e-8);
  const auto place = Named(memory.Place(v1::ARRAY_KIND_SOLUTION, 32), lease);
  *header.mutable_solution_segment() = place;
  SolveCall call = OpenSolve(h_);
  call.Head(header)
      .Segment(Named(memory.Put(v1::ARRAY_KIND_POINTERS, a.pointers), lease))
      .Segment(Named(memory.Put(v1::ARRAY_KIND_INDICES, a.indices), lease))
      .Segment(Named(memory.Put(v1::ARRAY_KIND_RHS, std::vector<double>{1, 4, 9, 16}), lease))
      .Segment(Named(memory.Put(v1::ARRAY_KIND_VALUES, a.values), lease))
      .Done();
  std::vector<v1::SolveResponse> events;
  const grpc::Status status = call.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_TRUE(events.back().has_done());
  EXPECT_EQ(events.back().done().solution_bytes(), 32);
  EXPECT_EQ(events.back().done().timings().bytes_down(), 32);
  for (const auto& event : events) EXPECT_FALSE(event.has_chunk());
  const double* const x = memory.at<double>(place.offset());
  EXPECT_EQ(std::vector<double>(x, x + 4), (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(LocalSocketTest, BuildsFromSegments) {
  const SharedMatrix a(DiagonalMatrix(10));
  const LocalClient client(path());
  const std::string lease = client.Register(a.memory);
  v1::BuildHeader header;
  *header.mutable_inline_matrix() = a.header;
  *header.mutable_spec() = Jacobi();
  BuildCall call = OpenBuild(h_);
  call.Head(header);
  for (const auto& array : a.arrays) call.Segment(Named(array, lease));
  call.Done();
  std::vector<v1::BuildPreconditionerResponse> events;
  const grpc::Status status = call.Finish(&events);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// A solve that is held while its client does what it should not; then its events and its end.
class HeldSolve : public LocalSocketTest {
 protected:
  void Start(Memory& memory, const LocalClient& client) {
    matrix_ = h_.Store(DiagonalMatrix(4));
    const std::string lease = client.Register(memory);
    place_ = Named(memory.Place(v1::ARRAY_KIND_SOLUTION, 32), lease);
    v1::SolveHeader header = SolveOf(matrix_, Jacobi());
    *header.mutable_solution_segment() = place_;
    h_.engine.HoldSolves();
    call_.emplace(OpenSolve(h_));
    call_->Head(header)
        .Segment(Named(memory.Put(v1::ARRAY_KIND_RHS, std::vector<double>{1, 4, 9, 16}), lease))
        .Done();
    h_.engine.WaitForSolves(1);
  }
  grpc::Status End() {
    h_.engine.Release();
    return call_->Finish(&events_);
  }

  std::string matrix_;
  v1::ArraySegment place_;
  std::optional<SolveCall> call_;
  std::vector<v1::SolveResponse> events_;
};

TEST_F(HeldSolve, GoesOnWhereItsConnectionHasEnded) {
  Memory memory(4096);
  LocalClient client(path());
  ASSERT_NO_FATAL_FAILURE(Start(memory, client));
  client.Close();
  EXPECT_TRUE(Eventually([&] { return !Knows(place_.lease()); })) << "to new calls";
  EXPECT_EQ(h_.backend->segments().stats().segments, 1) << "the solve's";
  ASSERT_TRUE(End().ok());
  EXPECT_EQ(events_.back().done().solution_bytes(), 32);
  EXPECT_EQ(memory.at<double>()[3], 4);
  call_.reset();
  EXPECT_TRUE(Eventually([&] { return Quiet(); }));
}

TEST_F(HeldSolve, SendsWhatCanNoLongerBeWritten) {
  Memory memory(4096);
  const LocalClient client(path());
  ASSERT_NO_FATAL_FAILURE(Start(memory, client));
  memory.Unmap();
  ASSERT_EQ(fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  ASSERT_TRUE(End().ok());
  EXPECT_EQ(events_.back().done().solution_bytes(), 0);
  std::vector<double> x;
  for (const auto& event : events_) {
    if (!event.has_chunk()) continue;
    x.resize(4);
    ASSERT_EQ(event.chunk().data().size(), 32u);
    std::memcpy(x.data(), event.chunk().data().data(), 32);
  }
  EXPECT_EQ(x, (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(HeldSolve, GivesAllBackWhenItsClientLeaves) {
  Memory memory(4096);
  LocalClient client(path());
  ASSERT_NO_FATAL_FAILURE(Start(memory, client));
  client.Close();
  call_->Cancel();
  EXPECT_FALSE(End().ok());
  EXPECT_TRUE(Eventually([&] { return Quiet(); }));
  h_.ExpectLives();
}

TEST_F(LocalSocketTest, RefusesASolutionThatDoesNotFit) {
  const std::string matrix = h_.Store(DiagonalMatrix(4));
  Memory memory(4096);
  const LocalClient client(path());
  const std::string lease = client.Register(memory);
  memory.Unmap();
  const auto why = [&](v1::ArrayKind array, int64_t bytes) {
    v1::SolveHeader header = SolveOf(matrix, Jacobi());
    v1::ArraySegment* const place = header.mutable_solution_segment();
    place->set_array(array);
    place->set_bytes(bytes);
    place->set_lease(lease);
    SolveCall call = OpenSolve(h_);
    call.Head(header);
    const ErrorView error = Decode(call.Finish());
    EXPECT_EQ(error.reason, "BAD_SEGMENT") << error.message;
    return error.field;
  };
  EXPECT_EQ(why(v1::ARRAY_KIND_SOLUTION, 40), "header.solution_segment.bytes");
  EXPECT_EQ(why(v1::ARRAY_KIND_SOLUTION, 8192), "header.solution_segment.bytes");
  EXPECT_EQ(why(v1::ARRAY_KIND_RHS, 32), "header.solution_segment.array");
  ASSERT_EQ(fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(why(v1::ARRAY_KIND_SOLUTION, 32), "header.solution_segment.lease");
}

TEST_F(LocalSocketTest, RefusesSegmentsThatHaveNoPlace) {
  const SharedMatrix a(DiagonalMatrix(100));
  const LocalClient client(path());
  const std::string lease = client.Register(a.memory);
  const auto upload = [&](bool header, v1::ArraySegment segment) {
    UploadCall call = OpenUpload(h_);
    if (header) call.Head(a.header);
    call.Segment(Named(std::move(segment), lease)).Done();
    return call.Finish();
  };
  EXPECT_RPC_ERROR(upload(false, a.arrays[0]), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "before");
  v1::ArraySegment wrong = a.arrays[0];
  wrong.set_array(v1::ARRAY_KIND_RHS);
  EXPECT_RPC_ERROR(upload(true, wrong), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "rhs");
  wrong.set_array(v1::ARRAY_KIND_UNSPECIFIED);
  EXPECT_RPC_ERROR(upload(true, wrong), INVALID_ARGUMENT, "UNKNOWN_ENUM", "array 0");
  wrong = a.arrays[1];
  wrong.set_bytes(6);
  EXPECT_RPC_ERROR(upload(true, wrong), INVALID_ARGUMENT, "CHUNK_NOT_WHOLE", "4");
  wrong = a.arrays[1];
  wrong.set_start(3);
  EXPECT_RPC_ERROR(upload(true, wrong), INVALID_ARGUMENT, "CHUNK_OUT_OF_ORDER", "3");
  wrong.set_start(INT64_MIN);
  EXPECT_RPC_ERROR(upload(true, wrong), INVALID_ARGUMENT, "CHUNK_OUT_OF_ORDER", "");
  wrong = a.arrays[1];
  wrong.set_bytes(408);
  EXPECT_RPC_ERROR(upload(true, wrong), INVALID_ARGUMENT, "CHUNK_BEYOND_END", "100");
  EXPECT_RPC_ERROR(upload(true, a.arrays[0]), INVALID_ARGUMENT, "ARRAY_INCOMPLETE", "indices");
  h_.ExpectLives();
}

TEST_F(LocalSocketTest, RefusesALeaseOfAnotherTenantOrConnection) {
  const SharedMatrix a(DiagonalMatrix(3));
  LocalClient first(path());
  const LocalClient second(path());
  const std::string lease = first.Register(a.memory), kept = second.Register(a.memory);
  EXPECT_TRUE(Knows(lease));
  EXPECT_FALSE(Knows(lease, "bob"));
  EXPECT_FALSE(Knows("leases/never"));
  EXPECT_FALSE(Knows(""));
  v1::LocalRequest release;
  release.mutable_release()->set_lease(lease);
  EXPECT_EQ(ReasonOf(*second.Ask(release)), "LEASE_UNKNOWN") << "not its own";
  EXPECT_TRUE(Knows(lease));
  first.Close();
  EXPECT_TRUE(Eventually([&] { return !Knows(lease); }));
  EXPECT_TRUE(Knows(kept));
  release.mutable_release()->set_lease(kept);
  EXPECT_TRUE(second.Ask(release)->has_released());
  EXPECT_FALSE(Knows(kept));
}

// The client changes what it shares while the server takes it: 10^5 flips and more. What is stored
// is canonical, or refused with a place in it.
TEST_F(LocalSocketTest, StoresNothingBrokenOfWhatChanges) {
  constexpr int64_t kN = 20'000;
  constexpr int64_t kFlips = 100'000;
  const Csc diagonal = DiagonalMatrix(kN);
  const SharedMatrix a(diagonal);
  const LocalClient client(path());
  const std::string lease = client.Register(a.memory);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> flips{0};
  std::thread flipper([&] {
    std::mt19937_64 random(7);
    auto* const pointers = a.memory.at<volatile int64_t>(a.arrays[0].offset());
    auto* const indices = a.memory.at<volatile int32_t>(a.arrays[1].offset());
    auto* const values = a.memory.at<volatile double>(a.arrays[2].offset());
    // Each lasts until the one after the next; in every other span of flips, no longer than the
    // flip.
    const auto restore = [&](int64_t i) {
      pointers[i] = i;
      indices[i] = static_cast<int32_t>(i);
      values[i] = static_cast<double>(i + 1);
    };
    int64_t before[2] = {0, 0};
    while (!stop) {
      const auto i = static_cast<int64_t>(random() % kN);
      switch (random() % 4) {
        case 0:
          pointers[i] = static_cast<int64_t>(random());
          break;
        case 1:
          indices[i] = static_cast<int32_t>(random());
          break;
        case 2:
          indices[i] = static_cast<int32_t>(random() % kN);
          break;
        default:
          values[i] = NAN;
      }
      restore(std::exchange(before[0], std::exchange(before[1], i)));
      if (++flips % 4096 < 2048) restore(i);
      if (flips % 64 == 0) std::this_thread::yield();
    }
  });
  int stored = 0, refused = 0;
  while (flips < kFlips || stored == 0 || refused == 0) {
    const Uploaded uploaded = Upload(a, lease);
    if (!uploaded.status.ok()) {
      const ErrorView error = Decode(uploaded.status);
      EXPECT_EQ(error.code, grpc::INVALID_ARGUMENT) << error.message;
      EXPECT_TRUE(error.reason == "BAD_POINTERS" || error.reason == "INDEX_OUT_OF_RANGE" ||
                  error.reason == "UNSORTED_INDICES" || error.reason == "DUPLICATE_ENTRY" ||
                  error.reason == "NON_FINITE_VALUE")
          << error.reason << ": " << error.message;
      ++refused;
      continue;
    }
    ++stored;
    const auto found = h_.backend->matrices().Get("default", uploaded.matrix.name());
    ASSERT_TRUE(found.ok()) << found.status();
    const kernels::CscView csc = found->value->csc();
    ASSERT_EQ(csc.col_ptr.front(), 0);
    ASSERT_EQ(csc.col_ptr.back(), kN);
    for (int64_t j = 0; j < kN; ++j) {
      const auto begin = csc.col_ptr[static_cast<size_t>(j)];
      const auto end = csc.col_ptr[static_cast<size_t>(j) + 1];
      ASSERT_LE(begin, end);
      for (int64_t p = begin; p < end; ++p) {
        const int32_t row = csc.row_idx[static_cast<size_t>(p)];
        ASSERT_TRUE(row >= 0 && row < kN) << row;
        ASSERT_TRUE(p == begin || csc.row_idx[static_cast<size_t>(p) - 1] < row);
        ASSERT_TRUE(std::isfinite(csc.values[static_cast<size_t>(p)]));
      }
    }
    EXPECT_TRUE(h_.backend->matrices().Delete("default", uploaded.matrix.name()).ok());
  }
  stop = true;
  flipper.join();
  std::printf("%d stored, %d refused, %ld flips\n", stored, refused, static_cast<long>(flips));
  h_.ExpectLives();
}

// Released, or its connection closed, while it is taken: the upload goes on with what it has.
TEST_F(LocalSocketTest, AnUploadKeepsItsSegment) {
  const SharedMatrix a(DiagonalMatrix(200'000));
  for (int i = 0; i < 20; ++i) {
    LocalClient client(path());
    const std::string lease = client.Register(a.memory);
    UploadCall call = OpenUpload(h_);
    call.Head(a.header);
    for (const auto& array : a.arrays) call.Segment(Named(array, lease));
    if (i % 2 == 0) {
      client.Close();
    } else {
      v1::LocalRequest release;
      release.mutable_release()->set_lease(lease);
      EXPECT_TRUE(client.Ask(release)->has_released());
    }
    call.Done();
    const ErrorView error = Decode(call.Finish());
    EXPECT_TRUE(error.code == grpc::OK || error.reason == "LEASE_UNKNOWN") << error.message;
  }
  EXPECT_TRUE(Eventually([&] { return Quiet(); }));
}

// Calls that are reset while they take a segment give it up.
TEST_F(LocalSocketTest, AResetEndsTheTaking) {
  const SharedMatrix a(DiagonalMatrix(500'000));
  const LocalClient client(path());
  const std::string lease = client.Register(a.memory);
  for (int i = 0; i < 20; ++i) {
    UploadCall call = OpenUpload(h_);
    call.Head(a.header);
    for (const auto& array : a.arrays) call.Segment(Named(array, lease));
    std::this_thread::sleep_for(std::chrono::microseconds(200 * i));
    call.Cancel();
    call.Finish();
  }
  EXPECT_TRUE(Eventually([&] { return h_.backend->streams().size() == 0; }));
  EXPECT_EQ(h_.backend->matrices().stats().reserved_bytes, 0);
  h_.ExpectLives();
}

TEST_F(LocalSocketTest, IsForItsOwnUserAndGroup) {
  struct stat file {};
  ASSERT_EQ(stat(path().c_str(), &file), 0);
  EXPECT_TRUE(S_ISSOCK(file.st_mode));
  EXPECT_EQ(file.st_mode & 07777, 0660u);
}

TEST_F(LocalSocketTest, OneAtAPath) {
  const auto second = LocalSocket::Listen({.path = path()}, h_.backend.get());
  EXPECT_EQ(ReasonOf(second.status()), "CANNOT_LISTEN");
  EXPECT_TRUE(LocalClient(path()).connected()) << "the first one is still there";
  local_.reset();
  EXPECT_FALSE(std::filesystem::exists(path()));
  // A file that is no socket stays.
  std::filesystem::create_directory(path());
  const auto taken = LocalSocket::Listen({.path = path()}, h_.backend.get());
  EXPECT_EQ(ReasonOf(taken.status()), "CANNOT_LISTEN");
  EXPECT_TRUE(std::filesystem::is_directory(path()));
  EXPECT_FALSE(LocalSocket::Listen({.path = std::string(200, 'x')}, h_.backend.get()).ok());
}

TEST_F(LocalSocketTest, HangsUpOnWhoBreaksTheProtocol) {
  const Memory memory(4096);
  v1::LocalRequest segment, hello;
  segment.mutable_segment()->set_bytes(4096);
  hello.mutable_hello()->set_version(1);
  const std::string say_segment = segment.SerializeAsString();
  const std::string say_hello = hello.SerializeAsString();
  const int before = OpenDescriptors();
  struct Attack {
    const char* what;
    bool greets;
    std::string bytes;
    std::vector<int> descriptors;
  };
  const std::vector<int> one = {memory.fd()}, two(2, memory.fd()), many(253, memory.fd());
  const Attack attacks[] = {
      {"no protobuf", true, "\xff\xff\xff\xff", {}},
      {"no request", true, "\x7a\x02hi", {}},
      {"too long", true, std::string(9000, '\n'), {}},
      {"too long, with a descriptor", true, std::string(100'000, 'x'), one},
      {"a segment first", false, say_segment, one},
      {"no descriptor", true, say_segment, {}},
      {"two descriptors", true, say_segment, two},
      {"as many as can be", true, say_segment, many},
      {"a descriptor with a hello", false, say_hello, one},
      {"many with a hello", false, say_hello, many},
      {"two hellos", true, say_hello, {}},
  };
  for (const Attack& attack : attacks) {
    LocalClient client(path(), attack.greets ? std::optional<std::string>("") : std::nullopt);
    ASSERT_TRUE(client.Send(attack.bytes, attack.descriptors)) << attack.what;
    const auto reply = client.Receive();
    ASSERT_TRUE(reply) << attack.what;
    EXPECT_EQ(ReasonOf(*reply), "UNEXPECTED_MESSAGE") << attack.what;
    EXPECT_FALSE(client.Receive()) << attack.what;
  }
  LocalClient old(path(), std::nullopt);
  EXPECT_EQ(ReasonOf(old.Hello("", 2)), "UNEXPECTED_MESSAGE") << "of another version";
  old.Close();
  // An end in the middle, and messages that are none.
  LocalClient(path(), std::nullopt).Send("");
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() == before; })) << OpenDescriptors();
  EXPECT_TRUE(Quiet());
  EXPECT_FALSE(LocalClient(path()).Register(memory).empty()) << "others are served";
}

// Descriptors that wait unread, and requests whose answers nobody reads.
TEST_F(LocalSocketTest, OutlivesFloods) {
  const Memory memory(4096);
  const int before = OpenDescriptors();
  v1::LocalRequest request;
  request.mutable_segment()->set_bytes(4096);
  const std::string say = request.SerializeAsString();
  {
    std::vector<std::unique_ptr<LocalClient>> clients;
    for (int i = 0; i < 16; ++i) clients.push_back(std::make_unique<LocalClient>(path()));
    for (const auto& client : clients) {
      fcntl(client->fd(), F_SETFL, O_NONBLOCK);
      int sent = 0;
      while (sent < 5000 && client->Send(say, std::vector<int>(1, memory.fd()))) ++sent;
    }
    // Segments are bounded, whoever asks.
    EXPECT_LE(h_.backend->segments().stats().segments, 16);
  }
  EXPECT_TRUE(Eventually([&] { return Quiet(); }));
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() <= before; })) << OpenDescriptors();
  EXPECT_FALSE(LocalClient(path()).Register(memory).empty());
}

TEST_F(LocalSocketTest, BoundsItsConnections) {
  Listen({.max_connections = 4, .hello = std::chrono::minutes(1)});
  std::vector<std::unique_ptr<LocalClient>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<LocalClient>(path()));
  LocalClient refused(path(), std::nullopt);
  EXPECT_EQ(ReasonOf(refused.Hello("")), "TOO_MANY_CONNECTIONS");
  EXPECT_NE(h_.metrics.Serialize().find("spaid_local_connections 4"), std::string::npos);
  clients.pop_back();
  EXPECT_TRUE(Eventually([&] {
    LocalClient again(path(), std::nullopt);
    return again.Hello("").has_welcome();
  }));
}

TEST_F(LocalSocketTest, HangsUpOnTheSilent) {
  Listen({.hello = milliseconds(50)});
  const LocalClient silent(path(), std::nullopt), greeted(path());
  EXPECT_FALSE(silent.Receive());
  const Memory memory(4096);
  EXPECT_FALSE(greeted.Register(memory).empty());
}

// In a process of another user; what it was told.
std::string ReasonForUser(uid_t uid, const std::string& path) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    if (setgroups(0, nullptr) != 0 || setgid(uid) != 0 || setuid(uid) != 0) _exit(1);
    const LocalClient client(path, std::nullopt);
    std::string reason = "cannot connect";
    if (client.connected()) {
      const v1::LocalReply reply = client.Hello("");
      reason = reply.has_welcome() ? "tenant " + reply.welcome().tenant() : ReasonOf(reply);
    }
    (void)!write(ends[1], reason.data(), reason.size());
    _exit(0);
  }
  close(ends[1]);
  char text[100] = {};
  (void)!read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

TEST_F(LocalSocketTest, IsForTheUsersItNames) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to become other users";
  constexpr uid_t kListed = 12'345, kNobody = 65'534;
  Listen({.uids = {kListed}, .tenants = {{kListed, "alice"}}});
  chmod(folder_.c_str(), 0755);
  EXPECT_EQ(ReasonForUser(kListed, path()), "cannot connect") << "the file's mode comes first";
  chmod(path().c_str(), 0666);
  EXPECT_EQ(ReasonForUser(kListed, path()), "tenant alice");
  EXPECT_EQ(ReasonForUser(kNobody, path()), "PEER_REFUSED");
  EXPECT_EQ(ReasonForUser(0, path()), "tenant default");
  EXPECT_NE(h_.metrics.Serialize().find("spaid_local_refused_total{reason=\"PEER_REFUSED\"} 1"),
            std::string::npos);
}

TEST(LocalTenants, AreThoseOfCallers) {
  Harness h({.backend = Harness::SmallBackend(), .tokens = std::string(kToken) + " alice\n"});
  const auto folder = std::filesystem::temp_directory_path() / RandomId();
  std::filesystem::create_directory(folder);
  const std::string path = (folder / "local").string();
  const auto answer = [&](const std::map<uid_t, std::string>& tenants, const std::string& token) {
    auto local = LocalSocket::Listen({.path = path, .tenants = tenants}, h.backend.get());
    EXPECT_TRUE(local.ok()) << local.status();
    const LocalClient client(path, std::nullopt);
    const v1::LocalReply reply = client.Hello(token);
    return reply.has_welcome() ? "tenant " + reply.welcome().tenant() : ReasonOf(reply);
  };
  EXPECT_EQ(answer({}, ""), "NO_CREDENTIALS");
  EXPECT_EQ(answer({}, kToken), "tenant alice");
  EXPECT_EQ(answer({{geteuid(), "bob"}}, ""), "tenant bob");
  EXPECT_EQ(answer({{geteuid(), "bob"}}, kToken), "tenant alice");
  EXPECT_EQ(answer({{geteuid(), "bob"}}, "another-token-of-16"), "BAD_TOKEN");
  std::filesystem::remove_all(folder);
}

TEST_F(LocalSocketTest, ShowsWhatItHolds) {
  const SharedMatrix a(DiagonalMatrix(100));
  const LocalClient client(path());
  ASSERT_TRUE(Upload(a, client.Register(a.memory)).status.ok());
  h_.backend->SetGauges();
  const std::string metrics = h_.metrics.Serialize();
  for (const char* line : {"spaid_local_segments 1\n", "spaid_local_segments_limit 16\n",
                           "spaid_local_connections 1\n", "spaid_local_connections_limit 64\n",
                           "spaid_buffer_limit_bytes{buffer=\"segments\"} 67108864\n",
                           "spaid_local_array_bytes_total{direction=\"read\"} 2008\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace spaid::server
