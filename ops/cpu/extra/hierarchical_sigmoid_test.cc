#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// The gradient of the weights, dense or rows, of one example on a given path; on that of the
// default tree if `table` has no dimensions.
absl::Status RunTreeGrad(Tensor label, Tensor table, bool is_sparse, Tensor* dw) {
  Tensor x = Floats({1, 2}, {1, 2}), w = Floats({3, 2}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6});
  Tensor code;
  Tensor out, pre_out, dout = Floats({1, 1}, {1});
  const AttrValues attrs = {{"num_classes", 4}, {"is_sparse", is_sparse}};
  SlotPointers inputs = {{"X", {&x}}, {"W", {&w}}, {"Label", {&label}}};
  if (!table.dims().empty()) {
    code = Int64s(table.dims(), std::vector<int64_t>(table.size(), 1));
    inputs.push_back({"PathTable", {&table}});
    inputs.push_back({"PathCode", {&code}});
  }
  WEFT_RETURN_IF_ERROR(RunOpOn("hierarchical_sigmoid", inputs, attrs,
                               {{"Out", {&out}}, {"PreOut", {&pre_out}}, {"W_Out", {&w}}}));
  inputs.push_back({"PreOut", {&pre_out}});
  inputs.push_back({"Out@GRAD", {&dout}});
  return RunOpOn("hierarchical_sigmoid_grad", inputs, attrs, {{"W@GRAD", {dw}}});
}

TEST(HierarchicalSigmoidTest, RowsOfTheWeightsGradientAreThoseOfThePath) {
  for (const Tensor& table : {Int64s({1, 3}, {2, 0, -1}), Tensor()}) {
    // Class 3 of the default tree also has the path of nodes 2 and 0.
    const Tensor label = Int64s({1, 1}, {3});
    Tensor dense, rows = Rows({1, 1}, {}, {});
    WEFT_ASSERT_OK(RunTreeGrad(label, table, /*is_sparse=*/false, &dense));
    WEFT_ASSERT_OK(RunTreeGrad(label, table, /*is_sparse=*/true, &rows));
    EXPECT_THAT(rows.rows(), ElementsAre(0, 2));
    const std::vector<float> d = Values<float>(dense);
    EXPECT_THAT(Values<float>(rows), ElementsAre(d[0], d[1], d[4], d[5]));
    EXPECT_NE(d[0], 0);
    EXPECT_THAT((std::vector<float>{d[2], d[3]}), Each(0));
  }
}

TEST(HierarchicalSigmoidTest, ClassesAndNodesThatAreNotThereAreErrors) {
  Tensor dw;
  EXPECT_THAT(RunTreeGrad(Int64s({1, 1}, {4}), Tensor(), false, &dw),
              IsInvalidArgument("input Label: 4 at position 0 is not in [0, 4)"));
  EXPECT_THAT(RunTreeGrad(Int64s({1, 1}, {0}), Int64s({1, 2}, {0, 3}), false, &dw),
              IsInvalidArgument("input PathTable: 3 in row 0 is not in [0, 3)"));
}

}  // namespace
}  // namespace weft::testing
