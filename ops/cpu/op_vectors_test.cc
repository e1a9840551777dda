// Runs the kernels on vectors that Paddle 2.6.2 computed on its CPU (tests/data/op_vectors).
#include <cstring>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "nlohmann/json.hpp"
#include "ops/cpu/op_vectors_cases.h"
#include "ops/cpu/op_vectors_testing.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

constexpr char kNewCases[] = "if you added cases, change the number in this line";

void ExpectEqualBits(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.dtype(), expected.dtype());
  ASSERT_EQ(found.dims(), expected.dims());
  EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0);
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
    WEFT_EXPECT_OK(RunCase(c, in_place));
    // Not imitated: gather_grad along an axis other than 0.
    if (c.contains("paddle_cpu_quirks") && c["op"] != "gather_grad") {
      WEFT_EXPECT_OK(RunCase(c, in_place, CpuKernels(), "paddle_cpu_quirks"));
    }
  }
}

TEST(OpVectorsTest, AnOutputMayTakeThePlaceOfAnyInputOfItsType) {
  size_t num_places = 0;
  for (const Json& c : ReadArchivedVectors("ops.jsonl")) {
    for (const Place& place : PossiblePlaces(c)) {
      SCOPED_TRACE(c["id"].get<std::string>());
      SCOPED_TRACE(place.output + " in place of " + place.input);
      WEFT_EXPECT_OK(RunCase(c, {place}));
      ++num_places;
    }
  }
  EXPECT_GT(num_places, 1000u);
}

TEST(OpVectorsTest, OptimizersFollowPaddlesStepsInPlace) {
  const std::vector<Json> cases = ReadArchivedVectors("optimizers.jsonl");
  EXPECT_EQ(cases.size(), 39u) << kNewCases;
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    WEFT_EXPECT_OK(RunOptimizerCase(c, CpuKernels(), /*paddle_cpu_quirks=*/false));
    if (c.contains("paddle_cpu_quirks")) {
      WEFT_EXPECT_OK(RunOptimizerCase(c, CpuKernels(), /*paddle_cpu_quirks=*/true));
    }
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
    WEFT_EXPECT_OK(RunCase(c, {}));
    if (c.contains("paddle_cpu_quirks")) {
      WEFT_EXPECT_OK(RunCase(c, {}, CpuKernels(), "paddle_cpu_quirks"));
    }
    for (const Place& place : PossiblePlaces(c)) {
      SCOPED_TRACE(place.output + " in place of " + place.input);
      WEFT_EXPECT_OK(RunCase(c, {place}));
    }
  }
}

TEST(OpVectorsTest, OpsOfSmallProgramsAndTheirGradientsArePaddles) {
  const std::vector<Json> cases = ReadVectors("programs.jsonl");
  EXPECT_EQ(cases.size(), 141u) << kNewCases;
  RunInAnyPlace(cases);
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
  EXPECT_EQ(cases.size(), 187u) << kNewCases;
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
    random.noise = random.initializers;
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
