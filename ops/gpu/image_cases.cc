#include "ops/gpu/image_cases.h"

#include <cstdint>

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

// The case, and that of its gradient op, which reads `grad_reads` besides the gradient of `output`.
// Results of the op, where the gradient op reads them, are those of CPU kernels.
void AddWithGradient(OpCase c, const std::string& output,
                     const std::vector<std::string>& grad_reads,
                     const std::vector<std::string>& gradients, std::vector<OpCase>* cases) {
  SlotCounts counts;
  for (const std::string& slot : c.outputs) counts.emplace_back(slot, 1);
  auto results = *RunOp(c.type, c.inputs, c.attrs, counts);
  OpCase grad = {c.type + "_grad", {}, c.attrs, {}};
  for (const std::string& slot : grad_reads) {
    for (const auto& [name, tensors] : c.inputs) {
      if (name == slot) grad.inputs.emplace_back(slot, tensors);
    }
    if (results.count(slot) > 0) grad.inputs.emplace_back(slot, results[slot]);
  }
  const Tensor dout = NumbersWithoutPattern(results[output][0].dims(), 99);
  grad.inputs.emplace_back(output + "@GRAD", std::vector<Tensor>{dout});
  for (const std::string& slot : gradients) grad.outputs.push_back(slot + "@GRAD");
  cases->push_back(std::move(c));
  cases->push_back(std::move(grad));
}

void AddConv(const std::string& type, const Dims& input, const Dims& filter,
             const AttrValues& attrs, std::vector<OpCase>* cases) {
  AddWithGradient({type,
                   {{"Input", {NumbersWithoutPattern(input, 1)}},
                    {"Filter", {NumbersWithoutPattern(filter, 2)}}},
                   attrs,
                   {"Output"}},
                  "Output", {"Input", "Filter"}, {"Input", "Filter"}, cases);
}

void AddConvCases(std::vector<OpCase>* cases) {
  const std::string same = "SAME", valid = "VALID", last = "NHWC";
  AddConv("conv2d", {2, 3, 7, 6}, {4, 3, 3, 2}, {}, cases);
  AddConv("conv2d", {2, 3, 7, 6}, {4, 3, 3, 2}, {{"strides", Ints{2, 3}}, {"paddings", Ints{1, 2}}},
          cases);
  AddConv("conv2d", {2, 3, 7, 6}, {4, 3, 3, 2},  // other paddings before than after
          {{"strides", Ints{2, 1}}, {"paddings", Ints{2, 0, 1, 3}}}, cases);
  AddConv("conv2d", {2, 3, 7, 6}, {4, 3, 3, 2}, {{"padding_algorithm", same}}, cases);
  AddConv("conv2d", {2, 3, 7, 6}, {4, 3, 3, 2},
          {{"padding_algorithm", same}, {"strides", Ints{3, 2}}}, cases);
  AddConv("conv2d", {2, 3, 7, 6}, {4, 3, 3, 2},
          {{"padding_algorithm", valid}, {"paddings", Ints{5, 5}}}, cases);
  AddConv("conv2d", {2, 3, 9, 8}, {4, 3, 3, 2},
          {{"dilations", Ints{3, 2}}, {"paddings", Ints{2, 1}}, {"strides", Ints{1, 2}}}, cases);
  AddConv("conv2d", {2, 6, 7, 6}, {4, 3, 3, 3}, {{"groups", 2}, {"paddings", Ints{1, 1}}}, cases);
  AddConv("conv2d", {2, 7, 6, 6}, {4, 3, 3, 3},
          {{"groups", 2}, {"data_format", last}, {"strides", Ints{2, 2}}}, cases);
  AddConv("conv2d", {2, 6, 3, 5}, {70, 6, 1, 1}, {}, cases);
  AddConv("conv2d", {2, 3, 5, 6}, {70, 6, 1, 1}, {{"data_format", last}}, cases);
  AddConv("conv2d", {2, 3, 5, 6}, {7, 6, 1, 1}, {{"data_format", last}, {"strides", Ints{1, 2}}},
          cases);
  AddConv("conv2d", {2, 7, 6, 5}, {4, 5, 3, 2}, {{"data_format", last}, {"paddings", Ints{1, 1}}},
          cases);
  AddConv("depthwise_conv2d", {2, 4, 6, 5}, {8, 1, 3, 3},
          {{"groups", 4}, {"paddings", Ints{1, 1}}, {"strides", Ints{2, 2}}}, cases);
  AddConv("conv3d", {1, 2, 4, 5, 3}, {3, 2, 2, 3, 2}, {{"paddings", Ints{1, 0, 1}}}, cases);
  AddConv("conv2d_transpose", {2, 4, 4, 3}, {4, 3, 3, 2},
          {{"strides", Ints{2, 2}}, {"paddings", Ints{1, 0}}}, cases);
  AddConv("conv2d_transpose", {2, 4, 3, 4}, {4, 3, 3, 3},
          {{"strides", Ints{2, 1}}, {"data_format", last}, {"output_padding", Ints{1, 0}}}, cases);
  AddConv("conv2d_transpose", {2, 4, 4, 3}, {4, 3, 3, 2},
          {{"groups", 2}, {"dilations", Ints{2, 2}}}, cases);
  AddConv("depthwise_conv2d_transpose", {2, 4, 4, 3}, {4, 1, 3, 2},
          {{"groups", 4}, {"strides", Ints{2, 2}}}, cases);
  AddConv("conv3d_transpose", {1, 2, 3, 2, 3}, {2, 3, 2, 2, 3}, {{"strides", Ints{1, 2, 1}}},
          cases);
}

void AddPool(const Dims& dims, const AttrValues& attrs, std::vector<OpCase>* cases) {
  for (const std::string kind : {"max", "avg"}) {
    AttrValues all = attrs;
    all.emplace_back("pooling_type", kind);
    AddWithGradient({dims.size() == 4 ? "pool2d" : "pool3d",
                     {{"X", {NumbersWithoutPattern(dims, 3)}}},
                     all,
                     {"Out"}},
                    "Out", {"X", "Out"}, {"X"}, cases);
  }
}

void AddIndexedPool(const Dims& dims, const AttrValues& attrs, std::vector<OpCase>* cases) {
  AddWithGradient({dims.size() == 4 ? "max_pool2d_with_index" : "max_pool3d_with_index",
                   {{"X", {NumbersWithoutPattern(dims, 3)}}},
                   attrs,
                   {"Out", "Mask"}},
                  "Out", {"X", "Mask"}, {"X"}, cases);
}

void AddPoolCases(std::vector<OpCase>* cases) {
  const std::string same = "SAME", valid = "VALID", last = "NHWC";
  AddPool({2, 3, 7, 6}, {{"ksize", Ints{2, 2}}, {"strides", Ints{2, 2}}}, cases);
  // Windows that share elements.
  AddPool({2, 3, 7, 6}, {{"ksize", Ints{3, 2}}, {"paddings", Ints{1, 1}}}, cases);
  AddPool({2, 3, 7, 6},
          {{"ksize", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"paddings", Ints{0, 1, 1, 2}}}, cases);
  for (const bool exclusive : {true, false}) {
    AddPool({2, 3, 8, 7},
            {{"ksize", Ints{3, 3}},
             {"strides", Ints{2, 3}},
             {"paddings", Ints{1, 1}},
             {"ceil_mode", true},
             {"exclusive", exclusive}},
            cases);
  }
  AddPool({2, 3, 7, 6},
          {{"ksize", Ints{3, 2}}, {"strides", Ints{2, 2}}, {"padding_algorithm", same}}, cases);
  AddPool({2, 3, 7, 6},
          {{"ksize", Ints{3, 2}}, {"strides", Ints{2, 2}}, {"padding_algorithm", valid}}, cases);
  AddPool({2, 7, 6, 3}, {{"ksize", Ints{3, 2}}, {"data_format", last}}, cases);
  AddPool({2, 3, 7, 6}, {{"ksize", Ints{3, 4}}, {"adaptive", true}}, cases);
  AddPool({2, 3, 7, 6}, {{"ksize", Ints{1, 1}}, {"adaptive", true}}, cases);
  AddPool({2, 3, 7, 6}, {{"ksize", Ints{2, 2}}, {"global_pooling", true}}, cases);
  AddPool({1, 2, 4, 5, 6}, {{"ksize", Ints{2, 3, 2}}, {"strides", Ints{2, 1, 3}}}, cases);
  AddIndexedPool({2, 3, 7, 6}, {{"ksize", Ints{3, 2}}, {"strides", Ints{2, 1}}}, cases);
  AddIndexedPool({2, 3, 7, 6}, {{"ksize", Ints{3, 2}}, {"adaptive", true}}, cases);
  AddIndexedPool({1, 2, 4, 5, 6}, {{"ksize", Ints{2, 3, 2}}, {"paddings", Ints{1, 1, 1}}}, cases);
}

void AddOtherCases(std::vector<OpCase>* cases) {
  const Tensor x = NumbersWithoutPattern({5, 37}, 4);
  for (const char* implementation : {"upscale_in_train", "downgrade_in_infer"}) {
    for (const bool is_test : {false, true}) {
      AddWithGradient({"dropout",
                       {{"X", {x}}},
                       {{"dropout_prob", 0.3F},
                        {"dropout_implementation", std::string(implementation)},
                        {"is_test", is_test},
                        {"fix_seed", true},
                        {"seed", 7}},
                       {"Out", "Mask"}},
                      "Out", {"Mask"}, {"X"}, cases);
    }
  }
  AddWithGradient({"dropout",
                   {{"X", {x}}, {"Seed", {MakeTensor<int32_t>({1}, {11})}}},
                   {{"dropout_prob", 0.6F}},
                   {"Out", "Mask"}},
                  "Out", {"Mask"}, {"X"}, cases);
  AddWithGradient({"pad",
                   {{"X", {NumbersWithoutPattern({3, 4, 5}, 5)}}},
                   {{"paddings", Ints{1, 0, 0, 2, 3, 1}}, {"pad_value", 0.5F}},
                   {"Out"}},
                  "Out", {}, {"X"}, cases);
  const struct {
    const char *mode, *format;
    Dims x, alpha;
  } kPrelu[] = {
      {"all", "NCHW", {3, 4, 2, 5}, {1}},
      {"channel", "NCHW", {3, 4, 2, 5}, {1, 4, 1, 1}},
      {"channel", "NHWC", {3, 2, 5, 4}, {1, 1, 1, 4}},
      {"element", "NCHW", {3, 4, 2, 5}, {1, 4, 2, 5}},
      {"all", "NCHW", {9, 1000}, {1}},  // summed in parts
  };
  for (const auto& prelu : kPrelu) {
    AddWithGradient(
        {"prelu",
         {{"X", {NumbersWithoutPattern(prelu.x, 6)}},
          {"Alpha", {NumbersWithoutPattern(prelu.alpha, 7)}}},
         {{"mode", std::string(prelu.mode)}, {"data_format", std::string(prelu.format)}},
         {"Out"}},
        "Out", {"X", "Alpha"}, {"X", "Alpha"}, cases);
  }
}

// swiglu and masked_fill.
void AddGates(std::vector<OpCase>* cases) {
  const Tensor x = NumbersWithoutPattern({5, 3, 8}, 8);
  AddWithGradient({"swiglu", {{"x", {x}}}, {}, {"out"}}, "out", {"x"}, {"x"}, cases);
  AddWithGradient(
      {"swiglu", {{"x", {x}}, {"y", {NumbersWithoutPattern({5, 3, 8}, 9)}}}, {}, {"out"}}, "out",
      {"x", "y"}, {"x", "y"}, cases);
  // Operands that are broadcast, in turn.
  const Dims kDims[][3] = {{{4, 6}, {4, 6}, {4, 6}},
                           {{4, 6}, {6}, {1}},
                           {{4, 6}, {4, 1}, {4, 6}},
                           {{3, 1, 6}, {4, 6}, {4, 1}}};
  for (const auto& [of_x, of_mask, of_value] : kDims) {
    Tensor mask;
    mask.Resize(DType::kBool, of_mask);
    for (int64_t i = 0; i < mask.size(); ++i) mask.data<bool>()[i] = i % 3 == 1;
    AddWithGradient({"masked_fill",
                     {{"x", {NumbersWithoutPattern(of_x, 10)}},
                      {"mask", {mask}},
                      {"value", {NumbersWithoutPattern(of_value, 11)}}},
                     {},
                     {"out"}},
                    "out", {"x", "mask", "value"}, {"x", "value"}, cases);
  }
}

}  // namespace

Tensor NumbersWithoutPattern(const Dims& dims, int seed) {
  std::vector<float> values(NumElements(dims));
  uint32_t state = 12345 + seed;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) / (1 << 23) - 1;
  }
  return Floats(dims, values);
}

std::vector<OpCase> ImageCases() {
  std::vector<OpCase> cases;
  AddConvCases(&cases);
  AddPoolCases(&cases);
  AddOtherCases(&cases);
  AddGates(&cases);
  return cases;
}

}  // namespace weft::testing
