#include "client/cli/byte_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

namespace spaid::cli {
namespace {

// deflate cannot pack better than 1032 : 1 (zlib's technical details).
constexpr int64_t kMaxDeflateRatio = 1032;

std::string SystemText(int error) { return std::strerror(error); }

// 64 bits of the kernel's generator, in hexadecimal.
std::string RandomName() {
  uint64_t bits = 0;
  while (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
  }
  char text[20];
  std::snprintf(text, sizeof(text), "%016" PRIx64, bits);
  return text;
}

ssize_t GzipWrite(void* cookie, const char* buffer, size_t size) {
  const int written = gzwrite(static_cast<gzFile>(cookie), buffer, static_cast<unsigned>(size));
  return written;  // 0 is fopencookie's failure of a write, and zlib's
}

int GzipClose(void* cookie) { return gzclose(static_cast<gzFile>(cookie)) == Z_OK ? 0 : EOF; }

}  // namespace

Error FileError(std::string_view path, std::string reason, std::string text) {
  Error error;
  error.code = Code::kInvalidArgument;
  error.reason = std::move(reason);
  error.message = std::string(path) + ": " + std::move(text);
  error.field = std::string(path);
  return error;
}

struct ByteReader::State {
  std::string path;
  gzFile file = nullptr;
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
  ~State() {
    if (file != nullptr) gzclose(file);
  }
};

ByteReader::~ByteReader() = default;
ByteReader::ByteReader(ByteReader&&) noexcept = default;
ByteReader& ByteReader::operator=(ByteReader&&) noexcept = default;

Expected<ByteReader> ByteReader::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) {
      return FileError(path, "FILE_NOT_FOUND", "no such file; check the path");
    }
    return FileError(path, "FILE_UNREADABLE", "cannot be opened: " + SystemText(error));
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    close(fd);
    return FileError(path, "FILE_UNREADABLE", "is a folder, not a Matrix Market file");
  }
  gzFile file = gzdopen(fd, "rb");
  if (file == nullptr) {
    close(fd);
    return FileError(path, "FILE_UNREADABLE", "no memory to read it");
  }
  gzbuffer(file, 1 << 18);
  ByteReader reader;
  reader.state_ = std::make_unique<State>();
  reader.state_->path = path;
  reader.state_->file = file;
  if (S_ISREG(info.st_mode)) {
    const bool plain = gzdirect(file) == 1;
    reader.state_->max_bytes = info.st_size * (plain ? 1 : kMaxDeflateRatio);
  }
  return reader;
}

Expected<size_t> ByteReader::Read(std::span<char> buffer) {
  errno = 0;
  const int count = gzread(state_->file, buffer.data(), static_cast<unsigned>(buffer.size()));
  int code = Z_OK;
  const char* text = gzerror(state_->file, &code);
  if (count < 0 || code == Z_BUF_ERROR || code == Z_DATA_ERROR) {
    if (code == Z_ERRNO) {
      return FileError(state_->path, "FILE_UNREADABLE", "cannot be read: " + SystemText(errno));
    }
    const char* what = code == Z_BUF_ERROR ? "the gzip data end too early" : text;
    return FileError(state_->path, "GZIP_CORRUPT",
                     std::string("is a damaged gzip file (") + what +
                         "); fetch it again, or check it with gzip -t");
  }
  return static_cast<size_t>(count);
}

int64_t ByteReader::MaxBytes() const { return state_->max_bytes; }

struct ByteWriter::State {
  std::string path;       // where the user wants it
  std::string temporary;  // where it grows; empty: written directly
  FILE* file = nullptr;
  ~State() {
    if (file != nullptr) fclose(file);
    if (!temporary.empty()) unlink(temporary.c_str());
  }
};

ByteWriter::~ByteWriter() = default;
ByteWriter::ByteWriter(ByteWriter&&) noexcept = default;
ByteWriter& ByteWriter::operator=(ByteWriter&&) noexcept = default;

Expected<ByteWriter> ByteWriter::Open(const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  struct stat info = {};
  const bool direct = stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  if (direct && S_ISDIR(info.st_mode)) {
    return FileError(path, "FILE_UNWRITABLE", "is a folder; name a file");
  }
  // In a folder of others nobody can have put a link where this one grows.
  const std::string target = direct ? path : path + ".part" + RandomName();
  const int flags = O_WRONLY | O_CLOEXEC | (direct ? 0 : O_CREAT | O_EXCL | O_NOFOLLOW);
  const int fd = open(target.c_str(), flags, 0666);
  if (fd < 0) {
    return FileError(path, "FILE_UNWRITABLE", "cannot be written: " + SystemText(errno));
  }
  if (!direct) state->temporary = target;

  if (path.ends_with(".gz")) {
    gzFile zipped = gzdopen(fd, "wb6");
    cookie_io_functions_t io = {};
    io.write = GzipWrite;
    io.close = GzipClose;
    state->file = zipped == nullptr ? nullptr : fopencookie(zipped, "w", io);
    if (state->file == nullptr && zipped != nullptr) gzclose(zipped);
    if (zipped == nullptr) close(fd);
  } else {
    state->file = fdopen(fd, "w");
    if (state->file == nullptr) close(fd);
  }
  if (state->file == nullptr) {
    return FileError(path, "FILE_UNWRITABLE", "no memory to write it");
  }
  setvbuf(state->file, nullptr, _IOFBF, 1 << 18);
  ByteWriter writer;
  writer.state_ = std::move(state);
  return writer;
}

std::optional<Error> ByteWriter::Check(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    // Opened and closed, a pipe would end for who reads it.
    if (access(path.c_str(), W_OK) == 0) return std::nullopt;
    return FileError(path, "FILE_UNWRITABLE", "cannot be written: " + SystemText(errno));
  }
  auto writer = Open(path);
  if (!writer.ok()) return writer.error();
  return std::nullopt;
}

FILE* ByteWriter::file() { return state_->file; }

std::optional<Error> ByteWriter::Commit() {
  const bool failed = ferror(state_->file) != 0;
  const int write_error = errno;
  const bool close_failed = fclose(std::exchange(state_->file, nullptr)) != 0;
  if (failed || close_failed) {
    return FileError(state_->path, "FILE_UNWRITABLE",
                     "was not written to the end: " + SystemText(failed ? write_error : errno));
  }
  if (state_->temporary.empty()) return std::nullopt;
  if (rename(state_->temporary.c_str(), state_->path.c_str()) != 0) {
    return FileError(state_->path, "FILE_UNWRITABLE", "cannot be replaced: " + SystemText(errno));
  }
  state_->temporary.clear();
  return std::nullopt;
}

}  // namespace spaid::cli
