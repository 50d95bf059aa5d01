#include "server/store/spill_record.h"

#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "server/base/checksum.h"

namespace spaid::server {
namespace {

class Packer {
 public:
  void Number(uint64_t value) { out_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void Text(std::string_view text) {
    Number(text.size());
    out_.append(text);
  }
  void Texts(const std::vector<std::string>& texts) {
    Number(texts.size());
    for (const std::string& text : texts) Text(text);
  }
  std::string Finish() && {
    Number(Checksum(out_.data(), out_.size()));
    return std::move(out_);
  }

 private:
  std::string out_;
};

// Reads what Packer wrote, and nothing beyond the end: ok() is false then.
class Unpacker {
 public:
  explicit Unpacker(std::string_view packed) : left_(packed) {
    uint64_t sum = 0;
    ok_ = left_.size() >= sizeof sum;
    if (!ok_) return;
    std::memcpy(&sum, left_.data() + left_.size() - sizeof sum, sizeof sum);
    left_.remove_suffix(sizeof sum);
    ok_ = sum == Checksum(left_.data(), left_.size());
  }
  uint64_t Number() {
    uint64_t value = 0;
    if (!Has(sizeof value)) return 0;
    std::memcpy(&value, left_.data(), sizeof value);
    left_.remove_prefix(sizeof value);
    return value;
  }
  std::string Text() {
    const uint64_t size = Number();
    if (!Has(size)) return {};
    std::string text(left_.substr(0, size));
    left_.remove_prefix(size);
    return text;
  }
  std::vector<std::string> Texts() {
    std::vector<std::string> texts;
    for (uint64_t count = Number(); ok_ && count > 0; --count) texts.push_back(Text());
    return texts;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && left_.empty(); }

 private:
  bool Has(uint64_t bytes) { return ok_ = ok_ && bytes <= left_.size(); }
  std::string_view left_;
  bool ok_ = false;
};

}  // namespace

std::string SpillBlobRef::file() const {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(name.bytes.data()), name.bytes.size()));
}

std::string PackRecord(const SpillRecord& record) {
  Packer packer;
  packer.Text(record.handle);
  packer.Text(record.tenant);
  packer.Number(record.sequence);
  packer.Number(static_cast<uint64_t>(record.bytes));
  packer.Number(static_cast<uint64_t>(record.part_bytes));
  packer.Texts(record.keys);
  packer.Texts(record.part_keys);
  packer.Text(record.meta);
  packer.Number(record.pinned);
  packer.Texts(record.needs);
  packer.Number(record.blobs.size());
  for (const SpillBlobRef& blob : record.blobs) {
    packer.Number(static_cast<uint64_t>(blob.kind));
    packer.Text(blob.name.ToBytes());
    packer.Number(static_cast<uint64_t>(blob.bytes));
  }
  return std::move(packer).Finish();
}

std::optional<SpillRecord> UnpackRecord(std::string_view packed) {
  Unpacker unpacker(packed);
  SpillRecord record;
  record.handle = unpacker.Text();
  record.tenant = unpacker.Text();
  record.sequence = unpacker.Number();
  record.bytes = static_cast<int64_t>(unpacker.Number());
  record.part_bytes = static_cast<int64_t>(unpacker.Number());
  record.keys = unpacker.Texts();
  record.part_keys = unpacker.Texts();
  record.meta = unpacker.Text();
  record.pinned = unpacker.Number() != 0;
  record.needs = unpacker.Texts();
  for (uint64_t count = unpacker.Number(); unpacker.ok() && count > 0; --count) {
    SpillBlobRef blob;
    blob.kind = static_cast<SpillKind>(unpacker.Number());
    const std::string name = unpacker.Text();
    if (name.size() != blob.name.bytes.size()) return std::nullopt;
    std::memcpy(blob.name.bytes.data(), name.data(), name.size());
    blob.bytes = static_cast<int64_t>(unpacker.Number());
    record.blobs.push_back(std::move(blob));
  }
  if (!unpacker.at_end()) return std::nullopt;
  return record;
}

}  // namespace spaid::server
