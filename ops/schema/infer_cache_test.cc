#include "ops/schema/infer_cache.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// A cache over a program, whose variables have their declared types.
class Cache {
 public:
  explicit Cache(Program program) : program_(std::move(program)), cache_(program_, &types_) {}

  // The outputs of the n-th op, as text; "?" for what is not known, "error" where it does not fit.
  std::vector<std::string> Infer(int n) {
    const Op op = program_.op(program_.block(0).ops()[n]);
    const auto outputs = cache_.Infer(op, Inputs(op));
    if (!outputs.has_value()) return {"error"};
    std::vector<std::string> texts;
    for (TypeId id : *outputs) {
      texts.push_back(id == kUnknownType ? "?" : ToString(*types_.type(id)));
    }
    return texts;
  }
  absl::Status Error(int n) {
    const Op op = program_.op(program_.block(0).ops()[n]);
    return cache_.Error(op, Inputs(op));
  }
  size_t size() const { return cache_.size(); }

 private:
  std::vector<TypeId> Inputs(const Op& op) {
    std::vector<TypeId> inputs;
    for (Symbol name : op.input_args()) {
      const VarId var = program_.block(0).FindVar(name);
      inputs.push_back(var.valid() ? types_.Intern(DeclaredType(program_.var(var))) : kUnknownType);
    }
    return inputs;
  }

  Program program_;
  TypeTable types_;
  InferCache cache_;
};

TEST(InferCache, EqualOpsAreInferredOnce) {
  ProgramBuilder p;
  p.Var("a", {3}).Var("b", {3});
  p.Op("relu", {{"X", {"a"}}}, {{"Out", {"c"}}});
  p.Op("relu", {{"X", {"b"}}}, {{"Out", {"d"}}});
  Cache cache(p.Build());
  EXPECT_THAT(cache.Infer(0), ElementsAre("fp32[3]"));
  EXPECT_THAT(cache.Infer(1), ElementsAre("fp32[3]"));
  EXPECT_EQ(cache.size(), 1u);
}

TEST(InferCache, TypesOfInputsTellOpsApart) {
  ProgramBuilder p;
  p.Var("a", {3}).Var("b", {4}).Var("h", {3}, pb::VarType::FP16).Rows("r", {3});
  p.Var("s").last_var().mutable_type()->set_type(pb::VarType::RAW);
  for (const char* x : {"a", "b", "h", "r", "s"}) {
    p.Op("relu", {{"X", {x}}}, {{"Out", {"out"}}});
  }
  Cache cache(p.Build());
  EXPECT_THAT(cache.Infer(0), ElementsAre("fp32[3]"));
  EXPECT_THAT(cache.Infer(1), ElementsAre("fp32[4]"));
  EXPECT_THAT(cache.Infer(2), ElementsAre("fp16[3]"));
  EXPECT_THAT(cache.Infer(3), ElementsAre("rows fp32[3]"));
  EXPECT_THAT(cache.Infer(4), ElementsAre("?"));
  EXPECT_EQ(cache.size(), 5u);
}

TEST(InferCache, AttributesOfTheSchemaTellOpsApartAndOthersDoNot) {
  ProgramBuilder p;
  p.Var("x", {3, 4}).Var("y", {4, 3});
  const auto matmul = [&](bool trans_x, int role, const char* other) {
    p.Op("matmul_v2", {{"X", {"x"}}, {"Y", {trans_x ? "x" : "y"}}}, {{"Out", {"out"}}}, role);
    p.Pairs({other, other});
    p.BoolAttr("trans_x", trans_x).BoolAttr("trans_y", false);
  };
  matmul(false, kRoleForward, "a");
  matmul(false, kRoleBackward, "a much longer name");
  matmul(true, kRoleForward, "a");
  Cache cache(p.Build());
  EXPECT_THAT(cache.Infer(0), ElementsAre("fp32[3, 3]"));
  EXPECT_THAT(cache.Infer(1), ElementsAre("fp32[3, 3]"));
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_THAT(cache.Infer(2), ElementsAre("fp32[4, 4]"));
  EXPECT_EQ(cache.size(), 2u);
}

// The bytes of a field of up to 127 bytes.
std::string Field(int number, const std::string& payload) {
  EXPECT_LT(payload.size(), 128u);
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(payload.size()) +
         payload;
}

// No writer puts is_target, a number, before the attributes, but it may stand there.
TEST(InferCache, AttributesAreFoundAfterFieldsOfOtherKinds) {
  ProgramBuilder p;
  p.Var("x", {3, 4});
  for (const int axis : {0, 1}) {
    p.Op("concat", {{"X", {"x", "x"}}}, {{"Out", {"out"}}}).IntAttr("axis", axis);
  }
  pb::ProgramDesc desc = p.desc();
  pb::BlockDesc* block = desc.mutable_blocks(0);
  std::string ops;
  for (pb::OpDesc& op : *block->mutable_ops()) {
    std::string attrs;
    for (const pb::OpDesc::Attr& attr : op.attrs()) {
      attrs += Field(pb::OpDesc::kAttrsFieldNumber, attr.SerializeAsString());
    }
    op.clear_attrs();
    op.set_is_target(true);
    ops += Field(pb::BlockDesc::kOpsFieldNumber, op.SerializeAsString() + attrs);
  }
  block->clear_ops();
  const std::string head = block->SerializeAsString();
  std::string size(2, '\0');
  size[0] = static_cast<char>(((head.size() + ops.size()) & 0x7f) | 0x80);
  size[1] = static_cast<char>((head.size() + ops.size()) >> 7);
  absl::StatusOr<Program> program = Program::Parse("\x0a" + size + head + ops);
  WEFT_ASSERT_OK(program);
  Cache cache(*std::move(program));
  EXPECT_THAT(cache.Infer(0), ElementsAre("fp32[6, 4]"));
  EXPECT_THAT(cache.Infer(1), ElementsAre("fp32[3, 8]"));
}

TEST(InferCache, ErrorIsRememberedAndTellsOfTheOpAtHand) {
  ProgramBuilder p;
  p.Var("x", {3, 4}).Var("y", {5, 6}).Var("z", {5, 6});
  for (const char* y : {"y", "z"}) p.Op("mul", {{"X", {"x"}}, {"Y", {y}}}, {{"Out", {"out"}}});
  Cache cache(p.Build());
  EXPECT_THAT(cache.Infer(0), ElementsAre("error"));
  EXPECT_THAT(cache.Infer(1), ElementsAre("error"));
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_THAT(cache.Error(1), IsInvalidArgument("op 1 (mul) input Y (z): expected 4 rows"));
}

TEST(InferCache, UnregisteredOpGivesNothingAndTakesNoMemory) {
  ProgramBuilder p;
  p.Op("my_op", {{"X", {"a"}}}, {{"Out", {"c", "d"}}});
  Cache cache(p.Build());
  EXPECT_THAT(cache.Infer(0), ElementsAre("?", "?"));
  EXPECT_EQ(cache.size(), 0u);
}

TEST(InferCache, EmptyArgumentIsNoVariable) {
  ProgramBuilder p;
  p.Op("relu_grad", {{"Out", {"@EMPTY@"}}, {"Out@GRAD", {"g"}}}, {{"X@GRAD", {"x"}}});
  Cache cache(p.Build());
  EXPECT_THAT(cache.Infer(0), ElementsAre("?"));
}

}  // namespace
}  // namespace weft::testing
