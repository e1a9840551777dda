#include "proto/pir/op_table.h"

#include <cassert>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weft::pir {
namespace {

// Operands and results in the order of the file, as name:target. A target is
//   Slot    Slot*    one argument; a list
//   @attr/TYPE       an attribute that takes a constant
//   -                nothing
// "?" after it: may be left out. "=operand" after a result: overwrites that operand.
// Attributes: name:name, or name:- for one without counterpart.
struct Row {
  absl::string_view pir, desc, operands, results, attrs;
};

constexpr absl::string_view kXY = "x:X y:Y", kXYGrad = "x:X y:Y out_grad:Out@GRAD",
                            kXYGrads = "x_grad:X@GRAD y_grad:Y@GRAD", kX = "x:X", kOut = "out:Out",
                            kXGrad = "x:X out_grad:Out@GRAD",
                            kOutGrad = "out:Out out_grad:Out@GRAD", kToXGrad = "x_grad:X@GRAD";
constexpr absl::string_view kAdam =
    "param:Param grad:Grad learning_rate:LearningRate moment1:Moment1 moment2:Moment2 "
    "moment2_max:Moment2Max? beta1_pow:Beta1Pow beta2_pow:Beta2Pow master_param:MasterParam? "
    "skip_update:SkipUpdate? beta1:@beta1/FLOAT beta2:@beta2/FLOAT epsilon:@epsilon/FLOAT";
constexpr absl::string_view kAdamResults =
    "param_out:ParamOut=param moment1_out:Moment1Out=moment1 moment2_out:Moment2Out=moment2 "
    "moment2_max_out:Moment2MaxOut=moment2_max beta1_pow_out:Beta1PowOut=beta1_pow "
    "beta2_pow_out:Beta2PowOut=beta2_pow master_param_out:MasterParamOut=master_param";

constexpr Row kRows[] = {
    // Elementwise.
    {"1.add", "elementwise_add", kXY, kOut, ""},
    {"1.add_grad", "elementwise_add_grad", kXYGrad, kXYGrads, ""},
    {"1.subtract", "elementwise_sub", kXY, kOut, ""},
    {"1.subtract_grad", "elementwise_sub_grad", kXYGrad, kXYGrads, ""},
    {"1.multiply", "elementwise_mul", kXY, kOut, ""},
    {"1.multiply_grad", "elementwise_mul_grad", kXYGrad, kXYGrads, ""},
    {"1.divide", "elementwise_div", kXY, kOut, ""},
    {"1.divide_grad", "elementwise_div_grad", "x:X y:Y out:Out out_grad:Out@GRAD", kXYGrads, ""},
    {"1.maximum", "elementwise_max", kXY, kOut, ""},
    {"1.minimum", "elementwise_min", kXY, kOut, ""},
    {"1.maximum_grad", "elementwise_max_grad", kXYGrad, kXYGrads, ""},
    {"1.minimum_grad", "elementwise_min_grad", kXYGrad, kXYGrads, ""},
    {"1.elementwise_pow", "elementwise_pow", kXY, kOut, ""},
    {"1.elementwise_pow_grad", "elementwise_pow_grad", kXYGrad, kXYGrads, ""},
    {"1.where", "where", "condition:Condition x:X y:Y", kOut, ""},
    {"1.where_grad", "where_grad", "condition:Condition x:X y:Y out_grad:Out@GRAD", kXYGrads, ""},
    {"1.pow", "pow", kX, kOut, "y:factor"},
    {"1.pow_grad", "pow_grad", kXGrad, kToXGrad, "y:factor"},
    {"1.abs", "abs", kX, kOut, ""},
    {"1.abs_grad", "abs_grad", kXGrad, kToXGrad, ""},
    {"1.exp", "exp", kX, kOut, ""},
    {"1.exp_grad", "exp_grad", kOutGrad, kToXGrad, ""},
    {"1.log", "log", kX, kOut, ""},
    {"1.log_grad", "log_grad", kXGrad, kToXGrad, ""},
    {"1.rsqrt", "rsqrt", kX, kOut, ""},
    {"1.rsqrt_grad", "rsqrt_grad", kOutGrad, kToXGrad, ""},
    {"1.clip_grad", "clip_grad", "x:X out_grad:Out@GRAD min:@min/FLOAT max:@max/FLOAT", kToXGrad,
     ""},
    {"1.greater_than", "greater_than", kXY, kOut, ""},
    {"1.less_than", "less_than", kXY, kOut, ""},
    {"1.scale", "scale", "x:X scale:@scale/FLOAT", kOut, ""},
    {"1.scale_", "scale", "x:X scale:@scale/FLOAT", "out:Out=x", ""},
    {"1.cast", "cast", kX, kOut, "dtype:out_dtype"},
    {"1.assign", "assign", kX, kOut, ""},
    {"1.square", "square", kX, kOut, ""},
    {"1.square_grad", "square_grad", kXGrad, kToXGrad, ""},
    {"1.sqrt", "sqrt", kX, kOut, ""},
    {"1.sqrt_grad", "sqrt_grad", kOutGrad, kToXGrad, ""},
    {"1.clip_by_norm", "clip_by_norm", kX, kOut, ""},
    {"1.squared_l2_norm", "squared_l2_norm", kX, kOut, ""},
    {"1.clip", "clip", "x:X min:@min/FLOAT max:@max/FLOAT", kOut, ""},
    // Activations.
    {"1.relu", "relu", kX, kOut, ""},
    {"1.relu_grad", "relu_grad", kOutGrad, kToXGrad, ""},
    {"1.tanh", "tanh", kX, kOut, ""},
    {"1.tanh_grad", "tanh_grad", kOutGrad, kToXGrad, ""},
    {"1.sigmoid", "sigmoid", kX, kOut, ""},
    {"1.sigmoid_grad", "sigmoid_grad", kOutGrad, kToXGrad, ""},
    {"1.gelu", "gelu", kX, kOut, ""},
    {"1.gelu_grad", "gelu_grad", kXGrad, kToXGrad, ""},
    {"1.silu", "silu", kX, kOut, ""},
    {"1.silu_grad", "silu_grad", "x:X out:Out out_grad:Out@GRAD", kToXGrad, ""},
    {"1.swish", "swish", kX, kOut, ""},
    {"1.swish_grad", "swish_grad", kXGrad, kToXGrad, ""},
    {"1.hardswish", "hard_swish", kX, kOut, ""},
    {"1.hardswish_grad", "hard_swish_grad", kXGrad, kToXGrad, ""},
    {"1.hardsigmoid", "hard_sigmoid", kX, kOut, ""},
    {"1.hardsigmoid_grad", "hard_sigmoid_grad", kOutGrad, kToXGrad, ""},
    {"1.leaky_relu", "leaky_relu", kX, kOut, "negative_slope:alpha"},
    {"1.leaky_relu_grad", "leaky_relu_grad", kXGrad, kToXGrad, "negative_slope:alpha"},
    {"1.elu", "elu", kX, kOut, ""},
    {"1.elu_grad", "elu_grad", "x:X out:Out out_grad:Out@GRAD", kToXGrad, ""},
    {"1.relu6", "relu6", kX, kOut, ""},
    {"1.relu6_grad", "relu6_grad", kOutGrad, kToXGrad, ""},
    {"1.softplus", "softplus", kX, kOut, ""},
    {"1.softplus_grad", "softplus_grad", kXGrad, kToXGrad, ""},
    {"1.log_softmax", "log_softmax", kX, kOut, ""},
    {"1.log_softmax_grad", "log_softmax_grad", kOutGrad, kToXGrad, ""},
    {"1.dropout", "dropout", "x:X seed_tensor:Seed? p:@dropout_prob/FLOAT", "out:Out mask:Mask",
     "mode:dropout_implementation"},
    {"1.dropout_grad", "dropout_grad", "mask:Mask out_grad:Out@GRAD p:@dropout_prob/FLOAT",
     kToXGrad, "mode:dropout_implementation"},
    {"1.softmax", "softmax", kX, kOut, ""},
    {"1.softmax_grad", "softmax_grad", kOutGrad, kToXGrad, ""},
    // Products, windows, normalization.
    {"1.matmul", "matmul_v2", kXY, kOut, "transpose_x:trans_x transpose_y:trans_y"},
    {"1.matmul_grad", "matmul_v2_grad", kXYGrad, kXYGrads,
     "transpose_x:trans_x transpose_y:trans_y"},
    {"1.bmm", "bmm", kXY, kOut, ""},
    {"1.bmm_grad", "bmm_grad", kXYGrad, kXYGrads, ""},
    {"1.p_norm", "p_norm", kX, kOut, ""},
    {"1.p_norm_grad", "p_norm_grad", "x:X out:Out out_grad:Out@GRAD", kToXGrad, ""},
    {"1.depthwise_conv2d", "depthwise_conv2d", "input:Input filter:Filter", "out:Output", ""},
    {"1.depthwise_conv2d_grad", "depthwise_conv2d_grad",
     "input:Input filter:Filter out_grad:Output@GRAD",
     "input_grad:Input@GRAD filter_grad:Filter@GRAD", ""},
    {"1.group_norm", "group_norm", "x:X scale:Scale? bias:Bias?", "y:Y mean:Mean variance:Variance",
     "data_format:data_layout"},
    {"1.group_norm_grad", "group_norm_grad",
     "x:X scale:Scale? bias:Bias? y:Y mean:Mean variance:Variance y_grad:Y@GRAD",
     "x_grad:X@GRAD scale_grad:Scale@GRAD bias_grad:Bias@GRAD", "data_format:data_layout"},
    {"1.conv2d", "conv2d", "input:Input filter:Filter", "out:Output", ""},
    {"1.conv2d_grad", "conv2d_grad", "input:Input filter:Filter out_grad:Output@GRAD",
     "input_grad:Input@GRAD filter_grad:Filter@GRAD", ""},
    {"1.pool2d", "pool2d", "x:X kernel_size:@ksize/INTS", kOut, ""},
    {"1.pool2d_grad", "pool2d_grad", "x:X out:Out out_grad:Out@GRAD kernel_size:@ksize/INTS",
     kToXGrad, ""},
    {"1.batch_norm_", "batch_norm", "x:X mean:Mean variance:Variance scale:Scale? bias:Bias?",
     "out:Y mean_out:MeanOut=mean variance_out:VarianceOut=variance saved_mean:SavedMean "
     "saved_variance:SavedVariance reserve_space:ReserveSpace",
     "data_format:data_layout"},
    {"1.batch_norm_grad", "batch_norm_grad",
     "x:X scale:Scale? bias:Bias? mean_out:MeanOut? variance_out:VarianceOut? "
     "saved_mean:SavedMean saved_variance:SavedVariance reserve_space:ReserveSpace? "
     "out_grad:Y@GRAD",
     "x_grad:X@GRAD scale_grad:Scale@GRAD bias_grad:Bias@GRAD", "data_format:data_layout"},
    {"1.layer_norm", "layer_norm", "x:X scale:Scale? bias:Bias?",
     "out:Y mean:Mean variance:Variance", ""},
    {"1.layer_norm_grad", "layer_norm_grad",
     "x:X scale:Scale? bias:Bias? mean:Mean variance:Variance out_grad:Y@GRAD",
     "x_grad:X@GRAD scale_grad:Scale@GRAD bias_grad:Bias@GRAD", ""},
    // Embeddings. The gradient of a sparse one is dense in PIR.
    {"1.embedding", "lookup_table_v2", "x:Ids weight:W", kOut, "sparse:-"},
    {"1.embedding_grad", "lookup_table_v2_grad", "x:Ids weight:W out_grad:Out@GRAD",
     "weight_grad:W@GRAD", "sparse:-"},
    // Reductions.
    {"1.mean", "reduce_mean", "x:X axis:@dim/INTS", kOut, "keepdim:keep_dim"},
    {"1.mean_grad", "reduce_mean_grad", "x:X out_grad:Out@GRAD axis:@dim/INTS", kToXGrad,
     "keepdim:keep_dim"},
    {"1.sum", "reduce_sum", "x:X axis:@dim/INTS", kOut, "keepdim:keep_dim dtype:out_dtype"},
    {"1.sum_grad", "reduce_sum_grad", "x:X out_grad:Out@GRAD axis:@dim/INTS", kToXGrad,
     "keepdim:keep_dim"},
    {"1.max", "reduce_max", "x:X axis:@dim/INTS", kOut, "keepdim:keep_dim"},
    {"1.max_grad", "reduce_max_grad", "x:X out:Out out_grad:Out@GRAD axis:@dim/INTS", kToXGrad,
     "keepdim:keep_dim"},
    {"1.add_n", "sum", "inputs:X*", kOut, ""},
    // Shapes and lists.
    {"1.reshape", "reshape2", "x:X shape:@shape/INTS", kOut, ""},
    {"1.reshape_grad", "reshape2_grad", "x:- out_grad:Out@GRAD", kToXGrad, ""},
    {"1.transpose", "transpose2", kX, kOut, "perm:axis"},
    {"1.transpose_grad", "transpose2_grad", "out_grad:Out@GRAD", kToXGrad, "perm:axis"},
    {"1.flatten", "flatten_contiguous_range", kX, kOut, ""},
    {"1.flatten_grad", "flatten_contiguous_range_grad", "x:- out_grad:Out@GRAD", kToXGrad, ""},
    {"1.unsqueeze", "unsqueeze2", "x:X axis:@axes/INTS", kOut, ""},
    {"1.unsqueeze_grad", "unsqueeze2_grad", "x:- out_grad:Out@GRAD axis:@axes/INTS", kToXGrad, ""},
    {"1.squeeze", "squeeze2", "x:X axis:@axes/INTS", kOut, ""},
    {"1.squeeze_grad", "squeeze2_grad", "x:- out_grad:Out@GRAD axis:@axes/INTS", kToXGrad, ""},
    {"1.concat", "concat", "x:X* axis:@axis/INT", kOut, ""},
    {"1.concat_grad", "concat_grad", "x:X* out_grad:Out@GRAD axis:@axis/INT", "x_grad:X@GRAD*", ""},
    {"1.split", "split", "x:X sections:@sections/INTS axis:@axis/INT", "out:Out*", ""},
    {"1.split_with_num", "split", "x:X axis:@axis/INT", "out:Out*", ""},
    {"1.expand", "expand_v2", "x:X shape:@shape/INTS", kOut, ""},
    {"1.expand_grad", "expand_v2_grad", "x:X out_grad:Out@GRAD shape:@shape/INTS", kToXGrad, ""},
    {"1.tile", "tile", "x:X repeat_times:@repeat_times/INTS", kOut, ""},
    {"1.tile_grad", "tile_grad", "x:X out_grad:Out@GRAD repeat_times:@repeat_times/INTS", kToXGrad,
     ""},
    {"1.gather", "gather", "x:X index:Index axis:@axis/INT", kOut, ""},
    {"1.gather_grad", "gather_grad", "x:X index:Index out_grad:Out@GRAD axis:@axis/INT", kToXGrad,
     ""},
    {"1.stack", "stack", "x:X*", "out:Y", ""},
    {"1.stack_grad", "stack_grad", "x:X* out_grad:Y@GRAD", "x_grad:X@GRAD*", ""},
    {"1.slice", "slice", "input:Input starts:@starts/INTS ends:@ends/INTS", kOut, ""},
    {"1.slice_grad", "slice_grad",
     "input:Input out_grad:Out@GRAD starts:@starts/INTS ends:@ends/INTS", "input_grad:Input@GRAD",
     ""},
    // Losses.
    {"1.cross_entropy_with_softmax", "softmax_with_cross_entropy", "input:Logits label:Label",
     "softmax:Softmax loss:Loss", ""},
    {"1.cross_entropy_with_softmax_grad", "softmax_with_cross_entropy_grad",
     "label:Label softmax:Softmax loss_grad:Loss@GRAD", "input_grad:Logits@GRAD", ""},
    {"1.sigmoid_cross_entropy_with_logits", "sigmoid_cross_entropy_with_logits",
     "x:X label:Label pos_weight:pos_weight?", kOut, ""},
    {"1.sigmoid_cross_entropy_with_logits_grad", "sigmoid_cross_entropy_with_logits_grad",
     "x:X label:Label pos_weight:pos_weight? out_grad:Out@GRAD", kToXGrad, ""},
    {"1.log_loss", "log_loss", "input:Predicted label:Labels", "out:Loss", ""},
    {"1.log_loss_grad", "log_loss_grad", "input:Predicted label:Labels out_grad:Loss@GRAD",
     "input_grad:Predicted@GRAD", ""},
    // New tensors. The importer adds values of 1.full, and 1.full_int_array.
    {"1.full", "fill_constant", "", kOut, "value:-"},
    {"1.full_like", "fill_any_like", "x:X value:@value/FLOAT", kOut, ""},
    {"1.assign_value_", "assign_value", "output:-", "out:Out=output", "values:-"},
    {"1.uniform", "uniform_random", "shape:@shape/LONGS min:@min/FLOAT max:@max/FLOAT", kOut, ""},
    {"1.gaussian", "gaussian_random", "shape:@shape/LONGS", kOut, ""},
    // Optimizers.
    {"1.sgd_", "sgd", "param:Param learning_rate:LearningRate grad:Grad master_param:MasterParam?",
     "param_out:ParamOut=param master_param_out:MasterParamOut=master_param", ""},
    {"1.momentum_", "momentum",
     "param:Param grad:Grad velocity:Velocity learning_rate:LearningRate "
     "master_param:MasterParam?",
     "param_out:ParamOut=param velocity_out:VelocityOut=velocity "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.adam_", "adam", kAdam, kAdamResults, ""},
    {"1.adamw_", "adamw", kAdam, kAdamResults, ""},
    {"1.adagrad_", "adagrad",
     "param:Param grad:Grad moment:Moment learning_rate:LearningRate master_param:MasterParam?",
     "param_out:ParamOut=param moment_out:MomentOut=moment "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.adadelta_", "adadelta",
     "param:Param grad:Grad avg_squared_grad:AvgSquaredGrad avg_squared_update:AvgSquaredUpdate "
     "learning_rate:LearningRate master_param:MasterParam?",
     "param_out:ParamOut=param moment_out:AvgSquaredGradOut=avg_squared_grad "
     "inf_norm_out:AvgSquaredUpdateOut=avg_squared_update "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.rmsprop_", "rmsprop",
     "param:Param mean_square:MeanSquare grad:Grad moment:Moment learning_rate:LearningRate "
     "mean_grad:MeanGrad? master_param:MasterParam?",
     "param_out:ParamOut=param moment_out:MomentOut=moment "
     "mean_square_out:MeanSquareOut=mean_square "
     "mean_grad_out:MeanGradOut=mean_grad master_param_outs:MasterParamOut=master_param",
     ""},
    {"1.adamax_", "adamax",
     "param:Param grad:Grad learning_rate:LearningRate moment:Moment inf_norm:InfNorm "
     "beta1_pow:Beta1Pow master_param:MasterParam?",
     "param_out:ParamOut=param moment_out:MomentOut=moment inf_norm_out:InfNormOut=inf_norm "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.lamb_", "lamb",
     "param:Param grad:Grad learning_rate:LearningRate moment1:Moment1 moment2:Moment2 "
     "beta1_pow:Beta1Pow beta2_pow:Beta2Pow master_param:MasterParam? skip_update:SkipUpdate?",
     "param_out:ParamOut=param moment1_out:Moment1Out=moment1 moment2_out:Moment2Out=moment2 "
     "beta1_pow_out:Beta1PowOut=beta1_pow beta2_pow_out:Beta2PowOut=beta2_pow "
     "master_param_outs:MasterParamOut=master_param",
     ""},
    {"1.nadam_", "nadam",
     "param:Param grad:Grad learning_rate:LearningRate momentum_decay_pow:MomentumDecayPow "
     "beta2_pow:Beta2Pow mu_product:MuProduct moment1:Moment1 moment2:Moment2 "
     "master_param:MasterParam?",
     "param_out:ParamOut=param momentum_decay_pow_out:MomentumDecayPowOut=momentum_decay_pow "
     "beta2_pow_out:Beta2PowOut=beta2_pow mu_product_out:MuProductOut=mu_product "
     "moment1_out:Moment1Out=moment1 moment2_out:Moment2Out=moment2 "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.radam_", "radam",
     "param:Param grad:Grad learning_rate:LearningRate beta1_pow:Beta1Pow beta2_pow:Beta2Pow "
     "rho:Rho moment1:Moment1 moment2:Moment2 master_param:MasterParam?",
     "param_out:ParamOut=param beta1_pow_out:Beta1PowOut=beta1_pow "
     "beta2_pow_out:Beta2PowOut=beta2_pow rho_out:RhoOut=rho moment1_out:Moment1Out=moment1 "
     "moment2_out:Moment2Out=moment2 master_param_out:MasterParamOut=master_param",
     ""},
    // Communication, as Paddle 3 names it in both formats.
    {"1.all_reduce_", "all_reduce", "x:x", "out:out=x", ""},
    {"1.all_reduce", "all_reduce", "x:x", "out:out", ""},
    {"1.all_gather", "all_gather", "x:x", "out:out", ""},
    {"1.broadcast_", "broadcast", "x:x", "out:out=x", ""},
    {"1.broadcast", "broadcast", "x:x", "out:out", ""},
};

pb::AttrType AttrTypeOf(absl::string_view name) {
  if (name == "INT") return pb::INT;
  if (name == "INTS") return pb::INTS;
  if (name == "LONGS") return pb::LONGS;
  assert(name == "FLOAT");
  return pb::FLOAT;
}

OperandRule ParseOperand(absl::string_view text) {
  OperandRule rule;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  rule.name = parts.first;
  absl::string_view target = parts.second;
  rule.optional = absl::ConsumeSuffix(&target, "?");
  if (target == "-") {
    rule.kind = OperandRule::Kind::kDropped;
  } else if (absl::ConsumePrefix(&target, "@")) {
    const std::pair<absl::string_view, absl::string_view> attr = absl::StrSplit(target, '/');
    rule.kind = OperandRule::Kind::kConstant;
    rule.target = attr.first;
    rule.type = AttrTypeOf(attr.second);
  } else {
    rule.kind =
        absl::ConsumeSuffix(&target, "*") ? OperandRule::Kind::kList : OperandRule::Kind::kTensor;
    rule.target = target;
  }
  return rule;
}

OpRule ParseRow(const Row& row) {
  OpRule rule;
  rule.pir = row.pir;
  rule.desc = row.desc;
  for (absl::string_view text : absl::StrSplit(row.operands, ' ', absl::SkipEmpty())) {
    rule.operands.push_back(ParseOperand(text));
  }
  for (absl::string_view text : absl::StrSplit(row.results, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits(':', 1));
    const std::pair<absl::string_view, absl::string_view> target =
        absl::StrSplit(parts.second, absl::MaxSplits('=', 1));
    ResultRule& result = rule.results.emplace_back();
    result.name = parts.first;
    result.slot = target.first;
    result.is_list = absl::ConsumeSuffix(&result.slot, "*");
    result.dropped = result.slot == "-";
    if (!target.second.empty()) result.in_place_of = rule.FindOperand(target.second);
  }
  for (absl::string_view text : absl::StrSplit(row.attrs, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> names = absl::StrSplit(text, ':');
    rule.attrs.emplace_back(names.first, names.second == "-" ? "" : names.second);
  }
  const absl::string_view base = absl::StripSuffix(rule.desc, "_grad");
  rule.has_xshape = base == "reshape2" || base == "transpose2" || base == "squeeze2" ||
                    base == "unsqueeze2" || base == "flatten_contiguous_range";
  return rule;
}

struct Table {
  std::vector<OpRule> rules;
  absl::flat_hash_map<absl::string_view, const OpRule*> by_pir, by_desc;

  Table() {
    for (const Row& row : kRows) rules.push_back(ParseRow(row));
    for (const OpRule& rule : rules) {
      by_pir.emplace(rule.pir, &rule);
      by_desc.emplace(rule.desc, &rule);
    }
  }
};

const Table& TheTable() {
  static const Table* const table = new Table;
  return *table;
}

}  // namespace

int OpRule::FindOperand(absl::string_view name) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int OpRule::FindResult(absl::string_view name) const {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

const OpRule* FindRule(absl::string_view pir) {
  const auto found = TheTable().by_pir.find(pir);
  return found == TheTable().by_pir.end() ? nullptr : found->second;
}

const OpRule* FindRuleOfDesc(absl::string_view desc) {
  const auto found = TheTable().by_desc.find(desc);
  return found == TheTable().by_desc.end() ? nullptr : found->second;
}

absl::Span<const OpRule> AllRules() { return TheTable().rules; }

absl::string_view BaseName(absl::string_view pir) {
  return absl::StripSuffix(pir.substr(pir.find('.') + 1), "_");
}

bool IsGradientOp(absl::string_view pir) { return absl::EndsWith(BaseName(pir), "_grad"); }

bool IsInPlace(absl::string_view pir) { return absl::EndsWith(pir, "_"); }

}  // namespace weft::pir
