#include <CLI/CLI.hpp>

#include "client/cpp/bench/bench.h"

int main(int argc, char** argv) {
  using namespace spaid::bench;  // NOLINT(build/namespaces)
  CLI::App app("A spaid daemon's transfers, as its C++ client sees them. Prints JSON.");
  app.require_subcommand(1);
  std::string address = "127.0.0.1:7433";
  app.add_option("--address", address, "HOST:PORT of the daemon")->capture_default_str();

  UploadBench upload;
  CLI::App* upload_command = app.add_subcommand(
      "upload", "upload of a matrix against a bare gRPC stream of 1 MiB messages");
  upload_command->add_option("--megabytes", upload.megabytes, "size of the matrix, MiB")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  upload_command->add_option("--rounds", upload.rounds, "measured rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  upload_command->add_option("--local-socket", upload.local_socket,
                             "the daemon's --local-socket: the same from shared memory, too");
  upload_command->add_flag("!--no-checksums", upload.checksums, "send no CRC-32");
  upload_command->add_flag("!--once", upload.again,
                           "send nothing twice: a matrix over ranks of MPI is not found again");

  DownloadBench download;
  CLI::App* download_command =
      app.add_subcommand("download", "download of an M against a bare stream of 1 MiB messages");
  download_command->add_option("--megabytes", download.megabytes, "size of M, MiB")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  download_command->add_option("--rounds", download.rounds, "measured rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));

  BuildBench build;
  CLI::App* build_command = app.add_subcommand(
      "build", "steps of static SPAI of a cube of 27-point stencils, M on the stream of its build");
  build_command->add_option("--nodes", build.nodes, "nodes of an edge")
      ->capture_default_str()
      ->check(CLI::Range(2, 200));
  build_command->add_option("--unknowns", build.unknowns, "unknowns of a node")
      ->capture_default_str()
      ->check(CLI::Range(1, 6));
  build_command->add_option("--rounds", build.rounds, "measured rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));

  SolveBench solve;
  CLI::App* solve_command =
      app.add_subcommand("solve", "solve in two iterations: right-hand side and solution travel");
  solve_command->add_option("--megabytes", solve.megabytes, "size of the right-hand side, MiB")
      ->capture_default_str()
      ->check(CLI::Range(1, 8192));
  solve_command->add_option("--rounds", solve.rounds, "measured rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  solve_command->add_option("--local-socket", solve.local_socket,
                            "the daemon's --local-socket: the same in shared memory, too");

  CLI::App* serve =
      app.add_subcommand("bare-server", "the yardstick's server; started by the others");
  serve->group("");
  CLI11_PARSE(app, argc, argv);

  upload.address = address;
  download.address = address;
  if (serve->parsed()) return ServeBareStream();
  build.address = address;
  solve.address = address;
  if (solve_command->parsed()) return RunSolve(solve);
  if (download_command->parsed()) return RunDownload(download);
  return build_command->parsed() ? RunBuild(build) : RunUpload(upload);
}
