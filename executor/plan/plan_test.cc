#include "executor/plan/plan.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/kernel.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/weft_attrs.h"
#include "proto/testing/block_text.h"
#include "proto/testing/program_builder.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

PlanOptions Options(int nranks = 2) {
  PlanOptions options;
  options.kernels = &CpuKernels();
  options.nranks = nranks;
  return options;
}

// "compute: op 0 (scale)", "ring 0: wait 1": the instructions as texts.
std::vector<std::string> Instructions(const Plan& plan) {
  using Kind = Plan::Instruction::Kind;
  std::vector<std::string> texts;
  for (const Plan::Instruction& i : plan.instructions) {
    std::string text = plan.stream_names[i.stream] + ": ";
    switch (i.kind) {
      case Kind::kRunOp:
        absl::StrAppend(&text, plan.ops[i.index].name);
        break;
      case Kind::kRecord:
        absl::StrAppend(&text, "record ", i.index);
        break;
      case Kind::kWait:
        absl::StrAppend(&text, "wait ", i.index);
        break;
      case Kind::kSynchronize:
        absl::StrAppend(&text, "synchronize");
        break;
      case Kind::kBranch:
        absl::StrAppend(&text, "unless ", plan.branches[i.index].name, " go to ",
                        plan.branches[i.index].next);
        break;
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

ProgramBuilder& Scale(ProgramBuilder& builder, const std::string& from, const std::string& to) {
  return builder.Op("scale", {{"X", {from}}}, {{"Out", {to}}});
}
ProgramBuilder& AllReduce(ProgramBuilder& builder, const std::string& name, int ring) {
  return builder.Op("c_allreduce_sum", {{"Cond", {}}, {"X", {name}}}, {{"Out", {name}}})
      .IntAttr("ring_id", ring);
}
ProgramBuilder& Sync(ProgramBuilder& builder, const std::string& type, const std::string& name,
                     int ring = 0) {
  builder.Op(type, {{"X", {name}}}, {{"Out", {name}}});
  if (type != "c_sync_calc_stream") builder.IntAttr("ring_id", ring);
  return builder;
}

TEST(PlanTest, MissingKernelsAreOneErrorThatNamesAll) {
  ProgramBuilder builder;
  Scale(builder, "x", "y");
  builder.Op("other_new_op", {{"X", {"y"}}}, {{"Out", {"z"}}});
  builder.Op("brand_new_op", {{"X", {"z"}}}, {{"Out", {"a"}}});
  builder.Op("other_new_op", {{"X", {"a"}}}, {{"Out", {"b"}}});
  EXPECT_THAT(
      Plan::Build(builder.Build(), Options()).status(),
      StatusIs(absl::StatusCode::kUnimplemented,
               "no kernel for 2 op types: other_new_op (2 ops, first op 1), brand_new_op (1 "
               "op, first op 2); docs/adding_an_op.md says how to add one"));
}

TEST(PlanTest, KernelsThatOnlyTheHostHasAreToBePlacedThere) {
  KernelTable accelerator;
  accelerator.Add("scale", *CpuKernels().Find("scale"));
  PlanOptions options = Options();
  options.kernels = &accelerator;
  options.host_kernels = &CpuKernels();
  ProgramBuilder builder;
  Scale(builder, "x", "y");
  builder.Op("relu", {{"X", {"y"}}}, {{"Out", {"z"}}});
  EXPECT_THAT(
      Plan::Build(builder.Build(), options).status(),
      StatusIs(absl::StatusCode::kUnimplemented,
               "no kernel for 1 op type: relu (1 op, first op 1); the CPU has kernels: run the "
               "program with option:device cpu, or rewrite it with transpile option:place "
               "type:relu=cpu"));
  builder.Op("brand_new_op", {{"X", {"z"}}}, {{"Out", {"a"}}});
  EXPECT_THAT(Plan::Build(builder.Build(), options).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "no kernel for 2 op types: relu (1 op, first op 1), brand_new_op (1 op, "
                       "first op 2); docs/adding_an_op.md says how to add one"));
}

TEST(PlanTest, MissingKernelOfSequencesSaysWhatToDo) {
  ProgramBuilder builder;
  builder.Var("words", {-1, 4});
  builder.last_var().mutable_type()->mutable_lod_tensor()->set_lod_level(1);
  builder.Op("sequence_pool", {{"X", {"words"}}}, {{"Out", {"y"}}});
  EXPECT_THAT(
      Plan::Build(builder.Build(), Options()).status(),
      StatusIs(
          absl::StatusCode::kUnimplemented,
          "no kernel for 1 op type: sequence_pool (1 op, first op 0); sequence_pool needs "
          "sequences of several lengths (level-of-detail offsets of words), which the executor "
          "does not have: the program can be rewritten and verified, and Paddle runs it; to "
          "run it here, pad the sequences and give their lengths"));
}

// The looked-up rows of a table pass from op to op: emb@GRAD of fp32[10, 4].
ProgramBuilder SparseGradient() {
  ProgramBuilder builder;
  builder.Param("emb", {10, 4}).Var("ids", {3}, pb::VarType::INT64).Var("out@GRAD", {3, 4});
  builder.Rows("emb@GRAD", {10, 4});
  builder.Op("lookup_table_v2_grad", {{"W", {"emb"}}, {"Ids", {"ids"}}, {"Out@GRAD", {"out@GRAD"}}},
             {{"W@GRAD", {"emb@GRAD"}}});
  builder.BoolAttr("is_sparse", true);
  return builder;
}

TEST(PlanTest, WhatIsWrittenUnderOneNameIsCopiedToTheOther) {
  ProgramBuilder p;
  p.Var("x").Op("share_data", {{"X", {"x"}}}, {{"Out", {"y"}}});
  Scale(p, "x", "x");
  Scale(p, "y", "z");
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(p.Build(), Options()));
  ASSERT_EQ(plan.ops.size(), 4);
  EXPECT_EQ(plan.ops[2].type, "share_data");
  EXPECT_EQ(plan.ops[2].name, "op 1 (scale)");
  EXPECT_THAT(plan.ops[2].inputs, ElementsAre(plan.FindVariable("x")));
  EXPECT_THAT(plan.ops[2].outputs, ElementsAre(plan.FindVariable("y")));
}

TEST(PlanTest, ViewIsNotReadAfterAWriteToItsMemory) {
  ProgramBuilder p;
  p.Var("x").Op("share_data", {{"X", {"x"}}}, {{"Out", {"y"}}});
  p.Op("c_allreduce_sum", {{"X", {"x"}}}, {{"Out", {"x"}}}).IntAttr("ring_id", 0);
  Scale(p, "y", "z");
  EXPECT_THAT(Plan::Build(p.Build(), Options()),
              IsUnimplemented("op 1 (c_allreduce_sum) writes memory that y shares by op 0 "
                              "(share_data), and op 2 (scale) reads y afterwards"));
}

TEST(PlanTest, OpsWithSelectedRowsNeedKernelsForThem) {
  ProgramBuilder builder = SparseGradient();
  // Declared dense, without effect: it is the same rows.
  builder.Var("rows", {10, 4});
  builder.Op("scale", {{"X", {"emb@GRAD"}}}, {{"Out", {"rows"}}});
  builder.Op("relu", {{"X", {"rows"}}}, {{"Out", {"y"}}});
  builder.Op("c_broadcast", {{"X", {"rows"}}}, {{"Out", {"rows"}}});
  builder.Op("c_allreduce_max", {{"X", {"rows"}}}, {{"Out", {"rows"}}});
  builder.Op("relu", {{"X", {"emb"}}}, {{"Out", {"emb"}}});
  EXPECT_THAT(Plan::Build(builder.Build(), Options()).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "no kernel for 3 op types: relu with SelectedRows (1 op, first op 2), "
                       "c_broadcast with SelectedRows (1 op, first op 3), c_allreduce_max with "
                       "SelectedRows (1 op, first op 4); docs/adding_an_op.md says how to add "
                       "one"));
}

TEST(PlanTest, OpHasSelectedRowsAsTheyFollowFromOpToOp) {
  ProgramBuilder builder = SparseGradient();
  builder.Var("dense", {10, 4}).Var("sum", {10, 4});
  AllReduce(builder, "emb@GRAD", 0);
  builder.Op("sum", {{"X", {"emb@GRAD", "dense"}}}, {{"Out", {"sum"}}});
  builder.Op("relu", {{"X", {"sum"}}}, {{"Out", {"dense"}}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  std::vector<bool> has_rows;
  for (const Plan::PlanOp& op : plan.ops) has_rows.push_back(op.has_rows);
  EXPECT_THAT(has_rows, ElementsAre(true, true, true, false));
}

TEST(PlanTest, KernelThatRefusesAttributesIsNamedWithItsReason) {
  KernelTable kernels;
  kernels.Add("scale", [](const KernelSpec&) -> absl::StatusOr<Kernel> {
    return absl::UnimplementedError("attribute scale: only 1");
  });
  ProgramBuilder builder;
  Scale(builder, "x", "y");
  Scale(builder, "y", "z");
  PlanOptions options;
  options.kernels = &kernels;
  EXPECT_THAT(Plan::Build(builder.Build(), options).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "op 0 (scale): attribute scale: only 1; "
                       "op 1 (scale): attribute scale: only 1"));
}

TEST(PlanTest, SlotOfOneEmptyArgumentIsEmptyToTheKernel) {
  int scale_tensor = 0, x = -1, out = 0;
  KernelTable kernels;
  kernels.Add("scale", [&](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    scale_tensor = spec.Input("ScaleTensor");
    x = spec.Input("X");
    out = spec.Output("Out");
    return Kernel([](const KernelContext&) { return absl::OkStatus(); });
  });
  ProgramBuilder builder;
  builder.Op("scale", {{"ScaleTensor", {"@EMPTY@"}}, {"X", {"x"}}}, {{"Out", {"@EMPTY@"}}});
  PlanOptions options;
  options.kernels = &kernels;
  WEFT_ASSERT_OK(Plan::Build(builder.Build(), options).status());
  EXPECT_EQ(scale_tensor, -1);
  EXPECT_EQ(x, 1);
  EXPECT_EQ(out, -1);
}

// A worker whose push is on the host, with other ops.
constexpr char kWorker[] = R"(
    var w : fp32[2]
    var w@CPU : fp32[2]
    var lr : fp32[1] persistable
    Out=[w] = ps_pull() {server_key=0, shape=longs[2]}
    Out=[w] = stream_wait(X=[w]) {stream="d2h", awaited="compute"}
    Out=[w@CPU] = memcpy_d2h(X=[w])
    Out=[w@CPU] = stream_wait(X=[w@CPU]) {stream="cpu", awaited="d2h"}
    Out=[w@CPU] = scale(X=[w@CPU]) {op_device="cpu"}
)";

TEST(PlanTest, OpsOfServersAreOnOneStream) {
  const auto status = [](const std::string& push) {
    return Plan::Build(testing::BlockProgram(absl::StrCat(kWorker, push)), Options()).status();
  };
  WEFT_EXPECT_OK(status("    ps_push(Grad=[w], LearningRate=[]) {server_key=0}\n"));
  EXPECT_THAT(
      status("    ps_push(Grad=[w@CPU], LearningRate=[lr]) {server_key=0, op_device=\"cpu\"}\n"),
      IsInvalidArgument("op 5 (ps_push): expected to run on the accelerator, as op 0 (ps_pull): "
                        "ops of parameter servers are on one stream; found it on the host"));
}

TEST(PlanTest, RingsHaveStreamsInOrderOfTheirNumbers) {
  ProgramBuilder builder;
  AllReduce(builder, "a", 3);
  AllReduce(builder, "b", 1);
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(plan.stream_names, ElementsAre("compute", "ring 1", "ring 3"));
  EXPECT_THAT(Instructions(plan),
              ElementsAre("ring 3: op 0 (c_allreduce_sum)", "ring 1: op 1 (c_allreduce_sum)"));
}

TEST(PlanTest, CollectiveThatAsksForTheComputeStreamRunsThere) {
  ProgramBuilder builder;
  AllReduce(builder, "a", 0);
  auto* attr = builder.last_op().add_attrs();
  attr->set_name("use_calc_stream");
  attr->set_type(pb::BOOLEAN);
  attr->set_b(true);
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(Instructions(plan), ElementsAre("compute: op 0 (c_allreduce_sum)"));
  EXPECT_THAT(plan.rings, ElementsAre(RingKey{0, /*on_compute_stream=*/true}));
}

void SetGroup(ProgramBuilder& builder, const std::vector<int>& ranks) {
  auto* attr = builder.last_op().add_attrs();
  attr->set_name("group_ranks");
  attr->set_type(pb::INTS);
  for (int rank : ranks) attr->add_ints(rank);
}

TEST(PlanTest, RingsOverSomeRanksHaveTheseRanks) {
  ProgramBuilder builder;
  AllReduce(builder, "a", 1);
  SetGroup(builder, {0, 2});
  AllReduce(builder, "b", 2);
  SetGroup(builder, {0, 1, 2, 3});
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options(4)));
  EXPECT_THAT(plan.rings, ElementsAre(RingKey{1, false, {0, 2}}, RingKey{2, false}));
}

TEST(PlanTest, WrongGroupsOfRanksAreRefused) {
  const auto status_of = [](const std::vector<int>& first, const std::vector<int>& second) {
    ProgramBuilder builder;
    AllReduce(builder, "a", 1);
    SetGroup(builder, first);
    AllReduce(builder, "a", 1);
    if (!second.empty()) SetGroup(builder, second);
    return Plan::Build(builder.Build(), Options(4)).status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(status_of({0, 4}, {0, 4}),
              StatusIs(kInvalid,
                       "op 0 (c_allreduce_sum) attribute group_ranks: expected ranks "
                       "below 4, the number of ranks of the run, found 4"));
  EXPECT_THAT(status_of({0, 1}, {0, 2}),
              StatusIs(kInvalid,
                       "op 1 (c_allreduce_sum) attribute group_ranks: expected ranks 0, "
                       "1, as for other ops on ring 1, found ranks 0, 2"));
  EXPECT_THAT(status_of({0, 1}, {}), StatusIs(kInvalid, HasSubstr("found all ranks")));
  EXPECT_THAT(status_of({1, 0}, {1, 0}),
              StatusIs(kInvalid, HasSubstr("expected distinct ranks in ascending order")));
}

ProgramBuilder Sends(int peer) {
  ProgramBuilder builder;
  builder.Param("x", {4}).Op("send_v2", {{"X", {"x"}}}, {}).IntAttr("peer", peer);
  return builder;
}

TEST(PlanTest, MessagesConnectTwoRanks) {
  PlanOptions options = Options(4);
  options.rank = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(Sends(0).Build(), options));
  EXPECT_THAT(plan.rings, ElementsAre(RingKey{0, false, {0, 2}}));
  EXPECT_EQ(plan.ops[0].ring_work()->desc.root, 1);
  EXPECT_EQ(plan.ops[0].ring_work()->desc.peer, 0);
  EXPECT_THAT(Instructions(plan), ElementsAre("ring 0: op 0 (send_v2)"));
}

TEST(PlanTest, MessagesNeedOneRankAndAPeer) {
  EXPECT_THAT(Plan::Build(Sends(1).Build(), Options(4)),
              IsFailedPrecondition("op 0 (send_v2): sends to one rank, but several ranks"));
  PlanOptions options = Options(4);
  options.rank = 2;
  for (const int peer : {2, 4}) {
    EXPECT_THAT(Plan::Build(Sends(peer).Build(), options),
                IsInvalidArgument("op 0 (send_v2) attribute peer: expected another rank than 2, 0 "
                                  "or more and below 4, found "));
  }
  EXPECT_THAT(Plan::Build(Sends(0).BoolAttr("dynamic_shape", true).Build(), options),
              IsUnimplemented("dynamic_shape"));
}

TEST(PlanTest, CollectivesOverSomeRanksWorkInPlace) {
  ProgramBuilder builder;
  builder.Op("c_allreduce_sum", {{"X", {"a"}}}, {{"Out", {"b"}}});
  SetGroup(builder, {0, 1});
  EXPECT_THAT(Plan::Build(builder.Build(), Options(4)), IsUnimplemented("works in place"));
}

TEST(PlanTest, WaitsAreARecordOnOneStreamAndAWaitOnTheOther) {
  ProgramBuilder builder;
  Scale(builder, "x", "g");
  Sync(builder, "c_wait_compute", "g", 0);
  AllReduce(builder, "g", 0);
  Sync(builder, "c_wait_comm", "g", 0);
  Scale(builder, "g", "y");
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(Instructions(plan),
              ElementsAre("compute: op 0 (scale)", "compute: record 0", "ring 0: wait 0",
                          "ring 0: op 2 (c_allreduce_sum)", "ring 0: record 1", "compute: wait 1",
                          "compute: op 4 (scale)"));
}

TEST(PlanTest, SyncOpsMakeAllOtherStreamsWait) {
  ProgramBuilder builder;
  Sync(builder, "c_sync_calc_stream", "a");
  AllReduce(builder, "a", 0);
  AllReduce(builder, "b", 1);
  Sync(builder, "c_sync_comm_stream", "a", 1);
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(Instructions(plan),
              ElementsAre("compute: record 0", "ring 0: wait 0", "ring 1: wait 0",
                          "ring 0: op 1 (c_allreduce_sum)", "ring 1: op 2 (c_allreduce_sum)",
                          "ring 1: record 1", "compute: wait 1", "ring 0: wait 1"));
}

TEST(PlanTest, StrictHostSyncBlocksTheHost) {
  ProgramBuilder builder;
  Sync(builder, "c_sync_calc_stream", "a");
  AllReduce(builder, "a", 0);
  Sync(builder, "c_sync_comm_stream", "a", 0);
  PlanOptions options = Options();
  options.strict_host_sync = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), options));
  EXPECT_THAT(
      Instructions(plan),
      ElementsAre("compute: synchronize", "ring 0: op 1 (c_allreduce_sum)", "ring 0: synchronize"));
}

TEST(PlanTest, SyncWithARingThatHasNoStreamOrdersNothing) {
  ProgramBuilder builder;
  Sync(builder, "c_wait_compute", "a", 5);
  Sync(builder, "c_wait_comm", "a", 5);
  Sync(builder, "c_sync_comm_stream", "a", 5);
  Sync(builder, "c_sync_calc_stream", "a");
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(Instructions(plan), IsEmpty());
}

ProgramBuilder CommInit(int nranks, int rank) {
  ProgramBuilder builder;
  builder.Op("c_comm_init", {{"X", {"id"}}}, {}).IntAttr("nranks", nranks).IntAttr("rank", rank);
  return builder;
}

TEST(PlanTest, RingSetUpDoesNoWorkAndItsRankIsNotLookedAt) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan,
                            Plan::Build(CommInit(2, 1).Build(), Options(/*nranks=*/2)));
  EXPECT_THAT(plan.instructions, IsEmpty());
}

TEST(PlanTest, RingStreamsWaitForComputationBeforeRingSetUp) {
  ProgramBuilder builder = CommInit(2, 0);
  AllReduce(builder, "a", 0);
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(Instructions(plan),
              ElementsAre("compute: record 0", "ring 0: wait 0", "ring 0: op 1 (c_allreduce_sum)"));
}

TEST(PlanTest, RingSetUpForAnotherNumberOfRanksIsAnError) {
  EXPECT_THAT(Plan::Build(CommInit(4, 0).Build(), Options(/*nranks=*/2)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (c_comm_init): written for 4 ranks (attribute nranks), but the run "
                       "has 2"));
}

// A pass wrote it, on an op whose schema does not have it.
TEST(PlanTest, NumberOfRanksOnAnyOpMustBeThatOfTheRun) {
  ProgramBuilder builder;
  builder.Var("loss@GRAD", {1});
  builder.Op("scale", {{"X", {"loss@GRAD"}}}, {{"Out", {"loss@GRAD"}}}).IntAttr("nranks", 4);
  EXPECT_THAT(Plan::Build(builder.Build(), Options(/*nranks=*/2)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (scale): written for 4 ranks (attribute nranks), but the run has 2"));
}

absl::StatusOr<Plan> WithAccumulateType(const std::string& type) {
  ProgramBuilder builder;
  AllReduce(builder, "a", 0);
  pb::ProgramDesc proto = builder.Build().ToProto();
  *proto.mutable_blocks(0)->mutable_ops(0)->add_attrs() = MakeAttr(kAccumulateTypeAttr, type);
  WEFT_ASSIGN_OR_RETURN(const Program program, Program::FromProto(proto));
  return Plan::Build(program, Options());
}

TEST(PlanTest, CollectiveSaysHowHalfPrecisionIsAdded) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan native, WithAccumulateType("native"));
  EXPECT_TRUE(native.ops[0].ring_work()->desc.rounds_each_addition);
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan fp32, WithAccumulateType("fp32"));
  EXPECT_FALSE(fp32.ops[0].ring_work()->desc.rounds_each_addition);
  EXPECT_THAT(WithAccumulateType("fp64").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (c_allreduce_sum): attribute accumulate_type: expected fp32 or "
                       "native, found 'fp64'"));
}

TEST(PlanTest, MomentsOverTheBatchesOfAllRanksAreGathered) {
  ProgramBuilder builder;
  for (const char* name : {"scale", "bias", "mean", "variance"}) builder.Var(name, {3});
  builder.Var("x", {8, 3}).Var("y", {8, 3});
  builder.Op("sync_batch_norm",
             {{"X", {"x"}},
              {"Scale", {"scale"}},
              {"Bias", {"bias"}},
              {"Mean", {"mean"}},
              {"Variance", {"variance"}}},
             {{"Y", {"y"}}, {"MeanOut", {"mean"}}, {"VarianceOut", {"variance"}}});
  const Program program = builder.Build();
  const auto types = [&](int nranks) {
    std::vector<std::string> found;
    const absl::StatusOr<Plan> plan = Plan::Build(program, Options(nranks));
    for (const Plan::PlanOp& op : plan->ops) found.push_back(op.type);
    return found;
  };
  EXPECT_THAT(types(1), ElementsAre("sync_batch_norm"));
  EXPECT_THAT(types(2), ElementsAre("sync_batch_norm_sums", "all-gather", "sync_batch_norm"));
}

TEST(PlanTest, TypesThatDoNotFitAreAnErrorBeforeAnythingRuns) {
  ProgramBuilder builder;
  builder.Var("a", {4, 3}).Var("b", {5, 6});
  builder.Op("mul", {{"X", {"a"}}, {"Y", {"b"}}}, {{"Out", {"c"}}});
  EXPECT_THAT(Plan::Build(builder.Build(), Options()).status(), IsInvalidArgument("op 0 (mul)"));
}

TEST(PlanTest, SlotThatTheSchemaDoesNotHaveIsAnError) {
  ProgramBuilder builder;
  Scale(builder, "a", "b");
  builder.Op("scale", {{"X", {"a"}}, {"Newer", {}}}, {{"Out", {"b"}}});  // holds nothing
  WEFT_EXPECT_OK(Plan::Build(builder.Build(), Options()).status());
  builder.Op("scale", {{"X", {"a"}}, {"Newer", {"b"}}}, {{"Out", {"b"}}});
  EXPECT_THAT(
      Plan::Build(builder.Build(), Options()).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, "op 2 (scale) input Newer: unknown slot"));
}

TEST(PlanTest, CollectivesHaveNoUnknownSlotsEither) {
  ProgramBuilder builder;
  builder.Op("c_allreduce_sum", {{"X", {"a"}}}, {{"Out", {"a"}}, {"Newer", {"b"}}});
  EXPECT_THAT(Plan::Build(builder.Build(), Options()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (c_allreduce_sum) output Newer: unknown slot"));
}

TEST(PlanTest, VariableKnowsWhoReadsItBeforeItIsWritten) {
  ProgramBuilder builder;
  Scale(builder, "x", "y");
  Scale(builder, "y", "z");
  Scale(builder, "w", "y");
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  const auto first_reader = [&](const char* name) -> std::string {
    const int reader = plan.variables[plan.FindVariable(name)].first_reader;
    return reader < 0 ? "nobody" : plan.reader_names[reader];
  };
  EXPECT_EQ(first_reader("x"), "op 0 (scale)");
  EXPECT_EQ(first_reader("y"), "nobody");
  EXPECT_EQ(first_reader("w"), "op 2 (scale)");
  EXPECT_EQ(plan.FindVariable("nobody"), Plan::kNoVariable);
}

TEST(PlanTest, EmptyArgumentIsNoVariable) {
  ProgramBuilder builder;
  builder.Op("elementwise_add_grad", {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"g"}}},
             {{"X@GRAD", {"@EMPTY@"}}, {"Y@GRAD", {"yg"}}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(plan.ops[0].outputs, ElementsAre(Plan::kNoVariable, plan.FindVariable("yg")));
}

TEST(PlanTest, FeedAndFetchOpsGiveNoInstructions) {
  ProgramBuilder builder;
  builder.Op("feed", {{"X", {"feed"}}}, {{"Out", {"x"}}});
  Scale(builder, "x", "y");
  builder.Op("fetch", {{"X", {"y"}}}, {{"Out", {"fetch"}}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(Instructions(plan), ElementsAre("compute: op 1 (scale)"));
  EXPECT_TRUE(plan.variables[plan.FindVariable("x")].is_feed);
}

TEST(PlanTest, DataThatIsNotMarkedIsFed) {
  ProgramBuilder builder;
  Scale(builder, "x", "y");
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_TRUE(plan.variables[plan.FindVariable("x")].is_feed);
  EXPECT_FALSE(plan.variables[plan.FindVariable("y")].is_feed);
}

TEST(PlanTest, LossesAreTheOutputsOfLossOpsInOrder) {
  ProgramBuilder builder;
  builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"loss_b"}}}, kRoleLoss);
  builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"loss_b@GRAD"}}}, kRoleLoss | kRoleBackward);
  builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"loss_a"}}}, kRoleLoss);
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(plan.losses, ElementsAre(plan.FindVariable("loss_b"), plan.FindVariable("loss_a")));
}

TEST(PlanTest, LossIsTheOutputWithAFilledGradient) {
  ProgramBuilder builder;
  builder.Var("label", {2, 1}, pb::VarType::INT64);
  builder.Var("loss", {2, 1});
  builder.Op("softmax_with_cross_entropy", {{"Logits", {"x"}}, {"Label", {"label"}}},
             {{"Softmax", {"softmax"}}, {"Loss", {"loss"}}}, kRoleLoss);
  builder.Op("scale", {{"X", {"loss"}}}, {{"Out", {"loss@GRAD"}}}, kRoleLoss | kRoleBackward);
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(plan.losses, ElementsAre(plan.FindVariable("loss")));
}

// --- Blocks that run on a condition -------------------------------------------------------------

ProgramBuilder Conditional() {
  ProgramBuilder builder;
  builder.Var("cond", {1}, pb::VarType::BOOL).Var("g", {1});
  builder.last_var().set_persistable(true);
  Scale(builder, "g", "g");
  builder.Op("conditional_block", {{"Cond", {"cond"}}, {"Input", {"g"}}}, {{"Out", {"g"}}});
  builder.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 1);
  Scale(builder, "g", "g");
  builder.NewBlock(0);
  return builder;
}

TEST(PlanTest, ConditionalBlockIsABranchAroundItsInstructions) {
  ProgramBuilder builder = Conditional();
  Sync(builder, "c_wait_compute", "g");
  AllReduce(builder, "g", 0);
  Sync(builder, "c_wait_comm", "g");
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(Instructions(plan),
              ElementsAre("compute: op 0 (scale)",                             //
                          "compute: unless op 1 (conditional_block) go to 7",  //
                          "compute: record 0", "ring 0: wait 0",               //
                          "ring 0: block 1, op 1 (c_allreduce_sum)",           //
                          "ring 0: record 1", "compute: wait 1",               //
                          "compute: op 2 (scale)"));
}

TEST(PlanTest, VariablesOfABlockHideThoseAroundIt) {
  ProgramBuilder builder = Conditional();
  builder.Var("g", {3});
  Scale(builder, "g", "g");
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  const Plan::PlanOp& inner = plan.ops[1];
  EXPECT_EQ(inner.name, "block 1, op 0 (scale)");
  EXPECT_NE(inner.inputs[0], plan.FindVariable("g"));
  EXPECT_EQ(plan.variables[inner.inputs[0]].declared->dims, (Dims{3}));
}

// Blocks of the root that make the same buffer have one variable for it.
TEST(PlanTest, BlocksShareTheirBuffersOfTheSameParts) {
  // The variables that the ops which make buffers write.
  const auto buffers = [](const std::string& block_1, const std::string& block_2,
                          const std::string& root = "", int parent_of_2 = 0) {
    const auto run = [](int block) {
      return absl::StrCat("    Scope=[scopes] = conditional_block(Cond=[due]) {sub_block=block(",
                          block, "), is_scalar_condition=true}\n");
    };
    const absl::StatusOr<Program> program = ParseProgramText(
        BlockText(absl::StrCat("    var a : fp32[2] persistable\n    var b : fp32[2] persistable\n "
                               "   var due : bool[1] persistable\n"
                               "    var scopes : step_scopes\n",
                               root, run(1), parent_of_2 == 0 ? run(2) : ""),
                  absl::StrCat("  block 1 parent=0 {\n", block_1, parent_of_2 == 1 ? run(2) : "",
                               "  }\n  block 2 parent=", parent_of_2, " {\n", block_2, "  }\n")));
    std::set<int> variables;
    if (!program.ok()) {
      ADD_FAILURE() << program.status();
      return variables;
    }
    const absl::StatusOr<Plan> plan = Plan::Build(*program, Options());
    if (!plan.ok()) {
      ADD_FAILURE() << plan.status();
      return variables;
    }
    for (const Plan::PlanOp& op : plan->ops) {
      if (op.type == "coalesce_tensor") variables.insert(op.outputs[0]);
    }
    return variables;
  };
  const auto make = [](const std::string& name, const std::string& parts = "a, b") {
    return absl::StrCat("    FusedOutput=[", name, "], Output=[", parts,
                        "] = coalesce_tensor(Input=[", parts, "]) {copy_data=true, dtype=5}\n");
  };
  const std::string f = "    var f : fp32[-1]\n", g = "    var g : fp32[-1]\n";
  EXPECT_EQ(buffers(f + make("f"), g + make("g")).size(), 1);
  EXPECT_EQ(buffers(f + make("f"), g + make("g", "b, a")).size(), 2) << "other parts";
  EXPECT_EQ(buffers(f + make("f"), "    var g : fp32[1024]\n" + make("g")).size(), 2)
      << "another size";
  EXPECT_EQ(buffers(f + make("f"), g + make("g"), "", 1).size(), 2) << "a block in the block";
  EXPECT_EQ(buffers(make("f"), make("g"), f + g).size(), 2) << "variables of the root";
  EXPECT_EQ(buffers(f + make("f"), "    var g : fp32[-1] persistable\n" + make("g")).size(), 2)
      << "a state";
  EXPECT_EQ(buffers(f + g + make("f") + make("g"), "").size(), 2) << "of one block";
}

TEST(PlanTest, TypesAreCheckedAndKernelsMissedInBlocksToo) {
  ProgramBuilder builder = Conditional();
  builder.Op("brand_new_op", {{"X", {"g"}}}, {{"Out", {"g"}}});
  EXPECT_THAT(Plan::Build(builder.Build(), Options()).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "no kernel for 1 op type: brand_new_op (1 op, first block 1, op 0); "
                       "docs/adding_an_op.md says how to add one"));
  builder = Conditional();
  builder.Var("h", {1}, pb::VarType::INT64);
  builder.Op("elementwise_add", {{"X", {"g"}}, {"Y", {"h"}}}, {{"Out", {"g"}}});
  EXPECT_THAT(Plan::Build(builder.Build(), Options()).status(),
              IsInvalidArgument("block 1, op 0 (elementwise_add) input Y"));
}

TEST(PlanTest, ConditionThatNothingWritesIsReadByItsOp) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(Conditional().Build(), Options()));
  const Plan::Variable& cond = plan.variables[plan.FindVariable("cond")];
  ASSERT_GE(cond.first_reader, 0);
  EXPECT_EQ(plan.reader_names[cond.first_reader], "op 1 (conditional_block)");
}

TEST(PlanTest, LoopIsABranchThatIsTakenAgain) {
  ProgramBuilder builder;
  builder.Var("more", {1}, pb::VarType::BOOL);
  builder.Op("while", {{"X", {"x"}}, {"Condition", {"more"}}},
             {{"Out", {"x"}}, {"StepScopes", {}}});
  builder.BlockAttr("sub_block", 1).NewBlock(0);
  Scale(builder, "x", "x");
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_THAT(Instructions(plan), ElementsAre("compute: unless op 0 (while) go to 2",
                                              "compute: block 1, op 0 (scale)"));
  EXPECT_TRUE(plan.branches[0].is_loop);
  EXPECT_EQ(plan.reader_names[plan.variables[plan.FindVariable("more")].first_reader],
            "op 0 (while)");
}

TEST(PlanTest, LoopWithoutConditionOrBlockIsAnError) {
  ProgramBuilder builder;
  builder.Op("while", {{"Condition", {}}}, {}).BlockAttr("sub_block", 1).NewBlock(0);
  EXPECT_THAT(Plan::Build(builder.Build(), Options()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (while) input Condition: expected one variable, found 0"));
  ProgramBuilder without_block;
  without_block.Var("more", {1}, pb::VarType::BOOL).Op("while", {{"Condition", {"more"}}}, {});
  EXPECT_THAT(Plan::Build(without_block.Build(), Options()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (while) attribute sub_block: expected BLOCK, found none"));
}

// Values that forward left are available in backward, in blocks too.
TEST(PlanTest, BlockOfGradientsSeesTheVariablesOfItsForwardBlock) {
  ProgramBuilder builder = Conditional();
  builder.Var("t", {3});
  Scale(builder, "t", "t");
  builder.InBlock(0).Op("conditional_block", {{"Cond", {"cond"}}}, {});
  builder.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 2);
  builder.NewBlock(0);
  pb::ProgramDesc desc = builder.desc();
  desc.mutable_blocks(2)->set_forward_block_idx(1);
  pb::OpDesc* op = desc.mutable_blocks(2)->add_ops();
  *op = desc.blocks(1).ops(0);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::FromProto(desc));
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(program, Options()));
  ASSERT_EQ(plan.ops.back().name, "block 2, op 0 (scale)");
  EXPECT_EQ(plan.ops.back().inputs, plan.ops[1].inputs);
}

TEST(PlanTest, GradientsOfABranchNeedTheirInputs) {
  const auto build = [](const std::vector<std::string>& inputs) {
    ProgramBuilder builder;
    builder.Var("cond", {1}, pb::VarType::BOOL);
    builder.Op("conditional_block_grad", {{"Cond", {"cond"}}, {"Input", inputs}},
               {{"Input@GRAD", {"g"}}}, kRoleBackward);
    builder.BlockAttr("sub_block", 1).NewBlock(0);
    return Plan::Build(builder.Build(), Options()).status();
  };
  EXPECT_THAT(build({"@EMPTY@"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (conditional_block_grad) input Input: expected a variable, as "
                       "Input@GRAD has one at this position"));
  EXPECT_THAT(build({"x", "y"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (conditional_block_grad) output Input@GRAD: expected 2 variables, as "
                       "in Input, found 1"));
}

// Each of many blocks is entered twice from the outer one: 2^20 ways to the innermost.
TEST(PlanTest, BlockOfSeveralOpsAppearsOnce) {
  ProgramBuilder builder;
  builder.Var("cond", {1}, pb::VarType::BOOL);
  for (int block = 0; block < 20; ++block) {
    if (block > 0) builder.NewBlock(0);
    for (int way = 0; way < 2; ++way) {
      builder.Op("conditional_block", {{"Cond", {"cond"}}}, {});
      builder.BlockAttr("sub_block", block + 1);
    }
  }
  builder.NewBlock(0);
  Scale(builder, "x", "x");
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), Options()));
  EXPECT_EQ(plan.instructions.size(), 41);
  EXPECT_EQ(plan.branches[0].begin, plan.branches[39].begin);
  EXPECT_EQ(plan.branches[0].end, plan.branches[39].end);
  EXPECT_EQ(plan.branches[39].next, 41);
}

}  // namespace
}  // namespace weft::testing
