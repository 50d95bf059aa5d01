// Specs, solves, limits and priorities as any bytes make them: refused with a code, a reason and a
// field, or taken; a spec that was taken comes back from the wire's form the same.
#include <google/protobuf/stubs/logging.h>

#include <string>

#include "server/base/status.h"
#include "server/engine/convert.h"
#include "server/engine/resolved_build.h"
#include "tests/fuzz/input.h"

namespace spaid::server {
namespace {

using fuzz::Require;

template <class T>
bool Good(const absl::StatusOr<T>& parsed) {
  if (parsed.ok()) return true;
  Require(parsed.status().code() == absl::StatusCode::kInvalidArgument, "the code of a refusal");
  Require(!ReasonOf(parsed.status()).empty(), "a refusal without a reason");
  Require(FieldOf(parsed.status()).rfind("header", 0) == 0, "a refusal without a field");
  Require(parsed.status().message().size() < 4096, "the length of a refusal");
  return false;
}

void Spec(const v1::PreconditionerSpec& spec) {
  const auto parsed = ParseSpec(spec, "header.spec");
  if (!Good(parsed)) return;
  const v1::PreconditionerSpec wire = ToProto(parsed->spec, parsed->pattern_matrix);
  const auto again = ParseSpec(wire, "header.spec");
  Require(again.ok(), "the wire's form of a spec is refused");
  Require(
      ToProto(again->spec, again->pattern_matrix).SerializeAsString() == wire.SerializeAsString(),
      "a spec comes back changed");
}

template <class Message>
Message Parsed(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) message.Clear();
  return message;
}

}  // namespace
}  // namespace spaid::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Protobuf would tell of every text that is no UTF-8.
  [[maybe_unused]] static auto* const silent = google::protobuf::SetLogHandler(nullptr);
  using namespace spaid;          // NOLINT(google-build-using-namespace)
  using namespace spaid::server;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  switch (input.Below(4)) {
    case 0: {
      const auto header = Parsed<v1::SolveHeader>(input.rest());
      if (const auto solve = ParseSolve(header, "header"); Good(solve)) {
        fuzz::Require(solve->rhs_count >= 1 && solve->rhs_count <= kMaxRhsCount, "rhs_count");
      }
      Good(ParsePriority(header.priority(), "header.priority"));
      Good(ParseLimits(header.limits(), "header.limits"));
      if (header.has_spec()) Spec(header.spec());
      break;
    }
    default:
      Spec(Parsed<v1::PreconditionerSpec>(input.rest()));
  }
  return 0;
}
