#include "server/engine/stored_types.h"

#include <cstring>
#include <span>

#include "server/engine/convert.h"

namespace spaid::server {
namespace {

// As bytes: a zero is not the other zero.
template <class T>
bool SameBytes(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace

std::string Matrix::ContentKey(const Digest& pattern, const std::optional<Digest>& values) {
  return pattern.ToBytes() + (values ? values->ToBytes() : std::string());
}

bool Matrix::SameContent(const Matrix& other) const {
  return pattern_only == other.pattern_only && n() == other.n() &&
         SameBytes<int64_t>(csc.col_ptr, other.csc.col_ptr) &&
         SameBytes<int32_t>(csc.row_idx, other.csc.row_idx) &&
         SameBytes<double>(csc.values, other.csc.values);
}

const Matrix::ContentSha256& Matrix::sha256() const {
  return sha256_.Get([this] {
    ContentSha256 made{.pattern = PatternSha256(n(), csc.col_ptr, csc.row_idx), .values = {}};
    if (!pattern_only) made.values = ValueSha256(csc.values);
    return made;
  });
}

const Fingerprint& Matrix::pattern_fingerprint() const {
  return pattern_fingerprint_.Get(
      [this] { return PatternFingerprint(n(), csc.col_ptr, csc.row_idx); });
}

const Fingerprint& Matrix::value_fingerprint() const {
  return value_fingerprint_.Get([this] { return ValueFingerprint(csc.values); });
}

v1::Matrix ToProto(const Stored<Matrix>& stored, bool findings) {
  const Matrix& matrix = *stored.value;
  v1::Matrix proto;
  proto.set_name(stored.handle);
  proto.set_label(matrix.label);
  proto.set_n(matrix.n());
  proto.set_nnz(matrix.csc.nnz());
  proto.set_pattern_only(matrix.pattern_only);
  proto.set_host_bytes(matrix.bytes());
  proto.mutable_digest()->set_pattern(matrix.pattern_digest.ToBytes());
  if (matrix.value_digest) proto.mutable_digest()->set_values(matrix.value_digest->ToBytes());
  if (const Matrix::ContentSha256* known = matrix.known_sha256()) {
    proto.mutable_digest()->set_pattern_sha256(known->pattern.ToBytes());
    if (known->values) proto.mutable_digest()->set_values_sha256(known->values->ToBytes());
  }
  SetTime(matrix.created, proto.mutable_create_time());
  *proto.mutable_diagnosis() = ToProto(matrix.diagnosis, findings);
  return proto;
}

v1::Preconditioner ToProto(const Stored<Preconditioner>& stored) {
  const Preconditioner& from = *stored.value;
  v1::Preconditioner proto;
  proto.set_name(stored.handle);
  proto.set_matrix(from.matrix);
  *proto.mutable_spec() = from.spec;
  *proto.mutable_choice() = from.choice;
  proto.set_n(from.m().n_cols);
  proto.set_nnz(from.m().nnz());
  proto.set_host_bytes(from.bytes());
  *proto.mutable_quality() = from.quality;
  *proto.mutable_build_timings() = from.timings;
  SetTime(from.created, proto.mutable_create_time());
  proto.set_device(from.device);
  proto.set_device_bytes(from.kernel->device_bytes());
  proto.set_is_factor(from.kernel->is_factor());
  return proto;
}

}  // namespace spaid::server
