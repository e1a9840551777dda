#include "ops/analysis/training/data_variables.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

std::vector<std::string> NamesOf(const Program& program, const absl::flat_hash_set<VarId>& vars) {
  std::vector<std::string> names;
  for (VarId id : vars) names.emplace_back(program.var(id).name());
  return names;
}

TEST(DataVariables, UnchangedDataIsWhatOpsReadAsItIsFed) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(R"(program {
  block 0 parent=-1 {
    var fed : fp32[2] need_check_feed
    var changed : fp32[2] need_check_feed
    var changed_in_block : fp32[2] need_check_feed
    var condition : bool[1] need_check_feed
    var fed@SIM : fp32[2]
    var fed@CPU : fp32[2]
    var changed@SIM : fp32[2]
    var twice : fp32[2]
    var computed : fp32[2]
    Out=[fed@SIM] = memcpy_h2d(X=[fed])
    Out=[fed@SIM] = stream_wait(X=[fed@SIM]) {stream="compute", awaited="h2d"}
    Out=[fed@CPU] = memcpy_d2h(X=[fed@SIM])
    Out=[changed@SIM] = memcpy_h2d(X=[changed])
    Out=[twice] = memcpy_h2d(X=[fed])
    Out=[twice] = scale(X=[twice]) {scale=2.0}
    Out=[changed] = scale(X=[changed]) {scale=2.0}
    Out=[computed] = assign(X=[fed])
    conditional_block(Cond=[condition], Input=[changed_in_block]) {is_scalar_condition=true, sub_block=block(1)}
  }
  block 1 parent=0 {
    Out=[changed_in_block] = scale(X=[changed_in_block]) {scale=2.0}
  }
})"));
  EXPECT_THAT(NamesOf(program, FindUnchangedData(program)),
              ::testing::UnorderedElementsAre("fed", "condition", "fed@SIM", "fed@CPU"));
}

// fluid.data marks what is fed, fluid.layers.data does not; programs have both.
TEST(DataVariables, WhatIsReadAndNeverWrittenIsDataBesideMarkedData) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(R"(program {
  block 0 parent=-1 {
    var x : fp32[-1] need_check_feed
    var y : fp32[-1]
    var h : fp32[-1]
    var h@GRAD : fp32[2]
    var later : fp32[2]
    var rate : fp32[1]
    var w : fp32[2] persistable
    Out=[a] = elementwise_add(X=[x], Y=[y])
    Out=[a] = elementwise_add(X=[a], Y=[h])
    Out=[a] = elementwise_add(X=[a], Y=[later])
    Out=[later] = assign(X=[x])
    Out=[h@GRAD] = assign(X=[a]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[h@GRAD], LearningRate=[rate]) role=optimize
  }
})"));
  EXPECT_THAT(NamesOf(program, FindData(program)), ::testing::UnorderedElementsAre("x", "y"));
}

TEST(DataVariables, ABufferThatAnOpMakesIsNoData) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(R"(program {
  block 0 parent=-1 {
    var x : fp32[2]
    var g : fp32[2]
    var buffer : fp32[2]
    Output=[g], FusedOutput=[buffer] = coalesce_tensor(Input=[g]) {dtype=5}
    Out=[g] = scale(X=[x])
    Out=[buffer] = c_allreduce_sum(X=[buffer]) {ring_id=0}
  }
})"));
  EXPECT_THAT(NamesOf(program, FindData(program)), ::testing::ElementsAre("x"));
}

TEST(DataVariables, WhatTheForwardPassReadsUnwrittenIsDataWhateverIsMarked) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(R"(program {
  block 0 parent=-1 {
    var marked : fp32[-1] need_check_feed
    var unmarked : fp32[-1]
    var factor : fp32[1]
    var weight : fp32[2] persistable
    var sum : fp32[2]
    var lost@GRAD : fp32[2]
    var weight@GRAD : fp32[2]
    Out=[sum] = elementwise_add(X=[marked], Y=[unmarked])
    Out=[sum] = elementwise_mul(X=[sum], Y=[weight])
    Out=[sum] = elementwise_mul(X=[sum], Y=[factor])
    Out=[weight@GRAD] = scale(X=[lost@GRAD]) role=backward
  }
})"));
  EXPECT_THAT(NamesOf(program, FindData(program)),
              ::testing::UnorderedElementsAre("marked", "unmarked"));
}

}  // namespace
}  // namespace weft
