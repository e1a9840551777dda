#include "ops/analysis/core/stale_copies.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kVars[] = R"(
    var g : fp32[2]
    var h : fp32[2]
    var s : fp32[2] persistable
    var kept : fp32[2] persistable
    var fused : fp32[2]
    var yes : bool[1]
)";
constexpr char kShare[] = "Out=[h] = share_data(X=[g])\n";
constexpr char kClip[] = "Out=[g] = clip(X=[g]) {min=-1.0, max=1.0}\n";
constexpr char kRead[] = "Out=[s] = assign(X=[h])\n";

// "h of 0: 1, 2", the name, and what shares, writes and reads.
std::vector<std::string> Stale(const std::string& ops, const std::string& more_blocks = "") {
  const Program program = testing::BlockProgram(absl::StrCat(kVars, ops), more_blocks);
  std::vector<std::string> texts;
  for (const StaleCopy& copy : FindStaleCopies(program)) {
    const auto position = [&](OpId id) {
      return id.valid() ? absl::StrCat(program.op(id).position()) : "end";
    };
    texts.push_back(absl::StrCat(program.name(copy.name), " of ", position(copy.shares), ": ",
                                 position(copy.writes), ", ", position(copy.reads)));
  }
  return texts;
}

TEST(FindStaleCopies, ReadAfterAWriteUnderTheOtherNameIsFound) {
  EXPECT_THAT(Stale(absl::StrCat(kShare, kRead, kClip)), IsEmpty());
  EXPECT_THAT(Stale(absl::StrCat(kShare, kClip, kRead)), ElementsAre("h of 0: 1, 2"));
  EXPECT_THAT(Stale(absl::StrCat(kClip, kShare, kRead)), IsEmpty());
  constexpr char kSync[] = "Out=[g] = c_sync_calc_stream(X=[g])\n";
  EXPECT_THAT(Stale(absl::StrCat(kShare, kSync, kRead)), IsEmpty()) << "touches no data";
}

TEST(FindStaleCopies, BothNamesAreTheMemory) {
  EXPECT_THAT(Stale(absl::StrCat(kShare, "Out=[h] = relu(X=[h])\n", "Out=[s] = assign(X=[g])\n")),
              ElementsAre("g of 0: 1, 2"));
  EXPECT_THAT(Stale(absl::StrCat(kShare, kClip, kShare, kRead)), IsEmpty()) << "shared again";
}

TEST(FindStaleCopies, OneWriteIsReportedOnceForAName) {
  EXPECT_THAT(Stale(absl::StrCat(kShare, kClip, kRead, kRead)), ElementsAre("h of 0: 1, 2"));
}

TEST(FindStaleCopies, WhatIsKeptForTheNextStepIsRead) {
  EXPECT_THAT(Stale(absl::StrCat("Out=[kept] = share_data(X=[g])\n", kClip)),
              ElementsAre("kept of 0: 1, end"));
}

TEST(FindStaleCopies, WriteToTheBufferIsOneToItsParts) {
  EXPECT_THAT(Stale(absl::StrCat("Output=[g], FusedOutput=[fused] = coalesce_tensor(Input=[g]) "
                                 "{copy_data=true, dtype=5}\n",
                                 kShare, "Out=[fused] = scale(X=[fused]) {scale=0.5}\n", kRead)),
              ElementsAre("h of 1: 2, 3"));
}

TEST(FindStaleCopies, BlocksReadAndWrite) {
  constexpr char kBranch[] =
      "Out=[g] = conditional_block(Cond=[yes], Input=[g]) {sub_block=block(1)}\n";
  EXPECT_THAT(Stale(absl::StrCat(kShare, kBranch, kRead),
                    "  block 1 parent=0 {\n    Out=[g] = scale(X=[g]) {scale=0.5}\n  }\n"),
              ElementsAre("h of 0: 0, 2"));
}

TEST(FindStaleCopies, BlockRunsInItsPlace) {
  constexpr char kBranch[] =
      "Out=[g] = conditional_block(Cond=[yes], Input=[g, h]) {sub_block=block(1)}\n";
  const auto block = [](const std::string& ops) {
    return absl::StrCat("  block 1 parent=0 {\n", ops, "  }\n");
  };
  EXPECT_THAT(Stale(absl::StrCat(kShare, kBranch), block(absl::StrCat(kClip, kRead))),
              ElementsAre("h of 0: 0, 1"));
  EXPECT_THAT(Stale(absl::StrCat(kShare, kBranch), block(absl::StrCat(kRead, kClip))), IsEmpty());
  constexpr char kShares[] = "conditional_block(Cond=[yes]) {sub_block=block(1)}\n";
  EXPECT_THAT(Stale(absl::StrCat(kShares, kClip, kRead), block(kShare)),
              ElementsAre("h of 0: 1, 2"));
  EXPECT_THAT(Stale(absl::StrCat(kShare, kClip, kShares, kRead), block(kShare)),
              ElementsAre("h of 0: 1, 3"))
      << "the block may not run";
}

TEST(FindStaleCopies, LoopRunsAgain) {
  EXPECT_THAT(Stale(absl::StrCat(kShare,
                                 "Out=[g] = while(Condition=[yes], X=[g, h]) "
                                 "{sub_block=block(1)}\n"),
                    absl::StrCat("  block 1 parent=0 {\n", kRead, kClip, "  }\n")),
              ElementsAre("h of 0: 1, 0"));
}

TEST(FindStaleCopies, PersistableVariablesShareInTheNextStep) {
  EXPECT_THAT(Stale("Out=[s] = relu(X=[s])\n"
                    "Out=[g] = assign(X=[kept])\n"
                    "Out=[kept] = share_data(X=[s])\n"),
              ElementsAre("kept of 2: 0, 1"));
  EXPECT_THAT(Stale(absl::StrCat(kRead, kClip, kShare)), IsEmpty()) << "others in the next step";
}

TEST(FindStaleCopies, PartsOfABufferAreSeparate) {
  constexpr char kFuse[] =
      "Output=[g, s], FusedOutput=[fused] = coalesce_tensor(Input=[g, s]) "
      "{set_constant=true, constant=1.0, dtype=5}\n";
  EXPECT_THAT(
      Stale(absl::StrCat(kFuse, kShare, "Out=[s] = relu(X=[s])\n", "Out=[kept] = assign(X=[h])\n")),
      IsEmpty());
  EXPECT_THAT(Stale(absl::StrCat(kFuse, kShare, "Out=[h] = relu(X=[h])\n",
                                 "Out=[s] = assign(X=[kept])\n", "Out=[kept] = assign(X=[g])\n")),
              ElementsAre("g of 1: 2, 4"));
}

TEST(FindStaleCopies, OpsThatShareMemoryAreAlike) {
  for (const char* share : {"Out=[h] = print(In=[g])\n", "Out=[h] = share_buffer(X=[g])\n",
                            "out=[h] = view_shape(input=[g]) {dims=longs[2]}\n",
                            "out=[h] = view_dtype(input=[g]) {dtype=5}\n",
                            "out=[h] = as_strided(input=[g]) {dims=longs[2], stride=longs[1]}\n"}) {
    EXPECT_THAT(Stale(absl::StrCat(share, kRead, kClip)), IsEmpty()) << share;
    EXPECT_THAT(Stale(absl::StrCat(share, kClip, kRead)), ElementsAre("h of 0: 1, 2")) << share;
  }
  EXPECT_THAT(Stale(absl::StrCat("Out=[h] = assign(X=[g])\n", kClip, kRead)), IsEmpty());
}

TEST(FindStaleCopies, OneOpMayShareTheMemoryOfSeveral) {
  EXPECT_THAT(Stale(absl::StrCat("Out=[h, kept] = share_buffer(X=[g, s])\n", kClip,
                                 "Out=[s] = assign(X=[h])\n")),
              ElementsAre("h of 0: 1, 2", "kept of 0: 2, end"));
}

}  // namespace
}  // namespace weft
