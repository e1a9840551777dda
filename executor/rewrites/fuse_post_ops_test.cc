#include "executor/rewrites/fuse_post_ops.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "executor/rewrites/channels_last.h"
#include "executor/rewrites/rewrites_testing.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

std::vector<std::string> OpsOf(const std::string& block, const std::vector<std::string>& results,
                               const Rewrite& rewrite = FusePostOps) {
  return OpTypes(ExpectSameResults(block, results, rewrite, 1e-5F));
}

constexpr char kLayer[] = R"(
    var x : fp32[-1, 6]
    var w : fp32[6, 4]
    var b : fp32[4]
    Out=[a] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[c] = elementwise_add(X=[a], Y=[b]) {axis=1}
    Out=[y] = relu(X=[c])
)";

// The numbers have no unknown dimensions.
std::string Sized(std::string block) {
  for (size_t at; (at = block.find("[-1,")) != std::string::npos;) block.replace(at, 4, "[3,");
  return block;
}

TEST(FusePostOpsTest, AProductTakesItsBiasAndActivation) {
  EXPECT_THAT(OpsOf(Sized(kLayer), {"y"}), ElementsAre("mul"));
}

TEST(FusePostOpsTest, GradientsThatNeedOnlyTheTypeOfALostValueGetThatOfTheResult) {
  const std::string gradient = R"(
    var dy : fp32[3, 4]
    X@GRAD=[dc] = relu_grad(Out=[y], Out@GRAD=[dy])
    X@GRAD=[da], Y@GRAD=[db] = elementwise_add_grad(Out@GRAD=[dc], X=[a], Y=[b]) {axis=1}
    X@GRAD=[dx], Y@GRAD=[dw] = mul_grad(Out@GRAD=[da], X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
)";
  EXPECT_THAT(OpsOf(Sized(kLayer) + gradient, {"y", "db", "dw", "dx"}),
              ElementsAre("mul", "relu_grad", "elementwise_add_grad", "mul_grad"));
}

TEST(FusePostOpsTest, AValueThatIsReadElsewhereIsWritten) {
  // By the caller.
  EXPECT_THAT(OpsOf(Sized(kLayer), {"y", "a"}), ElementsAre("mul", "elementwise_add", "relu"));
  EXPECT_THAT(OpsOf(Sized(kLayer), {"y", "c"}), ElementsAre("mul", "relu"));
  // By an op.
  const std::string reader = R"(
    Out=[z] = tanh(X=[c])
)";
  EXPECT_THAT(OpsOf(Sized(kLayer) + reader, {"y", "z"}), ElementsAre("mul", "relu", "tanh"));
}

TEST(FusePostOpsTest, NotANumberAndInfinityAreWhatTheyWere) {
  RewrittenProgram as_written(Sized(kLayer), {"y"}, nullptr);
  RewrittenProgram rewritten(Sized(kLayer), {"y"}, FusePostOps);
  for (RewrittenProgram* program : {&as_written, &rewritten}) {
    (*program)["b"].data<float>()[0] = NAN;
    (*program)["b"].data<float>()[1] = -INFINITY;
    (*program)["b"].data<float>()[2] = INFINITY;
    WEFT_ASSERT_OK(program->RunStep());
  }
  EXPECT_THAT(Values<float>(rewritten["y"]),
              Pointwise(::testing::NanSensitiveFloatNear(1e-5F), Values<float>(as_written["y"])));
  EXPECT_EQ(Values<float>(rewritten["y"])[2], INFINITY);
}

// Out=[c] = product(X=[x], Y=[w]) of these shapes, plus b, which has the dims `bias`.
std::string Product(const std::string& product, const std::string& x, const std::string& w,
                    const std::string& result, const std::string& bias, int axis = -1) {
  return absl::StrCat("var x : fp32", x, "\nvar w : fp32", w, "\nvar b : fp32", bias,
                      "\nvar a : fp32", result, "\nvar c : fp32", result, "\nOut=[a] = ", product,
                      "\nOut=[c] = elementwise_add(X=[a], Y=[b]) {axis=", axis, "}\n");
}

TEST(FusePostOpsTest, ProductsOfManyShapesTakeSums) {
  const std::string matmul = "matmul_v2(X=[x], Y=[w]) {trans_x=false, trans_y=false}";
  for (const std::string& block : {
           Product(matmul, "[2, 5, 6]", "[6, 4]", "[2, 5, 4]", "[4]"),
           Product(matmul, "[2, 5, 6]", "[2, 6, 4]", "[2, 5, 4]", "[4]", 2),
           // Three loops of products.
           Product(matmul, "[2, 3, 5, 6]", "[2, 1, 6, 4]", "[2, 3, 5, 4]", "[4]"),
           Product(matmul, "[2, 5, 6]", "[6, 4]", "[2, 5, 4]", "[2, 5, 4]"),
           // A matrix times a vector: rows are channels.
           Product(matmul, "[2, 5, 6]", "[6]", "[2, 5]", "[5]"),
           Product("matmul(X=[x], Y=[w]) {alpha=0.5, transpose_X=false, transpose_Y=false}",
                   "[5, 6]", "[6, 4]", "[5, 4]", "[4]"),
           Product("matmul(X=[x], Y=[w]) {alpha=0.5, transpose_X=true, transpose_Y=true}", "[6, 5]",
                   "[4, 6]", "[5, 4]", "[5, 4]"),
           Product("mul(X=[x], Y=[w]) {x_num_col_dims=2, y_num_col_dims=1}", "[2, 5, 6]", "[6, 4]",
                   "[2, 5, 4]", "[4]"),
       }) {
    SCOPED_TRACE(block);
    EXPECT_THAT(OpsOf(block, {"c"}), SizeIs(1));
  }
}

std::vector<std::string> OpsOfLayer(const std::string& type) {
  PlanOptions options;
  options.kernels = &CpuKernels();
  Plan plan =
      *Plan::Build(CompactProgram(absl::StrReplaceAll(Sized(kLayer), {{"fp32", type}})), options);
  FusePostOps({plan.FindVariable("y")}, &plan);
  return OpTypes(plan);
}

TEST(FusePostOpsTest, HalvesAreFusedOnlyWhereProductsReadThem) {
  EXPECT_THAT(OpsOfLayer("fp16"), ElementsAre("mul", "elementwise_add", "relu"));
  if (__builtin_cpu_supports("avx512bf16")) {
    EXPECT_THAT(OpsOfLayer("bf16"), ElementsAre("mul"));
  } else {
    EXPECT_THAT(OpsOfLayer("bf16"), ElementsAre("mul", "elementwise_add", "relu"));
  }
}

TEST(FusePostOpsTest, SumsThatMayBroadcastOtherwiseStay) {
  const std::string matmul = "matmul_v2(X=[x], Y=[w]) {trans_x=false, trans_y=false}";
  for (const std::string& block : {
           Product(matmul, "[4, 6]", "[6, 4]", "[4, 4]", "[4]", 0),
           Product(matmul, "[5, 6]", "[6, 4]", "[5, 4]", "[1]"),
           Product(matmul, "[5, 6]", "[6, 4]", "[5, 4]", "[1, 4]"),
           Product(matmul, "[5, 6]", "[6, 4]", "[5, 4]", "[5]", 0),
       }) {
    SCOPED_TRACE(block);
    EXPECT_THAT(OpsOf(block, {"c"}), SizeIs(2));
  }
}

TEST(FusePostOpsTest, AProductTakesFourOpsAtMost) {
  std::string block = Sized(kLayer), last = "y";
  for (int i = 0; i < 40; ++i) {
    const std::string next = absl::StrCat("s", i);
    block.insert(0, absl::StrCat("var ", next, " : fp32[3, 4]\nvar r", i, " : fp32[3, 4]\n"));
    absl::StrAppend(&block, "Out=[", next, "] = elementwise_add(X=[", last, "], Y=[r", i, "])\n");
    last = next;
  }
  EXPECT_THAT(OpsOf(block, {last}), SizeIs(1 + 40 - 2));
}

TEST(FusePostOpsTest, SumsWithUnknownShapesStay) {
  const std::string matmul = "matmul_v2(X=[x], Y=[w]) {trans_x=false, trans_y=false}";
  for (const std::string& block : {
           // The bias may have one number.
           Product(matmul, "[5, 6]", "[6, -1]", "[5, -1]", "[-1]"),
           // Either may have one row.
           Product(matmul, "[-1, 6]", "[6, 4]", "[-1, 4]", "[-1, 4]"),
       }) {
    PlanOptions options;
    options.kernels = &CpuKernels();
    Plan plan = *Plan::Build(CompactProgram(block), options);
    FusePostOps({plan.FindVariable("c")}, &plan);
    EXPECT_THAT(OpTypes(plan), ElementsAre("matmul_v2", "elementwise_add")) << block;
  }
}

// relu(sum) of a convolution `a` and another one, `residual`.
std::string Convolution(const std::string& sum) {
  return absl::StrCat(R"(
    var x : fp32[2, 3, 8, 8]
    var filter : fp32[6, 3, 3, 3]
    var bias : fp32[6]
    var b, c, d : fp32[2, 6, 8, 8]
    Output=[residual] = conv2d(Filter=[filter], Input=[x]) {paddings=ints[1, 1]}
    Output=[a] = conv2d(Filter=[filter], Input=[x]) {paddings=ints[1, 1]}
)",
                      sum, "\nOut=[c] = relu(X=[b])\nOut=[d] = tanh(X=[c])\n");
}

void KeepChannelsLastAndFuse(const std::vector<int>& accessed, Plan* plan) {
  KeepChannelsLast(CpuKernels(), accessed, plan);
  FusePostOps(accessed, plan);
}

TEST(FusePostOpsTest, AConvolutionTakesItsBiasAndActivation) {
  const std::string block = Convolution("Out=[b] = elementwise_add(X=[a], Y=[bias]) {axis=1}");
  EXPECT_THAT(OpsOf(block, {"d"}), ElementsAre("conv2d", "conv2d", "tanh"));
  EXPECT_THAT(OpsOf(block, {"d"}, KeepChannelsLastAndFuse),
              ElementsAre("transpose", "conv2d", "conv2d", "transpose", "tanh"));
}

TEST(FusePostOpsTest, AConvolutionWithChannelsLastTakesAnImage) {
  const std::string block = Convolution("Out=[b] = elementwise_add(X=[a], Y=[residual]) {axis=-1}");
  EXPECT_THAT(OpsOf(block, {"d"}),
              ElementsAre("conv2d", "conv2d", "elementwise_add", "relu", "tanh"));
  EXPECT_THAT(OpsOf(block, {"d"}, KeepChannelsLastAndFuse),
              ElementsAre("transpose", "conv2d", "conv2d", "transpose", "tanh"));
}

TEST(FusePostOpsTest, ABiasAlongAnotherAxisStays) {
  const std::string block = R"(
    var x : fp32[2, 3, 8, 8]
    var filter : fp32[8, 3, 3, 3]
    var bias : fp32[8]
    Output=[a] = conv2d(Filter=[filter], Input=[x]) {paddings=ints[1, 1]}
    Out=[b] = elementwise_add(X=[a], Y=[bias]) {axis=-1}
)";
  EXPECT_THAT(OpsOf(block, {"b"}), ElementsAre("conv2d", "elementwise_add"));
}

// --- Several streams -----------------------------------------------------------------------------

// The types of the ops of a program on two devices, with a product and its bias around `between`.
std::vector<std::string> FusedAround(const std::string& between) {
  const Program program = CompactProgram(absl::StrCat(R"(
    var x, z : fp32[3, 6]
    var w : fp32[6, 4]
    var b : fp32[4]
    var c : fp32[3, 4]
    Out=[a] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
)",
                                                      between, R"(
    Out=[c] = elementwise_add(X=[a], Y=[b]) {axis=1}
)"));
  PlanOptions options;
  options.kernels = &CpuKernels();
  absl::StatusOr<Plan> plan = Plan::Build(program, options);
  WEFT_EXPECT_OK(plan.status());
  FusePostOps({plan->FindVariable("c")}, &*plan);
  return OpTypes(*plan);
}

// The copy overwrites x: the product must not come after it.
TEST(FusePostOpsTest, AnOpStaysBeforeTheWaitOfAnotherStreamForIt) {
  EXPECT_THAT(FusedAround(R"(    Out=[x] = stream_wait(X=[x]) {stream="h2d", awaited="compute"}
    Out=[x] = memcpy_h2d(X=[z]))"),
              ElementsAre("mul", "memcpy_h2d", "elementwise_add"));
}

TEST(FusePostOpsTest, AnOpMovesPastWaitsOfItsOwnStream) {
  EXPECT_THAT(FusedAround(R"(    Out=[b] = stream_wait(X=[b]) {stream="compute", awaited="h2d"})"),
              ElementsAre("mul"));
}

}  // namespace
}  // namespace weft::testing
