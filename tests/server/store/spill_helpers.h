// A folder of a test's own, and things to spill.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/store/spill_folder.h"

namespace spaid::server {

// Gone, with all that is in it, at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = testing::TempDir() + "/spill.XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string ReadWhole(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void WriteWhole(const std::string& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

inline std::unique_ptr<SpillFolder> OpenSpill(const std::string& path, int64_t max_bytes = 1 << 30,
                                              SpillStep step = {}) {
  auto folder = SpillFolder::Open({.folder = path,
                                   .max_bytes = max_bytes,
                                   .sync = SpillSync::kNone,
                                   .shares = {},
                                   .step = std::move(step)});
  EXPECT_TRUE(folder.ok()) << folder.status();
  return folder.ok() ? *std::move(folder) : nullptr;
}

inline SpillRecord RecordOf(const std::string& handle, const std::string& tenant,
                            uint64_t sequence) {
  SpillRecord record;
  record.handle = handle;
  record.tenant = tenant;
  record.sequence = sequence;
  record.keys = {"key of " + handle};
  record.meta = "meta of " + handle;
  return record;
}

// One file with `text`.
inline absl::Status Spill(SpillFolder& folder, SpillRecord record, const std::string& text) {
  return folder.Write(std::move(record), {{SpillKind::kValues, text, {Bytes(text)}}});
}

inline absl::StatusOr<std::string> Load(SpillFolder& folder, const SpillRecord& record) {
  auto reader = folder.Read(record, 0);
  if (!reader.ok()) return reader.status();
  if (reader->sizes().size() != 1) return absl::DataLossError("arrays");
  std::string text(static_cast<size_t>(reader->sizes()[0]), '\0');
  absl::Status status = reader->Next(std::as_writable_bytes(std::span(text.data(), text.size())));
  if (!status.ok()) return status;
  return text;
}

}  // namespace spaid::server
