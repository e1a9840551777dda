#include "ops/schema/tensor_type.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

// A program of one variable of that type, and what DeclaredType says of it.
absl::optional<TensorType> DeclaredTypeOf(const pb::VarType& type, const std::string& name = "v",
                                          bool persistable = false) {
  pb::ProgramDesc desc;
  pb::BlockDesc* block = desc.add_blocks();
  block->set_idx(0);
  block->set_parent_idx(-1);
  pb::VarDesc* var = block->add_vars();
  var->set_name(name);
  var->set_persistable(persistable);
  *var->mutable_type() = type;
  const absl::StatusOr<Program> program = Program::FromProto(desc);
  EXPECT_TRUE(program.ok()) << program.status();
  return DeclaredType(program->var(program->block(0).vars()[0]));
}

pb::VarType DenseType(pb::VarType::Type dtype, const std::vector<int64_t>& dims) {
  pb::VarType type;
  type.set_type(pb::VarType::LOD_TENSOR);
  type.mutable_lod_tensor()->mutable_tensor()->set_data_type(dtype);
  for (int64_t dim : dims) type.mutable_lod_tensor()->mutable_tensor()->add_dims(dim);
  return type;
}

TEST(DTypeTest, EveryElementTypeOfTheFormatIsKnownByNumberAndName) {
  for (int number = 0; number < 64; ++number) {
    const absl::optional<DType> dtype = DTypeFromProto(number);
    // 7 to 18 and 25 to 31 are containers, 19 is size_t, which no file holds.
    const bool is_element = number <= 6 || (number >= 20 && number <= 24) || number == 32 ||
                            number == 33 || (number >= 36 && number <= 38);
    ASSERT_EQ(dtype.has_value(), is_element) << number;
    if (!is_element) continue;
    EXPECT_EQ(static_cast<int>(*dtype), number);
    EXPECT_EQ(ParseDType(DTypeName(*dtype)), dtype);
    EXPECT_GT(SizeOf(*dtype), 0u);
  }
}

TEST(DTypeTest, UnknownNameHasNoDType) { EXPECT_EQ(ParseDType("float"), absl::nullopt); }

TEST(DTypeTest, SizesAreBytesOfAnElement) {
  EXPECT_EQ(SizeOf(DType::kBool), 1u);
  EXPECT_EQ(SizeOf(DType::kBFloat16), 2u);
  EXPECT_EQ(SizeOf(DType::kFloat32), 4u);
  EXPECT_EQ(SizeOf(DType::kInt64), 8u);
  EXPECT_EQ(SizeOf(DType::kComplex128), 16u);
}

TEST(DTypeTest, FloatingTypesAreThoseOfRealNumbers) {
  EXPECT_TRUE(IsFloating(DType::kFloat16));
  EXPECT_TRUE(IsFloating(DType::kBFloat16));
  EXPECT_TRUE(IsFloating(DType::kFloat64));
  EXPECT_FALSE(IsFloating(DType::kInt64));
  EXPECT_FALSE(IsFloating(DType::kBool));
}

TEST(NumElementsTest, IsTheProduct) { EXPECT_EQ(NumElements({2, 3, 4}), 24); }

TEST(NumElementsTest, OfAScalarIsOne) { EXPECT_EQ(NumElements({}), 1); }

TEST(NumElementsTest, IsUnknownWithAnUnknownDimension) { EXPECT_EQ(NumElements({-1, 0}), -1); }

TEST(NumElementsTest, DoesNotOverflow) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(NumElements({huge, huge}), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(NumElements({huge, huge, 0}), 0);
}

TEST(TensorTypeTest, TextShowsKindTypeAndDimensions) {
  EXPECT_EQ(ToString(TensorType{DType::kFloat32, {-1, 784}}), "fp32[-1, 784]");
  EXPECT_EQ(ToString(TensorType{DType::kInt64, {}}), "int64[]");
  EXPECT_EQ(ToString(TensorType{DType::kBFloat16, {100, 8}, TensorType::Kind::kSelectedRows}),
            "rows bf16[100, 8]");
}

TEST(DeclaredTypeTest, OfADenseTensor) {
  EXPECT_EQ(DeclaredTypeOf(DenseType(pb::VarType::FP16, {-1, 3})),
            (TensorType{DType::kFloat16, {-1, 3}}));
}

TEST(DeclaredTypeTest, OfSelectedRowsIsTheTensorTheyAreTakenFrom) {
  pb::VarType type;
  type.set_type(pb::VarType::SELECTED_ROWS);
  type.mutable_selected_rows()->set_data_type(pb::VarType::FP32);
  type.mutable_selected_rows()->add_dims(100);
  type.mutable_selected_rows()->add_dims(8);
  EXPECT_EQ(DeclaredTypeOf(type),
            (TensorType{DType::kFloat32, {100, 8}, TensorType::Kind::kSelectedRows}));
  // A table has all rows; a gradient has those of a step, also if it persists to be fetched.
  EXPECT_EQ(DeclaredTypeOf(type, "table", true), (TensorType{DType::kFloat32, {100, 8}}));
  EXPECT_EQ(DeclaredTypeOf(type, "table@GRAD", true),
            (TensorType{DType::kFloat32, {100, 8}, TensorType::Kind::kSelectedRows}));
}

TEST(DeclaredTypeTest, IsNoneForNonTensors) {
  pb::VarType type;
  type.set_type(pb::VarType::RAW);
  EXPECT_EQ(DeclaredTypeOf(type), absl::nullopt);
}

TEST(DeclaredTypeTest, OfAContainerAsElementTypeIsNone) {
  EXPECT_EQ(DeclaredTypeOf(DenseType(pb::VarType::LOD_TENSOR, {1})), absl::nullopt);
}

TEST(DeclaredTypeTest, OfImpossibleDimensionsIsNone) {
  EXPECT_EQ(DeclaredTypeOf(DenseType(pb::VarType::FP32, {-2})), absl::nullopt);
  EXPECT_EQ(DeclaredTypeOf(DenseType(pb::VarType::FP32, {kMaxElements, -1, 2})), absl::nullopt);
  EXPECT_EQ(DeclaredTypeOf(DenseType(pb::VarType::FP32, {0, kMaxElements + 1})), absl::nullopt);
}

}  // namespace
}  // namespace weft
