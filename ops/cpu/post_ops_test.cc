#include "ops/cpu/post_ops.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/bound_kernel.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

template <typename T>
Tensor Numbers(const Dims& dims, int seed) {
  std::vector<T> values(NumElements(dims));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(static_cast<int>((i * 37 + seed) % 29) - 14) / 8;
  }
  return MakeTensor<T>(dims, values);
}

// Runs an op with inputs of one variable, and its output of this type.
Tensor RunWith(const char* type, const std::vector<std::pair<std::string, Tensor*>>& inputs,
               const AttrValues& attrs, const std::string& output,
               const std::vector<std::pair<PostOpKind, Tensor*>>& post_ops = {}) {
  KernelSpec spec;
  spec.schema = FindOpSchema(type);
  spec.attrs = OpAttrs::Make(*spec.schema, attrs);
  std::vector<const Tensor*> tensors;
  for (const auto& [slot, tensor] : inputs) {
    spec.inputs[slot] = {static_cast<int>(tensors.size()), 1};
    tensors.push_back(tensor);
  }
  spec.outputs[output] = {0, 1};
  for (const auto& [kind, operand] : post_ops) {
    spec.post_ops.push_back({kind, operand == nullptr ? -1 : static_cast<int>(tensors.size())});
    if (operand != nullptr) tensors.push_back(operand);
  }
  BoundKernel kernel(*(*CpuKernels().Find(type))(spec));
  EXPECT_EQ(kernel.kernel().num_post_ops, post_ops.size());
  Tensor out;
  Tensor* const outputs[] = {&out};
  KernelContext ctx;
  ctx.inputs = tensors;
  ctx.outputs = outputs;
  WEFT_EXPECT_OK(kernel.Run(ctx));
  return out;
}

// Adds a bias to the channels of dimension `axis`, then an image, and rectifies.
template <typename T>
std::vector<T> Expected(Tensor result, const Tensor& bias, const Tensor& image, int axis) {
  int64_t inner = 1;
  for (int i = axis + 1; i < result.rank(); ++i) inner *= result.dim(i);
  for (int64_t i = 0; i < result.size(); ++i) {
    T& value = result.data<T>()[i];
    value += bias.data<T>()[i / inner % bias.size()];
    value = std::max<T>(value + image.data<T>()[i], 0);
  }
  return Values<T>(result);
}

template <typename T>
void ExpectPostOps(const char* type, std::vector<std::pair<std::string, Tensor*>> inputs,
                   const AttrValues& attrs, const std::string& output, int axis) {
  const Tensor plain = RunWith(type, inputs, attrs, output);
  Tensor bias = Numbers<T>({plain.dim(axis)}, 3), image = Numbers<T>(plain.dims(), 5);
  const Tensor found = RunWith(
      type, inputs, attrs, output,
      {{PostOpKind::kBias, &bias}, {PostOpKind::kAdd, &image}, {PostOpKind::kRelu, nullptr}});
  EXPECT_THAT(Values<T>(found),
              Pointwise(::testing::DoubleNear(1e-4), Expected<T>(plain, bias, image, axis)));
}

template <typename T>
class PostOpsTest : public ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(PostOpsTest, FloatTypes);

TYPED_TEST(PostOpsTest, OfProducts) {
  Tensor x = Numbers<TypeParam>({5, 6}, 1), y = Numbers<TypeParam>({6, 4}, 2);
  ExpectPostOps<TypeParam>("mul", {{"X", &x}, {"Y", &y}}, {}, "Out", 1);
  ExpectPostOps<TypeParam>("matmul", {{"X", &x}, {"Y", &y}}, {{"alpha", 0.5f}}, "Out", 1);
  Tensor many = Numbers<TypeParam>({2, 3, 5, 6}, 1), few = Numbers<TypeParam>({2, 1, 6, 4}, 2);
  ExpectPostOps<TypeParam>("matmul_v2", {{"X", &many}, {"Y", &few}}, {}, "Out", 3);
  Tensor vector = Numbers<TypeParam>({6}, 4);
  ExpectPostOps<TypeParam>("matmul_v2", {{"X", &many}, {"Y", &vector}}, {}, "Out", 2);
  // Sums of nothing.
  Tensor no_columns = Numbers<TypeParam>({5, 0}, 1), no_rows = Numbers<TypeParam>({0, 4}, 2);
  ExpectPostOps<TypeParam>("mul", {{"X", &no_columns}, {"Y", &no_rows}}, {}, "Out", 1);
}

TYPED_TEST(PostOpsTest, OfConvolutions) {
  for (const char* layout : {"NCHW", "NHWC"}) {
    SCOPED_TRACE(layout);
    const bool last = layout[1] == 'H';
    Tensor x = Numbers<TypeParam>(last ? Dims{2, 8, 8, 3} : Dims{2, 3, 8, 8}, 1);
    Tensor filter = Numbers<TypeParam>({6, 3, 3, 3}, 2);
    const std::vector<std::pair<std::string, Tensor*>> inputs = {{"Input", &x},
                                                                 {"Filter", &filter}};
    const AttrValues attrs = {{"data_format", std::string(layout)}};
    const int axis = last ? 3 : 1;
    if (last) ExpectPostOps<TypeParam>("conv2d", inputs, attrs, "Output", axis);
    const Tensor plain = RunWith("conv2d", inputs, attrs, "Output");
    Tensor bias = Numbers<TypeParam>({6}, 3), zero = Numbers<TypeParam>(plain.dims(), 0);
    std::fill_n(zero.data<TypeParam>(), zero.size(), TypeParam(0));
    const Tensor found = RunWith("conv2d", inputs, attrs, "Output",
                                 {{PostOpKind::kBias, &bias}, {PostOpKind::kRelu, nullptr}});
    EXPECT_THAT(Values<TypeParam>(found), Pointwise(::testing::DoubleNear(1e-5),
                                                    Expected<TypeParam>(plain, bias, zero, axis)));
  }
}

// Of windows with gaps, oneDNN makes products of matrices, which do not add images right.
TEST(PostOpsOfConvolutionsTest, ImagesAreAddedWhateverOneDnnMakesOfTheShape) {
  struct Case {
    int channels, size, window, dilation, stride, padding;
  };
  for (const Case& c :
       {Case{16, 33, 3, 6, 1, 6}, Case{4, 14, 5, 2, 1, 4}, Case{4, 7, 3, 4, 1, 4},
        Case{4, 14, 3, 18, 1, 18}, Case{3, 4, 7, 1, 2, 3}, Case{4, 9, 1, 1, 2, 3}}) {
    SCOPED_TRACE(c.window);
    SCOPED_TRACE(c.dilation);
    Tensor x = Numbers<float>({2, c.size, c.size, c.channels}, 1);
    Tensor filter = Numbers<float>({c.channels, c.channels, c.window, c.window}, 2);
    const auto pair = [](int value) { return std::vector<int32_t>{value, value}; };
    ExpectPostOps<float>("conv2d", {{"Input", &x}, {"Filter", &filter}},
                         {{"data_format", std::string("NHWC")},
                          {"dilations", pair(c.dilation)},
                          {"strides", pair(c.stride)},
                          {"paddings", pair(c.padding)}},
                         "Output", 3);
  }
}

TEST(PostOpsOfConvolutionsTest, GroupsTakeNoImages) {
  KernelSpec spec;
  spec.schema = FindOpSchema("conv2d");
  spec.attrs = OpAttrs::Make(*spec.schema, {{"data_format", std::string("NHWC")}, {"groups", 2}});
  spec.inputs = {{"Input", {0, 1}}, {"Filter", {1, 1}}};
  spec.outputs["Output"] = {0, 1};
  const KernelFactory& factory = *CpuKernels().Find("conv2d");
  spec.post_ops = {{PostOpKind::kBias, 2}};
  EXPECT_TRUE(factory(spec).ok());
  spec.post_ops = {{PostOpKind::kAdd, 2}};
  EXPECT_EQ(factory(spec).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(PostOpsBindTest, AnOperandOfAnotherShapeIsAnError) {
  Tensor result = Floats({2, 3}, std::vector<float>(6)), two = Floats({2}, {1, 2});
  const Tensor* const inputs[] = {&two};
  KernelContext ctx;
  ctx.inputs = inputs;
  for (PostOpKind kind : {PostOpKind::kBias, PostOpKind::kAdd}) {
    EXPECT_EQ(PostOps::Bind({{kind, 0}}, ctx, result, {3, 1}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  WEFT_EXPECT_OK(PostOps::Bind({{PostOpKind::kBias, 0}}, ctx, result, {2, 1}).status());
}

}  // namespace
}  // namespace weft::testing
