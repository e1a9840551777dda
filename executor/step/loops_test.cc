// Gradients of loops, and arrays of tensors, with results computed by hand.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/plan/plan.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"

namespace weft::testing {
namespace {

Tensor Int(int64_t value) { return MakeTensor<int64_t>({1}, {value}); }

class LoopsTest : public ::testing::Test {
 protected:
  absl::Status Make(const std::string& blocks) {
    const Program program = testing::CompactProgram(blocks);
    PlanOptions plan_options;
    plan_options.kernels = &CpuKernels();
    WEFT_ASSIGN_OR_RETURN(Plan plan, Plan::Build(program, plan_options));
    plan_ = std::make_unique<Plan>(std::move(plan));
    PlanExecutorOptions options;
    options.plan = plan_.get();
    options.scope = &scope_;
    options.device = device_.get();
    options.random = &random_;
    options.accessed.resize(plan_->variables.size());
    std::iota(options.accessed.begin(), options.accessed.end(), 0);
    WEFT_ASSIGN_OR_RETURN(executor_, PlanExecutor::Create(options));
    return absl::OkStatus();
  }

  Tensor& operator[](const char* name) { return *executor_->tensor(plan_->FindVariable(name)); }
  std::vector<float> Of(const char* name) { return Values<float>((*this)[name]); }
  absl::Status RunStep() { return executor_->RunStep(); }

 private:
  std::unique_ptr<Plan> plan_;
  Scope scope_;
  std::unique_ptr<Device> device_ = NewHostDevice();
  RandomState random_ = RandomState::Seeded(0, 0);
  std::unique_ptr<PlanExecutor> executor_;
};

// n times: h = h x. So h = h0 x^n. For a gradient g of h, the gradient of h0 is g x^n and that of x
// is g n h0 x^(n - 1). The block multiplies a copy of h. Its gradient reads the copy as each
// iteration left it, and h itself as it was when each iteration began.
constexpr char kPower[] = R"(
    var i, n : int64[1]
    var x, h, g, h@GRAD, x@GRAD : fp32[1]
    var rounds : step_scopes
    Out=[i] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[more] = less_than(X=[i], Y=[n])
    Out=[h, i, more], StepScopes=[rounds] = while(X=[h, x, i, n], Condition=[more]) {sub_block=block(1)}
    Out=[h@GRAD] = assign(X=[g])
    X@GRAD=[h@GRAD, x@GRAD] = while_grad(X=[h, x], Out=[h], Out@GRAD=[h@GRAD], StepScopes=[rounds]) {original_output_grad=strings["h@GRAD"], sub_block=block(2)}
    block 1:
    var copy, product : fp32[1]
    Out=[copy] = scale(X=[h]) {scale=1.0}
    Out=[product] = elementwise_mul(X=[copy], Y=[x])
    Out=[h] = assign(X=[product])
    Out=[i] = increment(X=[i]) {step=1.0}
    Out=[more] = less_than(X=[i], Y=[n])
    block 2 parent=0 forward=1:
    var product@GRAD, x@GRAD : fp32[1]
    Out=[i] = increment(X=[i]) {step=-1.0}
    Out=[product@GRAD] = assign(X=[h@GRAD])
    X@GRAD=[h@GRAD] = elementwise_mul_grad(X=[LEFT], Y=[x], Out@GRAD=[product@GRAD])
    Y@GRAD=[x@GRAD] = elementwise_mul_grad(X=[LEFT], Y=[x], Out@GRAD=[product@GRAD])
)";

TEST_F(LoopsTest, GradientGoesBackwardThroughTheIterations) {
  for (const char* left : {"copy", "h"}) {
    WEFT_ASSERT_OK(Make(absl::StrReplaceAll(kPower, {{"LEFT", left}})));
    for (int n : {3, 0, 1}) {
      (*this)["n"] = Int(n);
      (*this)["x"] = Floats({1}, {2});
      (*this)["h"] = Floats({1}, {3});
      (*this)["g"] = Floats({1}, {10});
      WEFT_ASSERT_OK(RunStep());
      const float power = n == 3 ? 8 : n == 1 ? 2 : 1;
      EXPECT_THAT(Of("h"), ElementsAre(3 * power)) << n;
      EXPECT_THAT(Of("h@GRAD"), ElementsAre(10 * power)) << n;
      EXPECT_THAT(Of("x@GRAD"), ElementsAre(10 * n * 3 * power / 2)) << n;
      EXPECT_EQ(*(*this)["i"].data<int64_t>(), 0) << n;  // counted back
    }
  }
}

// Where the op does not return the gradient of what the loop carries, too: without it, x has the
// gradient of the last iteration only.
TEST_F(LoopsTest, GradientThatIsNotReturnedGoesBackward) {
  WEFT_ASSERT_OK(Make(absl::StrReplaceAll(kPower, {{"LEFT", "h"},
                                                   {"X@GRAD=[h@GRAD, x@GRAD] = while_grad",
                                                    "X@GRAD=[@EMPTY@, x@GRAD] = while_grad"}})));
  (*this)["n"] = Int(3);
  (*this)["x"] = Floats({1}, {2});
  (*this)["h"] = Floats({1}, {3});
  (*this)["g"] = Floats({1}, {10});
  WEFT_ASSERT_OK(RunStep());
  EXPECT_THAT(Of("x@GRAD"), ElementsAre(10 * 3 * 3 * 4));
}

TEST_F(LoopsTest, ErrorInALoopNamesTheIteration) {
  // In the third iteration the array has no element to read.
  WEFT_ASSERT_OK(Make(R"(
    var i, n : int64[1]
    var x : fp32[1]
    var array : lod_tensor_array<fp32[1] lod=0>
    Out=[i] = fill_constant() {shape=longs[1], dtype=3, value=1.0}
    Out=[array] = write_to_array(X=[x], I=[i])
    Out=[i] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[array] = write_to_array(X=[x], I=[i])
    Out=[more] = less_than(X=[i], Y=[n])
    Out=[i, more] = while(X=[array, i, n], Condition=[more]) {sub_block=block(1)}
    block 1:
    var element : fp32[1]
    Out=[element] = read_from_array(X=[array], I=[i])
    Out=[i] = increment(X=[i]) {step=1.0}
    Out=[more] = less_than(X=[i], Y=[n])
)"));
  (*this)["n"] = Int(5);
  (*this)["x"] = Floats({1}, {2});
  EXPECT_THAT(RunStep(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "block 1, op 0 (read_from_array), iteration 3 of op 5 (while): input "
                       "X: element 2 of 2 was not written"));
}

TEST_F(LoopsTest, ArrayIsJoinedAndTakesItsGradientApart) {
  for (const bool stack : {false, true}) {
    WEFT_ASSERT_OK(Make(
        absl::StrReplaceAll(R"(
    var a : fp32[2, 1]
    var b : fp32[2, WIDTH]
    var array, array@GRAD, twice : lod_tensor_array<fp32[2, 1] lod=0>
    var joined : fp32[-1]
    var lengths : int32[-1]
    var joined@GRAD : fp32[-1]
    var b@GRAD : fp32[2, WIDTH]
    var none@GRAD : fp32[2, 1]
    Out=[zero] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[one] = fill_constant() {shape=longs[1], dtype=3, value=1.0}
    Out=[array] = write_to_array(X=[b], I=[one])
    Out=[array] = write_to_array(X=[a], I=[zero])
    Out=[length] = lod_array_length(X=[array])
    Out=[joined], OutIndex=[lengths] = tensor_array_to_tensor(X=[array]) {axis=1, use_stack=STACK}
    Out=[joined@GRAD] = scale(X=[joined]) {scale=10.0}
    X@GRAD=[array@GRAD] = tensor_array_to_tensor_grad(X=[array], Out@GRAD=[joined@GRAD]) {axis=1, use_stack=STACK}
    Out=[twice] = sum(X=[array@GRAD, array@GRAD])
    Out=[array@GRAD] = assign(X=[twice])
    Out=[b@GRAD] = read_from_array(X=[array@GRAD], I=[one], X_W=[b])
    Out=[none@GRAD] = read_from_array(X=[array@GRAD], I=[length], X_W=[a])
)",
                            {{"STACK", stack ? "true" : "false"}, {"WIDTH", stack ? "1" : "2"}})));
    (*this)["a"] = Floats({2, 1}, {1, 2});
    (*this)["b"] = stack ? Floats({2, 1}, {3, 5}) : Floats({2, 2}, {3, 4, 5, 6});
    for (int step = 0; step < 2; ++step) {
      WEFT_ASSERT_OK(RunStep());
      EXPECT_EQ(*(*this)["length"].data<int64_t>(), 2);
      EXPECT_THAT(Of("none@GRAD"), ElementsAre(0, 0));
      if (stack) {
        EXPECT_EQ((*this)["joined"].dims(), (Dims{2, 2, 1}));
        EXPECT_THAT(Of("joined"), ElementsAre(1, 3, 2, 5));
        EXPECT_THAT(Values<int32_t>((*this)["lengths"]), ElementsAre(1, 1));
        EXPECT_THAT(Of("b@GRAD"), ElementsAre(60, 100));
      } else {
        EXPECT_EQ((*this)["joined"].dims(), (Dims{2, 3}));
        EXPECT_THAT(Of("joined"), ElementsAre(1, 3, 4, 2, 5, 6));
        EXPECT_THAT(Values<int32_t>((*this)["lengths"]), ElementsAre(1, 2));
        EXPECT_THAT(Of("b@GRAD"), ElementsAre(60, 80, 100, 120));
      }
    }
  }
}

TEST_F(LoopsTest, ArrayIsEmptyWhenAStepBegins) {
  WEFT_ASSERT_OK(Make(R"(
    var i : int64[1]
    var x : fp32[1]
    var array : lod_tensor_array<fp32[1] lod=0>
    Out=[array] = write_to_array(X=[x], I=[i])
    Out=[length] = lod_array_length(X=[array])
)"));
  (*this)["x"] = Floats({1}, {2});
  for (int64_t i : {4, 0}) {
    (*this)["i"] = Int(i);
    WEFT_ASSERT_OK(RunStep());
    EXPECT_EQ(*(*this)["length"].data<int64_t>(), i + 1);
  }
  (*this)["i"] = Int(-1);
  EXPECT_THAT(RunStep(), IsInvalidArgument("op 0 (write_to_array): input I: -1 is not in [0, "));
}

TEST_F(LoopsTest, PartsThatDoNotFitTogetherAreAnError) {
  WEFT_ASSERT_OK(Make(R"(
    var a : fp32[2, 1]
    var b : fp32[3, 1]
    var array : lod_tensor_array<fp32[2, 1] lod=0>
    var joined : fp32[-1]
    var lengths : int32[-1]
    Out=[zero] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[one] = fill_constant() {shape=longs[1], dtype=3, value=1.0}
    Out=[array] = write_to_array(X=[a], I=[zero])
    Out=[array] = write_to_array(X=[b], I=[one])
    Out=[joined], OutIndex=[lengths] = tensor_array_to_tensor(X=[array]) {axis=1}
)"));
  (*this)["a"] = Floats({2, 1}, {1, 2});
  (*this)["b"] = Floats({3, 1}, {1, 2, 3});
  EXPECT_THAT(RunStep(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 4 (tensor_array_to_tensor): input X: expected elements like the first "
                       "one, fp32[2, 1], found fp32[3, 1] in element 1"));
}

TEST_F(LoopsTest, OpWithoutAKernelForArraysIsAnError) {
  EXPECT_THAT(Make(R"(
    var array : lod_tensor_array<fp32[1] lod=0>
    var y : fp32[1]
    Out=[y] = relu(X=[array])
)"),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "op 0 (relu): variable array: no kernel for an array of tensors"));
}

TEST_F(LoopsTest, MissingArrayIsAnError) {
  EXPECT_THAT(Make(R"(
    var i : int64[1]
    var y : fp32[1]
    Out=[y] = read_from_array(X=[@EMPTY@], I=[i])
)"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (read_from_array) input X: expected a variable, found none"));
}

TEST_F(LoopsTest, GradientOfALoopNeedsTheLoop) {
  EXPECT_THAT(Make(R"(
    var h, h@GRAD : fp32[1]
    var rounds : step_scopes
    X@GRAD=[h@GRAD] = while_grad(X=[h], Out@GRAD=[h@GRAD], StepScopes=[rounds]) {original_output_grad=strings["h@GRAD"], sub_block=block(1)}
    block 1:
    Out=[h@GRAD] = scale(X=[h@GRAD]) {scale=2.0}
)"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (while_grad) input StepScopes: rounds does not belong to an earlier "
                       "loop"));
}

}  // namespace
}  // namespace weft::testing
