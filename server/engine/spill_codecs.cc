#include "server/engine/spill_codecs.h"

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/engine/restore.h"
#include "kernels/sparse/validation.h"
#include "proto/fields.h"
#include "server/base/status.h"
#include "server/engine/convert.h"

namespace spaid::server {
namespace {

// Beside the message of a preconditioner.
struct Rest {
  int64_t nnz_a = 0;
  int64_t kind = 0;  // kernels::EngineKind
};

absl::Status Lies(std::string_view what) {
  return absl::DataLossError(std::string(what) + ": the file is whole, and what it says is not so");
}

WallTime TimeOf(const google::protobuf::Timestamp& time) {
  return WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(time.seconds()) + std::chrono::nanoseconds(time.nanos())));
}

// Reads the next array.
template <class T>
absl::StatusOr<kernels::Array<T>> Next(SpillReader* reader, int64_t bytes, SpillFolder* folder) {
  if (bytes % static_cast<int64_t>(sizeof(T)) != 0) return Lies("an array");
  kernels::Array<T> array(static_cast<size_t>(bytes) / sizeof(T));
  RETURN_IF_ERROR(reader->Next(std::as_writable_bytes(std::span(array))));
  folder->CountRead(bytes);
  return array;
}

SpillBlob BlobOf(const kernels::PatternView& pattern, const Fingerprint& fingerprint) {
  return {SpillKind::kPattern,
          fingerprint.ToBytes(),
          {std::as_bytes(pattern.col_ptr), std::as_bytes(pattern.row_idx)}};
}

// Reads file number `blob`, a pattern. Whatever it says, what comes is canonical: nothing that
// relies on that reads beyond an array.
absl::StatusOr<kernels::Pattern> ReadPattern(const SpillRecord& record, size_t blob,
                                             SpillFolder* folder) {
  ASSIGN_OR_RETURN(SpillReader reader, folder->Read(record, blob));
  if (reader.sizes().size() != 2) return Lies("a pattern");
  kernels::CscMatrix m;
  ASSIGN_OR_RETURN(m.col_ptr, Next<int64_t>(&reader, reader.sizes()[0], folder));
  ASSIGN_OR_RETURN(m.row_idx, Next<int32_t>(&reader, reader.sizes()[1], folder));
  m.n_rows = m.n_cols = static_cast<int64_t>(m.col_ptr.size()) - 1;
  auto checked = kernels::Canonicalize(std::move(m), kernels::Layout::kCsc, {.pattern_only = true});
  if (!checked.ok()) return Lies("a pattern");
  return kernels::Pattern{checked->n_rows, checked->n_cols, std::move(checked->col_ptr),
                          std::move(checked->row_idx)};
}

std::optional<Digest> DigestOf(const std::string& bytes) {
  Digest digest;
  if (bytes.size() != digest.bytes.size()) return std::nullopt;
  std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  return digest;
}

kernels::Diagnosis DiagnosisOf(const v1::Matrix& proto) {
  kernels::Diagnosis diagnosis;
  diagnosis.n = proto.n();
  diagnosis.nnz = proto.nnz();
  // `Figures` visits what it may not change.
  std::as_const(diagnosis).Figures([&](const char* name, const auto& figure) {
    auto& mine = const_cast<std::remove_cvref_t<decltype(figure)>&>(figure);
    (void)wire::Get(proto.diagnosis(), *wire::FindField(proto.diagnosis(), name), &mine);
  });
  diagnosis.findings.assign(proto.diagnosis().findings().begin(),
                            proto.diagnosis().findings().end());
  return diagnosis;
}

SpillContent EncodeMatrix(const std::string&, const void* value) {
  const auto& matrix = *static_cast<const Matrix*>(value);
  if (matrix.over != nullptr) return {.in_memory_alone = true, .meta = {}, .blobs = {}};
  const std::shared_ptr<const Matrix> borrowed(std::shared_ptr<void>(), &matrix);
  SpillContent content;
  content.meta = ToProto(Stored<Matrix>{.handle = "", .value = borrowed}, /*findings=*/true)
                     .SerializeAsString();
  content.blobs.push_back(BlobOf(matrix.pattern->csc(), matrix.pattern->fingerprint()));
  if (!matrix.pattern_only) {
    content.blobs.push_back({SpillKind::kValues,
                             matrix.value_fingerprint().ToBytes(),
                             {std::as_bytes(std::span(matrix.values))}});
  }
  return content;
}

absl::StatusOr<SpillValue> DecodeMatrix(const SpillRecord& record, SpillFolder& folder,
                                        SpillCodec::FindPart find_part, size_t* blob) {
  v1::Matrix proto;
  auto matrix = std::make_shared<Matrix>();
  const bool parsed = proto.ParseFromString(record.meta);
  matrix->pattern_only = proto.pattern_only();
  if (!parsed || record.blobs.size() != (matrix->pattern_only ? 1 : 2)) return Lies("a matrix");
  const auto same = [&](const void* part) {
    const auto& pattern = *static_cast<const StoredPattern*>(part);
    return SpillFolder::NameOf(record.tenant, SpillKind::kPattern,
                               pattern.fingerprint().ToBytes()) == record.blobs[0].name;
  };
  for (const std::string& key : record.part_keys) {
    matrix->pattern = std::static_pointer_cast<const StoredPattern>(find_part(key, same));
    if (matrix->pattern != nullptr) break;
  }
  *blob = 0;
  if (matrix->pattern == nullptr) {
    const auto digest = DigestOf(proto.digest().pattern());
    if (!digest) return Lies("a matrix");
    ASSIGN_OR_RETURN(kernels::Pattern pattern, ReadPattern(record, 0, &folder));
    matrix->pattern = std::make_shared<const StoredPattern>(std::move(pattern), *digest);
  }
  if (matrix->n() != proto.n() || matrix->nnz() != proto.nnz()) return Lies("a pattern");
  if (!matrix->pattern_only) {
    *blob = 1;
    ASSIGN_OR_RETURN(SpillReader reader, folder.Read(record, 1));
    if (reader.sizes().size() != 1 || reader.sizes()[0] != 8 * matrix->nnz()) return Lies("values");
    ASSIGN_OR_RETURN(matrix->values, Next<double>(&reader, reader.sizes()[0], &folder));
    matrix->value_digest = DigestOf(proto.digest().values());
  }
  matrix->diagnosis = DiagnosisOf(proto);
  matrix->label = proto.label();
  matrix->created = TimeOf(proto.create_time());
  const int64_t bytes = matrix->own_bytes();
  const std::shared_ptr<const StoredPattern> pattern = matrix->pattern;
  return SpillValue{std::move(matrix), bytes, pattern, pattern->bytes()};
}

SpillContent EncodePreconditioner(const std::string&, const void* value) {
  const auto& m = *static_cast<const Preconditioner*>(value);
  const kernels::MForm form = m.kernel->form();
  if (form == kernels::MForm::kParts || form == kernels::MForm::kOverRanks)
    return {.in_memory_alone = true, .meta = {}, .blobs = {}};
  const std::shared_ptr<const Preconditioner> borrowed(std::shared_ptr<void>(), &m);
  const Rest rest{m.nnz_a, static_cast<int64_t>(m.kernel->kind())};
  SpillContent content;
  content.meta.assign(reinterpret_cast<const char*>(&rest), sizeof rest);
  content.meta +=
      ToProto(Stored<Preconditioner>{.handle = "", .value = borrowed}).SerializeAsString();
  const kernels::CscMatrix& csc = m.m();
  content.blobs.push_back(
      BlobOf(csc.pattern(), PatternFingerprint(csc.n_cols, csc.col_ptr, csc.row_idx)));
  const std::span<const double> scaling = kernels::RowScalingOf(*m.kernel);
  content.blobs.push_back(
      {SpillKind::kValues,
       ValueFingerprint(csc.values).ToBytes() +
           (scaling.empty() ? std::string() : ValueFingerprint(scaling).ToBytes()),
       {std::as_bytes(std::span(csc.values))}});
  if (!scaling.empty()) content.blobs.back().arrays.push_back(std::as_bytes(scaling));
  return content;
}

absl::StatusOr<SpillValue> DecodePreconditioner(const SpillRecord& record, SpillFolder& folder,
                                                SpillCodec::FindPart, size_t* blob) {
  Rest rest;
  if (record.meta.size() < sizeof rest || record.blobs.size() != 2) return Lies("a preconditioner");
  std::memcpy(&rest, record.meta.data(), sizeof rest);
  const v1::Preconditioner proto = PreconditionerOf(record);
  *blob = 0;
  ASSIGN_OR_RETURN(kernels::Pattern pattern, ReadPattern(record, 0, &folder));
  kernels::CscMatrix csc{
      pattern.n_rows, pattern.n_cols, std::move(pattern.col_ptr), std::move(pattern.row_idx), {}};
  *blob = 1;
  ASSIGN_OR_RETURN(SpillReader reader, folder.Read(record, 1));
  const auto sizes = reader.sizes();
  if (sizes.empty() || sizes.size() > 2 || sizes[0] != 8 * csc.nnz()) return Lies("values");
  ASSIGN_OR_RETURN(csc.values, Next<double>(&reader, sizes[0], &folder));
  kernels::Array<double> scaling;
  if (sizes.size() == 2) {
    ASSIGN_OR_RETURN(scaling, Next<double>(&reader, sizes[1], &folder));
  }
  if (csc.n_cols != proto.n() || csc.nnz() != proto.nnz()) return Lies("a pattern");
  if (!v1::EngineKind_IsValid(static_cast<int>(rest.kind))) return Lies("a preconditioner");
  auto kernel = kernels::RestorePreconditioner(static_cast<kernels::EngineKind>(rest.kind),
                                               std::move(csc), std::move(scaling), {});
  if (!kernel.ok()) return Lies("a preconditioner");
  auto m = std::make_shared<Preconditioner>();
  m->kernel = *std::move(kernel);
  m->quality = proto.quality();
  m->matrix = proto.matrix();
  m->spec = proto.spec();
  m->choice = proto.choice();
  m->timings = proto.build_timings();
  m->device = proto.device();
  m->created = TimeOf(proto.create_time());
  m->nnz_a = rest.nnz_a;
  const int64_t bytes = m->bytes();
  return SpillValue{std::move(m), bytes, nullptr, 0};
}

}  // namespace

SpillCodec MatrixCodec() { return {EncodeMatrix, DecodeMatrix}; }
SpillCodec PreconditionerCodec() { return {EncodePreconditioner, DecodePreconditioner}; }

// A row that does not verify is dropped, so this is as it was written; fields of a newer daemon's
// message are skipped.
v1::Matrix MatrixOf(const SpillRecord& record) {
  v1::Matrix proto;
  (void)proto.ParseFromString(record.meta);
  proto.set_name(record.handle);
  return proto;
}

v1::Preconditioner PreconditionerOf(const SpillRecord& record) {
  v1::Preconditioner proto;
  if (record.meta.size() >= sizeof(Rest)) {
    (void)proto.ParseFromString(record.meta.substr(sizeof(Rest)));
  }
  proto.set_name(record.handle);
  proto.clear_device_bytes();
  return proto;
}

}  // namespace spaid::server
