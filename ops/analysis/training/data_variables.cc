#include "ops/analysis/training/data_variables.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/feed_ops.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {

namespace {

// Finds the tensors of the root block that an op reads before any op writes them; with kForward,
// only an op of the forward pass, as data is what it begins with.
class UnwrittenReads {
 public:
  enum class Readers { kAll, kForward };

  UnwrittenReads(const Program& program, Readers readers, absl::flat_hash_set<VarId>* found)
      : program_(program),
        traits_(program),
        readers_(readers),
        found_(*found),
        visited_(program.num_blocks()) {}

  // In the order of the program, a block where the first op runs it.
  void Visit(int block) {
    if (block < 0 || block >= program_.num_blocks() || visited_[block]) return;
    visited_[block] = true;
    for (const Op& op : BlockOps(program_, block)) {
      const bool reads_sizes_only = traits_.Has(op, Trait::kAlias);
      const bool is_forward = !IsBackward(op) && !IsOptimize(op);
      for (Symbol name : op.input_args()) {
        if (reads_sizes_only || (readers_ == Readers::kForward && !is_forward)) break;
        const VarId var = program_.block(block).Resolve(name);
        if (!var.valid() || written_.contains(var)) continue;
        const Var of = program_.var(var);
        if (of.block() != 0 || of.persistable()) continue;
        if (of.type() != pb::VarType::LOD_TENSOR) continue;
        if (readers_ == Readers::kAll || HasOpenSize(of)) found_.insert(var);
      }
      for (int inner : op.SubBlocks()) Visit(inner);
      for (Symbol name : op.output_args()) written_.insert(program_.block(block).Resolve(name));
    }
  }

 private:
  // Whether the size of the batch is declared as unknown, as of all data that Paddle declares
  // without a mark.
  static bool HasOpenSize(const Var& var) {
    const auto tensor = var.Tensor();
    return tensor.has_value() && tensor->dims_size() > 0 && tensor->dims(0) == -1;
  }

  const Program& program_;
  OpTraits traits_;
  const Readers readers_;
  absl::flat_hash_set<VarId>& found_;
  absl::flat_hash_set<VarId> written_;
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
  // What a program is fed it reads. Not all functions of Paddle that declare data mark it.
  using Readers = UnwrittenReads::Readers;
  UnwrittenReads(program, is_marked ? Readers::kForward : Readers::kAll, &data).Visit(0);
  return data;
}

}  // namespace weft
