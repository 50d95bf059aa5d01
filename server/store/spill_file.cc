#include "server/store/spill_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "server/base/checksum.h"

namespace spaid::server {
namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr char kMagic[8] = {'S', 'P', 'A', 'I', 'D', 'S', 'P', 'L'};

struct Header {
  char magic[8];
  uint32_t version, kind;
  std::array<uint8_t, 32> name;
  uint32_t arrays, unused;
  uint64_t sizes[kMaxSpillArrays];
  uint64_t sum;  // of all before it

  uint64_t Sum() const { return Checksum(this, offsetof(Header, sum)); }
};
static_assert(sizeof(Header) == 128 && std::has_unique_object_representations_v<Header>);

int64_t FileBytes(std::span<const uint64_t> sizes) {
  uint64_t bytes = sizeof(Header);
  for (const uint64_t size : sizes) {
    bytes += size + (size + kBlock - 1) / kBlock * sizeof(uint64_t);
  }
  return static_cast<int64_t>(bytes);
}

uint64_t SeedOf(uint64_t file, size_t array, size_t block) {
  return file + (static_cast<uint64_t>(array) << 48) + static_cast<uint64_t>(block);
}

absl::Status Failed(std::string_view step, int why) {
  const std::string text = absl::StrCat(std::string(step), ": ", std::strerror(why));
  const bool full = why == ENOSPC || why == EDQUOT || why == EFBIG || why == EMFILE ||
                    why == ENFILE || why == ENOMEM;
  return full ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

absl::Status Damaged(std::string_view what) { return absl::DataLossError(std::string(what)); }

// 0, or an errno.
int WriteAll(int fd, std::array<iovec, 2> pieces) {
  while (pieces[0].iov_len + pieces[1].iov_len > 0) {
    const ssize_t written = writev(fd, pieces.data(), 2);
    if (written < 0 && errno != EINTR) return errno;
    auto done = static_cast<size_t>(std::max<ssize_t>(written, 0));
    for (iovec& piece : pieces) {
      const size_t part = std::min(done, piece.iov_len);
      piece = {static_cast<char*>(piece.iov_base) + part, piece.iov_len - part};
      done -= part;
    }
  }
  return 0;
}

// False: the file ends before, or cannot be read.
bool ReadAll(int fd, std::array<iovec, 2> pieces) {
  while (pieces[0].iov_len + pieces[1].iov_len > 0) {
    const ssize_t read = readv(fd, pieces.data(), 2);
    if (read == 0 || (read < 0 && errno != EINTR)) return false;
    auto done = static_cast<size_t>(std::max<ssize_t>(read, 0));
    for (iovec& piece : pieces) {
      const size_t part = std::min(done, piece.iov_len);
      piece = {static_cast<char*>(piece.iov_base) + part, piece.iov_len - part};
      done -= part;
    }
  }
  return true;
}

absl::Status WriteArray(int fd, uint64_t seed, size_t number, const SpillArray& array,
                        const SpillStep& step) {
  std::vector<std::byte> brought;
  const auto size = static_cast<size_t>(array.size);
  for (size_t first = 0, block = 0; first < size; first += kBlock, ++block) {
    if (const int why = step ? step("write") : 0; why != 0) return Failed("write", why);
    const size_t bytes = std::min(kBlock, size - first);
    std::span<const std::byte> piece;
    if (array.bring) {
      brought.resize(bytes);
      if (absl::Status status = array.bring(brought); !status.ok()) return status;
      piece = brought;
    } else {
      piece = array.here.subspan(first, bytes);
    }
    uint64_t sum = Checksum(piece.data(), piece.size(), SeedOf(seed, number, block));
    auto* const data = const_cast<std::byte*>(piece.data());  // writev only reads it
    if (const int why = WriteAll(fd, {iovec{data, piece.size()}, iovec{&sum, sizeof sum}})) {
      return Failed("write", why);
    }
  }
  return absl::OkStatus();
}

absl::Status WriteOpened(int fd, Header header, const SpillArrays& arrays, SpillSync sync,
                         const SpillStep& step) {
  if (const int why = step ? step("header") : 0; why != 0) return Failed("header", why);
  if (const int why = WriteAll(fd, {iovec{&header, sizeof header}, iovec{}})) {
    return Failed("header", why);
  }
  for (size_t a = 0; a < arrays.size(); ++a) {
    if (absl::Status status = WriteArray(fd, header.sum, a, arrays[a], step); !status.ok()) {
      return status;
    }
  }
  if (sync == SpillSync::kNone) return absl::OkStatus();
  if (const int why = step ? step("sync") : 0; why != 0) return Failed("sync", why);
  const int synced = sync == SpillSync::kFull ? fsync(fd) : fdatasync(fd);
  return synced == 0 ? absl::OkStatus() : Failed("sync", errno);
}

}  // namespace

int64_t SpillFileBytes(const SpillArrays& arrays) {
  std::vector<uint64_t> sizes;
  for (const SpillArray& array : arrays) sizes.push_back(static_cast<uint64_t>(array.size));
  return FileBytes(sizes);
}

absl::Status WriteSpillFile(int folder, const std::string& file, SpillKind kind, const Sha256& name,
                            const SpillArrays& arrays, SpillSync sync, const SpillStep& step) {
  Header header{};
  std::copy_n(kMagic, sizeof kMagic, header.magic);
  header.version = kSpillFileVersion;
  header.kind = static_cast<uint32_t>(kind);
  header.name = name.bytes;
  header.arrays = static_cast<uint32_t>(arrays.size());
  for (size_t a = 0; a < arrays.size(); ++a)
    header.sizes[a] = static_cast<uint64_t>(arrays[a].size);
  header.sum = header.Sum();
  // Nobody sees it by its name before it is whole.
  const std::string partial = file + ".part";
  if (const int why = step ? step("create") : 0; why != 0) return Failed("create", why);
  Descriptor opened(
      openat(folder, partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!opened.open()) return Failed("create", errno);
  absl::Status status = WriteOpened(opened.get(), header, arrays, sync, step);
  if (status.ok()) {
    int why = step ? step("rename") : 0;
    if (why == 0 && renameat(folder, partial.c_str(), folder, file.c_str()) != 0) why = errno;
    if (why != 0) status = Failed("rename", why);
  }
  if (!status.ok()) unlinkat(folder, partial.c_str(), 0);
  return status;
}

absl::StatusOr<SpillReader> SpillReader::Open(int folder, const std::string& file, SpillKind kind,
                                              const Sha256& name) {
  SpillReader reader;
  reader.file_ =
      Descriptor(openat(folder, file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!reader.file_.open()) {
    const int why = errno;
    if (why == EMFILE || why == ENFILE || why == ENOMEM) return Failed("open", why);
    return Damaged(std::strerror(why));
  }
  struct stat there = {};
  if (fstat(reader.file_.get(), &there) != 0 || !S_ISREG(there.st_mode)) {
    return Damaged("it is no file");
  }
  Header header;
  if (!ReadAll(reader.file_.get(), {iovec{&header, sizeof header}, iovec{}})) {
    return Damaged("it ends in its header");
  }
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return Damaged("it is no such file");
  if (header.version != kSpillFileVersion) {
    return Damaged(absl::StrCat("it is of version ", header.version, "; this daemon reads ",
                                kSpillFileVersion));
  }
  if (header.sum != header.Sum()) return Damaged("its header is damaged");
  if (header.name != name.bytes || header.kind != static_cast<uint32_t>(kind)) {
    return Damaged("it is another one, by this name");
  }
  if (header.arrays > kMaxSpillArrays) return Damaged("its header is damaged");
  reader.arrays_ = header.arrays;
  for (size_t a = 0; a < reader.arrays_; ++a) {
    // The size of a file bounds its arrays, whatever the header says.
    if (header.sizes[a] > static_cast<uint64_t>(there.st_size)) return Damaged("it is cut short");
    reader.sizes_[a] = static_cast<int64_t>(header.sizes[a]);
  }
  if (FileBytes({header.sizes, header.arrays}) != there.st_size) {
    return Damaged("its size is not what its header says");
  }
  reader.seed_ = header.sum;
  return reader;
}

absl::Status SpillReader::Block(size_t array, size_t block, std::span<std::byte> piece) {
  uint64_t sum = 0;
  if (!ReadAll(file_.get(), {iovec{piece.data(), piece.size()}, iovec{&sum, sizeof sum}})) {
    return Damaged("it is cut short, or cannot be read");
  }
  if (sum != Checksum(piece.data(), piece.size(), SeedOf(seed_, array, block))) {
    return Damaged(absl::StrCat("its array ", array, " is damaged, at block ", block));
  }
  return absl::OkStatus();
}

absl::Status SpillReader::Next(std::span<std::byte> to) {
  const size_t array = next_++;
  if (array >= arrays_ || to.size() != static_cast<size_t>(sizes_[array])) {
    return Damaged("its arrays are not those of its kind");
  }
  for (size_t block = 0; !to.empty(); ++block) {
    const auto piece = to.first(std::min(kBlock, to.size()));
    to = to.subspan(piece.size());
    if (absl::Status status = Block(array, block, piece); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SpillReader::Next(Take take) {
  const size_t array = next_++;
  if (array >= arrays_) return Damaged("its arrays are not those of its kind");
  const auto size = static_cast<size_t>(sizes_[array]);
  std::vector<std::byte> piece;
  for (size_t first = 0, block = 0; first < size; first += kBlock, ++block) {
    piece.resize(std::min(kBlock, size - first));
    absl::Status status = Block(array, block, piece);
    if (status.ok()) status = take(piece);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace spaid::server
