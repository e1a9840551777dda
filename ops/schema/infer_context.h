// What the inference function of a schema reads and writes.
#ifndef WEFT_OPS_SCHEMA_INFER_CONTEXT_H_
#define WEFT_OPS_SCHEMA_INFER_CONTEXT_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// Looks up the type of a variable, as known at this op.
using TypeLookup = std::function<absl::optional<TensorType>(Symbol)>;

// The types of an op's inputs, and those of its outputs as they become known. Dimensions may be -1
// (unknown) on both sides.
class InferContext {
 public:
  // The positions of a slot's variables among those of all input, or output, slots.
  struct Slot {
    absl::string_view name;
    size_t first = 0;
    size_t count = 0;
  };
  using Slots = absl::InlinedVector<Slot, 8>;
  using Types = std::vector<absl::optional<TensorType>>;

  // All references must outlive the context. Looks up every input once.
  InferContext(const Op& op, const OpSchema& schema, const OpAttrs& attrs,
               const TypeLookup& lookup);
  // For an op outside a program: that of a kernel. `inputs` has the types of the variables of
  // `input_slots`. Names of slots must outlive the context.
  InferContext(const OpSchema& schema, const OpAttrs& attrs, Slots input_slots, Types inputs,
               Slots output_slots, size_t num_outputs);

  const OpSchema& schema() const { return schema_; }
  const OpAttrs& attrs() const { return attrs_; }
  // Whether Paddle 3 wrote the program of the op.
  bool IsOfPaddle3() const { return attrs_.version() >= kPaddle3; }

  size_t NumInputs(absl::string_view slot) const;
  size_t NumOutputs(absl::string_view slot) const;
  bool HasInput(absl::string_view slot) const { return NumInputs(slot) > 0; }
  bool HasOutput(absl::string_view slot) const { return NumOutputs(slot) > 0; }

  // The type of variable i of an input slot; nullptr if the slot has no such variable, or its type
  // is unknown. The function then leaves outputs unset that depend on it.
  const TensorType* Input(absl::string_view slot, size_t i = 0) const;

  // Ignored if the op does not have that output. In programs before version 2.5, an op that reads
  // a tensor with dimensions makes none without: a scalar result has the dimensions [1].
  void SetOutput(absl::string_view slot, TensorType type) { SetOutput(slot, 0, std::move(type)); }
  void SetOutput(absl::string_view slot, size_t i, TensorType type);

  // The type that was set; nullptr if none was.
  const TensorType* Output(absl::string_view slot, size_t i = 0) const;

  // Errors for the function to return. Its caller adds the op:
  // "input Y (fc_0.w_0): expected 784 rows, found fp32[700, 10]"
  absl::Status InputError(absl::string_view slot, absl::string_view expected) const {
    return InputError(slot, 0, expected);
  }
  absl::Status InputError(absl::string_view slot, size_t i, absl::string_view expected) const;
  // "attribute axis: expected [-2, 2), found 5"
  absl::Status AttrError(absl::string_view name, absl::string_view expected,
                         absl::string_view found) const;

  // The types that were set, one per Op::output_args().
  Types TakeOutputs() { return std::move(outputs_); }

 private:
  const Op* op_ = nullptr;  // null: outside a program; variables have no names
  const OpSchema& schema_;
  const OpAttrs& attrs_;
  Slots input_slots_, output_slots_;
  Types inputs_;   // one per Op::input_args()
  Types outputs_;  // one per Op::output_args()
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_INFER_CONTEXT_H_
