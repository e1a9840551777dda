#include "transpiler/passes/devices/offload_delta.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/all_ops.h"

namespace weft::testing {
namespace {

constexpr char kVars[] = R"(
    var w : fp32[2, 2] parameter persistable
    var w@GRAD : fp32[2, 2]
    var v, m1, m2 : fp32[2, 2] persistable
    var lr, p1, p2 : fp32[1] persistable
    Out=[w@GRAD] = scale(X=[w]) role=backward {scale=2.0}
)";

std::string Update(const std::string& type, const std::string& attrs) {
  if (type == "sgd")
    return "ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize";
  if (type == "momentum") {
    return absl::StrCat(
        "ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], "
        "LearningRate=[lr]) role=optimize {mu=0.9",
        attrs, "}");
  }
  return absl::StrCat(
      "ParamOut=[w], Moment1Out=[m1], Moment2Out=[m2], Beta1PowOut=[p1], Beta2PowOut=[p2] = ", type,
      "(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], "
      "Beta2Pow=[p2]) role=optimize {beta1=0.9",
      attrs, "}");
}

// The ops after the split, as "fill_constant -> w@DELTA, ..."; or an error.
absl::StatusOr<std::string> Split(const std::string& text) {
  Program program = CompactProgram(text);
  const ProgramPair programs{&program, nullptr};
  ProgramEdits edits(programs);
  const Op op = program.op(program.block(0).ops().back());
  pb::OpDesc desc = op.ToProto();
  WEFT_RETURN_IF_ERROR(OffloadDelta(program, &edits).Split(op, nullptr, &desc));
  edits.main.Replace(op.id(), desc);
  WEFT_RETURN_IF_ERROR(edits.Commit().status());
  std::string ops;
  for (const Op& after : BlockOps(program, 0)) {
    absl::StrAppend(&ops, ops.empty() ? "" : ", ",
                    after.StringAttr("op_device").value_or("") == "cpu" ? "cpu: " : "",
                    after.type(), " -> ", program.name(after.output_args()[0]));
  }
  return ops;
}
std::string SplitUpdate(const std::string& type, const std::string& attrs = "") {
  const absl::StatusOr<std::string> ops = Split(absl::StrCat(kVars, Update(type, attrs)));
  return ops.ok() ? *ops : ops.status().ToString();
}

TEST(OffloadDelta, TheHostComputesTheChangeAndTheAcceleratorAddsIt) {
  for (const char* type : {"sgd", "momentum", "adam"}) {
    EXPECT_EQ(SplitUpdate(type), absl::StrCat("scale -> w@GRAD, cpu: fill_constant -> w@DELTA, ",
                                              type, " -> w@DELTA, elementwise_add -> w"));
  }
}

TEST(OffloadDelta, DecaysAreTheAccelerators) {
  EXPECT_EQ(
      SplitUpdate("momentum", R"(, regularization_method="l2_decay", )"
                              "regularization_coeff=0.1"),
      "scale -> w@GRAD, cpu: fill_constant -> w@DELTA, scale -> w@DECAYED, elementwise_add -> "
      "w@DECAYED, momentum -> w@DELTA, elementwise_add -> w");
  EXPECT_EQ(SplitUpdate("adamw", ", coeff=0.1, with_decay=true"),
            "scale -> w@GRAD, cpu: fill_constant -> w@DELTA, adamw -> w@DELTA, scale -> w@KEPT_0, "
            "elementwise_mul -> w, elementwise_add -> w");
  const std::string lamb = SplitUpdate("lamb", ", weight_decay=0.1");
  EXPECT_THAT(lamb, HasSubstr("cpu: fill_constant -> w@RATE_0, adam -> w@DELTA, "));
  EXPECT_THAT(lamb, HasSubstr("squared_l2_norm -> w@NORM_0, squared_l2_norm -> w@NORM_1, "));
  EXPECT_THAT(lamb, HasSubstr(", elementwise_sub -> w@DIRECTION_0, "));
}

TEST(OffloadDelta, HalfIsRoundedBeforeTheCopy) {
  EXPECT_THAT(Split(absl::StrCat(absl::StrReplaceAll(kVars, {{"var w : fp32", "var w : fp16"}}),
                                 Update("sgd", ""))),
              IsOkAndHolds(HasSubstr("cpu: cast -> ")));
}

TEST(OffloadDelta, RefusesWhatDependsOnTheParameter) {
  const std::pair<std::string, const char*> cases[] = {
      {Update("momentum", R"(, regularization_method="l1_decay")"),
       "its regularization is l1_decay"},
      {Update("adamw", ", coeff=0.1, with_decay=true, lazy_mode=true"), "decays the rows"},
      {"ParamOut=[w], MomentOut=[v] = adagrad(Param=[w], Grad=[w@GRAD], Moment=[v], "
       "LearningRate=[lr]) role=optimize",
       "what it changes may depend on the parameter"},
  };
  for (const auto& [update, why] : cases) {
    EXPECT_THAT(Split(absl::StrCat(kVars, update)).status(), IsFailedPrecondition(why)) << update;
  }
  EXPECT_THAT(Split(absl::StrCat(
                        absl::StrReplaceAll(kVars, {{"var w : fp32[2, 2]", "var w : fp32[-1, 2]"}}),
                        Update("sgd", "")))
                  .status(),
              IsFailedPrecondition(
                  "op 1 (sgd) input Param (w): offload=states takes one parameter of known "
                  "dimensions"));
}

}  // namespace
}  // namespace weft::testing
