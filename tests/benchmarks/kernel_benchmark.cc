// Prints how long kernels take, on one thread and in the layout that programs have, beside the
// primitives that oneDNN has for what they compute, and beside a copy of as many bytes:
//   bazel run -c opt //tests/benchmarks:kernel_benchmark
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/testing.h"

namespace weft {
namespace {

using dnnl::memory;
using testing::AttrValues;
using testing::OpRunner;
using testing::SlotPointers;

// The least of several times, each of as many runs as take some milliseconds, in microseconds.
double Microseconds(const std::function<void()>& run) {
  run();
  double least = std::numeric_limits<double>::max();
  for (int round = 0; round < 15; ++round) {
    int runs = 0;
    const auto start = std::chrono::steady_clock::now();
    std::chrono::duration<double, std::micro> time{};
    do {
      run();
      ++runs;
      time = std::chrono::steady_clock::now() - start;
    } while (time.count() < 5000);
    least = std::min(least, time.count() / runs);
  }
  return least;
}

Tensor Empty(const Dims& dims) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, dims);
  return tensor;
}

Tensor Numbers(const Dims& dims) {
  Tensor tensor = Empty(dims);
  uint32_t state = 1;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    state = state * 1664525 + 1013904223;
    tensor.data<float>()[i] = static_cast<float>(state >> 8) / (1 << 23) - 1;
  }
  return tensor;
}

void Print(const std::string& name, const std::function<void()>& ours,
           const std::function<void()>& theirs) {
  const double weft = Microseconds(ours), dnnl = Microseconds(theirs);
  std::printf("%-44s %10.1f us %10.1f us %6.2f\n", name.c_str(), weft, dnnl, weft / dnnl);
  std::fflush(stdout);
}

std::function<void()> Bound(const char* type, const SlotPointers& inputs, const AttrValues& attrs,
                            const SlotPointers& outputs) {
  auto op = OpRunner::Make(type, inputs, attrs, outputs);
  if (!op.ok()) {
    std::fprintf(stderr, "%s: %s\n", type, op.status().ToString().c_str());
    std::exit(1);
  }
  return [op = std::make_shared<OpRunner>(*std::move(op)), type] {
    const absl::Status status = op->Run();
    if (status.ok()) return;
    std::fprintf(stderr, "%s: %s\n", type, status.ToString().c_str());
    std::exit(1);
  };
}

std::string Label(const std::string& op, const Dims& dims) { return op + " " + DimsToString(dims); }

enum class Layout { kChannelsFirst, kChannelsLast };

// Of images; `dims` are with channels first.
memory::desc ImageDesc(const Dims& dims, Layout layout) {
  using Tag = memory::format_tag;
  return memory::desc({dims.begin(), dims.end()}, memory::data_type::f32,
                      layout == Layout::kChannelsLast ? Tag::nhwc : Tag::nchw);
}

memory::desc Desc(const Dims& dims) {
  using Tag = memory::format_tag;
  constexpr Tag kTags[] = {Tag::a, Tag::ab, Tag::abc, Tag::abcd, Tag::abcde};
  return memory::desc({dims.begin(), dims.end()}, memory::data_type::f32, kTags[dims.size() - 1]);
}

memory Of(const memory::desc& desc, Tensor& tensor) {
  return memory(desc, DnnlCpuEngine(), tensor.raw());
}

std::function<void()> Executed(const dnnl::primitive& primitive,
                               const std::unordered_map<int, memory>& arguments) {
  return [=, stream = dnnl::stream(DnnlCpuEngine())]() mutable {
    primitive.execute(stream, arguments);
    stream.wait();
  };
}

void Softmax(const Dims& dims) {
  Tensor x = Numbers(dims), y, dx, y2 = Empty(dims), dx2 = Empty(dims);
  Tensor dy = Numbers(dims);
  const memory::desc desc = Desc(dims);
  const dnnl::softmax_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, desc, static_cast<int>(dims.size()) - 1},
      DnnlCpuEngine());
  Print(Label("softmax", dims), Bound("softmax", {{"X", {&x}}}, {}, {{"Out", {&y}}}),
        Executed(dnnl::softmax_forward(forward),
                 {{DNNL_ARG_SRC, Of(desc, x)}, {DNNL_ARG_DST, Of(desc, y2)}}));
  const dnnl::softmax_backward::primitive_desc backward(
      {desc, desc, static_cast<int>(dims.size()) - 1}, DnnlCpuEngine(), forward);
  Print(Label("softmax_grad", dims),
        Bound("softmax_grad", {{"Out", {&y}}, {"Out@GRAD", {&dy}}}, {}, {{"X@GRAD", {&dx}}}),
        Executed(dnnl::softmax_backward(backward), {{DNNL_ARG_DST, Of(desc, y2)},
                                                    {DNNL_ARG_DIFF_DST, Of(desc, dy)},
                                                    {DNNL_ARG_DIFF_SRC, Of(desc, dx2)}}));
}

// `image` is with channels first.
void Pool(const char* pooling_type, const Dims& image, int size, int stride, int padding,
          Layout layout = Layout::kChannelsFirst) {
  const bool is_max = std::string(pooling_type) == "max", is_last = layout == Layout::kChannelsLast;
  const auto out = [&](int64_t in) { return (in + 2 * padding - size) / stride + 1; };
  const Dims out_image = {image[0], image[1], out(image[2]), out(image[3])};
  const auto stored = [is_last](const Dims& d) {
    return is_last ? Dims{d[0], d[2], d[3], d[1]} : d;
  };
  const Dims dims = stored(image), out_dims = stored(out_image);
  Tensor x = Numbers(dims), y, dx, y2 = Empty(out_dims), dx2 = Empty(dims);
  Tensor dy = Numbers(out_dims);
  const AttrValues attrs = {{"pooling_type", std::string(pooling_type)},
                            {"ksize", std::vector<int32_t>{size, size}},
                            {"data_format", std::string(is_last ? "NHWC" : "NCHW")},
                            {"strides", std::vector<int32_t>{stride, stride}},
                            {"paddings", std::vector<int32_t>{padding, padding}}};
  const memory::dims kernel = {size, size}, strides = {stride, stride}, pads = {padding, padding};
  const dnnl::algorithm algorithm =
      is_max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_exclude_padding;
  const memory::desc from = ImageDesc(image, layout), to = ImageDesc(out_image, layout);
  const dnnl::pooling_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, from, to, strides, kernel, pads, pads},
      DnnlCpuEngine());
  const memory workspace(forward.workspace_desc(), DnnlCpuEngine());
  const std::string name = std::string("pool2d ") + pooling_type + " " + std::to_string(size) +
                           "/" + std::to_string(stride);
  Print(Label(name, dims), Bound("pool2d", {{"X", {&x}}}, attrs, {{"Out", {&y}}}),
        Executed(dnnl::pooling_forward(forward), {{DNNL_ARG_SRC, Of(from, x)},
                                                  {DNNL_ARG_DST, Of(to, y2)},
                                                  {DNNL_ARG_WORKSPACE, workspace}}));
  const dnnl::pooling_backward::primitive_desc backward(
      {algorithm, from, to, strides, kernel, pads, pads}, DnnlCpuEngine(), forward);
  Print(Label(name + " grad", dims),
        Bound("pool2d_grad", {{"X", {&x}}, {"Out", {&y}}, {"Out@GRAD", {&dy}}}, attrs,
              {{"X@GRAD", {&dx}}}),
        Executed(dnnl::pooling_backward(backward), {{DNNL_ARG_DIFF_DST, Of(to, dy)},
                                                    {DNNL_ARG_DIFF_SRC, Of(from, dx2)},
                                                    {DNNL_ARG_WORKSPACE, workspace}}));
}

// Both with scale and shift, statistics of the batch.
void BatchNorm(const Dims& dims) {
  const Dims channels = {dims[1]};
  Tensor x = Numbers(dims), scale = Numbers(channels), bias = Numbers(channels);
  Tensor mean = Numbers(channels), variance = Numbers(channels), y, saved_mean, saved_inverse;
  Tensor dy = Numbers(dims), dx, dscale, dbias, y2 = Empty(dims), dx2 = Empty(dims),
         mean2 = Empty(channels), variance2 = Empty(channels), dscale2 = Empty(channels),
         dshift2 = Empty(channels);
  const memory::desc desc = Desc(dims), per_channel = Desc(channels);
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  const dnnl::batch_normalization_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, desc, 1e-5F, flags}, DnnlCpuEngine());
  Print(Label("batch_norm", dims),
        Bound("batch_norm",
              {{"X", {&x}},
               {"Scale", {&scale}},
               {"Bias", {&bias}},
               {"Mean", {&mean}},
               {"Variance", {&variance}}},
              {},
              {{"Y", {&y}},
               {"MeanOut", {&mean}},
               {"VarianceOut", {&variance}},
               {"SavedMean", {&saved_mean}},
               {"SavedVariance", {&saved_inverse}}}),
        Executed(dnnl::batch_normalization_forward(forward),
                 {{DNNL_ARG_SRC, Of(desc, x)},
                  {DNNL_ARG_SCALE, Of(per_channel, scale)},
                  {DNNL_ARG_SHIFT, Of(per_channel, bias)},
                  {DNNL_ARG_DST, Of(desc, y2)},
                  {DNNL_ARG_MEAN, Of(per_channel, mean2)},
                  {DNNL_ARG_VARIANCE, Of(per_channel, variance2)}}));
  const dnnl::batch_normalization_backward::primitive_desc backward(
      {dnnl::prop_kind::backward, desc, desc, 1e-5F, flags}, DnnlCpuEngine(), forward);
  Print(Label("batch_norm_grad", dims),
        Bound("batch_norm_grad",
              {{"X", {&x}},
               {"Scale", {&scale}},
               {"SavedMean", {&saved_mean}},
               {"SavedVariance", {&saved_inverse}},
               {"Y@GRAD", {&dy}}},
              {}, {{"X@GRAD", {&dx}}, {"Scale@GRAD", {&dscale}}, {"Bias@GRAD", {&dbias}}}),
        Executed(dnnl::batch_normalization_backward(backward),
                 {{DNNL_ARG_SRC, Of(desc, x)},
                  {DNNL_ARG_MEAN, Of(per_channel, mean2)},
                  {DNNL_ARG_VARIANCE, Of(per_channel, variance2)},
                  {DNNL_ARG_SCALE, Of(per_channel, scale)},
                  {DNNL_ARG_SHIFT, Of(per_channel, bias)},
                  {DNNL_ARG_DIFF_DST, Of(desc, dy)},
                  {DNNL_ARG_DIFF_SRC, Of(desc, dx2)},
                  {DNNL_ARG_DIFF_SCALE, Of(per_channel, dscale2)},
                  {DNNL_ARG_DIFF_SHIFT, Of(per_channel, dshift2)}}));
}

void LayerNorm(int64_t rows, int64_t width) {
  const Dims dims = {rows, width}, weights = {width};
  Tensor x = Numbers(dims), scale = Numbers(weights), bias = Numbers(weights);
  Tensor y, mean, variance, dy = Numbers(dims), dx, dscale, dbias, y2 = Empty(dims),
                            dx2 = Empty(dims), mean2 = Empty({rows}), variance2 = Empty({rows}),
                            dscale2 = Empty(weights), dshift2 = Empty(weights);
  const memory::desc desc = Desc(dims), per_row = Desc({rows}), per_column = Desc(weights);
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  const dnnl::layer_normalization_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, desc, 1e-5F, flags}, DnnlCpuEngine());
  Print(
      Label("layer_norm", dims),
      Bound("layer_norm", {{"X", {&x}}, {"Scale", {&scale}}, {"Bias", {&bias}}},
            {{"begin_norm_axis", 1}}, {{"Y", {&y}}, {"Mean", {&mean}}, {"Variance", {&variance}}}),
      Executed(dnnl::layer_normalization_forward(forward),
               {{DNNL_ARG_SRC, Of(desc, x)},
                {DNNL_ARG_SCALE, Of(per_column, scale)},
                {DNNL_ARG_SHIFT, Of(per_column, bias)},
                {DNNL_ARG_DST, Of(desc, y2)},
                {DNNL_ARG_MEAN, Of(per_row, mean2)},
                {DNNL_ARG_VARIANCE, Of(per_row, variance2)}}));
  const dnnl::layer_normalization_backward::primitive_desc backward(
      {dnnl::prop_kind::backward, desc, desc, 1e-5F, flags}, DnnlCpuEngine(), forward);
  Print(Label("layer_norm_grad", dims),
        Bound("layer_norm_grad",
              {{"X", {&x}},
               {"Scale", {&scale}},
               {"Bias", {&bias}},
               {"Mean", {&mean}},
               {"Variance", {&variance}},
               {"Y@GRAD", {&dy}}},
              {{"begin_norm_axis", 1}},
              {{"X@GRAD", {&dx}}, {"Scale@GRAD", {&dscale}}, {"Bias@GRAD", {&dbias}}}),
        Executed(dnnl::layer_normalization_backward(backward),
                 {{DNNL_ARG_SRC, Of(desc, x)},
                  {DNNL_ARG_MEAN, Of(per_row, mean2)},
                  {DNNL_ARG_VARIANCE, Of(per_row, variance2)},
                  {DNNL_ARG_SCALE, Of(per_column, scale)},
                  {DNNL_ARG_SHIFT, Of(per_column, bias)},
                  {DNNL_ARG_DIFF_DST, Of(desc, dy)},
                  {DNNL_ARG_DIFF_SRC, Of(desc, dx2)},
                  {DNNL_ARG_DIFF_SCALE, Of(per_column, dscale2)},
                  {DNNL_ARG_DIFF_SHIFT, Of(per_column, dshift2)}}));
}

// A product, and the product for the gradient of Y, which has a transposed operand.
void MatMul(int64_t m, int64_t k, int64_t n) {
  using Tag = memory::format_tag;
  Tensor x = Numbers({m, k}), y = Numbers({k, n}), dout = Numbers({m, n}), out, dy;
  Tensor out2 = Empty({m, n}), dy2 = Empty({k, n});
  const auto desc = [](int64_t rows, int64_t columns, Tag tag) {
    return memory::desc({rows, columns}, memory::data_type::f32, tag);
  };
  const auto product = [&](const memory::desc& a, Tensor& a_values, const memory::desc& b,
                           Tensor& b_values, const memory::desc& c, Tensor& c_values) {
    const dnnl::matmul::primitive_desc description({a, b, c}, DnnlCpuEngine());
    return Executed(dnnl::matmul(description), {{DNNL_ARG_SRC, Of(a, a_values)},
                                                {DNNL_ARG_WEIGHTS, Of(b, b_values)},
                                                {DNNL_ARG_DST, Of(c, c_values)}});
  };
  const Dims dims = {m, k, n};
  Print(Label("mul", dims), Bound("mul", {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&out}}}),
        product(desc(m, k, Tag::ab), x, desc(k, n, Tag::ab), y, desc(m, n, Tag::ab), out2));
  Print(
      Label("mul_grad of Y", dims),
      Bound("mul_grad", {{"X", {&x}}, {"Y", {&y}}, {"Out@GRAD", {&dout}}}, {}, {{"Y@GRAD", {&dy}}}),
      product(desc(k, m, Tag::ba), x, desc(m, n, Tag::ab), dout, desc(k, n, Tag::ab), dy2));
}

// Beside a copy that reads and writes as many bytes together as the kernel does.
void PrintBesideCopy(const std::string& name, int64_t bytes, const std::function<void()>& ours) {
  const auto from = std::make_shared<std::vector<char>>(bytes / 2, 1);
  const auto to = std::make_shared<std::vector<char>>(bytes / 2, 2);
  Print(name, ours, [from, to] { std::memcpy(to->data(), from->data(), to->size()); });
}

void ElementwiseBesideCopy(int64_t n) {
  const Dims dims = {n};
  Tensor x = Numbers(dims), y = Numbers(dims), out, grad = Numbers(dims), rate = Numbers({1});
  PrintBesideCopy(Label("relu", dims), 8 * n, Bound("relu", {{"X", {&x}}}, {}, {{"Out", {&out}}}));
  PrintBesideCopy(
      Label("relu_grad", dims), 12 * n,
      Bound("relu_grad", {{"Out", {&x}}, {"Out@GRAD", {&grad}}}, {}, {{"X@GRAD", {&out}}}));
  PrintBesideCopy(Label("scale", dims), 8 * n,
                  Bound("scale", {{"X", {&x}}}, {{"scale", 0.5F}}, {{"Out", {&out}}}));
  PrintBesideCopy(Label("elementwise_add", dims), 12 * n,
                  Bound("elementwise_add", {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&out}}}));
  PrintBesideCopy(Label("sgd", dims), 12 * n,
                  Bound("sgd", {{"Param", {&x}}, {"Grad", {&grad}}, {"LearningRate", {&rate}}}, {},
                        {{"ParamOut", {&x}}}));
  PrintBesideCopy(
      Label("momentum", dims), 20 * n,
      Bound("momentum",
            {{"Param", {&x}}, {"Grad", {&grad}}, {"Velocity", {&y}}, {"LearningRate", {&rate}}},
            {{"mu", 0.9F}}, {{"ParamOut", {&x}}, {"VelocityOut", {&y}}}));
  Tensor m1 = Numbers(dims), m2 = Numbers(dims), b1 = Numbers({1}), b2 = Numbers({1});
  std::transform(m2.data<float>(), m2.data<float>() + n, m2.data<float>(),
                 [](float value) { return value * value; });
  *b1.data<float>() = *b2.data<float>() = 0.5F;
  PrintBesideCopy(Label("adam", dims), 28 * n,
                  Bound("adam",
                        {{"Param", {&x}},
                         {"Grad", {&grad}},
                         {"Moment1", {&m1}},
                         {"Moment2", {&m2}},
                         {"Beta1Pow", {&b1}},
                         {"Beta2Pow", {&b2}},
                         {"LearningRate", {&rate}}},
                        {{"beta1", 1.0F}, {"beta2", 1.0F}},
                        {{"ParamOut", {&x}},
                         {"Moment1Out", {&m1}},
                         {"Moment2Out", {&m2}},
                         {"Beta1PowOut", {&b1}},
                         {"Beta2PowOut", {&b2}}}));
}

void Main() {
  DnnlAttributes();  // one thread
  std::printf("%-44s %13s %13s %6s\n", "op", "weft", "copy", "ratio");
  for (const int64_t n : {int64_t{1} << 15, int64_t{1} << 18, int64_t{1} << 24}) {
    ElementwiseBesideCopy(n);
  }
  std::printf("%-44s %13s %13s %6s\n", "op", "weft", "oneDNN", "ratio");
  MatMul(64, 784, 256);
  MatMul(512, 784, 256);
  MatMul(512, 256, 256);
  MatMul(64, 400, 120);
  MatMul(1024, 128, 128);
  MatMul(1024, 128, 512);
  MatMul(1024, 512, 128);
  Softmax({64, 10});
  Softmax({256, 1000});
  Softmax({8, 12, 128, 128});
  Pool("max", {8, 64, 56, 56}, 3, 2, 1);
  Pool("max", {32, 16, 24, 24}, 2, 2, 0);
  Pool("max", {32, 16, 24, 24}, 2, 2, 0, Layout::kChannelsLast);
  Pool("max", {64, 6, 28, 28}, 2, 2, 0, Layout::kChannelsLast);
  Pool("avg", {8, 64, 28, 28}, 2, 2, 0);
  Pool("avg", {8, 512, 7, 7}, 7, 1, 0);
  BatchNorm({8, 64, 56, 56});
  BatchNorm({32, 512, 7, 7});
  LayerNorm(1024, 256);
  LayerNorm(256, 768);
}

}  // namespace
}  // namespace weft

int main() { weft::Main(); }
