#include "transpiler/claim_verifier.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/pipeline/registry.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

PassContext Context(const ClusterSpec& spec, Dialect dialect = Dialect::kWeft) {
  PassContext context;
  context.target.dialect = dialect;
  const auto cluster = Cluster::Create(spec, /*min_trainers=*/1);
  WEFT_EXPECT_OK(cluster.status());
  context.target.cluster = *cluster;
  return context;
}

PassContext TwoRanks() {
  ClusterSpec spec;
  spec.nranks = 2;
  return Context(spec);
}

// --- ExpectationsOf -----------------------------------------------------------------------------

const Program& Original() {
  static const Program& program = *new Program(CompactProgram("Out=[y] = relu(X=[x])"));
  return program;
}

VerifyOptions Expected(const Claims& claims) {
  return ExpectationsOf(claims, TwoRanks(), {&Original(), nullptr});
}

TEST(ExpectationsOf, WithoutAClaimTheComputationIsPreserved) {
  const VerifyOptions options = Expected(Claims());
  EXPECT_EQ(options.setting.reduction, Setting::Reduction::kByLoss);
  EXPECT_FALSE(options.setting.averaging.has_value());
  EXPECT_EQ(options.original.main, &Original());
  EXPECT_EQ(options.layers, AllLayers());
}

TEST(ExpectationsOf, OnlySummedGradientsNeedNoDivision) {
  EXPECT_EQ(Expected(Claims::Of(Claims::Gradients::kSummed)).setting.reduction,
            Setting::Reduction::kSum);
  EXPECT_EQ(Expected(Claims::Of(Claims::Gradients::kAveraged)).setting.reduction,
            Setting::Reduction::kMean);
}

TEST(ExpectationsOf, LossesSayHowTheirGradientsAreReduced) {
  EXPECT_EQ(Expected(Claims::Of(Claims::Gradients::kByLoss)).setting.reduction,
            Setting::Reduction::kByLoss);
}

TEST(ExpectationsOf, AveragingHasTheScheduleThatIsClaimed) {
  EXPECT_EQ(Expected(Claims::Of(AveragingSchedule{4, 2})).setting.averaging,
            (AveragingSchedule{4, 2}));
}

TEST(ExpectationsOf, ChangedComputationHasNoOriginal) {
  EXPECT_EQ(Expected(Claims::Of(Claims::Computation::kChanged)).original.main, nullptr);
}

TEST(ExpectationsOf, SeveralClaimsHoldTogether) {
  const VerifyOptions options = Expected(
      {Claims::Gradients::kSummed, AveragingSchedule{3, 1}, Claims::Computation::kChanged});
  EXPECT_EQ(options.setting.reduction, Setting::Reduction::kSum);
  EXPECT_EQ(options.setting.averaging, (AveragingSchedule{3, 1}));
  EXPECT_EQ(options.original.main, nullptr);
}

TEST(ExpectationsOf, RanksAndDistributedParametersAreThoseOfTheContext) {
  PassContext context = TwoRanks();
  context.setting.distributed_params = {"w"};
  const VerifyOptions options = ExpectationsOf(Claims(), context, {});
  EXPECT_EQ(options.setting.nranks, 2);
  EXPECT_EQ(options.setting.distributed_params, std::set<std::string>{"w"});
  EXPECT_EQ(ExpectationsOf(Claims(), PassContext(), {}).setting.nranks, absl::nullopt);
}

// Without devices, Paddle's modes have a default number of their own.
TEST(ExpectationsOf, PaddleDialectKnowsTheRanksOfGivenDevicesOnly) {
  ClusterSpec spec;
  spec.endpoints = {"127.0.0.1:6170", "127.0.0.1:6171"};
  EXPECT_EQ(ExpectationsOf(Claims(), Context(spec, Dialect::kPaddle), {}).setting.nranks,
            absl::nullopt);
  spec.devices = {{0, 1}};
  EXPECT_EQ(ExpectationsOf(Claims(), Context(spec, Dialect::kPaddle), {}).setting.nranks, 4);
}

// --- ClaimVerifier ------------------------------------------------------------------------------

constexpr char kOneDevice[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";
constexpr char kSummed[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";
constexpr char kReadsTooEarly[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

// Gives the program the ops of a text, as passes do.
void ReplaceOps(const char* text, Program* program) {
  const pb::ProgramDesc desc = CompactProgram(text).ToProto();
  Rewriter rewriter(program);
  for (OpId id : program->block(0).ops()) rewriter.Erase(id);
  for (const pb::OpDesc& op : desc.blocks(0).ops()) rewriter.Append(0, op);
  WEFT_EXPECT_OK(rewriter.Commit());
}

// What the verifier says of `after`, made of `before` by passes of these claims.
absl::Status Check(const Claims& claims, const char* before, const char* after,
                   Stage stage = Stage::kAtEnd, PassContext context = TwoRanks()) {
  Program program = CompactProgram(before);
  const ProgramPair programs{&program, nullptr};
  WEFT_ASSIGN_OR_RETURN(const Properties properties, DetectProperties(programs));
  const PipelineVerifier verifier = ClaimVerifier(claims, context, properties, programs);
  ReplaceOps(after, &program);
  return verifier(stage, programs);
}

TEST(ClaimVerifier, HoldsTheResultToItsClaimAboutGradients) {
  WEFT_EXPECT_OK(Check(Claims::Of(Claims::Gradients::kSummed), kOneDevice, kSummed));
  EXPECT_THAT(Check(Claims::Of(Claims::Gradients::kAveraged), kOneDevice, kSummed),
              StatusIs(kRefused, StartsWith("W312: op 5 (sgd) updates w by w@GRAD, which is "
                                            "summed over ranks but never divided")));
}

TEST(ClaimVerifier, BetweenPassesGradientsMayBeHalfReduced) {
  const Claims averaged = Claims::Of(Claims::Gradients::kAveraged);
  WEFT_EXPECT_OK(Check(averaged, kOneDevice, kSummed, Stage::kBetweenPasses));
  EXPECT_THAT(Check(averaged, kOneDevice, kReadsTooEarly, Stage::kBetweenPasses),
              StatusIs(kRefused, StartsWith("W401")));
}

TEST(ClaimVerifier, ChangedComputationIsNotCompared) {
  constexpr char kFaster[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=3.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";
  Claims claims = Claims::Of(Claims::Gradients::kAveraged);
  EXPECT_THAT(Check(claims, kOneDevice, kFaster), StatusIs(kRefused, StartsWith("W601")));
  claims.computation = Claims::Computation::kChanged;
  WEFT_EXPECT_OK(Check(claims, kOneDevice, kFaster));
}

// What another command, which divides the gradient of the loss, has made of a program.
std::string Divided(const char* program) {
  return absl::StrReplaceAll(program, {{"    Y@GRAD=[w@GRAD] = mul_grad",
                                        "    Out=[loss@GRAD] = scale(X=[loss@GRAD]) "
                                        "role=backward {scale=0.5, nranks=2}\n"
                                        "    Y@GRAD=[w@GRAD] = mul_grad"}});
}

TEST(ClaimVerifier, HalfOfARewriteIsNotCompared) {
  std::vector<Message> messages;
  PassContext context = TwoRanks();
  context.sink.messages = &messages;
  const Claims claims = Claims::Of(Claims::Gradients::kAveraged);
  WEFT_EXPECT_OK(
      Check(claims, Divided(kOneDevice).c_str(), Divided(kSummed).c_str(), Stage::kAtEnd, context));
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(messages[0].text, HasSubstr("op 1 (scale) divides by the number of ranks"));
  // It is no division of Weft's.
  const std::string half = absl::StrReplaceAll(Divided(kOneDevice), {{", nranks=2", ""}});
  const std::string summed = absl::StrReplaceAll(Divided(kSummed), {{", nranks=2", ""}});
  EXPECT_THAT(Check(claims, half.c_str(), summed.c_str()), StatusIs(kRefused, StartsWith("W312")));
}

// The division of a rewrite is in the backward pass, and its sums make means.
TEST(ClaimVerifier, OtherDivisionsByTheNumberOfRanksAreCompared) {
  const auto with_metric = [](const char* program) {
    return absl::StrReplaceAll(program, {{"    Out=[loss@GRAD] = fill_constant",
                                          "    Out=[m] = scale(X=[x]) role=forward "
                                          "{scale=0.5, nranks=2}\n"
                                          "    Out=[loss@GRAD] = fill_constant"}});
  };
  const Claims claims = Claims::Of(Claims::Gradients::kAveraged);
  const std::string before = with_metric(kOneDevice);
  const std::string averaged =
      absl::StrReplaceAll(with_metric(kSummed), {{"c_allreduce_sum", "c_allreduce_avg"}});
  WEFT_EXPECT_OK(Check(claims, before.c_str(), averaged.c_str()));
  const std::string faster = absl::StrReplaceAll(averaged, {{"value=1.0", "value=3.0"}});
  EXPECT_THAT(Check(claims, before.c_str(), faster.c_str()),
              StatusIs(kRefused, StartsWith("W601")));
}

TEST(ClaimVerifier, SumsOfADividedGradientAreComparedWithIt) {
  const Claims claims = Claims::Of(Claims::Gradients::kSummed);
  const std::string before = Divided(kOneDevice);
  const std::string summed = Divided(kSummed);
  WEFT_EXPECT_OK(Check(claims, before.c_str(), summed.c_str()));
  const std::string faster = absl::StrReplaceAll(summed, {{"value=1.0", "value=3.0"}});
  EXPECT_THAT(Check(claims, before.c_str(), faster.c_str()),
              StatusIs(kRefused, StartsWith("W601")));
}

// The first passes make `between` of kOneDevice, and others `after` of that.
absl::Status CheckFrom(const char* between, const char* after) {
  Claims claims = Claims::Of(Claims::Gradients::kAveraged);
  claims.computation = Claims::Computation::kChanged;
  const PassContext context = TwoRanks();
  Program program = CompactProgram(kOneDevice);
  const ProgramPair programs{&program, nullptr};
  const PipelineVerifier verifier = ClaimVerifier(claims, context, /*properties=*/{}, programs);
  ReplaceOps(between, &program);
  WEFT_RETURN_IF_ERROR(verifier(Stage::kComputationChanged, programs));
  ReplaceOps(after, &program);
  return verifier(Stage::kAtEnd, programs);
}

TEST(ClaimVerifier, ResultIsComparedWithWhatTheFirstPassesMadeOfTheComputation) {
  const std::string one_device = absl::StrReplaceAll(kOneDevice, {{"value=1.0", "value=3.0"}});
  const std::string averaged = absl::StrReplaceAll(
      kSummed, {{"value=1.0", "value=3.0"}, {"c_allreduce_sum", "c_allreduce_avg"}});
  WEFT_EXPECT_OK(CheckFrom(one_device.c_str(), averaged.c_str()));
  EXPECT_THAT(CheckFrom(kOneDevice, averaged.c_str()), StatusIs(kRefused, StartsWith("W601")));
}

TEST(ClaimVerifier, CommunicationThatNoPassClaimsIsRefused) {
  EXPECT_THAT(Check(Claims(), kOneDevice, kSummed),
              StatusIs(kRefused, HasSubstr("op 3 (c_allreduce_sum) takes w@GRAD: expected a pass "
                                           "that claims gradients-reduced, found none")));
}

TEST(ClaimVerifier, CommunicationThatWasThereNeedsNoClaim) {
  constexpr char kDivided[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";
  WEFT_EXPECT_OK(Check(Claims(), kDivided, kDivided));
  // All layers check it.
  EXPECT_THAT(Check(Claims(), kDivided, kSummed), StatusIs(kRefused, StartsWith("W312")));
}

TEST(ClaimVerifier, PaddleDialectWarnsAtTheEnd) {
  ClusterSpec spec;
  spec.endpoints = {"127.0.0.1:6170", "127.0.0.1:6171"};
  PassContext context = Context(spec, Dialect::kPaddle);
  std::vector<Message> messages;
  context.sink.messages = &messages;
  const Claims averaged = Claims::Of(Claims::Gradients::kAveraged);
  WEFT_EXPECT_OK(Check(averaged, kOneDevice, kReadsTooEarly, Stage::kBetweenPasses, context));
  EXPECT_THAT(messages, IsEmpty());
  WEFT_EXPECT_OK(Check(averaged, kOneDevice, kReadsTooEarly, Stage::kAtEnd, context));
  EXPECT_THAT(testing::DefectLines(messages),
              ElementsAre(StartsWith("warning: W401: op 4 (sgd) reads w@GRAD")));
}

// Of a program that has them from the start, too: weft verify warns of them as well. Warnings of
// other rules are the program's own.
TEST(ClaimVerifier, NotesOnceWhatPaddlesExecutorMayReorder) {
  constexpr char kBuffers[] = R"(
    FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, set_constant=true}
    FusedOutput=[g], Output=[c, d] = coalesce_tensor(Input=[c, d]) {dtype=5, set_constant=true}
    Out=[f] = scale(X=[f]) {scale=0.5}
    Out=[f] = scale(X=[f]) {scale=0.5}
    Out=[g] = scale(X=[g]) {scale=0.5}
    Out=[g] = scale(X=[g]) {scale=0.5}
    Out=[u] = relu(X=[a])
    Out=[v] = relu(X=[c])
    Out=[v] = c_wait_comm(X=[v]) {ring_id=0}
  )";
  ClusterSpec spec;
  spec.endpoints = {"127.0.0.1:6170", "127.0.0.1:6171"};
  for (const Dialect dialect : {Dialect::kWeft, Dialect::kPaddle}) {
    std::vector<Message> messages;
    PassContext context = Context(spec, dialect);
    context.sink.messages = &messages;
    WEFT_EXPECT_OK(Check(Claims(), kBuffers, kBuffers, Stage::kBetweenPasses, context));
    EXPECT_THAT(messages, IsEmpty());
    WEFT_EXPECT_OK(Check(Claims(), kBuffers, kBuffers, Stage::kAtEnd, context));
    EXPECT_THAT(
        testing::ResultLines(messages),
        ElementsAre(AllOf(StartsWith("warning: W412: op 6 (relu) reads a after op 3 (scale)"),
                          EndsWith(" (and 1 more)"))));
    EXPECT_THAT(testing::DefectLines(messages), Not(Contains(HasSubstr("W412"))));
  }
}

// Sums gradients as its text says, and claims so.
class EmbeddersReduction : public Pass {
 public:
  static constexpr absl::string_view kName = "embedders-reduction";
  static constexpr absl::string_view kDescription = "main program: sums gradients";
  struct Options {
    Claims::Gradients claim = Claims::Gradients::kSummed;
    void Bind(OptionBinder& bind) {
      bind.Choice(
          "claim", &claim, "what it claims",
          {{"summed", Claims::Gradients::kSummed}, {"averaged", Claims::Gradients::kAveraged}});
    }
  };
  explicit EmbeddersReduction(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Claims claims(const PassContext&) const override { return Claims::Of(options_.claim); }
  absl::StatusOr<bool> Run(const PassContext&, ProgramPair& programs) const override {
    ReplaceOps(kSummed, programs.main);
    return true;
  }

 private:
  Options options_;
};

TEST(ClaimVerifier, ServesThePassOfAnEmbedder) {
  PassRegistry registry;
  registry.Add<EmbeddersReduction>();
  const auto run = [&](const char* passes) -> absl::Status {
    Program program = CompactProgram(kOneDevice);
    ProgramPair programs{&program, nullptr};
    PassContext context = TwoRanks();
    WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline, Pipeline::FromText(passes, registry));
    WEFT_ASSIGN_OR_RETURN(const Claims claims, pipeline.ClaimsOf(context));
    PipelineOptions options;
    options.verifier = ClaimVerifier(claims, context, /*properties=*/{}, programs);
    return pipeline.Run(context, programs, options).status();
  };
  WEFT_EXPECT_OK(run("embedders-reduction"));
  EXPECT_THAT(run("embedders-reduction{claim=averaged}"),
              StatusIs(kRefused, StartsWith("after pass embedders-reduction: W312")));
}

}  // namespace
}  // namespace weft::testing
