// What MindSpore's heterogeneous training refuses, as Weft refuses it: EmbeddingLookup, LazyAdam,
// Optimizer.target, and parameter servers. Cases have the names of conformance vectors.
//
// Weft has no counterpart of vocab_cache_size, slice_mode, max_norm, use_locking and loss_scale. A
// use_nesterov that is no bool has the wrong type (W105). Unlike MindSpore, Weft takes a beta or an
// epsilon of 0, as Paddle does.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"
#include "tools/files/param_attrs_file.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

// An embedding that lazy Adam trains.
constexpr char kTraining[] = R"(
    var ids : int64[-1, 1] need_check_feed
    var w : fp32[10, 4] parameter persistable
    var m : fp32[10, 4] persistable
    var v : fp32[10, 4] persistable
    var b1 : fp32[1] persistable
    var b2 : fp32[1] persistable
    var lr : fp32[1] persistable
    var e : fp32[-1, 1, 4]
    var e@GRAD : fp32[-1, 1, 4]
    var w@GRAD : selected_rows<fp32[10, 4]>
    Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true}
    Out=[e@GRAD] = scale(X=[e]) role=backward {scale=2.0}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
    Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = adam(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w]) role=optimize {lazy_mode=true, beta1=0.9, beta2=0.999, epsilon=1e-08}
)";
constexpr char kSecondUpdate[] = R"(
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
)";

using Edits = std::vector<std::pair<absl::string_view, absl::string_view>>;

// Of a program with these edits, which must apply.
absl::Status StatusOf(const TranspileOptions& options, const Edits& edits = {},
                      absl::string_view more = "") {
  std::string text = kTraining;
  for (const auto& edit : edits) {
    const std::string edited = absl::StrReplaceAll(text, {edit});
    EXPECT_NE(edited, text) << edit.first;
    text = edited;
  }
  Program main = testing::CompactProgram(absl::StrCat(text, more));
  ProgramPair programs{&main, nullptr};
  return Transpile(options, programs).status();
}

TranspileOptions OnHost() {
  TranspileOptions options;
  options.passes = "embedding-offload,hetero-partition{place=op_device}";
  options.cluster.nranks = 1;
  return options;
}

TranspileOptions Placed(const std::string& place) {
  TranspileOptions options;
  options.passes = absl::StrCat("hetero-partition{place=\"", place, "\"}");
  return options;
}

TranspileOptions OnServers() {
  TranspileOptions options;
  options.passes = "parameter-server{scale=avg}";
  options.param_attrs["w"].parameter_server = true;
  return options;
}

struct Case {
  const char* id;
  TranspileOptions options;
  Edits edits;
  const char* message;  // a part of it
  const char* more = "";
};

TEST(HeterogeneousErrors, ProgramsAndOptionsAreRefusedWithTheReason) {
  const Edits dense = {{"selected_rows<fp32[10, 4]>", "fp32[10, 4]"},
                       {"is_sparse=true", "is_sparse=false"}};
  const std::vector<Case> cases = {
      {"mindspore/embedding_lookup/target=GPU",
       Placed("type:lookup_table_v2=npu"),
       {},
       "expected device cpu, sim or gpu"},
      {"mindspore/embedding_lookup/sparse=False_target=CPU", OnHost(), dense,
       "op 2 (lookup_table_v2_grad): variable w@GRAD cannot stay on the host: the gradient is "
       "dense"},
      {"mindspore/embedding_lookup/vocab_size=0",
       OnHost(),
       {{"[10, 4]", "[0, 4]"}},
       "op 0 (lookup_table_v2) input W (w): expected a table of at least 1 row and 1 column, found "
       "fp32[0, 4]"},
      {"mindspore/embedding_lookup/embedding_size=0",
       OnHost(),
       {{"[10, 4]", "[10, 0]"}, {"[-1, 1, 4]", "[-1, 1, 0]"}},
       "expected a table of at least 1 row and 1 column, found fp32[10, 0]"},
      {"mindspore/embedding_lookup/sparse=1",
       OnHost(),
       {{"is_sparse=true", "is_sparse=1"}},
       "op 0 (lookup_table_v2) attribute is_sparse: expected type BOOLEAN, found INT"},
      {"mindspore/lazyadam/beta1=1.0",
       OnHost(),
       {{"beta1=0.9", "beta1=1.0"}},
       "(adam) attribute beta1: expected 0 or more and below 1, found 1"},
      {"mindspore/lazyadam/beta1 below 0",
       OnHost(),
       {{"beta1=0.9", "beta1=-0.5"}},
       "(adam) attribute beta1: expected 0 or more and below 1, found -0.5"},
      {"mindspore/lazyadam/beta2 above 1",
       OnHost(),
       {{"beta2=0.999", "beta2=1.5"}},
       "(adam) attribute beta2: expected 0 or more and below 1, found 1.5"},
      {"mindspore/lazyadam/eps below 0",
       OnHost(),
       {{"epsilon=1e-08", "epsilon=-0.5"}},
       "(adam) attribute epsilon: expected 0 or more, found -0.5"},
      {"mindspore/lazyadam/beta1=1",
       OnHost(),
       {{"beta1=0.9", "beta1=1"}},
       "op 3 (adam) attribute beta1: expected type FLOAT, found INT"},
      {"mindspore/optimizer/duplicate", OnServers(), {}, "variable w", kSecondUpdate},
      {"mindspore/target/TPU", Placed("type:adam=TPU"), {}, "expected device cpu, sim or gpu"},
      {"mindspore/target/GPU",
       Placed("type:adam=gpu,type:scale=sim"),
       {},
       "expected one kind of accelerator, found gpu and sim"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.id);
    const absl::Status status = StatusOf(one.options, one.edits, one.more);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.message));
  }
}

TEST(HeterogeneousErrors, OthersAreAccepted) {
  WEFT_EXPECT_OK(StatusOf(OnHost()));
  TranspileOptions on_servers = OnServers();
  // There is no loss, which would say what the gradient of the whole batch is.
  on_servers.verification = Verification::kNever;
  WEFT_EXPECT_OK(StatusOf(on_servers));
  WEFT_EXPECT_OK(StatusOf(Placed("type:adam=cpu"))) << "mindspore/target/CPU";
  TranspileOptions device;
  device.mode = "grad_allreduce";
  device.mode_flags["scale"] = "avg";
  device.verification = Verification::kNever;
  WEFT_EXPECT_OK(StatusOf(device, {{"selected_rows<fp32[10, 4]>", "fp32[10, 4]"},
                                   {"is_sparse=true", "is_sparse=false"}}))
      << "mindspore/embedding_lookup/target=DEVICE_sparse=False";
  WEFT_EXPECT_OK(StatusOf(OnHost(), {{"beta1=0.9", "beta1=0.0"}, {"epsilon=1e-08", "epsilon=0.0"}}))
      << "Paddle takes them";
}

// LazyAdam(learning_rate, weight_decay) are options of set-optimizer.
TEST(HeterogeneousErrors, OptionsOfOptimizersAreChecked) {
  for (const char* option : {"lr=-0.1", "beta_1=1.0", "weight_decay=-0.01", "lr=fast"}) {
    SCOPED_TRACE(option);
    TranspileOptions options;
    options.passes = absl::StrCat("set-optimizer{type=adam,", option, "}");
    EXPECT_THAT(StatusOf(options),
                IsInvalidArgument(std::string(option).substr(0, std::string(option).find('='))));
  }
}

TEST(HeterogeneousErrors, ParameterServersAreAskedForByABoolean) {
  EXPECT_THAT(ParseParamAttrs(R"({"w": {"parameter_server": 1}})").status(),
              IsInvalidArgument("parameter w: parameter_server: expected"))
      << "mindspore/ps_context/enable_ps=1";
  EXPECT_THAT(ParseParamAttrs(R"({"w": {"foo": 1}})").status(),
              IsInvalidArgument("unknown key 'foo'"))
      << "mindspore/ps_context/foo=1";
}

// What the gradient of a branch reads lies where the branch has run.
TEST(PlacedBranchesTest, GradientsRunWhereTheirBranchesDo) {
  const std::string text = R"(
    var x : fp32[-1, 4] need_check_feed
    var due : bool[1]
    var y : fp32[-1, 4]
    var y@GRAD : fp32[-1, 4]
    var x@GRAD : fp32[-1, 4]
    var scope : step_scopes
    Out=[due] = fill_constant() {shape=longs[1], dtype=0, value=1.0}
    Out=[y], Scope=[scope] = conditional_block(Cond=[due], Input=[x]) {sub_block=block(1), is_scalar_condition=true}
    Out=[y@GRAD] = scale(X=[y]) role=backward {scale=2.0}
    Input@GRAD=[x@GRAD] = conditional_block_grad(Cond=[due], Input=[x], Out=[y], Out@GRAD=[y@GRAD], Scope=[scope]) role=backward {sub_block=block(2), is_scalar_condition=true}
)";
  const std::string blocks = R"(  block 1 parent=0 {
    var h : fp32[-1, 4]
    Out=[h] = tanh(X=[x])
    Out=[y] = scale(X=[h]) {scale=3.0}
  }
  block 2 parent=0 forward=1 {
    var h@GRAD : fp32[-1, 4]
    var x@GRAD : fp32[-1, 4]
    Out=[h@GRAD] = scale(X=[y@GRAD]) role=backward {scale=3.0}
    X@GRAD=[x@GRAD] = tanh_grad(Out=[h], Out@GRAD=[h@GRAD]) role=backward
  }
)";
  const auto place = [&](const std::string& rules, Program* main) {
    ProgramPair programs{main, nullptr};
    return Transpile(Placed(rules), programs).status();
  };
  Program apart = testing::BlockProgram(text, blocks);
  EXPECT_THAT(place("type:conditional_block_grad=cpu", &apart),
              IsInvalidArgument("conditional_block_grad): expected to run on the accelerator as op "
                                "1 (conditional_block), whose values its block reads"));
  Program together = testing::BlockProgram(text, blocks);
  WEFT_EXPECT_OK(place("type:conditional_block=cpu", &together));
  // The verifier finds a program that reads them elsewhere.
  std::string damaged = ProgramText(together);
  const size_t gradient = damaged.find("tanh_grad(");
  ASSERT_NE(gradient, std::string::npos);
  const size_t device = damaged.find(R"(op_device="cpu")", gradient);
  ASSERT_NE(device, std::string::npos);
  damaged.replace(device, 15, R"(op_device="sim")");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program wrong, ParseProgramText(damaged));
  const DevicePlacement placement(wrong);
  ASSERT_FALSE(placement.clashes().empty());
  EXPECT_THAT(ToString(wrong, placement.clashes().front()),
              HasSubstr("(tanh_grad) input h: expected a variable in the memory of the "
                        "accelerator"));
}

}  // namespace
}  // namespace weft::testing
