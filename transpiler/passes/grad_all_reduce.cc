#include "transpiler/passes/grad_all_reduce.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/bucket_policy.h"
#include "transpiler/passes/fused_buffer.h"
#include "transpiler/passes/gradient_buckets.h"
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
  Writer(const Program& program, const GradientAnalysis& analysis, int nrings,
         const std::string& reduce_type, Rewriter* rewriter)
      : program_(program),
        gradients_(analysis.gradients),
        analysis_(analysis),
        rewriter_(*rewriter) {
    for (int ring = 0; ring < nrings; ++ring) rings_.push_back({RingOps(ring, reduce_type), {}, 0});
  }

  // `buckets` as FillBuckets gives them. One walk over the root block, and one over every block in
  // which accumulated gradients are used up.
  void Write(const std::vector<GradientBucket>& buckets) {
    size_t end = 0;
    for (size_t begin = 0; begin < buckets.size(); begin = end) {
      const int block = buckets[begin].block;
      while (end < buckets.size() && buckets[end].block == block) ++end;
      WriteBlock(block, buckets, begin, end);
    }
  }

  // By bucket; empty where a gradient travels alone.
  const std::vector<std::string>& buffers() const { return buffers_; }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  struct Ring {
    RingOps ops;
    std::vector<std::string> in_flight;  // what is being reduced,
    size_t first_in_flight;              // from this bucket on
  };

  void WriteBlock(int block, const std::vector<GradientBucket>& buckets, size_t begin, size_t end) {
    // Per op: the first bucket that it completes, and the first in the chain that it uses first.
    std::vector<uint32_t> completes(program_.op_id_limit(), kNone);
    std::vector<uint32_t> uses(program_.op_id_limit(), kNone);
    std::vector<uint32_t> next_use(gradients_.size(), kNone);
    std::vector<uint32_t> bucket_of(gradients_.size(), kNone);
    for (size_t b = end; b-- > begin;) {
      for (size_t k = buckets[b].gradients.size(); k-- > 0;) {
        const int i = buckets[b].gradients[k];
        bucket_of[i] = b;
        if (!gradients_[i].first_use.valid()) continue;
        uint32_t& head = uses[gradients_[i].first_use.value()];
        next_use[i] = head;
        head = i;
      }
      if (block == 0) completes[gradients_[buckets[b].gradients.back()].completed_by.value()] = b;
    }
    for (size_t b = begin; b < end; ++b) LayOut(buckets[b]);

    const absl::Span<const OpId> ops = program_.block(block).ops();
    if (block != 0) Reduce(buckets, begin, end, {OpId(), ops.front()});
    for (OpId id : ops) {
      for (uint32_t i = uses[id.value()]; i != kNone; i = next_use[i]) WaitFor(bucket_of[i], id);
      size_t last = completes[id.value()];
      if (last == kNone) continue;
      const size_t first = last;
      while (last < end && gradients_[buckets[last].gradients.back()].completed_by == id) ++last;
      Reduce(buckets, first, last, {id, OpId()});
    }
    for (Ring& ring : rings_) {
      if (ring.in_flight.empty()) continue;
      rewriter_.Append(block, ring.ops.WaitComm(ring.in_flight));
      ring.in_flight.clear();
    }
  }

  // Gives several gradients a buffer, before the first of them is written. Sums that were
  // accumulated in other steps move into it when their block begins.
  void LayOut(const GradientBucket& bucket) {
    buffers_.emplace_back();
    if (bucket.gradients.size() == 1) return;
    const FusedTensors tensors = TensorsOf(program_, analysis_, bucket);
    const pb::VarDesc buffer = FusedBuffer(program_, tensors, "fused_gradient", &next_buffer_);
    buffers_.back() = buffer.name();
    rewriter_.AddVar(bucket.block, buffer);
    const bool copy = bucket.block != 0;
    const OpId before = copy ? program_.block(bucket.block).ops().front() : bucket.begins_at;
    rewriter_.InsertBefore(before, Coalesce(tensors, buffer.name(), copy, kRoleBackward));
  }

  // After one op, or before one.
  struct Place {
    OpId after, before;
  };
  void Insert(const Place& place, const pb::OpDesc& op) {
    if (place.after.valid()) {
      rewriter_.InsertAfter(place.after, op);
    } else {
      rewriter_.InsertBefore(place.before, op);
    }
  }

  void Reduce(const std::vector<GradientBucket>& buckets, size_t begin, size_t end,
              const Place& place) {
    const size_t nrings = rings_.size();
    // The rings in the order in which they are met.
    for (size_t turn = begin; turn < std::min(end, begin + nrings); ++turn) {
      Ring& ring = rings_[turn % nrings];
      std::vector<std::string> names;
      std::vector<std::string> reduced;
      for (size_t b = turn; b < end; b += nrings) {
        for (int i : buckets[b].gradients) names.emplace_back(program_.name(gradients_[i].grad));
        if (!buffers_[b].empty()) names.push_back(buffers_[b]);
        reduced.push_back(names.back());
      }
      Insert(place, ring.ops.WaitCompute(names));
      for (const std::string& name : reduced) Insert(place, ring.ops.Reduce(name));
      if (ring.in_flight.empty()) ring.first_in_flight = turn;
      ring.in_flight.insert(ring.in_flight.end(), names.begin(), names.end());
    }
  }

  // Nothing to do where an earlier wait on the ring has let the bucket through.
  void WaitFor(size_t bucket, OpId before) {
    Ring& ring = rings_[bucket % rings_.size()];
    if (ring.in_flight.empty() || bucket < ring.first_in_flight) return;
    rewriter_.InsertBefore(before, ring.ops.WaitComm(ring.in_flight));
    ring.in_flight.clear();
  }

  const Program& program_;
  const std::vector<Gradient>& gradients_;
  const GradientAnalysis& analysis_;
  Rewriter& rewriter_;
  std::vector<Ring> rings_;
  std::vector<std::string> buffers_;
  int next_buffer_ = 0;
};

std::string UsedBy(const Gradient& gradient, const OpNames& op_name) {
  if (!gradient.first_use.valid()) return "the end of the program";
  return op_name(gradient.first_use);
}

void Explain(const Program& program, const GradientAnalysis& analysis,
             const std::vector<GradientBucket>& buckets, const std::vector<std::string>& buffers,
             int nrings, const std::string& reduce_type, std::vector<Note>* notes) {
  const std::string pass(GradAllReduce::kName);
  const OpNames op_name(program);
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (int i : buckets[b].gradients) {
      const Gradient& gradient = analysis.gradients[i];
      Note note{pass,
                std::string(program.name(gradient.grad)),
                "reduced",
                absl::StrCat("gradient of replicated parameter ", program.name(gradient.param)),
                {{"op", reduce_type},
                 {"ring", absl::StrCat(b % nrings)},
                 {"after", op_name(gradient.completed_by)},
                 {"waited_for_by", UsedBy(gradient, op_name)}}};
      if (gradient.block != 0) note.details.push_back({"block", absl::StrCat(gradient.block)});
      if (!buffers[b].empty()) note.details.push_back({"buffer", buffers[b]});
      if (!buckets[b].why_alone.empty()) note.details.push_back({"alone", buckets[b].why_alone});
      notes->push_back(std::move(note));
    }
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
  bind.Parsed("buckets", &buckets, "none", "which gradients travel together", kBucketPolicies,
              BucketPolicy::Parse);
}

const Contract& GradAllReduce::contract() const {
  static const auto* contract =
      new Contract{{kGradientsReduced}, {}, {kGradientsReduced, kParametersAveraged}};
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
  const std::vector<GradientBucket> buckets = FillBuckets(program, analysis, options_.buckets);
  Rewriter rewriter(programs.main);
  Writer writer(program, analysis, options_.nrings, reduce_type, &rewriter);
  writer.Write(buckets);
  if (context.notes != nullptr) {
    Explain(program, analysis, buckets, writer.buffers(), options_.nrings, reduce_type,
            context.notes);
  }
  if (rewriter.empty()) return false;
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
