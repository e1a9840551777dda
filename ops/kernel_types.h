// The types of a kernel's arguments.
#ifndef WEFT_OPS_KERNEL_TYPES_H_
#define WEFT_OPS_KERNEL_TYPES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/kernel.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/tensor.h"

namespace weft {

// Infers the types of outputs from those of inputs, by the schema of the op. Does not change once
// its kernel is made.
class KernelTypes {
 public:
  using Types = InferContext::Types;

  explicit KernelTypes(const KernelSpec& spec);

  // Arguments of the slot whose first input this is may have no variable.
  void AllowEmptyArguments(int first_input) { may_miss_.push_back(first_input); }
  // All floating-point inputs must have one type; half precision counts as fp32.
  void RequireOneFloatType() { one_float_type_ = true; }
  // The step takes these inputs unconverted, and writes results of their type, if all of them are
  // bf16 and no other input is in half precision.
  void TakeBFloat16(std::vector<int> inputs) { half_inputs_ = std::move(inputs); }
  bool takes_bfloat16() const { return !half_inputs_.empty(); }
  // The same if all of them are fp16.
  void TakeFloat16() { takes_float16_ = true; }
  // Whether the step takes the halves among inputs of these types as they are.
  bool TakesHalves(const Types& inputs) const;

  // The types of `outputs`, which are null where an argument has no variable. A type is none, or
  // has unknown dimensions, if it depends on values. `inputs`: none for an argument without a
  // variable. InvalidArgument, with the slot, if the inputs do not fit the op.
  absl::StatusOr<Types> Infer(const Types& inputs, absl::Span<Tensor* const> outputs) const;

  // "input X": the slot of an argument of a call.
  std::string SlotOf(const KernelContext& ctx, const Tensor* argument) const;

 private:
  absl::Status CheckOneFloatType(const InferContext& context, const Types& inputs) const;
  absl::Status CheckArguments(const Types& inputs, absl::Span<Tensor* const> outputs) const;

  const OpSchema& schema_;
  const OpAttrs attrs_;
  InferContext::Slots input_slots_, output_slots_;
  std::vector<int> may_miss_;
  std::vector<int> half_inputs_;
  bool one_float_type_ = false;
  bool takes_float16_ = false;
};

}  // namespace weft

#endif  // WEFT_OPS_KERNEL_TYPES_H_
