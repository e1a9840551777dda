// Ops that run blocks, and what goes with them: selecting one of several variables, and arrays of
// tensors. An array has no type: what is in it, inference does not know.
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kAny = OpSchema::kDuplicable | OpSchema::kOptional;

// What of the types of X is alike in all of them.
absl::Status InferSelectInput(InferContext& ctx) {
  const TensorType* first = ctx.Input("X", 0);
  if (first == nullptr) return absl::OkStatus();
  TensorType out = *first;
  for (size_t i = 1; i < ctx.NumInputs("X"); ++i) {
    const TensorType* x = ctx.Input("X", i);
    if (x == nullptr || x->dtype != out.dtype || x->kind != out.kind ||
        x->dims.size() != out.dims.size()) {
      return absl::OkStatus();
    }
    for (size_t d = 0; d < out.dims.size(); ++d) {
      if (x->dims[d] != out.dims[d]) out.dims[d] = -1;
    }
  }
  ctx.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferSelectOutput(InferContext& ctx) {
  const TensorType* x = ctx.Input("X");
  if (x == nullptr) return absl::OkStatus();
  for (size_t i = 0; i < ctx.NumOutputs("Out"); ++i) ctx.SetOutput("Out", i, *x);
  return absl::OkStatus();
}

// Slot `out` has the type of slot `in`.
OpSchema::InferFn OutLike(std::string out, std::string in) {
  return [=](InferContext& ctx) {
    if (const TensorType* type = ctx.Input(in)) ctx.SetOutput(out, *type);
    return absl::OkStatus();
  };
}

}  // namespace

void AddControlSchemas(OpSchemaTable* schemas) {
  // Input and Out, of a loop X and Out, list what the sub-block reads and writes of its
  // surroundings; the types of Out are what they were.
  schemas->Add(OpSchema("conditional_block")
                   .In("Cond", OpSchema::kDuplicable)
                   .In("Input", kAny)
                   .Out("Out", OpSchema::kDuplicable)
                   .Out("Scope")
                   .Attr("is_scalar_condition", false)
                   .RequiredAttr("sub_block", BlockRef())
                   .With(Trait::kSideEffect)
                   .With(Trait::kBranch));
  schemas->Add(OpSchema("conditional_block_grad")
                   .In("Cond", OpSchema::kDuplicable)
                   .In("Input", kAny)
                   .In("Out", kAny)
                   .In("Out@GRAD", kAny)
                   .In("Scope", OpSchema::kOptional)
                   .Out("Input@GRAD", kAny)
                   .Attr("is_scalar_condition", false)
                   .RequiredAttr("sub_block", BlockRef())
                   .With(Trait::kSideEffect)
                   .With(Trait::kBlockGrad)
                   .Infer(GradsLikeInputs()));
  schemas->Add(OpSchema("while")
                   .In("X", kAny)
                   .In("Condition", OpSchema::kDuplicable)
                   .Out("Out", kAny)
                   .Out("StepScopes", OpSchema::kOptional)
                   .Attr("is_test", false)
                   .RequiredAttr("sub_block", BlockRef())
                   .With(Trait::kSideEffect)
                   .With(Trait::kLoop));
  // Out@GRAD are, in the block, the variables of attribute original_output_grad.
  schemas->Add(OpSchema("while_grad")
                   .In("X", kAny)
                   .In("Out", kAny)
                   .In("Out@GRAD", kAny)
                   .In("StepScopes")
                   .Out("X@GRAD", kAny)
                   .RequiredAttr("original_output_grad", std::vector<std::string>())
                   .RequiredAttr("sub_block", BlockRef())
                   .With(Trait::kSideEffect)
                   .With(Trait::kLoop)
                   .With(Trait::kBlockGrad)
                   .Infer(GradsLikeInputs()));

  schemas->Add(OpSchema("select_input")
                   .In("X", OpSchema::kDuplicable)
                   .In("Mask")
                   .Out("Out")
                   .Infer(InferSelectInput));
  schemas->Add(OpSchema("select_output")
                   .In("X")
                   .In("Mask")
                   .Out("Out", OpSchema::kDuplicable)
                   .Infer(InferSelectOutput));

  schemas->Add(OpSchema("write_to_array").In("X").In("I").Out("Out").With(Trait::kKeepsOutputs));
  schemas->Add(OpSchema("read_from_array")
                   .In("X")
                   .In("I")
                   .In("X_W", OpSchema::kOptional)
                   .Out("Out")
                   .Infer(OutLike("Out", "X_W")));
  schemas->Add(OpSchema("lod_array_length").In("X").Out("Out").Infer([](InferContext& ctx) {
    ctx.SetOutput("Out", {DType::kInt64, {1}});
    return absl::OkStatus();
  }));
  // Paddle declares OutIndex a scalar, and leaves a vector in it.
  schemas->Add(OpSchema("tensor_array_to_tensor")
                   .In("X")
                   .Out("Out")
                   .Out("OutIndex")
                   .Attr("axis", 0)
                   .Attr("use_stack", false));
  schemas->Add(OpSchema("tensor_array_to_tensor_grad")
                   .In("X")
                   .In("Out@GRAD")
                   .Out("X@GRAD")
                   .Attr("axis", 0)
                   .Attr("use_stack", false)
                   .Infer(GradsLikeInputs()));
}

}  // namespace weft
