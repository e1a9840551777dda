#include "proto/wire_format.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/framework.pb.h"

namespace weft::wire {
namespace {

using ::google::protobuf::Message;
using ::google::protobuf::internal::WireFormatLite;
using ::google::protobuf::io::CodedOutputStream;

// The largest depth to which messages and groups may nest in what is read apart. Generated classes
// stop at 100, counted from ProgramDesc; what is read apart stands up to four deep in it.
constexpr int kMaxDepth = 90;

bool HasRequiredFields(const Message& message) {
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

// Paddle writes no groups. The stream's own way to skip them is more lenient than generated classes
// are, so one of those, to which every field is unknown, has the last word.
bool SkipGroup(Stream* in, uint32_t tag) {
  const absl::string_view rest = Rest(in);
  const int begin = in->CurrentPosition();
  in->SetRecursionLimit(kMaxDepth);
  if (!WireFormatLite::SkipField(in, tag)) return false;
  uint8_t start[8];
  const uint8_t* end = CodedOutputStream::WriteVarint32ToArray(tag, start);
  return IsWellFormed<paddle::framework::proto::Version>(
      absl::StrCat(absl::string_view(reinterpret_cast<char*>(start), end - start),
                   rest.substr(0, in->CurrentPosition() - begin)));
}

}  // namespace

bool SkipField(Stream* in, uint32_t tag) {
  switch (WireFormatLite::GetTagWireType(tag)) {
    case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
      absl::string_view bytes;
      return WireFormatLite::GetTagFieldNumber(tag) != 0 && ReadBytes(in, &bytes);
    }
    case WireFormatLite::WIRETYPE_START_GROUP:
      return SkipGroup(in, tag);
    default:
      return WireFormatLite::SkipField(in, tag);
  }
}

bool Parse(absl::string_view bytes, Required required, Message* message) {
  Stream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  in.SetRecursionLimit(kMaxDepth);
  if (!message->ParsePartialFromCodedStream(&in) || !in.ConsumedEntireMessage()) return false;
  return required == Required::kIgnored || HasRequiredFields(*message);
}

std::string FieldHeader(int field_number, size_t payload_size) {
  uint8_t buffer[16];
  uint8_t* end = WireFormatLite::WriteTagToArray(field_number,
                                                 WireFormatLite::WIRETYPE_LENGTH_DELIMITED, buffer);
  end = CodedOutputStream::WriteVarint64ToArray(payload_size, end);
  return std::string(reinterpret_cast<char*>(buffer), end - buffer);
}

}  // namespace weft::wire
