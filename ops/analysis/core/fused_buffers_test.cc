#include "ops/analysis/core/fused_buffers.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/core/block_args.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kVars[] = R"(
    var a : fp32[64] persistable
    var b : fp32[64] persistable
    var f : fp32[128] persistable
    var g : fp32[128] persistable
    var w : fp32[128]
    var u : fp32[64]
    var v : fp32[64]
    var found : bool[1]
    var yes : bool[1]
    var scope : step_scopes
)";

constexpr char kCoalesce[] =
    "    FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5}\n";
constexpr char kReduce[] =
    "    Out=[f] = c_allreduce_sum(X=[f]) {ring_id=0, use_calc_stream=true}\n";
constexpr char kWait[] = "    Out=[f] = c_sync_comm_stream(X=[f]) {ring_id=0}\n";
constexpr char kHalve[] = "    Out=[f] = scale(X=[f]) {scale=0.5}\n";
constexpr char kUse[] = "    Out=[u] = relu(X=[a])\n";

std::string Fill(const std::string& var) {
  return absl::StrCat("    Out=[", var,
                      "] = fill_constant() {shape=longs[64], dtype=5, value=1.0}\n");
}

std::string If(int block, const std::string& reads, const std::string& writes) {
  return absl::StrCat("    Scope=[scope], Out=[", writes,
                      "] = conditional_block(Cond=[yes], Input=[", reads, "]) {sub_block=block(",
                      block, "), is_scalar_condition=true}\n");
}

std::string Inner(int block, const std::string& ops, int parent = 0) {
  return absl::StrCat("  block ", block, " parent=", parent, " {\n", ops, "  }\n");
}

Program Parse(const std::string& ops, const std::string& blocks = "") {
  absl::StatusOr<Program> program = ParseProgramText(absl::StrCat(
      "program version=2006002 {\n  block 0 parent=-1 {", kVars, ops, "  }\n", blocks, "}"));
  WEFT_EXPECT_OK(program.status());
  return *std::move(program);
}

std::vector<std::string> Find(const std::string& ops, const std::string& blocks = "",
                              const Program* startup = nullptr) {
  const Program program = Parse(ops, blocks);
  std::vector<std::string> found;
  for (const UnorderedAccesses& pair : FindUnorderedAccesses(program, startup)) {
    found.push_back(absl::StrCat(program.name(pair.buffer), ", ", program.name(pair.part), ": ",
                                 program.op(pair.first).DebugName(), ", ",
                                 program.op(pair.second).DebugName()));
  }
  return found;
}

TEST(FusedBuffers, PaddleOrdersTheFirstReader) {
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), Fill("b"), kReduce, kUse)), IsEmpty());
}

TEST(FusedBuffers, PaddleOrdersCommunicationBehindTheFirstReader) {
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, kWait, kUse)), IsEmpty());
}

TEST(FusedBuffers, PaddleDoesNotOrderALaterOpOnTheBuffer) {
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, kHalve, kUse)),
              ElementsAre("f, a: op 3 (scale), op 4 (relu)"));
  // An op between the two ends what communicates right after the first.
  const std::string gathers = "    Out=[f] = c_broadcast(X=[f]) {ring_id=0, root=0}\n";
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, Fill("v"), gathers, kUse)),
              ElementsAre("f, a: op 4 (c_broadcast), op 5 (relu)"));
}

TEST(FusedBuffers, AllOpsWaitForTheSynchronizationBeforeThem) {
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, Fill("v"), kWait, kUse)), IsEmpty());
}

TEST(FusedBuffers, AnOpOnTheBufferBeforeTheSumIsTheFirstReader) {
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kHalve, kReduce, kUse)),
              ElementsAre("f, a: op 3 (c_allreduce_sum), op 4 (relu)"));
}

TEST(FusedBuffers, PaddleDoesNotOrderReadersBeforeTheFirstReader) {
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kUse, kReduce)),
              ElementsAre("f, a: op 2 (relu), op 3 (c_allreduce_sum)"));
}

TEST(FusedBuffers, PaddleDoesNotOrderWritersBehindIt) {
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, Fill("b"))),
              ElementsAre("f, b: op 2 (c_allreduce_sum), op 3 (fill_constant)"));
}

TEST(FusedBuffers, PaddleDoesNotOrderPartsBehindAFirstWriter) {
  EXPECT_THAT(
      Find(absl::StrCat(kCoalesce,
                        "    Out=[f] = fill_constant() {shape=longs[128], dtype=5, value=0.0}\n",
                        "    Out=[a] = increment(X=[a]) {step=1.0}\n", kReduce, kUse)),
      ElementsAre("f, a: op 1 (fill_constant), op 2 (increment)"));
}

TEST(FusedBuffers, AnOpThatNamesBothOrdersThem) {
  const std::string both = "    Out=[a, b, f] = c_wait_comm(X=[a, b, f]) {ring_id=0}\n";
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, kHalve, both, kUse)), IsEmpty());
  // It names only one of the parts.
  const std::string one = "    Out=[b, f] = c_wait_comm(X=[b, f]) {ring_id=0}\n";
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, kHalve, one, kUse)),
              ElementsAre("f, a: op 4 (c_wait_comm), op 5 (relu)"));
}

// As loss scaling does: what decides whether gradients are used reads the buffer.
TEST(FusedBuffers, OtherDataOrdersThem) {
  const std::string reads = "    Out=[found] = isfinite(X=[f])\n";
  const std::string uses = "    Out=[u] = where(Condition=[found], X=[a], Y=[v])\n";
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, kHalve, reads, uses)), IsEmpty());
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, kHalve, uses, reads)),
              ElementsAre("f, a: op 3 (scale), op 4 (where)"));
}

constexpr char kRead[] = "    Out=[found] = isfinite(X=[f])\n";
constexpr char kReadAgain[] =
    "    Out=[v] = slice(Input=[f]) {axes=ints[0], starts=ints[0], ends=ints[64]}\n";

TEST(FusedBuffers, ReadersNeedNoOrder) {
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, kRead, kReadAgain, kUse)), IsEmpty());
}

// It is no variable.
TEST(FusedBuffers, TheEmptyNameOrdersNothing) {
  EXPECT_THAT(
      Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, "    Out=[f, @EMPTY@] = scale(X=[f])\n",
                        "    Out=[u] = sum(X=[a, @EMPTY@])\n")),
      ElementsAre("f, a: op 3 (scale), op 4 (sum)"));
}

TEST(FusedBuffers, PaddleOrdersNoReaderBehindTheFirst) {
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kRead, kReadAgain)),
              ElementsAre("f, a: op 1 (fill_constant), op 3 (slice)"));
}

TEST(FusedBuffers, AnOpOnTheBufferMayWriteAPart) {
  const std::string writes =
      "    Out=[a] = slice(Input=[f]) {axes=ints[0], starts=ints[0], ends=ints[64]}\n";
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, writes, kRead)),
              ElementsAre("f, a: op 1 (slice), op 2 (isfinite)"));
}

TEST(FusedBuffers, PartsAreThoseOfTheLastBufferOfAName) {
  const std::string again =
      "    FusedOutput=[f], Output=[b] = coalesce_tensor(Input=[b]) {dtype=5}\n";
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, kHalve, again, kUse)),
              ElementsAre("f, a: op 3 (scale), op 5 (relu)"));
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, again, kReduce, kHalve, Fill("v"))), IsEmpty());
}

TEST(FusedBuffers, BlocksOfOpsAreSearched) {
  EXPECT_THAT(Find(If(1, "a, b", "u"), Inner(1, absl::StrCat(kCoalesce, kReduce, kHalve, kUse))),
              ElementsAre("f, a: block 1, op 2 (scale), block 1, op 3 (relu)"));
}

// The executor of a block knows the coalesce_tensor ops of that block only.
TEST(FusedBuffers, ABufferMadeOutsideHasNoOrderInABlock) {
  EXPECT_THAT(
      Find(absl::StrCat(kCoalesce, If(1, "a, f", "u")), Inner(1, absl::StrCat(kReduce, kUse))),
      ElementsAre("f, a: block 1, op 0 (c_allreduce_sum), block 1, op 1 (relu)"));
  const std::string local = "    var f : fp32[128]\n";
  EXPECT_THAT(
      Find(absl::StrCat(kCoalesce, If(1, "a", "u")), Inner(1, absl::StrCat(local, kReduce, kUse))),
      IsEmpty());
}

TEST(FusedBuffers, PartsAreThoseOfTheBlock) {
  const std::string local = "    var a : fp32[64]\n";
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, If(1, "f", "")),
                   Inner(1, absl::StrCat(local, kHalve, Fill("a"), kUse))),
              IsEmpty());
}

// Paddle sees what the slots of an op name, and not what its blocks do.
TEST(FusedBuffers, NamesInBlocksAreNoOrder) {
  const std::string uses = "    Out=[u] = where(Condition=[found], X=[a], Y=[v])\n";
  const std::string before = absl::StrCat(kCoalesce, Fill("a"), kReduce, kHalve, kRead);
  EXPECT_THAT(Find(absl::StrCat(before, If(1, "found", "u")), Inner(1, uses)), IsEmpty());
  EXPECT_THAT(Find(absl::StrCat(before, If(1, "", "u")), Inner(1, uses)),
              ElementsAre("f, a: op 3 (scale), op 5 (conditional_block)"));
}

TEST(FusedBuffers, BlocksWithoutAParentAreSearched) {
  EXPECT_THAT(Find("", absl::StrCat(Inner(1, kCoalesce, -1), Inner(2, kUse, 1))), IsEmpty());
}

// Each block runs the next one twice.
TEST(FusedBuffers, ABlockOfManyOpsIsSearchedOnce) {
  std::string blocks;
  for (int k = 1; k < 60; ++k) {
    absl::StrAppend(&blocks, Inner(k, absl::StrCat(If(k + 1, "", ""), If(k + 1, "", "")), k - 1));
  }
  absl::StrAppend(&blocks, Inner(60, kUse, 59));
  EXPECT_THAT(Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, kHalve, If(1, "", "")), blocks),
              ElementsAre("f, a: op 3 (scale), op 4 (conditional_block)"));
}

TEST(FusedBuffers, AnOpAccessesWhatItsBlocksDo) {
  EXPECT_THAT(
      Find(absl::StrCat(kCoalesce, Fill("a"), kReduce, kHalve, If(1, "", "u")), Inner(1, kUse)),
      ElementsAre("f, a: op 3 (scale), op 4 (conditional_block)"));
}

TEST(FusedBuffers, ABufferOfTheStartupProgramHasNoOrder) {
  const Program startup = Parse(kCoalesce);
  EXPECT_THAT(Find(absl::StrCat(kReduce, kUse), "", &startup),
              ElementsAre("f, a: op 0 (c_allreduce_sum), op 1 (relu)"));
  EXPECT_THAT(Find(absl::StrCat(kReduce, kUse)), IsEmpty());
  // It has moved the parts.
  const Program moved = Parse(absl::StrCat(
      kCoalesce, "    FusedOutput=[g], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5}\n"));
  EXPECT_THAT(Find(absl::StrCat(kReduce, kUse), "", &moved), IsEmpty());
}

TEST(FusedBuffers, OtherVariablesOfTheStartupProgramAreItsOwn) {
  const Program startup =
      Parse("    FusedOutput=[w], Output=[u, v] = coalesce_tensor(Input=[u, v]) {dtype=5}\n");
  EXPECT_THAT(
      Find("    Out=[w] = scale(X=[w]) {scale=0.5}\n    Out=[a] = relu(X=[u])\n", "", &startup),
      IsEmpty());
}

TEST(FusedBuffers, OpsThatOnlyOrderOthersAccessNothing) {
  const std::string depend =
      "    Out=[a] = depend(X=[a], Dep=[f])\n    Out=[b] = depend(X=[b], Dep=[f])\n";
  EXPECT_THAT(Find(absl::StrCat(kReduce, depend, kUse)), IsEmpty());
}

TEST(FusedBuffers, AccessesAreFound) {
  const Program program = Parse(absl::StrCat(kCoalesce, Fill("a"), kReduce, kWait, kHalve, kUse));
  const std::vector<FusedBuffer> buffers = FindFusedBuffers(program, Storage(program), 0);
  ASSERT_EQ(buffers.size(), 1);
  EXPECT_EQ(program.name(buffers[0].name), "f");
  EXPECT_EQ(buffers[0].made_at, 0);
  const auto positions = [](const std::vector<BufferAccess>& accesses) {
    std::vector<uint32_t> positions;
    for (const BufferAccess& access : accesses) positions.push_back(access.position);
    return positions;
  };
  EXPECT_THAT(positions(buffers[0].accesses), ElementsAre(2, 3, 4));
  EXPECT_THAT(positions(buffers[0].part_accesses), ElementsAre(1, 5));
  EXPECT_EQ(buffers[0].first_read, 2);
  EXPECT_EQ(buffers[0].last_awaited, 3);
}

TEST(BlockArgs, NamesOfBlocksAreThoseThatTheyDoNotDeclare) {
  const Program program =
      Parse(If(1, "a", "u"), Inner(1,
                                   "    var v : fp32[64]\n    Out=[v] = relu(X=[b])\n"
                                   "    Out=[u] = relu(X=[v])\n"));
  std::vector<Symbol> reads, writes;
  BlockArgs(program).Append(program.op(program.block(0).ops()[0]), &reads, &writes);
  const auto names = [&](const std::vector<Symbol>& symbols) {
    std::vector<std::string> names;
    for (Symbol symbol : symbols) names.emplace_back(program.name(symbol));
    return names;
  };
  EXPECT_THAT(names(reads), ElementsAre("yes", "a", "b"));
  EXPECT_THAT(names(writes), ElementsAre("scope", "u", "u"));
}

}  // namespace
}  // namespace weft
