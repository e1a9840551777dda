#include "proto/message_reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/framework.pb.h"
#include "proto/op_role.h"

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

// How many different attribute lists with their values, or ends of variables, are remembered.
constexpr size_t kMaxKnown = 1 << 16;

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

// "block 1, op 17 (mul)", as far as it is known.
std::string Describe(const MessagePosition& place, absl::string_view kind, bool has_name,
                     absl::string_view name) {
  return absl::StrCat(place.block == 0 ? "" : absl::StrCat("block ", place.block, ", "),
                      place.position == MessagePosition::kNew
                          ? absl::StrCat("new ", kind)
                          : absl::StrCat(kind, " ", place.position),
                      has_name ? absl::StrCat(" (", absl::CEscape(name), ")") : "");
}

absl::Status MalformedIn(absl::string_view what, const MessagePosition& place, size_t byte) {
  return place.position == MessagePosition::kNew ? Malformed(what)
                                                 : MalformedAt(what, place.byte + byte);
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

// --- Ops ----------------------------------------------------------------------------------------

absl::StatusOr<const OpReader::Message*> OpReader::Read(absl::string_view message,
                                                        const MessagePosition& place) {
  const Fields fields = ReadFields(message);
  const auto where = [&] { return Describe(place, "op", fields.has_type, message_.type); };
  if (!fields.ok) return MalformedIn(where(), place, fields.byte);
  if (!fields.has_type) return absl::InvalidArgumentError(absl::StrCat(where(), " has no type"));
  if (inputs_after_outputs_) PutInputsFirst();
  if (fields.attrs_known) return &message_;

  const absl::Status status = SummarizeAttrs();
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where(), ": ", status.message()));
  }
  // Pairs of parameter and gradient occur once.
  const bool repeats = !message_.attrs.has_role_vars;
  if (fields.attr_bytes.data() != nullptr && repeats && known_attrs_.size() < kMaxKnown) {
    known_attrs_.emplace(fields.attr_bytes, message_.attrs);
  }
  return &message_;
}

OpReader::Fields OpReader::ReadFields(absl::string_view message) {
  message_.slots.clear();
  message_.args.clear();
  attrs_.clear();
  inputs_after_outputs_ = false;
  Fields fields;
  wire::MessageStream in(message);
  while (true) {
    fields.byte = in.CurrentPosition();
    const uint32_t tag = wire::NextTag(&in);
    if (tag == 0) break;
    switch (tag) {
      case kOpInputs:
      case kOpOutputs:
        if (!ReadSlot(&in, /*output=*/tag == kOpOutputs)) return fields;
        fields.attr_bytes = {};
        break;
      case kOpType:
        if (!wire::ReadBytes(&in, &message_.type)) return fields;
        fields.attr_bytes = {};
        if (!fields.has_type && attrs_.empty()) {
          fields.attr_bytes = wire::Rest(&in);
          const auto known = known_attrs_.find(fields.attr_bytes);
          if (known != known_attrs_.end()) {
            message_.attrs = known->second;
            fields.attrs_known = true;
            in.Skip(static_cast<int>(fields.attr_bytes.size()));
          }
        }
        fields.has_type = true;
        break;
      case kOpAttrs:
        if (!ReadAttr(&in)) return fields;
        break;
      default:
        if (!wire::SkipField(&in, tag)) return fields;
    }
  }
  fields.ok = wire::AtEnd(&in);
  if (!fields.ok) fields.byte = in.CurrentPosition();
  return fields;
}

bool OpReader::ReadSlot(wire::Stream* in, bool output) {
  absl::string_view rest;
  if (!wire::ReadBytes(in, &rest)) return false;
  Slot slot;
  slot.output = output;
  slot.first = static_cast<uint32_t>(message_.args.size());
  bool has_name = wire::TakeShortField(kSlotParameter, &rest, &slot.name);
  absl::string_view arg;
  while (wire::TakeShortField(kSlotArguments, &rest, &arg)) message_.args.push_back(arg);
  if (!rest.empty() && !ReadRestOfSlot(rest, &slot, &has_name)) return false;
  slot.count = static_cast<uint32_t>(message_.args.size()) - slot.first;
  inputs_after_outputs_ |= !output && !message_.slots.empty() && message_.slots.back().output;
  message_.slots.push_back(slot);
  return has_name;
}

// What is unusual: long names, unknown fields, the name not first.
bool OpReader::ReadRestOfSlot(absl::string_view rest, Slot* slot, bool* has_name) {
  wire::MessageStream in(rest);
  while (const uint32_t tag = wire::NextTag(&in)) {
    if (tag == kSlotArguments) {
      absl::string_view arg;
      if (!wire::ReadBytes(&in, &arg)) return false;
      message_.args.push_back(arg);
    } else if (tag == kSlotParameter) {
      if (!wire::ReadBytes(&in, &slot->name)) return false;
      *has_name = true;
    } else if (!wire::SkipField(&in, tag)) {
      return false;
    }
  }
  return wire::AtEnd(&in);
}

bool OpReader::ReadAttr(wire::Stream* in) {
  wire::MessageScope scope(in);
  if (!scope.ok()) return false;
  const absl::string_view message = wire::Rest(in);
  AttrValue value;
  bool has_name = false, has_type = false, packed = false;
  while (const uint32_t tag = wire::NextTag(in)) {
    if (tag == kAttrName) {
      if (!wire::ReadBytes(in, &value.attr.name)) return false;
      has_name = true;
    } else if (tag == kAttrType) {
      if (!wire::ReadInt(in, &value.attr.type)) return false;
      has_type = true;
    } else if (tag == kAttrI) {
      if (!wire::ReadInt(in, &value.i)) return false;
      value.has_i = true;
    } else if (tag == kAttrScalar || tag == kAttrScalars) {
      absl::string_view scalar;
      if (!wire::ReadBytes(in, &scalar) || !wire::IsWellFormed<pb::Scalar>(scalar)) return false;
    } else {
      value.has_strings |= tag == kAttrStrings;
      packed |= IsPackedList(tag);
      if (!wire::SkipField(in, tag)) return false;
    }
  }
  if (!wire::AtEnd(in) || !has_name || !has_type) return false;
  attrs_.push_back(value);
  // Paddle does not pack lists, so the generated class may take its time with those that are.
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

// Fills message_.attrs, and checks the attributes that everything relies on.
absl::Status OpReader::SummarizeAttrs() {
  Attrs& summary = message_.attrs;
  summary = Attrs();
  summary.role = kRoleNotSpecified;
  for (const AttrValue& value : attrs_) {
    const Attr& attr = value.attr;
    if (attr.name == kOpRoleAttr) {
      if (attr.type != pb::INT) return WrongAttrType(attr, pb::INT);
      summary.role = value.has_i ? value.i : 0;
    } else if (attr.name == kOpRoleVarAttr) {
      if (attr.type != pb::STRINGS) return WrongAttrType(attr, pb::STRINGS);
      summary.has_role_vars = value.has_strings;
    } else if (attr.type == pb::BLOCK || attr.type == pb::BLOCKS) {
      summary.has_sub_blocks = true;
    }
  }
  summary.list = NumberOfAttrList();
  return absl::OkStatus();
}

uint32_t OpReader::NumberOfAttrList() {
  // Each name with its type and length before it: different lists have different keys.
  key_.clear();
  for (const AttrValue& value : attrs_) {
    const Attr& attr = value.attr;
    const uint32_t head[2] = {static_cast<uint32_t>(attr.type),
                              static_cast<uint32_t>(attr.name.size())};
    key_.append(reinterpret_cast<const char*>(head), sizeof(head));
    key_.append(attr.name.data(), attr.name.size());
  }
  const auto [it, is_new] =
      number_of_attr_list_.try_emplace(key_, static_cast<uint32_t>(attr_lists_.size()));
  if (is_new) {
    std::vector<Attr>& list = attr_lists_.emplace_back();
    for (const AttrValue& value : attrs_) list.push_back(value.attr);
  }
  return it->second;
}

// --- Variables ----------------------------------------------------------------------------------

absl::StatusOr<VarReader::Message> VarReader::Read(absl::string_view bytes,
                                                   const MessagePosition& place) {
  Message message;
  const Fields fields = ReadFields(bytes, &message);
  const auto where = [&] { return Describe(place, "variable", fields.has_name, message.name); };
  if (!fields.ok) return MalformedIn(where(), place, fields.byte);
  if (!fields.has_name || !fields.has_type) {
    return absl::InvalidArgumentError(
        absl::StrCat(where(), fields.has_name ? " has no type" : " has no name"));
  }
  const bool may_repeat = fields.after_name.data() != nullptr && !fields.after_name_known;
  if (may_repeat && known_.size() < kMaxKnown) known_.emplace(fields.after_name, message);
  return message;
}

VarReader::Fields VarReader::ReadFields(absl::string_view bytes, Message* message) const {
  Fields fields;
  wire::MessageStream in(bytes);
  while (true) {
    fields.byte = in.CurrentPosition();
    const uint32_t tag = wire::NextTag(&in);
    if (tag == 0) break;
    if (tag != kVarName) {
      if (!ReadVarField(&in, tag, message, &fields.has_type)) return fields;
      continue;
    }
    absl::string_view name;
    if (!wire::ReadBytes(&in, &name)) return fields;
    fields.has_name = true;
    fields.after_name = {};
    if (fields.byte == 0) {
      fields.after_name = wire::Rest(&in);
      const auto known = known_.find(fields.after_name);
      if (known != known_.end()) {
        *message = known->second;
        fields.after_name_known = fields.has_type = true;
        in.Skip(static_cast<int>(fields.after_name.size()));
      }
    }
    message->name = name;
  }
  fields.ok = wire::AtEnd(&in);
  if (!fields.ok) fields.byte = in.CurrentPosition();
  return fields;
}

}  // namespace weft
