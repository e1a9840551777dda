#include "proto/formats/pir/op_table.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace weft::pir {
namespace {

TEST(OpTableTest, NamesOfOpsThatOverwriteOperandsSaySo) {
  EXPECT_GT(AllRules().size(), 500u);
  for (const OpRule& rule : AllRules()) {
    bool writes_in_place = false;
    for (const ResultRule& result : rule.results) writes_in_place |= result.in_place_of >= 0;
    EXPECT_EQ(writes_in_place, IsInPlace(rule.pir)) << rule.pir;
  }
}

// "name:target" of operands or results, with "?" for one that may be left out, and "=operand" for
// one that overwrites it.
std::string OperandsOf(absl::string_view pir) {
  return absl::StrJoin(FindRule(pir)->operands, " ", [](std::string* out, const OperandRule& rule) {
    const bool is_constant = rule.kind == OperandRule::Kind::kConstant;
    absl::StrAppend(out, rule.name, is_constant ? ":@" : ":", rule.target, rule.optional ? "?" : "",
                    rule.may_be_tensor() ? "|" : "", rule.tensor_slot);
  });
}
std::string ResultsOf(absl::string_view pir) {
  const OpRule& op = *FindRule(pir);
  return absl::StrJoin(op.results, " ", [&](std::string* out, const ResultRule& rule) {
    absl::StrAppend(out, rule.name, ":", rule.slot, rule.is_list ? "*" : "");
    if (rule.in_place_of >= 0) absl::StrAppend(out, "=", op.operands[rule.in_place_of].name);
  });
}

TEST(OpTableTest, WhatAFormLeavesOutIsAsInTheSchema) {
  EXPECT_EQ(OperandsOf("1.relu"), "x:X");
  EXPECT_EQ(ResultsOf("1.unfold"), "out:Y");
  EXPECT_EQ(OperandsOf("1.group_norm"), "x:X scale:Scale? bias:Bias?");
  EXPECT_EQ(ResultsOf("1.instance_norm"), "y:Y saved_mean:SavedMean saved_variance:SavedVariance");
  EXPECT_EQ(OperandsOf("1.reshape"), "x:X shape:@shape|Shape");
  EXPECT_EQ(
      FindRule("1.leaky_relu")->attrs,
      (std::vector<std::pair<absl::string_view, absl::string_view>>{{"negative_slope", "alpha"}}));
  EXPECT_FALSE(FindRule("1.concat")->operands[1].may_be_tensor());
}

TEST(OpTableTest, ResultsInPlaceStandInTheOrderOfTheirOperands) {
  EXPECT_EQ(ResultsOf("1.momentum_"),
            "param_out:ParamOut=param velocity_out:VelocityOut=velocity "
            "master_param_out:MasterParamOut=master_param");
  EXPECT_EQ(ResultsOf("1.check_finite_and_unscale_"), "out:Out*=x found_infinite:FoundInfinite");
  EXPECT_EQ(ResultsOf("1.scale_"), "out:Out=x");
  EXPECT_EQ(ResultsOf("1.assign_out_"), "out:Out=output");
  EXPECT_EQ(ResultsOf("1.assign"), "out:Out");
}

TEST(OpTableTest, GradientOpsFollowFromTheirOps) {
  EXPECT_EQ(OperandsOf("1.topk_grad"), "x:X indices:Indices out_grad:Out@GRAD k:@k");
  EXPECT_EQ(ResultsOf("1.put_along_axis_grad"), "arr_grad:Input@GRAD values_grad:Value@GRAD");
  EXPECT_EQ(OperandsOf("1.segment_pool_grad"),
            "x:X segment_ids:SegmentIds out:Out summed_ids:SummedIds? out_grad:Out@GRAD");
  EXPECT_EQ(OperandsOf("1.argsort_grad"), "indices:Indices x:X out_grad:Out@GRAD");  // stated
  EXPECT_TRUE(FindRule("1.reshape_grad")->has_xshape);
  EXPECT_EQ(FindRule("1.set_value_grad")->desc, "assign");
  EXPECT_EQ(OperandsOf("1.matmul_double_grad"),
            "x:X y:Y grad_out:grad_out grad_x_grad:grad_x@GRAD? grad_y_grad:grad_y@GRAD?");
  EXPECT_EQ(FindRule("1.mul_double_grad"), nullptr);  // PIR has no mul
}

TEST(OpTableTest, FilesAreWrittenWithTheFirstForm) {
  EXPECT_EQ(FindRuleOfDesc("all_reduce")->pir, "1.all_reduce_");
  EXPECT_EQ(FindRuleOfDesc("fill_constant")->pir, "1.full");
  EXPECT_EQ(FindRuleOfDesc("lookup_table"), nullptr);
}

}  // namespace
}  // namespace weft::pir
