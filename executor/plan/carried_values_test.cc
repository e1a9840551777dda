#include "executor/plan/carried_values.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

// The names of carried values of a program on two ranks whose data are x, `a` and `b`.
std::vector<std::string> CarriedBy(const std::string& ops, const std::string& blocks = "") {
  const std::string text = absl::StrCat(R"(program {
  block 0 parent=-1 {
    var x : fp32[1]
    var a : bool[1]
    var b : bool[1]
    var v : fp32[1]
    var w : fp32[1]
    var out : fp32[1]
    var out2 : fp32[1]
    var kept : fp32[1] persistable
    var mask : int32[1]
)",
                                        ops, "  }\n", blocks, "}\n");
  const absl::StatusOr<Program> program = ParseProgramText(text);
  EXPECT_THAT(program.status(), IsOk()) << text;
  PlanOptions options;
  options.kernels = &CpuKernels();
  options.nranks = 2;
  const absl::StatusOr<Plan> plan = Plan::Build(*program, options);
  EXPECT_THAT(plan.status(), IsOk()) << text;
  std::vector<std::string> names;
  const std::vector<int> fed = {plan->FindVariable("x"), plan->FindVariable("a"),
                                plan->FindVariable("b")};
  for (int v : FindCarriedValues(*plan, fed)) names.push_back(plan->variables[v].name);
  return names;
}

constexpr char kIf[] =
    "Out=[v] = conditional_block(Cond=[a]) {is_scalar_condition=true, sub_block=block(1)}\n";
constexpr char kIfAgain[] =
    "Out=[out] = conditional_block(Cond=[a]) {is_scalar_condition=true, sub_block=block(2)}\n";
constexpr char kRead[] = "Out=[out] = scale(X=[v]) {scale=2.0}\n";
constexpr char kWriteV[] = "block 1 parent=0 {\nOut=[v] = scale(X=[x]) {scale=1.0}\n}\n";
constexpr char kReadV[] = "block 2 parent=0 {\nOut=[out] = scale(X=[v]) {scale=1.0}\n}\n";

std::string Cat(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

TEST(CarriedValuesTest, AStraightProgramHasNone) {
  EXPECT_THAT(CarriedBy("Out=[v] = scale(X=[x]) {scale=1.0}\nOut=[out] = scale(X=[v]) {scale=1.0}\n"
                        "Out=[kept] = sum(X=[kept, out])\n"),
              IsEmpty());
}

TEST(CarriedValuesTest, WhatASkippedBlockWouldHaveWritten) {
  EXPECT_THAT(CarriedBy(Cat({kIf, kRead}), kWriteV), ElementsAre("v"));
  EXPECT_THAT(CarriedBy(Cat({"Out=[v] = scale(X=[x]) {scale=1.0}\n", kIf, kRead}), kWriteV),
              IsEmpty());
  // Reading in the block itself.
  EXPECT_THAT(CarriedBy(kIf,
                        "block 1 parent=0 {\nOut=[v] = scale(X=[x]) {scale=1.0}\n"
                        "Out=[w] = scale(X=[v]) {scale=1.0}\n}\n"),
              IsEmpty());
}

TEST(CarriedValuesTest, BlocksOfOneConditionRunTogether) {
  EXPECT_THAT(CarriedBy(Cat({kIf, kIfAgain}), Cat({kWriteV, kReadV})), IsEmpty());
  // Unless the condition is another one by then.
  EXPECT_THAT(
      CarriedBy(Cat({kIf, "Out=[a] = logical_not(X=[b])\n", kIfAgain}), Cat({kWriteV, kReadV})),
      ElementsAre("v"));
  EXPECT_THAT(CarriedBy(Cat({kIf, kIfAgain}),
                        Cat({"block 1 parent=0 {\nOut=[v] = scale(X=[x]) {scale=1.0}\n"
                             "Out=[a] = logical_not(X=[a])\n}\n",
                             kReadV})),
              ElementsAre("v"));
}

TEST(CarriedValuesTest, BlocksInBlocksDependOnBothConditions) {
  const std::string nested =
      "block 1 parent=0 {\n"
      "Out=[v] = conditional_block(Cond=[b]) {is_scalar_condition=true, sub_block=block(3)}\n}\n";
  const std::string inner = "block 3 parent=1 {\nOut=[v] = scale(X=[x]) {scale=1.0}\n}\n";
  const std::string if_b =
      "Out=[out] = conditional_block(Cond=[b]) {is_scalar_condition=true, sub_block=block(2)}\n";
  EXPECT_THAT(CarriedBy(Cat({kIf, if_b}), Cat({nested, kReadV, inner})), ElementsAre("v"));
  const std::string nested_again =
      "block 2 parent=0 {\n"
      "Out=[out] = conditional_block(Cond=[b]) {is_scalar_condition=true, sub_block=block(4)}\n}\n";
  const std::string inner_again = "block 4 parent=2 {\nOut=[out] = scale(X=[v]) {scale=1.0}\n}\n";
  EXPECT_THAT(CarriedBy(Cat({kIf, kIfAgain}), Cat({nested, nested_again, inner, inner_again})),
              IsEmpty());
}

// As paddle.static.nn.cond writes it.
TEST(CarriedValuesTest, SelectInputReadsTheBranchThatRan) {
  const std::string ops = Cat({kIf, "Out=[b] = logical_not(X=[a])\n",
                               "Out=[w] = conditional_block(Cond=[b]) {is_scalar_condition=true, "
                               "sub_block=block(2)}\n",
                               "Out=[mask] = cast(X=[a]) {in_dtype=0, out_dtype=2}\n",
                               "Out=[out] = select_input(X=[w, v], Mask=[mask])\n"});
  EXPECT_THAT(CarriedBy(ops, Cat({kWriteV,
                                  "block 2 parent=0 {\nOut=[w] = scale(X=[x]) "
                                  "{scale=2.0}\n}\n"})),
              IsEmpty());
}

TEST(CarriedValuesTest, LoopsMayRunNoIteration) {
  const std::string loop = "Out=[v] = while(X=[x], Condition=[a]) {sub_block=block(1)}\n";
  EXPECT_THAT(CarriedBy(Cat({loop, kRead}), kWriteV), ElementsAre("v"));
}

TEST(CarriedValuesTest, OutputOfACollectiveWithACondition) {
  const std::string reduce =
      "Out=[OUT] = c_allreduce_sum(X=[v], Cond=[a]) {ring_id=0, use_calc_stream=true}\n";
  const std::string set = "Out=[v] = scale(X=[x]) {scale=1.0}\n";
  const auto with_out = [&](const std::string& out) {
    std::string text = reduce;
    text.replace(text.find("OUT"), 3, out);
    return Cat({set, text, "Out=[out] = scale(X=[", out, "]) {scale=2.0}\n"});
  };
  EXPECT_THAT(CarriedBy(with_out("w")), ElementsAre("w"));
  EXPECT_THAT(CarriedBy(with_out("v")), IsEmpty());
}

TEST(CarriedValuesTest, ManyConditionalBlocks) {
  constexpr int kBlocks = 2000;
  std::string variables, ops, blocks;
  for (int b = 1; b <= kBlocks; ++b) {
    absl::StrAppend(&ops, "var c", b, " : bool[1]\nvar v", b, " : fp32[1]\n");
  }
  for (int b = 1; b <= kBlocks; ++b) {
    absl::StrAppend(&ops, "Out=[c", b, "] = logical_not(X=[a])\nOut=[v", b,
                    "] = conditional_block(Cond=[c", b,
                    "]) {is_scalar_condition=true, sub_block=block(", b, ")}\n");
    absl::StrAppend(&blocks, "block ", b, " parent=0 {\nOut=[v", b,
                    "] = scale(X=[x]) {scale=1.0}\n}\n");
  }
  EXPECT_THAT(CarriedBy(Cat({ops, "Out=[out] = scale(X=[v7]) {scale=2.0}\n"}), blocks),
              ElementsAre("v7"));
}

// Each block runs the next one twice.
TEST(CarriedValuesTest, ManyRunsOfABlockAreNotAllVisited) {
  constexpr int kBlocks = 40;
  std::string blocks;
  for (int b = 1; b <= kBlocks; ++b) {
    absl::StrAppend(&blocks, "block ", b, " parent=", b - 1, " {\n");
    for (int i = 0; i < 2 && b < kBlocks; ++i) {
      absl::StrAppend(&blocks,
                      "Out=[v] = conditional_block(Cond=[a]) {is_scalar_condition=true, "
                      "sub_block=block(",
                      b + 1, ")}\n");
    }
    if (b == kBlocks) blocks += "Out=[v] = scale(X=[x]) {scale=1.0}\n";
    blocks += "}\n";
  }
  EXPECT_THAT(CarriedBy(Cat({kIf, kRead}), blocks), ElementsAre("v"));
}

}  // namespace
}  // namespace weft::testing
