#include "transpiler/verifier/communication/data_order.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kVars[] =
    "    var a, b, c : fp32[4] persistable\n"
    "    var scope : step_scopes\n"
    "    Out=[yes] = fill_constant() {shape=longs[1], dtype=0, value=1.0}\n";

std::string Reduce(const std::string& var) {
  return absl::StrCat("    out=[", var, "] = all_reduce(x=[", var,
                      "]) {ring_id=0, reduce_type=0, use_calc_stream=true}\n");
}

std::string Copy(const std::string& from, const std::string& to) {
  return absl::StrCat("    Out=[", to, "] = assign(X=[", from, "])\n");
}

std::string If(int block, const std::string& reads = "", const std::string& writes = "") {
  return absl::StrCat("    Scope=[scope], Out=[", writes,
                      "] = conditional_block(Cond=[yes], Input=[", reads, "]) {sub_block=block(",
                      block, "), is_scalar_condition=true}\n");
}

std::string Inner(int block, const std::string& ops, int parent = 0) {
  return absl::StrCat("    block ", block, " parent=", parent, ":\n", ops);
}

std::vector<std::string> Check(const std::string& ops, const std::string& blocks = "") {
  const Program program = testing::ProgramOf(absl::StrCat(kVars, ops, blocks));
  Findings findings;
  CheckDataOrder(program, ProgramRef(), &findings);
  return testing::Lines(findings);
}

TEST(DataOrder, CollectivesOfABlockHaveTheirOrder) {
  EXPECT_THAT(Check(Reduce("a") + Reduce("b") + Reduce("a")), IsEmpty());
}

TEST(DataOrder, BlocksWithCollectivesNeedData) {
  EXPECT_THAT(
      Check(Reduce("a") + If(1), Inner(1, Reduce("b"))),
      ElementsAre("error: W518: op 2 (conditional_block) with collectives inside: expected "
                  "to depend on data of op 1 (all_reduce), found nothing that orders them"));
  EXPECT_THAT(Check(If(1) + Reduce("a"), Inner(1, Reduce("b"))),
              ElementsAre("error: W518: op 2 (all_reduce): expected to depend on data of op 1 "
                          "(conditional_block) with collectives inside, found nothing that orders "
                          "them"));
  // Blocks without collectives may run when they like.
  EXPECT_THAT(Check(Reduce("a") + If(1), Inner(1, Copy("b", "c"))), IsEmpty());
}

TEST(DataOrder, ABlockThatReadsAResultIsBehindIt) {
  EXPECT_THAT(Check(Reduce("a") + If(1, "a"), Inner(1, Reduce("b"))), IsEmpty());
  // Also if its op does not say so, and by way of other ops.
  EXPECT_THAT(Check(Reduce("a") + If(1), Inner(1, Copy("a", "c") + Reduce("b"))), IsEmpty());
  EXPECT_THAT(Check(Reduce("a") + Copy("a", "c") + If(1, "c"), Inner(1, Reduce("b"))), IsEmpty());
  EXPECT_THAT(Check(If(1, "", "b") + Copy("b", "a") + Reduce("a"), Inner(1, Reduce("b"))),
              IsEmpty());
}

TEST(DataOrder, ASyncOrdersAllAfterItBehindAllBeforeIt) {
  const std::string sync = "    Out=[c] = c_sync_comm_stream(X=[c]) {ring_id=0}\n";
  EXPECT_THAT(Check(Reduce("a") + sync + If(1), Inner(1, Reduce("b"))), IsEmpty());
  EXPECT_THAT(Check(sync + Reduce("a") + If(1), Inner(1, Reduce("b"))),
              ElementsAre(::testing::HasSubstr("W518")));
  // It does not wait for blocks.
  EXPECT_THAT(Check(If(1) + sync + Reduce("a"), Inner(1, Reduce("b"))),
              ElementsAre(::testing::HasSubstr("W518")));
}

TEST(DataOrder, WhatIsOverwrittenIsReadBefore) {
  EXPECT_THAT(Check(Reduce("a") + Copy("a", "c") + If(1), Inner(1, Copy("b", "c") + Reduce("b"))),
              IsEmpty());
  // Readers do not wait for each other.
  EXPECT_THAT(
      Check(Copy("a", "b") + Reduce("b") + Copy("a", "b") + If(1, "a"), Inner(1, Reduce("c"))),
      ElementsAre(::testing::HasSubstr("W518")));
}

TEST(DataOrder, VariablesOfABlockAreItsOwn) {
  EXPECT_THAT(
      Check(Reduce("a") + If(1), Inner(1, "    var a : fp32[4]\n" + Copy("b", "a") + Reduce("a"))),
      ElementsAre(::testing::HasSubstr("W518")));
}

TEST(DataOrder, EachBlockHasAnOrder) {
  const std::string inner = Inner(1, Reduce("a") + If(2)) + Inner(2, Reduce("b"), 1);
  EXPECT_THAT(Check(If(1), inner),
              ElementsAre(::testing::HasSubstr("block 1, op 1 (conditional_block)")));
  // The outer op holds them, too.
  EXPECT_THAT(Check(Reduce("c") + If(1), Inner(1, If(2)) + Inner(2, Reduce("b"), 1)),
              ElementsAre(::testing::HasSubstr("op 2 (conditional_block)")));
}

// One finding does not hide the next, and causes no other.
TEST(DataOrder, EachPairIsJudged) {
  EXPECT_THAT(
      Check(Reduce("a") + If(1) + If(2, "b") + Reduce("b"),
            Inner(1, Reduce("b")) + Inner(2, Reduce("b"))),
      ElementsAre(::testing::HasSubstr("op 2 (conditional_block) with collectives inside")));
}

}  // namespace
}  // namespace weft
