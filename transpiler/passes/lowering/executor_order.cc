#include "transpiler/passes/lowering/executor_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/fused_buffers.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/communication_ops.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/op_builder.h"

namespace weft {
namespace {

bool Has(absl::Span<const Symbol> args, Symbol arg) { return absl::c_linear_search(args, arg); }

// Ops that do the same to each element.
bool IsByElement(const Op& op) {
  return (op.type() == "scale" || op.type() == "clip" || op.type() == "cast") &&
         op.input_args().size() == 1 && op.output_args().size() == 1;
}

// A buffer and where ops name it or its parts, by positions.
struct Buffer {
  explicit Buffer(const FusedBuffer& from)
      : name(from.name), parts(from.parts), last_awaited(from.last_awaited.value_or(0)) {
    for (const BufferAccess& access : from.accesses) {
      if (access.names_input || access.names_output) accesses.push_back(access.position);
    }
    for (const BufferAccess& access : from.part_accesses) {
      if (!absl::c_binary_search(accesses, access.position)) last_of_parts = access.position;
    }
  }

  Symbol name;
  std::vector<Symbol> parts;
  std::vector<uint32_t> accesses;  // of ops that name it
  uint32_t last_awaited;           // by ops that read parts
  uint32_t last_of_parts = 0;      // of the last op that accesses a part and does not name it
};

class PartOrderer {
 public:
  explicit PartOrderer(Program* program)
      : program_(*program), storage_(*program), rewriter_(program) {}

  absl::StatusOr<bool> Run() {
    for (int block = 0; block < program_.num_blocks(); ++block) VisitBlock(block);
    return CommitEdits(&rewriter_);
  }

 private:
  Op OpAt(uint32_t position) const { return program_.op(ops_[position]); }

  void VisitBlock(int block) {
    ops_ = program_.block(block).ops();
    buffers_.clear();
    for (const FusedBuffer& buffer : FindFusedBuffers(program_, storage_, block)) {
      buffers_.emplace_back(buffer);
    }
    for (size_t b = 0; b < buffers_.size(); ++b) by_name_[buffers_[b].name].push_back(b);
    for (const Buffer& buffer : buffers_) VisitBuffer(buffer);
    by_name_.clear();
    distributed_.clear();
    named_.clear();
  }

  // Whether it writes all parts, too.
  bool NamesParts(const Op& op, const Buffer& buffer) const {
    const absl::flat_hash_set<Symbol> written(op.output_args().begin(), op.output_args().end());
    return absl::c_all_of(buffer.parts, [&](Symbol part) { return written.contains(part); });
  }

  void VisitBuffer(const Buffer& buffer) {
    const uint32_t target = buffer.last_awaited;
    size_t ordered = 0;  // of the accesses, those that are ordered
    for (size_t k = 0; k < buffer.accesses.size(); ++k) {
      const uint32_t i = buffer.accesses[k];
      if (i <= target || NamesParts(OpAt(i), buffer)) ordered = k + 1;
    }
    std::vector<uint32_t> unordered;
    for (size_t k = ordered; k < buffer.accesses.size(); ++k) {
      const uint32_t i = buffer.accesses[k];
      if (i < buffer.last_of_parts && Has(OpAt(i).output_args(), buffer.name)) {
        unordered.push_back(i);
      }
    }
    if (unordered.empty()) return;
    // What stands before a collective is moved to the parts: then this reads the buffer first.
    const bool has_collective =
        absl::c_any_of(unordered, [this](uint32_t i) { return CommunicatesInPaddle(OpAt(i)); });
    for (const uint32_t i : buffer.accesses) {
      const Op op = OpAt(i);
      const bool is_before = has_collective && !CommunicatesInPaddle(op) && i <= target &&
                             Has(op.output_args(), buffer.name);
      const bool is_behind = absl::c_linear_search(unordered, i) && !CommunicatesInPaddle(op);
      if (is_before || is_behind) Distribute(op, buffer);
    }
  }

  // The buffer of that name as the op at the position accesses it; null if there is none.
  Buffer* FindBuffer(Symbol name, uint32_t position) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nullptr;
    for (const size_t b : found->second) {
      if (absl::c_binary_search(buffers_[b].accesses, position)) return &buffers_[b];
    }
    return nullptr;
  }

  void Distribute(const Op& op, const Buffer& buffer) {
    if (!distributed_.insert(op.position()).second) return;
    Buffer* const from = IsByElement(op) ? FindBuffer(op.input_args()[0], op.position()) : nullptr;
    if (from == nullptr || from->parts.size() != buffer.parts.size() ||
        op.output_args()[0] != buffer.name) {
      return;
    }
    pb::OpDesc desc = op.ToProto();
    const auto rename = [this](google::protobuf::RepeatedPtrField<pb::OpDesc::Var>* slots,
                               Symbol to) {
      for (pb::OpDesc::Var& slot : *slots) {
        if (slot.arguments_size() > 0) slot.set_arguments(0, std::string(program_.name(to)));
      }
    };
    for (size_t k = 0; k < buffer.parts.size(); ++k) {
      rename(desc.mutable_inputs(), from->parts[k]);
      rename(desc.mutable_outputs(), buffer.parts[k]);
      rewriter_.InsertBefore(op.id(), desc);
    }
    rewriter_.Erase(op.id());
    if (from->name == buffer.name) return;
    NameParts(*from, op.position());
    from->last_of_parts = std::max(from->last_of_parts, op.position());
    VisitBuffer(*from);
  }

  // Lets the last wait for a collective on the buffer name the parts, which an op after it reads.
  void NameParts(const Buffer& buffer, uint32_t before) {
    absl::optional<uint32_t> wait;
    for (const uint32_t i : buffer.accesses) {
      const bool is_wait = FindStreamSyncOp(OpAt(i).type()) == StreamSync::kComputeWaitsForRing;
      if (i < before && is_wait) wait = i;
    }
    if (!wait.has_value() || NamesParts(OpAt(*wait), buffer) || !named_.insert(*wait).second) {
      return;
    }
    pb::OpDesc desc = OpAt(*wait).ToProto();
    for (auto* slots : {desc.mutable_inputs(), desc.mutable_outputs()}) {
      for (pb::OpDesc::Var& slot : *slots) {
        if (slot.arguments_size() == 0) continue;
        std::vector<std::string> args;
        for (Symbol part : buffer.parts) args.emplace_back(program_.name(part));
        args.insert(args.end(), slot.arguments().begin(), slot.arguments().end());
        slot.clear_arguments();
        for (const std::string& arg : args) slot.add_arguments(arg);
      }
    }
    rewriter_.Replace(OpAt(*wait).id(), desc);
  }

  const Program& program_;
  const Storage storage_;
  Rewriter rewriter_;
  absl::Span<const OpId> ops_;  // of the block
  std::vector<Buffer> buffers_;
  absl::flat_hash_map<Symbol, std::vector<size_t>> by_name_;  // mostly one of a name
  absl::flat_hash_set<uint32_t> distributed_;                 // positions of ops
  absl::flat_hash_set<uint32_t> named_;                       // of waits that name parts now
};

}  // namespace

absl::StatusOr<bool> OrderPartsOfBuffers(Program* program) { return PartOrderer(program).Run(); }

}  // namespace weft
