// What an op is, as data: slots, attributes, traits, and how the types of its outputs follow from
// those of its inputs.
//
// A schema is written as one expression in the file of its family, and listed nowhere else:
//
//   schemas->Add(OpSchema("softmax")
//                    .In("X")
//                    .Out("Out")
//                    .Attr("axis", -1)
//                    .Infer(OutputsLike("X")));
//
// Op types appear as strings here and in the pass that creates the op; everything else asks for
// traits and slots.
#ifndef WEFT_OPS_SCHEMA_OP_SCHEMA_H_
#define WEFT_OPS_SCHEMA_OP_SCHEMA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/framework.pb.h"

namespace weft {

class InferContext;

// What passes and the verifier may assume of an op, whatever the values of its attributes. A set of
// bits; an op that has a property only for some attribute values does not carry its trait.
enum class Trait : uint32_t {
  // Moves data between the ranks of the ring in attribute ring_id.
  kCollective = 1 << 0,
  // Creates a ring or what is needed for it (an id).
  kRingSetup = 1 << 1,
  // Orders streams; touches no data.
  kStreamSync = 1 << 2,
  // Updates slot Param by slot Grad and LearningRate.
  kOptimizer = 1 << 3,
  // Outputs share the storage of inputs or of each other.
  kAlias = 1 << 4,
  // Each output element depends on the input elements of its own (broadcast) position only. (An
  // optimizer that has it may update a parameter in slices.)
  kElementwise = 1 << 5,
  // Linear in all of its inputs together: commutes with a sum over ranks. Products (mul, conv2d)
  // are not, nor is scale, which may add a bias.
  kLinear = 1 << 6,
  // The result for part of the rows (dimension 0) needs that part of the inputs only, and all of
  // the inputs that have no such dimension (weights, broadcast operands).
  kRowSplittable = 1 << 7,
  // Does something besides writing outputs, or depends on more than its inputs: random draws,
  // files, sub-blocks. Never moved, duplicated or dropped.
  kSideEffect = 1 << 8,
  // Runs the block of attribute sub_block, once or, as slot Cond says, not at all.
  kBranch = 1 << 9,
  // Runs the block of attribute sub_block any number of times.
  kLoop = 1 << 10,
  // Runs the block of attribute sub_block to go back through that of an op with kBranch or kLoop:
  // linear in its inputs in slots that end in @GRAD.
  kBlockGrad = 1 << 11,
  // Outputs keep what the op does not write of them: they are inputs too.
  kKeepsOutputs = 1 << 12,
};

// An attribute value; the alternative fixes the attribute's type in the format: INT, LONG, FLOAT,
// FLOAT64, BOOLEAN, STRING, INTS, LONGS, FLOATS, FLOAT64S, BOOLEANS, STRINGS; BLOCK is an int in
// BlockRef.
struct BlockRef {
  int idx = -1;
  friend bool operator==(BlockRef a, BlockRef b) { return a.idx == b.idx; }
};
using AttrValue =
    std::variant<int32_t, int64_t, float, double, bool, std::string, std::vector<int32_t>,
                 std::vector<int64_t>, std::vector<float>, std::vector<double>, std::vector<bool>,
                 std::vector<std::string>, BlockRef>;

// The type in the format of the alternative that `value` holds.
paddle::framework::proto::AttrType AttrTypeOf(const AttrValue& value);

struct SlotSchema {
  std::string name;
  bool optional = false;    // may be missing or empty
  bool duplicable = false;  // may hold several variables
  // For an output that Paddle's programs declare with types that its kernels do not produce, such
  // as what only the gradient op reads: the declared type is not binding.
  bool loose_type = false;
  // For an output that Paddle's programs name, but the op leaves as it is.
  bool unwritten = false;
  // For an input: the factor that mixed precision multiplies the loss by.
  bool is_loss_scale = false;
  // For an output that is always the same variable as an input: the name of that input slot.
  std::string in_place_of;
  // For an input that gives values of attributes where it is there: their names.
  std::vector<std::string> attrs;
};

struct AttrSchema {
  std::string name;
  AttrValue default_value;  // its alternative is the attribute's type
  bool required = false;    // has no default: `default_value` only gives the type
  // Other types that writers are known to use for it (INTS for LONGS and the like) and that are
  // converted on reading are accepted without being listed: see OpAttrs.
};

class OpSchema {
 public:
  using InferFn = std::function<absl::Status(InferContext&)>;
  enum SlotFlags {  // as SlotSchema has them
    kOptional = 1,
    kDuplicable = 2,
    kLooseType = 4,
    kUnwritten = 8,
    kLossScale = 16,
  };

  explicit OpSchema(std::string type) : type_(std::move(type)) {}

  // --- writing one -------------------------------------------------------------------------
  // Slots, and attributes, in the order in which Paddle writes them: passes fill new ops from here.
  OpSchema&& In(std::string slot, int flags = 0) &&;
  // An optional input whose values, where it is there, take the place of those of attributes: of
  // one that is a list, or of several numbers in order. (ops/make_kernel.h sees to it.)
  OpSchema&& AttrIn(std::string slot, std::vector<std::string> attrs, int flags = 0) &&;
  OpSchema&& Out(std::string slot, int flags = 0) &&;
  // An output that is the same variable as input slot `of`, as ParamOut is of Param.
  OpSchema&& OutInPlace(std::string slot, std::string of, int flags = 0) &&;
  OpSchema&& Attr(std::string name, AttrValue default_value) &&;
  // A string literal, which would convert to bool.
  template <size_t n>
  OpSchema&& Attr(std::string name, const char (&default_value)[n]) && {
    return std::move(*this).Attr(std::move(name), std::string(default_value));
  }
  OpSchema&& RequiredAttr(std::string name, AttrValue type_example) &&;
  OpSchema&& With(Trait trait) &&;
  OpSchema&& Infer(InferFn infer) &&;

  // --- reading one -------------------------------------------------------------------------
  const std::string& type() const { return type_; }
  const std::vector<SlotSchema>& inputs() const { return inputs_; }
  const std::vector<SlotSchema>& outputs() const { return outputs_; }
  const std::vector<AttrSchema>& attrs() const { return attrs_; }
  bool Has(Trait trait) const { return (traits_ & static_cast<uint32_t>(trait)) != 0; }
  const SlotSchema* FindInput(absl::string_view slot) const;  // nullptr: no such slot
  const SlotSchema* FindOutput(absl::string_view slot) const;
  const AttrSchema* FindAttr(absl::string_view name) const;
  // Null for ops whose outputs are no tensors.
  const InferFn& infer() const { return infer_; }

 private:
  std::string type_;
  std::vector<SlotSchema> inputs_, outputs_;
  std::vector<AttrSchema> attrs_;
  uint32_t traits_ = 0;
  InferFn infer_;
};

// The schema of an op type; nullptr for an unregistered type. O(1). The table is built once,
// on first use; thread-safe.
const OpSchema* FindOpSchema(absl::string_view type);
// All of them, sorted by type.
std::vector<const OpSchema*> AllOpSchemas();

// Where families put their schemas while the table is being built.
class OpSchemaTable {
 public:
  virtual ~OpSchemaTable() = default;
  virtual void Add(OpSchema schema) = 0;  // dies if the type is there already
  // nullptr: not added so far.
  virtual const OpSchema* Find(absl::string_view type) const = 0;
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_OP_SCHEMA_H_
