#include "transpiler/passes/grad_all_reduce.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
namespace {

absl::Status CheckReducible(const Program& program, const Gradient& gradient) {
  const Var var = program.var(program.block(0).Resolve(gradient.grad));
  const auto refuse = [&](absl::string_view why) {
    return absl::FailedPreconditionError(
        absl::StrCat("gradient ", var.name(), " of parameter ", program.name(gradient.param),
                     ", completed by ", program.op(gradient.completed_by).DebugName(), ": ", why));
  };
  if (var.type() == pb::VarType::SELECTED_ROWS) {
    return refuse(
        "expected a dense tensor, found SelectedRows (a sparse embedding), whose rows "
        "differ from rank to rank; build the program with is_sparse=false");
  }
  const absl::optional<TensorType> type = DeclaredType(var);
  if (!type.has_value()) return refuse("expected a tensor of a known element type");
  if (!IsFloating(type->dtype)) {
    return refuse(absl::StrCat("expected a floating-point tensor, found ", DTypeName(type->dtype)));
  }
  if (var.persistable()) {
    return refuse(
        "it is persistable: accumulated over several steps (gradient merge), so that a "
        "reduction in every step would add up what is summed already");
  }
  return absl::OkStatus();
}

// A replicated parameter that is updated by a gradient that nobody reduces would drift apart.
absl::Status CheckUpdates(const Program& program, const GradientAnalysis& analysis,
                          const std::set<std::string>& distributed_params) {
  std::vector<bool> paired(program.symbols().size(), false);
  for (const GradientPair& pair : analysis.pairs) paired[pair.param.value()] = true;
  OpTraits traits(program);
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      const Op op = program.op(id);
      if (!traits.Has(op, Trait::kOptimizer)) continue;
      for (Symbol param : op.Input("Param")) {
        if (paired[param.value()]) continue;
        const std::string name(program.name(param));
        if (distributed_params.count(name) > 0) continue;
        return absl::FailedPreconditionError(absl::StrCat(
            op.DebugName(), " input Param: ", name,
            " is updated, but no backward op names its gradient in op_role_var, so each rank "
            "would update it by its own gradient; if that is meant, name it a distributed "
            "parameter"));
      }
    }
  }
  return absl::OkStatus();
}

// Writes the ops: reductions where gradients are complete, waits where they are used.
class Writer {
 public:
  Writer(const Program& program, int nrings, std::string reduce_type, Rewriter* rewriter)
      : program_(program),
        reduce_type_(std::move(reduce_type)),
        rewriter_(*rewriter),
        in_flight_(nrings) {}

  // One walk over the block. `gradients` are in the order of completion.
  void Write(const std::vector<Gradient>& gradients) {
    const size_t none = gradients.size();
    // Per op: the first gradient that it completes, and the first in the chain that it uses first.
    std::vector<uint32_t> completes(program_.op_id_limit(), none);
    std::vector<uint32_t> uses(program_.op_id_limit(), none);
    next_use_.assign(none, none);
    for (size_t i = none; i-- > 0;) {
      completes[gradients[i].completed_by.value()] = i;
      if (!gradients[i].first_use.valid()) continue;
      uint32_t& head = uses[gradients[i].first_use.value()];
      next_use_[i] = head;
      head = i;
    }
    for (OpId id : program_.block(0).ops()) {
      for (size_t i = uses[id.value()]; i != none; i = next_use_[i]) WaitFor(i, id);
      size_t end = completes[id.value()];
      if (end == none) continue;
      const size_t begin = end;
      while (end < none && gradients[end].completed_by == id) ++end;
      Reduce(gradients, begin, end, id);
    }
    for (size_t ring = 0; ring < in_flight_.size(); ++ring) {
      if (in_flight_[ring].names.empty()) continue;
      rewriter_.Append(0, Wait("c_wait_comm", ring));
    }
  }

 private:
  // Gradients of one ring that are being reduced, from `first` on.
  struct InFlight {
    std::vector<std::string> names;
    size_t first = 0;
  };

  pb::OpDesc Wait(const std::string& type, size_t ring, const std::vector<std::string>& names) {
    return BuildOp({type,
                    {{"X", names}},
                    {{"Out", names}},
                    {{"ring_id", static_cast<int32_t>(ring)}},
                    kRoleBackward},
                   Dialect::kWeft);
  }
  pb::OpDesc Wait(const std::string& type, size_t ring) {
    return Wait(type, ring, in_flight_[ring].names);
  }

  void Reduce(const std::vector<Gradient>& gradients, size_t begin, size_t end, OpId after) {
    const size_t nrings = in_flight_.size();
    // The rings in the order in which they are met.
    for (size_t ring_turn = begin; ring_turn < std::min(end, begin + nrings); ++ring_turn) {
      const size_t ring = ring_turn % nrings;
      std::vector<std::string> names;
      for (size_t i = ring_turn; i < end; i += nrings) {
        names.emplace_back(program_.name(gradients[i].grad));
      }
      rewriter_.InsertAfter(after, Wait("c_wait_compute", ring, names));
      for (const std::string& name : names) {
        rewriter_.InsertAfter(
            after, BuildOp({reduce_type_,
                            {{"X", {name}}},
                            {{"Out", {name}}},
                            {{"ring_id", static_cast<int32_t>(ring)}, {"use_calc_stream", false}},
                            kRoleBackward},
                           Dialect::kWeft));
      }
      if (in_flight_[ring].names.empty()) in_flight_[ring].first = ring_turn;
      in_flight_[ring].names.insert(in_flight_[ring].names.end(), names.begin(), names.end());
    }
  }

  // Nothing to do where an earlier wait on the ring has let the gradient through.
  void WaitFor(size_t gradient, OpId before) {
    const size_t ring = gradient % in_flight_.size();
    InFlight& in_flight = in_flight_[ring];
    if (in_flight.names.empty() || gradient < in_flight.first) return;
    rewriter_.InsertBefore(before, Wait("c_wait_comm", ring));
    in_flight.names.clear();
  }

  const Program& program_;
  const std::string reduce_type_;
  Rewriter& rewriter_;
  std::vector<InFlight> in_flight_;  // by ring
  std::vector<uint32_t> next_use_;   // by gradient
};

void Explain(const Program& program, const GradientAnalysis& analysis, int nrings,
             const std::string& reduce_type, std::vector<Note>* notes) {
  const std::string pass(GradAllReduce::kName);
  for (size_t i = 0; i < analysis.gradients.size(); ++i) {
    const Gradient& gradient = analysis.gradients[i];
    notes->push_back(
        {pass,
         std::string(program.name(gradient.grad)),
         "reduced",
         absl::StrCat("gradient of replicated parameter ", program.name(gradient.param)),
         {{"op", reduce_type},
          {"ring", absl::StrCat(i % nrings)},
          {"after", program.op(gradient.completed_by).DebugName()},
          {"waited_for_by", gradient.first_use.valid() ? program.op(gradient.first_use).DebugName()
                                                       : std::string("the end of the program")}}});
  }
  for (const SkippedGradient& skipped : analysis.skipped) {
    notes->push_back({pass,
                      std::string(program.name(skipped.grad)),
                      "not reduced",
                      skipped.why,
                      {{"parameter", std::string(program.name(skipped.param))}}});
  }
}

}  // namespace

void GradAllReduce::Options::Bind(OptionBinder& bind) {
  bind.Int("nrings", &nrings, "communication rings", /*min=*/1);
  BindGradientScale(bind, &scale);
}

const Contract& GradAllReduce::contract() const {
  static const auto* contract = new Contract{{kGradientsReduced}, {}, {kGradientsReduced}};
  return *contract;
}

absl::StatusOr<bool> GradAllReduce::Run(PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const GradientScale scale, Resolve(options_.scale, context.participants));
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis,
                        AnalyzeGradients(program, context.distributed_params));
  if (analysis.pairs.empty()) {
    return absl::FailedPreconditionError(
        "the program has no gradients: no op of backward role names pairs of parameter and "
        "gradient in op_role_var; was it saved before minimize() or without training information?");
  }
  for (const Gradient& gradient : analysis.gradients) {
    WEFT_RETURN_IF_ERROR(CheckReducible(program, gradient));
  }
  WEFT_RETURN_IF_ERROR(CheckUpdates(program, analysis, context.distributed_params));

  const std::string reduce_type =
      scale == GradientScale::kAvg ? "c_allreduce_avg" : "c_allreduce_sum";
  if (context.notes != nullptr) {
    Explain(program, analysis, options_.nrings, reduce_type, context.notes);
  }
  Rewriter rewriter(programs.main);
  Writer(program, options_.nrings, reduce_type, &rewriter).Write(analysis.gradients);
  if (rewriter.empty()) return false;
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
