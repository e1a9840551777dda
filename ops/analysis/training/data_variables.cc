#include "ops/analysis/training/data_variables.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {

namespace {

bool HasUnknownDim(const Var& var) {
  const absl::optional<TensorType> type = DeclaredType(var);
  return type.has_value() && absl::c_linear_search(type->dims, -1);
}

// Finds the tensors of the root block that an op reads before any op writes them.
class UnwrittenReads {
 public:
  UnwrittenReads(const Program& program, absl::flat_hash_set<VarId>* found)
      : program_(program), traits_(program), found_(*found), visited_(program.num_blocks()) {}

  // In the order of the program, a block where the first op runs it.
  void Visit(int block) {
    if (block < 0 || block >= program_.num_blocks() || visited_[block]) return;
    visited_[block] = true;
    for (const Op& op : BlockOps(program_, block)) {
      const bool reads_sizes_only = traits_.Has(op, Trait::kAlias);
      for (Symbol name : op.input_args()) {
        if (reads_sizes_only) break;
        const VarId var = program_.block(block).Resolve(name);
        if (!var.valid() || written_.contains(var)) continue;
        const Var of = program_.var(var);
        if (of.block() != 0 || of.persistable()) continue;
        if (of.type() != pb::VarType::LOD_TENSOR) continue;
        found_.insert(var);
        if (!IsBackward(op) && !IsOptimize(op)) read_by_forward_.insert(var);
      }
      for (int inner : op.SubBlocks()) Visit(inner);
      for (Symbol name : op.output_args()) written_.insert(program_.block(block).Resolve(name));
    }
  }

  // Leaves what another op may have been meant to compute: what ops write later, gradients,
  // what has a gradient, and what has no size of a batch, as a mask that is fed.
  void KeepData() {
    absl::erase_if(found_, [&](VarId var) {
      if (!HasUnknownDim(program_.var(var))) return true;
      const std::string gradient = absl::StrCat(program_.var(var).name(), kGradSuffix);
      return written_.contains(var) || !read_by_forward_.contains(var) ||
             program_.FindSymbol(gradient).valid();
    });
  }

 private:
  const Program& program_;
  OpTraits traits_;
  absl::flat_hash_set<VarId>& found_;
  absl::flat_hash_set<VarId> written_, read_by_forward_;
  std::vector<bool> visited_;
};

}  // namespace

absl::flat_hash_set<VarId> FindUnchangedData(const ProgramFacts& facts) {
  const Program& program = facts.program();
  absl::flat_hash_map<VarId, int> num_writers;
  const OpTraits& traits = facts.Get<OpTraits>();
  for (const Op& op : AllOps(program)) {
    if (HandsOutData(op.type()) || traits.Has(op, Trait::kStreamSync)) continue;
    for (Symbol name : op.output_args()) ++num_writers[program.block(op.block()).Resolve(name)];
  }
  const absl::flat_hash_set<VarId>& data = facts.Get(FindData);
  absl::flat_hash_set<VarId> unchanged;
  const Block& root = program.block(0);
  for (VarId id : root.vars()) {
    if (data.contains(id) && num_writers.count(id) == 0) unchanged.insert(id);
  }
  for (OpId id : root.ops()) {
    const Op op = program.op(id);
    if (!CopiesFrom(op.type()).has_value() || op.args().size() != 2) continue;
    const VarId from = root.Resolve(op.args()[0]), to = root.Resolve(op.args()[1]);
    if (unchanged.contains(from) && num_writers[to] == 1) unchanged.insert(to);
  }
  return unchanged;
}

absl::flat_hash_set<VarId> FindData(const Program& program) {
  absl::flat_hash_set<VarId> data;
  bool is_marked = false;
  const Block& root = program.block(0);
  for (VarId id : root.vars()) {
    if (!program.var(id).need_check_feed()) continue;
    data.insert(id);
    is_marked = true;
  }
  std::vector<bool> is_other(program.num_signatures(), false);
  for (const Op& op : AllOps(program)) {
    if (is_other[op.signature_id()]) continue;
    if (!HandsOutData(op.type())) {
      is_other[op.signature_id()] = true;
      continue;
    }
    is_marked = is_marked || IsFeed(op.type());
    for (Symbol name : op.output_args()) {
      const VarId var = program.block(op.block()).Resolve(name);
      if (var.valid()) data.insert(var);
    }
  }
  // What marks do not say, the program reads.
  absl::flat_hash_set<VarId> read;
  UnwrittenReads reads(program, &read);
  reads.Visit(0);
  if (is_marked) reads.KeepData();
  data.insert(read.begin(), read.end());
  return data;
}

}  // namespace weft
