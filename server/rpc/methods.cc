#include "server/rpc/methods.h"

#include <google/protobuf/empty.pb.h>

#include <memory>

#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

class UnknownCall final : public OutStream<google::protobuf::Empty> {
 public:
  UnknownCall(grpc::CallbackServerContext* context, Backend* backend)
      : OutStream(context, "unknown", &backend->streams(), &backend->metrics()) {}

 private:
  void Start() override {
    EndLocked(MakeError(absl::StatusCode::kUnimplemented, reason::kUnknownMethod,
                        "no such method; GetServerInfo tells the server's version"));
  }
  bool Next(google::protobuf::Empty*) override { return false; }
};

}  // namespace

std::vector<std::string> Methods::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, handler] : handlers_) paths.push_back(path);
  return paths;
}

RawBidiReactor* Methods::CreateReactor(grpc::GenericCallbackServerContext* context) {
  const auto it = handlers_.find(context->method());
  if (it != handlers_.end()) return it->second(context);
  return Launch<UnknownCall>(context, backend_);
}

}  // namespace spaid::server
