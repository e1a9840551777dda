#include "transpiler/passes/offload_delta.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"
#include "transpiler/passes/op_edits.h"

namespace weft {
namespace {

// How much the op itself decays the parameter.
double DecayOf(const Op& op, const OpAttrs& attrs) {
  if (op.type() == "lamb") return attrs.Float("weight_decay");
  return op.type() == "adamw" && attrs.Bool("with_decay") ? attrs.Float("coeff") : 0;
}

// Whether the op itself adds a regularization to the gradient.
bool IsRegularized(const Op& op, const OpAttrs& attrs) {
  return op.type() == "momentum" && !attrs.String("regularization_method").empty();
}

bool IsAdaptive(const Op& op, const OpAttrs& attrs) {
  return op.type() == "lamb" && (attrs.Float("weight_decay") > 0 || attrs.Bool("always_adapt"));
}

// Why the update cannot be split; empty: it can.
std::string WhyNot(const Op& op, const OpAttrs& attrs) {
  if (IsRegularized(op, attrs)) {
    if (attrs.String("regularization_method") != "l2_decay") {
      return absl::StrCat("its regularization is ", attrs.String("regularization_method"));
    }
    if (op.Input("Grad").size() != 1) return "it adds the parameter to a gradient, found none";
    const VarId grad = op.program().block(op.block()).Resolve(op.Input("Grad")[0]);
    if (grad.valid() && op.program().var(grad).type() == pb::VarType::SELECTED_ROWS) {
      return "it adds the parameter to a gradient with rows";
    }
    const absl::optional<TensorType> type =
        grad.valid() ? DeclaredType(op.program().var(grad)) : absl::nullopt;
    if (type.has_value() && type->dtype != DType::kFloat32) {
      return absl::StrCat("it adds the parameter to a gradient in ", DTypeName(type->dtype));
    }
  }
  constexpr absl::string_view kTypes[] = {"sgd", "momentum", "adam", "adamw", "lamb"};
  if (!absl::c_linear_search(kTypes, op.type())) {
    return "what it changes may depend on the parameter";
  }
  const bool is_split = DecayOf(op, attrs) != 0 || IsAdaptive(op, attrs);
  if (is_split && !op.Input("SkipUpdate").empty()) {
    return "it may be skipped, and decays the parameter on the accelerator";
  }
  if (is_split && op.type() == "adamw" && attrs.Bool("lazy_mode")) {
    return "it decays the rows that have gradients alone (lazy_mode)";
  }
  return "";
}

// lamb without its decay and its norms is adam, with another default of epsilon.
void MakeAdam(const OpAttrs& lamb, pb::OpDesc* desc) {
  desc->set_type("adam");
  google::protobuf::RepeatedPtrField<pb::OpDesc::Attr> attrs;
  for (const pb::OpDesc::Attr& attr : desc->attrs()) {
    if (attr.name() != "weight_decay" && attr.name() != "always_adapt") *attrs.Add() = attr;
  }
  desc->mutable_attrs()->Swap(&attrs);
  SetFloatAttr(desc, "epsilon", static_cast<float>(lamb.Float("epsilon")));
}

}  // namespace

absl::Status OffloadDelta::Split(const Op& op, pb::OpDesc* desc) {
  WEFT_ASSIGN_OR_RETURN(const OpAttrs attrs, OpAttrs::Decode(op, *FindOpSchema(op.type())));
  const std::string why = WhyNot(op, attrs);
  const absl::Span<const Symbol> params = op.Input("Param");
  const VarId var = program_.block(0).FindVar(params[0]);
  const absl::optional<TensorType> type =
      var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
  const bool is_known = params.size() == 1 && type.has_value() && type->dtype == DType::kFloat32 &&
                        NumElements(type->dims) >= 0;
  if (!why.empty() || !is_known) {
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " input Param (", program_.name(params[0]), "): offload=states ",
        why.empty() ? "takes one fp32 parameter of known dimensions"
                    : absl::StrCat("cannot: ", why),
        "; use offload=full"));
  }
  Update update{op, std::string(program_.name(params[0])), "",
                std::string(program_.name(op.Input("LearningRate")[0])), type->dims};
  update.delta = names_.Of(absl::StrCat(update.param, "@DELTA"));
  rewriter_.AddVar(0, TensorVar(update.delta, DType::kFloat32, type->dims));
  rewriter_.InsertBefore(op.id(), HostConstant(update.delta, type->dims, 0));
  SetInput(desc, "Param", {update.delta});
  SetOutput(desc, "ParamOut", {update.delta});
  if (IsRegularized(op, attrs)) RegularizeGradient(update, attrs, desc);
  const auto decay = static_cast<float>(DecayOf(op, attrs));
  if (op.type() != "lamb") {
    if (decay != 0) {
      SetBoolAttr(desc, "with_decay", false);
      Decay(update, decay * static_cast<float>(attrs.Float("lr_ratio")));
    }
    Add(update);
    return absl::OkStatus();
  }
  MakeAdam(attrs, desc);
  const bool adapts = IsAdaptive(op, attrs);
  if (decay == 0 && !adapts) {
    Add(update);
    return absl::OkStatus();
  }
  const std::string one = names_.Next(absl::StrCat(update.param, "@RATE"));
  rewriter_.AddVar(0, TensorVar(one, DType::kFloat32, {1}));
  rewriter_.InsertBefore(op.id(), HostConstant(one, {1}, 1));
  SetInput(desc, "LearningRate", {one});
  AddAdapted(update, decay, adapts);
  return absl::OkStatus();
}

pb::OpDesc OffloadDelta::HostConstant(const std::string& variable, const Dims& dims, float value) {
  pb::OpDesc op = BuildOp({"fill_constant",
                           {},
                           {{"Out", {variable}}},
                           {{"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                            {"dtype", static_cast<int32_t>(DType::kFloat32)},
                            {"value", value}},
                           kRoleOptimize},
                          Dialect::kWeft);
  SetOnHost(&op);
  return op;
}

void OffloadDelta::RegularizeGradient(const Update& update, const OpAttrs& attrs,
                                      pb::OpDesc* desc) {
  if (first_updates_.empty()) FindFirstUpdates();
  const OpId before = first_updates_.at(update.op.id());
  const std::string decayed = names_.Of(absl::StrCat(update.param, "@DECAYED"));
  rewriter_.AddVar(0, TensorVar(decayed, DType::kFloat32, update.dims));
  const auto emit = [&](const std::string& type, NewSlots inputs, const std::string& out,
                        NewAttrs op_attrs) {
    rewriter_.InsertBefore(
        before,
        BuildOp({type, std::move(inputs), {{"Out", {out}}}, std::move(op_attrs), kRoleOptimize},
                Dialect::kWeft));
  };
  std::string grad(program_.name(update.op.Input("Grad")[0]));
  const auto factor = static_cast<float>(attrs.Float("rescale_grad"));
  if (factor != 1) {
    const std::string scaled = names_.Next(absl::StrCat(update.param, "@RESCALED"));
    rewriter_.AddVar(0, TensorVar(scaled, DType::kFloat32, update.dims));
    emit("scale", {{"X", {grad}}}, scaled, {{"scale", factor}});
    grad = scaled;
  }
  const auto coeff = static_cast<float>(attrs.Float("regularization_coeff"));
  emit("scale", {{"X", {update.param}}}, decayed, {{"scale", coeff}});
  emit("elementwise_add", {{"X", {grad}}, {"Y", {decayed}}}, decayed, {});
  SetInput(desc, "Grad", {decayed});
  SetFloatAttr(desc, "rescale_grad", 1);
  SetFloatAttr(desc, "regularization_coeff", 0);
  SetStringAttr(desc, "regularization_method", "");
}

void OffloadDelta::FindFirstUpdates() {
  OpTraits traits(program_);
  constexpr int kNever = -1;
  std::vector<int> named(program_.symbols().size(), kNever);  // by symbol: the last op that does
  std::vector<int> written(program_.symbols().size(), kNever);
  absl::flat_hash_map<Symbol, Symbol> buffer_of;  // by slice
  int barrier = kNever;                           // the last op that may use any variable
  struct Position {
    int index;
    OpId op;
  };
  std::vector<Position> updates;
  const absl::Span<const OpId> ops = program_.block(0).ops();
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    const Op op = program_.op(ops[i]);
    if (traits.Has(op, Trait::kOptimizer)) {
      updates.push_back({i, op.id()});
      int after = barrier;
      for (Symbol grad : op.Input("Grad")) {
        after = std::max(after, named[grad.value()]);
        const auto buffer = buffer_of.find(grad);
        if (buffer != buffer_of.end()) after = std::max(after, named[buffer->second.value()]);
      }
      for (Symbol param : op.Input("Param")) after = std::max(after, written[param.value()]);
      const auto first =
          std::upper_bound(updates.begin(), updates.end(), after,
                           [](int index, const Position& update) { return index < update.index; });
      first_updates_[op.id()] = first->op;
    }
    const bool waits_for_all = traits.Has(op, Trait::kStreamSync) && op.args().empty();
    if (!op.SubBlocks().empty() || waits_for_all) barrier = i;
    for (Symbol name : op.args()) named[name.value()] = i;
    for (Symbol name : op.output_args()) written[name.value()] = i;
    if (!traits.Has(op, Trait::kAlias) || op.Output("FusedOutput").size() != 1) continue;
    for (Symbol slice : op.Output("Output")) buffer_of[slice] = op.Output("FusedOutput")[0];
  }
}

void OffloadDelta::Decay(const Update& update, float coeff) {
  // Of the dimensions of the learning rate: [1], or none.
  const VarId rate = program_.block(0).FindVar(update.op.Input("LearningRate")[0]);
  const absl::optional<TensorType> type =
      rate.valid() ? DeclaredType(program_.var(rate)) : absl::nullopt;
  const std::string kept = names_.Next(absl::StrCat(update.param, "@KEPT"));
  rewriter_.AddVar(0, TensorVar(kept, DType::kFloat32, type.has_value() ? type->dims : Dims{1}));
  Emit(update, "scale", {{"X", {update.rate}}}, kept, {{"scale", -coeff}, {"bias", 1.0f}});
  Emit(update, "elementwise_mul", {{"X", {update.param}}, {"Y", {kept}}}, update.param);
}

void OffloadDelta::Add(const Update& update) {
  Emit(update, "elementwise_add", {{"X", {update.param}}, {"Y", {update.delta}}}, update.param);
}

void OffloadDelta::AddAdapted(const Update& update, float weight_decay, bool adapts) {
  const std::string direction = names_.Next(absl::StrCat(update.param, "@DIRECTION"));
  rewriter_.AddVar(0, TensorVar(direction, DType::kFloat32, update.dims));
  Emit(update, "scale", {{"X", {update.param}}}, direction, {{"scale", weight_decay}});
  Emit(update, "elementwise_sub", {{"X", {direction}}, {"Y", {update.delta}}}, direction);
  std::string step = update.rate;
  if (adapts) {
    const std::string ratio = NormRatio(update, direction);
    step = Scalar(update, "STEP");
    Emit(update, "elementwise_mul", {{"X", {ratio}}, {"Y", {update.rate}}}, step);
  }
  Emit(update, "elementwise_mul", {{"X", {direction}}, {"Y", {step}}}, direction);
  Emit(update, "elementwise_sub", {{"X", {update.param}}, {"Y", {direction}}}, update.param);
}

std::string OffloadDelta::NormRatio(const Update& update, const std::string& direction) {
  const auto constant = [&](const std::string& name, float value) {
    const std::string variable = Scalar(update, name);
    Emit(update, "fill_constant", {}, variable,
         {{"shape", std::vector<int64_t>{1}},
          {"dtype", static_cast<int32_t>(DType::kFloat32)},
          {"value", value}});
    return variable;
  };
  const std::string of_param = Scalar(update, "NORM"), of_direction = Scalar(update, "NORM");
  Emit(update, "squared_l2_norm", {{"X", {update.param}}}, of_param);
  Emit(update, "squared_l2_norm", {{"X", {direction}}}, of_direction);
  const std::string least = Scalar(update, "LEAST_NORM"), ratio = Scalar(update, "RATIO");
  const std::string scales = Scalar(update, "SCALES", DType::kBool);
  Emit(update, "elementwise_min", {{"X", {of_param}}, {"Y", {of_direction}}}, least);
  const std::string zero = constant("ZERO", 0), one = constant("ONE", 1);
  Emit(update, "greater_than", {{"X", {least}}, {"Y", {zero}}}, scales);
  Emit(update, "elementwise_div", {{"X", {of_param}}, {"Y", {of_direction}}}, ratio);
  Emit(update, "sqrt", {{"X", {ratio}}}, ratio);
  Emit(update, "where", {{"Condition", {scales}}, {"X", {ratio}}, {"Y", {one}}}, ratio);
  return ratio;
}

std::string OffloadDelta::Scalar(const Update& update, const std::string& name, DType dtype) {
  std::string variable = names_.Next(absl::StrCat(update.param, "@", name));
  rewriter_.AddVar(0, TensorVar(variable, dtype, {1}));
  return variable;
}

void OffloadDelta::Emit(const Update& update, const std::string& type, NewSlots inputs,
                        const std::string& out, NewAttrs attrs) {
  rewriter_.InsertAfter(
      update.op.id(),
      BuildOp({type, std::move(inputs), {{"Out", {out}}}, std::move(attrs), kRoleOptimize},
              Dialect::kWeft));
}

}  // namespace weft
