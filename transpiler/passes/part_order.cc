#include "transpiler/passes/part_order.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/schema/communication_ops.h"
#include "proto/rewriter.h"
#include "transpiler/passes/op_builder.h"

namespace weft {
namespace {

// As Paddle's executor tells them.
bool Communicates(const Op& op) {
  return absl::StartsWith(op.type(), "c_") || op.HasAttr("ring_id");
}

bool Has(absl::Span<const Symbol> args, Symbol arg) { return absl::c_linear_search(args, arg); }

// Ops that do the same to each element.
bool IsByElement(const Op& op) {
  return (op.type() == "scale" || op.type() == "clip" || op.type() == "cast") &&
         op.input_args().size() == 1 && op.output_args().size() == 1;
}

// A buffer, from its coalesce_tensor to the next one.
struct Buffer {
  Symbol name;
  std::vector<Symbol> parts;
  std::vector<uint32_t> accesses;  // positions of the ops that access it
  uint32_t last_of_parts = 0;      // of the last op that accesses a part and not the buffer
};

class PartOrderer {
 public:
  PartOrderer(Program* program, PassContext* context)
      : program_(*program), context_(*context), rewriter_(program) {}

  absl::StatusOr<bool> Run() {
    for (int block = 0; block < program_.num_blocks(); ++block) VisitBlock(block);
    return CommitEdits(&rewriter_);
  }

 private:
  Op OpAt(uint32_t position) const { return program_.op(ops_[position]); }

  void VisitBlock(int block) {
    ops_ = program_.block(block).ops();
    buffers_.clear();
    absl::flat_hash_map<Symbol, size_t> current;  // by name of a buffer
    absl::flat_hash_map<Symbol, size_t> buffer_of_part;
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      const Op op = OpAt(i);
      if (op.type() == "coalesce_tensor" && op.Output("FusedOutput").size() == 1) {
        const Symbol name = op.Output("FusedOutput")[0];
        const auto parts = op.Output("Output");
        for (Symbol part : parts) buffer_of_part[part] = buffers_.size();
        current[name] = buffers_.size();
        buffers_.push_back({name, {parts.begin(), parts.end()}, {}, 0});
        continue;
      }
      for (Symbol arg : op.args()) {
        const auto buffer = current.find(arg);
        if (buffer == current.end()) continue;
        std::vector<uint32_t>& accesses = buffers_[buffer->second].accesses;
        if (accesses.empty() || accesses.back() != i) accesses.push_back(i);
      }
      for (Symbol arg : op.args()) {
        const auto of = buffer_of_part.find(arg);
        if (of == buffer_of_part.end()) continue;
        Buffer& buffer = buffers_[of->second];
        if (!Has(op.args(), buffer.name)) buffer.last_of_parts = i;
      }
    }
    for (size_t b = 0; b < buffers_.size(); ++b) {
      by_name_[buffers_[b].name].push_back(b);
    }
    for (const Buffer& buffer : buffers_) VisitBuffer(buffer);
    by_name_.clear();
    distributed_.clear();
    named_.clear();
  }

  // The last op for which what accesses a part waits, as its place says.
  uint32_t TargetOf(const Buffer& buffer) const {
    const auto first = absl::c_find_if(
        buffer.accesses, [&](uint32_t i) { return Has(OpAt(i).input_args(), buffer.name); });
    if (first == buffer.accesses.end()) return 0;
    uint32_t target = *first;
    while (Communicates(OpAt(target)) && target + 1 < ops_.size() &&
           Communicates(OpAt(target + 1))) {
      ++target;
    }
    return target;
  }

  // Whether it writes all parts, too.
  bool NamesParts(const Op& op, const Buffer& buffer) const {
    return absl::c_all_of(buffer.parts, [&](Symbol part) { return Has(op.output_args(), part); });
  }

  void VisitBuffer(const Buffer& buffer) {
    const uint32_t target = TargetOf(buffer);
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
        absl::c_any_of(unordered, [this](uint32_t i) { return Communicates(OpAt(i)); });
    for (const uint32_t i : buffer.accesses) {
      const Op op = OpAt(i);
      const bool is_before =
          has_collective && !Communicates(op) && i <= target && Has(op.output_args(), buffer.name);
      const bool is_behind = absl::c_linear_search(unordered, i) && !Communicates(op);
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
      context_.Note(absl::StrCat(
          "warning: ", op.DebugName(), " changes ", program_.name(buffer.name),
          ", whose parts other ops access under their own names: Paddle's executor does not order "
          "the two; gradients one by one (no buckets) avoid that"));
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

  // Lets the last wait for a collective on the buffer name the parts, which an op behind it reads.
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
  PassContext& context_;
  Rewriter rewriter_;
  absl::Span<const OpId> ops_;  // of the block
  std::vector<Buffer> buffers_;
  absl::flat_hash_map<Symbol, std::vector<size_t>> by_name_;  // mostly one of a name
  absl::flat_hash_set<uint32_t> distributed_;                 // positions of ops
  absl::flat_hash_set<uint32_t> named_;                       // of waits that name parts now
};

}  // namespace

absl::StatusOr<bool> OrderPartsOfBuffers(Program* program, PassContext* context) {
  return PartOrderer(program, context).Run();
}

}  // namespace weft
