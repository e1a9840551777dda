#include "transpiler/passes/updates/optimizer_writer.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

OptimizerSettings Of(OptimizerType type) {
  OptimizerSettings settings;
  settings.type = type;
  return settings;
}
const ScheduleValue kDecaying{0.5, ScheduleValue::Decay{10, 0.75, false}};

struct Written {
  std::vector<std::string> ops;            // types of what one step emits
  std::vector<std::string> reads, writes;  // persistable variables
  std::vector<std::string> initialized;    // by startup ops
};

// What updates parameter w.
Written Write(const OptimizerSettings& settings, const std::string& skip = "") {
  Program main = CompactProgram(R"(
    var found : bool[1]
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD] {scale=1.0}
  )");
  Program startup = CompactProgram("var w : fp32[2, 2] parameter persistable");
  ProgramEdits edits(ProgramPair{&main, &startup});
  OptimizerWriter writer(settings, "scope", 0, &edits);
  Written written;
  const auto emit = [&](const pb::OpDesc& op) {
    written.ops.push_back(op.type());
    edits.main.Append(0, op);
  };
  writer.WriteSchedules(emit);
  writer.WriteUpdate({"w", "w@GRAD", DType::kFloat32, {2, 2}, false, skip}, emit);
  writer.WriteStep(emit);
  WEFT_EXPECT_OK(edits.Commit().status());
  written.reads = writer.reads();
  written.writes = writer.writes();
  for (OpId id : startup.block(0).ops()) {
    written.initialized.emplace_back(startup.name(startup.op(id).output_args()[0]));
  }
  return written;
}

TEST(OptimizerWriter, FormulaThatAnOpComputesIsThatOp) {
  const Written sgd = Write(Of(OptimizerType::kSgd));
  EXPECT_THAT(sgd.ops, ElementsAre("sgd"));
  EXPECT_THAT(sgd.reads, ElementsAre("learning_rate_0"));
  EXPECT_THAT(sgd.writes, IsEmpty());
  EXPECT_THAT(sgd.initialized, ElementsAre("learning_rate_0"));

  OptimizerSettings momentum = Of(OptimizerType::kSgd);
  momentum.momentum = {0.9};
  EXPECT_THAT(Write(momentum).ops, ElementsAre("momentum"));
  EXPECT_THAT(Write(momentum).writes, ElementsAre("w_velocity_0"));

  EXPECT_THAT(Write(Of(OptimizerType::kRmsProp)).ops, ElementsAre("rmsprop"));
  const Written adam = Write(Of(OptimizerType::kAdam));
  EXPECT_THAT(adam.ops, ElementsAre("adam"));
  EXPECT_THAT(adam.writes, SizeIs(4));  // two moments, two powers
  EXPECT_THAT(adam.initialized, SizeIs(5));
}

TEST(OptimizerWriter, DecayOfWeightsIsAddedToANewVariable) {
  OptimizerSettings settings = Of(OptimizerType::kSgd);
  settings.weight_decay = {0.125};
  EXPECT_THAT(Write(settings).ops, ElementsAre("scale", "sum", "sgd"));
}

TEST(OptimizerWriter, OtherFormulasEndInAnOpSgd) {
  EXPECT_EQ(Write(Of(OptimizerType::kAdaGrad)).ops.back(), "sgd");
  OptimizerSettings rmsprop = Of(OptimizerType::kRmsProp);
  rmsprop.rho = kDecaying;
  const std::vector<std::string> ops = Write(rmsprop).ops;
  EXPECT_THAT(ops, ::testing::Not(::testing::Contains("rmsprop")));
  EXPECT_EQ(ops[ops.size() - 2], "sgd");
}

TEST(OptimizerWriter, WhatDecaysComesFromACounterThatTheStepIncrements) {
  OptimizerSettings settings = Of(OptimizerType::kSgd);
  settings.lr = kDecaying;
  const Written written = Write(settings);
  EXPECT_THAT(written.ops, ElementsAre("cast", "fill_constant", "elementwise_div", "fill_constant",
                                       "elementwise_pow", "scale", "sgd", "increment"));
  EXPECT_THAT(written.writes, ElementsAre("step_counter_0"));
  EXPECT_THAT(written.initialized, ElementsAre("step_counter_0"));
}

TEST(OptimizerWriter, AdamAloneCanSkip) {
  EXPECT_TRUE(OptimizerWriter::CanSkip(Of(OptimizerType::kAdam)));
  EXPECT_FALSE(OptimizerWriter::CanSkip(Of(OptimizerType::kSgd)));
  EXPECT_THAT(Write(Of(OptimizerType::kAdam), "found").ops, ElementsAre("adam"));
}

}  // namespace
}  // namespace weft::testing
