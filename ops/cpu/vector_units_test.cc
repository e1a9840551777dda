// In the environment of a test that limits vector units, oneDNN and loops keep to the limits.
#include "gtest/gtest.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/vectorize.h"

namespace weft {
namespace {

TEST(VectorUnitsTest, AreLimited) {
  EXPECT_FALSE(RunsAvx2Loops());
  EXPECT_EQ(dnnl::get_effective_cpu_isa(), dnnl::cpu_isa::sse41);
}

}  // namespace
}  // namespace weft
