// Runs the kernels on vectors that Paddle 2.6.2 computed on its CPU (tests/data/op_vectors).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ops/cpu/op_vectors_testing.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

constexpr char kNewCases[] = "if you added cases, change the number in this line";

// Our tensors by slot. An argument that is no variable has none.
class Variables {
 public:
  explicit Variables(const Json& slots) {
    for (const auto& slot : slots.items()) {
      for (const Json& tensor : slot.value()) {
        const bool is_variable = !tensor.is_null();
        slots_[slot.key()].push_back(
            {is_variable, is_variable ? TensorFromJson(tensor) : Tensor()});
      }
    }
  }

  SlotPointers Pointers() {
    SlotPointers pointers;
    for (auto& slot : slots_) {
      pointers.emplace_back(slot.first, std::vector<Tensor*>());
      for (Variable& variable : slot.second) {
        pointers.back().second.push_back(variable.exists ? &variable.tensor : nullptr);
      }
    }
    return pointers;
  }

 private:
  struct Variable {
    bool exists;
    Tensor tensor;
  };
  std::map<std::string, std::vector<Variable>> slots_;
};

// What shows that an output must be rows.
Tensor NoRows() {
  Tensor tensor;
  tensor.ResizeRows(DType::kFloat32, {1, 1}, 0);
  return tensor;
}

template <typename T>
void ExpectCloseElements(const Tensor& found, const Tensor& expected, double tolerance) {
  const std::vector<T> f = Values<T>(found), e = Values<T>(expected);
  double largest = 0;
  for (T v : e) {
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(double{v}));
  }
  for (size_t i = 0; i < e.size(); ++i) {
    if (f[i] == e[i] || (std::isnan(f[i]) && std::isnan(e[i]))) continue;
    EXPECT_NEAR(f[i], e[i], tolerance * largest) << "element " << i;
  }
}

// Equal type and dims; fp32 and fp64 elements equal within the tolerance, relative to the largest
// one, others equal.
void ExpectClose(const Tensor& found, const Tensor& expected, double tolerance = 1e-5) {
  ASSERT_EQ(DTypeName(found.dtype()), DTypeName(expected.dtype()));
  ASSERT_EQ(DimsToString(found.dims()), DimsToString(expected.dims()));
  EXPECT_EQ(found.height(), expected.height());
  EXPECT_EQ(found.rows(), expected.rows());
  if (expected.dtype() == DType::kFloat32) {
    ExpectCloseElements<float>(found, expected, tolerance);
  } else if (expected.dtype() == DType::kFloat64) {
    ExpectCloseElements<double>(found, expected, tolerance);
  } else if (expected.bytes() > 0) {
    EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0);
  }
}

void ExpectEqualBits(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.dtype(), expected.dtype());
  ASSERT_EQ(found.dims(), expected.dims());
  EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0);
}

// Whether the vectors have only Paddle's result, which is wrong: its max pooling ignores attribute
// `adaptive`.
bool IsPaddlesOnly(const std::string& id) {
  return absl::StartsWith(id, "pool2d/05") || absl::StartsWith(id, "pool2d/06");
}

// Where an output replaces an input.
struct Place {
  std::string output, input;
  size_t i;  // in both slots
};

void ExpectCloseSlots(const SlotPointers& found, const SlotPointers& expected) {
  for (size_t s = 0; s < expected.size(); ++s) {
    ASSERT_EQ(found[s].first, expected[s].first);
    for (size_t i = 0; i < expected[s].second.size(); ++i) {
      if (expected[s].second[i] == nullptr) continue;
      SCOPED_TRACE(expected[s].first);
      // Its parts are separate outputs; the padding between them depends on the device.
      if (expected[s].first == "FusedOutput") continue;
      ExpectClose(*found[s].second[i], *expected[s].second[i]);
    }
  }
}

// Runs the case, on separate inputs, and compares. Inputs of which only the type matters hold other
// values. `expected_slots` is "outputs", or "paddle_cpu_quirks".
void RunCase(const Json& c, const std::vector<Place>& in_place,
             const std::string& expected_slots = "outputs") {
  const std::string op = c["op"];
  ASSERT_NE(FindOpSchema(op), nullptr) << op << " has no schema in ops/schema";
  Variables inputs(c["inputs"]), expected(c[expected_slots]), found(c[expected_slots]);
  SlotPointers input_pointers = inputs.Pointers(), output_pointers = found.Pointers();
  for (auto& slot : input_pointers) {
    ASSERT_NE(FindOpSchema(op)->FindInput(slot.first), nullptr) << "no input " << slot.first;
  }
  for (auto& slot : output_pointers) {
    ASSERT_NE(FindOpSchema(op)->FindOutput(slot.first), nullptr) << "no output " << slot.first;
    for (size_t i = 0; i < slot.second.size(); ++i) {
      Tensor*& tensor = slot.second[i];
      if (tensor == nullptr) continue;
      *tensor = tensor->is_rows() ? NoRows() : Tensor();
      for (const Place& place : in_place) {
        if (place.output != slot.first || place.i != i) continue;
        for (auto& input : input_pointers) {
          if (input.first == place.input) tensor = input.second[i];
        }
      }
    }
  }
  auto bound = OpRunner::Make(op, input_pointers, AttrsFromJson(op, c["attrs"]), output_pointers,
                              expected_slots == "paddle_cpu_quirks" || IsPaddlesOnly(c["id"]));
  ASSERT_THAT(bound, IsOk());
  bound->OverwriteUnreadInputs();
  WEFT_ASSERT_OK(bound->Run());
  ExpectCloseSlots(output_pointers, expected.Pointers());
}

// All pairs of an output and an input of the same type.
std::vector<Place> PossiblePlaces(const Json& c) {
  std::vector<Place> places;
  for (const auto& out : c["outputs"].items()) {
    for (const auto& in : c["inputs"].items()) {
      for (size_t i = 0; i < std::min(out.value().size(), in.value().size()); ++i) {
        const Json &a = out.value()[i], &b = in.value()[i];
        if (a.is_null() || b.is_null() || a.contains("rows") || b.contains("rows")) continue;
        if (a["dtype"] != b["dtype"] || a["shape"] != b["shape"]) continue;
        places.push_back({out.key(), in.key(), i});
      }
    }
  }
  return places;
}

TEST(OpVectorsTest, KernelsGivePaddlesOutputsAndGradients) {
  const std::vector<Json> cases = ReadArchivedVectors("ops.jsonl");
  EXPECT_EQ(cases.size(), 1128u) << kNewCases;
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    std::vector<Place> in_place;
    if (c.contains("in_place")) {
      for (const auto& slot : c["in_place"].items()) {
        for (size_t i = 0; i < c["outputs"][slot.key()].size(); ++i) {
          in_place.push_back({slot.key(), slot.value().get<std::string>(), i});
        }
      }
    }
    RunCase(c, in_place);
    // Not imitated: gather_grad along an axis other than 0.
    if (c.contains("paddle_cpu_quirks") && c["op"] != "gather_grad") {
      RunCase(c, in_place, "paddle_cpu_quirks");
    }
  }
}

TEST(OpVectorsTest, AnOutputMayTakeThePlaceOfAnyInputOfItsType) {
  size_t num_places = 0;
  for (const Json& c : ReadArchivedVectors("ops.jsonl")) {
    for (const Place& place : PossiblePlaces(c)) {
      SCOPED_TRACE(c["id"].get<std::string>());
      SCOPED_TRACE(place.output + " in place of " + place.input);
      RunCase(c, {place});
      ++num_places;
    }
  }
  EXPECT_GT(num_places, 1000u);
}

// Runs the steps of an update op in place, and compares the states after each: with `after` of the
// steps, or with Paddle's.
void RunOptimizerCase(const Json& c, bool paddle_cpu_quirks) {
  std::map<std::string, Tensor> states, constants;
  for (const auto& state : c["init"].items()) {
    states[state.key()] = TensorFromJson(state.value());
  }
  for (const auto& input : c["inputs"].items()) {
    constants[input.key()] = TensorFromJson(input.value());
  }
  // The first gradient decides between the kernel for tensors and the kernel for rows.
  Tensor grad = TensorFromJson(c["steps"][0]["Grad"]), learning_rate;
  SlotPointers inputs = {{"Grad", {&grad}}, {"LearningRate", {&learning_rate}}}, outputs;
  for (auto& state : states) inputs.push_back({state.first, {&state.second}});
  for (const auto& output : c["in_place"].items()) {
    outputs.push_back({output.key(), {&states.at(output.value())}});
  }
  for (auto& input : constants) inputs.push_back({input.first, {&input.second}});
  const std::string op = c["op"];
  WEFT_ASSERT_OK_AND_ASSIGN(
      OpRunner bound,
      OpRunner::Make(op, inputs, AttrsFromJson(op, c["attrs"]), outputs, paddle_cpu_quirks));
  for (size_t i = 0; i < c["steps"].size(); ++i) {
    const Json& step = c["steps"][i];
    grad = TensorFromJson(step["Grad"]);
    learning_rate = TensorFromJson(step["LearningRate"]);
    WEFT_ASSERT_OK(bound.Run());
    const Json& after = paddle_cpu_quirks ? c["paddle_cpu_quirks"][i] : step["after"];
    for (const auto& state : after.items()) {
      SCOPED_TRACE(state.key());
      ExpectClose(states.at(state.key()), TensorFromJson(state.value()));
    }
  }
}

TEST(OpVectorsTest, OptimizersFollowPaddlesStepsInPlace) {
  const std::vector<Json> cases = ReadArchivedVectors("optimizers.jsonl");
  EXPECT_EQ(cases.size(), 39u) << kNewCases;
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    RunOptimizerCase(c, /*paddle_cpu_quirks=*/false);
    if (c.contains("paddle_cpu_quirks")) RunOptimizerCase(c, /*paddle_cpu_quirks=*/true);
  }
}

SlotPointers Append(SlotPointers a, const SlotPointers& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(OpVectorsTest, RecurrentNetworksAndTheirGradientsArePaddles) {
  const std::vector<Json> cases = ReadVectors("rnn.jsonl");
  EXPECT_EQ(cases.size(), 10u) << kNewCases;
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    Variables inputs(c["inputs"]), expected(c["outputs"]), found(c["outputs"]);
    Tensor reserve;
    const AttrValues attrs = AttrsFromJson("rnn", c["attrs"]);
    const SlotPointers kept = {{"Reserve", {&reserve}}};
    WEFT_ASSERT_OK(RunOpOn("rnn", inputs.Pointers(), attrs, Append(found.Pointers(), kept)));
    ExpectCloseSlots(found.Pointers(), expected.Pointers());
    if (!c.contains("gradient")) continue;
    const Json& gradient = c["gradient"];
    Variables dinputs(gradient["inputs"]), dfound(gradient["outputs"]);
    Variables dexpected(gradient["outputs"]);
    const SlotPointers grad_inputs =
        Append(Append(Append(inputs.Pointers(), found.Pointers()), kept), dinputs.Pointers());
    WEFT_ASSERT_OK(RunOpOn("rnn_grad", grad_inputs, attrs, dfound.Pointers()));
    ExpectCloseSlots(dfound.Pointers(), dexpected.Pointers());
  }
}

void RunInAnyPlace(const std::vector<Json>& cases) {
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    RunCase(c, {});
    if (c.contains("paddle_cpu_quirks")) RunCase(c, {}, "paddle_cpu_quirks");
    for (const Place& place : PossiblePlaces(c)) {
      SCOPED_TRACE(place.output + " in place of " + place.input);
      RunCase(c, {place});
    }
  }
}

TEST(OpVectorsTest, OpsOfSmallProgramsAndTheirGradientsArePaddles) {
  const std::vector<Json> cases = ReadVectors("programs.jsonl");
  EXPECT_EQ(cases.size(), 141u) << kNewCases;
  RunInAnyPlace(cases);
}

// The case with fp64 instead of fp32, except for the distribution that nce draws from.
Json InDoublePrecision(Json c) {
  for (const char* slots : {"inputs", "outputs", "paddle_cpu_quirks"}) {
    if (!c.contains(slots)) continue;
    for (auto& slot : c[slots].items()) {
      for (Json& tensor : slot.value()) {
        if (tensor.is_null() || tensor["dtype"] != "fp32") continue;
        if (absl::StartsWith(slot.key(), "CustomDist")) continue;
        std::string hex;
        for (float value : Values<float>(TensorFromJson(tensor))) {
          const double wide = value;
          std::string bytes(reinterpret_cast<const char*>(&wide), sizeof(wide));
          std::reverse(bytes.begin(), bytes.end());
          hex += absl::BytesToHexString(bytes);
        }
        tensor["dtype"] = "fp64";
        tensor["hex"] = hex;
      }
    }
  }
  return c;
}

TEST(OpVectorsTest, LayersAndTheirGradientsArePaddlesInSingleAndDoublePrecision) {
  std::vector<Json> cases = ReadVectors("layers.jsonl");
  EXPECT_EQ(cases.size(), 55u) << kNewCases;
  RunInAnyPlace(cases);
  for (Json& c : cases) c = InDoublePrecision(c);
  RunInAnyPlace(cases);
}

TEST(OpVectorsTest, MathematicalOpsAndTheirGradientsArePaddlesInSingleAndDoublePrecision) {
  std::vector<Json> cases = ReadVectors("math.jsonl");
  EXPECT_EQ(cases.size(), 143u) << kNewCases;
  RunInAnyPlace(cases);
  for (Json& c : cases) c = InDoublePrecision(c);
  RunInAnyPlace(cases);
}

TEST(OpVectorsTest, RandomOpsDrawPaddlesNumbersBitByBit) {
  const std::vector<Json> cases = ReadVectors("random.jsonl");
  EXPECT_EQ(cases.size(), 40u) << kNewCases;
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    // The number passed to paddle.seed, where ops draw from one generator in turn.
    RandomState random = RandomState::Seeded(c.value("generator_seed", 0), 0);
    // Ops with an input draw from the generator of the rank; Paddle has one for all.
    random.dropout = random.initializers;
    for (const Json& step : c["ops"]) {
      const std::string op = step["op"];
      SCOPED_TRACE(op);
      SlotTensors inputs;
      if (step.contains("X")) inputs.push_back({"X", {TensorFromJson(step["X"])}});
      auto found = RunOp(op, inputs, AttrsFromJson(op, step["attrs"]), {{"Out", 1}}, &random);
      ASSERT_THAT(found, IsOk());
      ExpectEqualBits((*found)["Out"][0], TensorFromJson(step["Out"]));
    }
  }
}

}  // namespace
}  // namespace weft::testing
