#include "ops/cpu/quirks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

// "op 0 (adam): takes ..." for each.
std::vector<std::string> Quirks(const std::string& lines, const std::string& version = "") {
  const absl::StatusOr<Program> program = ParseProgramText(
      absl::StrCat("program ", version, "{\n  block 0 parent=-1 {\n", lines, "  }\n}\n"));
  if (!program.ok()) return {program.status().ToString()};
  std::vector<std::string> found;
  for (const QuirkyOp& quirk : FindQuirkyOps(*program)) {
    found.push_back(absl::StrCat(program->op(quirk.op).DebugName(), ": ", quirk.how));
  }
  return found;
}

TEST(QuirksTest, AdamDiffersForRowsOnly) {
  const std::string update = "ParamOut=[w] = adam(Param=[w], Grad=[g]) role=optimize\n";
  EXPECT_THAT(Quirks("var g : selected_rows<fp32[4, 2]>\n" + update),
              ElementsAre("op 0 (adam): takes the powers of beta of the next step"));
  EXPECT_THAT(Quirks("var g : fp32[4, 2]\n" + update), IsEmpty());
}

TEST(QuirksTest, VersionsRuleQuirksOut) {
  const std::string update = "ParamOut=[w] = adadelta(Param=[w])\n";
  EXPECT_THAT(Quirks(update, "version=1008005 "),
              ElementsAre("op 0 (adadelta): takes the mean of squared updates of the next step"));
  EXPECT_THAT(Quirks(update, "version=2006002 "), IsEmpty());
  EXPECT_THAT(Quirks(update), IsEmpty());
  const std::string gradient =
      "X@GRAD=[g] = expand_as_v2_grad(X=[x], Out@GRAD=[d]) {target_shape=ints[-1, 8]}\n";
  EXPECT_THAT(Quirks(gradient, "version=3000000 "),
              ElementsAre("op 0 (expand_as_v2_grad): takes -1 of target_shape for a size"));
  EXPECT_THAT(Quirks(gradient, "version=3001001 "), IsEmpty());
}

TEST(QuirksTest, ScatterThatReplacesRowsDiffersBeforePaddle2) {
  const std::string gradient = "X@GRAD=[g] = scatter_grad(Out@GRAD=[d], Ids=[i]) {overwrite=";
  EXPECT_THAT(Quirks(gradient + "true}\n", "version=1008005 "),
              ElementsAre("op 0 (scatter_grad): gives X a gradient where Updates replace it"));
  EXPECT_THAT(Quirks(gradient + "false}\n", "version=1008005 "), IsEmpty());
  EXPECT_THAT(Quirks(gradient + "true}\n", "version=2006002 "), IsEmpty());
}

TEST(QuirksTest, AttributesRuleQuirksOut) {
  EXPECT_THAT(Quirks("ParamOut=[w] = momentum(Param=[w], Grad=[g]) {rescale_grad=0.5}\n"),
              ElementsAre("op 0 (momentum): ignores rescale_grad"));
  EXPECT_THAT(Quirks("ParamOut=[w] = momentum(Param=[w], Grad=[g]) {rescale_grad=1.0}\n"),
              IsEmpty());
  EXPECT_THAT(Quirks("Out=[y] = cast(X=[x]) {out_dtype=4}\nOut=[z] = cast(X=[y]) {out_dtype=5}\n"),
              ElementsAre("op 0 (cast): cuts digits off"));
}

TEST(QuirksTest, SomeAreOnlySaid) {
  const auto is_reproduced = [](const std::string& lines) {
    const absl::StatusOr<Program> program = ParseProgramText(
        absl::StrCat("program version=3003001 {\n  block 0 parent=-1 {\n", lines, "  }\n}\n"));
    WEFT_EXPECT_OK(program.status());
    const std::vector<QuirkyOp> found = FindQuirkyOps(*program);
    EXPECT_EQ(found.size(), 1) << lines;
    return found.size() != 1 || found[0].is_reproduced;
  };
  EXPECT_TRUE(is_reproduced("Out=[y] = lars_momentum(Param=[w])\n"));
  for (const char* line :
       {"X@GRAD=[g] = group_norm_grad(X=[x])\n",
        "Out=[y] = pool2d(X=[x]) {pooling_type=\"avg\", padding_algorithm=\"SAME\", "
        "exclusive=false}\n",
        "X@GRAD=[g] = sigmoid_cross_entropy_with_logits_grad(X=[x])\n",
        "Out=[y] = unique(X=[x]) {axis=ints[2]}\n",
        "var x : int64[4]\nResult=[y] = put_along_axis(Input=[x]) {Reduce=\"mean\"}\n",
        "var b : fp32[1]\nvar w : fp32[4]\nParamOut=[w] = nadam(Param=[w], Beta2Pow=[b])\n"}) {
    EXPECT_FALSE(is_reproduced(line)) << line;
  }
  // With a scale, without padding that counts, along other axes, of other numbers and states.
  for (const char* line :
       {"X@GRAD=[g] = group_norm_grad(X=[x], Scale=[s])\n",
        "Out=[y] = pool2d(X=[x]) {pooling_type=\"avg\", padding_algorithm=\"SAME\", "
        "exclusive=true}\n",
        "X@GRAD=[g] = sigmoid_cross_entropy_with_logits_grad(X=[x])\n",  // of Paddle 2
        "Out=[y] = unique(X=[x]) {axis=ints[1]}\n",
        "var b : fp32[4]\nvar w : fp32[4]\nParamOut=[w] = nadam(Param=[w], Beta2Pow=[b])\n"}) {
    EXPECT_THAT(Quirks(line), IsEmpty()) << line;
  }
}

TEST(QuirksTest, RowsBeforeTheAxisOfAGather) {
  const auto quirks = [](const std::string& attrs, const std::string& version) {
    return Quirks("X@GRAD=[g] = gather_grad(Index=[i], X=[x], Out@GRAD=[d]) {" + attrs + "}\n",
                  version);
  };
  EXPECT_THAT(quirks("axis=1", "version=2006002 "),
              ElementsAre("op 0 (gather_grad): gives all rows the gradient of the first"));
  EXPECT_THAT(quirks("axis=0", "version=2006002 "), IsEmpty());
  EXPECT_THAT(quirks("axis=1", "version=3001000 "), IsEmpty());
}

TEST(QuirksTest, PutValuesAreReducedInOtherWays) {
  const auto quirks = [](const std::string& attrs) {
    return Quirks("Value@GRAD=[g] = put_along_axis_grad(Index=[i], Result@GRAD=[d]) {" + attrs +
                  "}\n");
  };
  EXPECT_THAT(quirks("Reduce=\"amin\", Include_self=false"),
              ElementsAre("op 0 (put_along_axis_grad): counts an equal element of Input that does "
                          "not count"));
  EXPECT_THAT(quirks("Reduce=\"mul\", Include_self=true"),
              ElementsAre("op 0 (put_along_axis_grad): is not a number where an element is 0"));
  EXPECT_THAT(quirks("Reduce=\"amin\", Include_self=true"), IsEmpty());
  EXPECT_THAT(quirks("Reduce=\"mean\", Include_self=false"), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
