// Specs, solves, limits and priorities as any bytes make them: refused with a code, a reason and a
// field, or taken; a spec that was taken comes back from the wire's form the same. An input that
// begins with a line such as "# SolveHeader" is a message in protobuf's text format, so that seeds
// can be read.
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <cmath>
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
  const v1::PreconditionerSpec wire = ToProto(parsed->spec, parsed->given, parsed->regrow);
  const auto again = ParseSpec(wire, "header.spec");
  Require(again.ok(), "the wire's form of a spec is refused");
  Require(ToProto(again->spec, again->given, again->regrow).SerializeAsString() ==
              wire.SerializeAsString(),
          "a spec comes back changed");
}

void Solve(const v1::SolveHeader& header) {
  if (const auto solve = ParseSolve(header, "header"); Good(solve)) {
    Require(solve->rhs_count >= 1 && solve->rhs_count <= kMaxRhsCount, "rhs_count");
    Require(solve->null_vectors >= 0 && solve->null_vectors <= kernels::kMostNullVectors,
            "null_vectors");
    const bool given = solve->null_space == kernels::NullSpaceChoice::kGiven;
    Require(given == (solve->null_vectors > 0), "null vectors that nobody sends");
    Require(solve->reuse.factor >= 1 && std::isfinite(solve->reuse.factor), "a factor of reuse");
    Require(solve->reuse.mode == ReuseMode::kKeep ||
                header.preconditioning_case() == v1::SolveHeader::kPreconditioner,
            "reuse of nothing");
  }
  Good(ParsePriority(header.priority(), "header.priority"));
  Good(ParseLimits(header.limits(), "header.limits"));
  if (header.has_spec()) Spec(header.spec());
}

template <class Message>
Message Parsed(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) message.Clear();
  return message;
}

template <class Message>
bool ParseText(std::string_view text, Message* message) {
  const std::string begins = "# " + Message::descriptor()->name() + "\n";
  return text.substr(0, begins.size()) == begins &&
         google::protobuf::TextFormat::ParseFromString(std::string(text), message);
}

}  // namespace
}  // namespace spaid::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Protobuf would tell of every text that is no UTF-8.
  [[maybe_unused]] static auto* const silent = google::protobuf::SetLogHandler(nullptr);
  using namespace spaid;          // NOLINT(google-build-using-namespace)
  using namespace spaid::server;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  v1::SolveHeader header;
  v1::PreconditionerSpec spec;
  if (ParseText(input.rest(), &header)) {
    Solve(header);
  } else if (ParseText(input.rest(), &spec)) {
    Spec(spec);
  } else if (input.Below(4) == 0) {
    Solve(Parsed<v1::SolveHeader>(input.rest()));
  } else {
    Spec(Parsed<v1::PreconditionerSpec>(input.rest()));
  }
  return 0;
}
