#include "server/rpc/call_metadata.h"

#include "absl/strings/str_cat.h"
#include "server/base/affinity.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {

std::vector<absl::string_view> MetadataOf(const grpc::ServerContextBase& context, const char* key) {
  std::vector<absl::string_view> values;
  const auto [begin, end] = context.client_metadata().equal_range(key);
  for (auto it = begin; it != end; ++it) {
    values.emplace_back(it->second.data(), it->second.size());
  }
  return values;
}

absl::StatusOr<std::string> AffinityOfCall(const grpc::ServerContextBase& context) {
  constexpr char kKey[] = "x-spaid-affinity";
  const auto values = MetadataOf(context, kKey);
  if (values.empty()) return std::string(kNoAffinity);
  if (values.size() == 1 && IsAffinity({values.front().data(), values.front().size()})) {
    return std::string(values.front());
  }
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadAffinity,
                   absl::StrCat(kKey, " came ", values.size(), " times, first with ",
                                values.front().size(),
                                " bytes; it is sent once, as 8 lower-case hex digits: the first of "
                                "the pattern's digest, or the last of a handle"))
      .Field(kKey);
}

TracePtr TraceOfCall(const grpc::ServerContextBase& context, const Tracer& tracer) {
  const auto parents = MetadataOf(context, "traceparent"),
             states = MetadataOf(context, "tracestate");
  const auto only = [](const std::vector<absl::string_view>& values) {
    return values.size() == 1 ? std::string_view(values[0].data(), values[0].size())
                              : std::string_view();
  };
  return tracer.Begin(only(parents), only(states));
}

}  // namespace spaid::server
