#include "ops/analysis/core/type_flow.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// "relu fp32[3] -> fp32[3]" for each op that is visited: the types of its inputs, and what its
// outputs have after it.
std::vector<std::string> Steps(const Program& program) {
  TypeFlow flow(program);
  std::vector<std::string> texts;
  const auto text = [&](TypeId id) {
    const auto& type = flow.types().type(id);
    return type.has_value() ? ToString(*type) : "?";
  };
  EXPECT_TRUE(flow.Run(0, [&](const TypeFlow::Step& step) {
    std::string line(step.op.type());
    for (TypeId id : step.inputs) absl::StrAppend(&line, " ", text(id));
    absl::StrAppend(&line, step.fits ? " ->" : " !");
    for (VarId var : step.outputs) {
      absl::StrAppend(&line, " ", var.valid() ? text(flow.current(var)) : "none");
    }
    texts.push_back(line);
    return true;
  }));
  return texts;
}

TEST(TypeFlow, InferredTypesReplaceDeclaredOnes) {
  ProgramBuilder p;
  p.Var("x", {3}).Var("y", {4}).Var("z", {5});
  p.Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  p.Op("relu", {{"X", {"y"}}}, {{"Out", {"z"}}});
  EXPECT_THAT(Steps(p.Build()), ElementsAre("relu fp32[3] -> fp32[3]", "relu fp32[3] -> fp32[3]"));
}

TEST(TypeFlow, DeclaredTypeHoldsIfNothingIsInferred) {
  ProgramBuilder p;
  p.Var("x", {3}).Var("y", {4});
  p.Op("my_op", {{"X", {"x"}}}, {{"Out", {"y"}}});
  p.Op("mul", {{"X", {"x"}}, {"Y", {"x", "x"}}}, {{"Out", {"y"}}});
  EXPECT_THAT(Steps(p.Build()),
              ElementsAre("my_op fp32[3] -> fp32[4]", "mul fp32[3] fp32[3] fp32[3] ! fp32[4]"));
}

TEST(TypeFlow, DeclaredOneElementMeansScalar) {
  ProgramBuilder p;
  p.Var("x", {3}).Var("old", {1}).Var("other", {2});
  p.Op("mean", {{"X", {"x"}}}, {{"Out", {"old"}}});
  p.Op("mean", {{"X", {"x"}}}, {{"Out", {"other"}}});
  EXPECT_THAT(Steps(p.Build()), ElementsAre("mean fp32[3] -> fp32[1]", "mean fp32[3] -> fp32[]"));
}

TEST(TypeFlow, BlockComesBeforeTheOpThatRunsItAndOnce) {
  ProgramBuilder p;
  p.Var("x", {3}).Var("y", {4}).Var("cond", {1}, pb::VarType::BOOL);
  for (int i = 0; i < 2; ++i) {
    p.Op("conditional_block", {{"Cond", {"cond"}}}, {}).BlockAttr("sub_block", 1);
  }
  p.Op("relu", {{"X", {"y"}}}, {{"Out", {"@EMPTY@"}}});
  p.NewBlock(0).Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  p.NewBlock(0).Op("tanh", {{"X", {"x"}}}, {{"Out", {"y"}}});
  EXPECT_THAT(Steps(p.Build()),
              ElementsAre("relu fp32[3] -> fp32[3]", "conditional_block bool[1] ->",
                          "conditional_block bool[1] ->", "relu fp32[3] -> none"));
}

TEST(TypeFlow, VisitorStopsIt) {
  ProgramBuilder p;
  for (int i = 0; i < 3; ++i) p.Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  const Program program = p.Build();
  TypeFlow flow(program);
  int visited = 0;
  EXPECT_FALSE(flow.Run(0, [&](const TypeFlow::Step& step) {
    EXPECT_EQ(step.op.position(), visited);
    return ++visited < 2;
  }));
  EXPECT_EQ(visited, 2);
}

TEST(IsScalarAndOne, ComparesDimensionsOfOneElementType) {
  const TensorType scalar = {DType::kFloat32, {}}, one = {DType::kFloat32, {1}};
  EXPECT_TRUE(IsScalarAndOne(scalar, one));
  EXPECT_TRUE(IsScalarAndOne(one, scalar));
  EXPECT_FALSE(IsScalarAndOne(one, one));
  EXPECT_FALSE(IsScalarAndOne(scalar, {DType::kFloat64, {1}}));
  EXPECT_FALSE(IsScalarAndOne(scalar, {DType::kFloat32, {1, 1}}));
  EXPECT_FALSE(IsScalarAndOne(scalar, {DType::kFloat32, {-1}}));
}

}  // namespace
}  // namespace weft::testing
