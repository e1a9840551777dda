#include "transpiler/verify/call_sequences.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "transpiler/verify/testing/found.h"
#include "transpiler/verify/testing/training_steps.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::weft::testing::Errors;
using ::weft::testing::Lines;
using ::weft::testing::ProgramOf;
using ::weft::testing::TwoRankStep;

std::string TwoRings(const std::string& first, const std::string& second) {
  const auto reduce = [](const std::string& ring, const std::string& variable) {
    return absl::StrCat("    Out=[", variable, "] = c_allreduce_avg(X=[", variable,
                        "]) {ring_id=", ring, ", use_calc_stream=true}\n");
  };
  return absl::StrCat(R"(program {
  block 0 parent=-1 {
    var a : fp32[4] persistable
    var b : fp32[4] persistable
)",
                      reduce(first, first == "0" ? "a" : "b"),
                      reduce(second, second == "0" ? "a" : "b"), "  }\n}");
}

std::vector<std::string> AcrossRanks(const std::vector<std::string>& texts) {
  std::vector<Program> programs;
  for (const std::string& text : texts) programs.push_back(ProgramOf(text));
  std::vector<ConstProgramPair> ranks;
  for (const Program& program : programs) ranks.push_back({&program, nullptr});
  return Lines(Verify(ranks));
}

TEST(CallSequences, RanksThatCallTheSameAreFine) {
  EXPECT_THAT(AcrossRanks({TwoRings("0", "1"), TwoRings("0", "1")}), IsEmpty());
}

TEST(CallSequences, ContradictingOrdersOfRingsMayLockUp) {
  EXPECT_THAT(AcrossRanks({TwoRings("0", "1"), TwoRings("1", "0")}),
              ElementsAre(HasSubstr("W502")));
}

TEST(CallSequences, CallsOfARingMustBeTheSame) {
  const std::string shorter = absl::StrReplaceAll(TwoRings("0", "1"), {{"fp32[4]", "fp32[3]"}});
  EXPECT_THAT(AcrossRanks({TwoRings("0", "1"), shorter}),
              Contains(AllOf(HasSubstr("W501"), HasSubstr("rank 1 makes all-reduce avg of 3 fp32"),
                             HasSubstr("rank 0 makes all-reduce avg of 4 fp32"))));
  EXPECT_THAT(AcrossRanks({TwoRings("0", "1"), TwoRings("0", "0")}),
              Contains(HasSubstr("makes nothing")));
}

TEST(CallSequences, EveryRankOfARingJoinsItOnce) {
  const auto startup = [](int rank) {
    return ProgramOf(absl::StrCat(R"(program {
  block 0 parent=-1 {
    var id : raw
    Out=[id] = c_gen_nccl_id() {endpoint="a:1", other_endpoints=strings["b:1"], rank=0}
    c_comm_init(X=[id]) {nranks=2, rank=)",
                                  rank, R"(, ring_id=0}
  }
})"));
  };
  const Program main = ProgramOf(TwoRankStep());
  const Program zero = startup(0), one = startup(1);
  EXPECT_THAT(Lines(Verify({{&main, &zero}, {&main, &one}})), Not(Contains(HasSubstr("W507"))));
  EXPECT_THAT(Lines(Verify({{&main, &zero}, {&main, &zero}})), Contains(HasSubstr("W507")));
}

TEST(CallSequences, AnUnknownSizeEqualsNoOther) {
  const auto step = [](const std::string& dims) {
    return absl::StrCat("program {\n  block 0 parent=-1 {\n    var m : fp32", dims,
                        " persistable\n    Out=[m] = c_allreduce_max(X=[m]) {ring_id=0, "
                        "use_calc_stream=true}\n  }\n}");
  };
  EXPECT_THAT(AcrossRanks({step("[-1, 1]"), step("[-1, 1]")}), IsEmpty());
  EXPECT_THAT(AcrossRanks({step("[-1, 1]"), step("[-1, 2]")}), Contains(HasSubstr("W501")));
  EXPECT_THAT(AcrossRanks({step("[-1, 2]"), step("[2, 2]")}), Contains(HasSubstr("W501")));
}

// --- W505: which variables ranks exchange --------------------------------------------------------

constexpr absl::string_view kTwoBroadcasts = R"(program {
  block 0 parent=-1 {
    var a : fp32[16] parameter persistable
    var b : fp32[16, 1] parameter persistable
    Out=[a] = c_broadcast(X=[a]) {ring_id=0, root=0, use_calc_stream=true}
    Out=[b] = c_broadcast(X=[b]) {ring_id=0, root=0, use_calc_stream=true}
  }
})";

constexpr absl::string_view kBroadcastA = "Out=[a] = c_broadcast(X=[a])";
constexpr absl::string_view kBroadcastB = "Out=[b] = c_broadcast(X=[b])";

TEST(CallSequences, ExchangedVariablesAreTheSameOnAllRanks) {
  const Program program = ProgramOf(kTwoBroadcasts);
  EXPECT_THAT(Errors({{&program}, {&program}}), IsEmpty());
}

TEST(CallSequences, ExchangedVariablesOfOneSizeMayNotBeMixedUp) {
  const Program one = ProgramOf(kTwoBroadcasts);
  const Program other = ProgramOf(
      kTwoBroadcasts, {{kBroadcastA, "first"}, {kBroadcastB, kBroadcastA}, {"first", kBroadcastB}});
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(AllOf(StartsWith("error: W505: rank 1: "),
                                HasSubstr("ring 0, call 0: rank 1 exchanges b (op 0 (c_broadcast))"
                                          ", rank 0 a (op 0 (c_broadcast))"))));
}

constexpr absl::string_view kBuffer = R"(program {
  block 0 parent=-1 {
    var a : fp32[4]
    var b : fp32[8]
    var buffer : fp32[128]
    FusedOutput=[buffer], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, copy_data=false, set_constant=true, constant=1.0, use_align=true, align_size=256}
    Out=[buffer] = c_allreduce_sum(X=[buffer]) {ring_id=0, use_calc_stream=true}
  }
})";

TEST(CallSequences, ExchangedVariablesStandInTheSameOrderInBuffers) {
  const Program one = ProgramOf(kBuffer);
  const Program other = ProgramOf(kBuffer, {{"Output=[a, b]", "Output=[b, a]"},  //
                                            {"Input=[a, b]", "Input=[b, a]"}});
  EXPECT_THAT(Errors({{&one}, {&one}}), IsEmpty());
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(HasSubstr("rank 1 exchanges {b, a} (op 1 (c_allreduce_sum)), rank 0 "
                                    "{a, b}")));
}

// "ring 0: all-reduce sum of 4 fp32 (a)".
std::vector<std::string> Calls(const std::string& lines, const std::string& more_blocks = "") {
  std::vector<std::string> calls;
  for (const RankCall& call : ReadRankCalls(testing::BlockProgram(lines, more_blocks))) {
    calls.push_back(
        call.ring == RankCall::kNoRing
            ? call.what
            : absl::StrCat("ring ", call.ring, ": ", call.what, " (", call.variables, ")"));
  }
  return calls;
}

constexpr char kVars[] =
    "    var a : fp32[4]\n    var b : fp16[2, 3]\n    var all : fp32[8]\n"
    "    var rows : selected_rows<fp32[4, 1]>\n    var any : fp32[-1, 4]\n"
    "    var due : bool[1]\n";

TEST(RankCalls, SayWhatRanksMustAgreeOn) {
  EXPECT_THAT(
      Calls(absl::StrCat(kVars,
                         "    Out=[a] = c_allreduce_max(X=[a]) {ring_id=3}\n"
                         "    Out=[b] = c_broadcast(X=[b]) {root=1}\n"
                         "    Out=[all] = c_allgather(X=[a]) {nranks=2, ring_id=0}\n"
                         "    Out=[rows] = c_allreduce_sum(X=[rows])\n"
                         "    Out=[any] = c_allreduce_sum(X=[any])\n"
                         "    Out=[a] = relu(X=[a])\n")),
      ElementsAre("ring 3: all-reduce max of 4 fp32 (a)", "ring 0: broadcast root 1 of 6 fp16 (b)",
                  "ring 0: all-gather of 4 fp32 (a -> all)",
                  "ring 0: all-reduce sum of 4 fp32 rows (rows)",
                  "ring 0: all-reduce sum of [-1, 4] fp32 (any)"));
}

TEST(RankCalls, BuffersAreTheirMembers) {
  EXPECT_THAT(
      Calls(absl::StrCat(kVars,
                         "    Output=[a, b], FusedOutput=[all] = coalesce_tensor(Input=[a, b]) "
                         "{dtype=5}\n    Out=[all] = c_allreduce_sum(X=[all])\n")),
      ElementsAre("ring 0: all-reduce sum of 8 fp32 ({a, b})"));
}

TEST(RankCalls, BlocksAreBracketsAroundTheirCalls) {
  const std::string run =
      "    Out=[a] = conditional_block(Cond=[due], Input=[a]) {sub_block=block(1)}\n";
  EXPECT_THAT(Calls(absl::StrCat(kVars, run, run),
                    "  block 1 parent=0 {\n    Out=[a] = c_allreduce_sum(X=[a])\n  }\n"),
              ElementsAre("block on condition due", "ring 0: all-reduce sum of 4 fp32 (a)",
                          "end of block"));
  EXPECT_THAT(
      Calls(absl::StrCat(kVars, run), "  block 1 parent=0 {\n    Out=[a] = relu(X=[a])\n  }\n"),
      ElementsAre());
}

}  // namespace
}  // namespace weft
