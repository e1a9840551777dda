#include "proto/message_reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/framework.pb.h"
#include "proto/op_role.h"
#include "proto/snake_case_slots.h"

namespace weft {
namespace {

using ::weft::wire::LengthDelimited;
using ::weft::wire::Varint;

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

// How many different ends of ops, and of variables, are remembered.
constexpr size_t kMaxKnown = 1 << 16;

// True if all numbers of a list are in one field, false if each has a field.
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

bool ReadBool(wire::Stream* in, bool* value) {
  uint64_t raw;
  if (!in->ReadVarint64(&raw)) return false;
  *value = raw != 0;
  return true;
}

bool ReadVarType(absl::string_view bytes, int* type) {
  // The number, read raw: the generated class hides numbers that it does not know.
  wire::MessageStream in(bytes);
  bool has_type = false;
  while (const uint32_t tag = wire::NextTag(&in)) {
    if (tag == kVarTypeType) {
      if (!wire::ReadInt(&in, type)) return false;
      has_type = true;
    } else if (!wire::SkipField(&in, tag)) {
      return false;
    }
  }
  return has_type && wire::IsWellFormed<pb::VarType>(bytes);
}

bool ReadVarField(wire::Stream* in, uint32_t tag, VarReader::Message* message, bool* has_type) {
  absl::string_view bytes;
  switch (tag) {
    case kVarType:
      *has_type = true;
      return wire::ReadBytes(in, &bytes) && ReadVarType(bytes, &message->type);
    case kVarPersistable:
      return ReadBool(in, &message->persistable);
    case kVarNeedCheckFeed:
      return ReadBool(in, &message->need_check_feed);
    case kVarIsParameter:
      return ReadBool(in, &message->is_parameter);
    case kVarStopGradient:
      return ReadBool(in, &message->stop_gradient);
    case kVarAttrs:
      return wire::ReadBytes(in, &bytes) && wire::IsWellFormed<pb::VarDesc::Attr>(bytes);
    default:
      return wire::SkipField(in, tag);
  }
}

// "block 1, op 17 (mul)", without the name if it is not known yet.
std::string Describe(const MessagePosition& at, absl::string_view kind, bool has_name,
                     absl::string_view name) {
  return absl::StrCat(at.block == 0 ? "" : absl::StrCat("block ", at.block, ", "),
                      at.position == MessagePosition::kNew ? absl::StrCat("new ", kind)
                                                           : absl::StrCat(kind, " ", at.position),
                      has_name ? absl::StrCat(" (", absl::CEscape(name), ")") : "");
}

absl::Status MalformedIn(absl::string_view what, const MessagePosition& at, size_t byte) {
  return at.position == MessagePosition::kNew ? Malformed(what) : MalformedAt(what, at.byte + byte);
}

absl::Status WrongAttrType(const OpReader::Attr& attr, pb::AttrType expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "attribute ", attr.name, ": expected type ", pb::AttrType_Name(expected), ", found ",
      pb::AttrType_IsValid(attr.type) ? pb::AttrType_Name(static_cast<pb::AttrType>(attr.type))
                                      : absl::StrCat("number ", attr.type)));
}

}  // namespace

size_t BytesHash::operator()(absl::string_view bytes) const {
  return XXH3_64bits(bytes.data(), bytes.size());
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": malformed or truncated protobuf"));
}

absl::Status MalformedAt(absl::string_view what, size_t byte) {
  return Malformed(absl::StrCat(what, what.empty() ? "" : ", ", "byte ", byte));
}

absl::StatusOr<const OpReader::Message*> OpReader::Read(absl::string_view message,
                                                        const MessagePosition& at, bool use_known) {
  message_.slots.clear();
  message_.args.clear();
  message_.attrs.clear();
  message_.tail = Tail();
  attr_values_.clear();
  tail_ = {};
  inputs_after_outputs_ = false;
  bool has_type = false;
  size_t byte = 0;  // of the field that is being read
  const auto where = [&] { return Describe(at, "op", has_type, message_.type); };
  const auto malformed = [&] { return MalformedIn(where(), at, byte); };
  wire::MessageStream in(message);
  while (const uint32_t tag = wire::NextTag(&in)) {
    if (tag == kOpInputs || tag == kOpOutputs) {
      if (!ReadSlot(&in, /*output=*/tag == kOpOutputs)) return malformed();
      tail_ = {};
    } else if (tag == kOpType) {
      if (!wire::ReadBytes(&in, &message_.type)) return malformed();
      tail_ = has_type || !message_.attrs.empty() ? absl::string_view() : message.substr(byte);
      has_type = true;
      const auto known = use_known ? known_tails_.find(tail_) : known_tails_.end();
      if (known != known_tails_.end()) {
        message_.tail = known->second;
        in.Skip(in.BytesUntilLimit());
      }
    } else if (tag == kOpAttrs) {
      if (!ReadAttr(&in)) return malformed();
    } else if (!wire::SkipField(&in, tag)) {
      return malformed();
    }
    byte = in.CurrentPosition();
  }
  byte = in.CurrentPosition();
  if (!wire::AtEnd(&in)) return malformed();
  if (!has_type) return absl::InvalidArgumentError(absl::StrCat(where(), " has no type"));
  if (inputs_after_outputs_) PutInputsFirst();
  if (HasSnakeCaseSlots(message_.type)) {
    for (Slot& slot : message_.slots) slot.name = CamelCaseSlot(slot.name);
  }
  if (message_.tail.signature.has_value()) return &message_;
  const absl::Status status = SummarizeAttrs();
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where(), ": ", status.message()));
  }
  return &message_;
}

void OpReader::RememberSignature(uint32_t signature) {
  message_.tail.signature = signature;
  // Pairs of parameter and gradient occur once.
  if (tail_.empty() || message_.tail.has_role_vars) return;
  if (known_tails_.size() < kMaxKnown) known_tails_[tail_] = message_.tail;
}

bool OpReader::ReadSlot(wire::Stream* in, bool output) {
  absl::string_view rest;
  if (!wire::ReadBytes(in, &rest)) return false;
  Slot slot;
  slot.output = output;
  slot.first = static_cast<uint32_t>(message_.args.size());
  absl::string_view arg;
  bool has_name = wire::TakeShortField(kSlotParameter, &rest, &slot.name);
  while (wire::TakeShortField(kSlotArguments, &rest, &arg)) message_.args.push_back(arg);
  // What is unusual: long names, unknown fields, the name not first.
  wire::MessageStream fields(rest);
  while (const uint32_t tag = wire::NextTag(&fields)) {
    if (tag == kSlotArguments) {
      if (!wire::ReadBytes(&fields, &arg)) return false;
      message_.args.push_back(arg);
    } else if (tag == kSlotParameter) {
      if (!wire::ReadBytes(&fields, &slot.name)) return false;
      has_name = true;
    } else if (!wire::SkipField(&fields, tag)) {
      return false;
    }
  }
  slot.count = static_cast<uint32_t>(message_.args.size()) - slot.first;
  inputs_after_outputs_ |= !output && !message_.slots.empty() && message_.slots.back().output;
  message_.slots.push_back(slot);
  return wire::AtEnd(&fields) && has_name;
}

bool OpReader::ReadAttr(wire::Stream* in) {
  absl::string_view message;
  if (!wire::ReadBytes(in, &message)) return false;
  wire::MessageStream fields(message);
  Attr attr;
  AttrValue value;
  bool has_name = false, has_type = false, packed = false;
  while (const uint32_t tag = wire::NextTag(&fields)) {
    if (tag == kAttrName) {
      if (!wire::ReadBytes(&fields, &attr.name)) return false;
      has_name = true;
    } else if (tag == kAttrType) {
      if (!wire::ReadInt(&fields, &attr.type)) return false;
      has_type = true;
    } else if (tag == kAttrI) {
      if (!wire::ReadInt(&fields, &value.i)) return false;
      value.has_i = true;
    } else if (tag == kAttrScalar || tag == kAttrScalars) {
      absl::string_view scalar;
      if (!wire::ReadBytes(&fields, &scalar)) return false;
      if (!wire::IsWellFormed<pb::Scalar>(scalar)) return false;
    } else {
      value.has_strings |= tag == kAttrStrings;
      packed |= IsPackedList(tag);
      if (!wire::SkipField(&fields, tag)) return false;
    }
  }
  if (!wire::AtEnd(&fields) || !has_name || !has_type) return false;
  message_.attrs.push_back(attr);
  attr_values_.push_back(value);
  // Paddle does not pack lists, so packed ones may take longer.
  return !packed || wire::IsWellFormed<pb::OpDesc::Attr>(message, wire::Required::kIgnored);
}

void OpReader::PutInputsFirst() {
  std::vector<Slot>& slots = message_.slots;
  std::stable_partition(slots.begin(), slots.end(), [](const Slot& slot) { return !slot.output; });
  std::vector<absl::string_view> args;
  for (Slot& slot : slots) {
    const uint32_t first = static_cast<uint32_t>(args.size());
    args.insert(args.end(), message_.args.begin() + slot.first,
                message_.args.begin() + slot.first + slot.count);
    slot.first = first;
  }
  message_.args = std::move(args);
}

// Fills message_.tail, and checks the types of op_role and op_role_var.
absl::Status OpReader::SummarizeAttrs() {
  Tail& tail = message_.tail;
  tail.role = kRoleNotSpecified;
  for (size_t i = 0; i < message_.attrs.size(); ++i) {
    const Attr& attr = message_.attrs[i];
    const AttrValue& value = attr_values_[i];
    if (attr.name == kOpRoleAttr) {
      if (attr.type != pb::INT) return WrongAttrType(attr, pb::INT);
      tail.role = value.has_i ? value.i : 0;
    } else if (attr.name == kOpRoleVarAttr) {
      if (attr.type != pb::STRINGS) return WrongAttrType(attr, pb::STRINGS);
      tail.has_role_vars = value.has_strings;
    } else if (attr.type == pb::BLOCK || attr.type == pb::BLOCKS) {
      tail.has_sub_blocks = true;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<VarReader::Message> VarReader::Read(absl::string_view bytes,
                                                   const MessagePosition& at) {
  Message message;
  bool has_name = false, has_type = false, is_known = false;
  absl::string_view name, tail;  // tail: the bytes after the name, if the name is first
  size_t byte = 0;               // of the field that is being read
  const auto where = [&] { return Describe(at, "variable", has_name, name); };
  wire::MessageStream in(bytes);
  while (const uint32_t tag = wire::NextTag(&in)) {
    if (tag != kVarName) {
      if (!ReadVarField(&in, tag, &message, &has_type)) return MalformedIn(where(), at, byte);
    } else {
      if (!wire::ReadBytes(&in, &name)) return MalformedIn(where(), at, byte);
      has_name = true;
      tail = byte == 0 ? wire::Rest(&in) : absl::string_view();
      const auto known = known_tails_.find(tail);
      if (byte == 0 && known != known_tails_.end()) {
        message = known->second;
        is_known = has_type = true;
        in.Skip(static_cast<int>(tail.size()));
      }
    }
    byte = in.CurrentPosition();
  }
  if (!wire::AtEnd(&in)) return MalformedIn(where(), at, in.CurrentPosition());
  if (!has_name || !has_type) {
    return absl::InvalidArgumentError(
        absl::StrCat(where(), has_name ? " has no type" : " has no name"));
  }
  if (!tail.empty() && !is_known && known_tails_.size() < kMaxKnown) {
    known_tails_.emplace(tail, message);
  }
  message.name = name;
  return message;
}

}  // namespace weft
