#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/rank_values.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(StartupValues, UninitializedParameterIsMissing) {
  const std::string made = R"(
    var w : fp32[1, 1] parameter persistable
    Out=[w] = fill_constant() {shape=longs[1, 1], dtype=5, value=1.0}
    c_comm_init_all() {ring_id=0}
)";
  const Program before = ProgramOf(OneDeviceStep()), after = ProgramOf(TwoRankStep()),
                with = ProgramOf(made);
  const Program without = ProgramOf(absl::StrReplaceAll(
      made, {{"Out=[w] = fill_constant() {shape=longs[1, 1], dtype=5, value=1.0}\n    ", ""}}));
  VerifyOptions options = ForRanks(2);
  options.original = {&before, &with};
  EXPECT_THAT(Lines(Verify({{&after, &with}}, options)), IsEmpty());
  EXPECT_THAT(Lines(Verify({{&after, &without}}, options)),
              ElementsAre(AllOf(HasSubstr("W606"), HasSubstr("found nothing"))));
}

TEST(StartupValues, AVariableThatIsNotPersistableIsLost) {
  const std::string made = R"(
    var w : fp32[1, 1] persistable
    Out=[w] = fill_constant() {shape=longs[1, 1], dtype=5, value=1.0}
    c_comm_init_all() {ring_id=0}
)";
  const Program before = ProgramOf(OneDeviceStep()), after = ProgramOf(TwoRankStep()),
                kept = ProgramOf(made), lost = ProgramOf(made, {{" persistable", ""}});
  EXPECT_TRUE(ReadStartupValues(kept, RankValuesOptions()).contains("w"));
  EXPECT_FALSE(ReadStartupValues(lost, RankValuesOptions()).contains("w"));
  for (const Program* original_startup : {&kept, static_cast<const Program*>(nullptr)}) {
    VerifyOptions options = ForRanks(2);
    options.original = {&before, original_startup};
    EXPECT_THAT(Lines(Verify({{&after, &kept}}, options)), IsEmpty());
    EXPECT_THAT(Lines(Verify({{&after, &lost}}, options)),
                ElementsAre(AllOf(HasSubstr("W108"), HasSubstr("op 0 (fill_constant)"),
                                  HasSubstr("lost when the startup program ends"))));
  }
  // Without the original, too.
  EXPECT_THAT(Lines(Verify({{&after, &kept}}, ForRanks(2))), IsEmpty());
  EXPECT_THAT(Lines(Verify({{&after, &lost}}, ForRanks(2))), ElementsAre(HasSubstr("W108")));
}

TEST(StartupValues, StatesThatTheRewriteAddsBeginWithAValue) {
  const std::string made = R"(
    var w : fp32[1, 1] parameter persistable
    var old : fp32[1, 1] persistable
    Out=[w] = fill_constant() {shape=longs[1, 1], dtype=5, value=1.0}
    Out=[old] = assign(X=[w])
    c_comm_init_all() {ring_id=0}
)";
  const Program before = ProgramOf(OneDeviceStep()),
                after = ProgramOf(TwoRankStep(), {{"    var lr :",
                                                   "    var old : fp32[1, 1] persistable\n"
                                                   "    var lr :"},
                                                  {"    Out=[y@GRAD] = fill",
                                                   "    Out=[older] = assign(X=[old])\n"
                                                   "    Out=[y@GRAD] = fill"}}),
                with = ProgramOf(made),
                without = ProgramOf(made, {{"    Out=[old] = assign(X=[w])\n", ""}});
  VerifyOptions options = ForRanks(2);
  options.original = {&before, &with};
  EXPECT_THAT(Lines(Verify({{&after, &with}}, options)), IsEmpty());
  EXPECT_THAT(
      Lines(Verify({{&after, &without}}, options)),
      Contains(AllOf(HasSubstr("W606: op 0 (assign) reads variable old: expected an initial"),
                     HasSubstr("found nothing"))));
}

// The batch is that of the main program, whose variables have the same ids.
TEST(StartupValues, DoNotFollowTheBatchOfTheMainProgram) {
  const Program startup = ProgramOf(R"(
    var w : fp32[2] persistable
    Out=[w] = fill_constant() {shape=longs[2], value=1.0}
)");
  const BatchFlow batch;
  RankValuesOptions options;
  options.batch = &batch;
  EXPECT_TRUE(ReadStartupValues(startup, options).contains("w"));
}

}  // namespace
}  // namespace weft::testing
