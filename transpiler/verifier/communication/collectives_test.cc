#include "transpiler/verifier/communication/collectives.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kVars[] =
    "    var a : fp32[4] persistable\n    var b : fp32[8] persistable\n"
    "    var flag : bool[1] persistable\n    var id : raw\n"
    "    var rows : selected_rows<fp32[-1, 1]> persistable\n";

// For 2 ranks; of a main program, after a startup program.
std::vector<std::string> Check(const std::string& ops, const std::string& startup_ops) {
  const Program program = ProgramOf(absl::StrCat(kVars, ops));
  const Program startup = ProgramOf(absl::StrCat(kVars, startup_ops));
  Findings findings;
  CheckCollectives(program, &startup, 2, ProgramRef(), &findings);
  return testing::Lines(findings);
}

std::vector<std::string> Check(const std::string& ops, absl::optional<int> nranks = 2) {
  const Program program = ProgramOf(absl::StrCat(kVars, ops));
  Findings findings;
  CheckCollectives(program, nullptr, nranks, ProgramRef(), &findings);
  return testing::Lines(findings);
}

TEST(Collectives, RingsAreSetUpByTheStartupProgram) {
  const std::string reduce = "    Out=[a] = c_allreduce_sum(X=[a]) {ring_id=1}\n";
  EXPECT_THAT(Check(reduce, "    c_comm_init_all() {ring_id=1}\n"), IsEmpty());
  EXPECT_THAT(Check(reduce, "    c_comm_init_all() {ring_id=0}\n"),
              ElementsAre("error: W301: op 0 (c_allreduce_sum): uses ring 1, which no op of the "
                          "startup program sets up; expected c_comm_init, c_comm_init_all or "
                          "comm_init_all with ring_id 1"));
  EXPECT_THAT(Check(reduce), IsEmpty());  // no startup program: rings count as set up
}

TEST(Collectives, RingsWithoutStreamsMayBeSetUpByTheProcess) {
  const std::string reduce =
      "    Out=[a] = c_allreduce_sum(X=[a]) {ring_id=1, use_calc_stream=true}\n";
  EXPECT_THAT(Check(reduce, ""), IsEmpty());
  EXPECT_THAT(Check(reduce, "    c_comm_init_all() {ring_id=0}\n"),
              ElementsAre(HasSubstr("uses ring 1, which no op")));
  EXPECT_THAT(Check(reduce + "    Out=[a] = c_wait_comm(X=[a]) {ring_id=1}\n", ""),
              ::testing::Contains(HasSubstr("uses ring 1, which no op")));
}

TEST(Collectives, RingsOfPaddle3MayBeSetUpByTheProcess) {
  pb::ProgramDesc desc =
      ProgramOf(absl::StrCat(kVars, "    out=[a] = all_reduce(x=[a]) {ring_id=1}\n")).ToProto();
  desc.mutable_version()->set_version(3003001);
  const Program program = *Program::FromProto(desc), startup = ProgramOf(kVars);
  Findings findings;
  CheckCollectives(program, &startup, 2, ProgramRef(), &findings);
  EXPECT_THAT(testing::Lines(findings), IsEmpty());
}

TEST(Collectives, OtherOpsThatCommunicateNeedTheirRing) {
  const std::string norm = "    Y=[b] = sync_batch_norm(X=[b])\n";
  EXPECT_THAT(Check(norm, "    c_comm_init_all() {ring_id=0}\n"), IsEmpty());
  EXPECT_THAT(Check(norm, ""),
              ElementsAre(HasSubstr("error: W301: op 0 (sync_batch_norm): uses ring 0")));
  EXPECT_THAT(Check("    barrier(X=[a]) {ring_id=2}\n", ""),
              ElementsAre(HasSubstr("error: W301: op 0 (barrier): uses ring 2")));
  // One rank needs none.
  const Program program = ProgramOf(absl::StrCat(kVars, norm)), startup = ProgramOf(kVars);
  for (absl::optional<int> nranks : {absl::optional<int>(), absl::optional<int>(1)}) {
    Findings findings;
    CheckCollectives(program, &startup, nranks, ProgramRef(), &findings);
    EXPECT_THAT(testing::Lines(findings), IsEmpty());
  }
}

TEST(Collectives, PeersAreRanks) {
  const std::string ring = "    c_comm_init_all() {ring_id=0}\n";
  EXPECT_THAT(Check("    send_v2(X=[a]) {ring_id=0, peer=1}\n", ring), IsEmpty());
  EXPECT_THAT(
      Check("    send_v2(X=[a]) {ring_id=0, peer=2}\n", ring),
      ElementsAre(HasSubstr("error: W303: op 0 (send_v2) attribute peer: expected a rank, 0 "
                            "or more and below 2, found 2")));
  EXPECT_THAT(Check("    Out=[a] = recv_v2() {ring_id=0, peer=-1}\n", ring),
              ElementsAre(HasSubstr("error: W303: op 0 (recv_v2) attribute peer: ")));
}

TEST(Collectives, SynchronizationNeedsItsRing) {
  EXPECT_THAT(Check("    Out=[a] = c_wait_comm(X=[a]) {ring_id=1}\n", ""),
              ElementsAre(HasSubstr("error: W301: op 0 (c_wait_comm): uses ring 1")));
  EXPECT_THAT(Check("    Out=[a] = c_sync_calc_stream(X=[a])\n", ""), IsEmpty());
}

TEST(Collectives, StartupProgramSetsRingsUpBeforeItUsesThem) {
  const std::string init = "    c_comm_init_all() {ring_id=0}\n";
  const std::string use = "    Out=[a] = c_broadcast(X=[a]) {ring_id=0, root=0}\n";
  const auto check = [](const std::string& ops) {
    Findings findings;
    CheckCollectives(ProgramOf(absl::StrCat(kVars, ops)), nullptr, 2, {0, /*is_startup=*/true},
                     &findings);
    return testing::Lines(findings);
  };
  EXPECT_THAT(check(init + use), IsEmpty());
  EXPECT_THAT(check(use + init), ElementsAre(HasSubstr("error: W301: startup program: op 0")));
}

TEST(Collectives, NumberOfRanksIsThatOfTheRun) {
  const std::string gather = "    Out=[b] = c_allgather(X=[a]) {nranks=2, ring_id=0}\n";
  EXPECT_THAT(Check(gather), IsEmpty());
  EXPECT_THAT(Check(gather, absl::nullopt), IsEmpty());
  EXPECT_THAT(
      Check(gather, 4),
      ElementsAre("error: W302: op 0 (c_allgather) attribute nranks: expected 4, the number "
                  "of ranks, found 2"));
}

TEST(Collectives, AnUnknownOpMayBeAloneInItsGroup) {
  const std::string sample = "    Out=[b] = class_center_sample(Label=[a]) {nranks=1}\n";
  EXPECT_THAT(Check(sample), IsEmpty());
  EXPECT_THAT(Check("    Out=[b] = class_center_sample(Label=[a]) {nranks=4}\n"),
              ElementsAre(HasSubstr("W302")));
}

TEST(Collectives, RootAndJoiningRankAreInRange) {
  const auto broadcast = [](int root) {
    return absl::StrCat("    Out=[a] = c_broadcast(X=[a]) {ring_id=0, root=", root, "}\n");
  };
  EXPECT_THAT(Check(broadcast(1)), IsEmpty());
  EXPECT_THAT(Check(broadcast(2)),
              ElementsAre("error: W303: op 0 (c_broadcast) attribute root: expected a rank, 0 or "
                          "more and below 2, found 2"));
  EXPECT_THAT(Check(broadcast(2), absl::nullopt), IsEmpty());
  EXPECT_THAT(Check(broadcast(-1), absl::nullopt),
              ElementsAre(HasSubstr("expected a rank, 0 or more, found -1")));
  EXPECT_THAT(Check("    c_comm_init(X=[id]) {nranks=2, rank=2, ring_id=0}\n"),
              ElementsAre("error: W303: op 0 (c_comm_init) attribute rank: expected 0 or more and "
                          "below 2, found 2"));
}

TEST(Collectives, ReductionsTakeNumbersAndSumsTakeRows) {
  EXPECT_THAT(Check("    Out=[flag] = c_allreduce_max(X=[flag]) {ring_id=0}\n"),
              ElementsAre("error: W304: op 0 (c_allreduce_max) input X (flag): expected an element "
                          "type that can be reduced, found bool"));
  EXPECT_THAT(Check("    Out=[flag] = c_broadcast(X=[flag]) {ring_id=0, root=0}\n"), IsEmpty());
  EXPECT_THAT(Check("    Out=[rows] = c_allreduce_sum(X=[rows]) {ring_id=0}\n"), IsEmpty());
  EXPECT_THAT(Check("    Out=[rows] = c_allreduce_max(X=[rows]) {ring_id=0}\n"),
              ElementsAre(HasSubstr("error: W306: op 0 (c_allreduce_max) input X (rows): expected "
                                    "a dense tensor, found SelectedRows")));
}

TEST(Collectives, ThoseThatChangeTheShapeAreNotInPlace) {
  EXPECT_THAT(Check("    Out=[a] = c_allgather(X=[a]) {nranks=2, ring_id=0}\n"),
              ElementsAre("error: W305: op 0 (c_allgather) output Out: expected another variable "
                          "than X (a), as it has another shape"));
}

}  // namespace
}  // namespace weft::testing
