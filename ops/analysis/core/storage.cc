#include "ops/analysis/core/storage.h"

#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// Classes of keys that are joined.
class Classes {
 public:
  explicit Classes(absl::flat_hash_map<uint64_t, uint64_t>* parents) : parents_(*parents) {}

  uint64_t Find(uint64_t key) {
    uint64_t root = key;
    for (uint64_t next = Parent(root); next != root; next = Parent(root)) root = next;
    while (key != root) key = std::exchange(parents_[key], root);
    return root;
  }
  void Join(uint64_t a, uint64_t b) {
    const uint64_t into = Find(b);
    parents_[Find(a)] = into;
  }
  // From now on the parent of each key is its class.
  void Finish() {
    for (auto& [key, parent] : parents_) parent = Find(key);
  }

 private:
  uint64_t Parent(uint64_t key) { return parents_.try_emplace(key, key).first->second; }

  absl::flat_hash_map<uint64_t, uint64_t>& parents_;
};

}  // namespace

Storage::Storage(const Program& program) : program_(program) {
  OpTraits traits(program);
  const Symbol empty = program.FindSymbol(kEmptyVarName);
  Classes classes(&classes_);
  for (const Op& op : AllOps(program)) {
    std::vector<SharedMemory> shared = SharedMemoryOf(op, traits.SchemaOf(op));
    for (const SharedMemory& pair : shared) {
      classes.Join(KeyOf(op.block(), pair.in), KeyOf(op.block(), pair.out));
    }
    if (!shared.empty()) shared_by_[op.id()] = std::move(shared);
    if (!traits.Has(op, Trait::kAlias)) continue;
    Buffer buffer{MadeBufferOf(op), op.id(), op.block(), VarId(), {}};
    if (buffer.name.valid()) buffer.var = program.block(op.block()).Resolve(buffer.name);
    for (Symbol part : buffer.parts) {
      const VarId var = program.block(op.block()).Resolve(part);
      if (var.valid()) buffer.part_vars.push_back(var);
      if (!buffer.name.valid() || part == empty || buffer.name == empty) continue;
      classes.Join(KeyOf(var, part), KeyOf(buffer.var, buffer.name));
    }
    made_by_[op.id()] = buffers_.size();
    buffers_.push_back(std::move(buffer));
  }
  classes.Finish();
}

const Storage::Buffer* Storage::MadeBy(OpId op) const {
  const auto found = made_by_.find(op);
  return found == made_by_.end() ? nullptr : &buffers_[found->second];
}

absl::Span<const SharedMemory> Storage::SharedBy(OpId op) const {
  const auto found = shared_by_.find(op);
  if (found == shared_by_.end()) return {};
  return found->second;
}

uint64_t Storage::ClassOf(int block, Symbol name) const {
  const uint64_t key = KeyOf(block, name);
  const auto found = classes_.find(key);
  return found == classes_.end() ? key : found->second;
}

Storage::Layout Storage::LayoutOf(const Buffer& buffer) const {
  Layout layout;
  std::vector<Dims> dims;
  std::vector<int64_t> shapes;  // the same
  if (buffer.part_vars.size() != buffer.parts.size()) return {};
  for (VarId var : buffer.part_vars) {
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    if (!type.has_value() || NumElements(type->dims) < 0) return {};
    dims.push_back(type->dims);
    shapes.insert(shapes.end(), type->dims.begin(), type->dims.end());
    layout.counts.push_back(NumElements(type->dims));
  }
  const Op op = program_.op(buffer.made_by);
  const std::vector<int64_t> given = op.IntsAttr("concated_shapes").value_or(shapes);
  if (!given.empty() && given != shapes) return {};
  SliceLayout slices = LayOutSlices(dims, SliceAlignment(op));
  layout.offsets = std::move(slices.offsets);
  layout.size = slices.size;
  return layout;
}

uint64_t Storage::KeyOf(int block, Symbol name) const {
  return KeyOf(program_.block(block).Resolve(name), name);
}

void CurrentBuffers::Make(const Storage::Buffer* buffer) {
  if (buffer == nullptr || !buffer->name.valid()) return;
  by_name_[Storage::KeyOf(buffer->var, buffer->name)] = buffer;
  for (Symbol part : buffer->parts) of_part_[storage_.KeyOf(buffer->block, part)] = buffer;
}

const Storage::Buffer* CurrentBuffers::Named(int block, Symbol name) const {
  return by_name_.empty() ? nullptr : Find(by_name_, storage_.KeyOf(block, name));
}

const Storage::Buffer* CurrentBuffers::WithPart(int block, Symbol name) const {
  return of_part_.empty() ? nullptr : Find(of_part_, storage_.KeyOf(block, name));
}

const Storage::Buffer* CurrentBuffers::Find(const ByKey& buffers, uint64_t key) {
  const auto found = buffers.find(key);
  return found == buffers.end() ? nullptr : found->second;
}

}  // namespace weft
