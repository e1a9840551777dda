#include "executor/run/feed_sources.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "base/testing/test.h"
#include "google/protobuf/text_format.h"

namespace weft::testing {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// lr (fp32[2]), counter (int32 scalar) and data (not persistable) are not written; w is.
Program MakeProgram() {
  pb::ProgramDesc desc;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(blocks {
             idx: 0
             parent_idx: -1
             vars {
               name: "lr"
               persistable: true
               type {
                 type: LOD_TENSOR
                 lod_tensor { tensor { data_type: FP32 dims: 2 } }
               }
             }
             vars {
               name: "counter"
               persistable: true
               type {
                 type: LOD_TENSOR
                 lod_tensor { tensor { data_type: INT32 } }
               }
             }
             vars {
               name: "data"
               type {
                 type: LOD_TENSOR
                 lod_tensor { tensor { data_type: FP32 dims: 2 } }
               }
             }
             vars {
               name: "w"
               persistable: true
               type {
                 type: LOD_TENSOR
                 lod_tensor { tensor { data_type: FP32 dims: 2 } }
               }
             }
             ops {
               type: "relu"
               inputs { parameter: "X" arguments: "data" }
               outputs { parameter: "Out" arguments: "w" }
             }
           })pb",
      &desc));
  return *Program::FromProto(desc);
}

TEST(FeedsFromFileTest, GivesTheArraysInTheOrderOfTheVariables) {
  WEFT_ASSERT_OK_AND_ASSIGN(const FeedSource source,
                            FeedsFromFile("tests/data/fit_a_line/feeds.npz"));
  EXPECT_THAT(source.variables, ElementsAre("x", "y"));
  WEFT_ASSERT_OK_AND_ASSIGN(std::vector<Tensor> tensors, source.read(0));
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_THAT(tensors[0].dims(), ElementsAre(20, 13));
  EXPECT_THAT(tensors[1].dims(), ElementsAre(20, 1));
}

TEST(WithHostValuesTest, KnowsTheTypesOfTheFileAndOfHostValues) {
  WEFT_ASSERT_OK_AND_ASSIGN(const FeedSource file,
                            FeedsFromFile("tests/data/fit_a_line/feeds.npz"));
  WEFT_ASSERT_OK_AND_ASSIGN(const FeedSource source,
                            WithHostValues(file, MakeProgram(), {SameAtAllSteps("lr", 0.5)}));
  EXPECT_EQ(source.name, "tests/data/fit_a_line/feeds.npz");
  EXPECT_EQ(source.num_steps, 10);
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<TensorType> types, source.types(9));
  ASSERT_EQ(types.size(), 3u);
  EXPECT_EQ(ToString(types[1]), "fp32[20, 1]");
  EXPECT_EQ(ToString(types[2]), "fp32[2]");
}

TEST(WithHostValuesTest, VariableIsFilledAtEveryStep) {
  WEFT_ASSERT_OK_AND_ASSIGN(FeedSource source, WithHostValues({}, MakeProgram(),
                                                              {SameAtAllSteps("lr", 0.5),
                                                               SameAtAllSteps("counter", -3)}));
  EXPECT_THAT(source.variables, ElementsAre("lr", "counter"));
  WEFT_ASSERT_OK_AND_ASSIGN(std::vector<Tensor> tensors, source.read(7));
  EXPECT_THAT(absl::MakeConstSpan(tensors[0].data<float>(), 2), ElementsAre(0.5f, 0.5f));
  EXPECT_EQ(*tensors[1].data<int32_t>(), -3);
}

TEST(WithHostValuesTest, ValueFollowsTheStep) {
  const HostValue rate = {"lr", [](int64_t step) { return 1.0 / (1.0 + step); }};
  const HostValue counter = {"counter", [](int64_t step) { return 0.5 * step; }};
  WEFT_ASSERT_OK_AND_ASSIGN(FeedSource source, WithHostValues({}, MakeProgram(), {rate, counter}));
  for (int64_t step : {0, 4}) {
    WEFT_ASSERT_OK_AND_ASSIGN(std::vector<Tensor> tensors, source.read(step));
    EXPECT_EQ(*tensors[0].data<float>(), step == 0 ? 1.0f : 0.2f);
    EXPECT_EQ(*tensors[1].data<int32_t>(), step / 2);
  }
  EXPECT_THAT(source.read(3), StatusIs(kInvalid, "set counter: int32 cannot hold 1.5"));
}

TEST(WithHostValuesTest, AValueThatEndsIsAnErrorOfItsStep) {
  const HostValue ends = {
      "lr", [](int64_t step) { return step < 2 ? 0.5 : std::numeric_limits<double>::quiet_NaN(); }};
  WEFT_ASSERT_OK_AND_ASSIGN(const FeedSource source, WithHostValues({}, MakeProgram(), {ends}));
  WEFT_EXPECT_OK(source.read(1));
  EXPECT_THAT(source.read(2), StatusIs(kInvalid, "set lr: it has no value for step 2"));
}

TEST(WithHostValuesTest, FollowsTheSource) {
  FeedSource data;
  data.variables = {"data"};
  data.read = [](int64_t) { return std::vector<Tensor>(1); };
  WEFT_ASSERT_OK_AND_ASSIGN(FeedSource source,
                            WithHostValues(data, MakeProgram(), {SameAtAllSteps("lr", 1)}));
  EXPECT_THAT(source.variables, ElementsAre("data", "lr"));
  WEFT_ASSERT_OK_AND_ASSIGN(std::vector<Tensor> tensors, source.read(0));
  EXPECT_EQ(tensors.size(), 2u);
}

TEST(WithHostValuesTest, VariableThatAnOpWritesIsRefused) {
  EXPECT_THAT(WithHostValues({}, MakeProgram(), {SameAtAllSteps("w", 1)}),
              StatusIs(kInvalid,
                       "set w: expected a variable that no op writes, but op 0 (relu) "
                       "does"));
}

TEST(WithHostValuesTest, UnknownAndTemporaryVariablesAreRefused) {
  EXPECT_THAT(WithHostValues({}, MakeProgram(), {SameAtAllSteps("nobody", 1)}),
              StatusIs(kInvalid, HasSubstr("set nobody: the program has no such variable")));
  EXPECT_THAT(WithHostValues({}, MakeProgram(), {SameAtAllSteps("data", 1)}),
              StatusIs(kInvalid, HasSubstr("expected a persistable variable")));
}

TEST(WithHostValuesTest, VariableNamedTwiceIsRefused) {
  EXPECT_THAT(WithHostValues({}, MakeProgram(), {SameAtAllSteps("lr", 1), SameAtAllSteps("lr", 2)}),
              StatusIs(kInvalid, HasSubstr("set lr: it is already fed or set")));
}

TEST(WithHostValuesTest, UnrepresentableValueIsRefused) {
  for (double value : {0.5, 2147483648.0, -2147483649.0}) {
    EXPECT_THAT(WithHostValues({}, MakeProgram(), {SameAtAllSteps("counter", value)}),
                StatusIs(kInvalid, HasSubstr("int32 cannot hold")))
        << value;
  }
}

}  // namespace
}  // namespace weft::testing
