#include "tools/view/outline.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

// One line for each node: "  name 0-3".
std::string Outline(const std::string& lines, const std::string& more_blocks = "") {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(lines, more_blocks));
  if (!program.ok()) return program.status().ToString();
  std::string text;
  for (const OutlineNode& node : OutlineOf(*program)) {
    absl::StrAppend(&text, std::string(2 * node.depth, ' '), node.name, " ", node.begin, "-",
                    node.end, "\n");
  }
  return text;
}

constexpr char kTwoLayers[] =
    "    var enc.fc_0.w_0 : fp32[2, 2] persistable\n"
    "    var enc.fc_1.w_0 : fp32[2, 2] persistable\n"
    "    Out=[a] = mul(X=[x], Y=[enc.fc_0.w_0]) role=forward {}\n"
    "    Out=[b] = relu(X=[a]) role=forward {}\n"
    "    Out=[c] = mul(X=[b], Y=[enc.fc_1.w_0]) role=forward {}\n";

TEST(OutlineTest, ForwardOpsFollowTheParametersThatTheyRead) {
  EXPECT_EQ(Outline(kTwoLayers),
            "forward 0-3\n"
            "  enc 0-3\n"
            "    fc_0 0-2\n"
            "    fc_1 2-3\n");
}

TEST(OutlineTest, OtherOpsFollowTheGradientsThatTheyReadOrWrite) {
  EXPECT_EQ(
      Outline(absl::StrCat(
          kTwoLayers,
          "    Out=[c@GRAD] = fill_constant() role=backward|loss {}\n"
          "    X@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[c@GRAD], Y=[enc.fc_1.w_0]) role=backward {}\n"
          "    X@GRAD=[a@GRAD] = relu_grad(Out@GRAD=[b@GRAD], Out=[b]) role=backward {}\n"
          "    Out=[n] = scale(X=[a@GRAD]) role=backward {}\n"
          "    ParamOut=[enc.fc_1.w_0] = sgd(Grad=[enc.fc_1.w_0@GRAD]) role=optimize {}\n")),
      "forward 0-3\n"
      "  enc 0-3\n"
      "    fc_0 0-2\n"
      "    fc_1 2-3\n"
      "backward 3-7\n"
      "  enc 3-7\n"
      "    fc_1 3-5\n"
      "    fc_0 5-7\n"
      "update 7-8\n"
      "  enc 7-8\n"
      "    fc_1 7-8\n");
}

TEST(OutlineTest, NameScopesAreLayers) {
  EXPECT_EQ(Outline("    Out=[a] = relu(X=[x]) role=forward {op_namescope=\"/enc/ffn/\"}\n"
                    "    Out=[b] = relu(X=[a]) role=forward {op_namescope=\"/enc/\"}\n"
                    "    Out=[c] = relu(X=[b]) role=forward {op_namescope=\"/\"}\n"),
            "forward 0-3\n"
            "  enc 0-3\n"
            "    ffn 0-1\n");
}

TEST(OutlineTest, CommunicationStaysWithTheOpBefore) {
  EXPECT_EQ(Outline(absl::StrCat(kTwoLayers,
                                 "    Out=[c] = c_wait_comm(X=[c]) role=optimize {ring_id=0}\n"
                                 "    Out=[d] = relu(X=[c]) role=forward {}\n")),
            "forward 0-5\n"
            "  enc 0-5\n"
            "    fc_0 0-2\n"
            "    fc_1 2-5\n");
}

TEST(OutlineTest, EveryOtherBlockIsANode) {
  EXPECT_EQ(Outline("    Out=[] = conditional_block() role=forward {sub_block=block(1)}\n",
                    "  block 1 parent=0 {\n    Out=[y] = relu(X=[x]) role=backward {}\n  }\n"),
            "forward 0-1\n"
            "block 1 1-2\n");
}

TEST(OutlineTest, DeepScopesEndInOneNode) {
  std::string scope;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&scope, "/s", i);
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
      absl::StrCat("    Out=[a] = relu(X=[x]) role=forward {op_namescope=\"", scope, "\"}\n")));
  ASSERT_TRUE(program.ok());
  EXPECT_LE(OutlineOf(*program).size(), 17);
}

}  // namespace
}  // namespace weft
