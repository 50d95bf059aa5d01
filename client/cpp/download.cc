// Client::Download and DownloadPart.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/cpp/arrays.h"
#include "client/cpp/convert.h"
#include "client/cpp/csc_sink.h"
#include "client/cpp/impl.h"

namespace spaid {

using namespace internal;  // NOLINT(build/namespaces): our own, in our own file

Expected<CscMatrix> Client::Impl::Download(const std::string& preconditioner, const Part* part,
                                           const CscMatrix* known, const Call& call) {
  v1::DownloadPreconditionerRequest request;
  request.set_name(preconditioner);
  request.set_value_type(v1::VALUE_TYPE_FLOAT64);
  Expected<std::string> known_pattern = KnownPattern(known);
  if (!known_pattern.ok()) return known_pattern.error();
  if (known_pattern->empty()) known = nullptr;
  request.set_known_pattern(*std::move(known_pattern));
  if (part != nullptr) *request.mutable_part() = ToProto(*part);

  auto once = [&](Replica& replica, grpc::ClientContext& context) -> Expected<CscMatrix> {
    const std::unique_ptr<grpc::ClientReader<v1::DownloadPreconditionerResponse>> reader =
        replica.preconditioners->DownloadPreconditioner(&context, request);
    v1::DownloadPreconditionerResponse response;
    std::optional<CscSink> sink;
    bool is_factor = false;
    std::optional<Error> own;
    while (!own && reader->Read(&response)) {
      if (response.has_header()) {
        if (sink) {
          own = ProtocolViolation("a second header of the result");
          break;
        }
        auto created = CscSink::Create(response.header(), known);
        if (created.ok()) {
          sink.emplace(*std::move(created));
          is_factor = response.header().is_factor();
        } else {
          own = created.error();
        }
      } else if (response.has_chunk()) {
        own = sink ? sink->Take(std::move(*response.mutable_chunk()))
                   : ProtocolViolation("a chunk before the result's header");
        if (!own)
          call.ReportTransfer(Stage::kDownload, sink->received_bytes(), sink->total_bytes());
      }
    }
    if (own) context.TryCancel();
    const grpc::Status status = reader->Finish();
    if (own) return *std::move(own);
    if (!status.ok()) return FromStatus(status, replica.address);
    if (!sink) return ProtocolViolation("a download ended without the result");
    Expected<CscMatrix> m = sink->Finish();
    if (m.ok()) m->is_factor = is_factor;
    return m;
  };
  return Attempt<CscMatrix>(call, AffinityOf(preconditioner), Repeat::kSafe, once);
}

}  // namespace spaid
