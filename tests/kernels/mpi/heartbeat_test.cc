#include "kernels/mpi/heartbeat.h"

#include <gtest/gtest.h>
#include <sys/poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/kernels/mpi/heartbeat_support.h"

namespace spaid::kernels::mpi {
namespace {

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int StayIn(Beat beat) {
  if (!beat.ok()) {
    Say(beat.status().reason());
    return 4;
  }
  Say("in");
  while (std::getchar() != EOF) {
  }
  (*beat)->Leave();
  return 0;
}

int ChildMain(const std::vector<std::string>& arguments) {
  const auto tell = [](const std::string& sentence) {
    Say(sentence);
    std::_Exit(3);
  };
  if (arguments[0] == "rank-0") {
    auto door = Heartbeat::Door::Open();
    if (!door.ok()) return 5;
    Say(door->invitation());
    return StayIn(Heartbeat::Wait(*std::move(door), 2, kPatient, tell));
  }
  if (arguments[0] == "no-thread") {
    auto door = Heartbeat::Door::Open();
    if (!door.ok()) return 5;
    const rlimit none{4096, 4096};  // no new stack: what is allocated small lies in the heap's rest
    setrlimit(RLIMIT_AS, &none);
    return StayIn(Heartbeat::Wait(*std::move(door), 1, kPatient, tell));
  }
  const HeartbeatOptions options{milliseconds(std::stoi(arguments[1])),
                                 milliseconds(std::stoi(arguments[2])), seconds(60)};
  return StayIn(Heartbeat::Join(arguments[3], 1, options, tell));
}

TEST(Heartbeat, RanksLeaveInAnyOrder) {
  for (const bool zero_first : {true, false}) {
    Rank0 zero(4);
    Rank one(zero.invitation(), 1), two(zero.invitation(), 2), three(zero.invitation(), 3);
    ASSERT_TRUE(zero.beat().ok()) << zero.beat().status().message();
    if (zero_first) (*zero.beat())->Leave();
    for (Rank* rank : {&two, &one, &three}) (*rank->beat)->Leave();
    (*zero.beat())->Leave();
    (*zero.beat())->Leave();
    EXPECT_EQ(zero.losses().count(), 0u);
    for (Rank* rank : {&one, &two, &three}) EXPECT_EQ(rank->losses.count(), 0u);
  }
}

// The rank of a raw socket lives as long as it likes, so long as it beats.
TEST(Heartbeat, BeatsKeepARankAlive) {
  Rank0 zero(2, kShort);
  Raw raw = JoinedRaw(zero.invitation(), 1, "node7");
  ASSERT_TRUE(zero.beat().ok());
  for (int i = 0; i < 30; ++i) {  // 1.5 s, by rank 0's own beats
    EXPECT_EQ(raw.Read(1), "B");
    raw.Send("B");
  }
  raw.Send("L");
  EXPECT_TRUE(raw.ClosedByOther());
  (*zero.beat())->Leave();
  EXPECT_EQ(zero.losses().count(), 0u);
}

TEST(Heartbeat, OneRankWaitsForNobody) {
  Rank0 zero(1);
  ASSERT_TRUE(zero.beat().ok());
  (*zero.beat())->Leave();
}

TEST(Heartbeat, KilledRankIsTold) {
  Rank0 zero(2);
  Child child({"rank", "20", "60000", zero.invitation()});
  EXPECT_EQ(child.Line(), "in");
  ASSERT_TRUE(zero.beat().ok());
  child.Signal(SIGKILL);
  EXPECT_EQ(zero.losses().First(),
            "rank 1 on " + ThisHost() + " has died (its connection was closed)");
}

TEST(Heartbeat, KilledRank0IsTold) {
  Child child({"rank-0"});
  Rank rank(child.Line(), 1);
  EXPECT_EQ(child.Line(), "in");
  child.Signal(SIGKILL);
  EXPECT_EQ(rank.losses.First(),
            "rank 0 on " + ThisHost() + " has died (its connection was closed)");
}

TEST(Heartbeat, ChildLeavesInOrder) {
  Rank0 zero(2);
  Child child({"rank", "20", "60000", zero.invitation()});
  EXPECT_EQ(child.Line(), "in");
  ASSERT_TRUE(zero.beat().ok());
  child.EndInput();
  EXPECT_EQ(child.ExitCode(), 0);
  (*zero.beat())->Leave();
  EXPECT_EQ(zero.losses().count(), 0u);
}

TEST(Heartbeat, SilentRankIsToldOnce) {
  Rank0 zero(4, kShort);
  Rank one(zero.invitation(), 1, kShort);
  Raw two = JoinedRaw(zero.invitation(), 2, "node7"), three = JoinedRaw(zero.invitation(), 3, "n");
  ASSERT_TRUE(zero.beat().ok());
  std::thread three_beats([&] {
    while (three.Read(1) == "B") three.Send("B");
  });
  EXPECT_EQ(zero.losses().First(), "rank 2 on node7 has been silent for 1 s");
  EXPECT_TRUE(two.ClosedByOther());
  (*zero.beat())->Leave();
  three_beats.join();
  EXPECT_EQ(zero.losses().count(), 1u);
  // The others are told to end, without a sentence of their own.
  EXPECT_EQ(one.losses.First(), "");
  EXPECT_EQ(one.losses.count(), 1u);
}

TEST(Heartbeat, SilentRank0IsTold) {
  const RawDoor door;
  std::optional<Raw> zero;
  std::thread lets_in([&] { zero.emplace(door.LetIn()); });
  Rank rank(door.invitation(), 1, kShort);
  lets_in.join();
  EXPECT_EQ(rank.losses.First(), "rank 0 on node0 has been silent for 1 s");
}

TEST(Heartbeat, StoppedProcessIsSilent) {
  Rank0 zero(2, kShort);
  Child child({"rank", "20", "60000", zero.invitation()});
  EXPECT_EQ(child.Line(), "in");
  ASSERT_TRUE(zero.beat().ok());
  child.Signal(SIGSTOP);
  EXPECT_EQ(zero.losses().First(), "rank 1 on " + ThisHost() + " has been silent for 1 s");
}

// The process is stopped for longer than it bears silence, when nearly all that it bears has
// passed, and nobody beats meanwhile.
TEST(Heartbeat, OwnStandstillIsNobodysSilence) {
  const RawDoor door;
  Child child({"rank", "600", "1800", door.invitation()});
  Raw zero = door.LetIn();
  EXPECT_EQ(child.Line(), "in");
  EXPECT_EQ(zero.Read(1), "B");
  zero.Send("B");
  EXPECT_EQ(zero.Read(2), "BB");
  child.Signal(SIGSTOP);
  child.AwaitStopped();
  zero.Drain();
  std::this_thread::sleep_for(milliseconds(2500));
  child.Signal(SIGCONT);
  // Beats come after the judgement of the same turn: two are the half of the time for the others.
  EXPECT_EQ(zero.Read(2), "BB");
  zero.Send("B");
  EXPECT_EQ(zero.Read(1), "B");
  child.EndInput();
  EXPECT_TRUE(zero.ClosedByOther());
  zero.Close();
  EXPECT_EQ(child.ExitCode(), 0);
}

TEST(Heartbeat, WhoSendsWhatIsNoHeartbeatIsTold) {
  Rank0 zero(2);
  const Raw raw = JoinedRaw(zero.invitation(), 1, "no\1e");
  ASSERT_TRUE(zero.beat().ok());
  raw.Send("BBx");
  EXPECT_EQ(zero.losses().First(), "rank 1 on no?e has sent what is no heartbeat");
}

TEST(Heartbeat, OnLostMayLeave) {
  const RawDoor door;
  std::optional<Raw> other;
  std::thread lets_in([&] { other.emplace(door.LetIn()); });
  std::mutex mutex;
  std::condition_variable changed;
  Heartbeat* own = nullptr;  // guarded by mutex, as the next
  bool left = false;
  auto rank = Heartbeat::Join(door.invitation(), 1, kPatient, [&](const std::string&) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return own != nullptr; });
    own->Leave();
    left = true;
    changed.notify_all();
  });
  lets_in.join();
  ASSERT_TRUE(rank.ok());
  other->Close();
  std::unique_lock<std::mutex> lock(mutex);
  own = rank->get();
  changed.notify_all();
  EXPECT_TRUE(changed.wait_for(lock, seconds(60), [&] { return left; }));
}

TEST(Heartbeat, StrangersHarmNobody) {
  Rank0 zero(3);
  const Parts parts = PartsOf(zero.invitation());
  std::string wrong = parts.secret;
  wrong.back() = static_cast<char>(wrong.back() ^ 1);
  const Raw slow = Raw::To(parts.port), wrong_one = Raw::To(parts.port),
            garbage = Raw::To(parts.port), long_host = Raw::To(parts.port);
  slow.Send(Hello(parts.secret, 1, "node1").substr(0, 20));
  wrong_one.Send(Hello(wrong, 1, "node1"));
  garbage.Send("GET / HTTP/1.1\r\nHost: spaid.example\r\n\r\n");
  long_host.Send(Hello(parts.secret, 1, std::string(65, 'n')));
  EXPECT_TRUE(wrong_one.ClosedByOther());
  EXPECT_TRUE(garbage.ClosedByOther());
  EXPECT_TRUE(long_host.ClosedByOther());
  EXPECT_TRUE(slow.ClosedByOther());
  // A proven one that goes on with something else, and one that gives up, are no ranks either.
  for (const bool gives_up : {false, true}) {
    const Raw raw = Raw::To(parts.port);
    raw.Send(Hello(parts.secret, 1, "node1"));
    EXPECT_EQ(raw.Read(9), "spaidok1W");
    if (gives_up) continue;
    raw.Send("x");
    EXPECT_TRUE(raw.ClosedByOther());
  }
  Rank one(zero.invitation(), 1), two(zero.invitation(), 2);
  EXPECT_TRUE(zero.beat().ok());
  (*zero.beat())->Leave();
  EXPECT_EQ(zero.losses().count(), 0u);
}

TEST(Heartbeat, IdleStrangersGiveWay) {
  Rank0 zero(3);
  std::vector<Raw> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(Raw::To(PartsOf(zero.invitation()).port));
  // Less than the two seconds after which strangers are closed in any case.
  const HeartbeatOptions hurried{milliseconds(20), seconds(60), milliseconds(1500)};
  const std::string invitation = At(zero.invitation(), "127.0.0.1");
  Rank one(invitation, 1, hurried), two(invitation, 2, hurried);
  ASSERT_TRUE(zero.beat().ok());
  for (const Raw& stranger : strangers) EXPECT_TRUE(stranger.ClosedByOther());
}

TEST(Heartbeat, StrangerGivesItsDescriptorToARank) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UndefinedBehaviorSanitizer opens descriptors to look at objects";
#endif
  Rank0 zero(3);
  const Raw two = JoinedRaw(zero.invitation(), 2, "node2");  // so rank 0 is at the door
  const Parts parts = PartsOf(zero.invitation());
  const Raw rank(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Raw stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const size_t before = OpenDescriptors();
  stranger.Connect(parts.port);
  while (OpenDescriptors() <= before) std::this_thread::yield();
  const NoDescriptors none;
  rank.Connect(parts.port);
  rank.Send(Hello(parts.secret, 1, "node1"));
  EXPECT_EQ(rank.Read(9), "spaidok1W");
  rank.Send("B");
  EXPECT_TRUE(zero.beat().ok());
}

TEST(Heartbeat, WithoutDescriptorsThereIsNoHeartbeat) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UndefinedBehaviorSanitizer opens descriptors to look at objects";
#endif
  auto door = Heartbeat::Door::Open();
  ASSERT_TRUE(door.ok());
  const NoDescriptors none;
  const auto second = Heartbeat::Door::Open();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().reason(), "CANNOT_LISTEN");
  EXPECT_NE(second.status().message().find("Too many open files"), std::string::npos);
  const std::string invitation = door->invitation();
  const auto joined = Heartbeat::Join(invitation, 1, kHasty, {});
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.status().reason(), "NO_RANK_0");
  const auto beat = Heartbeat::Wait(*std::move(door), 1, kPatient, {});
  ASSERT_FALSE(beat.ok());
  EXPECT_EQ(beat.status().reason(), "NO_HEARTBEAT_THREAD");
}

TEST(Heartbeat, WithoutThreadsThereIsNoHeartbeat) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space";
#endif
  Child child({"no-thread"});
  EXPECT_EQ(child.Line(), "NO_HEARTBEAT_THREAD");
  EXPECT_EQ(child.ExitCode(), 4);
}

TEST(Heartbeat, SecondProcessOfARankIsRefused) {
  Rank0 zero(3);
  Rank one(zero.invitation(), 1);
  const auto again = Heartbeat::Join(zero.invitation(), 1, kPatient, {});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(again.status().reason(), "RANK_TAKEN");
  EXPECT_NE(again.status().message().find("rank 0 on " + ThisHost() + " has another"),
            std::string::npos);
  const auto beyond = Heartbeat::Join(zero.invitation(), 3, kPatient, {});
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(beyond.status().reason(), "NO_SUCH_RANK");
  Rank two(zero.invitation(), 2);
  EXPECT_TRUE(zero.beat().ok());
  (*zero.beat())->Leave();
  EXPECT_EQ(one.losses.count(), 0u);
}

TEST(Heartbeat, MissingRanksAreNamed) {
  Rank0 zero(4, kHasty);
  Rank one(zero.invitation(), 1);
  ASSERT_FALSE(zero.beat().ok());
  EXPECT_EQ(zero.beat().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(zero.beat().status().reason(), "RANK_MISSING");
  EXPECT_EQ(zero.beat().status().message().find("ranks 2, 3 of 4 did not reach rank 0 on " +
                                                ThisHost() + " within 0.3 s; "),
            0u);
  EXPECT_EQ(one.losses.count(), 0u);
  EXPECT_EQ(zero.losses().count(), 0u);

  Rank0 alone(30, kHasty);
  ASSERT_FALSE(alone.beat().ok());
  EXPECT_NE(alone.beat().status().message().find("19, 20 and 9 more of 30 did not"),
            std::string::npos);
}

// It may take itself for joined: rank 0 leaves it as it leaves the others.
TEST(Heartbeat, ProvenRankWithoutABeatIsMissing) {
  Rank0 zero(2, kHasty);
  const Parts parts = PartsOf(zero.invitation());
  const Raw raw = Raw::To(parts.port);
  raw.Send(Hello(parts.secret, 1, ""));
  EXPECT_EQ(raw.Read(9), "spaidok1W");
  const std::string length = raw.Read(1);
  raw.Read(static_cast<size_t>(length[0]));
  EXPECT_EQ(raw.Read(1), "L");
  ASSERT_FALSE(zero.beat().ok());
  EXPECT_EQ(zero.beat().status().message().find("rank 1 of 2 did not"), 0u);
}

TEST(Heartbeat, RankThatComesAndGoesIsNamed) {
  for (const bool in_order : {false, true}) {
    Rank0 zero(4);
    Rank two(zero.invitation(), 2);
    Raw raw = JoinedRaw(zero.invitation(), 1, "node7");
    if (in_order) {
      raw.Send("L");
    } else {
      raw.Close();
    }
    ASSERT_FALSE(zero.beat().ok());
    EXPECT_EQ(zero.beat().status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(zero.beat().status().reason(), "RANK_LOST");
    EXPECT_EQ(zero.beat().status().message(),
              in_order ? "rank 1 on node7 has left before all ranks were there"
                       : "rank 1 on node7 has died (its connection was closed)");
    EXPECT_EQ(zero.losses().count(), 0u);
    EXPECT_EQ(two.losses.count(), 0u);
  }
}

TEST(Heartbeat, RanksComeByLoopbackOfIpv4Alone) {
  Rank0 zero(3);
  Rank one(At(zero.invitation(), "127.0.0.1"), 1);
  // The first is no address to connect to: the next is tried.
  Rank two(At(zero.invitation(), "fe80::1 127.0.0.1"), 2);
  ASSERT_TRUE(zero.beat().ok());
  (*zero.beat())->Leave();
  EXPECT_EQ(one.losses.count() + two.losses.count(), 0u);
}

TEST(Heartbeat, RanksMayComeBeforeRank0Waits) {
  auto door = Heartbeat::Door::Open();
  ASSERT_TRUE(door.ok());
  const std::string invitation = At(door->invitation(), "127.0.0.1 127.0.0.1");
  // Half of its time for each address: it comes back.
  HeartbeatOptions options = kPatient;
  options.join = milliseconds(400);
  const auto late = Heartbeat::Join(invitation, 1, options, {});
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.status().message().find("127.0.0.1 (no answer in time)"), std::string::npos);
  std::optional<Beat> one;
  std::thread joins([&] { one.emplace(Heartbeat::Join(invitation, 1, kPatient, {})); });
  Beat zero = Heartbeat::Wait(*std::move(door), 2, kPatient, {});
  joins.join();
  EXPECT_TRUE(zero.ok());
  EXPECT_TRUE(one->ok());
}

TEST(Heartbeat, WhoDoesNotReachRank0SaysWhy) {
  const auto why = [](const std::string& invitation) {
    const auto beat = Heartbeat::Join(invitation, 3, kHasty, {});
    EXPECT_FALSE(beat.ok());
    EXPECT_EQ(beat.status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(beat.status().reason(), "NO_RANK_0");
    EXPECT_EQ(beat.status().message().find("rank 3 on " + ThisHost() +
                                           " did not reach rank 0 within 0.3 s; "),
              0u);
    return beat.status().message();
  };
  std::string closed;
  {
    const RawDoor door;
    closed = door.invitation();
    EXPECT_NE(why(closed).find("127.0.0.1 (no answer in time)"), std::string::npos);
  }
  EXPECT_NE(why(closed).find("127.0.0.1 (Connection refused)"), std::string::npos);
  {
    Rank0 zero(4);
    std::string other = At(zero.invitation(), "127.0.0.1");
    char& digit = other[other.rfind(' ') - 1];
    digit = digit == '0' ? '1' : '0';
    EXPECT_NE(why(other).find("where the secret is not its own"), std::string::npos);
    Rank one(zero.invitation(), 1), two(zero.invitation(), 2), three(zero.invitation(), 3);
    EXPECT_TRUE(zero.beat().ok());
  }
  for (const std::string answer : {"HTTP/1.1 400 Bad Request", "spaidok1W\377"}) {
    const RawDoor door;
    std::atomic<bool> over = false;
    std::thread answers([&] {
      for (pollfd waits{door.fd(), POLLIN, 0}; !over || poll(&waits, 1, 0) > 0;) {
        if (poll(&waits, 1, 10) <= 0) continue;
        const Raw raw = door.Accept();
        raw.Read(29);
        raw.Send(answer);
        EXPECT_TRUE(raw.ClosedByOther());
      }
    });
    EXPECT_NE(why(door.invitation()).find("who answers is not rank 0"), std::string::npos);
    over = true;
    answers.join();
  }
}

TEST(Heartbeat, InvitationsThatAreNoneAreRefused) {
  const std::string secret = " 000102030405060708090a0b0c0d0e0f", good = "spaid-heartbeat-1 4711";
  std::string many;
  for (int i = 0; i < 65; ++i) many += " 127.0.0.1";
  for (const std::string& text :
       {std::string(), std::string("garbage"), std::string(100, '\0'), good, good + secret,
        good + secret.substr(0, 31) + " 127.0.0.1", good + secret + "00 127.0.0.1",
        good + " 000102030405060708090a0b0c0d0e0g 127.0.0.1", good + secret + " localhost",
        good + secret + " 127.0.0.1 127.0.0.1.1", good + secret + many,
        "spaid-heartbeat-2 4711" + secret + " 127.0.0.1",
        "spaid-heartbeat-1 0" + secret + " 127.0.0.1",
        "spaid-heartbeat-1 65536" + secret + " 127.0.0.1",
        "spaid-heartbeat-1 -1" + secret + " 127.0.0.1",
        "spaid-heartbeat-1 47x" + secret + " 127.0.0.1",
        good + secret + std::string(5000, ' ') + "::1"}) {
    const auto beat = Heartbeat::Join(text, 1, kHasty, {});
    ASSERT_FALSE(beat.ok()) << text;
    EXPECT_EQ(beat.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(beat.status().reason(), "BAD_INVITATION") << text;
    EXPECT_EQ(beat.status().field(), "invitation");
  }
}

TEST(Heartbeat, InvitationHasTheAddressesWithLoopbackLast) {
  const auto one = Heartbeat::Door::Open(), two = Heartbeat::Door::Open();
  ASSERT_TRUE(one.ok() && two.ok());
  const Parts parts = PartsOf(one->invitation());
  EXPECT_EQ(parts.tag, "spaid-heartbeat-1");
  EXPECT_EQ(parts.secret.size(), 16u);
  EXPECT_NE(parts.secret, PartsOf(two->invitation()).secret);
  std::string addresses = one->invitation();
  if (addresses.ends_with(" ::1")) addresses.resize(addresses.size() - 4);
  EXPECT_TRUE(addresses.ends_with(" 127.0.0.1")) << addresses;
}

TEST(Heartbeat, OptionsOutOfRangeAreNamed) {
  const auto field = [](const HeartbeatOptions& options) {
    auto door = Heartbeat::Door::Open();
    EXPECT_TRUE(door.ok());
    const auto joined = Heartbeat::Join(door->invitation(), 1, options, {});
    const auto waited = Heartbeat::Wait(*std::move(door), 2, options, {});
    EXPECT_EQ(joined.status().reason(), "BAD_HEARTBEAT");
    EXPECT_EQ(waited.status().field(), joined.status().field());
    return joined.status().field();
  };
  constexpr milliseconds kMs{1}, kDay{86'400'000};
  EXPECT_EQ(field({0 * kMs, kMs, kMs}), "every");
  EXPECT_EQ(field({2 * kDay, 6 * kDay, kMs}), "every");
  EXPECT_EQ(field({2 * kMs, 5 * kMs, kMs}), "silent");
  EXPECT_EQ(field({2 * kMs, kDay + kMs, kMs}), "silent");
  EXPECT_EQ(field({2 * kMs, kDay, 0 * kMs}), "join");
  EXPECT_EQ(field({2 * kMs, kDay, kDay + kMs}), "join");
}

}  // namespace
}  // namespace spaid::kernels::mpi

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && !arguments[0].starts_with("-")) {
    return spaid::kernels::mpi::ChildMain(arguments);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
