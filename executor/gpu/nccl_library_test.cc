#include "executor/gpu/nccl_library.h"

#include "base/testing/test.h"

#ifdef WEFT_HAVE_NCCL_H
#include <nccl.h>
#endif

namespace weft::testing {
namespace {

TEST(NcclLibraryTest, MissingOrOldLibraryIsUnavailable) {
  EXPECT_THAT(
      LoadNccl("/no/such/libnccl.so.2").status(),
      IsUnavailable(AllOf(HasSubstr("/no/such/libnccl.so.2"), HasSubstr("LD_LIBRARY_PATH"))));
  EXPECT_THAT(
      LoadNccl("executor/gpu/libold_nccl.so").status(),
      StatusIs(absl::StatusCode::kUnavailable,
               "executor/gpu/libold_nccl.so: expected NCCL 2.14 or later, found version code "
               "21300"));
}

TEST(NcclLibraryTest, LibraryIsLoadedOnceAndNamesItsErrors) {
  WEFT_ASSERT_OK_AND_ASSIGN(const NcclLibrary* const library,
                            LoadNccl("executor/gpu/libfake_nccl.so"));
  EXPECT_EQ(*LoadNccl("executor/gpu/libfake_nccl.so"), library);
  WEFT_EXPECT_OK(library->StatusOf(nccl::kInProgress, "ncclGroupEnd"));
  EXPECT_THAT(library->StatusOf(6, "ncclAllReduce"), IsInternal("ncclAllReduce: remote process"));
}

TEST(NcclLibraryTest, InterfaceIsThatOfTheHeader) {
#ifdef WEFT_HAVE_NCCL_H
  static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
  EXPECT_THAT((std::vector<int>{nccl::kSuccess, nccl::kInProgress}),
              ElementsAre(ncclSuccess, ncclInProgress));
  EXPECT_THAT((std::vector<int>{nccl::kInt8, nccl::kUint8, nccl::kInt32, nccl::kInt64,
                                nccl::kFloat16, nccl::kFloat32, nccl::kFloat64, nccl::kBfloat16}),
              ElementsAre(ncclInt8, ncclUint8, ncclInt32, ncclInt64, ncclFloat16, ncclFloat32,
                          ncclFloat64, ncclBfloat16));
  EXPECT_THAT((std::vector<int>{nccl::kSum, nccl::kProd, nccl::kMax, nccl::kMin, nccl::kAvg}),
              ElementsAre(ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg));
  // The settings of the first version begin the later ones.
  static_assert(offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic));
  static_assert(offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version));
  static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(nccl::Config().magic, config.magic);
#else
  GTEST_SKIP() << "no nccl.h";
#endif
}

}  // namespace
}  // namespace weft::testing
