#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "executor/run/feeder.h"
#include "ops/kernel.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

// Two data variables of any number of rows.
ProgramBuilder TwoColumns() {
  ProgramBuilder builder;
  for (const char* name : {"x", "y"}) {
    builder.Var(name, {-1, 1});
    builder.last_var().set_need_check_feed(true);
  }
  builder.Var("difference", {-1, 1});
  return builder;
}

void Subtract(ProgramBuilder* builder) {
  builder->Op("elementwise_sub", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"difference"}}});
}

using Rows = std::pair<int64_t, int64_t>;  // of x and y

// Checks a run of as many steps, from headers alone.
absl::Status Check(const ProgramBuilder& builder, const std::vector<Rows>& steps, int nranks = 1) {
  const Program main = builder.Build();
  PlanOptions options;
  options.kernels = &CpuKernels();
  options.nranks = nranks;
  const Plan plan = *Plan::Build(main, options);
  FeedSource source;
  source.name = "feeds.npz";
  source.variables = {"x", "y"};
  source.num_steps = static_cast<int64_t>(steps.size());
  source.types = [&](int64_t step) -> absl::StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{{DType::kFloat32, {steps[step].first, 1}},
                                   {DType::kFloat32, {steps[step].second, 1}}};
  };
  return CheckFeeds(main, plan, source, World::OfThreads(nranks), source.num_steps,
                    /*begin_step=*/0);
}

TEST(CheckFeedsTest, RowsThatDifferAreRefusedWithStepOpAndTypes) {
  ProgramBuilder builder = TwoColumns();
  Subtract(&builder);
  EXPECT_THAT(Check(builder, {{4, 4}, {6, 6}}, 2), IsOk());
  EXPECT_THAT(
      Check(builder, {{4, 4}, {6, 4}}, 2),
      IsInvalidArgument(AllOf(StartsWith("feeds.npz: step 1: op 0 (elementwise_sub) input Y (y): "),
                              HasSubstr("; a rank is fed with x fp32[3, 1], y fp32[2, 1]"))));
}

TEST(CheckFeedsTest, RowsThatNoOpComparesMayDiffer) {
  ProgramBuilder builder = TwoColumns();
  builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"difference"}}});
  EXPECT_THAT(Check(builder, {{4, 6}}), IsOk());
}

// Where a branch is not taken, its ops take nothing; after it, types depend on it.
TEST(CheckFeedsTest, OpsFromTheFirstBlockOnAreLeftToTheRun) {
  ProgramBuilder builder = TwoColumns();
  builder.Var("cond", {1}, pb::VarType::BOOL);
  builder.last_var().set_persistable(true);
  builder.Op("conditional_block", {{"Cond", {"cond"}}, {"Input", {}}},
             {{"Out", {}}, {"Scope", {}}});
  builder.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 1);
  Subtract(&builder);
  builder.NewBlock(0);
  Subtract(&builder);
  EXPECT_THAT(Check(builder, {{4, 6}}), IsOk());
}

TEST(CheckFeedsTest, BatchesThatNoMemoryHoldsAreRefusedWithThoseReadAhead) {
  ProgramBuilder builder = TwoColumns();
  Subtract(&builder);
  const Rows rows = {int64_t{1} << 46, int64_t{1} << 46};  // 2^49 bytes: 2^29 MiB
  const std::string message =
      "feeds.npz: step 0: the batch, with the parts of the ranks and those read ahead, takes ";
  // The batch while it is split, and the parts of up to three steps.
  EXPECT_THAT(Check(builder, {rows}),
              IsResourceExhausted(StartsWith(message + "1073741824 MiB, but only ")));
  EXPECT_THAT(Check(builder, {rows, rows, rows}, 2),
              IsResourceExhausted(StartsWith(message + "2147483648 MiB, ")));
}

}  // namespace
}  // namespace weft::testing
