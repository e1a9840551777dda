#include "proto/text/program_text.h"

#include <limits>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/testing/message_text.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Equal messages, unknown fields and the bits of floats included.
std::string Bytes(const google::protobuf::Message& message) {
  return message.SerializePartialAsString();
}

pb::ProgramDesc ParseOrDie(absl::string_view text) {
  absl::StatusOr<pb::ProgramDesc> program = ParseProgramDescText(text);
  EXPECT_TRUE(program.ok()) << program.status() << "\n" << text;
  return program.ok() ? *program : pb::ProgramDesc();
}

pb::OpDesc ParseOp(absl::string_view line) {
  const pb::ProgramDesc program = ParseOrDie(testing::BlockText(line));
  EXPECT_EQ(program.blocks(0).ops_size(), 1);
  return program.blocks(0).ops(0);
}

pb::VarDesc ParseVar(absl::string_view line) {
  const pb::ProgramDesc program = ParseOrDie(testing::BlockText(line));
  EXPECT_EQ(program.blocks(0).vars_size(), 1);
  return program.blocks(0).vars(0);
}

// The third line: that of the block's only variable or op.
std::string LineOf(const pb::ProgramDesc& program, const PrintOptions& options = {}) {
  const std::string text = MessageText(program, options);
  size_t begin = 0;
  for (int line = 0; line < 2; ++line) begin = text.find('\n', begin) + 1;
  return text.substr(begin + 4, text.find('\n', begin) - begin - 4);
}

std::string LineOf(const pb::OpDesc& op, const PrintOptions& options = {}) {
  pb::ProgramDesc program;
  *program.add_blocks()->add_ops() = op;
  return LineOf(program, options);
}

std::string LineOf(const pb::VarDesc& var, const PrintOptions& options = {}) {
  pb::ProgramDesc program;
  *program.add_blocks()->add_vars() = var;
  return LineOf(program, options);
}

constexpr absl::string_view kLinearRegression = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[13, 1] parameter persistable
    var x : fp32[-1, 13] lod=0 !persistable stop_gradient need_check_feed
    var y : fp32[-1, 1]
    var y@GRAD : fp32[-1, 1]
    var w@GRAD : fp32[13, 1]
    Out=[y : fp32[-1, 1]] = mul(X=[x], Y=[w]) role=forward {op_callstack=strings["File \"a.py\"", "  y = x @ w"], op_device="", op_role, op_role_var, x_num_col_dims=1}
    X@GRAD=[], Y@GRAD=[w@GRAD : fp32[13, 1]] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD] {op_role, op_role_var, x_num_col_dims=1}
  }
  op_versions {equal=1, quantize=2}
}
)";

TEST(ProgramTextTest, ParsedTextPrintsAsItWas) {
  EXPECT_EQ(MessageText(ParseOrDie(kLinearRegression)), kLinearRegression);
}

TEST(ProgramTextTest, ProgramAndMessagePrintAlike) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(kLinearRegression));
  EXPECT_EQ(ProgramText(program), kLinearRegression);
  EXPECT_EQ(Bytes(program.ToProto()), Bytes(ParseOrDie(kLinearRegression)));
}

TEST(ProgramTextTest, ShortTextOmitsIrrelevantParts) {
  EXPECT_EQ(MessageText(ParseOrDie(kLinearRegression), PrintOptions::Short()),
            R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[13, 1] parameter persistable
    var x : fp32[-1, 13] stop_gradient need_check_feed
    var y : fp32[-1, 1]
    var y@GRAD : fp32[-1, 1]
    var w@GRAD : fp32[13, 1]
    Out=[y : fp32[-1, 1]] = mul(X=[x], Y=[w]) role=forward {x_num_col_dims=1}
    X@GRAD=[], Y@GRAD=[w@GRAD : fp32[13, 1]] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1}
  }
}
)");
}

TEST(ProgramTextTest, ShortTextParses) {
  const pb::ProgramDesc program = ParseOrDie(kLinearRegression);
  const std::string text = MessageText(program, PrintOptions::Short());
  EXPECT_EQ(MessageText(ParseOrDie(text), PrintOptions::Short()), text);
}

TEST(ProgramTextTest, EachPartCanBeLeftOut) {
  const pb::ProgramDesc program = ParseOrDie(kLinearRegression);
  PrintOptions options;
  options.callstack = false;
  EXPECT_THAT(MessageText(program, options), Not(HasSubstr("op_callstack")));
  EXPECT_THAT(MessageText(program, options), HasSubstr("op_device"));
  options.vars = false;
  EXPECT_THAT(MessageText(program, options), Not(HasSubstr("var w")));
  options.output_types = false;
  EXPECT_THAT(MessageText(program, options), HasSubstr("Out=[y] = mul("));
  options.attrs = PrintOptions::Attrs::kNone;
  EXPECT_THAT(MessageText(program, options), HasSubstr("vars=[w, w@GRAD]\n"));
}

TEST(ProgramTextTest, OpTextAndVarTextAreTheirLines) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(kLinearRegression));
  const Block block = program.block(0);
  EXPECT_EQ(OpText(program.op(block.ops()[0]), PrintOptions::Short()),
            "Out=[y : fp32[-1, 1]] = mul(X=[x], Y=[w]) role=forward {x_num_col_dims=1}");
  EXPECT_EQ(VarText(program.var(block.vars()[0])), "var w : fp32[13, 1] parameter persistable");
}

TEST(ProgramTextTest, SubBlocksSeeTheTypesOfTheirParents) {
  constexpr absl::string_view kText = R"(program {
  block 0 parent=-1 {
    var x : int64[]
    var c : bool[1]
    conditional_block(Cond=[c]) {sub_block=block(1)}
  }
  block 1 parent=0 forward=0 {
    Out=[x : int64[]], XShape=[undeclared] = reshape2(X=[x])
  }
}
)";
  EXPECT_EQ(MessageText(ParseOrDie(kText)), kText);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(kText));
  EXPECT_EQ(ProgramText(program), kText);
}

TEST(ProgramTextTest, ParentsInACycleDoNotHangThePrinter) {
  pb::ProgramDesc program;
  for (int parent : {1, 0}) {
    pb::BlockDesc* block = program.add_blocks();
    block->set_parent_idx(parent);
    block->add_ops()->add_outputs()->add_arguments("nowhere");
    block->mutable_ops(0)->mutable_outputs(0)->set_parameter("Out");
  }
  EXPECT_EQ(Bytes(ParseOrDie(MessageText(program))), Bytes(program));
}

TEST(ProgramTextTest, TypesAfterOutputsAreOnlyForTheReader) {
  EXPECT_EQ(Bytes(ParseOp("Out=[y : int8[7]] = relu(X=[x : raw])")),
            Bytes(ParseOp("Out=[y] = relu(X=[x])")));
}

TEST(ProgramTextTest, CommentsAndEmptyLinesCountForNothing) {
  EXPECT_EQ(Bytes(ParseOrDie("# a program\n\nprogram { # here\r\n\n\tblock 0 parent=-1 {\n\n"
                             "# no ops\n}\n}  # end")),
            Bytes(ParseOrDie("program {\nblock 0 parent=-1 {\n}\n}\n")));
}

// --- Roles --------------------------------------------------------------------------------------

std::vector<std::string> AttrNames(const pb::OpDesc& op) {
  std::vector<std::string> names;
  for (const auto& attr : op.attrs()) names.push_back(attr.name());
  return names;
}

TEST(ProgramTextTest, RoleAttributesKeepTheirPlaces) {
  const pb::OpDesc op =
      ParseOp("sgd() role=optimize vars=[w, g] {a=1, op_role_var, b=2, op_role, c=3}");
  EXPECT_THAT(AttrNames(op), ElementsAre("a", "op_role_var", "b", "op_role", "c"));
  EXPECT_THAT(op.attrs(1).strings(), ElementsAre("w", "g"));
  EXPECT_EQ(op.attrs(3).i(), 2);
  EXPECT_EQ(Bytes(ParseOp(LineOf(op))), Bytes(op));
}

TEST(ProgramTextTest, RoleAttributesWithoutPositionComeLast) {
  EXPECT_THAT(AttrNames(ParseOp("sgd() role=optimize vars=[w, g] {a=1}")),
              ElementsAre("a", "op_role", "op_role_var"));
}

TEST(ProgramTextTest, RolesOfManyBitsAndUnknownBitsRoundTrip) {
  for (int role : {0, 1, 2, 4, 8, 0x10, 0x12, 0x100, 0x101, 0x1000, 0x2000, -1,
                   std::numeric_limits<int>::min()}) {
    pb::OpDesc op;
    op.set_type("a");
    op.add_attrs()->set_name("op_role");
    op.mutable_attrs(0)->set_type(pb::INT);
    op.mutable_attrs(0)->set_i(role);
    EXPECT_EQ(Bytes(ParseOp(LineOf(op))), Bytes(op)) << LineOf(op);
  }
}

TEST(ProgramTextTest, UnusualRoleAttributesAreInTheBraces) {
  for (const char* line : {
           "a() {op_role=long(1)}",
           "a() {op_role=int()}",
           "a() {op_role_var=\"w\"}",
           "a() {op_role=1, op_role=long(1)}",
           "a() role=forward {op_role=1, op_role}",
       }) {
    EXPECT_EQ(LineOf(ParseOp(line)), line);
  }
}

TEST(ProgramTextTest, UsualRoleAttributesMayBeWrittenInTheBraces) {
  EXPECT_EQ(LineOf(ParseOp("a() {op_role=1, op_role_var=strings[\"w\", \"g\"]}")),
            "a() role=backward vars=[w, g] {op_role, op_role_var}");
}

TEST(ProgramTextTest, EmptyRoleVarsArePrintedAsTheirNameAlone) {
  const pb::OpDesc op = ParseOp("a() role=forward {op_role, op_role_var}");
  EXPECT_EQ(op.attrs(1).type(), pb::STRINGS);
  EXPECT_EQ(op.attrs(1).strings_size(), 0);
  EXPECT_EQ(LineOf(op), "a() role=forward {op_role, op_role_var}");
}

// --- Attributes ---------------------------------------------------------------------------------

TEST(ProgramTextTest, AttributesOfEveryTypeRoundTrip) {
  constexpr absl::string_view kLine =
      R"(op() {a=-1, b=0.5, c="s", d=ints[1, -2], e=floats[1.0, nan], f=strings["x", ""], g=true, )"
      R"(h=bools[true, false], i=block(1), j=long(5000000000), k=blocks[1, 2], l=longs[-1], )"
      R"(m=float64s[0.1, -inf], n=var("v"), o=vars["v", "w"], p=float64(-0.0), )"
      R"(q=scalar({type: LONG, i: 7}), r=scalars[{type: BOOLEAN, b: true}, )"
      R"({type: COMPLEX128, c: {r: 1.0, i: -1.0}}]})";
  const pb::OpDesc op = ParseOp(kLine);
  ASSERT_EQ(op.attrs_size(), pb::AttrType_MAX + 1);
  for (int i = 0; i < op.attrs_size(); ++i) EXPECT_EQ(op.attrs(i).type(), i);
  EXPECT_EQ(LineOf(op), kLine);
}

TEST(ProgramTextTest, EmptyListsAndMissingValuesKeepTheirTypes) {
  constexpr absl::string_view kLine =
      "op() {a=ints[], b=longs[], c=string(), d=int(), e=float(), f=bool(), g=scalar()}";
  EXPECT_EQ(LineOf(ParseOp(kLine)), kLine);
  EXPECT_FALSE(ParseOp(kLine).attrs(2).has_s());
}

TEST(ProgramTextTest, BareValuesMayBeWrittenWithTheirType) {
  EXPECT_EQ(LineOf(ParseOp("op() {a=int(1), b=float(2), c=string(\"s\"), d=bool(true)}")),
            "op() {a=1, b=2.0, c=\"s\", d=true}");
}

TEST(ProgramTextTest, RepeatedAttributeNamesRoundTrip) {
  EXPECT_EQ(LineOf(ParseOp("op() {a=1, a=2.0, a=1}")), "op() {a=1, a=2.0, a=1}");
}

TEST(ProgramTextTest, StringsOfAnyBytesRoundTrip) {
  google::protobuf::LogSilencer quiet;  // it warns of what is not UTF-8
  std::string bytes;
  for (int c = 0; c < 256; ++c) bytes.push_back(static_cast<char>(c));
  pb::OpDesc op = ParseOp("op() {a=\"\"}");
  op.mutable_attrs(0)->set_s(bytes);
  EXPECT_EQ(ParseOp(LineOf(op)).attrs(0).s(), bytes);
}

TEST(ProgramTextTest, ValueInTheFieldOfAnotherTypeIsALiteral) {
  constexpr absl::string_view kLine =
      R"(op() {{name: "a", type: INT, s: "1"}, {name: "b", type: INT, i: 1, ints: [1, 2]}})";
  EXPECT_EQ(LineOf(ParseOp(kLine)), kLine);
}

TEST(ProgramTextTest, UnknownAttributeTypeSurvives) {
  // Field 2 is the type; a number that the enum lacks is an unknown field to protobuf.
  constexpr absl::string_view kLine = R"(op() {{name: "a", i: 3, 2: 99}})";
  const pb::OpDesc op = ParseOp(kLine);
  EXPECT_FALSE(op.attrs(0).has_type());
  EXPECT_EQ(op.attrs(0).unknown_fields().field(0).varint(), 99u);
  EXPECT_EQ(LineOf(op), kLine);
}

// --- Slots and names ----------------------------------------------------------------------------

TEST(ProgramTextTest, EmptySlotsAndEmptyArgumentsRoundTrip) {
  constexpr absl::string_view kLine =
      R"(Out=[], Aux=[@EMPTY@, ""] = c_allreduce_sum(Cond=[], X=[a, a, @EMPTY@]))";
  EXPECT_EQ(LineOf(ParseOp(kLine)), kLine);
}

TEST(ProgramTextTest, NamesOfKeywordsAreNamesStill) {
  constexpr absl::string_view kLine = R"(var=[var], role=[block] = program(extra=[lod]))";
  EXPECT_EQ(LineOf(ParseOp(kLine)), kLine);
  EXPECT_EQ(LineOf(ParseOp("var(vars=[op_role])")), "var(vars=[op_role])");
  EXPECT_EQ(LineOf(ParseVar("var var : raw")), "var var : raw");
}

TEST(ProgramTextTest, NamesThatAreNoWordsAreQuoted) {
  constexpr absl::string_view kLine = R"("O u t"=["a]"] = "?"("{"=["#"]) {"a=b"=1})";
  EXPECT_EQ(LineOf(ParseOp(kLine)), kLine);
}

// --- Variables ----------------------------------------------------------------------------------

TEST(ProgramTextTest, EveryKindOfVariableRoundTrips) {
  for (const char* line : {
           "var v : fp32[]",
           "var v : bf16[-1, 3] lod=0",
           "var v : fp8_e4m3fn[2] lod=3",
           "var v : lod_tensor[1]",
           "var v : lod_tensor",
           "var v : fp32",
           "var v : selected_rows<fp32[100, 8]>",
           "var v : selected_rows",
           "var v : lod_tensor_array<int64[-1] lod=0>",
           "var v : reader<>",
           "var v : reader<fp32[-1, 13] lod=1, int64[-1, 1]>",
           "var v : tuple<>",
           "var v : tuple<fp32, lod_tensor>",
           "var v : string<pstring[1]>",
           "var v : strings<string[2]>",
           "var v : vocab<int32[]>",
           "var v : sparse_coo<fp16[2, 2]>",
           "var v : sparse_csr<complex128[2, 2]>",
           "var v : raw",
           "var v : step_scopes",
           "var v : feed_minibatch",
           "var v : fetch_list",
           "var v : fetch_var_list",
           "var v : {type: RAW, lod_tensor: {tensor: {data_type: FP32}}}",
           "var v : {1: 77}",
           "var v : {}",
           "var v : ?",
           "var ? : raw",
           "var \"\" : raw",
       }) {
    EXPECT_EQ(LineOf(ParseVar(line)), line);
    EXPECT_EQ(Bytes(ParseVar(LineOf(ParseVar(line)))), Bytes(ParseVar(line)));
  }
}

TEST(ProgramTextTest, TensorWithoutDescriptionDiffersFromTensorOfNoDimensions) {
  EXPECT_FALSE(ParseVar("var v : lod_tensor").type().has_lod_tensor());
  EXPECT_EQ(ParseVar("var v : fp32[]").type().lod_tensor().tensor().dims_size(), 0);
  EXPECT_EQ(ParseVar("var v : fp32").type().type(), pb::VarType::FP32);
}

TEST(ProgramTextTest, FlagsTellSetFromUnsetAndUnwritten) {
  const pb::VarDesc var = ParseVar("var v : raw !parameter persistable");
  EXPECT_TRUE(var.has_is_parameter());
  EXPECT_FALSE(var.is_parameter());
  EXPECT_TRUE(var.persistable());
  EXPECT_FALSE(var.has_stop_gradient());
  EXPECT_EQ(LineOf(var), "var v : raw !parameter persistable");
}

TEST(ProgramTextTest, AttributesOfVariablesRoundTrip) {
  constexpr absl::string_view kLine =
      R"(var v : raw {a=1, b="s", c=ints[1, 2], {name: "d", type: FLOAT}} extra={9: 1})";
  EXPECT_EQ(LineOf(ParseVar(kLine)), kLine);
}

// --- What this version does not know ------------------------------------------------------------

TEST(ProgramTextTest, MissingRequiredFieldsRoundTrip) {
  constexpr absl::string_view kText = R"(program version={} {
  block ? parent=? {
    var ? : ?
    var v : {lod_tensor: {}}
    ?() {{}, {name: "a"}}
    {} = a({arguments: ["x"]})
    Out=[] = ?()
  }
  op_versions {{}, {op_name: "a"}, {op_version: {}}}
}
)";
  const pb::ProgramDesc program = ParseOrDie(kText);
  EXPECT_FALSE(program.IsInitialized());
  EXPECT_EQ(MessageText(program), kText);
}

TEST(ProgramTextTest, UnknownFieldsOfEveryWireTypeRoundTrip) {
  constexpr absl::string_view kLine =
      R"(a() extra={is_target: true, 99: 18446744073709551615, 100: fixed32(0xdeadbeef), )"
      R"(101: fixed64(0x123456789abcdef0), 102: "\000\377", 103: {1: 2, 2: {3: "x"}, 4: {}}, 99: 0})";
  EXPECT_EQ(LineOf(ParseOp(kLine)), kLine);
}

TEST(ProgramTextTest, EmptyVersionTableDiffersFromNone) {
  const pb::ProgramDesc program = ParseOrDie("program {\nop_versions {}\n}");
  EXPECT_TRUE(program.has_op_version_map());
  EXPECT_EQ(MessageText(program), "program {\n  op_versions {}\n}\n");
  EXPECT_EQ(MessageText(pb::ProgramDesc()), "program {\n}\n");
}

TEST(ProgramTextTest, SettingsRoundTrip) {
  constexpr absl::string_view kText =
      "program {\n  setting {\"feeds\":{\"# x\":\"whole\"},\"nranks\":4}\n}\n";
  const pb::ProgramDesc program = ParseOrDie(kText);
  EXPECT_EQ(program.weft_setting(), R"({"feeds":{"# x":"whole"},"nranks":4})");
  EXPECT_EQ(MessageText(program), kText);
  // On lines of their own are JSON objects only.
  for (const char* setting : {"", " {}", "{\n}", "x", "{\xff}"}) {
    pb::ProgramDesc odd;
    odd.set_weft_setting(setting);
    EXPECT_EQ(Bytes(ParseOrDie(MessageText(odd))), Bytes(odd)) << MessageText(odd);
  }
}

TEST(ProgramTextTest, SinkGetsTheTextInPieces) {
  std::string lines;
  for (int i = 0; i < 10000; ++i) absl::StrAppend(&lines, "some_op(X=[x", i, "])\n");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(testing::BlockText(lines)));
  std::string all;
  size_t largest = 0;
  PrintProgram(program, {}, [&](absl::string_view piece) {
    all.append(piece.data(), piece.size());
    largest = std::max(largest, piece.size());
  });
  EXPECT_EQ(all, ProgramText(program));
  EXPECT_LT(largest, size_t{80} << 10);
}

}  // namespace
}  // namespace weft::testing
