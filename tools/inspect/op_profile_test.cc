#include "tools/inspect/op_profile.h"

#include <chrono>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

TEST(OpProfile, HasMediansAfterTheFirstSteps) {
  Plan plan;
  plan.ops.resize(3);
  plan.ops[0].name = "op 0 (relu)";
  plan.ops[1].name = "op 1 (relu)";
  plan.ops[2].name = "block 1, op 0 (scale)";  // a part of another op
  OpProfile profile;
  using std::chrono::seconds;
  const std::chrono::steady_clock::time_point zero;
  for (int step = 0; step < 5; ++step) {
    const int first = step < OpProfile::kWarmUpSteps ? 1000 : step;
    // Op 1 runs twice a step, in a loop.
    const std::vector<std::vector<OpSpan>> spans = {{{0, zero, zero + seconds(first)},
                                                     {1, zero, zero + seconds(1)},
                                                     {1, zero, zero + seconds(2)},
                                                     {2, zero, zero + seconds(2)}}};
    profile.Add({step, 0, &plan, spans});
    profile.Add({step, 1, &plan, spans});
  }
  const auto json = nlohmann::json::parse(profile.Json());
  ASSERT_EQ(json["ops"].size(), 2);
  EXPECT_EQ(json["ops"][0], nlohmann::json({{"op", "op 0 (relu)"}, {"seconds", 3.0}}));
  EXPECT_EQ(json["ops"][1]["seconds"], 3.0);
}

TEST(OpProfile, HasTheOpsOfAChain) {
  Plan plan;
  plan.ops.resize(2);
  plan.ops[0].name = "op 0 (relu)";
  plan.ops[1].name = "op 1 (scale)";
  using std::chrono::seconds;
  const std::chrono::steady_clock::time_point zero;
  const std::vector<std::vector<OpSpan>> spans = {
      {{0, zero, zero + seconds(7), 0, {0, 1}, {seconds(2), seconds(4)}}}};
  OpProfile profile;
  profile.Add({0, 0, &plan, spans});
  const auto json = nlohmann::json::parse(profile.Json());
  ASSERT_EQ(json["ops"].size(), 2);
  EXPECT_EQ(json["ops"][0]["seconds"], 2.0);
  EXPECT_EQ(json["ops"][1], nlohmann::json({{"op", "op 1 (scale)"}, {"seconds", 4.0}}));
}

}  // namespace
}  // namespace weft
