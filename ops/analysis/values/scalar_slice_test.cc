#include "ops/analysis/values/scalar_slice.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

constexpr char kVars[] = R"(
    var step : int64[1] persistable
    var last : int64[1] persistable
    var k : int64[1]
    var rest : int64[1]
    var zero : int64[1]
    var due : bool[1]
    var late : bool[1]
    var rate : fp32[1] persistable
    var x : fp32[-1, 4] need_check_feed
    var sum : fp32[1]
)";

constexpr char kBeginAtZero[] = R"(
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=7.0, str_value="0"}
    Out=[last] = fill_constant() {shape=longs[1], dtype=3, value=1.0}
    Out=[step] = c_broadcast(X=[step]) {ring_id=0, root=0}
)";

// What `due` is when the last op runs, in the first `steps` steps.
absl::StatusOr<std::vector<double>> Due(const std::string& ops, int steps,
                                        const std::string& startup = kBeginAtZero,
                                        const std::string& more_blocks = "") {
  const Program main = testing::BlockProgram(kVars + ops, more_blocks);
  absl::StatusOr<ScalarSlice> slice =
      ScalarSlice::Of(main, testing::BlockProgram(kVars + startup), main.block(0).ops().back(),
                      main.FindSymbol("due"));
  if (!slice.ok()) return slice.status();
  std::vector<double> values;
  for (int i = 0; i < steps; ++i) {
    const absl::StatusOr<double> value = slice->RunStep();
    if (!value.ok()) return value.status();
    values.push_back(*value);
  }
  return values;
}

TEST(ScalarSlice, CountsStepsFromTheStartupProgram) {
  EXPECT_THAT(*Due(R"(
    Out=[step] = increment(X=[step]) {step=1.0}
    Out=[k] = fill_constant() {shape=longs[1], dtype=3, value=3.0}
    Out=[rest] = elementwise_mod(X=[step], Y=[k])
    Out=[zero] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[due] = equal(X=[rest], Y=[zero])
    Out=[sum] = reduce_sum(X=[x])
)",
                   7),
              ElementsAre(0, 0, 1, 0, 0, 1, 0));
}

// step > last, then last = last * 2: what is computed after the op counts in the next step.
TEST(ScalarSlice, CarriesNumbersFromStepToStep) {
  EXPECT_THAT(*Due(R"(
    Out=[step] = scale(X=[step]) {scale=1.0, bias=1.0, bias_after_scale=true}
    Out=[rest] = elementwise_sub(X=[step], Y=[last])
    Out=[late] = greater_equal(X=[step], Y=[last])
    Out=[due] = logical_not(X=[late])
    Out=[last] = elementwise_add(X=[last], Y=[rest])
    Out=[last] = elementwise_add(X=[last], Y=[last])
    Out=[due] = assign(X=[due])
)",
                   5),
              ElementsAre(0, 0, 1, 1, 1));
}

TEST(ScalarSlice, IntegersAreCutOffAndFloatsAreSinglePrecision) {
  EXPECT_THAT(*Due(R"(
    Out=[k] = fill_constant() {shape=longs[1], dtype=3, value=2.0}
    Out=[step] = increment(X=[step]) {step=1.0}
    Out=[rest] = elementwise_div(X=[step], Y=[k])
    Out=[due] = equal(X=[rest], Y=[last])
    Out=[due] = assign(X=[due])
)",
                   5),
              ElementsAre(0, 1, 1, 0, 0));
  EXPECT_THAT(*Due(R"(
    Out=[rate] = increment(X=[rate]) {step=1.0}
    Out=[sum] = scale(X=[rate]) {scale=1.0, bias=-16777216.0}
    Out=[due] = cast(X=[sum]) {in_dtype=5, out_dtype=0}
    Out=[due] = assign(X=[due])
)",
                   3, "    Out=[rate] = fill_constant() {shape=longs[1], value=16777215.0}\n"),
              ElementsAre(0, 0, 0));
}

TEST(ScalarSlice, NamesNonScalars) {
  const auto is_unknown = [](const std::string& why) { return IsUnimplemented(why); };
  EXPECT_THAT(Due("    Out=[due] = isfinite_v2(X=[x])\n    Out=[due] = assign(X=[due])\n", 1),
              is_unknown("variable due is written by op 0 (isfinite_v2)"));
  // A constant by its name, but unregistered.
  EXPECT_THAT(Due("    Out=[due] = arange(X=[x])\n    Out=[due] = assign(X=[due])\n", 1),
              is_unknown("variable due is written by op 0 (arange)"));
  EXPECT_THAT(Due("    Out=[due] = assign(X=[due])\n", 1), is_unknown("variable due is data"));
  EXPECT_THAT(Due("    Out=[due] = cast(X=[rate])\n    Out=[due] = assign(X=[due])\n", 1),
              is_unknown("variable rate is not set by the startup program"));
  EXPECT_THAT(
      Due("    Out=[due] = less_than(X=[x], Y=[rate])\n    Out=[due] = assign(X=[due])\n", 1),
      is_unknown("variable x is no number"));
  EXPECT_THAT(Due("    Out=[rest] = elementwise_mod(X=[step], Y=[step])\n"
                  "    Out=[due] = equal(X=[rest], Y=[last])\n    Out=[due] = assign(X=[due])\n",
                  1),
              StatusIs(absl::StatusCode::kInvalidArgument, "an integer is divided by 0"));
}

// What op `op` makes of X=[a], Y=[b] is filled in as [got].
bool Makes(const std::string& got, const std::string& op, const std::string& a,
           const std::string& b = "1", const std::string& type = "fp32") {
  const std::string dtype = type == "fp32" ? "5" : "3";
  std::string ops;
  for (const std::string name : {"a", "b", "got", "want"}) {
    ops += absl::StrCat("    var ", type, name, " : ", type, "[1]\n");
  }
  const auto fill = [&](const std::string& name, const std::string& value) {
    absl::StrAppend(&ops, "    Out=[", type, name,
                    "] = fill_constant() {shape=longs[1], dtype=", dtype, ", str_value=\"", value,
                    "\"}\n");
  };
  fill("a", a);
  fill("b", b);
  fill("want", got);
  absl::StrAppend(&ops, "    Out=[", type, "got] = ", absl::StrReplaceAll(op, {{"[", "[" + type}}),
                  "\n    Out=[due] = equal(X=[", type, "got], Y=[", type,
                  "want])\n    Out=[due] = assign(X=[due])\n");
  return Due(ops, 1)->front() == 1;
}

TEST(ScalarSlice, ComputesAsKernelsDo) {
  for (const char* type : {"maximum", "minimum"}) {
    const std::string op = absl::StrCat("elementwise_", std::string(type, 3), "(X=[a], Y=[b])");
    EXPECT_FALSE(Makes("1", op, "nan", "1")) << op;
    EXPECT_FALSE(Makes("1", op, "1", "nan")) << op;
  }
  const std::string floor = "elementwise_floordiv(X=[a], Y=[b])",
                    mod = "elementwise_mod(X=[a], Y=[b])";
  EXPECT_TRUE(Makes("10", floor, "1", "0.1")) << "fp32 rounds 9.99999985";
  EXPECT_TRUE(Makes("-4", floor, "-7", "2", "int64"));
  EXPECT_TRUE(Makes("1", mod, "-7", "2", "int64"));
  EXPECT_TRUE(Makes("-1", mod, "7", "-2", "int64"));
  EXPECT_TRUE(Makes("-0.25", mod, "1.75", "-2"));
  EXPECT_TRUE(Makes("0.09999998658895493", mod, "1", "0.1")) << "the quotient is not rounded";
  EXPECT_TRUE(Makes("-3", "elementwise_div(X=[a], Y=[b])", "-7", "2", "int64"));
  EXPECT_TRUE(
      Makes("9", "scale(X=[a]) {scale=3.0, bias=2.5, bias_after_scale=false}", "1", "1", "int64"))
      << "an integer takes the bias without its fraction";
  EXPECT_TRUE(Makes("inf", "elementwise_mul(X=[a], Y=[b])", "3e38", "2"));
}

// Neither a block's writes nor those through a buffer are in the slice of the root's ops.
TEST(ScalarSlice, RefusesAConditionWithHiddenWrites) {
  const auto is_hidden = StatusIs(absl::StatusCode::kUnimplemented,
                                  "variable due is written in a block, or in a buffer");
  const std::string compare = "    Out=[due] = equal(X=[step], Y=[last])\n";
  const std::string last_op = "    Out=[late] = assign(X=[due])\n";
  WEFT_EXPECT_OK(Due(compare + last_op, 1));
  EXPECT_THAT(
      Due(compare +
              "    Scope=[] = conditional_block(Cond=[due]) {sub_block=block(1), "
              "is_scalar_condition=true}\n" +
              last_op,
          1, kBeginAtZero, "  block 1 parent=0 {\n    Out=[due] = logical_not(X=[due])\n  }\n"),
      is_hidden);
  EXPECT_THAT(Due(compare +
                      "    Output=[due], FusedOutput=[late] = coalesce_tensor(Input=[due]) "
                      "{copy_data=true, dtype=0}\n    Out=[late] = logical_not(X=[late])\n" +
                      last_op,
                  1),
              is_hidden);
}

}  // namespace
}  // namespace weft::testing
