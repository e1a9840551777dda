#include "ops/analysis/streams/name_order.h"

#include <cstddef>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

bool ShareName(const Program& program, absl::Span<const Symbol> a, absl::Span<const Symbol> b) {
  return absl::c_any_of(a, [&](Symbol name) {
    return program.name(name) != kEmptyVarName && absl::c_linear_search(b, name);
  });
}

}  // namespace

NameOrder::NameOrder(const Program& program, const StreamSurvey& survey)
    : program_(program),
      survey_(survey),
      holders_(program.num_blocks()),
      blocks_(program.num_blocks()) {
  for (const Op& op : AllOps(program)) {
    for (int block : op.SubBlocks()) holders_[block] = op.id();
  }
}

const NameOrder::InBlock& NameOrder::Look(int block) {
  absl::optional<InBlock>& found = blocks_[block];
  if (found.has_value()) return *found;
  const absl::Span<const OpId> ops = program_.block(block).ops();
  InBlock in{std::vector<int>(ops.size()), std::vector<bool>(ops.size())};
  for (const StreamSurvey::SpecialOp& special : survey_.special(block)) {
    if (special.kind == StreamSurvey::SpecialOp::Kind::kStreamOp) {
      in.streams[special.position] = special.index;
    }
  }
  // The last op on the compute stream that reads or writes a name.
  absl::flat_hash_map<Symbol, size_t> last_read, last_write;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (in.streams[i] != 0) continue;
    const Op op = program_.op(ops[i]);
    for (Symbol name : op.input_args()) last_read[name] = i;
    for (Symbol name : op.output_args()) last_write[name] = i;
  }
  const auto is_after = [](const absl::flat_hash_map<Symbol, size_t>& last, Symbol name, size_t i) {
    const auto at = last.find(name);
    return at != last.end() && at->second > i;
  };
  std::vector<bool> is_ring_awaited(survey_.num_streams());
  for (size_t i = ops.size(); i-- > 0;) {
    if (in.streams[i] == 0) continue;
    const Op op = program_.op(ops[i]);
    const bool is_awaited =
        absl::c_any_of(op.output_args(),
                       [&](Symbol name) {
                         return is_after(last_read, name, i) || is_after(last_write, name, i);
                       }) ||
        absl::c_any_of(op.input_args(), [&](Symbol name) { return is_after(last_write, name, i); });
    if (is_awaited) is_ring_awaited[in.streams[i]] = true;
    in.are_awaited[i] = is_ring_awaited[in.streams[i]];
  }
  return found.emplace(std::move(in));
}

absl::optional<Op> NameOrder::OpIn(int block, OpId id) {
  Op op = program_.op(id);
  if (op.block() != block && IsOnRing(op)) return absl::nullopt;
  while (op.block() != block) {
    const OpId holder = holders_[op.block()];
    if (!holder.valid()) return absl::nullopt;
    op = program_.op(holder);
  }
  return op;
}

bool NameOrder::IsBefore(OpId first, OpId second) {
  for (int block = program_.op(first).block(); block >= 0;
       block = program_.block(block).parent_idx()) {
    const absl::optional<Op> a = OpIn(block, first), b = OpIn(block, second);
    if (!a.has_value() || !b.has_value()) continue;
    if (a->position() > b->position()) return IsOnRing(*a) && IsAwaited(a->id());  // a loop
    return a->id() != b->id() && (ShareName(program_, a->output_args(), b->input_args()) ||
                                  ShareName(program_, a->output_args(), b->output_args()) ||
                                  ShareName(program_, a->input_args(), b->output_args()));
  }
  return false;
}

bool NameOrder::IsAwaited(OpId op) {
  const Op of = program_.op(op);
  return Look(of.block()).are_awaited[of.position()];
}

}  // namespace weft
