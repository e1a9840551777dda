// A program in memory: the bytes of its file and an index over them.
//
// A Program keeps the bytes that it was read from. For every op and variable it indexes the bytes
// and what most queries need: type, slots and arguments, role, flags. Other fields are decoded on
// demand. New and changed ops have separate bytes and the same index. Writing concatenates bytes:
// ops and variables that no pass edits are preserved byte for byte, including unknown fields and
// enum numbers.
//
//   WEFT_ASSIGN_OR_RETURN(Program program, Program::Parse(bytes));
//   for (OpId id : program.block(0).ops()) {
//     Op op = program.op(id);
//     if (op.type() == "sgd") Use(program.name(op.Input("Param")[0]));
//   }
//
// A Rewriter (proto/rewriter.h) changes ops and variables; views never do. Views are small values.
// They are valid until the next Rewriter::Commit, ids as long as the Program.
#ifndef WEFT_PROTO_PROGRAM_H_
#define WEFT_PROTO_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/strong_id.h"
#include "proto/framework.pb.h"
#include "proto/shared_vector.h"
#include "proto/symbol_table.h"

namespace weft {

namespace pb = ::paddle::framework::proto;

// The empty argument: no variable, even if a block declares this name, as Paddle does for the
// gradient of a branch.
inline constexpr absl::string_view kEmptyVarName = "@EMPTY@";

using OpId = StrongId<struct OpTag>;
using VarId = StrongId<struct VarTag>;

class Program;

// The type of an op, the names and sizes of its slots, and the names and types of its attributes. A
// program has many ops and few signatures, so each signature is stored once and compared as a
// pointer.
struct OpSignature {
  struct Slot {
    Symbol name;
    uint32_t first = 0;  // into the op's arguments
    uint32_t count = 0;
  };
  struct Attr {
    Symbol name;
    int type = 0;  // pb::AttrType, or a number that this version does not know
  };
  Symbol type;
  std::vector<Slot> inputs;   // in file order, empty slots included
  std::vector<Slot> outputs;  // `first` includes the arguments of inputs
  std::vector<Attr> attrs;    // in file order
  uint32_t num_input_args = 0;
  uint32_t num_args = 0;
};

class Op {
 public:
  OpId id() const { return id_; }
  const Program& program() const { return *program_; }
  absl::string_view type() const;
  Symbol type_symbol() const { return signature().type; }
  const OpSignature& signature() const;
  // From 0 to Program::num_signatures() - 1: an index for data derived from signatures.
  uint32_t signature_id() const;

  // The op_role attribute; kRoleNotSpecified (proto/op_role.h) if the op has none. O(1).
  int role() const;

  // The arguments of the op, of its input slots, of its output slots, or of one slot (empty if
  // there is no such slot). Empty arguments (kEmptyVarName) are included. O(1); O(slots) for a slot
  // name.
  absl::Span<const Symbol> args() const;
  absl::Span<const Symbol> input_args() const;
  absl::Span<const Symbol> output_args() const;
  absl::Span<const Symbol> args(const OpSignature::Slot& slot) const;
  absl::Span<const Symbol> Input(absl::string_view slot) const;
  absl::Span<const Symbol> Output(absl::string_view slot) const;
  bool HasInputSlot(absl::string_view slot) const;

  bool HasAttr(absl::string_view name) const;
  // The value of an attribute; none if the op does not have it or if it has another type: callers
  // use a default, and the verifier reports the type (W105). ops/schema/op_attrs.h reads all
  // attributes of an op, with the defaults of its schema and with errors for types. IntAttr reads
  // INT and LONG, FloatAttr FLOAT and FLOAT64, IntsAttr INTS and LONGS. If a name is repeated, the
  // last attribute counts, as in Paddle. O(attributes).
  absl::optional<int64_t> IntAttr(absl::string_view name) const;
  absl::optional<double> FloatAttr(absl::string_view name) const;
  absl::optional<bool> BoolAttr(absl::string_view name) const;
  absl::optional<std::string> StringAttr(absl::string_view name) const;
  absl::optional<std::vector<int64_t>> IntsAttr(absl::string_view name) const;
  absl::optional<std::vector<std::string>> StringsAttr(absl::string_view name) const;
  // The attribute, decoded.
  absl::optional<pb::OpDesc::Attr> FindAttr(absl::string_view name) const;
  // Calls visit(i, bytes) for the attributes, in file order, until it returns false. `bytes` is the
  // message of signature().attrs[i]. O(bytes of the op).
  void ForEachAttr(absl::FunctionRef<bool(size_t, absl::string_view)> visit) const;
  // True if the op has an op_role_var that is not empty. O(1).
  bool has_role_vars() const;
  // The blocks that attributes of type BLOCK and BLOCKS name, such as sub_block of while.
  std::vector<int> SubBlocks() const;

  // The block of the op, and its position there, which messages and `weft show` print. kNoPosition
  // for an op that a commit has erased. O(1).
  static constexpr uint32_t kNoPosition = 0xffffffffu;
  int block() const;
  uint32_t position() const;
  // "op 17 (mul)", for messages; with the block unless it is the root, without the position for an
  // erased op. O(1).
  std::string DebugName() const;

  // The OpDesc message of the op, as in the file, and decoded.
  absl::string_view bytes() const;
  pb::OpDesc ToProto() const;

 private:
  friend class Program;
  Op(const Program* program, OpId id) : program_(program), id_(id) {}
  const Program* program_;
  OpId id_;
};

// The declaration of a variable in a block.
class Var {
 public:
  VarId id() const { return id_; }
  absl::string_view name() const;
  Symbol name_symbol() const;
  int block() const;

  // A pb::VarType::Type, such as LOD_TENSOR or SELECTED_ROWS, or a number that this version does
  // not know.
  int type() const;
  bool persistable() const;
  bool is_parameter() const;
  bool stop_gradient() const;
  bool need_check_feed() const;

  // Element type and dimensions of a dense tensor or of SelectedRows, decoded; none for other types
  // and if the file has none.
  absl::optional<pb::VarType::TensorDesc> Tensor() const;
  // A key of the type, to compare types without decoding them: equal keys mean equal types. Empty
  // if the fields are not in the usual order. O(bytes).
  absl::string_view TypeKey() const;

  absl::string_view bytes() const;
  pb::VarDesc ToProto() const;

 private:
  friend class Program;
  Var(const Program* program, VarId id) : program_(program), id_(id) {}
  const Program* program_;
  VarId id_;
};

// A block: ops in order, over the variables of the block and of its ancestors.
class Block {
 public:
  int idx() const { return idx_; }
  int parent_idx() const;  // -1 for the root
  int forward_block_idx() const;
  absl::Span<const OpId> ops() const;
  absl::Span<const VarId> vars() const;

  // FindVar returns the variable of that name in this block, Resolve the one in this block or its
  // nearest ancestor. An invalid id if there is none, and for kEmptyVarName. O(1) and O(depth),
  // plus the length of a string.
  VarId FindVar(Symbol name) const;
  VarId FindVar(absl::string_view name) const;
  VarId Resolve(Symbol name) const;
  VarId Resolve(absl::string_view name) const;

 private:
  friend class Program;
  Block(const Program* program, int idx) : program_(program), idx_(idx) {}
  const Program* program_;
  int idx_;
};

// A serialized program as pieces to be concatenated. Most are in the memory of the program, which
// must outlive them and not change.
struct SerializedProgram {
  SerializedProgram() = default;
  SerializedProgram(SerializedProgram&&) = default;
  SerializedProgram& operator=(SerializedProgram&&) = default;

  std::vector<absl::string_view> pieces;
  size_t size = 0;                // of all pieces together
  std::deque<std::string> owned;  // the bytes of the other pieces
};

// Where a program comes from that was not read from a ProgramDesc. Only the format that it is from
// knows what this is (proto/formats/pir/importer.h); others know what the format says of a run.
class ProgramOrigin {
 public:
  virtual ~ProgramOrigin() = default;
  // Setting::ordered_by_data.
  virtual bool OrdersByData() const = 0;
  // The parameters that the file marks as distributed, each rank having a part of them.
  virtual const std::vector<std::string>& distributed_params() const = 0;
  // Whether two ops of the program as it was read are one in the file, such as one with two
  // branches.
  virtual bool AreOneOp(OpId a, OpId b) const = 0;
};

struct ParseOptions {
  int threads = 2;
  // Small programs are read by fewer threads.
  size_t min_bytes_per_thread = 1 << 20;
};

class Program {
 public:
  // Reads a serialized ProgramDesc. InvalidArgument, naming block, op or variable and the byte, if
  // the bytes are not a well-formed program: malformed wire format, missing required fields, no
  // blocks, block numbers other than 0, 1, 2, ..., parents that are missing or form a cycle, names
  // that are not UTF-8, a variable declared twice in a block, op_role or op_role_var of another
  // type, sub-blocks that do not exist or contain each other, blocks nested deeper than
  // kMaxBlockDepth. O(bytes) time and memory.
  static absl::StatusOr<Program> Parse(std::string bytes);
  // The same without a copy. The program keeps the buffer alive, which must not change. Several
  // threads read a large program; neither the result nor the error depends on their number.
  static absl::StatusOr<Program> Parse(std::shared_ptr<const void> owner, absl::string_view bytes,
                                       const ParseOptions& options = {});
  static absl::StatusOr<Program> FromProto(const pb::ProgramDesc& desc);

  // The limit for chains of parents and of sub-blocks, so that recursion over them cannot overflow
  // the stack. Real programs stay below 10.
  static constexpr int kMaxBlockDepth = 256;

  // A copy shares the bytes, and the parts of the index that no commit has changed.
  Program(const Program&) = default;
  Program& operator=(const Program&) = default;
  Program(Program&&) = default;
  Program& operator=(Program&&) = default;

  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  Block block(int idx) const { return Block(this, idx); }
  Op op(OpId id) const { return Op(this, id); }
  Var var(VarId id) const { return Var(this, id); }

  // One more than the largest id, including erased ops: for vectors indexed by id.
  size_t op_id_limit() const { return ops_.size(); }
  size_t var_id_limit() const { return vars_.size(); }
  // Ops and variables of all blocks. O(blocks).
  size_t num_ops() const;
  size_t num_vars() const;

  size_t num_signatures() const { return signatures_.size(); }

  const SymbolTable& symbols() const { return symbols_; }
  absl::string_view name(Symbol symbol) const { return symbols_.name(symbol); }
  // The symbol of a name; invalid if the program does not have the name.
  Symbol FindSymbol(absl::string_view name) const { return symbols_.Find(name); }

  // Null for a program that was read from a ProgramDesc. Copies share it.
  const std::shared_ptr<const ProgramOrigin>& origin() const { return origin_; }
  void set_origin(std::shared_ptr<const ProgramOrigin> origin) { origin_ = std::move(origin); }

  // Counts the commits that changed the program.
  int revision() const { return revision_; }

  // 0 if the file has none.
  int64_t version() const { return version_; }
  // The program without its blocks, and a block without its variables and ops, decoded.
  pb::ProgramDesc OtherFields() const;
  pb::BlockDesc OtherFields(int block) const;

  // What the program is written for, as JSON (proto/setting.h); empty if the file
  // does not say. Setting it is no commit: ops and variables stay. O(other fields).
  std::string setting() const;
  void set_setting(absl::string_view setting);

  // The serialized program. Until the first Commit or set_setting, equals the bytes that were
  // parsed; later, unedited ops and variables do. O(ops).
  SerializedProgram SerializeToPieces() const;
  std::string Serialize() const;
  pb::ProgramDesc ToProto() const;

 private:
  friend class Op;
  friend class Var;
  friend class Block;
  friend class ProgramIndexer;
  friend class ProgramReader;
  friend class Rewriter;

  // A field of a message in some buffer: tag and length, then the payload.
  struct Field {
    const char* begin;
    uint32_t payload_size;
    uint8_t header_size;
    absl::string_view payload() const { return {begin + header_size, payload_size}; }
    absl::string_view whole() const { return {begin, header_size + size_t{payload_size}}; }
  };
  enum OpFlags : uint8_t { kHasRoleVars = 1, kHasSubBlocks = 2, kDead = 4 };
  struct OpRecord {
    const char* begin;
    uint32_t payload_size;
    uint8_t header_size;
    uint8_t flags;
    uint32_t signature;
    uint32_t first_arg;
    int32_t role;
    int32_t block;
    Field field() const { return {begin, payload_size, header_size}; }
  };
  enum VarFlags : uint8_t {
    kPersistable = 1,
    kIsParameter = 2,
    kStopGradient = 4,
    kNeedCheckFeed = 8,
  };
  struct VarRecord {
    const char* begin;
    uint32_t payload_size;
    uint8_t header_size;
    uint8_t flags;
    int32_t type;
    Symbol name;
    int32_t block;
    Field field() const { return {begin, payload_size, header_size}; }
  };
  struct BlockRecord {
    absl::string_view field;  // as parsed
    bool changed = false;
    int parent_idx = -1;
    int forward_block_idx = -1;
    std::vector<OpId> ops;
    std::vector<VarId> vars;
    // Fields that are neither variables nor ops: those before the first of them, and the others.
    std::vector<absl::string_view> head;
    std::vector<absl::string_view> tail;
  };

  Program() = default;
  const OpRecord& record(OpId id) const { return ops_[id.value()]; }
  const VarRecord& record(VarId id) const { return vars_[id.value()]; }
  VarId FindVar(int block, Symbol name) const;
  void AppendBlock(const BlockRecord& block, SerializedProgram* out) const;

  absl::string_view bytes_;  // that were parsed
  std::vector<std::shared_ptr<const void>>
      owners_;  // of these, and of the bytes that commits added
  bool changed_ = false;
  int revision_ = 0;
  std::shared_ptr<const ProgramOrigin> origin_;

  SymbolTable symbols_;
  std::vector<OpSignature> signatures_;
  absl::flat_hash_map<std::string, uint32_t> signature_of_key_;  // see ProgramIndexer
  SharedVector<OpRecord> ops_;                                   // by OpId
  std::vector<uint32_t> positions_;                              // by OpId, see Op::position
  SharedVector<VarRecord> vars_;                                 // by VarId
  SharedVector<Symbol> args_;      // of all ops, by OpRecord::first_arg
  SharedVector<VarId> root_vars_;  // of block 0, by Symbol
  absl::flat_hash_map<std::pair<int32_t, Symbol>, VarId> inner_vars_;  // by block and name
  std::vector<BlockRecord> blocks_;
  // The program's own fields: blocks (by number) and others (as bytes), in file order.
  struct TopLevelField {
    int block = -1;
    absl::string_view other;
  };
  std::vector<TopLevelField> top_level_;
  int64_t version_ = 0;
};

// Inline: analyses call these for every op.

inline const OpSignature& Op::signature() const {
  return program_->signatures_[program_->record(id_).signature];
}
inline uint32_t Op::signature_id() const { return program_->record(id_).signature; }
inline absl::string_view Op::type() const { return program_->name(signature().type); }
inline int Op::role() const { return program_->record(id_).role; }
inline int Op::block() const { return program_->record(id_).block; }
inline uint32_t Op::position() const { return program_->positions_[id_.value()]; }
inline bool Op::has_role_vars() const {
  return (program_->record(id_).flags & Program::kHasRoleVars) != 0;
}
inline absl::Span<const Symbol> Op::args() const {
  return program_->args_.subspan(program_->record(id_).first_arg, signature().num_args);
}
inline absl::Span<const Symbol> Op::input_args() const {
  return args().first(signature().num_input_args);
}
inline absl::Span<const Symbol> Op::output_args() const {
  return args().subspan(signature().num_input_args);
}
inline absl::Span<const Symbol> Op::args(const OpSignature::Slot& slot) const {
  return args().subspan(slot.first, slot.count);
}

}  // namespace weft

#endif  // WEFT_PROTO_PROGRAM_H_
