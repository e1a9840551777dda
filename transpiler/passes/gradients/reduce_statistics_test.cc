#include "transpiler/passes/gradients/reduce_statistics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

constexpr char kVariables[] = R"(
    var x : fp32[-1, 2] need_check_feed
    var y : int64[-1, 1] need_check_feed
    var w : fp32[2, 2] parameter persistable
    var h : fp32[-1, 2]
    var state : fp32[] persistable
    var s, t : fp32[]
    var positives, negatives : int64[1, 4096] persistable
    var auc : fp64[]
    Out=[h] = mul(X=[x], Y=[w])
)";

std::string Program(const std::string& ops) { return absl::StrCat(kVariables, ops); }

TEST(ReduceStatistics, AMeanIsAveragedAndACountSummed) {
  const std::string mean = "    Out=[s] = reduce_mean(X=[h]) {reduce_all=true}\n";
  ExpectRewrite("reduce-statistics",
                Program(mean + "    Out=[state] = elementwise_add(X=[state], Y=[s])\n"), R"(
  + var s@MEAN : fp32[]
  - Out=[state] = elementwise_add(X=[state], Y=[s])
  + Out=[s@MEAN] = c_allreduce_avg(X=[s]) {use_calc_stream=true}
  + Out=[state] = elementwise_add(X=[state], Y=[s@MEAN])
  )");
  const std::string count = "    Out=[s] = reduce_sum(X=[h]) {reduce_all=true}\n";
  ExpectRewrite("reduce-statistics",
                Program(count + "    Out=[state] = elementwise_add(X=[state], Y=[s])\n"), R"(
  + var s@SUM : fp32[]
  - Out=[state] = elementwise_add(X=[state], Y=[s])
  + Out=[s@SUM] = c_allreduce_sum(X=[s]) {use_calc_stream=true}
  + Out=[state] = elementwise_add(X=[state], Y=[s@SUM])
  )");
}

TEST(ReduceStatistics, NumbersOfSamplesAreSummed) {
  const std::string program = R"(
    var seen : int64[] persistable
    Out=[n] = size(Input=[x])
)";
  ExpectRewrite("reduce-statistics",
                Program(program + "    Out=[seen] = elementwise_add(X=[seen], Y=[n])\n"), R"(
  + var n@SUM : int64[]
  - Out=[seen] = elementwise_add(X=[seen], Y=[n])
  + Out=[n@SUM] = c_allreduce_sum(X=[n]) {use_calc_stream=true}
  + Out=[seen] = elementwise_add(X=[seen], Y=[n@SUM])
  )");
}

// As long as no op writes it again.
TEST(ReduceStatistics, OneMeanServesSeveralOps) {
  ExpectRewrite("reduce-statistics", Program(R"(
    var root, square : fp32[] persistable
    Out=[s] = reduce_mean(X=[h]) {reduce_all=true}
    Out=[root] = sqrt(X=[s])
    Out=[square] = square(X=[s])
    Out=[s] = reduce_mean(X=[x]) {reduce_all=true}
    Out=[state] = sqrt(X=[s])
)"),
                R"(
  + var s@MEAN, s@MEAN1 : fp32[]
  - Out=[root] = sqrt(X=[s])
  - Out=[square] = square(X=[s])
  + Out=[s@MEAN] = c_allreduce_avg(X=[s]) {use_calc_stream=true}
  + Out=[root] = sqrt(X=[s@MEAN])
  + Out=[square] = square(X=[s@MEAN])
  - Out=[state] = sqrt(X=[s])
  + Out=[s@MEAN1] = c_allreduce_avg(X=[s]) {use_calc_stream=true}
  + Out=[state] = sqrt(X=[s@MEAN1])
  )");
}

// Before the function that is not linear.
TEST(ReduceStatistics, FunctionsReadTheReducedValue) {
  ExpectRewrite("reduce-statistics",
                Program("    Out=[s] = reduce_mean(X=[h]) {reduce_all=true}\n"
                        "    Out=[t] = sqrt(X=[s])\n    Out=[state] = assign(X=[t])\n"),
                R"(
  + var s@MEAN : fp32[]
  - Out=[t] = sqrt(X=[s])
  + Out=[s@MEAN] = c_allreduce_avg(X=[s]) {use_calc_stream=true}
  + Out=[t] = sqrt(X=[s@MEAN])
  )");
}

constexpr char kAuc[] =
    "    AUC=[auc], StatNegOut=[negatives], StatPosOut=[positives] = auc(Label=[y], Predict=[h], "
    "StatNeg=[negatives], StatPos=[positives]) {num_thresholds=4095, slide_steps=0}\n";

// The op counts samples by itself: it gets those of all ranks.
TEST(ReduceStatistics, MetricsGetAllSamples) {
  ExpectRewrite("reduce-statistics", Program(kAuc), R"(
  + var h@GATHERED : fp32[-1, 2]
  + var y@GATHERED : int64[-1, 1]
  - AUC=[auc], StatNegOut=[negatives], StatPosOut=[positives] = auc(Label=[y], Predict=[h], StatNeg=[negatives], StatPos=[positives]) {num_thresholds=4095, slide_steps=0}
  + Out=[y@GATHERED] = c_allgather(X=[y]) {nranks=2, use_calc_stream=true}
  + Out=[h@GATHERED] = c_allgather(X=[h]) {nranks=2, use_calc_stream=true}
  + AUC=[auc], StatNegOut=[negatives], StatPosOut=[positives] = auc(Label=[y@GATHERED], Predict=[h@GATHERED], StatNeg=[negatives], StatPos=[positives]) {num_thresholds=4095, slide_steps=0}
  )",
                OnRanks(2));
  // A gather must know the number of ranks.
  ExpectNoRewrite("reduce-statistics", Program(kAuc));
}

TEST(ReduceStatistics, WhatIsNoStateStaysAsItIs) {
  ExpectNoRewrite("reduce-statistics",
                  Program("    Out=[s] = reduce_sum(X=[h]) {reduce_all=true}\n"));
  ExpectNoRewrite("reduce-statistics{statistics=false}", Program(kAuc), OnRanks(2));
}

}  // namespace
}  // namespace weft::testing
