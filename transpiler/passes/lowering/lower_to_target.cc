#include "transpiler/passes/lowering/lower_to_target.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/rewriter.h"
#include "transpiler/passes/lowering/executor_order.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_edits.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

constexpr char kUseComputeStream[] = "use_calc_stream";

pb::OpDesc::Attr* FindAttr(absl::string_view name, pb::OpDesc* op) {
  const auto found = absl::c_find_if(
      *op->mutable_attrs(), [&](const pb::OpDesc::Attr& attr) { return attr.name() == name; });
  return found == op->mutable_attrs()->end() ? nullptr : &*found;
}

// Keeps the order of names.
void AddEmptyInput(const std::string& name, pb::OpDesc* op) {
  auto* const inputs = op->mutable_inputs();
  inputs->Add()->set_parameter(name);
  const auto is_later = [&](const pb::OpDesc::Var& slot) { return slot.parameter() > name; };
  std::rotate(std::find_if(inputs->begin(), inputs->end() - 1, is_later), inputs->end() - 1,
              inputs->end());
}

// Leaves the slot `from` alone, as slot `to`.
void KeepSlot(absl::string_view from, absl::string_view to,
              google::protobuf::RepeatedPtrField<pb::OpDesc::Var>* slots) {
  slots->erase(std::remove_if(slots->begin(), slots->end(),
                              [&](const auto& slot) { return slot.parameter() != from; }),
               slots->end());
  for (pb::OpDesc::Var& slot : *slots) slot.set_parameter(std::string(to));
}

// Drops attributes that the schema does not have, if they are false: switches of the old op.
void DropUnknownSwitches(const OpSchema& old_schema, const OpSchema& schema, pb::OpDesc* op) {
  auto* const attrs = op->mutable_attrs();
  const auto is_dropped = [&](const pb::OpDesc::Attr& attr) {
    if (attr.type() != pb::BOOLEAN || attr.b() || old_schema.FindAttr(attr.name()) == nullptr) {
      return false;
    }
    return schema.FindAttr(attr.name()) == nullptr || attr.name() == kUseComputeStream;
  };
  attrs->erase(std::remove_if(attrs->begin(), attrs->end(), is_dropped), attrs->end());
}

// The ops of one program.
class OpReplacer {
 public:
  // New ops have ids from `first_new` on.
  OpReplacer(Program* program, size_t first_new, const PassContext* context)
      : program_(*program),
        first_new_(first_new),
        context_(*context),
        is_paddle3_(context->target.paddle_version == 3),
        is_cpu_(context->target.device_kind == TargetDevice::kCpu &&
                context->target.dialect == Dialect::kWeft),
        completes_(is_paddle3_ && context->target.dialect == Dialect::kPaddle),
        traits_(*program),
        rewriter_(program) {}

  absl::StatusOr<bool> Run() {
    if (!is_paddle3_ && !is_cpu_) return false;
    for (const Op& op : AllOps(program_)) WEFT_RETURN_IF_ERROR(Visit(op));
    return CommitEdits(&rewriter_);
  }

 private:
  absl::Status Visit(const Op& op) {
    const OpSchema* const schema = traits_.SchemaOf(op);
    if (schema == nullptr) return absl::OkStatus();
    if (schema->Has(Trait::kCollective)) return VisitCollective(op, *schema);
    if (is_cpu_ && schema->Has(Trait::kStreamSync)) {
      rewriter_.Erase(op.id());
      Explain(op, "removed", "the CPU has one stream");
    } else if (is_paddle3_ && op.type() == "c_comm_init_all") {
      pb::OpDesc desc = op.ToProto();
      desc.set_type("comm_init_all");
      rewriter_.Replace(op.id(), desc);
      Explain(op, "renamed", "Paddle 3 has comm_init_all");
    } else if (completes_ && op.id().value() >= first_new_) {
      Complete(op, *schema);
    }
    return absl::OkStatus();
  }

  void Explain(const Op& op, absl::string_view what, absl::string_view why) {
    if (context_.sink.remarks == nullptr) return;
    context_.sink.Explain(LowerToTarget::kName, op.DebugName(), std::string(what),
                          std::string(why));
  }

  void Complete(const Op& op, const OpSchema& schema) {
    const auto is_added = [](const auto& part) { return part.since == kPaddle3; };
    if (absl::c_none_of(schema.inputs(), is_added) && absl::c_none_of(schema.attrs(), is_added)) {
      return;
    }
    pb::OpDesc desc = op.ToProto();
    for (const SlotSchema& slot : schema.inputs()) {
      if (slot.since == kPaddle3 && !op.HasInputSlot(slot.name)) AddEmptyInput(slot.name, &desc);
    }
    for (const AttrSchema& attr : schema.attrs()) {
      if (attr.since != kPaddle3 || op.HasAttr(attr.name)) continue;
      AddAttr(attr.name, attr.default_value, &desc);
    }
    rewriter_.Replace(op.id(), desc);
  }

  absl::Status VisitCollective(const Op& op, const OpSchema& schema) {
    CollectiveOp collective = *FindCollectiveOp(op);
    pb::OpDesc desc = op.ToProto();
    if (is_cpu_) WEFT_RETURN_IF_ERROR(UseComputeStream(op, &collective, &desc));
    if (is_paddle3_) WEFT_RETURN_IF_ERROR(UsePaddle3(op, schema, collective, &desc));
    if (desc.SerializeAsString() == op.ToProto().SerializeAsString()) return absl::OkStatus();
    rewriter_.Replace(op.id(), desc);
    const bool is_renamed = desc.type() != op.type();
    Explain(op, is_renamed ? "renamed" : "on the compute stream",
            is_renamed ? absl::StrCat("the target has ", desc.type()) : "the CPU has one stream");
    return absl::OkStatus();
  }

  // For Gloo, the communicator of CPUs. A mean becomes a sum.
  absl::Status UseComputeStream(const Op& op, CollectiveOp* collective, pb::OpDesc* desc) {
    if (SplitsInput(collective->kind)) {
      return absl::UnimplementedError(
          absl::StrCat(op.DebugName(), ": Paddle has no ", CollectiveKindName(collective->kind),
                       " for CPUs; weft run has: take the result without option:device_kind cpu"));
    }
    for (Symbol name : collective->Inputs(op))
      WEFT_RETURN_IF_ERROR(CheckForCpu(op, *collective, name));
    if (pb::OpDesc::Attr* const attr = FindAttr(kUseComputeStream, desc)) {
      attr->set_b(true);
    } else {
      AddAttr(kUseComputeStream, true, desc);
    }
    if (collective->reduction != Reduction::kAvg) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const int nranks, NumRanks(op));
    collective->reduction = Reduction::kSum;
    if (pb::OpDesc::Attr* const attr = FindAttr(kReduceTypeAttr, desc)) {
      attr->set_i(static_cast<int>(Reduction::kSum));
    } else {
      desc->set_type("c_allreduce_sum");
    }
    for (Symbol name : collective->Outputs(op)) {
      const NewOp divide =
          InPlaceOp("scale", {std::string(program_.name(name))},
                    {{"scale", static_cast<float>(1.0 / nranks)}}, op.role(), nranks);
      rewriter_.InsertAfter(op.id(), BuildOp(divide));
    }
    return absl::OkStatus();
  }

  absl::Status CheckForCpu(const Op& op, const CollectiveOp& collective, Symbol name) const {
    const absl::optional<TensorType> type = DeclaredType(program_, name, op.block());
    if (!type.has_value()) return absl::OkStatus();
    const auto refuse = [&](absl::string_view expected, absl::string_view next) {
      return absl::UnimplementedError(absl::StrCat(
          op.DebugName(), " input ", collective.in, " (", program_.name(name), "): expected ",
          expected, " on the CPU, where Paddle's communicator computes nonsense otherwise, found ",
          ToString(*type), "; ", next));
    };
    if (type->kind == TensorType::Kind::kSelectedRows) {
      return refuse("a dense tensor",
                    "option:sparse dense makes gradients dense, in modes that read "
                    "it; weft run takes the result without option:device_kind cpu");
    }
    if (IsHalf(type->dtype)) {
      return refuse("another element type than half precision",
                    "gradients travel as fp32 with option:mode mindspore_reducer "
                    "option:reduce_method mean, or "
                    "write for another option:device_kind");
    }
    return absl::OkStatus();
  }

  // The number of ranks over which a mean is.
  absl::StatusOr<int> NumRanks(const Op& op) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int> group, GroupRanksOf(op));
    if (!group.empty()) return static_cast<int>(group.size());
    if (context_.target.cluster.nranks().has_value()) return *context_.target.cluster.nranks();
    return absl::UnimplementedError(absl::StrCat(
        op.DebugName(),
        ": Paddle's communicator of CPUs has sums and no means; give the number of ranks "
        "(option:nranks), by which a sum is divided"));
  }

  absl::Status UsePaddle3(const Op& op, const OpSchema& schema, const CollectiveOp& collective,
                          pb::OpDesc* desc) const {
    const CollectiveOp* const to = InPaddle3(collective);
    if (to == nullptr) {
      return absl::UnimplementedError(absl::StrCat(
          op.DebugName(), ": Paddle 3 has no op that reduces several variables, ", op.type(),
          " is not registered; reduce them one by one or in buffers, or write for Paddle 2 "
          "(paddle_version 2)"));
    }
    if (collective.in == to->in) return absl::OkStatus();
    if (op.input_args().size() != collective.Inputs(op).size()) {
      return absl::UnimplementedError(absl::StrCat(op.DebugName(),
                                                   " input Cond: expected no variable, as op ",
                                                   to->type, " of Paddle 3 has no condition"));
    }
    desc->set_type(std::string(to->type));
    KeepSlot(collective.in, to->in, desc->mutable_inputs());
    KeepSlot(collective.out, to->out, desc->mutable_outputs());
    const OpSchema& new_schema = *FindOpSchema(to->type);
    DropUnknownSwitches(schema, new_schema, desc);
    if (new_schema.FindAttr(kReduceTypeAttr) != nullptr) {
      AddAttr(kReduceTypeAttr, static_cast<int32_t>(to->reduction), desc);
    }
    return absl::OkStatus();
  }

  Program& program_;
  const size_t first_new_;
  const PassContext& context_;
  const bool is_paddle3_, is_cpu_, completes_;
  OpTraits traits_;
  Rewriter rewriter_;
};

}  // namespace

absl::StatusOr<bool> LowerToTarget::Run(const PassContext& context, ProgramPair& programs) const {
  WEFT_ASSIGN_OR_RETURN(
      const bool changed,
      OpReplacer(programs.main, context.target.forecast.first_new_op, &context).Run());
  // Files of PIR get their order by data when they are written.
  const auto& origin = programs.main->origin();
  const bool is_for_paddle =
      context.target.dialect == Dialect::kWeft && (origin == nullptr || !origin->OrdersByData());
  bool is_ordered = false;
  if (is_for_paddle) {
    WEFT_ASSIGN_OR_RETURN(is_ordered, OrderPartsOfBuffers(programs.main));
  }
  if (programs.startup == nullptr) return changed || is_ordered;
  WEFT_ASSIGN_OR_RETURN(
      const bool startup_changed,
      OpReplacer(programs.startup, context.target.forecast.first_new_startup_op, &context).Run());
  return changed || is_ordered || startup_changed;
}

}  // namespace weft
