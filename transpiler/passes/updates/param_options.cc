#include "transpiler/passes/updates/param_options.h"

#include <set>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/name_pattern.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_edits.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/properties.h"

namespace weft {
namespace {

constexpr char kScopeAttr[] = "op_namescope";

class OptionsWriter {
 public:
  // `startup` may be null.
  OptionsWriter(const ParamAttrsByName& attrs, const ParamOptions::Options& options,
                const PassContext* context, const Program* startup, Program* program)
      : attrs_(attrs),
        no_decay_(options.no_decay),
        corrects_no_epsilon_(options.adam_epsilon == ParamOptions::AdamEpsilon::kMindSpore),
        context_(*context),
        startup_(startup),
        program_(*program),
        names_(*program),
        rewriter_(program) {}

  absl::StatusOr<bool> Run() {
    for (const Op& op : AllOps(program_)) {
      if (HasTrait(op, Trait::kOptimizer)) WEFT_RETURN_IF_ERROR(WriteUpdate(op));
    }
    for (const auto& [param, attrs] : attrs_) {
      if (!attrs.HasUpdateOptions() || updated_.count(param) > 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("attributes of parameter ", param,
                       ", lr_ratio, weight_decay: expected a parameter that an optimizer updates"));
    }
    if (!no_decay_.empty() && !no_decay_matches_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no_decay '", no_decay_,
          "': expected a pattern that matches a parameter that its update decays (adamw, lamb, "
          "momentum), found none"));
    }
    if (corrects_no_epsilon_ && !has_adam_) {
      return absl::InvalidArgumentError(
          "adam_epsilon: expected an update by adam or adamw, found none");
    }
    return CommitEdits(&rewriter_);
  }

 private:
  // What is written for a parameter.
  struct Wanted {
    absl::optional<double> lr_ratio, weight_decay;
    bool epsilon = false;
    bool empty() const { return !lr_ratio.has_value() && !weight_decay.has_value() && !epsilon; }
  };

  std::string Name(Symbol symbol) const { return std::string(program_.name(symbol)); }

  Wanted WantedFor(const std::string& param, bool is_excluded) const {
    Wanted wanted;
    const auto found = attrs_.find(param);
    if (found != attrs_.end()) wanted = {found->second.lr_ratio, found->second.weight_decay};
    if (is_excluded && !wanted.weight_decay.has_value()) wanted.weight_decay = 0;
    return wanted;
  }

  absl::Status Refused(const Op& op, absl::string_view what) const {
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " input Param (", program_.name(op.Input("Param")[0]), "): ", what));
  }

  // Whether the op itself decays its parameters.
  absl::StatusOr<bool> Decays(const Op& op) const {
    WEFT_ASSIGN_OR_RETURN(const OpAttrs attrs, OpAttrs::Decode(op, *FindOpSchema(op.type())));
    if (op.type() == "adamw") return attrs.Bool("with_decay") && attrs.Float("coeff") != 0;
    if (op.type() == "lamb") return attrs.Float("weight_decay") != 0;
    if (op.type() == "momentum") return !attrs.String("regularization_method").empty();
    // Of several parameters, or refused.
    return op.type() == "merged_momentum" || op.type() == "lars_momentum";
  }

  absl::Status WriteUpdate(const Op& op) {
    const absl::Span<const Symbol> params = op.Input("Param");
    const std::string scope = op.StringAttr(kScopeAttr).value_or("/");
    const bool has_options = ParamOptions::HasOptions(op);
    WEFT_ASSIGN_OR_RETURN(const bool decays, Decays(op));
    Wanted wanted;
    for (Symbol param : params) {
      const bool matches = !no_decay_.empty() && MatchesPattern(no_decay_, program_.name(param));
      no_decay_matches_ |= matches && (decays || has_options);
      if (wanted.empty()) wanted = WantedFor(Name(param), matches && decays);
    }
    for (Symbol param : params) updated_.insert(Name(param));
    wanted.epsilon = corrects_no_epsilon_ && IsAdam(op);
    has_adam_ |= wanted.epsilon;
    if (wanted.empty()) return absl::OkStatus();
    if (params.size() != 1) {
      return Refused(op, "lr_ratio, weight_decay and adam_epsilon take an update of one parameter");
    }
    if (has_options) return Refused(op, "the update has options of pass param-options already");
    scope_ = absl::StrCat(scope, ParamOptions::kName, "/");
    pb::OpDesc desc = op.ToProto();
    if (wanted.lr_ratio.has_value()) ScaleRate(op, *wanted.lr_ratio, &desc);
    if (wanted.weight_decay.has_value()) {
      WEFT_RETURN_IF_ERROR(SetDecay(op, *wanted.weight_decay, &desc));
    }
    if (wanted.epsilon) {
      WEFT_RETURN_IF_ERROR(CheckAsMindSpore(op));
      SetEpsilon(op, &desc);
    }
    SetStringAttr(&desc, kScopeAttr, scope_);
    rewriter_.Replace(op.id(), desc);
    Explain(op, wanted);
    return absl::OkStatus();
  }

  void Explain(const Op& op, const Wanted& wanted) {
    if (context_.sink.remarks == nullptr) return;
    std::vector<std::pair<std::string, std::string>> details;
    if (wanted.lr_ratio.has_value())
      details.emplace_back("lr_ratio", absl::StrCat(*wanted.lr_ratio));
    if (wanted.weight_decay.has_value()) {
      details.emplace_back("weight_decay", absl::StrCat(*wanted.weight_decay));
    }
    if (wanted.epsilon) details.emplace_back("epsilon", "without bias correction");
    context_.sink.Explain(ParamOptions::kName, Name(op.Input("Param")[0]), "update changed",
                          "options of the parameter say so", std::move(details));
  }

  // `pair`: a parameter and its gradient, or nothing.
  void InsertBefore(const Op& op, const NewOp& added, const std::vector<std::string>& pair = {}) {
    pb::OpDesc desc = BuildOp(added, context_.target.dialect);
    SetStringAttr(&desc, kScopeAttr, scope_);
    if (!pair.empty()) SetStringsAttr(&desc, kOpRoleVarAttr, pair);
    rewriter_.InsertBefore(op.id(), desc);
  }

  // As Paddle writes the learning rate of a ParamAttr.
  void ScaleRate(const Op& op, double ratio, pb::OpDesc* desc) {
    const Symbol rate = op.Input("LearningRate")[0];
    const std::string own = names_.Of(absl::StrCat(Name(op.Input("Param")[0]), "@RATE"));
    const absl::optional<TensorType> type = DeclaredType(program_, rate, op.block());
    rewriter_.AddVar(op.block(), type.has_value() ? TensorVar(own, type->dtype, type->dims)
                                                  : TensorVar(own, DType::kFloat32, {1}));
    InsertBefore(op, ScaleOp(Name(rate), own, ratio, kRoleLrSched | kRoleOptimize));
    SetInput(desc, "LearningRate", {own});
  }

  static bool IsAdam(const Op& op) {
    return op.type() == "adam" || op.type() == "adamw" || op.type() == "merged_adam";
  }

  // The ranges that MindSpore's optimizers take.
  absl::Status CheckAsMindSpore(const Op& op) const {
    WEFT_ASSIGN_OR_RETURN(const OpAttrs attrs, OpAttrs::Decode(op, *FindOpSchema(op.type())));
    const auto check = [&](absl::string_view name, double value, bool is_in_range,
                           absl::string_view expected) {
      if (is_in_range) return absl::OkStatus();
      return Refused(op, absl::StrCat(name, ": expected ", expected,
                                      ", as adam_epsilon mindspore says, found ", value));
    };
    for (const char* name : {"beta1", "beta2"}) {
      const float beta = attrs.Float(name);
      WEFT_RETURN_IF_ERROR(
          check(name, beta, 0 < beta && beta < 1, "a number between 0 and 1, exclusive"));
    }
    const float epsilon = attrs.Float("epsilon");
    WEFT_RETURN_IF_ERROR(check("epsilon", epsilon, epsilon > 0, "a number > 0"));
    if (op.type() == "adamw" && attrs.Bool("with_decay")) {
      const float decay = attrs.Float("coeff");
      WEFT_RETURN_IF_ERROR(check("coeff", decay, decay >= 0, "a number >= 0"));
    }
    const double rate = FirstValue(op.Input("LearningRate")[0]);
    return check("learning rate", rate, rate >= 0, "a number >= 0");
  }

  // What the startup program fills a variable with; 0: nothing that is known.
  double FirstValue(Symbol variable) const {
    if (startup_ == nullptr) return 0;
    const Symbol name = startup_->FindSymbol(program_.name(variable));
    double value = 0;
    for (const Op& op : AllOps(*startup_)) {
      if (!absl::c_linear_search(op.output_args(), name)) continue;
      value = op.type() == "fill_constant" ? op.FloatAttr("value").value_or(0) : 0;
    }
    return value;
  }

  // What the op multiplies by √(1 - Beta2Pow), in every step anew.
  void SetEpsilon(const Op& op, pb::OpDesc* desc) {
    const std::string param = Name(op.Input("Param")[0]);
    const Symbol power = op.Input("Beta2Pow")[0];
    const Dims dims =
        DeclaredType(program_, power, op.block()).value_or(TensorType{DType::kFloat32, {1}}).dims;
    const auto add = [&](const char* type, NewSlots inputs, const char* suffix, NewAttrs attrs) {
      const std::string out = names_.Of(absl::StrCat(param, suffix));
      rewriter_.AddVar(op.block(), TensorVar(out, DType::kFloat32, dims));
      InsertBefore(op,
                   {type,
                    std::move(inputs),
                    {{"Out", {out}}},
                    std::move(attrs),
                    kRoleLrSched | kRoleOptimize},
                   {param, Name(op.Input("Grad")[0])});
      return out;
    };
    const std::string rest =
        add("scale", {{"X", {Name(power)}}}, "@NOT_DECAYED", {{"scale", -1.0F}, {"bias", 1.0F}});
    const std::string root = add("sqrt", {{"X", {rest}}}, "@CORRECTION", {});
    std::string epsilon;
    if (op.Input("EpsilonTensor").size() > 0) {
      epsilon = Name(op.Input("EpsilonTensor")[0]);
    } else {
      epsilon = add("fill_constant", {}, "@OWN_EPSILON",
                    {{"dtype", static_cast<int>(DType::kFloat32)},
                     {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                     {"value", static_cast<float>(op.FloatAttr("epsilon").value_or(1e-8F))}});
    }
    SetInput(desc, "EpsilonTensor",
             {add("elementwise_div", {{"X", {epsilon}}, {"Y", {root}}}, "@EPSILON", {})});
  }

  absl::Status SetDecay(const Op& op, double decay, pb::OpDesc* desc) {
    const auto value = static_cast<float>(decay);
    if (op.type() == "lars_momentum") {
      return Refused(op, "no weight_decay of lars_momentum is known");
    }
    if (op.type() == "adamw") {
      SetBoolAttr(desc, "with_decay", decay != 0);
      SetFloatAttr(desc, "coeff", value);
    } else if (op.type() == "lamb") {
      SetFloatAttr(desc, "weight_decay", value);
    } else if (op.type() == "momentum") {
      if (decay != 0) WEFT_RETURN_IF_ERROR(CheckIsDense(op));
      SetStringAttr(desc, "regularization_method", decay != 0 ? "l2_decay" : "");
      SetFloatAttr(desc, "regularization_coeff", value);
    } else if (decay != 0) {
      return AddL2(op, value, desc);
    }
    return absl::OkStatus();
  }

  absl::Status CheckIsDense(const Op& op) const {
    const Symbol grad = op.Input("Grad")[0];
    const absl::optional<TensorType> type = DeclaredType(program_, grad, op.block());
    if (!type.has_value() || type->kind == TensorType::Kind::kDense) return absl::OkStatus();
    return Refused(op, absl::StrCat("weight_decay takes a dense gradient, found rows (", Name(grad),
                                    "): it would change all rows"));
  }

  absl::Status AddL2(const Op& op, float decay, pb::OpDesc* desc) {
    const std::string param = Name(op.Input("Param")[0]), grad = Name(op.Input("Grad")[0]);
    const absl::optional<TensorType> type =
        DeclaredType(program_, op.Input("Param")[0], op.block());
    if (!type.has_value()) return Refused(op, "weight_decay takes a parameter of known type");
    WEFT_RETURN_IF_ERROR(CheckIsDense(op));
    const std::string l2 = names_.Of(absl::StrCat(param, "@L2"));
    const std::string decayed = names_.Of(absl::StrCat(param, "@DECAYED"));
    for (const std::string& name : {l2, decayed}) {
      rewriter_.AddVar(op.block(), TensorVar(name, type->dtype, type->dims));
    }
    const NewOp sum = {"sum", {{"X", {grad, l2}}}, {{"Out", {decayed}}}, {}, kRoleOptimize};
    InsertBefore(op, ScaleOp(param, l2, decay, kRoleOptimize), {param, grad});
    InsertBefore(op, sum, {param, grad});
    SetInput(desc, "Grad", {decayed});
    return absl::OkStatus();
  }

  const ParamAttrsByName& attrs_;
  const std::string& no_decay_;
  const bool corrects_no_epsilon_;
  const PassContext& context_;
  const Program* const startup_;
  const Program& program_;
  UniqueNames names_;
  Rewriter rewriter_;
  std::string scope_;  // of the ops of the current update
  std::set<std::string> updated_;
  bool no_decay_matches_ = false, has_adam_ = false;
};

}  // namespace

void ParamOptions::Options::Bind(OptionBinder& bind) {
  bind.String(
      "no_decay", &no_decay,
      "parameters without weight decay, unless option:param_attrs gives them one; may have *");
  bind.Choice("adam_epsilon", &adam_epsilon,
              "the epsilon that adam and adamw add to the root of the second moment: with Paddle's "
              "bias correction, or without it (mindspore)",
              {{"paddle", AdamEpsilon::kPaddle}, {"mindspore", AdamEpsilon::kMindSpore}});
}

bool ParamOptions::HasOptions(const Op& op) {
  return absl::StrContains(op.StringAttr(kScopeAttr).value_or("/"), kName);
}

Contract ParamOptions::contract() const {
  return Contract()
      .ConflictsWith(kGradientsReduced)
      .ConflictsWith(kParametersAveraged)
      .ConflictsWith(kLossGradientScaled)
      .ConflictsWith(kRingsSetUp);
}

Claims ParamOptions::claims(const PassContext& context) const {
  const bool changes =
      !options_.no_decay.empty() || options_.adam_epsilon != AdamEpsilon::kPaddle ||
      absl::c_any_of(context.target.param_attrs,
                     [](const auto& param) { return param.second.HasUpdateOptions(); });
  Claims claims;
  if (changes) claims.computation = Claims::Computation::kChanged;
  claims.is_for_one_device = true;
  return claims;
}

absl::StatusOr<bool> ParamOptions::Run(const PassContext& context, ProgramPair& programs) const {
  return OptionsWriter(context.target.param_attrs, options_, &context, programs.startup,
                       programs.main)
      .Run();
}

}  // namespace weft
