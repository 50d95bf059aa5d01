// The yardstick of transfers: streams of 1 MiB messages that nobody looks into.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <string>

#include "client/cpp/bench/bench.h"
#include "spaid/v1/matrix.grpc.pb.h"
#include "spaid/v1/preconditioner.grpc.pb.h"

extern char** environ;

namespace spaid::bench {
namespace {

constexpr int64_t kMessageBytes = 1 << 20;

// The messages are those of UploadMatrix (bytes in a chunk in a request), so that the framing is
// the same; only the work on them is missing.
class Sink final : public v1::MatrixService::Service {
 public:
  grpc::Status UploadMatrix(grpc::ServerContext*,
                            grpc::ServerReaderWriter<v1::UploadMatrixResponse,
                                                     v1::UploadMatrixRequest>* stream) override {
    v1::UploadMatrixRequest request;
    int64_t bytes = 0;
    while (stream->Read(&request)) bytes += static_cast<int64_t>(request.chunk().data().size());
    v1::UploadMatrixResponse response;
    response.mutable_done()->mutable_timings()->set_bytes_up(bytes);
    stream->Write(response);
    return grpc::Status::OK;
  }
};

// As many messages of 1 MiB as the name says.
class Source final : public v1::PreconditionerService::Service {
 public:
  grpc::Status DownloadPreconditioner(
      grpc::ServerContext*, const v1::DownloadPreconditionerRequest* request,
      grpc::ServerWriter<v1::DownloadPreconditionerResponse>* stream) override {
    v1::DownloadPreconditionerResponse response;
    response.mutable_chunk()->mutable_data()->assign(kMessageBytes, '\x5a');
    for (int64_t left = std::stoll(request->name()); left > 0; --left) stream->Write(response);
    return grpc::Status::OK;
  }
};

}  // namespace

int ServeBareStream() {
  Sink sink;
  Source source;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&sink);
  builder.RegisterService(&source);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return 1;
  std::cout << "127.0.0.1:" << port << std::endl;
  std::cin.ignore(1);  // ends with the parent
  server->Shutdown();
  return 0;
}

BareServer::BareServer() {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return;
  if (pipe2(out, O_CLOEXEC) != 0) {
    close(in[0]), close(in[1]);
    return;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  char name[] = "spaid_client_bench";
  char command[] = "bare-server";
  char* arguments[] = {name, command, nullptr};
  if (posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]), close(out[1]);
  stdin_ = in[1];
  char byte = 0;
  while (read(out[0], &byte, 1) == 1 && byte != '\n') address_.push_back(byte);
  close(out[0]);
}

BareServer::~BareServer() {
  if (stdin_ >= 0) close(stdin_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

double SendBareStream(const std::string& address, int64_t bytes) {
  const auto stub =
      v1::MatrixService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::UploadMatrixRequest request;
  request.mutable_chunk()->mutable_data()->assign(kMessageBytes, '\x5a');
  v1::UploadMatrixResponse response;
  const auto start = std::chrono::steady_clock::now();
  const auto stream = stub->UploadMatrix(&context);
  int64_t sent = 0;
  for (; sent < bytes; sent += kMessageBytes) {
    if (!stream->Write(request)) break;
  }
  stream->WritesDone();
  const bool answered = stream->Read(&response);
  const grpc::Status status = stream->Finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (!answered || !status.ok() || response.done().timings().bytes_up() != sent) {
    std::cerr << "bare stream: " << status.error_message() << '\n';
    return -1;
  }
  return seconds.count() * static_cast<double>(bytes) / static_cast<double>(sent);
}

double ReceiveBareStream(const std::string& address, int64_t bytes) {
  const auto stub = v1::PreconditionerService::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::DownloadPreconditionerRequest request;
  request.set_name(std::to_string((bytes + kMessageBytes - 1) / kMessageBytes));
  v1::DownloadPreconditionerResponse response;
  const auto start = std::chrono::steady_clock::now();
  const auto stream = stub->DownloadPreconditioner(&context, request);
  int64_t received = 0;
  while (stream->Read(&response)) received += static_cast<int64_t>(response.chunk().data().size());
  const grpc::Status status = stream->Finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (!status.ok() || received < bytes) {
    std::cerr << "bare stream: " << status.error_message() << '\n';
    return -1;
  }
  return seconds.count() * static_cast<double>(bytes) / static_cast<double>(received);
}

}  // namespace spaid::bench
