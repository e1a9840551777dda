// Parameter updates, of which every output is its input, updated in place; and what stands between
// backward and an update.
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;

absl::Status CheckOneElement(const InferContext& context, const char* slot) {
  const TensorType* type = context.Input(slot);
  if (type == nullptr) return absl::OkStatus();
  const int64_t elements = NumElements(type->dims);
  if (elements == 1 || elements == -1) return absl::OkStatus();
  return context.InputError(slot, "one element");
}

// The gradient and the state in `like_param` have the parameter's dimensions; the learning rate and
// the state in `scalars` one element each. Element types may differ: fp16 parameters have fp32
// state.
OpSchema::InferFn CheckUpdate(std::vector<std::string> like_param,
                              std::vector<std::string> scalars = {}) {
  std::vector<OpSchema::InferFn> checks = {SameDims("Param", "Grad"),
                                           SameDims("Param", "MasterParam")};
  for (std::string& slot : like_param) checks.push_back(SameDims("Param", std::move(slot)));
  scalars.push_back("LearningRate");
  for (const std::string& slot : scalars) {
    checks.push_back(
        [slot](InferContext& context) { return CheckOneElement(context, slot.c_str()); });
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
                              .In("Beta1Tensor", kOptional)
                              .In("Beta2Pow")
                              .In("Beta2Tensor", kOptional)
                              .In("EpsilonTensor", kOptional))
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
                              .In("Beta1Tensor", kOptional)
                              .In("Beta2Pow")
                              .In("Beta2Tensor", kOptional)
                              .In("EpsilonTensor", kOptional))
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
