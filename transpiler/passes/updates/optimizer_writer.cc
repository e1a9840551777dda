#include "transpiler/passes/updates/optimizer_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"

namespace weft {
namespace {

constexpr char kScopeAttr[] = "op_namescope";

bool Decays(const ScheduleValue& value) { return value.decay.has_value() && !value.IsZero(); }

// Whether ops on tensors read the gradient.
bool NeedsTensor(const OptimizerSettings& settings) {
  switch (settings.type) {
    case OptimizerType::kSgd:
      return Decays(settings.momentum) ||
             (!settings.momentum.IsZero() && !settings.dampening.IsZero());
    case OptimizerType::kRmsProp:
      return Decays(settings.rho) || Decays(settings.epsilon);
    case OptimizerType::kAdaGrad:
      return true;
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      return false;
  }
  return true;
}

}  // namespace

OptimizerWriter::OptimizerWriter(const OptimizerSettings& settings, std::string scope, int block,
                                 ProgramEdits* edits)
    : settings_(settings), scope_(std::move(scope)), block_(block), edits_(*edits) {}

bool OptimizerWriter::Supports(const OptimizerSettings& settings, DType dtype) {
  return dtype == DType::kFloat32 ||
         (dtype == DType::kFloat16 && settings.type == OptimizerType::kSgd);
}

bool OptimizerWriter::CanSkip(const OptimizerSettings& settings) {
  return settings.type == OptimizerType::kAdam || settings.type == OptimizerType::kAdamW;
}

// --- What all updates share ----------------------------------------------------------------------

void OptimizerWriter::WriteSchedules(const Emit& emit) {
  lr_ = ValueOf(settings_.lr, "learning_rate", emit);
  if (lr_.IsConstant()) {
    lr_.variable = Persistable("learning_rate", DType::kFloat32, {}, lr_.constant);
  }
  weight_decay_ = ValueOf(settings_.weight_decay, "weight_decay", emit);
  momentum_ = ValueOf(settings_.momentum, "momentum", emit);
  if (!settings_.momentum.IsZero()) {  // dampening has no other use
    gradient_part_ = OneMinus(ValueOf(settings_.dampening, "dampening", emit), "undamped", emit);
  }
  rho_ = ValueOf(settings_.rho, "rho", emit);
  square_part_ = OneMinus(rho_, "one_minus_rho", emit);
  epsilon_ = ValueOf(settings_.epsilon, "epsilon", emit);
  WriteBetas(emit);
}

// The value of the step. Computed as in SINGA: the quotient is a division, since a multiplication
// by the rounded inverse may fall below a whole number.
OptimizerWriter::Value OptimizerWriter::ValueOf(const ScheduleValue& schedule,
                                                const std::string& name, const Emit& emit) {
  if (!Decays(schedule)) return {schedule.init, ""};
  if (counter_.empty()) {
    counter_ = State("step_counter", DType::kInt64, {}, 0);
    step_ = Scalar("step");
    emit(Build(CastOp(counter_, DType::kInt64, step_, DType::kFloat32, kRoleLrSched), nullptr));
  }
  const std::string steps = VariableOf({schedule.decay->steps, ""}, name + "_decay_steps", emit);
  const std::string exponent = Scalar(name + "_exponent");
  ScalarOp("elementwise_div", {{"X", {step_}}, {"Y", {steps}}}, exponent, {}, emit);
  if (schedule.decay->in_stairs) ScalarOp("floor", {{"X", {exponent}}}, exponent, {}, emit);
  const std::string rate = VariableOf({schedule.decay->rate, ""}, name + "_decay_rate", emit);
  const std::string factor = Scalar(name + "_factor");
  ScalarOp("elementwise_pow", {{"X", {rate}}, {"Y", {exponent}}}, factor, {}, emit);
  Value value{0, Scalar(name)};
  ScalarOp("scale", {{"X", {factor}}}, value.variable,
           {{"scale", static_cast<float>(schedule.init)}}, emit);
  return value;
}

std::string OptimizerWriter::VariableOf(const Value& value, const std::string& name,
                                        const Emit& emit) {
  if (!value.IsConstant()) return value.variable;
  std::string out = Scalar(name);
  emit(Build(FillOp(out, DType::kFloat32, {}, value.constant, kRoleLrSched), nullptr));
  return out;
}

OptimizerWriter::Value OptimizerWriter::OneMinus(const Value& value, const std::string& name,
                                                 const Emit& emit) {
  if (value.IsConstant()) return {1 - value.constant, ""};
  Value result{0, Scalar(name)};
  ScalarOp("scale", {{"X", {value.variable}}}, result.variable, {{"scale", -1.0f}, {"bias", 1.0f}},
           emit);
  return result;
}

// If a beta decays, its power is that of the present value: no product of those of the steps. The
// powers last from step to step, as states of op adam do, though each step writes them anew.
void OptimizerWriter::WriteBetas(const Emit& emit) {
  beta_1_ = ValueOf(settings_.beta_1, "beta_1", emit);
  beta_2_ = ValueOf(settings_.beta_2, "beta_2", emit);
  if (beta_1_.IsConstant() && beta_2_.IsConstant()) return;
  const std::string next = Scalar("next_step");
  ScalarOp("scale", {{"X", {step_}}}, next, {{"scale", 1.0f}, {"bias", 1.0f}}, emit);
  const auto power = [&](const Value& beta, double first, const std::string& name) {
    const std::string base = VariableOf(beta, name, emit);
    std::string out = State(name + "_pow", DType::kFloat32, {}, first);
    ScalarOp("elementwise_pow", {{"X", {base}}, {"Y", {next}}}, out, {}, emit);
    return out;
  };
  beta_1_pow_ = power(beta_1_, settings_.beta_1.init, "beta_1");
  beta_2_pow_ = power(beta_2_, settings_.beta_2.init, "beta_2");
}

void OptimizerWriter::WriteStep(const Emit& emit) {
  if (counter_.empty()) return;
  ScalarOp("increment", {{"X", {counter_}}}, counter_, {{"step", 1.0f}}, emit);
}

// --- One update ----------------------------------------------------------------------------------

void OptimizerWriter::WriteUpdate(const NewUpdate& update, const Emit& emit) {
  const Current current{update, emit};
  const std::string grad = GradientOf(current);
  switch (settings_.type) {
    case OptimizerType::kSgd:
      return WriteSgd(grad, current);
    case OptimizerType::kRmsProp:
      return WriteRmsProp(grad, current);
    case OptimizerType::kAdaGrad:
      return WriteAdaGrad(grad, current);
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      return WriteAdam(grad, current);
  }
}

// With weight decay, as Paddle's L2 regularization writes it, and dense if need be: a sum of rows
// and a tensor is a tensor.
std::string OptimizerWriter::GradientOf(const Current& current) {
  const NewUpdate& update = current.update;
  const bool decays = !settings_.weight_decay.IsZero() && settings_.type != OptimizerType::kAdamW;
  if (!decays && !(update.has_rows && NeedsTensor(settings_))) return update.grad;
  const std::string term = Temporary(decays ? "decay" : "zeros", current);
  if (decays) {
    Times(update.param, weight_decay_, term, current);
  } else {
    current.emit(Build(FillOp(term, update.dtype, update.dims, 0, kRoleOptimize), &update));
  }
  std::string sum = Temporary(decays ? "decayed_gradient" : "dense_gradient", current);
  Op("sum", {{"X", {update.grad, term}}}, sum, {}, current);
  return sum;
}

void OptimizerWriter::WriteSgd(const std::string& grad, const Current& current) {
  if (settings_.momentum.IsZero()) return WriteLast(grad, current);
  std::string taken = grad;
  if (!settings_.dampening.IsZero()) {
    taken = Temporary("damped_gradient", current);
    Times(grad, gradient_part_, taken, current);
  }
  const std::string velocity = StateOf("velocity", current);
  if (momentum_.IsConstant()) {
    return UpdateOp(
        "momentum", taken, {{"Velocity", {velocity}}}, {{"VelocityOut", {velocity}}},
        {{"mu", static_cast<float>(momentum_.constant)}, {"use_nesterov", settings_.nesterov}},
        current);
  }
  Times(velocity, momentum_, velocity, current);
  Plus(velocity, taken, velocity, current);
  if (!settings_.nesterov) return WriteLast(velocity, current);
  const std::string ahead = Temporary("nesterov_gradient", current);
  Times(velocity, momentum_, ahead, current);
  Plus(ahead, taken, ahead, current);
  WriteLast(ahead, current);
}

void OptimizerWriter::WriteRmsProp(const std::string& grad, const Current& current) {
  const std::string mean_square = StateOf("mean_square", current);
  if (rho_.IsConstant() && epsilon_.IsConstant()) {
    const std::string moment = StateOf("moment", current);
    return UpdateOp("rmsprop", grad, {{"MeanSquare", {mean_square}}, {"Moment", {moment}}},
                    {{"MeanSquareOut", {mean_square}}, {"MomentOut", {moment}}},
                    {{"decay", static_cast<float>(rho_.constant)},
                     {"epsilon", static_cast<float>(epsilon_.constant)},
                     {"momentum", 0.0f}},
                    current);
  }
  const std::string square = Temporary("square", current);
  Op("square", {{"X", {grad}}}, square, {}, current);
  Times(square, square_part_, square, current);
  Times(mean_square, rho_, mean_square, current);
  Plus(mean_square, square, mean_square, current);
  WriteByRoot(grad, mean_square, current);
}

void OptimizerWriter::WriteAdaGrad(const std::string& grad, const Current& current) {
  const std::string history = StateOf("history", current);
  const std::string square = Temporary("square", current);
  Op("square", {{"X", {grad}}}, square, {}, current);
  Plus(history, square, history, current);
  WriteByRoot(grad, history, current);
}

void OptimizerWriter::WriteByRoot(const std::string& grad, const std::string& squares,
                                  const Current& current) {
  const std::string root = Temporary("root", current);
  if (epsilon_.IsConstant()) {
    Op("scale", {{"X", {squares}}}, root,
       {{"scale", 1.0f}, {"bias", static_cast<float>(epsilon_.constant)}}, current);
  } else {
    Plus(squares, epsilon_.variable, root, current);
  }
  Op("sqrt", {{"X", {root}}}, root, {}, current);
  const std::string quotient = Temporary("direction", current);
  Op("elementwise_div", {{"X", {grad}}, {"Y", {root}}}, quotient, {}, current);
  WriteLast(quotient, current);
}

void OptimizerWriter::WriteAdam(const std::string& grad, const Current& current) {
  const std::string m = StateOf("moment1", current), v = StateOf("moment2", current);
  const bool own_powers = beta_1_pow_.empty();
  const auto own_power = [&](const char* name, const Value& beta) {
    return State(absl::StrCat(current.update.param, "_", name), DType::kFloat32, {1},
                 beta.constant);
  };
  const std::string b1 = own_powers ? own_power("beta1_pow_acc", beta_1_) : beta_1_pow_;
  const std::string b2 = own_powers ? own_power("beta2_pow_acc", beta_2_) : beta_2_pow_;
  NewSlots inputs = {{"Beta1Pow", {b1}}, {"Beta2Pow", {b2}}, {"Moment1", {m}}, {"Moment2", {v}}};
  NewAttrs attrs = {{"use_global_beta_pow", !own_powers}};
  const auto set = [&](const Value& value, const char* slot, const char* attr) {
    if (value.IsConstant()) {
      attrs.push_back({attr, static_cast<float>(value.constant)});
    } else {
      inputs.push_back({slot, {value.variable}});
    }
  };
  set(beta_1_, "Beta1Tensor", "beta1");
  set(beta_2_, "Beta2Tensor", "beta2");
  set(epsilon_, "EpsilonTensor", "epsilon");
  if (!current.update.skip.empty()) inputs.push_back({"SkipUpdate", {current.update.skip}});
  const bool decays = settings_.type == OptimizerType::kAdamW;
  if (decays) {
    attrs.push_back({"coeff", static_cast<float>(weight_decay_.constant)});
    attrs.push_back({"with_decay", weight_decay_.constant != 0});
  }
  UpdateOp(decays ? "adamw" : "adam", grad, std::move(inputs),
           {{"Beta1PowOut", {b1}}, {"Beta2PowOut", {b2}}, {"Moment1Out", {m}}, {"Moment2Out", {v}}},
           std::move(attrs), current);
}

void OptimizerWriter::WriteLast(const std::string& grad, const Current& current) {
  UpdateOp("sgd", grad, {}, {}, {}, current);
}

void OptimizerWriter::UpdateOp(const std::string& type, const std::string& grad, NewSlots inputs,
                               NewSlots outputs, NewAttrs attrs, const Current& current) {
  inputs.push_back({"Param", {current.update.param}});
  inputs.push_back({"Grad", {grad}});
  inputs.push_back({"LearningRate", {lr_.variable}});
  outputs.push_back({"ParamOut", {current.update.param}});
  current.emit(Build({type, std::move(inputs), std::move(outputs), std::move(attrs), kRoleOptimize},
                     &current.update));
}

// --- Ops and variables ---------------------------------------------------------------------------

void OptimizerWriter::Op(const std::string& type, NewSlots inputs, const std::string& out,
                         NewAttrs attrs, const Current& current) {
  current.emit(Build({type, std::move(inputs), {{"Out", {out}}}, std::move(attrs), kRoleOptimize},
                     &current.update));
}

void OptimizerWriter::Times(const std::string& x, const Value& factor, const std::string& out,
                            const Current& current) {
  if (factor.IsConstant()) {
    return Op("scale", {{"X", {x}}}, out, {{"scale", static_cast<float>(factor.constant)}},
              current);
  }
  Op("scale", {{"X", {x}}, {"ScaleTensor", {factor.variable}}}, out, {}, current);
}

void OptimizerWriter::Plus(const std::string& x, const std::string& y, const std::string& out,
                           const Current& current) {
  Op("elementwise_add", {{"X", {x}}, {"Y", {y}}}, out, {}, current);
}

std::string OptimizerWriter::StateOf(const char* name, const Current& current) {
  return State(absl::StrCat(current.update.param, "_", name), current.update.dtype,
               current.update.dims, 0);
}

std::string OptimizerWriter::Temporary(const char* name, const Current& current) {
  std::string variable = edits_.names.Next(absl::StrCat(current.update.param, "_", name));
  edits_.main.AddVar(block_, TensorVar(variable, current.update.dtype, current.update.dims));
  return variable;
}

std::string OptimizerWriter::State(const std::string& key, DType dtype, const Dims& dims,
                                   double value) {
  std::string name = Persistable(key, dtype, dims, value);
  writes_.push_back(name);
  return name;
}

std::string OptimizerWriter::Persistable(const std::string& key, DType dtype, const Dims& dims,
                                         double value) {
  std::string name = edits_.names.Next(key);
  edits_.AddState(name, dtype, dims, FillOp(name, dtype, dims, value, kRoleForward));
  reads_.push_back(name);
  return name;
}

std::string OptimizerWriter::Scalar(const std::string& name) {
  std::string variable = edits_.names.Next(name);
  edits_.main.AddVar(block_, TensorVar(variable, DType::kFloat32, Dims()));
  return variable;
}

void OptimizerWriter::ScalarOp(const std::string& type, NewSlots inputs, const std::string& out,
                               NewAttrs attrs, const Emit& emit) {
  emit(Build({type, std::move(inputs), {{"Out", {out}}}, std::move(attrs), kRoleLrSched}, nullptr));
}

// With the scope and, if it belongs to an update, the pair of parameter and gradient.
pb::OpDesc OptimizerWriter::Build(const NewOp& op, const NewUpdate* update) const {
  pb::OpDesc desc = BuildOp(op);
  *desc.add_attrs() = MakeAttr(kScopeAttr, scope_);
  if (update != nullptr) {
    *desc.add_attrs() =
        MakeAttr(kOpRoleVarAttr, std::vector<std::string>{update->param, update->grad});
  }
  return desc;
}

}  // namespace weft
