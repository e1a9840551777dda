#include "proto/rewriter.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/program_checks.h"
#include "proto/program_indexer.h"
#include "proto/snake_case_slots.h"
#include "proto/wire_format.h"

namespace weft {

// What a commit has indexed and checked, but not yet added to blocks.
struct Rewriter::Staged {
  // Sizes before the commit, for Rollback.
  size_t num_ops = 0, num_vars = 0, num_args = 0, num_blocks = 0;

  struct Placed {
    Position position;
    OpId anchor;
    int block;
    OpId id;  // a staged op, or the op that moves here
  };
  std::vector<Placed> placed;                       // in the order of the calls
  std::vector<std::pair<OpId, OpId>> replacements;  // op, staged record
  std::vector<OpId> erased;
  std::vector<std::pair<VarId, VarId>> replaced_vars;  // variable, staged record
  std::vector<VarId> new_vars;
  absl::flat_hash_set<OpId> edited;        // replaced, erased or moved
  absl::flat_hash_set<OpId> leaves_place;  // erased or moved
};

void Rewriter::InsertBefore(OpId anchor, const pb::OpDesc& op) {
  insertions_.push_back({Position::kBefore, anchor, -1, OpId(), Serialize(op)});
}
void Rewriter::InsertAfter(OpId anchor, const pb::OpDesc& op) {
  insertions_.push_back({Position::kAfter, anchor, -1, OpId(), Serialize(op)});
}
void Rewriter::Prepend(int block, const pb::OpDesc& op) {
  insertions_.push_back({Position::kBlockBegin, OpId(), block, OpId(), Serialize(op)});
}
void Rewriter::Append(int block, const pb::OpDesc& op) {
  insertions_.push_back({Position::kBlockEnd, OpId(), block, OpId(), Serialize(op)});
}
void Rewriter::MoveBefore(OpId op, OpId anchor) {
  insertions_.push_back({Position::kBefore, anchor, -1, op, {}});  // no bytes: op moves
}
void Rewriter::Replace(OpId op, const pb::OpDesc& with) { edits_.push_back({op, Serialize(with)}); }
void Rewriter::Erase(OpId op) { edits_.push_back({op, {}}); }

int Rewriter::AddBlock(int parent) {
  new_blocks_.push_back(parent);
  return program_.num_blocks() + static_cast<int>(new_blocks_.size()) - 1;
}

void Rewriter::AddVar(int block, const pb::VarDesc& var) {
  var_edits_.push_back({/*is_new=*/true, VarId(), block, Serialize(var)});
}
void Rewriter::ReplaceVar(VarId var, const pb::VarDesc& with) {
  var_edits_.push_back({/*is_new=*/false, var, -1, Serialize(with)});
}

Rewriter::Bytes Rewriter::Serialize(const google::protobuf::MessageLite& message,
                                    int field_number) {
  const google::protobuf::MessageLite* written = &message;
  pb::OpDesc renamed;
  if (field_number == pb::BlockDesc::kOpsFieldNumber) {
    const auto& op = static_cast<const pb::OpDesc&>(message);
    if (HasSnakeCaseSlots(op.type())) {
      renamed = op;
      ToSnakeCaseSlots(&renamed);
      written = &renamed;
    }
  }
  std::string& field =
      bytes_.emplace_back(wire::FieldHeader(field_number, written->ByteSizeLong()));
  const auto header_size = static_cast<uint8_t>(field.size());
  written->AppendPartialToString(&field);
  return {field, header_size};
}

absl::Status Rewriter::Commit() {
  Staged staged;
  staged.num_ops = program_.ops_.size();
  staged.num_vars = program_.vars_.size();
  staged.num_args = program_.args_.size();
  staged.num_blocks = program_.blocks_.size();
  const absl::Status status = Stage(&staged);
  // New records and names point into these bytes, including names of a commit that fails.
  program_.owners_.push_back(std::make_shared<std::deque<std::string>>(std::move(bytes_)));
  if (status.ok()) {
    Apply(staged);
  } else {
    Rollback(staged);
  }
  bytes_.clear();
  insertions_.clear();
  edits_.clear();
  var_edits_.clear();
  erased_vars_.clear();
  new_blocks_.clear();
  return status;
}

absl::Status Rewriter::Stage(Staged* staged) {
  WEFT_RETURN_IF_ERROR(StageBlocks());
  WEFT_RETURN_IF_ERROR(StageVars(staged));
  WEFT_RETURN_IF_ERROR(StageErasedVars(*staged));
  WEFT_RETURN_IF_ERROR(StageEdits(staged));
  WEFT_RETURN_IF_ERROR(StageInsertions(staged));
  bool new_sub_blocks = false;
  for (size_t i = staged->num_ops; i < program_.ops_.size(); ++i) {
    const size_t edit = i - staged->num_ops;  // replacements come first
    const OpId replaced =
        edit < staged->replacements.size() ? staged->replacements[edit].first : OpId();
    WEFT_RETURN_IF_ERROR(CheckNewOp(OpId(static_cast<uint32_t>(i)), replaced));
    new_sub_blocks |= (program_.ops_[i].flags & Program::kHasSubBlocks) != 0;
  }
  if (new_sub_blocks) WEFT_RETURN_IF_ERROR(CheckSubBlocks(*staged));
  return erased_vars_.empty() ? absl::OkStatus() : CheckErasedVars(*staged);
}

absl::Status Rewriter::StageBlocks() {
  for (int parent : new_blocks_) {
    WEFT_RETURN_IF_ERROR(CheckBlock(parent, "a block in it"));
    int depth = 1;
    for (int b = parent; b > 0; b = program_.blocks_[b].parent_idx) ++depth;
    if (depth > Program::kMaxBlockDepth) {
      return absl::InvalidArgumentError(
          absl::StrCat("a new block would stand deeper than ", Program::kMaxBlockDepth, " blocks"));
    }
    pb::BlockDesc desc;
    desc.set_idx(program_.num_blocks());
    desc.set_parent_idx(parent);
    Program::BlockRecord record;
    record.changed = true;
    record.parent_idx = parent;
    record.head.push_back(bytes_.emplace_back(desc.SerializeAsString()));
    program_.blocks_.push_back(std::move(record));
  }
  return absl::OkStatus();
}

absl::Status Rewriter::StageVars(Staged* staged) {
  ProgramIndexer indexer(&program_);
  absl::flat_hash_map<VarId, bool> replaced;
  for (const VarEdit& edit : var_edits_) {
    if (!edit.is_new && edit.replaces.value() >= staged->num_vars) {
      return absl::InvalidArgumentError("a variable to replace does not exist");
    }
    const int block = edit.is_new ? edit.block : program_.record(edit.replaces).block;
    WEFT_RETURN_IF_ERROR(CheckBlock(block, "a variable"));
    WEFT_ASSIGN_OR_RETURN(const VarId id,
                          indexer.AddVar(edit.var.field, edit.var.header_size, block));
    if (edit.is_new) {
      WEFT_RETURN_IF_ERROR(indexer.LinkVar(id));
      staged->new_vars.push_back(id);
      continue;
    }
    const Var before = program_.var(edit.replaces);
    if (before.name_symbol() != program_.record(id).name) {
      return absl::InvalidArgumentError(absl::StrCat("variable ", absl::CEscape(before.name()),
                                                     ": its replacement is called ",
                                                     absl::CEscape(program_.var(id).name())));
    }
    if (!replaced.emplace(edit.replaces, true).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable ", absl::CEscape(before.name()), " is replaced twice"));
    }
    staged->replaced_vars.push_back({edit.replaces, id});
  }
  return absl::OkStatus();
}

absl::Status Rewriter::StageErasedVars(const Staged& staged) {
  absl::flat_hash_set<VarId> edited;
  for (const auto& replaced : staged.replaced_vars) edited.insert(replaced.first);
  for (VarId id : erased_vars_) {
    if (!id.valid() || id.value() >= staged.num_vars ||
        program_.block(program_.record(id).block).FindVar(program_.record(id).name) != id) {
      return absl::InvalidArgumentError("a variable to erase does not exist");
    }
    if (!edited.insert(id).second) {
      return absl::InvalidArgumentError(absl::StrCat("variable ",
                                                     absl::CEscape(program_.var(id).name()),
                                                     ": more than one edit replaces or erases it"));
    }
  }
  return absl::OkStatus();
}

absl::Status Rewriter::StageEdits(Staged* staged) {
  ProgramIndexer indexer(&program_);
  for (const OpEdit& edit : edits_) {
    const bool erase = edit.with.field.empty();
    WEFT_RETURN_IF_ERROR(CheckLive(edit.op, *staged, erase ? "to erase" : "to replace"));
    if (!staged->edited.insert(edit.op).second) return EditedTwice(edit.op);
    if (erase) {
      staged->leaves_place.insert(edit.op);
      staged->erased.push_back(edit.op);
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(const OpId id, indexer.AddOp(edit.with.field, edit.with.header_size,
                                                       program_.record(edit.op).block));
    staged->replacements.push_back({edit.op, id});
  }
  return absl::OkStatus();
}

absl::Status Rewriter::StageInsertions(Staged* staged) {
  ProgramIndexer indexer(&program_);
  for (const Insertion& insertion : insertions_) {
    Staged::Placed placed{insertion.position, insertion.anchor, insertion.block, insertion.moves};
    if (insertion.position == Position::kBefore || insertion.position == Position::kAfter) {
      WEFT_RETURN_IF_ERROR(CheckLive(insertion.anchor, *staged, "to insert beside"));
      placed.block = program_.record(insertion.anchor).block;
    } else {
      WEFT_RETURN_IF_ERROR(CheckBlock(insertion.block, "an op"));
    }
    if (insertion.op.field.empty()) {
      WEFT_RETURN_IF_ERROR(CheckLive(insertion.moves, *staged, "to move"));
      if (!staged->edited.insert(insertion.moves).second) return EditedTwice(insertion.moves);
      staged->leaves_place.insert(insertion.moves);
      if (program_.record(insertion.moves).block != placed.block) {
        return absl::InvalidArgumentError(
            absl::StrCat(program_.op(insertion.moves).DebugName(), ": cannot move to before ",
                         program_.op(insertion.anchor).DebugName(), " in another block"));
      }
    } else {
      WEFT_ASSIGN_OR_RETURN(
          placed.id, indexer.AddOp(insertion.op.field, insertion.op.header_size, placed.block));
    }
    staged->placed.push_back(placed);
  }
  return absl::OkStatus();
}

// `replaced` is invalid for an op that replaces none. Paddle leaves arguments in gradient ops of
// blocks that nobody declares; a replacement may keep them.
absl::Status Rewriter::CheckNewOp(OpId id, OpId replaced) const {
  const Op op = program_.op(id);
  const Block block = program_.block(op.block());
  const auto where = [&] {
    return absl::StrCat("new op ", absl::CEscape(op.type()), " in block ", block.idx(), ": ");
  };
  for (Symbol arg : op.args()) {
    if (block.Resolve(arg).valid() || program_.name(arg) == kEmptyVarName) continue;
    if (replaced.valid() && absl::c_linear_search(program_.op(replaced).args(), arg)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where(), "variable ", absl::CEscape(program_.name(arg)), " is not declared"));
  }
  for (int sub : op.SubBlocks()) {
    if (sub < 1 || sub >= program_.num_blocks()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where(), "sub-block ", sub, " does not exist"));
    }
  }
  return absl::OkStatus();
}

// Checks that no op names an erased variable: neither those that stay nor new ones.
absl::Status Rewriter::CheckErasedVars(const Staged& staged) const {
  const absl::flat_hash_set<VarId> erased(erased_vars_.begin(), erased_vars_.end());
  absl::flat_hash_set<OpId> gone(staged.erased.begin(), staged.erased.end());
  for (const auto& replacement : staged.replacements) gone.insert(replacement.first);
  for (uint32_t i = 0; i < program_.ops_.size(); ++i) {
    const Op op = program_.op(OpId(i));
    if ((program_.record(op.id()).flags & Program::kDead) != 0 || gone.contains(op.id())) continue;
    const Block block = program_.block(op.block());
    for (Symbol arg : op.args()) {
      if (!erased.contains(block.Resolve(arg))) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(i < staged.num_ops ? op.DebugName() : absl::StrCat("new op ", op.type()),
                       " names ", absl::CEscape(program_.name(arg)), ", a variable to erase"));
    }
  }
  return absl::OkStatus();
}

// Checks all ops with sub-blocks: an edit may make a block contain itself.
absl::Status Rewriter::CheckSubBlocks(const Staged& staged) const {
  absl::flat_hash_set<OpId> gone(staged.erased.begin(), staged.erased.end());
  for (const auto& replacement : staged.replacements) gone.insert(replacement.first);
  std::vector<OpId> ops;
  for (uint32_t i = 0; i < program_.ops_.size(); ++i) {
    const OpId id(i);
    const uint8_t flags = program_.record(id).flags;
    if ((flags & Program::kHasSubBlocks) == 0 || (flags & Program::kDead) != 0) continue;
    if (!gone.contains(id)) ops.push_back(id);
  }
  return weft::CheckSubBlocks(program_, ops);
}

absl::Status Rewriter::CheckBlock(int block, absl::string_view what) const {
  if (block >= 0 && block < program_.num_blocks()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("block ", block, " for ", what,
                                                 " does not exist; the program has ",
                                                 program_.num_blocks(), " blocks"));
}

absl::Status Rewriter::CheckLive(OpId id, const Staged& staged, absl::string_view what) const {
  if (!id.valid() || id.value() >= staged.num_ops ||
      (program_.record(id).flags & Program::kDead) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the op ", what, " does not exist"));
  }
  return absl::OkStatus();
}

absl::Status Rewriter::EditedTwice(OpId id) const {
  return absl::InvalidArgumentError(absl::StrCat(
      program_.op(id).DebugName(), ": more than one edit replaces, erases or moves it"));
}

void Rewriter::Rollback(const Staged& staged) {
  for (auto it = staged.new_vars.rbegin(); it != staged.new_vars.rend(); ++it) {
    const Program::VarRecord& var = program_.record(*it);
    if (var.block == 0) {
      program_.root_vars_.Mutable(var.name.value()) = VarId();
    } else {
      program_.inner_vars_.erase({var.block, var.name});
    }
  }
  program_.ops_.resize(staged.num_ops);
  program_.positions_.resize(staged.num_ops);
  program_.vars_.resize(staged.num_vars);
  program_.args_.resize(staged.num_args);
  program_.blocks_.resize(staged.num_blocks);
}

void Rewriter::Apply(const Staged& staged) {
  if (!empty()) ++program_.revision_;
  PlaceNewBlocks(staged);
  std::vector<bool> block_changed(program_.num_blocks(), false);
  for (VarId id : staged.new_vars) {
    const int block = program_.record(id).block;
    program_.blocks_[block].vars.push_back(id);
    block_changed[block] = true;
  }
  for (const auto& [var, with] : staged.replaced_vars) {
    Program::VarRecord& record = program_.vars_.Mutable(var.value());
    record = program_.record(with);
    block_changed[record.block] = true;
  }
  RemoveVars(&block_changed);
  for (const auto& [op, with] : staged.replacements) {
    program_.ops_.Mutable(op.value()) = program_.record(with);
    program_.ops_.Mutable(with.value()).flags |= Program::kDead;
    block_changed[program_.record(op).block] = true;
  }
  std::vector<bool> order_changed(program_.num_blocks(), false);
  for (OpId id : staged.erased) order_changed[program_.record(id).block] = true;
  for (const Staged::Placed& placed : staged.placed) order_changed[placed.block] = true;
  ReorderBlocks(staged, order_changed);
  for (OpId id : staged.erased) {
    program_.ops_.Mutable(id.value()).flags |= Program::kDead;
    program_.positions_[id.value()] = Op::kNoPosition;
  }

  for (int i = 0; i < program_.num_blocks(); ++i) {
    if (!block_changed[i] && !order_changed[i]) continue;
    program_.blocks_[i].changed = true;
    program_.changed_ = true;
  }
}

void Rewriter::RemoveVars(std::vector<bool>* block_changed) {
  if (erased_vars_.empty()) return;
  for (VarId id : erased_vars_) {
    const Program::VarRecord& var = program_.record(id);
    (*block_changed)[var.block] = true;
    if (var.block == 0) {
      program_.root_vars_.Mutable(var.name.value()) = VarId();
    } else {
      program_.inner_vars_.erase({var.block, var.name});
    }
  }
  const absl::flat_hash_set<VarId> erased(erased_vars_.begin(), erased_vars_.end());
  for (Program::BlockRecord& block : program_.blocks_) {
    block.vars.erase(std::remove_if(block.vars.begin(), block.vars.end(),
                                    [&](VarId id) { return erased.contains(id); }),
                     block.vars.end());
  }
}

// Adds new blocks after the last block of the file.
void Rewriter::PlaceNewBlocks(const Staged& staged) {
  if (new_blocks_.empty()) return;
  std::vector<Program::TopLevelField>& fields = program_.top_level_;
  auto last = std::find_if(fields.rbegin(), fields.rend(),
                           [](const Program::TopLevelField& field) { return field.block >= 0; });
  auto at = last.base();
  for (int i = static_cast<int>(staged.num_blocks); i < program_.num_blocks(); ++i) {
    Program::TopLevelField field;
    field.block = i;
    at = fields.insert(at, field) + 1;
  }
  program_.changed_ = true;
}

// Writes the new order of every block whose order changes, and the positions of its ops. Insertions
// form a chain for each anchor or block end, in the order of the calls. O(ops + insertions).
void Rewriter::ReorderBlocks(const Staged& staged, const std::vector<bool>& order_changed) {
  constexpr uint32_t kNone = 0xffffffffu;
  const std::vector<Staged::Placed>& placed = staged.placed;
  std::vector<uint32_t> next(placed.size(), kNone);
  struct Chains {
    uint32_t before = kNone, after = kNone;
  };
  absl::flat_hash_map<OpId, Chains> at_op;
  std::vector<Chains> at_block(program_.num_blocks());
  std::vector<bool> is_anchor(staged.num_ops, false);
  // From the last to the first, so that a chain begins with its first call.
  for (size_t i = placed.size(); i-- > 0;) {
    const Staged::Placed& p = placed[i];
    const bool beside_op = p.position == Position::kBefore || p.position == Position::kAfter;
    Chains& chains = beside_op ? at_op[p.anchor] : at_block[p.block];
    if (beside_op) is_anchor[p.anchor.value()] = true;
    uint32_t& head = p.position == Position::kBefore || p.position == Position::kBlockBegin
                         ? chains.before
                         : chains.after;
    next[i] = head;
    head = static_cast<uint32_t>(i);
  }
  std::vector<OpId> order;
  const auto put = [&](uint32_t i) {
    for (; i != kNone; i = next[i]) order.push_back(placed[i].id);
  };
  for (int b = 0; b < program_.num_blocks(); ++b) {
    if (!order_changed[b]) continue;
    std::vector<OpId>& ops = program_.blocks_[b].ops;
    order.clear();
    order.reserve(ops.size() + placed.size());
    put(at_block[b].before);
    for (OpId id : ops) {
      const Chains chains = is_anchor[id.value()] ? at_op.find(id)->second : Chains();
      put(chains.before);
      if (staged.leaves_place.empty() || !staged.leaves_place.contains(id)) order.push_back(id);
      put(chains.after);
    }
    put(at_block[b].after);
    ops = order;
    for (uint32_t i = 0; i < ops.size(); ++i) program_.positions_[ops[i].value()] = i;
  }
}

}  // namespace weft
