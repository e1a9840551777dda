#include "ops/analysis/core/shared_writes.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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
// Weft does not know of a view what a write to its memory makes of it.
constexpr char kView[] = "out=[h] = view_shape(input=[g]) {dims=longs[2]}\n";
constexpr char kClip[] = "Out=[g] = clip(X=[g]) {min=-1.0, max=1.0}\n";
constexpr char kRead[] = "Out=[s] = assign(X=[h])\n";

// "h of 0: 1, 2", the name, and what shares, writes and reads.
std::vector<std::string> Stale(const std::string& ops, const std::string& more_blocks = "") {
  const Program program = testing::BlockProgram(absl::StrCat(kVars, ops), more_blocks);
  std::vector<std::string> texts;
  for (const StaleCopy& copy : FindSharedWrites(program).stale) {
    const auto position = [&](OpId id) {
      return id.valid() ? absl::StrCat(program.op(id).position()) : "end";
    };
    texts.push_back(absl::StrCat(program.name(copy.name), " of ", position(copy.shares), ": ",
                                 position(copy.writes), ", ", position(copy.reads)));
  }
  return texts;
}

// "1: g to h", by op.
std::vector<std::string> Copies(const std::string& ops, const std::string& more_blocks = "") {
  const Program program = testing::BlockProgram(absl::StrCat(kVars, ops), more_blocks);
  std::vector<std::string> texts;
  for (const auto& [op, copies] : FindSharedWrites(program).copies) {
    for (const SharedMemory& copy : copies) {
      texts.push_back(absl::StrCat(program.op(op).position(), ": ", program.name(copy.in), " to ",
                                   program.name(copy.out)));
    }
  }
  absl::c_sort(texts);
  return texts;
}

TEST(FindSharedWrites, WhatOneNameWritesTheOtherTakes) {
  EXPECT_THAT(Copies(absl::StrCat(kShare, kClip, kRead)), ElementsAre("1: g to h"));
  EXPECT_THAT(Stale(absl::StrCat(kShare, kClip, kRead)), IsEmpty());
  EXPECT_THAT(Copies(absl::StrCat(kShare, kClip)), ElementsAre("1: g to h")) << "it may be fetched";
  EXPECT_THAT(Copies(absl::StrCat(kClip, kShare, kRead)), IsEmpty());
  EXPECT_THAT(Copies(absl::StrCat(kShare, kClip, kShare, kRead)), ElementsAre("1: g to h"));
  EXPECT_THAT(Copies(absl::StrCat(kShare, "Out=[h] = relu(X=[h])\n", "Out=[s] = assign(X=[g])\n")),
              ElementsAre("1: h to g"));
  EXPECT_THAT(Copies(absl::StrCat(kShare, "Out=[s] = share_data(X=[h])\n", kClip)),
              ElementsAre("2: g to h", "2: g to s"));
  EXPECT_THAT(Copies(absl::StrCat("Out=[kept] = share_data(X=[g])\n", kClip)),
              ElementsAre("1: g to kept"));
}

TEST(FindSharedWrites, OnlyWritesOnTheComputeStreamAreTaken) {
  const auto reduce = [](absl::string_view attrs) {
    return absl::StrCat(kShare, "Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0", attrs, "}\n", kRead);
  };
  EXPECT_THAT(Copies(reduce(", use_calc_stream=true")), ElementsAre("1: g to h"));
  EXPECT_THAT(Copies(reduce("")), IsEmpty());
  EXPECT_THAT(Stale(reduce("")), ElementsAre("h of 0: 1, 2"));
}

TEST(FindSharedWrites, AnOpThatWritesBothNamesIsNotTaken) {
  constexpr char kBoth[] = "Out=[g, h] = split(X=[s]) {num=2, axis=0}\n";
  EXPECT_THAT(Copies(absl::StrCat(kShare, kBoth, kRead)), IsEmpty());
}

TEST(FindSharedWrites, ReadAfterAWriteThatIsNotTakenIsStale) {
  EXPECT_THAT(Stale(absl::StrCat(kView, kRead, kClip)), IsEmpty());
  EXPECT_THAT(Stale(absl::StrCat(kView, kClip, kRead)), ElementsAre("h of 0: 1, 2"));
  EXPECT_THAT(Stale(absl::StrCat(kClip, kView, kRead)), IsEmpty());
  constexpr char kSync[] = "Out=[g] = c_sync_calc_stream(X=[g])\n";
  EXPECT_THAT(Stale(absl::StrCat(kView, kSync, kRead)), IsEmpty()) << "touches no data";
}

TEST(FindSharedWrites, BothNamesAreTheMemory) {
  EXPECT_THAT(Stale(absl::StrCat(kView, "Out=[h] = relu(X=[h])\n", "Out=[s] = assign(X=[g])\n")),
              ElementsAre("g of 0: 1, 2"));
  EXPECT_THAT(Stale(absl::StrCat(kView, kClip, kView, kRead)), IsEmpty()) << "shared again";
}

TEST(FindSharedWrites, OneWriteIsReportedOnceForAName) {
  EXPECT_THAT(Stale(absl::StrCat(kView, kClip, kRead, kRead)), ElementsAre("h of 0: 1, 2"));
}

TEST(FindSharedWrites, WhatIsKeptForTheNextStepIsRead) {
  EXPECT_THAT(Stale(absl::StrCat("out=[kept] = view_shape(input=[g]) {dims=longs[2]}\n", kClip)),
              ElementsAre("kept of 0: 1, end"));
}

TEST(FindSharedWrites, WriteToTheBufferIsOneToItsParts) {
  EXPECT_THAT(Stale(absl::StrCat("Output=[g], FusedOutput=[fused] = coalesce_tensor(Input=[g]) "
                                 "{copy_data=true, dtype=5}\n",
                                 kShare, "Out=[fused] = scale(X=[fused]) {scale=0.5}\n", kRead)),
              ElementsAre("h of 1: 2, 3"));
}

TEST(FindSharedWrites, BlocksReadAndWrite) {
  constexpr char kBranch[] =
      "Out=[g] = conditional_block(Cond=[yes], Input=[g]) {sub_block=block(1)}\n";
  constexpr char kBlock[] = "  block 1 parent=0 {\n    Out=[g] = scale(X=[g]) {scale=0.5}\n  }\n";
  EXPECT_THAT(Stale(absl::StrCat(kView, kBranch, kRead), kBlock), ElementsAre("h of 0: 0, 2"));
  EXPECT_THAT(Copies(absl::StrCat(kShare, kBranch, kRead), kBlock), ElementsAre("0: g to h"));
  EXPECT_THAT(Stale(absl::StrCat(kShare, kBranch, kRead), kBlock), IsEmpty());
}

TEST(FindSharedWrites, BlockRunsInItsPlace) {
  constexpr char kBranch[] =
      "Out=[g] = conditional_block(Cond=[yes], Input=[g, h]) {sub_block=block(1)}\n";
  const auto block = [](const std::string& ops) {
    return absl::StrCat("  block 1 parent=0 {\n", ops, "  }\n");
  };
  EXPECT_THAT(Stale(absl::StrCat(kView, kBranch), block(absl::StrCat(kClip, kRead))),
              ElementsAre("h of 0: 0, 1"));
  EXPECT_THAT(Stale(absl::StrCat(kView, kBranch), block(absl::StrCat(kRead, kClip))), IsEmpty());
  constexpr char kShares[] = "conditional_block(Cond=[yes]) {sub_block=block(1)}\n";
  EXPECT_THAT(Stale(absl::StrCat(kShares, kClip, kRead), block(kShare)),
              ElementsAre("h of 0: 1, 2"));
  EXPECT_THAT(Stale(absl::StrCat(kView, kClip, kShares, kRead), block(kView)),
              ElementsAre("h of 0: 1, 3"))
      << "the block may not run";
  EXPECT_THAT(Copies(absl::StrCat(kShares, kClip), block(kShare)), IsEmpty());
}

TEST(FindSharedWrites, LoopRunsAgain) {
  constexpr char kLoop[] = "Out=[g] = while(Condition=[yes], X=[g, h]) {sub_block=block(1)}\n";
  const std::string block = absl::StrCat("  block 1 parent=0 {\n", kRead, kClip, "  }\n");
  EXPECT_THAT(Stale(absl::StrCat(kView, kLoop), block), ElementsAre("h of 0: 1, 0"));
  EXPECT_THAT(Stale(absl::StrCat(kShare, kLoop), block), IsEmpty());
  EXPECT_THAT(Copies(absl::StrCat(kShare, kLoop), block), ElementsAre("1: g to h"));
}

TEST(FindSharedWrites, PersistableVariablesShareInTheNextStep) {
  EXPECT_THAT(Stale("Out=[s] = relu(X=[s])\n"
                    "Out=[g] = assign(X=[kept])\n"
                    "Out=[kept] = share_data(X=[s])\n"),
              ElementsAre("kept of 2: 0, 1"))
      << "they do not share yet when the op runs first";
  EXPECT_THAT(Stale(absl::StrCat(kRead, kClip, kShare)), IsEmpty()) << "others in the next step";
}

TEST(FindSharedWrites, PartsOfABufferAreSeparate) {
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

TEST(FindSharedWrites, OpsThatShareMemoryAreAlike) {
  EXPECT_THAT(Copies(absl::StrCat("Out=[h] = print(In=[g])\n", kClip)), ElementsAre("1: g to h"));
  for (const char* share :
       {"Out=[h] = share_buffer(X=[g])\n", "out=[h] = view_shape(input=[g]) {dims=longs[2]}\n",
        "out=[h] = view_dtype(input=[g]) {dtype=5}\n",
        "out=[h] = as_strided(input=[g]) {dims=longs[2], stride=longs[1]}\n"}) {
    EXPECT_THAT(Stale(absl::StrCat(share, kRead, kClip)), IsEmpty()) << share;
    EXPECT_THAT(Stale(absl::StrCat(share, kClip, kRead)), ElementsAre("h of 0: 1, 2")) << share;
  }
  EXPECT_THAT(Stale(absl::StrCat("Out=[h] = assign(X=[g])\n", kClip, kRead)), IsEmpty());
}

TEST(FindSharedWrites, OneOpMayShareTheMemoryOfSeveral) {
  EXPECT_THAT(Stale(absl::StrCat("Out=[h, kept] = share_buffer(X=[g, s])\n", kClip,
                                 "Out=[s] = assign(X=[h])\n")),
              ElementsAre("h of 0: 1, 2", "kept of 0: 2, end"));
}

}  // namespace
}  // namespace weft
