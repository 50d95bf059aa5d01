// Reads and writes plain and gzip files alike, for the Matrix Market reader and writer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

// Makes the error of a local file: INVALID_ARGUMENT, `reason`, and a text that starts with the
// file.
Error FileError(std::string_view path, std::string reason, std::string text);

// Reads a file, gunzipping it on the way if it is a gzip file (told by its content, not its name).
// Not thread-safe.
class ByteReader {
 public:
  // Errors: FILE_NOT_FOUND, FILE_UNREADABLE.
  static Expected<ByteReader> Open(const std::string& path);
  ~ByteReader();
  ByteReader(ByteReader&&) noexcept;
  ByteReader& operator=(ByteReader&&) noexcept;

  // Fills `buffer` as far as the file goes and returns the number of bytes; 0 is the end. Errors:
  // GZIP_CORRUPT (damaged or cut), FILE_UNREADABLE.
  Expected<size_t> Read(std::span<char> buffer);

  // Returns an upper bound on the bytes that Read can give in all; INT64_MAX if none is known (a
  // pipe).
  int64_t MaxBytes() const;

 private:
  ByteReader() = default;
  struct State;
  std::unique_ptr<State> state_;
};

// Writes a temporary file beside the target and renames it when it is complete, so that a failed
// write leaves no half file. A name ending in ".gz" is compressed. A path that exists and is not a
// regular file (a pipe, /dev/stdout) is written directly.
class ByteWriter {
 public:
  // Errors: FILE_UNWRITABLE.
  static Expected<ByteWriter> Open(const std::string& path);
  // Returns the error that Open would give, before work whose result is to be written; leaves
  // nothing behind and touches no existing file.
  static std::optional<Error> Check(const std::string& path);
  ~ByteWriter();  // without Commit: nothing is left behind
  ByteWriter(ByteWriter&&) noexcept;
  ByteWriter& operator=(ByteWriter&&) noexcept;

  FILE* file();
  // Flushes, closes and puts the file in its place. Errors: FILE_UNWRITABLE.
  std::optional<Error> Commit();

 private:
  ByteWriter() = default;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spaid::cli
