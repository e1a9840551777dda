#include <algorithm>

#include "absl/status/status.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

constexpr int kFp32 = 5;

// Two tensors in one buffer, with slices aligned to 16 bytes: 4 elements.
absl::StatusOr<OpRunner> Make(Tensor* a, Tensor* b, Tensor* buffer, AttrValues more = {}) {
  AttrValues attrs = {{"dtype", kFp32}, {"align_size", 16}};
  attrs.insert(attrs.end(), more.begin(), more.end());
  return OpRunner::Make("coalesce_tensor", {{"Input", {a, b}}}, attrs,
                        {{"Output", {a, b}}, {"FusedOutput", {buffer}}});
}

const AttrValues kShapes = {{"concated_shapes", std::vector<int64_t>{3, 2, 1}},
                            {"concated_ranks", std::vector<int64_t>{1, 2}}};

TEST(CoalesceTensor, EveryArgumentIsAVariable) {
  Tensor a = Floats({1}, {1}), b = Floats({1}, {1}), buffer;
  const auto run = [&](Tensor* input, Tensor* output) {
    return RunOpOn("coalesce_tensor", {{"Input", {&a, input}}}, {{"dtype", kFp32}},
                   {{"Output", {&a, output}}, {"FusedOutput", {&buffer}}});
  };
  const char error[] = "Input[1] and Output[1]: expected variables";
  EXPECT_THAT(run(nullptr, &b), StatusIs(absl::StatusCode::kInvalidArgument, error));
  EXPECT_THAT(run(&b, nullptr), StatusIs(absl::StatusCode::kInvalidArgument, error));
}

TEST(CoalesceTensor, UnwrittenTensorsBecomeViewsOfOneBuffer) {
  Tensor a, b, buffer;
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op, Make(&a, &b, &buffer, kShapes));
  WEFT_ASSERT_OK(op.Run());
  EXPECT_EQ(buffer.dims(), (Dims{8}));
  EXPECT_THAT(Values<float>(buffer), Each(0));
  EXPECT_EQ(a.dims(), (Dims{3}));
  EXPECT_EQ(b.dims(), (Dims{2, 1}));
  // Writes it as a kernel writes its output.
  b.Resize(DType::kFloat32, {2, 1});
  b.data<float>()[0] = 5;
  a.Resize(DType::kFloat32, {3});
  a.data<float>()[2] = 7;
  EXPECT_THAT(Values<float>(buffer), ElementsAre(0, 0, 7, 0, 5, 0, 0, 0));
}

// Other values may have used the memory since.
TEST(CoalesceTensor, PaddingIsClearedInEveryStep) {
  Tensor a, b, buffer;
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op, Make(&a, &b, &buffer, kShapes));
  WEFT_ASSERT_OK(op.Run());
  std::fill_n(buffer.data<float>(), buffer.size(), 9.0f);
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(buffer), ElementsAre(9, 9, 9, 0, 9, 9, 0, 0));
}

TEST(CoalesceTensor, LaidOutTensorsStayWhereTheyAre) {
  Tensor a, b, buffer;
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op, Make(&a, &b, &buffer, kShapes));
  WEFT_ASSERT_OK(op.Run());
  const void* place = buffer.raw();
  a.data<float>()[0] = 1;
  WEFT_ASSERT_OK(op.Run());
  EXPECT_EQ(buffer.raw(), place);
  EXPECT_EQ(buffer.data<float>()[0], 1);
}

TEST(CoalesceTensor, CopyDataKeepsTheValues) {
  Tensor a = Floats({3}, {1, 2, 3}), b = Floats({2, 1}, {4, 5}), buffer;
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op, Make(&a, &b, &buffer, {{"copy_data", true}}));
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(buffer), ElementsAre(1, 2, 3, 0, 4, 5, 0, 0));
  a.data<float>()[0] = 9;
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(buffer), ElementsAre(9, 2, 3, 0, 4, 5, 0, 0));
}

TEST(CoalesceTensor, CopyDataFromOtherVariables) {
  Tensor in = Floats({3}, {1, 2, 3}), out, buffer;
  WEFT_ASSERT_OK_AND_ASSIGN(
      OpRunner op, OpRunner::Make("coalesce_tensor", {{"Input", {&in}}},
                                  {{"dtype", kFp32}, {"use_align", false}, {"copy_data", true}},
                                  {{"Output", {&out}}, {"FusedOutput", {&buffer}}}));
  WEFT_ASSERT_OK(op.Run());
  in.data<float>()[0] = 9;
  EXPECT_THAT(Values<float>(out), ElementsAre(1, 2, 3));
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(buffer), ElementsAre(9, 2, 3));
}

TEST(CoalesceTensor, ConstantFillsThePaddingToo) {
  Tensor a = Floats({3}, {1, 2, 3}), b = Floats({2, 1}, {4, 5}), buffer;
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op,
                            Make(&a, &b, &buffer, {{"set_constant", true}, {"constant", 2.0f}}));
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(buffer), Each(2));
  EXPECT_THAT(Values<float>(a), ElementsAre(2, 2, 2));
}

TEST(CoalesceTensor, InputOfUnknownShapeIsAnError) {
  Tensor a, b, buffer;
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op, Make(&a, &b, &buffer));
  EXPECT_THAT(op.Run(), IsFailedPrecondition("input Input[0] holds nothing"));
}

TEST(CoalesceTensor, InputOfAnotherElementTypeIsAnError) {
  Tensor a = Floats({1}, {1}), b = MakeTensor<int32_t>({1}, {1}), buffer;
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op, Make(&a, &b, &buffer, {{"copy_data", true}}));
  EXPECT_THAT(op.Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 "input Input[1]: expected fp32 as attribute dtype, found int32"));
}

TEST(CoalesceTensor, ShapesThatDoNotFitTheInputsAreAnError) {
  Tensor a, b, buffer;
  for (const std::vector<int64_t>& ranks :
       std::vector<std::vector<int64_t>>{{1}, {1, 3}, {1, -1}}) {
    EXPECT_THAT(
        Make(&a, &b, &buffer,
             {{"concated_shapes", std::vector<int64_t>{3, 2, 1}}, {"concated_ranks", ranks}})
            .status(),
        IsInvalidArgument("concated_shapes"));
  }
}

TEST(CoalesceTensor, InputThatDoesNotFitItsGivenShapeIsNotCopied) {
  Tensor a = Floats({4}, {1, 2, 3, 4}), b = Floats({2, 1}, {4, 5}), buffer;
  AttrValues attrs = kShapes;
  attrs.push_back({"copy_data", true});
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op, Make(&a, &b, &buffer, attrs));
  EXPECT_THAT(op.Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 "input Input[0]: expected shape [3] as attribute concated_shapes, "
                                 "found [4]"));
}

TEST(CoalesceTensor, ImpossibleSizesAreErrors) {
  Tensor a, b, buffer;
  for (const std::vector<int64_t>& shapes : std::vector<std::vector<int64_t>>{
           {INT64_MAX, 1}, {int64_t{1} << 62, 1}, {int64_t{1} << 50, 1}}) {
    EXPECT_THAT(Make(&a, &b, &buffer,
                     {{"concated_shapes", shapes}, {"concated_ranks", std::vector<int64_t>{1, 1}}})
                    .status(),
                IsInvalidArgument("concated_shapes"));
  }
  EXPECT_THAT(OpRunner::Make("coalesce_tensor", {{"Input", {&a}}},
                             {{"dtype", kFp32}, {"align_size", INT32_MAX}},
                             {{"Output", {&a}}, {"FusedOutput", {&buffer}}})
                  .status(),
              IsInvalidArgument("attribute align_size: expected at most 1048576, found"));
}

TEST(CoalesceTensor, OutputsThatAreOneVariableAreAnError) {
  Tensor a = Floats({1}, {1}), buffer;
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner twice, Make(&a, &a, &buffer, {{"copy_data", true}}));
  EXPECT_THAT(twice.Run(), IsInvalidArgument("Output[1]"));
  Tensor b = Floats({1}, {1});
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner itself, Make(&a, &b, &a, {{"copy_data", true}}));
  EXPECT_THAT(itself.Run(), IsInvalidArgument("Output[0]"));
}

TEST(CoalesceTensor, CopiedInputsAreNotOverwrittenFirst) {
  Tensor a = Floats({1}, {1}), b = Floats({1}, {2}), c, d;
  const auto run = [&](Tensor* output, Tensor* fused) {
    return RunOpOn("coalesce_tensor", {{"Input", {&a, &b}}},
                   {{"dtype", kFp32}, {"copy_data", true}},
                   {{"Output", {output, &c}}, {"FusedOutput", {fused}}});
  };
  const char error[] = "input Input[1]: is FusedOutput or another one's Output";
  EXPECT_THAT(run(&a, &b), StatusIs(absl::StatusCode::kInvalidArgument, error));
  EXPECT_THAT(run(&b, &d), StatusIs(absl::StatusCode::kInvalidArgument, error));
  WEFT_EXPECT_OK(run(&a, &d));
}

TEST(CoalesceTensor, InputsGiveSizesOnlyUnlessTheyAreCopied) {
  Tensor a = Floats({2}, {1, 2}), b = Floats({1}, {3}), c, d, buffer;
  const auto run = [&](bool copies) {
    return RunOpOn("coalesce_tensor", {{"Input", {&a, &b}}}, {{"dtype", 4}, {"copy_data", copies}},
                   {{"Output", {&c, &d}}, {"FusedOutput", {&buffer}}});
  };
  WEFT_EXPECT_OK(run(false));
  EXPECT_EQ(c.dtype(), DType::kFloat16);
  EXPECT_EQ(c.dims(), (Dims{2}));
  EXPECT_THAT(run(true), IsInvalidArgument("expected fp16 as attribute dtype, found fp32"));
}

}  // namespace
}  // namespace weft::testing
