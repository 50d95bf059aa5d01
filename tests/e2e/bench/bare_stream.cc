#include "tests/e2e/bench/bare_stream.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <vector>

namespace spaid::e2e {
namespace {

using grpc::ByteBuffer;

constexpr int64_t kMessage = 1 << 20;

ByteBuffer Message(int64_t bytes) {
  const std::vector<char> content(static_cast<size_t>(bytes), 'x');
  const grpc::Slice slice(content.data(), content.size());
  return {&slice, 1};
}

int64_t Messages(int64_t bytes) { return (bytes + kMessage - 1) / kMessage; }

// Answers a first message of k bytes by k messages of 1 MiB, k < 1 MiB, and takes all others.
class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  Answer() { StartRead(&read_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (static_cast<int64_t>(read_.Length()) == kMessage) return StartRead(&read_);
    left_ = static_cast<int64_t>(read_.Length());
    StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    if (ok && --left_ > 0) return StartWrite(&message_);
    Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  ByteBuffer read_, message_ = Message(kMessage);
  int64_t left_ = 0;
};

class Service final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Answer;
  }
};

[[noreturn]] void Serve(int port_to, int lifeline) {
  Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(2 * kMessage);
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  char end = 0;
  if (write(port_to, &port, sizeof port) == sizeof port) (void)!read(lifeline, &end, 1);
  _exit(0);
}

class Call final : public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  // Sends `send` messages of `size` bytes, then takes all that come.
  Call(grpc::GenericStub* stub, int64_t send, int64_t size) : left_(send), message_(Message(size)) {
    stub->PrepareBidiStreamingCall(&context_, "/bare/Stream", {}, this);
    StartWrite(&message_);
    StartRead(&read_);
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    if (ok && --left_ > 0) return StartWrite(&message_);
    if (ok) StartWritesDone();
  }
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&read_);
  }
  void OnDone(const grpc::Status& status) override { done_.set_value(status); }
  void Wait() {
    const grpc::Status status = done_.get_future().get();
    if (status.ok()) return;
    std::fprintf(stderr, "the bare stream failed: %s\n", status.error_message().c_str());
    std::abort();
  }

 private:
  grpc::ClientContext context_;
  int64_t left_;
  ByteBuffer message_, read_;
  std::promise<grpc::Status> done_;
};

}  // namespace

struct BareStream::Client {
  explicit Client(const std::string& address)
      : stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}
  double Run(int64_t send, int64_t size) {
    const auto start = std::chrono::steady_clock::now();
    Call(&stub, send, size).Wait();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  }
  grpc::GenericStub stub;
};

BareStream::BareStream() {
  int port_pipe[2], lifeline[2];
  if (pipe(port_pipe) != 0 || pipe(lifeline) != 0) std::abort();
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) {
    close(lifeline[1]);
    Serve(port_pipe[1], lifeline[0]);
  }
  close(lifeline[0]);
  close(port_pipe[1]);
  lifeline_ = lifeline[1];
  int port = 0;
  if (read(port_pipe[0], &port, sizeof port) != sizeof port) std::abort();
  close(port_pipe[0]);
  address_ = "127.0.0.1:" + std::to_string(port);
}

BareStream::~BareStream() {
  client_.reset();
  close(lifeline_);
  waitpid(pid_, nullptr, 0);
}

double BareStream::Send(int64_t bytes) {
  if (client_ == nullptr) client_ = std::make_unique<Client>(address_);
  return client_->Run(Messages(bytes), kMessage);
}

double BareStream::Receive(int64_t bytes) {
  if (client_ == nullptr) client_ = std::make_unique<Client>(address_);
  return client_->Run(1, Messages(bytes));
}

}  // namespace spaid::e2e
