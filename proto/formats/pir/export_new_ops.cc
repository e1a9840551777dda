// New ops in the order of the program, and the buffers that they share.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/buffer_slices.h"
#include "proto/formats/pir/export_ops.h"
#include "proto/formats/pir/op_table.h"

namespace weft::pir {

absl::Status Exporter::WriteNew(const Op& op) {
  switch (KindOf(op.type())) {
    case NewOpKind::kNone:
      if (absl::StartsWith(op.type(), "c_")) {
        return absl::UnimplementedError(
            "a pass has inserted this op, which Paddle 3 does not have; a file .pb holds it, for "
            "`weft run`; with option:passes, lower-to-target as the last writes ops that Paddle 3 "
            "has");
      }
      return absl::UnimplementedError(
          "a pass has inserted this op, and it has no form in PIR that Weft writes; a file .pb "
          "holds it, for `weft run`");
    case NewOpKind::kLeftOut:
      return Rename(op);
    case NewOpKind::kBuffer:
      return AddBuffer(op);
    case NewOpKind::kBranch:
      return WriteBranch(op);
    case NewOpKind::kWritten:
      break;
  }
  WEFT_RETURN_IF_ERROR(CheckOutputs(op));
  const auto fused = buffers_.find(op.output_args()[0]);
  if (fused != buffers_.end() && HasBoundPart(fused->second)) {
    return WriteForParts(op, fused->second);
  }
  std::vector<NewOpInput> inputs;
  for (Symbol arg : op.input_args()) {
    WEFT_RETURN_IF_ERROR(ConcatenateBuffer(arg));
    const auto buffer = buffers_.find(arg);
    if (buffer == buffers_.end()) WEFT_RETURN_IF_ERROR(SplitBufferOf(arg));
    WEFT_ASSIGN_OR_RETURN(const Current now, NowOf(arg));
    inputs.push_back({arg, now.id, now.type});
  }
  // What the op writes takes the place of the part in the buffer.
  for (Symbol out : op.output_args()) WEFT_RETURN_IF_ERROR(SplitBufferOf(out));
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<NewOp> ops,
      new_ops_.Translate(op, inputs, OutputOf(op.output_args()[0]), StreamOf(op)));
  WEFT_RETURN_IF_ERROR(Append(ops));
  for (size_t k = 0; k < op.output_args().size(); ++k) {
    SetCurrent(op.output_args()[k], ops.back().results[k], ops.back().types[k]);
  }
  const auto buffer = buffers_.find(op.output_args()[0]);
  if (buffer != buffers_.end()) buffer->second.id = ops.back().results[0];
  return absl::OkStatus();
}

absl::Status Exporter::Append(const NewOp& op) {
  if (!is_in_branch_) return writer_.AddNew(op.json);
  absl::StrAppend(&body_, body_.empty() ? "" : ",", op.json);
  return absl::OkStatus();
}

absl::Status Exporter::Append(const std::vector<NewOp>& ops) {
  for (const NewOp& op : ops) {
    if (IsCollective(op.name)) WEFT_RETURN_IF_ERROR(NoteCollective(op));
    WEFT_RETURN_IF_ERROR(Append(op));
  }
  return absl::OkStatus();
}

absl::StatusOr<Exporter::Current> Exporter::NowOf(Symbol var) {
  const Current now = CurrentOf(var);
  if (now.id != 0) return now;
  return absl::InvalidArgumentError(
      absl::StrCat("reads ", program_.name(var), ", which nothing has written"));
}

NewOpOutput Exporter::OutputOf(Symbol var) {
  NewOpOutput output;
  output.is_bound = is_bound_.contains(var);
  if (output.is_bound) {
    output.id = CurrentOf(var).id;
    output.type = std::string(CurrentOf(var).type);
  }
  const VarId declared = program_.block(0).FindVar(var);
  output.is_persistable =
      !output.is_bound && declared.valid() && program_.var(declared).persistable();
  return output;
}

bool Exporter::HasBoundPart(const Buffer& buffer) const {
  return absl::c_any_of(buffer.parts, [&](Symbol part) { return is_bound_.contains(part); });
}

absl::Status Exporter::WriteForParts(const Op& op, const Buffer& buffer) {
  if (op.input_args().size() != 1 || op.output_args().size() != 1 ||
      op.input_args()[0] != op.output_args()[0]) {
    return absl::UnimplementedError(absl::StrCat(
        "writes ", program_.name(op.output_args()[0]),
        ", a buffer of what outlives the step: expected an op in place, on the buffer alone"));
  }
  for (const Symbol part : buffer.parts) {
    WEFT_ASSIGN_OR_RETURN(const Current now, NowOf(part));
    const NewOpInput input = {op.output_args()[0], now.id, now.type};
    WEFT_ASSIGN_OR_RETURN(const std::vector<NewOp> ops,
                          new_ops_.Translate(op, {input}, OutputOf(part), StreamOf(op)));
    WEFT_RETURN_IF_ERROR(Append(ops));
    SetCurrent(part, ops.back().results[0], ops.back().types[0]);
  }
  return absl::OkStatus();
}

std::string Exporter::StreamOf(const Op& op) const {
  if (is_in_branch_ || (op.type() != "all_reduce" && op.type() != "all_gather")) return "";
  const int64_t ring = op.IntAttr("ring_id").value_or(0);
  return waiting_rings_.contains(ring) ? absl::StrCat("weft_ring_", ring) : "";
}

absl::Status Exporter::CheckOutputs(const Op& op) const {
  if (op.output_args().empty()) {
    return absl::UnimplementedError("expected outputs of an inserted op, found none");
  }
  const bool is_split = op.type() == "split" || op.output_args().size() > 1;
  for (Symbol out : op.output_args()) {
    if (is_split && is_bound_.contains(out)) {
      return absl::UnimplementedError(
          absl::StrCat("writes ", program_.name(out),
                       ", which outlives the step: expected an op with one output, and no split"));
    }
    const VarId var = program_.block(0).FindVar(out);
    if (!is_in_branch_ || !var.valid() || is_bound_.contains(out)) continue;
    return absl::UnimplementedError(absl::StrCat(
        "writes ", program_.name(out),
        " in a new block: expected a variable of the block, a parameter or state, as Paddle keeps "
        "the values of others"));
  }
  return absl::OkStatus();
}

void Exporter::SetCurrent(Symbol var, int64_t id, absl::string_view type) {
  types_.push_back(std::make_unique<std::string>(type));
  Replace(var, {id, *types_.back()});
}

absl::Status Exporter::Rename(const Op& op) {
  if (op.type() == "c_wait_compute") waiting_rings_.insert(op.IntAttr("ring_id").value_or(0));
  const auto in = op.input_args(), out = op.output_args();
  for (size_t k = 0; k < std::min(in.size(), out.size()); ++k) {
    if (in[k] == out[k]) continue;
    WEFT_RETURN_IF_ERROR(SplitBufferOf(in[k]));
    WEFT_RETURN_IF_ERROR(SplitBufferOf(out[k]));
    Copy(in[k], out[k]);
  }
  return absl::OkStatus();
}

absl::Status Exporter::AddBuffer(const Op& op) {
  const MadeBuffer made = MadeBufferOf(op);
  if (!made.name.valid() || made.parts.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected slots ", kBufferSlot, " and ", kPartsSlot));
  }
  Buffer& buffer = buffers_[made.name];
  for (Symbol part : made.parts) {
    buffer.parts.push_back(part);
    buffer_of_part_[part] = made.name;
    if (!CurrentOf(part).type.empty()) continue;
    // What takes the buffer apart makes the part.
    WEFT_ASSIGN_OR_RETURN(std::string type, DeclaredType(part, op.block()));
    types_.push_back(std::make_unique<std::string>(std::move(type)));
    CurrentOf(part).type = *types_.back();
  }
  return absl::OkStatus();
}

absl::Status Exporter::ConcatenateBuffer(Symbol var) {
  const auto found = buffers_.find(var);
  if (found == buffers_.end() || found->second.id != 0) return absl::OkStatus();
  // Taken apart again, the parts would be copies.
  if (HasBoundPart(found->second)) {
    return absl::UnimplementedError(
        absl::StrCat("reads ", program_.name(var),
                     ", a buffer of what outlives the step: expected an op in place, on the buffer "
                     "alone"));
  }
  std::vector<NewOpInput> parts;
  for (const Symbol part : found->second.parts) {
    WEFT_ASSIGN_OR_RETURN(const Current now, NowOf(part));
    parts.push_back({part, now.id, now.type});
  }
  WEFT_ASSIGN_OR_RETURN(const NewOp whole, new_ops_.Concatenate(parts, [this](const NewOp& made) {
    return Append(made);
  }));
  found->second.id = whole.results[0];
  SetCurrent(var, whole.results[0], whole.types[0]);
  return absl::OkStatus();
}

absl::Status Exporter::SplitBufferOf(Symbol part) {
  const auto owner = buffer_of_part_.find(part);
  if (owner == buffer_of_part_.end()) return absl::OkStatus();
  Buffer& buffer = buffers_.at(owner->second);
  if (buffer.id == 0) return absl::OkStatus();
  std::vector<NewOpInput> parts;
  for (const Symbol symbol : buffer.parts) parts.push_back({symbol, 0, CurrentOf(symbol).type});
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<int64_t> ids,
      new_ops_.Split(buffer.id, parts, [this](const NewOp& made) { return Append(made); }));
  buffer.id = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    Replace(parts[k].var, {ids[k], CurrentOf(parts[k].var).type});
  }
  return absl::OkStatus();
}

}  // namespace weft::pir
