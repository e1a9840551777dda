#include "ops/gpu/gemm.h"

#include "base/testing/test.h"

namespace weft::testing {
namespace {

TEST(GpuGemmTest, MissingOrOtherLibraryIsUnavailable) {
#ifdef WEFT_HAVE_CUDA
  EXPECT_THAT(GpuGemm::Load("/no/such/libcublasLt.so"),
              IsUnavailable(AllOf(HasSubstr("/no/such/libcublasLt.so: cannot open"),
                                  HasSubstr("cuBLASLt, sought beside the program"),
                                  HasSubstr("LD_LIBRARY_PATH"))));
  EXPECT_THAT(GpuGemm::Load("libm.so.6"),
              IsUnavailable("libm.so.6: expected cuBLASLt, found a library without "
                            "cublasLtGetStatusString"));
#else
  GTEST_SKIP() << "built without CUDA";
#endif
}

}  // namespace
}  // namespace weft::testing
