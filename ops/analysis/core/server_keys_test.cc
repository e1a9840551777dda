#include "ops/analysis/core/server_keys.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kVars[] = R"(
    var a : fp32[2] parameter persistable
    var b : fp32[2] parameter persistable
    var g : fp32[2]
    var h : fp32[2]
    var yes : bool[1]
)";
constexpr char kReceiveA[] = "Grad=[g] = ps_receive() {server_key=0, shape=longs[2]}\n";
constexpr char kReceiveB[] = "Grad=[h] = ps_receive() {server_key=1, shape=longs[2]}\n";
constexpr char kServeA[] = "ps_serve(X=[a]) {server_key=0}\n";
constexpr char kServeB[] = "ps_serve(X=[b]) {server_key=1}\n";

Program Servers(const std::vector<std::string>& ops, absl::string_view more_blocks = "") {
  return testing::BlockProgram(absl::StrCat(kVars, absl::StrJoin(ops, "")), more_blocks);
}

// "1: 1 3 by 1 to 3", key, ops, and those that receive and serve.
std::vector<std::string> Keys(const Program& program) {
  const auto position = [&](OpId id) {
    return id.valid() ? absl::StrCat(program.op(id).position()) : "none";
  };
  std::vector<std::string> texts;
  for (const auto& [key, of] : FindServerKeys(program).keys) {
    std::string& text = texts.emplace_back(absl::StrCat(key, ":"));
    for (OpId id : of.ops) absl::StrAppend(&text, " ", position(id));
    absl::StrAppend(&text, " by ", position(of.receive), " to ", position(of.serve));
    for (OpId id : of.repeated) absl::StrAppend(&text, ", again ", position(id));
  }
  return texts;
}

std::vector<std::string> Strays(const Program& program) {
  std::vector<std::string> texts;
  for (const ServerKeys::Stray& stray : FindServerKeys(program).strays) {
    texts.push_back(absl::StrCat(program.op(stray.op).DebugName(), ": ", stray.expected));
  }
  return texts;
}

TEST(FindServerKeys, OpsOfAKeyKeepTheirOrder) {
  const Program program =
      Servers({kReceiveA, kReceiveB, "Out=[g] = scale(X=[g]) {scale=0.5, server_key=0}\n", kServeA,
               kServeB, kServeB});
  EXPECT_THAT(Keys(program), ElementsAre("0: 0 2 3 by 0 to 3", "1: 1 4 5 by 1 to 4, again 5"));
  EXPECT_THAT(Strays(program), IsEmpty());
}

TEST(FindServerKeys, OpWithoutAKeyThatIsServedIsAStray) {
  constexpr char kExpected[] = "attribute server_key with a key that an op serves";
  const Program program =
      Servers({kReceiveA, "Out=[g] = scale(X=[g]) {scale=0.5}\n", kServeA, kReceiveB});
  EXPECT_THAT(Keys(program), ElementsAre("0: 0 2 by 0 to 2"));
  EXPECT_THAT(Strays(program), ElementsAre(absl::StrCat("op 1 (scale): ", kExpected),
                                           absl::StrCat("op 3 (ps_receive): ", kExpected)));
}

TEST(FindServerKeys, OpsThatServersDoNotRunAreStrays) {
  constexpr char kExpected[] = "an op without blocks, communication and streams, as servers run";
  const Program program =
      Servers({kReceiveA, "Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0, server_key=0}\n",
               "Out=[g] = c_sync_calc_stream(X=[g]) {server_key=0}\n",
               "conditional_block(Cond=[yes]) {sub_block=block(1), server_key=0}\n", kServeA},
              "  block 1 parent=0 {\n    Out=[g] = scale(X=[g]) {scale=0.5, server_key=0}\n  }\n");
  EXPECT_THAT(
      Strays(program),
      ElementsAre(
          absl::StrCat("op 1 (c_allreduce_sum): ", kExpected),
          absl::StrCat("op 2 (c_sync_calc_stream): ", kExpected),
          absl::StrCat("op 3 (conditional_block): ", kExpected),
          "block 1, op 0 (scale): the op in the root block, the only one that servers run"));
}

}  // namespace
}  // namespace weft
