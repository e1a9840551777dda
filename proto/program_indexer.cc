#include "proto/program_indexer.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/program_checks.h"
#include "proto/wire_format.h"

namespace weft {
namespace {

constexpr uint32_t kBlockVars = wire::LengthDelimited(pb::BlockDesc::kVarsFieldNumber);
constexpr uint32_t kBlockOps = wire::LengthDelimited(pb::BlockDesc::kOpsFieldNumber);

// The number of names whose slots of the hash table are prefetched together.
constexpr size_t kBatch = 64;

// Appends a name to a key. Its length precedes it, so that different lists have different keys.
void PutName(uint32_t kind, uint32_t number, absl::string_view name, std::string* key) {
  const uint32_t head[3] = {kind, number, static_cast<uint32_t>(name.size())};
  key->append(reinterpret_cast<const char*>(head), sizeof(head));
  key->append(name.data(), name.size());
}

}  // namespace

void ProgramIndexer::Reserve(size_t num_ops, size_t num_vars, size_t num_symbols,
                             size_t num_bytes) {
  program_.ops_.reserve(num_ops);
  // With room for the ops that passes add: growing would move all positions.
  program_.positions_.reserve(num_ops + num_ops / 8);
  program_.vars_.reserve(num_vars);
  // Slots and attributes take most of an op: programs have at most one argument per 40 bytes.
  program_.args_.reserve(num_ops == 0 ? 0 : num_bytes / 40);
  program_.symbols_.Reserve(num_symbols);
}

absl::Status ProgramIndexer::AddSlice(const Slice& slice) {
  MessagePosition op_position{slice.block, slice.first_op, 0};
  MessagePosition var_position{slice.block, slice.first_var, 0};
  wire::MessageStream in(slice.fields);
  const char* field = slice.fields.data();
  while (const uint32_t tag = wire::NextTag(&in)) {
    if (tag == kBlockOps || tag == kBlockVars) {
      absl::string_view message;
      wire::ReadBytes(&in, &message);
      wire::PrefetchBehind(message);  // without: 1.1 times the processor time of reading
      const auto header_size = static_cast<uint8_t>(message.data() - field);
      if (tag == kBlockOps) {
        op_position.byte = FileOffset(message);
        WEFT_RETURN_IF_ERROR(ReadOp(message, header_size, op_position).status());
        ++op_position.position;
      } else {
        var_position.byte = FileOffset(message);
        WEFT_RETURN_IF_ERROR(ReadVar(message, header_size, var_position));
        ++var_position.position;
      }
    } else {
      wire::SkipField(&in, tag);
    }
    field = slice.fields.data() + in.CurrentPosition();
  }
  Flush();
  return absl::OkStatus();
}

absl::StatusOr<const OpReader::Message*> ProgramIndexer::ReadOp(absl::string_view message,
                                                                uint8_t header_size,
                                                                const MessagePosition& at) {
  WEFT_ASSIGN_OR_RETURN(const OpReader::Message* op, op_reader_.Read(message, at));
  if (op->tail.signature.has_value() && !HasSlots(*op, program_.signatures_[*op->tail.signature])) {
    WEFT_ASSIGN_OR_RETURN(op, op_reader_.Read(message, at, /*use_known=*/false));
  }
  if (!op->tail.signature.has_value()) op_reader_.RememberSignature(FindSignature(*op));
  Program::OpRecord record;
  record.begin = message.data() - header_size;
  record.payload_size = static_cast<uint32_t>(message.size());
  record.header_size = header_size;
  record.block = at.block;
  record.role = op->tail.role;
  record.signature = *op->tail.signature;
  record.flags = 0;
  if (op->tail.has_role_vars) record.flags |= Program::kHasRoleVars;
  if (op->tail.has_sub_blocks) {
    record.flags |= Program::kHasSubBlocks;
    ops_with_sub_blocks_.push_back(OpId(static_cast<uint32_t>(program_.ops_.size())));
  }
  record.first_arg = static_cast<uint32_t>(program_.args_.size());
  for (absl::string_view arg : op->args) {
    AddPending(arg, static_cast<uint32_t>(program_.args_.size()), /*is_var=*/false);
    program_.args_.push_back(Symbol());
  }
  program_.ops_.push_back(record);
  program_.positions_.push_back(
      at.position == MessagePosition::kNew ? Op::kNoPosition : static_cast<uint32_t>(at.position));
  return op;
}

bool ProgramIndexer::HasSlots(const OpReader::Message& op, const OpSignature& signature) const {
  const size_t num_inputs = signature.inputs.size();
  if (op.slots.size() != num_inputs + signature.outputs.size()) return false;
  for (size_t i = 0; i < op.slots.size(); ++i) {
    const bool output = i >= num_inputs;
    const OpSignature::Slot& slot =
        output ? signature.outputs[i - num_inputs] : signature.inputs[i];
    const OpReader::Slot& found = op.slots[i];
    if (found.output != output || found.count != slot.count ||
        found.name != program_.name(slot.name)) {
      return false;
    }
  }
  return true;
}

// Adds the signature if the program does not have it.
uint32_t ProgramIndexer::FindSignature(const OpReader::Message& op) {
  key_.clear();
  PutName(0, 0, op.type, &key_);
  for (const OpReader::Slot& slot : op.slots) {
    PutName(slot.output ? 2 : 1, slot.count, slot.name, &key_);
  }
  for (const OpReader::Attr& attr : op.attrs) {
    PutName(3, static_cast<uint32_t>(attr.type), attr.name, &key_);
  }
  const auto [it, is_new] = program_.signature_of_key_.try_emplace(
      key_, static_cast<uint32_t>(program_.signatures_.size()));
  if (!is_new) return it->second;

  // Symbols count in the order of the file, even if several threads read it.
  Flush();
  OpSignature signature;
  signature.type = program_.symbols_.Intern(op.type);
  for (const OpReader::Slot& slot : op.slots) {
    (slot.output ? signature.outputs : signature.inputs)
        .push_back({program_.symbols_.Intern(slot.name), slot.first, slot.count});
    if (!slot.output) signature.num_input_args += slot.count;
  }
  signature.num_args = static_cast<uint32_t>(op.args.size());
  for (const OpReader::Attr& attr : op.attrs) {
    signature.attrs.push_back({program_.symbols_.Intern(attr.name), attr.type});
  }
  program_.signatures_.push_back(std::move(signature));
  return it->second;
}

absl::Status ProgramIndexer::ReadVar(absl::string_view message, uint8_t header_size,
                                     const MessagePosition& at) {
  WEFT_ASSIGN_OR_RETURN(const VarReader::Message var, var_reader_.Read(message, at));
  Program::VarRecord record;
  record.begin = message.data() - header_size;
  record.payload_size = static_cast<uint32_t>(message.size());
  record.header_size = header_size;
  record.flags = static_cast<uint8_t>((var.persistable ? Program::kPersistable : 0) |
                                      (var.is_parameter ? Program::kIsParameter : 0) |
                                      (var.stop_gradient ? Program::kStopGradient : 0) |
                                      (var.need_check_feed ? Program::kNeedCheckFeed : 0));
  record.type = var.type;
  record.block = at.block;
  AddPending(var.name, static_cast<uint32_t>(program_.vars_.size()), /*is_var=*/true);
  program_.vars_.push_back(record);
  return absl::OkStatus();
}

void ProgramIndexer::AddPending(absl::string_view name, uint32_t target, bool is_var) {
  if (pending_.size() >= kBatch) Flush();
  const uint32_t hash = SymbolTable::Hash(name);
  program_.symbols_.Prefetch(hash);
  pending_.push_back({name, hash, target, is_var});
}

void ProgramIndexer::Flush() {
  for (const PendingName& p : pending_) program_.symbols_.PrefetchEntry(p.hash);
  for (const PendingName& p : pending_) program_.symbols_.PrefetchName(p.hash);
  for (const PendingName& p : pending_) {
    Symbol& target =
        p.is_var ? program_.vars_.Mutable(p.target).name : program_.args_.Mutable(p.target);
    target = program_.symbols_.Intern(p.name, p.hash);
  }
  pending_.clear();
}

void ProgramIndexer::Append(const ProgramIndexer& part) {
  const std::vector<Symbol> symbols = AppendSymbols(part.program_.symbols_);
  const std::vector<uint32_t> signatures = AppendSignatures(part.program_, symbols);
  const auto first_op = static_cast<uint32_t>(program_.ops_.size());
  const auto first_arg = static_cast<uint32_t>(program_.args_.size());
  for (size_t i = 0; i < part.program_.args_.size(); ++i) {
    program_.args_.push_back(symbols[part.program_.args_[i].value()]);
  }
  for (size_t i = 0; i < part.program_.ops_.size(); ++i) {
    Program::OpRecord op = part.program_.ops_[i];
    op.signature = signatures[op.signature];
    op.first_arg += first_arg;
    program_.ops_.push_back(op);
  }
  program_.positions_.insert(program_.positions_.end(), part.program_.positions_.begin(),
                             part.program_.positions_.end());
  for (size_t i = 0; i < part.program_.vars_.size(); ++i) {
    Program::VarRecord var = part.program_.vars_[i];
    var.name = symbols[var.name.value()];
    program_.vars_.push_back(var);
  }
  for (OpId id : part.ops_with_sub_blocks_) {
    ops_with_sub_blocks_.push_back(OpId(first_op + id.value()));
  }
}

// The symbols in this program for those of another table, by their number there.
std::vector<Symbol> ProgramIndexer::AppendSymbols(const SymbolTable& table) {
  std::vector<Symbol> symbols;
  symbols.reserve(table.size());
  SymbolTable& own = program_.symbols_;
  for (uint32_t begin = 0; begin < table.size(); begin += kBatch) {
    const uint32_t end = static_cast<uint32_t>(std::min(begin + kBatch, table.size()));
    for (uint32_t i = begin; i < end; ++i) own.Prefetch(table.hash(Symbol(i)));
    for (uint32_t i = begin; i < end; ++i) own.PrefetchEntry(table.hash(Symbol(i)));
    for (uint32_t i = begin; i < end; ++i) own.PrefetchName(table.hash(Symbol(i)));
    for (uint32_t i = begin; i < end; ++i) {
      symbols.push_back(own.Intern(table.name(Symbol(i)), table.hash(Symbol(i))));
    }
  }
  return symbols;
}

// The signatures in this program for those of `part`, by their number there; `symbols` likewise.
std::vector<uint32_t> ProgramIndexer::AppendSignatures(const Program& part,
                                                       const std::vector<Symbol>& symbols) {
  std::vector<const std::string*> keys(part.signatures_.size());
  for (const auto& [key, signature] : part.signature_of_key_) keys[signature] = &key;
  std::vector<uint32_t> signatures;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto [it, is_new] = program_.signature_of_key_.try_emplace(
        *keys[i], static_cast<uint32_t>(program_.signatures_.size()));
    signatures.push_back(it->second);
    if (!is_new) continue;
    OpSignature signature = part.signatures_[i];
    signature.type = symbols[signature.type.value()];
    for (auto* slots : {&signature.inputs, &signature.outputs}) {
      for (OpSignature::Slot& slot : *slots) slot.name = symbols[slot.name.value()];
    }
    for (OpSignature::Attr& attr : signature.attrs) attr.name = symbols[attr.name.value()];
    program_.signatures_.push_back(std::move(signature));
  }
  return signatures;
}

absl::StatusOr<OpId> ProgramIndexer::AddOp(absl::string_view field, uint8_t header_size,
                                           int block) {
  const OpId id(static_cast<uint32_t>(program_.ops_.size()));
  MessagePosition at;
  at.block = block;
  WEFT_ASSIGN_OR_RETURN(const OpReader::Message* op,
                        ReadOp(field.substr(header_size), header_size, at));
  Flush();
  WEFT_RETURN_IF_ERROR(CheckName(op->type));
  for (const OpReader::Slot& slot : op->slots) WEFT_RETURN_IF_ERROR(CheckName(slot.name));
  for (absl::string_view arg : op->args) WEFT_RETURN_IF_ERROR(CheckName(arg));
  for (const OpReader::Attr& attr : op->attrs) WEFT_RETURN_IF_ERROR(CheckName(attr.name));
  return id;
}

absl::StatusOr<VarId> ProgramIndexer::AddVar(absl::string_view field, uint8_t header_size,
                                             int block) {
  const VarId id(static_cast<uint32_t>(program_.vars_.size()));
  MessagePosition at;
  at.block = block;
  WEFT_RETURN_IF_ERROR(ReadVar(field.substr(header_size), header_size, at));
  Flush();
  WEFT_RETURN_IF_ERROR(CheckName(program_.var(id).name()));
  return id;
}

absl::Status ProgramIndexer::LinkVar(VarId id) {
  const Program::VarRecord& var = program_.record(id);
  if (program_.name(var.name) == kEmptyVarName) return absl::OkStatus();
  if (program_.root_vars_.size() < program_.symbols_.size()) {
    program_.root_vars_.resize(program_.symbols_.size());
  }
  VarId& named = var.block == 0 ? program_.root_vars_.Mutable(var.name.value())
                                : program_.inner_vars_[{var.block, var.name}];
  if (named.valid()) {
    return absl::InvalidArgumentError(absl::StrCat("block ", var.block, ": variable '",
                                                   absl::CEscape(program_.name(var.name)),
                                                   "' is declared twice"));
  }
  named = id;
  return absl::OkStatus();
}

void ProgramIndexer::Share() {
  program_.ops_.Share();
  program_.vars_.Share();
  program_.args_.Share();
  program_.root_vars_.Share();
  program_.symbols_.Share();
}

absl::Status ProgramIndexer::CheckNames() const {
  const SymbolTable& symbols = program_.symbols_;
  for (uint32_t i = 0; i < symbols.size(); ++i) {
    // Names are spread over the file.
    if (i + kBatch < symbols.size()) __builtin_prefetch(symbols.name(Symbol(i + kBatch)).data());
    WEFT_RETURN_IF_ERROR(CheckName(symbols.name(Symbol(i))));
  }
  return absl::OkStatus();
}

size_t ProgramIndexer::FileOffset(absl::string_view part) const {
  return part.data() - program_.bytes_.data();
}

}  // namespace weft
