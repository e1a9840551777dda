// Runs the kernels on vectors that Paddle 2.6.2 computed on its CPU (tests/data/op_vectors).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// One case a line.
std::vector<Json> ReadCases(const std::string& name) {
  std::ifstream file("tests/data/op_vectors/" + name);
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(Json::parse(line));
  return cases;
}

// {"dtype", "shape", "hex"}: the bytes of every element, most significant first. With "rows" and
// "height": rows of a taller tensor.
Tensor TensorFromJson(const Json& json) {
  Dims dims;
  for (int64_t dim : json["shape"]) dims.push_back(dim);
  const DType dtype = *ParseDType(json["dtype"].get<std::string>());
  Tensor tensor;
  if (json.contains("rows")) {
    const int64_t num_rows = dims[0];
    dims[0] = json["height"];
    tensor.ResizeRows(dtype, dims, num_rows);
    const auto rows = json["rows"].get<std::vector<int64_t>>();
    EXPECT_EQ(static_cast<int64_t>(rows.size()), num_rows);
    std::copy(rows.begin(), rows.end(), tensor.mutable_rows().begin());
  } else {
    tensor.Resize(dtype, dims);
  }
  std::string bytes = absl::HexStringToBytes(json["hex"].get<std::string>());
  const size_t width = SizeOf(tensor.dtype());
  for (size_t i = 0; i < bytes.size(); i += width) {
    std::reverse(bytes.begin() + i, bytes.begin() + i + width);
  }
  EXPECT_EQ(bytes.size(), tensor.bytes());
  std::memcpy(tensor.raw(), bytes.data(), tensor.bytes());
  return tensor;
}

SlotTensors TensorsFromJson(const Json& slots) {
  SlotTensors tensors;
  for (const auto& slot : slots.items()) {
    tensors.emplace_back(slot.key(), std::vector<Tensor>());
    for (const Json& tensor : slot.value()) tensors.back().second.push_back(TensorFromJson(tensor));
  }
  return tensors;
}

SlotPointers PointersTo(SlotTensors* slots) {
  SlotPointers pointers;
  for (auto& slot : *slots) {
    pointers.emplace_back(slot.first, std::vector<Tensor*>());
    for (Tensor& tensor : slot.second) pointers.back().second.push_back(&tensor);
  }
  return pointers;
}

// What tells that an output is to be rows.
Tensor NoRows() {
  Tensor tensor;
  tensor.ResizeRows(DType::kFloat32, {1, 1}, 0);
  return tensor;
}

// The attributes, of the types that the op's schema gives them.
AttrValues AttrsFromJson(absl::string_view op, const Json& json) {
  AttrValues attrs;
  for (const auto& attr : json.items()) {
    const AttrSchema* schema = FindOpSchema(op)->FindAttr(attr.key());
    if (schema == nullptr) continue;  // a switch of some back end
    absl::visit(
        [&](const auto& like) {
          using T = std::decay_t<decltype(like)>;
          if constexpr (!std::is_same_v<T, BlockRef>) {
            attrs.emplace_back(attr.key(), attr.value().get<T>());
          }
        },
        schema->default_value);
  }
  return attrs;
}

std::vector<double> AsDoubles(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat32: {
      const auto values = Values<float>(tensor);
      return {values.begin(), values.end()};
    }
    case DType::kFloat64:
      return Values<double>(tensor);
    default:
      ADD_FAILURE() << "not a floating-point tensor";
      return {};
  }
}

// Equal type and dims; floating-point elements equal within 1e-5 of the largest one, others equal.
void ExpectClose(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.dtype(), expected.dtype());
  ASSERT_EQ(found.dims(), expected.dims());
  EXPECT_EQ(found.height(), expected.height());
  EXPECT_EQ(found.rows(), expected.rows());
  if (!IsFloating(expected.dtype())) {
    EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0);
    return;
  }
  const std::vector<double> f = AsDoubles(found), e = AsDoubles(expected);
  double largest = 0;
  for (double v : e) largest = std::max(largest, std::fabs(v));
  for (size_t i = 0; i < e.size(); ++i) {
    EXPECT_NEAR(f[i], e[i], 1e-5 * largest) << "element " << i;
  }
}

void ExpectEqualBits(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.dtype(), expected.dtype());
  ASSERT_EQ(found.dims(), expected.dims());
  EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0);
}

TEST(OpVectorsTest, KernelsGivePaddlesOutputsAndGradients) {
  const std::vector<Json> cases = ReadCases("ops.jsonl");
  ASSERT_EQ(cases.size(), 323u);
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    const std::string op = c["op"];
    SlotTensors inputs = TensorsFromJson(c["inputs"]);
    const SlotTensors expected = TensorsFromJson(c["outputs"]);
    SlotTensors found = expected;
    for (auto& slot : found) {
      for (Tensor& tensor : slot.second) tensor = tensor.is_rows() ? NoRows() : Tensor();
    }
    WEFT_ASSERT_OK(
        RunOpOn(op, PointersTo(&inputs), AttrsFromJson(op, c["attrs"]), PointersTo(&found)));
    for (size_t s = 0; s < expected.size(); ++s) {
      for (size_t i = 0; i < expected[s].second.size(); ++i) {
        SCOPED_TRACE(expected[s].first);
        ExpectClose(found[s].second[i], expected[s].second[i]);
      }
    }
  }
}

TEST(OpVectorsTest, OptimizersFollowPaddlesStepsInPlace) {
  const std::vector<Json> cases = ReadCases("optimizers.jsonl");
  ASSERT_EQ(cases.size(), 35u);
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    std::map<std::string, Tensor> states, constants;
    for (const auto& state : c["init"].items()) {
      states[state.key()] = TensorFromJson(state.value());
    }
    for (const auto& input : c["inputs"].items()) {
      constants[input.key()] = TensorFromJson(input.value());
    }
    // The first gradient tells which kernel is taken: that of tensors, or of rows.
    Tensor grad = TensorFromJson(c["steps"][0]["Grad"]), learning_rate;
    SlotPointers inputs = {{"Grad", {&grad}}, {"LearningRate", {&learning_rate}}}, outputs;
    for (auto& state : states) {
      inputs.push_back({state.first, {&state.second}});
      outputs.push_back({state.first + "Out", {&state.second}});
    }
    for (auto& input : constants) inputs.push_back({input.first, {&input.second}});
    const std::string op = c["op"];
    WEFT_ASSERT_OK_AND_ASSIGN(BoundOp bound,
                              BoundOp::Make(op, inputs, AttrsFromJson(op, c["attrs"]), outputs));
    for (const Json& step : c["steps"]) {
      grad = TensorFromJson(step["Grad"]);
      learning_rate = TensorFromJson(step["LearningRate"]);
      WEFT_ASSERT_OK(bound.Run());
      for (const auto& state : step["after"].items()) {
        SCOPED_TRACE(state.key());
        ExpectClose(states.at(state.key()), TensorFromJson(state.value()));
      }
    }
  }
}

TEST(OpVectorsTest, RandomOpsDrawPaddlesNumbersBitByBit) {
  const std::vector<Json> cases = ReadCases("random.jsonl");
  ASSERT_EQ(cases.size(), 29u);
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    // The number given to paddle.seed, where ops draw from one generator in turn.
    RandomState random = RandomState::Seeded(c.value("generator_seed", 0), 0);
    for (const Json& step : c["ops"]) {
      const std::string op = step["op"];
      SCOPED_TRACE(op);
      auto found = RunOp(op, {}, AttrsFromJson(op, step["attrs"]), {{"Out", 1}}, &random);
      ASSERT_THAT(found, IsOk());
      ExpectEqualBits((*found)["Out"][0], TensorFromJson(step["Out"]));
    }
  }
}

}  // namespace
}  // namespace weft::testing
