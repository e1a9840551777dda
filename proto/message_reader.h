// Reads from the messages of ops and variables what a program's index holds.
//
// Generated classes can parse every message that is read without an error: lengths, wire types and
// nested messages are checked here, so decoding on demand cannot fail.
#ifndef WEFT_PROTO_MESSAGE_READER_H_
#define WEFT_PROTO_MESSAGE_READER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/wire_format.h"

namespace weft {

// Hashes messages, or parts of them, by their bytes.
struct BytesHash {
  size_t operator()(absl::string_view bytes) const;
};

// The position of a message, for errors.
struct MessagePosition {
  static constexpr size_t kNew = SIZE_MAX;
  int block = 0;
  size_t position = kNew;  // among the ops or variables of the block; kNew: not in the file
  size_t byte = 0;         // of its first byte in the file
};

// "WHAT: malformed or truncated protobuf"; MalformedAt adds the byte of the file.
absl::Status Malformed(absl::string_view what);
absl::Status MalformedAt(absl::string_view what, size_t byte);

// Reads one op at a time. InvalidArgument, naming the op and the byte, if the message is malformed,
// has no type, or has an op_role or op_role_var of another type.
class OpReader {
 public:
  struct Slot {
    absl::string_view name;
    bool output;
    uint32_t first;  // into args
    uint32_t count;
  };
  struct Attr {
    absl::string_view name;
    int type;  // pb::AttrType, or a number that this version does not know
  };
  // What type and attributes say.
  struct Tail {
    int role = 0;
    bool has_role_vars = false;
    bool has_sub_blocks = false;
    absl::optional<uint32_t> signature;  // of the last op with the same type and attributes
  };
  struct Message {
    absl::string_view type;
    std::vector<Slot> slots;  // in file order, those of inputs first
    std::vector<absl::string_view> args;
    std::vector<Attr> attrs;  // empty if `tail` has a signature
    Tail tail;
  };

  // The result is valid until the next call; it points into `message`, which must outlive the
  // reader. With `use_known` false, attributes are always read.
  absl::StatusOr<const Message*> Read(absl::string_view message, const MessagePosition& at,
                                      bool use_known = true);

  // Remembers the signature of the op that was read last, for ops with the same type and
  // attributes.
  void RememberSignature(uint32_t signature);

 private:
  struct AttrValue {
    int i = 0;
    bool has_i = false;
    bool has_strings = false;
  };

  bool ReadSlot(wire::Stream* in, bool output);
  bool ReadAttr(wire::Stream* in);
  void PutInputsFirst();
  absl::Status SummarizeAttrs();

  Message message_;
  absl::string_view tail_;  // the bytes from the type on, if no slot follows; else empty
  bool inputs_after_outputs_ = false;
  std::vector<AttrValue> attr_values_;  // of message_.attrs
  // Most ops repeat type and attributes of others byte for byte. Reading a program of 1,000,000 ops
  // executes 1.4 times the instructions without this table. Bounded: they need not repeat.
  absl::flat_hash_map<absl::string_view, Tail, BytesHash> known_tails_;
};

// Reads one variable at a time. InvalidArgument, naming the variable and the byte, if the message
// is malformed or has no name or no type.
class VarReader {
 public:
  struct Message {
    absl::string_view name;
    int type = 0;  // pb::VarType::Type, or a number that this version does not know
    bool persistable = false;
    bool is_parameter = false;
    bool stop_gradient = false;
    bool need_check_feed = false;
  };

  // The result points into `message`, which must outlive the reader.
  absl::StatusOr<Message> Read(absl::string_view message, const MessagePosition& at);

 private:
  // Most variables repeat the bytes after the name of others. Reading executes 1.7 times the
  // instructions without this table. Bounded, as above.
  absl::flat_hash_map<absl::string_view, Message, BytesHash> known_tails_;
};

}  // namespace weft

#endif  // WEFT_PROTO_MESSAGE_READER_H_
