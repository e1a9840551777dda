#include "transpiler/passes/devices/offload_delta.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"
#include "transpiler/passes/devices/first_updates.h"
#include "transpiler/passes/support/op_edits.h"
#include "transpiler/passes/support/op_queries.h"

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
    if (IsRows(op.program(), op.Input("Grad")[0], op.block())) {
      return "it adds the parameter to a gradient with rows";
    }
  }
  constexpr absl::string_view kTypes[] = {"sgd", "momentum", "adam", "adamw", "lamb"};
  if (!absl::c_linear_search(kTypes, op.type())) {
    return "what it changes may depend on the parameter";
  }
  if (op.type() == "adamw" && DecayOf(op, attrs) != 0 && attrs.Bool("lazy_mode")) {
    return "it decays the rows that have gradients alone (lazy_mode)";
  }
  return "";
}

// The master weight of an update; empty: it has none.
std::string MasterOf(const pb::OpDesc& update) {
  for (const pb::OpDesc::Var& slot : update.inputs()) {
    if (slot.parameter() != "MasterParam" || slot.arguments().empty()) continue;
    return slot.arguments(0) == kEmptyVarName ? "" : slot.arguments(0);
  }
  return "";
}

pb::OpDesc AcceleratorOp(const std::string& type, NewSlots inputs, const std::string& out,
                         NewAttrs attrs = {}) {
  return BuildOp({type, std::move(inputs), {{"Out", {out}}}, std::move(attrs), kRoleOptimize});
}

pb::OpDesc Cast(const std::string& from, DType in, const std::string& to, DType out) {
  return BuildOp(CastOp(from, in, to, out, kRoleOptimize));
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

absl::StatusOr<OffloadDelta::Update> OffloadDelta::MakeUpdate(const Op& op, const OpAttrs& attrs,
                                                              const OffloadBranch* branch,
                                                              const pb::OpDesc& desc) const {
  const absl::Span<const Symbol> params = op.Input("Param");
  std::string why = WhyNot(op, attrs);
  if (why.empty() && branch != nullptr && IsRegularized(op, attrs)) {
    why = "it adds the parameter to a gradient within a branch, which runs on the host";
  }
  const absl::optional<TensorType> type = DeclaredType(program_, params[0]);
  const bool is_known = params.size() == 1 && type.has_value() &&
                        (type->dtype == DType::kFloat32 || IsHalf(type->dtype)) &&
                        NumElements(type->dims) >= 0;
  if (!why.empty() || !is_known) {
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " input Param (", program_.name(params[0]), "): offload=states ",
        why.empty() ? "takes one parameter of known dimensions, in fp32 or half precision"
                    : absl::StrCat("cannot: ", why),
        "; use offload=full"));
  }
  const Symbol rate = op.Input("LearningRate")[0];
  const absl::optional<TensorType> rate_type = DeclaredType(program_, rate);
  Update update{op,
                branch == nullptr ? op.id() : branch->op().id(),
                std::string(program_.name(params[0])),
                MasterOf(desc),
                "",
                std::string(program_.name(rate)),
                type->dims,
                rate_type.has_value() ? rate_type->dims : Dims{1},
                type->dtype};
  if (update.value.empty() && !IsHalf(update.dtype)) update.value = update.param;
  return update;
}

absl::Status OffloadDelta::Split(const Op& op, OffloadBranch* branch, pb::OpDesc* desc) {
  WEFT_ASSIGN_OR_RETURN(const OpAttrs attrs, OpAttrs::Decode(op, *FindOpSchema(op.type())));
  WEFT_ASSIGN_OR_RETURN(Update update, MakeUpdate(op, attrs, branch, *desc));
  const auto decay = static_cast<float>(DecayOf(op, attrs));
  const bool adapts = IsAdaptive(op, attrs), only_adds = decay == 0 && !adapts;
  if (branch != nullptr) {
    const std::string why = WhyNotInBranch(update, *branch, !only_adds);
    if (!why.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(op.DebugName(), " input Param (", update.param,
                       "): offload=states cannot: ", why, "; use offload=full"));
    }
  }
  update.delta = names_.Of(absl::StrCat(update.param, "@DELTA"));
  UpdateDelta(update, branch, desc);
  if (IsRegularized(op, attrs)) RegularizeGradient(update, attrs, desc);
  if (op.type() == "lamb") MakeAdam(attrs, desc);
  if (only_adds && update.value.empty()) {
    AddRounded(update);
    return absl::OkStatus();
  }
  if (update.value.empty()) {
    update.value = Like(update, "FP32");
    rewriter_.InsertAfter(update.place,
                          Cast(update.param, update.dtype, update.value, DType::kFloat32));
  }
  if (only_adds) {
    Add(update);
  } else if (op.type() == "lamb") {
    SetRateOfOne(update, branch, desc);
    ZeroRateIfSkipped(branch, &update);
    AddAdapted(update, decay, adapts);
  } else {
    SetBoolAttr(desc, "with_decay", false);
    ZeroRateIfSkipped(branch, &update);
    Decay(update, decay * static_cast<float>(attrs.Float("lr_ratio")));
    Add(update);
  }
  if (update.value == update.param) return absl::OkStatus();
  rewriter_.InsertAfter(update.place,
                        Cast(update.value, DType::kFloat32, update.param, update.dtype));
  return absl::OkStatus();
}

std::string OffloadDelta::WhyNotInBranch(const Update& update, const OffloadBranch& branch,
                                         bool needs_rate) const {
  for (const std::string& kept : {update.param, update.value}) {
    const std::string who = branch.WhoElseNames(kept, update.op);
    if (!who.empty()) {
      return absl::StrCat(who, ", which runs on the host with its branch, names ", kept);
    }
  }
  if (!needs_rate) return "";
  const Op& op = branch.op();
  if (op.Input("Cond").size() != 1 || !op.BoolAttr("is_scalar_condition").value_or(false)) {
    return absl::StrCat(op.DebugName(), " has no scalar condition");
  }
  std::vector<std::string> read = {update.rate};
  for (Symbol skip : update.op.Input("SkipUpdate")) read.emplace_back(program_.name(skip));
  for (const std::string& name : read) {
    const std::string why = branch.WhyUnknown(name);
    if (!why.empty()) return absl::StrCat("the accelerator needs ", name, ", which ", why);
  }
  return "";
}

void OffloadDelta::UpdateDelta(const Update& update, OffloadBranch* branch, pb::OpDesc* desc) {
  rewriter_.AddVar(0, TensorVar(update.delta, DType::kFloat32, update.dims));
  rewriter_.InsertBefore(update.place, HostConstant(update.delta, update.dims, 0));
  if (branch != nullptr) {
    if (!update.value.empty()) branch->Replace(update.value, "");
    branch->Replace(update.param, update.delta);
    branch->AddInput(update.delta);
  }
  SetInput(desc, "Param", {update.delta});
  SetOutput(desc, "ParamOut", {update.delta});
  if (MasterOf(*desc).empty()) return;
  SetInput(desc, "MasterParam", {});
  SetOutput(desc, "MasterParamOut", {});
  SetBoolAttr(desc, "multi_precision", false);
}

void OffloadDelta::SetRateOfOne(const Update& update, OffloadBranch* branch, pb::OpDesc* desc) {
  const std::string one = names_.Next(absl::StrCat(update.param, "@RATE"));
  rewriter_.AddVar(0, TensorVar(one, DType::kFloat32, {1}));
  rewriter_.InsertBefore(update.place, HostConstant(one, {1}, 1));
  SetInput(desc, "LearningRate", {one});
  if (branch != nullptr) branch->AddInput(one);
}

void OffloadDelta::AddRounded(const Update& update) {
  const std::string sent = Like(update, "SENT", update.dtype);
  pb::OpDesc cast = Cast(update.delta, DType::kFloat32, sent, update.dtype);
  SetOnHost(&cast);
  rewriter_.InsertAfter(update.place, cast);
  Emit(update, "elementwise_add", {{"X", {update.param}}, {"Y", {sent}}}, update.param);
}

void OffloadDelta::ZeroRateIfSkipped(const OffloadBranch* branch, Update* update) {
  const auto emit = [&](const pb::OpDesc& op) { rewriter_.InsertBefore(update->place, op); };
  const auto multiply = [&](Symbol condition, bool skips) {
    const std::string applies = Scalar(*update, "APPLIES"), rate = Scalar(*update, "RATE");
    emit(Cast(std::string(program_.name(condition)), DType::kBool, applies, DType::kFloat32));
    if (skips) {
      emit(AcceleratorOp("scale", {{"X", {applies}}}, applies, {{"scale", -1.0f}, {"bias", 1.0f}}));
    }
    emit(AcceleratorOp("elementwise_mul", {{"X", {applies}}, {"Y", {update->rate}}}, rate));
    update->rate = rate;
    update->rate_dims = {1};
  };
  if (branch != nullptr) multiply(branch->op().Input("Cond")[0], /*skips=*/false);
  for (Symbol skip : update->op.Input("SkipUpdate")) multiply(skip, /*skips=*/true);
}

pb::OpDesc OffloadDelta::HostConstant(const std::string& variable, const Dims& dims, float value) {
  pb::OpDesc op = BuildOp(FillOp(variable, DType::kFloat32, dims, value, kRoleOptimize));
  SetOnHost(&op);
  return op;
}

void OffloadDelta::RegularizeGradient(const Update& update, const OpAttrs& attrs,
                                      pb::OpDesc* desc) {
  if (first_updates_.empty()) first_updates_ = FindFirstUpdates(program_);
  const OpId before = first_updates_.at(update.op.id());
  const std::string decayed = names_.Of(absl::StrCat(update.param, "@DECAYED"));
  rewriter_.AddVar(0, TensorVar(decayed, DType::kFloat32, update.dims));
  const auto emit = [&](const pb::OpDesc& op) { rewriter_.InsertBefore(before, op); };
  const Symbol name = update.op.Input("Grad")[0];
  std::string grad(program_.name(name));
  const absl::optional<TensorType> type = DeclaredType(program_, name);
  if (type.has_value() && IsHalf(type->dtype)) {
    const std::string wide = Like(update, "FP32_GRAD");
    emit(Cast(grad, type->dtype, wide, DType::kFloat32));
    grad = wide;
  }
  const auto factor = static_cast<float>(attrs.Float("rescale_grad"));
  if (factor != 1) {
    const std::string scaled = Like(update, "RESCALED");
    emit(AcceleratorOp("scale", {{"X", {grad}}}, scaled, {{"scale", factor}}));
    grad = scaled;
  }
  std::string value = update.value;
  if (value.empty()) {
    emit(Cast(update.param, update.dtype, decayed, DType::kFloat32));
    value = decayed;
  }
  const auto coeff = static_cast<float>(attrs.Float("regularization_coeff"));
  emit(AcceleratorOp("scale", {{"X", {value}}}, decayed, {{"scale", coeff}}));
  emit(AcceleratorOp("elementwise_add", {{"X", {grad}}, {"Y", {decayed}}}, decayed));
  SetInput(desc, "Grad", {decayed});
  SetFloatAttr(desc, "rescale_grad", 1);
  SetFloatAttr(desc, "regularization_coeff", 0);
  SetStringAttr(desc, "regularization_method", "");
}

void OffloadDelta::Decay(const Update& update, float coeff) {
  const std::string kept = names_.Next(absl::StrCat(update.param, "@KEPT"));
  rewriter_.AddVar(0, TensorVar(kept, DType::kFloat32, update.rate_dims));
  Emit(update, "scale", {{"X", {update.rate}}}, kept, {{"scale", -coeff}, {"bias", 1.0f}});
  Emit(update, "elementwise_mul", {{"X", {update.value}}, {"Y", {kept}}}, update.value);
}

void OffloadDelta::Add(const Update& update) {
  Emit(update, "elementwise_add", {{"X", {update.value}}, {"Y", {update.delta}}}, update.value);
}

void OffloadDelta::AddAdapted(const Update& update, float weight_decay, bool adapts) {
  const std::string direction = Like(update, "DIRECTION");
  Emit(update, "scale", {{"X", {update.value}}}, direction, {{"scale", weight_decay}});
  Emit(update, "elementwise_sub", {{"X", {direction}}, {"Y", {update.delta}}}, direction);
  std::string step = update.rate;
  if (adapts) {
    const std::string ratio = NormRatio(update, direction);
    step = Scalar(update, "STEP");
    Emit(update, "elementwise_mul", {{"X", {ratio}}, {"Y", {update.rate}}}, step);
  }
  Emit(update, "elementwise_mul", {{"X", {direction}}, {"Y", {step}}}, direction);
  Emit(update, "elementwise_sub", {{"X", {update.value}}, {"Y", {direction}}}, update.value);
}

std::string OffloadDelta::NormRatio(const Update& update, const std::string& direction) {
  const auto constant = [&](const std::string& name, float value) {
    const std::string variable = Scalar(update, name);
    rewriter_.InsertAfter(update.place,
                          BuildOp(FillOp(variable, DType::kFloat32, {1}, value, kRoleOptimize)));
    return variable;
  };
  const std::string of_param = Scalar(update, "NORM"), of_direction = Scalar(update, "NORM");
  Emit(update, "squared_l2_norm", {{"X", {update.value}}}, of_param);
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

std::string OffloadDelta::Like(const Update& update, const std::string& name, DType dtype) {
  std::string variable = names_.Next(absl::StrCat(update.param, "@", name));
  rewriter_.AddVar(0, TensorVar(variable, dtype, update.dims));
  return variable;
}

void OffloadDelta::Emit(const Update& update, const std::string& type, NewSlots inputs,
                        const std::string& out, NewAttrs attrs) {
  rewriter_.InsertAfter(update.place,
                        AcceleratorOp(type, std::move(inputs), out, std::move(attrs)));
}

}  // namespace weft
