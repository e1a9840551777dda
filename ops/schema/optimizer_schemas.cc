// Parameter updates, of which every output is its input, updated in place; and what stands between
// backward and an update.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_checks.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;

constexpr int kDuplicable = OpSchema::kDuplicable;
constexpr int kOptionalList = kOptional | kDuplicable;

// All variables of the slot have the dimensions of the parameters.
OpSchema::InferFn LikeParams(std::string slot) {
  return [slot = std::move(slot)](InferContext& context) -> absl::Status {
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

// The gradient and the state in `like_param` have the parameter's dimensions; the learning rate and
// the state in `scalars` one element each. Element types may differ: fp16 parameters have fp32
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
        WEFT_RETURN_IF_ERROR(CheckOneElement(context, slot.c_str(), i));
      }
      return absl::OkStatus();
    });
  }
  return InOrder(std::move(checks));
}

OpSchema Optimizer(const char* type) { return OpSchema(type).With(Trait::kOptimizer); }

// What adam, adamw and lamb have in common, after the inputs for beta and epsilon.
OpSchema AdamFamily(OpSchema schema) {
  return std::move(schema)
      .In("Grad")
      .In("LearningRate")
      .In("MasterParam", kOptional)
      .In("Moment1")
      .In("Moment2")
      .In("Param")
      .In("SkipUpdate", kOptional)
      .OutInPlace("Beta1PowOut", "Beta1Pow")
      .OutInPlace("Beta2PowOut", "Beta2Pow")
      .OutInPlace("MasterParamOut", "MasterParam", kOptional)
      .OutInPlace("Moment1Out", "Moment1")
      .OutInPlace("Moment2Out", "Moment2")
      .OutInPlace("ParamOut", "Param")
      .Infer(CheckUpdate({"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"}));
}

}  // namespace

void AddOptimizerSchemas(OpSchemaTable* schemas) {
  // Before version 2.5 it had no learning rate: that was 1.
  schemas->Add(Optimizer("adadelta")
                   .In("AvgSquaredGrad")
                   .In("AvgSquaredUpdate")
                   .In("Grad")
                   .In("LearningRate", kOptional)
                   .In("MasterParam", kOptional)
                   .In("Param")
                   .OutInPlace("AvgSquaredGradOut", "AvgSquaredGrad")
                   .OutInPlace("AvgSquaredUpdateOut", "AvgSquaredUpdate")
                   .OutInPlace("MasterParamOut", "MasterParam", kOptional)
                   .OutInPlace("ParamOut", "Param")
                   .Attr("epsilon", 1e-6f)
                   .Attr("multi_precision", false)
                   .Attr("rho", 0.95f)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"AvgSquaredGrad", "AvgSquaredUpdate"})));
  schemas->Add(Optimizer("adamax")
                   .In("Beta1Pow")
                   .In("Grad")
                   .In("InfNorm")
                   .In("LearningRate")
                   .In("MasterParam", kOptional)
                   .In("Moment")
                   .In("Param")
                   .OutInPlace("InfNormOut", "InfNorm")
                   .OutInPlace("MasterParamOut", "MasterParam", kOptional)
                   .OutInPlace("MomentOut", "Moment")
                   .OutInPlace("ParamOut", "Param")
                   .Attr("beta1", 0.9f)
                   .Attr("beta2", 0.999f)
                   .Attr("epsilon", 1e-8f)
                   .Attr("multi_precision", false)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"Moment", "InfNorm"}, {"Beta1Pow"})));
  schemas->Add(Optimizer("decayed_adagrad")
                   .In("Grad")
                   .In("LearningRate")
                   .In("Moment")
                   .In("Param")
                   .OutInPlace("MomentOut", "Moment")
                   .OutInPlace("ParamOut", "Param")
                   .Attr("decay", 0.95f)
                   .Attr("epsilon", 1e-6f)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"Moment"})));
  schemas->Add(Optimizer("ftrl")
                   .In("Grad")
                   .In("LearningRate")
                   .In("LinearAccumulator")
                   .In("Param")
                   .In("SquaredAccumulator")
                   .OutInPlace("LinearAccumOut", "LinearAccumulator")
                   .OutInPlace("ParamOut", "Param")
                   .OutInPlace("SquaredAccumOut", "SquaredAccumulator")
                   .Attr("l1", 0.0f)
                   .Attr("l2", 0.0f)
                   .Attr("lr_power", -0.5f)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"SquaredAccumulator", "LinearAccumulator"})));
  // By norms of whole parameters: not elementwise.
  schemas->Add(Optimizer("lars_momentum")
                   .In("Grad", kDuplicable)
                   .In("LearningRate", kDuplicable)
                   .In("MasterParam", kOptionalList)
                   .In("Param", kDuplicable)
                   .In("Velocity", kDuplicable)
                   .OutInPlace("MasterParamOut", "MasterParam", kOptionalList)
                   .OutInPlace("ParamOut", "Param", kDuplicable)
                   .OutInPlace("VelocityOut", "Velocity", kDuplicable)
                   .Attr("epsilon", 0.0f)
                   .Attr("lars_coeff", 0.001f)
                   .Attr("lars_weight_decay", std::vector<float>{0.0005f})
                   .RequiredAttr("mu", 0.0f)
                   .Attr("multi_precision", false)
                   .Attr("rescale_grad", 1.0f)
                   .Infer(CheckUpdate({"Velocity"})));
  schemas->Add(Optimizer("merged_adam")
                   .In("Beta1Pow", kDuplicable)
                   .In("Beta2Pow", kDuplicable)
                   .In("Grad", kDuplicable)
                   .In("LearningRate", kDuplicable)
                   .In("MasterParam", kOptionalList)
                   .In("Moment1", kDuplicable)
                   .In("Moment2", kDuplicable)
                   .In("Param", kDuplicable)
                   .OutInPlace("Beta1PowOut", "Beta1Pow", kDuplicable)
                   .OutInPlace("Beta2PowOut", "Beta2Pow", kDuplicable)
                   .OutInPlace("MasterParamOut", "MasterParam", kOptionalList)
                   .OutInPlace("Moment1Out", "Moment1", kDuplicable)
                   .OutInPlace("Moment2Out", "Moment2", kDuplicable)
                   .OutInPlace("ParamOut", "Param", kDuplicable)
                   .Attr("beta1", 0.9f)
                   .Attr("beta2", 0.999f)
                   .Attr("epsilon", 1e-8f)
                   .Attr("multi_precision", false)
                   .Attr("use_global_beta_pow", false)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"})));
  schemas->Add(Optimizer("merged_momentum")
                   .In("Grad", kDuplicable)
                   .In("LearningRate", kDuplicable)
                   .In("MasterParam", kOptionalList)
                   .In("Param", kDuplicable)
                   .In("Velocity", kDuplicable)
                   .OutInPlace("MasterParamOut", "MasterParam", kOptionalList)
                   .OutInPlace("ParamOut", "Param", kDuplicable)
                   .OutInPlace("VelocityOut", "Velocity", kDuplicable)
                   .RequiredAttr("mu", 0.0f)
                   .Attr("multi_precision", false)
                   .Attr("regularization_coeff", std::vector<float>{})
                   .Attr("regularization_method", Strings{})
                   .Attr("rescale_grad", 1.0f)
                   .Attr("use_nesterov", false)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"Velocity"})));
  schemas->Add(Optimizer("adagrad")
                   .In("Grad")
                   .In("LearningRate")
                   .In("MasterParam", kOptional)
                   .In("Moment")
                   .In("Param")
                   .OutInPlace("MasterParamOut", "MasterParam", kOptional)
                   .OutInPlace("MomentOut", "Moment")
                   .OutInPlace("ParamOut", "Param")
                   .Attr("epsilon", 1e-6f)
                   .Attr("multi_precision", false)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"Moment"})));
  schemas->Add(AdamFamily(Optimizer("adam")
                              .In("Beta1Pow")
                              .AttrIn("Beta1Tensor", {"beta1"})
                              .In("Beta2Pow")
                              .AttrIn("Beta2Tensor", {"beta2"})
                              .AttrIn("EpsilonTensor", {"epsilon"}))
                   .Attr("beta1", 0.9f)
                   .Attr("beta2", 0.999f)
                   .Attr("epsilon", 1e-8f)
                   .Attr("lazy_mode", false)
                   .Attr("min_row_size_to_use_multithread", int64_t{1000})
                   .Attr("multi_precision", false)
                   .Attr("use_global_beta_pow", false)
                   .With(Trait::kElementwise));
  schemas->Add(AdamFamily(Optimizer("adamw")
                              .In("Beta1Pow")
                              .AttrIn("Beta1Tensor", {"beta1"})
                              .In("Beta2Pow")
                              .AttrIn("Beta2Tensor", {"beta2"})
                              .AttrIn("EpsilonTensor", {"epsilon"}))
                   .Attr("beta1", 0.9f)
                   .Attr("beta2", 0.999f)
                   .Attr("coeff", 0.01f)
                   .Attr("epsilon", 1e-8f)
                   .Attr("lazy_mode", false)
                   .Attr("lr_ratio", 1.0f)
                   .Attr("min_row_size_to_use_multithread", int64_t{1000})
                   .Attr("multi_precision", false)
                   .Attr("use_global_beta_pow", false)
                   .Attr("with_decay", false)
                   .With(Trait::kElementwise));
  // Scales each parameter's update by norms of the whole parameter: not elementwise.
  schemas->Add(AdamFamily(Optimizer("lamb").In("Beta1Pow").In("Beta2Pow"))
                   .Attr("always_adapt", false)
                   .Attr("beta1", 0.9f)
                   .Attr("beta2", 0.999f)
                   .Attr("epsilon", 1e-6f)
                   .Attr("multi_precision", false)
                   .RequiredAttr("weight_decay", 0.0f));
  // Deep gradient compression: adds the gradient to what was left over (V), moves the largest
  // elements to EncodeGrad, in which ranks are meant to exchange them, and leaves zeros in
  // Grad_out.
  schemas->Add(OpSchema("dgc")
                   .In("Grad")
                   .In("Param", kOptional)
                   .In("U")
                   .In("V")
                   .In("current_step")
                   .In("nranks")
                   .Out("EncodeGrad")
                   .Out("GatherBuff")
                   .Out("Grad_out")
                   .OutInPlace("U_out", "U")
                   .OutInPlace("V_out", "V")
                   .Out("k")
                   .Attr("m", 0.9f)
                   .Attr("rampup_begin_step", 0.0f)
                   .RequiredAttr("rampup_step", 0.0f)
                   .Attr("regular_coeff", 0.0f)
                   .Attr("regular_type", 0)
                   .RequiredAttr("sparsity", std::vector<float>{})
                   .Attr("use_nesterov", true));
  schemas->Add(Optimizer("momentum")
                   .In("Grad")
                   .In("LearningRate")
                   .In("MasterParam", kOptional)
                   .In("Param")
                   .In("Velocity")
                   .OutInPlace("MasterParamOut", "MasterParam", kOptional)
                   .OutInPlace("ParamOut", "Param")
                   .OutInPlace("VelocityOut", "Velocity")
                   .RequiredAttr("mu", 0.0f)
                   .Attr("multi_precision", false)
                   .Attr("regularization_coeff", 0.0f)
                   .Attr("regularization_method", "")
                   .Attr("rescale_grad", 1.0f)
                   .Attr("use_nesterov", false)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"Velocity"})));
  schemas->Add(Optimizer("rmsprop")
                   .In("Grad")
                   .In("LearningRate")
                   .In("MasterParam", kOptional)
                   .In("MeanGrad", kOptional)
                   .In("MeanSquare")
                   .In("Moment")
                   .In("Param")
                   .OutInPlace("MasterParamOut", "MasterParam", kOptional)
                   .OutInPlace("MeanGradOut", "MeanGrad", kOptional)
                   .OutInPlace("MeanSquareOut", "MeanSquare")
                   .OutInPlace("MomentOut", "Moment")
                   .OutInPlace("ParamOut", "Param")
                   .Attr("centered", false)
                   .Attr("decay", 0.9f)
                   .Attr("epsilon", 1e-10f)
                   .Attr("momentum", 0.0f)
                   .Attr("multi_precision", false)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({"MeanGrad", "MeanSquare", "Moment"})));
  schemas->Add(Optimizer("sgd")
                   .In("Grad")
                   .In("LearningRate")
                   .In("MasterParam", kOptional)
                   .In("Param")
                   .OutInPlace("MasterParamOut", "MasterParam", kOptional)
                   .OutInPlace("ParamOut", "Param")
                   .Attr("multi_precision", false)
                   .With(Trait::kElementwise)
                   .Infer(CheckUpdate({})));
}

}  // namespace weft
