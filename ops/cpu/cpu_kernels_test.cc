// The table of all CPU kernels.
#include <string>

#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

// A kernel without a schema never runs.
TEST(CpuKernelsTest, OpsWithAKernelHaveASchema) {
  for (const std::string& type : CpuKernels().op_types()) {
    EXPECT_NE(FindOpSchema(type), nullptr)
        << type << " has a kernel in ops/cpu, but no schema in ops/schema";
  }
}

}  // namespace
}  // namespace weft
