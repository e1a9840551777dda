// New state, and new blocks that run on some steps.
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/formats/pir/attribute_json.h"
#include "proto/formats/pir/export_ops.h"
#include "proto/formats/pir/op_table.h"
#include "proto/formats/pir/value_type.h"

namespace weft::pir {

// --- State ---------------------------------------------------------------------------------------

absl::Status Exporter::DeclareState() {
  struct State {
    VarId var;
    uint32_t last_writer = 0;
    bool is_touched = false, is_made = false;
  };
  absl::flat_hash_map<Symbol, State> states;
  std::vector<Symbol> order;
  for (VarId id : program_.block(0).vars()) {
    const Var var = program_.var(id);
    if (id.value() < import_.num_vars || !var.persistable()) continue;
    states[var.name_symbol()].var = id;
    order.push_back(var.name_symbol());
  }
  if (states.empty()) return absl::OkStatus();
  for (OpId id : program_.block(0).ops()) {
    const Op op = program_.op(id);
    // What only such ops use, as the id of a communicator, has no value in the file.
    if (KindOf(op.type()) == NewOpKind::kLeftOut) continue;
    for (Symbol arg : op.input_args()) {
      const auto found = states.find(arg);
      if (found != states.end()) found->second.is_touched = true;
    }
    for (Symbol arg : op.output_args()) {
      const auto found = states.find(arg);
      if (found == states.end()) continue;
      if (!std::exchange(found->second.is_touched, true)) found->second.is_made = true;
      found->second.last_writer = id.value();
    }
  }
  for (const Symbol name : order) {
    const State& state = states.at(name);
    if (!state.is_touched) continue;
    const pb::VarDesc desc = program_.var(state.var).ToProto();
    if (desc.is_parameter() || desc.type().type() != pb::VarType::LOD_TENSOR) {
      return absl::UnimplementedError(
          absl::StrCat(program_.name(name),
                       ": expected a new persistable variable to be a dense tensor and no "
                       "parameter"));
    }
    if (state.is_made) {
      state_behind_[state.last_writer].push_back(name);
      continue;
    }
    const pb::VarType::TensorDesc& tensor = desc.type().lod_tensor().tensor();
    const std::vector<int64_t> dims(tensor.dims().begin(), tensor.dims().end());
    WEFT_ASSIGN_OR_RETURN(const std::string type, TensorTypeJson(tensor.data_type(), dims));
    WEFT_ASSIGN_OR_RETURN(const absl::string_view dtype, DTypeName(tensor.data_type()));
    WEFT_ASSIGN_OR_RETURN(const NewOp data,
                          new_ops_.Make("1.data", {},
                                        {StringJson("name", program_.name(name)), ShapeJson(dims),
                                         DTypeJson(dtype), AnyPlaceJson()},
                                        {type}, /*is_persistable=*/true));
    WEFT_RETURN_IF_ERROR(Append(data));
    SetCurrent(name, data.results[0], data.types[0]);
    is_bound_.insert(name);
  }
  return absl::OkStatus();
}

absl::Status Exporter::NameState(OpId op) {
  const auto named = state_behind_.find(op.value());
  if (named == state_behind_.end()) return absl::OkStatus();
  for (const Symbol var : named->second) {
    WEFT_ASSIGN_OR_RETURN(const NewOp sink,
                          new_ops_.Make("0.shadow_output", {CurrentOf(var).id},
                                        {StringJson("output_name", program_.name(var))}, {}));
    WEFT_RETURN_IF_ERROR(Append(sink));
  }
  return absl::OkStatus();
}

// --- Blocks --------------------------------------------------------------------------------------

absl::Status Exporter::WriteBranch(const Op& op) {
  const auto condition = op.Input("Cond");
  const std::vector<int> blocks = op.SubBlocks();
  if (is_in_branch_ || condition.size() != 1 || blocks.size() != 1 ||
      blocks[0] < import_.num_blocks || !op.BoolAttr("is_scalar_condition").value_or(false)) {
    return absl::UnimplementedError(
        "expected a condition of one element, and a new block in the root block");
  }
  for (Symbol arg : op.args()) WEFT_RETURN_IF_ERROR(SplitBufferOf(arg));
  WEFT_ASSIGN_OR_RETURN(const Current holds, NowOf(condition[0]));
  struct Value {
    Symbol var;
    Current now;
    bool is_replaced;
  };
  std::vector<Value> around;
  std::vector<Symbol> made_before;  // of the step: bound in the block only
  for (Symbol arg : op.Output("Out")) {
    if (CurrentOf(arg).id == 0 && program_.block(0).FindVar(arg).valid()) {
      WEFT_ASSIGN_OR_RETURN(const std::string type, DeclaredType(arg));
      WEFT_ASSIGN_OR_RETURN(const NewOp zeros, new_ops_.Zeros(type));
      WEFT_RETURN_IF_ERROR(Append(zeros));
      SetCurrent(arg, zeros.results[0], type);
      is_made_for_blocks_.insert(arg);
    }
    if (is_made_for_blocks_.contains(arg) && is_bound_.insert(arg).second) {
      made_before.push_back(arg);
    }
    if (is_bound_.contains(arg)) around.push_back({arg, CurrentOf(arg), is_replaced_[arg.value()]});
  }
  is_in_branch_ = true;
  body_.clear();
  WEFT_RETURN_IF_ERROR(WriteBody(blocks[0]));
  is_in_branch_ = false;
  for (const Value& value : around) {
    CurrentOf(value.var) = value.now;
    is_replaced_[value.var.value()] = value.is_replaced;
  }
  for (Symbol var : made_before) is_bound_.erase(var);
  if (is_behind_collectives_ && !around.empty()) last_collective_ = around[0].now;
  const auto region = [this](absl::string_view ops) {
    const size_t number = num_blocks_++;
    return absl::StrCat(R"({"#":"region_)", number, R"(","blocks":[{"#":"block_)", number,
                        R"(","args":[],"ops":[)", ops, "]}]}");
  };
  const std::string holding = region(body_), otherwise = region("");
  return writer_.AddNew(absl::StrCat(R"({"#":"1.if","A":[],"I":[{"%":)", holds.id,
                                     R"(}],"O":[],"OA":[],"regions":[)", holding, ",", otherwise,
                                     "]}"));
}

absl::Status Exporter::WriteBody(int block) {
  const auto ops = program_.block(block).ops();
  const bool communicates = absl::c_any_of(ops, [&](OpId id) {
    const OpRule* const rule = FindRuleOfDesc(program_.op(id).type());
    return rule != nullptr && IsCollective(rule->pir);
  });
  if (communicates && last_collective_.id != 0) {
    WEFT_ASSIGN_OR_RETURN(const NewOp reads,
                          new_ops_.Make(kCombineOp, {last_collective_.id}, {},
                                        {ListTypeJson({std::string(last_collective_.type)})}));
    WEFT_RETURN_IF_ERROR(Append(reads));
  }
  for (OpId id : ops) {
    const Op op = program_.op(id);
    const absl::Status status = WriteNew(op);
    if (!status.ok()) return Annotate(op.DebugName(), status);
  }
  is_behind_collectives_ = is_behind_collectives_ || communicates;
  is_behind_new_block_ = is_behind_new_block_ || communicates;
  return absl::OkStatus();
}

// --- Collectives ---------------------------------------------------------------------------------

absl::Status Exporter::NoteCollective(const NewOp& op) {
  if (is_in_branch_) return absl::OkStatus();
  has_new_collective_ = true;
  if (is_behind_collectives_) return OutOfOrder();
  types_.push_back(std::make_unique<std::string>(op.types[0]));
  last_collective_ = {op.results[0], *types_.back()};
  return absl::OkStatus();
}

absl::Status Exporter::OutOfOrder() {
  return absl::UnimplementedError(
      "a collective after a block with collectives: data does not order them, and Paddle orders "
      "collectives of one block only");
}

absl::Status Exporter::NoteOldCollective(uint32_t outer, uint32_t inner) {
  // Those of the file among themselves have the order that they had.
  if (is_behind_new_block_) return OutOfOrder();
  if (outer != inner) {
    is_behind_collectives_ = true;
    if (!has_new_collective_) return absl::OkStatus();
    return absl::UnimplementedError(absl::StrCat(
        document_.DebugName(inner),
        ", a collective in a block, after one that a pass has inserted: data does not order them, "
        "and Paddle orders collectives of one block only"));
  }
  const DocumentOp& op = document_.op(outer);
  if (op.num_results == 0) return absl::OkStatus();
  last_collective_ = {document_.results(op)[0].id, document_.results(op)[0].type};
  return absl::OkStatus();
}

}  // namespace weft::pir
