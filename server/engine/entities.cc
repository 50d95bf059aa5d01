#include "server/engine/entities.h"

#include "server/engine/convert.h"

namespace spaid::server {

std::string Matrix::ContentKey(const Digest& pattern, const std::optional<Digest>& values) {
  return pattern.ToBytes() + (values ? values->ToBytes() : std::string());
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
  *proto.mutable_quality() = ToProto(from.quality);
  *proto.mutable_build_timings() = from.timings;
  SetTime(from.created, proto.mutable_create_time());
  proto.set_device(from.device);
  proto.set_device_bytes(from.kernel->device_bytes());
  proto.set_is_factor(from.kernel->is_factor());
  return proto;
}

}  // namespace spaid::server
