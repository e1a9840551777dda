// Inspects what grad_allreduce makes of a small program.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weft/base/status_matchers.h"
#include "weft/ops/analysis/testing/compact_program.h"
#include "weft/transpiler/testing/expect_rewrite.h"
#include "weft/transpiler/transpile.h"
#include "weft/transpiler/verifier/testing/matchers.h"

namespace {

using ::weft::testing::CompactProgram;
using ::weft::testing::ExpectNoRewrite;
using ::weft::testing::HasNoRaces;
using ::weft::testing::HasOp;
using ::weft::testing::IsEquivalentTo;

constexpr char kRegression[] = R"(
  var x : fp32[-1, 13] need_check_feed
  var w : fp32[13, 1] parameter persistable
  Out=[y] = matmul_v2(X=[x], Y=[w])
  Out=[loss] = reduce_mean(X=[y]) role=loss {reduce_all=true, dim=ints[]}
  Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
  X@GRAD=[y@GRAD] = reduce_mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {reduce_all=true, dim=ints[]}
  Y@GRAD=[w@GRAD] = matmul_v2_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[rate]) role=optimize
)";

TEST(RewriteTest, GradientsAreAveragedOverFourRanks) {
  const weft::Program original = CompactProgram(kRegression);
  weft::Program main = original;
  weft::TranspileOptions options;
  options.mode = "grad_allreduce";
  options.cluster.nranks = 4;
  weft::ProgramPair programs{&main, /*startup=*/nullptr};
  WEFT_ASSERT_OK(weft::Transpile(options, programs).status());
  EXPECT_THAT(main, HasOp("c_allreduce_sum").Times(1));
  EXPECT_THAT(main, HasNoRaces());
  EXPECT_THAT(main, IsEquivalentTo(original));
}

TEST(RewriteTest, AProgramThatTrainsNothingStays) {
  ExpectNoRewrite("sync-elimination", "Out=[y] = relu(X=[x])");
}

}  // namespace
