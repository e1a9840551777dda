// Builds the index of a Program. Used by Program and Rewriter only.
#ifndef WEFT_PROTO_PROGRAM_INDEXER_H_
#define WEFT_PROTO_PROGRAM_INDEXER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/io/coded_stream.h"
#include "proto/program.h"

namespace weft {

// Reads wire format once, field by field, and fills the program's records. Whatever it accepts,
// the generated classes can parse: lengths, wire types and nested messages are checked here, so
// that decoding on demand cannot fail.
class ProgramIndexer {
 public:
  explicit ProgramIndexer(Program* program) : program_(*program) {}

  // Indexes program->bytes_ into an empty program.
  absl::Status IndexProgram();

  // Append the record of one op, or variable: `field` is the whole field (`header_size` bytes of
  // tag and length, then the message) as it stands in BlockDesc, in memory that the program keeps.
  // The block's list of ops, or variables, is the caller's.
  absl::StatusOr<OpId> AddOp(absl::string_view field, uint8_t header_size, int block);
  absl::StatusOr<VarId> AddVar(absl::string_view field, uint8_t header_size, int block);
  // Makes a variable findable by name. InvalidArgument where its block declares the name already.
  absl::Status LinkVar(VarId id);
  // InvalidArgument where a sub-block of these ops does not exist, is the root, or contains itself
  // over any number of steps. `ops_with_sub_blocks` are all that the program has.
  absl::Status CheckSubBlocks(absl::Span<const OpId> ops_with_sub_blocks) const;

 private:
  using Stream = ::google::protobuf::io::CodedInputStream;
  static constexpr size_t kNew = SIZE_MAX;

  // A name that waits to be interned: its place in the hash table is being prefetched.
  struct PendingName {
    absl::string_view name;
    uint32_t hash;
    uint32_t target;  // index into args_, or into vars_
  };
  struct SlotBytes {
    absl::string_view name;
    bool output;
    uint32_t first;
    uint32_t count;
  };
  struct AttrBytes {
    absl::string_view name;
    int type = 0;
    int i = 0;
    bool has_type = false;
    bool has_i = false;
    bool has_strings = false;
  };
  // What the attributes of an op say.
  struct OpTail {
    uint32_t attr_list = 0;  // number of the list of names and types
    int role = 0;
    uint8_t flags = 0;
  };
  // What follows the name of a variable.
  struct VarTail {
    int type = 0;
    uint8_t flags = 0;
    bool has_type = false;
  };
  // Messages by their bytes.
  struct BytesHash {
    size_t operator()(absl::string_view bytes) const;
  };
  template <typename V>
  using ByBytes = absl::flat_hash_map<absl::string_view, V, BytesHash>;
  // What one op says, collected before it is stored.
  struct OpBytes {
    absl::string_view type;
    bool has_type = false;
    std::vector<SlotBytes> slots;
    std::vector<absl::string_view> args;
    std::vector<AttrBytes> attrs;
    bool outputs_seen = false;
    bool out_of_order = false;  // an input slot after an output slot
    // What stands behind the type, if that is all that is not slots, and where it is known.
    absl::string_view tail;
    const OpTail* known_tail = nullptr;

    // Keeps the vectors' memory.
    void Clear() {
      has_type = outputs_seen = out_of_order = false;
      tail = {};
      known_tail = nullptr;
      slots.clear();
      args.clear();
      attrs.clear();
    }
  };

  absl::Status CountAndReserve();
  absl::Status ReadBlock(absl::string_view field, absl::string_view payload);
  // `message` is a field's payload; `header_size` bytes of tag and length stand before it.
  // `position` counts within the block, for messages; kNew where the message is not in the file.
  absl::Status ReadOp(absl::string_view message, uint8_t header_size, int block, size_t position);
  absl::Status ReadVar(absl::string_view message, uint8_t header_size, int block, size_t position);
  bool ReadSlot(Stream* in, bool output);
  bool ReadAttr(Stream* in);
  bool ReadVarField(Stream* in, uint32_t tag, VarTail* tail);
  bool ReadVarType(absl::string_view bytes, int* type);
  absl::Status StoreOp(absl::string_view message, uint8_t header_size, int block);
  absl::StatusOr<OpTail> TailOfOp();
  uint32_t AttrListOfOp();
  uint32_t LayoutOfOp(uint32_t attr_list);
  uint32_t AddLayout(uint32_t attr_list);
  void PutInputsFirst();
  static absl::Status WrongAttrType(const AttrBytes& attr, pb::AttrType expected);

  absl::Status CheckBlocks() const;
  absl::Status CheckNames() const;
  static absl::Status CheckName(absl::string_view name);
  static absl::Status TooDeep(int block);
  // Where a part of the file begins.
  size_t FileOffset(absl::string_view part) const;

  void Flush();
  void FlushArgs();
  void FlushVars();

  Program& program_;
  OpBytes op_;
  std::string key_;
  std::vector<PendingName> pending_args_, pending_vars_;
  // Most ops repeat the attributes of others byte for byte, and most variables what follows their
  // name: what has been read once is looked up. Bounded, for programs that are otherwise.
  ByBytes<OpTail> op_tails_;
  ByBytes<VarTail> var_tails_;
  std::vector<std::vector<OpLayout::Attr>> attr_lists_;
  absl::flat_hash_map<std::string, uint32_t, BytesHash> attr_list_of_key_;
  absl::flat_hash_map<std::string, uint32_t, BytesHash> layout_of_key_;
  std::vector<OpId> ops_with_sub_blocks_;
};

}  // namespace weft

#endif  // WEFT_PROTO_PROGRAM_INDEXER_H_
