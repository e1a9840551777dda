#include "transpiler/buckets/bucket_policy.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(BucketPolicy, DefaultsAreThoseOfTheSystems) {
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy bytes, BucketPolicy::Parse("bytes"));
  EXPECT_EQ(bytes.first_limit, 1048576);
  EXPECT_EQ(bytes.limit, 26214400);
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy count, BucketPolicy::Parse("count"));
  EXPECT_EQ(count.limit, 128);
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy singa, BucketPolicy::Parse("singa"));
  EXPECT_EQ(singa.limit, 2097152);
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy megengine, BucketPolicy::Parse("megengine"));
  EXPECT_EQ(megengine.limit, 10485760);
  EXPECT_EQ(megengine.ignore_first, 8);
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy pass, BucketPolicy::Parse("megengine_pass"));
  EXPECT_EQ(pass.ignore_first, 2);
}

TEST(BucketPolicy, ParametersReplaceDefaults) {
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy paddle,
                            BucketPolicy::Parse("paddle_count{count=3}"));
  EXPECT_EQ(paddle.limit, 3);
  EXPECT_TRUE(paddle.from_last);
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy mindspore,
                            BucketPolicy::Parse("mindspore{split_indices=\"20,35\"}"));
  EXPECT_THAT(mindspore.split_indices, ElementsAre(20, 35));
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy size,
                            BucketPolicy::Parse("mindspore_size{threshold=2}"));
  EXPECT_EQ(size.limit, 524288);
}

TEST(BucketPolicy, UnknownPoliciesAndParametersAreErrors) {
  EXPECT_THAT(BucketPolicy::Parse("size"),
              StatusIs(kInvalid, HasSubstr("buckets: expected none, optimal, bytes{first_bytes")));
  EXPECT_THAT(BucketPolicy::Parse(""), StatusIs(kInvalid, HasSubstr("buckets")));
  EXPECT_THAT(BucketPolicy::Parse("none{count=1}"),
              StatusIs(kInvalid, "buckets: unknown option count; it has no options"));
  EXPECT_THAT(BucketPolicy::Parse("count{count=0}"),
              StatusIs(kInvalid, HasSubstr("option count: expected an integer >= 1")));
  EXPECT_THAT(BucketPolicy::Parse("bytes{max_bytes=-1}"),
              StatusIs(kInvalid, HasSubstr("max_bytes")));
  EXPECT_THAT(BucketPolicy::Parse("none,none"), StatusIs(kInvalid, HasSubstr("expected none")));
  EXPECT_THAT(BucketPolicy::Parse("count\n{"), StatusIs(kInvalid, HasSubstr("found 'count\\n{'")));
}

TEST(BucketPolicy, LimitsThatTheOriginalsDoNotCheckAreErrors) {
  EXPECT_THAT(BucketPolicy::Parse("singa{threshold=100,buffer_elements=199}"),
              StatusIs(kInvalid, HasSubstr("expected buffer_elements >= 2 * threshold")));
  WEFT_EXPECT_OK(BucketPolicy::Parse("singa{threshold=100,buffer_elements=200}"));
  EXPECT_THAT(BucketPolicy::Parse("singa{threshold=9223372036854775807}"),
              StatusIs(kInvalid, HasSubstr("too small")));
  EXPECT_THAT(BucketPolicy::Parse("megengine_pass{max_size_mib=9000000000000}"),
              StatusIs(kInvalid, HasSubstr("expected at most")));
  EXPECT_THAT(BucketPolicy::Parse("mindspore_size{threshold=9000000000000000}"),
              StatusIs(kInvalid, HasSubstr("expected at most")));
  for (const char* indices : {"5,2", "1,1", "-1", "x", "1.5"}) {
    EXPECT_THAT(BucketPolicy::Parse(absl::StrCat("mindspore{split_indices=\"", indices, "\"}")),
                StatusIs(kInvalid, HasSubstr("ascending integers >= 0")))
        << indices;
  }
}

}  // namespace
}  // namespace weft::testing
