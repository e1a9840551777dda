// Parameter updates, whose outputs are inputs updated in place, and an op between backward and
// update.
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The slot has a variable for each parameter, with its dimensions, or none.
OpSchema::InferFn LikeParams(std::string slot) {
  return [slot = std::move(slot)](InferContext& context) -> absl::Status {
    const size_t count = context.NumInputs(slot), expected = context.NumInputs("Param");
    if (count != expected && count > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input ", slot, ": expected ", expected, " variables, as in slot Param, found ", count));
    }
    for (size_t i = 0; i < context.NumInputs(slot); ++i) {
      const TensorType* param = context.Input("Param", i);
      const TensorType* type = context.Input(slot, i);
      if (param == nullptr || type == nullptr || DimsFit(param->dims, type->dims)) continue;
      return context.InputError(
          slot, i, absl::StrCat("dimensions ", DimsToString(param->dims), " of Param"));
    }
    return absl::OkStatus();
  };
}

// The gradient and the state in `like_param` have the parameter's dimensions. The learning rate and
// the state in `scalars` have one element each. Element types may differ: fp16 parameters have fp32
// state.
OpSchema::InferFn CheckUpdate(std::vector<std::string> like_param,
                              std::vector<std::string> scalars = {}) {
  like_param.insert(like_param.begin(), {"Grad", "MasterParam"});
  scalars.push_back("LearningRate");
  std::vector<OpSchema::InferFn> checks;
  for (std::string& slot : like_param) checks.push_back(LikeParams(std::move(slot)));
  for (const std::string& slot : scalars) {
    checks.push_back([slot](InferContext& context) {
      for (size_t i = 0; i < context.NumInputs(slot); ++i) {
        WEFT_RETURN_IF_ERROR(CheckElements(context, slot, 1, i));
      }
      return absl::OkStatus();
    });
  }
  return InOrder(std::move(checks));
}

// The powers have one element each, or one for each element of the parameter.
OpSchema::InferFn CheckPowers(std::vector<std::string> slots) {
  return [slots = std::move(slots)](InferContext& context) -> absl::Status {
    const TensorType* param = context.Input("Param");
    for (const std::string& slot : slots) {
      const TensorType* type = context.Input(slot);
      if (param == nullptr || type == nullptr || DimsFit(param->dims, type->dims)) continue;
      if (CheckElements(context, slot, 1).ok()) continue;
      return context.InputError(
          slot, 0,
          absl::StrCat("one element, or dimensions ", DimsToString(param->dims), " of Param"));
    }
    return absl::OkStatus();
  };
}

// Two numbers.
OpSchema::InferFn CheckPair(const char* slot) {
  return [slot](InferContext& context) { return CheckElements(context, slot, 2); };
}

// An op with these inputs. It updates the parameter, and the inputs in `states`, in outputs with
// Out after their names. The states have the dimensions of the parameter, unless the op has another
// inference.
OpSchema Optimizer(const char* type, absl::string_view inputs, std::vector<std::string> states) {
  OpSchema schema = OpSchema(type).In(inputs).With(Trait::kOptimizer);
  for (SlotSchema slot : schema.inputs()) {
    const bool is_param = slot.name == "Param" || slot.name == "MasterParam";
    if (!is_param && !absl::c_linear_search(states, slot.name)) continue;
    slot.in_place_of = slot.name;
    slot.name += "Out";
    std::move(schema).Out(std::move(slot));
  }
  return std::move(schema).Infer(CheckUpdate(std::move(states)));
}

// `found` elements of an attribute are one for each parameter.
absl::Status CheckOneEach(const InferContext& context, const char* attr, size_t found) {
  const size_t params = context.NumInputs("Param");
  if (found == params) return absl::OkStatus();
  return context.AttrError(attr, absl::StrCat("one for each of ", params, " parameters"),
                           absl::StrCat(found));
}

absl::Status CheckLarsDecays(InferContext& context) {
  constexpr char kDecay[] = "lars_weight_decay";
  return CheckOneEach(context, kDecay, context.attrs().Floats(kDecay).size());
}

// Without a list of methods, no parameter has one.
absl::Status CheckRegularization(InferContext& context) {
  constexpr char kMethod[] = "regularization_method", kCoefficient[] = "regularization_coeff";
  const size_t methods = context.attrs().Strings(kMethod).size();
  if (methods == 0) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckOneEach(context, kMethod, methods));
  return CheckOneEach(context, kCoefficient, context.attrs().Floats(kCoefficient).size());
}

// Adam divides by the largest second moment so far, if amsgrad is set.
absl::Status CheckLargestMoment(InferContext& context) {
  if (!context.attrs().Bool("amsgrad") || context.HasInput("Moment2Max")) return absl::OkStatus();
  return context.AttrError("amsgrad", "an input Moment2Max, or false", "true");
}

// A beta of 1 never takes in a gradient, and divides by zero.
const AttrRange kBeta = range::FromUpTo(0, 1);

// adam and adamw.
OpSchema AdamOrAdamW(const char* type) {
  const auto check = CheckUpdate({"Moment1", "Moment2", "Moment2Max"}, {"Beta1Pow", "Beta2Pow"});
  return Optimizer(
             type,
             "Beta1Pow, Beta1Tensor{beta1}, Beta2Pow, Beta2Tensor{beta2}, EpsilonTensor{epsilon}, "
             "Grad, LearningRate, MasterParam?, Moment1, Moment2, Moment2Max?^, Param, SkipUpdate?",
             {"Beta1Pow", "Beta2Pow", "Moment1", "Moment2", "Moment2Max"})
      .Infer(InOrder({CheckLargestMoment, check}))
      .Since(kPaddle2, "corrects epsilon")
      .Pir(absl::StrCat(
          type,
          "_(param, grad, learning_rate, moment1, moment2, moment2_max, "
          "beta1_pow, beta2_pow, master_param, skip_update, @beta1, @beta2, @epsilon)"));
}

}  // namespace

void AddOptimizerSchemas(OpSchemaTable* schemas) {
  // Before version 2.5 it had no learning rate, which is then 1.
  schemas->Add(
      Optimizer("adadelta",
                "AvgSquaredGrad, AvgSquaredUpdate, Grad, LearningRate?, MasterParam?, Param",
                {"AvgSquaredGrad", "AvgSquaredUpdate"})
          .Since(kPaddle2, "keeps its update")
          .Attr("epsilon", 1e-6f)
          .Attr("multi_precision", false)
          .Attr("rho", 0.95f)
          .With(Trait::kElementwise)
          .Pir("adadelta_(param, grad, avg_squared_grad, avg_squared_update, learning_rate!, "
               "master_param) -> param_out, moment_out:AvgSquaredGradOut, "
               "inf_norm_out:AvgSquaredUpdateOut, master_param_out"));
  schemas->Add(
      Optimizer("adamax", "Beta1Pow, Grad, InfNorm, LearningRate, MasterParam?, Moment, Param",
                {"InfNorm", "Moment"})
          .Attr("beta1", 0.9f)
          .Attr("beta2", 0.999f)
          .Attr("epsilon", 1e-8f)
          .Attr("multi_precision", false)
          .With(Trait::kElementwise)
          .Infer(CheckUpdate({"Moment", "InfNorm"}, {"Beta1Pow"}))
          .Pir("adamax_(param, grad, learning_rate, moment, inf_norm, beta1_pow, master_param)"));
  schemas->Add(Optimizer("decayed_adagrad", "Grad, LearningRate, Moment, Param", {"Moment"})
                   .Attr("decay", 0.95f)
                   .Attr("epsilon", 1e-6f)
                   .With(Trait::kElementwise));
  // Adds noise, one number for the whole parameter.
  schemas->Add(OpSchema("dpsgd", "Grad, LearningRate, Param -> ParamOut=Param")
                   .Attr("batch_size", 16.0f)
                   .Attr("clip", 10.0f)
                   .Attr("seed", 0)
                   .Attr("sigma", 1.0f)
                   .With(Trait::kOptimizer, Trait::kSideEffect)
                   .Infer(CheckUpdate({}))
                   .Algebra(Algebra::kRandom)
                   .Batch(batch::Unrelated(batch::kOfParameters)));
  schemas->Add(
      OpSchema(
          "ftrl",
          "Grad, LearningRate, LinearAccumulator, Param, SquaredAccumulator -> "
          "LinearAccumOut=LinearAccumulator, ParamOut=Param, SquaredAccumOut=SquaredAccumulator")
          .Attr("l1", 0.0f)
          .Attr("l2", 0.0f)
          .Attr("lr_power", -0.5f)
          .With(Trait::kOptimizer, Trait::kElementwise)
          .Infer(CheckUpdate({"SquaredAccumulator", "LinearAccumulator"}))
          .Rows(RowsRule::kUpdatesAlone));
  // Uses norms of whole parameters: not elementwise.
  schemas->Add(Optimizer("lars_momentum", "Grad*, LearningRate*, MasterParam*?, Param*, Velocity*",
                         {"Velocity"})
                   .Attr("epsilon", 0.0f)
                   .Attr("lars_coeff", 0.001f)
                   .Attr("lars_weight_decay", Floats{0.0005f})
                   .RequiredAttr("mu", 0.0f)
                   .Attr("multi_precision", false)
                   .Attr("rescale_grad", 1.0f)
                   .Infer(InOrder({CheckLarsDecays, CheckUpdate({"Velocity"})}))
                   .Batch(batch::Unrelated(batch::kOfParameters))
                   .Pir("lars_momentum_(param, grad, velocity, learning_rate, master_param)"));
  schemas->Add(
      Optimizer(
          "merged_adam",
          "Beta1Pow*, Beta2Pow*, Grad*, LearningRate*, MasterParam*?, Moment1*, Moment2*, Param*",
          {"Beta1Pow", "Beta2Pow", "Moment1", "Moment2"})
          .Since(kPaddle2, "corrects epsilon")
          .Attr("beta1", 0.9f, kBeta)
          .Attr("beta2", 0.999f, kBeta)
          .Attr("epsilon", 1e-8f, range::AtLeast(0))
          .Attr("multi_precision", false)
          .Attr("use_global_beta_pow", false)
          .With(Trait::kElementwise)
          .Infer(CheckUpdate({"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"})));
  schemas->Add(Optimizer("merged_momentum",
                         "Grad*, LearningRate*, MasterParam*?, Param*, Velocity*", {"Velocity"})
                   .RequiredAttr("mu", 0.0f)
                   .Attr("multi_precision", false)
                   .Attr("regularization_coeff", Floats{})
                   .Attr("regularization_method", Strings{})
                   .Attr("rescale_grad", 1.0f)
                   .Attr("use_nesterov", false)
                   .With(Trait::kElementwise)
                   .Infer(InOrder({CheckRegularization, CheckUpdate({"Velocity"})})));
  schemas->Add(Optimizer("asgd", "D, Grad, LearningRate, MasterParam?, N, Param, Y", {"D", "Y"})
                   .Attr("multi_precision", false)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"D", "Y"}, {"N"}))
                   .Pir("asgd_(param, grad, learning_rate, d, y, n, master_param) -> param_out, "
                        "d_out, y_out, master_param_out"));
  schemas->Add(Optimizer("nadam",
                         "Beta2Pow, Grad, LearningRate, MasterParam?, Moment1, Moment2, "
                         "MomentumDecayPow, MuProduct, Param",
                         {"Beta2Pow", "Moment1", "Moment2", "MomentumDecayPow", "MuProduct"})
                   .Attr("beta1", 0.9f, kBeta)
                   .Attr("beta2", 0.999f, kBeta)
                   .Attr("epsilon", 1e-8f, range::AtLeast(0))
                   .Attr("momentum_decay", 0.004f)
                   .Attr("multi_precision", false)
                   .With(Trait::kElementwise)
                   .Infer(InOrder({CheckUpdate({"Moment1", "Moment2"}),
                                   CheckPowers({"Beta2Pow", "MomentumDecayPow", "MuProduct"})}))
                   .Pir("nadam_(param, grad, learning_rate, momentum_decay_pow, beta2_pow, "
                        "mu_product, moment1, moment2, master_param)"));
  schemas->Add(
      Optimizer(
          "radam",
          "Beta1Pow, Beta2Pow, Grad, LearningRate, MasterParam?, Moment1, Moment2, Param, Rho",
          {"Beta1Pow", "Beta2Pow", "Moment1", "Moment2", "Rho"})
          .Attr("beta1", 0.9f, kBeta)
          .Attr("beta2", 0.999f, kBeta)
          .Attr("epsilon", 1e-8f, range::AtLeast(0))
          .Attr("multi_precision", false)
          .With(Trait::kElementwise)
          .Infer(InOrder(
              {CheckUpdate({"Moment1", "Moment2"}), CheckPowers({"Beta1Pow", "Beta2Pow", "Rho"})}))
          .Pir("radam_(param, grad, learning_rate, beta1_pow, beta2_pow, rho, moment1, "
               "moment2, master_param)"));
  // The learning rate is a state of each element.
  schemas->Add(
      Optimizer("rprop", "Etas, Grad, LearningRate, LearningRateRange, MasterParam?, Param, Prev",
                {"LearningRate", "Prev"})
          .Attr("multi_precision", false)
          .With(Trait::kElementwise)
          .Infer(InOrder({LikeParams("Grad"), LikeParams("MasterParam"), LikeParams("Prev"),
                          LikeParams("LearningRate"), CheckPair("Etas"),
                          CheckPair("LearningRateRange")}))
          .Pir(
              "rprop_(param, grad, prev, learning_rate, master_param, learning_rate_range, etas)"));
  schemas->Add(Optimizer("adagrad", "Grad, LearningRate, MasterParam?, Moment, Param", {"Moment"})
                   .Attr("epsilon", 1e-6f)
                   .Attr("multi_precision", false)
                   .With(Trait::kElementwise)
                   .Pir("adagrad_(param, grad, moment, learning_rate, master_param)"));
  // Paddle does not have use_nesterov: MindSpore's LazyAdam does.
  schemas->Add(AdamOrAdamW("adam")
                   .AttrSincePaddle3("amsgrad", false)
                   .Attr("beta1", 0.9f, kBeta)
                   .Attr("beta2", 0.999f, kBeta)
                   .Attr("epsilon", 1e-8f, range::AtLeast(0))
                   .Attr("lazy_mode", false)
                   .Attr("min_row_size_to_use_multithread", int64_t{1000})
                   .Attr("multi_precision", false)
                   .Attr("use_global_beta_pow", false)
                   .Attr("use_nesterov", false)
                   .With(Trait::kElementwise));
  schemas->Add(AdamOrAdamW("adamw")
                   .AttrSincePaddle3("amsgrad", false)
                   .Attr("beta1", 0.9f, kBeta)
                   .Attr("beta2", 0.999f, kBeta)
                   .Attr("coeff", 0.01f)
                   .Attr("epsilon", 1e-8f, range::AtLeast(0))
                   .Attr("lazy_mode", false)
                   .Attr("lr_ratio", 1.0f)
                   .Attr("min_row_size_to_use_multithread", int64_t{1000})
                   .Attr("multi_precision", false)
                   .Attr("use_global_beta_pow", false)
                   .Attr("with_decay", false)
                   .With(Trait::kElementwise));
  // Scales each parameter's update by norms of the whole parameter: not elementwise.
  schemas->Add(Optimizer("lamb",
                         "Beta1Pow, Beta2Pow, Grad, LearningRate, MasterParam?, Moment1, Moment2, "
                         "Param, SkipUpdate?",
                         {"Beta1Pow", "Beta2Pow", "Moment1", "Moment2"})
                   .Infer(CheckUpdate({"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"}))
                   .Since(kPaddle2, "corrects moments")
                   .Since(2'004'000, "adapts by decay")  // as is attribute always_adapt
                   .Attr("always_adapt", false)
                   .Attr("beta1", 0.9f)
                   .Attr("beta2", 0.999f)
                   .Attr("epsilon", 1e-6f)
                   .Attr("multi_precision", false)
                   .RequiredAttr("weight_decay", 0.0f)
                   .Batch(batch::Unrelated(batch::kOfParameters))
                   .Pir("lamb_(param, grad, learning_rate, moment1, moment2, beta1_pow, beta2_pow, "
                        "master_param, skip_update) -> param_out, moment1_out, moment2_out, "
                        "beta1_pow_out, beta2_pow_out, master_param_outs:MasterParamOut"));
  // Deep gradient compression adds the gradient to the remainder of earlier steps (V), moves the
  // largest elements to EncodeGrad, where ranks exchange them, and leaves zeros in Grad_out.
  schemas->Add(OpSchema("dgc",
                        "Grad, Param?, U, V, current_step, nranks -> EncodeGrad, GatherBuff, "
                        "Grad_out, U_out=U, V_out=V, k")
                   .Attr("m", 0.9f)
                   .Attr("rampup_begin_step", 0.0f)
                   .RequiredAttr("rampup_step", 0.0f)
                   .Attr("regular_coeff", 0.0f)
                   .Attr("regular_type", 0)
                   .RequiredAttr("sparsity", Floats{})
                   .Attr("use_nesterov", true)
                   .Batch(batch::Unrelated(batch::kSparsifies)));
  schemas->Add(
      Optimizer("momentum", "Grad, LearningRate, MasterParam?, Param, Velocity", {"Velocity"})
          .RequiredAttr("mu", 0.0f)
          .Attr("multi_precision", false)
          .Attr("regularization_coeff", 0.0f)
          .Attr("regularization_method", "")
          .Attr("rescale_grad", 1.0f)
          .Attr("use_nesterov", false)
          .With(Trait::kElementwise)
          .Batch({batch::LinearUpdate, Powers::kOwn})
          .Pir("momentum_(param, grad, velocity, learning_rate, master_param)"));
  schemas->Add(Optimizer("rmsprop",
                         "Grad, LearningRate, MasterParam?, MeanGrad?, MeanSquare, Moment, Param",
                         {"MeanGrad", "MeanSquare", "Moment"})
                   .Attr("centered", false)
                   .Attr("decay", 0.9f)
                   .Attr("epsilon", 1e-10f)
                   .Attr("momentum", 0.0f)
                   .Attr("multi_precision", false)
                   .With(Trait::kElementwise)
                   .Pir("rmsprop_(param, mean_square, grad, moment, learning_rate, mean_grad, "
                        "master_param) -> param_out, moment_out, mean_square_out, mean_grad_out, "
                        "master_param_outs:MasterParamOut"));
  schemas->Add(Optimizer("sgd", "Grad, LearningRate, MasterParam?, Param", {})
                   .Attr("multi_precision", false)
                   .With(Trait::kElementwise)
                   .Batch({batch::LinearUpdate, Powers::kOwn})
                   .Pir("sgd_(param, learning_rate, grad, master_param)"));
}

}  // namespace weft
