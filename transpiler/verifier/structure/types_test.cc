#include "transpiler/verifier/structure/types.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/testing/program_builder.h"
#include "transpiler/verifier/testing/found.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Check(const Program& program) {
  Findings findings;
  CheckTypes(program, ProgramRef(), &findings);
  return testing::RulesAndMessages(findings);
}

// Of a main program with the block in program text.
std::vector<std::string> CheckText(const std::string& block) {
  return Check(testing::BlockProgram(block));
}

TEST(CheckTypes, InputsThatDoNotFitAreNamed) {
  EXPECT_THAT(CheckText("var x : fp32[-1, 784] need_check_feed\n"
                        "var w : fp32[700, 10] persistable\n"
                        "var y : fp32[-1, 10]\n"
                        "Out=[y] = mul(X=[x], Y=[w])\n"),
              ElementsAre("W201 op 0 (mul) input Y (w): expected 784 rows, as many as X has "
                          "columns, found fp32[700, 10]"));
}

TEST(CheckTypes, AttributesHaveValuesThatKernelsTake) {
  const auto dropout = [](const std::string& attrs) {
    return CheckText(
        "var x : fp32[4, 8]\nvar y : fp32[4, 8]\nvar mask : uint8[4, 8]\n"
        "Out=[y], Mask=[mask] = dropout(X=[x]) {dropout_prob=0.5}\n"
        "Out=[y], Mask=[mask] = dropout(X=[x]) {" +
        attrs + "}\n");
  };
  EXPECT_THAT(dropout("dropout_prob=1.0"), IsEmpty());
  EXPECT_THAT(
      dropout("dropout_prob=1.5"),
      ElementsAre("W201 op 1 (dropout) attribute dropout_prob: expected 0 to 1, found 1.5"));
  EXPECT_THAT(dropout("dropout_implementation=\"none\""),
              ElementsAre("W201 op 1 (dropout) attribute dropout_implementation: expected "
                          "upscale_in_train or downgrade_in_infer, found none"));
  const auto fill = [](const std::string& attrs, const std::string& inputs = "") {
    return CheckText("var n : int32[1] persistable\nvar y : int32[3]\nOut=[y] = fill_constant(" +
                     inputs + ") {shape=longs[3], dtype=2, " + attrs + "}\n");
  };
  EXPECT_THAT(fill("str_value=\"7\""), IsEmpty());
  EXPECT_THAT(fill("str_value=\"seven\""),
              ElementsAre("W201 op 0 (fill_constant) attribute str_value: 'seven' is no number"));
  EXPECT_THAT(fill("value=3e9"), IsEmpty());
  EXPECT_THAT(fill("str_value=\"inf\""),
              ElementsAre("W201 op 0 (fill_constant) attribute value: inf does not fit int32"));
  // The input takes the place of the attribute.
  EXPECT_THAT(fill("str_value=\"seven\"", "ValueTensor=[n]"), IsEmpty());
}

TEST(CheckTypes, BlocksThatNoOpRunsAreNotChecked) {
  const auto with_block = [](const std::string& caller) {
    return Check(testing::BlockProgram(
        "var c : bool[1]\nvar x : fp32[4, 8]\nvar y : fp32[9, 8]\nvar s : step_scopes\n" + caller,
        "  block 1 parent=0 {\n    var z : fp32[4, 8]\n"
        "    Out=[z] = elementwise_add(X=[x], Y=[y])\n  }\n"));
  };
  EXPECT_THAT(with_block(""), IsEmpty());
  EXPECT_THAT(with_block("    Out=[], Scope=[s] = conditional_block(Cond=[c], Input=[x, y]) "
                         "{sub_block=block(1), is_scalar_condition=true}\n"),
              ElementsAre(HasSubstr("W201 block 1, op 0 (elementwise_add)")));
}

TEST(CheckTypes, OtherShapeElementTypeAndLayoutNameOpSlotAndVariable) {
  const std::string x = "var x : fp32[4, 8] need_check_feed\n";
  const std::string relu = "Out=[y] = relu(X=[x])\n";
  EXPECT_THAT(CheckText(x + "var y : fp32[4, 9]\n" + relu),
              ElementsAre("W203 op 0 (relu) output Out: variable y: expected fp32[4, 8], found "
                          "fp32[4, 9]"));
  EXPECT_THAT(CheckText(x + "var y : fp32[4]\n" + relu), ElementsAre(HasSubstr("W203")));
  EXPECT_THAT(CheckText(x + "var y : fp64[4, 8]\n" + relu),
              ElementsAre("W202 op 0 (relu) output Out: variable y: expected fp32[4, 8], found "
                          "fp64[4, 8]"));
  EXPECT_THAT(CheckText(x + "var y : selected_rows<fp32[4, 8]>\n" + relu),
              ElementsAre("W204 op 0 (relu) output Out: variable y: expected fp32[4, 8], found "
                          "rows fp32[4, 8]"));
  EXPECT_THAT(CheckText("var t : selected_rows<fp32[4, 8]> persistable\n"
                        "Out=[t] = uniform_random() {shape=longs[4, 8], dtype=5}\n"),
              IsEmpty())
      << "a table, as static.nn.sparse_embedding declares it";
  EXPECT_THAT(CheckText("var t : selected_rows<fp32[-1, 8]> persistable\n"
                        "Out=[t] = uniform_random() {shape=longs[4, 8], dtype=5}\n"),
              ElementsAre(HasSubstr("found rows fp32[-1, 8]")));
  EXPECT_THAT(CheckText(x + "var y : fp32[4, 8]\n" + relu), IsEmpty());
}

TEST(CheckTypes, UnknownTypesMatchEverything) {
  const std::string x = "var x : fp32[-1, 8] need_check_feed\n";
  EXPECT_THAT(CheckText(x + "var y : fp32[4, -1]\nOut=[y] = relu(X=[x])\n"), IsEmpty());
  EXPECT_THAT(CheckText(x + "var y : raw\nOut=[y] = relu(X=[x])\n"), IsEmpty());
  EXPECT_THAT(CheckText(x + "var y : fp64[3]\nOut=[y] = my_op(X=[x])\n"), IsEmpty());
  EXPECT_THAT(CheckText("var x : raw\nvar y : fp64[3]\nOut=[y] = relu(X=[x])\n"), IsEmpty());
}

// Paddle declares the counters to be of the type of Accuracy, and that, under mixed precision, to
// be of the type of the data.
TEST(CheckTypes, OutputsOfAccuracyAreDeclaredOtherwise) {
  const std::string vars =
      "var indices : int64[4, 1] need_check_feed\nvar label : int64[4, 1] need_check_feed\n"
      "var top : fp32[4, 1] need_check_feed\nvar correct : fp32[]\nvar total : fp32[]\n";
  const std::string op =
      "Accuracy=[accuracy], Correct=[correct], Total=[total] = "
      "accuracy(Indices=[indices], Label=[label], Out=[top])\n";
  EXPECT_THAT(CheckText(vars + "var accuracy : fp32[]\n" + op), IsEmpty());
  EXPECT_THAT(CheckText(vars + "var accuracy : fp16[]\n" + op), IsEmpty());
  // Ops that read it see what the kernel makes.
  EXPECT_THAT(CheckText(vars + "var accuracy : fp16[]\nvar y : fp16[]\n" + op +
                        "Out=[y] = relu(X=[accuracy])\n"),
              ElementsAre(HasSubstr("W202 op 1 (relu) output Out: variable y: expected fp32[]")));
}

// Mixed precision declares what only the gradient op reads as it was before, or as the data is.
TEST(CheckTypes, OutputsOfLooseTypeAreDeclaredOtherwise) {
  const std::string vars =
      "var x : fp16[4, 8, 2, 2] need_check_feed\nvar s : fp32[8] persistable\n"
      "var mean : fp32[8] persistable\nvar variance : fp32[8] persistable\n"
      "var saved_mean : fp16[8]\nvar saved_variance : fp32[8]\nvar reserve : fp32[-1]\n";
  const std::string op =
      "MeanOut=[mean], ReserveSpace=[reserve], SavedMean=[saved_mean], "
      "SavedVariance=[saved_variance], VarianceOut=[variance], Y=[y] = "
      "batch_norm(Bias=[s], Mean=[mean], Scale=[s], Variance=[variance], X=[x])\n";
  EXPECT_THAT(CheckText(vars + "var y : fp16[4, 8, 2, 2]\n" + op), IsEmpty());
  EXPECT_THAT(CheckText(vars + "var y : fp32[4, 8, 2, 2]\n" + op),
              ElementsAre(HasSubstr("W202 op 0 (batch_norm) output Y: variable y")));
}

// On two devices.
TEST(CheckTypes, CopiesAndWaitsHandLooseTypesOn) {
  const std::string vars =
      "var indices : int64[4, 1] need_check_feed\nvar label : int64[4, 1] need_check_feed\n"
      "var top : fp32[4, 1] need_check_feed\nvar correct : fp32[]\nvar total : fp32[]\n"
      "var accuracy : fp16[]\nvar copy : fp16[]\n";
  const std::string op =
      "Accuracy=[accuracy], Correct=[correct], Total=[total] = "
      "accuracy(Indices=[indices], Label=[label], Out=[top])\n";
  EXPECT_THAT(
      CheckText(absl::StrCat(vars, op,
                             "Out=[accuracy] = stream_wait(X=[accuracy]) {stream=\"d2h\", "
                             "awaited=\"compute\"}\nOut=[copy] = memcpy_d2h(X=[accuracy])\n")),
      IsEmpty());
  EXPECT_THAT(CheckText(absl::StrCat(vars, "Out=[copy] = memcpy_d2h(X=[top])\n")),
              ElementsAre(HasSubstr("W202 op 0 (memcpy_d2h) output Out: variable copy")));
}

TEST(CheckTypes, DeclaredEmptyVariableHasNoType) {
  EXPECT_THAT(CheckText("var @EMPTY@ : fp32[]\nvar x : fp32[4, 8] need_check_feed\n"
                        "Out=[@EMPTY@] = relu(X=[x])\n"),
              IsEmpty());
}

TEST(CheckTypes, CollectivesKeepMultiplyOrDivideRows) {
  const std::string x = "var x : fp32[4, 8] need_check_feed\n";
  const std::string ring = "{nranks=2, ring_id=0, use_calc_stream=true}\n";
  EXPECT_THAT(CheckText(x + "var y : fp32[4, 8]\nOut=[y] = c_allreduce_sum(X=[x]) " + ring),
              IsEmpty());
  EXPECT_THAT(CheckText(x + "var y : fp32[8, 8]\nOut=[y] = c_allgather(X=[x]) " + ring), IsEmpty());
  EXPECT_THAT(CheckText(x + "var y : fp32[2, 8]\nOut=[y] = c_reducescatter(X=[x]) " + ring),
              IsEmpty());
  EXPECT_THAT(CheckText(x + "var y : fp32[4, 8]\nOut=[y] = c_reducescatter(X=[x]) " + ring),
              ElementsAre(HasSubstr("W203 op 0 (c_reducescatter) output Out")));
  EXPECT_THAT(CheckText("var x : fp32[3, 8] need_check_feed\nvar y : fp32[1, 8]\n"
                        "Out=[y] = c_reducescatter(X=[x]) " +
                        ring),
              ElementsAre(HasSubstr("W201 op 0 (c_reducescatter) input X (x): expected rows in a "
                                    "multiple of 2")));
}

constexpr char kReshape[] =
    "Out=[x], XShape=[xshape] = reshape2(Shape=[], ShapeTensor=[], X=[x]) {shape=ints[8]}\n";

TEST(CheckTypes, VariableMayBeRewrittenWithAnotherShape) {
  const std::string vars =
      "var w : fp32[2, 4] need_check_feed\nvar x : fp32[2, 4]\nvar xshape : fp32[0, 2, 4]\n";
  const std::string relu = "Out=[x] = relu(X=[w])\n";
  EXPECT_THAT(CheckText(absl::StrCat(vars, relu, kReshape)), IsEmpty());
  // What follows sees the new shape.
  EXPECT_THAT(
      CheckText(absl::StrCat(vars, "var y : fp32[8]\n", relu, kReshape, "Out=[y] = relu(X=[x])\n")),
      IsEmpty());
  EXPECT_THAT(CheckText(absl::StrCat(vars, "var y : fp32[2, 4]\n", relu, kReshape,
                                     "Out=[y] = relu(X=[x])\n")),
              ElementsAre(HasSubstr("W203 op 2 (relu) output Out: variable y")));
}

// Memory may be reused for another shape, but two writers of other element types into one variable
// are a mistake.
TEST(CheckTypes, VariableMayNotBeRewrittenWithAnotherElementType) {
  const std::string fill =
      "var a : fp32[4]\nOut=[a] = fill_constant() {shape=longs[4], dtype=5, value=1.0}\n";
  const std::string wrong = "Out=[a] = fill_constant() {shape=longs[4], dtype=6, value=1.0}\n";
  EXPECT_THAT(CheckText(fill + wrong + wrong),
              ElementsAre(AllOf(HasSubstr("W202"), HasSubstr("op 1 (fill_constant) output Out"),
                                HasSubstr("expected fp64[4], found fp32[4]"))));
  EXPECT_THAT(CheckText(fill + "Out=[a] = fill_constant() {shape=longs[5], dtype=5, value=1.0}\n"),
              IsEmpty());
}

TEST(CheckTypes, DataMayBeRewrittenWithAnotherShape) {
  EXPECT_THAT(CheckText(absl::StrCat(
                  "var x : fp32[2, 4] need_check_feed\nvar xshape : fp32[0, 2, 4]\n", kReshape)),
              IsEmpty());
}

TEST(CheckTypes, PersistableVariableMustEndAsItIsStored) {
  const std::string vars = "var x : fp32[2, 4] persistable\nvar xshape : fp32[0, 2, 4]\n";
  EXPECT_THAT(CheckText(absl::StrCat(vars, kReshape)),
              ElementsAre(HasSubstr("W203 op 0 (reshape2) output Out: variable x")));
  const std::string back =
      "Out=[x], XShape=[xshape] = reshape2(Shape=[], ShapeTensor=[], X=[x]) {shape=ints[2, 4]}\n";
  EXPECT_THAT(CheckText(absl::StrCat(vars, kReshape, back)), IsEmpty());
  EXPECT_THAT(CheckText(absl::StrCat(vars, kReshape, back, kReshape)),
              ElementsAre(HasSubstr("variable x: expected fp32[8], found fp32[2, 4]")));
}

TEST(CheckTypes, FormOfXShapeIsFree) {
  EXPECT_THAT(CheckText(absl::StrCat(
                  "var x : fp32[2, 4] need_check_feed\nvar xshape : fp32[2, 4]\n", kReshape)),
              IsEmpty());
}

// As Paddle before 2.5 writes it.
TEST(CheckTypes, OldProgramsAgreeWithThemselves) {
  const std::string text =
      "var x : fp32[4, 8] need_check_feed\n"
      "var a : fp32[1]\nvar b : fp32[1]\nvar c : fp32[1]\nvar x@GRAD : fp32[4, 8]\n"
      "Out=[a] = mean(X=[x])\n"
      "Out=[b] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
      "Out=[c] = sum(X=[a, b])\n"
      "X@GRAD=[x@GRAD] = mean_grad(Out@GRAD=[b], X=[x])\n";
  EXPECT_THAT(
      CheckText(text),
      ElementsAre("W205 op 0 (mean) output Out: variable a: expected fp32[], found fp32[1]"));
}

TEST(CheckTypes, ProgramsBeforePaddle2DeclareSomeRanksOnly) {
  const auto check = [](int version, const std::string& type) {
    pb::ProgramDesc desc =
        testing::BlockProgram("var x : fp32[-1, 4] need_check_feed\nvar y : " + type +
                              "\nOut=[y] = relu(X=[x])\n")
            .ToProto();
    desc.mutable_version()->set_version(version);
    return Check(*Program::Parse(desc.SerializeAsString()));
  };
  EXPECT_THAT(check(1008005, "fp32[0, 0]"), IsEmpty());
  EXPECT_THAT(check(1008005, "fp32[0, 0, 0]"), ElementsAre(HasSubstr("W203")));
  EXPECT_THAT(check(1008005, "fp16[0, 0]"), ElementsAre(HasSubstr("W202")));
  EXPECT_THAT(check(2006002, "fp32[0, 0]"), ElementsAre(HasSubstr("W203")));
}

TEST(CheckTypes, ProgramsBeforePaddle2DeclareRecomputedValuesAsBool) {
  const auto check = [](int version, const std::string& name, const std::string& type) {
    pb::ProgramDesc desc =
        testing::BlockProgram("var x : fp32[-1, 4] need_check_feed\nvar " + name + " : " + type +
                              "\nOut=[" + name + "] = cast(X=[x]) {in_dtype=5, out_dtype=4}\n")
            .ToProto();
    desc.mutable_version()->set_version(version);
    return Check(*Program::Parse(desc.SerializeAsString()));
  };
  EXPECT_THAT(check(1008005, "y.subprog_0", "bool[-1, 4]"), IsEmpty());
  EXPECT_THAT(check(1008005, "y.subprog_0", "bool[-1, 5]"), ElementsAre(HasSubstr("W202")));
  EXPECT_THAT(check(1008005, "y.subprog_0", "int64[-1, 4]"), ElementsAre(HasSubstr("W202")));
  EXPECT_THAT(check(1008005, "y", "bool[-1, 4]"), ElementsAre(HasSubstr("W202")));
  EXPECT_THAT(check(2006002, "y.subprog_0", "bool[-1, 4]"), ElementsAre(HasSubstr("W202")));
}

TEST(CheckTypes, ABufferSaysNothingOfTheTypesOfItsSlices) {
  const std::string text =
      "var x : fp32[4, 8] need_check_feed\nvar y : fp32[5, 8]\nvar buffer : fp32[64]\n"
      "Out=[y] = relu(X=[x])\n"
      "FusedOutput=[buffer], Output=[y] = coalesce_tensor(Input=[y]) {copy_data=true, dtype=5}\n";
  EXPECT_THAT(CheckText(text),
              Contains("W203 op 0 (relu) output Out: variable y: expected fp32[4, 8], found "
                       "fp32[5, 8]"));
}

TEST(CheckTypes, PartsOfBuffersHaveTheShapesOfTheirInputs) {
  const auto found = [](const std::string& inputs) {
    return CheckText(
        "var x : fp32[4, 8] need_check_feed\nvar z : fp32[2] need_check_feed\n"
        "var a : fp32[4, 8]\nvar b : fp32[2]\nvar buffer : fp32[128]\n"
        "FusedOutput=[buffer], Output=[a, b] = coalesce_tensor(Input=[" +
        inputs +
        "]) {dtype=5, align_size=256}\n"
        "Out=[a] = relu(X=[x])\nOut=[b] = relu(X=[z])\n");
  };
  EXPECT_THAT(found("a, b"), IsEmpty());
  EXPECT_THAT(found("x, z"), IsEmpty());
  EXPECT_THAT(
      found("b, a"),
      ElementsAre("W203 op 0 (coalesce_tensor) output Output: variable a: expected fp32[2], "
                  "found fp32[4, 8]",
                  "W203 op 0 (coalesce_tensor) output Output: variable b: expected "
                  "fp32[4, 8], found fp32[2]"));
}

TEST(CheckTypes, BlocksAreFollowedWhereTheyRun) {
  ProgramBuilder p;
  p.Param("x").Param("cond").Var("y", {3});
  p.Op("conditional_block", {{"Cond", {"cond"}}}, {}).BlockAttr("sub_block", 1);
  p.NewBlock(0).Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  EXPECT_THAT(Check(p.Build()),
              ElementsAre(HasSubstr("W203 block 1, op 0 (relu) output Out: variable y")));
}

TEST(CheckTypes, CheckStopsAfterManyMisfits) {
  ProgramBuilder p;
  p.Param("x", {2, 3}).Var("y", {2, 3});
  for (int i = 0; i < kMaxMisfits + 100; ++i) {
    p.Op("mul", {{"X", {"x"}}, {"Y", {"x"}}}, {{"Out", {"y"}}});
  }
  Findings findings;
  CheckTypes(p.Build(), {/*rank=*/1, /*is_startup=*/false}, &findings);
  EXPECT_EQ(findings.all().size(), size_t{Findings::kMaxPerRule});
  EXPECT_EQ(findings.NumOmitted("W201"), kMaxMisfits - Findings::kMaxPerRule);
  EXPECT_EQ(findings.all()[0].program.rank, 1);
}

// Of a main program that declares w, and a startup program.
std::vector<std::string> CheckStart(const std::string& declared, const std::string& startup_block) {
  const Program main = testing::BlockProgram("var w : " + declared + "\n");
  const Program startup = testing::BlockProgram(startup_block);
  Findings findings;
  CheckStartTypes({&main, &startup}, {0, true}, &findings);
  std::vector<std::string> texts;
  for (const Finding& finding : findings.all()) texts.push_back(finding.message);
  return texts;
}

TEST(CheckStartTypes, StatesBeginWithTheirDeclaredType) {
  const std::string makes =
      "var w : fp32[4] persistable\n"
      "Out=[w] = fill_constant() {shape=longs[4], dtype=5, value=1.0}\n";
  EXPECT_THAT(CheckStart("fp32[4] persistable", makes), IsEmpty());
  EXPECT_THAT(CheckStart("fp32[-1] persistable", makes), IsEmpty());
  EXPECT_THAT(CheckStart("raw persistable", makes), IsEmpty());
  EXPECT_THAT(CheckStart("fp64[4]", makes), IsEmpty()) << "is no state";
  EXPECT_THAT(CheckStart("fp64[4] persistable", makes),
              ElementsAre("op 0 (fill_constant) leaves variable w as fp32[4]: expected fp64[4], as "
                          "the main program declares it"));
  EXPECT_THAT(CheckStart("fp32[5] persistable", makes), ElementsAre(HasSubstr("fp32[5]")));
  EXPECT_THAT(CheckStart("selected_rows<fp32[-1]> persistable", makes),
              ElementsAre(HasSubstr("expected rows")));
}

TEST(CheckStartTypes, TheLastOpOfAKnownTypeCounts) {
  const std::string vars = "var w : fp64[4] persistable\nvar v : fp32[4] persistable\n";
  const std::string fill = "Out=[v] = fill_constant() {shape=longs[4], dtype=5, value=1.0}\n";
  const std::string cast = "Out=[w] = cast(X=[v]) {in_dtype=5, out_dtype=6}\n";
  EXPECT_THAT(CheckStart("fp64[4] persistable", vars + fill + cast), IsEmpty());
  EXPECT_THAT(CheckStart("fp32[4] persistable", vars + fill + cast),
              ElementsAre(HasSubstr("op 1 (cast) leaves variable w as fp64[4]")));
  EXPECT_THAT(CheckStart("fp32[4] persistable", vars + fill + cast + "Out=[w] = my_op(X=[v])\n"),
              IsEmpty());
}

// Older programs declare [1] for scalars.
TEST(CheckStartTypes, ScalarsMayBeDeclaredAsOneElement) {
  EXPECT_THAT(CheckStart("fp32[1] persistable",
                         "var w : fp32[] persistable\n"
                         "Out=[w] = fill_constant() {shape=longs[], dtype=5, value=1.0}\n"),
              IsEmpty());
}

// amp_init casts parameters, and nothing else.
TEST(CheckStartTypes, ParametersOf16BitsAreMadeOfFp32) {
  const std::string makes =
      "var w : fp32[4] parameter persistable\n"
      "Out=[w] = fill_constant() {shape=longs[4], dtype=5, value=1.0}\n";
  EXPECT_THAT(CheckStart("fp16[4] parameter persistable", makes), IsEmpty());
  EXPECT_THAT(CheckStart("bf16[4] parameter persistable", makes), IsEmpty());
  EXPECT_THAT(CheckStart("fp16[4] persistable", makes), ElementsAre(HasSubstr("fp16[4]")));
  EXPECT_THAT(CheckStart("fp16[5] parameter persistable", makes),
              ElementsAre(HasSubstr("fp16[5]")));
  EXPECT_THAT(CheckStart("fp64[4] parameter persistable", makes),
              ElementsAre(HasSubstr("fp64[4]")));
}

}  // namespace
}  // namespace weft::testing
