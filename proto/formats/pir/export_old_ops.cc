#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "ops/schema/across_ranks.h"
#include "proto/formats/pir/attribute_json.h"
#include "proto/formats/pir/attributes.h"
#include "proto/formats/pir/export_ops.h"
#include "proto/formats/pir/op_table.h"
#include "proto/formats/pir/survey.h"
#include "proto/formats/pir/value_type.h"
#include "proto/op_role.h"
#include "proto/snake_case_slots.h"

namespace weft::pir {

absl::StatusOr<SerializedProgram> Exporter::Run() {
  WEFT_RETURN_IF_ERROR(CheckBlocks());
  PlaceCompanions();
  for (OpId id : program_.block(0).ops()) {
    const Op op = program_.op(id);
    if (id.value() >= import_.op_of_id.size() || IsUnchanged(op)) continue;
    const absl::Status status = TakeChanges(op);
    if (!status.ok()) return Annotate(op.DebugName(), status);
  }
  FindDropped();
  PlaceSinks();
  WEFT_RETURN_IF_ERROR(DeclareState());
  // What ops inserted before the first one read is declared there.
  const auto first = absl::c_find(is_op_of_file_, true);
  WEFT_RETURN_IF_ERROR(WriteRange(0, first - is_op_of_file_.begin()));
  int64_t num_visited = 0;
  for (OpId id : program_.block(0).ops()) {
    const Op op = program_.op(id);
    const absl::Status status = Visit(op);
    if (!status.ok()) return Annotate(op.DebugName(), status);
    // Otherwise, all of the file that was read would be in memory beside what is written.
    constexpr int kOpsOfAPart = 1 << 14;
    if (++num_visited % kOpsOfAPart == 0) document_.file().Unload();
  }
  WEFT_RETURN_IF_ERROR(WriteRange(companions_end_, document_.ops().size()));
  return writer_.Finish();
}

absl::Status Exporter::CheckBlocks() const {
  for (int block = 1; block < import_.num_blocks; ++block) {
    uint32_t next = import_.end_of_block[block - 1];
    const uint32_t end = import_.end_of_block[block];
    for (OpId id : program_.block(block).ops()) {
      const bool is_next = next < end && id.value() == next;
      next += is_next ? 1 : 0;
      if (is_next && IsUnchanged(program_.op(id))) continue;
      return absl::UnimplementedError(absl::StrCat(
          program_.op(id).DebugName(),
          ": a pass has written or moved this op in a block of the file; PIR files are written "
          "with ops inserted in the root block and in new blocks only"));
    }
    if (next == end) continue;
    return absl::UnimplementedError(
        absl::StrCat("a pass has erased ", document_.DebugName(import_.op_of_id[next]),
                     " from a block of the file; PIR files are written with inserted ops only"));
  }
  return absl::OkStatus();
}

bool Exporter::IsUnchanged(const Op& op) const {
  const size_t id = op.id().value();
  return id < import_.op_of_id.size() && op.bytes().data() == import_.BytesOf(id).data();
}

namespace {

// The rule of an op that computes across ranks what that of the file computes on one device: the
// same results and attributes, and some of its operands. Null: the op is another one, or an operand
// that it needs is left out.
const OpRule* RuleAcrossRanks(const OpRule& rule, absl::string_view desc_type,
                              absl::Span<const Operand> operands) {
  const OpRule* const other = FindRuleOfDesc(desc_type);
  const bool is_across_ranks = other != nullptr && TypeOnOneDevice(desc_type) == rule.desc;
  if (!is_across_ranks || other->attrs != rule.attrs) return nullptr;
  const auto has_same_name = [](const auto& a, const auto& b) { return a.name == b.name; };
  if (!absl::c_equal(rule.results, other->results, has_same_name)) return nullptr;
  size_t next = 0;
  for (size_t k = 0; k < std::min(operands.size(), rule.operands.size()); ++k) {
    if (next == other->operands.size()) break;
    const OperandRule& operand = other->operands[next];
    if (operand.name != rule.operands[k].name) continue;
    if (operands[k].value == kNoValue && !operand.optional) return nullptr;
    ++next;
  }
  return next == other->operands.size() ? other : nullptr;
}

// An operand in the list of operands, with the comma before it.
absl::string_view ElementText(absl::string_view bytes, absl::string_view id) {
  size_t begin = bytes.rfind('{', id.data() - bytes.data());
  while (begin > 0 && bytes[begin - 1] != ',' && bytes[begin - 1] != '[') --begin;
  if (begin > 0 && bytes[begin - 1] == ',') --begin;
  return bytes.substr(begin, bytes.find('}', begin) + 1 - begin);
}

}  // namespace

absl::Status Exporter::TakeChanges(const Op& op) {
  const absl::Status refused = absl::UnimplementedError(
      "a pass has changed this op; PIR files are written with inserted ops, and with ops that read "
      "or write other variables; write a .pb file");
  const size_t id = op.id().value();
  const uint32_t i = import_.op_of_id[id];
  const auto is_part = [&](size_t other) {
    return other < import_.op_of_id.size() && import_.op_of_id[other] == i;
  };
  if (is_part(id - 1) || is_part(id + 1) || !Translates(document_, i)) return refused;
  pb::OpDesc before, after = op.ToProto();
  const absl::string_view bytes = import_.BytesOf(id);
  if (!before.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return refused;
  ToCamelCaseSlots(&before);
  const OpRule& rule = *FindRule(document_.op(i).name);
  if (before.type() != rule.desc || before.inputs_size() != after.inputs_size()) return refused;
  if (after.type() != before.type()) {
    const OpRule* const other =
        RuleAcrossRanks(rule, after.type(), document_.operands(document_.op(i)));
    if (other == nullptr) return refused;
    retyped_[i] = other;
    before.set_type(after.type());
  }
  for (int slot = 0; slot < before.inputs_size(); ++slot) {
    const pb::OpDesc::Var &old = before.inputs(slot), &now = after.inputs(slot);
    if (old.parameter() != now.parameter()) return refused;
    if (old.SerializeAsString() == now.SerializeAsString()) continue;
    const auto operand = absl::c_find_if(rule.operands, [&](const OperandRule& found) {
      return found.target == old.parameter() &&
             (found.kind == OperandRule::Kind::kTensor || found.kind == OperandRule::Kind::kList);
    });
    if (operand == rule.operands.end()) return refused;
    const Operand& of_file = document_.operands(document_.op(i))[operand - rule.operands.begin()];
    Renamed& renamed = renamed_[of_file.id_begin];
    renamed.is_list = operand->kind == OperandRule::Kind::kList;
    for (const std::string& name : now.arguments()) {
      renamed.vars.push_back(program_.FindSymbol(name));
    }
    if (!renamed.is_list && renamed.vars.size() != 1) return refused;
  }
  if (before.outputs_size() != after.outputs_size()) return refused;
  for (int slot = 0; slot < before.outputs_size(); ++slot) {
    const pb::OpDesc::Var &old = before.outputs(slot), &now = after.outputs(slot);
    if (old.SerializeAsString() == now.SerializeAsString()) continue;
    const auto result = absl::c_find_if(
        rule.results, [&](const ResultRule& found) { return found.slot == old.parameter(); });
    if (result == rule.results.end() || old.parameter() != now.parameter()) return refused;
    const auto place = static_cast<uint32_t>(result - rule.results.begin());
    if (place >= document_.op(i).num_results) return refused;
    std::vector<Symbol> vars;
    for (const std::string& name : now.arguments()) vars.push_back(program_.FindSymbol(name));
    if (result->in_place_of >= 0) {
      // What it overwrites are other variables, too.
      const Operand& of_file = document_.operands(document_.op(i))[result->in_place_of];
      const auto renamed = renamed_.find(of_file.id_begin);
      const bool overwrites = renamed != renamed_.end() &&
                              renamed->second.is_list == result->is_list &&
                              renamed->second.vars == vars;
      if (!overwrites) return refused;
    } else if (result->is_list || old.arguments_size() != 1 || vars.size() != 1) {
      return refused;
    }
    const ValueIndex value = document_.op(i).first_result + place;
    if (result->is_list) {
      renamed_lists_[value] = std::move(vars);
    } else {
      renamed_results_[value] = vars[0];
    }
  }
  for (pb::OpDesc* const desc : {&before, &after}) {
    desc->clear_inputs();
    desc->clear_outputs();
    // Names the variables once more, and is not in the file.
    auto* const attrs = desc->mutable_attrs();
    attrs->erase(std::remove_if(attrs->begin(), attrs->end(),
                                [](const auto& attr) { return attr.name() == kOpRoleVarAttr; }),
                 attrs->end());
  }
  return before.SerializeAsString() == after.SerializeAsString() ? absl::OkStatus() : refused;
}

// --- Order ---------------------------------------------------------------------------------------

void Exporter::PlaceSinks() {
  absl::flat_hash_map<Symbol, uint32_t> last_writer;
  for (OpId id : program_.block(0).ops()) {
    const Op op = program_.op(id);
    for (Symbol arg : op.output_args()) last_writer[arg] = id.value();
    // One that copies: what it reads has another name already.
    if (id.value() >= import_.op_of_id.size()) continue;
    const uint32_t i = import_.op_of_id[id.value()];
    if (IsSink(document_.op(i).name) && IsUnchanged(op)) named_by_sink_[i] = op.output_args()[0];
  }
  for (uint32_t i = 0; i < document_.ops().size(); ++i) {
    if (document_.op(i).block != 0 || !IsSink(document_.op(i).name) || is_dropped_[i]) continue;
    const ValueIndex value = document_.operands(document_.op(i))[0].value;
    const auto copy = named_by_sink_.find(i);
    const auto found = last_writer.find(
        copy != named_by_sink_.end() ? copy->second : import_.variable_of_value[value]);
    if (found == last_writer.end() || found->second < import_.op_of_id.size()) continue;
    sinks_behind_[found->second].push_back(i);
    is_deferred_.emplace(i, true);
  }
}

void Exporter::PlaceCompanions() {
  std::vector<bool> is_op(document_.ops().size(), false);
  for (OpId id : program_.block(0).ops()) {
    if (id.value() < import_.op_of_id.size()) is_op[import_.op_of_id[id.value()]] = true;
  }
  is_op_of_file_.assign(document_.ops().size(), false);
  for (const uint32_t i : import_.op_of_id) is_op_of_file_[i] = true;
  companions_of_.assign(is_op.size(), 0);
  uint32_t first = 0;
  for (uint32_t i = 0; i < is_op.size(); ++i) {
    if (!is_op[i]) continue;
    companions_of_[i] = first;
    first = i + 1;
  }
  companions_end_ = first;
}

bool Exporter::OutlivesStep(Symbol var) const {
  const VarId declared = program_.block(0).FindVar(var);
  return declared.valid() && program_.var(declared).persistable();
}

void Exporter::FindDropped() {
  std::vector<bool> is_present(document_.ops().size(), false);
  for (OpId id : program_.block(0).ops()) {
    if (id.value() < import_.op_of_id.size()) is_present[import_.op_of_id[id.value()]] = true;
  }
  is_dropped_.assign(is_present.size(), false);
  for (uint32_t i = 0; i < is_present.size(); ++i) {
    const DocumentOp op = document_.op(i);
    if (op.block != 0) continue;
    const auto var = [&] { return import_.variable_of_value[op.first_result]; };
    if (op.name == "p" && !OutlivesStep(var())) {
      const absl::StatusOr<Parameter> parameter = ReadParameter(op);
      is_dropped_[i] = parameter.ok() && parameter->persistable;
    }
    if (op.name == "1.data") is_dropped_[i] = !program_.block(0).FindVar(var()).valid();
    drops_any_ |= is_dropped_[i];
  }
  const bool drops_declarations = drops_any_;
  // By value: whether ops read it, and whether those that stay do.
  std::vector<bool> was_used(document_.values().size(), false), is_used = was_used;
  for (uint32_t i = static_cast<uint32_t>(is_present.size()); i-- > 0;) {
    const DocumentOp op = document_.op(i);
    if (op.block != 0 || op.name == "p" || op.name == "1.data") continue;
    if (is_op_of_file_[i]) {
      is_dropped_[i] = !is_present[i];
    } else if (IsSink(op.name)) {
      is_dropped_[i] = !OutlivesStep(import_.variable_of_value[document_.operands(op)[0].value]);
    } else {
      // Without a dropped declaration, constants that nothing reads stay as they are. With one,
      // they may read it.
      bool had_readers = drops_declarations, has_readers = false;
      for (uint32_t r = 0; r < op.num_results; ++r) {
        had_readers = had_readers || was_used[op.first_result + r];
        has_readers = has_readers || is_used[op.first_result + r];
      }
      is_dropped_[i] = had_readers && !has_readers;
    }
    drops_any_ |= is_dropped_[i];
    for (uint32_t k = i; k < document_.EndOf(i); ++k) {
      for (const Operand& operand : document_.operands(document_.op(k))) {
        if (operand.value == kNoValue) continue;
        was_used[operand.value] = true;
        const bool is_read = !is_dropped_[i] && !renamed_.contains(operand.id_begin);
        if (is_read) is_used[operand.value] = true;
      }
    }
  }
}

absl::Status Exporter::WriteRange(uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; ++i) {
    const DocumentOp op = document_.op(i);
    if (is_dropped_[i] && op.name == "p") {
      // Inserted ops make the variable, of the same type.
      CurrentOf(import_.variable_of_value[op.first_result]).type =
          document_.value(op.first_result).type;
    }
    if (op.block != 0 || is_op_of_file_[i] || is_written_[i] || is_dropped_[i] ||
        is_deferred_.contains(i)) {
      continue;
    }
    // A list of parameters that are taken out of a buffer now.
    for (const Operand& operand : document_.operands(op)) {
      if (!drops_any_ || operand.value == kNoValue) continue;
      const Symbol var = import_.variable_of_value[operand.value];
      if (var.valid()) WEFT_RETURN_IF_ERROR(SplitBufferOf(var));
    }
    WEFT_RETURN_IF_ERROR(WriteOld(i));
  }
  return absl::OkStatus();
}

absl::Status Exporter::Visit(const Op& op) {
  const size_t id = op.id().value();
  if (id >= import_.op_of_id.size()) {
    WEFT_RETURN_IF_ERROR(WriteNew(op));
    NoteInserted(op);
  } else {
    const uint32_t i = import_.op_of_id[id];
    if (is_written_[i]) return CheckPart(op);
    WEFT_RETURN_IF_ERROR(WriteRange(companions_of_[i], i));
    for (Symbol arg : op.args()) WEFT_RETURN_IF_ERROR(SplitBufferOf(arg));
    if (named_by_sink_.contains(i)) Copy(op.input_args()[0], op.output_args()[0]);
    if (!is_deferred_.contains(i)) WEFT_RETURN_IF_ERROR(WriteOld(i));
  }
  const auto sinks = sinks_behind_.find(static_cast<uint32_t>(id));
  if (sinks != sinks_behind_.end()) {
    for (const uint32_t i : sinks->second) WEFT_RETURN_IF_ERROR(WriteOld(i));
  }
  return NameState(op.id());
}

void Exporter::NoteInserted(const Op& op) {
  for (Symbol arg : op.input_args()) read_since_.insert(arg);
  for (Symbol arg : op.output_args()) written_since_.insert(arg);
}

absl::Status Exporter::CheckPart(const Op& op) const {
  const auto check = [&](absl::Span<const Symbol> args, const absl::flat_hash_set<Symbol>& since) {
    const auto* const found =
        absl::c_find_if(args, [&](Symbol arg) { return since.contains(arg); });
    if (found == args.end()) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("a part of a 1.if or 1.while of the file, after an inserted op on ",
                     program_.name(*found), ": expected inserted ops before or after all parts"));
  };
  WEFT_RETURN_IF_ERROR(check(op.args(), written_since_));
  return check(op.output_args(), read_since_);
}

// --- Ops of the file -----------------------------------------------------------------------------

Exporter::Current& Exporter::CurrentOf(Symbol var) { return current_[var.value()]; }

void Exporter::Replace(Symbol var, const Current& with) {
  CurrentOf(var) = with;
  is_replaced_[var.value()] = true;
}

void Exporter::Copy(Symbol from, Symbol to) {
  const Current value = CurrentOf(from);
  Replace(to, value);
}

absl::StatusOr<int64_t> Exporter::IdNow(ValueIndex value) {
  const Value& old = document_.value(value);
  const Symbol var = import_.variable_of_value[value];
  // Otherwise, the id of the file stands, also after ops in place. Paddle may write over what an
  // op in place has made, but not over what is persistable.
  if (var.valid() && is_replaced_[var.value()]) return CurrentOf(var).id;
  const absl::string_view made_by = old.op == kNoOp ? "" : document_.op(old.op).name;
  if (made_by != kCombineOp) return old.id;
  // A list of what its elements are now.
  std::vector<int64_t> ids;
  for (const Operand& element : document_.operands(document_.op(old.op))) {
    WEFT_ASSIGN_OR_RETURN(ids.emplace_back(), element.value == kNoValue ? 0 : IdNow(element.value));
  }
  auto& [list_ids, list] = lists_[value];
  if (list == 0) {
    list_ids = ids;
    list = old.id;
  } else if (list_ids != ids) {
    WEFT_ASSIGN_OR_RETURN(NewOp op, new_ops_.Make(kCombineOp, ids, {}, {std::string(old.type)}));
    WEFT_RETURN_IF_ERROR(Append(op));
    list_ids = ids;
    list = op.results[0];
  }
  return list;
}

absl::StatusOr<int64_t> Exporter::IdNow(const Renamed& operand) {
  std::vector<int64_t> ids;
  std::vector<std::string> types;
  for (const Symbol var : operand.vars) {
    WEFT_ASSIGN_OR_RETURN(const Current now, NowOf(var));
    ids.push_back(now.id);
    types.emplace_back(now.type);
  }
  if (!operand.is_list) return ids[0];
  WEFT_ASSIGN_OR_RETURN(const NewOp list,
                        new_ops_.Make(kCombineOp, ids, {}, {ListTypeJson(types)}));
  WEFT_RETURN_IF_ERROR(Append(list));
  return list.results[0];
}

std::vector<Operand> Exporter::OperandsOf(uint32_t i) const {
  std::vector<Operand> all;
  const uint32_t end = document_.op(i).num_blocks == 0 ? i + 1 : document_.EndOf(i);
  for (uint32_t k = i; k < end; ++k) {
    for (const Operand& operand : document_.operands(document_.op(k))) {
      if (operand.value != kNoValue) all.push_back(operand);
    }
  }
  absl::c_sort(all, [](const Operand& a, const Operand& b) { return a.id_begin < b.id_begin; });
  return all;
}

std::vector<std::string> Exporter::TypesOf(const std::vector<Symbol>& vars) const {
  std::vector<std::string> types;
  for (const Symbol var : vars) types.emplace_back(current_[var.value()].type);
  return types;
}

absl::Status Exporter::SplitRenamedList(uint32_t i, ValueIndex value,
                                        const std::vector<Symbol>& vars) {
  WEFT_ASSIGN_OR_RETURN(const NewOp elements,
                        new_ops_.Make(kSplitOp, {document_.value(value).id}, {}, TypesOf(vars)));
  WEFT_RETURN_IF_ERROR(Append(elements));
  for (size_t k = 0; k < vars.size(); ++k) {
    SetCurrent(vars[k], elements.results[k], elements.types[k]);
  }
  // That of the file has other elements.
  for (uint32_t next = document_.EndOf(i); next < document_.ops().size(); ++next) {
    const DocumentOp op = document_.op(next);
    if (op.name != kSplitOp) break;
    if (document_.operands(op)[0].value == value) is_written_[next] = true;
  }
  return absl::OkStatus();
}

Symbol Exporter::VariableOf(ValueIndex result) const {
  const auto renamed = renamed_results_.find(result);
  return renamed != renamed_results_.end() ? renamed->second : import_.variable_of_value[result];
}

absl::StatusOr<std::string> Exporter::DeclaredType(Symbol var, int block) const {
  const VarId declared = program_.block(block).Resolve(var);
  if (!declared.valid() || program_.var(declared).type() != pb::VarType::LOD_TENSOR) {
    return absl::UnimplementedError(
        absl::StrCat(program_.name(var), ": expected a variable that is a dense tensor"));
  }
  const pb::VarType::TensorDesc tensor =
      program_.var(declared).ToProto().type().lod_tensor().tensor();
  return TensorTypeJson(tensor.data_type(), {tensor.dims().begin(), tensor.dims().end()});
}

absl::StatusOr<std::string> Exporter::NewTypeOf(const Value& result, Symbol var) const {
  WEFT_ASSIGN_OR_RETURN(const ValueType type, ReadType(result.type));
  if (type.kind != ValueType::Kind::kTensor) return std::string();
  WEFT_ASSIGN_OR_RETURN(std::string declared, DeclaredType(var));
  WEFT_ASSIGN_OR_RETURN(const ValueType now, ReadType(declared));
  return now.dtype == type.dtype && now.dims == type.dims ? std::string() : std::move(declared);
}

absl::Status Exporter::EditResults(const DocumentOp& op,
                                   std::vector<DocumentWriter::Edit>* edits) const {
  for (uint32_t r = 0; r < op.num_results; ++r) {
    const Value& result = document_.results(op)[r];
    const auto list = renamed_lists_.find(op.first_result + r);
    if (list != renamed_lists_.end()) {
      edits->push_back({result.type, ListTypeJson(TypesOf(list->second))});
      continue;
    }
    const auto renamed = renamed_results_.find(op.first_result + r);
    if (renamed == renamed_results_.end()) continue;
    WEFT_ASSIGN_OR_RETURN(std::string type, NewTypeOf(result, renamed->second));
    if (!type.empty()) edits->push_back({result.type, std::move(type)});
  }
  if (!drops_any_ || op.name == "p" || op.result_attrs.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ReadAttributes(op.result_attrs));
  const Attribute* const persistable = FindAttribute("persistable", attributes);
  if (persistable == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> before, FlagsOf(*persistable));
  std::vector<bool> after = before;
  for (uint32_t r = 0; r < std::min<size_t>(op.num_results, after.size()); ++r) {
    const Symbol var = VariableOf(op.first_result + r);
    if (var.valid() && program_.block(0).FindVar(var).valid()) {
      after[r] = before[r] && OutlivesStep(var);
    }
  }
  if (after != before) edits->push_back({persistable->data, FlagsJson(after)});
  return absl::OkStatus();
}

absl::Status Exporter::WriteOne(uint32_t i) {
  const DocumentOp& op = document_.op(i);
  is_written_[i] = true;
  std::vector<DocumentWriter::Edit> edits;
  const auto retyped = retyped_.find(i);
  const OpRule* const other = retyped == retyped_.end() ? nullptr : retyped->second;
  if (other != nullptr) {
    edits.push_back({op.name, std::string(other->pir)});
    const OpRule& rule = *FindRule(op.name);
    for (size_t k = 0; k < rule.operands.size(); ++k) {
      if (other->FindOperand(rule.operands[k].name) >= 0) continue;
      const Operand& dropped = document_.operands(op)[k];
      edits.push_back({ElementText(document_.bytes(), document_.IdText(dropped)), ""});
    }
  }
  const auto is_dropped = [edits](absl::string_view id) {
    return absl::c_any_of(edits, [id](const DocumentWriter::Edit& edit) {
      return edit.now.empty() && edit.old.data() <= id.data() &&
             id.data() < edit.old.data() + edit.old.size();
    });
  };
  const std::vector<Operand> all = OperandsOf(i);
  for (const Operand& operand : all) {
    const uint32_t maker = document_.value(operand.value).op;
    if (maker != kNoOp && maker > i) continue;  // made in one of its blocks
    const absl::string_view id_text = document_.IdText(operand);
    if (is_dropped(id_text)) continue;
    const auto copy = named_by_sink_.find(i);
    const bool is_copy = copy != named_by_sink_.end();
    if (IsSink(op.name) || op.num_blocks > 0) {
      const Symbol var = is_copy ? copy->second : import_.variable_of_value[operand.value];
      if (var.valid()) WEFT_RETURN_IF_ERROR(SplitBufferOf(var));
    }
    int64_t id;
    const auto renamed = renamed_.find(operand.id_begin);
    if (renamed != renamed_.end()) {
      WEFT_ASSIGN_OR_RETURN(id, IdNow(renamed->second));
    } else if (is_copy) {
      id = CurrentOf(copy->second).id;
    } else {
      WEFT_ASSIGN_OR_RETURN(id, IdNow(operand.value));
    }
    if (id != document_.value(operand.value).id) edits.push_back({id_text, absl::StrCat(id)});
  }
  WEFT_RETURN_IF_ERROR(EditResults(op, &edits));
  absl::c_sort(edits, [](const DocumentWriter::Edit& a, const DocumentWriter::Edit& b) {
    return a.old.data() < b.old.data();
  });
  WEFT_RETURN_IF_ERROR(writer_.AddOld(i, edits));
  if (op.name == kCombineOp && op.num_results == 1) {
    auto& [ids, list] = lists_[op.first_result];
    ids.clear();
    for (const Operand& element : document_.operands(op)) {
      WEFT_ASSIGN_OR_RETURN(ids.emplace_back(),
                            element.value == kNoValue ? 0 : IdNow(element.value));
    }
    list = document_.value(op.first_result).id;
  }
  for (uint32_t k = i; k < (op.num_blocks == 0 ? i + 1 : document_.EndOf(i)); ++k) {
    const bool is_collective = IsCollective(document_.op(k).name) ||
                               (k == i && other != nullptr && IsCollective(other->pir));
    if (is_collective) WEFT_RETURN_IF_ERROR(NoteOldCollective(i, k));
  }
  for (uint32_t r = 0; r < op.num_results; ++r) {
    const Value& result = document_.results(op)[r];
    const auto renamed_list = renamed_lists_.find(op.first_result + r);
    if (renamed_list != renamed_lists_.end()) {
      WEFT_RETURN_IF_ERROR(SplitRenamedList(i, op.first_result + r, renamed_list->second));
      continue;
    }
    const Symbol var = VariableOf(op.first_result + r);
    if (!var.valid()) continue;
    // What is inserted reads the persistable value, as ops of the file do.
    if (IsInPlace(op.name) && is_bound_.contains(var)) continue;
    if (renamed_results_.contains(op.first_result + r)) {
      WEFT_ASSIGN_OR_RETURN(const std::string type, NewTypeOf(result, var));
      SetCurrent(var, result.id, type.empty() ? result.type : type);
      continue;
    }
    CurrentOf(var) = {result.id, result.type};
    if (op.name == "p" || op.name == "1.data") is_bound_.insert(var);
  }
  return absl::OkStatus();
}

absl::Status Exporter::WriteOld(uint32_t i) {
  WEFT_RETURN_IF_ERROR(WriteOne(i));
  read_since_.clear();
  written_since_.clear();
  if (document_.op(i).name == kCombineOp) return absl::OkStatus();
  for (uint32_t next = document_.EndOf(i); next < document_.ops().size(); ++next) {
    const DocumentOp& op = document_.op(next);
    if (op.block != 0 || op.name != kSplitOp) return absl::OkStatus();
    if (!is_written_[next]) WEFT_RETURN_IF_ERROR(WriteOne(next));
  }
  return absl::OkStatus();
}

}  // namespace weft::pir
