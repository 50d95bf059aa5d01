#include "client/cpp/chunk_source.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <array>
#include <string>
#include <system_error>
#include <utility>

#include "client/cpp/arrays.h"

namespace spaid::internal {
namespace {

// With fewer cores the thread that sends, and who receives, want them all.
constexpr unsigned kCoresForAThread = 4;
constexpr int64_t kBytesForAThread = int64_t{8} << 20;
// With the one that is being made and the one that is being sent, as many as BufferPool keeps.
constexpr size_t kMaxMade = 2;

// The tag and the length of a field of `size` bytes.
void AppendLength(int field, size_t size, std::string& message) {
  constexpr uint32_t kLengthDelimited = 2;
  google::protobuf::io::StringOutputStream stream(&message);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(static_cast<uint32_t>(field) << 3 | kLengthDelimited);
  out.WriteVarint32(static_cast<uint32_t>(size));
}

}  // namespace

ChunkSource::ChunkSource(std::vector<OutgoingArray> arrays, int64_t chunk_bytes, bool checksums,
                         Ahead ahead)
    : arrays_(std::move(arrays)),
      asked_(arrays_.size()),
      chunk_bytes_(chunk_bytes / 8 * 8),
      checksums_(checksums),
      ahead_(ahead) {}

ChunkSource::~ChunkSource() {
  if (!maker_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  maker_.join();
}

void ChunkSource::WantAll() {
  for (const OutgoingArray& array : arrays_) Want(array.kind, 0, array.count());
}

bool ChunkSource::Want(v1::ArrayKind kind, int64_t offset, int64_t count) {
  const auto found = std::find_if(arrays_.begin(), arrays_.end(),
                                  [&](const OutgoingArray& array) { return array.kind == kind; });
  const auto array = static_cast<size_t>(found - arrays_.begin());
  if (found == arrays_.end() || offset < 0 || count < 0 || offset > found->count() ||
      count > found->count() - offset || count > found->count() - asked_[array]) {
    return false;
  }
  asked_[array] += count;
  if (count == 0) return true;
  {
    std::lock_guard lock(mutex_);
    wanted_.push_back({array, offset, count});
  }
  changed_.notify_all();
  total_bytes_ += count * static_cast<int64_t>(found->element_size);
  return true;
}

grpc::ByteBuffer ChunkSource::Next(int field) {
  if (ahead_ == Ahead::kAlways ||
      (ahead_ == Ahead::kWhereItPays && total_bytes_ >= kBytesForAThread &&
       std::thread::hardware_concurrency() >= kCoresForAThread)) {
    ahead_ = Ahead::kNever;  // begun, or not to be had
    try {
      maker_ = std::thread(&ChunkSource::MakeAhead, this, field);
    } catch (const std::system_error&) {
    }
  }
  std::unique_lock lock(mutex_);
  if (!maker_.joinable()) {
    const Range range = TakeRange();
    lock.unlock();
    Made made = Make(range, field);
    sent_bytes_ += made.bytes;
    return std::move(made.message);
  }
  changed_.wait(lock, [this] { return !made_.empty() || error_; });
  if (made_.empty()) std::rethrow_exception(error_);
  Made made = std::move(made_.front());
  made_.pop_front();
  lock.unlock();
  changed_.notify_all();
  sent_bytes_ += made.bytes;
  return std::move(made.message);
}

void ChunkSource::MakeAhead(int field) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || (!wanted_.empty() && made_.size() < kMaxMade); });
    if (stop_) return;
    const Range range = TakeRange();
    lock.unlock();
    Made made;
    std::exception_ptr error;
    try {
      made = Make(range, field);
    } catch (...) {  // no memory: for the caller of Next to know
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
    } else {
      made_.push_back(std::move(made));
    }
    changed_.notify_all();
    if (error) return;
  }
}

ChunkSource::Range ChunkSource::TakeRange() {
  Range& first = wanted_.front();
  const auto element = static_cast<int64_t>(arrays_[first.array].element_size);
  const Range range{first.array, first.offset, std::min(first.count, chunk_bytes_ / element)};
  first.offset += range.count;
  first.count -= range.count;
  if (first.count == 0) wanted_.pop_front();
  return range;
}

ChunkSource::Made ChunkSource::Make(const Range& range, int field) {
  const OutgoingArray& array = arrays_[range.array];
  const auto bytes = array.bytes.subspan(static_cast<size_t>(range.offset) * array.element_size,
                                         static_cast<size_t>(range.count) * array.element_size);
  uint32_t crc = 0;
  const grpc::Slice data = buffers_.Copy(bytes, [&](std::span<const std::byte> piece) {
    if (checksums_) crc = Crc32(piece, crc);
  });
  // Serialized messages behind one another are one message: what stands before and behind the data
  // is protobuf's own work.
  v1::ArrayChunk before, behind;
  before.set_array(array.kind);
  before.set_offset(range.offset);
  if (checksums_) behind.set_crc32(crc);
  std::string head = before.SerializeAsString();
  AppendLength(v1::ArrayChunk::kDataFieldNumber, data.size(), head);
  const std::string tail = behind.SerializeAsString();
  std::string message;
  AppendLength(field, head.size() + data.size() + tail.size(), message);
  message += head;
  const std::array<grpc::Slice, 3> slices{grpc::Slice(message), data, grpc::Slice(tail)};
  return {grpc::ByteBuffer(slices.data(), tail.empty() ? 2 : 3),
          static_cast<int64_t>(bytes.size())};
}

}  // namespace spaid::internal
