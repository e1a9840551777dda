#include "proto/diff/program_diff.h"

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "base/testing/archive.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/normalize.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = Difference::Kind;
using Subject = Difference::Subject;

Program ParseOrDie(absl::string_view text) {
  absl::StatusOr<Program> program = ParseProgramText(text);
  if (!program.ok()) {
    ADD_FAILURE() << program.status() << "\n" << text;
    std::abort();
  }
  return *std::move(program);
}

constexpr absl::string_view kProgram = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[13, 1] parameter persistable
    var x : fp32[-1, 13] lod=0 stop_gradient need_check_feed
    var y : fp32[-1, 1]
    var z : fp32[-1, 1]
    Out=[y] = mul(X=[x], Y=[w]) role=forward {a=1, b=2.0, c=longs[3]}
    Out=[z] = relu(X=[y]) role=forward {op_device=""}
    c_sync_calc_stream(X=[z]) role=backward
    Out=[z] = c_allreduce_sum(Cond=[], X=[z]) role=backward {ring_id=0}
    c_sync_comm_stream(X=[z]) role=backward {ring_id=0}
  }
  op_versions {equal=1, quantize=2}
}
)";

using Normalize = void (*)(pb::ProgramDesc*);

Program Normalized(const Program& program, Normalize normalize) {
  pb::ProgramDesc desc = program.ToProto();
  normalize(&desc);
  return *Program::FromProto(desc);
}

// What is different after one piece of the program is written otherwise.
std::string DiffAfter(
    absl::string_view what, absl::string_view with, Normalize normalize = [](pb::ProgramDesc*) {}) {
  const std::string changed = absl::StrReplaceAll(kProgram, {{what, with}});
  EXPECT_NE(changed, kProgram) << "nothing replaced";
  return DifferencesText(DiffPrograms(Normalized(ParseOrDie(kProgram), normalize),
                                      Normalized(ParseOrDie(changed), normalize)));
}

TEST(ProgramDiffTest, EqualProgramsHaveNoDifferences) {
  EXPECT_THAT(DiffPrograms(ParseOrDie(kProgram), ParseOrDie(kProgram)), IsEmpty());
  EXPECT_EQ(DifferencesText({}), "");
}

TEST(ProgramDiffTest, EqualMessagesOfOtherBytesDoNotDiffer) {
  // The version before the block instead of after it, and idx written twice.
  const pb::ProgramDesc desc = ParseOrDie(kProgram).ToProto();
  pb::ProgramDesc version, rest = desc;
  *version.mutable_version() = desc.version();
  rest.clear_version();
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program,
                            Program::Parse(version.SerializeAsString() + rest.SerializeAsString()));
  EXPECT_THAT(DiffPrograms(ParseOrDie(kProgram), program), IsEmpty());
}

TEST(ProgramDiffTest, DeclaredEmptyVariablesAreCompared) {
  const Program none = ParseOrDie("program {\nblock 0 parent=-1 {\n}\n}\n");
  const auto declared = [](absl::string_view type) {
    return ParseOrDie(
        absl::StrCat("program {\nblock 0 parent=-1 {\nvar @EMPTY@ : ", type, "\n}\n}\n"));
  };
  EXPECT_THAT(DiffPrograms(declared("fp32[1]"), declared("fp32[1]")), IsEmpty());
  EXPECT_THAT(DiffPrograms(declared("fp32[1]"), declared("fp32[2]")), SizeIs(1));
  EXPECT_THAT(DiffPrograms(none, declared("fp32[1]")), SizeIs(1));
}

// --- Ops ----------------------------------------------------------------------------------------

TEST(ProgramDiffTest, ChangedAttributesAreReported) {
  EXPECT_EQ(DiffAfter("a=1, b=2.0", "a=7, b=float64(2.0), d=\"new\""),
            "block 0\n"
            "~ op 0 (mul): attr a: 1 -> 7; attr b: 2.0 -> float64(2.0); attr d: (none) -> "
            "\"new\"\n");
  EXPECT_EQ(DiffAfter("a=1, b", "b"), "block 0\n~ op 0 (mul): attr a: 1 -> (none)\n");
}

TEST(ProgramDiffTest, TypeOfAListMattersEvenWhereItsValuesAreEqual) {
  EXPECT_EQ(DiffAfter("longs[3]", "ints[3]"),
            "block 0\n~ op 0 (mul): attr c: longs[3] -> ints[3]\n");
}

TEST(ProgramDiffTest, RoleAndRoleVarsAreAttributes) {
  EXPECT_EQ(DiffAfter("role=backward {", "role=optimize vars=[w, z] {"),
            "block 0\n"
            "~ op 3 (c_allreduce_sum): attr op_role: 1 -> 2; attr op_role_var: (none) -> "
            "strings[\"w\", \"z\"]\n"
            "~ op 4 (c_sync_comm_stream): attr op_role: 1 -> 2; attr op_role_var: (none) -> "
            "strings[\"w\", \"z\"]\n");
}

TEST(ProgramDiffTest, OrderOfAttributesIsADifferenceUnlessSorted) {
  EXPECT_EQ(DiffAfter("a=1, b=2.0", "b=2.0, a=1"),
            "block 0\n~ op 0 (mul): attr order: a, b, c, op_role -> b, a, c, op_role\n");
  EXPECT_EQ(DiffAfter("a=1, b=2.0", "b=2.0, a=1", testing::SortAttributes), "");
}

TEST(ProgramDiffTest, RepeatedAttributesAreComparedOneByOne) {
  EXPECT_EQ(DiffAfter("a=1, b=2.0", "a=1, a=1, b=2.0"),
            "block 0\n~ op 0 (mul): attr a: (none) -> 1\n");
}

TEST(ProgramDiffTest, ChangedSlotsAndArgumentsAreReported) {
  EXPECT_EQ(DiffAfter("Cond=[], X=[z]", "Cond=[], X=[z, y]"),
            "block 0\n~ op 3 (c_allreduce_sum): input X: [z] -> [z, y]\n");
  EXPECT_EQ(DiffAfter("Cond=[], X", "X"),
            "block 0\n~ op 3 (c_allreduce_sum): input Cond: [] -> (none)\n");
  EXPECT_EQ(DiffAfter("X=[x], Y=[w]", "Y=[w], X=[x]"),
            "block 0\n~ op 0 (mul): input order: X, Y -> Y, X\n");
  EXPECT_EQ(DiffAfter("Out=[y] =", "Out=[z] ="), "block 0\n~ op 0 (mul): output Out: [y] -> [z]\n");
}

TEST(ProgramDiffTest, UnknownFieldsOfAnOpAreCompared) {
  EXPECT_EQ(DiffAfter("{op_device=\"\"}", "{op_device=\"\"} extra={is_target: true, 99: 1}"),
            "block 0\n~ op 1 (relu): extra: {} -> {is_target: true, 99: 1}\n");
}

TEST(ProgramDiffTest, InsertedOpDoesNotDisturbTheOthers) {
  const Program a = ParseOrDie(kProgram);
  const Program b = ParseOrDie(absl::StrReplaceAll(
      kProgram, {{"    Out=[z] = relu",
                  "    Out=[y] = scale(X=[y]) role=forward {scale=0.5}\n"
                  "    Out=[z] = relu"},
                 {"c_allreduce_sum(Cond=[], X=[z]) role=backward {ring_id=0}",
                  "c_allreduce_sum(Cond=[], X=[z]) role=backward {ring_id=1}"}}));
  const std::vector<Difference> differences = DiffPrograms(a, b);
  EXPECT_EQ(DifferencesText(differences),
            "block 0\n"
            "+ op 1: Out=[y : fp32[-1, 1]] = scale(X=[y]) role=forward {scale=0.5}\n"
            "~ op 3 -> 4 (c_allreduce_sum): attr ring_id: 0 -> 1\n");
  ASSERT_THAT(differences, SizeIs(2));
  EXPECT_EQ(differences[0].kind, Kind::kAdded);
  EXPECT_EQ(differences[0].a_index, -1);
  EXPECT_EQ(differences[0].b_index, 1);
  EXPECT_EQ(differences[0].name, "scale");
  EXPECT_EQ(differences[1].a_index, 3);
  EXPECT_EQ(differences[1].b_index, 4);
  EXPECT_EQ(differences[1].details[0].what, "attr ring_id");
  EXPECT_EQ(differences[1].details[0].a, "0");
  EXPECT_EQ(differences[1].details[0].b, "1");
}

TEST(ProgramDiffTest, OpOfAnotherTypeIsRemovedAndAdded) {
  EXPECT_EQ(DiffAfter("relu(X=[y])", "gelu(X=[y])"),
            "block 0\n"
            "- op 1: Out=[z : fp32[-1, 1]] = relu(X=[y]) role=forward\n"
            "+ op 1: Out=[z : fp32[-1, 1]] = gelu(X=[y]) role=forward\n");
}

TEST(ProgramDiffTest, MovedOpIsRemovedAndAdded) {
  constexpr absl::string_view kMul =
      "    Out=[y] = mul(X=[x], Y=[w]) role=forward {a=1, b=2.0, c=longs[3]}\n";
  constexpr absl::string_view kRelu = "    Out=[z] = relu(X=[y]) role=forward {op_device=\"\"}\n";
  const std::vector<Difference> differences =
      DiffPrograms(ParseOrDie(kProgram),
                   ParseOrDie(absl::StrReplaceAll(
                       kProgram, {{absl::StrCat(kMul, kRelu), absl::StrCat(kRelu, kMul)}})));
  ASSERT_THAT(differences, SizeIs(2));
  EXPECT_EQ(differences[0].name, differences[1].name);
}

TEST(ProgramDiffTest, IgnoredAttributesMayDiffer) {
  EXPECT_EQ(DiffAfter("{op_device=\"\"}", "{op_device=\"gpu:0\", op_callstack=strings[\"f\"]}",
                      testing::RemoveBookkeeping),
            "");
  EXPECT_EQ(DiffAfter("{op_device=\"\"}", "{op_namescope=\"/\", x=1}", testing::RemoveBookkeeping),
            "block 0\n~ op 1 (relu): attr x: (none) -> 1\n");
}

// --- Variables, blocks, the program -------------------------------------------------------------

TEST(ProgramDiffTest, VariablesAreComparedByName) {
  EXPECT_EQ(DiffAfter("var y : fp32[-1, 1]", "var yy : fp32[-1, 1]"),
            "block 0\n- var y : fp32[-1, 1]\n+ var yy : fp32[-1, 1]\n");
}

TEST(ProgramDiffTest, ShapesDtypesAndFlagsAreCompared) {
  EXPECT_EQ(DiffAfter("w : fp32[13, 1] parameter persistable",
                      "w : fp16[13, 2] !parameter persistable !stop_gradient {a=1} extra={9: 1}"),
            "block 0\n"
            "~ var w: type: fp32[13, 1] -> fp16[13, 2]; parameter: true -> false; stop_gradient: "
            "(none) -> false; attr a: (none) -> 1; extra: {} -> {9: 1}\n");
  EXPECT_EQ(DiffAfter("lod=0 ", "lod=1 "),
            "block 0\n~ var x: type: fp32[-1, 13] lod=0 -> fp32[-1, 13] lod=1\n");
}

TEST(ProgramDiffTest, WrittenDefaultsAreADifferenceUnlessCleared) {
  EXPECT_EQ(DiffAfter("lod=0 ", "!persistable "),
            "block 0\n~ var x: type: fp32[-1, 13] lod=0 -> fp32[-1, 13]; persistable: (none) -> "
            "false\n");
  const auto clear = testing::ClearWrittenDefaults;
  EXPECT_EQ(DiffAfter("lod=0 ", "!persistable ", clear), "");
  EXPECT_EQ(DiffAfter("parent=-1", "parent=-1 forward=-1", clear), "");
  EXPECT_EQ(DiffAfter("lod=0 ", "lod=1 ", clear),
            "block 0\n~ var x: type: fp32[-1, 13] -> fp32[-1, 13] lod=1\n");
}

TEST(ProgramDiffTest, OrderOfVariablesMeansNothing) {
  constexpr absl::string_view kYZ = "var y : fp32[-1, 1]\n    var z : fp32[-1, 1]\n";
  constexpr absl::string_view kZY = "var z : fp32[-1, 1]\n    var y : fp32[-1, 1]\n";
  EXPECT_EQ(DiffAfter(kYZ, kZY), "");
}

TEST(ProgramDiffTest, BlocksAreComparedByNumber) {
  EXPECT_EQ(DiffAfter("  op_versions",
                      "  block 1 parent=0 {\n    var v : raw\n    noop()\n  }\n"
                      "  op_versions"),
            "block 1\n+ block 1 parent=0 {\n+ var v : raw\n+ op 0: noop()\n");
  EXPECT_EQ(DiffAfter("parent=-1", "parent=-1 forward=2 extra={9: 1}"),
            "block 0\n~ block 0: forward: (none) -> 2; extra: {} -> {9: 1}\n");
}

TEST(ProgramDiffTest, VersionsAreCompared) {
  EXPECT_EQ(DiffAfter("version=2006002", "version=0 extra={9: 1}"),
            "~ program: version: {version: 2006002} -> {version: 0}; extra: {} -> {9: 1}\n");
  EXPECT_EQ(DiffAfter("equal=1", "equal=2"), "~ program: op_version equal: 1 -> 2\n");
  EXPECT_EQ(DiffAfter(", quantize=2", ""), "~ program: op_version quantize: 2 -> (none)\n");
  EXPECT_EQ(DiffAfter("  op_versions {equal=1, quantize=2}\n", "",
                      [](pb::ProgramDesc* program) { program->clear_op_version_map(); }),
            "");
}

// --- Real programs ------------------------------------------------------------------------------

TEST(ProgramDiffTest, PaddlesGoldenDiffersFromItsOriginalInWhatTheTranspilerAdded) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto programs, testing::ReadTarXz("tests/data/programs.tar.xz"));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto goldens, testing::ReadTarXz("tests/data/goldens.tar.xz"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program original,
                            Program::Parse(programs.at("fit_a_line/main.pb")));
  const std::string prefix = "fit_a_line/goldens/grad_allreduce/";
  const auto golden_file = goldens.lower_bound(prefix);
  ASSERT_TRUE(absl::StartsWith(golden_file->first, prefix));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program golden, Program::Parse(golden_file->second));
  const auto normalize = [](pb::ProgramDesc* program) {
    testing::RemoveBookkeeping(program);
    testing::ClearWrittenDefaults(program);
  };
  std::map<std::string, int> added;
  for (const Difference& d :
       DiffPrograms(Normalized(original, normalize), Normalized(golden, normalize))) {
    EXPECT_EQ(d.kind, Kind::kAdded) << DifferencesText({d});
    EXPECT_EQ(d.subject, Subject::kOp);
    ++added[d.name];
  }
  EXPECT_EQ(added["c_allreduce_sum"], 2);  // the weight and the bias
  EXPECT_EQ(added["c_sync_comm_stream"], 1);
}

// Their order means nothing to DiffPrograms.
void SortVariables(pb::ProgramDesc* program) {
  for (pb::BlockDesc& block : *program->mutable_blocks()) {
    std::sort(block.mutable_vars()->begin(), block.mutable_vars()->end(),
              [](const pb::VarDesc& x, const pb::VarDesc& y) { return x.name() < y.name(); });
  }
}

TEST(ProgramDiffTest, ExactlyTheProgramsWithOtherMessagesDiffer) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto goldens, testing::ReadTarXz("tests/data/goldens.tar.xz"));
  std::vector<Program> programs;
  for (const auto& [name, bytes] : goldens) {
    if (!absl::StartsWith(name, "fit_a_line/") || !absl::EndsWith(name, "/main.pb")) continue;
    WEFT_ASSERT_OK_AND_ASSIGN(Program program, Program::Parse(bytes));
    programs.push_back(std::move(program));
  }
  ASSERT_GT(programs.size(), 10u);
  const auto bytes = [](const Program& program) {
    return Normalized(program, SortVariables).ToProto().SerializeAsString();
  };
  int different = 0;
  for (const Program& b : programs) {
    const Program& a = programs[0];
    const bool equal = bytes(a) == bytes(b);
    EXPECT_EQ(DiffPrograms(a, b).empty(), equal);
    different += !equal;
  }
  EXPECT_GT(different, 5);
}

}  // namespace
}  // namespace weft
