#include "executor/jobs/job_messages.h"

#include <random>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

JobHello SomeHello() {
  JobHello hello;
  hello.job = std::string("a\0b\xff", 4);
  hello.process = 3;
  hello.num_processes = 5;
  hello.local_ranks = 2;
  hello.generation = 7;
  hello.facts = {{"build", "abc"}, {"vector units", ""}};
  hello.identity = {"boot pid:[4026531836]", "node7", 4711, 123456789012};
  return hello;
}

TEST(JobMessagesTest, TextsComeBack) {
  EXPECT_THAT(DecodeTexts(EncodeTexts({})), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(DecodeTexts(EncodeTexts({"", absl::string_view("a\0", 2), "bc"})),
              IsOkAndHolds(ElementsAre("", std::string("a\0", 2), "bc")));
}

TEST(JobMessagesTest, TextsThatAreCutAreErrors) {
  const std::string bytes = EncodeTexts({"abc", "defg"});
  for (size_t size = 1; size < bytes.size(); ++size) {
    if (size == 8 + 3) continue;  // the first alone
    EXPECT_THAT(DecodeTexts(bytes.substr(0, size)), Not(IsOk())) << size;
  }
  EXPECT_THAT(DecodeTexts(std::string(8, '\xff')), Not(IsOk()));
}

TEST(JobMessagesTest, GreetingsComeBack) {
  WEFT_ASSERT_OK_AND_ASSIGN(const JobHello hello, DecodeHello(EncodeHello(SomeHello())));
  EXPECT_EQ(hello.version, JobHello::kVersion);
  EXPECT_EQ(hello.job, SomeHello().job);
  EXPECT_EQ(hello.process, 3);
  EXPECT_EQ(hello.num_processes, 5);
  EXPECT_EQ(hello.facts, SomeHello().facts);
  EXPECT_EQ(hello.local_ranks, 2);
  EXPECT_EQ(hello.generation, 7);
  EXPECT_EQ(hello.identity.host, "boot pid:[4026531836]");
  EXPECT_EQ(hello.identity.hostname, "node7");
  EXPECT_EQ(hello.identity.pid, 4711);
  EXPECT_EQ(hello.identity.start_time, 123456789012);
}

TEST(JobMessagesTest, GreetingsOfOtherVersionsHaveTheVersion) {
  WEFT_ASSERT_OK_AND_ASSIGN(const JobHello hello,
                            DecodeHello(EncodeTexts({"Weft job link", "77", "who knows"})));
  EXPECT_EQ(hello.version, 77);
}

TEST(JobMessagesTest, GreetingsThatAreCutOrChangedDoNotCrash) {
  const std::string bytes = EncodeHello(SomeHello());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeHello(bytes.substr(0, size)), Not(IsOk())) << size;
  }
  std::mt19937 rng(5);
  for (int i = 0; i < 10000; ++i) {
    std::string changed = bytes;
    changed[rng() % changed.size()] = static_cast<char>(rng());
    DecodeHello(changed).status().IgnoreError();
  }
}

TEST(JobMessagesTest, ErrorsComeBack) {
  EXPECT_THAT(DecodeError(EncodeError(absl::AbortedError("rank 2 failed: x"))),
              StatusIs(absl::StatusCode::kAborted, "rank 2 failed: x"));
  EXPECT_THAT(DecodeError(""), IsInternal("no error"));
  EXPECT_THAT(DecodeError(EncodeError(absl::OkStatus())), Not(IsOk()));
}

}  // namespace
}  // namespace weft::testing
