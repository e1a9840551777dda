#include "transpiler/passes/support/device_accesses.h"

#include "absl/container/flat_hash_set.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/op_schema.h"

namespace weft {

bool IsCopied(const Var& var) {
  return var.type() == pb::VarType::LOD_TENSOR || var.type() == pb::VarType::SELECTED_ROWS;
}

DeviceAccesses::DeviceAccesses(const Program& program)
    : program_(program), storage_(program), traits_(program), of_op_(program.op_id_limit()) {
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
  const Storage::Buffer* const made = storage_.MadeBy(op.id());
  const bool names_only = made != nullptr && !made->copies;
  const bool fills = made != nullptr && made->constant.has_value();
  const std::vector<int> blocks = op.SubBlocks();
  const bool keeps = has(Trait::kKeepsOutputs) || !blocks.empty();
  for (Symbol name : op.input_args()) Add(block, name, !names_only, false, accesses);
  for (Symbol name : op.output_args()) {
    Add(block, name, keeps, !names_only || fills, accesses);
  }
  if (made != nullptr) AddBuffer(*made, root);
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

void DeviceAccesses::AddBuffer(const Storage::Buffer& made, OpId root) {
  if (!made.var.valid()) return;
  SlicedBuffer& buffer = buffers_[made.var];
  const absl::flat_hash_set<VarId> known(buffer.slices.begin(), buffer.slices.end());
  buffer.made_by.push_back(root);
  buffer.has_values |= made.has_values();
  for (VarId slice : made.part_vars) {
    if (known.contains(slice)) continue;
    buffer.slices.push_back(slice);
    buffers_of_[slice].push_back(made.var);
  }
}

}  // namespace weft
