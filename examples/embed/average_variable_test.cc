#include "average_variable.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace embed {
namespace {

using ::weft::testing::ExpectRewrite;
using ::weft::testing::IsNotFound;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RewriteStatus;

// Keeps the sum of the means of all batches.
constexpr char kMeans[] = R"(
    var x : fp32[-1, 2] need_check_feed
    var state : fp32[] persistable
    Out=[s] = reduce_mean(X=[x]) {reduce_all=true}
    Out=[y] = relu(X=[x])
    Out=[state] = elementwise_add(X=[state], Y=[s])
)";

RewriteOptions WithAverageVariable() {
  RewriteOptions options = weft::testing::OnRanks(2);
  options.registry.Add<AverageVariable>();
  return options;
}

TEST(AverageVariable, OtherOpsRunWhileTheMeanTravels) {
  ExpectRewrite("average-variable{name=s}", kMeans, R"(
    Out=[s] = reduce_mean(X=[x]) {reduce_all=true}
  + Out=[s] = c_wait_compute(X=[s])
  + Out=[s] = c_allreduce_avg(X=[s])
    Out=[y] = relu(X=[x])
  + Out=[s] = c_wait_comm(X=[s])
)",
                WithAverageVariable());
}

TEST(AverageVariable, VariableThatNothingWritesIsRefused) {
  EXPECT_THAT(RewriteStatus("average-variable{name=w}", kMeans, WithAverageVariable()),
              IsNotFound("no op of the root block writes w"));
}

}  // namespace
}  // namespace embed
