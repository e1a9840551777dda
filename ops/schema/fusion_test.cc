#include "ops/schema/fusion.h"

#include "gtest/gtest.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

TEST(FusionTest, PostOpsAreOpsOfXAndPerhapsY) {
  for (const OpSchema* schema : AllOpSchemas()) {
    SCOPED_TRACE(schema->type());
    const PostOpKind kind = AsPostOp(schema->type());
    EXPECT_NE(kind, PostOpKind::kBias);
    if (kind == PostOpKind::kNone) continue;
    EXPECT_NE(schema->FindInput("X"), nullptr);
    EXPECT_EQ(schema->FindInput("Y") != nullptr, kind == PostOpKind::kAdd);
    EXPECT_NE(schema->FindOutput("Out"), nullptr);
  }
  EXPECT_EQ(AsPostOp("elementwise_add"), PostOpKind::kAdd);
  EXPECT_EQ(AsPostOp("relu"), PostOpKind::kRelu);
}

}  // namespace
}  // namespace weft
