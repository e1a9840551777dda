#include "proto/formats/pir/document.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "base/testing/archive.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/attributes.h"
#include "proto/formats/pir/json_cursor.h"

namespace weft::pir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::ReadTarXz;

constexpr char kF32[] = R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[2],"NCHW",[],0]})";

// {"#":name, ...} that reads and makes these values.
std::string OpJson(const std::string& name, const std::string& operands, const std::string& results,
                   const std::string& regions = "") {
  std::string in, out;
  for (const char c : operands)
    absl::StrAppend(&in, in.empty() ? "" : ",", R"({"%":)", c - '0', "}");
  for (const char c : results) {
    absl::StrAppend(&out, out.empty() ? "" : ",", R"({"%":)", c - '0', R"(,"TT":)", kF32, "}");
  }
  return absl::StrCat(R"({"#":")", name, R"(","A":[],"I":[)", in, R"(],"O":[)", out, R"(],"OA":[])",
                      regions.empty() ? "" : ",\"regions\":[" + regions + "]", "}");
}

std::string Region(const std::string& ops, const std::string& args = "") {
  return absl::StrCat(R"({"#":"r","blocks":[{"#":"b","args":[)", args, R"(],"ops":[)", ops, "]}]}");
}

std::string File(const std::string& ops, const std::string& version = "4") {
  return absl::StrCat(R"({"base_code":{"magic":"pir","trainable":true,"version":)", version,
                      R"(},"program":{"regions":[)", Region(ops), "]}}");
}

std::string ErrorOf(const std::string& bytes) {
  return std::string(Document::Parse(bytes).status().message());
}

TEST(DocumentTest, IndexesOpsOperandsAndResults) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const auto document,
      Document::Parse(File(OpJson("1.a", "", "12") + ", \n" + OpJson("1.b", "201", "7"))));
  ASSERT_EQ(document->ops().size(), 2u);
  EXPECT_TRUE(document->trainable());
  const DocumentOp& b = document->op(1);
  EXPECT_EQ(b.name, "1.b");
  EXPECT_EQ(b.bytes, OpJson("1.b", "201", "7"));
  std::vector<int64_t> ids;
  for (const Operand& operand : document->operands(b)) {
    ids.push_back(operand.value == kNoValue ? 0 : document->value(operand.value).id);
  }
  EXPECT_THAT(ids, ElementsAre(2, 0, 1));
  EXPECT_EQ(document->results(b)[0].op, 1u);
  EXPECT_EQ(document->max_id(), 7);
  EXPECT_EQ(document->DebugName(1), "op 1 (1.b)");
}

TEST(DocumentTest, OpsOfBlocksFollowTheirOp) {
  const std::string inner = OpJson("1.if", "", "", Region(OpJson("1.a", "", "1")));
  const std::string outer =
      OpJson("1.if", "", "", Region(inner + "," + OpJson("1.b", "", "2")) + "," + Region(""));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto document,
                            Document::Parse(File(outer + "," + OpJson("1.c", "", "3"))));
  std::vector<uint32_t> ends;
  for (uint32_t i = 0; i < document->ops().size(); ++i) ends.push_back(document->EndOf(i));
  EXPECT_THAT(ends, ElementsAre(4, 3, 3, 4, 5));
}

// What looks like ops reserves no more than ops of the same bytes.
TEST(DocumentTest, ReservesNoMoreThanTheBytesHold) {
  std::string other;
  for (int i = 0; i < 100000; ++i) other += R"("A":0,)";
  const std::string bytes =
      absl::StrReplaceAll(File(OpJson("1.a", "", "1")),
                          {{R"({"base_code")", "{\"x\":{" + other + R"("A":0},"base_code")"}});
  WEFT_ASSERT_OK_AND_ASSIGN(const auto document, Document::Parse(bytes));
  EXPECT_EQ(document->ops().size(), 1u);
  EXPECT_LE(document->IndexBytes(), 6 * bytes.size());
}

// A rewrite holds it beside the file and what is made of it. Ops of Paddle have 200 bytes and more.
TEST(DocumentTest, TheIndexIsHalfAsLargeAsTheFile) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/paddle3_pir.tar.xz"));
  for (const char* const model : {"bert_tiny", "mlp_adam", "resnet18_cifar", "wide_deep"}) {
    SCOPED_TRACE(model);
    const std::string& bytes = files.at(absl::StrCat(model, "/main.json"));
    WEFT_ASSERT_OK_AND_ASSIGN(const auto document, Document::Parse(bytes));
    EXPECT_LE(document->IndexBytes(), bytes.size() / 2);
  }
}

TEST(DocumentTest, ReadsEveryFileOfPaddle) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/paddle3_pir.tar.xz"));
  int count = 0;
  for (const auto& [name, bytes] : files) {
    if (name.find("meta") != std::string::npos) continue;
    SCOPED_TRACE(name);
    WEFT_ASSERT_OK_AND_ASSIGN(const auto document, Document::Parse(bytes));
    ++count;
    for (const DocumentOp& op : document->ops()) {
      if (op.name == "p") {
        WEFT_EXPECT_OK(ReadParameter(op));
        continue;
      }
      WEFT_ASSERT_OK_AND_ASSIGN(const auto attributes, ReadAttributes(op.attrs));
      for (const Attribute& attribute : attributes) WEFT_EXPECT_OK(ToAttr(attribute));
    }
    for (const Value& value : document->values()) WEFT_EXPECT_OK(ReadType(value.type));
  }
  EXPECT_EQ(count, 24);
}

TEST(DocumentTest, RefusesOtherVersionsAndFiles) {
  EXPECT_THAT(
      ErrorOf(File("", "5")),
      HasSubstr("expected 1 to 4, which Paddle 3.0 to 3.3 write, found 5; build the program "
                "in Paddle 3.3 and save it there"));
  EXPECT_THAT(ErrorOf(File("", "0")),
              HasSubstr("found 0; load the file in Paddle 3.3 and save it with"));
  EXPECT_EQ(ErrorOf(File("", "1")), "");
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(File(""), {{R"(,"version":4)", ""}})),
              HasSubstr("found none"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(File(""), {{R"("pir")", R"("onnx")"}})),
              HasSubstr("expected pir, found 'onnx'"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("found no base_code"));
  EXPECT_THAT(ErrorOf(R"({"base_code":{"magic":"pir","version":4}})"),
              HasSubstr("found no program"));
  EXPECT_THAT(ErrorOf(File("") + " x"), HasSubstr("expected the end, found 'x'"));
  EXPECT_FALSE(LooksLikeDocument("\x0a\x02"));
  EXPECT_TRUE(LooksLikeDocument(File("")));
}

TEST(DocumentTest, RefusesWhatPaddlesLoaderTakes) {
  EXPECT_THAT(ErrorOf(File(OpJson("1.a", "3", "1"))), HasSubstr("op 0 (1.a): operand 0: expected"));
  EXPECT_THAT(ErrorOf(File(OpJson("1.a", "1", "1"))), HasSubstr("found %1"));
  EXPECT_THAT(ErrorOf(File(OpJson("1.a", "", "1") + "," + OpJson("1.b", "", "1"))),
              HasSubstr("op 1 (1.b): expected every value to be made once, found %1 made twice, "
                        "before by op 0 (1.a)"));
}

TEST(DocumentTest, ValuesOfABlockEndWithIt) {
  const std::string branch = OpJson("1.if", "1", "4", Region(OpJson("1.b", "1", "2")));
  WEFT_EXPECT_OK(Document::Parse(File(OpJson("1.a", "", "1") + "," + branch)));
  EXPECT_THAT(ErrorOf(File(OpJson("1.a", "", "1") + "," + branch + "," + OpJson("1.c", "2", "5"))),
              HasSubstr("op 2 (1.c): operand 0"));
  // Results of an op are not known in its own regions.
  EXPECT_THAT(ErrorOf(File(OpJson("1.if", "", "4", Region(OpJson("1.b", "4", "2"))))),
              HasSubstr("block 1 op 0 (1.b): operand 0"));
  const std::string arg = absl::StrCat(R"({"#":-1,"TT":)", kF32, "}");
  WEFT_EXPECT_OK(Document::Parse(File(OpJson(
      "1.while", "", "4",
      Region(absl::StrReplaceAll(OpJson("1.b", "9", "2"), {{R"("%":9)", R"("%":-1)"}}), arg)))));
}

TEST(DocumentTest, RefusesDamagedFiles) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/paddle3_pir.tar.xz"));
  const std::string bytes = files.at("fit_a_line/main.json");
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(Document::Parse(bytes.substr(0, size)).ok()) << size;
  }
}

TEST(DocumentTest, RefusesDeepAndHugeThings) {
  std::string deep = OpJson("1.a", "", "1");
  for (int i = 0; i < 100; ++i) deep = OpJson("1.if", "", "", Region(deep));
  EXPECT_THAT(ErrorOf(File(deep)), HasSubstr("nested at most 64 deep"));
  const std::string brackets(1000000, '[');
  EXPECT_THAT(ErrorOf(absl::StrCat(R"({"base_code":)", brackets)), HasSubstr("expected '{'"));
  EXPECT_THAT(ErrorOf(absl::StrCat(R"({"other":)", brackets)),
              HasSubstr("values nested at most 512 deep"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(File(OpJson("1.a", "", "1")),
                                          {{R"("%":1)", R"("%":99999999999999999999)"}})),
              HasSubstr("expected an integer of 64 bits, found 99999999999999999999"));
  EXPECT_THAT(
      ErrorOf(absl::StrReplaceAll(File(OpJson("1.a", "", "1")), {{R"("%":1)", R"("%":-1)"}})),
      HasSubstr("expected a positive id of a result, found -1"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(File(OpJson("1.a", "", "1")),
                                          {{R"("A":[],)", R"("A":[],"A":[],)"}})),
              HasSubstr("expected a key once in its object"));
}

// Ops of a file that is written, one after another.
TEST(OpCheckerTest, ChecksValuesAcrossOps) {
  const auto op = [](const std::string& in, const std::string& out, const std::string& more = "") {
    return absl::StrCat(R"({"#":"1.relu","A":[],"I":[)", in, R"(],"O":[{"%":)", out,
                        R"(,"TT":{}}])", more, "}");
  };
  OpChecker checker;
  WEFT_EXPECT_OK(checker.Check(op("", "1")));
  WEFT_EXPECT_OK(checker.Check(op(R"({"%":1},{"%":0})", "2")));
  EXPECT_THAT(std::string(checker.Check(op(R"({"%":4})", "3")).message()),
              HasSubstr("op 2 (1.relu): operand 0: expected a value"));
  EXPECT_THAT(std::string(checker.Check(op(R"({"%":3})", "3")).message()), HasSubstr("found %3"));
  EXPECT_THAT(std::string(checker.Check(op(R"({"%":1})", "2")).message()),
              HasSubstr("found %2 made twice"));
  EXPECT_FALSE(checker.Check(op(R"({"%":1})", "3") + ",").ok());
  EXPECT_FALSE(checker.Check(R"({"#":"1.relu","A":[],"I":[],"O":[})").ok());
  // Values of blocks in ops stay there, and no other has their ids.
  const std::string region =
      absl::StrCat(R"(,"regions":[{"blocks":[{"args":[],"ops":[)", op(R"({"%":2})", "8"), "]}]}]");
  WEFT_EXPECT_OK(checker.Check(op(R"({"%":2})", "3", region)));
  EXPECT_THAT(std::string(checker.Check(op(R"({"%":8})", "4")).message()), HasSubstr("found %8"));
  EXPECT_THAT(std::string(checker.Check(op("", "8")).message()), HasSubstr("found %8 made twice"));
  WEFT_EXPECT_OK(checker.Check(op(R"({"%":3})", "9")));
}

TEST(JsonTest, SkipsWhatTheGrammarHas) {
  for (const char* good : {"0", "-1.5e+3", "\"a\\u00e9\\n\"", "[]", "{}", "[1, {\"a\": [true]}]",
                           " {\"a\" : null , \"b\":[ ] } "}) {
    JsonCursor in(good);
    EXPECT_TRUE(in.SkipValue() && in.ExpectEnd()) << good << in.status();
  }
  for (const char* bad : {"", "01", "1.", "-", "tru", "\"a", "\"\\x\"", "[1,]", "[1 2]", "{\"a\"}",
                          "{1:2}", "[}", "{\"a\":1]", "\"\\u12\"", "1e"}) {
    JsonCursor in(bad);
    EXPECT_FALSE(in.SkipValue() && in.ExpectEnd()) << bad;
  }
}

TEST(JsonTest, Unescapes) {
  EXPECT_THAT(*JsonUnescape("a\\n\\\"\\\\\\/\\u00e9\\ud83d\\ude00"),
              "a\n\"\\/\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_FALSE(JsonUnescape("\\ud83dx").ok());
  EXPECT_FALSE(JsonUnescape("\\ude00").ok());
}

// Which of the two Paddle takes depends on its reader.
TEST(AttributesTest, RefusesWhatComesTwice) {
  const auto error = [](const std::string& json) {
    return std::string(ReadAttributes(json).status().message());
  };
  const std::string typed = R"({"#":"0.a_bool","D":false})";
  EXPECT_THAT(error(absl::StrCat(R"([{"N":"b","AT":)", typed, R"(},{"N":"a","AT":)", typed,
                                 R"(},{"N":"b","AT":{"#":"0.a_bool","D":true}}])")),
              HasSubstr("expected every name once, found b twice"));
  EXPECT_THAT(error(absl::StrCat(R"([{"N":"a","N":"b","AT":)", typed, "}]")),
              HasSubstr("expected a key once in its object"));
  EXPECT_THAT(error(absl::StrCat(R"([{"N":"a","AT":)", typed, R"(,"AT":)", typed, "}]")),
              HasSubstr("expected a key once in its object"));
  EXPECT_THAT(error(R"([{"N":"a","AT":{"#":"0.a_bool","D":false,"D":true}}])"),
              HasSubstr("expected a key once in its object"));
  EXPECT_THAT(error(absl::StrCat(R"([{"N":"\u0061","AT":)", typed, "}]")),
              HasSubstr("expected a name without escapes"));
  EXPECT_FALSE(ReadType(R"({"#":"0.t_vec","D":[],"D":[]})").ok());
}

TEST(AttributesTest, RefusesOtherKindsAndValues) {
  const auto first = [](const std::string& typed) {
    const std::string json = absl::StrCat(R"([{"N":"a","AT":)", typed, "}]");  // the list views it
    const auto list = ReadAttributes(json);
    WEFT_EXPECT_OK(list);
    return ToAttr(list->at(0)).status().ok();
  };
  EXPECT_TRUE(first(R"({"#":"0.a_i32","D":7})"));
  EXPECT_FALSE(first(R"({"#":"0.a_i32","D":3000000000})"));
  EXPECT_FALSE(first(R"({"#":"0.a_bool","D":1})"));
  EXPECT_FALSE(first(R"({"#":"0.a_f32","D":null})"));
  EXPECT_FALSE(first(R"({"#":"0.a_new","D":1})"));
  EXPECT_FALSE(first(R"({"#":"1.a_dtype","D":"float99"})"));
  EXPECT_FALSE(first(R"({"#":"0.a_array","D":[{"#":"0.a_i32","D":1},{"#":"0.a_f32","D":1.0}]})"));
  EXPECT_FALSE(ReadAttributes(R"([{"N":"a"}])").ok());
}

}  // namespace
}  // namespace weft::pir
