#include "base/similar_name.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(SimilarNameTest, NameWithFewestEditsIsOffered) {
  const std::vector<absl::string_view> modes = {"none", "grad_allreduce", "local_sgd",
                                                "multi_thread"};
  EXPECT_EQ(DidYouMean("grad_all_reduce", modes), "; did you mean grad_allreduce?");
  EXPECT_EQ(DidYouMean("local-sgd", modes), "; did you mean local_sgd?");
  EXPECT_EQ(DidYouMean("nnoe", modes), "; did you mean none?");
  EXPECT_EQ(DidYouMean("fc_0.w_1", {"fc_0.b_0", "fc_0.w_0", "fc_1.w_0"}),
            "; did you mean fc_0.w_0?");
}

TEST(SimilarNameTest, NamesThatDifferMuchAreNotOffered) {
  EXPECT_EQ(DidYouMean("pipeline", {"none", "multi_thread"}), "");
  EXPECT_EQ(DidYouMean("x", {"label"}), "");
  EXPECT_EQ(DidYouMean("", {"x"}), "");
  EXPECT_EQ(DidYouMean("loss", {}), "");
}

}  // namespace
}  // namespace weft
