#include "transpiler/passes/sharding/parameter_gathers.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/training/gradient_links.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

// One all-gather of a bucket.
struct Gather {
  size_t bucket;
  bool is_again = false;  // for the backward pass
  OpId first_use;
  int ring = 0;
  std::vector<std::string> variables = {};  // that the ring writes
};

class GatherWriter {
 public:
  GatherWriter(const Program& main, absl::Span<const SharedBucket> buckets,
               const GatherOptions& options, ProgramEdits* edits)
      : main_(main), buckets_(buckets), options_(options), edits_(*edits) {
    for (size_t b = 0; b < buckets.size(); ++b) {
      for (const UpdateChain* chain : buckets[b].chains) {
        bucket_of_.emplace(chain->tensors[UpdateChain::kParam].name, b);
        in_chains_.insert(chain->ops.begin(), chain->ops.end());
        if (chain->block != 0) in_chains_.insert(chain->run_by);
      }
    }
  }

  void Write() {
    FindKept();
    FindGathers();
    const size_t prefetch = options_.prefetch;
    for (size_t g = 0; g < gathers_.size(); ++g) {
      const OpId use = gathers_[g].first_use;
      if (prefetch == 0) Launch(g, use);
      for (size_t ahead = 0; g == 0 && ahead < prefetch; ++ahead) Launch(ahead, use);
      Insert(use, InPlaceOp("c_wait_comm", gathers_[g].variables, {{"ring_id", gathers_[g].ring}},
                            RoleOf(gathers_[g])));
      if (prefetch > 0) Launch(g + prefetch, use);
    }
    RenameUses();
  }

 private:
  // The buckets that are not gathered again.
  void FindKept() {
    is_kept_.assign(buckets_.size(), !options_.frees);
    for (OpId id : main_.block(0).ops()) {
      const Op op = main_.op(id);
      if (op.SubBlocks().empty() || in_chains_.contains(id)) continue;
      ForEachArgument(op, [&](Symbol arg) {
        const auto bucket = bucket_of_.find(arg);
        if (bucket != bucket_of_.end()) is_kept_[bucket->second] = true;
      });
    }
  }

  bool IsAgain(const Op& op, size_t bucket) const { return !is_kept_[bucket] && IsBackward(op); }

  int RingOf(size_t gather) const {
    if (options_.prefetch == 0) return options_.nrings - 1;
    return options_.nrings + static_cast<int>(gather % options_.prefetch);
  }

  void FindGathers() {
    std::set<std::pair<size_t, bool>> known;
    for (OpId id : main_.block(0).ops()) {
      if (in_chains_.contains(id)) continue;
      const Op op = main_.op(id);
      ForEachArgument(op, [&](Symbol arg) {
        const auto bucket = bucket_of_.find(arg);
        if (bucket == bucket_of_.end()) return;
        const bool is_again = IsAgain(op, bucket->second);
        if (!known.emplace(bucket->second, is_again).second) return;
        gathers_.push_back({bucket->second, is_again, id, RingOf(gathers_.size())});
      });
    }
  }

  static int RoleOf(const Gather& gather) { return gather.is_again ? kRoleBackward : kRoleForward; }

  void Insert(OpId before, const NewOp& op) { edits_.main.InsertBefore(before, BuildOp(op)); }

  // Does nothing after the last gather.
  void Launch(size_t index, OpId before) {
    if (index >= gathers_.size()) return;
    Gather& gather = gathers_[index];
    const SharedBucket& bucket = buckets_[gather.bucket];
    FusedTensors tensors;
    tensors.dtype = bucket.first().tensors[UpdateChain::kParam].dtype;
    for (const UpdateChain* chain : bucket.chains) {
      const Symbol param = chain->tensors[UpdateChain::kParam].name;
      std::string name(main_.name(param));
      if (gather.is_again) {
        name = edits_.names.Of(absl::StrCat(name, kAgainSuffix));
        again_.emplace(param, name);
        edits_.main.AddVar(0, TensorVar(name, tensors.dtype, chain->dims));
      }
      tensors.names.push_back(std::move(name));
      tensors.dims.push_back(chain->dims);
    }
    if (bucket.padding > 0) {
      tensors.names.push_back(edits_.names.Next("param_padding"));
      tensors.dims.push_back({bucket.padding});
      edits_.main.AddVar(0, TensorVar(tensors.names.back(), tensors.dtype, {bucket.padding}));
    }
    const std::string buffer = edits_.names.Next("fused_param");
    edits_.main.AddVar(0, FusedBuffer(buffer, tensors, DenseAlignment(tensors)));
    const int role = RoleOf(gather);
    edits_.main.InsertBefore(
        before, Coalesce(tensors, buffer, FusedValues::kDiscarded, role, DenseAlignment(tensors)));
    const std::string& share = bucket.shares[UpdateChain::kParam];
    gather.variables = tensors.names;
    gather.variables.push_back(buffer);
    Insert(before, InPlaceOp("c_wait_compute", gather.variables, {{"ring_id", gather.ring}}, role));
    Insert(before,
           {"c_allgather",
            {{"X", {share}}},
            {{"Out", {buffer}}},
            {{"nranks", bucket.nranks}, {"ring_id", gather.ring}, {"use_calc_stream", false}},
            role});
  }

  void RenameUses() {
    if (again_.empty()) return;
    for (OpId id : main_.block(0).ops()) {
      const Op op = main_.op(id);
      if (in_chains_.contains(id) || !IsBackward(op)) continue;
      if (!absl::c_any_of(op.input_args(), [&](Symbol in) { return again_.contains(in); }))
        continue;
      pb::OpDesc renamed = op.ToProto();
      for (pb::OpDesc::Var& slot : *renamed.mutable_inputs()) {
        for (std::string& argument : *slot.mutable_arguments()) {
          const auto name = again_.find(main_.FindSymbol(argument));
          if (name != again_.end()) argument = name->second;
        }
      }
      edits_.main.Replace(id, renamed);
    }
  }

  const Program& main_;
  const absl::Span<const SharedBucket> buckets_;
  const GatherOptions options_;
  ProgramEdits& edits_;
  absl::flat_hash_map<Symbol, size_t> bucket_of_;   // of parameters
  absl::flat_hash_set<OpId> in_chains_;             // and the ops that run blocks of chains
  std::vector<bool> is_kept_;                       // by bucket
  std::vector<Gather> gathers_;                     // by first use
  absl::flat_hash_map<Symbol, std::string> again_;  // of parameters: their names in backward
};

}  // namespace

void GatherParameters(const Program& main, absl::Span<const SharedBucket> buckets,
                      const GatherOptions& options, ProgramEdits* edits) {
  GatherWriter(main, buckets, options, edits).Write();
}

}  // namespace weft
