#include "transpiler/passes/gradients/batch_edit_writer.h"

#include <string>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

constexpr char kTwoReaders[] = R"(
    var x : fp32[4, 2] need_check_feed
    Out=[s] = reduce_sum(X=[x]) {reduce_all=true}
    Out=[y] = relu(X=[s])
    Out=[z] = tanh(X=[s])
)";

// The text of `program` for two ranks after the edits.
void ExpectWritten(const BatchEdits& edits, Program* program, const std::string& expected) {
  PassContext context;
  ClusterSpec spec;
  spec.nranks = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(context.target.cluster, Cluster::Create(spec, /*min_trainers=*/1));
  EXPECT_THAT(WriteBatchEdits(edits, "a-pass", "a reason", context, program),
              IsOkAndHolds(!edits.empty()));
  const auto parsed = ParseCompactProgram(expected, program->ToProto());
  WEFT_ASSERT_OK(parsed.status());
  EXPECT_EQ(CanonicalText(*parsed), CanonicalText(program->ToProto()));
}

TEST(BatchEditWriter, ReductionFollowsTheOpThatWrites) {
  Program program = CompactProgram(kTwoReaders);
  BatchEdits edits;
  edits.reductions[program.block(0).FindVar("s")] = Reduction::kSum;
  ExpectWritten(edits, &program, R"(
    Out=[s] = reduce_sum(X=[x]) {reduce_all=true}
    Out=[s] = c_allreduce_sum(X=[s]) {use_calc_stream=true}
    Out=[y] = relu(X=[s])
    Out=[z] = tanh(X=[s])
  )");
}

TEST(BatchEditWriter, OpsThatReadOneEditedValueShareIt) {
  Program program = CompactProgram(kTwoReaders);
  BatchEdits edits;
  for (size_t i : {1, 2}) edits.inputs[program.block(0).ops()[i]][0] = BatchInputEdit::kAverage;
  ExpectWritten(edits, &program, R"(
    Out=[s] = reduce_sum(X=[x]) {reduce_all=true}
    Out=[s@MEAN] = c_allreduce_avg(X=[s]) {use_calc_stream=true}
    Out=[y] = relu(X=[s@MEAN])
    Out=[z] = tanh(X=[s@MEAN])
  )");
}

TEST(BatchEditWriter, EditsThatDifferHaveVariablesOfTheirOwn) {
  Program program = CompactProgram(kTwoReaders);
  BatchEdits edits;
  edits.inputs[program.block(0).ops()[1]][0] = BatchInputEdit::kSum;
  edits.inputs[program.block(0).ops()[2]][0] = BatchInputEdit::kDivide;
  ExpectWritten(edits, &program, R"(
    Out=[s] = reduce_sum(X=[x]) {reduce_all=true}
    Out=[s@SUM] = c_allreduce_sum(X=[s]) {use_calc_stream=true}
    Out=[y] = relu(X=[s@SUM])
    Out=[s@PART] = scale(X=[s]) {scale=0.5, nranks=2}
    Out=[z] = tanh(X=[s@PART])
  )");
}

}  // namespace
}  // namespace weft::testing
