// Products, convolutions and normalizations of bf16, beside the same in double precision on the
// same numbers. Where the processor computes with bf16, these run its instructions.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/testing.h"
#include "ops/float16.h"
#include "ops/threads.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

struct Operand {
  std::string slot;
  Dims dims;
  bool is_fp32 = false;  // although others are bf16
};

struct Case {
  std::string op;
  std::vector<Operand> inputs;
  AttrValues attrs;
  std::vector<std::string> outputs;
  int64_t terms;  // of the longest sum
};

// Numbers of bf16 between -1 and 1 without a short period.
template <typename T>
Tensor Noise(const Dims& dims, double start) {
  std::vector<T> values(NumElements(dims));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(static_cast<float>(BFloat16(std::sin(start + 1.7 * i))));
  }
  return MakeTensor<T>(dims, values);
}

template <typename T>
std::vector<std::vector<double>> Results(const Case& c) {
  SlotTensors inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Operand& of = c.inputs[i];
    const double start = 0.1 * static_cast<double>(i + 1);
    const bool is_fp32 = of.is_fp32 && std::is_same_v<T, BFloat16>;
    inputs.push_back(
        {of.slot, {is_fp32 ? Noise<float>(of.dims, start) : Noise<T>(of.dims, start)}});
  }
  SlotCounts outputs;
  for (const std::string& slot : c.outputs) outputs.push_back({slot, 1});
  auto results = RunOp(c.op, inputs, c.attrs, outputs);
  EXPECT_THAT(results, IsOk());
  if (!results.ok()) return {};
  std::vector<std::vector<double>> values;
  for (const std::string& slot : c.outputs) {
    const Tensor& tensor = (*results)[slot][0];
    values.emplace_back();
    if (tensor.dtype() == DType::kFloat32) {
      for (float value : Values<float>(tensor)) values.back().push_back(value);
    } else {
      EXPECT_EQ(tensor.dtype(), DTypeOf<T>::value) << slot;
      for (T value : Values<T>(tensor)) values.back().push_back(value);
    }
  }
  return values;
}

std::vector<Case> Cases() {
  const AttrValues last = {
      {"strides", Ints{1, 1}}, {"paddings", Ints{1, 1}}, {"data_format", std::string("NHWC")}};
  const AttrValues strided = {{"strides", Ints{2, 2}}, {"paddings", Ints{1, 1}}};
  const AttrValues grouped = {{"strides", Ints{1, 1}}, {"paddings", Ints{1, 1}}, {"groups", 2}};
  const AttrValues depthwise = {{"strides", Ints{1, 1}}, {"paddings", Ints{1, 1}}, {"groups", 32}};
  std::vector<Case> cases = {
      {"matmul_v2", {{"X", {33, 70}}, {"Y", {70, 40}}}, {}, {"Out"}, 70},
      {"matmul_v2",
       {{"X", {3, 2, 17, 70}}, {"Y", {3, 2, 9, 70}}},
       {{"trans_y", true}},
       {"Out"},
       70},
      {"matmul_v2_grad",
       {{"X", {33, 70}}, {"Y", {70, 40}}, {"Out@GRAD", {33, 40}}},
       {},
       {"X@GRAD", "Y@GRAD"},
       70},
      // Y@GRAD is a sum over the batch.
      {"matmul_v2_grad",
       {{"X", {5, 33, 70}}, {"Y", {70, 40}}, {"Out@GRAD", {5, 33, 40}}},
       {},
       {"X@GRAD", "Y@GRAD"},
       165},
      {"matmul_v2_grad",
       {{"X", {4, 3, 7}}, {"Y", {1, 7, 5}}, {"Out@GRAD", {4, 3, 5}}},
       {},
       {"X@GRAD", "Y@GRAD"},
       12},
  };
  const auto add_conv = [&](const Dims& input, const Dims& filter, const Dims& output,
                            const AttrValues& attrs, int64_t terms) {
    cases.push_back({"conv2d", {{"Input", input}, {"Filter", filter}}, attrs, {"Output"}, terms});
    cases.push_back({"conv2d_grad",
                     {{"Input", input}, {"Filter", filter}, {"Output@GRAD", output}},
                     attrs,
                     {"Input@GRAD", "Filter@GRAD"},
                     terms});
  };
  add_conv({2, 9, 9, 32}, {64, 32, 3, 3}, {2, 9, 9, 64}, last, 576);
  add_conv({2, 9, 9, 3}, {8, 3, 3, 3}, {2, 9, 9, 8}, last, 162);
  add_conv({2, 9, 9, 8}, {8, 8, 3, 3}, {2, 9, 9, 8}, last, 162);
  add_conv({2, 16, 9, 9}, {32, 16, 3, 3}, {2, 32, 5, 5}, strided, 288);
  add_conv({2, 16, 9, 9}, {32, 8, 3, 3}, {2, 32, 9, 9}, grouped, 288);
  add_conv({2, 32, 9, 9}, {32, 1, 3, 3}, {2, 32, 9, 9}, depthwise, 162);
  return cases;
}

TEST(BFloat16Test, ProductsAddUpInFp32AndRoundOnce) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.op + " of " + DimsToString(c.inputs[0].dims) + " and " +
                 DimsToString(c.inputs[1].dims));
    const auto results = Results<BFloat16>(c), exact = Results<double>(c);
    ASSERT_EQ(results.size(), exact.size());
    for (size_t k = 0; k < exact.size(); ++k) {
      ASSERT_EQ(results[k].size(), exact[k].size());
      for (size_t i = 0; i < exact[k].size(); ++i) {
        // Half a unit in the last place, and what sums in fp32 of numbers up to 1 lose.
        const double bound = std::fabs(exact[k][i]) * 0x1p-8 + c.terms * c.terms * 0x1p-24;
        ASSERT_NEAR(results[k][i], exact[k][i], bound) << c.outputs[k] << " " << i;
      }
    }
  }
}

TEST(BFloat16Test, ResultsHaveTheSameBitsInEveryRun) {
  for (int threads : {1, 2}) {
    SetKernelThreads(threads);
    for (const Case& c : Cases()) EXPECT_EQ(Results<BFloat16>(c), Results<BFloat16>(c)) << c.op;
  }
  SetKernelThreads(1);
}

// Where the processor has instructions for them: conversions would take longer than these save.
TEST(BFloat16Test, ProductsReadTheirOperandsAsTheyAre) {
  Tensor x = Noise<BFloat16>({8, 16}, 0), y = Noise<BFloat16>({16, 8}, 1), out;
  KernelSpec spec;
  spec.schema = FindOpSchema("matmul_v2");
  spec.attrs = OpAttrs::Make(*spec.schema);
  spec.inputs["X"] = {0, 1};
  spec.inputs["Y"] = {1, 1};
  spec.outputs["Out"] = {0, 1};
  WEFT_ASSERT_OK_AND_ASSIGN(Kernel kernel, (*CpuKernels().Find("matmul_v2"))(spec));
  BoundKernel bound(std::move(kernel));
  const std::vector<const Tensor*> inputs = {&x, &y};
  const std::vector<Tensor*> outputs = {&out};
  KernelContext ctx;
  ctx.inputs = inputs;
  ctx.outputs = outputs;
  WEFT_ASSERT_OK(bound.Run(ctx));
  EXPECT_EQ(bound.has_temporaries(), !HasBFloat16Products());
}

// The statistics and parameters are fp32, as in Paddle's mixed precision.
TEST(BFloat16Test, BatchNormIsThatOfFp32Rounded) {
  for (const std::string layout : {"NHWC", "NCHW"}) {
    const Dims image = layout == "NHWC" ? Dims{3, 5, 5, 8} : Dims{3, 8, 5, 5};
    const Case forward = {"batch_norm",
                          {{"X", image},
                           {"Scale", {8}, true},
                           {"Bias", {8}, true},
                           {"Mean", {8}, true},
                           {"Variance", {8}, true}},
                          {{"data_layout", layout}},
                          {"Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"},
                          75};
    const Case backward = {"batch_norm_grad",
                           {{"X", image},
                            {"Y@GRAD", image},
                            {"Scale", {8}, true},
                            {"Bias", {8}, true},
                            {"SavedMean", {8}, true},
                            {"SavedVariance", {8}, true}},
                           {{"data_layout", layout}},
                           {"X@GRAD", "Scale@GRAD", "Bias@GRAD"},
                           75};
    for (const Case& c : {forward, backward}) {
      SCOPED_TRACE(c.op + " " + layout);
      const auto halves = Results<BFloat16>(c), floats = Results<float>(c);
      ASSERT_EQ(halves.size(), floats.size());
      for (size_t k = 0; k < floats.size(); ++k) {
        std::vector<double> expected;
        for (double value : floats[k]) {
          const auto number = static_cast<float>(value);
          expected.push_back(k == 0 ? static_cast<float>(BFloat16(number)) : number);
        }
        EXPECT_EQ(halves[k], expected) << c.outputs[k];
      }
    }
  }
}

}  // namespace
}  // namespace weft::testing
