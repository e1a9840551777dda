#include "transpiler/verifier/verify.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"
#include "transpiler/verifier/testing/whole_programs.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// A program whose learning rate nothing declares. The compact form would declare it.
Program WithoutRate() {
  const std::string text = ProgramText(ProgramOf(OneDeviceStep()));
  return ProgramOf(text, {{"    var lr : fp32[1] persistable\n", ""}});
}

TEST(Verify, LayersThatRestOnStructureAreSilentWhereItIsWrong) {
  const Program program = WithoutRate();
  EXPECT_THAT(Lines(Verify({{&program}}, ForRanks(2))),
              ElementsAre(StartsWith("error: W101: op 2 (sgd) input LearningRate")));
}

TEST(Verify, OnlyLayersThatAreAskedForRun) {
  const Program program = ProgramOf(OneDeviceStep());
  VerifyOptions options = ForRanks(2);
  EXPECT_THAT(Lines(Verify({{&program}}, options)), ElementsAre(StartsWith("error: W310")));
  options.layers = {Layer::kStructure, Layer::kTypes, Layer::kRaces};
  EXPECT_THAT(Lines(Verify({{&program}}, options)), IsEmpty());
}

TEST(Verify, AProgramThatSendsIsForRanks) {
  // Without a number of ranks, one that does not communicate is for one device.
  const Program alone = ProgramOf(OneDeviceStep());
  EXPECT_THAT(Lines(Verify({{&alone}})), IsEmpty());
  const Program sends = ProgramOf(
      OneDeviceStep("", "    send_v2(X=[w]) {ring_id=0, peer=1, use_calc_stream=true}\n"));
  EXPECT_THAT(Lines(Verify({{&sends}})),
              UnorderedElementsAre(StartsWith("error: W310"), StartsWith("error: W508")));
}

TEST(Verify, OneThreadFindsWhatTwoFind) {
  const Program program = ProgramOf(OneDeviceStep());
  VerifyOptions options = ForRanks(2);
  options.threads = 1;
  EXPECT_THAT(Lines(Verify({{&program}}, options)), ElementsAre(StartsWith("error: W310")));
}

TEST(Verify, FindingsOfRanksNameThem) {
  const Program right = ProgramOf(TwoRankStep()), wrong = ProgramOf(OneDeviceStep());
  const Findings findings = Verify({{&right}, {&wrong}});
  EXPECT_THAT(Lines(findings, /*one_program_for_all=*/false), Each(HasSubstr(": rank 1: ")));
  EXPECT_THAT(Lines(findings), Contains(StartsWith("error: W310")));
}

TEST(Verify, RanksThatShareAProgramGetWhatThoseWithCopiesGet) {
  const Program right = ProgramOf(TwoRankStep()), wrong = ProgramOf(OneDeviceStep());
  const Program first = wrong, second = wrong, third = right;
  for (const Program* shared : {&right, &wrong}) {
    const Findings found = Verify({{shared}, {&wrong}, {shared}, {&wrong}});
    const Program copy = *shared;
    const Findings of_copies = Verify({{shared}, {&first}, {&copy}, {&second}});
    EXPECT_EQ(Lines(found, /*one_program_for_all=*/false),
              Lines(of_copies, /*one_program_for_all=*/false));
    for (const char* rule : {"W310", "W504", "W701"}) {
      EXPECT_EQ(found.NumOmitted(rule), of_copies.NumOmitted(rule));
    }
  }
  EXPECT_EQ(Lines(Verify({{&right}, {&right}}), /*one_program_for_all=*/false),
            Lines(Verify({{&right}, {&third}}), /*one_program_for_all=*/false));
}

// The rank that gives the value has none.
TEST(Verify, RanksThatShareAProgramDoNotAllReceive) {
  const Program program =
      ProgramOf(OneDeviceStep("",
                              "    Out=[n] = empty() {shape=longs[1], dtype=5}\n"
                              "    Out=[n] = c_broadcast(X=[n]) {root=1, use_calc_stream=true}\n"
                              "    Out=[m] = relu(X=[n])\n"));
  VerifyOptions options = ForRanks(2);
  options.layers = {Layer::kStructure};
  EXPECT_THAT(Lines(Verify({{&program}, {&program}}, options)), Each(HasSubstr("W106")));
  EXPECT_THAT(Lines(Verify({{&program}, {&program}}, options)), Not(IsEmpty()));
}

TEST(Verify, RanksThatShareAStartupProgramGetWhatThoseWithCopiesGet) {
  const Program main = ProgramOf(TwoRankStep()), startup = ProgramOf(OneDeviceStep());
  const Program main_copy = main, startup_copy = startup;
  const Findings found = Verify({{&main, &startup}, {&main, &startup}});
  EXPECT_THAT(found.all(), Not(IsEmpty()));
  EXPECT_EQ(Lines(found, /*one_program_for_all=*/false),
            Lines(Verify({{&main, &startup}, {&main_copy, &startup_copy}}),
                  /*one_program_for_all=*/false));
}

TEST(Verify, RanksThatShareAProgramGetTheFindingsOfTheirGroups) {
  const Program wrong = ProgramOf(OneDeviceStep());
  const Program copies[] = {wrong, wrong, wrong};
  VerifyOptions options = ForRanks(3);
  options.setting.groups["w"] = {1, 2};
  const auto found = Lines(Verify({{&wrong}, {&wrong}, {&wrong}}, options), false);
  EXPECT_THAT(found, Contains(HasSubstr("rank 1: for ranks 1, 2: ")));
  EXPECT_EQ(found, Lines(Verify({{&copies[0]}, {&copies[1]}, {&copies[2]}}, options), false));
}

// Nothing is compared with it.
TEST(Verify, OriginalOfAWrongStructureIsReported) {
  const Program original = WithoutRate();
  const Program program = ProgramOf(TwoRankStep(), {{"scale=0.5", "scale=0.25"}});
  VerifyOptions options = ForRanks(2);
  options.original.main = &original;
  const auto found = Lines(Verify({{&program}}, options));
  EXPECT_THAT(found, Contains(StartsWith("error: W611: the original: W101: op 2 (sgd)")));
  EXPECT_THAT(found, Not(Contains(HasSubstr("W601"))));
  options.original.main = &program;
  EXPECT_THAT(Lines(Verify({{&original}}, options)), Each(HasSubstr("W101")));
}

TEST(Verify, OmittedFindingsOfASharedProgramCount) {
  const Program wrong = ProgramOf(OneDeviceStep());
  const std::vector<ConstProgramPair> ranks(Findings::kMaxPerRule + 5, {&wrong});
  EXPECT_EQ(Verify(ranks, ForRanks(static_cast<int>(ranks.size()))).NumOmitted("W310"), 5);
}

TEST(Verify, WholeProgramsAreComparedWithTheSameResult) {
  const Program original = ProgramOf(OneDeviceStep());
  VerifyOptions options = ForRanks(2);
  options.original.main = &original;
  for (const char* scale : {"scale=0.5", "scale=0.25"}) {
    const Program program = ProgramOf(TwoRankStep(), {{"scale=0.5", scale}});
    EXPECT_EQ(Lines(Verify({{&program}}, options)),
              Lines(VerifyWholePrograms({{&program}}, options)));
  }
}

TEST(Verify, TheRoleOfADivisionDoesNotMatter) {
  const Program original = ProgramOf(OneDeviceStep());
  VerifyOptions options = ForRanks(2);
  options.original.main = &original;
  const Program program = ProgramOf(
      TwoRankStep(), {{"role=backward {scale=0.5, nranks=2}", "role=optimize {scale=0.5}"}});
  EXPECT_THAT(Lines(Verify({{&program}}, options)), IsEmpty());
  EXPECT_THAT(Lines(VerifyWholePrograms({{&program}}, options)), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
