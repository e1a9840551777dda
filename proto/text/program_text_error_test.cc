#include <random>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/testing/message_text.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string ErrorOf(absl::string_view text) {
  const absl::StatusOr<pb::ProgramDesc> program = ParseProgramDescText(text);
  if (program.ok()) return "no error";
  EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(program.status().message());
}

// What is wrong with a line that stands third, from its first column.
std::string ErrorOfLine(absl::string_view line) { return ErrorOf(testing::BlockText(line)); }

struct Mistake {
  const char* text;
  const char* error;
};

TEST(ProgramTextErrorTest, FrameOfAProgram) {
  const Mistake kMistakes[] = {
      {"", "line 1, column 1: expected 'program', found end of text"},
      {"\n\n", "line 3, column 1: expected 'program', found end of text"},
      {"blocks {", "line 1, column 1: expected 'program', found 'blocks'"},
      {"program", "line 1, column 8: expected '{', found end of text"},
      {"program {",
       "line 1, column 10: expected 'block', 'op_versions' (once), 'setting' (once) or '}', found "
       "end "
       "of text"},
      {"program { block", "line 1, column 11: expected end of line, found 'block'"},
      {"program version=x {", "line 1, column 17: expected a 64-bit integer, found 'x'"},
      {"program {\nvar x : raw\n}",
       "line 2, column 1: expected 'block', 'op_versions' (once), 'setting' (once) or '}', found "
       "'var'"},
      {"program {\nop_versions {}\nop_versions {}\n}",
       "line 3, column 1: expected 'block', 'op_versions' (once), 'setting' (once) or '}', found "
       "'op_versions'"},
      {"program {\nop_versions {a}\n}", "line 2, column 15: expected '=', found '}'"},
      {"program {\nop_versions {a=1.5}\n}",
       "line 2, column 16: expected a 32-bit integer, found '1.5'"},
      {"program {\nop_versions {a=1 b=2}\n}", "line 2, column 18: expected ',' or '}', found 'b'"},
      {"program {\n}\nprogram {\n}", "line 3, column 1: expected end of text, found 'program'"},
      {"program {\nblock x parent=0 {", "line 2, column 7: expected a 32-bit integer, found 'x'"},
      {"program {\nblock 0 {", "line 2, column 9: expected 'parent=', found '{'"},
      {"program {\nblock 0 parent = -1 {", "line 2, column 9: expected 'parent=', found 'parent'"},
      {"program {\nblock 0 parent=-1", "line 2, column 18: expected '{', found end of text"},
      {"program {\nblock 0 parent=-1 {\n",
       "line 3, column 1: expected a variable, an op or '}', found end of text"},
      {"program {\nblock 0 parent=-1 {\n} }", "line 3, column 3: expected end of line, found '}'"},
      {"program extra={4: 1", "line 1, column 20: expected ',' or '}', found end of text"},
      {"program version=1 extra={version: {}} {",
       "line 1, column 26: expected each field of ProgramDesc once, found 'version'"},
  };
  for (const Mistake& m : kMistakes) EXPECT_EQ(ErrorOf(m.text), m.error) << m.text;
}

TEST(ProgramTextErrorTest, LinesOfVariables) {
  const Mistake kMistakes[] = {
      {"var", "line 3, column 4: expected a name, found end of line"},
      {"var x", "line 3, column 6: expected ':', found end of line"},
      {"var x :", "line 3, column 8: expected a type, found end of line"},
      {"var x : float", "line 3, column 9: expected a type, found 'float'"},
      {"var x : FP32[1]", "line 3, column 9: expected a type, found 'FP32'"},
      {"var x : fp32[", "line 3, column 14: expected a 64-bit integer, found end of line"},
      {"var x : fp32[1 2]", "line 3, column 16: expected ',' or ']', found '2'"},
      {"var x : fp32[1.5]", "line 3, column 14: expected a 64-bit integer, found '1.5'"},
      {"var x : fp32[9223372036854775808]",
       "line 3, column 14: expected a 64-bit integer, found '9223372036854775808'"},
      {"var x : raw<fp32[1]>", "line 3, column 12: expected a type that takes '<', found '<'"},
      {"var x : selected_rows<fp32>", "line 3, column 27: expected '[', found '>'"},
      {"var x : selected_rows<fp32[1]", "line 3, column 30: expected '>', found end of line"},
      {"var x : tuple<fp32", "line 3, column 19: expected ',' or '>', found end of line"},
      {"var x : raw lod=0", "line 3, column 13: expected end of line, found 'lod'"},
      {"var x : fp32[1] lod=a", "line 3, column 21: expected a 32-bit integer, found 'a'"},
      {"var x : raw !lod",
       "line 3, column 14: expected parameter, persistable, stop_gradient or need_check_feed, "
       "found 'lod'"},
      {"var x : raw feed", "line 3, column 13: expected end of line, found 'feed'"},
      {"var x : raw {a=1.5}", "line 3, column 16: expected an int, string or ints, found '1.5'"},
      {"var x : raw {a=longs[1]}", "line 3, column 16: expected an attribute value, found 'longs'"},
      {"var x : {type: NONE}", "line 3, column 16: expected a value of Type, found 'NONE'"},
  };
  for (const Mistake& m : kMistakes) EXPECT_EQ(ErrorOfLine(m.text), m.error) << m.text;
}

TEST(ProgramTextErrorTest, LinesOfOps) {
  const Mistake kMistakes[] = {
      {"relu", "line 3, column 5: expected '=' or '(', found end of line"},
      {"= relu()", "line 3, column 1: expected a variable, an op or '}', found '='"},
      {"Out=x = relu()", "line 3, column 5: expected '[', found 'x'"},
      {"Out=[x", "line 3, column 7: expected ',' or ']', found end of line"},
      {"Out=[x,] = relu()", "line 3, column 8: expected a name, found ']'"},
      {"Out=[x] relu()", "line 3, column 9: expected ',' or '=', found 'relu'"},
      {"Out=[x] = (", "line 3, column 11: expected a name, found '('"},
      {"Out=[x] = relu", "line 3, column 15: expected '(', found end of line"},
      {"Out=[x : y] = relu()", "line 3, column 10: expected a type, found 'y'"},
      {"relu(X)", "line 3, column 7: expected '=', found ')'"},
      {"relu(X=[x] Y=[y])", "line 3, column 12: expected ',' or ')', found 'Y'"},
      {"relu() relu()", "line 3, column 8: expected end of line, found 'relu'"},
      {"relu() role=x", "line 3, column 13: expected a role, found 'x'"},
      {"relu() role=backward|", "line 3, column 13: expected a role, found 'backward|'"},
      {"relu() role=\"loss\"", "line 3, column 13: expected a role, found string \"loss\""},
      {"relu() vars=w", "line 3, column 13: expected '[', found 'w'"},
      {"relu() vars=[w] role=forward", "line 3, column 17: expected end of line, found 'role'"},
      {"relu() {op_role}",
       "line 3, column 9: expected 'role=' before the braces, once, found 'op_role'"},
      {"relu() role=forward {op_role, op_role}",
       "line 3, column 31: expected 'role=' before the braces, once, found 'op_role'"},
      {"relu() {op_role_var, op_role_var}",
       "line 3, column 22: expected op_role_var without a value once, found 'op_role_var'"},
      {"relu() extra={99}", "line 3, column 17: expected ':', found '}'"},
      {"relu() extra={type: \"a\"}",
       "line 3, column 15: expected each field of OpDesc once, found 'type'"},
      {"{parameter: 1} = relu()", "line 3, column 13: expected a string, found '1'"},
      {"{name: \"x\"} = relu()", "line 3, column 2: expected a field of Var, found 'name'"},
  };
  for (const Mistake& m : kMistakes) EXPECT_EQ(ErrorOfLine(m.text), m.error) << m.text;
}

TEST(ProgramTextErrorTest, Attributes) {
  const Mistake kMistakes[] = {
      {"a() {", "line 3, column 6: expected a name, found end of line"},
      {"a() {x}", "line 3, column 7: expected '=', found '}'"},
      {"a() {x=}", "line 3, column 8: expected an attribute value, found '}'"},
      {"a() {x=abc}", "line 3, column 8: expected an attribute value, found 'abc'"},
      {"a() {x=True}", "line 3, column 8: expected an attribute value, found 'True'"},
      {"a() {x=2147483648}", "line 3, column 8: expected a 32-bit integer, found '2147483648'"},
      {"a() {x=1e99}", "line 3, column 8: expected a 32-bit floating-point number, found '1e99'"},
      {"a() {x=[1]}", "line 3, column 8: expected an attribute value, found '['"},
      {"a() {x=ints(1)}", "line 3, column 12: expected '[', found '('"},
      {"a() {x=ints[1.0]}", "line 3, column 13: expected a 32-bit integer, found '1.0'"},
      {"a() {x=bools[1]}", "line 3, column 14: expected true or false, found '1'"},
      {"a() {x=long[1]}", "line 3, column 12: expected '(', found '['"},
      {"a() {x=long(1, 2)}", "line 3, column 14: expected ')', found ','"},
      {"a() {x=strings[a]}", "line 3, column 16: expected a string, found 'a'"},
      {"a() {x=scalar({type: INT})}", "line 3, column 22: expected a value of Type, found 'INT'"},
      {"a() {x=\"abc}",
       "line 3, column 8: expected an attribute value, found a string without "
       "end"},
      {"a() {x=\"\\q\"}",
       "line 3, column 8: expected a string with valid escapes (Unknown escape sequence: \\q), "
       "found string \"\\q\""},
      {"a() {x=1 y=2}", "line 3, column 10: expected ',' or '}', found 'y'"},
      {"a() {{name: \"x\", name: \"y\"}}",
       "line 3, column 18: expected each field of Attr once, found 'name'"},
      {"a() {{ints: 1}}", "line 3, column 13: expected '[', found '1'"},
      {"a() {{0: 1}}", "line 3, column 7: expected a field number, found '0'"},
      {"a() {{536870912: 1}}", "line 3, column 7: expected a field number, found '536870912'"},
      {"a() {{99: x}}", "line 3, column 11: expected the value of an unknown field, found 'x'"},
      {"a() {{99: fixed32(1)}}", "line 3, column 19: expected 32 bits as 0x..., found '1'"},
      {"a() {{\"name\": 1}}",
       "line 3, column 7: expected a field name or number, found string \"name\""},
      {"a() $", "line 3, column 5: expected end of line, found character '$'"},
      {"a() \x01", "line 3, column 5: expected end of line, found character '\x01'"},
      {"a() \xff", "line 3, column 5: expected end of line, found character '\\xff'"},
  };
  for (const Mistake& m : kMistakes) EXPECT_EQ(ErrorOfLine(m.text), m.error) << m.text;
}

TEST(ProgramTextErrorTest, LongTokensAreCutInMessages) {
  EXPECT_EQ(ErrorOfLine("a() " + std::string(1000000, 'x')),
            absl::StrCat("line 3, column 5: expected end of line, found '", std::string(40, 'x'),
                         "...'"));
}

TEST(ProgramTextErrorTest, DeepGroupsAreRefusedNotFollowed) {
  std::string groups;
  for (int i = 0; i < 1000000; ++i) groups.append("1: {");
  EXPECT_THAT(ErrorOfLine(absl::StrCat("a() extra={", groups)),
              HasSubstr("expected groups no deeper than 100, found '{'"));
}

TEST(ProgramTextErrorTest, WellFormedTextOfABadProgramIsRefusedByTheProgram) {
  EXPECT_THAT(ParseProgramText("program {\n}\n").status().message(), HasSubstr("blocks"));
  EXPECT_THAT(ParseProgramText("program {\nblock 3 parent=-1 {\n}\n}\n").status().message(),
              HasSubstr("idx 3"));
}

constexpr absl::string_view kProgram = R"(program version=1 extra={9: "\000"} {
  block 0 parent=-1 {
    var x : reader<fp32[-1, 13] lod=0> !persistable {a=1}
    Out=[y : fp32[1]], B=[] = mul(X=[x], {parameter: "Y"}) role=loss vars=[a, b] {op_role, f=1.5, s="\"", l=longs[1], q=scalar({type: LONG})} extra={7: {8: fixed32(0x1)}}
  }
  op_versions {equal=1}
})";

TEST(ProgramTextErrorTest, EveryTruncationIsAnErrorWithAPlace) {
  WEFT_ASSERT_OK(ParseProgramDescText(kProgram).status());
  for (size_t size = 0; size < kProgram.size(); ++size) {
    EXPECT_THAT(ErrorOf(kProgram.substr(0, size)),
                MatchesRegex("line [0-9]+, column [0-9]+: expected .*, found .*"));
  }
}

TEST(ProgramTextErrorTest, DamagedTextNeverCrashes) {
  google::protobuf::LogSilencer quiet;
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text(kProgram);
    for (int edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
      }
    }
    const absl::StatusOr<pb::ProgramDesc> program = ParseProgramDescText(text);
    if (!program.ok()) {
      ++refused;
      continue;
    }
    // What is accepted means something: it prints and reads back the same.
    const absl::StatusOr<pb::ProgramDesc> again = ParseProgramDescText(MessageText(*program));
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
    EXPECT_EQ(again->SerializePartialAsString(), program->SerializePartialAsString()) << text;
  }
  EXPECT_GT(refused, 10000);
}

TEST(ProgramTextErrorTest, RandomBytesAreRefused) {
  std::mt19937 random(8);
  for (int i = 0; i < 2000; ++i) {
    std::string text = i % 2 == 0 ? "" : "program {\nblock 0 parent=-1 {\n";
    for (int n = random() % 200; n > 0; --n) text.push_back(static_cast<char>(random()));
    EXPECT_NE(ErrorOf(text), "no error");
  }
}

}  // namespace
}  // namespace weft::testing
