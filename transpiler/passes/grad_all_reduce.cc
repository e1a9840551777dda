#include "transpiler/passes/grad_all_reduce.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/op_names.h"
#include "transpiler/passes/reduction_problems.h"
#include "transpiler/passes/rings.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
namespace {

// The ops of one ring, built once: a program with many gradients needs many that differ in their
// variables only.
class RingOps {
 public:
  RingOps(int32_t ring, const std::string& reduce_type)
      : wait_compute_(Build("c_wait_compute", {{"ring_id", ring}})),
        reduce_(Build(reduce_type, {{"ring_id", ring}, {"use_calc_stream", false}})),
        wait_comm_(Build("c_wait_comm", {{"ring_id", ring}})) {}

  // Each is valid until it is asked for again.
  const pb::OpDesc& WaitCompute(const std::vector<std::string>& vars) {
    return Over(vars, &wait_compute_);
  }
  const pb::OpDesc& Reduce(const std::string& var) { return Over({var}, &reduce_); }
  const pb::OpDesc& WaitComm(const std::vector<std::string>& vars) {
    return Over(vars, &wait_comm_);
  }

 private:
  static pb::OpDesc Build(const std::string& type,
                          std::vector<std::pair<std::string, AttrValue>> attrs) {
    return BuildOp({type, {{"X", {}}}, {{"Out", {}}}, std::move(attrs), kRoleBackward},
                   Dialect::kWeft);
  }
  static const pb::OpDesc& Over(const std::vector<std::string>& vars, pb::OpDesc* op) {
    for (pb::OpDesc::Var* slot : {op->mutable_inputs(0), op->mutable_outputs(0)}) {
      slot->clear_arguments();
      for (const std::string& var : vars) slot->add_arguments(var);
    }
    return *op;
  }

  pb::OpDesc wait_compute_, reduce_, wait_comm_;
};

// Writes the ops: reductions where gradients are complete, waits where they are used.
class Writer {
 public:
  Writer(const Program& program, int nrings, const std::string& reduce_type, Rewriter* rewriter)
      : program_(program), rewriter_(*rewriter) {
    for (int ring = 0; ring < nrings; ++ring) rings_.push_back({RingOps(ring, reduce_type), {}, 0});
  }

  // One walk over the block. `gradients` are in the order of completion.
  void Write(const std::vector<Gradient>& gradients) {
    const size_t none = gradients.size();
    // Per op: the first gradient that it completes, and the first in the chain that it uses first.
    std::vector<uint32_t> completes(program_.op_id_limit(), none);
    std::vector<uint32_t> uses(program_.op_id_limit(), none);
    std::vector<uint32_t> next_use(none, none);
    for (size_t i = none; i-- > 0;) {
      completes[gradients[i].completed_by.value()] = i;
      if (!gradients[i].first_use.valid()) continue;
      uint32_t& head = uses[gradients[i].first_use.value()];
      next_use[i] = head;
      head = i;
    }
    for (OpId id : program_.block(0).ops()) {
      for (size_t i = uses[id.value()]; i != none; i = next_use[i]) WaitFor(i, id);
      size_t end = completes[id.value()];
      if (end == none) continue;
      const size_t begin = end;
      while (end < none && gradients[end].completed_by == id) ++end;
      Reduce(gradients, begin, end, id);
    }
    for (Ring& ring : rings_) {
      if (!ring.in_flight.empty()) rewriter_.Append(0, ring.ops.WaitComm(ring.in_flight));
    }
  }

 private:
  struct Ring {
    RingOps ops;
    std::vector<std::string> in_flight;  // gradients that are being reduced,
    size_t first_in_flight;              // from this one on
  };

  void Reduce(const std::vector<Gradient>& gradients, size_t begin, size_t end, OpId after) {
    const size_t nrings = rings_.size();
    // The rings in the order in which they are met.
    for (size_t turn = begin; turn < std::min(end, begin + nrings); ++turn) {
      Ring& ring = rings_[turn % nrings];
      std::vector<std::string> names;
      for (size_t i = turn; i < end; i += nrings) {
        names.emplace_back(program_.name(gradients[i].grad));
      }
      rewriter_.InsertAfter(after, ring.ops.WaitCompute(names));
      for (const std::string& name : names) rewriter_.InsertAfter(after, ring.ops.Reduce(name));
      if (ring.in_flight.empty()) ring.first_in_flight = turn;
      ring.in_flight.insert(ring.in_flight.end(), names.begin(), names.end());
    }
  }

  // Nothing to do where an earlier wait on the ring has let the gradient through.
  void WaitFor(size_t gradient, OpId before) {
    Ring& ring = rings_[gradient % rings_.size()];
    if (ring.in_flight.empty() || gradient < ring.first_in_flight) return;
    rewriter_.InsertBefore(before, ring.ops.WaitComm(ring.in_flight));
    ring.in_flight.clear();
  }

  const Program& program_;
  Rewriter& rewriter_;
  std::vector<Ring> rings_;
};

void Explain(const Program& program, const GradientAnalysis& analysis, int nrings,
             const std::string& reduce_type, std::vector<Note>* notes) {
  const std::string pass(GradAllReduce::kName);
  const OpNames op_name(program);
  for (size_t i = 0; i < analysis.gradients.size(); ++i) {
    const Gradient& gradient = analysis.gradients[i];
    notes->push_back(
        {pass,
         std::string(program.name(gradient.grad)),
         "reduced",
         absl::StrCat("gradient of replicated parameter ", program.name(gradient.param)),
         {{"op", reduce_type},
          {"ring", absl::StrCat(i % nrings)},
          {"after", op_name(gradient.completed_by)},
          {"waited_for_by", gradient.first_use.valid() ? op_name(gradient.first_use)
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
  BindRings(bind, &nrings);
  BindGradientScale(bind, &scale);
}

const Contract& GradAllReduce::contract() const {
  static const auto* contract = new Contract{{kGradientsReduced}, {}, {kGradientsReduced}};
  return *contract;
}

absl::StatusOr<bool> GradAllReduce::Run(PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis,
                        AnalyzeGradients(program, context.distributed_params));
  if (analysis.pairs.empty()) {
    return absl::FailedPreconditionError(
        "the program has no gradients: no op of backward role names pairs of parameter and "
        "gradient in op_role_var; was it saved before minimize() or without training information?");
  }
  for (const absl::Status& problem :
       ProblemsOfReduction(program, analysis, context.distributed_params)) {
    WEFT_RETURN_IF_ERROR(problem);
  }
  WEFT_ASSIGN_OR_RETURN(const bool average,
                        ReductionAverages(options_.scale, program, context.participants));

  const std::string reduce_type = average ? "c_allreduce_avg" : "c_allreduce_sum";
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
