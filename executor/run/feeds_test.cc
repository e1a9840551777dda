#include <string>
#include <vector>

#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "executor/run/feed_sources.h"

namespace weft::testing {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A file of scalars: each array holds its position in the list.
std::string MakeFeeds(const std::vector<std::string>& names) {
  std::map<std::string, Tensor> arrays;
  for (size_t i = 0; i < names.size(); ++i) {
    Tensor& tensor = arrays[names[i]];
    tensor.Resize(DType::kInt32, {});
    *tensor.data<int32_t>() = static_cast<int32_t>(i);
  }
  const std::string path = ::testing::TempDir() + "/feeds.npz";
  EXPECT_THAT(WriteNpz(path, arrays), testing::IsOk());
  return path;
}

TEST(FeedsFromFileTest, StepsAndVariablesOfARealFile) {
  WEFT_ASSERT_OK_AND_ASSIGN(FeedSource feeds, FeedsFromFile("tests/data/fit_a_line/feeds.npz"));
  EXPECT_EQ(feeds.num_steps, 10);
  EXPECT_THAT(feeds.variables, ElementsAre("x", "y"));
  WEFT_ASSERT_OK_AND_ASSIGN(auto arrays, feeds.read(3));
  EXPECT_THAT(arrays[0].dims(), ElementsAre(20, 13));
  EXPECT_THAT(arrays[1].dims(), ElementsAre(20, 1));
}

TEST(FeedsFromFileTest, TypesComeInTheOrderOfTheVariables) {
  WEFT_ASSERT_OK_AND_ASSIGN(FeedSource feeds, FeedsFromFile("tests/data/fit_a_line/feeds.npz"));
  WEFT_ASSERT_OK_AND_ASSIGN(std::vector<TensorType> types, feeds.types(13));
  ASSERT_EQ(types.size(), 2u);
  EXPECT_EQ(ToString(types[0]), "fp32[20, 13]");
  EXPECT_EQ(ToString(types[1]), "fp32[20, 1]");
}

TEST(FeedsFromFileTest, StepsBeyondTheFileStartOver) {
  WEFT_ASSERT_OK_AND_ASSIGN(FeedSource feeds, FeedsFromFile(MakeFeeds({"0/x", "1/x", "2/x"})));
  WEFT_ASSERT_OK_AND_ASSIGN(auto arrays, feeds.read(7));
  EXPECT_EQ(*arrays[0].data<int32_t>(), 1);
}

TEST(FeedsFromFileTest, StepsAreOrderedAsNumbers) {
  std::vector<std::string> names;
  for (int step = 0; step < 11; ++step) names.push_back(std::to_string(step) + "/x");
  WEFT_ASSERT_OK_AND_ASSIGN(FeedSource feeds, FeedsFromFile(MakeFeeds(names)));
  EXPECT_EQ(feeds.num_steps, 11);
  WEFT_ASSERT_OK_AND_ASSIGN(auto arrays, feeds.read(10));
  EXPECT_EQ(*arrays[0].data<int32_t>(), 10);
}

TEST(FeedsFromFileTest, VariableNamesMayHoldSlashes) {
  WEFT_ASSERT_OK_AND_ASSIGN(FeedSource feeds, FeedsFromFile(MakeFeeds({"0/scope/x"})));
  EXPECT_THAT(feeds.variables, ElementsAre("scope/x"));
}

TEST(FeedsFromFileTest, StepThatLacksAVariableIsRefused) {
  EXPECT_THAT(FeedsFromFile(MakeFeeds({"0/x", "0/y", "1/x"})),
              StatusIs(kInvalid, HasSubstr("feeds.npz: step 1 lacks variable 'y'")));
}

TEST(FeedsFromFileTest, MissingStepIsRefused) {
  EXPECT_THAT(FeedsFromFile(MakeFeeds({"0/x", "2000000000/x"})),
              StatusIs(kInvalid, HasSubstr("step 1 has no arrays, but step 2000000000 has")));
}

TEST(FeedsFromFileTest, NamesOfAnotherFormAreRefused) {
  for (const char* name : {"x", "/x", "0/", "-1/x", "00/x", "1e3/x", "99999999999999999999/x"}) {
    EXPECT_FALSE(FeedsFromFile(MakeFeeds({name})).ok()) << name;
  }
  EXPECT_THAT(FeedsFromFile(MakeFeeds({"x"})),
              StatusIs(kInvalid, HasSubstr("array 'x': expected a name <step>/<variable>")));
}

TEST(FeedsFromFileTest, NoArraysAreRefused) {
  EXPECT_THAT(FeedsFromFile(MakeFeeds({})), StatusIs(kInvalid, HasSubstr("has no arrays")));
}

}  // namespace
}  // namespace weft::testing
