#include "server/rpc/segments.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/ids.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

// A copied piece is looked at next, so it should still be in the second-level cache.
constexpr int64_t kPieceBytes = 256 << 10;
constexpr int64_t kAlign = 8;
enum : size_t { kBytes, kCount };  // the resources of the shares

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

ErrorBuilder Bad(const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadSegment, what);
}

// Looks at nothing but the seals first: to other questions a file of a foreign file system may take
// its time to answer.
absl::Status CheckMemory(int fd, int64_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct statfs system {};
  if (seals < 0 || fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return Bad(
        "the descriptor is no memfd of ordinary pages; make it by memfd_create with "
        "MFD_ALLOW_SEALING, without MFD_HUGETLB");
  }
  if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
    return Bad("the memfd can still be cut: add the seals F_SEAL_SHRINK and F_SEAL_GROW first");
  }
  struct stat file {};
  if (fstat(fd, &file) != 0 || bytes < 1 || file.st_size != bytes) {
    return Bad(absl::StrCat("the memfd has ", file.st_size, " bytes and the message says ", bytes,
                            "; they must be the same, and not 0"))
        .Field("segment.bytes")
        .Meta("actual", file.st_size);
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY) {
    return Bad("the memfd was opened for writing alone; send a descriptor that can be read");
  }
  return absl::OkStatus();
}

absl::Status TakenAway(const char* what, int error) {
  return Bad(absl::StrCat("a segment can no longer be ", what, " (", std::strerror(error),
                          "); leave it as it is until the call has ended"));
}

}  // namespace

// Outlives Segments where calls still use some.
struct Segment::Room {
  explicit Room(const SegmentLimits& limits, ShareRules rules)
      : shares({.limits = {limits.max_bytes, limits.max_segments}, .rules = std::move(rules)}) {}
  std::mutex mutex;
  TenantShares shares;  // guarded by mutex
};

Segment::Taken::~Taken() {
  if (room_ == nullptr) return;  // moved away
  const std::lock_guard lock(room_->mutex);
  room_->shares.Add(account_, -bytes_, kBytes);
  room_->shares.Add(account_, -1, kCount);
  room_->shares.Leave(account_);
}

bool Segment::writable() const {
  const int seals = fcntl(memfd_.get(), F_GET_SEALS), flags = fcntl(memfd_.get(), F_GETFL);
  return seals >= 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0 && flags >= 0 &&
         (flags & O_ACCMODE) == O_RDWR;
}

absl::Status Segment::Read(int64_t offset, std::span<char> to) const {
  while (!to.empty()) {
    const ssize_t got = pread(memfd_.get(), to.data(), to.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return TakenAway("read", got < 0 ? errno : ENODATA);
    to = to.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return absl::OkStatus();
}

absl::Status Segment::Write(int64_t offset, std::span<const char> from) const {
  while (!from.empty()) {
    const ssize_t put = pwrite(memfd_.get(), from.data(), from.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return TakenAway("written", put < 0 ? errno : ENOSPC);
    from = from.subspan(static_cast<size_t>(put));
    offset += put;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> SegmentReader::Next(ChunkView* piece) {
  if (range_.bytes == 0) return false;
  const int64_t bytes = std::min(range_.bytes, kPieceBytes), offset = range_.offset;
  *piece = ChunkView();
  piece->array = array_;
  piece->offset = at_;
  piece->bytes = bytes;
  const auto size = static_cast<size_t>(bytes);
  if (array_ == v1::ARRAY_KIND_VALUES && element_bytes_ == 4) {
    if (buffer_.empty()) buffer_.resize(size);
    const std::span<char> to = std::span(buffer_).first(size);
    RETURN_IF_ERROR(range_.segment->Read(offset, to));
    piece->pieces.emplace_back(to.data(), to.size());
  } else {
    piece->read = [segment = range_.segment.get(), offset, size](char* to) {
      return segment->Read(offset, {to, size});
    };
  }
  range_.offset += bytes;
  range_.bytes -= bytes;
  at_ += bytes / element_bytes_;
  return true;
}

Segments::Segments(SegmentLimits limits, ShareRules shares)
    : limits_(limits), room_(std::make_shared<Segment::Room>(limits, std::move(shares))) {}

absl::StatusOr<Segment::Taken> Segments::Take(const std::string& tenant, int64_t bytes) {
  const std::lock_guard lock(room_->mutex);
  TenantShares& shares = room_->shares;
  const TenantShares::Account account = shares.Join(tenant);
  const auto over = [&](size_t of, int64_t more, int64_t own_limit) {
    const int64_t used = shares.UsedBy(account, of);
    return more > shares.limit(of) || (own_limit > 0 && more > own_limit - used) ||
           !shares.Admits(account, more, used == 0, of);
  };
  const bool bytes_over = over(kBytes, bytes, limits_.max_bytes_per_tenant);
  if (!bytes_over && !over(kCount, 1, limits_.max_segments_per_tenant)) {
    shares.Add(account, bytes, kBytes);
    shares.Add(account, 1, kCount);
    return Segment::Taken(room_, account, bytes);
  }
  const size_t of = bytes_over ? kBytes : kCount;
  const int64_t own = shares.UsedBy(account, of), more = bytes_over ? bytes : 1;
  const int64_t limit = shares.limit(of);
  shares.Leave(account);
  return MakeError(absl::StatusCode::kResourceExhausted, reason::kSegmentsFull,
                   absl::StrCat("this tenant has ", own, bytes_over ? " bytes of" : "",
                                " segments, and ", more, " more cannot be had: all tenants have ",
                                limit, bytes_over ? " (--local-bytes" : " (--local-segments",
                                "), one a part of that; release some, or send chunks"))
      .Meta("actual", own + more)
      .Meta("limit", limit);
}

absl::StatusOr<std::string> Segments::Lease(const std::string& tenant, Descriptor memfd,
                                            int64_t bytes) {
  RETURN_IF_ERROR(CheckMemory(memfd.get(), bytes));
  ASSIGN_OR_RETURN(Segment::Taken taken, Take(tenant, bytes));
  const std::shared_ptr<const Segment> segment(
      new Segment(std::move(memfd), bytes, std::move(taken)));
  std::string lease = absl::StrCat("leases/", RandomId());
  const std::lock_guard lock(mutex_);
  leases_[lease] = {tenant, segment};
  return lease;
}

void Segments::Release(const std::string& lease) {
  std::shared_ptr<const Segment> segment;  // dies without the lock
  const std::lock_guard lock(mutex_);
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  segment = std::move(found->second.segment);
  leases_.erase(found);
}

absl::StatusOr<SegmentRange> Segments::Find(const std::string& tenant,
                                            const v1::ArraySegment& segment,
                                            std::string_view field) const {
  SegmentRange range{.segment = nullptr, .offset = segment.offset(), .bytes = segment.bytes()};
  {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(segment.lease());
    if (found != leases_.end() && found->second.tenant == tenant) {
      range.segment = found->second.segment;
    }
  }
  if (range.segment == nullptr) {
    return MakeError(absl::StatusCode::kNotFound, reason::kLeaseUnknown,
                     "this tenant has no such lease; it ends with the connection to "
                     "--local-socket that asked for it: register the memory again, or send chunks")
        .Field(absl::StrCat(View(field), ".lease"));
  }
  const int64_t size = range.segment->bytes();
  if (range.offset < 0 || range.offset % kAlign != 0 || range.offset > size) {
    return Bad(absl::StrCat("the offset ", range.offset, " is not a multiple of ", kAlign,
                            " in a segment of ", size, " bytes"))
        .Field(absl::StrCat(View(field), ".offset"));
  }
  if (range.bytes < 1 || range.bytes > size - range.offset) {
    return Bad(absl::StrCat(range.bytes, " bytes from ", range.offset,
                            " on are not inside a segment of ", size, " bytes"))
        .Field(absl::StrCat(View(field), ".bytes"));
  }
  return range;
}

absl::StatusOr<std::unique_ptr<SegmentReader>> Segments::Read(const std::string& tenant,
                                                              const v1::ArraySegment& segment,
                                                              v1::ValueType values) const {
  ASSIGN_OR_RETURN(SegmentRange range, Find(tenant, segment, "segment"));
  const v1::ArrayKind array = segment.array();
  const bool narrow = array == v1::ARRAY_KIND_INDICES ||
                      (array == v1::ARRAY_KIND_VALUES && values == v1::VALUE_TYPE_FLOAT32);
  return std::make_unique<SegmentReader>(std::move(range), array, segment.start(), narrow ? 4 : 8);
}

Segments::Stats Segments::stats() const {
  Stats stats;
  {
    const std::lock_guard lock(mutex_);
    stats.leases = static_cast<int64_t>(leases_.size());
  }
  const std::lock_guard lock(room_->mutex);
  stats.bytes = room_->shares.used(kBytes);
  stats.segments = room_->shares.used(kCount);
  return stats;
}

}  // namespace spaid::server
