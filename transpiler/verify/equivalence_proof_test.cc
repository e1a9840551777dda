#include "transpiler/verify/equivalence_proof.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "transpiler/verify/testing/found.h"
#include "transpiler/verify/testing/training_steps.h"

namespace weft {
namespace {

using ::weft::testing::OneDeviceStep;
using ::weft::testing::TwoRankStep;

bool Proves(absl::string_view original, absl::string_view rewritten) {
  const Program before = testing::ProgramOf(original), after = testing::ProgramOf(rewritten);
  RankValuesOptions options;
  options.nranks = 2;
  EquivalenceProof proof({&before, nullptr}, {&after, nullptr}, options, absl::nullopt);
  proof.AttachTo(&options);
  // Here, one of the observers suffices.
  options.observer = proof.observers()[0];
  return proof.Prove(RankValues::Of(after, options));
}

TEST(EquivalenceProof, HoldsForGradientsThatAreReduced) {
  EXPECT_TRUE(Proves(OneDeviceStep(), TwoRankStep()));
}

TEST(EquivalenceProof, FailsWhereNothingIsReduced) {
  EXPECT_FALSE(Proves(OneDeviceStep(), OneDeviceStep()));
}

TEST(EquivalenceProof, FailsForAnotherUpdate) {
  const std::string clipped = absl::StrReplaceAll(
      TwoRankStep(), {{testing::kStepUpdate,
                       "    Out=[w@GRAD] = clip(X=[w@GRAD]) {min=-1.0, max=1.0}\n"
                       "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr])\n"}});
  EXPECT_FALSE(Proves(OneDeviceStep(), clipped));
}

}  // namespace
}  // namespace weft
