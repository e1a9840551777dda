#include "transpiler/passes/sparsify_gradients.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnRanks;
using ::weft::testing::ProgramTexts;
using ::weft::testing::RemarkTexts;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RewriteStatus;
using ::weft::testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kVars[] = R"(
    var x : fp32[2, 8] need_check_feed
    var y@GRAD : fp32[2, 4]
    var a : fp32[8, 4] parameter persistable
    var b : fp32[8, 4] parameter persistable
    var a@GRAD : fp32[8, 4]
    var b@GRAD : fp32[8, 4]
    var lr : fp32[1] persistable
)";
constexpr char kBackward[] = R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 4], dtype=5, value=1.0}
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
)";
constexpr char kUpdates[] = R"(
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
    ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize
)";
constexpr char kStartup[] = R"(
    var lr : fp32[1] persistable
    var a : fp32[8, 4] parameter persistable
    var b : fp32[8, 4] parameter persistable
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
    Out=[a] = fill_constant() {shape=longs[8, 4], dtype=5, value=0.5}
    Out=[b] = fill_constant() {shape=longs[8, 4], dtype=5, value=0.5}
)";

std::string Main() { return absl::StrCat(kVars, kBackward, kUpdates); }
ProgramTexts Programs() { return {Main(), kStartup}; }

// Without the startup program, whose rings no pass sets up.
RewriteOptions Options(RewriteOptions options) {
  options.verification = Verification::kNever;
  return options;
}

TEST(SparsifyGradients, ABucketTravelsAsRowsAndKeepsTheRest) {
  ExpectRewrite("sparsify-gradients{mode=topk}", Programs(),
                {absl::StrCat(R"(
    var a@RESIDUAL : fp32[8, 4] persistable stop_gradient
    var b@RESIDUAL : fp32[8, 4] persistable stop_gradient
    var sparse_gradient_0 : selected_rows<fp32[64, 1]>
)",
                              kBackward, R"(
    Out=[sparse_gradient_0], ResidualOut=[b@RESIDUAL, a@RESIDUAL] = sparsify_topk(Residual=[b@RESIDUAL, a@RESIDUAL], X=[b@GRAD, a@GRAD]) role=backward {k=long(4)}
    Out=[sparse_gradient_0] = c_wait_compute(X=[sparse_gradient_0]) role=backward
    Out=[sparse_gradient_0] = c_allreduce_sum(X=[sparse_gradient_0]) role=backward
    Out=[sparse_gradient_0] = c_wait_comm(X=[sparse_gradient_0]) role=backward
    Out=[sparse_gradient_0] = scale(X=[sparse_gradient_0]) role=backward {nranks=2, scale=0.5}
    Out=[b@GRAD, a@GRAD] = densify(X=[sparse_gradient_0]) role=backward {concated_ranks=longs[2, 2], concated_shapes=longs[8, 4, 8, 4]}
)",
                              kUpdates),
                 absl::StrCat(kStartup, R"(
    var a@RESIDUAL : fp32[8, 4] persistable stop_gradient
    var b@RESIDUAL : fp32[8, 4] persistable stop_gradient
    Out=[b@RESIDUAL] = fill_constant() {shape=longs[8, 4], dtype=5, value=0.0}
    Out=[a@RESIDUAL] = fill_constant() {shape=longs[8, 4], dtype=5, value=0.0}
)")},
                Options(OnRanks(2)));
}

TEST(SparsifyGradients, LargeGradientsTravelAloneAndWithoutCorrectionNothingIsKept) {
  ExpectRewrite("sparsify-gradients{mode=threshold,spars=0.5,threshold=16,corr=false,nrings=2}",
                Main(), absl::StrCat(R"(
    var sparse_gradient_0 : selected_rows<fp32[32, 1]>
    var sparse_gradient_1 : selected_rows<fp32[32, 1]>
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 4], value=1.0}
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Out=[sparse_gradient_0] = sparsify_threshold(X=[b@GRAD]) role=backward {threshold=0.5}
    Out=[sparse_gradient_0] = c_wait_compute(X=[sparse_gradient_0]) role=backward
    Out=[sparse_gradient_0] = c_allreduce_avg(X=[sparse_gradient_0]) role=backward
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
    Out=[sparse_gradient_1] = sparsify_threshold(X=[a@GRAD]) role=backward {threshold=0.5}
    Out=[sparse_gradient_1] = c_wait_compute(X=[sparse_gradient_1]) role=backward {ring_id=1}
    Out=[sparse_gradient_1] = c_allreduce_avg(X=[sparse_gradient_1]) role=backward {ring_id=1}
    Out=[sparse_gradient_1] = c_wait_comm(X=[sparse_gradient_1]) role=backward {ring_id=1}
    Out=[a@GRAD] = densify(X=[sparse_gradient_1]) role=backward {concated_ranks=longs[2], concated_shapes=longs[8, 4]}
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
    Out=[sparse_gradient_0] = c_wait_comm(X=[sparse_gradient_0]) role=backward
    Out=[b@GRAD] = densify(X=[sparse_gradient_0]) role=backward {concated_ranks=longs[2], concated_shapes=longs[8, 4]}
    ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize
)"));
}

// A rank would receive 63 * 4 elements of 8 bytes, or 2 * 63 / 64 * 64 of 4 bytes.
TEST(SparsifyGradients, GradientsTravelWholeWhereThatIsNoMoreBytes) {
  const auto result = ExpectRewrite("sparsify-gradients{mode=topk,spars=0.05}", Programs(),
                                    {absl::StrCat(R"(
    var fused_gradient_0 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 4], value=1.0}
    FusedOutput=[fused_gradient_0], Output=[b@GRAD, a@GRAD] = coalesce_tensor(Input=[b@GRAD, a@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[8, 4, 8, 4], dtype=5, use_align=true}
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
    Out=[b@GRAD, a@GRAD, fused_gradient_0] = c_wait_compute(X=[b@GRAD, a@GRAD, fused_gradient_0]) role=backward
    Out=[fused_gradient_0] = c_allreduce_sum(X=[fused_gradient_0]) role=backward
    Out=[b@GRAD, a@GRAD, fused_gradient_0] = c_wait_comm(X=[b@GRAD, a@GRAD, fused_gradient_0]) role=backward
    Out=[fused_gradient_0] = scale(X=[fused_gradient_0]) role=backward {nranks=64, scale=0.015625}
)",
                                                  kUpdates)},
                                    Options(OnRanks(64)));
  EXPECT_THAT(
      RemarkTexts(result),
      Contains(AllOf(StartsWith("a@GRAD not sparsified: a rank would receive 2016 bytes of 4 "
                                "elements per rank, or 504 of whole gradients"))));
}

TEST(SparsifyGradients, GradientsThatAreRowsStayRows) {
  ExpectRewrite("sparsify-gradients{mode=topk,corr=false}", R"(
    var w@GRAD : selected_rows<fp32[2, 2]>
    var ids : int64[3] need_check_feed
    var e@GRAD : fp32[3, 2]
    Out=[e@GRAD] = fill_constant() role=backward|loss {shape=longs[3, 2], dtype=5, value=1.0}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
)",
                R"(
    Out=[e@GRAD] = fill_constant() role=backward|loss {shape=longs[3, 2], value=1.0}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {nranks=2, scale=0.5}
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
)",
                OnRanks(2));
}

TEST(SparsifyGradients, OptionsAreChecked) {
  const auto status = [](const std::string& options) {
    return RewriteStatus(absl::StrCat("sparsify-gradients{", options, "}"), Programs(),
                         Options(OnRanks(2)));
  };
  for (const char* spars : {"0", "-0.1", "1.5", "nan", "1e-60"}) {
    EXPECT_THAT(status(absl::StrCat("mode=topk,spars=", spars)),
                StatusIs(kInvalid, HasSubstr("option spars: expected a share of the elements")))
        << spars;
  }
  for (const char* spars : {"-0.5", "nan", "inf", "1e39"}) {
    EXPECT_THAT(status(absl::StrCat("mode=threshold,spars=", spars)),
                StatusIs(kInvalid, HasSubstr("option spars: expected a finite magnitude >= 0")))
        << spars;
  }
  EXPECT_THAT(status("threshold=3000000"), StatusIs(kInvalid, HasSubstr("threshold")));
  EXPECT_THAT(status("threshold=3000000,buffer_elements=6000000"), testing::IsOk());
  EXPECT_THAT(status("mode=topk,spars=1"), testing::IsOk());
  EXPECT_THAT(status("mode=threshold,spars=0"), testing::IsOk());
}

TEST(SparsifyGradients, OtherElementTypesAreRefused) {
  const std::string main = absl::StrReplaceAll(
      Main(), {{"fp32[8, 4]", "fp64[8, 4]"}, {"fp32[2, ", "fp64[2, "}, {"dtype=5", "dtype=6"}});
  EXPECT_THAT(
      RewriteStatus("sparsify-gradients{corr=false}", main, OnRanks(2)),
      StatusIs(kRefused,
               HasSubstr("gradient b@GRAD of parameter b, completed by op 1 (mul_grad): expected "
                         "fp32, found fp64; only fp32 gradients can be sparsified")));
}

TEST(SparsifyGradients, ResidualsNeedAStartupProgram) {
  EXPECT_THAT(RewriteStatus("sparsify-gradients", Main(), OnRanks(2)),
              StatusIs(kRefused, HasSubstr("residuals need the startup program")));
}

TEST(SparsifyGradients, GradientsAreReducedOnce) {
  EXPECT_THAT(RewriteStatus("sparsify-gradients{corr=false},grad-all-reduce{scale=avg}", Main()),
              StatusIs(kRefused, HasSubstr("gradients-reduced")));
}

}  // namespace
}  // namespace weft
