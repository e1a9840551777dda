#include "transpiler/pipeline/pipeline.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kInternal = absl::StatusCode::kInternal;

// A pass whose name, contract, claims and work a test gives.
class FakePass : public Pass {
 public:
  using Work = std::function<absl::StatusOr<bool>(ProgramPair&)>;
  FakePass(std::string name, Contract contract, Claims claims, Work work)
      : name_(std::move(name)),
        contract_(std::move(contract)),
        claims_(claims),
        work_(std::move(work)) {}

  absl::string_view name() const override { return name_; }
  Contract contract() const override { return contract_; }
  Claims claims(const PassContext&) const override { return claims_; }
  absl::StatusOr<bool> Run(const PassContext&, ProgramPair& programs) const override {
    return work_(programs);
  }

 private:
  std::string name_;
  Contract contract_;
  Claims claims_;
  Work work_;
};

absl::StatusOr<bool> DoNothing(ProgramPair&) { return false; }

// Appends an op of no inputs and outputs to a program.
absl::Status Append(Program* program, const std::string& type) {
  pb::OpDesc op;
  op.set_type(type);
  Rewriter rewriter(program);
  rewriter.Append(0, op);
  return rewriter.Commit();
}

FakePass::Work Appending(const std::string& type) {
  return [type](ProgramPair& programs) -> absl::StatusOr<bool> {
    WEFT_RETURN_IF_ERROR(Append(programs.main, type));
    return true;
  };
}

void Add(Pipeline* pipeline, const std::string& name, FakePass::Work work, Contract contract = {}) {
  pipeline->Add(std::make_unique<FakePass>(name, std::move(contract), Claims(), std::move(work)));
}

// A pass that does nothing and claims something.
void AddClaiming(Pipeline* pipeline, const std::string& name, const Claims& claims) {
  pipeline->Add(std::make_unique<FakePass>(name, Contract(), claims, DoNothing));
}

class PipelineTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<PassReport>> Run(const PipelineOptions& options = {}) {
    return pipeline_.Run(context_, programs_, options);
  }

  Program main_ = ProgramBuilder().Build();
  ProgramPair programs_{&main_, nullptr};
  PassContext context_;
  Pipeline pipeline_;
};

// --- Running ------------------------------------------------------------------------------------

TEST_F(PipelineTest, PassesRunInOrderAndAreReported) {
  Program startup = ProgramBuilder().Op("fill_constant", {}, {{"Out", {"w"}}}).Build();
  programs_.startup = &startup;
  Add(&pipeline_, "first", Appending("a"));
  Add(&pipeline_, "second", DoNothing);
  Add(&pipeline_, "third", Appending("b"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<PassReport> reports, Run());
  EXPECT_THAT(OpTexts(main_), ElementsAre("a( -> )", "b( -> )"));
  ASSERT_EQ(reports.size(), 3);
  EXPECT_EQ(reports[0].pass, "first");
  EXPECT_TRUE(reports[0].changed);
  EXPECT_EQ(reports[0].main_ops, 1);
  EXPECT_FALSE(reports[1].changed);
  EXPECT_EQ(reports[2].main_ops, 2);
  EXPECT_EQ(reports[2].startup_ops, 1);
  EXPECT_GE(reports[2].seconds, 0);
}

TEST_F(PipelineTest, WithoutPassesNothingHappens) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<PassReport> reports, Run());
  EXPECT_THAT(reports, IsEmpty());
  EXPECT_EQ(main_.revision(), 0);
}

TEST_F(PipelineTest, ErrorOfAPassNamesThePassAndStopsThePipeline) {
  Add(&pipeline_, "fails", [](ProgramPair&) { return absl::DataLossError("op 3 (mul): broken"); });
  Add(&pipeline_, "later", Appending("a"));
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDataLoss, "pass fails: op 3 (mul): broken"));
  EXPECT_THAT(OpTexts(main_), IsEmpty());
}

TEST_F(PipelineTest, PassThatHidesAChangeIsAnInternalError) {
  Add(&pipeline_, "liar", [](ProgramPair& programs) -> absl::StatusOr<bool> {
    WEFT_RETURN_IF_ERROR(Append(programs.main, "a"));
    return false;
  });
  EXPECT_THAT(Run(), StatusIs(kInternal, "pass liar reports no change, but changed a program"));
}

TEST_F(PipelineTest, PassThatHidesAChangeOfTheStartupProgramIsAnInternalError) {
  Program startup = ProgramBuilder().Build();
  programs_.startup = &startup;
  Add(&pipeline_, "liar", [](ProgramPair& programs) -> absl::StatusOr<bool> {
    WEFT_RETURN_IF_ERROR(Append(programs.startup, "a"));
    return false;
  });
  EXPECT_THAT(Run(), StatusIs(kInternal, "pass liar reports no change, but changed a program"));
}

TEST_F(PipelineTest, PassThatClaimsAChangeIsAnInternalError) {
  Add(&pipeline_, "liar", [](ProgramPair&) { return true; });
  EXPECT_THAT(Run(), StatusIs(kInternal, "pass liar reports a change, but changed nothing"));
}

// --- Contracts ----------------------------------------------------------------------------------

TEST_F(PipelineTest, NeedThatAnEarlierPassProvidesIsMet) {
  Add(&pipeline_, "makes", DoNothing, Contract().Provides("cake"));
  Add(&pipeline_, "eats", DoNothing, Contract().Needs("cake"));
  WEFT_EXPECT_OK(Run().status());
}

TEST_F(PipelineTest, NeedThatOnlyALaterPassProvidesIsRefusedBeforeAnythingRuns) {
  Add(&pipeline_, "writes", Appending("a"));
  Add(&pipeline_, "eats", DoNothing, Contract().Needs("cake"));
  Add(&pipeline_, "makes", DoNothing, Contract().Provides("cake"));
  EXPECT_THAT(Run(), StatusIs(kRefused, "pass eats needs cake, which no earlier pass provides"));
  EXPECT_EQ(main_.revision(), 0);
}

TEST_F(PipelineTest, SecondPassThatProvidesTheSameIsRefusedIfItConflicts) {
  Add(&pipeline_, "makes", DoNothing, Contract().Provides("cake").ConflictsWith("cake"));
  Add(&pipeline_, "makes-again", DoNothing, Contract().Provides("cake").ConflictsWith("cake"));
  EXPECT_THAT(Run(), StatusIs(kRefused,
                              "pass makes-again cannot run: cake already holds: pass "
                              "makes provides it"));
}

TEST_F(PipelineTest, PropertiesThatHoldAlreadyMeetNeedsAndConflict) {
  Pipeline eats;
  Add(&eats, "eats", DoNothing, Contract().Needs("cake"));
  WEFT_EXPECT_OK(eats.CheckContracts({{"cake", "op 1 (bake)"}}));
  Pipeline makes;
  Add(&makes, "makes", DoNothing, Contract().Provides("cake").ConflictsWith("cake"));
  EXPECT_THAT(
      makes.CheckContracts({{"cake", "op 1 (bake)"}}),
      StatusIs(kRefused,
               "pass makes cannot run: cake already holds: op 1 (bake); of a program that is "
               "rewritten already, transpile the original"));
}

TEST_F(PipelineTest, InitialPropertiesAreWhereContractsStartFrom) {
  Add(&pipeline_, "eats", Appending("a"), Contract().Needs("cake").ConflictsWith("diet"));
  EXPECT_THAT(Run(), StatusIs(kRefused, HasSubstr("needs cake")));
  PipelineOptions options;
  options.initial_properties = {{"cake", "op 1 (bake)"}, {"diet", "op 2 (weigh)"}};
  EXPECT_THAT(Run(options), StatusIs(kRefused, HasSubstr("diet already holds: op 2 (weigh)")));
  options.initial_properties.erase("diet");
  WEFT_EXPECT_OK(Run(options).status());
}

TEST_F(PipelineTest, PropertiesAreAskedForByPassesThatNeedOrExcludeSome) {
  EXPECT_FALSE(pipeline_.AsksForProperties());
  Add(&pipeline_, "makes", DoNothing, Contract().Provides("cake"));
  EXPECT_FALSE(pipeline_.AsksForProperties());
  Add(&pipeline_, "asks", DoNothing, Contract().ConflictsWith("cake"));
  EXPECT_TRUE(pipeline_.AsksForProperties());
}

// --- Claims -------------------------------------------------------------------------------------

constexpr auto kAveraged = Claims::Gradients::kAveraged;
constexpr auto kSummed = Claims::Gradients::kSummed;

TEST_F(PipelineTest, ClaimsOfAllPassesComeTogether) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Claims none, pipeline_.ClaimsOf(context_));
  EXPECT_EQ(none.gradients, Claims::Gradients::kUntouched);
  EXPECT_EQ(none.averaging, absl::nullopt);
  EXPECT_EQ(none.computation, Claims::Computation::kPreserved);
  AddClaiming(&pipeline_, "averages", Claims::Of(kAveraged));
  Add(&pipeline_, "claims-nothing", DoNothing);
  AddClaiming(&pipeline_, "averages-too", Claims::Of(kAveraged));
  AddClaiming(&pipeline_, "local", Claims::Of(AveragingSchedule{4, 8}));
  AddClaiming(&pipeline_, "changes", Claims::Of(Claims::Computation::kChanged));
  WEFT_ASSERT_OK_AND_ASSIGN(const Claims all, pipeline_.ClaimsOf(context_));
  EXPECT_EQ(all.gradients, kAveraged);
  EXPECT_EQ(all.averaging, (AveragingSchedule{4, 8}));
  EXPECT_EQ(all.computation, Claims::Computation::kChanged);
}

TEST_F(PipelineTest, PassesThatChangeTheComputationAreCountedIfTheyComeFirst) {
  const Claims changed = Claims::Of(Claims::Computation::kChanged);
  EXPECT_EQ(pipeline_.NumChangingFirst(context_), 0);
  AddClaiming(&pipeline_, "changes", changed);
  EXPECT_EQ(pipeline_.NumChangingFirst(context_), 1);
  AddClaiming(&pipeline_, "changes-too", changed);
  AddClaiming(&pipeline_, "averages", Claims::Of(kAveraged));
  EXPECT_EQ(pipeline_.NumChangingFirst(context_), 2);
  AddClaiming(&pipeline_, "changes-late", changed);
  EXPECT_EQ(pipeline_.NumChangingFirst(context_), 0);
}

TEST_F(PipelineTest, PassesForOneDeviceMayComeBeforeThoseThatChangeTheComputation) {
  Claims one_device;
  one_device.is_for_one_device = true;
  AddClaiming(&pipeline_, "for-one-device", one_device);
  EXPECT_EQ(pipeline_.NumChangingFirst(context_), 0);
  AddClaiming(&pipeline_, "changes", Claims::Of(Claims::Computation::kChanged));
  EXPECT_EQ(pipeline_.NumChangingFirst(context_), 2);
  AddClaiming(&pipeline_, "for-one-device-too", one_device);
  AddClaiming(&pipeline_, "averages", Claims::Of(kAveraged));
  EXPECT_EQ(pipeline_.NumChangingFirst(context_), 2);
}

TEST_F(PipelineTest, VerifierSeesWhatTheFirstPassesChangeBeforeTheOthersRun) {
  std::vector<std::string> seen;
  PipelineOptions options;
  options.verifier = [&](Stage stage, const ProgramPair& programs) {
    const char* const name = stage == Stage::kComputationChanged ? "changed" : "end";
    seen.push_back(absl::StrCat(name, " ", programs.main->num_ops()));
    return absl::OkStatus();
  };
  const Claims changed = Claims::Of(Claims::Computation::kChanged);
  pipeline_.Add(std::make_unique<FakePass>("changes", Contract(), changed, Appending("a")));
  WEFT_ASSERT_OK(Run(options).status());
  EXPECT_THAT(seen, ElementsAre("end 1"));  // nothing is left to compare

  seen.clear();
  Add(&pipeline_, "preserves", Appending("b"));
  WEFT_ASSERT_OK(Run(options).status());
  EXPECT_THAT(seen, ElementsAre("changed 2", "end 3"));

  seen.clear();
  options.verification = Verification::kNever;
  WEFT_ASSERT_OK(Run(options).status());
  EXPECT_THAT(seen, ElementsAre());
}

TEST_F(PipelineTest, PassesThatContradictEachOtherAreNamed) {
  AddClaiming(&pipeline_, "averages", Claims::Of(kAveraged));
  AddClaiming(&pipeline_, "sums", Claims::Of(kSummed));
  EXPECT_THAT(pipeline_.ClaimsOf(context_),
              StatusIs(kInvalid,
                       "pass averages claims gradients averaged over the ranks, pass sums claims "
                       "gradients summed over the ranks"));
}

TEST_F(PipelineTest, PassesOfDifferentAveragingSchedulesAreNamed) {
  AddClaiming(&pipeline_, "often", Claims::Of(AveragingSchedule{2, 1}));
  AddClaiming(&pipeline_, "seldom", Claims::Of(AveragingSchedule{8, 1}));
  EXPECT_THAT(pipeline_.ClaimsOf(context_),
              StatusIs(kInvalid,
                       "pass often claims parameters averaged every 2 steps, pass seldom claims "
                       "parameters averaged every 8 steps"));
}

// --- Hooks --------------------------------------------------------------------------------------

TEST_F(PipelineTest, ObserverSeesTheInputAndTheStateAfterEachPass) {
  Add(&pipeline_, "first", Appending("a"));
  Add(&pipeline_, "second", Appending("b"));
  std::vector<std::string> seen;
  PipelineOptions options;
  options.observer = [&](absl::string_view pass, const ProgramPair& programs) {
    seen.push_back(absl::StrCat(pass, " ", programs.main->num_ops()));
    return absl::OkStatus();
  };
  WEFT_ASSERT_OK(Run(options).status());
  EXPECT_THAT(seen, ElementsAre("input 0", "first 1", "second 2"));
}

TEST_F(PipelineTest, ErrorOfTheObserverStopsThePipeline) {
  Add(&pipeline_, "first", Appending("a"));
  PipelineOptions options;
  options.observer = [](absl::string_view, const ProgramPair&) {
    return absl::ResourceExhaustedError("disk full");
  };
  EXPECT_THAT(Run(options), StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  EXPECT_EQ(main_.num_ops(), 0);
}

TEST_F(PipelineTest, ResultIsShownOnceBeforeItIsVerified) {
  std::vector<std::string> events;
  PipelineOptions options;
  options.observer = [&](absl::string_view pass, const ProgramPair&) {
    events.emplace_back(pass);
    return absl::OkStatus();
  };
  options.on_result = [&](const ProgramPair& programs) {
    events.push_back(absl::StrCat("result ", programs.main->num_ops()));
  };
  options.verifier = [&](Stage stage, const ProgramPair&) {
    events.emplace_back(stage == Stage::kAtEnd ? "verified at end" : "verified");
    return absl::OkStatus();
  };
  WEFT_ASSERT_OK(Run(options).status());
  EXPECT_THAT(events, ElementsAre("input", "result 0", "verified at end"));

  events.clear();
  Add(&pipeline_, "first", Appending("a"));
  Add(&pipeline_, "second", Appending("b"));
  options.verification = Verification::kAfterEachPass;
  WEFT_ASSERT_OK(Run(options).status());
  EXPECT_THAT(events,
              ElementsAre("input", "first", "verified", "second", "result 2", "verified at end"));

  events.clear();
  options.verification = Verification::kNever;
  WEFT_ASSERT_OK(Run(options).status());
  EXPECT_THAT(events, ElementsAre("input", "first", "second", "result 4"));
}

// Finds programs of two or more ops wrong, and says when it was asked.
PipelineOptions RefusingTwoOps(Verification verification, std::vector<Stage>* asked) {
  PipelineOptions options;
  options.verification = verification;
  options.verifier = [asked](Stage stage, const ProgramPair& programs) {
    asked->push_back(stage);
    return programs.main->num_ops() < 2 ? absl::OkStatus()
                                        : absl::InvalidArgumentError("too many ops");
  };
  return options;
}

TEST_F(PipelineTest, VerifierRunsAfterTheLastPassAndItsFindingNamesIt) {
  Add(&pipeline_, "first", Appending("a"));
  Add(&pipeline_, "second", Appending("b"));
  Add(&pipeline_, "third", DoNothing);
  std::vector<Stage> asked;
  EXPECT_THAT(Run(RefusingTwoOps(Verification::kAtEnd, &asked)),
              StatusIs(kInvalid, "after pass third: too many ops"));
  EXPECT_THAT(asked, ElementsAre(Stage::kAtEnd));
}

TEST_F(PipelineTest, VerifierAfterEachPassNamesTheCausingPass) {
  Add(&pipeline_, "first", Appending("a"));
  Add(&pipeline_, "second", Appending("b"));
  Add(&pipeline_, "third", DoNothing);
  std::vector<Stage> asked;
  EXPECT_THAT(Run(RefusingTwoOps(Verification::kAfterEachPass, &asked)),
              StatusIs(kInvalid, "after pass second: too many ops"));
  EXPECT_THAT(asked, ElementsAre(Stage::kBetweenPasses, Stage::kBetweenPasses));
}

TEST_F(PipelineTest, LastOfThePassesThatAreVerifiedEachIsTheEnd) {
  Add(&pipeline_, "first", DoNothing);
  Add(&pipeline_, "second", DoNothing);
  std::vector<Stage> asked;
  WEFT_EXPECT_OK(Run(RefusingTwoOps(Verification::kAfterEachPass, &asked)).status());
  EXPECT_THAT(asked, ElementsAre(Stage::kBetweenPasses, Stage::kAtEnd));
}

TEST_F(PipelineTest, OneSwitchCoversThePipelineWithoutPasses) {
  WEFT_ASSERT_OK(Append(&main_, "a"));
  WEFT_ASSERT_OK(Append(&main_, "b"));
  for (Verification verification : {Verification::kAtEnd, Verification::kAfterEachPass}) {
    std::vector<Stage> asked;
    EXPECT_THAT(Run(RefusingTwoOps(verification, &asked)), StatusIs(kInvalid, "too many ops"));
    EXPECT_THAT(asked, ElementsAre(Stage::kAtEnd));
  }
}

TEST_F(PipelineTest, NothingIsVerifiedWhereTheSwitchIsOff) {
  std::vector<Stage> asked;
  WEFT_EXPECT_OK(Run(RefusingTwoOps(Verification::kNever, &asked)).status());
  Add(&pipeline_, "both", DoNothing);
  WEFT_EXPECT_OK(Run(RefusingTwoOps(Verification::kNever, &asked)).status());
  EXPECT_THAT(asked, IsEmpty());
}

TEST_F(PipelineTest, ObserverSeesWhatTheVerifierRefuses) {
  Add(&pipeline_, "both", [](ProgramPair& programs) -> absl::StatusOr<bool> {
    WEFT_RETURN_IF_ERROR(Append(programs.main, "a"));
    WEFT_RETURN_IF_ERROR(Append(programs.main, "b"));
    return true;
  });
  std::vector<Stage> asked;
  PipelineOptions options = RefusingTwoOps(Verification::kAtEnd, &asked);
  size_t last_seen = 0;
  options.observer = [&](absl::string_view, const ProgramPair& programs) {
    last_seen = programs.main->num_ops();
    return absl::OkStatus();
  };
  EXPECT_THAT(Run(options), StatusIs(kInvalid, HasSubstr("both")));
  EXPECT_EQ(last_seen, 2);
}

}  // namespace
}  // namespace weft::testing
