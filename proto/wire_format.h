// Protobuf's wire format, read field by field.
//
// Built on protobuf's reader, but as strict as generated classes: they can parse whatever is read
// here without an error.
#ifndef WEFT_PROTO_WIRE_FORMAT_H_
#define WEFT_PROTO_WIRE_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message.h"
#include "google/protobuf/wire_format_lite.h"

namespace weft::wire {

using Stream = ::google::protobuf::io::CodedInputStream;

// Tags: field number and wire type.
constexpr uint32_t LengthDelimited(int field_number) {
  using Lite = ::google::protobuf::internal::WireFormatLite;
  return Lite::MakeTag(field_number, Lite::WIRETYPE_LENGTH_DELIMITED);
}
constexpr uint32_t Varint(int field_number) {
  using Lite = ::google::protobuf::internal::WireFormatLite;
  return Lite::MakeTag(field_number, Lite::WIRETYPE_VARINT);
}

// The rest of the enclosing message.
inline absl::string_view Rest(Stream* in) {
  const void* data;
  int available;
  in->GetDirectBufferPointerInline(&data, &available);
  return absl::string_view(static_cast<const char*>(data), available);
}

// True if the next varint has more than five bytes. CodedInputStream drops the upper bits of such a
// tag or length; generated classes refuse it.
inline bool LongVarintIsNext(Stream* in) {
  const absl::string_view rest = Rest(in);
  const auto* b = reinterpret_cast<const uint8_t*>(rest.data());
  if (rest.empty() || b[0] < 0x80) return false;
  return rest.size() > 5 && (b[1] & b[2] & b[3] & b[4] & 0x80) != 0;
}

// The next tag; 0 at the end of the message and for a malformed tag, which AtEnd distinguishes.
inline uint32_t NextTag(Stream* in) {
  if (LongVarintIsNext(in)) return 0;
  return in->ReadTag();
}

// True if NextTag has returned 0 because the message has ended.
inline bool AtEnd(Stream* in) { return in->ConsumedEntireMessage(); }

inline bool ReadSize(Stream* in, int* size) {
  return !LongVarintIsNext(in) && in->ReadVarintSizeAsInt(size);
}

// Reads a length and the bytes after it. False if they extend beyond the enclosing message.
inline bool ReadBytes(Stream* in, absl::string_view* bytes) {
  int size;
  if (!ReadSize(in, &size)) return false;
  *bytes = Rest(in).substr(0, size);
  return bytes->size() == static_cast<size_t>(size) && in->Skip(size);
}

// Removes the first field of a message if it has this tag, and if tag and length take one byte
// each, as those of short names. Otherwise returns false and leaves the message unchanged. Reading
// a program executes 1.18 times the instructions if a stream reads all slots.
inline bool TakeShortField(uint32_t tag, absl::string_view* message, absl::string_view* payload) {
  if (message->size() < 2) return false;
  const auto first = static_cast<uint8_t>((*message)[0]),
             size = static_cast<uint8_t>((*message)[1]);
  if (first != tag || tag >= 0x80 || size >= 0x80 || size > message->size() - 2) return false;
  *payload = message->substr(2, size);
  message->remove_prefix(2 + size);
  return true;
}

// Removes the first field of a well-formed message if it is length-delimited and its tag takes one
// byte. Otherwise returns false and leaves the message unchanged. Faster than a stream for many
// short fields; program.cc has the figure.
inline bool TakeField(absl::string_view* message, uint32_t* tag, absl::string_view* payload) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>((*message)[i]); };
  if (message->size() < 2 || byte(0) >= 0x80 || (byte(0) & 7) != 2) return false;
  size_t size = 0, header = 1;
  for (int shift = 0; shift < 35 && header < message->size(); shift += 7) {
    const uint8_t next = byte(header++);
    size |= size_t{next & 0x7fu} << shift;
    if (next >= 0x80) continue;
    if (size > message->size() - header) return false;
    *tag = byte(0);
    *payload = message->substr(header, size);
    message->remove_prefix(header + size);
    return true;
  }
  return false;
}

// Reads a varint as generated classes read an int32: the upper bits are dropped.
inline bool ReadInt(Stream* in, int* value) {
  uint64_t raw;
  if (!in->ReadVarint64(&raw)) return false;
  *value = static_cast<int>(raw);
  return true;
}

// Loads the bytes that begin a kilobyte after a message into the cache, as many as the message has.
// No CPU predicts steps of uneven length, so a walk over messages waits for memory at each.
inline void PrefetchBehind(absl::string_view message) {
  constexpr uintptr_t kAhead = 1024, kCacheLine = 64;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(message.data()) + kAhead;
  for (uintptr_t p = begin; p < begin + message.size(); p += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(p));
  }
}

// Skips the value of a field.
bool SkipField(Stream* in, uint32_t tag);

// A stream over one message.
class MessageStream : public Stream {
 public:
  explicit MessageStream(absl::string_view message)
      : Stream(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size())) {
    PushLimit(static_cast<int>(message.size()));
  }
};

enum class Required { kChecked, kIgnored };

// True if the generated class of a message type can read the bytes and, with kChecked, if required
// fields are present, also in nested messages. An enum number that this version does not know
// counts as present. Unlike generated classes, which take up to 16 times the bytes, this takes no
// memory for unknown fields. O(bytes).
bool IsWellFormed(absl::string_view bytes, const ::google::protobuf::Descriptor& type,
                  Required required);

template <typename M>
bool IsWellFormed(absl::string_view bytes, Required required = Required::kChecked) {
  return IsWellFormed(bytes, *M::descriptor(), required);
}

// Tag and length of a field that holds `payload_size` bytes.
std::string FieldHeader(int field_number, size_t payload_size);

// Appends a piece of bytes that are to be concatenated. Joins it with the last piece if it follows
// that in memory; drops empty pieces.
void AddPiece(absl::string_view piece, std::vector<absl::string_view>* pieces);

}  // namespace weft::wire

#endif  // WEFT_PROTO_WIRE_FORMAT_H_
