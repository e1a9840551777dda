// Runs the kernels of GPUs, compiled for the host, on vectors that Paddle 2.6.2 computed. So what a
// GPU computes is tested where there is none, except for launches, barriers and cuBLASLt.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ops/cpu/op_vectors_cases.h"
#include "ops/cpu/op_vectors_testing.h"
#include "ops/gpu/gpu_op_types.h"
#include "ops/kernel.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;

// The cases of all files for ops with a kernel for GPUs, without rows.
std::vector<Json> Cases() {
  std::vector<Json> all = ReadArchivedVectors("ops.jsonl");
  for (const char* file : {"programs.jsonl", "layers.jsonl", "math.jsonl"}) {
    for (Json& c : ReadVectors(file)) {
      if (file != std::string("programs.jsonl")) all.push_back(InDoublePrecision(c));
      all.push_back(std::move(c));
    }
  }
  std::vector<Json> cases;
  for (Json& c : all) {
    if (GpuKernels().Find(c["op"].get<std::string>()) == nullptr) continue;
    if (absl::StrContains(c.dump(), "\"rows\"")) continue;
    cases.push_back(std::move(c));
  }
  return cases;
}

TEST(GpuKernelsOnHost, AreTheListedOps) {
  EXPECT_EQ(absl::StrJoin(GpuKernels().op_types(), "\n"), absl::StrJoin(GpuOpTypes(), "\n"));
}

TEST(GpuKernelsOnHost, GivePaddlesOutputsInAnyPlace) {
  std::set<std::string> types, without;
  for (const Json& c : Cases()) {
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
  // Of these, some cases have no kernel.
  EXPECT_THAT(without, ElementsAre());
  // Ops without vectors have tests of their own.
  std::vector<std::string> untested;
  for (const std::string& type : GpuKernels().op_types()) {
    if (types.count(type) == 0) untested.push_back(type);
  }
  EXPECT_THAT(untested, ElementsAre());
}

TEST(GpuKernelsOnHost, UpdatesFollowPaddlesSteps) {
  int num_cases = 0;
  for (const Json& c : ReadArchivedVectors("optimizers.jsonl")) {
    SCOPED_TRACE(c["id"].get<std::string>());
    if (GpuKernels().Find(c["op"].get<std::string>()) == nullptr) continue;
    if (c["steps"][0]["Grad"].contains("rows")) continue;
    WEFT_EXPECT_OK(RunOptimizerCase(c, GpuKernels(), /*paddle_cpu_quirks=*/false));
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 1);
}

}  // namespace
}  // namespace weft::testing
