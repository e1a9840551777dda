#include "ops/op_kernel.h"

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// Inference looks at shapes alone; labels may be of any type that the kernel takes.
TEST(OpKernelTest, AnInputOfAnotherTypeThanTheKernelReadsIsAnErrorThatNamesIt) {
  EXPECT_THAT(
      RunOp("reduce_max_grad",
            {{"X", {Floats({2}, {1, 2})}},
             {"Out", {MakeTensor<int32_t>({}, {2})}},
             {"Out@GRAD", {Floats({}, {1})}}},
            {{"reduce_all", true}}, {{"X@GRAD", 1}}),
      StatusIs(absl::StatusCode::kInvalidArgument, "input Out: expected fp32, found int32"));
}

TEST(OpKernelTest, AnInputThatOnlyInferenceReadsMustBeThere) {
  for (const char* type : {"squeeze2_grad", "unsqueeze2_grad", "flatten2_grad", "reshape2_grad"}) {
    EXPECT_THAT(RunOp(type, {{"Out@GRAD", {Floats({1}, {1})}}}, {}, {{"X@GRAD", 1}}),
                StatusIs(absl::StatusCode::kInvalidArgument, "input XShape: missing"))
        << type;
  }
}

TEST(OpKernelTest, AValueThatDoesNotFillTheSliceIsAnError) {
  for (const char* type : {"set_value", "set_value_grad"}) {
    const bool is_grad = type == std::string("set_value_grad");
    const std::vector<int64_t> zero = {0}, one = {1};
    EXPECT_THAT(RunOp(type,
                      {{is_grad ? "Out@GRAD" : "Input", {Floats({2}, {1, 2})}},
                       {"ValueTensor", {Floats({2, 1}, {3, 4})}}},
                      {{"axes", zero}, {"starts", zero}, {"ends", one}, {"steps", one}},
                      {{is_grad ? "ValueTensor@GRAD" : "Out", 1}}),
                IsInvalidArgument("input ValueTensor"));
  }
}

TEST(OpKernelTest, OversizedResultIsAnError) {
  const int32_t most = 2147483647;
  EXPECT_THROW((void)RunOp("expand_v2", {{"X", {Floats({1}, {1})}}},
                           {{"shape", std::vector<int32_t>{most, most, most}}}, {{"Out", 1}}),
               std::bad_alloc);
}

}  // namespace
}  // namespace weft::testing
