#include "transpiler/verifier/races/buffer_order.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

}  // namespace
}  // namespace weft
