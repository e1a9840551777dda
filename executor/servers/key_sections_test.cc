#include "executor/servers/key_sections.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/test.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

constexpr char kVars[] = R"(
    var a : fp32[2] parameter persistable
    var b : fp32[2] parameter persistable
    var c : fp32[2] parameter persistable
    var a@GRAD : fp32[2]
    var b@GRAD : fp32[2]
    var c@GRAD : fp32[2]
    var lr : fp32[1]
    var rate : fp32[1] persistable
)";
constexpr char kReceiveA[] =
    "Grad=[a@GRAD], LearningRate=[lr] = ps_receive() {server_key=0, shape=longs[2]}\n";
constexpr char kReceiveB[] =
    "Grad=[b@GRAD], LearningRate=[lr] = ps_receive() {server_key=1, shape=longs[2]}\n";
constexpr char kReceiveC[] =
    "Grad=[c@GRAD], LearningRate=[lr] = ps_receive() {server_key=2, shape=longs[2]}\n";
constexpr char kUpdateA[] =
    "ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) {server_key=0}\n";
constexpr char kUpdateB[] =
    "ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) {server_key=1}\n";
constexpr char kUpdateC[] =
    "ParamOut=[c] = sgd(Param=[c], Grad=[c@GRAD], LearningRate=[lr]) {server_key=2}\n";
constexpr char kServeA[] = "ps_serve(X=[a]) {server_key=0}\n";
constexpr char kServeB[] = "ps_serve(X=[b]) {server_key=1}\n";
constexpr char kServeC[] = "ps_serve(X=[c]) {server_key=2}\n";

// "0-3: 0", ops and keys.
std::vector<std::string> Sections(const std::vector<std::string>& ops) {
  const auto program = ParseProgramText(
      absl::StrCat("program {\n  block 0 parent=-1 {", kVars, absl::StrJoin(ops, ""), "  }\n}\n"));
  EXPECT_THAT(program, IsOk());
  PlanOptions options;
  options.kernels = &CpuKernels();
  const auto plan = Plan::Build(*program, options);
  EXPECT_THAT(plan, IsOk());
  std::vector<std::string> texts;
  for (const KeySection& section : FindKeySections(*plan)) {
    texts.push_back(absl::StrCat(section.ops.begin, "-", section.ops.end, ": ",
                                 absl::StrJoin(section.keys, ",")));
  }
  return texts;
}

TEST(FindKeySectionsTest, KeysThatAreReceivedOneByOneAreSections) {
  EXPECT_THAT(Sections({kReceiveA, kUpdateA, kServeA, kReceiveB, kUpdateB, kServeB, kReceiveC,
                        kUpdateC, kServeC}),
              ElementsAre("0-3: 0", "3-6: 1", "6-9: 2"));
}

TEST(FindKeySectionsTest, KeysThatAreReceivedTogetherAreOneSection) {
  EXPECT_THAT(Sections({kReceiveA, kReceiveB, kUpdateA, kServeA, kUpdateB, kServeB, kReceiveC,
                        kUpdateC, kServeC}),
              ElementsAre("0-6: 0,1", "6-9: 2"));
}

// Key 1 has the rate that came with key 0.
TEST(FindKeySectionsTest, ValueThatPassesFromKeyToKeyJoinsThem) {
  EXPECT_THAT(Sections({kReceiveA, kUpdateA, kServeA,
                        "Grad=[b@GRAD] = ps_receive() {server_key=1, shape=longs[2]}\n", kUpdateB,
                        kServeB, kReceiveC, kUpdateC, kServeC}),
              ElementsAre("0-6: 0,1", "6-9: 2"));
}

TEST(FindKeySectionsTest, SharedStateJoinsKeysAndAllBetweenThem) {
  const char* const kScale = "Out=[rate] = scale(X=[rate]) {scale=0.5, server_key=0}\n";
  EXPECT_THAT(Sections({kReceiveA, kUpdateA, kScale, kServeA, kReceiveB, kUpdateB, kServeB,
                        kReceiveC, kUpdateC, kScale, kServeC}),
              ElementsAre("0-11: 0,1,2"));
}

TEST(FindKeySectionsTest, StateThatKeysOnlyReadJoinsNone) {
  const auto update = [](const char* variable, int key) {
    return absl::StrCat("ParamOut=[", variable, "] = sgd(Param=[", variable, "], Grad=[", variable,
                        "@GRAD], LearningRate=[rate]) {server_key=", key, "}\n");
  };
  EXPECT_THAT(Sections({kReceiveA, update("a", 0), kServeA, kReceiveB, update("b", 1), kServeB}),
              ElementsAre("0-3: 0", "3-6: 1"));
}

// --- Order ---------------------------------------------------------------------------------------

SectionQueue Queue(const std::vector<std::vector<int64_t>>& keys) {
  std::vector<KeySection> sections;
  for (const std::vector<int64_t>& of_one : keys) sections.push_back({{}, of_one});
  return SectionQueue(sections);
}

// Runs all that can run, each with its gradients used.
std::vector<int> RunAll(SectionQueue* queue) {
  std::vector<int> ran;
  while (queue->HasNext()) {
    const int section = queue->Next();
    for (int64_t key : queue->section(section).keys) queue->SetComplete(key, false);
    queue->EndRun(section);
    ran.push_back(section);
  }
  return ran;
}

TEST(SectionQueueTest, SectionsRunAsTheirKeysAreComplete) {
  SectionQueue queue = Queue({{0}, {1, 2}, {3}});
  queue.BeginStep(1);
  EXPECT_FALSE(queue.HasNext());
  queue.SetComplete(3, true);
  queue.SetComplete(1, true);
  EXPECT_THAT(RunAll(&queue), ElementsAre(2));
  EXPECT_EQ(queue.FirstLateKey(), 0);
  queue.SetComplete(0, true);
  EXPECT_EQ(queue.FirstLateKey(), 2);
  queue.SetComplete(2, true);
  EXPECT_THAT(RunAll(&queue), ElementsAre(0, 1));
  EXPECT_TRUE(queue.IsDone());
  EXPECT_EQ(queue.FirstLateKey(), absl::nullopt);
}

TEST(SectionQueueTest, SectionThatIsDoneWaitsForTheNextStep) {
  SectionQueue queue = Queue({{0}, {1}});
  queue.BeginStep(1);
  queue.SetComplete(1, true);
  EXPECT_THAT(RunAll(&queue), ElementsAre(1));
  queue.SetComplete(1, true);  // again, for the next step
  EXPECT_FALSE(queue.HasNext());
  queue.SetComplete(0, true);
  EXPECT_THAT(RunAll(&queue), ElementsAre(0));
  EXPECT_TRUE(queue.IsDone());
  queue.BeginStep(1);
  EXPECT_FALSE(queue.IsDone());
  EXPECT_THAT(RunAll(&queue), ElementsAre(1));
}

TEST(SectionQueueTest, KeyThatStaysCompleteRunsAgainAtOnce) {
  SectionQueue queue = Queue({{0}, {1}});
  queue.BeginStep(2);
  queue.SetComplete(1, true);
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(queue.HasNext());
    EXPECT_EQ(queue.Next(), 1);
    EXPECT_FALSE(queue.HasNext());
    queue.EndRun(1);
  }
  EXPECT_FALSE(queue.HasNext());
  EXPECT_FALSE(queue.IsDone());
}

}  // namespace
}  // namespace weft::testing
