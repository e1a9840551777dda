#include "proto/program.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/snake_case_slots.h"
#include "proto/wire_format.h"

namespace weft {
namespace {

// The indexer has checked these bytes, so decoding cannot fail. Partial: an enum number that this
// version does not know is an unknown field, and its own field seems to be missing.
void Decode(absl::string_view bytes, google::protobuf::MessageLite* message) {
  message->ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

template <typename M>
M Decode(absl::string_view bytes) {
  M message;
  Decode(bytes, &message);
  return message;
}

// Calls `visit` with the payload of each field `field_number` of a message, until it returns false.
void ForEachField(absl::string_view message, int field_number,
                  absl::FunctionRef<bool(absl::string_view)> visit) {
  // Walking over all attributes of a program executes 1.45 times the instructions with a stream
  // alone.
  const uint32_t wanted = wire::LengthDelimited(field_number);
  wire::PrefetchBehind(message);
  uint32_t first;
  absl::string_view value;
  while (wire::TakeField(&message, &first, &value)) {
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

// The attribute, if the op has it with one of these types (with any, if none is given). All returns
// name one variable, so that the attribute is neither copied nor swapped: that costs ten times its
// decoding.
absl::optional<pb::OpDesc::Attr> FindAttrOf(const Op& op, absl::string_view name,
                                            std::initializer_list<int> types) {
  absl::optional<pb::OpDesc::Attr> attr;
  const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
  const auto last = std::find_if(attrs.rbegin(), attrs.rend(), [&](const OpSignature::Attr& a) {
    return op.program().name(a.name) == name;
  });
  if (last == attrs.rend()) return attr;
  const bool fits =
      types.size() == 0 || std::find(types.begin(), types.end(), last->type) != types.end();
  if (!fits) return attr;
  const size_t wanted = attrs.rend() - last - 1;
  op.ForEachAttr([&](size_t i, absl::string_view bytes) {
    if (i == wanted) Decode(bytes, &attr.emplace());
    return i != wanted;
  });
  return attr;
}

// Appends a piece and counts its bytes.
void AddPiece(absl::string_view piece, SerializedProgram* out) {
  out->size += piece.size();
  wire::AddPiece(piece, &out->pieces);
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
  return FindAttrOf(*this, name, {});
}

absl::optional<int64_t> Op::IntAttr(absl::string_view name) const {
  const auto attr = FindAttrOf(*this, name, {pb::INT, pb::LONG});
  if (!attr.has_value()) return absl::nullopt;
  return attr->type() == pb::INT ? attr->i() : attr->l();
}

absl::optional<double> Op::FloatAttr(absl::string_view name) const {
  const auto attr = FindAttrOf(*this, name, {pb::FLOAT, pb::FLOAT64});
  if (!attr.has_value()) return absl::nullopt;
  return attr->type() == pb::FLOAT ? attr->f() : attr->float64();
}

absl::optional<bool> Op::BoolAttr(absl::string_view name) const {
  // Early versions of Paddle wrote 0 and 1.
  const auto attr = FindAttrOf(*this, name, {pb::BOOLEAN, pb::INT});
  if (!attr.has_value()) return absl::nullopt;
  if (attr->type() == pb::BOOLEAN) return attr->b();
  if (attr->i() != 0 && attr->i() != 1) return absl::nullopt;
  return attr->i() == 1;
}

absl::optional<std::string> Op::StringAttr(absl::string_view name) const {
  const auto attr = FindAttrOf(*this, name, {pb::STRING});
  if (!attr.has_value()) return absl::nullopt;
  return attr->s();
}

absl::optional<std::vector<int64_t>> Op::IntsAttr(absl::string_view name) const {
  const auto attr = FindAttrOf(*this, name, {pb::INTS, pb::LONGS});
  if (!attr.has_value()) return absl::nullopt;
  if (attr->type() == pb::LONGS) {
    return std::vector<int64_t>(attr->longs().begin(), attr->longs().end());
  }
  return std::vector<int64_t>(attr->ints().begin(), attr->ints().end());
}

absl::optional<std::vector<std::string>> Op::StringsAttr(absl::string_view name) const {
  const auto attr = FindAttrOf(*this, name, {pb::STRINGS});
  if (!attr.has_value()) return absl::nullopt;
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
  ForEachAttr([&](size_t i, absl::string_view bytes) {
    const int type = signature().attrs[i].type;
    if (type != pb::BLOCK && type != pb::BLOCKS) return true;
    const auto attr = Decode<pb::OpDesc::Attr>(bytes);
    if (type == pb::BLOCK) blocks.push_back(attr.block_idx());
    if (type == pb::BLOCKS) {
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

pb::OpDesc Op::ToProto() const {
  auto desc = Decode<pb::OpDesc>(bytes());
  ToCamelCaseSlots(&desc);
  return desc;
}

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
  if (type() != pb::VarType::LOD_TENSOR && type() != pb::VarType::SELECTED_ROWS) {
    return absl::nullopt;
  }
  const pb::VarDesc desc = ToProto();
  const pb::VarType::TensorDesc& tensor = type() == pb::VarType::LOD_TENSOR
                                              ? desc.type().lod_tensor().tensor()
                                              : desc.type().selected_rows();
  return tensor.has_data_type() ? absl::make_optional(tensor) : absl::nullopt;
}

// The bytes of the type, where name, type and flags are written as every writer does.
absl::string_view Var::TypeKey() const {
  constexpr uint32_t kName = wire::LengthDelimited(pb::VarDesc::kNameFieldNumber);
  constexpr uint32_t kType = wire::LengthDelimited(pb::VarDesc::kTypeFieldNumber);
  absl::string_view rest = bytes(), key;
  wire::PrefetchBehind(rest);
  uint32_t tag;
  if (!wire::TakeField(&rest, &tag, &key) || tag != kName) return {};
  if (!wire::TakeField(&rest, &tag, &key) || tag != kType) return {};
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

absl::StatusOr<Program> Program::FromProto(const pb::ProgramDesc& desc) {
  const bool renames = absl::c_any_of(desc.blocks(), [](const pb::BlockDesc& block) {
    return absl::c_any_of(block.ops(),
                          [](const pb::OpDesc& op) { return HasSnakeCaseSlots(op.type()); });
  });
  if (!renames) return Parse(desc.SerializePartialAsString());
  pb::ProgramDesc renamed = desc;
  for (pb::BlockDesc& block : *renamed.mutable_blocks()) {
    for (pb::OpDesc& op : *block.mutable_ops()) ToSnakeCaseSlots(&op);
  }
  return Parse(renamed.SerializePartialAsString());
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

pb::ProgramDesc Program::OtherFields() const {
  std::string bytes;
  for (const TopLevelField& field : top_level_) {
    if (field.block < 0) bytes.append(field.other.data(), field.other.size());
  }
  return Decode<pb::ProgramDesc>(bytes);
}

std::string Program::setting() const { return OtherFields().weft_setting(); }

void Program::set_setting(absl::string_view setting) {
  if (setting == this->setting()) return;
  std::vector<TopLevelField> fields;
  for (const TopLevelField& field : top_level_) {
    if (field.block >= 0) {
      fields.push_back(field);
      continue;
    }
    constexpr uint32_t kSetting = wire::LengthDelimited(pb::ProgramDesc::kWeftSettingFieldNumber);
    wire::Stream in(reinterpret_cast<const uint8_t*>(field.other.data()),
                    static_cast<int>(field.other.size()));
    int kept = 0;  // from here on
    const auto keep_until = [&](int end) {
      if (end > kept) fields.push_back({-1, field.other.substr(kept, end - kept)});
    };
    while (true) {
      const int begin = in.CurrentPosition();
      const uint32_t tag = wire::NextTag(&in);
      if (tag == 0) break;
      wire::SkipField(&in, tag);
      if (tag != kSetting) continue;
      keep_until(begin);
      kept = in.CurrentPosition();
    }
    keep_until(static_cast<int>(field.other.size()));
  }
  if (!setting.empty()) {
    pb::ProgramDesc desc;
    desc.set_weft_setting(std::string(setting));
    const auto bytes = std::make_shared<const std::string>(desc.SerializePartialAsString());
    owners_.push_back(bytes);
    fields.push_back({-1, *bytes});
  }
  top_level_ = std::move(fields);
  changed_ = true;
}

pb::BlockDesc Program::OtherFields(int block) const {
  std::string bytes;
  for (absl::string_view piece : blocks_[block].head) bytes.append(piece.data(), piece.size());
  for (absl::string_view piece : blocks_[block].tail) bytes.append(piece.data(), piece.size());
  return Decode<pb::BlockDesc>(bytes);
}

void Program::AppendBlock(const BlockRecord& block, SerializedProgram* out) const {
  // Visits the pieces of the block, in order.
  const auto for_each = [&](const auto& visit) {
    for (absl::string_view piece : block.head) visit(piece);
    for (VarId id : block.vars) visit(record(id).field().whole());
    for (OpId id : block.ops) visit(record(id).field().whole());
    for (absl::string_view piece : block.tail) visit(piece);
  };
  size_t payload = 0;
  for_each([&](absl::string_view piece) { payload += piece.size(); });
  out->owned.push_back(wire::FieldHeader(pb::ProgramDesc::kBlocksFieldNumber, payload));
  AddPiece(out->owned.back(), out);
  for_each([&](absl::string_view piece) { AddPiece(piece, out); });
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
