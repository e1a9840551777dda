#include "transpiler/pipeline/modes.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string Expanded(const std::string& mode, Dialect dialect,
                     const std::map<std::string, std::string>& flags) {
  const auto pipeline = ExpandMode(mode, dialect, flags);
  return pipeline.ok() ? ToString(*pipeline) : pipeline.status().ToString();
}

TEST(Modes, NoneHasNoPasses) {
  EXPECT_EQ(Expanded("none", Dialect::kWeft, {}), "");
  EXPECT_EQ(Expanded("none", Dialect::kPaddle, {}), "");
}

TEST(Modes, NoneDoesNotReadWhoTakesPart) {
  EXPECT_THAT(Expanded("none", Dialect::kWeft, {{"nranks", "2"}}),
              HasSubstr("mode none does not read --nranks"));
  EXPECT_EQ(Expanded("grad_allreduce", Dialect::kWeft, {{"nranks", "2"}}),
            Expanded("grad_allreduce", Dialect::kWeft, {}));
}

TEST(Modes, GradAllReduceLeavesDefaultsToThePasses) {
  EXPECT_EQ(Expanded("grad_allreduce", Dialect::kWeft, {}),
            "comm-init,broadcast-params,dense-gradients,scale-loss-grad,grad-all-reduce,"
            "sync-elimination");
}

TEST(Modes, FlagsReachEveryPassThatTakesThem) {
  EXPECT_EQ(
      Expanded("grad_allreduce", Dialect::kWeft, {{"nrings", "3"}, {"scale", "avg"}}),
      "comm-init{nrings=3},broadcast-params{nrings=3},dense-gradients,scale-loss-grad{scale=avg},"
      "grad-all-reduce{nrings=3,scale=avg},sync-elimination");
}

TEST(Modes, PaddleDialectHasTwoRingsUnlessTold) {
  EXPECT_EQ(Expanded("grad_allreduce", Dialect::kPaddle, {}),
            "paddle-comm-init{nrings=2},broadcast-params{nrings=2},"
            "scale-loss-grad{scale=loss_grad},paddle-grad-all-reduce{nrings=2}");
  EXPECT_EQ(Expanded("grad_allreduce", Dialect::kPaddle, {{"nrings", "1"}}),
            "paddle-comm-init{nrings=1},broadcast-params{nrings=1},"
            "scale-loss-grad{scale=loss_grad},paddle-grad-all-reduce{nrings=1}");
}

TEST(Modes, UnknownModeIsAnErrorThatListsAll) {
  EXPECT_THAT(ExpandMode("grad_all_reduce", Dialect::kWeft, {}),
              StatusIs(kInvalid, HasSubstr("unknown mode grad_all_reduce; there are: none, "
                                           "grad_allreduce, ")));
}

TEST(Modes, FlagThatTheModeDoesNotReadIsAnError) {
  EXPECT_THAT(ExpandMode("none", Dialect::kWeft, {{"nrings", "2"}}),
              StatusIs(kInvalid, "mode none does not read --nrings"));
  EXPECT_THAT(ExpandMode("grad_allreduce", Dialect::kWeft, {{"k_steps", "4"}}),
              StatusIs(kInvalid, "mode grad_allreduce does not read --k_steps"));
}

TEST(Modes, FlagThatOnlyTheOtherDialectReadsIsAnErrorThatSaysSo) {
  EXPECT_THAT(
      ExpandMode("grad_allreduce", Dialect::kPaddle, {{"scale", "avg"}}),
      StatusIs(kInvalid, "mode grad_allreduce does not read --scale in the paddle dialect"));
}

TEST(Modes, FlagsChooseAmongPasses) {
  EXPECT_EQ(Expanded("multi_thread", Dialect::kPaddle, {{"nrings", "2"}}),
            "paddle-comm-init{over=trainers,nrings=2},scale-loss-grad{scale=loss_grad},"
            "paddle-multi-thread-fuse");
  EXPECT_EQ(Expanded("multi_thread", Dialect::kPaddle, {{"trans_mode", "all_reduce_xpu"}}),
            "paddle-comm-init{over=trainers,list_devices=true},scale-loss-grad{scale=loss_grad},"
            "paddle-grad-all-reduce{nrings=1,skip=one_device}");
  EXPECT_EQ(Expanded("single_process_multi_thread", Dialect::kPaddle, {{"fuse", "0"}}),
            "paddle-comm-init{over=hosts},paddle-single-process-scale,"
            "paddle-grad-all-reduce{nrings=1,skip=no_gradient}");
  EXPECT_EQ(Expanded("single_process_multi_thread", Dialect::kPaddle, {{"fuse", "2"}}),
            "paddle-comm-init{over=hosts},paddle-single-process-scale,"
            "paddle-single-process-fuse{fuse=2}");
}

TEST(Modes, PipelinesOfTheWeftDialect) {
  EXPECT_EQ(Expanded("local_sgd", Dialect::kWeft, {{"k_steps", "4"}}),
            "comm-init,broadcast-params,local-sgd{k_steps=4},sync-elimination");
  EXPECT_EQ(
      Expanded("multi_thread", Dialect::kWeft, {}),
      "comm-init,broadcast-params,dense-gradients,scale-loss-grad,grad-all-reduce{buckets=bytes},"
      "sync-elimination");
  EXPECT_EQ(Expanded("multi_thread", Dialect::kWeft, {{"buckets", "count{count=2}"}}),
            "comm-init,broadcast-params,dense-gradients,scale-loss-grad,"
            "grad-all-reduce{buckets=\"count{count=2}\"},sync-elimination");
  EXPECT_EQ(Expanded("multi_thread", Dialect::kWeft, {{"trans_mode", "all_gather"}}),
            "comm-init,broadcast-params,dense-gradients,scale-loss-grad,gather-gradients,"
            "sync-elimination");
  EXPECT_EQ(
      Expanded("single_process_multi_thread", Dialect::kWeft, {}),
      "comm-init,broadcast-params,dense-gradients,scale-loss-grad,grad-all-reduce{buckets=bytes},"
      "sync-elimination");
  EXPECT_EQ(Expanded("single_process_multi_thread", Dialect::kWeft,
                     {{"fuse", "0"}, {"loss_scale", "false"}}),
            "comm-init,broadcast-params,dense-gradients,grad-all-reduce{scale=none},"
            "sync-elimination");
}

TEST(Modes, ChoiceThatADialectDoesNotHaveIsAnError) {
  EXPECT_THAT(ExpandMode("single_process_multi_thread", Dialect::kWeft, {{"fuse", "2"}}),
              StatusIs(kInvalid,
                       "mode single_process_multi_thread: --fuse 2 is available in the "
                       "paddle dialect only"));
}

TEST(Modes, ValueThatIsNoChoiceIsAnErrorThatListsAll) {
  EXPECT_THAT(ExpandMode("multi_thread", Dialect::kPaddle, {{"trans_mode", "nonsense"}}),
              StatusIs(kInvalid,
                       "mode multi_thread: --trans_mode must be one of fuse_all_reduce, "
                       "all_gather, all_reduce, all_reduce_xpu, found 'nonsense'"));
}

TEST(Modes, PassesRunOnlyForValuesThatThereAre) {
  for (const Mode& mode : Modes()) {
    std::set<std::string> known;
    for (const FlagValues& choice : mode.choices) {
      for (const std::string& value : choice.values) known.insert(choice.flag + "=" + value);
    }
    for (const auto& passes : {mode.weft, mode.paddle}) {
      for (const ModePass& pass : passes) {
        for (const FlagValues& condition : pass.when) {
          for (const std::string& value : condition.values) {
            EXPECT_EQ(known.count(condition.flag + "=" + value), 1) << mode.name << " " << value;
          }
        }
      }
    }
  }
}

TEST(Modes, NamesAreDistinctAndDescribed) {
  std::set<std::string> names;
  for (const Mode& mode : Modes()) {
    EXPECT_TRUE(names.insert(mode.name).second) << mode.name;
    EXPECT_THAT(mode.description, ::testing::Not(::testing::IsEmpty()));
    EXPECT_THAT(mode.description, ::testing::Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace weft
