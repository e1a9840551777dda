#include "executor/run/feeder.h"

#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

// y = x + b, with data x: fp32[-1, 2].
class FeederTest : public ::testing::Test {
 protected:
  FeederTest() : plan_(MakePlan()), tensors_(plan_.variables.size()) {
    for (Tensor& tensor : tensors_) pointers_.push_back(&tensor);
  }

  static Plan MakePlan() {
    ProgramBuilder builder;
    builder.Var("x", {-1, 2});
    builder.last_var().set_need_check_feed(true);
    builder.Var("b", {2});
    builder.Op("elementwise_add", {{"X", {"x"}}, {"Y", {"b"}}}, {{"Out", {"y"}}});
    PlanOptions options;
    options.kernels = &CpuKernels();
    return *Plan::Build(builder.Build(), options);
  }

  static FeedSource Source(std::vector<std::string> variables, std::vector<Tensor> tensors) {
    return {std::move(variables), [tensors](int64_t) { return tensors; }};
  }

  // Feeds step 3 to `rank` of `nranks`.
  absl::Status Feed(FeedSource source, int nranks = 1, int rank = 0) {
    auto feeder =
        Feeder::Create(plan_, std::move(source), World::OfThreads(nranks), 1, /*begin_step=*/3);
    if (!feeder.ok()) return feeder.status();
    return (*feeder)->Feed(3, rank, pointers_);
  }

  const Tensor& Fed(const char* name) { return tensors_[plan_.FindVariable(name)]; }

  const Plan plan_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor*> pointers_;
};

TEST_F(FeederTest, DataIsSplitByRowsAndOthersAreGivenWhole) {
  const FeedSource source =
      Source({"b", "x"}, {Floats({2}, {8, 9}), Floats({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7})});
  WEFT_ASSERT_OK(Feed(source, 2, 1));
  EXPECT_THAT(Fed("x").dims(), ElementsAre(2, 2));
  EXPECT_THAT(Values<float>(Fed("x")), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Values<float>(Fed("b")), ElementsAre(8, 9));
}

TEST_F(FeederTest, LayoutsSayWhatIsSplitAndAlongWhichAxis) {
  ProgramBuilder builder;
  builder.Var("t", {2, -1, 2});
  builder.last_var().set_need_check_feed(true);
  builder.Var("whole", {-1});
  builder.last_var().set_need_check_feed(true);
  builder.Op("scale", {{"X", {"t"}}}, {{"Out", {"y"}}});
  builder.Op("scale", {{"X", {"whole"}}}, {{"Out", {"z"}}});
  PlanOptions options;
  options.kernels = &CpuKernels();
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), options));
  const auto source = [](int columns) {
    std::vector<float> values;
    for (int i = 0; i < 4 * columns; ++i) values.push_back(static_cast<float>(i));
    FeedSource of =
        Source({"t", "whole"}, {Floats({2, columns, 2}, values), Floats({3}, {7, 8, 9})});
    of.layouts = {{"t", {1}}, {"whole", FeedLayout::Whole()}};
    return of;
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const auto feeder,
                            Feeder::Create(plan, source(4), World::OfThreads(2), 1));
  std::vector<Tensor> tensors(plan.variables.size());
  std::vector<Tensor*> pointers;
  for (Tensor& tensor : tensors) pointers.push_back(&tensor);
  WEFT_ASSERT_OK(feeder->Feed(0, 1, pointers));
  const Tensor& t = tensors[plan.FindVariable("t")];
  EXPECT_THAT(t.dims(), ElementsAre(2, 2, 2));
  EXPECT_THAT(Values<float>(t), ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
  EXPECT_THAT(Values<float>(tensors[plan.FindVariable("whole")]), ElementsAre(7, 8, 9));
  EXPECT_EQ(feeder->samples(pointers), 2);

  WEFT_ASSERT_OK_AND_ASSIGN(const auto odd,
                            Feeder::Create(plan, source(3), World::OfThreads(2), 1));
  EXPECT_THAT(odd->Feed(0, 0, pointers),
              IsInvalidArgument("3 along axis 1 cannot be split equally over 2 ranks"));
}

TEST(FeederRowsTest, SelectedRowsCannotBeFed) {
  ProgramBuilder builder;
  builder.Rows("x", {4, 2}).Op("scale", {{"X", {"x"}}}, {{"Out", {"y"}}});
  PlanOptions options;
  options.kernels = &CpuKernels();
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), options));
  const FeedSource source = {{"x"}, [](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
                               return std::vector<Tensor>{Floats({4, 2}, std::vector<float>(8))};
                             }};
  WEFT_ASSERT_OK_AND_ASSIGN(const auto feeder,
                            Feeder::Create(plan, source, World::OfThreads(1), 1));
  std::vector<Tensor> tensors(plan.variables.size());
  std::vector<Tensor*> pointers;
  for (Tensor& tensor : tensors) pointers.push_back(&tensor);
  EXPECT_THAT(feeder->Feed(0, 0, pointers),
              IsInvalidArgument("expected rows fp32[4, 2], found fp32[4, 2]"));
}

TEST_F(FeederTest, FeedsShareNoMemoryWithTheSourceOrEachOther) {
  const Tensor x = Floats({2, 2}, {1, 2, 3, 4}), b = Floats({2}, {8, 9});
  WEFT_ASSERT_OK(Feed(Source({"x", "b"}, {x, b})));
  EXPECT_FALSE(Fed("x").SharesBufferWith(x));
  EXPECT_FALSE(Fed("b").SharesBufferWith(b));

  WEFT_ASSERT_OK_AND_ASSIGN(
      const auto feeder, Feeder::Create(plan_, Source({"x", "b"}, {x, b}), World::OfThreads(2), 1));
  WEFT_ASSERT_OK(feeder->Feed(0, 0, pointers_));
  const Tensor of_rank0 = Fed("b");
  WEFT_ASSERT_OK(feeder->Feed(0, 1, pointers_));
  EXPECT_FALSE(Fed("b").SharesBufferWith(b));
  EXPECT_FALSE(Fed("b").SharesBufferWith(of_rank0));
}

TEST_F(FeederTest, RanksOfAStepShareOneReading) {
  int reads = 0;
  FeedSource source = {{"x"}, [&](int64_t) {
                         ++reads;
                         return std::vector<Tensor>{Floats({2, 2}, {1, 2, 3, 4})};
                       }};
  {
    WEFT_ASSERT_OK_AND_ASSIGN(auto feeder, Feeder::Create(plan_, source, World::OfThreads(2), 2));
    for (int64_t step : {0, 1}) {
      for (int rank : {0, 1}) WEFT_ASSERT_OK(feeder->Feed(step, rank, pointers_));
    }
  }
  EXPECT_EQ(reads, 2);
}

TEST_F(FeederTest, UnknownNameListsTheDataVariables) {
  EXPECT_THAT(Feed(Source({"z"}, {Floats({1, 2}, {1, 2})})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "feed z: the program has no such variable; data variables of the program: "
                       "x (fp32[-1, 2])"));
}

TEST_F(FeederTest, VariableThatAnOpWritesIsRefused) {
  EXPECT_THAT(Feed(Source({"x", "y"}, {Floats({1, 2}, {1, 2}), Floats({1, 2}, {1, 2})})),
              IsInvalidArgument("feed y: an op of the program writes it"));
}

TEST_F(FeederTest, MissingDataNamesTheOpThatReadsIt) {
  EXPECT_THAT(Feed(FeedSource()),
              IsInvalidArgument("feed x: missing, but op 0 (elementwise_add) reads it"));
}

TEST_F(FeederTest, WrongElementTypeNamesExpectedAndFound) {
  EXPECT_THAT(Feed(Source({"x"}, {MakeTensor<double>({1, 2}, {1, 2})})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "step 3: feed x: expected fp32[-1, 2], found fp64[1, 2]; with NumPy: "
                       "array.astype(\"float32\")"));
}

TEST_F(FeederTest, WrongRankNamesExpectedAndFound) {
  EXPECT_THAT(Feed(Source({"x"}, {Floats({2}, {1, 2})})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "step 3: feed x: expected fp32[-1, 2], found fp32[2]; with NumPy: "
                       "array.reshape(-1, 2)"));
}

TEST_F(FeederTest, WrongFixedDimensionNamesExpectedAndFound) {
  EXPECT_THAT(Feed(Source({"x"}, {Floats({1, 3}, {1, 2, 3})})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "step 3: feed x: expected fp32[-1, 2], found fp32[1, 3]"));
}

TEST_F(FeederTest, RowsThatDoNotDivideNameRowsAndRanks) {
  EXPECT_THAT(Feed(Source({"x"}, {Floats({3, 2}, {1, 2, 3, 4, 5, 6})}), 2),
              IsInvalidArgument("step 3: feed x: 3 rows cannot be split equally over 2 ranks; "
                                "leave such a last batch out (option:drop_last)"));
}

TEST_F(FeederTest, BatchWithoutRowsIsRefused) {
  EXPECT_THAT(Feed(Source({"x"}, {Floats({0, 2}, {})}), 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "step 3: feed x: expected fp32[-1, 2] of one row or more, found fp32[0, 2], "
                       "which has no elements"));
}

TEST_F(FeederTest, VariableThatIsNotDeclaredAsATensorIsRefused) {
  ProgramBuilder builder;
  builder.Var("x", {-1, 2});
  builder.Var("scope").last_var().mutable_type()->set_type(pb::VarType::STEP_SCOPES);
  PlanOptions options;
  options.kernels = &CpuKernels();
  WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(builder.Build(), options));
  EXPECT_THAT(
      Feeder::Create(plan, Source({"scope"}, {Floats({1}, {1})}), World::OfThreads(1), 1).status(),
      IsInvalidArgument("feed scope: the program does not declare it as a tensor"));
}

// A source that knows the types of steps 0 to 2, and must not be read: step 1 has one column too
// many.
class FeederTypesTest : public FeederTest {
 protected:
  absl::Status Create(int64_t steps, const std::string& name = "") {
    FeedSource source;
    source.variables = {"x"};
    source.name = name;
    source.num_steps = 3;
    source.types = [](int64_t step) {
      EXPECT_LT(step, 3);
      return std::vector<TensorType>{{DType::kFloat32, {4, step == 1 ? 3 : 2}}};
    };
    source.read = [](int64_t) { return absl::InternalError("was read"); };
    return Feeder::Create(plan_, source, World::OfThreads(2), steps).status();
  }
};

TEST_F(FeederTypesTest, TypesAreCheckedBeforeAnythingIsRead) {
  EXPECT_THAT(Create(1000), IsInvalidArgument("step 1: feed x: expected fp32[-1, 2], found"));
}

TEST_F(FeederTypesTest, StepsThatTheRunDoesNotHaveAreNotChecked) { WEFT_EXPECT_OK(Create(1)); }

TEST_F(FeederTypesTest, MessageBeginsWithTheNameOfTheSource) {
  EXPECT_THAT(Create(2, "feeds.npz"), IsInvalidArgument("feeds.npz: step 1: feed x: "));
}

TEST_F(FeederTest, ErrorOfTheSourceIsReturned) {
  EXPECT_THAT(Feed({{"x"}, [](int64_t) { return absl::DataLossError("feeds.npz: truncated"); }}),
              StatusIs(absl::StatusCode::kDataLoss, "feeds.npz: truncated"));
}

}  // namespace
}  // namespace weft::testing
