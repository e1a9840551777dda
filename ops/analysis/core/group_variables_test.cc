#include "ops/analysis/core/group_variables.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::map<std::string, std::vector<int>> Found(const std::string& ops) {
  return FindGroupVariables(testing::BlockProgram(ops));
}

constexpr char kUpdates[] = R"(
    ParamOut=[w], VelocityOut=[w_v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[w_v], LearningRate=[lr])
    ParamOut=[u], VelocityOut=[u_v] = momentum(Param=[u], Grad=[u@GRAD], Velocity=[u_v], LearningRate=[lr])
)";

TEST(GroupVariables, AreTheParametersOfReducedGradientsAndTheirStates) {
  EXPECT_THAT(Found(absl::StrCat(R"(
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {group_ranks=ints[1, 2], ring_id=1}
    Out=[u@GRAD] = c_allreduce_avg(X=[u@GRAD]) {ring_id=0}
)",
                                 kUpdates)),
              ElementsAre(Pair("w", ElementsAre(1, 2)), Pair("w_v", ElementsAre(1, 2))));
}

TEST(GroupVariables, AreFoundThroughBuffersAndClipping) {
  EXPECT_THAT(Found(absl::StrCat(R"(
    FusedOutput=[f], Output=[w@GRAD] = coalesce_tensor(Input=[w@GRAD]) {dtype=5}
    Out=[f] = c_allreduce_avg(X=[f]) {group_ranks=ints[0], ring_id=1}
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) {ring_id=1}
    Out=[w@GRAD] = clip(X=[w@GRAD]) {min=-1.0, max=1.0}
)",
                                 kUpdates)),
              ElementsAre(Pair("w", ElementsAre(0)), Pair("w_v", ElementsAre(0))));
}

TEST(GroupVariables, AreFoundThroughCopiesOfBuffers) {
  EXPECT_THAT(Found(absl::StrCat(R"(
    FusedOutput=[g], Output=[w@GRAD] = coalesce_tensor(Input=[w@GRAD]) {dtype=5}
    FusedOutput=[f], Output=[v@GRAD] = coalesce_tensor(Input=[v@GRAD]) {dtype=5}
    Out=[f] = c_allreduce_avg(X=[f]) {group_ranks=ints[0], ring_id=1}
    Out=[g] = memcpy_d2h(X=[f])
)",
                                 kUpdates)),
              ElementsAre(Pair("w", ElementsAre(0)), Pair("w_v", ElementsAre(0))));
}

TEST(GroupVariables, OfGradientsThatAreReducedOrMadeAnewLaterAreNone) {
  for (const char* later :
       {"Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0}", "Out=[w@GRAD] = relu(X=[x])"}) {
    EXPECT_THAT(Found(absl::Substitute(R"(
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {group_ranks=ints[0], ring_id=1}
    $0
$1)",
                                       later, kUpdates)),
                IsEmpty())
        << later;
  }
  EXPECT_THAT(Found(kUpdates), IsEmpty());
}

}  // namespace
}  // namespace weft
