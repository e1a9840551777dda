// Runs the kernels of GPUs, compiled for the host, on vectors that Paddle 2.6.2 computed. So what a
// GPU computes is tested where there is none, except for launches, barriers and cuBLASLt.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "nlohmann/json.hpp"
#include "ops/bound_kernel.h"
#include "ops/cpu/op_vectors_cases.h"
#include "ops/cpu/op_vectors_testing.h"
#include "ops/gpu/image_cases.h"
#include "ops/gpu/launch.h"
#include "ops/kernel.h"
#include "ops/kernel_types.h"
#include "ops/kernel_util.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// The cases of all files for ops with a kernel for GPUs, with rows or without.
std::vector<Json> Cases(bool with_rows) {
  std::vector<Json> all = ReadArchivedVectors("ops.jsonl");
  for (const char* file : {"programs.jsonl", "layers.jsonl", "math.jsonl"}) {
    for (Json& c : ReadVectors(file)) {
      if (file != std::string("programs.jsonl")) all.push_back(InDoublePrecision(c));
      all.push_back(std::move(c));
    }
  }
  std::vector<Json> cases;
  for (Json& c : all) {
    const std::string type = c["op"];
    if (absl::StrContains(c.dump(), "\"rows\"") != with_rows) continue;
    if ((with_rows ? GpuKernels().FindForRows(type) : GpuKernels().Find(type)) == nullptr) continue;
    cases.push_back(std::move(c));
  }
  return cases;
}

Tensor ToDouble(const Tensor& floats) {
  const std::vector<float> values = Values<float>(floats);
  return MakeTensor<double>(floats.dims(), std::vector<double>(values.begin(), values.end()));
}

TEST(GpuKernelsOnHost, GivePaddlesOutputsInAnyPlace) {
  std::set<std::string> types, without;
  for (const Json& c : Cases(/*with_rows=*/false)) {
    SCOPED_TRACE(c["id"].get<std::string>());
    const absl::Status status = RunCase(c, {}, GpuKernels());
    if (absl::IsUnimplemented(status)) {
      without.insert(c["op"].get<std::string>());
      continue;
    }
    WEFT_EXPECT_OK(status);
    types.insert(c["op"].get<std::string>());
    for (const Place& place : PossiblePlaces(c)) {
      SCOPED_TRACE(place.output + " in place of " + place.input);
      WEFT_EXPECT_OK(RunCase(c, {place}, GpuKernels()));
    }
  }
  EXPECT_THAT(without, IsEmpty());
  // Updates and copies between memories are tested below, and so are some ops on images. Several
  // ranks run sync_batch_norm (tests/training/train_gpu_kernels_test.cc). flatten2
  // and its kin have the kernels of flatten, crop has that of crop_tensor, and initializers have
  // those of CPUs.
  std::vector<std::string> untested;
  for (const std::string& type : GpuKernels().op_types()) {
    if (types.count(type) == 0) untested.push_back(type);
  }
  EXPECT_THAT(
      untested,
      ElementsAre("adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "conv3d_transpose",
                  "conv3d_transpose_grad", "crop", "crop_grad", "decayed_adagrad",
                  "depthwise_conv2d_transpose", "depthwise_conv2d_transpose_grad", "empty",
                  "flatten", "flatten_grad", "ftrl", "gaussian_random", "masked_fill",
                  "masked_fill_grad", "max_pool3d_with_index", "max_pool3d_with_index_grad",
                  "memcpy_d2h", "memcpy_h2d", "merged_adam", "momentum", "nadam", "radam",
                  "rmsprop", "rprop", "sgd", "squeeze", "squeeze_grad", "swiglu", "swiglu_grad",
                  "sync_batch_norm", "sync_batch_norm_grad", "sync_batch_norm_grad_sums",
                  "sync_batch_norm_sums", "truncated_gaussian_random", "uniform_random",
                  "unsqueeze", "unsqueeze_grad"));
}

TEST(GpuKernelsOnHost, GivePaddlesRows) {
  std::set<std::string> types;
  for (const Json& c : Cases(/*with_rows=*/true)) {
    SCOPED_TRACE(c["id"].get<std::string>());
    WEFT_EXPECT_OK(RunCase(c, {}, GpuKernels()));
    types.insert(c["op"].get<std::string>());
  }
  EXPECT_THAT(types, ElementsAre("get_tensor_from_selected_rows", "lookup_table_v2_grad",
                                 "merge_selected_rows"));
}

// Steps of sgd are among those of the optimizers below.
TEST(GpuKernelsOnHost, SumsOfRowsKeepTheirOrder) {
  Tensor a = Rows({6, 2}, {4, 1}, {1, 2, 3, 4}), b = Rows({6, 2}, {4}, {5, 6}),
         sum = Rows({1}, {}, {});
  auto op = OpRunner::Make("sum", {{"X", {&a, &b}}}, {}, {{"Out", {&sum}}}, false, GpuKernels());
  WEFT_ASSERT_OK(op.status());
  WEFT_ASSERT_OK(op->Run());
  EXPECT_THAT(sum.rows(), ElementsAre(4, 1, 4));
  EXPECT_THAT(Values<float>(sum), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(sum.TallDims(), (Dims{6, 2}));

  Tensor dense = Floats({6, 2}, std::vector<float>(12));
  op = OpRunner::Make("sum", {{"X", {&a, &dense}}}, {}, {{"Out", {&sum}}}, false, GpuKernels());
  WEFT_ASSERT_OK(op.status());
  EXPECT_THAT(op->Run(), StatusIs(absl::StatusCode::kUnimplemented,
                                  "input X: no kernel that adds SelectedRows and a tensor"));
}

TEST(GpuKernelsOnHost, IdsOutsideOfTheTableAreErrors) {
  Tensor table = Floats({2, 1}, {0, 0}), ids = Int64s({2}, {1, 2}), dout = Floats({2, 1}, {1, 1});
  Tensor rows = Rows({1}, {}, {});
  auto op = OpRunner::Make("lookup_table_v2_grad",
                           {{"W", {&table}}, {"Ids", {&ids}}, {"Out@GRAD", {&dout}}},
                           {{"is_sparse", true}}, {{"W@GRAD", {&rows}}}, false, GpuKernels());
  WEFT_ASSERT_OK(op.status());
  EXPECT_THAT(op->Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  "input Ids: 2 at position 1 is not in [0, 2), the rows of W"));
}

// Elements that are out of range, and integers by which nothing can be divided, end the step with
// an error.
TEST(GpuKernelsOnHost, WrongElementsAreErrorsAfterTheStep) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor p = Floats({2, 2}, {0.5F, 0.5F, 0.25F, 0.75F}), ones = Floats({2, 1}, {1, 1});
  const auto label = [](int64_t wrong) { return Int64s({2, 1}, {1, wrong}); };
  struct Case {
    const char* type;
    SlotTensors inputs;
    AttrValues attrs;
    const char* output;  // the slot
    std::vector<float> expected;
    const char* error;
  };
  const std::vector<Case> cases = {
      {"softmax_with_cross_entropy",
       {{"Logits", {p}}, {"Label", {label(2)}}},
       {{"use_softmax", false}},
       "Loss",
       {std::log(2.0F), nan},
       "input Label: 2 at position 1 is not in [0, 2)"},
      {"softmax_with_cross_entropy_grad",
       {{"Softmax", {p}}, {"Label", {label(-1)}}, {"Loss@GRAD", {ones}}},
       {},
       "Logits@GRAD",
       {0.5F, -0.5F, nan, nan},
       "input Label: -1 at position 1 is not in [0, 2)"},
      {"cross_entropy",
       {{"X", {p}}, {"Label", {label(7)}}},
       {},
       "Y",
       {std::log(2.0F), nan},
       "input Label: 7 at position 1 is not in [0, 2)"},
      {"cross_entropy_grad",
       {{"X", {p}}, {"Label", {label(7)}}, {"Y@GRAD", {ones}}},
       {},
       "X@GRAD",
       {0, -2, nan, nan},
       "input Label: 7 at position 1 is not in [0, 2)"},
      {"one_hot_v2",
       {{"X", {Int64s({2}, {1, 3})}}},
       {{"depth", int32_t{2}}},
       "Out",
       {0, 1, nan, nan},
       "input X: 3 at position 1 is not in [0, 2)"},
      {"gather",
       {{"X", {p}}, {"Index", {Int64s({2}, {1, 2})}}},
       {},
       "Out",
       {0.25F, 0.75F, nan, nan},
       "input Index: 2 at position 1 is not in [-2, 2)"},
      {"gather_nd",
       {{"X", {p}}, {"Index", {Int64s({2, 2}, {1, 1, 0, -3})}}},
       {},
       "Out",
       {0.75F, nan},
       "input Index: -3 at position 3 is not in [-2, 2)"},
      {"lookup_table_v2",
       {{"W", {p}}, {"Ids", {Int64s({2}, {1, 5})}}},
       {},
       "Out",
       {0.25F, 0.75F, nan, nan},
       "input Ids: 5 at position 1 is not in [0, 2)"},
      {"lookup_table_v2_grad",
       {{"W", {p}}, {"Ids", {Int64s({2}, {1, 5})}}, {"Out@GRAD", {p}}},
       {},
       "W@GRAD",
       {0, 0, 0.5F, 0.5F},
       "input Ids: 5 at position 1 is not in [0, 2)"},
      {"top_k_v2_grad",
       {{"X", {p}}, {"Indices", {label(2)}}, {"Out@GRAD", {ones}}},
       {},
       "X@GRAD",
       {0, 1, 0, 0},
       "input Indices: 2 at position 1 is not in [0, 2)"},
  };
  for (Case c : cases) {
    SCOPED_TRACE(c.type);
    Tensor out;
    SlotPointers inputs;
    for (auto& [slot, tensors] : c.inputs) {
      inputs.push_back({slot, std::vector<Tensor*>{tensors.data()}});
    }
    Tensor softmax;
    SlotPointers outputs = {{c.output, {&out}}};
    if (c.output == std::string("Loss")) outputs.push_back({"Softmax", {&softmax}});
    WEFT_ASSERT_OK_AND_ASSIGN(
        OpRunner op, OpRunner::Make(c.type, inputs, c.attrs, outputs, false, GpuKernels()));
    EXPECT_THAT(op.Run(), StatusIs(absl::StatusCode::kInvalidArgument, c.error));
    EXPECT_THAT(Values<float>(out), Pointwise(::testing::NanSensitiveFloatNear(1e-6F), c.expected));
  }
  Tensor x = MakeTensor<int32_t>({2}, {7, 7}), y = MakeTensor<int32_t>({2}, {0, 2}), out;
  for (const char* type : {"elementwise_mod", "elementwise_floordiv"}) {
    auto op = OpRunner::Make(type, {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&out}}}, false,
                             GpuKernels());
    WEFT_ASSERT_OK(op.status());
    EXPECT_THAT(op->Run(),
                StatusIs(absl::StatusCode::kInvalidArgument, "input Y: division by zero"));
    EXPECT_EQ(Values<int32_t>(out)[1], type == std::string("elementwise_mod") ? 1 : 3);
  }
}

// In single and in double precision; dropout draws what the CPU draws.
TEST(GpuKernelsOnHost, OpsOnImagesGiveWhatCpuKernelsGive) {
  for (OpCase c : ImageCases()) {
    for (const bool in_double : {false, true}) {
      SCOPED_TRACE(absl::StrCat(c.type, in_double ? " in double precision" : ""));
      for (auto& [slot, tensors] : c.inputs) {
        for (Tensor& tensor : tensors) {
          if (in_double && tensor.dtype() == DType::kFloat32) tensor = ToDouble(tensor);
        }
      }
      std::vector<std::vector<Tensor>> results;
      for (const KernelTable* kernels : {&CpuKernels(), &GpuKernels()}) {
        std::vector<Tensor>& to = results.emplace_back(c.outputs.size());
        SlotPointers in, out;
        for (auto& [slot, tensors] : c.inputs) {
          in.emplace_back(slot, std::vector<Tensor*>());
          for (Tensor& tensor : tensors) in.back().second.push_back(&tensor);
        }
        for (size_t i = 0; i < to.size(); ++i) {
          out.push_back({c.outputs[i], std::vector<Tensor*>{&to[i]}});
        }
        WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op,
                                  OpRunner::Make(c.type, in, c.attrs, out, false, *kernels));
        WEFT_ASSERT_OK(op.Run());
      }
      for (size_t i = 0; i < c.outputs.size(); ++i) {
        SCOPED_TRACE(c.outputs[i]);
        const Tensor &expected = results[0][i], &found = results[1][i];
        ASSERT_EQ(found.dims(), expected.dims());
        ASSERT_EQ(found.dtype(), expected.dtype());
        if (found.dtype() == DType::kFloat32) {
          EXPECT_THAT(Values<float>(found), Pointwise(FloatNear(1e-5F), Values<float>(expected)));
        } else if (found.dtype() == DType::kFloat64) {
          EXPECT_THAT(Values<double>(found),
                      Pointwise(::testing::DoubleNear(1e-12), Values<double>(expected)));
        } else {
          EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), found.bytes()), 0);
        }
      }
    }
  }
}

// Operands and results of products in half precision are not converted: the result is that of fp32,
// rounded once.
TEST(GpuKernelsOnHost, ProductsTakeHalves) {
  const auto types_of = [](const char* type) {
    KernelSpec spec;
    spec.schema = FindOpSchema(type);
    spec.attrs = OpAttrs::Make(*spec.schema);
    spec.inputs["X"] = {0, 1};
    spec.inputs["Y"] = {1, 1};
    spec.outputs["Out"] = {0, 1};
    return (*GpuKernels().Find(type))(spec)->types;
  };
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(DTypeName(half));
    const TensorType type = {half, {2, 2}}, single = {DType::kFloat32, {2, 2}};
    for (const char* op : {"matmul_v2", "bmm", "mul"}) {
      EXPECT_TRUE(types_of(op)->TakesHalves({type, type}));
      EXPECT_FALSE(types_of(op)->TakesHalves({type, single}));
    }
    EXPECT_FALSE(types_of("elementwise_add")->TakesHalves({type, type}));
    const auto rounded = [half](const Tensor& floats) {
      Tensor to;
      WEFT_EXPECT_OK(RunOpOn("cast", {{"X", {const_cast<Tensor*>(&floats)}}},
                             {{"out_dtype", static_cast<int32_t>(half)}}, {{"Out", {&to}}}));
      return to;
    };
    // Y is broadcast: its gradient is a sum of products.
    Tensor x = rounded(NumbersWithoutPattern({3, 4, 5}, 1));
    Tensor y = rounded(NumbersWithoutPattern({1, 5, 6}, 2));
    Tensor dout = rounded(NumbersWithoutPattern({3, 4, 6}, 3));
    const auto run = [&](const KernelTable& kernels) {
      std::vector<Tensor> results(3);
      auto op = OpRunner::Make("matmul_v2", {{"X", {&x}}, {"Y", {&y}}}, {},
                               {{"Out", {&results[0]}}}, false, kernels);
      WEFT_EXPECT_OK(op->Run());
      op = OpRunner::Make("matmul_v2_grad", {{"X", {&x}}, {"Y", {&y}}, {"Out@GRAD", {&dout}}}, {},
                          {{"X@GRAD", {&results[1]}}, {"Y@GRAD", {&results[2]}}}, false, kernels);
      WEFT_EXPECT_OK(op->Run());
      return results;
    };
    const std::vector<Tensor> expected = run(CpuKernels()), found = run(GpuKernels());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(found[i].dtype(), half);
      Tensor want, have;
      want.Resize(DType::kFloat32, expected[i].dims());
      have.Resize(DType::kFloat32, found[i].dims());
      WEFT_ASSERT_OK(ConvertFloats("", expected[i], "", &want));
      WEFT_ASSERT_OK(ConvertFloats("", found[i], "", &have));
      // Sums in another order may be rounded to a neighbour.
      const float unit = half == DType::kFloat16 ? 0x1p-10F : 0x1p-7F;
      for (int64_t k = 0; k < want.size(); ++k) {
        const float value = want.data<float>()[k];
        EXPECT_NEAR(have.data<float>()[k], value, unit * std::abs(value));
      }
    }
  }
}

TEST(GpuKernelsOnHost, ProductsRoundToTf32OnlyIfTheyMay) {
  // Of 11 and of 12 bits.
  Tensor x = Floats({1, 2}, {1 + 0x1p-10F, 1 + 0x1p-11F}), y = Floats({2, 1}, {1, 1});
  for (const bool tf32 : {false, true}) {
    KernelSpec spec;
    spec.schema = FindOpSchema("matmul_v2");
    spec.attrs = OpAttrs::Make(*spec.schema);
    spec.inputs["X"] = {0, 1};
    spec.inputs["Y"] = {1, 1};
    spec.outputs["Out"] = {0, 1};
    spec.tf32 = tf32;
    WEFT_ASSERT_OK_AND_ASSIGN(Kernel unbound, (*GpuKernels().Find("matmul_v2"))(spec));
    BoundKernel kernel(std::move(unbound));
    Tensor out;
    const std::vector<const Tensor*> inputs = {&x, &y};
    const std::vector<Tensor*> outputs = {&out};
    KernelContext ctx;
    ctx.inputs = inputs;
    ctx.outputs = outputs;
    WEFT_ASSERT_OK(kernel.Run(ctx));
    EXPECT_EQ(*out.data<float>(), tf32 ? 2 + 0x1p-10F : 2 + 3 * 0x1p-11F);
  }
}

// As many ids as a batch of sentences has, most of them often.
TEST(GpuKernelsOnHost, GradientsOfManyRowsAreAddedInTheirOrder) {
  constexpr int64_t kCount = 40000, kRows = 3000, kWidth = 3;
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < kCount; ++i) numbers.push_back(i * i % 7919 % kRows);
  Tensor table = NumbersWithoutPattern({kRows, kWidth}, 1), ids = Int64s({kCount}, numbers);
  Tensor dout = NumbersWithoutPattern({kCount, kWidth}, 2);
  const auto run = [&](const KernelTable& kernels) {
    Tensor out;
    auto op = OpRunner::Make("lookup_table_v2_grad",
                             {{"W", {&table}}, {"Ids", {&ids}}, {"Out@GRAD", {&dout}}},
                             {{"padding_idx", int64_t{1}}}, {{"W@GRAD", {&out}}}, false, kernels);
    WEFT_EXPECT_OK(op.status());
    WEFT_EXPECT_OK(op->Run());
    return Values<float>(out);
  };
  EXPECT_EQ(run(GpuKernels()), run(CpuKernels()));
}

TEST(GpuKernelsOnHost, UploadsOfAnySizeAreWhole) {
  constexpr int64_t kPart = UploadedPart<int64_t>::kCount;
  for (const int64_t count : {int64_t{0}, int64_t{1}, kPart, kPart + 1, 3 * kPart - 1}) {
    std::vector<int64_t> from(count), to(count, -1);
    std::iota(from.begin(), from.end(), 0);
    WEFT_EXPECT_OK(Upload(KernelContext(), from.data(), count, to.data()));
    EXPECT_EQ(to, from);
  }
}

// More gradients than a launch holds, of two types; one may not be finite.
TEST(GpuKernelsOnHost, ManyGradientsAreUnscaledAsOnTheCpu) {
  constexpr int kCount = 300;
  const auto run = [](int infinite, const KernelTable& kernels) {
    std::vector<Tensor> gradients(kCount);
    std::vector<Tensor*> x;
    for (int k = 0; k < kCount; ++k) {
      gradients[k] = NumbersWithoutPattern({k % 3, 5}, k);
      if (k == infinite) gradients[k].data<float>()[7] = std::numeric_limits<float>::infinity();
      if (k % 7 == 0) gradients[k] = ToDouble(gradients[k]);
      x.push_back(&gradients[k]);
    }
    Tensor scale = Floats({1}, {3}), found;
    auto op = OpRunner::Make("check_finite_and_unscale", {{"X", x}, {"Scale", {&scale}}}, {},
                             {{"Out", x}, {"FoundInfinite", {&found}}}, false, kernels);
    WEFT_EXPECT_OK(op.status());
    WEFT_EXPECT_OK(op->Run());
    std::vector<std::string> results = {*found.data<bool>() ? "found" : "finite"};
    for (const Tensor& out : gradients) {
      results.emplace_back(static_cast<const char*>(out.raw()), out.bytes());
    }
    return results;
  };
  for (const int infinite : {-1, 200, 203}) {
    EXPECT_EQ(run(infinite, GpuKernels()), run(infinite, CpuKernels())) << infinite;
  }
}

// In one run, of steps whose draws follow from those of the step before.
TEST(GpuKernelsOnHost, DropoutDrawsFromTheGeneratorOfTheRank) {
  const auto run = [](const KernelTable& kernels) {
    Tensor x = NumbersWithoutPattern({100}, 1), out, mask;
    RandomState random = RandomState::Seeded(3, 1);
    auto op = OpRunner::Make("dropout", {{"X", {&x}}}, {{"dropout_prob", 0.4F}},
                             {{"Out", {&out}}, {"Mask", {&mask}}}, false, kernels);
    std::vector<uint8_t> drawn;
    for (int step = 0; step < 3; ++step) {
      WEFT_EXPECT_OK(op->Run(&random));
      for (uint8_t stays : Values<uint8_t>(mask)) drawn.push_back(stays);
    }
    return drawn;
  };
  EXPECT_EQ(run(GpuKernels()), run(CpuKernels()));
}

// Draws of one size serve smaller ones; the host draws anew for a larger one.
TEST(GpuKernelsOnHost, DropoutWithASeedDrawsForBatchesOfSeveralSizes) {
  const auto run = [](const KernelTable& kernels) {
    Tensor x, out, mask;
    auto op = OpRunner::Make("dropout", {{"X", {&x}}},
                             {{"dropout_prob", 0.4F}, {"fix_seed", true}, {"seed", 7}},
                             {{"Out", {&out}}, {"Mask", {&mask}}}, false, kernels);
    std::vector<std::vector<float>> outs;
    for (const int64_t rows : {20, 8, 20, 33, 8}) {
      x = NumbersWithoutPattern({rows, 5}, 1);
      WEFT_EXPECT_OK(op->Run());
      outs.push_back(Values<float>(out));
      for (uint8_t stays : Values<uint8_t>(mask)) outs.back().push_back(stays);
    }
    return outs;
  };
  EXPECT_EQ(run(GpuKernels()), run(CpuKernels()));
}

TEST(GpuKernelsOnHost, UpdatesFollowPaddlesSteps) {
  const int64_t synchronizations = num_synchronizations;
  int num_cases = 0, num_with_rows = 0;
  for (const Json& c : ReadArchivedVectors("optimizers.jsonl")) {
    SCOPED_TRACE(c["id"].get<std::string>());
    if (GpuKernels().Find(c["op"].get<std::string>()) == nullptr) continue;
    const bool has_rows = c["steps"][0]["Grad"].contains("rows");
    if (has_rows && GpuKernels().FindForRows(c["op"].get<std::string>()) == nullptr) {
      continue;
    }
    WEFT_EXPECT_OK(RunOptimizerCase(c, GpuKernels(), /*paddle_cpu_quirks=*/false));
    ++num_cases;
    num_with_rows += has_rows ? 1 : 0;
  }
  EXPECT_GE(num_cases, 20);
  EXPECT_GE(num_with_rows, 4);
  EXPECT_EQ(num_synchronizations, synchronizations);
}

// Several steps of an optimizer of Paddle 3, in place. `powers`: the size of the powers of nadam
// and radam. Returns parameter and states.
std::vector<double> StepsOf(const std::string& type, DType dtype, DType of_param, int64_t powers,
                            const KernelTable& kernels) {
  constexpr int64_t kSize = 37;
  const OpSchema& schema = *FindOpSchema(type);
  std::map<std::string, Tensor> tensors;
  const auto in_type = [&](const Tensor& floats) {
    return dtype == DType::kFloat64 ? ToDouble(floats) : floats;
  };
  const std::set<std::string> of_powers = {"Beta1Pow", "Beta2Pow", "MomentumDecayPow", "MuProduct",
                                           "Rho"};
  const bool has_master = of_param != dtype;
  int seed = 50;
  for (const SlotSchema& slot : schema.inputs()) {
    if (slot.name == "MasterParam" && !has_master) continue;
    int64_t size = kSize;
    if (of_powers.count(slot.name) > 0) size = powers;
    if (slot.name == "N" || (slot.name == "LearningRate" && type != "rprop")) size = 1;
    if (slot.name == "Etas" || slot.name == "LearningRateRange") size = 2;
    Tensor value = NumbersWithoutPattern({size}, ++seed);
    for (int64_t i = 0; i < size; ++i)
      value.data<float>()[i] = std::abs(value.data<float>()[i]) + 0.1F;
    if (slot.name == "Etas") value = Floats({2}, {0.5F, 1.2F});
    if (slot.name == "LearningRateRange") value = Floats({2}, {0.01F, 0.3F});
    if (slot.name == "Grad") value = NumbersWithoutPattern({size}, ++seed);
    if (of_powers.count(slot.name) > 0) {
      std::fill_n(value.data<float>(), size, slot.name == "Rho" ? 0.0F : 1.0F);
    }
    tensors[slot.name] = in_type(value);
  }
  if (has_master) {
    for (const char* slot : {"Param", "Grad"}) {
      Tensor& tensor = tensors[slot];
      Tensor rounded;
      WEFT_EXPECT_OK(RunOpOn("cast", {{"X", {&tensor}}},
                             {{"out_dtype", static_cast<int32_t>(of_param)}},
                             {{"Out", {&rounded}}}));
      tensor = rounded;
    }
  }
  SlotPointers inputs, outputs;
  for (auto& [slot, tensor] : tensors) inputs.push_back({slot, {&tensor}});
  for (const SlotSchema& slot : schema.outputs()) {
    const auto found = tensors.find(std::string(slot.in_place_of));
    if (found != tensors.end()) outputs.push_back({slot.name, {&found->second}});
  }
  AttrValues attrs = {{"multi_precision", has_master}};
  // So small that radam adapts after a few steps.
  if (schema.FindAttr("beta2") != nullptr) attrs.push_back({"beta2", 0.9F});
  auto op = OpRunner::Make(type, inputs, attrs, outputs, false, kernels);
  WEFT_EXPECT_OK(op.status());
  for (int step = 0; op.ok() && step < 8; ++step) {
    WEFT_EXPECT_OK(op->Run());
  }
  std::vector<double> values;
  for (const auto& [slot, tensor] : tensors) {
    Tensor wide;
    WEFT_EXPECT_OK(
        RunOpOn("cast", {{"X", {&tensors[slot]}}}, {{"out_dtype", 6}}, {{"Out", {&wide}}}));
    for (double value : Values<double>(wide)) values.push_back(value);
  }
  return values;
}

TEST(GpuKernelsOnHost, OptimizersOfPaddle3StepAsOnTheCpu) {
  for (const std::string type : {"asgd", "nadam", "radam", "rprop"}) {
    SCOPED_TRACE(type);
    const bool has_powers = type == "nadam" || type == "radam";
    for (const int64_t powers : {1, 37}) {
      if (powers > 1 && !has_powers) continue;
      SCOPED_TRACE(powers);
      for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
        for (const DType of_param : {dtype, DType::kFloat16, DType::kBFloat16}) {
          if (of_param != dtype && dtype == DType::kFloat64) continue;  // a master weight is fp32
          SCOPED_TRACE(absl::StrCat(DTypeName(dtype), ", parameter ", DTypeName(of_param)));
          EXPECT_THAT(StepsOf(type, dtype, of_param, powers, GpuKernels()),
                      Pointwise(::testing::DoubleNear(1e-6),
                                StepsOf(type, dtype, of_param, powers, CpuKernels())));
        }
      }
    }
  }
  EXPECT_THAT(StepsOf("nadam", DType::kFloat32, DType::kFloat32, 1, GpuKernels()),
              Not(Contains(IsNan())));
}

// Rows of the same index, whose values another op changes; in place, too.
TEST(GpuKernelsOnHost, ValuesOfRowsChangeAsOnTheCpu) {
  Tensor factor = Floats({1}, {0.3F});
  for (const char* type : {"clip_by_norm", "elementwise_mul", "scale"}) {
    SCOPED_TRACE(type);
    for (const bool in_place : {false, true}) {
      const auto run = [&](const KernelTable& kernels) {
        Tensor x = Rows({6, 2}, {4, 1, 4}, {1, -2, 3, 4, 5, 6}), out = Rows({1}, {}, {});
        Tensor* const to = in_place ? &x : &out;
        SlotPointers inputs = {{"X", {&x}}};
        AttrValues attrs;
        if (type == std::string("elementwise_mul")) inputs.push_back({"Y", {&factor}});
        if (type == std::string("scale")) attrs.push_back({"scale", 0.25F});
        if (type == std::string("clip_by_norm")) attrs.push_back({"max_norm", 0.5F});
        auto op = OpRunner::Make(type, inputs, attrs, {{"Out", {to}}}, false, kernels);
        WEFT_EXPECT_OK(op.status());
        if (op.ok()) {
          WEFT_EXPECT_OK(op->Run());
        }
        std::vector<float> result = Values<float>(*to);
        for (int64_t row : to->rows()) result.push_back(static_cast<float>(row));
        return result;
      };
      const std::vector<float> expected = run(CpuKernels());
      EXPECT_GE(expected.size(), 6U);
      EXPECT_THAT(run(GpuKernels()), Pointwise(FloatNear(1e-6F), expected));
    }
  }
}

TEST(GpuKernelsOnHost, ValuesAndRowsAreCopiedBetweenMemories) {
  for (const char* type : {"memcpy_d2h", "memcpy_h2d"}) {
    SCOPED_TRACE(type);
    const auto copy = [type](Tensor* x) {
      Tensor out = x->is_rows() ? Rows({1}, {}, {}) : Tensor();
      auto op = OpRunner::Make(type, {{"X", {x}}}, {{"dst_place_type", 0}}, {{"Out", {&out}}},
                               false, GpuKernels());
      WEFT_EXPECT_OK(op.status());
      if (op.ok()) {
        WEFT_EXPECT_OK(op->Run());
      }
      return out;
    };
    Tensor dense = Floats({3}, {1, -2, 3}), rows = Rows({6, 2}, {4, 1}, {1, -2, 3, 4});
    EXPECT_THAT(Values<float>(copy(&dense)), ElementsAre(1, -2, 3));
    const Tensor copied = copy(&rows);
    ASSERT_TRUE(copied.is_rows());
    EXPECT_THAT(copied.rows(), ElementsAre(4, 1));
    EXPECT_EQ(copied.TallDims(), rows.TallDims());
    EXPECT_THAT(Values<float>(copied), ElementsAre(1, -2, 3, 4));
  }
}

// More parameters than one launch takes, of sizes that are no multiple of a vector.
TEST(GpuKernelsOnHost, ManyParametersAreUpdatedTogether) {
  constexpr int kCount = 60;
  const auto run = [&](const KernelTable& kernels) {
    std::vector<std::vector<Tensor>> slots(6);
    for (int i = 0; i < kCount; ++i) {
      for (size_t s = 0; s < slots.size(); ++s) {
        const int64_t size = s < 4 ? i % 11 + 1 : 1;
        std::vector<float> values;
        for (int64_t k = 0; k < size; ++k) {
          values.push_back(0.1F + 0.8F * static_cast<float>((i * 7 + k * 3 + s) % 10) / 10);
        }
        slots[s].push_back(Floats({size}, values));
      }
    }
    Tensor rate = Floats({1}, {0.1F});
    std::vector<std::vector<Tensor*>> at(slots.size());
    for (size_t s = 0; s < slots.size(); ++s) {
      for (Tensor& tensor : slots[s]) at[s].push_back(&tensor);
    }
    auto op = OpRunner::Make("merged_adam",
                             {{"Param", at[0]},
                              {"Grad", at[1]},
                              {"Moment1", at[2]},
                              {"Moment2", at[3]},
                              {"Beta1Pow", at[4]},
                              {"Beta2Pow", at[5]},
                              {"LearningRate", {&rate}}},
                             {},
                             {{"ParamOut", at[0]},
                              {"Moment1Out", at[2]},
                              {"Moment2Out", at[3]},
                              {"Beta1PowOut", at[4]},
                              {"Beta2PowOut", at[5]}},
                             false, kernels);
    WEFT_EXPECT_OK(op.status());
    if (op.ok()) {
      WEFT_EXPECT_OK(op->Run());
    }
    std::vector<float> results;
    for (const std::vector<Tensor>& slot : slots) {
      for (const Tensor& tensor : slot) {
        for (float value : Values<float>(tensor)) results.push_back(value);
      }
    }
    return results;
  };
  EXPECT_THAT(run(GpuKernels()), Pointwise(FloatNear(1e-5F), run(CpuKernels())));
}

}  // namespace
}  // namespace weft::testing
