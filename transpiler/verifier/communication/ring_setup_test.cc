#include "transpiler/verifier/communication/ring_setup.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
using ::testing::StartsWith;

// An op that makes an id, at the first of the endpoints.
std::string Make(int rank, const std::vector<std::string>& endpoints, int ring = 0) {
  const std::vector<std::string> others(endpoints.begin() + 1, endpoints.end());
  return absl::StrCat(
      "    Out=[id", ring, "] = c_gen_nccl_id() {endpoint=\"", endpoints[0],
      "\", other_endpoints=strings[",
      others.empty() ? "" : absl::StrCat("\"", absl::StrJoin(others, "\", \""), "\""),
      "], rank=", rank, ", ring_id=", ring, "}\n");
}

std::string Join(int rank, int ring = 0, int id = -1) {
  return absl::StrCat("    c_comm_init(X=[id", id < 0 ? ring : id, "]) {nranks=2, rank=", rank,
                      ", ring_id=", ring, "}\n");
}

// Of rank 0 or 1 of a ring over a:1 and b:1.
std::string Ring(int rank, int ring = 0) {
  const std::string own = rank == 0 ? "a:1" : "b:1", other = rank == 0 ? "b:1" : "a:1";
  return absl::StrCat(Make(rank, {own, other}, ring), Join(rank, ring));
}

Program Startup(const std::string& ops) {
  return ProgramOf(absl::StrCat("    var id0, id1 : raw\n", ops));
}

// --- One program ---------------------------------------------------------------------------------

std::vector<std::string> Check(const std::string& ops) {
  Findings findings;
  CheckRingSetup(Startup(ops), {0, /*is_startup=*/true}, &findings);
  return Lines(findings);
}

TEST(RingSetup, OneIdForEachRing) {
  EXPECT_THAT(Check(Ring(0, 0) + Ring(0, 1)), IsEmpty());
  EXPECT_THAT(Check(Ring(1, 0) + Ring(1, 1)), IsEmpty());
  EXPECT_THAT(Check(Make(0, {"a:1", "b:1"}) + Join(0, 0, 1)),
              ElementsAre("error: W307: startup program: op 1 (c_comm_init): joins ring 0 by id "
                          "id1, which no earlier op makes"));
  EXPECT_THAT(Check(Join(0) + Make(0, {"a:1", "b:1"})), ElementsAre(HasSubstr("no earlier op")));
  EXPECT_THAT(Check(Ring(0) + Join(0, 1, 0)),
              ElementsAre(HasSubstr("joins ring 1 by id id0, by which op 1 (c_comm_init) has "
                                    "joined ring 0")));
}

TEST(RingSetup, RingIsMadeAnewOverTheSameRanksOnly) {
  EXPECT_THAT(Check(Ring(0) + Ring(0)), IsEmpty());
  EXPECT_THAT(Check(Ring(0) + Make(0, {"a:1", "c:1"}) + Join(0)),
              ElementsAre(HasSubstr("joins ring 0, which op 1 (c_comm_init) has joined already")));
  EXPECT_THAT(Check(Ring(0) + Join(0)),
              Contains(HasSubstr("joins ring 0, which op 1 (c_comm_init) has joined already")));
}

TEST(RingSetup, IdOfAnUnregisteredOpIsNotKnown) {
  EXPECT_THAT(Check("    Out=[id0] = gen_nccl_id()\n" + Join(1)), IsEmpty());
}

TEST(RingSetup, RingsOfOneProcessNeedNoId) {
  EXPECT_THAT(Check("    c_comm_init_all() {ring_id=0}\n    c_comm_init_all() {ring_id=1}\n"),
              IsEmpty());
}

TEST(RingSetup, AProcessHasOneRank) {
  EXPECT_THAT(Check(Make(0, {"b:1", "a:1"}) + Join(1)),
              ElementsAre(HasSubstr("joins ring 0 as rank 1, but op 0 (c_gen_nccl_id) makes its id "
                                    "as rank 0")));
  EXPECT_THAT(Check(Ring(0, 0) + Ring(1, 1)),
              ElementsAre(HasSubstr("joins ring 1 as rank 1, but ring 0 as rank 0")));
  EXPECT_THAT(Check(Make(1, {"b:1", "a:1"}) +
                    "    c_comm_init_multitrainer(X=[id0]) {ntrainers=2, trainer_id=0}\n"),
              ElementsAre(HasSubstr("as rank 0, but op 0 (c_gen_nccl_id) makes its id as rank 1")));
}

TEST(RingSetup, EndpointsAreAsManyAsRanks) {
  EXPECT_THAT(Check(Make(0, {"a:1", "b:1", "c:1"}) + Join(0)),
              ElementsAre(HasSubstr("joins ring 0 of 2, but op 0 (c_gen_nccl_id) makes its id for "
                                    "3 endpoints")));
  // Only rank 0 needs the others.
  EXPECT_THAT(Check(Make(1, {"b:1"}) + Join(1)), IsEmpty());
  EXPECT_THAT(Check(Make(0, {"a:1"}) + Join(0)), ElementsAre(HasSubstr("for 1 endpoints")));
  EXPECT_THAT(Check(Make(0, {"a:1", "a:1"}) + Join(0)),
              ElementsAre(HasSubstr("expected endpoints that differ, found a:1")));
}

// --- All ranks -----------------------------------------------------------------------------------

std::vector<std::string> CheckAll(const std::vector<std::string>& ops) {
  const Program main = ProgramOf(TwoRankStep());
  std::vector<Program> startups;
  std::vector<ConstProgramPair> ranks;
  startups.reserve(ops.size());
  for (const std::string& of_rank : ops) {
    startups.push_back(Startup(of_rank));
    ranks.push_back({&main, &startups.back()});
  }
  return Lines(Verify(ranks), /*one_program_for_all=*/false);
}

TEST(RingSetup, RanksJoinInRankOrder) {
  EXPECT_THAT(CheckAll({Ring(0), Ring(1)}), IsEmpty());
  EXPECT_THAT(CheckAll({Ring(0), Make(0, {"b:1", "a:1"}) + Join(0)}),
              ElementsAre(StartsWith("error: W507: rank 1: startup program: op 1 (c_comm_init)")));
  EXPECT_THAT(CheckAll({Ring(1), Ring(0)}),
              ElementsAre(HasSubstr("W509: rank 0: startup program: op 1 (c_comm_init): joins ring "
                                    "0 as rank 1: expected rank 0"),
                          HasSubstr("W509: rank 1")));
}

TEST(RingSetup, RanksNameTheSameEndpoints) {
  const auto found_in = [](const std::vector<std::string>& endpoints) {
    return CheckAll({Ring(0), Make(1, endpoints) + Join(1)});
  };
  EXPECT_THAT(found_in({"b:1"}), IsEmpty());
  EXPECT_THAT(found_in({"c:1", "a:1"}),
              ElementsAre(AllOf(HasSubstr("W509"), HasSubstr("op 0 (c_gen_nccl_id): waits at "
                                                             "endpoint c:1, but rank 0 names {a:1, "
                                                             "b:1}"))));
  EXPECT_THAT(found_in({"a:1", "b:1"}), ElementsAre(HasSubstr("as an earlier rank does")));
  EXPECT_THAT(found_in({"b:1", "c:1"}),
              ElementsAre(HasSubstr("expected endpoints {a:1, b:1}, as rank 0 names, found {b:1, "
                                    "c:1}")));
}

TEST(RingSetup, RanksSetRingsUpInOneOrder) {
  EXPECT_THAT(CheckAll({Ring(0, 0) + Ring(0, 1), Ring(1, 0) + Ring(1, 1)}), IsEmpty());
  EXPECT_THAT(CheckAll({Ring(0, 0) + Ring(0, 1), Ring(1, 1) + Ring(1, 0)}),
              ElementsAre(HasSubstr("W502")));
  EXPECT_THAT(CheckAll({Ring(0, 0) + Ring(0, 1), Ring(1, 0)}), Contains(HasSubstr("W501")));
  // Each joins both rings, by the ids of the other.
  const std::string both = Make(0, {"a:1", "b:1"}, 0) + Make(0, {"a:2", "b:2"}, 1);
  const std::string both1 = Make(1, {"b:1", "a:1"}, 0) + Make(1, {"b:2", "a:2"}, 1);
  EXPECT_THAT(CheckAll({both + Join(0, 0) + Join(0, 1), both1 + Join(1, 0) + Join(1, 1)}),
              IsEmpty());
  EXPECT_THAT(CheckAll({both + Join(0, 0) + Join(0, 1), both1 + Join(1, 0, 1) + Join(1, 1, 0)}),
              Contains(AllOf(HasSubstr("W501"), HasSubstr("by id 0 of ring 1"))));
}

}  // namespace
}  // namespace weft::testing
