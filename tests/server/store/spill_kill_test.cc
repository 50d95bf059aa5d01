// A process is killed in every phase of a write, again and again; then the folder has what was
// acknowledged, and nothing that is not whole.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "server/store/spill_folder.h"
#include "tests/server/store/spill_helpers.h"

namespace spaid::server {
namespace {

// How often: SPAID_SPILL_KILLS=1000 for more.
int Kills() {
  const char* const wanted = getenv("SPAID_SPILL_KILLS");
  return wanted != nullptr ? atoi(wanted) : 50;
}

std::string TextOf(uint64_t sequence) {
  // Some have several blocks, some the text of others.
  return std::string(sequence % 4 == 0 ? 3'000'000 : 100 + sequence % 7, 'x') +
         std::to_string(sequence / 2);
}

// Writes and deletes until its `last`-th step, in which it is killed. Tells, through `out`, what is
// done: "+" written, "-" about to be deleted.
[[noreturn]] void WriteUntilKilled(const std::string& path, int last, int out) {
  int steps = 0;
  const auto folder = OpenSpill(path, 30'000'000, [&](std::string_view) {
    if (++steps >= last) raise(SIGKILL);
    return 0;
  });
  if (folder == nullptr) _exit(1);
  uint64_t sequence = folder->LastSequence("m/");
  for (;;) {
    ++sequence;
    const auto tell = [out](char what, uint64_t which) {
      const std::string line = what + std::to_string(which) + "\n";
      if (write(out, line.data(), line.size()) < 0) _exit(2);
    };
    if (sequence % 3 == 0) {
      tell('-', sequence - 2);
      folder->Delete("t", "m/" + std::to_string(sequence - 2));
      folder->WriteDeletes();
    }
    if (!Spill(*folder, RecordOf("m/" + std::to_string(sequence), "t", sequence), TextOf(sequence))
             .ok()) {
      _exit(3);
    }
    tell('+', sequence);
  }
}

TEST(SpillKillTest, WhatWasAcknowledgedIsThereAndAllIsWhole) {
  TemporaryFolder temporary;
  const std::string path = temporary / "s";
  std::set<uint64_t> must;  // acknowledged, and not deleted since
  uint64_t written = 0;
  for (int kill = 0; kill < Kills(); ++kill) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) WriteUntilKilled(path, 1 + kill % 61, ends[1]);
    close(ends[1]);
    std::string told;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
      told.append(buffer, static_cast<size_t>(n));
    }
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    for (size_t at = 0; at < told.size(); at = told.find('\n', at) + 1) {
      const uint64_t which = std::stoull(told.substr(at + 1));
      if (told[at] == '+') {
        must.insert(which);
        ++written;
      } else {
        must.erase(which);
      }
    }
    const auto folder = OpenSpill(path, 30'000'000);
    ASSERT_NE(folder, nullptr);
    EXPECT_EQ(folder->stats().damaged, 0) << "kill " << kill;
    const auto records = folder->List("t", "m/", ~uint64_t{0}, 1'000'000);
    std::set<uint64_t> there;
    std::set<std::string> files;
    for (const auto& record : records) {
      there.insert(record->sequence);
      files.insert(record->blobs[0].file());
      const auto loaded = Load(*folder, *record);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      ASSERT_EQ(*loaded, TextOf(record->sequence));
    }
    for (auto it = must.begin(); it != must.end();) {
      // The oldest may have gone to make room.
      const bool dropped = !there.contains(*it) && !there.empty() && *it < *there.rbegin() &&
                           folder->stats().bytes > 20'000'000;
      EXPECT_TRUE(there.contains(*it) || dropped) << "kill " << kill << ", " << *it;
      it = there.contains(*it) ? std::next(it) : must.erase(it);
    }
    // Nothing is left of what was cut off.
    for (const auto& entry : std::filesystem::directory_iterator(path + "/files")) {
      EXPECT_TRUE(files.contains(entry.path().filename())) << entry.path();
    }
  }
  EXPECT_GT(written, static_cast<uint64_t>(Kills()));
}

}  // namespace
}  // namespace spaid::server
