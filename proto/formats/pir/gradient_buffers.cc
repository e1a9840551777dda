#include "proto/formats/pir/gradient_buffers.h"

#include "absl/strings/string_view.h"
#include "proto/formats/pir/dataflow.h"
#include "proto/formats/pir/losses.h"
#include "proto/formats/pir/op_table.h"

namespace weft::pir {

void GradientBuffers::Follow(uint32_t i) {
  const DocumentOp& op = document_.op(i);
  const ValueIndex from = OperandOf(document_, i, 0);
  if (from == kNoValue || op.num_results == 0) return;
  const absl::string_view name = BaseName(op.name);
  if (name == "concat" && MakerName(document_, from) == kCombineOp) {
    buffers_[op.first_result] = {from, /*is_gathered=*/false};
  } else if (name == "all_gather") {
    buffers_[op.first_result] = {from, /*is_gathered=*/true};
  } else if (op.name == kSplitOp) {
    TakeApart(i);
  } else if (IsLinear(name) || name == "split" || name == "split_with_num") {
    Keep(from, op.first_result);
  }
}

void GradientBuffers::Keep(ValueIndex from, ValueIndex to) {
  const auto found = buffers_.find(from);
  if (found == buffers_.end()) return;
  const Buffer buffer = found->second;
  buffers_[to] = buffer;
}

void GradientBuffers::TakeApart(uint32_t i) {
  const DocumentOp& op = document_.op(i);
  const auto found = buffers_.find(OperandOf(document_, i, 0));
  if (found == buffers_.end()) return;
  const Buffer& buffer = found->second;
  const uint32_t list = buffer.is_gathered ? kNoOp : MakerOf(document_, buffer.of);
  if (list != kNoOp && document_.op(list).num_operands != op.num_results) return;
  for (uint32_t r = 0; r < op.num_results; ++r) {
    const ValueIndex part = op.first_result + r;
    const ValueIndex origin = list == kNoOp ? buffer.of : OperandOf(document_, list, r);
    const bool is_same =
        origin != kNoValue && document_.value(origin).type == document_.value(part).type;
    if (is_same) origins_[part] = origin;
  }
}

ValueIndex GradientBuffers::OriginOf(ValueIndex part) const {
  const auto found = origins_.find(part);
  return found == origins_.end() ? kNoValue : found->second;
}

}  // namespace weft::pir
