#include "transpiler/modes.h"

#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/pipeline/pipeline.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

using FlagMap = std::map<std::string, std::string>;

// From "nrings=2 scale=avg".
FlagMap Flags(absl::string_view text) {
  FlagMap flags;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    flags.insert(absl::StrSplit(word, absl::MaxSplits('=', 1)));
  }
  return flags;
}

// Without the last pass, which is the same in all modes.
std::string Expanded(const std::string& mode, Dialect dialect, absl::string_view flags = "") {
  const auto pipeline = ExpandMode(mode, dialect, Flags(flags));
  if (!pipeline.ok()) return pipeline.status().ToString();
  return std::string(absl::StripSuffix(ToString(*pipeline), ",lower-to-target"));
}

TEST(Modes, LastPassWritesTheOpsOfTheTarget) {
  for (const Mode& mode : Modes()) {
    const bool is_for_paddle = mode.runs_in == Mode::RunsIn::kPaddleAndWeft;
    for (const ModePipeline& pipeline : mode.pipelines) {
      EXPECT_EQ(absl::EndsWith(pipeline.passes, ",lower-to-target"), is_for_paddle) << mode.name;
    }
  }
}

TEST(Modes, NoneHasNoPasses) {
  EXPECT_EQ(Expanded("none", Dialect::kWeft), "");
  EXPECT_EQ(Expanded("none", Dialect::kPaddle), "");
}

TEST(Modes, ContextIsReadByModesThatHavePasses) {
  EXPECT_THAT(ExpandMode("none", Dialect::kWeft, {}, {"nranks"}),
              StatusIs(kInvalid, "mode none does not read option:nranks"));
  WEFT_EXPECT_OK(ExpandMode("grad_allreduce", Dialect::kWeft, {}, {"nranks"}));
}

TEST(Modes, DevicesAreReadByModesOfSeveralDevicesATrainer) {
  WEFT_EXPECT_OK(ExpandMode("multi_thread", Dialect::kPaddle, {}, {"endpoints", "devices"}));
  EXPECT_THAT(ExpandMode("grad_allreduce", Dialect::kWeft, {}, {"endpoints", "devices"}),
              StatusIs(kInvalid, "mode grad_allreduce does not read option:devices"));
  EXPECT_THAT(ExpandMode("none", Dialect::kWeft, {}, {"devices"}),
              StatusIs(kInvalid, "mode none does not read option:devices"));
}

TEST(Modes, GradAllReduceFillsBucketsAndLeavesOtherDefaultsToThePasses) {
  EXPECT_EQ(Expanded("grad_allreduce", Dialect::kWeft),
            "comm-init,broadcast-params,sync-batch-norm{sync_batch_norm=off},exact-loss{exact_loss="
            "off},reduce-statistics{statistics="
            "false},dense-gradients,scale-loss-grad,"
            "grad-all-reduce{buckets=bytes},"
            "sync-elimination");
}

TEST(Modes, FlagsReachEveryPassThatTakesThem) {
  EXPECT_EQ(Expanded("grad_allreduce", Dialect::kWeft, "nrings=3 scale=avg"),
            "comm-init{nrings=3},broadcast-params{nrings=3},sync-batch-norm{sync_batch_norm=off},"
            "exact-loss{exact_loss=off},reduce-"
            "statistics{statistics=false},dense-"
            "gradients,scale-loss-grad{scale=avg},"
            "grad-all-reduce{nrings=3,scale=avg,buckets=bytes},sync-elimination");
}

TEST(Modes, EmptyValueReachesThePassToo) {
  EXPECT_EQ(Expanded("local_sgd", Dialect::kPaddle, "nrings="),
            "paddle-comm-init{nrings=},broadcast-params{nrings=},paddle-local-sgd{nrings=}");
}

TEST(Modes, PaddleDialectDefaultsToTwoRings) {
  EXPECT_EQ(Expanded("grad_allreduce", Dialect::kPaddle),
            "paddle-comm-init{nrings=2},broadcast-params{nrings=2},dense-gradients{sparse=rows},"
            "scale-loss-grad{scale=loss_grad},paddle-grad-all-reduce{nrings=2}");
  EXPECT_EQ(Expanded("grad_allreduce", Dialect::kPaddle, "nrings=1"),
            "paddle-comm-init{nrings=1},broadcast-params{nrings=1},dense-gradients{sparse=rows},"
            "scale-loss-grad{scale=loss_grad},paddle-grad-all-reduce{nrings=1}");
}

TEST(Modes, UnknownModeIsAnErrorThatListsAll) {
  EXPECT_THAT(ExpandMode("grad_all_reduce", Dialect::kWeft, {}),
              StatusIs(kInvalid, HasSubstr("unknown mode grad_all_reduce; expected one of: none, "
                                           "grad_allreduce, ")));
}

TEST(Modes, DialectWithoutAPipelineIsAnError) {
  const Mode weft_only = {"one", "a mode", {{Dialect::kWeft, {}, "sync-elimination"}}};
  WEFT_EXPECT_OK(ExpandMode(weft_only, Dialect::kWeft, {}));
  EXPECT_THAT(ExpandMode(weft_only, Dialect::kPaddle, {}),
              StatusIs(kInvalid, "mode one is available in the weft dialect only"));
  EXPECT_THAT(DialectsOf(weft_only), ElementsAre(Dialect::kWeft));
}

TEST(Modes, ModeWithoutPassesHasBothDialects) {
  EXPECT_THAT(DialectsOf({"one", "a mode", {}}), ElementsAre(Dialect::kWeft, Dialect::kPaddle));
}

TEST(Modes, FlagThatTheModeDoesNotReadIsAnError) {
  EXPECT_THAT(ExpandMode("none", Dialect::kWeft, Flags("nrings=2")),
              StatusIs(kInvalid, "mode none does not read option:nrings"));
  EXPECT_THAT(ExpandMode("grad_allreduce", Dialect::kWeft, Flags("k_steps=4")),
              StatusIs(kInvalid, "mode grad_allreduce does not read option:k_steps"));
}

TEST(Modes, FlagThatOnlyTheOtherDialectReadsIsAnErrorThatSaysSo) {
  EXPECT_THAT(
      ExpandMode("grad_allreduce", Dialect::kPaddle, Flags("scale=avg")),
      StatusIs(kInvalid, "mode grad_allreduce does not read option:scale in the paddle dialect"));
}

TEST(Modes, FlagsChooseAmongPasses) {
  EXPECT_EQ(Expanded("multi_thread", Dialect::kPaddle, "nrings=2"),
            "paddle-comm-init{over=trainers,nrings=2},dense-gradients{sparse=rows},"
            "scale-loss-grad{scale=loss_grad},"
            "paddle-multi-thread-fuse");
  EXPECT_EQ(Expanded("multi_thread", Dialect::kPaddle, "trans_mode=all_reduce_xpu"),
            "paddle-comm-init{over=trainers,list_devices=true},dense-gradients{sparse=rows},"
            "scale-loss-grad{scale=loss_grad},"
            "paddle-grad-all-reduce{nrings=1,skip=one_device}");
  EXPECT_EQ(Expanded("single_process_multi_thread", Dialect::kPaddle, "fuse=0"),
            "paddle-comm-init{over=hosts},dense-gradients{sparse=rows},paddle-single-process-scale,"
            "paddle-grad-all-reduce{nrings=1,skip=no_gradient}");
  EXPECT_EQ(Expanded("single_process_multi_thread", Dialect::kPaddle, "fuse=2"),
            "paddle-comm-init{over=hosts},dense-gradients{sparse=rows},paddle-single-process-scale,"
            "paddle-single-process-fuse{by=xsum}");
}

TEST(Modes, PipelinesOfTheWeftDialect) {
  EXPECT_EQ(Expanded("local_sgd", Dialect::kWeft, "k_steps=4"),
            "comm-init,broadcast-params,local-sgd{k_steps=4},sync-elimination");
  EXPECT_EQ(Expanded("multi_thread", Dialect::kWeft),
            "comm-init,broadcast-params,sync-batch-norm{sync_batch_norm=off},exact-loss{exact_loss="
            "off},reduce-statistics{statistics="
            "false},dense-gradients,scale-loss-grad,"
            "grad-all-reduce{buckets=bytes},"
            "sync-elimination");
  EXPECT_EQ(Expanded("multi_thread", Dialect::kWeft, "buckets=count{count=2}"),
            "comm-init,broadcast-params,sync-batch-norm{sync_batch_norm=off},exact-loss{exact_loss="
            "off},reduce-statistics{statistics="
            "false},dense-gradients,scale-loss-grad,"
            "grad-all-reduce{buckets=\"count{count=2}\"},sync-elimination");
  EXPECT_EQ(Expanded("multi_thread", Dialect::kWeft, "trans_mode=all_gather"),
            "comm-init,broadcast-params,sync-batch-norm{sync_batch_norm=off},exact-loss{exact_loss="
            "off},reduce-statistics{statistics="
            "false},dense-gradients,scale-loss-grad,"
            "gather-gradients,"
            "sync-elimination");
  EXPECT_EQ(Expanded("single_process_multi_thread", Dialect::kWeft),
            "comm-init,broadcast-params,sync-batch-norm{sync_batch_norm=off},exact-loss{exact_loss="
            "off},reduce-statistics{statistics="
            "false},dense-gradients,scale-loss-grad,"
            "grad-all-reduce{buckets=bytes},"
            "sync-elimination");
  EXPECT_EQ(Expanded("single_process_multi_thread", Dialect::kWeft, "fuse=0 loss_scale=false"),
            "comm-init,broadcast-params,sync-batch-norm{sync_batch_norm=off},exact-loss{exact_loss="
            "off},reduce-statistics{statistics="
            "false},dense-gradients,grad-all-reduce{"
            "scale=none},"
            "sync-elimination");
}

// As a pass does that has the flag as an option.
TEST(Modes, ChoiceBetweenTrueAndFalseTakesEveryBoolean) {
  for (const char* value : {"false", "0", "no"}) {
    EXPECT_THAT(
        Expanded("single_process_multi_thread", Dialect::kWeft, absl::StrCat("loss_scale=", value)),
        HasSubstr("grad-all-reduce{scale=none"))
        << value;
  }
  EXPECT_EQ(Expanded("single_process_multi_thread", Dialect::kWeft, "loss_scale=1"),
            Expanded("single_process_multi_thread", Dialect::kWeft));
  EXPECT_THAT(
      ExpandMode("single_process_multi_thread", Dialect::kPaddle, Flags("loss_scale=maybe")),
      StatusIs(kInvalid, HasSubstr("must be one of true, false, found 'maybe'")));
}

TEST(Modes, ChoiceThatADialectDoesNotHaveIsAnError) {
  EXPECT_THAT(ExpandMode("single_process_multi_thread", Dialect::kWeft, Flags("fuse=2")),
              StatusIs(kInvalid,
                       "mode single_process_multi_thread: option:fuse 2 is available in the "
                       "paddle dialect only"));
}

TEST(Modes, RequiredFlagMustBeGiven) {
  EXPECT_THAT(ExpandMode("megengine", Dialect::kWeft, {}),
              StatusIs(kInvalid,
                       "mode megengine: option:reduce_method must be given, for example "
                       "option:reduce_method mean"));
}

TEST(Modes, InvalidChoiceIsAnErrorThatListsAll) {
  EXPECT_THAT(ExpandMode("multi_thread", Dialect::kPaddle, Flags("trans_mode=nonsense")),
              StatusIs(kInvalid,
                       "mode multi_thread: option:trans_mode must be one of fuse_all_reduce, "
                       "all_gather, all_reduce, all_reduce_xpu, found 'nonsense'"));
}

// --- Every mode, dialect and choice
// ---------------------------------------------------------------

struct EveryCase {
  const Mode* mode;
  Dialect dialect;
  FlagMap flags;  // of all choices

  std::string Name() const {
    return absl::StrCat(mode->name, dialect == Dialect::kPaddle ? " paddle " : " weft ",
                        absl::StrJoin(flags, " ", absl::PairFormatter("=")));
  }
};

// All combinations of the values that choose in a dialect.
std::vector<EveryCase> EveryModeDialectAndChoice() {
  std::vector<EveryCase> all;
  for (const Mode& mode : Modes()) {
    for (Dialect dialect : {Dialect::kWeft, Dialect::kPaddle}) {
      std::vector<FlagMap> combinations = {mode.required};
      for (const auto& [flag, values] : ChoicesOf(mode)) {
        std::vector<FlagMap> longer;
        for (const FlagMap& flags : combinations) {
          for (const std::string& value : values) {
            longer.push_back(flags);
            longer.back()[flag] = value;
          }
        }
        combinations = std::move(longer);
      }
      for (FlagMap& flags : combinations) all.push_back({&mode, dialect, std::move(flags)});
    }
  }
  return all;
}

// Fails for a pass or an option that there is not, by name or by value.
TEST(Modes, EveryModeDialectAndChoiceIsBuilt) {
  const PassRegistry registry = BuiltinPasses();
  int built = 0;
  for (const EveryCase& test : EveryModeDialectAndChoice()) {
    SCOPED_TRACE(test.Name());
    const auto passes = ExpandMode(test.mode->name, test.dialect, test.flags);
    if (!passes.ok()) {
      EXPECT_THAT(passes.status().message(), HasSubstr("dialect only"));
      continue;
    }
    ++built;
    WEFT_ASSERT_OK_AND_ASSIGN(const Pipeline pipeline, Pipeline::FromSpecs(*passes, registry));
    EXPECT_EQ(pipeline.passes().empty(), test.mode->name == "none");
    EXPECT_EQ(ToString(*passes).find('$'), std::string::npos);
    // Contracts fit each other from the first pass on.
    WEFT_EXPECT_OK(pipeline.CheckContracts({}));
    WEFT_ASSERT_OK_AND_ASSIGN(const Claims claims, pipeline.ClaimsOf(PassContext()));
    EXPECT_EQ(claims.Communicate(), test.mode->name != "none")
        << "every mode but none makes programs for several ranks, and tests rely on that";
  }
  // none, grad_allreduce and local_sgd twice, 4 + 6 of single_process_multi_thread, 4 + 4 of
  // multi_thread, and those of newer modes.
  EXPECT_GE(built, 24);
}

// The flags that the texts of the table name, in its order, each with the modes that read it:
// "k_steps in local_sgd".
std::vector<std::string> FlagsInTable() {
  std::vector<std::pair<std::string, std::vector<std::string>>> flags;
  const auto add = [&](const std::string& name, const std::string& mode) {
    auto found = absl::c_find_if(flags, [&](const auto& flag) { return flag.first == name; });
    if (found == flags.end()) found = flags.insert(flags.end(), {name, {}});
    if (!absl::c_linear_search(found->second, mode)) found->second.push_back(mode);
  };
  const std::regex placeholder(R"(\$(\w+))");
  for (const Mode& mode : Modes()) {
    for (const ModePipeline& pipeline : mode.pipelines) {
      const std::string& text = pipeline.passes;
      for (std::sregex_iterator it(text.begin(), text.end(), placeholder), end; it != end; ++it) {
        add((*it)[1], mode.name);
      }
    }
    for (const auto& [name, values] : ChoicesOf(mode)) add(name, mode.name);
  }
  std::vector<std::string> texts;
  for (const auto& [name, modes] : flags) {
    texts.push_back(absl::StrCat(name, " in ", absl::StrJoin(modes, ", ")));
  }
  return texts;
}

// Also where a flag is not given, so that its placeholder leaves no option.
TEST(Modes, EveryPlaceholderIsAnOptionOfItsPass) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<ModeFlag> flags, ModeFlags(BuiltinPasses()));
  std::vector<std::string> texts;
  for (const ModeFlag& flag : flags) {
    texts.push_back(absl::StrCat(flag.name, " in ", absl::StrJoin(flag.modes, ", ")));
  }
  EXPECT_EQ(texts, FlagsInTable());
  EXPECT_THAT(texts, Contains("k_steps in local_sgd"));
}

TEST(Modes, PlaceholderWithoutAPassThatHasTheOptionIsAnError) {
  EXPECT_THAT(
      ModeFlags(PassRegistry()),
      StatusIs(kInvalid, HasSubstr("mode grad_allreduce: there is no pass comm-init with an "
                                   "option nrings")));
}

TEST(Modes, FlagsOfOneModeHaveItsDefaults) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Mode* const mode, FindMode("singa_half"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<ModeFlag> flags, ModeFlags(*mode, BuiltinPasses()));
  const auto buckets =
      absl::c_find_if(flags, [](const ModeFlag& flag) { return flag.name == "buckets"; });
  ASSERT_NE(buckets, flags.end());
  EXPECT_THAT(buckets->defaults, ElementsAre("singa"));
  const auto dtype =
      absl::c_find_if(flags, [](const ModeFlag& flag) { return flag.name == "comm_dtype"; });
  ASSERT_NE(dtype, flags.end());
  EXPECT_EQ(dtype->old_name, "travel_type");
}

TEST(Modes, DescriptionsFitOneLineOfATerminal) {
  for (const Mode& mode : Modes()) EXPECT_LE(mode.description.size(), 62) << mode.name;
}

// One home for each: wherever a pass takes a flag, it says the same of it.
TEST(Modes, FlagsMeanTheSameInEveryPassThatTakesThem) {
  const PassRegistry registry = BuiltinPasses();
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<ModeFlag> flags, ModeFlags(registry));
  for (const ModeFlag& flag : flags) {
    SCOPED_TRACE(flag.name);
    EXPECT_NE(flag.help, "");
    EXPECT_NE(flag.expected, "");
    EXPECT_THAT(flag.defaults, Not(IsEmpty()));
    for (const Mode& mode : Modes()) {
      for (const ModePipeline& pipeline : mode.pipelines) {
        WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<Spec> passes, ParseSpecs(pipeline.passes));
        for (const Spec& pass : passes) {
          for (const auto& [option_name, value] : pass.options) {
            if (option_name != "$" + flag.name) continue;
            EXPECT_EQ(mode.help.count(flag.name), 0) << "a second home in mode " << mode.name;
            for (const auto& option : registry.entries().at(pass.name).options) {
              if (option.name != flag.name) continue;
              EXPECT_EQ(option.help, flag.help) << pass.name;
              EXPECT_EQ(option.expected, flag.expected) << pass.name;
            }
          }
        }
      }
    }
  }
}

TEST(Modes, FlagsSayWhatTheyExpectAndWhatTheirDefaultsAre) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<ModeFlag> flags, ModeFlags(BuiltinPasses()));
  std::vector<std::string> texts;
  for (const ModeFlag& flag : flags) {
    texts.push_back(
        absl::StrCat(flag.name, " (", flag.expected, ") ", absl::StrJoin(flag.defaults, " or ")));
  }
  EXPECT_THAT(
      texts,
      IsSupersetOf({"nrings (an integer >= 1 and <= 1024) 1 or 2", "k_steps (an integer >= 1) 1",
                    "loss_scale (true or false) true", "fuse (1|0|2) 1",
                    "trans_mode (fuse_all_reduce|all_gather|all_reduce|all_reduce_xpu) "
                    "fuse_all_reduce"}));
}

TEST(Modes, PipelineSaysWhichFlagsItReads) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Mode* const mode, FindMode("multi_thread"));
  EXPECT_EQ(absl::StrJoin(FlagsOf(*mode, mode->pipelines[1]), " "),
            "devices exact_loss gather_negatives nrings scale sparse statistics sync_batch_norm "
            "trans_mode");
}

TEST(Modes, NamesAreDistinctAndDescribed) {
  std::set<std::string> names;
  for (const Mode& mode : Modes()) {
    EXPECT_TRUE(names.insert(mode.name).second) << mode.name;
    EXPECT_THAT(mode.description, Not(IsEmpty()));
    EXPECT_THAT(mode.description, Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace weft::testing
