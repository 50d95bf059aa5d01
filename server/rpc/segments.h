// Memory that clients on this host share with the daemon: sealed memfds, each under a lease, which
// calls name in place of chunks (v1::ArraySegment).
//
//   ASSIGN_OR_RETURN(const std::string lease, segments.Lease(tenant, std::move(memfd), bytes));
//   ASSIGN_OR_RETURN(auto reader, segments.Read(tenant, array_segment, v1::VALUE_TYPE_FLOAT64));
//   ChunkView piece;
//   while (*reader->Next(&piece)) Take(piece);
//
// The client may change the memory at any time. So it is never mapped here: it is read and written
// by system calls, and what is checked is the copy. That cannot end in SIGBUS, leaves holes that
// nobody has written without memory, and needs neither address space nor page faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/descriptor.h"
#include "server/base/tenant_shares.h"
#include "server/rpc/chunk_view.h"
#include "spaid/v1/arrays.pb.h"

namespace spaid::server {

struct SegmentLimits {
  int64_t max_bytes = int64_t{1} << 30;  // of all segments
  int64_t max_segments = 256;            // each takes a descriptor
  // Limits of one tenant; 0: no limit of its own.
  int64_t max_bytes_per_tenant = 0, max_segments_per_tenant = 0;
};

// One client's memory. Lives while its lease does, or a call uses it. Thread-safe.
class Segment {
 public:
  int64_t bytes() const { return bytes_; }
  // Returns true unless the client has given it away for reading alone.
  bool writable() const;
  // Copy at byte `offset`; all of it is inside. INVALID_ARGUMENT/BAD_SEGMENT where the system
  // refuses: the client has taken the memory away.
  absl::Status Read(int64_t offset, std::span<char> to) const;
  absl::Status Write(int64_t offset, std::span<const char> from) const;

 private:
  friend class Segments;
  struct Room;
  // Places and bytes of the room, given back when it dies.
  class Taken {
   public:
    Taken(std::shared_ptr<Room> room, TenantShares::Account account, int64_t bytes)
        : room_(std::move(room)), account_(account), bytes_(bytes) {}
    Taken(Taken&&) = default;
    ~Taken();

   private:
    std::shared_ptr<Room> room_;
    TenantShares::Account account_;
    int64_t bytes_;
  };
  Segment(Descriptor memfd, int64_t bytes, Taken taken)
      : taken_(std::move(taken)), memfd_(std::move(memfd)), bytes_(bytes) {}

  const Taken taken_;
  const Descriptor memfd_;  // closed before its place is free
  const int64_t bytes_;
};

// A part of a segment, which it keeps.
struct SegmentRange {
  std::shared_ptr<const Segment> segment;
  int64_t offset = 0, bytes = 0;
};

// Reads an array from a segment, in pieces: those of float32 from a buffer of its own, for they are
// widened; others straight to their place (ChunkView::read). Used by one thread at a time.
class SegmentReader {
 public:
  // `start`, in elements: that of the range in its array.
  SegmentReader(SegmentRange range, v1::ArrayKind array, int64_t start, int64_t element_bytes)
      : range_(std::move(range)), array_(array), at_(start), element_bytes_(element_bytes) {}

  // Fills in the next piece, which is good until the next call; false: there is none. Errors, here
  // or when it is read: Segment::Read's.
  absl::StatusOr<bool> Next(ChunkView* piece);

 private:
  SegmentRange range_;  // what is left
  const v1::ArrayKind array_;
  int64_t at_;
  const int64_t element_bytes_;
  std::vector<char> buffer_;
};

// The leases. Thread-safe.
class Segments {
 public:
  explicit Segments(SegmentLimits limits, ShareRules shares = {});

  // Leases a client's memory. Returns the lease's name. Errors: INVALID_ARGUMENT/BAD_SEGMENT for
  // anything but a memfd of ordinary pages, of `bytes` bytes, that is sealed against shrinking and
  // growing, and can be read; RESOURCE_EXHAUSTED/SEGMENTS_FULL over a limit.
  absl::StatusOr<std::string> Lease(const std::string& tenant, Descriptor memfd, int64_t bytes);
  // Ends a lease. Calls that use the memory go on.
  void Release(const std::string& lease);

  // Returns the part of a tenant's segment that `segment` names. `field`: "segment". Errors:
  // NOT_FOUND/LEASE_UNKNOWN, of another tenant's lease too; INVALID_ARGUMENT/BAD_SEGMENT.
  absl::StatusOr<SegmentRange> Find(const std::string& tenant, const v1::ArraySegment& segment,
                                    std::string_view field) const;
  // The same, as an array that is to be read. `values`: the type that ARRAY_KIND_VALUES has.
  absl::StatusOr<std::unique_ptr<SegmentReader>> Read(const std::string& tenant,
                                                      const v1::ArraySegment& segment,
                                                      v1::ValueType values) const;

  // Counts what calls still use, too.
  struct Stats {
    int64_t segments = 0, bytes = 0, leases = 0;
  };
  Stats stats() const;
  const SegmentLimits& limits() const { return limits_; }

 private:
  struct Leased {
    std::string tenant;
    std::shared_ptr<const Segment> segment;
  };

  absl::StatusOr<Segment::Taken> Take(const std::string& tenant, int64_t bytes);

  const SegmentLimits limits_;
  const std::shared_ptr<Segment::Room> room_;
  mutable std::mutex mutex_;
  std::map<std::string, Leased, std::less<>> leases_;  // guarded by mutex_
};

}  // namespace spaid::server
