// What an op is, as data: slots, attributes, traits, the inference of its outputs' types, and
// columns of further facts (op_columns.h).
//
// A schema is one expression in the file of its family:
//
//   schemas->Add(OpSchema("softmax", "X -> Out")
//                    .Attr("axis", -1)
//                    .Infer(OutputsLike("X"))
//                    .Batch({batch::Along("X", "axis")})
//                    .Pir());
//
// Besides, op types appear as strings in tables of kernels, and in passes that create or remove the
// op. All other code asks for traits, slots and columns.
#ifndef WEFT_OPS_SCHEMA_OP_SCHEMA_H_
#define WEFT_OPS_SCHEMA_OP_SCHEMA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/schema/op_columns.h"
#include "proto/framework.pb.h"

namespace weft {

class InferContext;

// What passes and the verifier may assume of an op, whatever the values of its attributes. An op
// that has a property only for some attribute values does not carry its trait. The values are bits.
enum class Trait : uint32_t {
  // Moves data between the ranks of the ring in attribute ring_id.
  kCollective = 1 << 0,
  // Creates a ring, or the id that creating it needs.
  kRingSetup = 1 << 1,
  // Orders streams; touches no data.
  kStreamSync = 1 << 2,
  // Updates Param by Grad and LearningRate.
  kOptimizer = 1 << 3,
  // Outputs are a buffer and its parts (ops/schema/buffer_slices.h).
  kAlias = 1 << 4,
  // Each output element depends only on the input elements at its (broadcast) position. Such an
  // optimizer may update a parameter in slices.
  kElementwise = 1 << 5,
  // Linear in all inputs together: commutes with a sum over ranks. Products (mul, conv2d) are not,
  // nor is scale, which may add a bias.
  kLinear = 1 << 6,
  // Some rows (dimension 0) of the result need only these rows of the inputs, and the inputs that
  // have no such dimension (weights, broadcast operands).
  kRowSplittable = 1 << 7,
  // Does more than write outputs, or depends on more than its inputs: random draws, files,
  // sub-blocks. Never moved, duplicated or dropped.
  kSideEffect = 1 << 8,
  // Runs the block of attribute sub_block once, if slot Cond holds.
  kBranch = 1 << 9,
  // Runs the block of attribute sub_block any number of times.
  kLoop = 1 << 10,
  // Runs the block of attribute sub_block, which differentiates the block of an op with kBranch or
  // kLoop. Linear in its inputs in slots that end in @GRAD.
  kBlockGrad = 1 << 11,
  // Outputs keep the elements that the op does not write: they are inputs, too.
  kKeepsOutputs = 1 << 12,
  // Broadcasts X and Y to each other, as attribute axis says, or is the gradient of such an op.
  kBroadcasts = 1 << 13,
};

// An attribute value. The alternative fixes the attribute's type in the format: INT, LONG, FLOAT,
// FLOAT64, BOOLEAN, STRING, INTS, LONGS, FLOATS, FLOAT64S, BOOLEANS, STRINGS, SCALARS, BLOCK.
struct BlockRef {
  int idx = -1;
  friend bool operator==(BlockRef a, BlockRef b) { return a.idx == b.idx; }
};
// A number of SCALARS, which need not all have one type. Complex ones are not read.
using Scalar = std::variant<bool, int64_t, double>;
using AttrValue =
    std::variant<int32_t, int64_t, float, double, bool, std::string, std::vector<int32_t>,
                 std::vector<int64_t>, std::vector<float>, std::vector<double>, std::vector<bool>,
                 std::vector<std::string>, std::vector<Scalar>, BlockRef>;

// The type in the format of the alternative that `value` holds. O(1).
paddle::framework::proto::AttrType AttrTypeOf(const AttrValue& value);

// Versions of Paddle, as programs have them.
inline constexpr int64_t kPaddle2 = 2'000'000;
inline constexpr int64_t kPaddle2_5 = 2'005'000;
inline constexpr int64_t kPaddle3 = 3'000'000;

// Whether `version` comes before `other`. 0, that of development builds, is later than all.
constexpr bool IsBefore(int64_t version, int64_t other) { return version != 0 && version < other; }

struct SlotSchema {
  std::string name;
  bool optional = false;    // may be missing or empty
  bool duplicable = false;  // may hold several variables
  // Of an output whose declared type is not binding: Paddle's programs declare some outputs,
  // mostly those that only the gradient op reads, with types that Paddle's kernels do not produce.
  bool loose_type = false;
  // Of an output that Paddle's programs name, but the op does not write.
  bool unwritten = false;
  // Of an input: the factor by which mixed precision multiplies the loss.
  bool is_loss_scale = false;
  // Programs of earlier versions do not have it; 0: all versions do.
  int64_t since = 0;
  // Programs of this version and later ones do not have it; 0: all versions do.
  int64_t until = 0;
  // Of an output that is always the variable of an input: the slot of that input.
  std::string in_place_of;
  // Of an output that is another variable, but has the memory of an input from then on, in some
  // version of Paddle: the slot of that input.
  std::string memory_of;
  // Of an input that, if present, overrides attributes: their names. It overrides one that is a
  // list, or several numbers in this order (ops/make_kernel.h).
  std::vector<std::string> attrs;

  // Whether ops of a program of this version must have a variable in it.
  bool IsRequired(int64_t version) const {
    return !optional && !IsBefore(version, since) && (until == 0 || IsBefore(version, until));
  }
};

// The values that an attribute, or each element of a list, may have. Without limits and texts: all.
struct AttrRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false, below_most = false;  // leave out the limit itself
  std::vector<std::string> texts;                // one of these
};
namespace range {
AttrRange AtLeast(double least);
AttrRange AtMost(double most);
AttrRange Above(double limit);
AttrRange Between(double least, double most);
// [least, limit)
AttrRange FromUpTo(double least, double limit);
AttrRange OneOf(std::vector<std::string> texts);
}  // namespace range

struct AttrSchema {
  std::string name;
  AttrValue default_value;  // its alternative is the attribute's type
  bool required = false;    // has no default: `default_value` only gives the type
  int64_t since = 0;        // programs of earlier versions do not have it
  // Inference refuses other values (CheckAttrRanges), and kernels need not look.
  AttrRange range;
  // OpAttrs lists the other types that it accepts and converts (INTS for LONGS and the like).
};

class OpSchema {
 public:
  using InferFn = std::function<absl::Status(InferContext&)>;

  // `slots` is "inputs -> outputs", two lists as In and Out take them.
  explicit OpSchema(std::string type, absl::string_view slots = "");

  // --- writing one -------------------------------------------------------------------------
  // Slots and attributes stand in the order in which Paddle writes them: passes fill new ops from
  // here. "Ids, W, Bias?" is a list of slots, as in docs/reference/ops.md. After the name of a slot
  // stand
  //   *      may hold several variables
  //   ?      may be missing or empty
  //   ~      the declared type is not binding (SlotSchema::loose_type)
  //   !      the op does not write this output (SlotSchema::unwritten)
  //   ^      ops of Paddle 3 have it, those of earlier versions do not
  //   +      ops of Paddle 2 have it, those of Paddle 1 do not
  //   -      ops of Paddle 1 have it, those of later versions do not
  //   =X     this output is always the variable of input X, as ParamOut is that of Param
  //   &X     this output shares the memory of input X (SlotSchema::memory_of)
  //   {a b}  if present, this input overrides attributes a and b (SlotSchema::attrs); implies ?
  // Aborts on other text.
  OpSchema&& In(absl::string_view slots) &&;
  OpSchema&& Out(absl::string_view slots) &&;
  OpSchema&& In(SlotSchema slot) &&;
  OpSchema&& Out(SlotSchema slot) &&;
  // One input, which holds the loss scale (SlotSchema::is_loss_scale).
  OpSchema&& LossScaleIn(absl::string_view slot) &&;
  OpSchema&& Attr(AttrSchema attr) &&;
  OpSchema&& Attr(std::string name, AttrValue default_value, AttrRange range = {}) &&;
  OpSchema&& RequiredAttr(std::string name, AttrValue type_example, AttrRange range = {}) &&;
  // One that ops of Paddle 3 have, and those of earlier versions do not.
  OpSchema&& AttrSincePaddle3(std::string name, AttrValue default_value) &&;
  // Names what the op does in programs of this version and later ones, and does otherwise in
  // earlier ones: OpAttrs::Does tells the two apart.
  OpSchema&& Since(int64_t version, std::string behavior) &&;
  template <typename... Traits>
  OpSchema&& With(Traits... traits) && {
    traits_ |= (static_cast<uint32_t>(traits) | ...);
    return std::move(*this);
  }
  OpSchema&& Infer(InferFn infer) &&;
  // Slots of images [batch, channels, space...]. Their channels are last if `attr` is
  // `channels_last`, for two and for three spatial dimensions. In a gradient op, slots that end in
  // @GRAD count as those of which they are gradients.
  OpSchema&& Images(std::string attr, std::vector<std::string> slots,
                    std::pair<std::string, std::string> channels_last) &&;
  // The rule along the batch. An op whose traits do not say how it treats the batch has one, or
  // says why not: batch::Unrelated("why").
  OpSchema&& Batch(BatchRule rule) &&;
  OpSchema&& Algebra(weft::Algebra algebra) &&;
  OpSchema&& Rows(RowsRule rows) &&;
  // Also of the gradient op, if GradSchema makes it.
  OpSchema&& Work(WorkKind work) &&;
  // What the op may be for the op that computes its X. A kAdd adds Y.
  OpSchema&& PostOp(PostOpKind post_op) &&;
  // An op of PIR that is read as this one; several calls for several ops. Files are written with
  // the first one. `op` is "name(operands) -> results {attributes}". What is left out is as in the
  // schema: the name is the type; operands are the inputs, but for those that override attributes;
  // results are the outputs, but for XShape and unwritten ones, first those that are inputs, in the
  // order of these. A slot has its name in snake case, SavedMean is saved_mean; a single operand is
  // x, a single result out. Operands and results:
  //   index            the slot of that name
  //   boxes:ROIs       slot ROIs
  //   @axis            attribute axis, as a constant
  //   p:@dropout_prob  attribute dropout_prob
  //   @shape/tensor    the same, or a tensor or a list of numbers in the slots that override it
  //   output:-         ProgramDesc does not have it
  // and then "?" if it may be left out, "!" if it may not, where the slot says otherwise.
  // Attributes: {axis=dim}, or {decimals=} for one that ProgramDesc does not have.
  // `grad` is the gradient op, name_grad, in the same form. What is left out: its operands are the
  // op's operands, its results and their gradients, then the op's constants, as far as the schema
  // of the gradient op has them; its results are the gradients of the op's operands.
  OpSchema&& Pir(std::string op = "", std::string grad = "") &&;

  // --- reading one -------------------------------------------------------------------------
  const std::string& type() const { return type_; }
  const std::vector<SlotSchema>& inputs() const { return inputs_; }
  const std::vector<SlotSchema>& outputs() const { return outputs_; }
  const std::vector<AttrSchema>& attrs() const { return attrs_; }
  // Names and versions.
  const std::vector<std::pair<std::string, int64_t>>& behaviors() const { return behaviors_; }
  bool Has(Trait trait) const { return (traits_ & static_cast<uint32_t>(trait)) != 0; }
  const SlotSchema* FindInput(absl::string_view slot) const;  // nullptr: no such slot
  const SlotSchema* FindOutput(absl::string_view slot) const;
  const AttrSchema* FindAttr(absl::string_view name) const;
  // Null for ops whose outputs are not tensors.
  const InferFn& infer() const { return infer_; }
  // The attribute that says where the channels of images are; empty: the op has no images.
  const std::string& image_attr() const { return image_attr_; }
  const std::vector<std::string>& image_slots() const { return image_slots_; }
  bool IsImage(absl::string_view slot) const;
  const std::pair<std::string, std::string>& channels_last() const { return channels_last_; }
  const BatchRule& batch_rule() const { return batch_rule_; }
  // AlgebraOf (ops/schema/algebra.h) also goes by the name and the traits of the op.
  absl::optional<weft::Algebra> algebra() const { return algebra_; }
  RowsRule rows() const { return rows_; }
  WorkKind work() const { return work_; }
  PostOpKind post_op() const { return post_op_; }
  const std::vector<PirForm>& pir() const { return pir_; }

 private:
  std::string type_;
  std::vector<SlotSchema> inputs_, outputs_;
  std::vector<AttrSchema> attrs_;
  std::vector<std::pair<std::string, int64_t>> behaviors_;
  uint32_t traits_ = 0;
  InferFn infer_;
  std::string image_attr_;
  std::vector<std::string> image_slots_;
  std::pair<std::string, std::string> channels_last_;
  BatchRule batch_rule_;
  absl::optional<weft::Algebra> algebra_;
  RowsRule rows_ = RowsRule::kAsDense;
  WorkKind work_ = WorkKind::kElements;
  PostOpKind post_op_ = PostOpKind::kNone;
  std::vector<PirForm> pir_;
};

// The schema of an op type; nullptr for an unregistered type. O(1). The first use builds the table
// of all schemas. Thread-safe.
const OpSchema* FindOpSchema(absl::string_view type);
// All schemas, sorted by type.
std::vector<const OpSchema*> AllOpSchemas();

// Schemas by op type. Pointers to them stay valid.
class OpSchemaTable {
 public:
  // Aborts if the type already exists, or if the op needs a rule along the batch and neither has
  // one nor says why.
  void Add(OpSchema schema);
  const OpSchema* Find(absl::string_view type) const;  // nullptr: not added; O(1)
  std::vector<const OpSchema*> All() const;            // sorted by type

 private:
  absl::node_hash_map<std::string, OpSchema> schemas_;
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_OP_SCHEMA_H_
