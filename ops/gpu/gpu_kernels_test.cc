// GPU kernels give what CPU kernels give.
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/bound_kernel.h"
#include "ops/cpu/testing.h"
#include "ops/formulas/activation.h"
#include "ops/gpu/cuda_memory.h"
#include "ops/gpu/image_cases.h"
#include "ops/kernel.h"
#include "ops/schema/op_schema.h"

#ifdef WEFT_HAVE_CUDA
#include "ops/gpu/cuda_status.h"
#endif

namespace weft::testing {
namespace {

TEST(GpuKernels, AreThereInABuildWithCuda) {
#ifdef WEFT_HAVE_CUDA
  EXPECT_NE(GpuKernels().Find("matmul_v2"), nullptr);
  EXPECT_NE(GpuKernels().FindForRows("sgd"), nullptr);
#else
  EXPECT_THAT(GpuKernels().op_types(), IsEmpty());
  EXPECT_THAT(NewCudaMemory(0).status(),
              StatusIs(absl::StatusCode::kUnavailable, "built without CUDA"));
#endif
}

#ifdef WEFT_HAVE_CUDA

// Numbers in (0, 1).
Tensor Positive(const Dims& dims, int seed) {
  Tensor tensor = NumbersWithoutPattern(dims, seed);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.data<float>()[i] = tensor.data<float>()[i] * 0.45F + 0.5F;
  }
  return tensor;
}

// Each function of one tensor that has a formula, and its gradient op.
std::vector<OpCase> ActivationCases() {
  std::vector<OpCase> cases;
  const Dims dims = {5, 37};
  formulas::ForEachActivation([&](const std::string& type, auto) {
    // acosh alone has no result below 1.
    Tensor x = Positive(dims, 20);
    if (type == "acosh") {
      for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] += 1;
    }
    cases.push_back({type, {{"X", {x}}}, {}, {"Out"}});
    OpCase grad = {
        type + "_grad", {{"Out@GRAD", {NumbersWithoutPattern(dims, 21)}}}, {}, {"X@GRAD"}};
    const OpSchema& schema = *FindOpSchema(grad.type);
    if (schema.FindInput("X") != nullptr) grad.inputs.push_back({"X", {x}});
    if (schema.FindInput("Out") != nullptr) grad.inputs.push_back({"Out", {Positive(dims, 22)}});
    cases.push_back(grad);
  });
  cases.push_back({"sign", {{"X", {NumbersWithoutPattern(dims, 23)}}}, {}, {"Out"}});
  cases.push_back(
      {"gelu", {{"X", {NumbersWithoutPattern(dims, 23)}}}, {{"approximate", true}}, {"Out"}});
  return cases;
}

// Arithmetic on two tensors, one of which is broadcast.
std::vector<OpCase> ArithmeticCases() {
  std::vector<OpCase> cases;
  const Tensor x = Positive({5, 37}, 30), y = Positive({37}, 31), out = Positive({5, 37}, 32);
  for (const char* type : {"elementwise_sub", "elementwise_mul", "elementwise_div",
                           "elementwise_pow", "elementwise_max", "elementwise_min",
                           "elementwise_fmax", "elementwise_fmin", "elementwise_heaviside"}) {
    cases.push_back({type, {{"X", {x}}, {"Y", {y}}}, {}, {"Out"}});
    OpCase grad = {std::string(type) + "_grad",
                   {{"X", {x}}, {"Y", {y}}, {"Out@GRAD", {NumbersWithoutPattern({5, 37}, 33)}}},
                   {},
                   {"X@GRAD", "Y@GRAD"}};
    if (FindOpSchema(grad.type)->FindInput("Out") != nullptr) grad.inputs.push_back({"Out", {out}});
    cases.push_back(grad);
  }
  for (const char* type : {"elementwise_mod", "elementwise_floordiv"}) {
    cases.push_back({type, {{"X", {NumbersWithoutPattern({5, 37}, 34)}}, {"Y", {y}}}, {}, {"Out"}});
  }
  for (const char* type : {"grad_add", "minus"}) {
    cases.push_back({type, {{"X", {x}}, {"Y", {out}}}, {}, {"Out"}});
  }
  return cases;
}

// Updates of a parameter, with all states.
std::vector<OpCase> UpdateCases() {
  const Dims dims = {5, 37};
  std::vector<OpCase> cases;
  for (const char* type : {"adadelta", "adagrad", "adam", "adamax", "adamw", "asgd",
                           "decayed_adagrad", "ftrl", "momentum", "nadam", "radam", "sgd"}) {
    const OpSchema& schema = *FindOpSchema(type);
    OpCase update = {type, {}, {}, {}};
    int seed = 40;
    for (const SlotSchema& slot : schema.inputs()) {
      const std::set<std::string> scalars = {
          "LearningRate", "Beta1Pow", "Beta2Pow", "MuProduct", "MomentumDecayPow", "N", "Rho"};
      const bool is_scalar = scalars.count(slot.name) > 0;
      if (is_scalar) {
        update.inputs.push_back({slot.name, {Floats({1}, {0.25F})}});
      } else if (!slot.optional) {
        update.inputs.push_back({slot.name, {Positive(dims, ++seed)}});
      }
    }
    for (const SlotSchema& slot : schema.outputs()) {
      if (!slot.optional) update.outputs.push_back(slot.name);
    }
    if (schema.FindAttr("mu") != nullptr) {
      update.attrs = {{"mu", 0.9F},
                      {"use_nesterov", true},
                      {"regularization_method", std::string("l2_decay")},
                      {"regularization_coeff", 0.1F}};
    }
    cases.push_back(update);
  }
  return cases;
}

std::vector<OpCase> OtherCases() {
  const Tensor x = NumbersWithoutPattern({5, 37}, 1), y = NumbersWithoutPattern({37, 11}, 2),
               bias = NumbersWithoutPattern({37}, 3);
  const Tensor loss_grad = NumbersWithoutPattern({5, 1}, 4);
  const Tensor labels = MakeTensor<int64_t>({5, 1}, {3, 36, 0, -100, 17});
  const Tensor softmax = (*RunOp("softmax", {{"X", {x}}}, {}, {{"Out", 1}}))["Out"][0];
  return {
      {"elementwise_add", {{"X", {x}}, {"Y", {bias}}}, {{"axis", int64_t{1}}}, {"Out"}},
      {"elementwise_add_grad",
       {{"X", {x}}, {"Y", {bias}}, {"Out@GRAD", {NumbersWithoutPattern({5, 37}, 5)}}},
       {{"axis", int64_t{1}}},
       {"X@GRAD", "Y@GRAD"}},
      {"elementwise_add_grad",  // nothing is repeated
       {{"X", {x}},
        {"Y", {NumbersWithoutPattern({5, 37}, 9)}},
        {"Out@GRAD", {NumbersWithoutPattern({5, 37}, 5)}}},
       {},
       {"X@GRAD", "Y@GRAD"}},
      {"relu", {{"X", {x}}}, {}, {"Out"}},
      {"relu_grad",
       {{"Out", {x}}, {"Out@GRAD", {NumbersWithoutPattern({5, 37}, 6)}}},
       {},
       {"X@GRAD"}},
      {"scale", {{"X", {x}}}, {{"scale", 0.5F}, {"bias", 3.0F}}, {"Out"}},
      {"scale",
       {{"X", {x}}},
       {{"scale", 0.5F}, {"bias", 3.0F}, {"bias_after_scale", false}},
       {"Out"}},
      {"mul", {{"X", {x}}, {"Y", {y}}}, {}, {"Out"}},
      {"mul_grad",
       {{"X", {x}}, {"Y", {y}}, {"Out@GRAD", {NumbersWithoutPattern({5, 11}, 7)}}},
       {},
       {"X@GRAD", "Y@GRAD"}},
      {"reduce_mean", {{"X", {x}}}, {{"reduce_all", true}}, {"Out"}},
      {"reduce_mean",  // in parts
       {{"X", {NumbersWithoutPattern({7, 20011}, 10)}}},
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
      {"uniform_random",
       {},
       {{"shape", std::vector<int64_t>{3, 4}}, {"seed", int64_t{7}}},
       {"Out"}},
  };
}

std::vector<OpCase> Cases() {
  std::vector<OpCase> cases;
  for (std::vector<OpCase> some :
       {ActivationCases(), ArithmeticCases(), UpdateCases(), OtherCases(), ImageCases()}) {
    cases.insert(cases.end(), some.begin(), some.end());
  }
  return cases;
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
  absl::StatusOr<std::vector<Tensor>> RunOnDevice(const OpCase& c) {
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
  for (const OpCase& c : Cases()) {
    SCOPED_TRACE(c.type);
    SlotCounts counts;
    for (const std::string& slot : c.outputs) counts.emplace_back(slot, 1);
    WEFT_ASSERT_OK_AND_ASSIGN(auto expected, RunOp(c.type, c.inputs, c.attrs, counts));
    WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<Tensor> found, RunOnDevice(c));
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      const Tensor& want = expected[c.outputs[i]][0];
      ASSERT_EQ(found[i].dims(), want.dims());
      ASSERT_EQ(found[i].dtype(), want.dtype());
      if (want.dtype() != DType::kFloat32) {  // a mask
        EXPECT_EQ(std::memcmp(found[i].raw(), want.raw(), want.bytes()), 0) << c.outputs[i];
        continue;
      }
      float largest = 0;
      for (float value : Values<float>(want)) largest = std::max(largest, std::abs(value));
      EXPECT_THAT(Values<float>(found[i]),
                  Pointwise(FloatNear(1e-6F + 1e-5F * largest), Values<float>(want)))
          << c.outputs[i];
    }
  }
}

// Rows of a table: 3, 1, 3, by their ids, then added.
TEST_F(GpuKernelsTest, RowsOfEmbeddings) {
  const auto on_device = [this](const Tensor& tensor) {
    Tensor copy(memory_.get());
    WEFT_EXPECT_OK(copy.CopyFrom(tensor));
    return copy;
  };
  Tensor table = on_device(NumbersWithoutPattern({5, 2}, 1));
  Tensor ids = on_device(MakeTensor<int64_t>({3}, {3, 1, 3}));
  Tensor dout = on_device(Floats({3, 2}, {1, 2, 10, 20, 100, 200}));
  Tensor rows(memory_.get()), merged(memory_.get()), values(memory_.get());
  const auto run = [&](const char* type, const AttrValues& attrs,
                       std::vector<std::pair<std::string, const Tensor*>> inputs,
                       const std::string& slot, Tensor* out) -> absl::Status {
    KernelSpec spec;
    spec.schema = FindOpSchema(type);
    spec.attrs = OpAttrs::Make(*spec.schema, attrs);
    std::vector<const Tensor*> in;
    for (const auto& [name, tensor] : inputs) {
      spec.inputs[name] = {static_cast<int>(in.size()), 1};
      in.push_back(tensor);
    }
    spec.outputs[slot] = {0, 1};
    WEFT_ASSIGN_OR_RETURN(Kernel unbound, (*GpuKernels().FindForRows(type))(spec));
    BoundKernel kernel(std::move(unbound));
    std::vector<Tensor*> outputs = {out};
    KernelContext context;
    context.inputs = in;
    context.outputs = outputs;
    context.stream = stream_;
    WEFT_RETURN_IF_ERROR(kernel.Run(context));
    return CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  };
  WEFT_ASSERT_OK(run("lookup_table_v2_grad", {{"is_sparse", true}},
                     {{"W", &table}, {"Ids", &ids}, {"Out@GRAD", &dout}}, "W@GRAD", &rows));
  WEFT_ASSERT_OK(run("merge_selected_rows", {}, {{"X", &rows}}, "Out", &merged));
  WEFT_ASSERT_OK(run("get_tensor_from_selected_rows", {}, {{"X", &merged}}, "Out", &values));
  EXPECT_THAT(merged.rows(), ElementsAre(1, 3));
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensor found, values.ToHost());
  EXPECT_THAT(Values<float>(found), ElementsAre(10, 20, 101, 202));
}

TEST_F(GpuKernelsTest, CastsMatchCpuKernels) {
  const Tensor x = Floats({6}, {-2.7F, -1, 0, 0.3F, 1.5F, 100.25F});
  const DType types[] = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                         DType::kInt64,   DType::kInt8,    DType::kInt16,
                         DType::kBool,    DType::kFloat16, DType::kBFloat16};
  for (DType from : types) {
    const AttrValues to_from = {{"in_dtype", static_cast<int32_t>(DType::kFloat32)},
                                {"out_dtype", static_cast<int32_t>(from)}};
    WEFT_ASSERT_OK_AND_ASSIGN(auto converted, RunOp("cast", {{"X", {x}}}, to_from, {{"Out", 1}}));
    for (DType to : types) {
      SCOPED_TRACE(absl::StrCat(DTypeName(from), " to ", DTypeName(to)));
      const OpCase c = {
          "cast",
          {{"X", converted["Out"]}},
          {{"in_dtype", static_cast<int32_t>(from)}, {"out_dtype", static_cast<int32_t>(to)}},
          {"Out"}};
      WEFT_ASSERT_OK_AND_ASSIGN(auto expected, RunOp(c.type, c.inputs, c.attrs, {{"Out", 1}}));
      WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<Tensor> found, RunOnDevice(c));
      const Tensor& want = expected["Out"][0];
      ASSERT_EQ(found[0].dtype(), want.dtype());
      EXPECT_EQ(std::memcmp(found[0].raw(), want.raw(), want.bytes()), 0);
    }
  }
}

#endif  // WEFT_HAVE_CUDA

}  // namespace
}  // namespace weft::testing
