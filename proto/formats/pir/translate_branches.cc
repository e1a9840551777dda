#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/formats/pir/translator.h"
#include "proto/op_role.h"

namespace weft::pir {

absl::Status Translator::VisitIf(uint32_t i) {
  const std::vector<uint32_t> inner = BlocksOf(i);
  if (inner.size() != 2 || op(i).num_operands != 1 || operands(i)[0].value == kNoValue) {
    return absl::InvalidArgumentError("expected a condition and two blocks");
  }
  WEFT_ASSIGN_OR_RETURN(const VarIndex condition, vars_.Read(operands(i)[0].value));
  // Two helpers and two blocks read it, and two variables have its dims.
  WEFT_RETURN_IF_ERROR(Spend(4 * vars_[condition].name.size() +
                             2 * document_.value(operands(i)[0].value).type.size()));
  const std::string stem = StemOf(i, "if");
  // Paddle evaluates the condition once, and a block may overwrite it: all that depends on it comes
  // before the blocks.
  VarIndex runs[2] = {condition, condition};
  if (survey_.block_number[inner[1]] != Survey::kNoBlock) {
    runs[false] = NewTensor(stem + "_not", vars_[condition].type->dtype, condition);
    WriteHelper(i, "logical_not", {{"X", {condition}}}, {runs[false]});
  }
  const VarIndex mask = op(i).num_results == 0 ? kNoVar : MaskOf(i, condition, stem);
  std::vector<VarIndex> results[2];
  for (const bool holds : {true, false}) {
    const uint32_t block = inner[holds ? 0 : 1];
    const std::string block_stem = absl::StrCat(stem, holds ? "_true" : "_false");
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(op(i).first_result + r));
      if (!type->is_variable()) {
        return absl::InvalidArgumentError(
            absl::StrCat("result ", r, ": expected a value of a variable, found ",
                         document_.value(op(i).first_result + r).type.substr(0, 64)));
      }
      const VarIndex var = results[holds].emplace_back(vars_.New(absl::StrCat(block_stem, "_", r)));
      vars_[var].type = type;
    }
    if (survey_.block_number[block] == Survey::kNoBlock) {
      if (op(i).num_results == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat("block ", block, ": expected 2.yield of ",
                                                     op(i).num_results,
                                                     " values at its end, found nothing"));
    }
    WEFT_RETURN_IF_ERROR(VisitBranch(i, block, runs[holds], block_stem + "_scope", results[holds]));
  }
  return op(i).num_results == 0 ? absl::OkStatus() : SelectResults(i, mask, results);
}

std::vector<uint32_t> Translator::BlocksOf(uint32_t i) const {
  std::vector<uint32_t> blocks;
  for (uint32_t b = op(i).first_block; b < op(i).first_block + op(i).num_blocks; ++b) {
    if (document_.blocks()[b].parent == op(i).block) blocks.push_back(b);
  }
  return blocks;
}

std::string Translator::StemOf(uint32_t i, absl::string_view type) {
  if (op(i).num_results > 0) return absl::StrCat(type, "_", document_.value(op(i).first_result).id);
  const int64_t condition = document_.value(operands(i)[0].value).id;
  const int earlier = ops_of_condition_[condition]++;
  return absl::StrCat(type, "_cond_", condition, earlier == 0 ? "" : absl::StrCat("_", earlier));
}

VarIndex Translator::MaskOf(uint32_t i, VarIndex condition, const std::string& stem) {
  const VarIndex mask = NewTensor(stem + "_mask", pb::VarType::INT32, condition);
  attrs_.Add("in_dtype", pb::INT)->set_i(pb::VarType::BOOL);
  attrs_.Add("out_dtype", pb::INT)->set_i(pb::VarType::INT32);
  WriteHelper(i, "cast", {{"X", {condition}}}, {mask});
  return mask;
}

absl::Status Translator::SelectResults(uint32_t i, VarIndex mask,
                                       const std::vector<VarIndex> (&results)[2]) {
  attributes_.clear();
  for (uint32_t r = 0; r < op(i).num_results; ++r) {
    desc_.Clear();
    desc_.set_type("select_input");
    pb::OpDesc::Var* const x = AddSlot("X", desc_.mutable_inputs());
    for (const auto& of_block : results) x->add_arguments(vars_[of_block[r]].name);
    AddArgument("Mask", mask, desc_.mutable_inputs());
    WEFT_RETURN_IF_ERROR(AddResult(i, r, nullptr, "Out"));
    WEFT_RETURN_IF_ERROR(Add(i));
  }
  return absl::OkStatus();
}

absl::Status Translator::VisitBranch(uint32_t i, uint32_t block, VarIndex condition,
                                     const std::string& scope_name,
                                     const std::vector<VarIndex>& results) {
  const std::vector<uint32_t>& ops = document_.blocks()[block].ops;
  const bool yields = op(ops.back()).name == kYield;
  if ((yields ? op(ops.back()).num_operands : 0) != results.size()) {
    return absl::InvalidArgumentError(absl::StrCat("block ", block, ": expected 2.yield of ",
                                                   results.size(), " values at its end, found ",
                                                   document_.DebugName(ops.back())));
  }
  const int outer = vars_.block(), number = survey_.block_number[block];
  const size_t overwritten_before = overwritten_.size();
  vars_.set_block(number);
  WEFT_RETURN_IF_ERROR(VisitOps(block));
  desc_.Clear();
  for (size_t r = 0; r < results.size(); ++r) {
    const ValueIndex value = operands(ops.back())[r].value;
    if (value == kNoValue) return absl::InvalidArgumentError("2.yield of no value");
    WEFT_ASSIGN_OR_RETURN(const VarIndex from, vars_.Read(value));
    WEFT_RETURN_IF_ERROR(Spend(vars_[from].name.size()));
    WriteHelper(ops.back(), "assign", {{"X", {from}}}, {results[r]});
  }
  vars_.set_block(outer);
  std::vector<VarIndex> written = results;
  for (const VarIndex var : LeaveBranch(overwritten_before)) {
    WEFT_RETURN_IF_ERROR(Spend(vars_[var].name.size()));
    written.push_back(var);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<VarIndex> captured, CapturedBy(block));
  const VarIndex scope = vars_.New(scope_name);
  vars_[scope].is_scope = true;
  attrs_.Add("sub_block", pb::BLOCK)->set_block_idx(number);
  attrs_.Add("is_scalar_condition", pb::BOOLEAN)->set_b(true);
  AddArgument("Scope", scope, desc_.mutable_outputs());
  WriteHelper(i, "conditional_block", {{"Cond", {condition}}, {"Input", captured}}, written);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<VarIndex>> Translator::CapturedBy(uint32_t block) {
  const std::vector<uint32_t>& ops = document_.blocks()[block].ops;
  std::vector<VarIndex> captured;
  absl::flat_hash_set<VarIndex> seen;
  for (uint32_t k = ops[0]; k < document_.EndOf(ops.back()); ++k) {
    for (const Operand& operand : operands(k)) {
      for (const VarIndex var : VariablesOf(operand.value)) {
        // Blocks inside have greater numbers.
        const bool is_outer = vars_[var].block < survey_.block_number[block];
        if (!is_outer || !seen.insert(var).second) continue;
        WEFT_RETURN_IF_ERROR(Spend(vars_[var].name.size()));
        captured.push_back(var);
      }
    }
  }
  return captured;
}

absl::Status Translator::VisitWhile(uint32_t i) {
  const uint32_t block = op(i).first_block;
  const uint32_t num_values = op(i).num_results;
  const DocumentBlock* const body = BlocksOf(i).size() == 1 ? &document_.blocks()[block] : nullptr;
  const bool is_loop = body != nullptr && body->args.size() == num_values && !body->ops.empty() &&
                       op(body->ops.back()).name == kYield &&
                       op(body->ops.back()).num_operands == num_values + 1 &&
                       op(i).num_operands == num_values + 1;
  if (!is_loop) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected a condition, ", num_values,
        " values that its one block takes, and 2.yield of a condition and the next values"));
  }
  for (uint32_t k = 0; k <= num_values; ++k) {
    if (operands(i)[k].value == kNoValue) {
      return absl::InvalidArgumentError(absl::StrCat("operand ", k, " is none"));
    }
  }
  const std::string stem = StemOf(i, "while");
  std::vector<VarIndex> state;  // of the loop: the condition, and the values
  for (uint32_t k = 0; k <= num_values; ++k) {
    const ValueIndex value = operands(i)[k].value;
    WEFT_ASSIGN_OR_RETURN(const VarIndex from, vars_.Read(value));
    WEFT_RETURN_IF_ERROR(Spend(vars_[from].name.size()));
    state.push_back(vars_.New(k == 0 ? stem + "_condition" : absl::StrCat(stem, "_", k - 1)));
    // Of a value, that of the result, which may know less about its dims.
    vars_[state[k]].type = vars_[from].type;
    if (k > 0) {
      WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(op(i).first_result + k - 1));
      if (!type->is_variable()) {
        return absl::InvalidArgumentError(
            absl::StrCat("result ", k - 1, ": expected a value of a variable, found ",
                         document_.value(op(i).first_result + k - 1).type.substr(0, 64)));
      }
      vars_[state[k]].type = type;
      WEFT_RETURN_IF_ERROR(vars_.Define(body->args[k - 1], state[k], /*overwrites=*/false));
    }
    WriteHelper(i, "assign", {{"X", {from}}}, {state[k]});
  }
  const int outer = vars_.block(), number = survey_.block_number[block];
  const size_t overwritten_before = overwritten_.size();
  vars_.set_block(number);
  WEFT_RETURN_IF_ERROR(VisitOps(block));
  WEFT_RETURN_IF_ERROR(WriteNextState(body->ops.back(), stem, state));
  vars_.set_block(outer);
  std::vector<VarIndex> written = state;
  const absl::flat_hash_set<VarIndex> own(state.begin(), state.end());
  for (const VarIndex var : LeaveBranch(overwritten_before)) {
    if (own.contains(var)) continue;
    WEFT_RETURN_IF_ERROR(Spend(vars_[var].name.size()));
    written.push_back(var);
  }
  std::vector<VarIndex> read = state;
  WEFT_ASSIGN_OR_RETURN(const std::vector<VarIndex> captured, CapturedBy(block));
  for (const VarIndex var : captured) {
    if (!own.contains(var)) read.push_back(var);
  }
  const VarIndex scope = vars_.New(stem + "_scope");
  vars_[scope].is_scope = true;
  desc_.Clear();
  attrs_.Add("sub_block", pb::BLOCK)->set_block_idx(number);
  attrs_.Add("is_test", pb::BOOLEAN)->set_b(false);
  AddArgument("StepScopes", scope, desc_.mutable_outputs());
  WriteHelper(i, "while", {{"X", read}, {"Condition", {state[0]}}}, written);
  for (uint32_t r = 0; r < num_values; ++r) {
    WEFT_RETURN_IF_ERROR(vars_.Define(op(i).first_result + r, state[r + 1], /*overwrites=*/false));
  }
  return absl::OkStatus();
}

absl::Status Translator::WriteNextState(uint32_t yield, const std::string& stem,
                                        const std::vector<VarIndex>& state) {
  // All at once: a value may be that of another variable of the loop, before this is overwritten.
  const absl::flat_hash_set<VarIndex> own(state.begin(), state.end());
  std::vector<VarIndex> next;
  for (size_t k = 0; k < state.size(); ++k) {
    const ValueIndex value = operands(yield)[k].value;
    if (value == kNoValue) return absl::InvalidArgumentError("2.yield of no value");
    WEFT_ASSIGN_OR_RETURN(VarIndex var, vars_.Read(value));
    WEFT_RETURN_IF_ERROR(Spend(vars_[var].name.size()));
    if (var != state[k] && own.contains(var)) {
      const VarIndex copy = vars_.New(absl::StrCat(stem, "_next_", k));
      vars_[copy].type = vars_[var].type;
      WriteHelper(yield, "assign", {{"X", {var}}}, {copy});
      var = copy;
    }
    next.push_back(var);
  }
  for (size_t k = 0; k < state.size(); ++k) {
    if (next[k] != state[k]) WriteHelper(yield, "assign", {{"X", {next[k]}}}, {state[k]});
  }
  return absl::OkStatus();
}

absl::Status Translator::KeepWithBlocks(uint32_t i) {
  const size_t overwritten_before = overwritten_.size();
  std::vector<int> numbers;
  std::vector<VarIndex> captured;
  absl::flat_hash_set<VarIndex> seen;
  for (const uint32_t block : BlocksOf(i)) {
    if (survey_.block_number[block] == Survey::kNoBlock) continue;
    numbers.push_back(survey_.block_number[block]);
    WEFT_RETURN_IF_ERROR(KeepBlock(block));
    WEFT_ASSIGN_OR_RETURN(const std::vector<VarIndex> read, CapturedBy(block));
    for (const VarIndex var : read) {
      if (seen.insert(var).second) captured.push_back(var);
    }
  }
  const std::vector<VarIndex> written = LeaveBranch(overwritten_before);
  desc_.Clear();
  WEFT_ASSIGN_OR_RETURN(attributes_, ReadAttributes(op(i).attrs));
  WEFT_RETURN_IF_ERROR(Keep(i));
  pb::OpDesc::Var* const in = AddSlot("Captured", desc_.mutable_inputs());
  for (const VarIndex var : captured) in->add_arguments(vars_[var].name);
  pb::OpDesc::Var* const out = AddSlot("CapturedOut", desc_.mutable_outputs());
  for (const VarIndex var : written) {
    WEFT_RETURN_IF_ERROR(Spend(vars_[var].name.size()));
    out->add_arguments(vars_[var].name);
  }
  pb::OpDesc::Attr* const blocks = attrs_.Add("sub_blocks", pb::BLOCKS);
  for (const int number : numbers) blocks->add_blocks_idx(number);
  return Add(i);
}

absl::Status Translator::KeepBlock(uint32_t block) {
  const DocumentBlock& body = document_.blocks()[block];
  const int outer = vars_.block();
  vars_.set_block(survey_.block_number[block]);
  for (const ValueIndex arg : body.args) {
    WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(arg));
    if (!type->is_variable()) continue;
    // Ids of arguments are negative.
    const VarIndex var = vars_.New(absl::StrCat("argument_", -document_.value(arg).id));
    WEFT_RETURN_IF_ERROR(vars_.Define(arg, var, /*overwrites=*/false));
  }
  WEFT_RETURN_IF_ERROR(VisitOps(block));
  if (op(body.ops.back()).name == kYield) {
    desc_.Clear();
    attributes_.clear();
    WEFT_RETURN_IF_ERROR(Keep(body.ops.back()));
    WEFT_RETURN_IF_ERROR(Add(body.ops.back()));
  }
  vars_.set_block(outer);
  return absl::OkStatus();
}

std::vector<VarIndex> Translator::LeaveBranch(size_t overwritten_before) {
  std::vector<VarIndex> vars;
  absl::flat_hash_set<VarIndex> seen;
  for (size_t k = overwritten_before; k < overwritten_.size(); ++k) {
    if (seen.insert(overwritten_[k]).second) vars.push_back(overwritten_[k]);
  }
  overwritten_.resize(overwritten_before);
  for (const VarIndex var : vars) {
    if (vars_[var].block != vars_.block()) overwritten_.push_back(var);
  }
  return vars;
}

std::vector<VarIndex> Translator::VariablesOf(ValueIndex value) const {
  std::vector<VarIndex> all;
  if (value == kNoValue) return all;
  const uint32_t maker = document_.value(value).op;
  const auto list = members_.find(value);
  if (maker != kNoOp && op(maker).name == kCombineOp) {
    for (const Operand& element : operands(maker)) {
      if (element.value != kNoValue) all.push_back(vars_.Of(element.value));
    }
  } else if (list != members_.end()) {
    all = list->second;
  } else {
    all.push_back(vars_.Of(value));
  }
  all.erase(std::remove(all.begin(), all.end(), kNoVar), all.end());
  return all;
}

VarIndex Translator::NewTensor(const std::string& name, pb::VarType::Type dtype, VarIndex like) {
  const VarIndex var = vars_.New(name);
  auto type = std::make_shared<ValueType>(*vars_[like].type);
  type->dtype = dtype;
  vars_[var].type = std::move(type);
  return var;
}

void Translator::WriteHelper(
    uint32_t i, absl::string_view type,
    const std::vector<std::pair<absl::string_view, std::vector<VarIndex>>>& inputs,
    const std::vector<VarIndex>& outputs) {
  desc_.set_type(std::string(type));
  for (const auto& [slot, args] : inputs) {
    pb::OpDesc::Var* const in = AddSlot(slot, desc_.mutable_inputs());
    for (const VarIndex arg : args) in->add_arguments(vars_[arg].name);
  }
  pb::OpDesc::Var* const out = AddSlot("Out", desc_.mutable_outputs());
  for (const VarIndex arg : outputs) out->add_arguments(vars_[arg].name);
  attrs_.Add(kOpRoleAttr, pb::INT)->set_i(training_.roles[i] & ~kRoleLoss);
  blocks_.AddOp(vars_.block(), desc_, i);
  desc_.Clear();
}

}  // namespace weft::pir
