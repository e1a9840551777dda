// Reads the messages of ops and variables: what a program's index holds, as pieces of their bytes.
//
// Whatever is read without an error, the generated classes can parse: lengths, wire types and
// nested messages are checked here, so that decoding on demand cannot fail.
#ifndef WEFT_PROTO_MESSAGE_READER_H_
#define WEFT_PROTO_MESSAGE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/wire_format.h"

namespace weft {

// Hashes messages, or parts of them, by their bytes.
struct BytesHash {
  size_t operator()(absl::string_view bytes) const;
};

// Where a message stands, for what is said about it.
struct MessagePosition {
  static constexpr size_t kNew = SIZE_MAX;
  int block = 0;
  size_t position = kNew;  // among the ops, or variables, of the block; kNew: it is not in the file
  size_t byte = 0;         // where it begins in the file
};

// "malformed or truncated protobuf", and where: at a byte of the file too.
absl::Status Malformed(absl::string_view what);
absl::Status MalformedAt(absl::string_view what, size_t byte);

// One op at a time. InvalidArgument, naming the op and the byte, where the message is malformed,
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
  // What the attributes of an op say.
  struct Attrs {
    uint32_t list = 0;  // their names and types: attr_list()
    int role = 0;
    bool has_role_vars = false;
    bool has_sub_blocks = false;
  };
  struct Message {
    absl::string_view type;
    std::vector<Slot> slots;  // in file order, those of inputs first
    std::vector<absl::string_view> args;
    Attrs attrs;
  };

  // The result is valid until the next call; it points into `message`, which must outlive the
  // reader.
  absl::StatusOr<const Message*> Read(absl::string_view message, const MessagePosition& place);

  // Lists are numbered from 0 in the order in which they are met.
  const std::vector<Attr>& attr_list(uint32_t number) const { return attr_lists_[number]; }

 private:
  struct AttrValue {
    Attr attr;
    int i = 0;
    bool has_i = false;
    bool has_strings = false;
  };

  // Where ReadFields stopped.
  struct Fields {
    bool ok = false;
    size_t byte = 0;  // of the field that is malformed
    bool has_type = false;
    // What stands behind the type, where that is nothing but attributes.
    absl::string_view attr_bytes;
    bool attrs_known = false;
  };
  Fields ReadFields(absl::string_view message);
  bool ReadSlot(wire::Stream* in, bool output);
  bool ReadRestOfSlot(absl::string_view rest, Slot* slot, bool* has_name);
  bool ReadAttr(wire::Stream* in);
  void PutInputsFirst();
  absl::Status SummarizeAttrs();
  uint32_t NumberOfAttrList();

  Message message_;
  bool inputs_after_outputs_ = false;
  std::vector<AttrValue> attrs_;
  std::string key_;
  // Most ops repeat the attributes of others byte for byte: what has been read once is looked up.
  // Bounded, for programs that are otherwise.
  absl::flat_hash_map<absl::string_view, Attrs, BytesHash> known_attrs_;
  std::vector<std::vector<Attr>> attr_lists_;
  absl::flat_hash_map<std::string, uint32_t, BytesHash> number_of_attr_list_;
};

// One variable at a time. InvalidArgument, naming the variable and the byte, where the message is
// malformed or has no name or no type.
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
  absl::StatusOr<Message> Read(absl::string_view message, const MessagePosition& place);

 private:
  // Where ReadFields stopped.
  struct Fields {
    bool ok = false;
    size_t byte = 0;  // of the field that is malformed
    bool has_name = false;
    bool has_type = false;
    absl::string_view after_name;  // what stands behind the name, where the name is first
    bool after_name_known = false;
  };
  Fields ReadFields(absl::string_view bytes, Message* message) const;

  // Most variables repeat what follows the name of others.
  absl::flat_hash_map<absl::string_view, Message, BytesHash> known_;
};

}  // namespace weft

#endif  // WEFT_PROTO_MESSAGE_READER_H_
