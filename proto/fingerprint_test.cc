#include "proto/fingerprint.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft {
namespace {

using ::testing::MatchesRegex;
using ::weft::testing::ProgramBuilder;

// The same program, once with an op too many.
ProgramBuilder Example() {
  ProgramBuilder builder;
  builder.Param("w").Op("mul", {{"Y", {"w"}}}, {{"Out", {"y"}}});
  return builder;
}

TEST(FingerprintTest, EqualBytesGiveEqualFingerprints) {
  EXPECT_EQ(Fingerprint(Example().Build()), Fingerprint(Example().Build()));
}

TEST(FingerprintTest, IsTheSameOnEveryMachine) {
  // XXH3-64 of a program of one empty block: bytes 0a 0d 08 00 10 ff*9 01.
  pb::ProgramDesc desc;
  desc.add_blocks()->set_idx(0);
  desc.mutable_blocks(0)->set_parent_idx(-1);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::FromProto(desc));
  EXPECT_EQ(FingerprintString(program), "0affd987e07daca0");
}

TEST(FingerprintTest, EveryChangeOfBytesChangesIt) {
  const uint64_t before = Fingerprint(Example().Build());
  EXPECT_NE(Fingerprint(Example().IntAttr("axis", 1).Build()), before);
  EXPECT_NE(Fingerprint(Example().Var("unused").Build()), before);
}

TEST(FingerprintTest, RewrittenProgramHasThatOfItsBytes) {
  Program program = Example().Build();
  Rewriter rewriter(&program);
  rewriter.Append(0, ProgramBuilder().Op("relu", {}, {}).last_op());
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, Program::Parse(program.Serialize()));
  EXPECT_EQ(Fingerprint(program), Fingerprint(again));
  EXPECT_NE(Fingerprint(program), Fingerprint(Example().Build()));
}

TEST(FingerprintTest, TextIsSixteenDigits) {
  EXPECT_THAT(FingerprintString(Example().Build()), MatchesRegex("[0-9a-f]{16}"));
}

}  // namespace
}  // namespace weft
