#include "server/rpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/unknown_field_set.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/rpc/server.h"

namespace spaid::server {
namespace {

// As in health_service.cc: messages as fields that are not known.
using google::protobuf::Empty;
using google::protobuf::FileDescriptor;
using google::protobuf::UnknownFieldSet;
enum : int {
  kFileByName = 3,  // fields of the request
  kFileBySymbol = 4,
  kListServices = 7,
  kOriginal = 2,  // fields of the response
  kFiles = 4,
  kServices = 6,
  kError = 7,
};

// The file and what it includes, each before those that include it.
void AddFiles(const FileDescriptor* file, std::set<const FileDescriptor*>* seen,
              std::vector<const FileDescriptor*>* files) {
  if (!seen->insert(file).second) return;
  for (int i = 0; i < file->dependency_count(); ++i) AddFiles(file->dependency(i), seen, files);
  files->push_back(file);
}

void SetError(absl::StatusCode code, const std::string& text, UnknownFieldSet* response) {
  UnknownFieldSet error;
  error.AddVarint(1, static_cast<uint64_t>(code));
  error.AddLengthDelimited(2, text);
  error.SerializeToString(response->AddLengthDelimited(kError));
}

void Answer(const UnknownFieldSet& request, UnknownFieldSet* response) {
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  for (int i = 0; i < request.field_count(); ++i) {
    const auto& field = request.field(i);
    if (field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) continue;
    if (field.number() == kListServices) {
      UnknownFieldSet list;
      for (const std::string& name : RpcServer::ServiceNames()) {
        UnknownFieldSet service;
        service.AddLengthDelimited(1, name);
        service.SerializeToString(list.AddLengthDelimited(1));
      }
      list.SerializeToString(response->AddLengthDelimited(kServices));
      return;
    }
    if (field.number() != kFileByName && field.number() != kFileBySymbol) continue;
    const std::string& name = field.length_delimited();
    const FileDescriptor* file = field.number() == kFileByName
                                     ? pool->FindFileByName(name)
                                     : pool->FindFileContainingSymbol(name);
    if (file == nullptr) return SetError(absl::StatusCode::kNotFound, "not found", response);
    std::set<const FileDescriptor*> seen;
    std::vector<const FileDescriptor*> files;
    AddFiles(file, &seen, &files);
    UnknownFieldSet found;
    for (auto it = files.rbegin(); it != files.rend(); ++it) {  // the one asked for first
      google::protobuf::FileDescriptorProto proto;
      (*it)->CopyTo(&proto);
      proto.SerializeToString(found.AddLengthDelimited(1));
    }
    found.SerializeToString(response->AddLengthDelimited(kFiles));
    return;
  }
  SetError(absl::StatusCode::kUnimplemented, "files by name or symbol, and services, alone",
           response);
}

// A question, its answer, and so on. One at a time.
class ReflectionStream final : public OutStream<Empty> {
 public:
  ReflectionStream(grpc::CallbackServerContext* context, Backend* backend)
      : OutStream(context, "ServerReflection/ServerReflectionInfo", &backend->streams(),
                  &backend->metrics()),
        patience_(backend->streams().limits().stalled_sender) {}

  void OnReadDone(bool ok) override {
    Section section(this);
    if (ended_locked()) return;
    GuardLocked([this, ok] {
      // The call ends well at the end of the questions.
      absl::Status status = ok ? Take() : absl::OkStatus();
      if (!ok || !status.ok()) EndLocked(std::move(status));
    });
    PumpLocked();
  }

 private:
  // The question that came.
  absl::Status Take() {
    TookLocked(incoming_);
    if (!asked_locked()) {
      AskedLocked();
      RETURN_IF_ERROR(Admit("reflection"));
    }
    Empty request;
    if (!grpc::SerializationTraits<Empty>::Deserialize(&incoming_, &request).ok()) {
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kUnexpectedMessage,
                       "a message that cannot be parsed; it must be a request of reflection");
    }
    auto* fields = answer_.GetReflection()->MutableUnknownFields(&answer_);
    request.SerializeToString(fields->AddLengthDelimited(kOriginal));
    Answer(request.GetReflection()->GetUnknownFields(request), fields);
    answered_ = true;
    return absl::OkStatus();
  }

  void Start() override { ReadLocked(); }
  bool Idle() const override { return true; }
  bool Next(Empty* message) override {
    if (answered_) {
      answered_ = false;
      message->Swap(&answer_);
      answer_.Clear();
      asking_ = true;
      return true;
    }
    if (std::exchange(asking_, false)) ReadLocked();  // the answer is out
    return false;
  }
  void Ticked(Clock::time_point now) override {
    if (now - read_start_ > patience_) {
      EndLocked(MakeError(absl::StatusCode::kDeadlineExceeded, reason::kStalledSender,
                          "nothing was asked for too long"));
    }
  }
  void ReadLocked() {
    read_start_ = Clock::now();
    StartRead(&incoming_);
  }

  const std::chrono::milliseconds patience_;
  grpc::ByteBuffer incoming_;
  Empty answer_;
  Clock::time_point read_start_ = Clock::now();
  bool answered_ = false, asking_ = false;
};

}  // namespace

void ReflectionService::AddTo(Methods* methods) {
  methods->AddPath("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                   [this](grpc::CallbackServerContext* c) { return Info(c); });
}

RawBidiReactor* ReflectionService::Info(grpc::CallbackServerContext* context) {
  return Launch<ReflectionStream>(context, backend_);
}

}  // namespace spaid::server
