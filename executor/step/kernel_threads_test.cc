// Programs on one and on several threads of a rank.
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

// Layers without products, of arrays that are long enough to be divided, and their gradients.
constexpr char kLayers[] = R"(program {
block 0 parent=-1 {
    var x : fp32[64, 6, 6, 16]
    var bias : fp32[16]
    var scale : fp32[16] persistable
    var shift : fp32[16] persistable
    var mean : fp32[16] persistable
    var variance : fp32[16] persistable
    var saved_mean : fp32[16]
    var saved_variance : fp32[16]
    var group_mean : fp32[64, 3]
    var group_variance : fp32[64, 3]
    var a : fp32[64, 6, 6, 16]
    var b : fp32[64, 6, 6, 16]
    var c : fp32[64, 6, 6, 16]
    var d : fp32[64, 6, 6, 16]
    var pooled : fp32[64, 3, 3, 16]
    var row_sums : fp32[64, 6, 6]
    var largest : fp32[6, 16]
    var pooled_grad : fp32[64, 3, 3, 16]
    var d_grad : fp32[64, 6, 6, 16]
    var b_grad : fp32[64, 6, 6, 16]
    var a_grad : fp32[64, 6, 6, 16]
    var x_grad : fp32[64, 6, 6, 16]
    var bias_grad : fp32[16]
    var scale_grad : fp32[16]
    var shift_grad : fp32[16]
    Out=[a] = elementwise_add(X=[x], Y=[bias]) {axis=-1}
    MeanOut=[mean], SavedMean=[saved_mean], SavedVariance=[saved_variance], VarianceOut=[variance], Y=[b] = batch_norm(Bias=[shift], Mean=[mean], Scale=[scale], Variance=[variance], X=[a]) {data_layout="NHWC"}
    Mean=[group_mean], Variance=[group_variance], Y=[c] = group_norm(X=[b]) {groups=3}
    Out=[d] = relu(X=[c])
    Out=[pooled] = pool2d(X=[d]) {data_format="NHWC", ksize=ints[2, 2], pooling_type="max", strides=ints[2, 2]}
    Out=[row_sums] = reduce_sum(X=[d]) {dim=ints[-1]}
    Out=[largest] = reduce_max(X=[d]) {dim=ints[0, 1]}
    X@GRAD=[d_grad] = pool2d_grad(Out=[pooled], Out@GRAD=[pooled_grad], X=[d]) {data_format="NHWC", ksize=ints[2, 2], pooling_type="max", strides=ints[2, 2]}
    X@GRAD=[b_grad] = relu_grad(Out=[d], Out@GRAD=[d_grad])
    Bias@GRAD=[shift_grad], Scale@GRAD=[scale_grad], X@GRAD=[a_grad] = batch_norm_grad(SavedMean=[saved_mean], SavedVariance=[saved_variance], Scale=[scale], X=[a], Y@GRAD=[b_grad]) {data_layout="NHWC"}
    X@GRAD=[x_grad], Y@GRAD=[bias_grad] = elementwise_add_grad(Out@GRAD=[a_grad], X=[x], Y=[bias]) {axis=-1}
}
}
)";

// A chain, gathers and copies in another order.
constexpr char kChainsAndCopies[] = R"(program {
block 0 parent=-1 {
    var x : fp32[300, 7, 43]
    var table : fp32[500, 90] persistable
    var a : fp32[300, 7, 43]
    var b : fp32[300, 7, 43]
    var c : fp32[300, 7, 43]
    var sorted : fp32[300, 7, 43]
    var order : int64[300, 7, 43]
    var largest : int64[300, 7]
    var ids : int64[2100]
    var rows : fp32[300, 7, 90]
    var transposed : fp32[43, 7, 300]
    var transposed_grad : fp32[300, 7, 43]
    var columns : fp32[500, 2100]
    var gathered : fp32[2100, 7, 43]
    var taken : fp32[300, 7, 43]
    Out=[a] = tanh(X=[x])
    Out=[b] = scale(X=[a]) {scale=3.0}
    Out=[c] = sum(X=[a, b, x])
    Indices=[order], Out=[sorted] = argsort(X=[c]) {axis=-1}
    Out=[largest] = arg_max(X=[c]) {axis=2}
    Out=[ids] = reshape2(X=[largest]) {shape=ints[2100]}
    Out=[rows] = lookup_table_v2(Ids=[largest], W=[table])
    Out=[columns] = index_select(Index=[ids], X=[table]) {dim=1}
    Out=[gathered] = gather(Index=[ids], X=[c]) {axis=0}
    Result=[taken] = take_along_axis(Index=[order], Input=[c]) {Axis=2}
    Out=[transposed] = transpose(X=[c]) {axis=ints[2, 1, 0]}
    X@GRAD=[transposed_grad] = transpose_grad(Out=[transposed], Out@GRAD=[transposed], X=[c]) {axis=ints[2, 1, 0]}
}
}
)";

// All variables of fp32 after a step.
std::map<std::string, std::vector<float>> ValuesOf(const char* text, int threads) {
  PlanOptions plan_options;
  plan_options.kernels = &CpuKernels();
  const Plan plan = *Plan::Build(*ParseProgramText(text), plan_options);
  const std::unique_ptr<Device> device = NewHostDevice();
  RandomState random = RandomState::Seeded(0, 0);
  Scope scope;
  PlanExecutorOptions options;
  options.plan = &plan;
  options.scope = &scope;
  options.device = device.get();
  options.random = &random;
  options.threads = threads;
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    options.accessed.push_back(static_cast<int>(v));
  }
  const auto executor = *PlanExecutor::Create(options);
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    if (plan.variables[v].first_reader < 0) continue;
    Tensor& tensor = *executor->tensor(static_cast<int>(v));
    tensor.Resize(DType::kFloat32, plan.variables[v].declared->dims);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.data<float>()[i] = 1.5F + std::sin(static_cast<float>(i + 7 * v));
    }
  }
  WEFT_EXPECT_OK(executor->RunStep());
  std::map<std::string, std::vector<float>> values;
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    const Tensor& tensor = *executor->tensor(static_cast<int>(v));
    if (tensor.dtype() != DType::kFloat32) continue;
    values[plan.variables[v].name] = Values<float>(tensor);
  }
  return values;
}

TEST(KernelThreadsTest, OpsWithoutProductsGiveTheSameBits) {
  for (const char* text : {kLayers, kChainsAndCopies}) {
    const auto expected = ValuesOf(text, 1);
    for (const int threads : {2, 3}) {
      auto found = ValuesOf(text, threads);
      for (const auto& [name, values] : expected) {
        EXPECT_TRUE(found[name] == values) << name << " on " << threads << " threads";
      }
    }
  }
}

class ModelThreadsTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::vector<double> Losses(int threads) {
    const std::string folder = absl::StrCat("tests/data/", GetParam());
    const Program main = *ReadProgram(folder + "/main.pb");
    const Program startup = *ReadProgram(folder + "/startup.pb");
    RunOptions options;
    options.kernels = &CpuKernels();
    options.threads = threads;
    RunInputs inputs;
    inputs.main = &main;
    inputs.startup = &startup;
    inputs.feeds = *FeedsFromFile(folder + "/feeds.npz");
    options.steps = inputs.feeds.num_steps;
    std::vector<double> losses;
    inputs.on_result = [&losses](const StepResult& result) {
      losses.push_back(*result.values[0].data<float>());
      return absl::OkStatus();
    };
    WEFT_EXPECT_OK(RunProgram(inputs, options).status());
    return losses;
  }
};

// oneDNN may sum in parts, one for each thread.
TEST_P(ModelThreadsTest, TrainingGivesTheSameLosses) {
  const std::vector<double> expected = Losses(1), found = Losses(2);
  ASSERT_FALSE(expected.empty());
  ASSERT_EQ(found.size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(found[step], expected[step], 1e-4 * std::fabs(expected[step])) << step;
  }
  EXPECT_EQ(Losses(2), found);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelThreadsTest, ::testing::Values("mlp_adam", "lenet_momentum"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace weft::testing
