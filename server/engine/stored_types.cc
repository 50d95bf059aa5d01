#include "server/engine/stored_types.h"

#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "kernels/amg/amg.h"
#include "kernels/sparse/transpose.h"
#include "server/base/status.h"
#include "server/engine/convert.h"
#include "server/engine/spill_codecs.h"

namespace spaid::server {
namespace {

// As bytes: a zero is not the other zero.
template <class T>
bool SameBytes(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace

int64_t StoredPattern::bytes() const {
  return static_cast<int64_t>(csc_.col_ptr.size() * sizeof(int64_t) +
                              csc_.row_idx.size() * sizeof(int32_t) + sizeof(StoredPattern));
}

std::string StoredPattern::Key(const Digest& digest, bool by_rows) {
  return (by_rows ? "rows|" : "columns|") + digest.ToBytes();
}

bool StoredPattern::SameContent(const StoredPattern& other) const {
  return this == &other ||
         (n() == other.n() && SameBytes<int64_t>(csc_.col_ptr, other.csc_.col_ptr) &&
          SameBytes<int32_t>(csc_.row_idx, other.csc_.row_idx));
}

const Sha256& StoredPattern::sha256(bool by_rows) const {
  if (!by_rows)
    return sha256_.Get([this] { return PatternSha256(n(), csc_.col_ptr, csc_.row_idx); });
  return sha256_by_rows_.Get([this] {
    const kernels::Pattern rows = kernels::Transpose(kernels::PatternView(csc_));
    return PatternSha256(n(), rows.col_ptr, rows.row_idx);
  });
}

const Fingerprint& StoredPattern::fingerprint() const {
  return fingerprint_.Get([this] { return PatternFingerprint(n(), csc_.col_ptr, csc_.row_idx); });
}

std::string Matrix::ContentKey(const Digest& pattern, const std::optional<Digest>& values,
                               bool by_rows) {
  return StoredPattern::Key(pattern, by_rows) + (values ? values->ToBytes() : std::string());
}

bool Matrix::SameContent(const Matrix& other) const {
  return pattern_only == other.pattern_only && SameBytes<double>(values, other.values) &&
         pattern->SameContent(*other.pattern);
}

const Sha256& Matrix::values_sha256() const {
  return sha256_.Get([this] { return ValueSha256(values); });
}

const Sha256& Matrix::values_sha256_by_rows(std::span<const int32_t> places) const {
  return sha256_by_rows_.Get([&] { return ValueSha256(values, places); });
}

const Fingerprint& Matrix::value_fingerprint() const {
  return fingerprint_.Get([this] { return ValueFingerprint(values); });
}

const Digest& Preconditioner::pattern_digest() const {
  return pattern_digest_.Get(
      [this] { return PatternDigest(m().n_cols, m().col_ptr, m().row_idx); });
}

v1::Matrix ToProto(const Stored<Matrix>& stored, bool findings) {
  if (stored.value == nullptr) {
    v1::Matrix spilled = MatrixOf(*stored.spilled);
    if (!findings) spilled.mutable_diagnosis()->clear_findings();
    return spilled;
  }
  const Matrix& matrix = *stored.value;
  v1::Matrix proto;
  proto.set_name(stored.handle);
  proto.set_label(matrix.label);
  proto.set_n(matrix.n());
  proto.set_nnz(matrix.nnz());
  proto.set_pattern_only(matrix.pattern_only);
  proto.set_host_bytes(matrix.bytes());
  v1::MatrixDigest& digest = *proto.mutable_digest();
  digest.set_pattern(matrix.pattern->digest().ToBytes());
  if (matrix.value_digest) digest.set_values(matrix.value_digest->ToBytes());
  if (const Sha256* known = matrix.pattern->known_sha256()) {
    digest.set_pattern_sha256(known->ToBytes());
  }
  if (const Sha256* known = matrix.known_values_sha256()) {
    digest.set_values_sha256(known->ToBytes());
  }
  SetTime(matrix.created, proto.mutable_create_time());
  *proto.mutable_diagnosis() = ToProto(matrix.diagnosis, findings);
  return proto;
}

v1::Preconditioner ToProto(const Stored<Preconditioner>& stored) {
  if (stored.value == nullptr) return PreconditionerOf(*stored.spilled);
  const Preconditioner& from = *stored.value;
  v1::Preconditioner proto;
  proto.set_name(stored.handle);
  proto.set_matrix(from.matrix);
  *proto.mutable_spec() = from.spec;
  *proto.mutable_choice() = from.choice;
  proto.set_n(from.m().n_cols);
  proto.set_nnz(from.kernel->nnz());
  proto.set_host_bytes(from.bytes());
  *proto.mutable_quality() = from.quality;
  *proto.mutable_build_timings() = from.timings;
  SetTime(from.created, proto.mutable_create_time());
  proto.set_device(from.device);
  proto.set_device_bytes(from.kernel->device_bytes());
  proto.set_is_factor(from.kernel->is_factor());
  if (const kernels::AmgHierarchy* hierarchy = from.kernel->hierarchy()) {
    for (const kernels::AmgPart& part : hierarchy->parts()) *proto.add_parts() = ToProto(part);
  }
  return proto;
}

ErrorBuilder MatrixOverRanks(const std::string& why, std::string_view what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason::kMatrixOverRanks,
                   absl::StrCat("the ", std::string(what), " lies over the ranks alone: ", why));
}

}  // namespace spaid::server
