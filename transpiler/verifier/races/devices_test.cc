#include "transpiler/verifier/races/devices.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/races/races.h"
#include "transpiler/verifier/testing/found.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Found(const Program& program) {
  Findings findings;
  CheckDevices(program, ProgramRef(), &findings);
  CheckRaces(program, OpOrder::kByStreams, ProgramRef(), &findings);
  return AllLines(findings);
}

TEST(Devices, W409OpUsesTheOtherMemory) {
  EXPECT_THAT(Found(ExampleOf("W409")),
              ElementsAre("error: W409: op 2 (sgd) input w@GRAD: expected a variable in the memory "
                          "of the host, found one in the memory of the accelerator, where op 0 "
                          "(fill_constant) uses it; insert memcpy_d2h, as pass hetero-partition "
                          "does"));
}

// A step of two layers of which the host updates the parameter.
constexpr absl::string_view kCopied = R"(
    var w : fp32[4] parameter persistable
    Out=[w@SIM] = memcpy_h2d(X=[w])
    Out=[w@SIM] = stream_wait(X=[w@SIM]) {stream="compute", awaited="h2d"}
    Out=[w@GRAD] = scale(X=[w@SIM]) {scale=2.0}
    Out=[w@GRAD] = stream_wait(X=[w@GRAD]) {stream="d2h", awaited="compute"}
    Out=[w@GRAD@CPU] = memcpy_d2h(X=[w@GRAD])
    Out=[w@GRAD@CPU] = stream_wait(X=[w@GRAD@CPU]) {stream="cpu", awaited="d2h"}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD@CPU], LearningRate=[lr]) {op_device="cpu"}
)";

Program Copied(const Edits& edits = {}) { return ProgramOf(kCopied, edits); }

TEST(Devices, CopiesInOrderAreRight) { EXPECT_THAT(Found(Copied()), IsEmpty()); }

TEST(Devices, W401CopyThatReadsBeforeTheWrite) {
  EXPECT_THAT(
      Found(Copied({{"    Out=[w@GRAD] = stream_wait(X=[w@GRAD]) {stream=\"d2h\", "
                     "awaited=\"compute\"}\n",
                     ""}})),
      ElementsAre(
          "error: W401: op 3 (memcpy_d2h) reads w@GRAD on stream d2h, while op 2 (scale) "
          "writes it on the compute stream: nothing makes stream d2h wait for the compute "
          "stream in between; insert stream_wait of stream d2h for the compute stream",
          HasSubstr("W402: op 5 (sgd) writes w on stream cpu, while op 0 (memcpy_h2d) reads it")));
}

TEST(Devices, W401OpThatReadsBeforeTheCopy) {
  EXPECT_THAT(Found(Copied({{"    Out=[w@GRAD@CPU] = stream_wait(X=[w@GRAD@CPU]) {stream=\"cpu\", "
                             "awaited=\"d2h\"}\n",
                             ""}})),
              ElementsAre(HasSubstr("W401: op 5 (sgd) reads w@GRAD@CPU on stream cpu, while op 4 "
                                    "(memcpy_d2h) writes it on stream d2h"),
                          HasSubstr("W402: op 5 (sgd) writes w on stream cpu, while op 0 "
                                    "(memcpy_h2d) reads it on stream h2d")));
}

TEST(Devices, W402WriteOfWhatACopyReads) {
  EXPECT_THAT(
      Found(Copied({{"    Out=[w@GRAD@CPU] = stream_wait(X=[w@GRAD@CPU])",
                     "    Out=[w@GRAD] = relu(X=[w@GRAD])\n"
                     "    Out=[w@GRAD@CPU] = stream_wait(X=[w@GRAD@CPU])"}})),
      ElementsAre(HasSubstr("W402: op 5 (relu) writes w@GRAD on the compute stream, while op 4 "
                            "(memcpy_d2h) reads it on stream d2h")));
}

TEST(Devices, W409CopyInTheWrongDirection) {
  EXPECT_THAT(Found(Copied({{"memcpy_h2d", "memcpy_d2h"}})),
              ::testing::Contains(HasSubstr("W409: op 0 (memcpy_d2h) input w: expected a variable "
                                            "in the memory of the accelerator")));
}

// As Paddle's recomputation leaves them in programs.
TEST(Devices, BlocksThatNoOpRunsUseNothing) {
  EXPECT_THAT(Found(ProgramOf(absl::StrCat(kCopied, R"(    block 1:
    Out=[w@GRAD@CPU] = scale(X=[w]) {scale=2.0}
)"))),
              IsEmpty());
  // Nor do blocks in them.
  EXPECT_THAT(Found(ProgramOf(absl::StrCat(kCopied, R"(    block 1:
    Out=[w@GRAD@CPU] = conditional_block(Input=[w]) {sub_block=block(2)}
    block 2 parent=1:
    Out=[w@GRAD@CPU] = scale(X=[w]) {scale=2.0, op_device="cpu"}
)"))),
              IsEmpty());
}

TEST(Devices, W410OpOfABlockOnTheOtherDevice) {
  EXPECT_THAT(
      Found(ExampleOf("W410")),
      ::testing::Contains(
          "error: W410: block 1, op 0 (fill_constant): expected an op of the accelerator, as op 2 "
          "(conditional_block) runs its block, found one of the host"));
  EXPECT_THAT(Found(ExampleOf("W410", {{", op_device=\"cpu\"", ""}})), IsEmpty());
}

TEST(Devices, W411UnknownStream) {
  EXPECT_THAT(
      Found(ExampleOf("W411")),
      ::testing::Contains("error: W411: op 1 (stream_wait) attribute stream: expected compute, "
                          "cpu, d2h, h2d or a ring, as 'ring 0', found 'gpu'"));
  EXPECT_THAT(Found(ExampleOf("W411", {{"stream=\"gpu\"", "stream=\"d2h\""}})), IsEmpty());
}

TEST(Devices, ProgramsOnOneDeviceMayNameDevices) {
  EXPECT_THAT(
      Found(ExampleOf("W409", {{"    Out=[w@GRAD] = stream_wait(X=[w@GRAD]) {stream=\"cpu\", "
                                "awaited=\"compute\"}\n",
                                ""}})),
      IsEmpty());
}

}  // namespace
}  // namespace weft::testing
