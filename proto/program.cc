#include "proto/program.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/byte_pieces.h"
#include "proto/index_program.h"
#include "proto/wire_format.h"

namespace weft {
namespace {

// The indexer has checked these bytes, so decoding them cannot fail. Partial: an enum number that
// this version does not know stays among the unknown fields, and its field seems missing.
template <typename M>
M Decode(absl::string_view bytes) {
  M message;
  message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
  return message;
}

// Calls `visit` with the payload of each field `field_number` of a message, until it returns false.
void ForEachField(absl::string_view message, int field_number,
                  absl::FunctionRef<bool(absl::string_view)> visit) {
  const uint32_t wanted = wire::LengthDelimited(field_number);
  wire::PrefetchBehind(message);
  uint32_t first;
  absl::string_view whole, value;
  while (wire::TakeField(&message, &first, &whole, &value)) {
    if (first == wanted && !visit(value)) return;
  }
  // What is left begins with a field of another kind.
  wire::MessageStream in(message);
  while (const uint32_t tag = wire::NextTag(&in)) {
    absl::string_view payload;
    if (tag != wanted) {
      wire::SkipField(&in, tag);
    } else if (!wire::ReadBytes(&in, &payload) || !visit(payload)) {
      return;
    }
  }
}

// The payload of the n-th of them, counted from 0.
absl::string_view NthField(absl::string_view message, int field_number, size_t n) {
  absl::string_view found;
  ForEachField(message, field_number, [&](absl::string_view payload) {
    if (n-- > 0) return true;
    found = payload;
    return false;
  });
  return found;
}

// Appends a piece and counts its bytes.
void AddPiece(absl::string_view piece, SerializedProgram* out) {
  out->size += piece.size();
  weft::AddPiece(piece, &out->pieces);
}

}  // namespace

// --- Op -----------------------------------------------------------------------------------------

absl::Span<const Symbol> Op::Input(absl::string_view slot) const {
  for (const OpSignature::Slot& s : signature().inputs) {
    if (program_->name(s.name) == slot) return args(s);
  }
  return {};
}

absl::Span<const Symbol> Op::Output(absl::string_view slot) const {
  for (const OpSignature::Slot& s : signature().outputs) {
    if (program_->name(s.name) == slot) return args(s);
  }
  return {};
}

bool Op::HasInputSlot(absl::string_view slot) const {
  return std::any_of(signature().inputs.begin(), signature().inputs.end(),
                     [&](const OpSignature::Slot& s) { return program_->name(s.name) == slot; });
}

bool Op::HasAttr(absl::string_view name) const {
  return std::any_of(signature().attrs.begin(), signature().attrs.end(),
                     [&](const OpSignature::Attr& a) { return program_->name(a.name) == name; });
}

absl::optional<pb::OpDesc::Attr> Op::FindAttr(absl::string_view name) const {
  const std::vector<OpSignature::Attr>& attrs = signature().attrs;
  for (size_t i = attrs.size(); i-- > 0;) {
    if (program_->name(attrs[i].name) == name) {
      return Decode<pb::OpDesc::Attr>(NthField(bytes(), pb::OpDesc::kAttrsFieldNumber, i));
    }
  }
  return absl::nullopt;
}

absl::optional<int64_t> Op::IntAttr(absl::string_view name) const {
  const auto attr = FindAttr(name);
  if (attr.has_value() && attr->type() == pb::INT) return attr->i();
  if (attr.has_value() && attr->type() == pb::LONG) return attr->l();
  return absl::nullopt;
}

absl::optional<double> Op::FloatAttr(absl::string_view name) const {
  const auto attr = FindAttr(name);
  if (attr.has_value() && attr->type() == pb::FLOAT) return attr->f();
  if (attr.has_value() && attr->type() == pb::FLOAT64) return attr->float64();
  return absl::nullopt;
}

absl::optional<bool> Op::BoolAttr(absl::string_view name) const {
  const auto attr = FindAttr(name);
  if (attr.has_value() && attr->type() == pb::BOOLEAN) return attr->b();
  return absl::nullopt;
}

absl::optional<std::string> Op::StringAttr(absl::string_view name) const {
  const auto attr = FindAttr(name);
  if (attr.has_value() && attr->type() == pb::STRING) return attr->s();
  return absl::nullopt;
}

absl::optional<std::vector<int64_t>> Op::IntsAttr(absl::string_view name) const {
  using Ints = std::vector<int64_t>;
  const auto attr = FindAttr(name);
  if (attr.has_value() && attr->type() == pb::INTS) {
    return Ints(attr->ints().begin(), attr->ints().end());
  }
  if (attr.has_value() && attr->type() == pb::LONGS) {
    return Ints(attr->longs().begin(), attr->longs().end());
  }
  return absl::nullopt;
}

absl::optional<std::vector<std::string>> Op::StringsAttr(absl::string_view name) const {
  const auto attr = FindAttr(name);
  if (!attr.has_value() || attr->type() != pb::STRINGS) return absl::nullopt;
  return std::vector<std::string>(attr->strings().begin(), attr->strings().end());
}

void Op::ForEachAttr(absl::FunctionRef<bool(size_t, absl::string_view)> visit) const {
  size_t i = 0;
  ForEachField(bytes(), pb::OpDesc::kAttrsFieldNumber,
               [&](absl::string_view payload) { return visit(i++, payload); });
}

std::vector<int> Op::SubBlocks() const {
  std::vector<int> blocks;
  if ((program_->record(id_).flags & Program::kHasSubBlocks) == 0) return blocks;
  const std::vector<OpSignature::Attr>& attrs = signature().attrs;
  size_t i = 0;
  ForEachField(bytes(), pb::OpDesc::kAttrsFieldNumber, [&](absl::string_view payload) {
    const int type = attrs[i++].type;
    if (type != pb::BLOCK && type != pb::BLOCKS) return true;
    const auto attr = Decode<pb::OpDesc::Attr>(payload);
    if (type == pb::BLOCK) {
      blocks.push_back(attr.block_idx());
    } else {
      blocks.insert(blocks.end(), attr.blocks_idx().begin(), attr.blocks_idx().end());
    }
    return true;
  });
  return blocks;
}

std::string Op::DebugName() const {
  return absl::StrCat(block() == 0 ? "" : absl::StrCat("block ", block(), ", "), "op ",
                      position() == kNoPosition ? "" : absl::StrCat(position(), " "), "(",
                      absl::CEscape(type()), ")");
}

absl::string_view Op::bytes() const { return program_->record(id_).field().payload(); }

pb::OpDesc Op::ToProto() const { return Decode<pb::OpDesc>(bytes()); }

// --- Var ----------------------------------------------------------------------------------------

Symbol Var::name_symbol() const { return program_->record(id_).name; }
absl::string_view Var::name() const { return program_->name(name_symbol()); }
int Var::block() const { return program_->record(id_).block; }
int Var::type() const { return program_->record(id_).type; }

bool Var::persistable() const { return (program_->record(id_).flags & Program::kPersistable) != 0; }
bool Var::is_parameter() const {
  return (program_->record(id_).flags & Program::kIsParameter) != 0;
}
bool Var::stop_gradient() const {
  return (program_->record(id_).flags & Program::kStopGradient) != 0;
}
bool Var::need_check_feed() const {
  return (program_->record(id_).flags & Program::kNeedCheckFeed) != 0;
}

absl::optional<pb::VarType::TensorDesc> Var::Tensor() const {
  const pb::VarDesc desc = ToProto();
  const pb::VarType& type = desc.type();
  switch (this->type()) {
    case pb::VarType::LOD_TENSOR:
      if (type.lod_tensor().tensor().has_data_type()) return type.lod_tensor().tensor();
      break;
    case pb::VarType::SELECTED_ROWS:
      if (type.selected_rows().has_data_type()) return type.selected_rows();
      break;
    default:
      break;
  }
  return absl::nullopt;
}

// The bytes of the type, where name, type and flags are written as every writer does.
absl::string_view Var::TypeKey() const {
  constexpr uint32_t kName = wire::LengthDelimited(pb::VarDesc::kNameFieldNumber);
  constexpr uint32_t kType = wire::LengthDelimited(pb::VarDesc::kTypeFieldNumber);
  absl::string_view rest = bytes(), whole, key;
  wire::PrefetchBehind(rest);
  uint32_t tag;
  if (!wire::TakeField(&rest, &tag, &whole, &key) || tag != kName) return {};
  if (!wire::TakeField(&rest, &tag, &whole, &key) || tag != kType) return {};
  // A second type would be merged into the first. Flags, of two bytes each, are passed over.
  while (rest.size() >= 2 && (rest[0] & 7) == 0 && static_cast<uint8_t>(rest[0]) < 0x80 &&
         static_cast<uint8_t>(rest[1]) < 0x80) {
    rest.remove_prefix(2);
  }
  return rest.empty() ? key : absl::string_view();
}

absl::string_view Var::bytes() const { return program_->record(id_).field().payload(); }

pb::VarDesc Var::ToProto() const { return Decode<pb::VarDesc>(bytes()); }

// --- Block --------------------------------------------------------------------------------------

int Block::parent_idx() const { return program_->blocks_[idx_].parent_idx; }
int Block::forward_block_idx() const { return program_->blocks_[idx_].forward_block_idx; }
absl::Span<const OpId> Block::ops() const { return program_->blocks_[idx_].ops; }
absl::Span<const VarId> Block::vars() const { return program_->blocks_[idx_].vars; }

VarId Block::FindVar(Symbol name) const { return program_->FindVar(idx_, name); }

VarId Block::FindVar(absl::string_view name) const { return FindVar(program_->FindSymbol(name)); }

VarId Block::Resolve(absl::string_view name) const { return Resolve(program_->FindSymbol(name)); }

VarId Block::Resolve(Symbol name) const {
  for (int idx = idx_; idx != -1; idx = program_->blocks_[idx].parent_idx) {
    const VarId var = program_->FindVar(idx, name);
    if (var.valid()) return var;
  }
  return VarId();
}

// --- Program ------------------------------------------------------------------------------------

absl::StatusOr<Program> Program::Parse(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const absl::string_view view = *owner;
  return Parse(std::move(owner), view);
}

absl::StatusOr<Program> Program::Parse(std::shared_ptr<const void> owner, absl::string_view bytes,
                                       const ParseOptions& options) {
  Program program;
  program.owner_ = std::move(owner);
  program.bytes_ = bytes;
  WEFT_RETURN_IF_ERROR(IndexProgram(options, &program));
  return program;
}

absl::StatusOr<Program> Program::FromProto(const pb::ProgramDesc& desc) {
  return Parse(desc.SerializePartialAsString());
}

VarId Program::FindVar(int block, Symbol name) const {
  if (block == 0) return name.value() < root_vars_.size() ? root_vars_[name.value()] : VarId();
  const auto it = inner_vars_.find({block, name});
  return it == inner_vars_.end() ? VarId() : it->second;
}

size_t Program::num_ops() const {
  size_t count = 0;
  for (const BlockRecord& block : blocks_) count += block.ops.size();
  return count;
}

size_t Program::num_vars() const {
  size_t count = 0;
  for (const BlockRecord& block : blocks_) count += block.vars.size();
  return count;
}

int64_t Program::version() const { return OtherFields().version().version(); }

pb::ProgramDesc Program::OtherFields() const {
  std::string bytes;
  for (const TopLevelField& field : top_level_) {
    if (field.block < 0) bytes.append(field.other.data(), field.other.size());
  }
  return Decode<pb::ProgramDesc>(bytes);
}

pb::BlockDesc Program::OtherFields(int block) const {
  std::string bytes;
  for (absl::string_view piece : blocks_[block].head) bytes.append(piece.data(), piece.size());
  for (absl::string_view piece : blocks_[block].tail) bytes.append(piece.data(), piece.size());
  return Decode<pb::BlockDesc>(bytes);
}

void Program::AppendBlock(const BlockRecord& block, SerializedProgram* out) const {
  size_t payload = 0;
  for (absl::string_view piece : block.head) payload += piece.size();
  for (VarId id : block.vars) payload += record(id).field().whole().size();
  for (OpId id : block.ops) payload += record(id).field().whole().size();
  for (absl::string_view piece : block.tail) payload += piece.size();

  out->owned.push_back(wire::FieldHeader(pb::ProgramDesc::kBlocksFieldNumber, payload));
  AddPiece(out->owned.back(), out);
  for (absl::string_view piece : block.head) AddPiece(piece, out);
  for (VarId id : block.vars) AddPiece(record(id).field().whole(), out);
  for (OpId id : block.ops) AddPiece(record(id).field().whole(), out);
  for (absl::string_view piece : block.tail) AddPiece(piece, out);
}

SerializedProgram Program::SerializeToPieces() const {
  SerializedProgram out;
  if (!changed_) {
    AddPiece(bytes_, &out);
    return out;
  }
  for (const TopLevelField& field : top_level_) {
    if (field.block < 0) {
      AddPiece(field.other, &out);
    } else if (!blocks_[field.block].changed) {
      AddPiece(blocks_[field.block].field, &out);
    } else {
      AppendBlock(blocks_[field.block], &out);
    }
  }
  return out;
}

std::string Program::Serialize() const {
  const SerializedProgram serialized = SerializeToPieces();
  std::string bytes;
  bytes.reserve(serialized.size);
  for (absl::string_view piece : serialized.pieces) bytes.append(piece.data(), piece.size());
  return bytes;
}

pb::ProgramDesc Program::ToProto() const { return Decode<pb::ProgramDesc>(Serialize()); }

}  // namespace weft
