#include "proto/program_indexer.h"

#include <climits>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/byte_pieces.h"
#include "proto/program_checks.h"
#include "proto/wire_format.h"

namespace weft {
namespace {

using ::weft::wire::LengthDelimited;
using ::weft::wire::Varint;

constexpr uint32_t kProgramBlocks = LengthDelimited(pb::ProgramDesc::kBlocksFieldNumber);
constexpr uint32_t kBlockIdx = Varint(pb::BlockDesc::kIdxFieldNumber);
constexpr uint32_t kBlockParentIdx = Varint(pb::BlockDesc::kParentIdxFieldNumber);
constexpr uint32_t kBlockVars = LengthDelimited(pb::BlockDesc::kVarsFieldNumber);
constexpr uint32_t kBlockOps = LengthDelimited(pb::BlockDesc::kOpsFieldNumber);
constexpr uint32_t kBlockForwardIdx = Varint(pb::BlockDesc::kForwardBlockIdxFieldNumber);

// How many names wait for their place in the hash table to arrive in the cache.
constexpr size_t kBatch = 64;

// Appends a name to a key, its length before it: different lists have different keys.
void PutName(uint32_t kind, uint32_t number, absl::string_view name, std::string* key) {
  const uint32_t head[3] = {kind, number, static_cast<uint32_t>(name.size())};
  key->append(reinterpret_cast<const char*>(head), sizeof(head));
  key->append(name.data(), name.size());
}

}  // namespace

absl::Status ProgramIndexer::IndexProgram() {
  const absl::string_view bytes = program_.bytes_;
  if (bytes.size() > INT_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("the program has ", bytes.size(),
                                                   " bytes; protobuf messages end at ", INT_MAX));
  }
  if (bytes.empty()) return absl::InvalidArgumentError("the program is empty: no blocks");
  WEFT_RETURN_IF_ERROR(CountAndReserve());

  wire::MessageStream in(bytes);
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = wire::NextTag(&in);
    if (tag == 0) break;
    if (tag == kProgramBlocks) {
      absl::string_view payload;
      if (!wire::ReadBytes(&in, &payload)) return MalformedAt("", begin);
      program_.top_level_.push_back({program_.num_blocks(), {}});
      WEFT_RETURN_IF_ERROR(ReadBlock(bytes.substr(begin, in.CurrentPosition() - begin), payload));
    } else {
      if (!wire::SkipField(&in, tag)) return MalformedAt("", begin);
      const absl::string_view field = bytes.substr(begin, in.CurrentPosition() - begin);
      if (!wire::IsWellFormed<pb::ProgramDesc>(field)) return MalformedAt("", begin);
      program_.top_level_.push_back({-1, field});
    }
  }
  if (!wire::AtEnd(&in)) return MalformedAt("", in.CurrentPosition());
  Flush();

  for (uint32_t i = 0; i < program_.vars_.size(); ++i) WEFT_RETURN_IF_ERROR(LinkVar(VarId(i)));
  WEFT_RETURN_IF_ERROR(CheckParents(program_));
  WEFT_RETURN_IF_ERROR(CheckSubBlocks(program_, ops_with_sub_blocks_));
  return CheckNames();
}

// One quick pass over the boundaries of ops and variables, so that the big vectors are allocated
// once: growing by doubling would cost half as much memory again.
absl::Status ProgramIndexer::CountAndReserve() {
  const absl::string_view bytes = program_.bytes_;
  wire::MessageStream in(bytes);
  size_t num_ops = 0, num_vars = 0;
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = wire::NextTag(&in);
    if (tag == 0) break;
    if (tag != kProgramBlocks) {
      if (!wire::SkipField(&in, tag)) return MalformedAt("", begin);
      continue;
    }
    wire::MessageScope block(&in);
    if (!block.ok()) return MalformedAt("block", begin);
    while (true) {
      const int field_begin = in.CurrentPosition();
      const uint32_t field = wire::NextTag(&in);
      if (field == 0) break;
      num_ops += field == kBlockOps;
      num_vars += field == kBlockVars;
      if (!wire::SkipField(&in, field)) {
        return MalformedAt(absl::StrCat("block at byte ", begin), field_begin);
      }
    }
    if (!wire::AtEnd(&in)) return MalformedAt("", in.CurrentPosition());
  }
  program_.ops_.reserve(num_ops);
  program_.vars_.reserve(num_vars);
  // Slots and attributes take most of an op: programs have an argument for every 40 bytes or fewer.
  program_.args_.reserve(num_ops == 0 ? 0 : bytes.size() / 40);
  program_.symbols_.Reserve(num_vars + num_vars / 64 + 64);
  return absl::OkStatus();
}

absl::Status ProgramIndexer::ReadBlock(absl::string_view field, absl::string_view payload) {
  const int number = program_.num_blocks();
  const std::string where = absl::StrCat("block ", number);
  const auto malformed = [&](size_t at) { return MalformedAt(where, FileOffset(payload) + at); };
  Program::BlockRecord block;
  block.field = field;
  std::vector<absl::string_view>* others = &block.head;
  int idx = 0;
  bool has_idx = false, has_parent = false;

  wire::MessageStream in(payload);
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = wire::NextTag(&in);
    if (tag == 0) break;
    if (tag == kBlockVars || tag == kBlockOps) {
      absl::string_view message;
      if (!wire::ReadBytes(&in, &message)) return malformed(begin);
      const char* field_begin = payload.data() + begin;
      const auto header_size = static_cast<uint8_t>(message.data() - field_begin);
      if (tag == kBlockOps) {
        block.ops.push_back(OpId(static_cast<uint32_t>(program_.ops_.size())));
        const MessagePlace place{number, block.ops.size() - 1, FileOffset(message)};
        WEFT_RETURN_IF_ERROR(ReadOp(message, header_size, place).status());
      } else {
        block.vars.push_back(VarId(static_cast<uint32_t>(program_.vars_.size())));
        const MessagePlace place{number, block.vars.size() - 1, FileOffset(message)};
        WEFT_RETURN_IF_ERROR(ReadVar(message, header_size, place));
      }
      others = &block.tail;
      continue;
    }
    bool ok;
    if (tag == kBlockIdx) {
      ok = wire::ReadInt(&in, &idx);
      has_idx = true;
    } else if (tag == kBlockParentIdx) {
      ok = wire::ReadInt(&in, &block.parent_idx);
      has_parent = true;
    } else if (tag == kBlockForwardIdx) {
      ok = wire::ReadInt(&in, &block.forward_block_idx);
    } else {
      ok = wire::SkipField(&in, tag);
    }
    if (!ok) return malformed(begin);
    AddPiece(payload.substr(begin, in.CurrentPosition() - begin), others);
  }
  if (!wire::AtEnd(&in)) return malformed(in.CurrentPosition());
  if (!has_idx || !has_parent) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": field ", has_idx ? "parent_idx" : "idx", " is missing"));
  }
  if (idx != number) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": has idx ", idx, "; blocks must count 0, 1, 2, ... in file order"));
  }
  program_.blocks_.push_back(std::move(block));
  return absl::OkStatus();
}

absl::StatusOr<const OpReader::Message*> ProgramIndexer::ReadOp(absl::string_view message,
                                                                uint8_t header_size,
                                                                const MessagePlace& place) {
  WEFT_ASSIGN_OR_RETURN(const OpReader::Message* op, op_reader_.Read(message, place));
  Program::OpRecord record;
  record.begin = message.data() - header_size;
  record.payload_size = static_cast<uint32_t>(message.size());
  record.header_size = header_size;
  record.block = place.block;
  record.role = op->attrs.role;
  record.flags = 0;
  if (op->attrs.has_role_vars) record.flags |= Program::kHasRoleVars;
  if (op->attrs.has_sub_blocks) {
    record.flags |= Program::kHasSubBlocks;
    ops_with_sub_blocks_.push_back(OpId(static_cast<uint32_t>(program_.ops_.size())));
  }
  record.layout = LayoutOf(*op);
  record.first_arg = static_cast<uint32_t>(program_.args_.size());
  for (absl::string_view arg : op->args) {
    const uint32_t hash = SymbolTable::Hash(arg);
    program_.symbols_.Prefetch(hash);
    pending_args_.push_back({arg, hash, static_cast<uint32_t>(program_.args_.size())});
    program_.args_.emplace_back();
  }
  if (pending_args_.size() >= kBatch) FlushArgs();
  program_.ops_.push_back(record);
  return op;
}

uint32_t ProgramIndexer::LayoutOf(const OpReader::Message& op) {
  key_.clear();
  PutName(0, op.attrs.list, op.type, &key_);
  for (const OpReader::Slot& slot : op.slots) {
    PutName(slot.output ? 2 : 1, slot.count, slot.name, &key_);
  }
  const auto known = layout_of_key_.find(key_);
  if (known != layout_of_key_.end()) return known->second;
  const uint32_t layout = AddLayout(op);
  layout_of_key_.emplace(key_, layout);
  return layout;
}

// Finds the layout among those of the program, whose keys outlive this indexer, or adds it.
uint32_t ProgramIndexer::AddLayout(const OpReader::Message& op) {
  std::string key = key_;
  const std::vector<OpReader::Attr>& attrs = op_reader_.attr_list(op.attrs.list);
  for (const OpReader::Attr& attr : attrs) {
    PutName(3, static_cast<uint32_t>(attr.type), attr.name, &key);
  }
  // The number of the list means something to this indexer only.
  std::memset(&key[sizeof(uint32_t)], 0, sizeof(uint32_t));
  const auto [it, is_new] = program_.layout_of_key_.try_emplace(
      std::move(key), static_cast<uint32_t>(program_.layouts_.size()));
  if (!is_new) return it->second;

  OpLayout layout;
  layout.type = program_.symbols_.Intern(op.type);
  for (const OpReader::Slot& slot : op.slots) {
    (slot.output ? layout.outputs : layout.inputs)
        .push_back({program_.symbols_.Intern(slot.name), slot.first, slot.count});
    if (!slot.output) layout.num_input_args += slot.count;
  }
  layout.num_args = static_cast<uint32_t>(op.args.size());
  for (const OpReader::Attr& attr : attrs) {
    layout.attrs.push_back({program_.symbols_.Intern(attr.name), attr.type});
  }
  program_.layouts_.push_back(std::move(layout));
  return it->second;
}

absl::Status ProgramIndexer::ReadVar(absl::string_view message, uint8_t header_size,
                                     const MessagePlace& place) {
  WEFT_ASSIGN_OR_RETURN(const VarReader::Message var, var_reader_.Read(message, place));
  Program::VarRecord record;
  record.begin = message.data() - header_size;
  record.payload_size = static_cast<uint32_t>(message.size());
  record.header_size = header_size;
  record.flags = static_cast<uint8_t>((var.persistable ? Program::kPersistable : 0) |
                                      (var.is_parameter ? Program::kIsParameter : 0) |
                                      (var.stop_gradient ? Program::kStopGradient : 0) |
                                      (var.need_check_feed ? Program::kNeedCheckFeed : 0));
  record.type = var.type;
  record.block = place.block;
  const uint32_t hash = SymbolTable::Hash(var.name);
  program_.symbols_.Prefetch(hash);
  pending_vars_.push_back({var.name, hash, static_cast<uint32_t>(program_.vars_.size())});
  program_.vars_.push_back(record);
  if (pending_vars_.size() >= kBatch) FlushVars();
  return absl::OkStatus();
}

void ProgramIndexer::Flush() {
  FlushArgs();
  FlushVars();
}

void ProgramIndexer::FlushArgs() {
  for (const PendingName& p : pending_args_) {
    program_.args_[p.target] = program_.symbols_.Intern(p.name, p.hash);
  }
  pending_args_.clear();
}

void ProgramIndexer::FlushVars() {
  for (const PendingName& p : pending_vars_) {
    program_.vars_[p.target].name = program_.symbols_.Intern(p.name, p.hash);
  }
  pending_vars_.clear();
}

absl::StatusOr<OpId> ProgramIndexer::AddOp(absl::string_view field, uint8_t header_size,
                                           int block) {
  const OpId id(static_cast<uint32_t>(program_.ops_.size()));
  MessagePlace place;
  place.block = block;
  WEFT_ASSIGN_OR_RETURN(const OpReader::Message* op,
                        ReadOp(field.substr(header_size), header_size, place));
  Flush();
  WEFT_RETURN_IF_ERROR(CheckName(op->type));
  for (const OpReader::Slot& slot : op->slots) WEFT_RETURN_IF_ERROR(CheckName(slot.name));
  for (absl::string_view arg : op->args) WEFT_RETURN_IF_ERROR(CheckName(arg));
  for (const OpReader::Attr& attr : op_reader_.attr_list(op->attrs.list)) {
    WEFT_RETURN_IF_ERROR(CheckName(attr.name));
  }
  return id;
}

absl::StatusOr<VarId> ProgramIndexer::AddVar(absl::string_view field, uint8_t header_size,
                                             int block) {
  const VarId id(static_cast<uint32_t>(program_.vars_.size()));
  MessagePlace place;
  place.block = block;
  WEFT_RETURN_IF_ERROR(ReadVar(field.substr(header_size), header_size, place));
  Flush();
  WEFT_RETURN_IF_ERROR(CheckName(program_.var(id).name()));
  return id;
}

absl::Status ProgramIndexer::LinkVar(VarId id) {
  const Program::VarRecord& var = program_.record(id);
  if (program_.root_vars_.size() < program_.symbols_.size()) {
    program_.root_vars_.resize(program_.symbols_.size());
  }
  VarId& place = var.block == 0 ? program_.root_vars_[var.name.value()]
                                : program_.inner_vars_[{var.block, var.name}];
  if (place.valid()) {
    return absl::InvalidArgumentError(absl::StrCat("block ", var.block, ": variable '",
                                                   absl::CEscape(program_.name(var.name)),
                                                   "' is declared twice"));
  }
  place = id;
  return absl::OkStatus();
}

absl::Status ProgramIndexer::CheckNames() const {
  for (uint32_t i = 0; i < program_.symbols_.size(); ++i) {
    WEFT_RETURN_IF_ERROR(CheckName(program_.symbols_.name(Symbol(i))));
  }
  return absl::OkStatus();
}

size_t ProgramIndexer::FileOffset(absl::string_view part) const {
  return part.data() - program_.bytes_.data();
}

}  // namespace weft
