// Unusual values of attributes that Paddle 2.6.2 and 3.3.1 run.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

using Attrs = std::vector<std::pair<std::string, AttrValue>>;

TEST(AcceptedValuesTest, InferenceTakesWhatPaddleRuns) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int kFp32 = 5, kInt32 = 2, kUint8 = 20;
  const auto filled = [](int dtype, const std::string& text) {
    return Attrs{{"dtype", dtype}, {"shape", Longs{2}}, {"str_value", text}};
  };
  const auto renormed = [](float p) { return Attrs{{"p", p}, {"axis", 0}, {"max_norm", 1.0f}}; };
  const std::string regions = "roi_align(X: fp32[2, 3, 8, 8], ROIs: fp32[4, 4], RoisNum: int32[2])";
  const std::string chunks =
      "chunk_eval(Inference: int64[2, 3], Label: int64[2, 3], SeqLength: int64[2])";
  const std::string tree =
      "hierarchical_sigmoid(X: fp32[2, 4], W: fp32[3, 4], Label: int64[2, 1], "
      "PathTable: int64[2, 5], PathCode: int64[2, 5])";
  const std::vector<std::pair<std::string, Attrs>> cases = {
      {regions + " -> Out", {{"sampling_ratio", 100}}},
      {"fill_constant() -> Out", filled(kUint8, "-1")},
      {"fill_constant() -> Out", filled(kUint8, "300")},
      {"fill_constant() -> Out", filled(kInt32, "3000000000")},
      {"uniform_random() -> Out",
       {{"dtype", kFp32}, {"shape", Longs{2}}, {"min", 1.0f}, {"max", 0.0f}}},
      {tree + " -> Out, PreOut", {{"num_classes", 1}}},
      {"renorm(X: fp32[2, 3]) -> Out", renormed(kInfinity)},
      {"renorm(X: fp32[2, 3]) -> Out", renormed(0)},
      {"renorm(X: fp32[2, 3]) -> Out", renormed(-1)},
      {chunks + " -> Precision", {{"num_chunk_types", 0}, {"chunk_scheme", std::string("plain")}}},
      {"lrn(X: fp32[1, 5, 2, 2]) -> Out", {{"data_format", std::string("AnyLayout")}}},
  };
  for (const auto& [op, attrs] : cases) EXPECT_THAT(Infer(op, attrs), IsOk()) << op;
}

}  // namespace
}  // namespace weft::testing
