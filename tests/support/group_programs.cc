#include "tests/support/group_programs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

constexpr char kMain[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var xw : fp32[-1, 2] need_check_feed stop_gradient
    var xv : fp32[-1, 2] need_check_feed stop_gradient
    var xu : fp32[-1, 2] need_check_feed stop_gradient
    var t : fp32[-1, 1] need_check_feed stop_gradient
    var w : fp32[2, 1] parameter persistable
    var v : fp32[2, 1] parameter persistable
    var u : fp32[2, 1] parameter persistable
    var w_velocity : fp32[2, 1] persistable
    var v_velocity : fp32[2, 1] persistable
    var u_velocity : fp32[2, 1] persistable
    var lr : fp32[1] persistable
    var a : fp32[-1, 1]
    var b : fp32[-1, 1]
    var c : fp32[-1, 1]
    var ab : fp32[-1, 1]
    var y : fp32[-1, 1]
    var d : fp32[-1, 1]
    var s : fp32[-1, 1]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var s@GRAD : fp32[-1, 1]
    var d@GRAD : fp32[-1, 1]
    var y@GRAD : fp32[-1, 1]
    var ab@GRAD : fp32[-1, 1]
    var a@GRAD : fp32[-1, 1]
    var b@GRAD : fp32[-1, 1]
    var c@GRAD : fp32[-1, 1]
    var w@GRAD : fp32[2, 1]
    var v@GRAD : fp32[2, 1]
    var u@GRAD : fp32[2, 1]
    Out=[a] = mul(X=[xw], Y=[w]) role=forward {x_num_col_dims=1, y_num_col_dims=1}
    Out=[b] = mul(X=[xv], Y=[v]) role=forward {x_num_col_dims=1, y_num_col_dims=1}
    Out=[c] = mul(X=[xu], Y=[u]) role=forward {x_num_col_dims=1, y_num_col_dims=1}
    Out=[ab] = elementwise_add(X=[a], Y=[b]) role=forward {axis=-1}
    Out=[y] = elementwise_add(X=[ab], Y=[c]) role=forward {axis=-1}
    Out=[d] = elementwise_sub(X=[y], Y=[t]) role=forward {axis=-1}
    Out=[s] = square(X=[d]) role=forward
    Out=[loss] = reduce_mean(X=[s]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[s@GRAD] = reduce_mean_grad(X=[s], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[d@GRAD] = square_grad(X=[d], Out@GRAD=[s@GRAD]) role=backward
    X@GRAD=[y@GRAD] = elementwise_sub_grad(X=[y], Y=[t], Out@GRAD=[d@GRAD]) role=backward {axis=-1}
    X@GRAD=[ab@GRAD], Y@GRAD=[c@GRAD] = elementwise_add_grad(X=[ab], Y=[c], Out@GRAD=[y@GRAD]) role=backward {axis=-1}
    Y@GRAD=[u@GRAD] = mul_grad(X=[xu], Y=[u], Out@GRAD=[c@GRAD]) role=backward vars=[u, u@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    X@GRAD=[a@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[a], Y=[b], Out@GRAD=[ab@GRAD]) role=backward {axis=-1}
    Y@GRAD=[v@GRAD] = mul_grad(X=[xv], Y=[v], Out@GRAD=[b@GRAD]) role=backward vars=[v, v@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[xw], Y=[w], Out@GRAD=[a@GRAD]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
)";

constexpr char kStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[2, 1] parameter persistable
    var v : fp32[2, 1] parameter persistable
    var u : fp32[2, 1] parameter persistable
    var w_velocity : fp32[2, 1] persistable
    var v_velocity : fp32[2, 1] persistable
    var u_velocity : fp32[2, 1] persistable
    var lr : fp32[1] persistable
    Out=[lr] = fill_constant() role=forward {shape=longs[1], dtype=5, value=0.1}
    Out=[w] = fill_constant() role=forward {shape=longs[2, 1], dtype=5, value=0.5}
    Out=[v] = fill_constant() role=forward {shape=longs[2, 1], dtype=5, value=-0.25}
    Out=[u] = fill_constant() role=forward {shape=longs[2, 1], dtype=5, value=0.125}
)";

}  // namespace

GroupPrograms OneDevicePrograms() {
  std::string main = kMain, startup = kStartup;
  for (const char* p : {"w", "v", "u"}) {
    absl::StrAppend(&main, "    ParamOut=[", p, "], VelocityOut=[", p,
                    "_velocity] = momentum(Param=[", p, "], Grad=[", p, "@GRAD], Velocity=[", p,
                    "_velocity], LearningRate=[lr]) role=optimize vars=[", p, ", ", p,
                    "@GRAD] {mu=0.5}\n");
    absl::StrAppend(&startup, "    Out=[", p,
                    "_velocity] = fill_constant() role=forward {shape=longs[2, 1], dtype=5, "
                    "value=0.0}\n");
  }
  absl::StrAppend(&main, "  }\n}\n");
  absl::StrAppend(&startup, "  }\n}\n");
  return {*ParseProgramText(main), *ParseProgramText(startup)};
}

TranspileOptions OnFourRanks(const Groups& groups) {
  TranspileOptions options;
  options.mode = "grad_allreduce";
  options.cluster.nranks = 4;
  for (const auto& [param, ranks] : groups) {
    options.param_attrs[param].group =
        RankGroup{absl::StrCat("of_", absl::StrJoin(ranks, "_")), ranks};
  }
  return options;
}

absl::StatusOr<GroupPrograms> WithGroups(const TranspileOptions& options) {
  GroupPrograms programs = OneDevicePrograms();
  ProgramPair pair = programs.pair();
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  return programs;
}

}  // namespace weft::testing
