// Plain and gzip files behind one face, for the Matrix Market reader and writer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "client/cpp/spaid/client.h"

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

  // Fills `buffer` as far as the file goes; 0 is the end. Errors: GZIP_CORRUPT (damaged or cut),
  // FILE_UNREADABLE.
  Expected<size_t> Read(std::span<char> buffer);

  // An upper bound on the bytes that Read can give in all; INT64_MAX where none is known (a pipe).
  int64_t MaxBytes() const;

 private:
  ByteReader() = default;
  struct State;
  std::unique_ptr<State> state_;
};

// Writes a file through a neighbour that takes its place only when all of it is there, so that a
// failed write leaves no half file. A name ending in ".gz" is compressed. A path that exists and is
// not a regular file (a pipe, /dev/stdout) is written directly.
class ByteWriter {
 public:
  // Errors: FILE_UNWRITABLE.
  static Expected<ByteWriter> Open(const std::string& path);
  // The error that Open would give, found out before work whose result is to be written; leaves
  // nothing behind and touches no file that is there.
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
