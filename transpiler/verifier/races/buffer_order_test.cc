#include "transpiler/verifier/races/buffer_order.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "transpiler/verifier/testing/found.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> Check(const testing::Edits& edits = {},
                               OpOrder order = OpOrder::kByStreams) {
  const Program program = testing::ExampleOf("W412", edits);
  Findings findings;
  CheckBufferOrder(program, nullptr, order, ProgramRef(), &findings);
  return testing::Lines(findings);
}

TEST(BufferOrder, W412NamesBothOps) {
  EXPECT_THAT(
      Check(),
      ElementsAre("warning: W412: op 3 (relu) reads a after op 2 (scale) writes f: a is a part of "
                  "f, and Paddle's executor may run the two in any order; name both in an op "
                  "between them, split the op on the buffer by parts, or use no fused buffers"));
}

TEST(BufferOrder, W412OpOnThePartsIsInOrder) {
  EXPECT_THAT(Check({{"    Out=[f] = scale(X=[f]) {scale=0.5}\n    Out=[u]",
                      "    Out=[a] = scale(X=[a]) {scale=0.5}\n"
                      "    Out=[b] = scale(X=[b]) {scale=0.5}\n    Out=[u]"}}),
              IsEmpty());
}

TEST(BufferOrder, W414ForExecutorsThatOrderByNames) {
  const std::vector<std::string> lines = Check({}, OpOrder::kByNames);
  EXPECT_THAT(lines, ElementsAre(StartsWith("error: W414: op 3 (relu) reads a after op 2")));
}

// Paddle cannot run it.
TEST(BufferOrder, W412ProgramsOnTwoDevicesAreNotOfPaddle) {
  EXPECT_THAT(Check({{"    Out=[u] = relu(X=[a])",
                      "    Out=[u] = memcpy_d2h(X=[a])\n    Out=[u] = stream_wait(X=[u]) "
                      "{stream=\"cpu\", awaited=\"d2h\"}"}}),
              IsEmpty());
}

std::vector<std::string> CheckShared(const std::string& ops, OpOrder order = OpOrder::kByStreams) {
  const Program program = testing::BlockProgram(
      "    var g : fp32[4]\n    var h : fp32[4]\n    var s : fp32[4]\n"
      "    Out=[h] = share_data(X=[g])\n    Out=[g] = relu(X=[g])\n" +
      ops);
  Findings findings;
  CheckBufferOrder(program, nullptr, order, ProgramRef(), &findings);
  return testing::Lines(findings);
}

// In Paddle 2.6.2, what the read finds differs from run to run.
TEST(BufferOrder, W412ReadUnderAnotherNameThanTheWrite) {
  EXPECT_THAT(CheckShared("    Out=[s] = assign(X=[h])\n"),
              ElementsAre("warning: W412: op 2 (assign) reads h after op 1 (relu) writes its "
                          "memory: op 0 (share_data) shares it with h, and Paddle's executor may "
                          "run the two in any order; read the name that is written, or keep what "
                          "was there by assign"));
  EXPECT_THAT(CheckShared("    Out=[s] = assign(X=[h])\n", OpOrder::kByNames),
              ElementsAre(StartsWith("error: W414: op 2 (assign) reads h after op 1 (relu)")));
  EXPECT_THAT(CheckShared("    Out=[s] = elementwise_add(X=[h], Y=[g])\n"), IsEmpty());
  EXPECT_THAT(CheckShared("    Out=[s] = scale(X=[g])\n    Out=[s] = sum(X=[s, h])\n"), IsEmpty());
  EXPECT_THAT(CheckShared("    Out=[s] = scale(X=[g])\n"), IsEmpty());
}

}  // namespace
}  // namespace weft
