// MatrixReceiver fed with chunks that fit and chunks that do not, against plain strings of bytes:
// the same chunks are taken and refused, a refusal changes nothing, and what is taken is what came.
#include "server/rpc/array_receiver.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "server/base/digest.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "tests/fuzz/input.h"

namespace spaid::server {
namespace {

using fuzz::Input;
using fuzz::Require;

constexpr int64_t kMaxMatrixBytes = 1 << 16;
constexpr std::array kKinds = {v1::ARRAY_KIND_POINTERS, v1::ARRAY_KIND_INDICES,
                               v1::ARRAY_KIND_VALUES};

struct ModelArray {
  int64_t element = 8, size = 0;
  std::string bytes = {};
  int64_t received() const { return static_cast<int64_t>(bytes.size()) / element; }
};

// A chunk, mostly one that fits.
v1::ArrayChunk ChunkFrom(Input& input, std::array<ModelArray, 3>& model) {
  v1::ArrayChunk chunk;
  const int which = input.Below(4);
  chunk.set_array(which < 3 ? kKinds[static_cast<size_t>(which)]
                            : static_cast<v1::ArrayKind>(static_cast<int8_t>(input.Byte())));
  const ModelArray& array = model[static_cast<size_t>(which % 3)];
  const int form = input.Below(8);
  chunk.set_offset(array.received() + (form == 1 ? static_cast<int8_t>(input.Byte()) : 0));
  const int64_t odd = form == 2 ? 1 + input.Below(7) : 0;
  const int64_t count = input.Below(20);
  chunk.set_data(input.Bytes(static_cast<size_t>(count * array.element + odd)));
  if (form >= 4) chunk.set_crc32(Crc32(chunk.data()) ^ (form == 7 ? input.Byte() : 0u));
  return chunk;
}

// The reason that MatrixReceiver::Add should give; empty: it should take the chunk.
std::string_view Refusal(const v1::ArrayChunk& chunk, bool pattern_only,
                         const std::array<ModelArray, 3>& model, size_t* which) {
  *which = 0;
  while (*which < 3 && kKinds[*which] != chunk.array()) ++*which;
  if (*which == 3) {
    return v1::ArrayKind_IsValid(chunk.array()) && chunk.array() != 0 ? reason::kUnexpectedMessage
                                                                      : reason::kUnknownEnum;
  }
  if (*which == 2 && pattern_only) return reason::kUnexpectedMessage;
  const ModelArray& array = model[*which];
  const int64_t bytes = static_cast<int64_t>(chunk.data().size());
  if (bytes == 0 || bytes % array.element != 0) return reason::kChunkNotWhole;
  if (chunk.offset() != array.received()) return reason::kChunkOutOfOrder;
  if (bytes / array.element > array.size - array.received()) return reason::kChunkBeyondEnd;
  if (chunk.has_crc32() && chunk.crc32() != Crc32(chunk.data())) return reason::kChecksumMismatch;
  return {};
}

template <class T>
void RequireArray(std::span<const T> got, const ModelArray& model) {
  Require(static_cast<int64_t>(got.size()) == model.size, "size of an array");
  for (int64_t i = 0; i < model.size; ++i) {
    const char* const at = model.bytes.data() + i * model.element;
    T want;
    if (model.element == static_cast<int64_t>(sizeof(T))) {
      std::memcpy(&want, at, sizeof(T));
    } else {
      float narrow;
      std::memcpy(&narrow, at, sizeof narrow);
      want = static_cast<T>(narrow);
    }
    // A signalling NaN comes out of a widening quiet.
    const T is = got[static_cast<size_t>(i)];
    Require(std::memcmp(&is, &want, sizeof(T)) == 0 || (is != is && want != want), "an element");
  }
}

void Receive(Input input) {
  v1::MatrixHeader header;
  header.set_n(1 + input.Below(30));
  header.set_nnz(input.Below(60));
  const int form = input.Below(16);
  header.set_layout(form & 1 ? v1::LAYOUT_CSR : v1::LAYOUT_CSC);
  header.set_pattern_only(form >= 12);
  header.set_value_type(form & 2 ? v1::VALUE_TYPE_FLOAT32 : v1::VALUE_TYPE_FLOAT64);
  Require(CheckMatrixHeader(header, "header", kMaxMatrixBytes).ok(), "a good header is refused");

  const bool narrow = header.value_type() == v1::VALUE_TYPE_FLOAT32;
  std::array<ModelArray, 3> model = {
      ModelArray{.element = 8, .size = header.n() + 1},
      ModelArray{.element = 4, .size = header.nnz()},
      ModelArray{.element = narrow ? 4 : 8, .size = header.pattern_only() ? 0 : header.nnz()}};
  MatrixReceiver receiver(header);
  int64_t booked = 0;
  const auto complete = [&] {
    return std::all_of(model.begin(), model.end(),
                       [](const ModelArray& a) { return a.received() == a.size; });
  };
  while (!input.empty()) {
    const v1::ArrayChunk chunk = ChunkFrom(input, model);
    size_t which = 0;
    const std::string_view refusal = Refusal(chunk, header.pattern_only(), model, &which);
    const absl::Status added = receiver.Add(chunk, [&booked](int64_t bytes) {
      booked += bytes;
      return absl::OkStatus();
    });
    Require(booked >= 0 && booked <= PromisedBytes(header), "what is booked");
    Require(added.ok() == refusal.empty(), "taken or refused");
    Require(added.ok() || ReasonOf(added) == refusal, "the reason");
    if (added.ok()) model[which].bytes += chunk.data();
    if (input.Below(4) == 0) receiver.LookAtNew();
    Require(receiver.complete() == complete(), "complete");
    Require((receiver.Need().ranges_size() == 0) == complete(), "what is needed");
  }
  Require(receiver.CheckComplete().ok() == complete(), "the check for completeness");
  if (!complete()) return;
  const ArrayFacts arrived = receiver.Look();
  const kernels::CscMatrix raw = receiver.Take();
  RequireArray(std::span<const int64_t>(raw.col_ptr), model[0]);
  RequireArray(std::span<const int32_t>(raw.row_idx), model[1]);
  RequireArray(std::span<const double>(raw.values), model[2]);
  Require(arrived.digests.pattern == PatternDigest(header.n(), raw.col_ptr, raw.row_idx),
          "the digest of the pattern");
  if (!header.pattern_only()) {
    Require(arrived.digests.values == ValueDigest(raw.values), "the digest of the values");
  }
}

// Any header at all: refused with a reason, or its promise is within the limit.
void CheckHeader(const Input& input) {
  v1::MatrixHeader header;
  if (!header.ParseFromArray(input.rest().data(), static_cast<int>(input.rest().size()))) return;
  const absl::Status status = CheckMatrixHeader(header, "header", kMaxMatrixBytes);
  if (!status.ok()) {
    Require(!ReasonOf(status).empty(), "a refusal without a reason");
    return;
  }
  Require(PromisedBytes(header) > 0 && PromisedBytes(header) <= kMaxMatrixBytes, "the promise");
  const MatrixReceiver receiver(header);
  Require(!receiver.complete(), "complete with nothing");
}

}  // namespace
}  // namespace spaid::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spaid::fuzz::Input input(data, size);
  if (input.Below(8) == 0) {
    spaid::server::CheckHeader(input);
  } else {
    spaid::server::Receive(input);
  }
  return 0;
}
