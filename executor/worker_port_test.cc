#include "executor/worker_port.h"

#include <cstdint>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::weft::testing::StatusIs;

// Worker 0, and servers of a table of 5 rows: ranks 1 and 2.
class WorkerPortTest : public ::testing::Test {
 protected:
  WorkerPortTest() : post_({3, 0, 3}, nullptr), port_(group_, 0) {
    group_.num_servers = 2;
    group_.post = &post_;
    ServedKey table;
    table.param = "table";
    table.type = {DType::kFloat32, {5, 1}};
    table.by_rows = true;
    group_.keys[0] = table;
    push_.server = ServerOp::kPush;
    push_.kernel_spec.attrs = OpAttrs::Make(*FindOpSchema("ps_push"));
    push_.kernel_spec.inputs["Grad"] = {0, 1};
  }

  absl::Status Push(const std::vector<int64_t>& rows) {
    Tensor grad;
    grad.ResizeRows(DType::kFloat32, {5, 1}, static_cast<int64_t>(rows.size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      grad.mutable_rows()[i] = rows[i];
      grad.data<float>()[i] = 1;
    }
    return port_.Run(push_, {&grad}, {});
  }

  ServerPost post_;
  ServerGroup group_;
  WorkerPort port_;
  Plan::PlanOp push_;
};

TEST_F(WorkerPortTest, EachServerGetsItsRows) {
  WEFT_ASSERT_OK(Push({4, -1, 0, 4}));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto first, post_.mailbox(1)->Take(0));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto second, post_.mailbox(2)->Take(0));
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_THAT(first->tensors[0].rows(), ElementsAre(0));
  EXPECT_THAT(second->tensors[0].rows(), ElementsAre(1, 1));
}

TEST_F(WorkerPortTest, GradientOfARowThatTheTableLacksIsRefused) {
  EXPECT_THAT(Push({0, 5}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Grad: row 5 at position 1 is not in [0, 5), the rows of table"));
}

}  // namespace
}  // namespace weft
