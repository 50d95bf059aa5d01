// Client::Upload: header, the server's answer (have, wait, need), the chunks, the stored matrix.
// SHA-256 is made where the server may have the content, by what it says of XXH3.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/arrays.h"
#include "client/cpp/chunk_source.h"
#include "client/cpp/convert.h"
#include "client/cpp/events.h"
#include "client/cpp/exchange.h"
#include "client/cpp/impl.h"
#include "client/cpp/local.h"

namespace spaid {
namespace {

using namespace internal;  // NOLINT(build/namespaces): our own, in our own file

// A matrix up to here is hashed before it is known that this pays: asking takes as long.
constexpr int64_t kHashAtOnceBytes = 256 << 10;

int64_t ArrayBytes(const CscView& a) {
  return static_cast<int64_t>(a.col_ptr.size_bytes() + a.row_idx.size_bytes() +
                              8 * std::max(a.values.size(), a.values_f32.size()));
}

v1::MatrixDigest* DigestOf(const CscView& a, v1::MatrixHeader& header) {
  return a.by_rows ? header.mutable_sent_digest() : header.mutable_digest();
}

}  // namespace

v1::MatrixHeader internal::MatrixHeaderOf(const CscView& a, const std::string& label) {
  v1::MatrixHeader header;
  header.set_n(a.n);
  header.set_nnz(static_cast<int64_t>(a.row_idx.size()));
  header.set_layout(a.by_rows ? v1::LAYOUT_CSR : v1::LAYOUT_CSC);
  if (IsPattern(a)) {
    header.set_pattern_only(true);
  } else {
    header.set_value_type(a.values_f32.empty() ? v1::VALUE_TYPE_FLOAT64 : v1::VALUE_TYPE_FLOAT32);
  }
  header.set_sort_and_sum(a.sort_and_sum);
  header.set_label(label);
  return header;
}

std::vector<OutgoingArray> internal::ArraysOf(const CscView& a) {
  std::vector<OutgoingArray> arrays{Outgoing(v1::ARRAY_KIND_POINTERS, a.col_ptr),
                                    Outgoing(v1::ARRAY_KIND_INDICES, a.row_idx)};
  if (!a.values.empty()) arrays.push_back(Outgoing(v1::ARRAY_KIND_VALUES, a.values));
  if (!a.values_f32.empty()) arrays.push_back(Outgoing(v1::ARRAY_KIND_VALUES, a.values_f32));
  return arrays;
}

Expected<MatrixInfo> Client::Impl::Upload(const CscView& given, const std::string& label,
                                          const Call& call, Timings& timings,
                                          const std::string& same_pattern_as,
                                          const std::string& beside) {
  if (broken) return *broken;
  const WidePointers wide(given);
  const CscView& a = wide.view();
  if (auto error = CheckSpans(a)) return *std::move(error);
  return WithLeases(*link, [&](bool shared) {
    return UploadOver(shared, a, label, call, timings, same_pattern_as, beside);
  });
}

Expected<MatrixInfo> Client::Impl::UploadOver(bool shared, const CscView& a,
                                              const std::string& label, const Call& call,
                                              Timings& timings, const std::string& same_pattern_as,
                                              const std::string& beside) {
  // If all arrays are shared, the server's copy costs less than asking whether it has them.
  const Outgoings outgoing(ArraysOf(a), shared ? link.get() : nullptr);
  v1::UploadMatrixRequest header_request;
  v1::MatrixHeader& header = *header_request.mutable_header();
  header = MatrixHeaderOf(a, label);
  header.set_same_pattern_as(same_pattern_as);
  bool has_digest = false;
  if (options.send_digests && same_pattern_as.empty() && !outgoing.all_shared()) {
    if (auto digest = Digest(a)) {
      *DigestOf(a, header) = *std::move(digest);
      has_digest = true;
    }
  }
  const auto add_sha256 = [&](bool pattern_alone) {
    return AddSha256(a, call.stop(), *DigestOf(a, header), pattern_alone);
  };
  // Values go where their pattern is, and what serves another matrix where that is.
  std::string affinity = same_pattern_as.empty() ? beside : AffinityOf(same_pattern_as);
  if (affinity.empty() && call.options().affinity.empty()) {
    affinity = has_digest ? PatternAffinity(*DigestOf(a, header)) : PatternAffinity(a);
  }
  const bool small = ArrayBytes(a) <= kHashAtOnceBytes;
  if (has_digest && small && !add_sha256(false)) return call.Stopped();

  auto once = [&](Replica& replica, grpc::ClientContext& context) -> Expected<MatrixInfo> {
    ArraySource source(outgoing, options.chunk_bytes, options.send_checksums);
    // Without digests the server has nothing to compare: the chunks follow at once, or, of a
    // pattern that it has, the values.
    bool answered = !has_digest;
    if (answered && same_pattern_as.empty()) source.WantAll();
    if (answered && !same_pattern_as.empty() && !a.row_idx.empty()) {
      source.Want(v1::ARRAY_KIND_VALUES, 0, header.nnz());
    }
    bool say_header = true, known = false;
    std::optional<MatrixInfo> stored;

    Exchange<v1::UploadMatrixResponse> exchange(context, replica.channel,
                                                "/spaid.v1.MatrixService/UploadMatrix");
    auto next = [&](grpc::ByteBuffer& request) {
      if (std::exchange(say_header, false)) {
        request = Serialized(header_request);
        return Feed::kMessage;
      }
      if (!answered) return Feed::kLater;
      if (source.Empty()) return Feed::kEnd;
      request = source.Next<v1::UploadMatrixRequest>();
      return source.Empty() ? Feed::kLast : Feed::kMessage;
    };
    auto take = [&](const v1::UploadMatrixResponse& response) -> std::optional<Error> {
      switch (response.event_case()) {
        case v1::UploadMatrixResponse::kHave:
          answered = true;
          stored = FromProto(response.have());
          break;
        case v1::UploadMatrixResponse::kWait:
          known = true;
          break;
        case v1::UploadMatrixResponse::kNeed:
          if (answered) break;  // everything is on its way already
          if ((known || response.need().pattern_known()) &&
              DigestOf(a, header)->pattern_sha256().empty()) {
            // Content, or a pattern, of these XXH3 digests is there, or on its way: asked again by
            // SHA-256.
            if (!add_sha256(!known)) return call.Stopped();
            say_header = true;
            break;
          }
          answered = true;
          for (const v1::UploadNeed::Range& range : response.need().ranges()) {
            if (!source.Want(range.array(), range.offset(), range.count())) {
              return ProtocolViolation(
                  "it needs a part of an array that the matrix does not have, or one twice");
            }
          }
          break;
        case v1::UploadMatrixResponse::kDone:
          answered = true;
          stored = FromProto(response.done().matrix());
          timings = FromProto(response.done().timings());
          break;
        case v1::UploadMatrixResponse::EVENT_NOT_SET:
          break;
      }
      return std::nullopt;
    };
    auto written = [&] {
      if (source.sent_bytes() > 0) {
        call.ReportTransfer(Stage::kUpload, source.sent_bytes(), source.total_bytes());
      }
    };
    if (auto error = exchange.Run(replica.address, next, take, written)) return *std::move(error);
    if (!stored || stored->name.empty()) {
      return ProtocolViolation("an upload ended without the stored matrix");
    }
    if (stored->n != a.n) return ProtocolViolation("another matrix was stored");
    return *std::move(stored);
  };

  Expected<MatrixInfo> info = Attempt<MatrixInfo>(call, affinity, Repeat::kSafe, once);
  if (info.ok()) {
    RememberOrder(info->name, info->n);
    ReportMatrix(call, *info);
  }
  return info;
}

}  // namespace spaid
