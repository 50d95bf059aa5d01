// Leases of memory that clients share: what is taken for it, whose it is, and how much.
#include "server/rpc/segments.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "tests/server/rpc/local_client.h"

namespace spaid::server {
namespace {

Descriptor Copy(int fd) { return Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

v1::ArraySegment Named(v1::ArraySegment segment, const std::string& lease) {
  segment.set_lease(lease);
  return segment;
}

class SegmentsTest : public ::testing::Test {
 protected:
  std::string Lease(const Memory& memory, const std::string& tenant = "alice") {
    const auto lease = segments_.Lease(tenant, Copy(memory.fd()), memory.bytes());
    EXPECT_TRUE(lease.ok()) << lease.status();
    return lease.value_or("");
  }
  absl::Status WhyNot(int fd, int64_t bytes) {
    return segments_.Lease("alice", Copy(fd), bytes).status();
  }

  Segments segments_{{.max_bytes = 1 << 20, .max_segments = 8}};
};

TEST_F(SegmentsTest, AreReadInPiecesOfWholeElements) {
  std::vector<int32_t> indices(100'001);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(i);
  Memory memory(500'000);
  memory.Place(v1::ARRAY_KIND_VALUES, 24);
  const auto segment = Named(memory.Put(v1::ARRAY_KIND_INDICES, indices), Lease(memory));
  auto reader = segments_.Read("alice", segment, v1::VALUE_TYPE_FLOAT64);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<int32_t> read;
  ChunkView piece;
  for (auto more = (*reader)->Next(&piece); *more; more = (*reader)->Next(&piece)) {
    ASSERT_TRUE(more.ok());
    EXPECT_EQ(piece.array, v1::ARRAY_KIND_INDICES);
    EXPECT_EQ(piece.offset, static_cast<int64_t>(read.size()));
    const size_t before = read.size();
    read.resize(before + static_cast<size_t>(piece.bytes) / 4);
    ASSERT_TRUE(piece.read(reinterpret_cast<char*>(read.data() + before)).ok());
  }
  EXPECT_EQ(read, indices);
}

TEST_F(SegmentsTest, CountFloatsAndLaterParts) {
  Memory memory(4096);
  v1::ArraySegment segment =
      Named(memory.Put(v1::ARRAY_KIND_VALUES, std::vector<float>{1, 2, 3, 4}), Lease(memory));
  segment.set_start(7);
  ChunkView piece;
  auto reader = segments_.Read("alice", segment, v1::VALUE_TYPE_FLOAT32);
  ASSERT_TRUE(reader.ok() && *(*reader)->Next(&piece));
  EXPECT_EQ(piece.offset, 7);
  EXPECT_EQ(piece.bytes, 16);
  ASSERT_EQ(piece.pieces.size(), 1u) << "to be widened";
  EXPECT_EQ(reinterpret_cast<const float*>(piece.pieces[0].data())[3], 4);
  EXPECT_FALSE(*(*reader)->Next(&piece));
}

TEST_F(SegmentsTest, AreWrittenInPlace) {
  Memory memory(4096);
  const auto place = Named(memory.Place(v1::ARRAY_KIND_SOLUTION, 16), Lease(memory));
  const auto found = segments_.Find("alice", place, "place");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->segment->writable());
  ASSERT_TRUE(found->segment->Write(8, {"abc", 3}).ok());
  EXPECT_EQ(std::string(memory.at(8), 3), "abc");
}

TEST_F(SegmentsTest, AreOneTenantsAlone) {
  Memory memory(4096);
  const auto segment = Named(memory.Place(v1::ARRAY_KIND_RHS, 8), Lease(memory));
  const auto other = segments_.Find("bob", segment, "segment");
  const auto never = segments_.Find("bob", Named(segment, "leases/never"), "segment");
  EXPECT_EQ(ReasonOf(other.status()), "LEASE_UNKNOWN");
  EXPECT_EQ(FieldOf(other.status()), "segment.lease");
  EXPECT_EQ(other.status(), never.status()) << "nobody can tell one from the other";
  EXPECT_TRUE(segments_.Find("alice", segment, "segment").ok());
}

TEST_F(SegmentsTest, LiveWhileSomebodyUsesThem) {
  Memory memory(4096);
  const std::string lease = Lease(memory);
  const auto segment = Named(memory.Put(v1::ARRAY_KIND_RHS, std::vector<double>{3}), lease);
  auto reader = segments_.Read("alice", segment, {});
  segments_.Release(lease);
  segments_.Release(lease);
  EXPECT_EQ(ReasonOf(segments_.Find("alice", segment, "segment").status()), "LEASE_UNKNOWN");
  EXPECT_EQ(segments_.stats().leases, 0);
  EXPECT_EQ(segments_.stats().bytes, 4096) << "of the reader";
  ChunkView piece;
  EXPECT_TRUE(*(*reader)->Next(&piece));
  reader->reset();
  EXPECT_EQ(segments_.stats().bytes, 0);
  EXPECT_EQ(segments_.stats().segments, 0);
}

TEST_F(SegmentsTest, OfWhatCanBeCutAreRefused) {
  for (const unsigned seals : {0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE}) {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(fd, 4096), 0);
    ASSERT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    const absl::Status why = WhyNot(fd, 4096);
    EXPECT_EQ(ReasonOf(why), "BAD_SEGMENT");
    EXPECT_NE(why.message().find("F_SEAL_SHRINK"), std::string::npos) << why;
    close(fd);
  }
}

TEST_F(SegmentsTest, OfAnythingButMemoryAreRefused) {
  const auto refused = [&](int fd, const char* what) {
    ASSERT_GE(fd, 0) << what;
    EXPECT_EQ(ReasonOf(WhyNot(fd, 4096)), "BAD_SEGMENT") << what;
    close(fd);
  };
  FILE* const file = std::tmpfile();
  ASSERT_EQ(ftruncate(fileno(file), 4096), 0);
  refused(dup(fileno(file)), "a file");
  std::fclose(file);
  refused(open("/dev/shm", O_TMPFILE | O_RDWR, 0600), "a file of a tmpfs");
  refused(open("/dev/zero", O_RDWR), "a device");
  refused(socket(AF_UNIX, SOCK_STREAM, 0), "a socket");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  refused(ends[0], "a pipe");
  close(ends[1]);
  Memory memory(4096);
  const std::string path = "/proc/self/fd/" + std::to_string(memory.fd());
  refused(open(path.c_str(), O_PATH), "a path");
  refused(open(path.c_str(), O_WRONLY), "memory that cannot be read");
  const int huge = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
  if (huge >= 0) {
    ASSERT_EQ(ftruncate(huge, 2 << 20), 0);
    ASSERT_EQ(fcntl(huge, F_ADD_SEALS, Memory::kSeals), 0);
    EXPECT_EQ(ReasonOf(WhyNot(huge, 2 << 20)), "BAD_SEGMENT");
    close(huge);
  }
  EXPECT_EQ(ReasonOf(WhyNot(memory.fd(), 4095)), "BAD_SEGMENT") << "of another size";
  EXPECT_EQ(ReasonOf(WhyNot(memory.fd(), -1)), "BAD_SEGMENT");
  EXPECT_EQ(segments_.stats().segments, 0);
}

TEST_F(SegmentsTest, ThatCanOnlyBeReadAreReadAlone) {
  Memory memory(4096);
  memory.Unmap();
  ASSERT_EQ(fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  const Memory other(4096);
  const Descriptor again(
      open(("/proc/self/fd/" + std::to_string(other.fd())).c_str(), O_RDONLY | O_CLOEXEC));
  for (const int fd : {memory.fd(), again.get()}) {
    const auto lease = segments_.Lease("alice", Copy(fd), 4096);
    ASSERT_TRUE(lease.ok()) << lease.status();
    v1::ArraySegment segment;
    segment.set_lease(*lease);
    segment.set_bytes(8);
    const auto found = segments_.Find("alice", segment, "segment");
    ASSERT_TRUE(found.ok());
    char bytes[8];
    EXPECT_TRUE(found->segment->Read(0, bytes).ok());
    EXPECT_FALSE(found->segment->writable());
    EXPECT_EQ(ReasonOf(found->segment->Write(0, bytes)), "BAD_SEGMENT");
  }
}

TEST_F(SegmentsTest, HaveNothingOutside) {
  Memory memory(4096);
  const std::string lease = Lease(memory);
  const auto why = [&](int64_t offset, int64_t bytes) {
    v1::ArraySegment segment;
    segment.set_lease(lease);
    segment.set_offset(offset);
    segment.set_bytes(bytes);
    const auto found = segments_.Find("alice", segment, "segment");
    EXPECT_TRUE(found.ok() || ReasonOf(found.status()) == "BAD_SEGMENT") << found.status();
    return FieldOf(found.status());
  };
  EXPECT_EQ(why(0, 4096), "");
  EXPECT_EQ(why(4088, 8), "");
  EXPECT_EQ(why(4088, 16), "segment.bytes");
  EXPECT_EQ(why(4096, 8), "segment.bytes");
  EXPECT_EQ(why(0, 0), "segment.bytes");
  EXPECT_EQ(why(0, -8), "segment.bytes");
  EXPECT_EQ(why(8, INT64_MAX), "segment.bytes");
  EXPECT_EQ(why(-8, 8), "segment.offset");
  EXPECT_EQ(why(4, 8), "segment.offset");
  EXPECT_EQ(why(INT64_MAX - 7, 8), "segment.offset");
}

TEST_F(SegmentsTest, AreBounded) {
  const Memory large((1 << 20) + 1), all(1 << 20), small(4096);
  EXPECT_EQ(ReasonOf(WhyNot(large.fd(), large.bytes())), "SEGMENTS_FULL");
  const std::string lease = Lease(all);
  const absl::Status full = WhyNot(small.fd(), small.bytes());
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(MetaOf(full, "limit"), "1048576");
  EXPECT_NE(full.message().find("--local-bytes"), std::string::npos) << full;
  segments_.Release(lease);
  std::vector<std::string> leases;
  for (int i = 0; i < 7; ++i) leases.push_back(Lease(small));
  // The last eighth is for tenants with less than their share.
  Lease(small, "bob");
  const absl::Status many = WhyNot(small.fd(), small.bytes());
  EXPECT_EQ(ReasonOf(many), "SEGMENTS_FULL");
  EXPECT_NE(many.message().find("--local-segments"), std::string::npos) << many;
  segments_.Release(leases[0]);
  EXPECT_EQ(segments_.stats().segments, 7);
}

TEST(SegmentsOfOneTenant, AreBoundedByThemselves) {
  Segments segments({.max_bytes = 1 << 20,
                     .max_segments = 8,
                     .max_bytes_per_tenant = 8192,
                     .max_segments_per_tenant = 2});
  const Memory large(12'288), page(4096), half(2048);
  const auto lease = [&](const char* tenant, const Memory& memory) {
    return ReasonOf(segments.Lease(tenant, Copy(memory.fd()), memory.bytes()).status());
  };
  EXPECT_EQ(lease("alice", large), "SEGMENTS_FULL");
  EXPECT_EQ(lease("alice", page), "");
  EXPECT_EQ(lease("alice", half), "");
  EXPECT_EQ(lease("alice", half), "SEGMENTS_FULL") << "a third one";
  EXPECT_EQ(lease("bob", page), "");
}

}  // namespace
}  // namespace spaid::server
