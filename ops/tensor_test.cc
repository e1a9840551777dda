#include "ops/tensor.h"

#include <cstdint>
#include <memory>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

Tensor Filled(const Dims& dims, float value) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, dims);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] = value;
  return tensor;
}

TEST(TensorTest, DefaultIsUnallocated) {
  Tensor tensor;
  EXPECT_FALSE(tensor.allocated());
  EXPECT_FALSE(tensor.SharesBufferWith(Tensor()));
  EXPECT_FALSE(tensor.Clone().allocated());
}

TEST(TensorTest, ResizeGivesAlignedMemoryOfTheTypeAndDims) {
  Tensor tensor;
  tensor.Resize(DType::kInt64, {3, 5});
  EXPECT_EQ(tensor.size(), 15);
  EXPECT_EQ(tensor.bytes(), 120u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.raw()) % 64, 0u);
}

TEST(TensorTest, ScalarHasOneElementAndEmptyTensorIsAllocated) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, {});
  EXPECT_EQ(tensor.size(), 1);
  Tensor empty;
  empty.Resize(DType::kFloat32, {0, 4});
  EXPECT_EQ(empty.size(), 0);
  EXPECT_TRUE(empty.allocated());
}

TEST(TensorTest, ShrinkingAndGrowingBackKeepsTheBuffer) {
  Tensor tensor = Filled({8, 4}, 1);
  const void* before = tensor.raw();
  tensor.Resize(DType::kFloat32, {2, 4});
  tensor.Resize(DType::kFloat32, {8, 4});
  EXPECT_EQ(tensor.raw(), before);
}

TEST(TensorTest, ResizeToTheSameTypeAndDimsKeepsTheValues) {
  Tensor tensor = Filled({3}, 7);
  tensor.Resize(DType::kFloat32, {3});
  EXPECT_EQ(tensor.data<float>()[2], 7);
}

TEST(TensorTest, WritingACopyLeavesTheOriginalAlone) {
  Tensor original = Filled({3}, 7);
  Tensor copy = original;
  EXPECT_TRUE(copy.SharesBufferWith(original));

  copy.Resize(DType::kFloat32, {3});
  EXPECT_FALSE(copy.SharesBufferWith(original));
  EXPECT_EQ(copy.data<float>()[2], 7);
  copy.data<float>()[2] = 8;
  EXPECT_EQ(original.data<float>()[2], 7);
}

TEST(TensorTest, WrappedTensorIsWrittenInItsPlace) {
  Tensor fused = Filled({6}, 0);
  auto owner = std::make_shared<Tensor>(fused);
  Tensor part = Tensor::Wrap(DType::kFloat32, {3}, owner, fused.data<float>() + 3);

  part.Resize(DType::kFloat32, {3});
  part.data<float>()[0] = 5;
  EXPECT_EQ(fused.data<float>()[3], 5);
}

TEST(TensorTest, WrappedTensorThatOutgrowsItsPlaceLeavesIt) {
  Tensor fused = Filled({6}, 0);
  auto owner = std::make_shared<Tensor>(fused);
  Tensor part = Tensor::Wrap(DType::kFloat32, {3}, owner, fused.data<float>() + 3);

  part.Resize(DType::kFloat32, {4});
  EXPECT_FALSE(
      part.SharesBufferWith(Tensor::Wrap(DType::kFloat32, {3}, owner, fused.data<float>() + 3)));
}

TEST(TensorTest, CloneIsDeep) {
  Tensor tensor = Filled({2, 2}, 3);
  Tensor clone = tensor.Clone();
  EXPECT_FALSE(clone.SharesBufferWith(tensor));
  EXPECT_EQ(clone.dims(), tensor.dims());
  EXPECT_EQ(clone.data<float>()[3], 3);
}

TEST(TensorTest, ReshapeKeepsTheElements) {
  Tensor tensor = Filled({2, 6}, 3);
  const void* before = tensor.raw();
  tensor.Reshape({3, 4});
  EXPECT_EQ(tensor.raw(), before);
  EXPECT_EQ(tensor.dim(1), 4);
}

// Rows 1 and 4 of a tensor fp32[6, 3].
Tensor TwoRows() {
  Tensor tensor;
  tensor.ResizeRows(DType::kFloat32, {6, 3}, 2);
  for (int i = 0; i < 6; ++i) tensor.data<float>()[i] = i;
  tensor.mutable_rows()[0] = 1;
  tensor.mutable_rows()[1] = 4;
  return tensor;
}

TEST(TensorTest, RowsOfATallerTensorHaveNumbersAndItsHeight) {
  const Tensor tensor = TwoRows();
  EXPECT_TRUE(tensor.is_rows());
  EXPECT_FALSE(Tensor().is_rows());
  EXPECT_EQ(tensor.dims(), (Dims{2, 3}));
  EXPECT_EQ(tensor.size(), 6);
  EXPECT_EQ(tensor.row_size(), 3);
  EXPECT_THAT(tensor.rows(), ElementsAre(1, 4));
  EXPECT_EQ(tensor.height(), 6);
  EXPECT_EQ(tensor.TallDims(), (Dims{6, 3}));
}

TEST(TensorTest, NoRowsAreAllocated) {
  Tensor tensor;
  tensor.ResizeRows(DType::kFloat32, {6, 3}, 0);
  EXPECT_TRUE(tensor.allocated());
  EXPECT_TRUE(tensor.is_rows());
  EXPECT_EQ(tensor.size(), 0);
  EXPECT_EQ(tensor.row_size(), 3);
}

TEST(TensorTest, ResizeMakesRowsDense) {
  Tensor tensor = TwoRows();
  tensor.Resize(DType::kFloat32, {2, 3});
  EXPECT_FALSE(tensor.is_rows());
  EXPECT_EQ(tensor.data<float>()[5], 5);
}

TEST(TensorTest, CloneOfRowsIsDeep) {
  const Tensor tensor = TwoRows();
  Tensor clone = tensor.Clone();
  clone.mutable_rows()[0] = 2;
  EXPECT_THAT(tensor.rows(), ElementsAre(1, 4));
  EXPECT_THAT(clone.rows(), ElementsAre(2, 4));
  EXPECT_EQ(clone.height(), 6);
  EXPECT_EQ(clone.data<float>()[5], 5);
  EXPECT_FALSE(clone.SharesBufferWith(tensor));
}

TEST(TensorTest, ValuesOfRowsAreADenseTensorOverTheirElements) {
  const Tensor tensor = TwoRows();
  const Tensor values = tensor.RowValues();
  EXPECT_FALSE(values.is_rows());
  EXPECT_EQ(values.dims(), (Dims{2, 3}));
  EXPECT_TRUE(values.SharesBufferWith(tensor));
}

TEST(TensorTest, ElementsOfAnotherTypeAreAnError) {
  Tensor tensor;
  EXPECT_THROW(tensor.data<float>(), WrongElementType);
  tensor.Resize(DType::kInt32, {2});
  EXPECT_THROW(tensor.data<float>(), WrongElementType);
  EXPECT_NE(tensor.data<int32_t>(), nullptr);
}

TEST(TensorTest, SizesBeyondMemoryAddressesAreRefused) {
  Tensor tensor;
  for (const Dims& dims : {Dims{int64_t{1} << 40, int64_t{1} << 40}, Dims{int64_t{1} << 61},
                           Dims{65536, 65536, 65536, 65536}}) {
    EXPECT_THROW(tensor.Resize(DType::kFloat64, dims), std::bad_alloc) << DimsToString(dims);
    EXPECT_FALSE(tensor.allocated());
  }
}

}  // namespace
}  // namespace weft::testing
