#include "transpiler/passes/paddle/paddle_all_gather.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/paddle/paddle_gradients.h"
#include "transpiler/passes/paddle/paddle_ops.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

constexpr int kDefaultDevices = 9;

using Dims = std::vector<int64_t>;

// A gathered gradient, or a part of one.
struct GatheredType {
  pb::VarType::Type dtype;
  Dims dims;
};

pb::VarDesc VarOf(const std::string& name, const GatheredType& type) {
  return PaddleTensorVar(name, TensorOf(type.dtype, type.dims));
}

// Declares the variables of gathered gradients, and knows their dimensions.
class Gathered {
 public:
  // With `keeps_types`, they have the element types of the gradients, else fp32.
  Gathered(const Program& program, int nranks, bool keeps_types, Rewriter* rewriter)
      : program_(program), nranks_(nranks), keeps_types_(keeps_types), rewriter_(*rewriter) {}

  static std::string NameOf(const std::string& param) { return param + "_allgather"; }

  absl::Status Declare(const PaddleGradient& gradient) {
    WEFT_ASSIGN_OR_RETURN(const GatheredType type, TypeFor(gradient));
    if (!types_.emplace(gradient.param, type).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(program_.op(gradient.op).DebugName(), ": parameter ", gradient.param,
                       " already has another gradient; only one of each can be gathered"));
    }
    rewriter_.AddVar(0, VarOf(NameOf(gradient.param), type));
    return absl::OkStatus();
  }

  // Null if the parameter has no gathered gradient.
  const GatheredType* Find(const std::string& param) const {
    const auto found = types_.find(param);
    return found == types_.end() ? nullptr : &found->second;
  }

 private:
  // A gathered gradient has the rows of all ranks. That of a distributed parameter, which is only
  // declared, has an extra dimension.
  absl::StatusOr<GatheredType> TypeFor(const PaddleGradient& gradient) const {
    const std::string& var = gradient.distributed ? gradient.param : gradient.grad;
    WEFT_ASSIGN_OR_RETURN(const auto tensor, TensorOfVar(program_.op(gradient.op), var));
    const auto dtype = keeps_types_ ? tensor.data_type() : pb::VarType::FP32;
    Dims dims(tensor.dims().begin(), tensor.dims().end());
    if (gradient.distributed || dims.empty()) {
      dims.insert(dims.begin(), nranks_);
      return GatheredType{dtype, dims};
    }
    if (dims[0] < 0) {
      dims[0] = -1;
    } else if (__builtin_mul_overflow(dims[0], nranks_, &dims[0])) {
      return absl::InvalidArgumentError(absl::StrCat(program_.op(gradient.op).DebugName(),
                                                     ": variable ", var, ": too many rows for ",
                                                     nranks_, " ranks"));
    }
    return GatheredType{dtype, dims};
  }

  const Program& program_;
  const int nranks_;
  const bool keeps_types_;
  Rewriter& rewriter_;
  std::map<std::string, GatheredType> types_;
};

absl::Status AddSlot(const Op& op, const std::string& name, absl::Span<const Symbol> args,
                     absl::string_view kind, NewSlots* slots) {
  if (args.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(), " ", kind, " ", name, ": expected a variable, found none"));
  }
  slots->push_back({name, {std::string(op.program().name(args[0]))}});
  return absl::OkStatus();
}

// An update without its gradient. Drops all but the plain slots and attributes.
absl::StatusOr<NewOp> PlainUpdate(const Op& op) {
  NewOp update;
  update.type = std::string(op.type());
  for (const char* slot : {"Param", "LearningRate", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow"}) {
    WEFT_RETURN_IF_ERROR(AddSlot(op, slot, op.Input(slot), "input", &update.inputs));
  }
  for (const char* slot : {"ParamOut", "Moment1Out", "Moment2Out", "Beta1PowOut", "Beta2PowOut"}) {
    WEFT_RETURN_IF_ERROR(AddSlot(op, slot, op.Output(slot), "output", &update.outputs));
  }
  WEFT_ASSIGN_OR_RETURN(const OpAttrs attrs, OpAttrs::Decode(op, *FindOpSchema(op.type())));
  for (const char* name : {"amsgrad", "use_nesterov"}) {
    if (!attrs.Has(name) || !attrs.Bool(name)) continue;
    return absl::UnimplementedError(
        absl::StrCat(op.DebugName(), " attribute ", name, ": expected false, found true"));
  }
  for (const char* name : {"epsilon", "beta1", "beta2"}) {
    update.attrs.push_back({name, static_cast<float>(attrs.Float(name))});
  }
  update.attrs.push_back({"lazy_mode", attrs.Bool("lazy_mode")});
  constexpr char kMinRows[] = "min_row_size_to_use_multithread";
  update.attrs.push_back({kMinRows, attrs.Int(kMinRows)});
  update.role = kRoleForward;
  return update;
}

// Replaces an adam op by one per rank.
class UpdateWriter {
 public:
  UpdateWriter(const Gathered& gathered, int nranks, Rewriter* rewriter)
      : gathered_(gathered),
        nranks_(nranks),
        rewriter_(*rewriter),
        split_(BuildOp({"split", {}, {}, {{"num", nranks}, {"axis", 0}}, kRoleForward},
                       Dialect::kPaddle)) {}

  absl::Status Replace(const Op& op) {
    WEFT_ASSIGN_OR_RETURN(const NewOp update, PlainUpdate(op));
    const std::string& param = update.inputs[0].second[0];
    const GatheredType* const type = gathered_.Find(param);
    if (type == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          op.DebugName(), " updates ", param,
          ", for which no gradient is gathered: no backward op pairs it with a gradient"));
    }
    const std::vector<std::string> parts = Parts(param, *type);
    rewriter_.InsertBefore(op.id(),
                           split_.In("X", {Gathered::NameOf(param)}).Out("Out", parts).op());
    OpTemplate& adam = TemplateFor(update);
    for (const std::string& grad : parts) {
      rewriter_.InsertBefore(op.id(), adam.In("Grad", {grad}).op());
    }
    rewriter_.Erase(op.id());
    return absl::OkStatus();
  }

 private:
  // The gradients of the ranks. Declares them on first use.
  std::vector<std::string> Parts(const std::string& param, const GatheredType& gathered) {
    std::vector<std::string> parts;
    for (int rank = 0; rank < nranks_; ++rank) parts.push_back(absl::StrCat(param, "_", rank));
    if (!declared_.insert(param).second) return parts;
    GatheredType part = gathered;
    if (part.dims[0] > 0) part.dims[0] /= nranks_;
    pb::VarDesc var = VarOf("", part);
    for (const std::string& part : parts) {
      var.set_name(part);
      rewriter_.AddVar(0, var);
    }
    return parts;
  }

  // The update without its gradient. Normally, all updates of a program have the same attributes.
  OpTemplate& TemplateFor(const NewOp& update) {
    if (!adam_.has_value() || attrs_ != update.attrs) {
      adam_.emplace(BuildOp(update, Dialect::kPaddle));
      attrs_ = update.attrs;
    }
    for (const auto& [slot, variables] : update.inputs) adam_->In(slot, variables);
    for (const auto& [slot, variables] : update.outputs) adam_->Out(slot, variables);
    return *adam_;
  }

  const Gathered& gathered_;
  const int nranks_;
  Rewriter& rewriter_;
  std::set<std::string> declared_;  // parameters
  OpTemplate split_;
  absl::optional<OpTemplate> adam_;
  NewAttrs attrs_;  // of adam_
};

}  // namespace

void PaddleAllGather::Options::Bind(OptionBinder& bind) { BindRings(bind, &nrings); }

Contract PaddleAllGather::contract() const { return Contract().ProvidesOnce(kGradientsReduced); }

Claims PaddleAllGather::claims(const PassContext& context) const {
  return Claims::Of(Claims::Gradients::kAveraged);
}

absl::StatusOr<bool> PaddleAllGather::Run(const PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const int trainers, PaddleTrainers(context));
  const int nranks = trainers * PaddleDevices(context, kDefaultDevices);
  if (nranks < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradients can be gathered from 2 ranks or more, found ", nranks));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<PaddleGradient> gradients,
                        WalkGradients(program, context));
  WEFT_RETURN_IF_ERROR(RequireGradients(gradients));
  WEFT_RETURN_IF_ERROR(WarnAboutReduction(kName, program, PaddleExchange::kOneByOne, context));
  Rewriter rewriter(programs.main);
  // Paddle 3 infers them when it appends the op.
  const bool keeps_types = context.target.paddle_version == 3;
  Gathered gathered(program, nranks, keeps_types, &rewriter);
  for (const PaddleGradient& gradient : gradients) {
    WEFT_RETURN_IF_ERROR(gathered.Declare(gradient));
  }
  ExplainCollectives(kName, "gathered", program, gradients, options_.nrings, context);
  std::vector<OpTemplate> all_gather;  // by ring
  for (int ring = 0; ring < options_.nrings; ++ring) {
    all_gather.emplace_back(
        BuildOp({"c_allgather", {}, {}, {{"nranks", nranks}, {"ring_id", ring}}, kRoleBackward},
                Dialect::kPaddle));
  }
  const auto output = [](const PaddleGradient& gradient) {
    return Gathered::NameOf(gradient.param);
  };
  InsertCollectives(program, gradients, output, &all_gather, &rewriter);
  UpdateWriter updates(gathered, nranks, &rewriter);
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (!IsOptimize(op)) continue;
    if (op.type() == "lamb") {
      return absl::FailedPreconditionError(
          absl::StrCat(op.DebugName(),
                       ": lamb cannot update with gathered gradients; Paddle's transpiler throws"));
    }
    if (op.type() == "adam") WEFT_RETURN_IF_ERROR(updates.Replace(op));
  }
  return CommitEdits(&rewriter);
}

}  // namespace weft
