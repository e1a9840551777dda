#include "proto/wire_format.h"

#include <cstdint>
#include <map>

namespace weft::wire {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::internal::WireFormatLite;
using ::google::protobuf::io::CodedOutputStream;

// The maximum depth of nested messages and groups in a message that is checked separately.
// Generated classes stop at 100, counted from ProgramDesc; such messages are up to four levels deep
// in it.
constexpr int kMaxDepth = 90;

// The fields that a message has, in all its parts: repeats of a singular message are merged.
struct Present {
  uint64_t fields = 0;  // by FieldDescriptor::index()
  std::map<int, Present> messages;
};

bool HasRequiredFields(const Descriptor& type, const Present& present) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->is_required() && (present.fields >> i & 1) == 0) return false;
  }
  for (const auto& [index, message] : present.messages) {
    if (!HasRequiredFields(*type.field(index)->message_type(), message)) return false;
  }
  return true;
}

// True if one field holds all numbers of a list.
bool IsPacked(const FieldDescriptor& field, uint32_t tag) {
  return field.is_packable() &&
         WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
}

WireFormatLite::WireType WireTypeOf(const FieldDescriptor& field) {
  return WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
}

bool CheckPacked(const FieldDescriptor& field, absl::string_view numbers) {
  switch (WireTypeOf(field)) {
    case WireFormatLite::WIRETYPE_FIXED32:
      return numbers.size() % sizeof(uint32_t) == 0;
    case WireFormatLite::WIRETYPE_FIXED64:
      return numbers.size() % sizeof(uint64_t) == 0;
    default: {
      MessageStream in(numbers);
      uint64_t number;
      while (in.BytesUntilLimit() > 0) {
        if (!in.ReadVarint64(&number)) return false;
      }
      return true;
    }
  }
}

// True if generated classes can read the message. The caller checks the required fields of
// `present`, because the message may have further parts.
bool CheckMessage(absl::string_view bytes, const Descriptor& type, Required required, int depth,
                  Present* present);

bool CheckField(Stream* in, uint32_t tag, const FieldDescriptor& field, Required required,
                int depth, Present* present) {
  absl::string_view payload;
  if (IsPacked(field, tag)) return ReadBytes(in, &payload) && CheckPacked(field, payload);
  if (WireFormatLite::GetTagWireType(tag) != WireTypeOf(field)) return SkipField(in, tag);
  present->fields |= uint64_t{1} << field.index();
  if (field.type() != FieldDescriptor::TYPE_MESSAGE) return SkipField(in, tag);
  const Descriptor& type = *field.message_type();
  if (depth == 0 || !ReadBytes(in, &payload)) return false;
  if (!field.is_repeated()) {
    return CheckMessage(payload, type, required, depth - 1, &present->messages[field.index()]);
  }
  Present element;
  return CheckMessage(payload, type, required, depth - 1, &element) &&
         (required == Required::kIgnored || HasRequiredFields(type, element));
}

bool CheckMessage(absl::string_view bytes, const Descriptor& type, Required required, int depth,
                  Present* present) {
  MessageStream in(bytes);
  while (const uint32_t tag = NextTag(&in)) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool ok = field == nullptr ? SkipField(&in, tag)
                                     : CheckField(&in, tag, *field, required, depth, present);
    if (!ok) return false;
  }
  return AtEnd(&in);
}

// Stream::SkipField accepts groups that generated classes refuse. Paddle writes no groups.
bool SkipGroup(Stream* in, uint32_t start, int depth) {
  if (depth == 0) return false;
  while (const uint32_t tag = NextTag(in)) {
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_END_GROUP:
        return WireFormatLite::GetTagFieldNumber(tag) == WireFormatLite::GetTagFieldNumber(start);
      case WireFormatLite::WIRETYPE_START_GROUP:
        if (WireFormatLite::GetTagFieldNumber(tag) == 0 || !SkipGroup(in, tag, depth - 1)) {
          return false;
        }
        break;
      default:
        if (!SkipField(in, tag)) return false;
    }
  }
  return false;
}

}  // namespace

bool SkipField(Stream* in, uint32_t tag) {
  switch (WireFormatLite::GetTagWireType(tag)) {
    case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
      absl::string_view bytes;
      return WireFormatLite::GetTagFieldNumber(tag) != 0 && ReadBytes(in, &bytes);
    }
    case WireFormatLite::WIRETYPE_START_GROUP:
      return WireFormatLite::GetTagFieldNumber(tag) != 0 && SkipGroup(in, tag, kMaxDepth);
    default:
      return WireFormatLite::SkipField(in, tag);
  }
}

bool IsWellFormed(absl::string_view bytes, const Descriptor& type, Required required) {
  Present present;
  return CheckMessage(bytes, type, required, kMaxDepth, &present) &&
         (required == Required::kIgnored || HasRequiredFields(type, present));
}

std::string FieldHeader(int field_number, size_t payload_size) {
  uint8_t buffer[16];
  uint8_t* end = WireFormatLite::WriteTagToArray(field_number,
                                                 WireFormatLite::WIRETYPE_LENGTH_DELIMITED, buffer);
  end = CodedOutputStream::WriteVarint64ToArray(payload_size, end);
  return std::string(reinterpret_cast<char*>(buffer), end - buffer);
}

void AddPiece(absl::string_view piece, std::vector<absl::string_view>* pieces) {
  if (piece.empty()) return;
  if (!pieces->empty() && pieces->back().data() + pieces->back().size() == piece.data()) {
    pieces->back() = absl::string_view(pieces->back().data(), pieces->back().size() + piece.size());
  } else {
    pieces->push_back(piece);
  }
}

}  // namespace weft::wire
