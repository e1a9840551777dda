#include "transpiler/passes/updates/param_options.h"

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

constexpr char kGrad[] = R"(
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
)";
RewriteOptions WithAttrs(const std::string& param, absl::optional<double> lr_ratio,
                         absl::optional<double> weight_decay) {
  RewriteOptions options;
  options.param_attrs[param].lr_ratio = lr_ratio;
  options.param_attrs[param].weight_decay = weight_decay;
  return options;
}

// A program whose only updates are these ops.
std::string Update(const std::string& ops, const std::string& vars = "") {
  return absl::StrCat("\n", vars, kGrad, "    ", ops, "\n");
}

constexpr char kSgd[] =
    "ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize";

std::string AdamLike(absl::string_view type, absl::string_view attrs) {
  return Update(absl::StrCat(
      "Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = ", type,
      "(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], "
      "Param=[w]) role=optimize {",
      attrs, "}"));
}

TEST(ParamOptions, EpsilonOfMindSporeNeedsAdam) {
  WEFT_EXPECT_OK(RewriteStatus("param-options{adam_epsilon=mindspore}", AdamLike("adam", "")));
  EXPECT_THAT(RewriteStatus("param-options{adam_epsilon=mindspore}", Update(kSgd)),
              IsInvalidArgument("adam_epsilon: expected an update by adam or adamw, found none"));
}

TEST(ParamOptions, EpsilonOfMindSporeTakesWhatMindSporeTakes) {
  const auto status_of = [](const std::string& options, const std::string& name, double value) {
    const std::string text = absl::StrFormat("%.4f", value);
    const bool is_rate = name == "lr";
    ProgramTexts texts =
        AdamLike("adamw", absl::StrCat("with_decay=true", is_rate ? "" : ", " + name + "=" + text));
    texts.startup = absl::StrCat(R"(
    var lr : fp32[1] persistable
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=)",
                                 is_rate ? text : "0.5", "}\n");
    return RewriteStatus(options, texts);
  };
  const std::string mindspore = "param-options{adam_epsilon=mindspore}";
  std::ifstream file("tests/data/optimizers/mindspore_options.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const auto json = nlohmann::json::parse(line);
    SCOPED_TRACE(json["id"].get<std::string>());
    const std::string name = json["attribute"];
    EXPECT_FALSE(json["accepted"].get<bool>());
    EXPECT_THAT(status_of(mindspore, name, json["value"]),
                IsFailedPrecondition("as adam_epsilon mindspore says"));
    // Paddle's ops take any but 1, by whose power they would divide by 0.
    if (json["value"] != 1) {
      WEFT_EXPECT_OK(status_of("param-options", name, json["value"]));
    }
  }
  EXPECT_EQ(cases, 18);
  WEFT_EXPECT_OK(status_of(mindspore, "beta1", 0.5));
  EXPECT_THAT(status_of(mindspore, "beta1", 0),
              IsFailedPrecondition("beta1: expected a number between 0 and 1, exclusive, as "
                                   "adam_epsilon mindspore says, found 0"));
}

TEST(ParamOptions, RatioScalesTheLearningRateOfOneParameter) {
  const std::string other =
      "\n    ParamOut=[u] = sgd(Param=[u], Grad=[g], LearningRate=[lr]) role=optimize";
  ExpectRewrite("param-options", Update(kSgd + other), R"(
  + var w@RATE : fp32[1]
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w@RATE] = scale(X=[lr]) role=lr_sched|optimize {scale=0.5, op_namescope="/param-options/"}
  + ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[w@RATE]) role=optimize {op_namescope="/param-options/"}
  )",
                WithAttrs("w", 0.5, absl::nullopt));
}

TEST(ParamOptions, DecayOfTheOpIsReplaced) {
  const struct {
    const char *type, *before, *after;
    double decay;
  } cases[] = {{"adamw", "coeff=0.1, with_decay=true", "coeff=0.25, with_decay=true", 0.25},
               {"adamw", "coeff=0.1, with_decay=true", "coeff=0.0, with_decay=false", 0},
               {"adamw", "with_decay=false", "coeff=0.25, with_decay=true", 0.25},
               {"lamb", "weight_decay=0.1", "weight_decay=0.25", 0.25}};
  for (const auto& of : cases) {
    ExpectRewrite("param-options", AdamLike(of.type, of.before),
                  AdamLike(of.type, absl::StrCat(of.after, ", op_namescope=\"/param-options/\"")),
                  WithAttrs("w", absl::nullopt, of.decay));
  }
}

TEST(ParamOptions, DecayOfMomentumIsItsRegularization) {
  const auto update = [](const std::string& attrs) {
    return Update(absl::StrCat(
        "ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], "
        "Velocity=[v]) role=optimize {mu=0.9, ",
        attrs, "}"));
  };
  ExpectRewrite("param-options", update(R"(regularization_method="", regularization_coeff=0.0)"),
                R"(
  - ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_method="", regularization_coeff=0.0}
  + ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_method="l2_decay", regularization_coeff=0.25, op_namescope="/param-options/"}
  )",
                WithAttrs("w", absl::nullopt, 0.25));
  ExpectRewrite("param-options{no_decay=w*}",
                update(R"(regularization_method="l2_decay", regularization_coeff=0.5)"), R"(
  - ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_method="l2_decay", regularization_coeff=0.5}
  + ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_method="", regularization_coeff=0.0, op_namescope="/param-options/"}
  )");
}

TEST(ParamOptions, OtherOptimizersGetADecayedGradient) {
  ExpectRewrite("param-options", Update(kSgd), R"(
  + var w@L2, w@DECAYED : fp32[2, 2]
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w@L2] = scale(X=[w]) role=optimize vars=[w, w@GRAD] {scale=0.25, op_namescope="/param-options/"}
  + Out=[w@DECAYED] = sum(X=[w@GRAD, w@L2]) role=optimize vars=[w, w@GRAD] {op_namescope="/param-options/"}
  + ParamOut=[w] = sgd(Param=[w], Grad=[w@DECAYED], LearningRate=[lr]) role=optimize {op_namescope="/param-options/"}
  )",
                WithAttrs("w", absl::nullopt, 0.25));
}

TEST(ParamOptions, DecayOfAParameterGoesBeforeThePattern) {
  ExpectRewrite("param-options{no_decay=*}", AdamLike("adamw", "coeff=0.1, with_decay=true"),
                AdamLike("adamw", "coeff=0.25, with_decay=true, op_namescope=\"/param-options/\""),
                WithAttrs("w", absl::nullopt, 0.25));
}

TEST(ParamOptions, UpdatesInBranchesCount) {
  const auto program = [](const std::string& ops) {
    return Update(
        absl::StrCat(
            R"(Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w, w@GRAD, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
    block 1:
)",
            ops),
        "    var due : bool[1] need_check_feed\n");
  };
  ExpectRewrite("param-options", program(absl::StrCat("    ", kSgd)), program(R"(
    var w@RATE : fp32[1]
    Out=[w@RATE] = scale(X=[lr]) role=lr_sched|optimize {scale=2.0, op_namescope="/param-options/"}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[w@RATE]) role=optimize {op_namescope="/param-options/"})"),
                WithAttrs("w", 2, absl::nullopt));
}

TEST(ParamOptions, WithoutOptionsNothingChanges) {
  const std::string sgd = Update(kSgd);
  ExpectNoRewrite("param-options", sgd);
  RewriteOptions options;
  options.param_attrs["w"].comm_fusion = 2;
  ExpectNoRewrite("param-options", sgd, options);
}

TEST(ParamOptions, WhatItCannotChangeIsRefused) {
  const std::string sgd = Update(kSgd);
  EXPECT_THAT(RewriteStatus("param-options", sgd, WithAttrs("g", 2, absl::nullopt)),
              IsInvalidArgument("attributes of parameter g, lr_ratio, weight_decay: expected a "
                                "parameter that an optimizer updates"));
  EXPECT_THAT(RewriteStatus("param-options,param-options", sgd, WithAttrs("w", 2, absl::nullopt)),
              IsFailedPrecondition("op 2 (sgd) input Param (w): the update has options of pass"));
  EXPECT_THAT(RewriteStatus("sync-elimination", sgd, WithAttrs("w", 2, absl::nullopt)),
              IsInvalidArgument("which only pass param-options reads"));
  for (const char* pattern : {"u", "*"}) {  // nothing matches; sgd decays nothing
    EXPECT_THAT(RewriteStatus(absl::StrCat("param-options{no_decay=\"", pattern, "\"}"), sgd),
                IsInvalidArgument("expected a pattern that matches a parameter that its update "
                                  "decays (adamw, lamb, momentum), found none"));
  }
  const std::string rows = Update(kSgd, "    var w@GRAD : selected_rows<fp32[2, 2]>\n");
  EXPECT_THAT(RewriteStatus("param-options", rows, WithAttrs("w", absl::nullopt, 0.5)),
              IsFailedPrecondition("found rows (w@GRAD)"));
  const std::string momentum = Update(
      "ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], "
      "LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.5}",
      "    var w@GRAD : selected_rows<fp32[2, 2]>\n");
  EXPECT_THAT(RewriteStatus("param-options", momentum, WithAttrs("w", absl::nullopt, 0.5)),
              IsFailedPrecondition("found rows (w@GRAD)"));
}

}  // namespace
}  // namespace weft::testing
