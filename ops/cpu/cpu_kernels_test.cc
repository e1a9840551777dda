// The table of all CPU kernels.
#include <string>

#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "ops/schema/attention_ops.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

// A kernel without a schema never runs, but for those of ops that plans alone have.
TEST(CpuKernelsTest, OpsWithAKernelHaveASchema) {
  for (const std::string& type : CpuKernels().op_types()) {
    if (type == kAttention || type == kAttentionGrad) continue;
    EXPECT_NE(FindOpSchema(type), nullptr)
        << type << " has a kernel in ops/cpu, but no schema in ops/schema";
  }
}

}  // namespace
}  // namespace weft
