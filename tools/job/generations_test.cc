#include "tools/job/generations.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Decision = Generations::Decision;

class GenerationsTest : public ::testing::Test {
 protected:
  Generations New(int num_processes, int min_processes) {
    return {num_processes, min_processes, [this](int process, const ControlMessage& message) {
              // Without the name of the generation, which is drawn.
              std::vector<std::string> words = absl::StrSplit(message.Encode(), ' ');
              if (words.size() == 6) words.pop_back();
              said_.push_back(absl::StrCat(process, ": ", absl::StrJoin(words, " ")));
            }};
  }
  std::vector<std::string> Said() { return std::exchange(said_, {}); }

  std::vector<std::string> said_;
};

TEST_F(GenerationsTest, TheOthersGoOnWithoutALostProcess) {
  Generations job = New(4, 2);
  EXPECT_FALSE(job.TakesPart(2));
  job.OnMessage(2, "begins");
  EXPECT_TRUE(job.TakesPart(2));
  EXPECT_TRUE(job.OnMessage(2, "ended 1 0 0"));
  EXPECT_FALSE(job.IsDue());
  EXPECT_THAT(Said(), ElementsAre("0: over 1", "1: over 1", "3: over 1"));
  job.OnKilled(0);
  EXPECT_THAT(Said(), ElementsAre("1: over 1", "3: over 1"));
  job.OnMessage(1, "ended 1 1 0");  // it takes the loss for a failure of its own
  EXPECT_FALSE(job.IsDue()) << "process 3 runs";
  job.OnMessage(3, "ended 1 0 0");
  ASSERT_TRUE(job.IsDue());
  Said();
  EXPECT_EQ(job.Decide(17, true), Decision::kGoesOn);
  EXPECT_THAT(Said(), ElementsAre("1: generation 2 0 3 17", "2: generation 2 1 3 17",
                                  "3: generation 2 2 3 17"));
  EXPECT_FALSE(job.IsDue());
  // What belongs to the former generation fails, as does a run that would begin with it.
  for (int p : {1, 2, 3}) EXPECT_FALSE(job.OnMessage(p, "ended 1 1 0"));
  EXPECT_FALSE(job.OnMessage(1, "begins"));
  EXPECT_FALSE(job.IsDue());
  EXPECT_THAT(Said(), ElementsAre("1: fail", "2: fail", "3: fail", "1: fail"));
  job.OnKilled(3);
  for (int p : {1, 2}) job.OnMessage(p, "ended 2 0 0");
  EXPECT_EQ(job.Decide(18, true), Decision::kGoesOn);
  Said();
  job.OnKilled(1);
  job.OnMessage(2, "ended 3 0 0");
  EXPECT_EQ(job.Decide(18, true), Decision::kHasTooFew);
  EXPECT_THAT(Said(), ElementsAre("2: over 3", "2: fail"));
}

TEST_F(GenerationsTest, AnotherProcessJoinsTheNextGeneration) {
  Generations job = New(3, 3);
  for (int p : {0, 1, 2}) job.OnMessage(p, "begins");
  job.OnKilled(1);
  job.OnReplaced(1);
  EXPECT_EQ(job.num_left(), 3);
  EXPECT_FALSE(job.TakesPart(1));
  for (int p : {0, 2}) job.OnMessage(p, "ended 1 0 4");
  EXPECT_FALSE(job.IsDue()) << "the new process has not come";
  EXPECT_TRUE(job.OnMessage(1, "begins"));
  EXPECT_TRUE(job.OnMessage(1, "ended 1 0 0"));
  ASSERT_TRUE(job.IsDue());
  Said();
  EXPECT_EQ(job.Decide(9, true), Decision::kGoesOn);
  EXPECT_THAT(Said(), ElementsAre("0: generation 2 0 3 9", "1: generation 2 1 3 9",
                                  "2: generation 2 2 3 9"));
  // It is as the others now.
  EXPECT_FALSE(job.OnMessage(1, "begins"));
  job.OnKilled(1);
  for (int p : {0, 2}) job.OnMessage(p, "ended 2 0 5");
  EXPECT_EQ(job.Decide(9, true), Decision::kHasTooFew);
}

TEST_F(GenerationsTest, AProcessIsLostAgainIfNoStepIsBetween) {
  Generations job = New(2, 2);
  const auto lose = [&job] {
    job.OnKilled(1);
    job.OnReplaced(1);
    return job.IsLostAgain(1);
  };
  // The second one, before it joins; the third one, as well.
  EXPECT_FALSE(lose());
  job.OnMessage(0, "ended 1 0 4");
  EXPECT_FALSE(lose());
  EXPECT_TRUE(lose());
  // As soon as the others know of a further step, those before it do not count.
  job.OnMessage(1, "ended 1 0 0");
  EXPECT_EQ(job.Decide(0, true), Decision::kGoesOn);
  EXPECT_TRUE(lose());
  job.OnMessage(0, "ended 2 0 5");
  EXPECT_FALSE(job.IsLostAgain(1));
  EXPECT_FALSE(lose());
  job.OnMessage(1, "ended 2 0 0");
  EXPECT_EQ(job.Decide(0, true), Decision::kGoesOn);
  // In a generation that gets no further.
  EXPECT_TRUE(lose());
  job.OnMessage(0, "ended 3 0 5");
  EXPECT_TRUE(job.IsLostAgain(1));
}

TEST_F(GenerationsTest, ALossWhileProcessesComeTogetherIsKnownToAll) {
  Generations job = New(3, 1);
  job.OnKilled(1);
  Said();
  for (int p : {0, 2}) job.OnMessage(p, "ended 1 0 0");
  job.Decide(0, true);
  Said();
  job.OnKilled(2);
  EXPECT_THAT(Said(), ElementsAre("0: over 2"));
}

TEST_F(GenerationsTest, AFailureEndsTheJob) {
  Generations job = New(2, 1);
  job.OnMessage(0, "ended 1 1 0");
  job.OnMessage(1, "ended 1 0 0");
  EXPECT_EQ(job.Decide(0, true), Decision::kEnds);
  EXPECT_THAT(Said(), ElementsAre("1: over 1", "0: fail", "1: fail"));
  EXPECT_TRUE(job.HasEnded());
}

TEST_F(GenerationsTest, AProcessThatExitsWithAnErrorEndsTheJob) {
  Generations job = New(2, 1);
  job.OnExit(0, 2);
  job.OnMessage(1, "ended 1 0 0");
  EXPECT_EQ(job.Decide(0, true), Decision::kEnds);
  EXPECT_THAT(Said(), ElementsAre("1: fail"));
}

TEST_F(GenerationsTest, NobodyIsLostWhoWasStoppedAndWentOn) {
  Generations job = New(2, 2);
  for (int p : {0, 1}) job.OnMessage(p, "ended 1 0 0");
  EXPECT_EQ(job.Decide(5, true), Decision::kGoesOn);
  EXPECT_THAT(Said(), ElementsAre("1: over 1", "0: generation 2 0 2 5", "1: generation 2 1 2 5"));
  // But what prevents each generation is an error.
  for (int number = 2; number <= 4; ++number) {
    for (int p : {0, 1}) job.OnMessage(p, absl::StrCat("ended ", number, " 0 0"));
    EXPECT_EQ(job.Decide(5, true), number < 4 ? Decision::kGoesOn : Decision::kEnds);
  }
}

TEST_F(GenerationsTest, ALossAtTheEndIsNone) {
  Generations job = New(3, 3);
  EXPECT_FALSE(job.IsDone());
  job.OnMessage(0, "finished");
  job.OnExit(0, 0);
  job.OnKilled(1);
  job.OnMessage(2, "ended 1 0 0");
  EXPECT_TRUE(job.IsDone());
  EXPECT_EQ(job.Decide(5, true), Decision::kEnds);
  EXPECT_THAT(Said(), ElementsAre("2: over 1", "2: done"));
}

// It may have done something else.
TEST_F(GenerationsTest, AProcessThatExitsBeforeItHasFinishedEndsTheJob) {
  Generations job = New(2, 1);
  job.OnExit(0, 0);
  EXPECT_FALSE(job.IsDone());
  job.OnMessage(1, "ended 1 0 0");
  EXPECT_EQ(job.Decide(0, true), Decision::kEnds);
  EXPECT_THAT(Said(), ElementsAre("1: fail"));
}

TEST_F(GenerationsTest, AJobThatMustStopDoesNotGoOn) {
  Generations job = New(2, 1);
  job.OnKilled(0);
  job.OnMessage(1, "ended 1 0 0");
  EXPECT_EQ(job.Decide(0, false), Decision::kEnds);
  EXPECT_THAT(Said(), ElementsAre("1: over 1", "1: fail"));
}

TEST_F(GenerationsTest, AFurtherStepIsProgress) {
  Generations job = New(2, 2);
  for (int number = 1; number <= 9; ++number) {
    job.OnMessage(0, absl::StrCat("ended ", number, " 0 0"));
    job.OnMessage(1, absl::StrCat("ended ", number, " 0 ", 10 * number));
    EXPECT_EQ(job.Decide(5, true), Decision::kGoesOn);
  }
}

TEST(ControlMessageTest, IsReadAsItWasWritten) {
  for (const char* text : {"begins", "ended 3 0 17", "ended 1 1 0", "finished", "over 2",
                           "generation 2 1 3 44 ab12", "done", "fail"}) {
    const auto message = ControlMessage::Decode(text);
    ASSERT_TRUE(message.has_value()) << text;
    EXPECT_EQ(message->Encode(), text);
  }
}

TEST(ControlMessageTest, RefusesWhatIsNone) {
  for (const char* text : {"",
                           " ",
                           "begin",
                           "begins ",
                           " begins",
                           "begins 1",
                           "ended",
                           "ended 1",
                           "ended 1 0",
                           "ended 1 2 0",
                           "ended 1 0 0 0",
                           "ended x 0 0",
                           "ended 1 0 -1",
                           "ended -1 0 0",
                           "ended 1 0 99999999999999999999",
                           "ended 01 0 0",
                           "ended +1 0 0",
                           "over",
                           "over x",
                           "over 1 2",
                           "generation 2 1 3 44",
                           "generation 2 1 3 44 ",
                           "generation 2 3 3 44 ab",
                           "generation 2 -1 3 44 ab",
                           "generation 2 1 3 -4 ab",
                           "generation 2 1 3 44 ab cd",
                           "generation",
                           "done 1",
                           "fail\n",
                           "Done"}) {
    EXPECT_FALSE(ControlMessage::Decode(text).has_value()) << text;
  }
  EXPECT_FALSE(ControlMessage::Decode({"done\0", 5}).has_value());
  // A process that says it fails.
  std::string answer;
  Generations job(2, 1, [&](int, const ControlMessage& m) { answer = m.Encode(); });
  EXPECT_FALSE(job.OnMessage(0, "ended 1 0"));
  EXPECT_EQ(answer, "fail");
  EXPECT_FALSE(job.IsAnyWaiting());
}

class GenerationClientTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_.data()), 0); }
  void TearDown() override {
    if (ends_[0] >= 0) close(ends_[0]);
  }

  absl::StatusOr<absl::optional<GenerationClient>> Find() {
    return Find(DescribeControl(ends_[1]).value());
  }
  static absl::StatusOr<absl::optional<GenerationClient>> Find(const std::string& text) {
    return GenerationClient::Find([&](const char*) { return text.c_str(); });
  }
  void Say(const std::string& message) {
    ASSERT_EQ(send(ends_[0], message.data(), message.size(), 0), message.size());
  }
  std::string Hear() {
    std::array<char, 100> buffer;
    return std::string(buffer.data(), recv(ends_[0], buffer.data(), buffer.size(), 0));
  }

  std::array<int, 2> ends_;
};

TEST_F(GenerationClientTest, AsksTheLauncher) {
  const auto client = Find();
  ASSERT_TRUE(client.ok() && client->has_value());
  EXPECT_EQ(Hear(), "begins");
  EXPECT_FALSE((*client)->IsOver());
  Say("over 1");
  EXPECT_TRUE((*client)->IsOver());
  Say("generation 2 1 3 44 ab12");
  Generation generation;
  EXPECT_EQ((*client)->End(true, 7, &generation), GenerationClient::Next::kGoesOn);
  EXPECT_EQ(Hear(), "ended 1 1 7");
  EXPECT_EQ(generation.number, 2);
  EXPECT_EQ(generation.process, 1);
  EXPECT_EQ(generation.num_processes, 3);
  EXPECT_EQ(generation.num_lines, 44);
  EXPECT_EQ(generation.name, "ab12");
  EXPECT_FALSE((*client)->IsOver());
  Say("done");
  EXPECT_EQ((*client)->End(false, 0, &generation), GenerationClient::Next::kIsDone);
  EXPECT_EQ(Hear(), "ended 2 0 0");
  (*client)->Finish();
  EXPECT_EQ(Hear(), "finished");
  Say("fail");
  EXPECT_EQ((*client)->End(false, 0, &generation), GenerationClient::Next::kFails);
  close(std::exchange(ends_[0], -1));
  EXPECT_EQ((*client)->End(false, 0, &generation), GenerationClient::Next::kFails);
}

// A script may have closed that of the launcher, and opened another one.
TEST_F(GenerationClientTest, TellsOtherSocketsNothing) {
  std::array<int, 2> others;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, others.data()), 0);
  const std::string control = DescribeControl(ends_[1]).value();
  ASSERT_EQ(dup2(others[1], ends_[1]), ends_[1]);
  const auto client = Find(control);
  EXPECT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(client.status().message()),
              AllOf(StartsWith("WEFT_JOB_CONTROL=" + control + ": expected the socket"),
                    HasSubstr("as exec does, and Python with pass_fds or close_fds=False")));
  char byte;
  EXPECT_EQ(recv(others[0], &byte, 1, MSG_DONTWAIT), -1);
  for (int fd : {others[0], others[1], ends_[1]}) close(fd);
}

TEST(GenerationClientEnvironmentTest, NamesAVariableThatIsNoSocket) {
  const auto find = [](const char* text) {
    return GenerationClient::Find([text](const char*) { return text; });
  };
  EXPECT_FALSE(find(nullptr).value().has_value());
  EXPECT_FALSE(find("").value().has_value());
  for (const char* text : {"x", "0", "0:1", "12345:1", "1:2:3", ":", "-1:0"}) {
    EXPECT_EQ(find(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace weft::testing
