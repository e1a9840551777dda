#include "transpiler/passes/dense_gradients.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_builder.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

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
  std::vector<Note> notes;
  PassContext context = ContextWithRanks(2);
  context.notes = &notes;
  WEFT_EXPECT_OK(RunPasses(pass, context, &program));
  return notes.empty() ? "" : notes[0].subject + " " + notes[0].what + ": " + notes[0].why;
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
  EXPECT_EQ(Told(Embedding(-1)), "w@GRAD left as rows: the number of ids in a step is not known");
}

TEST(DenseGradients, GradientAndSummandsChangeTheirTypeAndOpsTheirAttribute) {
  Program program = Embedding(-1).Build();
  WEFT_ASSERT_OK(RunPasses("dense-gradients{sparse=dense}", ContextWithRanks(2), &program));
  for (const char* name : {"w@GRAD", "w@GRAD@RENAME@0", "w@GRAD@RENAME@1"}) {
    const Var var = program.var(program.block(0).FindVar(program.FindSymbol(name)));
    EXPECT_EQ(var.type(), pb::VarType::LOD_TENSOR) << name;
    EXPECT_EQ(var.Tensor()->dims(0), 100) << name;
  }
  for (int i : {0, 1}) {
    EXPECT_FALSE(program.op(program.block(0).ops()[i]).FindAttr("is_sparse")->b());
  }
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
  EXPECT_THAT(Told(p), HasSubstr("op 4 (my_metric) uses it, an op that Weft does not know"));
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
