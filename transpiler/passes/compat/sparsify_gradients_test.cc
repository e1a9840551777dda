#include "transpiler/passes/compat/sparsify_gradients.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/optional.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kVars[] = R"(
    var x : fp32[2, 8] need_check_feed
    var a, b : fp32[8, 4] parameter persistable
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
    var a, b : fp32[8, 4] parameter persistable
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
  ExpectRewrite("sparsify-gradients{mode=topk}", Programs(), R"(
  + var a@RESIDUAL, b@RESIDUAL : fp32[8, 4] persistable stop_gradient
  + var sparse_gradient_0 : selected_rows<fp32[64, 1]>
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
  + Out=[sparse_gradient_0], ResidualOut=[b@RESIDUAL, a@RESIDUAL] = sparsify_topk(Residual=[b@RESIDUAL, a@RESIDUAL], X=[b@GRAD, a@GRAD]) role=backward {k=long(4)}
  + Out=[sparse_gradient_0] = c_wait_compute(X=[sparse_gradient_0]) role=backward
  + Out=[sparse_gradient_0] = c_allreduce_sum(X=[sparse_gradient_0]) role=backward
  + Out=[sparse_gradient_0] = c_wait_comm(X=[sparse_gradient_0]) role=backward
  + Out=[sparse_gradient_0] = scale(X=[sparse_gradient_0]) role=backward {nranks=2, scale=0.5}
  + Out=[b@GRAD, a@GRAD] = densify(X=[sparse_gradient_0]) role=backward {concated_ranks=longs[2, 2], concated_shapes=longs[8, 4, 8, 4]}
    startup:
  + var a@RESIDUAL, b@RESIDUAL : fp32[8, 4] persistable stop_gradient
    Out=[b] = fill_constant() {shape=longs[8, 4], dtype=5, value=0.5}
  + Out=[b@RESIDUAL] = fill_constant() {shape=longs[8, 4], dtype=5, value=0.0}
  + Out=[a@RESIDUAL] = fill_constant() {shape=longs[8, 4], dtype=5, value=0.0}
  )",
                Options(OnRanks(2)));
}

TEST(SparsifyGradients, LargeGradientsTravelAloneAndWithoutCorrectionNothingIsKept) {
  ExpectRewrite("sparsify-gradients{mode=threshold,spars=0.5,threshold=16,corr=false,nrings=2}",
                Main(), R"(
  + var sparse_gradient_0, sparse_gradient_1 : selected_rows<fp32[32, 1]>
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
  + Out=[sparse_gradient_0] = sparsify_threshold(X=[b@GRAD]) role=backward {threshold=0.5}
  + Out=[sparse_gradient_0] = c_wait_compute(X=[sparse_gradient_0]) role=backward
  + Out=[sparse_gradient_0] = c_allreduce_avg(X=[sparse_gradient_0]) role=backward
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
  + Out=[sparse_gradient_1] = sparsify_threshold(X=[a@GRAD]) role=backward {threshold=0.5}
  + Out=[sparse_gradient_1] = c_wait_compute(X=[sparse_gradient_1]) role=backward {ring_id=1}
  + Out=[sparse_gradient_1] = c_allreduce_avg(X=[sparse_gradient_1]) role=backward {ring_id=1}
  + Out=[sparse_gradient_1] = c_wait_comm(X=[sparse_gradient_1]) role=backward {ring_id=1}
  + Out=[a@GRAD] = densify(X=[sparse_gradient_1]) role=backward {concated_ranks=longs[2], concated_shapes=longs[8, 4]}
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
  + Out=[sparse_gradient_0] = c_wait_comm(X=[sparse_gradient_0]) role=backward
  + Out=[b@GRAD] = densify(X=[sparse_gradient_0]) role=backward {concated_ranks=longs[2], concated_shapes=longs[8, 4]}
  )");
}

// A rank would receive 63 times 32 bytes and 4 elements of 8 bytes, or 2 * 63 / 64 * 64 of 4 bytes.
TEST(SparsifyGradients, WithFallbackGradientsTravelWholeWhereThatIsNoMoreBytes) {
  const auto result = ExpectRewrite("sparsify-gradients{mode=topk,fallback=true}", Programs(), R"(
  + var fused_gradient_0 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 4], dtype=5, value=1.0}
  + FusedOutput=[fused_gradient_0], Output=[b@GRAD, a@GRAD] = coalesce_tensor(Input=[b@GRAD, a@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[8, 4, 8, 4], dtype=5, use_align=true}
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
  + Out=[b@GRAD, a@GRAD, fused_gradient_0] = c_wait_compute(X=[b@GRAD, a@GRAD, fused_gradient_0]) role=backward
  + Out=[fused_gradient_0] = c_allreduce_sum(X=[fused_gradient_0]) role=backward
  + Out=[b@GRAD, a@GRAD, fused_gradient_0] = c_wait_comm(X=[b@GRAD, a@GRAD, fused_gradient_0]) role=backward
  + Out=[fused_gradient_0] = scale(X=[fused_gradient_0]) role=backward {nranks=64, scale=0.015625}
  )",
                                    Options(OnRanks(64)));
  EXPECT_THAT(
      RemarkTexts(result),
      Contains(AllOf(StartsWith("a@GRAD not sparsified: a rank would receive 4032 bytes of 4 "
                                "elements per rank, or 504 of whole gradients"))));
  ASSERT_FALSE(result.messages.empty());
  EXPECT_THAT(ToString(result.messages[0]),
              HasSubstr("2 of 2 gradients travel whole, as rows would be no fewer bytes: results "
                        "differ from SINGA's, which option:fallback false computes"));
}

// Of the bucket of both gradients, which has 64 elements.
std::vector<std::string> RemarksOf(const std::string& options, absl::optional<int> nranks,
                                   std::vector<Message>* messages = nullptr) {
  Program main = testing::CompactProgram(Main()), startup = testing::CompactProgram(kStartup);
  ProgramPair programs{&main, &startup};
  TranspileOptions transpile;
  transpile.passes = absl::StrCat("sparsify-gradients{", options, "}");
  transpile.cluster.nranks = nranks;
  transpile.explain = true;
  transpile.verification = Verification::kNever;
  const absl::StatusOr<TranspileResult> result = Transpile(transpile, programs);
  EXPECT_THAT(result.status(), testing::IsOk());
  if (messages != nullptr && result.ok()) *messages = result->messages;
  return result.ok() ? RemarkTexts(*result) : std::vector<std::string>();
}

// s elements of each of n ranks are 32 + 8 s bytes from each of the others; of 64 whole gradients,
// 512 / n bytes come from each.
TEST(SparsifyGradients, RemarksSayUpToHowManyElementsRowsAreFewerBytes) {
  EXPECT_THAT(RemarksOf("mode=threshold", 2),
              Contains(StartsWith("a@GRAD sparsified: how many elements are sent depends on their "
                                  "values elements=64 fewer bytes=up to 27 of 64 elements per rank "
                                  "(42.2 %)")));
  EXPECT_THAT(RemarksOf("mode=threshold", 12),
              Contains(HasSubstr("a@GRAD sparsified: how many elements are sent depends on their "
                                 "values elements=64 fewer bytes=up to 1 of 64 elements")));
  EXPECT_THAT(RemarksOf("mode=threshold", absl::nullopt),
              Contains(HasSubstr("fewer bytes=below a share of 1 / ranks")));
  EXPECT_THAT(RemarksOf("mode=topk", 2),
              Contains(HasSubstr("sent=4 fewer bytes=up to 27 of 64 elements per rank")));
  // 4 elements: 64 bytes of each rank; of whole gradients 64, and 73.
  EXPECT_THAT(RemarksOf("mode=topk,fallback=true", 8),
              Contains(HasSubstr("a@GRAD not sparsified: ")));
  EXPECT_THAT(RemarksOf("mode=topk,fallback=true", 7), Contains(HasSubstr("a@GRAD sparsified: ")));
}

// From 13 ranks on, even one element of each is more bytes than whole gradients.
TEST(SparsifyGradients, GradientsTravelWholeWhereNoElementsAreFewerBytes) {
  EXPECT_THAT(RemarksOf("mode=threshold,fallback=true", 13),
              Contains(StartsWith("a@GRAD not sparsified: a rank would receive 480 bytes or more "
                                  "of 1 element or more per rank, or 473 of whole gradients")));
  for (const char* mode : {"mode=threshold", "mode=topk"}) {
    std::vector<Message> messages;
    EXPECT_THAT(RemarksOf(mode, 13, &messages),
                Contains(StartsWith("a@GRAD sparsified: a rank would receive ")));
    ASSERT_FALSE(messages.empty());
    EXPECT_THAT(ToString(messages[0]),
                HasSubstr("2 of 2 gradients travel as rows, which are no fewer bytes than whole "
                          "gradients; option:fallback true sends them whole"));
  }
  // Bytes of which ranks receive: no number of them, no comparison.
  std::vector<Message> messages;
  RemarksOf("mode=topk,fallback=true", absl::nullopt, &messages);
  ASSERT_FALSE(messages.empty());
  EXPECT_THAT(ToString(messages[0]),
              HasSubstr("without option:nranks, all gradients travel as rows"));
  // A parameter of one element.
  Program main = testing::CompactProgram(R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    var c : fp32[1] parameter persistable
    Y@GRAD=[c@GRAD] = elementwise_add_grad(X=[x], Y=[c], Out@GRAD=[y@GRAD]) role=backward vars=[c, c@GRAD]
    ParamOut=[c] = sgd(Grad=[c@GRAD], LearningRate=[lr], Param=[c]) role=optimize
)");
  ProgramPair programs{&main, nullptr};
  TranspileOptions options;
  options.passes =
      "sparsify-gradients{mode=threshold,fallback=true}";  // no residuals, and no startup program
  options.cluster.nranks = 2;
  options.verification = Verification::kNever;
  WEFT_ASSERT_OK(Transpile(options, programs).status());
  for (OpId id : main.block(0).ops()) EXPECT_NE(main.op(id).type(), "sparsify_threshold");
}

TEST(SparsifyGradients, GradientsThatAreRowsStayRows) {
  ExpectRewrite("sparsify-gradients{mode=topk,corr=false}", R"(
    var ids : int64[3] need_check_feed
    Out=[e@GRAD] = fill_constant() role=backward|loss {shape=longs[3, 2], dtype=5, value=1.0}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {nranks=2, scale=0.5}
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
}  // namespace weft::testing
