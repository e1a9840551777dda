// The classes of mistakes that data-parallel programs are known for, each made on purpose in a
// program that is right without it. The verifier reports every one.
//
// Not here: mistakes of sparsified gradients (transpiler/verifier/communication/residuals_test.cc).
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "ops/schema/communication_ops.h"
#include "proto/text/program_text.h"
#include "tests/mutation/mutation_cases.h"
#include "tests/mutation/mutations.h"
#include "tests/support/models.h"
#include "tests/support/program_descs.h"

namespace weft::testing {
namespace {

constexpr int kRanks = 2;

class SeededMistakes : public ::testing::Test {
 protected:
  // Rewrites a model, and sees that the result is right.
  void Use(const std::string& model, const Configuration& configuration) {
    original_ = &Models().at(model);
    Configuration one_by_one = configuration;
    const bool has_buckets =
        configuration.mode == "grad_allreduce" && configuration.dialect == Dialect::kWeft;
    if (has_buckets) one_by_one.flags["buckets"] = "none";  // mistakes are about single gradients
    auto rewritten = Rewrite(*original_, one_by_one);
    ASSERT_TRUE(rewritten.ok()) << rewritten.status();
    program_ = std::move(rewritten->ranks[0]);
    // Without its claim, no outer optimizer is right.
    const absl::optional<AveragingSchedule>& averaging = rewritten->claims.averaging;
    const bool is_claimed = averaging.has_value() && averaging->outer.HasState();
    claims_ = is_claimed ? rewritten->claims : Claims();
    ASSERT_THAT(ErrorsOf(program_), IsEmpty());
  }

  std::vector<std::string> ErrorsOf(const ProgramDescs& program) const {
    return Errors({&program}, kRanks, original_, claims_);
  }

  // Every mutant of that kind is reported, as a violation of one of the rules; there is one.
  void ExpectAllReported(const std::string& kind, const std::set<std::string>& rules) const {
    SCOPED_TRACE(kind);
    int mutants = 0;
    for (const Mutation& mutation : AllMutations(program_, kRanks)) {
      if (mutation.kind != kind) continue;
      SCOPED_TRACE(mutation.what);
      ++mutants;
      ProgramDescs mutant = program_;
      mutation.apply(&mutant);
      const std::vector<std::string> errors =
          mutation.one_rank ? Errors({&program_, &mutant}, kRanks, original_, claims_)
                            : ErrorsOf(mutant);
      const bool is_reported = std::any_of(
          errors.begin(), errors.end(),
          [&](const std::string& error) { return rules.count(error.substr(7, 4)) > 0; });
      EXPECT_TRUE(is_reported) << ::testing::PrintToString(errors);
    }
    EXPECT_GT(mutants, 0);
  }

  pb::BlockDesc& main_block() { return *program_.main.mutable_blocks(0); }

  // Of the root block.
  static bool IsCommunication(const pb::OpDesc& op) {
    return FindCollectiveOp(op.type()) != nullptr || FindStreamSyncOp(op.type()).has_value();
  }
  static bool IsUpdate(const pb::OpDesc& op) { return !ArgsOf(op.inputs(), "Param").empty(); }

  // Puts all communication right before the first update.
  void CommunicateBeforeUpdates() {
    std::vector<pb::OpDesc> before, communication, updates;
    for (const pb::OpDesc& op : main_block().ops()) {
      (IsCommunication(op)                ? communication
       : IsUpdate(op) || !updates.empty() ? updates
                                          : before)
          .push_back(op);
    }
    main_block().clear_ops();
    for (const auto* ops : {&before, &communication, &updates}) {
      for (const pb::OpDesc& op : *ops) *main_block().add_ops() = op;
    }
  }

  const Model* original_ = nullptr;
  ProgramDescs program_;
  Claims claims_;

 private:
  static const std::map<std::string, Model>& Models() {
    static const auto* const models = new std::map<std::string, Model>(ReadModels());
    return *models;
  }
};

// A hand-written program, with some of its text replaced, for one that is right without.
using Edits = std::vector<std::pair<absl::string_view, absl::string_view>>;

std::vector<std::string> ErrorsOfText(absl::string_view text, const Edits& edits = {},
                                      absl::string_view original = "") {
  std::string edited(text);
  for (const auto& [from, to] : edits) {
    EXPECT_GT(absl::StrReplaceAll({{from, to}}, &edited), 0) << from;
  }
  const absl::StatusOr<Program> main = ParseProgramText(edited);
  EXPECT_TRUE(main.ok()) << main.status();
  if (!main.ok()) return {};
  ProgramDescs program{main->ToProto(), {}};
  if (original.empty()) return Errors({&program}, kRanks, nullptr);
  const absl::StatusOr<Program> before = ParseProgramText(original);
  EXPECT_TRUE(before.ok()) << before.status();
  const absl::StatusOr<Program> none = ParseProgramText("program {\n  block 0 parent=-1 {\n  }\n}");
  const Model model{*before, *none};
  return Errors({&program}, kRanks, &model);
}

// --- 1. Data that has not arrived ----------------------------------------------------------------

TEST_F(SeededMistakes, GradientIsReducedBeforeItsProducerIsDone) {
  Use("mlp_sgd", {"grad_allreduce"});
  for (pb::OpDesc& op : *main_block().mutable_ops()) {
    if (op.type() == "c_wait_compute") op.set_type("assign");  // on one stream: orders nothing
  }
  EXPECT_THAT(ErrorsOf(program_), Contains(StartsWith("error: W40")));
}

TEST_F(SeededMistakes, AWaitIsMissing) {
  Use("mlp_sgd", {"grad_allreduce", {{"nrings", "2"}}});
  ExpectAllReported("sync: drop", {"W401", "W402", "W403"});
  Use("mlp_adam", {"multi_thread"});
  ExpectAllReported("sync: drop", {"W401", "W402", "W403"});
}

TEST_F(SeededMistakes, OptimizerReadsBeforeTheReductionIsDone) {
  Use("mlp_sgd", {"grad_allreduce", {}, true, Dialect::kPaddle});
  ExpectAllReported("sync: drop", {"W401", "W402", "W403"});
}

// --- 2. Storage that is used again ---------------------------------------------------------------

constexpr absl::string_view kReusedBuffer = R"(program {
  block 0 parent=-1 {
    var x : fp32[4]
    var sum : fp32[4]
    var y : fp32[4]
    Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[x] = c_wait_compute(X=[x]) {ring_id=0}
    Out=[sum] = c_allreduce_sum(X=[x]) {ring_id=0, use_calc_stream=false}
    Out=[sum] = c_wait_comm(X=[sum]) {ring_id=0}
    Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=2.0}
    Out=[y] = elementwise_add(X=[sum], Y=[x]) {axis=-1}
  }
})";

TEST(SeededMistakesInText, ABufferIsOverwrittenWhileACollectiveReadsIt) {
  EXPECT_THAT(ErrorsOfText(kReusedBuffer), IsEmpty());
  constexpr absl::string_view kWait = "    Out=[sum] = c_wait_comm(X=[sum]) {ring_id=0}\n";
  constexpr absl::string_view kAgain =
      "    Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=2.0}\n";
  const std::string right = absl::StrCat(kWait, kAgain), wrong = absl::StrCat(kAgain, kWait);
  EXPECT_THAT(ErrorsOfText(kReusedBuffer, {{right, wrong}}), Contains(StartsWith("error: W402")));
}

TEST_F(SeededMistakes, SlicesOfABufferOverlapOrLeaveGaps) {
  Use("mlp_sgd", {"multi_thread", {{"buckets", "count{count=2}"}}});
  ExpectAllReported("buffer: overlap", {"W310", "W404", "W601", "W203"});
  ExpectAllReported("buffer: share member", {"W106", "W310", "W404", "W601", "W203"});
  ExpectAllReported("buffer: drop member", {"W310", "W601", "W203"});
}

// --- 3. Ranks that do not agree ------------------------------------------------------------------

TEST_F(SeededMistakes, RanksCallCollectivesInDifferentOrder) {
  Use("mlp_sgd", {"grad_allreduce"});
  // In other places of the program, what they exchange is not there yet.
  ExpectAllReported("one rank: collective: swap", {"W106", "W501", "W505"});
  ExpectAllReported("one rank: collective: drop", {"W310", "W501"});
}

TEST_F(SeededMistakes, TwoRingsAreInterleavedDifferently) {
  Use("mlp_sgd", {"grad_allreduce", {{"nrings", "2"}}});
  // The order of each ring stays.
  int first = -1, second = -1;
  for (int i = 0; i < main_block().ops_size() && second < 0; ++i) {
    if (FindCollectiveOp(main_block().ops(i).type()) == nullptr) continue;
    (first < 0 ? first : second) = i;
  }
  ASSERT_NE(NumberOf(main_block().ops(first), "ring_id"),
            NumberOf(main_block().ops(second), "ring_id"));
  ProgramDescs other = program_;
  // The first one moves after the second one.
  auto* ops = other.main.mutable_blocks(0)->mutable_ops();
  for (int i = first; i < second; ++i) ops->SwapElements(i, i + 1);
  ASSERT_THAT(ErrorsOf(other), IsEmpty());
  EXPECT_THAT(Errors({&program_, &other}, kRanks, original_), Contains(StartsWith("error: W502")));
}

TEST_F(SeededMistakes, RanksDisagreeOnRingTypeCountOrRoot) {
  Use("mlp_sgd", {"grad_allreduce", {{"nrings", "2"}}});
  ExpectAllReported("one rank: collective: other ring", {"W401", "W402", "W403", "W501"});
  ExpectAllReported("one rank: collective: element type", {"W203", "W201", "W202", "W501"});
  ExpectAllReported("one rank: collective: number of elements", {"W203", "W201", "W202", "W501"});
  ExpectAllReported("one rank: startup: collective: root", {"W303", "W501"});
}

TEST_F(SeededMistakes, RanksDisagreeInsideAConditionalBlock) {
  Use("mlp_gradient_merge", {"grad_allreduce"});
  ExpectAllReported("one rank: collective: swap", {"W501", "W505"});
  ExpectAllReported("one rank: collective: drop", {"W315", "W310", "W501", "W601"});
}

TEST_F(SeededMistakes, RanksDisagreeOnWhetherAConditionalBlockRuns) {
  Use("mlp_sgd", {"local_sgd", {{"k_steps", "2"}}});
  ExpectAllReported("condition: own to each rank", {"W503"});
  ExpectAllReported("one rank: condition: drop block", {"W310", "W501"});
  ExpectAllReported("one rank: condition: other constant", {"W506"});
  ExpectAllReported("one rank: condition: count dropped", {"W506", "W605"});
}

// --- 4. Factors ----------------------------------------------------------------------------------

TEST_F(SeededMistakes, LossIsDividedTwiceOrNever) {
  Use("mlp_sgd", {"grad_allreduce"});
  ExpectAllReported("scale: drop", {"W312"});
  ExpectAllReported("scale: twice", {"W314"});
  ExpectAllReported("scale: double", {"W312", "W601"});
  ExpectAllReported("update: divided again", {"W314"});
}

TEST_F(SeededMistakes, GradientsAreSummedInsteadOfAveraged) {
  Use("mlp_sgd", {"grad_allreduce", {{"scale", "avg"}}});
  ExpectAllReported("collective: reduction", {"W312", "W601"});
}

TEST_F(SeededMistakes, GradientsAreDividedByTheWrongNumberOfRanks) {
  Use("mlp_sgd", {"grad_allreduce"});
  ExpectAllReported("scale: wrong number of ranks", {"W302"});
}

TEST_F(SeededMistakes, GradientsAreDividedAfterClipping) {
  Use("mlp_clip_global_norm", {"grad_allreduce"});
  // From the gradient of the loss to the clipped gradients.
  pb::OpDesc scale;
  pb::BlockDesc wrong = main_block();
  wrong.clear_ops();
  std::set<std::string> scaled;
  for (const pb::OpDesc& op : main_block().ops()) {
    if (op.type() == "scale" && FindAttr(op, "nranks") != nullptr) {
      scale = op;
      continue;
    }
    if (IsUpdate(op)) {
      const std::vector<std::string> grad = ArgsOf(op.inputs(), "Grad");
      pb::OpDesc* late = wrong.add_ops();
      *late = scale;
      SetArgs(grad, "X", late->mutable_inputs());
      SetArgs(grad, "Out", late->mutable_outputs());
    }
    *wrong.add_ops() = op;
  }
  ASSERT_EQ(scale.type(), "scale");
  main_block() = wrong;
  EXPECT_THAT(ErrorsOf(program_),
              Contains(AnyOf(StartsWith("error: W31"), StartsWith("error: W601"))));
}

// --- 5. Reductions -------------------------------------------------------------------------------

TEST_F(SeededMistakes, AGradientIsNeverReduced) {
  Use("mlp_sgd", {"grad_allreduce"});
  ExpectAllReported("collective: drop", {"W310"});
  ExpectAllReported("update: gradient before it is reduced", {"W310", "W401"});
}

TEST_F(SeededMistakes, AGradientIsReducedTwice) {
  Use("mlp_sgd", {"grad_allreduce"});
  ExpectAllReported("collective: duplicate", {"W312"});
}

TEST_F(SeededMistakes, AGradientIsReducedBeforeItIsComplete) {
  Use("mlp_shared_weights", {"grad_allreduce"});
  ExpectAllReported("collective: move earlier", {"W310", "W401", "W402", "W403", "W101", "W106"});
}

// Reduced in every step, into the sum of several: Paddle's transpiler does it.
TEST_F(SeededMistakes, AGradientIsReducedBeforeAccumulationEnds) {
  Use("mlp_gradient_merge", {"grad_allreduce"});
  pb::BlockDesc& inner = *program_.main.mutable_blocks(1);
  const pb::BlockDesc block = inner;
  inner.clear_ops();
  std::vector<pb::OpDesc> outer;
  for (const pb::OpDesc& op : block.ops()) {
    if (IsCommunication(op)) {
      outer.push_back(op);
    } else {
      *inner.add_ops() = op;
    }
  }
  // The conditional block comes last.
  pb::BlockDesc& root = main_block();
  const pb::OpDesc conditional = root.ops(root.ops_size() - 1);
  ASSERT_EQ(conditional.type(), "conditional_block");
  root.mutable_ops()->RemoveLast();
  for (const pb::OpDesc& op : outer) *root.add_ops() = op;
  *root.add_ops() = conditional;
  EXPECT_THAT(ErrorsOf(program_), Contains(StartsWith("error: W315")));
}

TEST_F(SeededMistakes, SparseGradientsAreFusedWithDenseOnes) {
  Use("word2vec_sparse_sgd", {"multi_thread", {{"buckets", "count{count=2}"}}});
  for (pb::OpDesc& op : *main_block().mutable_ops()) {
    if (op.type() != "coalesce_tensor") continue;
    for (auto [slot, slots] : {std::make_pair("Input", op.mutable_inputs()),
                               std::make_pair("Output", op.mutable_outputs())}) {
      std::vector<std::string> members = ArgsOf(*slots, slot);
      members.push_back("shared_w@GRAD");
      SetArgs(members, slot, slots);
    }
    break;
  }
  EXPECT_THAT(ErrorsOf(program_), Not(IsEmpty()));
}

// --- 6. Parts of parameters ----------------------------------------------------------------------

constexpr absl::string_view kOneDevice = R"(program {
  block 0 parent=-1 {
    var x : fp32[8, 4] need_check_feed stop_gradient
    var w : fp32[4, 2] parameter persistable
    var lr : fp32[1] persistable
    var y@GRAD : fp32[8, 2]
    var w@GRAD : fp32[4, 2]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[8, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  }
})";

// Each rank updates one half of w, by one half of the mean of gradients, and all get both halves.
constexpr absl::string_view kSharded = R"(program {
  block 0 parent=-1 {
    var x : fp32[8, 4] need_check_feed stop_gradient
    var w : fp32[4, 2] parameter persistable
    var lr : fp32[1] persistable
    var y@GRAD : fp32[8, 2]
    var w@GRAD : fp32[4, 2]
    var w_part@GRAD : fp32[2, 2]
    var w_part : fp32[2, 2]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[8, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Out=[w_part@GRAD] = c_reducescatter(X=[w@GRAD]) {ring_id=0, nranks=2, use_calc_stream=true}
    Out=[w_part@GRAD] = scale(X=[w_part@GRAD]) role=backward {scale=0.5, nranks=2}
    Out=[w_part] = c_reducescatter(X=[w]) {ring_id=0, nranks=2, use_calc_stream=true}
    Out=[w_part] = scale(X=[w_part]) role=optimize {scale=0.5, nranks=2}
    ParamOut=[w_part] = sgd(Param=[w_part], Grad=[w_part@GRAD], LearningRate=[lr]) role=optimize
    Out=[w] = c_allgather(X=[w_part]) {ring_id=0, nranks=2, use_calc_stream=true}
  }
})";

constexpr absl::string_view kUpdatePart =
    "    ParamOut=[w_part] = sgd(Param=[w_part], Grad=[w_part@GRAD], LearningRate=[lr]) "
    "role=optimize\n";
constexpr absl::string_view kGather =
    "    Out=[w] = c_allgather(X=[w_part]) {ring_id=0, nranks=2, use_calc_stream=true}\n";

TEST(SeededMistakesInText, ShardedUpdateIsRight) {
  EXPECT_THAT(ErrorsOfText(kSharded, {}, kOneDevice), IsEmpty());
}

TEST(SeededMistakesInText, AShardIsUpdatedByNoRank) {
  EXPECT_THAT(ErrorsOfText(kSharded, {{kUpdatePart, ""}}, kOneDevice),
              Contains(StartsWith("error: W601")));
}

TEST(SeededMistakesInText, AShardIsUpdatedTwice) {
  const std::string twice = absl::StrCat(kUpdatePart, kUpdatePart);
  EXPECT_THAT(ErrorsOfText(kSharded, {{kUpdatePart, twice}}, kOneDevice),
              Contains(StartsWith("error: W601")));
}

TEST(SeededMistakesInText, TheUpdatedShardIsNotGathered) {
  EXPECT_THAT(ErrorsOfText(kSharded, {{kGather, ""}}, kOneDevice),
              Contains(StartsWith("error: W601")));
}

TEST(SeededMistakesInText, TheShardIsGatheredBeforeItsUpdate) {
  const std::string right = absl::StrCat(kUpdatePart, kGather);
  const std::string wrong = absl::StrCat(kGather, kUpdatePart);
  EXPECT_THAT(ErrorsOfText(kSharded, {{right, wrong}}, kOneDevice),
              Contains(StartsWith("error: W601")));
}

TEST(SeededMistakesInText, AShardIsDividedByTheNumberOfShardsAgain) {
  EXPECT_THAT(ErrorsOfText(
                  kSharded,
                  {{"role=backward {scale=0.5, nranks=2}", "role=backward {scale=0.25, nranks=2}"}},
                  kOneDevice),
              Contains(StartsWith("error: W601")));
}

TEST_F(SeededMistakes, PartsOfRanks) {
  for (const char* stage : {"1", "3"}) {
    SCOPED_TRACE(stage);
    Use("mlp_adam", {"zero", {{"stage", stage}, {"buckets", "count{count=2}"}}});
    ExpectAllReported("startup: share: part of another rank", {"W606"});
    ExpectAllReported("one rank: startup: share: part of another rank", {"W606"});
    ExpectAllReported("share: used before it is gathered", {"W106"});
    ExpectAllReported("update: duplicate", {"W602"});
    ExpectAllReported("update: drop", {"W602"});
  }
}

// A rank may draw, or compute, what a broadcast replaces, before it takes its part.
TEST_F(SeededMistakes, PartsBeginWithOtherParametersOfRank0) {
  Use("mlp_adam", {"zero", {{"buckets", "count{count=1}"}}, /*has_endpoints=*/true});
  const auto rewritten =
      Rewrite(*original_, {"zero", {{"buckets", "count{count=1}"}}, /*has_endpoints=*/true});
  ASSERT_TRUE(rewritten.ok()) << rewritten.status();
  const auto errors = [&](const ProgramDescs& of_rank_1) {
    return Errors({&rewritten->ranks[0], &of_rank_1}, kRanks, original_, claims_);
  };
  ProgramDescs of_rank_1 = rewritten->ranks[1];
  std::map<std::string, pb::OpDesc*> slices;  // by share
  int changed = 0;
  for (pb::OpDesc& op : *of_rank_1.startup.mutable_blocks(0)->mutable_ops()) {
    const std::vector<std::string> out = ArgsOf(op.outputs(), "Out");
    if (op.type() == "slice") slices[out[0]] = &op;
    if (op.type() != "fill_constant" || !absl::EndsWith(out[0], ".b_0")) continue;
    ++changed;
    SetFloat(&op, "value", 3);
    for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
      if (attr.name() == "str_value") attr.set_s("3");
    }
  }
  EXPECT_EQ(changed, 3);
  EXPECT_THAT(errors(of_rank_1), IsEmpty());
  // It takes its part of another parameter of as many elements.
  std::vector<pb::OpDesc*> alike;
  for (const auto& [share, op] : slices) {
    const pb::OpDesc::Attr* const ends = FindAttr(*op, "ends");
    if (ends->ints(0) == 128) alike.push_back(op);
  }
  ASSERT_EQ(alike.size(), 2U);
  SetArgs(ArgsOf(alike[0]->inputs(), "Input"), "Input", alike[1]->mutable_inputs());
  EXPECT_THAT(errors(of_rank_1), Contains(StartsWith("error: W606")));
}

TEST_F(SeededMistakes, ParametersAreNotBroadcast) {
  for (const char* mode : {"grad_allreduce", "local_sgd"}) {
    SCOPED_TRACE(mode);
    Use("mlp_sgd", {mode, {}, /*has_endpoints=*/true});
    auto* ops = program_.startup.mutable_blocks(0)->mutable_ops();
    for (int i = ops->size() - 1; i >= 0; --i) {
      if (ops->Get(i).type() == "c_broadcast") ops->DeleteSubrange(i, 1);
    }
    EXPECT_THAT(ErrorsOf(program_), Contains(StartsWith("error: W317")));
  }
}

// Paddle's formula: w = snapshot - mean(snapshot - w), and snapshot = w.
TEST_F(SeededMistakes, LocalSgdDoesNotAverage) {
  Use("mlp_sgd", {"local_sgd", {}, true, Dialect::kPaddle});
  int refreshed = 0;
  for (const Mutation& mutation : AllMutations(program_, kRanks)) {
    if (mutation.kind != "local_sgd: drop") continue;
    SCOPED_TRACE(mutation.what);
    ProgramDescs mutant = program_;
    mutation.apply(&mutant);
    if (absl::StrContains(mutation.what, "(assign)")) {
      // Not a mistake: any snapshot will do that is the same on all ranks. See below.
      ++refreshed;
      EXPECT_THAT(ErrorsOf(mutant), IsEmpty());
    } else {
      EXPECT_THAT(ErrorsOf(mutant), Not(IsEmpty()));
    }
  }
  EXPECT_EQ(refreshed, 6);
}

// All that synchronizes them, in turn, and what they keep.
TEST_F(SeededMistakes, StreamingLeavesOutAStep) {
  Use("mlp_sgd", {"local_sgd",
                  {{"k_steps", "4"},
                   {"outer", "nesterov"},
                   {"fragments", "2"},
                   {"delay", "1"},
                   {"mix", "0.5"},
                   {"comm_dtype", "bf16"}}});
  for (const Mutation& mutation : AllMutations(program_, kRanks)) {
    if (mutation.kind != "local_sgd: drop") continue;
    SCOPED_TRACE(mutation.what);
    ProgramDescs mutant = program_;
    mutation.apply(&mutant);
    EXPECT_THAT(ErrorsOf(mutant), Not(IsEmpty()));
  }
}

TEST_F(SeededMistakes, SnapshotOfLocalSgdIsRankLocal) {
  Use("mlp_sgd", {"local_sgd", {}, true, Dialect::kPaddle});
  // The snapshot is taken of what the ranks have drawn, before the broadcast.
  auto* ops = program_.startup.mutable_blocks(0)->mutable_ops();
  int moved = 0;
  for (int i = 0; i < ops->size(); ++i) {
    if (ops->Get(i).type() != "assign") continue;
    const std::string param = ArgsOf(ops->Get(i).inputs(), "X")[0];
    int drawn = 0;
    while (ArgsOf(ops->Get(drawn).outputs(), "Out") != std::vector<std::string>{param}) ++drawn;
    for (int at = i; at > drawn + 1; --at) ops->SwapElements(at, at - 1);
    ++moved;
  }
  ASSERT_EQ(moved, 6);
  // Without the refresh, that would stay so.
  auto* main_ops = main_block().mutable_ops();
  for (int i = main_ops->size() - 1; i >= 0; --i) {
    if (main_ops->Get(i).type() == "assign") main_ops->DeleteSubrange(i, 1);
  }
  EXPECT_THAT(ErrorsOf(program_), Not(IsEmpty()));
}

// --- 8. Low precision ----------------------------------------------------------------------------

TEST_F(SeededMistakes, AGradientIsReducedInLessPrecision) {
  Use("mlp_sgd", {"grad_allreduce"});
  ExpectAllReported("collective: element type", {"W201", "W202", "W203"});
  // Honestly, by casts.
  pb::BlockDesc wrong = main_block();
  wrong.clear_ops();
  for (const pb::OpDesc& op : main_block().ops()) {
    if (FindCollectiveOp(op.type()) == nullptr) {
      *wrong.add_ops() = op;
      continue;
    }
    const std::string grad = ArgsOf(op.inputs(), "X")[0];
    const std::string half = absl::StrCat(grad, "_half");
    pb::VarDesc var = *FindVar(program_.main, 0, grad);
    var.set_name(half);
    MutableTensorOf(&var)->set_data_type(pb::VarType::FP16);
    *wrong.add_vars() = var;
    const auto cast = [&](const std::string& from, const std::string& to, int in, int out) {
      pb::OpDesc* added = wrong.add_ops();
      added->set_type("cast");
      SetArgs({from}, "X", added->mutable_inputs());
      SetArgs({to}, "Out", added->mutable_outputs());
      SetInt(added, "in_dtype", in);
      SetInt(added, "out_dtype", out);
    };
    cast(grad, half, pb::VarType::FP32, pb::VarType::FP16);
    pb::OpDesc* collective = wrong.add_ops();
    *collective = op;
    SetArgs({half}, "X", collective->mutable_inputs());
    SetArgs({half}, "Out", collective->mutable_outputs());
    for (pb::OpDesc::Attr& attr : *collective->mutable_attrs()) {
      if (attr.name() != "use_calc_stream") continue;
      attr.Clear();
      attr.set_name("use_calc_stream");
      attr.set_type(pb::BOOLEAN);
      attr.set_b(true);
    }
    cast(half, grad, pb::VarType::FP16, pb::VarType::FP32);
  }
  main_block() = wrong;
  EXPECT_THAT(ErrorsOf(program_), Contains(StartsWith("error: W601")));
}

// Each rank would scale its loss by what it has seen itself, and skip other steps.
TEST_F(SeededMistakes, OverflowFlagIsRankLocal) {
  Use("mlp_amp", {"grad_allreduce"});
  CommunicateBeforeUpdates();
  EXPECT_THAT(ErrorsOf(program_), Contains(StartsWith("error: W31")));
}

}  // namespace
}  // namespace weft::testing
