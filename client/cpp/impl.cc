#include "client/cpp/impl.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

namespace spaid {
namespace {

using internal::MakeError;

// Matched to the daemon's: it allows a ping every 20 s. Idle connections are not pinged.
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
// A connection that failed is tried again at the pace of our own retries, not gRPC's 1 .. 120 s.
constexpr int kReconnectFirstMs = 100;
constexpr int kReconnectMaxMs = 2'000;
constexpr int kConnectTimeoutMs = 5'000;
constexpr int64_t kMinChunkBytes = 8;
constexpr int64_t kMaxChunkBytes = 3 << 20;
constexpr size_t kMaxRememberedOrders = 4096;

Expected<std::string> ReadFile(const std::string& path, const char* field) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return MakeError(Code::kInvalidArgument, internal::kUnreadableFile,
                     std::string(field) + ": cannot read " + path +
                         "; name a PEM file that this process may read",
                     field);
  }
  return std::move(text).str();
}

Error BadOption(const char* field, const std::string& what) {
  return MakeError(Code::kInvalidArgument, internal::kBadOption, std::string(field) + ": " + what,
                   field);
}

// gRPC aborts the process on metadata that HTTP/2 cannot carry.
bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

std::vector<std::string> AddressesOf(const std::string& text) {
  std::vector<std::string> addresses;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    addresses.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return addresses;
}

std::optional<Error> Check(const ClientOptions& options) {
  if (options.address.empty()) return BadOption("address", "is empty; give HOST:PORT");
  const std::vector<std::string> addresses = AddressesOf(options.address);
  for (auto at = addresses.begin(); at != addresses.end(); ++at) {
    if (!at->empty() && std::find(addresses.begin(), at, *at) == at) continue;
    return BadOption("address", "is '" + options.address +
                                    "'; give HOST:PORT, or several of them, each once, with commas "
                                    "and nothing else between them");
  }
  if (options.max_attempts < 1) {
    return BadOption("max_attempts",
                     "is " + std::to_string(options.max_attempts) + "; at least 1 is needed");
  }
  if (options.chunk_bytes < kMinChunkBytes || options.chunk_bytes > kMaxChunkBytes) {
    return BadOption("chunk_bytes", "is " + std::to_string(options.chunk_bytes) +
                                        "; it must be in 8 .. " + std::to_string(kMaxChunkBytes));
  }
  for (const auto& [field, token] :
       {std::pair("token", &options.token), std::pair("admin_token", &options.admin_token)}) {
    if (!IsPrintable(*token)) {
      return BadOption(field, "holds characters that a header cannot; is there a line end in it?");
    }
  }
  if (!IsPrintable(options.tenant)) {
    return BadOption("tenant", "holds characters that a header cannot");
  }
  if (auto error = internal::CheckTrace(options.traceparent, options.tracestate)) return error;
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return BadOption(options.key_file.empty() ? "key_file" : "certificate_file",
                     "is missing; a client certificate needs its key and the other way round");
  }
  return std::nullopt;
}

Expected<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const ClientOptions& options) {
  if (options.ca_file.empty() && options.certificate_file.empty()) {
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions ssl;
  const auto read = [](const std::string& path, const char* field,
                       std::string& into) -> std::optional<Error> {
    if (path.empty()) return std::nullopt;
    Expected<std::string> text = ReadFile(path, field);
    if (!text.ok()) return text.error();
    into = *std::move(text);
    return std::nullopt;
  };
  if (auto error = read(options.ca_file, "ca_file", ssl.pem_root_certs)) return *error;
  if (auto error = read(options.certificate_file, "certificate_file", ssl.pem_cert_chain)) {
    return *error;
  }
  if (auto error = read(options.key_file, "key_file", ssl.pem_private_key)) return *error;
  return grpc::SslCredentials(ssl);
}

}  // namespace

Client::Impl::Impl(ClientOptions given)
    : options(std::move(given)),
      link(std::make_shared<internal::LocalLink>(options.local_socket, options.token)) {
  broken = Check(options);
  if (broken) return;
  traceparent = options.traceparent;
  tracestate = options.tracestate;
  if (const char* const set = std::getenv("TRACEPARENT"); traceparent.empty() && set) {
    const char* const state = std::getenv("TRACESTATE");
    // A value that is none, set by somebody else, is nobody's error.
    if (!internal::CheckTrace(set, "")) traceparent = set;
    tracestate = state != nullptr && !internal::CheckTrace("", state) ? state : "";
  }
  retry.max_attempts = options.max_attempts;
  auto credentials = Credentials(options);
  if (!credentials.ok()) {
    broken = credentials.error();
    return;
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectFirstMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  // Retries are ours (they know what may be repeated); gRPC's would buffer what is being sent.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // A connection of this client's own: closing it, or its back-off, is nobody else's matter.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetUserAgentPrefix("spaid-client");
  replicas = std::make_unique<internal::Replicas>(
      AddressesOf(options.address), [&](const std::string& address) {
        return grpc::CreateCustomChannel(address, *credentials, arguments);
      });
}

void Client::Impl::Prepare(const Call& call, std::string_view affinity,
                           grpc::ClientContext& context) const {
  if (!affinity.empty()) context.AddMetadata("x-spaid-affinity", std::string(affinity));
  const bool own = !call.options().traceparent.empty();
  const std::string& parent = own ? call.options().traceparent : traceparent;
  const std::string& state = own ? call.options().tracestate : tracestate;
  if (!parent.empty()) {
    context.AddMetadata("traceparent", parent);
    if (!state.empty()) context.AddMetadata("tracestate", state);
  }
  if (call.deadline()) context.set_deadline(*call.deadline());
  const bool administrator = call.options().as_administrator && !options.admin_token.empty();
  const std::string& token = administrator ? options.admin_token : options.token;
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  if (!options.tenant.empty()) context.AddMetadata("x-spaid-tenant", options.tenant);
}

Expected<int64_t> Client::Impl::Order(const std::string& matrix, const Call& call) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = orders_.find(matrix); found != orders_.end()) return found->second;
  }
  Expected<MatrixInfo> info = GetMatrix(matrix, call);
  if (!info.ok()) return info.error();
  if (info->n < 1) return internal::ProtocolViolation("a matrix without rows");
  RememberOrder(matrix, info->n);
  return info->n;
}

void Client::Impl::RememberOrder(const std::string& matrix, int64_t n) {
  std::lock_guard lock(mutex_);
  // Forgetting costs one round trip per handle, so forgetting all at once will do.
  if (orders_.size() >= kMaxRememberedOrders) orders_.clear();
  orders_.insert_or_assign(matrix, n);
}

}  // namespace spaid
