#include "server/engine/spill_codecs.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/engine/restore.h"
#include "kernels/sparse/validation.h"
#include "proto/fields.h"
#include "server/base/ids.h"
#include "server/base/status.h"
#include "server/engine/adapter.h"
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

// How matrices come from the ranks and go there.
struct RanksCodec {
  const EngineAdapter* adapter;  // null: there are no ranks
  std::function<bool(const std::string& tenant)> give_up;
  std::mutex one_at_a_time;  // goes there: rank 0 has pointers for one alone
};

// The arrays of a matrix over the ranks, by columns, of which a piece is here at a time. Begins
// when the first is asked for.
class FromRanks {
 public:
  FromRanks(const EngineAdapter& adapter, const Matrix& matrix)
      : adapter_(adapter), matrix_(matrix) {}

  template <class T>
  absl::Status Read(int64_t first, std::span<std::byte> piece) {
    if (from_ == nullptr) {
      ASSIGN_OR_RETURN(from_, adapter_.BeginOutput(*matrix_.over));
    }
    std::vector<T> elements(piece.size() / sizeof(T));
    if (auto read = from_->Read(first, std::span<T>(elements)); !read.ok()) return ToAbsl(read);
    std::memcpy(piece.data(), elements.data(), piece.size());
    return absl::OkStatus();
  }

 private:
  const EngineAdapter& adapter_;
  const Matrix& matrix_;
  std::unique_ptr<kernels::RanksOutput> from_;
};

template <class T>
SpillArray Bring(const std::shared_ptr<FromRanks>& from, int64_t count) {
  return SpillArray(count * static_cast<int64_t>(sizeof(T)),
                    [from, first = int64_t{0}](std::span<std::byte> piece) mutable {
                      const int64_t at = first;
                      first += static_cast<int64_t>(piece.size() / sizeof(T));
                      return from->Read<T>(at, piece);
                    });
}

SpillBlob BlobOverRanks(const EngineAdapter& adapter, const Matrix& matrix) {
  const auto from = std::make_shared<FromRanks>(adapter, matrix);
  // No two share a file: what tells contents apart for certain is not known of one on the ranks.
  return {SpillKind::kWhole,
          RandomId(),
          {Bring<int64_t>(from, matrix.n() + 1), Bring<int32_t>(from, matrix.nnz()),
           Bring<double>(from, matrix.nnz())}};
}

absl::StatusOr<SpillValue> DecodeOverRanks(const SpillRecord& record, SpillFolder& folder,
                                           const v1::Matrix& proto, RanksCodec& ranks) {
  if (ranks.adapter == nullptr || ranks.adapter->RanksBytes() == 0) {
    return MatrixOverRanks("this daemon has none; start it with --devices=mpi");
  }
  const std::lock_guard lock(ranks.one_at_a_time);
  ASSIGN_OR_RETURN(SpillReader reader, folder.Read(record, 0));
  const int64_t n = proto.n(), nnz = proto.nnz();
  const auto sizes = reader.sizes();
  if (sizes.size() != 3 || sizes[0] != 8 * (n + 1) || sizes[1] != 4 * nnz || sizes[2] != 8 * nnz) {
    return Lies("a matrix");
  }
  std::unique_ptr<kernels::RanksInput> input;
  {
    ASSIGN_OR_RETURN(auto pointers, Next<int64_t>(&reader, sizes[0], &folder));
    auto begun = ranks.adapter->BeginOverRanks(
        pointers, nnz, kernels::Layout::kCsc, /*sort_and_sum=*/false,
        [&] { return ranks.give_up && ranks.give_up(record.tenant); });
    if (absl::IsInvalidArgument(begun.status())) return Lies("a matrix");
    if (!begun.ok()) return begun.status();
    input = *std::move(begun);
  }
  const auto pass_on = [&]<class T>(std::vector<T> elements) {
    return reader.Next([&](std::span<const std::byte> piece) {
      elements.resize(piece.size() / sizeof(T));
      std::memcpy(elements.data(), piece.data(), piece.size());
      folder.CountRead(static_cast<int64_t>(piece.size()));
      return ToAbsl(input->Add(std::span<const T>(elements)));
    });
  };
  RETURN_IF_ERROR(pass_on(std::vector<int32_t>()));
  RETURN_IF_ERROR(pass_on(std::vector<double>()));
  auto matrix = ranks.adapter->PrepareOverRanks(*input, {.label = proto.label()});
  if (absl::IsInvalidArgument(matrix.status())) return Lies("a matrix");
  if (!matrix.ok()) return matrix.status();
  (*matrix)->created = TimeOf(proto.create_time());
  const int64_t bytes = (*matrix)->bytes();
  return SpillValue{*std::move(matrix), bytes, nullptr, 0};
}

SpillContent EncodeMatrix(const std::string&, const void* value, const EngineAdapter* adapter) {
  const auto& matrix = *static_cast<const Matrix*>(value);
  const std::shared_ptr<const Matrix> borrowed(std::shared_ptr<void>(), &matrix);
  SpillContent content;
  content.meta = ToProto(Stored<Matrix>{.handle = "", .value = borrowed}, /*findings=*/true)
                     .SerializeAsString();
  if (matrix.over != nullptr) {
    content.blobs.push_back(BlobOverRanks(*adapter, matrix));
    return content;
  }
  content.blobs.push_back(BlobOf(matrix.pattern->csc(), matrix.pattern->fingerprint()));
  if (!matrix.pattern_only) {
    content.blobs.push_back({SpillKind::kValues,
                             matrix.value_fingerprint().ToBytes(),
                             {std::as_bytes(std::span(matrix.values))}});
  }
  return content;
}

absl::StatusOr<SpillValue> DecodeMatrix(const SpillRecord& record, SpillFolder& folder,
                                        SpillCodec::FindPart find_part, size_t* blob,
                                        RanksCodec& ranks) {
  v1::Matrix proto;
  auto matrix = std::make_shared<Matrix>();
  const bool parsed = proto.ParseFromString(record.meta);
  if (parsed && record.blobs.size() == 1 && record.blobs[0].kind == SpillKind::kWhole) {
    *blob = 0;
    return DecodeOverRanks(record, folder, proto, ranks);
  }
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

SpillCodec MatrixCodec(const EngineAdapter* adapter,
                       std::function<bool(const std::string& tenant)> give_up) {
  const auto ranks = std::make_shared<RanksCodec>(adapter, std::move(give_up));
  return {[adapter](const std::string& tenant, const void* value) {
            return EncodeMatrix(tenant, value, adapter);
          },
          [ranks](const SpillRecord& record, SpillFolder& folder, SpillCodec::FindPart find_part,
                  size_t* blob) { return DecodeMatrix(record, folder, find_part, blob, *ranks); }};
}
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
