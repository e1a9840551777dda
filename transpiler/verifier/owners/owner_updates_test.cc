// Programs of ranks that update parameters for each other.
#include "transpiler/verifier/owners/owner_updates.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Two parameters, u and v, with ops before their updates, the updates, and ops after them.
std::string Step(absl::string_view reductions, absl::string_view updates, absl::string_view last) {
  return absl::StrCat(R"(
    var x : fp32[-1, 4] need_check_feed
    var u, v : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var y, z, s, s@GRAD : fp32[-1, 1]
    var loss, loss@GRAD : fp32[]
    var u@GRAD, v@GRAD : fp32[4, 1]
    Out=[y] = mul(X=[x], Y=[u])
    Out=[z] = mul(X=[x], Y=[v])
    Out=[s] = elementwise_add(X=[y], Y=[z])
    Out=[loss] = mean(X=[s]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[s@GRAD] = mean_grad(X=[s], Out@GRAD=[loss@GRAD]) role=backward
    Y@GRAD=[u@GRAD] = mul_grad(X=[x], Y=[u], Out@GRAD=[s@GRAD]) role=backward
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[s@GRAD]) role=backward
)",
                      reductions, updates, last);
}

std::string Update(absl::string_view param) {
  return absl::StrCat("    ParamOut=[", param, "] = sgd(Param=[", param, "], Grad=[", param,
                      "@GRAD], LearningRate=[lr]) role=optimize\n");
}
std::string Momentum(absl::string_view param) {
  return absl::StrCat("    var ", param, "_m : fp32[4, 1] persistable\n    ParamOut=[", param,
                      "], VelocityOut=[", param, "_m] = momentum(Param=[", param, "], Velocity=[",
                      param, "_m], Grad=[", param,
                      "@GRAD], LearningRate=[lr]) role=optimize {mu=0.9}\n");
}
std::string Broadcast(absl::string_view param, int root) {
  return absl::StrCat("    Out=[", param, "] = c_broadcast(X=[", param,
                      "]) role=optimize {ring_id=0, root=", root, ", use_calc_stream=true}\n");
}
std::string Average(absl::string_view param) {
  return absl::StrCat("    Out=[", param, "@GRAD] = c_allreduce_avg(X=[", param,
                      "@GRAD]) role=backward {ring_id=0, use_calc_stream=true}\n");
}
std::string ReduceTo(absl::string_view param, int root) {
  return absl::StrCat("    Out=[", param, "@GRAD] = c_reduce_sum(X=[", param,
                      "@GRAD]) role=backward {ring_id=0, root_id=", root,
                      ", use_calc_stream=true}\n");
}
constexpr char kDivide[] =
    "    Out=[s@GRAD] = scale(X=[s@GRAD]) role=backward {scale=0.5, nranks=2}\n";

// Without and with the original.
std::vector<std::string> FoundIn(const std::vector<std::string>& steps,
                                 const std::string& original) {
  std::vector<Program> programs;
  for (const std::string& step : steps) programs.push_back(ProgramOf(step));
  std::vector<ConstProgramPair> ranks;
  for (const Program& program : programs) ranks.push_back({&program, nullptr});
  const Program before = ProgramOf(original);
  std::vector<std::string> lines = Errors(ranks);
  for (const std::string& line : Errors(ranks, &before)) lines.push_back(line);
  return lines;
}

std::string OneDevice() { return Step("", Update("u") + Update("v"), ""); }

// Rank 0 updates u, and rank 1 v.
std::vector<std::string> Owned(absl::string_view reductions, absl::string_view last) {
  return {Step(reductions, Update("u"), last), Step(reductions, Update("v"), last)};
}

TEST(OwnerUpdates, OfAveragedGradientsAreThoseOfOneDevice) {
  const std::string average = Average("u") + Average("v");
  const std::string both = Broadcast("u", 0) + Broadcast("v", 1);
  EXPECT_THAT(FoundIn(Owned(average, both), OneDevice()), IsEmpty());
  // The order of broadcasts does not matter, but that all ranks have them does.
  EXPECT_THAT(FoundIn(Owned(average, Broadcast("v", 1) + Broadcast("u", 0)), OneDevice()),
              IsEmpty());
}

TEST(OwnerUpdates, EachRankHasTheLoss) {
  const std::string average = Average("u") + Average("v");
  std::vector<std::string> steps =
      Owned(average, Broadcast("u", 0) + Broadcast("v", 1) + "    var other : fp32[]\n");
  const std::string loss = "    Out=[loss] = mean(X=[s]) role=forward|loss\n";
  const std::string other = "    Out=[other] = mean(X=[s])\n";
  steps[1] = absl::StrReplaceAll(steps[1], {{loss, ""}});
  const std::string missing =
      "error: W510: rank 1: loss loss has no value here, of which rank 0 alone runs op 3 (mean): "
      "expected the "
      "op on all ranks";
  EXPECT_THAT(FoundIn(steps, OneDevice()), ElementsAre(missing, missing));
  // A value that is no loss may be one rank's own.
  std::vector<std::string> more =
      Owned(average, Broadcast("u", 0) + Broadcast("v", 1) + "    var other : fp32[]\n");
  more[0] += other;
  EXPECT_THAT(FoundIn(more, OneDevice()), IsEmpty());
}

TEST(OwnerUpdates, GradientsMayBeReducedToTheOwnerAlone) {
  const auto reduced = [](int root_of_u, int root_of_v) {
    const std::string sum = ReduceTo("u", root_of_u) + ReduceTo("v", root_of_v);
    std::vector<std::string> steps = Owned(sum, Broadcast("u", 0) + Broadcast("v", 1));
    for (std::string& step : steps) {
      absl::StrReplaceAll({{"    Y@GRAD=[u@GRAD]", absl::StrCat(kDivide, "    Y@GRAD=[u@GRAD]")}},
                          &step);
    }
    return steps;
  };
  EXPECT_THAT(FoundIn(reduced(0, 1), OneDevice()), IsEmpty());
  EXPECT_THAT(FoundIn(reduced(1, 1), OneDevice()),
              Contains(AllOf(HasSubstr("W510"), HasSubstr("reads u@GRAD on rank 0, op "),
                             HasSubstr("(c_reduce_sum) reduces it to rank 1 alone"))));
}

TEST(OwnerUpdates, AWrongOwnerIsFound) {
  const std::string average = Average("u") + Average("v");
  EXPECT_THAT(FoundIn(Owned(average, Broadcast("u", 0) + Broadcast("v", 0)), OneDevice()),
              Contains(AllOf(HasSubstr("W510"), HasSubstr("(c_broadcast) reads v on rank 0, of "
                                                          "which rank 1 alone runs op "))));
}

TEST(OwnerUpdates, AMissingBroadcastIsFound) {
  const std::string average = Average("u") + Average("v");
  EXPECT_THAT(FoundIn(Owned(average, Broadcast("u", 0)), OneDevice()),
              Contains(AllOf(HasSubstr("W510"), HasSubstr("reads v on rank 0"))));
}

TEST(OwnerUpdates, OfGradientsThatNobodyReducesAreWrong) {
  const std::string both = Broadcast("u", 0) + Broadcast("v", 1);
  EXPECT_THAT(FoundIn(Owned(Average("u"), both), OneDevice()),
              Contains(AllOf(HasSubstr("W310"), HasSubstr("updates v"))));
  // On both ranks, by the gradients of each.
  const std::vector<std::string> twice = {Step(Average("u"), Update("u") + Update("v"), both),
                                          Step(Average("u"), Update("v"), both)};
  EXPECT_THAT(FoundIn(twice, OneDevice()),
              Contains(AllOf(HasSubstr("W310"), HasSubstr("updates v"))));
}

TEST(OwnerUpdates, OfOtherValuesDifferFromTheOriginal) {
  const std::string average = Average("u") + Average("v");
  std::vector<std::string> steps = Owned(average, Broadcast("u", 0) + Broadcast("v", 1));
  absl::StrReplaceAll({{"    ParamOut=[v]",
                        "    Out=[v@GRAD] = scale(X=[v@GRAD]) role=optimize {scale=0.25}\n"
                        "    ParamOut=[v]"}},
                      &steps[1]);
  EXPECT_THAT(FoundIn(steps, OneDevice()),
              Contains(AllOf(HasSubstr("W601"), HasSubstr("variable v"))));
}

TEST(OwnerUpdates, StatesOfTheOwnerAreNoted) {
  const std::string average = Average("u") + Average("v");
  const std::string both = Broadcast("u", 0) + Broadcast("v", 1);
  const Program first = ProgramOf(Step(average, Momentum("u"), both)),
                second = ProgramOf(Step(average, Momentum("v"), both)),
                original = ProgramOf(Step("", Momentum("u") + Momentum("v"), ""));
  VerifyOptions options = ForRanks(2);
  options.original.main = &original;
  EXPECT_THAT(AllLines(Verify({{&first, nullptr}, {&second, nullptr}}, options)),
              ElementsAre(HasSubstr("W521: rank 0 keeps no value of v_m"),
                          HasSubstr("W521: rank 1 keeps no value of u_m")));
}

// As where each rank declares the states of all.
TEST(OwnerUpdates, StatesThatOnlyTheOwnerKeepsMayDiffer) {
  const std::string average = Average("u") + Average("v");
  const std::string both = Broadcast("u", 0) + Broadcast("v", 1);
  const auto declared = [](absl::string_view name) {
    return absl::StrCat("    var ", name, "_m : fp32[4, 1] persistable\n");
  };
  const std::vector<std::string> steps = {Step(average, declared("v") + Momentum("u"), both),
                                          Step(average, declared("u") + Momentum("v"), both)};
  EXPECT_THAT(FoundIn(steps, Step("", Momentum("u") + Momentum("v"), "")), IsEmpty());
}

TEST(OwnerUpdates, RanksThatBeginWithOtherValuesAreNone) {
  const std::string average = Average("u") + Average("v");
  const std::string both = Broadcast("u", 0) + Broadcast("v", 1);
  const Program first = ProgramOf(Step(average, Update("u"), both)),
                second = ProgramOf(Step(average, Update("v"), both));
  const auto startup = [](absl::string_view rate) {
    return ProgramOf(absl::StrCat(
        "    var lr : fp32[1] persistable\n"
        "    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=",
        rate,
        "}\n"
        "    Out=[lr] = c_broadcast(X=[lr]) {ring_id=0, root=1, use_calc_stream=true}\n"));
  };
  const Program one = startup("0.1"), other = startup("0.2");
  EXPECT_TRUE(FindOwnerUpdates({{&first, &one}, {&second, &one}}).has_value());
  EXPECT_FALSE(FindOwnerUpdates({{&first, &one}, {&second, &other}}).has_value());
}

// As fleet shards: a rank has u or v, and receives the other in a variable of its own, before it is
// read, in every step.
std::string Sharded(int rank, absl::string_view before_update = "") {
  const std::string u = rank == 0 ? "u" : "u@BroadCast_0", v = rank == 1 ? "v" : "v@BroadCast_0";
  const std::string own = rank == 0 ? "u" : "v", other = rank == 0 ? v : u;
  std::string step =
      Step(absl::StrCat(ReduceTo("u", 0), ReduceTo("v", 1), before_update), Update(own), "");
  const std::string receive = absl::StrCat(
      "    Out=[", other, "] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.0}\n",
      Broadcast(u, 0), Broadcast(v, 1));
  absl::StrReplaceAll(
      {{"    var u, v : fp32[4, 1] parameter persistable\n",
        absl::StrCat("    var ", own, " : fp32[4, 1] parameter persistable\n    var ", other,
                     " : fp32[4, 1]\n")},
       {"    Out=[y] = mul(X=[x], Y=[u])",
        absl::StrCat(receive, "    Out=[y] = mul(X=[x], Y=[", u, "])")},
       {"Y=[v])", absl::StrCat("Y=[", v, "])")},
       {"    Y@GRAD=[u@GRAD] = mul_grad(X=[x], Y=[u],",
        absl::StrCat(kDivide, "    Y@GRAD=[u@GRAD] = mul_grad(X=[x], Y=[", u, "],")},
       {"mul_grad(X=[x], Y=[v],", absl::StrCat("mul_grad(X=[x], Y=[", v, "],")}},
      &step);
  return step;
}

TEST(OwnerUpdates, ParametersMayBeReceivedUnderOtherNames) {
  EXPECT_THAT(FoundIn({Sharded(0), Sharded(1)}, OneDevice()), IsEmpty());
}

TEST(OwnerUpdates, WhatIsReceivedIsComparedUnderTheNameOfTheOwner) {
  // The owner of v sends u's place something else.
  std::string wrong = Sharded(1);
  absl::StrReplaceAll({{"ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD]",
                        "ParamOut=[v] = sgd(Param=[v], Grad=[u@GRAD]"}},
                      &wrong);
  EXPECT_THAT(FoundIn({Sharded(0), wrong}, OneDevice()), Not(IsEmpty()));
  std::string unread = Sharded(0);
  absl::StrReplaceAll({{Broadcast("v@BroadCast_0", 1), ""}}, &unread);
  EXPECT_THAT(FoundIn({unread, Sharded(1)}, OneDevice()), Not(IsEmpty()));
}

// Receives what the other rank owns a second time, for its gradient, in a variable of its own,
// after the ops `between`; the gradient op reads `read`.
std::string ReceivedTwice(int rank, absl::string_view read, absl::string_view between = "") {
  const std::string other = rank == 0 ? "v" : "u";
  const std::string first = other + "@BroadCast_0", second = other + "@BroadCast_1";
  const std::string receive =
      absl::StrCat("    var ", second, " : fp32[4, 1]\n    Out=[", second,
                   "] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.0}\n",
                   Broadcast(rank == 0 ? "u" : second, 0), Broadcast(rank == 1 ? "v" : second, 1));
  std::string step = Sharded(rank);
  absl::StrReplaceAll({{absl::StrCat("mul_grad(X=[x], Y=[", first, "]"),
                        absl::StrCat("mul_grad(X=[x], Y=[", read, "]")},
                       {kDivide, absl::StrCat(between, receive, kDivide)}},
                      &step);
  return step;
}

TEST(OwnerUpdates, ParametersMayBeReceivedUnderTwoNames) {
  for (const char* read : {"u@BroadCast_0", "u@BroadCast_1"}) {
    EXPECT_THAT(FoundIn({ReceivedTwice(0, "v@BroadCast_1"), ReceivedTwice(1, read)}, OneDevice()),
                IsEmpty());
  }
  // Of the wrong owner.
  std::vector<std::string> wrong = {ReceivedTwice(0, "v@BroadCast_1"),
                                    ReceivedTwice(1, "u@BroadCast_1")};
  for (std::string& step : wrong) {
    const size_t last = step.rfind("root=1");
    step.replace(last, 6, "root=0");
  }
  EXPECT_THAT(FoundIn(wrong, OneDevice()), Not(IsEmpty()));
  // In another order on one rank.
  std::string swapped = ReceivedTwice(1, "u@BroadCast_1");
  const std::string u = Broadcast("u@BroadCast_1", 0), v = Broadcast("v", 1);
  absl::StrReplaceAll({{u + v, v + u}}, &swapped);
  EXPECT_THAT(FoundIn({ReceivedTwice(0, "v@BroadCast_1"), swapped}, OneDevice()), Not(IsEmpty()));
}

// Its owner has changed the parameter in between.
TEST(OwnerUpdates, TheNameThatWasReceivedBeforeAChangeIsStale) {
  const std::string change = "    Out=[v] = scale(X=[v]) role=optimize {scale=2.0}\n";
  const std::string in_between = absl::StrCat(
      "    Y@GRAD=[u@GRAD] = mul_grad(X=[x], Y=[u], Out@GRAD=[s@GRAD]) role=backward\n");
  std::string original = OneDevice();
  absl::StrReplaceAll({{in_between, absl::StrCat(change, in_between)}}, &original);
  const auto found = [&](absl::string_view read) {
    return FoundIn({ReceivedTwice(0, read), ReceivedTwice(1, "u@BroadCast_1", change)}, original);
  };
  EXPECT_THAT(found("v@BroadCast_1"), IsEmpty());
  EXPECT_THAT(found("v@BroadCast_0"), Not(IsEmpty()));
}

// As fleet shards with gradient_merge_acc_step: a rank keeps sums of the gradients that it owns,
// and updates by them in a block of its own.
std::string MergesGradients(const std::vector<std::string>& owned,
                            absl::string_view in_block = "") {
  std::string ops, block;
  for (const std::string& param : owned) {
    const std::string sum = param + "_sum";
    absl::StrAppend(&ops, "    var ", sum, " : fp32[4, 1] persistable\n    Out=[", sum,
                    "] = elementwise_add(X=[", param, "@GRAD], Y=[", sum, "]) role=backward\n");
    absl::StrAppend(&block, "    ParamOut=[", param, "] = sgd(Param=[", param, "], Grad=[", sum,
                    "], LearningRate=[lr]) role=optimize\n    Out=[", sum,
                    "] = fill_constant() role=optimize {shape=longs[4, 1], dtype=5, value=0.0}\n");
  }
  return absl::StrCat(ops, R"(
    var count, steps, zero : int32[1] persistable
    var due : bool[1]
    var scope : step_scopes
    Out=[count] = increment(X=[count]) role=optimize {step=1.0}
    Out=[count] = elementwise_mod(X=[count], Y=[steps]) role=optimize
    Out=[due] = equal(X=[count], Y=[zero]) role=optimize
    Out=[], Scope=[scope] = conditional_block(Cond=[due], Input=[]) role=optimize {sub_block=block(1), is_scalar_condition=true}
    block 1:
)",
                      block, in_block);
}

std::string ShardedAndMerged(int rank, const std::vector<std::string>& owned,
                             absl::string_view in_block = "") {
  std::string step = Sharded(rank);
  const std::string update = Update(rank == 0 ? "u" : "v");
  EXPECT_EQ(absl::StrReplaceAll({{update, MergesGradients(owned, in_block)}}, &step), 1);
  return step;
}

TEST(OwnerUpdates, BranchesMayDifferByOwner) {
  std::string original = OneDevice();
  absl::StrReplaceAll({{Update("u") + Update("v"), MergesGradients({"u", "v"})}}, &original);
  const std::string first = ShardedAndMerged(0, {"u"}), second = ShardedAndMerged(1, {"v"});
  EXPECT_THAT(FoundIn({first, second}, original), IsEmpty());
  // One updates nothing, or what it does not own.
  EXPECT_THAT(FoundIn({first, ShardedAndMerged(1, {})}, original), Not(IsEmpty()));
  std::string other = second;
  absl::StrReplaceAll({{"ParamOut=[v] = sgd(Param=[v], Grad=[v_sum]",
                        "ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD]"}},
                      &other);
  EXPECT_THAT(FoundIn({first, other}, original), Not(IsEmpty()));
  // One does not begin the sum again.
  std::string kept = second;
  absl::StrReplaceAll({{"    Out=[v_sum] = fill_constant() role=optimize {shape=longs[4, 1], "
                        "dtype=5, value=0.0}\n",
                        ""}},
                      &kept);
  EXPECT_THAT(FoundIn({first, kept}, original), Not(IsEmpty()));
  // Each runs its block by a condition of its own.
  std::string early = second;
  absl::StrReplaceAll(
      {{"Out=[due] = equal(X=[count], Y=[zero])", "Out=[due] = equal(X=[count], Y=[steps])"}},
      &early);
  EXPECT_THAT(FoundIn({first, early}, original), Not(IsEmpty()));
}

// With gradients that are averaged, and before the updates a branch that makes v's of u's and
// `factor`, after what it declares.
std::string WithBranch(std::string step, absl::string_view factor, absl::string_view own = "",
                       absl::string_view in_block = "") {
  absl::StrReplaceAll(
      {{ReduceTo("u", 0), Average("u")}, {ReduceTo("v", 1), Average("v")}, {kDivide, ""}}, &step);
  const std::string branch = absl::StrCat(
      own, "    var due : bool[1] persistable\n    var scope : step_scopes\n",
      "    Out=[], Scope=[scope] = conditional_block(Cond=[due], Input=[]) role=optimize "
      "{sub_block=block(1), is_scalar_condition=true}\n");
  step.insert(step.find("    ParamOut=["), branch);
  return absl::StrCat(step, "    block 1:\n", in_block,
                      "    Out=[v@GRAD] = elementwise_mul(X=[u@GRAD], Y=[", factor,
                      "]) role=optimize\n");
}

TEST(OwnerUpdates, ABranchOfOneTextMayReadDifferentVariables) {
  const std::string received = "u@BroadCast_0";
  const std::string second = WithBranch(Sharded(1), received);
  EXPECT_THAT(FoundIn({WithBranch(Sharded(0), "u"), second}, WithBranch(OneDevice(), "u")),
              IsEmpty());
  // Rank 0 has a variable of its own under the name under which rank 1 receives u.
  const std::string own = absl::StrCat("    var ", received, " : fp32[4, 1] persistable\n");
  EXPECT_THAT(FoundIn({WithBranch(Sharded(0), received, own), second},
                      WithBranch(OneDevice(), received, own)),
              Not(IsEmpty()));
}

TEST(OwnerUpdates, ABranchOfOneTextMayHideAVariableOnOneRank) {
  const std::string rate = "    var rate : fp32[4, 1] persistable\n";
  const std::string hides = "    var v@GRAD : fp32[4, 1]\n";
  const auto rank = [&](int number, const std::string& in_block) {
    return WithBranch(Sharded(number), "rate", rate, in_block);
  };
  const std::string writes = WithBranch(OneDevice(), "rate", rate);
  const std::string hidden = WithBranch(OneDevice(), "rate", rate, hides);
  EXPECT_THAT(FoundIn({rank(0, ""), rank(1, "")}, writes), IsEmpty());
  EXPECT_THAT(FoundIn({rank(0, hides), rank(1, hides)}, hidden), IsEmpty());
  EXPECT_THAT(FoundIn({rank(0, hides), rank(1, "")}, hidden), Not(IsEmpty()));
  EXPECT_THAT(FoundIn({rank(0, ""), rank(1, hides)}, writes), Not(IsEmpty()));
}

TEST(OwnerUpdates, NothingIsReadBeforeItIsReceived) {
  std::vector<std::string> late = {Sharded(0), Sharded(1)};
  for (int rank : {0, 1}) {
    const std::string other = rank == 0 ? "v@BroadCast_0" : "u@BroadCast_0";
    const std::string broadcasts =
        absl::StrCat(Broadcast(rank == 0 ? "u" : other, 0), Broadcast(rank == 1 ? "v" : other, 1));
    const std::string makes_room = absl::StrCat(
        "    Out=[", other, "] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.0}\n");
    ASSERT_EQ(absl::StrReplaceAll({{absl::StrCat(makes_room, broadcasts), ""}}, &late[rank]), 1);
    late[rank] += broadcasts;
  }
  EXPECT_THAT(FoundIn(late, OneDevice()), Not(IsEmpty()));
}

// What a branch gives a rank, the rank lacks where the branch does not run.
TEST(OwnerUpdates, ABranchGivesNoRankWhatItLacksAfterIt) {
  const auto of = [](int rank, absl::string_view in_block, absl::string_view after) {
    std::string step = ShardedAndMerged(rank, {rank == 0 ? "u" : "v"}, in_block);
    const std::string own = "    var t : fp32[4, 1]\n    Out=[t] = scale(X=[u@GRAD])\n";
    absl::StrReplaceAll({{"    block 1:\n", absl::StrCat(after, "    block 1:\n")}}, &step);
    if (rank == 0)
      absl::StrReplaceAll({{"    var count,", absl::StrCat(own, "    var count,")}}, &step);
    if (rank == 1)
      absl::StrReplaceAll({{"    var count,", "    var t : fp32[4, 1]\n    var count,"}}, &step);
    return step;
  };
  const std::string in_block = "    Out=[t] = scale(X=[lr])\n",
                    read = "    Out=[kept] = scale(X=[t])\n";
  const std::string declared = "    var kept : fp32[4, 1] persistable\n";
  const std::vector<std::string> inside = {of(0, in_block, ""), of(1, in_block, "")},
                                 after = {of(0, in_block, declared + read),
                                          of(1, in_block, declared + read)};
  std::vector<Program> programs;
  for (const auto& steps : {inside, after}) {
    for (const std::string& step : steps) programs.push_back(ProgramOf(step));
  }
  const auto lacks = [&](size_t first) {
    return Errors({{&programs[first], nullptr}, {&programs[first + 1], nullptr}});
  };
  EXPECT_THAT(lacks(0), Not(Contains(HasSubstr("reads t on rank 1"))));
  EXPECT_THAT(lacks(2), Contains(AllOf(HasSubstr("W510"), HasSubstr("reads t on rank 1"))));
}

// Of the squares of all gradients, each rank adds up those that it owns.
std::string Clip(int rank, bool reduces = true) {
  const std::string own = rank == 0 ? "u" : "v";
  return absl::StrCat(
      "    var n, s2, f : fp32[1]\n    Out=[n] = squared_l2_norm(X=[", own,
      "@GRAD]) role=optimize\n",
      reduces
          ? "    Out=[n] = c_allreduce_sum(X=[n]) role=optimize {ring_id=0, use_calc_stream=true}\n"
          : "",
      "    Out=[", own, "@GRAD] = elementwise_mul(X=[", own, "@GRAD], Y=[n]) role=optimize\n");
}

TEST(OwnerUpdates, SumsOverWhatRanksOwnAreSumsOfAll) {
  const std::string of_all =
      "    var n, a, b : fp32[1]\n    Out=[a] = squared_l2_norm(X=[u@GRAD]) role=optimize\n"
      "    Out=[b] = squared_l2_norm(X=[v@GRAD]) role=optimize\n"
      "    Out=[n] = sum(X=[a, b]) role=optimize\n"
      "    Out=[u@GRAD] = elementwise_mul(X=[u@GRAD], Y=[n]) role=optimize\n"
      "    Out=[v@GRAD] = elementwise_mul(X=[v@GRAD], Y=[n]) role=optimize\n";
  const std::string original = Step(of_all, Update("u") + Update("v"), "");
  EXPECT_THAT(FoundIn({Sharded(0, Clip(0)), Sharded(1, Clip(1))}, original), IsEmpty());
  // Each by its own.
  EXPECT_THAT(FoundIn({Sharded(0, Clip(0, false)), Sharded(1, Clip(1, false))}, original),
              Not(IsEmpty()));
}

// A loss scale that follows gradients, given as "u@GRAD, v@GRAD".
std::string ScaleLoss(absl::string_view gradients, absl::string_view told) {
  return absl::StrCat(R"(
    var scale : fp32[1] persistable
    var good, bad : int32[1] persistable
    var found : bool[1]
    var number : int32[1]
    Out=[)",
                      gradients, "], FoundInfinite=[found] = check_finite_and_unscale(X=[",
                      gradients, "], Scale=[scale]) role=optimize\n", told, "    Out=[", gradients,
                      "], LossScaling=[scale], OutGoodSteps=[good], OutBadSteps=[bad] = "
                      "update_loss_scaling(X=[",
                      gradients,
                      "], FoundInfinite=[found], PrevLossScaling=[scale], InGoodSteps=[good], "
                      "InBadSteps=[bad]) role=optimize {incr_every_n_steps=4, "
                      "decr_every_n_nan_or_inf=1, incr_ratio=2.0, decr_ratio=0.5}\n");
}

constexpr char kTell[] = R"(
    Out=[number] = cast(X=[found]) role=optimize {in_dtype=0, out_dtype=2}
    Out=[number] = c_allreduce_max(X=[number]) role=optimize {ring_id=0, use_calc_stream=true}
    Out=[found] = cast(X=[number]) role=optimize {in_dtype=2, out_dtype=0}
)";

TEST(OwnerUpdates, RanksSearchTheGradientsThatTheyOwn) {
  const std::string original = Step(ScaleLoss("u@GRAD, v@GRAD", ""), Update("u") + Update("v"), "");
  const auto found = [&](absl::string_view told, absl::string_view of_1 = "v@GRAD") {
    return FoundIn({Sharded(0, ScaleLoss("u@GRAD", told)), Sharded(1, ScaleLoss(of_1, told))},
                   original);
  };
  EXPECT_THAT(found(kTell), IsEmpty());
  // Each by its own, or by what is no maximum.
  EXPECT_THAT(found(""), Not(IsEmpty()));
  EXPECT_THAT(found(absl::StrReplaceAll(kTell, {{"c_allreduce_max", "c_allreduce_min"}})),
              Not(IsEmpty()));
  // A gradient that another rank owns.
  EXPECT_THAT(found(kTell, "u@GRAD"), Not(IsEmpty()));
}

// Where any is not finite, what a search leaves depends on all gradients.
TEST(OwnerUpdates, WhatASearchLeavesIsMadeZero) {
  const auto without_zeros = [](absl::string_view gradients, absl::string_view told) {
    const std::string ops = ScaleLoss(gradients, told);
    return ops.substr(0, ops.find(absl::StrCat("    Out=[", gradients, "], LossScaling")));
  };
  const std::string original =
      Step(without_zeros("u@GRAD, v@GRAD", ""), Update("u") + Update("v"), "");
  EXPECT_THAT(FoundIn({Sharded(0, without_zeros("u@GRAD", kTell)),
                       Sharded(1, without_zeros("v@GRAD", kTell))},
                      original),
              Not(IsEmpty()));
}

TEST(OwnerUpdates, OtherProgramsAreNone) {
  const Program a = ProgramOf(OneDevice()), b = ProgramOf(Step("", Update("v") + Update("u"), ""));
  EXPECT_FALSE(FindOwnerUpdates({{&a, nullptr}, {&a, nullptr}}).has_value());
  EXPECT_FALSE(FindOwnerUpdates({{&a, nullptr}, {&b, nullptr}}).has_value());
}

}  // namespace
}  // namespace weft::testing
