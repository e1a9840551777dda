#include "proto/program_indexer.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using ::google::protobuf::internal::WireFormatLite;
using Stream = ::google::protobuf::io::CodedInputStream;

constexpr uint32_t LengthDelimited(int field_number) {
  return WireFormatLite::MakeTag(field_number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}
constexpr uint32_t Varint(int field_number) {
  return WireFormatLite::MakeTag(field_number, WireFormatLite::WIRETYPE_VARINT);
}

constexpr uint32_t kProgramBlocks = LengthDelimited(pb::ProgramDesc::kBlocksFieldNumber);
constexpr uint32_t kBlockIdx = Varint(pb::BlockDesc::kIdxFieldNumber);
constexpr uint32_t kBlockParentIdx = Varint(pb::BlockDesc::kParentIdxFieldNumber);
constexpr uint32_t kBlockVars = LengthDelimited(pb::BlockDesc::kVarsFieldNumber);
constexpr uint32_t kBlockOps = LengthDelimited(pb::BlockDesc::kOpsFieldNumber);
constexpr uint32_t kBlockForwardIdx = Varint(pb::BlockDesc::kForwardBlockIdxFieldNumber);
constexpr uint32_t kOpInputs = LengthDelimited(pb::OpDesc::kInputsFieldNumber);
constexpr uint32_t kOpOutputs = LengthDelimited(pb::OpDesc::kOutputsFieldNumber);
constexpr uint32_t kOpType = LengthDelimited(pb::OpDesc::kTypeFieldNumber);
constexpr uint32_t kOpAttrs = LengthDelimited(pb::OpDesc::kAttrsFieldNumber);
constexpr uint32_t kSlotParameter = LengthDelimited(pb::OpDesc::Var::kParameterFieldNumber);
constexpr uint32_t kSlotArguments = LengthDelimited(pb::OpDesc::Var::kArgumentsFieldNumber);
constexpr uint32_t kAttrName = LengthDelimited(pb::OpDesc::Attr::kNameFieldNumber);
constexpr uint32_t kAttrType = Varint(pb::OpDesc::Attr::kTypeFieldNumber);
constexpr uint32_t kAttrI = Varint(pb::OpDesc::Attr::kIFieldNumber);
constexpr uint32_t kAttrStrings = LengthDelimited(pb::OpDesc::Attr::kStringsFieldNumber);
constexpr uint32_t kAttrScalar = LengthDelimited(pb::OpDesc::Attr::kScalarFieldNumber);
constexpr uint32_t kAttrScalars = LengthDelimited(pb::OpDesc::Attr::kScalarsFieldNumber);
constexpr uint32_t kVarName = LengthDelimited(pb::VarDesc::kNameFieldNumber);
constexpr uint32_t kVarType = LengthDelimited(pb::VarDesc::kTypeFieldNumber);
constexpr uint32_t kVarPersistable = Varint(pb::VarDesc::kPersistableFieldNumber);
constexpr uint32_t kVarNeedCheckFeed = Varint(pb::VarDesc::kNeedCheckFeedFieldNumber);
constexpr uint32_t kVarIsParameter = Varint(pb::VarDesc::kIsParameterFieldNumber);
constexpr uint32_t kVarStopGradient = Varint(pb::VarDesc::kStopGradientFieldNumber);
constexpr uint32_t kVarAttrs = LengthDelimited(pb::VarDesc::kAttrsFieldNumber);
constexpr uint32_t kVarTypeType = Varint(pb::VarType::kTypeFieldNumber);

// How many names wait for their place in the hash table to arrive in the cache.
constexpr size_t kBatch = 64;

// Reads a length and the bytes after it. False where they reach beyond the enclosing message.
bool ReadBytes(Stream* in, absl::string_view* bytes) {
  int size;
  if (!in->ReadVarintSizeAsInt(&size)) return false;
  const void* data;
  int available;
  in->GetDirectBufferPointerInline(&data, &available);
  if (size > available) return false;
  *bytes = absl::string_view(static_cast<const char*>(data), size);
  return in->Skip(size);
}

// Restricts a stream to the next message and undoes that. ok() tells whether the length was sound.
class MessageScope {
 public:
  explicit MessageScope(Stream* in) : in_(in) {
    int size;
    if (!in->ReadVarintSizeAsInt(&size)) return;
    const int left = in->BytesUntilLimit();
    if (left >= 0 && size > left) return;
    limit_ = in->PushLimit(size);
    ok_ = true;
  }
  ~MessageScope() {
    if (ok_) in_->PopLimit(limit_);
  }
  bool ok() const { return ok_; }

 private:
  Stream* in_;
  Stream::Limit limit_ = 0;
  bool ok_ = false;
};

// True at the end of the message, where ReadTag has returned 0: otherwise a tag of 0 was there.
bool AtEnd(const Stream& in) { return in.BytesUntilLimit() == 0; }

bool ReadInt(Stream* in, int* value) {
  uint64_t raw;
  if (!in->ReadVarint64(&raw)) return false;
  *value = static_cast<int>(raw);
  return true;
}

bool ReadFlag(Stream* in, uint8_t bit, uint8_t* flags) {
  uint64_t raw;
  if (!in->ReadVarint64(&raw)) return false;
  *flags = raw != 0 ? (*flags | bit) : (*flags & ~bit);
  return true;
}

// Well-formed as message M, required fields aside: unknown enum numbers make them seem missing.
template <typename M>
bool IsWellFormed(absl::string_view bytes) {
  M message;
  return message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

std::string Quote(absl::string_view name) { return absl::StrCat("'", absl::CEscape(name), "'"); }

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": malformed or truncated protobuf"));
}

// Adds bytes to a list of pieces, to the last piece where they follow it directly.
void AddPiece(absl::string_view piece, std::vector<absl::string_view>* pieces) {
  if (!pieces->empty() && pieces->back().data() + pieces->back().size() == piece.data()) {
    pieces->back() = absl::string_view(pieces->back().data(), pieces->back().size() + piece.size());
  } else {
    pieces->push_back(piece);
  }
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

  Stream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  in.PushLimit(static_cast<int>(bytes.size()));
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = in.ReadTag();
    if (tag == 0) break;
    if (tag == kProgramBlocks) {
      absl::string_view payload;
      if (!ReadBytes(&in, &payload)) return Malformed(absl::StrCat("byte ", begin));
      program_.top_level_.push_back({program_.num_blocks(), {}});
      WEFT_RETURN_IF_ERROR(ReadBlock(bytes.substr(begin, in.CurrentPosition() - begin), payload));
    } else {
      if (!WireFormatLite::SkipField(&in, tag)) return Malformed(absl::StrCat("byte ", begin));
      program_.top_level_.push_back({-1, bytes.substr(begin, in.CurrentPosition() - begin)});
    }
  }
  if (!AtEnd(in)) return Malformed(absl::StrCat("byte ", in.CurrentPosition()));
  Flush();

  for (uint32_t i = 0; i < program_.vars_.size(); ++i) WEFT_RETURN_IF_ERROR(LinkVar(VarId(i)));
  WEFT_RETURN_IF_ERROR(CheckBlocks());
  WEFT_RETURN_IF_ERROR(CheckSubBlocks());
  return CheckNames();
}

// One quick pass over the boundaries of ops and variables, so that the big vectors are allocated
// once: growing by doubling would cost half as much memory again.
absl::Status ProgramIndexer::CountAndReserve() {
  const absl::string_view bytes = program_.bytes_;
  Stream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  in.PushLimit(static_cast<int>(bytes.size()));
  size_t num_ops = 0, num_vars = 0;
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = in.ReadTag();
    if (tag == 0) break;
    if (tag != kProgramBlocks) {
      if (!WireFormatLite::SkipField(&in, tag)) return Malformed(absl::StrCat("byte ", begin));
      continue;
    }
    MessageScope block(&in);
    if (!block.ok()) return Malformed(absl::StrCat("block at byte ", begin));
    while (true) {
      const int field_begin = in.CurrentPosition();
      const uint32_t field = in.ReadTag();
      if (field == 0) break;
      num_ops += field == kBlockOps;
      num_vars += field == kBlockVars;
      if (!WireFormatLite::SkipField(&in, field)) {
        return Malformed(absl::StrCat("block at byte ", begin, ", byte ", field_begin));
      }
    }
    if (!AtEnd(in)) return Malformed(absl::StrCat("byte ", in.CurrentPosition()));
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
  Program::BlockRecord block;
  block.field = field;
  std::vector<absl::string_view>* others = &block.head;
  int idx = 0;
  bool has_idx = false, has_parent = false;

  Stream in(reinterpret_cast<const uint8_t*>(payload.data()), static_cast<int>(payload.size()));
  in.PushLimit(static_cast<int>(payload.size()));
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = in.ReadTag();
    if (tag == 0) break;
    if (tag == kBlockVars || tag == kBlockOps) {
      absl::string_view message;
      if (!ReadBytes(&in, &message)) return Malformed(where);
      const char* field_begin = payload.data() + begin;
      const auto header_size = static_cast<uint8_t>(message.data() - field_begin);
      if (tag == kBlockOps) {
        block.ops.push_back(OpId(static_cast<uint32_t>(program_.ops_.size())));
        WEFT_RETURN_IF_ERROR(ReadOp(message, header_size, number, block.ops.size() - 1));
      } else {
        block.vars.push_back(VarId(static_cast<uint32_t>(program_.vars_.size())));
        WEFT_RETURN_IF_ERROR(ReadVar(message, header_size, number, block.vars.size() - 1));
      }
      others = &block.tail;
      continue;
    }
    bool ok;
    if (tag == kBlockIdx) {
      ok = ReadInt(&in, &idx);
      has_idx = true;
    } else if (tag == kBlockParentIdx) {
      ok = ReadInt(&in, &block.parent_idx);
      has_parent = true;
    } else if (tag == kBlockForwardIdx) {
      ok = ReadInt(&in, &block.forward_block_idx);
    } else {
      ok = WireFormatLite::SkipField(&in, tag);
    }
    if (!ok) return Malformed(where);
    AddPiece(payload.substr(begin, in.CurrentPosition() - begin), others);
  }
  if (!AtEnd(in)) return Malformed(where);
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

absl::Status ProgramIndexer::ReadOp(absl::string_view message, uint8_t header_size, int block,
                                    size_t position) {
  op_.Clear();
  const auto where = [&] {
    return absl::StrCat(block == 0 ? "" : absl::StrCat("block ", block, ", "), "op ", position,
                        op_.has_type ? absl::StrCat(" (", absl::CEscape(op_.type), ")") : "");
  };
  Stream in(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  in.PushLimit(static_cast<int>(message.size()));
  while (const uint32_t tag = in.ReadTag()) {
    bool ok;
    switch (tag) {
      case kOpInputs:
        ok = ReadSlot(&in, /*output=*/false);
        break;
      case kOpOutputs:
        ok = ReadSlot(&in, /*output=*/true);
        break;
      case kOpType:
        ok = ReadBytes(&in, &op_.type);
        op_.has_type = true;
        break;
      case kOpAttrs:
        ok = ReadAttr(&in);
        break;
      default:
        ok = WireFormatLite::SkipField(&in, tag);
    }
    if (!ok) return Malformed(where());
  }
  if (!AtEnd(in)) return Malformed(where());
  if (!op_.has_type) return absl::InvalidArgumentError(absl::StrCat(where(), " has no type"));
  const absl::Status stored = StoreOp(message, header_size, block);
  if (!stored.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where(), ": ", stored.message()));
  }
  return absl::OkStatus();
}

bool ProgramIndexer::ReadSlot(Stream* in, bool output) {
  MessageScope scope(in);
  if (!scope.ok()) return false;
  SlotBytes slot;
  slot.output = output;
  slot.first = static_cast<uint32_t>(op_.args.size());
  bool has_name = false;
  while (const uint32_t tag = in->ReadTag()) {
    if (tag == kSlotArguments) {
      absl::string_view arg;
      if (!ReadBytes(in, &arg)) return false;
      op_.args.push_back(arg);
    } else if (tag == kSlotParameter) {
      if (!ReadBytes(in, &slot.name)) return false;
      has_name = true;
    } else if (!WireFormatLite::SkipField(in, tag)) {
      return false;
    }
  }
  slot.count = static_cast<uint32_t>(op_.args.size()) - slot.first;
  op_.out_of_order |= !output && op_.outputs_seen;
  op_.outputs_seen |= output;
  op_.slots.push_back(slot);
  return AtEnd(*in) && has_name;
}

bool ProgramIndexer::ReadAttr(Stream* in) {
  MessageScope scope(in);
  if (!scope.ok()) return false;
  AttrBytes attr;
  bool has_name = false;
  while (const uint32_t tag = in->ReadTag()) {
    if (tag == kAttrName) {
      if (!ReadBytes(in, &attr.name)) return false;
      has_name = true;
    } else if (tag == kAttrType) {
      if (!ReadInt(in, &attr.type)) return false;
      attr.has_type = true;
    } else if (tag == kAttrI) {
      if (!ReadInt(in, &attr.i)) return false;
      attr.has_i = true;
    } else if (tag == kAttrScalar || tag == kAttrScalars) {
      absl::string_view scalar;
      if (!ReadBytes(in, &scalar) || !IsWellFormed<pb::Scalar>(scalar)) return false;
    } else {
      attr.has_strings |= tag == kAttrStrings;
      if (!WireFormatLite::SkipField(in, tag)) return false;
    }
  }
  op_.attrs.push_back(attr);
  return AtEnd(*in) && has_name && attr.has_type;
}

// Checks the attributes that everything relies on, and stores what was read.
absl::Status ProgramIndexer::StoreOp(absl::string_view message, uint8_t header_size, int block) {
  Program::OpRecord record;
  record.begin = message.data() - header_size;
  record.payload_size = static_cast<uint32_t>(message.size());
  record.header_size = header_size;
  record.flags = 0;
  record.role = kRoleNotSpecified;
  record.block = block;
  for (const AttrBytes& attr : op_.attrs) {
    if (attr.name == kOpRoleAttr) {
      if (attr.type != pb::INT) return WrongAttrType(attr, pb::INT);
      record.role = attr.has_i ? attr.i : 0;
    } else if (attr.name == kOpRoleVarAttr) {
      if (attr.type != pb::STRINGS) return WrongAttrType(attr, pb::STRINGS);
      if (attr.has_strings) {
        record.flags |= Program::kHasRoleVars;
      } else {
        record.flags &= ~Program::kHasRoleVars;
      }
    } else if (attr.type == pb::BLOCK || attr.type == pb::BLOCKS) {
      record.flags |= Program::kHasSubBlocks;
    }
  }
  const OpId id(static_cast<uint32_t>(program_.ops_.size()));
  if ((record.flags & Program::kHasSubBlocks) != 0) ops_with_sub_blocks_.push_back(id);

  if (op_.out_of_order) PutInputsFirst();
  record.layout = LayoutOfOp();
  record.first_arg = static_cast<uint32_t>(program_.args_.size());
  for (absl::string_view arg : op_.args) {
    const uint32_t hash = SymbolTable::Hash(arg);
    program_.symbols_.Prefetch(hash);
    pending_args_.push_back({arg, hash, static_cast<uint32_t>(program_.args_.size())});
    program_.args_.emplace_back();
  }
  if (pending_args_.size() >= kBatch) FlushArgs();
  program_.ops_.push_back(record);
  return absl::OkStatus();
}

// Arguments are stored with those of input slots first, whatever the order in the file.
void ProgramIndexer::PutInputsFirst() {
  std::stable_partition(op_.slots.begin(), op_.slots.end(),
                        [](const SlotBytes& slot) { return !slot.output; });
  std::vector<absl::string_view> args;
  for (SlotBytes& slot : op_.slots) {
    const uint32_t first = static_cast<uint32_t>(args.size());
    args.insert(args.end(), op_.args.begin() + slot.first,
                op_.args.begin() + slot.first + slot.count);
    slot.first = first;
  }
  op_.args = std::move(args);
}

// Finds the layout of the op that was read, or adds it. The key spells the layout out, lengths
// before names, so that different layouts have different keys.
uint32_t ProgramIndexer::LayoutOfOp() {
  layout_key_.clear();
  const auto put = [this](uint32_t kind, uint32_t number, absl::string_view name) {
    const uint32_t head[3] = {kind, number, static_cast<uint32_t>(name.size())};
    layout_key_.append(reinterpret_cast<const char*>(head), sizeof(head));
    layout_key_.append(name.data(), name.size());
  };
  put(0, 0, op_.type);
  for (const SlotBytes& slot : op_.slots) put(slot.output ? 2 : 1, slot.count, slot.name);
  for (const AttrBytes& attr : op_.attrs) put(3, static_cast<uint32_t>(attr.type), attr.name);

  const auto [it, is_new] = program_.layout_of_key_.try_emplace(
      layout_key_, static_cast<uint32_t>(program_.layouts_.size()));
  if (!is_new) return it->second;

  OpLayout layout;
  layout.type = program_.symbols_.Intern(op_.type);
  for (const SlotBytes& slot : op_.slots) {
    (slot.output ? layout.outputs : layout.inputs)
        .push_back({program_.symbols_.Intern(slot.name), slot.first, slot.count});
    if (!slot.output) layout.num_input_args += slot.count;
  }
  layout.num_args = static_cast<uint32_t>(op_.args.size());
  for (const AttrBytes& attr : op_.attrs) {
    layout.attrs.push_back({program_.symbols_.Intern(attr.name), attr.type});
  }
  program_.layouts_.push_back(std::move(layout));
  return it->second;
}

absl::Status ProgramIndexer::ReadVar(absl::string_view message, uint8_t header_size, int block,
                                     size_t position) {
  Program::VarRecord record;
  record.begin = message.data() - header_size;
  record.payload_size = static_cast<uint32_t>(message.size());
  record.header_size = header_size;
  record.flags = 0;
  record.type = 0;
  record.block = block;
  absl::string_view name;
  bool has_name = false, has_type = false;
  const auto where = [&] {
    return absl::StrCat(block == 0 ? "" : absl::StrCat("block ", block, ", "), "variable ",
                        position, has_name ? absl::StrCat(" (", absl::CEscape(name), ")") : "");
  };

  Stream in(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  in.PushLimit(static_cast<int>(message.size()));
  while (const uint32_t tag = in.ReadTag()) {
    bool ok;
    absl::string_view bytes;
    switch (tag) {
      case kVarName:
        ok = ReadBytes(&in, &name);
        has_name = true;
        break;
      case kVarType:
        ok = ReadBytes(&in, &bytes) && ReadVarType(bytes, &record.type);
        has_type = true;
        break;
      case kVarPersistable:
        ok = ReadFlag(&in, Program::kPersistable, &record.flags);
        break;
      case kVarNeedCheckFeed:
        ok = ReadFlag(&in, Program::kNeedCheckFeed, &record.flags);
        break;
      case kVarIsParameter:
        ok = ReadFlag(&in, Program::kIsParameter, &record.flags);
        break;
      case kVarStopGradient:
        ok = ReadFlag(&in, Program::kStopGradient, &record.flags);
        break;
      case kVarAttrs:
        ok = ReadBytes(&in, &bytes) && IsWellFormed<pb::VarDesc::Attr>(bytes);
        break;
      default:
        ok = WireFormatLite::SkipField(&in, tag);
    }
    if (!ok) return Malformed(where());
  }
  if (!AtEnd(in)) return Malformed(where());
  if (!has_name || !has_type) {
    return absl::InvalidArgumentError(
        absl::StrCat(where(), has_name ? " has no type" : " has no name"));
  }
  const uint32_t hash = SymbolTable::Hash(name);
  program_.symbols_.Prefetch(hash);
  pending_vars_.push_back({name, hash, static_cast<uint32_t>(program_.vars_.size())});
  program_.vars_.push_back(record);
  if (pending_vars_.size() >= kBatch) FlushVars();
  return absl::OkStatus();
}

// The generated class checks an encoding once; a program holds few different ones.
bool ProgramIndexer::ReadVarType(absl::string_view bytes, int* type) {
  const auto known = var_types_.find(bytes);
  if (known != var_types_.end()) {
    *type = known->second;
    return true;
  }
  // The number, read raw: the generated class hides numbers that it does not know.
  Stream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  in.PushLimit(static_cast<int>(bytes.size()));
  bool has_type = false;
  while (const uint32_t tag = in.ReadTag()) {
    if (tag == kVarTypeType) {
      if (!ReadInt(&in, type)) return false;
      has_type = true;
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      return false;
    }
  }
  if (!has_type || !IsWellFormed<pb::VarType>(bytes)) return false;
  var_types_.emplace(bytes, *type);
  return true;
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
  WEFT_RETURN_IF_ERROR(ReadOp(field.substr(header_size), header_size, block, id.value()));
  Flush();
  return id;
}

absl::StatusOr<VarId> ProgramIndexer::AddVar(absl::string_view field, uint8_t header_size,
                                             int block) {
  const VarId id(static_cast<uint32_t>(program_.vars_.size()));
  WEFT_RETURN_IF_ERROR(ReadVar(field.substr(header_size), header_size, block, id.value()));
  Flush();
  return id;
}

absl::Status ProgramIndexer::LinkVar(VarId id) {
  Program::VarRecord& var = program_.vars_[id.value()];
  if (program_.FindVar(var.block, var.name).valid()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block ", var.block, ": variable ", Quote(program_.name(var.name)), " is declared twice"));
  }
  if (program_.first_var_of_name_.size() < program_.symbols_.size()) {
    program_.first_var_of_name_.resize(program_.symbols_.size());
  }
  VarId& first = program_.first_var_of_name_[var.name.value()];
  var.next_of_name = first;
  first = id;
  return absl::OkStatus();
}

absl::Status ProgramIndexer::CheckBlocks() const {
  const int n = program_.num_blocks();
  if (n == 0) return absl::InvalidArgumentError("the program has no blocks");
  for (int i = 0; i < n; ++i) {
    const int parent = program_.blocks_[i].parent_idx;
    if (parent < -1 || parent >= n) {
      return absl::InvalidArgumentError(absl::StrCat(
          "block ", i, ": parent block ", parent, " is missing; the program has ", n, " blocks"));
    }
  }
  if (program_.blocks_[0].parent_idx != -1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block 0: the root block has parent ", program_.blocks_[0].parent_idx, ", expected -1"));
  }
  // Each block's way up must end. Blocks known to end are not walked again: linear.
  std::vector<int> state(n, 0);  // 0 unknown, 1 on the way being walked, 2 ends
  for (int i = 0; i < n; ++i) {
    int b = i;
    while (b != -1 && state[b] == 0) {
      state[b] = 1;
      b = program_.blocks_[b].parent_idx;
    }
    if (b != -1 && state[b] == 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", b, ": is its own ancestor: the parents form a cycle"));
    }
    for (b = i; b != -1 && state[b] == 1; b = program_.blocks_[b].parent_idx) state[b] = 2;
  }
  return absl::OkStatus();
}

// Running an op runs its sub-blocks, so "contains" must not lead back.
absl::Status ProgramIndexer::CheckSubBlocks() const {
  const int n = program_.num_blocks();
  std::vector<std::vector<int>> contains(n);
  std::vector<int> times_contained(n, 0);
  for (OpId id : ops_with_sub_blocks_) {
    const Op op = program_.op(id);
    for (int sub : op.SubBlocks()) {
      if (sub < 1 || sub >= n) {
        return absl::InvalidArgumentError(
            absl::StrCat(op.DebugName(), ": sub-block ", sub,
                         sub == 0 ? " is the root block"
                                  : absl::StrCat(" is missing; the program has ", n, " blocks")));
      }
      contains[op.block()].push_back(sub);
      ++times_contained[sub];
    }
  }
  // Blocks that nothing contains, then those that only such blocks contain, and so on.
  std::vector<int> ready;
  for (int i = 0; i < n; ++i) {
    if (times_contained[i] == 0) ready.push_back(i);
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    for (int sub : contains[ready[i]]) {
      if (--times_contained[sub] == 0) ready.push_back(sub);
    }
  }
  for (int i = 0; i < n; ++i) {
    if (times_contained[i] > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", i, ": sub-blocks contain each other in a cycle"));
    }
  }
  return absl::OkStatus();
}

absl::Status ProgramIndexer::CheckNames() const {
  for (uint32_t i = 0; i < program_.symbols_.size(); ++i) {
    const absl::string_view name = program_.symbols_.name(Symbol(i));
    if (!IsValidUtf8(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the name ", Quote(name), " is not valid UTF-8"));
    }
  }
  return absl::OkStatus();
}

absl::Status ProgramIndexer::WrongAttrType(const AttrBytes& attr, pb::AttrType expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "attribute ", attr.name, ": expected type ", pb::AttrType_Name(expected), ", found ",
      pb::AttrType_IsValid(attr.type) ? pb::AttrType_Name(static_cast<pb::AttrType>(attr.type))
                                      : absl::StrCat("number ", attr.type)));
}

}  // namespace weft
