#include "transpiler/passes/sharding/shard_updates.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/analysis/training/gradients.h"
#include "proto/testing/find_op.h"
#include "transpiler/passes/sharding/update_chains.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using ::testing::Key;

// Nine elements: a tenth is padding for two ranks.
constexpr char kMain[] = R"(
    var x : fp32[-1, 2] need_check_feed
    var w : fp32[2, 3] parameter persistable
    var b : fp32[3] parameter persistable
    var vw : fp32[2, 3] persistable
    var vb : fp32[3] persistable
    var lr : fp32[1] persistable
    Out=[h] = mul(X=[x], Y=[w])
    Out=[y] = elementwise_add(X=[h], Y=[b]) {axis=1}
    Out=[loss] = reduce_mean(X=[y]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[h], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD] {axis=1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    %s
    ParamOut=[w], VelocityOut=[vw] = momentum(Param=[w], Velocity=[vw], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD] {mu=0.9}
    ParamOut=[b], VelocityOut=[vb] = momentum(Param=[b], Velocity=[vb], Grad=[b@GRAD], LearningRate=[lr]) role=optimize vars=[b, b@GRAD] {mu=0.9}
)";

constexpr char kStartup[] = R"(
    var w : fp32[2, 3] parameter persistable
    var b : fp32[3] parameter persistable
    var vw : fp32[2, 3] persistable
    var vb : fp32[3] persistable
    var lr : fp32[1] persistable
    Out=[w] = uniform_random() {shape=longs[2, 3], dtype=5, min=-1.0, max=1.0, seed=0}
    Out=[b] = fill_constant() {shape=longs[3], dtype=5, value=0.25}
    Out=[vw] = fill_constant() {shape=longs[2, 3], dtype=5, value=0.0}
    Out=[vb] = fill_constant() {shape=longs[3], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    var scale : fp32[1] persistable
    var good, bad : int32[1] persistable
    Out=[scale] = fill_constant() {shape=longs[1], dtype=5, value=1024.0}
    Out=[good] = fill_constant() {shape=longs[1], dtype=2, value=0.0}
    Out=[bad] = fill_constant() {shape=longs[1], dtype=2, value=0.0}
)";

Program Main(const std::string& between = "") {
  return CompactProgram(absl::StrReplaceAll(kMain, {{"%s", between}}));
}

struct Sharded {
  Program original, original_startup;
  Program main = original, startup = original_startup;
  TranspileResult result = {};
};

Sharded ShardPair(Program main, Program startup, const std::string& stage, int nranks = 2,
                  const std::map<std::string, std::string>& flags = {}) {
  Sharded sharded{std::move(main), std::move(startup)};
  TranspileOptions options;
  options.mode = "zero";
  options.mode_flags = flags;
  options.mode_flags["stage"] = stage;
  options.cluster.nranks = nranks;
  options.explain = true;
  ProgramPair programs{&sharded.main, &sharded.startup};
  absl::StatusOr<TranspileResult> result = Transpile(options, programs);
  WEFT_EXPECT_OK(result.status());
  if (result.ok()) sharded.result = *std::move(result);
  return sharded;
}

Sharded Shard(const std::string& stage, const std::string& between = "", int nranks = 2,
              const std::map<std::string, std::string>& flags = {}) {
  return ShardPair(Main(between), CompactProgram(kStartup), stage, nranks, flags);
}

using Desc = pb::ProgramDesc;

pb::OpDesc::Var* FindSlot(pb::OpDesc* op, const std::string& slot) {
  for (pb::OpDesc::Var& in : *op->mutable_inputs()) {
    if (in.parameter() == slot) return &in;
  }
  ADD_FAILURE() << "no slot " << slot;
  return nullptr;
}

std::function<void(Desc*)> Drop(const std::string& type, int turn = 0, int block = 0) {
  return [=](Desc* program) {
    const pb::OpDesc* const op = FindOp(program, type, turn, block);
    auto* const ops = program->mutable_blocks(block)->mutable_ops();
    for (int i = 0; i < ops->size(); ++i) {
      if (&ops->Get(i) != op) continue;
      ops->DeleteSubrange(i, 1);
      return;
    }
  };
}

// The wait before the last collective.
void DropLastWait(Desc* program) {
  auto* const ops = program->mutable_blocks(0)->mutable_ops();
  for (int i = ops->size() - 1; i >= 0; --i) {
    if (ops->Get(i).type() != "c_wait_compute") continue;
    ops->DeleteSubrange(i, 1);
    return;
  }
}

// Every list of a coalesce_tensor, in the opposite order.
std::function<void(Desc*)> Reverse(int turn) {
  return [=](Desc* program) {
    pb::OpDesc* const op = FindOp(program, "coalesce_tensor", turn);
    for (auto* slots : {op->mutable_inputs(), op->mutable_outputs()}) {
      for (pb::OpDesc::Var& slot : *slots) {
        std::reverse(slot.mutable_arguments()->begin(), slot.mutable_arguments()->end());
      }
    }
    for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
      if (attr.name() != "concated_ranks" && attr.name() != "concated_shapes") continue;
      std::reverse(attr.mutable_longs()->begin(), attr.mutable_longs()->end());
    }
  };
}

// Puts the first op of a type at the front of the step.
std::function<void(Desc*)> RunFirst(const std::string& type) {
  return [=](Desc* program) {
    const pb::OpDesc op = *FindOp(program, type);
    Drop(type)(program);
    auto* const ops = program->mutable_blocks(0)->mutable_ops();
    *ops->Add() = op;
    std::rotate(ops->begin(), ops->end() - 1, ops->end());
  };
}

void TakePartOfRank1(Desc* startup) {
  for (pb::OpDesc::Attr& attr : *FindOp(startup, "slice")->mutable_attrs()) {
    if (attr.name() == "starts" || attr.name() == "ends") attr.set_ints(0, attr.ints(0) + 5);
  }
}

// All ranks do.
void TakePartOfRank0(Desc* startup) {
  for (const pb::OpDesc::Var& slot : FindOp(startup, "coalesce_tensor")->outputs()) {
    if (slot.parameter() != "FusedOutput") continue;
    FindSlot(FindOp(startup, "slice"), "Input")->set_arguments(0, slot.arguments(0));
  }
}

void UpdateTwice(Desc* main) { *main->mutable_blocks(0)->add_ops() = *FindOp(main, "momentum"); }

void UpdateByVelocity(Desc* main) {
  for (pb::OpDesc::Var& slot : *FindOp(main, "momentum")->mutable_inputs()) {
    if (slot.parameter() == "Grad") slot.set_arguments(0, "velocity_share_0");
  }
}

void FillPartWithOnes(Desc* startup) {
  pb::OpDesc* fill = nullptr;
  for (pb::OpDesc& op : *startup->mutable_blocks(0)->mutable_ops()) {
    const bool is_share = op.outputs_size() > 0 && op.outputs(0).arguments_size() > 0 &&
                          op.outputs(0).arguments(0) == "velocity_share_0";
    if (is_share) fill = &op;
  }
  ASSERT_NE(fill, nullptr);
  for (pb::OpDesc::Attr& attr : *fill->mutable_attrs()) {
    if (attr.name() == "value") attr.set_f(1);
  }
}

struct Mistake {
  std::string name;
  std::function<void(Desc*)> main, startup;
  std::function<void(Setting*)> setting;
};

std::vector<Mistake> Mistakes() {
  std::vector<Mistake> all;
  const auto in_main = [&](std::string name, std::function<void(Desc*)> make) {
    all.push_back({std::move(name), std::move(make), nullptr, nullptr});
  };
  const auto in_startup = [&](std::string name, std::function<void(Desc*)> make) {
    all.push_back({std::move(name), nullptr, std::move(make), nullptr});
  };
  const auto in_setting = [&](std::string name, std::function<void(Setting*)> make) {
    all.push_back({std::move(name), nullptr, nullptr, std::move(make)});
  };
  in_main("NobodyGathers", Drop("c_allgather"));
  in_main("NobodyReduces", Drop("c_reducescatter"));
  in_main("NobodyDivides", Drop("scale"));
  in_main("NobodyUpdates", Drop("momentum"));
  in_main("NobodyWaitsForTheGather", Drop("c_wait_comm", 0));
  in_main("NobodyWaitsForTheReduction", Drop("c_wait_comm", 1));
  in_main("TheRingDoesNotWait", DropLastWait);
  in_main("GradientsInAnotherOrder", Reverse(1));
  in_main("ParametersInAnotherOrder", Reverse(0));
  in_main("UsedBeforeItIsGathered", RunFirst("mul"));
  in_main("UpdatedBeforeItIsGathered", RunFirst("momentum"));
  in_main("UpdatedTwice", UpdateTwice);
  in_main("UpdatedByAnotherShare", UpdateByVelocity);
  in_startup("PartsOfAnotherRank", TakePartOfRank1);
  in_startup("PartsOfTheFirstRank", TakePartOfRank0);
  in_startup("PartsThatNobodySends", Drop("alltoall"));
  in_startup("PartsOfAnotherOrder", Reverse(0));
  in_startup("AnotherStartOfAState", FillPartWithOnes);
  in_setting("AnotherOrder", [](Setting* setting) {
    std::vector<SharedTensor>& of = setting->shares["param_share_0"];
    std::swap(of[0], of[1]);
  });
  in_setting("StatesExchanged", [](Setting* setting) {
    std::swap(setting->shares["param_share_0"], setting->shares["velocity_share_0"]);
  });
  in_setting("NamesExchanged", [](Setting* setting) {
    std::vector<SharedTensor>& of = setting->shares["velocity_share_0"];
    std::swap(of[0].name, of[1].name);
  });
  in_setting("PartsAsOneValue", [](Setting* setting) {
    setting->common["velocity_share_0"] = {"vb", "vw"};
    setting->shares.erase("velocity_share_0");
  });
  in_setting("OtherDimensions", [](Setting* setting) {
    setting->shares["param_share_0"][0].dims = {1, 3};
  });
  in_setting("TooManyForOne", [](Setting* setting) {
    setting->common["lr"] = {"lr", "w", "b", "x", "vw"};
  });
  in_setting("NothingSaid", [](Setting* setting) { setting->shares.clear(); });
  return all;
}

std::vector<std::string> ErrorsOf(const Sharded& sharded, const Mistake& mistake,
                                  bool has_original = true, bool has_original_startup = true) {
  Desc main = sharded.main.ToProto(), startup = sharded.startup.ToProto();
  VerifyOptions options;
  options.setting = sharded.result.setting;
  if (has_original) options.original.main = &sharded.original;
  if (has_original && has_original_startup) options.original.startup = &sharded.original_startup;
  if (mistake.main != nullptr) mistake.main(&main);
  if (mistake.startup != nullptr) mistake.startup(&startup);
  if (mistake.setting != nullptr) mistake.setting(&options.setting);
  const absl::StatusOr<Program> changed = Program::FromProto(main);
  const absl::StatusOr<Program> changed_startup = Program::FromProto(startup);
  WEFT_EXPECT_OK(changed.status());
  WEFT_EXPECT_OK(changed_startup.status());
  std::vector<std::string> errors;
  const Findings findings = Verify({{&*changed, &*changed_startup}}, options);
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::kError) errors.push_back(finding.message);
  }
  return errors;
}

TEST(ShardUpdates, VerifierProvesTheResultAndFindsEveryMistake) {
  for (const char* stage : {"1", "3"}) {
    SCOPED_TRACE(stage);
    const Sharded sharded = Shard(stage);
    EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
    for (const Mistake& mistake : Mistakes()) {
      EXPECT_THAT(ErrorsOf(sharded, mistake), Not(IsEmpty())) << mistake.name;
    }
  }
}

// What begins otherwise than in the original, such as a velocity with ones, takes the original's.
TEST(ShardUpdates, PartsAreOfWhatTheStartupProgramMakes) {
  const Sharded sharded = Shard("3");
  const auto errors = [&](const Mistake& mistake) {
    return ErrorsOf(sharded, mistake, /*has_original=*/true, /*has_original_startup=*/false);
  };
  EXPECT_THAT(errors({}), IsEmpty());
  for (const Mistake& mistake : Mistakes()) {
    if (mistake.startup == nullptr || mistake.name == "AnotherStartOfAState") continue;
    EXPECT_THAT(errors(mistake), Not(IsEmpty())) << mistake.name;
  }
  EXPECT_THAT(errors({"", nullptr, TakePartOfRank0, nullptr}),
              Contains(HasSubstr("variable param_share_0: expected, for w, ")));
  EXPECT_THAT(errors({"", nullptr, Drop("slice"), nullptr}), Contains(HasSubstr("found nothing")));
}

// Two steps between updates: gradients are added up, divided by a number, and reset, in a block.
Sharded ShardAccumulated(const std::string& stage, const std::string& between, int nranks = 2) {
  Program main = Main(between), startup = CompactProgram(kStartup);
  TranspileOptions options;
  options.passes = "grad-accumulate{k=2,scale_sense=8}";
  ProgramPair programs{&main, &startup};
  WEFT_EXPECT_OK(Transpile(options, programs).status());
  return ShardPair(std::move(main), std::move(startup), stage, nranks);
}

// Moves an op of block 1 to its front.
std::function<void(Desc*)> MoveToFront(const std::string& type, int turn) {
  return [=](Desc* program) {
    const pb::OpDesc op = *FindOp(program, type, turn, 1);
    Drop(type, turn, 1)(program);
    auto* const ops = program->mutable_blocks(1)->mutable_ops();
    *ops->Add() = op;
    std::rotate(ops->begin(), ops->end() - 1, ops->end());
  };
}

TEST(ShardUpdates, AccumulatedGradientsAreReducedWhenTheyAreUsed) {
  std::vector<Mistake> mistakes;
  for (const char* type : {"coalesce_tensor", "c_wait_compute", "c_reducescatter", "c_wait_comm",
                           "elementwise_mul", "momentum"}) {
    mistakes.push_back({type, Drop(type, 0, 1), nullptr, nullptr});
  }
  // Of the padding, and of both accumulators.
  for (const int turn : {0, 1, 2}) {
    mistakes.push_back({"nobody fills", Drop("fill_constant", turn, 1), nullptr, nullptr});
  }
  for (const int turn : {1, 2}) {
    mistakes.push_back(
        {"reset before the sum", MoveToFront("fill_constant", turn), nullptr, nullptr});
  }
  mistakes.push_back(
      {"updated twice",
       [](Desc* main) { *main->mutable_blocks(1)->add_ops() = *FindOp(main, "momentum", 0, 1); },
       nullptr, nullptr});
  for (const char* stage : {"1", "3"}) {
    SCOPED_TRACE(stage);
    const Sharded sharded = ShardAccumulated(stage, "");
    EXPECT_THAT(sharded.result.setting.shares, Contains(Key("param_share_0")));
    EXPECT_EQ(sharded.main.num_blocks(), 2);
    EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
    for (const Mistake& mistake : mistakes) {
      EXPECT_THAT(ErrorsOf(sharded, mistake), Not(IsEmpty())) << mistake.name;
    }
  }
}

// As regularizers of Paddle do it.
constexpr char kDecay[] = R"(
    Out=[wd] = scale(X=[w]) role=optimize {scale=0.1}
    Out=[w@GRAD] = sum(X=[w@GRAD, wd]) role=optimize
    Out=[bd] = scale(X=[b]) role=optimize {scale=0.1}
    Out=[b@GRAD] = sum(X=[b@GRAD, bd]) role=optimize
)";

TEST(ShardUpdates, PartsDecay) {
  const Sharded sharded = Shard("1", kDecay);
  ASSERT_THAT(sharded.result.setting.shares, Contains(Key("param_share_0")));
  EXPECT_EQ(sharded.result.setting.shares.at("param_share_0").size(), 3);
  EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
  for (const char* dropped : {"scale", "sum"}) {
    EXPECT_THAT(ErrorsOf(sharded, {"", Drop(dropped), nullptr, nullptr}), Not(IsEmpty()));
  }
  const auto of_velocity = [](Desc* main) {
    FindSlot(FindOp(main, "scale"), "X")->set_arguments(0, "velocity_share_0");
  };
  EXPECT_THAT(ErrorsOf(sharded, {"", of_velocity, nullptr, nullptr}), Not(IsEmpty()));
}

// Both gradients are multiplied by what their squares add up to.
constexpr char kNorm[] = R"(
    Out=[nw] = squared_l2_norm(X=[w@GRAD]) role=optimize
    Out=[nb] = squared_l2_norm(X=[b@GRAD]) role=optimize
    Out=[n] = sum(X=[nw, nb]) role=optimize
    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[n]) role=optimize {axis=-1}
    Out=[b@GRAD] = elementwise_mul(X=[b@GRAD], Y=[n]) role=optimize {axis=-1}
)";

TEST(ShardUpdates, RanksAddUpTheirSquares) {
  const Sharded sharded = Shard("1", kNorm);
  EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
  for (const char* dropped : {"c_allreduce_sum", "squared_l2_norm", "sum"}) {
    EXPECT_THAT(ErrorsOf(sharded, {"", Drop(dropped), nullptr, nullptr}), Not(IsEmpty()))
        << dropped;
  }
}

// As Paddle 3 adds up squares: a stack of all, and the sum of its elements.
constexpr char kStackedNorm[] = R"(
    Out=[nw] = squared_l2_norm(X=[w@GRAD]) role=optimize
    Out=[nb] = squared_l2_norm(X=[b@GRAD]) role=optimize
    Y=[ns] = stack(X=[nw, nb]) role=optimize {axis=0}
    Out=[n] = reduce_sum(X=[ns]) role=optimize {dim=ints[], keep_dim=false, reduce_all=true}
    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[n]) role=optimize {axis=-1}
    Out=[b@GRAD] = elementwise_mul(X=[b@GRAD], Y=[n]) role=optimize {axis=-1}
)";

TEST(ShardUpdates, RanksAddUpAStackOfSquares) {
  for (const char* buckets : {"bytes", "count{count=1}"}) {
    const Sharded sharded = Shard("1", kStackedNorm, 2, {{"buckets", buckets}});
    EXPECT_THAT(sharded.result.setting.shares, Contains(Key("param_share_0")));
    EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
    for (const char* dropped : {"c_allreduce_sum", "squared_l2_norm", "sum", "reduce_sum"}) {
      EXPECT_THAT(ErrorsOf(sharded, {"", Drop(dropped), nullptr, nullptr}), Not(IsEmpty()))
          << dropped;
    }
  }
  // Another reader of the stack needs the squares of each parameter.
  const std::string other =
      absl::StrCat(kStackedNorm,
                   "    Out=[m] = reduce_max(X=[ns]) role=optimize {dim=ints[], "
                   "keep_dim=false, reduce_all=true}\n");
  EXPECT_THAT(Shard("1", other).result.setting.shares, IsEmpty());
  // A sum of the rank of the stack, and one that lasts.
  const std::string ranked = absl::StrReplaceAll(
      kStackedNorm, {{"Out=[n] =", "Out=[k] ="},
                     {"keep_dim=false, reduce_all=true}",
                      "keep_dim=true, reduce_all=true}\n"
                      "    Out=[n] = reshape(X=[k]) role=optimize {shape=ints[1]}"}});
  EXPECT_THAT(Shard("1", ranked).result.setting.shares, IsEmpty());
  const std::string lasts = absl::StrCat("    var ns : fp32[2, 1] persistable\n", kStackedNorm);
  EXPECT_THAT(Shard("1", lasts).result.setting.shares, IsEmpty());
}

// A share of a bucket has one sum of squares.
TEST(ShardUpdates, SquaresThatCountTwiceAreOfWholeGradients) {
  const std::string twice = absl::StrReplaceAll(kNorm, {{"X=[nw, nb]", "X=[nw, nb, nb]"}});
  const Sharded sharded = Shard("1", twice);
  EXPECT_THAT(sharded.result.setting.shares, IsEmpty());
  EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
}

// The gathers and uses of parameters, in order: "g1" is a gather on ring 1, "w1" the wait for it.
std::string GathersAndUses(const std::string& prefetch) {
  const Sharded sharded =
      Shard("3", "", 2, {{"prefetch", prefetch}, {"buckets", "count{count=1}"}, {"nrings", "2"}});
  EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
  std::string order;
  for (OpId id : sharded.main.block(0).ops()) {
    const Op op = sharded.main.op(id);
    if (op.type() == "c_allgather") absl::StrAppend(&order, " g", *op.IntAttr("ring_id"));
    if (op.type() == "c_wait_comm") absl::StrAppend(&order, " w", *op.IntAttr("ring_id"));
    if (op.type() == "mul" || op.type() == "elementwise_add" || op.type() == "mul_grad" ||
        op.type() == "elementwise_add_grad") {
      absl::StrAppend(&order, " ", op.type());
    }
  }
  return order;
}

TEST(ShardUpdates, GathersSoManyBucketsAhead) {
  // elementwise_add_grad and mul_grad read parameters, too. The last two waits are for gradients.
  EXPECT_EQ(GathersAndUses("0"),
            " g1 w1 mul g1 w1 elementwise_add g1 w1 elementwise_add_grad g1 w1 mul_grad w1 w0");
  EXPECT_EQ(GathersAndUses("1"),
            " g2 w2 g2 mul w2 g2 elementwise_add w2 g2 elementwise_add_grad w2 mul_grad w1 w0");
  EXPECT_EQ(GathersAndUses("2"),
            " g2 g3 w2 g2 mul w3 g3 elementwise_add w2 elementwise_add_grad w3 mul_grad w1 w0");
}

// A loss scale that halves where any gradient is not finite.
constexpr char kScaled[] = R"(
    var scale : fp32[1] persistable
    var good, bad : int32[1] persistable
    Out=[w@GRAD, b@GRAD], FoundInfinite=[found] = check_finite_and_unscale(X=[w@GRAD, b@GRAD], Scale=[scale]) role=optimize
    Out=[w@GRAD, b@GRAD], LossScaling=[scale], OutGoodSteps=[good], OutBadSteps=[bad] = update_loss_scaling(X=[w@GRAD, b@GRAD], FoundInfinite=[found], PrevLossScaling=[scale], InGoodSteps=[good], InBadSteps=[bad]) role=optimize {incr_every_n_steps=4, decr_every_n_nan_or_inf=1, incr_ratio=2.0, decr_ratio=0.5}
)";

TEST(ShardUpdates, RanksAgreeOnTheLossScale) {
  for (const char* buckets : {"bytes", "count{count=1}"}) {
    const Sharded sharded = Shard("1", kScaled, 2, {{"buckets", buckets}});
    EXPECT_THAT(sharded.result.setting.shares, Contains(Key("param_share_0")));
    EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
    const auto errors = [&](std::function<void(Desc*)> change) {
      return ErrorsOf(sharded, {"", std::move(change), nullptr, nullptr});
    };
    // The second cast brings the flag of all ranks back.
    EXPECT_THAT(errors(Drop("cast", 1)), Not(IsEmpty()));
    EXPECT_THAT(errors(Drop("check_finite_and_unscale")), Not(IsEmpty()));
    EXPECT_THAT(errors(Drop("update_loss_scaling")), Not(IsEmpty()));
    EXPECT_THAT(errors(Drop("c_allreduce_max")), Not(IsEmpty()));
    EXPECT_THAT(
        errors([](Desc* main) { FindOp(main, "c_allreduce_max")->set_type("c_allreduce_sum"); }),
        Not(IsEmpty()));
    // A share that nobody searches, or that is not set to zero.
    for (const char* type : {"check_finite_and_unscale", "update_loss_scaling"}) {
      EXPECT_THAT(errors([&](Desc* main) {
                    pb::OpDesc* const op = FindOp(main, type);
                    FindSlot(op, "X")->mutable_arguments()->RemoveLast();
                    for (pb::OpDesc::Var& out : *op->mutable_outputs()) {
                      if (out.parameter() == "Out") out.mutable_arguments()->RemoveLast();
                    }
                  }),
                  Not(IsEmpty()))
          << type;
    }
  }
}

TEST(ShardUpdates, AccumulatedGradientsHaveNormsAndLossScales) {
  for (const char* between : {kNorm, kStackedNorm, kScaled}) {
    const Sharded sharded = ShardAccumulated("2", between);
    EXPECT_THAT(sharded.result.setting.shares, Contains(Key("param_share_0")));
    EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
    const char* const reduction = between == kScaled ? "c_allreduce_max" : "c_allreduce_sum";
    EXPECT_THAT(ErrorsOf(sharded, {"", Drop(reduction, 0, 1), nullptr, nullptr}), Not(IsEmpty()));
  }
}

// Without a loss scale that follows, what is left where an element is not finite counts.
TEST(ShardUpdates, ASearchAloneNeedsWholeGradients) {
  const std::string search =
      "Out=[w@GRAD, b@GRAD], FoundInfinite=[found] = check_finite_and_unscale(X=[w@GRAD, b@GRAD], "
      "Scale=[lr]) role=optimize\n";
  EXPECT_THAT(Shard("1", search).result.setting.shares, IsEmpty());
}

// A parameter of which all ranks have the whole is searched with the shares of others.
TEST(ShardUpdates, WholeGradientsShareTheLossScale) {
  const std::string between = absl::StrCat(
      kScaled, "Out=[w@GRAD] = clip_by_norm(X=[w@GRAD]) role=optimize {max_norm=1.0}\n");
  const Sharded sharded = Shard("1", between);
  EXPECT_THAT(sharded.result.setting.shares.at("param_share_0")[0].name, "b");
  EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
  // Where a rank alone finds an element that is not finite, its copy of w alone would change.
  EXPECT_THAT(ErrorsOf(sharded, {"", Drop("c_allreduce_max"), nullptr, nullptr}), Not(IsEmpty()));
  const auto keep_as_is = [](Desc* main) {
    pb::OpDesc* const op = FindOp(main, "update_loss_scaling");
    FindSlot(op, "X")->mutable_arguments()->DeleteSubrange(0, 1);
    for (pb::OpDesc::Var& out : *op->mutable_outputs()) {
      if (out.parameter() == "Out") out.mutable_arguments()->DeleteSubrange(0, 1);
    }
  };
  EXPECT_THAT(ErrorsOf(sharded, {"", keep_as_is, nullptr, nullptr}), Not(IsEmpty()));
}

// Three parameters of six elements, whose updates need whole ones. %s makes w@GRAD, u@GRAD and
// v@GRAD, and updates by them.
constexpr char kOwned[] = R"(
    var x : fp32[-1, 2] need_check_feed
    var w, v : fp32[2, 3] parameter persistable
    var u : fp32[3, 2] parameter persistable
    var vw, vv : fp32[2, 3] persistable
    var vu : fp32[3, 2] persistable
    var lr : fp32[1] persistable
    Out=[h] = mul(X=[x], Y=[w])
    Out=[i] = mul(X=[h], Y=[u])
    Out=[y] = mul(X=[i], Y=[v])
    Out=[loss] = reduce_mean(X=[y]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[i@GRAD], Y@GRAD=[v@GRAD] = mul_grad(X=[i], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
    X@GRAD=[h@GRAD], Y@GRAD=[u@GRAD] = mul_grad(X=[h], Y=[u], Out@GRAD=[i@GRAD]) role=backward vars=[u, u@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    %s
    ParamOut=[w], VelocityOut=[vw] = %o(Param=[w], Velocity=[vw], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD] {mu=0.9}
    ParamOut=[u], VelocityOut=[vu] = %o(Param=[u], Velocity=[vu], Grad=[u@GRAD], LearningRate=[lr]) role=optimize vars=[u, u@GRAD] {mu=0.9}
    ParamOut=[v], VelocityOut=[vv] = %o(Param=[v], Velocity=[vv], Grad=[v@GRAD], LearningRate=[lr]) role=optimize vars=[v, v@GRAD] {mu=0.9}
)";

constexpr char kOwnedStartup[] = R"(
    var w, v : fp32[2, 3] parameter persistable
    var u : fp32[3, 2] parameter persistable
    var vw, vv : fp32[2, 3] persistable
    var vu : fp32[3, 2] persistable
    var lr : fp32[1] persistable
    Out=[w] = uniform_random() {shape=longs[2, 3], dtype=5, min=-1.0, max=1.0, seed=0}
    Out=[u] = uniform_random() {shape=longs[3, 2], dtype=5, min=-1.0, max=1.0, seed=0}
    Out=[v] = uniform_random() {shape=longs[2, 3], dtype=5, min=-1.0, max=1.0, seed=0}
    Out=[vw] = fill_constant() {shape=longs[2, 3], dtype=5, value=0.0}
    Out=[vu] = fill_constant() {shape=longs[3, 2], dtype=5, value=0.0}
    Out=[vv] = fill_constant() {shape=longs[2, 3], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)";

constexpr char kClips[] = R"(
    Out=[w@GRAD] = clip_by_norm(X=[w@GRAD]) role=optimize {max_norm=1.0}
    Out=[u@GRAD] = clip_by_norm(X=[u@GRAD]) role=optimize {max_norm=1.0}
    Out=[v@GRAD] = clip_by_norm(X=[v@GRAD]) role=optimize {max_norm=1.0}
)";

Program OwnedMain(const char* optimizer, const char* between) {
  return CompactProgram(absl::StrReplaceAll(kOwned, {{"%o", optimizer}, {"%s", between}}));
}

void Retype(const std::string& from, const std::string& to, Desc* program) {
  for (pb::OpDesc& op : *program->mutable_blocks(0)->mutable_ops()) {
    if (op.type() == from) op.set_type(to);
  }
}

TEST(ShardUpdates, OwnersUpdateWholeParameters) {
  for (const auto& [optimizer, between] :
       {std::pair("lars_momentum", ""), std::pair("momentum", kClips)}) {
    // The last bucket is of one parameter, none is, and one, two and three ranks own nothing.
    for (const int nranks : {2, 3, 4, 5, 6}) {
      SCOPED_TRACE(absl::StrCat(optimizer, ", ", nranks, " ranks"));
      const Sharded sharded =
          ShardPair(OwnedMain(optimizer, between), CompactProgram(kOwnedStartup), "1", nranks);
      const auto& shares = sharded.result.setting.shares;
      ASSERT_THAT(shares, Contains(Key("param_share_0")));
      EXPECT_EQ(shares.size(), 2);
      EXPECT_EQ(shares.at("param_share_0")[0].name, "v");
      EXPECT_THAT(ErrorsOf(sharded, {}), IsEmpty());
      EXPECT_THAT(ErrorsOf(sharded, {}, /*has_original=*/false), IsEmpty());
      for (const char* type : {"c_allgather", "c_reducescatter", "scale", optimizer}) {
        EXPECT_THAT(ErrorsOf(sharded, {type, Drop(type), nullptr, nullptr}), Not(IsEmpty()))
            << type;
      }
      for (const int turn : {0, 1}) {
        EXPECT_THAT(ErrorsOf(sharded, {"", Reverse(turn), nullptr, nullptr}), Not(IsEmpty()));
      }
      const auto exchange = [](Setting* setting) {
        for (auto& [share, of] : setting->shares) std::swap(of[0].name, of[1].name);
      };
      EXPECT_THAT(ErrorsOf(sharded, {"", nullptr, nullptr, exchange}), Not(IsEmpty()));
      const auto in_other_parts = [](Setting* setting) {
        setting->shares.at("param_share_0")[0].dims = {5};
        setting->shares.at("param_share_0")[1].dims = {7};
      };
      EXPECT_THAT(ErrorsOf(sharded, {"", nullptr, nullptr, in_other_parts}), Not(IsEmpty()));
    }
  }
}

// Ranks with parts of tensors know the norms of these parts alone.
TEST(ShardUpdates, NormsOfPartsAreRefused) {
  for (const int nranks : {2, 4}) {
    Sharded sharded =
        ShardPair(OwnedMain("momentum", ""), CompactProgram(kOwnedStartup), "1", nranks);
    Desc original = sharded.original.ToProto();
    Retype("momentum", "lars_momentum", &original);
    WEFT_ASSERT_OK_AND_ASSIGN(sharded.original, Program::FromProto(original));
    const auto retype = [](Desc* main) { Retype("momentum", "lars_momentum", main); };
    EXPECT_THAT(ErrorsOf(sharded, {"", retype, nullptr, nullptr}), Not(IsEmpty()));
    EXPECT_THAT(ErrorsOf(sharded, {"", retype, nullptr, nullptr}, /*has_original=*/false),
                Not(IsEmpty()));
  }
}

// Nor is the norm of a bucket the norm of its tensors.
TEST(ShardUpdates, NormsOfBucketsAreRefused) {
  const Sharded sharded =
      ShardPair(OwnedMain("momentum", kClips), CompactProgram(kOwnedStartup), "1", 3);
  const auto clip_bucket = [](Desc* main) {
    pb::OpDesc clip = *FindOp(main, "clip_by_norm");
    Drop("clip_by_norm")(main);
    const std::string buffer = FindSlot(FindOp(main, "c_reducescatter"), "X")->arguments(0);
    clip.mutable_inputs(0)->set_arguments(0, buffer);
    clip.mutable_outputs(0)->set_arguments(0, buffer);
    auto* const ops = main->mutable_blocks(0)->mutable_ops();
    for (int i = 0; i < ops->size(); ++i) {
      if (ops->Get(i).type() != "c_reducescatter") continue;
      *ops->Add() = clip;
      std::rotate(ops->begin() + i, ops->end() - 1, ops->end());
      break;
    }
  };
  EXPECT_THAT(ErrorsOf(sharded, {"", clip_bucket, nullptr, nullptr}), Not(IsEmpty()));
}

TEST(ShardUpdates, RefusesWhatItCannotShareOut) {
  const auto refusal = [](Program main, Program* startup, absl::optional<int> nranks) {
    TranspileOptions options;
    options.mode = "zero";
    options.cluster.nranks = nranks;
    ProgramPair programs{&main, startup};
    return std::string(Transpile(options, programs).status().message());
  };
  Program startup = CompactProgram(kStartup);
  EXPECT_THAT(refusal(Main(), &startup, absl::nullopt), HasSubstr("needs the number of ranks"));
  EXPECT_THAT(refusal(Main(), nullptr, 2), HasSubstr("needs the startup program"));
  Sharded once = Shard("1");
  EXPECT_THAT(refusal(once.main, &once.startup, 2), HasSubstr("already holds"));
}

// Each parameter is clipped by itself: their squares must not share a bucket.
TEST(ShardUpdates, SquaresOfTwoSumsAreApart) {
  constexpr char kTwoNorms[] = R"(
    Out=[nw] = squared_l2_norm(X=[w@GRAD]) role=optimize
    Out=[nb] = squared_l2_norm(X=[b@GRAD]) role=optimize
    Out=[sw] = sum(X=[nw]) role=optimize
    Out=[sb] = sum(X=[nb]) role=optimize
    Out=[s] = elementwise_add(X=[sw], Y=[sb]) role=optimize {axis=-1}
    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[s]) role=optimize {axis=-1}
    Out=[b@GRAD] = elementwise_mul(X=[b@GRAD], Y=[s]) role=optimize {axis=-1}
)";
  EXPECT_THAT(Shard("1", kTwoNorms).result.setting.shares, Contains(Key("param_share_1")));
}

std::string WhyWhole(const Sharded& sharded) {
  for (const Remark& remark : sharded.result.remarks) {
    if (remark.subject == "w" && remark.pass == ShardUpdates::kName) {
      return absl::StrCat(remark.what, ": ", remark.why);
    }
  }
  return "none";
}
std::string WhyWhole(const std::string& between) { return WhyWhole(Shard("1", between)); }

TEST(ShardUpdates, SaysWhyAParameterStaysWhole) {
  EXPECT_THAT(WhyWhole(""), HasSubstr("shared out"));
  EXPECT_THAT(WhyWhole("Out=[w@GRAD] = clip(X=[w@GRAD]) role=optimize {min=-1.0, max=1.0}"),
              HasSubstr("shared out"));
  EXPECT_THAT(WhyWhole("Out=[w@GRAD] = clip_by_norm(X=[w@GRAD]) role=optimize {max_norm=1.0}"),
              HasSubstr("needs all of its elements, and too few parameters have as many"));
  EXPECT_THAT(WhyWhole("Out=[t] = elementwise_add(X=[w@GRAD], Y=[b@GRAD]) role=optimize {axis=1}"),
              HasSubstr("reads several gradients"));
  EXPECT_THAT(WhyWhole("Out=[t] = scale(X=[vw]) role=optimize {scale=2.0}"),
              HasSubstr("uses vw, too"));
  EXPECT_THAT(WhyWhole(absl::StrCat(kDecay, "Out=[t] = elementwise_add(X=[wd], Y=[bd]) {axis=1}")),
              HasSubstr("reads several gradients"));
  EXPECT_THAT(WhyWhole(absl::StrCat(kDecay, kNorm)), HasSubstr("after weight decay"));
}

TEST(ShardUpdates, SaysWhyAParameterWithAccumulatedGradientsStaysWhole) {
  const auto why = [](const std::string& between) {
    return WhyWhole(ShardAccumulated("1", between));
  };
  EXPECT_THAT(why("Out=[t] = scale(X=[w]) role=optimize {scale=2.0}"), HasSubstr("uses it, too"));
  EXPECT_THAT(why("Out=[t] = scale(X=[vw]) role=optimize {scale=2.0}"), HasSubstr("uses vw, too"));
  EXPECT_THAT(why("Out=[w@GRAD] = clip_by_norm(X=[w@GRAD]) role=optimize {max_norm=1.0}"),
              HasSubstr("needs all of its elements, and too few parameters have as many"));
}

// Such a block has no place among the ops of the root block.
TEST(UpdateChains, BlocksThatTheRootBlockDoesNotRunAreRefused) {
  const Program program = CompactProgram(R"(
    var w, v, w@GRAD : fp32[4] persistable
    var lr : fp32[1] persistable
    var due : bool[1] persistable
    conditional_block(Cond=[due], Input=[w, v, w@GRAD, lr]) {sub_block=block(1), is_scalar_condition=true}
    block 1:
    conditional_block(Cond=[due], Input=[w, v, w@GRAD, lr]) {sub_block=block(2), is_scalar_condition=true}
    block 2:
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Velocity=[v], Grad=[w@GRAD], LearningRate=[lr]) {mu=0.9}
    Out=[w@GRAD] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
)");
  GradientAnalysis analysis;
  Gradient gradient;
  gradient.param = program.FindSymbol("w");
  gradient.grad = program.FindSymbol("w@GRAD");
  gradient.block = 2;
  analysis.gradients.push_back(gradient);
  EXPECT_EQ(FindUpdateChains(program, analysis).why_not[gradient.param],
            "no op of the root block runs the block that updates it");
}

}  // namespace
}  // namespace weft::testing
