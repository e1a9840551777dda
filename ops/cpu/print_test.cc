#include <string>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// What steps of the op write to stderr; its output must equal its input.
std::string Printed(Tensor in, const AttrValues& attrs, int steps = 1) {
  Tensor out;
  const SlotPointers inputs = {{"In", {&in}}};
  auto op = OpRunner::Make("print", inputs, attrs, {{"Out", {&out}}});
  EXPECT_THAT(op, IsOk());
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < steps; ++i) WEFT_EXPECT_OK(op->Run());
  EXPECT_EQ(out.dims(), in.dims());
  EXPECT_EQ(Values<float>(out), Values<float>(in));
  return ::testing::internal::GetCapturedStderr();
}

TEST(PrintTest, PrintsOneLine) {
  EXPECT_EQ(Printed(Floats({2, 2}, {1, 0.5, -2, 0.1}), {{"message", std::string("x is")}}),
            "print: x is fp32[2, 2] [1, 0.5, -2, 0.1]\n");
}

TEST(PrintTest, PrintsTheRequestedNumberOfElements) {
  const Tensor x = Floats({3}, {1, 2, 3});
  EXPECT_EQ(Printed(x, {{"summarize", 2}}), "print: fp32[3] [1, 2, ...]\n");
  EXPECT_EQ(Printed(x, {{"summarize", -1}}), "print: fp32[3] [1, 2, 3]\n");
}

TEST(PrintTest, IsAlwaysOneLine) {
  EXPECT_EQ(Printed(Floats({1}, {1}), {{"message", std::string("a\nb\033[0m")}}),
            "print: a\\nb\\033[0m fp32[1] [1]\n");
  EXPECT_EQ(Printed(Floats({1}, {1}), {{"summarize", 0}}), "print: fp32[1] [...]\n");
}

TEST(PrintTest, OmitsAsRequested) {
  EXPECT_EQ(
      Printed(Floats({1}, {1}), {{"message", std::string("x")}, {"print_tensor_shape", false}}),
      "print: x fp32 [1]\n");
  EXPECT_EQ(
      Printed(Floats({1}, {1}), {{"message", std::string("x")}, {"print_tensor_type", false}}),
      "print: x [1] [1]\n");
}

TEST(PrintTest, PrintsTheFirstStepsOnly) {
  EXPECT_EQ(Printed(Floats({1}, {4}), {{"first_n", 2}}, /*steps=*/3),
            "print: fp32[1] [4]\nprint: fp32[1] [4]\n");
}

TEST(PrintTest, PrintsForwardsOrBackwardsAsItShould) {
  const Tensor x = Floats({1}, {4});
  EXPECT_EQ(Printed(x, {{"print_phase", std::string("BACKWARD")}}), "");
  EXPECT_EQ(Printed(x, {{"print_phase", std::string("FORWARD")}, {"is_forward", false}}), "");
  EXPECT_EQ(Printed(x, {{"is_forward", false}}), "print (gradient): fp32[1] [4]\n");
}

}  // namespace
}  // namespace weft::testing
