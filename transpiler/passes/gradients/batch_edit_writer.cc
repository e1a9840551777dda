#include "transpiler/passes/gradients/batch_edit_writer.h"

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradient_links.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"

namespace weft {
namespace {

// How an op gets the edited input.
struct EditOp {
  const char* type;
  const char* suffix;  // of the new variable
  const char* what;    // for remarks
};

EditOp EditOpOf(BatchInputEdit edit) {
  switch (edit) {
    case BatchInputEdit::kAverage:
      return {"c_allreduce_avg", "@MEAN", "averaged"};
    case BatchInputEdit::kSum:
      return {"c_allreduce_sum", "@SUM", "summed"};
    case BatchInputEdit::kGather:
      return {"c_allgather", "@GATHERED", "gathered"};
    case BatchInputEdit::kDivide:
      break;
  }
  return {"scale", "@PART", "divided"};
}

class EditWriter {
 public:
  EditWriter(absl::string_view pass, absl::string_view why, const PassContext& context,
             Program* main)
      : pass_(pass), why_(why), context_(context), main_(*main), rewriter_(main), names_(*main) {}

  absl::StatusOr<bool> Write(const BatchEdits& edits) {
    if (!edits.reductions.empty()) IndexWriters();
    for (const Op& op : BlockOps(main_, 0)) {
      if (!IsBackward(op)) WriteReductions(op, edits);
      const auto inputs = edits.inputs.find(op.id());
      if (inputs != edits.inputs.end()) WEFT_RETURN_IF_ERROR(WriteInputs(op, inputs->second));
      for (Symbol name : op.output_args()) edited_.erase(std::string(main_.name(name)));
      // Blocks may write what their op does not name.
      if (!op.SubBlocks().empty()) edited_.clear();
    }
    WEFT_RETURN_IF_ERROR(WriteGradients(edits));
    return CommitEdits(&rewriter_);
  }

 private:
  void IndexWriters() {
    for (const Op& op : BlockOps(main_, 0)) {
      for (Symbol name : op.output_args()) writers_[name] = op.id();
    }
  }

  static NewAttrs OnRingZero() { return {{"ring_id", 0}, {"use_calc_stream", true}}; }

  // In place, after the op.
  void WriteReductions(const Op& op, const BatchEdits& edits) {
    for (Symbol name : op.output_args()) {
      const auto found = edits.reductions.find(main_.block(0).FindVar(name));
      if (found == edits.reductions.end()) continue;
      const std::string variable(main_.name(name));
      const bool sums = found->second == Reduction::kSum;
      const char* const type = sums ? "c_allreduce_sum" : "c_allreduce_avg";
      rewriter_.InsertAfter(op.id(),
                            BuildOp(InPlaceOp(type, {variable}, OnRingZero(), kRoleForward)));
      Explain(variable, sums ? "summed" : "averaged", op);
      if (sums) SumGradient(variable);
    }
  }

  // The sum over the ranks of a value feeds what each of them computes: its gradient is the sum of
  // theirs.
  void SumGradient(const std::string& variable) {
    const std::string gradient = absl::StrCat(variable, kGradSuffix);
    const auto writer = writers_.find(main_.FindSymbol(gradient));
    if (writer == writers_.end()) return;
    rewriter_.InsertAfter(writer->second, BuildOp(InPlaceOp("c_allreduce_sum", {gradient},
                                                            OnRingZero(), kRoleBackward)));
    Explain(gradient, "summed", main_.op(writer->second));
  }

  // Into new variables, before the op, which reads them instead, as do its gradient ops.
  absl::Status WriteInputs(const Op& op, const std::map<size_t, BatchInputEdit>& edits) {
    std::map<size_t, std::string> renamed;
    for (const auto& [i, edit] : edits) {
      const std::string variable(main_.name(op.input_args()[i]));
      // The variable that another op reads for the same value, if there is one.
      std::string& edited = edited_[variable][edit];
      if (edited.empty()) {
        edited = Declare(variable, edit, absl::StrCat(variable, EditOpOf(edit).suffix));
        rewriter_.InsertBefore(op.id(), BuildOp(OpOf(edit, variable, edited)));
      }
      renamed[i] = edited;
      Explain(variable, EditOpOf(edit).what, op);
    }
    pb::OpDesc desc = op.ToProto();
    Rename(renamed, desc.mutable_inputs());
    rewriter_.Replace(op.id(), desc);
    if (AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kDivide) {
      return RenameDivisorOfGradient(op, renamed.begin()->second);
    }
    renamed_[op.id()] = std::move(renamed);
    return absl::OkStatus();
  }

  // Arguments by their number.
  template <typename Slots>
  static void Rename(const std::map<size_t, std::string>& renamed, Slots* slots) {
    size_t i = 0;
    for (pb::OpDesc::Var& slot : *slots) {
      for (std::string& argument : *slot.mutable_arguments()) {
        const auto name = renamed.find(i++);
        if (name != renamed.end()) argument = name->second;
      }
    }
  }

  // Gradient ops read what their op reads. Of gathered samples, all ranks compute the same
  // gradient: its sum over the ranks, scattered, is that of the rank's samples, times the number of
  // ranks. The gradient of an n-th part is divided as the part was.
  absl::Status WriteGradients(const BatchEdits& edits) {
    if (renamed_.empty()) return absl::OkStatus();
    for (const Op& gradient : BlockOps(main_, 0)) {
      if (!IsBackward(gradient)) continue;
      WEFT_ASSIGN_OR_RETURN(const absl::optional<OpId> of, DifferentiatedBy(gradient));
      if (!of.has_value()) continue;
      const std::map<size_t, std::string>& renamed = renamed_.at(*of);
      const GradientLinks links = *LinkGradient(main_.op(*of), gradient);
      std::map<size_t, std::string> inputs, outputs;
      for (size_t i = 0; i < links.inputs.size(); ++i) {
        const auto name = renamed.find(links.inputs[i].argument);
        if (name != renamed.end() && !links.inputs[i].is_gradient) inputs[i] = name->second;
      }
      for (size_t i = 0; i < links.outputs.size(); ++i) {
        const Symbol of_own = gradient.output_args()[i];
        const auto name = renamed.find(links.outputs[i]);
        if (name == renamed.end() || main_.name(of_own) == kEmptyVarName) continue;
        const bool divides = edits.inputs.at(*of).at(name->first) == BatchInputEdit::kDivide;
        const auto edit = divides ? BatchInputEdit::kDivide : BatchInputEdit::kGather;
        outputs[i] =
            Declare(std::string(main_.name(of_own)), edit, absl::StrCat(name->second, kGradSuffix));
        NewOp back = OpOf(edit, outputs[i], std::string(main_.name(of_own)));
        if (!divides) back.type = "c_reducescatter";
        back.role = kRoleBackward;
        rewriter_.InsertAfter(gradient.id(), BuildOp(back));
      }
      pb::OpDesc desc = gradient.ToProto();
      Rename(inputs, desc.mutable_inputs());
      Rename(outputs, desc.mutable_outputs());
      rewriter_.Replace(gradient.id(), desc);
    }
    return absl::OkStatus();
  }

  // The op in renamed_ whose gradient op it is. Of ops with equal arguments, the one whose
  // output's gradient it reads by its name.
  absl::StatusOr<absl::optional<OpId>> DifferentiatedBy(const Op& gradient) const {
    absl::optional<OpId> found, by_name;
    bool has_several = false;
    for (const auto& [id, renamed] : renamed_) {
      const Op op = main_.op(id);
      const absl::optional<GradientLinks> links = LinkGradient(op, gradient);
      if (!links.has_value() || !HasArgumentsOf(op, gradient, *links)) continue;
      has_several = has_several || found.has_value();
      found = id;
      for (size_t i = 0; i < links->inputs.size(); ++i) {
        if (!links->inputs[i].is_gradient) continue;
        const absl::string_view value = main_.name(op.args()[links->inputs[i].argument]);
        const absl::string_view name = main_.name(gradient.input_args()[i]);
        if (absl::StartsWith(name, absl::StrCat(value, kGradSuffix))) by_name = id;
      }
    }
    if (!has_several || by_name.has_value()) return by_name.has_value() ? by_name : found;
    return absl::FailedPreconditionError(absl::StrCat(
        gradient.DebugName(),
        ": expected to know by its name which op it differentiates, found several with "
        "the same arguments"));
  }

  // Like `variable`; by the name `first`, if no variable has it.
  std::string Declare(const std::string& variable, BatchInputEdit edit, const std::string& first) {
    std::string name = names_.Of(first);
    for (int i = 1; !declared_.insert(name).second; ++i) name = names_.Of(absl::StrCat(first, i));
    pb::VarDesc var = main_.var(main_.block(0).FindVar(variable)).ToProto();
    var.set_name(name);
    var.set_persistable(false);
    var.clear_need_check_feed();
    if (edit == BatchInputEdit::kGather) {
      auto* const tensor = var.mutable_type()->mutable_lod_tensor()->mutable_tensor();
      if (tensor->dims_size() > 0 && tensor->dims(0) > 0) {
        tensor->set_dims(0, tensor->dims(0) * *context_.target.cluster.nranks());
      }
    }
    rewriter_.AddVar(0, var);
    return name;
  }

  NewOp OpOf(BatchInputEdit edit, const std::string& from, const std::string& to) const {
    NewOp op = {EditOpOf(edit).type, {{"X", {from}}}, {{"Out", {to}}}, OnRingZero(), kRoleForward};
    if (edit == BatchInputEdit::kGather)
      op.attrs.emplace_back("nranks", *context_.target.cluster.nranks());
    if (edit == BatchInputEdit::kDivide) {
      op.attrs = {{"scale", static_cast<float>(1.0 / *context_.target.cluster.nranks())}};
      op.nranks = context_.target.cluster.nranks();
    }
    return op;
  }

  // The gradient op of a division reads the divisor, too.
  absl::Status RenameDivisorOfGradient(const Op& op, const std::string& divisor) {
    WEFT_ASSIGN_OR_RETURN(const absl::optional<OpId> gradient, GradientOf(op));
    if (!gradient.has_value()) return absl::OkStatus();
    pb::OpDesc desc = main_.op(*gradient).ToProto();
    for (pb::OpDesc::Var& slot : *desc.mutable_inputs()) {
      if (slot.parameter() == "Y") slot.set_arguments(0, divisor);
    }
    rewriter_.Replace(*gradient, desc);
    return absl::OkStatus();
  }

  // None if nothing reads the gradient of the quotient.
  absl::StatusOr<absl::optional<OpId>> GradientOf(const Op& op) const {
    const std::string type = absl::StrCat(op.type(), "_grad");
    const std::string gradient = absl::StrCat(main_.name(op.Output("Out")[0]), kGradSuffix);
    bool is_read = false;
    for (const Op& other : BlockOps(main_, 0)) {
      if (!IsBackward(other)) continue;
      is_read = is_read || absl::c_any_of(other.input_args(), [&](Symbol name) {
                  return main_.name(name) == gradient;
                });
      if (other.type() == type && other.Input("Y") == op.Input("Y") &&
          other.Input("X") == op.Input("X")) {
        return absl::make_optional(other.id());
      }
    }
    if (!is_read) return absl::optional<OpId>();
    return absl::FailedPreconditionError(
        absl::StrCat(op.DebugName(), ": expected its gradient op, ", type,
                     ", found none, although ", gradient, " is read"));
  }

  void Explain(const std::string& variable, const char* what, const Op& op) {
    context_.sink.Explain(pass_, variable, what, std::string(why_), {{"for", op.DebugName()}});
  }

  const absl::string_view pass_, why_;
  const PassContext& context_;
  const Program& main_;
  Rewriter rewriter_;
  UniqueNames names_;
  absl::flat_hash_map<Symbol, OpId> writers_;  // the last op of the root block
  std::set<std::string> declared_;
  // By op, without divisions: new variables by input.
  std::map<OpId, std::map<size_t, std::string>> renamed_;
  // By variable that no op has written since, and edit: the variable with the edited value.
  std::map<std::string, std::map<BatchInputEdit, std::string>> edited_;
};

}  // namespace

BatchFlowOptions FlowOptionsOf(const PassContext& context) {
  BatchFlowOptions options;
  options.setting = context.setting;
  options.setting.nranks = context.target.cluster.nranks();
  return options;
}

absl::StatusOr<bool> WriteBatchEdits(const BatchEdits& edits, absl::string_view pass,
                                     absl::string_view why, const PassContext& context,
                                     Program* main) {
  if (context.target.dialect == Dialect::kPaddle) {
    return absl::FailedPreconditionError("available in the weft dialect only");
  }
  return EditWriter(pass, why, context, main).Write(edits);
}

}  // namespace weft
