// GPU kernels give what CPU kernels give.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/bound_kernel.h"
#include "ops/cpu/testing.h"
#include "ops/gpu/cuda_memory.h"
#include "ops/gpu/gpu_op_types.h"
#include "ops/kernel.h"

#ifdef WEFT_HAVE_CUDA
#include "ops/gpu/cuda_status.h"
#endif

namespace weft::testing {
namespace {

TEST(GpuKernels, AreThereInABuildWithCuda) {
#ifdef WEFT_HAVE_CUDA
  EXPECT_THAT(GpuKernels().op_types(), ::testing::ElementsAreArray(GpuOpTypes()));
#else
  EXPECT_THAT(GpuKernels().op_types(), ::testing::IsEmpty());
  EXPECT_THAT(NewCudaMemory(0).status(),
              StatusIs(absl::StatusCode::kUnavailable, "built without CUDA"));
#endif
}

#ifdef WEFT_HAVE_CUDA

// An op with its operands: tensors by slot, and the slots of its results.
struct Case {
  std::string type;
  SlotTensors inputs;
  AttrValues attrs;
  std::vector<std::string> outputs;
};

// Numbers without a pattern, in [-1, 1).
Tensor FloatsAndInts(const Dims& dims, int seed) {
  std::vector<float> values(NumElements(dims));
  uint32_t state = 12345 + seed;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) / (1 << 23) - 1;
  }
  return Floats(dims, values);
}

std::vector<Case> Cases() {
  const Tensor x = FloatsAndInts({5, 37}, 1), y = FloatsAndInts({37, 11}, 2),
               bias = FloatsAndInts({37}, 3);
  const Tensor loss_grad = FloatsAndInts({5, 1}, 4), rate = Floats({1}, {0.25F});
  const Tensor labels = MakeTensor<int64_t>({5, 1}, {3, 36, 0, -100, 17});
  const Tensor softmax = (*RunOp("softmax", {{"X", {x}}}, {}, {{"Out", 1}}))["Out"][0];
  return {
      {"elementwise_add", {{"X", {x}}, {"Y", {bias}}}, {{"axis", int64_t{1}}}, {"Out"}},
      {"elementwise_add_grad",
       {{"X", {x}}, {"Y", {bias}}, {"Out@GRAD", {FloatsAndInts({5, 37}, 5)}}},
       {{"axis", int64_t{1}}},
       {"X@GRAD", "Y@GRAD"}},
      {"elementwise_add_grad",  // nothing is repeated
       {{"X", {x}}, {"Y", {FloatsAndInts({5, 37}, 9)}}, {"Out@GRAD", {FloatsAndInts({5, 37}, 5)}}},
       {},
       {"X@GRAD", "Y@GRAD"}},
      {"relu", {{"X", {x}}}, {}, {"Out"}},
      {"relu_grad", {{"Out", {x}}, {"Out@GRAD", {FloatsAndInts({5, 37}, 6)}}}, {}, {"X@GRAD"}},
      {"scale", {{"X", {x}}}, {{"scale", 0.5F}, {"bias", 3.0F}}, {"Out"}},
      {"mul", {{"X", {x}}, {"Y", {y}}}, {}, {"Out"}},
      {"mul_grad",
       {{"X", {x}}, {"Y", {y}}, {"Out@GRAD", {FloatsAndInts({5, 11}, 7)}}},
       {},
       {"X@GRAD", "Y@GRAD"}},
      {"reduce_mean", {{"X", {x}}}, {{"reduce_all", true}}, {"Out"}},
      {"reduce_mean",  // in parts
       {{"X", {FloatsAndInts({7, 20011}, 10)}}},
       {{"reduce_all", true}},
       {"Out"}},
      {"reduce_mean_grad",
       {{"X", {x}}, {"Out@GRAD", {Floats({}, {2.0F})}}},
       {{"reduce_all", true}},
       {"X@GRAD"}},
      {"softmax_with_cross_entropy",
       {{"Logits", {x}}, {"Label", {labels}}},
       {},
       {"Softmax", "Loss"}},
      {"softmax_with_cross_entropy_grad",
       {{"Softmax", {softmax}}, {"Label", {labels}}, {"Loss@GRAD", {loss_grad}}},
       {},
       {"Logits@GRAD"}},
      {"sgd",
       {{"Param", {x}}, {"Grad", {FloatsAndInts({5, 37}, 8)}}, {"LearningRate", {rate}}},
       {},
       {"ParamOut"}},
      {"uniform_random",
       {},
       {{"shape", std::vector<int64_t>{3, 4}}, {"seed", int64_t{7}}},
       {"Out"}},
  };
}

class GpuKernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Memory>> memory = NewCudaMemory(0);
    if (!memory.ok()) GTEST_SKIP() << memory.status();
    memory_ = *std::move(memory);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  // Runs the case on the device, twice, and gives the results of the second time.
  absl::StatusOr<std::vector<Tensor>> RunOnDevice(const Case& c) {
    std::vector<Tensor> inputs, outputs(c.outputs.size(), Tensor(memory_.get()));
    KernelSpec spec;
    spec.schema = FindOpSchema(c.type);
    spec.attrs = OpAttrs::Make(*spec.schema, c.attrs);
    for (const auto& [slot, tensors] : c.inputs) {
      spec.inputs[slot] = {static_cast<int>(inputs.size()), static_cast<int>(tensors.size())};
      for (const Tensor& tensor : tensors) {
        inputs.emplace_back(memory_.get());
        WEFT_RETURN_IF_ERROR(inputs.back().CopyFrom(tensor));
      }
    }
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      spec.outputs[c.outputs[i]] = {static_cast<int>(i), 1};
    }
    WEFT_ASSIGN_OR_RETURN(Kernel unbound, (*GpuKernels().Find(c.type))(spec));
    BoundKernel kernel(std::move(unbound));
    std::vector<const Tensor*> in;
    std::vector<Tensor*> out;
    for (const Tensor& tensor : inputs) in.push_back(&tensor);
    for (Tensor& tensor : outputs) out.push_back(&tensor);
    KernelContext context;
    context.inputs = in;
    context.outputs = out;
    context.stream = stream_;
    WEFT_RETURN_IF_ERROR(kernel.Run(context));
    WEFT_RETURN_IF_ERROR(kernel.Run(context));
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
    std::vector<Tensor> results;
    for (const Tensor& tensor : outputs) {
      WEFT_ASSIGN_OR_RETURN(results.emplace_back(), tensor.ToHost());
    }
    return results;
  }

  std::unique_ptr<Memory> memory_;
  cudaStream_t stream_ = nullptr;
};

TEST_F(GpuKernelsTest, MatchCpuKernels) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.type);
    SlotCounts counts;
    for (const std::string& slot : c.outputs) counts.emplace_back(slot, 1);
    WEFT_ASSERT_OK_AND_ASSIGN(auto expected, RunOp(c.type, c.inputs, c.attrs, counts));
    WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<Tensor> found, RunOnDevice(c));
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      const Tensor& want = expected[c.outputs[i]][0];
      ASSERT_EQ(found[i].dims(), want.dims());
      float largest = 0;
      for (float value : Values<float>(want)) largest = std::max(largest, std::abs(value));
      EXPECT_THAT(
          Values<float>(found[i]),
          ::testing::Pointwise(::testing::FloatNear(1e-6F + 1e-5F * largest), Values<float>(want)))
          << c.outputs[i];
    }
  }
}

#endif  // WEFT_HAVE_CUDA

}  // namespace
}  // namespace weft::testing
