// In the environment of a test that limits vector units, oneDNN and loops keep to the limits.
#include "ops/cpu/vector_units.h"

#include "gtest/gtest.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/vectorize.h"

namespace weft {
namespace {

TEST(VectorUnitsTest, AreLimited) {
  EXPECT_FALSE(RunsAvx2Loops());
  EXPECT_EQ(dnnl::get_effective_cpu_isa(), dnnl::cpu_isa::sse41);
  EXPECT_EQ(VectorUnits(), "no AVX2, oneDNN SSE4.1");
}

}  // namespace
}  // namespace weft
