#include "transpiler/passes/support/device_accesses.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/op_schema.h"

namespace weft {

bool IsCopied(const Var& var) {
  return var.type() == pb::VarType::LOD_TENSOR || var.type() == pb::VarType::SELECTED_ROWS;
}

DeviceAccesses::DeviceAccesses(const Program& program)
    : program_(program), traits_(program), of_op_(program.op_id_limit()) {
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    std::vector<DeviceAccess> all;
    AddOp(op, id, &all);
    // Merged: an op may name a variable often.
    absl::flat_hash_map<VarId, size_t> index;
    std::vector<DeviceAccess>& merged = of_op_[id.value()];
    for (const DeviceAccess& access : all) {
      const auto [it, is_new] = index.emplace(access.var, merged.size());
      if (is_new) {
        merged.push_back(access);
        continue;
      }
      merged[it->second].reads |= access.reads;
      merged[it->second].writes |= access.writes;
    }
  }
}

const SlicedBuffer* DeviceAccesses::FindBuffer(VarId var) const {
  const auto it = buffers_.find(var);
  return it == buffers_.end() ? nullptr : &it->second;
}

const std::vector<VarId>& DeviceAccesses::BuffersOf(VarId slice) const {
  static const auto* const kNone = new std::vector<VarId>();
  const auto it = buffers_of_.find(slice);
  return it == buffers_of_.end() ? *kNone : it->second;
}

const std::vector<VarId>& DeviceAccesses::SharedWith(VarId var) const {
  const SlicedBuffer* const buffer = FindBuffer(var);
  return buffer == nullptr ? BuffersOf(var) : buffer->slices;
}

absl::Span<const VarId> DeviceAccesses::PartsOf(const VarId& var) const {
  const SlicedBuffer* const buffer = FindBuffer(var);
  if (buffer == nullptr) return absl::MakeConstSpan(&var, 1);
  return buffer->slices;
}

void DeviceAccesses::Add(const Block& block, Symbol name, bool reads, bool writes,
                         std::vector<DeviceAccess>* accesses) const {
  const VarId var = block.Resolve(name);
  if (var.valid() && program_.var(var).block() == 0) accesses->push_back({var, reads, writes});
}

void DeviceAccesses::AddOp(const Op& op, OpId root, std::vector<DeviceAccess>* accesses) {
  const auto has = [&](Trait trait) { return traits_.Has(op, trait); };
  if (IsFeed(op.type()) || has(Trait::kStreamSync)) return;
  const Block block = program_.block(op.block());
  if (IsFetch(op.type())) {
    for (Symbol name : op.input_args()) Add(block, name, /*reads=*/true, false, accesses);
    return;
  }
  const bool names_only = has(Trait::kAlias) && !op.BoolAttr("copy_data").value_or(false);
  const bool fills = has(Trait::kAlias) && op.BoolAttr("set_constant").value_or(false);
  const std::vector<int> blocks = op.SubBlocks();
  const bool keeps = has(Trait::kKeepsOutputs) || !blocks.empty();
  for (Symbol name : op.input_args()) Add(block, name, !names_only, false, accesses);
  for (Symbol name : op.output_args()) {
    Add(block, name, keeps, !names_only || fills, accesses);
  }
  if (has(Trait::kAlias)) AddBuffer(op, root);
  for (int inner : blocks) {
    for (OpId id : program_.block(inner).ops()) {
      const size_t first = accesses->size();
      AddOp(program_.op(id), root, accesses);
      for (size_t i = first; i < accesses->size(); ++i) {
        if ((*accesses)[i].writes) (*accesses)[i].reads = true;
      }
    }
  }
}

void DeviceAccesses::AddBuffer(const Op& op, OpId root) {
  const Block block = program_.block(op.block());
  for (Symbol fused : op.Output("FusedOutput")) {
    const VarId var = block.Resolve(fused);
    if (!var.valid()) continue;
    SlicedBuffer& buffer = buffers_[var];
    const absl::flat_hash_set<VarId> known(buffer.slices.begin(), buffer.slices.end());
    buffer.made_by.push_back(root);
    for (const char* attr : {"copy_data", "set_constant", "persist_output"}) {
      buffer.has_values |= op.BoolAttr(attr).value_or(false);
    }
    for (Symbol name : op.Output("Output")) {
      const VarId slice = block.Resolve(name);
      if (!slice.valid() || known.contains(slice)) continue;
      buffer.slices.push_back(slice);
      buffers_of_[slice].push_back(var);
    }
  }
}

}  // namespace weft
