#include "transpiler/verifier/communication/call_sequences.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string TwoRings(const std::string& first, const std::string& second) {
  const auto reduce = [](const std::string& ring, const std::string& variable) {
    return absl::StrCat("    Out=[", variable, "] = c_allreduce_avg(X=[", variable,
                        "]) {ring_id=", ring, ", use_calc_stream=true}\n");
  };
  return absl::StrCat(R"(
    var a : fp32[4] persistable
    var b : fp32[4] persistable
)",
                      reduce(first, first == "0" ? "a" : "b"),
                      reduce(second, second == "0" ? "a" : "b"));
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

TEST(CallSequences, RanksAddHalfPrecisionAlike) {
  const std::string native = absl::StrReplaceAll(
      TwoRings("0", "1"), {{"{ring_id=0,", "{accumulate_type=\"native\", ring_id=0,"}});
  EXPECT_THAT(AcrossRanks({native, native}), IsEmpty());
  EXPECT_THAT(AcrossRanks({native, TwoRings("0", "1")}), Contains(HasSubstr("W501")));
}

TEST(CallSequences, AnUnknownSizeEqualsNoOther) {
  const auto step = [](const std::string& dims) {
    return absl::StrCat("    var m : fp32", dims,
                        " persistable\n    Out=[m] = c_allreduce_max(X=[m]) {ring_id=0, "
                        "use_calc_stream=true}\n");
  };
  EXPECT_THAT(AcrossRanks({step("[-1, 1]"), step("[-1, 1]")}), IsEmpty());
  EXPECT_THAT(AcrossRanks({step("[-1, 1]"), step("[-1, 2]")}), Contains(HasSubstr("W501")));
  EXPECT_THAT(AcrossRanks({step("[-1, 2]"), step("[2, 2]")}), Contains(HasSubstr("W501")));
}

// --- Ops that are no collectives, but communicate ------------------------------------------------

TEST(CallSequences, EveryRankWaitsAtABarrier) {
  const std::string update = "    ParamOut=";
  const std::string barrier = absl::StrReplaceAll(
      TwoRankStep(),
      {{update, "    barrier(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}\n" + update}});
  EXPECT_THAT(AcrossRanks({barrier, barrier}), Not(Contains(StartsWith("error"))));
  EXPECT_THAT(AcrossRanks({barrier, TwoRankStep()}),
              Contains(AllOf(StartsWith("error: W501"), HasSubstr("barrier"))));
}

constexpr char kBatchNorm[] = R"(
    var x : fp32[4, 2] need_check_feed
    var scale, bias, mean, variance : fp32[2] persistable
    Y=[y], MeanOut=[mean], VarianceOut=[variance] = sync_batch_norm(X=[x], Scale=[scale], Bias=[bias], Mean=[mean], Variance=[variance])
)";

TEST(CallSequences, SynchronizedBatchNormIsACollective) {
  const std::string alone = absl::StrReplaceAll(kBatchNorm, {{"sync_batch_norm", "batch_norm"}});
  const auto errors = [](const std::string& one, const std::string& other) {
    const Program zero = ProgramOf(one), first = ProgramOf(other);
    return Errors({{&zero}, {&first}});
  };
  EXPECT_THAT(errors(kBatchNorm, kBatchNorm), IsEmpty());
  EXPECT_THAT(errors(kBatchNorm, alone),
              ElementsAre(AllOf(StartsWith("error: W501"),
                                HasSubstr("rank 0 makes sync_batch_norm of 2 fp32"))));
}

// The first op of rank 0, and of rank 1.
std::vector<std::string> Messages(const std::vector<std::string>& of_ranks) {
  std::vector<Program> programs;
  for (const std::string& ops : of_ranks) {
    programs.push_back(ProgramOf("    var x, y : fp32[4] persistable\n" + ops));
  }
  std::vector<ConstProgramPair> ranks;
  for (const Program& program : programs) ranks.push_back({&program, nullptr});
  return Errors(ranks);
}

std::string Send(int peer) {
  return absl::StrCat("    send_v2(X=[x]) {ring_id=0, peer=", peer, ", use_calc_stream=true}\n");
}
std::string Receive(int peer) {
  return absl::StrCat("    Out=[y] = recv_v2() {out_shape=ints[4], ring_id=0, peer=", peer,
                      ", use_calc_stream=true}\n");
}

TEST(Messages, EachHasASenderAndAReceiver) {
  EXPECT_THAT(Messages({Send(1), Receive(0)}), IsEmpty());
  EXPECT_THAT(Messages({Send(1) + Receive(1), Receive(0) + Send(0)}), IsEmpty());
  EXPECT_THAT(
      Messages({Send(1), ""}),
      ElementsAre("error: W508: rank 0: ring 0, message 0: rank 0 sends a message of 4 fp32 "
                  "to rank 1, which receives nothing from it"));
  EXPECT_THAT(Messages({Receive(1), Send(2)}),
              ElementsAre(StartsWith("error: W303: "), HasSubstr("rank 1 sends nothing to rank 0"),
                          HasSubstr("to rank 2, which receives nothing")));
  // To itself.
  EXPECT_THAT(Messages({Send(0) + Receive(0), ""}), ElementsAre(StartsWith("error: W508: ")));
}

TEST(Messages, HaveOneSize) {
  EXPECT_THAT(Messages({Send(1),
                        "    Out=[z] = recv_v2() {out_shape=ints[3], "
                        "ring_id=0, peer=0}\n"}),
              ElementsAre(HasSubstr("sends a message of 4 fp32 to rank 1, which receives a message "
                                    "of 3 fp32 from it")));
}

TEST(Messages, RanksThatBothSendFirstWaitForEachOther) {
  EXPECT_THAT(Messages({Send(1) + Receive(1), Send(0) + Receive(0)}),
              ElementsAre(StartsWith("error: W502")));
}

TEST(Messages, OneProgramForAllRanksCannotExchangeThem) {
  EXPECT_THAT(Messages({Send(1)}), ElementsAre(StartsWith("error: W508: op 0 (send_v2): sends")));
}

// --- W505: which variables ranks exchange --------------------------------------------------------

constexpr absl::string_view kTwoBroadcasts = R"(
    var a : fp32[16] parameter persistable
    var b : fp32[16, 1] parameter persistable
    Out=[a] = c_broadcast(X=[a]) {ring_id=0, root=0, use_calc_stream=true}
    Out=[b] = c_broadcast(X=[b]) {ring_id=0, root=0, use_calc_stream=true}
)";

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

constexpr absl::string_view kBuffer = R"(
    var a : fp32[4]
    var b : fp32[8]
    FusedOutput=[buffer], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, copy_data=false, set_constant=true, constant=1.0, use_align=true, align_size=256}
    Out=[buffer] = c_allreduce_sum(X=[buffer]) {ring_id=0, use_calc_stream=true}
)";

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
  for (const RankCall& call : ReadRankCalls(ProgramOf(lines + more_blocks))) {
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

TEST(RankCalls, OtherOpsThatCommunicateAreCallsToo) {
  EXPECT_THAT(
      Calls(absl::StrCat(kVars,
                         "    Y=[any] = sync_batch_norm(X=[any], Scale=[a])\n"
                         "    Y=[any] = sync_batch_norm(X=[any], Scale=[a]) "
                         "{is_test=true}\n"
                         "    barrier(X=[b]) {ring_id=2}\n")),
      ElementsAre("ring 0: sync_batch_norm of 4 fp32 (any)", "ring 2: barrier of 6 fp16 (b)"));
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
  EXPECT_THAT(
      Calls(absl::StrCat(kVars, run, run), "    block 1:\n    Out=[a] = c_allreduce_sum(X=[a])\n"),
      ElementsAre("block on condition due", "ring 0: all-reduce sum of 4 fp32 (a)",
                  "end of block"));
  EXPECT_THAT(Calls(absl::StrCat(kVars, run), "    block 1:\n    Out=[a] = relu(X=[a])\n"),
              ElementsAre());
}

}  // namespace
}  // namespace weft::testing
