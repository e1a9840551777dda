#include "executor/servers/server_part.h"

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

std::vector<int64_t> Bounds(int64_t rows, int num_servers) {
  std::vector<int64_t> bounds = {0};
  for (int server = 0; server < num_servers; ++server) {
    const RowRange range = RowsOfServer(rows, server, num_servers);
    EXPECT_EQ(range.begin, bounds.back());
    bounds.push_back(range.end);
  }
  return bounds;
}

// As MindSpore cuts tables.
TEST(RowsOfServerTest, FirstServersHaveOneRowMore) {
  EXPECT_THAT(Bounds(7, 2), ElementsAre(0, 4, 7));
  EXPECT_THAT(Bounds(8, 3), ElementsAre(0, 3, 6, 8));
  EXPECT_THAT(Bounds(2, 3), ElementsAre(0, 1, 2, 2));
}

TEST(RowsOfServerTest, EveryRowIsOfTheServerThatHasItInItsRange) {
  for (int64_t rows : {1, 7, 8, 9}) {
    for (int num_servers : {1, 2, 3, 5}) {
      for (int64_t row = 0; row < rows; ++row) {
        const RowRange range = RowsOfServer(rows, ServerOfRow(row, rows, num_servers), num_servers);
        EXPECT_TRUE(range.begin <= row && row < range.end) << rows << " " << num_servers;
      }
    }
  }
}

// Key 0 is a parameter that one server holds, key 1 a table.
Program Servers() {
  return *ParseProgramText(R"(program {
  block 0 parent=-1 {
    var w : fp32[2, 2] parameter persistable
    var w@GRAD : fp32[2, 2]
    var table : fp32[5, 2] parameter persistable
    var m : fp32[5, 2] persistable
    var table@GRAD : selected_rows<fp32[5, 2]>
    var lr : fp32[1]
    Grad=[w@GRAD], LearningRate=[lr] = ps_receive() {server_key=0, shape=longs[2, 2]}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) {server_key=0}
    ps_serve(X=[w]) {server_key=0}
    Grad=[table@GRAD], LearningRate=[lr] = ps_receive() {is_sparse=true, server_key=1, shape=longs[5, 2]}
    ParamOut=[table], VelocityOut=[m] = momentum(Param=[table], Velocity=[m], Grad=[table@GRAD], LearningRate=[lr]) {mu=0.9, server_key=1}
    ps_serve(X=[table]) {by_rows=true, server_key=1}
  }
}
)");
}

std::string DimsIn(const Program& program, const std::string& variable) {
  const VarId id = program.block(0).FindVar(variable);
  return id.valid() ? DimsToString(DeclaredType(program.var(id))->dims) : "none";
}

TEST(FindServedKeysTest, OpsThatDifferInWaitingAreRefused) {
  const std::string text = ProgramText(Servers());
  const auto status_of = [&](const std::string& from, const std::string& to) {
    const std::string edited = absl::StrReplaceAll(text, {{from, to}});
    EXPECT_NE(edited, text);
    return FindServedKeys(*ParseProgramText(edited)).status();
  };
  WEFT_EXPECT_OK(FindServedKeys(Servers()));
  EXPECT_THAT(status_of("ps_serve(X=[table]) {", "ps_serve(X=[table]) {is_async=true, "),
              IsInvalidArgument("op 5 (ps_serve) attribute is_async: expected false as in the ops "
                                "before it, found true"));
  EXPECT_THAT(
      status_of("ps_receive() {is_sparse=true", "ps_receive() {is_async=true, is_sparse=true"),
      IsInvalidArgument("op 3 (ps_receive)"));
}

TEST(PartOfServerTest, TableAndItsStateAreCutAndOtherKeysGoInTurn) {
  WEFT_ASSERT_OK_AND_ASSIGN(const ServerPart first, PartOfServer(Servers(), 0, 2));
  EXPECT_EQ(first.program.block(0).ops().size(), 6u);
  EXPECT_EQ(DimsIn(first.program, "w"), "[2, 2]");
  EXPECT_EQ(DimsIn(first.program, "table"), "[3, 2]");
  EXPECT_EQ(DimsIn(first.program, "m"), "[3, 2]");
  EXPECT_EQ(DimsIn(first.program, "table@GRAD"), "[3, 2]");
  WEFT_ASSERT_OK_AND_ASSIGN(const ServerPart second, PartOfServer(Servers(), 1, 2));
  EXPECT_EQ(second.program.block(0).ops().size(), 3u);
  EXPECT_EQ(DimsIn(second.program, "w"), "none");
  EXPECT_EQ(DimsIn(second.program, "table"), "[2, 2]");
  std::vector<std::string> cut;
  for (const auto& [name, rows] : second.rows) {
    cut.push_back(name);
    EXPECT_EQ(rows.begin, 3);
    EXPECT_EQ(rows.end, 5);
  }
  EXPECT_THAT(cut, ElementsAre("m", "table"));
}

TEST(PartOfServerTest, OpThatNoServerRunsIsRefused) {
  const std::string text = absl::StrReplaceAll(
      ProgramText(Servers()),
      {{"    ps_serve(X=[w])", "    Out=[w] = scale(X=[w]) {scale=0.5}\n    ps_serve(X=[w])"}});
  EXPECT_THAT(PartOfServer(*ParseProgramText(text), 0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 2 (scale): expected attribute server_key with a key that an op serves"));
}

TEST(PartOfServerTest, ServerWithoutAnythingIsRefused) {
  EXPECT_THAT(PartOfServer(Servers(), 6, 7), IsFailedPrecondition("would hold nothing"));
}

}  // namespace
}  // namespace weft::testing
