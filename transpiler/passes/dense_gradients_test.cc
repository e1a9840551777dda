#include "transpiler/passes/dense_gradients.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnRanks;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

TEST(DenseGradients, GradientAndSummandsChangeTheirTypeAndOpsTheirAttribute) {
  ExpectRewrite("dense-gradients{sparse=dense}", R"(
    var w : fp32[100, 2] parameter persistable
    var ids : int64[5] need_check_feed
    var y : fp32[5, 2]
    var y@GRAD : fp32[5, 2]
    var w@GRAD : selected_rows<fp32[100, 2]>
    var w@GRAD@RENAME@0 : selected_rows<fp32[100, 2]>
    var w@GRAD@RENAME@1 : selected_rows<fp32[100, 2]>
    Out=[y] = lookup_table_v2(Ids=[ids], W=[w])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[5, 2], dtype=5, value=1.0}
    W@GRAD=[w@GRAD@RENAME@0] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward {is_sparse=true}
    W@GRAD=[w@GRAD@RENAME@1] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward {is_sparse=true}
    Out=[w@GRAD] = sum(X=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    var w@GRAD : fp32[100, 2]
    var w@GRAD@RENAME@0 : fp32[100, 2]
    var w@GRAD@RENAME@1 : fp32[100, 2]
    Out=[y] = lookup_table_v2(Ids=[ids], W=[w])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[5, 2], value=1.0}
    W@GRAD=[w@GRAD@RENAME@0] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[y@GRAD], W=[w]) role=backward
    W@GRAD=[w@GRAD@RENAME@1] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[y@GRAD], W=[w]) role=backward
    Out=[w@GRAD] = sum(X=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

void Rows(ProgramBuilder* p, const std::string& name) {
  p->Var(name);
  pb::VarType* type = p->last_var().mutable_type();
  type->Clear();
  type->set_type(pb::VarType::SELECTED_ROWS);
  type->mutable_selected_rows()->set_data_type(pb::VarType::FP32);
  type->mutable_selected_rows()->add_dims(100);
  type->mutable_selected_rows()->add_dims(2);
}

// Two lookups of `ids` ids each in a table of 100 rows of two floats (800 bytes).
ProgramBuilder Embedding(int ids) {
  ProgramBuilder p;
  p.Param("w", {100, 2}).Var("ids", {ids}, pb::VarType::INT64);
  for (const char* part : {"w@GRAD@RENAME@0", "w@GRAD@RENAME@1"}) {
    Rows(&p, part);
    p.Op("lookup_table_v2_grad", {{"Ids", {"ids"}}, {"W", {"w"}}, {"Out@GRAD", {"y@GRAD"}}},
         {{"W@GRAD", {part}}}, kRoleBackward);
    p.BoolAttr("is_sparse", true);
  }
  Rows(&p, "w@GRAD");
  p.Op("sum", {{"X", {"w@GRAD@RENAME@0", "w@GRAD@RENAME@1"}}}, {{"Out", {"w@GRAD"}}},
       kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  p.Op("adam", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  return p;
}

// What happened to w's gradient, and why.
std::string Told(ProgramBuilder p, const std::string& pass = "dense-gradients") {
  Program program = p.Build();
  std::vector<Remark> remarks;
  PassContext context = ContextWithRanks(2);
  context.remarks = &remarks;
  WEFT_EXPECT_OK(RunPasses(pass, context, &program));
  return remarks.empty() ? "" : remarks[0].subject + " " + remarks[0].what + ": " + remarks[0].why;
}

TEST(DenseGradients, ManyIdsMakeTheDenseGradientSmaller) {
  EXPECT_EQ(Told(Embedding(/*ids=*/50)),
            "w@GRAD made dense: a rank would receive 1600 bytes of rows, or 800 of a dense "
            "gradient");
  EXPECT_EQ(Told(Embedding(/*ids=*/5)),
            "w@GRAD left as rows: a rank would receive 160 bytes of rows, or 800 of a dense "
            "gradient");
}

TEST(DenseGradients, UnknownNumberOfIdsKeepsRows) {
  EXPECT_EQ(Told(Embedding(-1)), "w@GRAD left as rows: the number of ids in a step is unknown");
}

TEST(DenseGradients, RowsAreLeftAlone) {
  Program program = Embedding(50).Build();
  WEFT_ASSERT_OK(RunPasses("dense-gradients{sparse=rows}", ContextWithRanks(2), &program));
  EXPECT_EQ(program.revision(), 0);
}

TEST(DenseGradients, LazyOptimizersNeedRows) {
  ProgramBuilder p = Embedding(50);
  p.BoolAttr("lazy_mode", true);
  EXPECT_THAT(Told(p), HasSubstr("left as rows: op 3 (adam) updates only the rows that have a "
                                 "gradient (lazy_mode)"));
  Program program = p.Build();
  EXPECT_THAT(RunPasses("dense-gradients{sparse=dense}", ContextWithRanks(2), &program),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("gradient w@GRAD cannot be made dense: op 3 (adam)")));
}

TEST(DenseGradients, OpsThatAreNotKnownNeedRows) {
  ProgramBuilder p = Embedding(50);
  p.Op("my_metric", {{"X", {"w@GRAD"}}}, {{"Out", {"m"}}});
  EXPECT_THAT(Told(p), HasSubstr("op 4 (my_metric) uses it, an unregistered op"));
}

TEST(DenseGradients, ProgramWithoutSparseGradientsIsLeftAlone) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("dense-gradients", ContextWithRanks(2), &program));
  EXPECT_EQ(program.revision(), 0);
}

}  // namespace
}  // namespace weft
