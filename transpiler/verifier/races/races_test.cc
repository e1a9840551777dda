#include "transpiler/verifier/races/races.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> Found(const Program& program) {
  Findings findings;
  CheckRaces(program, ProgramRef(), &findings);
  return AllLines(findings);
}

constexpr absl::string_view kSgd = "    ParamOut=[w] = sgd(";
constexpr absl::string_view kWaitForGradient =
    "    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) {ring_id=0}\n    ParamOut=[w] = sgd(";

TEST(Races, W401NamesBothOpsTheirStreamsAndTheWaitThatIsMissing) {
  EXPECT_THAT(Found(ExampleOf("W401")),
              ElementsAre("error: W401: op 3 (sgd) reads w@GRAD on the compute stream, while op 2 "
                          "(c_allreduce_sum) writes it on ring 0: nothing makes the compute stream "
                          "wait for ring 0 in between; insert c_wait_comm"));
  EXPECT_THAT(Found(ExampleOf("W401", {{kSgd, kWaitForGradient}})), IsEmpty());
}

TEST(Races, W401RingThatDoesNotWaitForTheComputeStream) {
  EXPECT_THAT(
      Found(
          ExampleOf("W401", {{kSgd, kWaitForGradient},
                             {"    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) {ring_id=0}\n", ""}})),
      ElementsAre("error: W401: op 1 (c_allreduce_sum) reads w@GRAD on ring 0, while op 0 "
                  "(fill_constant) writes it on the compute stream: nothing makes ring 0 wait for "
                  "the compute stream in between; insert c_wait_compute"));
}

TEST(Races, MessagesAreOnTheStreamOfTheirRing) {
  const auto found = [](const char* ops) {
    return Found(ProgramOf(absl::StrCat("    var x : fp32[4] persistable\n", ops)));
  };
  EXPECT_THAT(found("    Out=[x] = recv_v2() {out_shape=ints[4], peer=1, ring_id=0}\n"
                    "    Out=[x] = relu(X=[x])\n"),
              Contains(HasSubstr("W401: op 1 (relu) reads x on the compute stream, while op 0 "
                                 "(recv_v2) writes it on ring 0")));
  EXPECT_THAT(found("    send_v2(X=[x]) {peer=1, ring_id=0}\n    Out=[x] = scale(X=[x])\n"),
              Contains(HasSubstr("op 1 (scale) writes x on the compute stream, while op 0 "
                                 "(send_v2) reads it on ring 0")));
  EXPECT_THAT(found("    Out=[x] = barrier(X=[x]) {ring_id=0}\n    Out=[x] = relu(X=[x])\n"),
              IsEmpty());
}

TEST(Races, W402AndW403SayWhatIsDone) {
  EXPECT_THAT(Found(ExampleOf("W402")),
              ElementsAre("error: W402: op 3 (fill_constant) writes x on the compute stream, while "
                          "op 2 (c_allreduce_sum) reads it on ring 0: nothing makes the compute "
                          "stream wait for ring 0 in between; insert c_wait_comm"));
  EXPECT_THAT(Found(ExampleOf("W403")),
              ElementsAre("error: W403: op 3 (fill_constant) writes sum on the compute stream, "
                          "while op 2 (c_allreduce_sum) writes it on ring 0: nothing makes the "
                          "compute stream wait for ring 0 in between; insert c_wait_comm"));
}

constexpr char kAverage[] = R"(
    var w : fp32[4] persistable
    Out=[w] = scale(X=[w]) {scale=0.5}
    Out=[w] = c_wait_compute(X=[w]) {ring_id=0}
    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0}
)";

TEST(Races, NextStepIsNamed) {
  EXPECT_THAT(Found(ProgramOf(kAverage)),
              ElementsAre("error: W401: op 0 (scale) reads w on the compute stream in the next "
                          "step, while op 2 (c_allreduce_sum) writes it on ring 0: nothing makes "
                          "the compute stream wait for ring 0 in between; insert c_wait_comm"));
}

TEST(Races, MainProgramFollowsTheStartupProgram) {
  Findings findings;
  const Program startup = ProgramOf(kAverage);
  CheckRaces(startup, {0, /*is_startup=*/true}, &findings);
  ASSERT_THAT(findings.all(), SizeIs(1));
  EXPECT_EQ(ToString(findings.all()[0]),
            "error: W401: startup program: op 2 (c_allreduce_sum) writes w on ring 0, and nothing "
            "waits for it before the program ends: the main program may use it on the compute "
            "stream before that; insert c_wait_comm at the end");
}

TEST(Races, BufferIsDistinguishedFromItsSlices) {
  const char* text = R"(
    var g, h : fp32[4]
    var buffer : fp32[8]
    Output=[g, h], FusedOutput=[buffer] = coalesce_tensor(Input=[g, h]) {dtype=5}
    Out=[g] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[h] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[buffer] = c_wait_compute(X=[buffer]) {ring_id=1}
    Out=[buffer] = c_allreduce_sum(X=[buffer]) {ring_id=1}
    Out=[h] = scale(X=[h])
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
)";
  EXPECT_THAT(
      Found(ProgramOf(text)),
      ElementsAre("error: W401: op 5 (scale) reads h on the compute stream, while op 4 "
                  "(c_allreduce_sum) writes memory of it on ring 1: nothing "
                  "makes the compute stream wait for ring 1 in between; insert c_wait_comm",
                  "error: W401: op 6 (c_allreduce_sum) reads g on ring 0, while op 4 "
                  "(c_allreduce_sum) writes memory of it on ring 1: nothing "
                  "makes ring 0 wait for ring 1 in between; insert c_wait_comm for ring 1 and "
                  "c_wait_compute for ring 0"));
}

TEST(Races, BlockThatMayBeSkippedIsMentioned) {
  const char* text = R"(
    var g : fp32[4]
    Out=[due] = fill_constant() {shape=longs[1], dtype=0, value=1.0}
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
    Out=[g] = conditional_block(Cond=[due], Input=[g]) {sub_block=block(1)}
    block 1:
    Out=[g] = scale(X=[g])
)";
  EXPECT_THAT(
      Found(ProgramOf(text)),
      ElementsAre("error: W401: block 1, op 0 (scale) reads g on the compute stream, while op 1 "
                  "(c_allreduce_sum) writes it on ring 0: nothing makes the compute stream wait "
                  "for ring 0 in between on every path; insert c_wait_comm"));
}

TEST(Races, W404NamesTheOpThatMovedTheSlice) {
  EXPECT_THAT(Found(ExampleOf("W404")),
              ElementsAre("error: W404: op 4 (scale) uses one, but op 3 "
                          "(coalesce_tensor) has moved its slice b elsewhere"));
  EXPECT_THAT(Found(ExampleOf("W404", {{"scale(X=[one])", "scale(X=[two])"},
                                       {"Out=[one] = scale", "Out=[two] = scale"}})),
              IsEmpty());
  EXPECT_THAT(Found(ExampleOf("W404", {{"Output=[a, b]", "Output=[a, a]"},
                                       {"scale(X=[one])", "scale(X=[two])"},
                                       {"Out=[one] = scale", "Out=[two] = scale"}})),
              ElementsAre("error: W404: op 2 (coalesce_tensor) output Output: expected variables "
                          "that differ from each other and from FusedOutput, found a in one "
                          "twice"));
}

TEST(Races, W405SaysWhoHasWaitedAlready) {
  EXPECT_THAT(Found(ExampleOf("W405")),
              ElementsAre("note: W405: op 2 (c_wait_compute) orders nothing: ring 0 already waits "
                          "for all that the compute stream was given"));
  EXPECT_THAT(
      Found(
          ExampleOf("W405", {{"c_wait_compute(X=[x]) {ring_id=0}", "c_sync_calc_stream(X=[x])"}})),
      ElementsAre("note: W405: op 2 (c_sync_calc_stream) orders nothing: the host has already "
                  "waited for all that the compute stream was given"));
}

TEST(Races, W406NamesTheRing) {
  EXPECT_THAT(
      Found(ExampleOf("W406")),
      ElementsAre("note: W406: op 2 (c_wait_comm): expected a ring with collectives that do "
                  "not set use_calc_stream, found ring 0, which has none: it orders "
                  "nothing"));
  EXPECT_THAT(
      Found(ExampleOf("W406", {{"use_calc_stream=true", "use_calc_stream=false"},
                               {"Out=[x] = c_allreduce_sum",
                                "Out=[x] = c_wait_compute(X=[x]) {ring_id=0}\n    Out=[x] = "
                                "c_allreduce_sum"}})),
      IsEmpty());
}

TEST(Races, W407NamesTheSecondOp) {
  EXPECT_THAT(Found(ExampleOf("W407")),
              ElementsAre("error: W407: op 3 (conditional_block): expected a separate block, "
                          "found one that another op runs too; its accesses there were not "
                          "analyzed"));
}

TEST(Races, W408NamesTheUnregisteredOp) {
  EXPECT_THAT(
      Found(ExampleOf("W408")),
      ElementsAre("warning: W408: op 0 (an_exchange_of_a_fork): the op is unregistered, "
                  "but names a ring: it is assumed to run on the compute stream, and may do "
                  "something else; if it does not communicate, pass option:assume "
                  "'an_exchange_of_a_fork: no_communication'"));
  EXPECT_THAT(
      Found(ExampleOf("W408", {{"ring_id=0", "ring_id=0, use_calc_stream=true"}})),
      ElementsAre("warning: W408: op 0 (an_exchange_of_a_fork): the op is unregistered, "
                  "but names a ring: what it exchanges with other ranks is not known; if it "
                  "does not communicate, pass option:assume 'an_exchange_of_a_fork: "
                  "no_communication'"));
}

TEST(Races, StartupProgramsOfPaddle3WithoutRingSetUpAreForCpus) {
  const auto found = [](const std::string& version) {
    const Program program = ProgramOf(absl::StrCat("program version=", version, R"( {
  block 0 parent=-1 {
    var w : fp32[2] persistable
    Out=[w] = fill_constant() {shape=longs[2], dtype=5, value=1.0}
    Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0}
  }
})"));
    Findings findings;
    CheckRaces(program, {0, /*is_startup=*/true}, &findings);
    return findings.all().size();
  };
  EXPECT_EQ(found("3003001"), 0u);
  EXPECT_GT(found("2006002"), 0u);
}

TEST(Races, NamesThatAreNotDeclaredAreSkipped) {
  EXPECT_THAT(Found(ExampleOf("W401", {{"    var w : fp32[4] parameter persistable\n", ""}})),
              SizeIs(1));
  EXPECT_THAT(Found(ExampleOf("W401", {{"    var w@GRAD : fp32[4]\n", ""}})), IsEmpty());
}

TEST(Races, NamesThatShareMemoryRace) {
  EXPECT_THAT(
      Found(
          ExampleOf("W402", {{"    var sum", "    var y : fp32[4]\n    var sum"},
                             {"    Out=[x] = c_wait_compute",
                              "    Out=[y] = share_data(X=[x])\n    Out=[x] = c_wait_compute"},
                             {"Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=2.0}",
                              "Out=[y] = fill_constant() {shape=longs[4], dtype=5, value=2.0}"}})),
      Contains(HasSubstr("W402: op 4 (fill_constant) writes memory of x on the compute stream")));
}

// The executor copies into the memory that the output of share_data had before.
TEST(Races, NamesThatShareMemoryKeepTheirOwn) {
  constexpr char kVars[] =
      "    var x : fp32[4]\n    var y : fp32[4] persistable\n"
      "    var c : bool[1] persistable\n    var kept : fp32[4] persistable\n";
  constexpr char kReduce[] =
      "    Out=[y] = c_wait_compute(X=[y]) {ring_id=0}\n"
      "    Out=[y] = c_allreduce_sum(X=[y]) {ring_id=0, use_calc_stream=false}\n";
  constexpr char kShare[] = "    Out=[y] = share_data(X=[x])\n";
  constexpr char kRead[] = "    Out=[kept] = assign(X=[y])\n";
  const auto found = [&](const std::string& ops) {
    return Found(ProgramOf(absl::StrCat(kVars, ops)));
  };
  EXPECT_THAT(found(absl::StrCat(kShare, kReduce, kShare, kRead)),
              Contains(HasSubstr("W403: op 3 (share_data) writes y on the compute stream")));
  EXPECT_THAT(found(absl::StrCat(kReduce,
                                 "    conditional_block(Cond=[c]) {sub_block=block(1), "
                                 "is_scalar_condition=true}\n",
                                 kRead,
                                 "    block 1:\n    Out=[y] = c_wait_comm(X=[y]) {ring_id=0}\n"
                                 "    Out=[y] = share_data(X=[x])\n")),
              Contains(HasSubstr("W401: op 3 (assign) reads y on the compute stream")));
  EXPECT_THAT(found(absl::StrCat(kRead, "    Out=[x] = scale(X=[kept])\n", kShare, kReduce)),
              Contains(HasSubstr("W401: op 0 (assign) reads y on the compute stream in the next")));
}

TEST(Races, W413NamesWhatSharesWhatWritesAndWhatReads) {
  EXPECT_THAT(
      Found(ExampleOf("W413")),
      ElementsAre("error: W413: op 1 (clip) writes memory that shared shares by op 0 (view_shape), "
                  "and op 2 (assign) reads shared afterwards: expected the read before the write; "
                  "in Paddle shared has what is written, in Weft what it had before"));
}

TEST(Races, MoreThanAreKeptAreCounted) {
  std::string text;
  for (int i = 0; i < 30; ++i) absl::StrAppend(&text, "    var g", i, " : fp32[4]\n");
  for (int i = 0; i < 30; ++i) {
    absl::StrAppend(&text, "    Out=[g", i, "] = c_allreduce_sum(X=[g", i, "]) {ring_id=0}\n");
    absl::StrAppend(&text, "    Out=[g", i, "] = scale(X=[g", i, "])\n");
  }
  Findings findings;
  CheckRaces(ProgramOf(text), ProgramRef(), &findings);
  EXPECT_THAT(findings.all(), SizeIs(Findings::kMaxPerRule));
  EXPECT_EQ(findings.NumOmitted("W401"), 10);
}

}  // namespace
}  // namespace weft::testing
