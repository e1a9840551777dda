#include "tools/view/program_view.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kOriginal[] =
    "    var g : fp32[4]\n"
    "    Out=[g] = relu(X=[x]) role=backward {}\n"
    "    Out=[h] = relu(X=[x]) role=backward {}\n"
    "    Out=[w] = scale(X=[g]) role=optimize {scale=0.5}\n"
    "    Out=[v] = relu(X=[w]) role=optimize {}\n";
constexpr char kRewritten[] =
    "    var g : fp32[4]\n"
    "    Out=[g] = relu(X=[x]) role=backward {}\n"
    "    Out=[g] = c_allreduce_sum(X=[g]) role=backward {ring_id=2, use_calc_stream=true}\n"
    "    Out=[w] = scale(X=[g]) role=optimize {scale=0.25}\n"
    "    Out=[v] = relu(X=[w]) role=optimize {}\n";

std::string TextOf(const ProgramView& view, uint32_t id) { return view.texts.texts()[id]; }

TEST(ProgramViewTest, InsertedChangedAndRemovedOpsAreThoseOfTheDiff) {
  const Program original = BlockProgram(kOriginal), rewritten = BlockProgram(kRewritten);
  ViewOptions options;
  options.original = &original;
  const ProgramView view = ProgramView::Of(rewritten, options);
  EXPECT_THAT(view.changes, ElementsAre(OpChange::kNone, OpChange::kInserted, OpChange::kChanged,
                                        OpChange::kNone));
  EXPECT_THAT(view.changed, ElementsAre(Pair(2, HasSubstr("0.5 -> 0.25"))));
  ASSERT_EQ(view.removed.size(), 1);
  EXPECT_THAT(view.removed[0].text, HasSubstr("Out=[h"));
}

TEST(ProgramViewTest, RemovedOpIsPlacedBeforeTheOpThatFollowed) {
  const Program original = BlockProgram(
      "    Out=[a] = relu(X=[x]) role=forward {}\n"
      "    Out=[b] = relu(X=[a]) role=forward {}\n"
      "    Out=[c] = relu(X=[b]) role=forward {}\n"
      "    Out=[d] = tanh(X=[b]) role=forward {}\n"
      "    Out=[e] = relu(X=[b]) role=forward {}\n");
  const Program rewritten = BlockProgram(
      "    Out=[n] = sqrt(X=[x]) role=forward {}\n"
      "    Out=[a] = relu(X=[x]) role=forward {}\n"
      "    Out=[b] = relu(X=[a]) role=forward {}\n"
      "    Out=[c] = relu(X=[b]) role=forward {}\n"
      "    Out=[e] = relu(X=[b]) role=forward {}\n");
  ViewOptions options;
  options.original = &original;
  const ProgramView view = ProgramView::Of(rewritten, options);
  ASSERT_EQ(view.removed.size(), 1);
  EXPECT_EQ(view.removed[0].before, 4);
}

TEST(ProgramViewTest, RemarksAboutVariablesOfInsertedOpsAreTheirReasons) {
  const Program original = BlockProgram(kOriginal), rewritten = BlockProgram(kRewritten);
  const std::vector<FileRemark> remarks = {
      {"p", "h", "not reduced", "no parameter", {}},
      {"p", "g", "reduced", "a gradient", {}},
      {"p", "other", "reduced", "a gradient", {{"buffer", "g"}}},
      {"p", "x", "split", "data", {}},
  };
  ViewOptions options;
  options.original = &original;
  options.remarks = &remarks;
  const ProgramView view = ProgramView::Of(rewritten, options);
  // Op 2 was changed, and reads g. Op 0 reads x, but is the original's.
  EXPECT_THAT(view.reasons, ElementsAre(Pair(1, 1), Pair(1, 2), Pair(2, 1), Pair(2, 2)));
}

TEST(ProgramViewTest, RemarksAboutMembersOfABufferAreReasonsOfOpsOnTheBuffer) {
  const Program original = BlockProgram("    Out=[a] = relu(X=[x]) role=optimize {}\n");
  const Program rewritten = BlockProgram(
      "    Out=[a] = relu(X=[x]) role=optimize {}\n"
      "    FusedOutput=[f], Output=[a] = coalesce_tensor(Input=[a]) role=optimize {}\n"
      "    Out=[f] = c_allreduce_sum(X=[f]) role=optimize {ring_id=0}\n");
  const std::vector<FileRemark> remarks = {{"p", "a", "averaged", "ranks train separately", {}}};
  ViewOptions options;
  options.original = &original;
  options.remarks = &remarks;
  const ProgramView view = ProgramView::Of(rewritten, options);
  EXPECT_THAT(view.reasons, ElementsAre(Pair(1, 0), Pair(2, 0)));
}

TEST(ProgramViewTest, CommunicationIsDescribed) {
  const Program program = BlockProgram(kRewritten);
  const ProgramView view = ProgramView::Of(program, {});
  EXPECT_EQ(TextOf(view, view.notes[1]), "all-reduce (sum) over all ranks on ring 2");
  EXPECT_EQ(view.bytes[1], 16);
  EXPECT_EQ(TextOf(view, view.notes[0]), "");
}

TEST(ProgramViewTest, MessagesAreDescribed) {
  const Program program = BlockProgram(
      "    var x : fp32[4]\n"
      "    var y : fp32[8]\n"
      "    send_v2(X=[x]) role=forward {peer=1, ring_id=2}\n"
      "    Out=[y] = recv_v2() role=forward {dtype=5, out_shape=ints[8], peer=0, ring_id=2}\n"
      "    Out=[x] = barrier(X=[x]) role=forward {ring_id=1}\n");
  const ProgramView view = ProgramView::Of(program, {});
  EXPECT_EQ(TextOf(view, view.notes[0]), "sends to position 1 of ring 2");
  EXPECT_EQ(TextOf(view, view.notes[1]), "receives from position 0 of ring 2");
  EXPECT_EQ(TextOf(view, view.notes[2]), "all ranks of ring 1 wait for each other");
  EXPECT_EQ(view.bytes, (std::vector<int64_t>{16, 32, 0}));
  EXPECT_EQ(view.kinds[program.op(program.block(0).ops()[0]).signature_id()], OpKind::kMessage);
}

TEST(ProgramViewTest, AttributesAreThoseThatAffectTheComputation) {
  const Program program = BlockProgram(
      "    Out=[w] = scale(X=[g]) role=forward {op_namescope=\"/\", bias=1.0, scale=0.25}\n"
      "    Out=[w] = scale(X=[h]) role=forward {op_namescope=\"/a/\", bias=1.0, scale=0.25}\n");
  const ProgramView view = ProgramView::Of(program, {});
  EXPECT_EQ(TextOf(view, view.attrs[0]), "bias=1.0, scale=0.25");
  EXPECT_EQ(view.attrs[0], view.attrs[1]);
}

TEST(ProgramViewTest, FindingsNameOpsByNumber) {
  const Program program = BlockProgram(
      "    var x : fp32[4] need_check_feed\n"
      "    Out=[y] = relu(X=[x]) role=forward {}\n",
      "  block 1 parent=0 {\n    Out=[z] = relu(X=[nowhere]) role=forward {}\n  }\n");
  Findings findings;
  Reporter({}, &findings).Add("W101", program.block(1).ops()[0], "nowhere", "is nowhere");
  ViewOptions options;
  options.findings = &findings;
  const ProgramView view = ProgramView::Of(program, options);
  ASSERT_EQ(view.findings.size(), 1);
  EXPECT_EQ(view.findings[0].op, 1);
  EXPECT_EQ(view.findings[0].other, -1);
  EXPECT_EQ(view.findings[0].title, FindRule("W101").title);
}

TEST(ParseRemarksTest, ReadsWhatExplainWrites) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<FileRemark> remarks,
                            ParseRemarks(R"({"passes": [], "notes": [{"pass": "p", "subject": "s",
                                "what": "reduced", "why": "y", "ring": "0", "after": "op 1"}]})"));
  ASSERT_EQ(remarks.size(), 1);
  EXPECT_EQ(remarks[0].subject, "s");
  EXPECT_THAT(remarks[0].details, ElementsAre(Pair("ring", "0"), Pair("after", "op 1")));
}

TEST(ParseRemarksTest, OtherFilesAreErrors) {
  for (const auto& [text, expected] : {std::pair("", "not a JSON file"),
                                       {"{}", "'notes'"},
                                       {R"({"notes": [3]})", "found 3"},
                                       {R"({"notes": [{"why": 3}]})", "key 'why'"}}) {
    EXPECT_THAT(ParseRemarks(text).status(), IsInvalidArgument(expected));
  }
}

}  // namespace
}  // namespace weft::testing
