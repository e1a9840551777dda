#include "proto/program_indexer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

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

// Whether the tag is that of a list of numbers in one field instead of one field a number.
bool IsPackedList(uint32_t tag) {
  switch (tag) {
    case LengthDelimited(pb::OpDesc::Attr::kIntsFieldNumber):
    case LengthDelimited(pb::OpDesc::Attr::kFloatsFieldNumber):
    case LengthDelimited(pb::OpDesc::Attr::kBoolsFieldNumber):
    case LengthDelimited(pb::OpDesc::Attr::kBlocksIdxFieldNumber):
    case LengthDelimited(pb::OpDesc::Attr::kLongsFieldNumber):
    case LengthDelimited(pb::OpDesc::Attr::kFloat64SFieldNumber):
      return true;
    default:
      return false;
  }
}

// How many names wait for their place in the hash table to arrive in the cache.
constexpr size_t kBatch = 64;

// How many different attribute lists, with their values, are remembered.
constexpr size_t kMaxTails = 1 << 16;

// The largest depth to which messages and groups may nest in what is read apart. Generated classes
// stop at 100, counted from ProgramDesc; what is read apart stands up to four deep in it.
constexpr int kMaxDepth = 90;

// True where the varint that comes next takes more than five bytes, as no tag or length does:
// CodedInputStream would drop the upper bits, generated classes refuse it.
inline bool LongVarintIsNext(Stream* in) {
  const void* data;
  int available;
  in->GetDirectBufferPointerInline(&data, &available);
  const auto* b = static_cast<const uint8_t*>(data);
  if (available == 0 || b[0] < 0x80) return false;
  return available > 5 && (b[1] & b[2] & b[3] & b[4] & 0x80) != 0;
}

// The next tag; 0 at the end of the message, or where there is no proper tag: AtEnd tells.
inline uint32_t NextTag(Stream* in) {
  if (LongVarintIsNext(in)) return 0;
  return in->ReadTag();
}

// True where NextTag has returned 0 because the message ends there.
bool AtEnd(Stream* in) { return in->ConsumedEntireMessage(); }

bool ReadSize(Stream* in, int* size) {
  return !LongVarintIsNext(in) && in->ReadVarintSizeAsInt(size);
}

// Reads a length and the bytes after it. False where they reach beyond the enclosing message.
bool ReadBytes(Stream* in, absl::string_view* bytes) {
  int size;
  if (!ReadSize(in, &size)) return false;
  const void* data;
  int available;
  in->GetDirectBufferPointerInline(&data, &available);
  if (size > available) return false;
  *bytes = absl::string_view(static_cast<const char*>(data), size);
  return in->Skip(size);
}

// What is left of the enclosing message.
absl::string_view Rest(Stream* in) {
  const void* data;
  int available;
  in->GetDirectBufferPointerInline(&data, &available);
  return absl::string_view(static_cast<const char*>(data), available);
}

// Restricts a stream to the next message and undoes that. ok() tells whether the length was sound.
class MessageScope {
 public:
  explicit MessageScope(Stream* in) : in_(in) {
    int size;
    if (!ReadSize(in, &size)) return;
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

// True where every required field is there, in nested messages too. An enum number that this
// version does not know counts: it stands among the unknown fields.
bool HasRequiredFields(const google::protobuf::Message& message) {
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (!field->is_required() || reflection->HasField(message, field)) continue;
    if (field->enum_type() == nullptr) return false;
    const auto& unknown = reflection->GetUnknownFields(message);
    bool found = false;
    for (int k = 0; k < unknown.field_count(); ++k) {
      found |= unknown.field(k).number() == field->number();
    }
    if (!found) return false;
  }
  std::vector<const google::protobuf::FieldDescriptor*> present;
  reflection->ListFields(message, &present);
  for (const auto* field : present) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      if (!HasRequiredFields(reflection->GetMessage(message, field))) return false;
      continue;
    }
    for (int k = 0; k < reflection->FieldSize(message, field); ++k) {
      if (!HasRequiredFields(reflection->GetRepeatedMessage(message, field, k))) return false;
    }
  }
  return true;
}

enum class Required { kChecked, kIgnored };

// Whether the generated class M can read the bytes.
template <typename M>
bool IsWellFormed(absl::string_view bytes, Required required = Required::kChecked) {
  Stream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  in.SetRecursionLimit(kMaxDepth);
  M message;
  if (!message.ParsePartialFromCodedStream(&in) || !in.ConsumedEntireMessage()) return false;
  return required == Required::kIgnored || HasRequiredFields(message);
}

// Passes over the value of a field that nobody asks for.
bool SkipField(Stream* in, uint32_t tag) {
  switch (WireFormatLite::GetTagWireType(tag)) {
    case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
      absl::string_view bytes;
      return WireFormatLite::GetTagFieldNumber(tag) != 0 && ReadBytes(in, &bytes);
    }
    case WireFormatLite::WIRETYPE_START_GROUP: {
      // Paddle writes no groups. The stream's own way to skip them is more lenient than generated
      // classes are, so one of those, to which every field is unknown, has the last word.
      const void* data;
      int available;
      in->GetDirectBufferPointerInline(&data, &available);
      const int begin = in->CurrentPosition();
      in->SetRecursionLimit(kMaxDepth);
      if (!WireFormatLite::SkipField(in, tag)) return false;
      uint8_t start[8];
      const uint8_t* end =
          google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(tag, start);
      const absl::string_view rest(static_cast<const char*>(data), in->CurrentPosition() - begin);
      return IsWellFormed<pb::Version>(
          absl::StrCat(absl::string_view(reinterpret_cast<char*>(start), end - start), rest));
    }
    default:
      return WireFormatLite::SkipField(in, tag);
  }
}

std::string Quote(absl::string_view name) { return absl::StrCat("'", absl::CEscape(name), "'"); }

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": malformed or truncated protobuf"));
}
absl::Status Malformed(absl::string_view what, size_t byte) {
  return Malformed(absl::StrCat(what, ", byte ", byte));
}

// Adds bytes to a list of pieces, to the last piece where they follow it directly.
void AddPiece(absl::string_view piece, std::vector<absl::string_view>* pieces) {
  if (!pieces->empty() && pieces->back().data() + pieces->back().size() == piece.data()) {
    pieces->back() = absl::string_view(pieces->back().data(), pieces->back().size() + piece.size());
  } else {
    pieces->push_back(piece);
  }
}

// Appends a name to a key, its length before it: different lists have different keys.
void PutName(uint32_t kind, uint32_t number, absl::string_view name, std::string* key) {
  const uint32_t head[3] = {kind, number, static_cast<uint32_t>(name.size())};
  key->append(reinterpret_cast<const char*>(head), sizeof(head));
  key->append(name.data(), name.size());
}

}  // namespace

size_t ProgramIndexer::BytesHash::operator()(absl::string_view bytes) const {
  return XXH3_64bits(bytes.data(), bytes.size());
}

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
    const uint32_t tag = NextTag(&in);
    if (tag == 0) break;
    if (tag == kProgramBlocks) {
      absl::string_view payload;
      if (!ReadBytes(&in, &payload)) return Malformed(absl::StrCat("byte ", begin));
      program_.top_level_.push_back({program_.num_blocks(), {}});
      WEFT_RETURN_IF_ERROR(ReadBlock(bytes.substr(begin, in.CurrentPosition() - begin), payload));
    } else {
      if (!SkipField(&in, tag)) return Malformed(absl::StrCat("byte ", begin));
      const absl::string_view field = bytes.substr(begin, in.CurrentPosition() - begin);
      if (!IsWellFormed<pb::ProgramDesc>(field)) return Malformed(absl::StrCat("byte ", begin));
      program_.top_level_.push_back({-1, field});
    }
  }
  if (!AtEnd(&in)) return Malformed(absl::StrCat("byte ", in.CurrentPosition()));
  Flush();

  for (uint32_t i = 0; i < program_.vars_.size(); ++i) WEFT_RETURN_IF_ERROR(LinkVar(VarId(i)));
  WEFT_RETURN_IF_ERROR(CheckBlocks());
  WEFT_RETURN_IF_ERROR(CheckSubBlocks(ops_with_sub_blocks_));
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
    const uint32_t tag = NextTag(&in);
    if (tag == 0) break;
    if (tag != kProgramBlocks) {
      if (!SkipField(&in, tag)) return Malformed(absl::StrCat("byte ", begin));
      continue;
    }
    MessageScope block(&in);
    if (!block.ok()) return Malformed(absl::StrCat("block at byte ", begin));
    while (true) {
      const int field_begin = in.CurrentPosition();
      const uint32_t field = NextTag(&in);
      if (field == 0) break;
      num_ops += field == kBlockOps;
      num_vars += field == kBlockVars;
      if (!SkipField(&in, field)) {
        return Malformed(absl::StrCat("block at byte ", begin, ", byte ", field_begin));
      }
    }
    if (!AtEnd(&in)) return Malformed(absl::StrCat("byte ", in.CurrentPosition()));
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
  const auto malformed = [&](size_t at) { return Malformed(where, FileOffset(payload) + at); };
  Program::BlockRecord block;
  block.field = field;
  std::vector<absl::string_view>* others = &block.head;
  int idx = 0;
  bool has_idx = false, has_parent = false;

  Stream in(reinterpret_cast<const uint8_t*>(payload.data()), static_cast<int>(payload.size()));
  in.PushLimit(static_cast<int>(payload.size()));
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = NextTag(&in);
    if (tag == 0) break;
    if (tag == kBlockVars || tag == kBlockOps) {
      absl::string_view message;
      if (!ReadBytes(&in, &message)) return malformed(begin);
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
      ok = SkipField(&in, tag);
    }
    if (!ok) return malformed(begin);
    AddPiece(payload.substr(begin, in.CurrentPosition() - begin), others);
  }
  if (!AtEnd(&in)) return malformed(in.CurrentPosition());
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
    return absl::StrCat(block == 0 ? "" : absl::StrCat("block ", block, ", "),
                        position == kNew ? "new op" : absl::StrCat("op ", position),
                        op_.has_type ? absl::StrCat(" (", absl::CEscape(op_.type), ")") : "");
  };
  const auto malformed = [&](size_t at) {
    return position == kNew ? Malformed(where()) : Malformed(where(), FileOffset(message) + at);
  };
  Stream in(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  in.PushLimit(static_cast<int>(message.size()));
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = NextTag(&in);
    if (tag == 0) break;
    bool ok;
    switch (tag) {
      case kOpInputs:
      case kOpOutputs:
        ok = ReadSlot(&in, /*output=*/tag == kOpOutputs);
        op_.tail = {};
        break;
      case kOpType:
        ok = ReadBytes(&in, &op_.type);
        if (!op_.has_type && op_.attrs.empty()) {
          op_.tail = Rest(&in);
          const auto known = op_tails_.find(op_.tail);
          if (known != op_tails_.end()) {
            op_.known_tail = &known->second;
            in.Skip(static_cast<int>(op_.tail.size()));
          }
        } else {
          op_.tail = {};
        }
        op_.has_type |= ok;
        break;
      case kOpAttrs:
        ok = ReadAttr(&in);
        break;
      default:
        ok = SkipField(&in, tag);
    }
    if (!ok) return malformed(begin);
  }
  if (!AtEnd(&in)) return malformed(in.CurrentPosition());
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
  while (const uint32_t tag = NextTag(in)) {
    if (tag == kSlotArguments) {
      absl::string_view arg;
      if (!ReadBytes(in, &arg)) return false;
      op_.args.push_back(arg);
    } else if (tag == kSlotParameter) {
      if (!ReadBytes(in, &slot.name)) return false;
      has_name = true;
    } else if (!SkipField(in, tag)) {
      return false;
    }
  }
  slot.count = static_cast<uint32_t>(op_.args.size()) - slot.first;
  op_.out_of_order |= !output && op_.outputs_seen;
  op_.outputs_seen |= output;
  op_.slots.push_back(slot);
  return AtEnd(in) && has_name;
}

bool ProgramIndexer::ReadAttr(Stream* in) {
  MessageScope scope(in);
  if (!scope.ok()) return false;
  const absl::string_view message = Rest(in);
  AttrBytes attr;
  bool has_name = false, packed = false;
  while (const uint32_t tag = NextTag(in)) {
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
      packed |= IsPackedList(tag);
      if (!SkipField(in, tag)) return false;
    }
  }
  op_.attrs.push_back(attr);
  if (!AtEnd(in) || !has_name || !attr.has_type) return false;
  // Paddle does not pack lists, so the generated class may take its time with those that are.
  return !packed || IsWellFormed<pb::OpDesc::Attr>(message, Required::kIgnored);
}

// Checks the attributes that everything relies on, and stores what was read.
absl::Status ProgramIndexer::StoreOp(absl::string_view message, uint8_t header_size, int block) {
  Program::OpRecord record;
  record.begin = message.data() - header_size;
  record.payload_size = static_cast<uint32_t>(message.size());
  record.header_size = header_size;
  record.block = block;
  OpTail tail;
  if (op_.known_tail != nullptr) {
    tail = *op_.known_tail;
  } else {
    WEFT_ASSIGN_OR_RETURN(tail, TailOfOp());
    // Pairs of parameter and gradient occur once.
    const bool repeats = (tail.flags & Program::kHasRoleVars) == 0;
    if (op_.tail.data() != nullptr && repeats && op_tails_.size() < kMaxTails) {
      op_tails_.emplace(op_.tail, tail);
    }
  }
  record.role = tail.role;
  record.flags = tail.flags;
  const OpId id(static_cast<uint32_t>(program_.ops_.size()));
  if ((record.flags & Program::kHasSubBlocks) != 0) ops_with_sub_blocks_.push_back(id);

  if (op_.out_of_order) PutInputsFirst();
  record.layout = LayoutOfOp(tail.attr_list);
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

absl::StatusOr<ProgramIndexer::OpTail> ProgramIndexer::TailOfOp() {
  OpTail tail;
  tail.role = kRoleNotSpecified;
  for (const AttrBytes& attr : op_.attrs) {
    if (attr.name == kOpRoleAttr) {
      if (attr.type != pb::INT) return WrongAttrType(attr, pb::INT);
      tail.role = attr.has_i ? attr.i : 0;
    } else if (attr.name == kOpRoleVarAttr) {
      if (attr.type != pb::STRINGS) return WrongAttrType(attr, pb::STRINGS);
      if (attr.has_strings) {
        tail.flags |= Program::kHasRoleVars;
      } else {
        tail.flags &= ~Program::kHasRoleVars;
      }
    } else if (attr.type == pb::BLOCK || attr.type == pb::BLOCKS) {
      tail.flags |= Program::kHasSubBlocks;
    }
  }
  tail.attr_list = AttrListOfOp();
  return tail;
}

uint32_t ProgramIndexer::AttrListOfOp() {
  key_.clear();
  for (const AttrBytes& attr : op_.attrs) {
    PutName(0, static_cast<uint32_t>(attr.type), attr.name, &key_);
  }
  const auto [it, is_new] =
      attr_list_of_key_.try_emplace(key_, static_cast<uint32_t>(attr_lists_.size()));
  if (is_new) {
    std::vector<OpLayout::Attr>& list = attr_lists_.emplace_back();
    for (const AttrBytes& attr : op_.attrs) {
      list.push_back({program_.symbols_.Intern(attr.name), attr.type});
    }
  }
  return it->second;
}

uint32_t ProgramIndexer::LayoutOfOp(uint32_t attr_list) {
  key_.clear();
  PutName(0, attr_list, op_.type, &key_);
  for (const SlotBytes& slot : op_.slots) {
    PutName(slot.output ? 2 : 1, slot.count, slot.name, &key_);
  }
  const auto known = layout_of_key_.find(key_);
  if (known != layout_of_key_.end()) return known->second;
  const uint32_t layout = AddLayout(attr_list);
  layout_of_key_.emplace(key_, layout);
  return layout;
}

// Finds the layout among those of the program, whose keys outlive this indexer, or adds it.
uint32_t ProgramIndexer::AddLayout(uint32_t attr_list) {
  std::string key = key_;
  for (const OpLayout::Attr& attr : attr_lists_[attr_list]) {
    PutName(3, static_cast<uint32_t>(attr.type), program_.name(attr.name), &key);
  }
  // The number of the list means something to this indexer only.
  std::memset(&key[sizeof(uint32_t)], 0, sizeof(uint32_t));
  const auto [it, is_new] = program_.layout_of_key_.try_emplace(
      std::move(key), static_cast<uint32_t>(program_.layouts_.size()));
  if (!is_new) return it->second;

  OpLayout layout;
  layout.type = program_.symbols_.Intern(op_.type);
  for (const SlotBytes& slot : op_.slots) {
    (slot.output ? layout.outputs : layout.inputs)
        .push_back({program_.symbols_.Intern(slot.name), slot.first, slot.count});
    if (!slot.output) layout.num_input_args += slot.count;
  }
  layout.num_args = static_cast<uint32_t>(op_.args.size());
  layout.attrs = attr_lists_[attr_list];
  program_.layouts_.push_back(std::move(layout));
  return it->second;
}

absl::Status ProgramIndexer::ReadVar(absl::string_view message, uint8_t header_size, int block,
                                     size_t position) {
  absl::string_view name;
  bool has_name = false;
  const auto where = [&] {
    return absl::StrCat(block == 0 ? "" : absl::StrCat("block ", block, ", "),
                        position == kNew ? "new variable" : absl::StrCat("variable ", position),
                        has_name ? absl::StrCat(" (", absl::CEscape(name), ")") : "");
  };
  const auto malformed = [&](size_t at) {
    return position == kNew ? Malformed(where()) : Malformed(where(), FileOffset(message) + at);
  };

  VarTail tail;
  absl::string_view tail_bytes;
  Stream in(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  in.PushLimit(static_cast<int>(message.size()));
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = NextTag(&in);
    if (tag == 0) break;
    bool ok;
    if (tag == kVarName) {
      ok = ReadBytes(&in, &name);
      tail_bytes = {};
      if (begin == 0) {
        tail_bytes = Rest(&in);
        const auto known = var_tails_.find(tail_bytes);
        if (known != var_tails_.end()) {
          tail = known->second;
          tail_bytes = {};
          in.Skip(static_cast<int>(message.size()) - in.CurrentPosition());
        }
      }
      has_name |= ok;
    } else {
      ok = ReadVarField(&in, tag, &tail);
    }
    if (!ok) return malformed(begin);
  }
  if (!AtEnd(&in)) return malformed(in.CurrentPosition());
  if (!has_name || !tail.has_type) {
    return absl::InvalidArgumentError(
        absl::StrCat(where(), has_name ? " has no type" : " has no name"));
  }
  if (tail_bytes.data() != nullptr && var_tails_.size() < kMaxTails) {
    var_tails_.emplace(tail_bytes, tail);
  }
  Program::VarRecord record;
  record.begin = message.data() - header_size;
  record.payload_size = static_cast<uint32_t>(message.size());
  record.header_size = header_size;
  record.flags = tail.flags;
  record.type = tail.type;
  record.block = block;
  const uint32_t hash = SymbolTable::Hash(name);
  program_.symbols_.Prefetch(hash);
  pending_vars_.push_back({name, hash, static_cast<uint32_t>(program_.vars_.size())});
  program_.vars_.push_back(record);
  if (pending_vars_.size() >= kBatch) FlushVars();
  return absl::OkStatus();
}

bool ProgramIndexer::ReadVarField(Stream* in, uint32_t tag, VarTail* tail) {
  absl::string_view bytes;
  switch (tag) {
    case kVarType:
      tail->has_type = true;
      return ReadBytes(in, &bytes) && ReadVarType(bytes, &tail->type);
    case kVarPersistable:
      return ReadFlag(in, Program::kPersistable, &tail->flags);
    case kVarNeedCheckFeed:
      return ReadFlag(in, Program::kNeedCheckFeed, &tail->flags);
    case kVarIsParameter:
      return ReadFlag(in, Program::kIsParameter, &tail->flags);
    case kVarStopGradient:
      return ReadFlag(in, Program::kStopGradient, &tail->flags);
    case kVarAttrs:
      return ReadBytes(in, &bytes) && IsWellFormed<pb::VarDesc::Attr>(bytes);
    default:
      return SkipField(in, tag);
  }
}

bool ProgramIndexer::ReadVarType(absl::string_view bytes, int* type) {
  // The number, read raw: the generated class hides numbers that it does not know.
  Stream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  in.PushLimit(static_cast<int>(bytes.size()));
  bool has_type = false;
  while (const uint32_t tag = NextTag(&in)) {
    if (tag == kVarTypeType) {
      if (!ReadInt(&in, type)) return false;
      has_type = true;
    } else if (!SkipField(&in, tag)) {
      return false;
    }
  }
  return has_type && IsWellFormed<pb::VarType>(bytes);
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
  WEFT_RETURN_IF_ERROR(ReadOp(field.substr(header_size), header_size, block, kNew));
  Flush();
  WEFT_RETURN_IF_ERROR(CheckName(op_.type));
  for (const SlotBytes& slot : op_.slots) WEFT_RETURN_IF_ERROR(CheckName(slot.name));
  for (absl::string_view arg : op_.args) WEFT_RETURN_IF_ERROR(CheckName(arg));
  for (const AttrBytes& attr : op_.attrs) WEFT_RETURN_IF_ERROR(CheckName(attr.name));
  return id;
}

absl::StatusOr<VarId> ProgramIndexer::AddVar(absl::string_view field, uint8_t header_size,
                                             int block) {
  const VarId id(static_cast<uint32_t>(program_.vars_.size()));
  WEFT_RETURN_IF_ERROR(ReadVar(field.substr(header_size), header_size, block, kNew));
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
    return absl::InvalidArgumentError(absl::StrCat(
        "block ", var.block, ": variable ", Quote(program_.name(var.name)), " is declared twice"));
  }
  place = id;
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
  // Each block's way up must end. Blocks whose depth is known are not walked again: linear.
  constexpr int kUnknown = -1, kOnTheWay = -2;
  std::vector<int> depth(n, kUnknown);
  std::vector<int> way;
  for (int i = 0; i < n; ++i) {
    int b = i;
    for (; b != -1 && depth[b] == kUnknown; b = program_.blocks_[b].parent_idx) {
      depth[b] = kOnTheWay;
      way.push_back(b);
    }
    if (b != -1 && depth[b] == kOnTheWay) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", b, ": is its own ancestor: the parents form a cycle"));
    }
    for (int above = b == -1 ? -1 : depth[b]; !way.empty(); way.pop_back()) {
      depth[way.back()] = ++above;
      if (above > Program::kMaxBlockDepth) return TooDeep(way.back());
    }
  }
  return absl::OkStatus();
}

// Running an op runs its sub-blocks, so "contains" must not lead back.
absl::Status ProgramIndexer::CheckSubBlocks(absl::Span<const OpId> ops_with_sub_blocks) const {
  const int n = program_.num_blocks();
  std::vector<std::vector<int>> contains(n);
  std::vector<int> times_contained(n, 0), depth(n, 0);
  for (OpId id : ops_with_sub_blocks) {
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
      depth[sub] = std::max(depth[sub], depth[ready[i]] + 1);
      if (depth[sub] > Program::kMaxBlockDepth) return TooDeep(sub);
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
    WEFT_RETURN_IF_ERROR(CheckName(program_.symbols_.name(Symbol(i))));
  }
  return absl::OkStatus();
}

absl::Status ProgramIndexer::CheckName(absl::string_view name) {
  if (IsValidUtf8(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the name ", Quote(name), " is not valid UTF-8"));
}

absl::Status ProgramIndexer::TooDeep(int block) {
  return absl::InvalidArgumentError(
      absl::StrCat("block ", block, ": blocks are nested deeper than ", Program::kMaxBlockDepth));
}

size_t ProgramIndexer::FileOffset(absl::string_view part) const {
  return part.data() - program_.bytes_.data();
}

absl::Status ProgramIndexer::WrongAttrType(const AttrBytes& attr, pb::AttrType expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "attribute ", attr.name, ": expected type ", pb::AttrType_Name(expected), ", found ",
      pb::AttrType_IsValid(attr.type) ? pb::AttrType_Name(static_cast<pb::AttrType>(attr.type))
                                      : absl::StrCat("number ", attr.type)));
}

}  // namespace weft
