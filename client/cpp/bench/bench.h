// spaid_client_bench measures a daemon from a client's side. Each command prints one JSON object.
#pragma once

#include <spaid/client.h>

#include <cstdint>
#include <string>
#include <vector>

namespace spaid::bench {

struct UploadBench {
  std::string address;
  int64_t megabytes = 256;  // size of the matrix's arrays
  int rounds = 5;           // bare stream and upload in turn; medians are reported
  bool checksums = true;
  bool again = true;         // uploads of what is there, too
  std::string local_socket;  // not empty: and by shared memory, in turn
};
int RunUpload(const UploadBench& bench);

struct DownloadBench {
  std::string address;
  int64_t megabytes = 256;
  int rounds = 5;  // bare stream, M and its values in turn
};
int RunDownload(const DownloadBench& bench);

struct BuildBench {
  std::string address;
  int64_t nodes = 40, unknowns = 3;  // per edge of a cube, per node
  int rounds = 5;                    // each way to send M, in turn
};
int RunBuild(const BuildBench& bench);

struct SolveBench {
  std::string address;
  int64_t megabytes = 64;  // size of the right-hand side
  int rounds = 5;
  std::string local_socket;  // not empty: and by shared memory, in turn
};
int RunSolve(const SolveBench& bench);

// Serves the bare stream on a free port of 127.0.0.1, writes the address and a newline to stdout,
// and runs until stdin ends.
int ServeBareStream();

// Runs a bare stream's server in a process of its own, like the daemon.
class BareServer {
 public:
  BareServer();  // address() is empty where it could not be started
  ~BareServer();
  BareServer(const BareServer&) = delete;
  BareServer& operator=(const BareServer&) = delete;
  const std::string& address() const { return address_; }

 private:
  int pid_ = -1;
  int stdin_ = -1;
  std::string address_;
};

// Sends `bytes` in messages of 1 MiB over one stream. Returns the seconds until the server has
// answered, or a negative number if the stream failed.
double SendBareStream(const std::string& address, int64_t bytes);
// The same the other way: until the last one is here.
double ReceiveBareStream(const std::string& address, int64_t bytes);

// A band of `width` entries per column, whose arrays take as many bytes as asked for.
CscMatrix Band(int64_t bytes, int64_t width);
double Median(std::vector<double> values);

}  // namespace spaid::bench
