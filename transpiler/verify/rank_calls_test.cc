#include "transpiler/verify/rank_calls.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

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
                  "ring 0: all-reduce sum of ? fp32 (any)"));
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
