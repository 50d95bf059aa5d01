// The command line of spaid-load, without a daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/client/cli/run_spaidctl.h"
#include "tests/client/cli/temp_folder.h"

namespace spaid::load {
namespace {

using cli::Finished;
using ::testing::HasSubstr;

Finished RunLoad(std::vector<std::string> args) {
  args.insert(args.begin(), cli::ProgramPath("spaid-load"));
  return cli::RunProgram(args);
}

TEST(Program, HelpTellsLoopsAndExitCodes) {
  const Finished help = RunLoad({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* text : {"--rate", "--concurrency", "--time-steps", "scheduled", "Exit codes"}) {
    EXPECT_THAT(help.out, HasSubstr(text));
  }
  EXPECT_THAT(RunLoad({"--version"}).out, HasSubstr("spaid-load 0."));
}

TEST(Program, WrongUsageIsTwo) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--mix=poisson:4=0"},
                                               {"--engines=ilu"},
                                               {"--rate=0"},
                                               {"--concurrency=0"},
                                               {"--time-steps=5", "--rate=3"},
                                               {"--time-steps=5", "--build-share=1"},
                                               {"--tenants=2", "--tenant=a"},
                                               {"--deadline=-1"},
                                               {"--cancel=never"},
                                               {"--cancel-after=-1"},
                                               {"--no-such-option"},
                                               {"word"}}) {
    const Finished finished = RunLoad(args);
    EXPECT_EQ(finished.exit_code, 2) << args[0];
    EXPECT_THAT(finished.err, HasSubstr("Try `spaid-load --help`")) << args[0];
  }
}

TEST(Program, SaysThatNoDaemonIsThere) {
  const Finished finished = RunLoad({"--address=127.0.0.1:1", "--jobs=1"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("spaid-load: error: "));
  EXPECT_THAT(finished.err, HasSubstr("UNREACHABLE"));
  const Finished json = RunLoad({"--address=127.0.0.1:1", "--jobs=1", "--json=-"});
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(json.out).at("error").at("reason"), "UNREACHABLE");
}

TEST(Program, SaysBeforeTheRunWhatItCannotDo) {
  const cli::TempFolder folder;
  EXPECT_THAT(RunLoad({"--mix=nothing:4", "--jobs=1"}).err, HasSubstr("GALLERY_UNKNOWN"));
  EXPECT_THAT(RunLoad({"--jobs=1", "--json=" + folder.File("no/such/folder")}).err,
              HasSubstr("UNWRITABLE_FILE"));
  EXPECT_THAT(RunLoad({"--jobs=1", "--daemon-pid=1000000000000"}).err, HasSubstr("NO_PROCESS"));
  EXPECT_THAT(RunLoad({"--jobs=1", "--tenants=0"}).err, HasSubstr("BAD_TENANTS"));
}

}  // namespace
}  // namespace spaid::load
