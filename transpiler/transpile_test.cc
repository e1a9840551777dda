#include "transpiler/transpile.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"
#include "transpiler/modes.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// One parameter, one loss.
ProgramBuilder MainBuilder() {
  ProgramBuilder p;
  p.Param("w").Var("lr", {1});
  p.last_var().set_persistable(true);
  p.Var("x");
  p.last_var().set_need_check_feed(true);
  p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  p.LongsAttr("shape", {2, 2}).FloatAttr("value", 1);
  p.Op("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"loss@GRAD"}}},
       {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"LearningRate", {"lr"}}},
       {{"ParamOut", {"w"}}}, kRoleOptimize);
  return p;
}

Program Startup() {
  ProgramBuilder p;
  p.Param("w").Op("fill_constant", {}, {{"Out", {"w"}}}).LongsAttr("shape", {2, 2});
  return p.Build();
}

TranspileOptions GradAllReduce(int nranks) {
  TranspileOptions options;
  options.mode = "grad_allreduce";
  if (nranks > 0) options.cluster.nranks = nranks;
  return options;
}

class TranspileTest : public ::testing::Test {
 protected:
  absl::StatusOr<TranspileResult> Run(const TranspileOptions& options) {
    return Transpile(options, programs_);
  }

  Program main_ = MainBuilder().Build();
  Program startup_ = Startup();
  ProgramPair programs_{&main_, &startup_};
};

TEST_F(TranspileTest, ModeRewritesBothPrograms) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Run(GradAllReduce(2)));
  EXPECT_THAT(
      OpTexts(main_),
      ElementsAre("fill_constant( -> loss@GRAD)", "scale(loss@GRAD -> loss@GRAD)",
                  "mul_grad(x, w, loss@GRAD -> w@GRAD)", "c_wait_compute@0(w@GRAD -> w@GRAD)",
                  "c_allreduce_sum@0(w@GRAD -> w@GRAD)", "c_wait_comm@0(w@GRAD -> w@GRAD)",
                  "sgd(w, w@GRAD, lr -> w)"));
  EXPECT_THAT(OpTexts(startup_), ElementsAre("fill_constant( -> w)", "c_comm_init_all@0( -> )",
                                             "c_wait_compute@0(w -> w)", "c_broadcast@0(w -> w)",
                                             "c_wait_comm@0(w -> w)"));
  EXPECT_EQ(result.passes.size(), 10);
  EXPECT_THAT(result.remarks, IsEmpty());
}

// As static.gradients and apply_gradients write them.
TEST_F(TranspileTest, GradientsThatNoOpNamesAreFound) {
  ProgramBuilder p;
  p.Param("w").Var("lr", {1});
  p.last_var().set_persistable(true);
  p.Var("x");
  p.last_var().set_need_check_feed(true);
  p.Var("loss", {}).Var("loss@GRAD", {});
  p.Op("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  p.Op("mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
  p.Op("fill_any_like", {{"X", {"loss"}}}, {{"Out", {"loss@GRAD"}}}, kRoleBackward);
  p.FloatAttr("value", 1);
  p.Op("mean_grad", {{"X", {"y"}}, {"Out@GRAD", {"loss@GRAD"}}}, {{"X@GRAD", {"y@GRAD"}}},
       kRoleBackward);
  p.Op("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"y@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}},
       kRoleBackward);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"LearningRate", {"lr"}}},
       {{"ParamOut", {"w"}}}, kRoleOptimize);
  main_ = p.Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Run(GradAllReduce(2)));
  EXPECT_THAT(OpTexts(main_), AllOf(Contains("scale(loss@GRAD -> loss@GRAD)"),
                                    Contains("c_allreduce_sum@0(w@GRAD -> w@GRAD)")));
  EXPECT_THAT(ResultLines(result.messages), Contains(HasSubstr("they are found by data")));
}

TEST_F(TranspileTest, PassesByNameRunInsteadOfAMode) {
  TranspileOptions options;
  options.passes = "grad-all-reduce{nrings=2,scale=avg}";
  programs_.startup = nullptr;
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Run(options));
  ASSERT_EQ(result.passes.size(), 1);
  EXPECT_EQ(OpTexts(main_)[3], "c_allreduce_avg@0(w@GRAD -> w@GRAD)");
  EXPECT_EQ(startup_.revision(), 0);
}

// The first command divides, and the second adds up.
TEST_F(TranspileTest, TwoCommandsMakeMeansTogether) {
  TranspileOptions divides, allreduce = GradAllReduce(2), mindspore, passes;
  divides.passes = "scale-loss-grad";
  allreduce.mode_flags = {{"scale", "none"}};
  mindspore.mode = "mindspore_reducer";
  passes.passes = "comm-init,broadcast-params,grad-reduce{reduce_method=sum}";
  divides.cluster.nranks = mindspore.cluster.nranks = passes.cluster.nranks = 2;
  for (const TranspileOptions& sums : {allreduce, mindspore, passes}) {
    SCOPED_TRACE(absl::StrCat(sums.mode, sums.passes));
    main_ = MainBuilder().Build();
    startup_ = Startup();
    WEFT_ASSERT_OK(Run(divides).status());
    WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Run(sums));
    EXPECT_THAT(OpTexts(main_), AllOf(Contains("scale(loss@GRAD -> loss@GRAD)"),
                                      Contains("c_allreduce_sum@0(w@GRAD -> w@GRAD)")));
    EXPECT_THAT(ResultLines(result.messages), Not(Contains(HasSubstr("not compared"))));
  }
}

// What is found needs no reading of programs: an all-reduce on a ring that nobody sets up.
TEST_F(TranspileTest, FindingIsAnErrorWithItsRule) {
  TranspileOptions options;
  options.passes = "grad-all-reduce{scale=avg}";
  EXPECT_THAT(Run(options),
              IsFailedPrecondition("after pass grad-all-reduce: W301: op 2 (c_wait_compute): uses "
                                   "ring 0, which no op of the startup program sets up"));
}

TEST_F(TranspileTest, ModeNoneLeavesTheBytes) {
  const std::string before = main_.Serialize();
  TranspileOptions options;
  options.mode = "none";
  WEFT_ASSERT_OK(Run(options).status());
  EXPECT_EQ(main_.Serialize(), before);
}

// Before what the mode does.
TEST_F(TranspileTest, ResultCarriesItsSetting) {
  TranspileOptions options = GradAllReduce(2);
  options.feeds["x"] = FeedLayout::Whole();
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Run(options));
  WEFT_ASSERT_OK_AND_ASSIGN(const Setting setting, SettingOf(main_));
  EXPECT_EQ(setting, result.setting);
  EXPECT_EQ(setting.nranks, 2);
  EXPECT_EQ(setting.feeds.at("x"), FeedLayout::Whole());
  EXPECT_EQ(startup_.setting(), "");
}

TEST_F(TranspileTest, PaddleDialectReturnsTheSettingAlone) {
  TranspileOptions options = GradAllReduce(0);
  options.dialect = Dialect::kPaddle;
  options.cluster.endpoints = {"127.0.0.1:6170", "127.0.0.1:6171"};
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Run(options));
  EXPECT_EQ(main_.setting(), "");
  EXPECT_NE(result.setting, Setting());
}

// What was rewritten for some number of ranks is for these.
TEST_F(TranspileTest, FileSaysWhatOptionsDoNot) {
  main_.set_setting(R"({"nranks":4,"feeds":{"x":"whole"}})");
  EXPECT_THAT(Run(GradAllReduce(2)),
              StatusIs(kInvalid, HasSubstr("the number of ranks: expected 4, for which the program "
                                           "was rewritten (setting of the file), found 2")));
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Run(GradAllReduce(0)));
  EXPECT_EQ(result.setting.nranks, 4);
  EXPECT_EQ(result.setting.feeds.at("x"), FeedLayout::Whole());
}

TEST_F(TranspileTest, SettingThatCannotBeReadIsRefusedOnlyWhereItMatters) {
  main_.set_setting(R"({"lucky":true})");
  EXPECT_THAT(Run(GradAllReduce(2)), StatusIs(kInvalid, HasSubstr("'lucky' is unknown")));
  TranspileOptions none;
  none.mode = "none";
  WEFT_EXPECT_OK(Run(none).status());
  EXPECT_EQ(main_.setting(), R"({"lucky":true})");
}

TEST_F(TranspileTest, ACopyKeepsWhatIsSaidOfItsFeeds) {
  main_.set_setting(R"({"nranks":4})");
  TranspileOptions options;
  options.mode = "none";
  options.feeds["x"] = FeedLayout::Whole();
  WEFT_EXPECT_OK(Run(options).status());
  WEFT_ASSERT_OK_AND_ASSIGN(const Setting setting, SettingOf(main_));
  EXPECT_EQ(setting.nranks, 4);
  EXPECT_EQ(setting.feeds.at("x"), FeedLayout::Whole());
  main_.set_setting(R"({"lucky":true})");
  EXPECT_THAT(Run(options), StatusIs(kInvalid, HasSubstr("'lucky' is unknown")));
}

TEST_F(TranspileTest, ACopySaysNothingOfOtherFeeds) {
  ProgramBuilder p = MainBuilder();
  for (const char* feed : {"y", "z"}) {
    p.Var(feed, {-1, 2});
    p.last_var().set_need_check_feed(true);
    p.Op("relu", {{"X", {feed}}}, {{"Out", {absl::StrCat("of_", feed)}}});
  }
  main_ = p.Build();
  main_.set_setting(R"({"feeds":{"x":"whole"}})");
  TranspileOptions options;
  options.mode = "none";
  options.feeds["z"] = FeedLayout::Whole();
  WEFT_EXPECT_OK(Run(options).status());
  WEFT_ASSERT_OK_AND_ASSIGN(const Setting setting, SettingOf(main_));
  EXPECT_THAT(setting.feeds,
              ElementsAre(Pair("x", FeedLayout::Whole()), Pair("z", FeedLayout::Whole())));
}

TEST_F(TranspileTest, OptionsOfParametersAreReadByModesThatHavePasses) {
  for (const char* mode : {"grad_allreduce", "local_sgd", "singa_plain", "multi_thread"}) {
    Program main = main_, startup = startup_;
    TranspileOptions options = GradAllReduce(2);
    options.mode = mode;
    options.param_attrs["w"].lr_ratio = 0.5;
    ProgramPair programs{&main, &startup};
    WEFT_ASSERT_OK(Transpile(options, programs).status()) << mode;
    EXPECT_THAT(OpTexts(main), Contains(HasSubstr("sgd(w, w@GRAD, w@RATE"))) << mode;
  }
  const std::string before = main_.Serialize();
  TranspileOptions options;
  options.mode = "none";
  options.param_attrs["w"].lr_ratio = 0.5;
  EXPECT_THAT(Run(options), StatusIs(kInvalid, HasSubstr("expected no lr_ratio")));
  EXPECT_EQ(main_.Serialize(), before);
}

// Else each rank would train it for itself.
TEST_F(TranspileTest, ParameterOfServersIsRefusedWhereNothingMovesItThere) {
  const auto refused = [](const std::string& found) {
    return StatusIs(kInvalid, absl::StrCat("parameter w, parameter_server: expected mode "
                                           "parameter_server, or pass parameter-server, found ",
                                           found));
  };
  TranspileOptions options = GradAllReduce(2);
  options.param_attrs["w"].parameter_server = true;
  const std::string before = main_.Serialize();
  EXPECT_THAT(Run(options), refused("mode grad_allreduce"));
  EXPECT_EQ(main_.Serialize(), before);
  EXPECT_THAT(PlanOf(options, BuiltinPasses()).status(), refused("mode grad_allreduce"));
  options.mode.clear();
  options.passes = "grad-all-reduce{scale=avg}";
  EXPECT_THAT(Run(options), refused("passes grad-all-reduce{scale=avg}"));
  options.passes = "parameter-server{scale=avg}";
  WEFT_EXPECT_OK(PlanOf(options, BuiltinPasses()).status());
  options.passes.clear();
  options.mode = "mindspore_reducer";  // leaves out what MindSpore's servers hold
  WEFT_EXPECT_OK(PlanOf(options, BuiltinPasses()).status());
}

TEST_F(TranspileTest, ExplainCollectsTheNotesOfAllPasses) {
  TranspileOptions options = GradAllReduce(2);
  options.explain = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Run(options));
  std::vector<std::string> remarks;
  for (const Remark& remark : result.remarks) {
    remarks.push_back(absl::StrCat(remark.pass, ": ", remark.subject, " ", remark.what));
  }
  EXPECT_THAT(remarks,
              ElementsAre("comm-init: ring 0 set up", "broadcast-params: w broadcast",
                          "scale-loss-grad: loss@GRAD scaled", "grad-all-reduce: w@GRAD reduced"));
}

TEST_F(TranspileTest, ObserverSeesEveryState) {
  TranspileOptions options = GradAllReduce(2);
  std::vector<std::string> seen;
  options.observer = [&](absl::string_view pass, const ProgramPair&) {
    seen.emplace_back(pass);
    return absl::OkStatus();
  };
  WEFT_ASSERT_OK(Run(options).status());
  EXPECT_THAT(seen,
              ElementsAre("input", "comm-init", "broadcast-params", "sync-batch-norm", "exact-loss",
                          "reduce-statistics", "dense-gradients", "scale-loss-grad",
                          "grad-all-reduce", "sync-elimination", "lower-to-target"));
}

// --- What is refused ----------------------------------------------------------------------------

TEST_F(TranspileTest, SecondRunIsRefused) {
  WEFT_ASSERT_OK(Run(GradAllReduce(2)).status());
  EXPECT_THAT(Run(GradAllReduce(2)), IsFailedPrecondition("gradients-reduced already holds"));
}

TEST_F(TranspileTest, ModeAndPassesTogetherOrNeitherAreRefused) {
  EXPECT_THAT(Run({}), StatusIs(kInvalid, "expected a mode or passes, and not both"));
  TranspileOptions both = GradAllReduce(2);
  both.passes = "comm-init";
  EXPECT_THAT(Run(both), StatusIs(kInvalid, "expected a mode or passes, and not both"));
}

TEST_F(TranspileTest, ContradictoryClusterIsRefused) {
  TranspileOptions options = GradAllReduce(1);
  options.dialect = Dialect::kPaddle;
  EXPECT_THAT(Run(options), StatusIs(kInvalid, HasSubstr("at least 2")));
  options = GradAllReduce(0);
  options.cluster.endpoints = {"a:1", "b:1"};
  options.cluster.rank = 7;
  EXPECT_THAT(Run(options), StatusIs(kInvalid, HasSubstr("rank 7 is out of range")));
}

// Verified when it is made, too.
TEST_F(TranspileTest, OneRankIsAsGoodAsAnyNumber) {
  const Program main = main_, startup = startup_;
  for (const Mode& mode : Modes()) {
    if (mode.pipelines.empty()) continue;
    SCOPED_TRACE(mode.name);
    main_ = main;
    startup_ = startup;
    TranspileOptions options = GradAllReduce(1);
    options.mode = mode.name;
    WEFT_EXPECT_OK(Run(options).status());  // also without the flags that it needs for more
    EXPECT_NE(main_.num_ops(), main.num_ops());
  }
}

TEST_F(TranspileTest, PaddleDialectWithoutEndpointsIsRefusedUnchanged) {
  TranspileOptions options = GradAllReduce(2);
  options.dialect = Dialect::kPaddle;
  EXPECT_THAT(Run(options),
              StatusIs(kInvalid,
                       "pass paddle-comm-init: the paddle dialect needs the endpoints of all "
                       "ranks (option:endpoints)"));
  EXPECT_EQ(main_.revision() + startup_.revision(), 0);
}

class OtherFormat : public ProgramOrigin {
 public:
  bool OrdersByData() const override { return true; }
  const std::vector<std::string>& distributed_params() const override { return params_; }
  bool AreOneOp(OpId a, OpId b) const override { return false; }

 private:
  std::vector<std::string> params_;
};

// Paddle has no such transpiler, whose output one could compare.
TEST_F(TranspileTest, PaddleDialectOfAProgramThatIsNoProgramDescIsRefused) {
  main_.set_origin(std::make_shared<const OtherFormat>());
  TranspileOptions options = GradAllReduce(0);
  options.dialect = Dialect::kPaddle;
  options.cluster.endpoints = {"127.0.0.1:6170", "127.0.0.1:6171"};
  EXPECT_THAT(Run(options), IsUnimplemented("use dialect weft"));
  EXPECT_EQ(main_.revision() + startup_.revision(), 0);
  main_.set_origin(nullptr);
  WEFT_EXPECT_OK(Run(options).status());
}

TEST(PlanOf, FindsWhatIsWrongBeforeAProgramIsRead) {
  const PassRegistry registry = BuiltinPasses();
  WEFT_EXPECT_OK(PlanOf(GradAllReduce(2), registry).status());
  TranspileOptions options = GradAllReduce(2);
  options.mode_flags["nrings"] = "0";
  EXPECT_THAT(PlanOf(options, registry).status(),
              StatusIs(kInvalid, HasSubstr("pass comm-init: ")));
  options = GradAllReduce(2);
  options.mode = "local";
  EXPECT_THAT(PlanOf(options, registry).status(),
              StatusIs(kInvalid, HasSubstr("unknown mode local")));
  options.mode.clear();
  options.passes = "no-such-pass";
  EXPECT_THAT(PlanOf(options, registry).status(),
              StatusIs(kInvalid, HasSubstr("unknown pass no-such-pass")));
  options = GradAllReduce(2);
  options.cluster.nranks = -1;
  EXPECT_THAT(PlanOf(options, registry).status(), StatusIs(kInvalid, HasSubstr("at least 1")));
}

// --- Verification -------------------------------------------------------------------------------

// The main program with an op that lacks an input.
Program Broken() { return MainBuilder().Op("relu", {}, {{"Out", {"y"}}}).Build(); }

TEST_F(TranspileTest, InputThatIsFoundWrongIsRefused) {
  main_ = Broken();
  EXPECT_THAT(Run(GradAllReduce(2)),
              StatusIs(kInvalid, "op 3 (relu) input X: expected a variable, found none (W102)"));
  EXPECT_EQ(main_.revision(), 0);
}

TEST_F(TranspileTest, FindingInTheStartupProgramSaysSo) {
  startup_ = ProgramBuilder().Param("w").Op("relu", {}, {{"Out", {"w"}}}).Build();
  EXPECT_THAT(Run(GradAllReduce(2)),
              StatusIs(kInvalid,
                       "startup program: op 0 (relu) input X: expected a variable, "
                       "found none (W102)"));
}

TEST_F(TranspileTest, WithoutVerificationTheInputIsNotJudged) {
  main_ = Broken();
  TranspileOptions options = GradAllReduce(2);
  options.verification = Verification::kNever;
  WEFT_EXPECT_OK(Run(options).status());
}

// Takes an input away from the last op.
class BreakLastOp : public Pass {
 public:
  static constexpr absl::string_view kName = "break-last-op";
  static constexpr absl::string_view kDescription = "makes a program wrong";
  struct Options {
    void Bind(OptionBinder&) {}
  };
  explicit BreakLastOp(Options) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const PassContext&, ProgramPair& programs) const override {
    const OpId last = programs.main->block(0).ops().back();
    pb::OpDesc op = programs.main->op(last).ToProto();
    op.mutable_inputs()->RemoveLast();
    Rewriter rewriter(programs.main);
    rewriter.Replace(last, op);
    return CommitEdits(&rewriter);
  }
};

// Divides the learning rate of the optimizer, and says so, or not.
class HalveRate : public Pass {
 public:
  static constexpr absl::string_view kName = "halve-rate";
  static constexpr absl::string_view kDescription = "updates by half the learning rate";
  struct Options {
    bool on_purpose = false, changes_any = false;
    std::string rate = "lr";
    void Bind(OptionBinder& bind) {
      bind.Bool("on_purpose", &on_purpose, "says so");
      bind.Bool("changes_any", &changes_any, "says that the original can be changed alike");
      bind.String("rate", &rate, "the learning rate");
    }
  };
  explicit HalveRate(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Claims claims(const PassContext&) const override {
    return options_.on_purpose ? Claims::Of(Claims::Computation::kChanged) : Claims();
  }
  bool HasTrait(PassTrait trait) const override {
    return trait == PassTrait::kChangesAnyProgram && options_.changes_any;
  }
  absl::StatusOr<bool> Run(const PassContext&, ProgramPair& programs) const override {
    ProgramBuilder p;
    p.Op("scale", {{"X", {options_.rate}}}, {{"Out", {options_.rate}}});
    Rewriter rewriter(programs.main);
    rewriter.InsertBefore(programs.main->block(0).ops().back(),
                          p.FloatAttr("scale", 0.5F).last_op());
    return CommitEdits(&rewriter);
  }

 private:
  Options options_;
};

// Lets the counter of LocalSGD's steps go up by 2 at a time.
class CountTwice : public Pass {
 public:
  static constexpr absl::string_view kName = "count-twice";
  static constexpr absl::string_view kDescription = "makes LocalSGD average twice as often";
  struct Options {
    void Bind(OptionBinder&) {}
  };
  explicit CountTwice(Options) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const PassContext&, ProgramPair& programs) const override {
    Rewriter rewriter(programs.main);
    for (OpId id : programs.main->block(0).ops()) {
      pb::OpDesc op = programs.main->op(id).ToProto();
      if (op.type() != "increment") continue;
      for (auto& attr : *op.mutable_attrs()) {
        if (attr.name() == "step") attr.set_f(2);
      }
      rewriter.Replace(id, op);
    }
    return CommitEdits(&rewriter);
  }
};

TEST_F(TranspileTest, LocalSgdThatAveragesAtOtherStepsThanAskedForIsFound) {
  PassRegistry registry = BuiltinPasses();
  registry.Add<CountTwice>();
  TranspileOptions options;
  options.cluster.nranks = 2;
  const std::string local = "comm-init,broadcast-params,local-sgd{k_steps=4}";
  options.passes = absl::StrCat(local, ",count-twice");
  EXPECT_THAT(Transpile(options, programs_, registry), IsFailedPrecondition("W605"));
  main_ = MainBuilder().Build();
  startup_ = Startup();
  options.passes = local;
  WEFT_EXPECT_OK(Transpile(options, programs_, registry).status());
}

TEST_F(TranspileTest, ComputationIsUnchangedUnlessAPassClaimsOtherwise) {
  PassRegistry registry = BuiltinPasses();
  registry.Add<HalveRate>();
  TranspileOptions options;
  options.cluster.nranks = 2;
  const std::string reduce = "comm-init,broadcast-params,grad-all-reduce";
  options.passes = absl::StrCat(reduce, ",halve-rate");
  EXPECT_THAT(Transpile(options, programs_, registry),
              IsFailedPrecondition("W601: variable w, last written by op"));
  main_ = MainBuilder().Build();
  startup_ = Startup();
  options.passes = absl::StrCat(reduce, ",halve-rate{on_purpose=true}");
  WEFT_EXPECT_OK(Transpile(options, programs_, registry).status());
}

// The passes that come after those that change the computation must not change it.
TEST_F(TranspileTest, ComputationIsComparedFromWhereItIsNotChangedOnPurpose) {
  PassRegistry registry = BuiltinPasses();
  registry.Add<HalveRate>();
  const std::string reduce = "comm-init,broadcast-params,grad-all-reduce";
  for (const auto& [changing, rate] :
       {std::pair("set-optimizer{lr=0.5}", "learning_rate_0"),
        std::pair("grad-accumulate{k=2}", "lr"),
        std::pair("dense-gradients{sparse=dense},grad-accumulate{k=2}", "lr"),
        std::pair("set-optimizer{lr=0.5},grad-accumulate{k=2}", "learning_rate_0")}) {
    TranspileOptions options;
    options.cluster.nranks = 2;
    options.passes = absl::StrCat(changing, ",", reduce);
    main_ = MainBuilder().Build();
    startup_ = Startup();
    WEFT_EXPECT_OK(Transpile(options, programs_, registry).status());
    main_ = MainBuilder().Build();
    startup_ = Startup();
    options.passes = absl::StrCat(changing, ",", reduce, ",halve-rate{rate=", rate, "}");
    EXPECT_THAT(Transpile(options, programs_, registry), IsFailedPrecondition("W601: variable w"))
        << changing;
  }
}

// Updates that change on purpose after gradients are reduced: the original gets the same change.
TEST_F(TranspileTest, ComputationIsComparedWithTheChangedOriginal) {
  PassRegistry registry = BuiltinPasses();
  registry.Add<HalveRate>();
  const std::string reduce = "comm-init,broadcast-params,grad-all-reduce,";
  TranspileOptions options;
  options.cluster.nranks = 2;
  options.passes = absl::StrCat(reduce, "optimizer-offload{offload=states}");
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Transpile(options, programs_, registry));
  EXPECT_THAT(
      testing::ResultLines(result.messages),
      Contains(HasSubstr("compared with what option:passes 'optimizer-offload{offload=states}' "
                         "makes of the original")));
  main_ = MainBuilder().Build();
  startup_ = Startup();
  options.passes = absl::StrCat(reduce, "halve-rate,optimizer-offload{offload=states}");
  EXPECT_THAT(Transpile(options, programs_, registry), IsFailedPrecondition("W601: variable w"));
}

// As passes of Weft's do.
TEST_F(TranspileTest, PassOfOnesOwnChangesTheReferenceProgram) {
  PassRegistry registry = BuiltinPasses();
  registry.Add<HalveRate>();
  const auto halve = [&](const std::string& options) {
    main_ = MainBuilder().Build();
    startup_ = Startup();
    TranspileOptions with;
    with.cluster.nranks = 2;
    with.passes = absl::StrCat("comm-init,broadcast-params,grad-all-reduce,halve-rate", options);
    return Transpile(with, programs_, registry);
  };
  const std::string joins = "{on_purpose=true,changes_any=true}";
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, halve(joins));
  EXPECT_THAT(testing::ResultLines(result.messages),
              Contains(HasSubstr(absl::StrCat("option:passes 'halve-rate", joins, "' makes"))));
  EXPECT_THAT(halve(absl::StrCat(",halve-rate", joins)), IsFailedPrecondition("W601"));
  // Else there is nothing to compare with.
  WEFT_EXPECT_OK(halve(",halve-rate{on_purpose=true}").status());
}

TEST_F(TranspileTest, FindingNamesTheLastPassOrTheOneThatCausedIt) {
  PassRegistry registry = BuiltinPasses();
  registry.Add<BreakLastOp>();
  TranspileOptions options;
  options.passes = "break-last-op,scale-loss-grad{scale=none}";
  for (const auto& [verification, pass] :
       {std::pair(Verification::kAtEnd, "scale-loss-grad"),
        std::pair(Verification::kAfterEachPass, "break-last-op")}) {
    main_ = MainBuilder().Build();
    options.verification = verification;
    EXPECT_THAT(Transpile(options, programs_, registry),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         absl::StrCat("after pass ", pass,
                                      ": W102: op 2 (sgd) input LearningRate: expected a variable, "
                                      "found none")));
  }
}

// Rank 1 broadcasts the learning rate after the step.
class BroadcastOnRank1 : public Pass {
 public:
  static constexpr absl::string_view kName = "broadcast-on-rank-1";
  static constexpr absl::string_view kDescription = "ranks differ";
  struct Options {
    void Bind(OptionBinder&) {}
  };
  explicit BroadcastOnRank1(Options) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override {
    context.sink.Note(absl::StrCat("found rank ", context.target.cluster.rank()));
    if (context.target.cluster.rank() == 0) return false;
    Rewriter rewriter(programs.main);
    ProgramBuilder p;
    p.Op("c_broadcast", {{"X", {"lr"}}}, {{"Out", {"lr"}}}).BoolAttr("use_calc_stream", true);
    rewriter.Append(0, p.IntAttr("ring_id", 0).last_op());
    return CommitEdits(&rewriter);
  }
};

class AllRanksTest : public TranspileTest {
 protected:
  AllRanksTest() {
    registry_.Add<BroadcastOnRank1>();
    options_.mode = "grad_allreduce";
    options_.cluster.endpoints = {"127.0.0.1:6170", "127.0.0.1:6171"};
  }

  absl::StatusOr<std::vector<TranspileResult>> RunAll() {
    ProgramPair ranks[] = {programs_, {&main1_, &startup1_}};
    WEFT_ASSIGN_OR_RETURN(const TranspilePlan plan, PlanOf(options_, registry_));
    return TranspileAllRanks(plan, options_, absl::MakeSpan(ranks));
  }
  void UsePasses(const std::string& more) {
    options_.mode.clear();
    options_.passes = "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce" + more;
  }

  PassRegistry registry_ = BuiltinPasses();
  TranspileOptions options_;
  Program main1_ = main_, startup1_ = startup_;
};

TEST_F(AllRanksTest, EachRankIsRewrittenAndShownInOrder) {
  std::vector<const Program*> shown;
  options_.on_result = [&](const ProgramPair& result) { shown.push_back(result.main); };
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<TranspileResult> results, RunAll());
  EXPECT_EQ(results.size(), 2);
  EXPECT_THAT(shown, ElementsAre(&main_, &main1_));
  EXPECT_THAT(OpTexts(main_), Contains(HasSubstr("c_allreduce_sum")));
  EXPECT_EQ(main_.Serialize(), main1_.Serialize());
}

// Each of them is right on its own.
TEST_F(AllRanksTest, RanksThatDoNotFitTogetherAreRefused) {
  UsePasses(",broadcast-on-rank-1");
  for (const int rank : {0, 1}) {
    Program main = main_, startup = startup_;
    TranspileOptions options = options_;
    options.cluster.rank = rank;
    ProgramPair programs{&main, &startup};
    WEFT_EXPECT_OK(Transpile(options, programs, registry_).status());
  }
  EXPECT_THAT(RunAll(),
              IsFailedPrecondition(
                  AllOf(HasSubstr("ranks together: after pass broadcast-on-rank-1: W501: rank 1: "),
                        HasSubstr("rank 1 makes broadcast"), HasSubstr("rank 0 makes nothing"))));
}

TEST_F(AllRanksTest, WithoutVerificationRanksAreNotCompared) {
  UsePasses(",broadcast-on-rank-1");
  options_.verification = Verification::kNever;
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<TranspileResult> results, RunAll());
  EXPECT_THAT(testing::ResultLines(results[0].messages), ElementsAre("note: found rank 0"));
  EXPECT_THAT(testing::ResultLines(results[1].messages), ElementsAre("note: found rank 1"));
}

// What is wrong in one program does not become more by the number of ranks that run it.
TEST_F(AllRanksTest, ProgramOfAllRanksIsVerifiedOnce) {
  options_.mode.clear();
  registry_.Add<HalveRate>();
  options_.passes = "grad-all-reduce{scale=avg},halve-rate";
  Program main = main_;
  ProgramPair alone{&main, nullptr};
  const absl::Status of_one = Transpile(options_, alone, registry_).status();
  EXPECT_THAT(of_one, IsFailedPrecondition("W601"));
  ProgramPair ranks[] = {{&main_, nullptr}, {&main1_, nullptr}};
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspilePlan plan, PlanOf(options_, registry_));
  EXPECT_THAT(TranspileAllRanks(plan, options_, absl::MakeSpan(ranks)),
              StatusIs(of_one.code(), absl::StrCat("ranks together: ", of_one.message())));
}

TEST_F(AllRanksTest, RanksAndEndpointsMustAgree) {
  options_.cluster.endpoints.pop_back();
  EXPECT_THAT(RunAll(),
              StatusIs(kInvalid, "expected an endpoint of each rank, found 1 for 2 ranks"));
  options_.cluster.endpoints.emplace_back("127.0.0.1:6171");
  options_.cluster.rank = 1;
  EXPECT_THAT(RunAll(),
              StatusIs(kInvalid, HasSubstr("expected neither rank nor current_endpoint")));
}

TEST_F(TranspileTest, TimesAreReadWhereAPassSaysSo) {
  const auto read = [](TranspileOptions options) {
    const absl::StatusOr<TranspilePlan> plan = PlanOf(options, BuiltinPasses());
    WEFT_EXPECT_OK(plan.status());
    return absl::StrCat(
        plan->pipeline.HasTrait(PassTrait::kReadsOpTimes) ? "ops " : "",
        plan->pipeline.HasTrait(PassTrait::kReadsCollectiveTimes) ? "collectives" : "");
  };
  TranspileOptions options = GradAllReduce(2);
  EXPECT_EQ(read(options), "");
  options.placement.device_memory = 1000;
  EXPECT_EQ(read(options), "collectives");
  options.mode_flags["buckets"] = "optimal";
  EXPECT_EQ(read(options), "ops collectives");
  options = TranspileOptions();
  options.passes = "hetero-partition{place=\"name:optimal_*=cpu\"}";
  EXPECT_EQ(read(options), "");
  options.passes = "grad-reduce{buckets=optimal}";
  EXPECT_EQ(read(options), "ops collectives");
}

// Properties are not looked for where nobody asks.
TEST_F(TranspileTest, BadPairsDoNotAffectPassesThatIgnoreThem) {
  ProgramBuilder p = MainBuilder();
  p.Op("assign", {{"X", {"x"}}}, {{"Out", {"y"}}}, kRoleBackward).Pairs({"w"});
  main_ = p.Build();
  TranspileOptions options;
  options.passes = "sync-elimination";
  options.verification = Verification::kNever;
  WEFT_EXPECT_OK(Run(options).status());
  options.passes = "dense-gradients";
  EXPECT_THAT(Run(options), StatusIs(kInvalid, HasSubstr("op_role_var")));
}

TEST_F(TranspileTest, ResultSaysWhatThePassesClaim) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult reduced, Run(GradAllReduce(2)));
  EXPECT_EQ(reduced.claims.gradients, Claims::Gradients::kAveraged);
  main_ = MainBuilder().Build();
  startup_ = Startup();
  TranspileOptions options;
  options.passes = "comm-init,broadcast-params,local-sgd{k_steps=4,begin_step=2,first_average=3}";
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult local, Run(options));
  EXPECT_EQ(local.claims.averaging, (AveragingSchedule{4, 3, 2}));
}

// --- Claims of one's own ------------------------------------------------------------------------

// A pass that embeds passes of Weft's, and claims whatever it is told to.
class Exchange : public Pass {
 public:
  static constexpr absl::string_view kName = "exchange";
  static constexpr absl::string_view kDescription = "exchanges what ranks learn";
  struct Options {
    std::string passes;  // what it does
    Claims::Gradients gradients = Claims::Gradients::kUntouched;
    int period = 0;  // of averaging; 0: no claim
    void Bind(OptionBinder& bind) {
      bind.String("passes", &passes, "what it does");
      bind.Choice("gradients", &gradients, "claim",
                  {{"untouched", Claims::Gradients::kUntouched},
                   {"averaged", Claims::Gradients::kAveraged},
                   {"summed", Claims::Gradients::kSummed}});
      bind.Int("period", &period, "claim");
    }
  };
  explicit Exchange(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  Claims claims(const PassContext&) const override {
    Claims claims = Claims::Of(options_.gradients);
    if (options_.period > 0) claims.averaging = AveragingSchedule{options_.period, 1};
    return claims;
  }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override {
    WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline,
                          Pipeline::FromText(options_.passes, BuiltinPasses()));
    WEFT_ASSIGN_OR_RETURN(const auto reports, pipeline.Run(context, programs));
    return std::any_of(reports.begin(), reports.end(),
                       [](const PassReport& report) { return report.changed; });
  }

 private:
  Options options_;
};

struct ClaimCase {
  std::string does;
  std::string claims;
  std::string found;  // empty: nothing
};

class ClaimsOfOnesOwn : public TranspileTest, public ::testing::WithParamInterface<ClaimCase> {};

TEST_P(ClaimsOfOnesOwn, AreVerifiedAsThoseOfWeftsPassesAre) {
  PassRegistry registry = BuiltinPasses();
  registry.Add<Exchange>();
  TranspileOptions options;
  options.cluster.nranks = 2;
  options.passes = absl::StrCat("comm-init,broadcast-params,exchange{passes=\"", GetParam().does,
                                "\"", GetParam().claims, "}");
  const absl::Status status = Transpile(options, programs_, registry).status();
  if (GetParam().found.empty()) {
    WEFT_EXPECT_OK(status);
  } else {
    EXPECT_THAT(status, IsFailedPrecondition(AllOf(HasSubstr("after pass exchange: "),
                                                   HasSubstr(GetParam().found))));
  }
}

constexpr char kUnclaimed[] = "takes w@GRAD: expected a pass that claims gradients-reduced";

INSTANTIATE_TEST_SUITE_P(
    TranspileTest, ClaimsOfOnesOwn,
    ::testing::Values(ClaimCase{"grad-all-reduce{scale=avg}", ",gradients=averaged", ""},
                      ClaimCase{"grad-all-reduce{scale=avg}", ",gradients=summed", "W314"},
                      ClaimCase{"grad-all-reduce{scale=avg}", "", kUnclaimed},
                      ClaimCase{"grad-all-reduce{scale=none}", ",gradients=summed", ""},
                      ClaimCase{"grad-all-reduce{scale=none}", ",gradients=averaged", "W312"},
                      ClaimCase{"grad-all-reduce{scale=none}", "", kUnclaimed},
                      ClaimCase{"sync-elimination", ",gradients=averaged", "W310"},
                      ClaimCase{"local-sgd{k_steps=4}", ",period=4", ""},
                      ClaimCase{"local-sgd{k_steps=4}", ",period=2", "W605"},
                      ClaimCase{"local-sgd{k_steps=4}", "",
                                "a pass that claims parameters-averaged"},
                      ClaimCase{"local-sgd", ",period=1", ""},
                      ClaimCase{"local-sgd", ",period=2", "W605"}));

TEST_F(TranspileTest, PassesOfContradictoryClaimsAreRefusedBeforeAnythingRuns) {
  PassRegistry registry = BuiltinPasses();
  registry.Add<Exchange>();
  TranspileOptions options;
  options.passes = "grad-all-reduce{scale=avg},exchange{gradients=summed}";
  EXPECT_THAT(Transpile(options, programs_, registry),
              StatusIs(kInvalid,
                       "pass grad-all-reduce claims gradients averaged over the ranks, pass "
                       "exchange claims gradients summed over the ranks"));
  EXPECT_EQ(main_.revision(), 0);
  EXPECT_THAT(PlanOf(options, registry).status(), StatusIs(kInvalid, HasSubstr("claims")));
}

}  // namespace
}  // namespace weft::testing
