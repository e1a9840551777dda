#include "transpiler/passes/devices/first_updates.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

// The position of the op before which what the last op reads is there.
size_t FirstOfLast(const std::string& between) {
  const Program program = CompactProgram(absl::StrCat(R"(
    var x : fp32[2, 2] need_check_feed
    var c : bool[1] need_check_feed
    var a, b : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[a@GRAD] = relu(X=[x]) role=backward
    Out=[b@GRAD] = relu(X=[x]) role=backward
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )",
                                                      between));
  return program.op(FindFirstUpdates(program).at(program.block(0).ops().back())).position();
}

constexpr char kUpdate[] =
    "ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize\n";

TEST(FirstUpdates, AnUpdateMayBePreparedBeforeTheFirst) { EXPECT_EQ(FirstOfLast(kUpdate), 2); }

TEST(FirstUpdates, NotBeforeWhatChangesItsGradientOrParameter) {
  for (const char* change : {"Out=[b@GRAD] = scale(X=[b@GRAD]) role=optimize {scale=2.0}\n",
                             "Out=[b] = scale(X=[b]) role=optimize {scale=2.0}\n"}) {
    EXPECT_EQ(FirstOfLast(absl::StrCat(change, kUpdate)), 4) << change;
  }
  EXPECT_EQ(FirstOfLast(absl::StrCat("Out=[y] = relu(X=[b])\n", kUpdate)), 2)
      << "that reads the parameter alone";
}

TEST(FirstUpdates, NotBeforeAnOpThatMayUseAnyVariable) {
  const std::string block = R"(
    Out=[z], Scope=[] = conditional_block(Cond=[c], Input=[]) {sub_block=block(1), is_scalar_condition=true}
  )";
  EXPECT_EQ(FirstOfLast(absl::StrCat(block, kUpdate, "block 1:\nOut=[z] = relu(X=[x])\n")), 4);
  EXPECT_EQ(FirstOfLast(absl::StrCat("c_wait_compute()\n", kUpdate)), 4);
}

TEST(FirstUpdates, NotBeforeAWriteOfTheBufferOfItsGradient) {
  const std::string fused = R"(
    FusedOutput=[fused], Output=[b@GRAD] = coalesce_tensor(Input=[b@GRAD]) {dtype=5, copy_data=true}
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
    Out=[fused] = scale(X=[fused]) {scale=2.0}
  )";
  EXPECT_EQ(FirstOfLast(absl::StrCat(fused, kUpdate)), 6);
}

}  // namespace
}  // namespace weft::testing
