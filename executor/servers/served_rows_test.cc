#include "executor/servers/served_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

template <typename T>
Tensor TensorOf(const Dims& dims, const std::vector<T>& values) {
  Tensor tensor;
  tensor.Resize(DTypeOf<T>::value, dims);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

template <typename T>
std::vector<T> ValuesOf(const Tensor& tensor) {
  return std::vector<T>(tensor.data<T>(), tensor.data<T>() + tensor.size());
}

TEST(ServedRowsTest, RowsComeInTheOrderOfTheirNumbers) {
  const Tensor table = TensorOf<float>({3, 2}, {0, 1, 10, 11, 20, 21});
  const Tensor rows = RowsOf(table, TensorOf<int64_t>({3}, {2, 0, 2}));
  EXPECT_EQ(rows.dims(), Dims({3, 2}));
  EXPECT_THAT(ValuesOf<float>(rows), ElementsAre(20, 21, 0, 1, 20, 21));
}

TEST(ServedRowsTest, ChangesAreRowsOfWhichABitDiffers) {
  Tensor table = TensorOf<float>({4, 2}, {0, 1, 10, 11, 20, 21, NAN, 31});
  PrefetchedRows prefetched;
  prefetched.prefetch.tensors.push_back(TensorOf<int64_t>({3}, {3, 0, 2}));
  prefetched.sent = RowsOf(table, prefetched.prefetch.tensors[0]);
  EXPECT_THAT(ChangesOf(table, prefetched), IsEmpty()) << "a NaN stays what it is";
  table.data<float>()[0] = -0.0F;  // equal, but not the same bits
  table.data<float>()[3] = 99;     // of a row that was not prefetched
  table.data<float>()[5] = 22;
  const std::vector<Tensor> changes = ChangesOf(table, prefetched);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_THAT(ValuesOf<int64_t>(changes[0]), ElementsAre(1, 2));
  EXPECT_EQ(changes[1].dims(), Dims({2, 2}));
  EXPECT_THAT(ValuesOf<float>(changes[1]), ElementsAre(0, 1, 20, 22));
}

}  // namespace
}  // namespace weft::testing
