#include "executor/feeds.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

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

TEST(FeedFileTest, StepsAndVariablesOfARealFile) {
  WEFT_ASSERT_OK_AND_ASSIGN(FeedFile feeds, FeedFile::Open("tests/data/fit_a_line/feeds.npz"));
  EXPECT_EQ(feeds.num_steps(), 10);
  EXPECT_THAT(feeds.variables(), ElementsAre("x", "y"));
  WEFT_ASSERT_OK_AND_ASSIGN(auto arrays, feeds.Read(3));
  EXPECT_THAT(arrays["x"].dims(), ElementsAre(20, 13));
  EXPECT_THAT(arrays["y"].dims(), ElementsAre(20, 1));
}

TEST(FeedFileTest, TypesComeInTheOrderOfTheVariables) {
  WEFT_ASSERT_OK_AND_ASSIGN(FeedFile feeds, FeedFile::Open("tests/data/fit_a_line/feeds.npz"));
  WEFT_ASSERT_OK_AND_ASSIGN(std::vector<TensorType> types, feeds.Types(13));
  ASSERT_EQ(types.size(), 2u);
  EXPECT_EQ(ToString(types[0]), "fp32[20, 13]");
  EXPECT_EQ(ToString(types[1]), "fp32[20, 1]");
}

TEST(FeedFileTest, StepsBeyondTheFileStartOver) {
  WEFT_ASSERT_OK_AND_ASSIGN(FeedFile feeds, FeedFile::Open(MakeFeeds({"0/x", "1/x", "2/x"})));
  WEFT_ASSERT_OK_AND_ASSIGN(auto arrays, feeds.Read(7));
  EXPECT_EQ(*arrays["x"].data<int32_t>(), 1);
}

TEST(FeedFileTest, StepsAreOrderedAsNumbers) {
  std::vector<std::string> names;
  for (int step = 0; step < 11; ++step) names.push_back(std::to_string(step) + "/x");
  WEFT_ASSERT_OK_AND_ASSIGN(FeedFile feeds, FeedFile::Open(MakeFeeds(names)));
  EXPECT_EQ(feeds.num_steps(), 11);
  WEFT_ASSERT_OK_AND_ASSIGN(auto arrays, feeds.Read(10));
  EXPECT_EQ(*arrays["x"].data<int32_t>(), 10);
}

TEST(FeedFileTest, VariableNamesMayHoldSlashes) {
  WEFT_ASSERT_OK_AND_ASSIGN(FeedFile feeds, FeedFile::Open(MakeFeeds({"0/scope/x"})));
  EXPECT_THAT(feeds.variables(), ElementsAre("scope/x"));
}

TEST(FeedFileTest, StepThatLacksAVariableIsRefused) {
  EXPECT_THAT(FeedFile::Open(MakeFeeds({"0/x", "0/y", "1/x"})),
              StatusIs(kInvalid, HasSubstr("feeds.npz: step 1 lacks variable 'y'")));
}

TEST(FeedFileTest, MissingStepIsRefused) {
  EXPECT_THAT(FeedFile::Open(MakeFeeds({"0/x", "2000000000/x"})),
              StatusIs(kInvalid, HasSubstr("step 1 has no arrays, but step 2000000000 has")));
}

TEST(FeedFileTest, NamesOfAnotherFormAreRefused) {
  for (const char* name : {"x", "/x", "0/", "-1/x", "00/x", "1e3/x", "99999999999999999999/x"}) {
    EXPECT_FALSE(FeedFile::Open(MakeFeeds({name})).ok()) << name;
  }
  EXPECT_THAT(FeedFile::Open(MakeFeeds({"x"})),
              StatusIs(kInvalid, HasSubstr("array 'x': expected a name <step>/<variable>")));
}

TEST(FeedFileTest, NoArraysAreRefused) {
  EXPECT_THAT(FeedFile::Open(MakeFeeds({})), StatusIs(kInvalid, HasSubstr("has no arrays")));
}

}  // namespace
}  // namespace weft
