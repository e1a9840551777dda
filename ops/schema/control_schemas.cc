// Ops that run blocks, select one of several variables, or use arrays of tensors. An array has no
// type: inference does not track its elements.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The types of X, with -1 for dimensions in which they differ.
absl::Status InferSelectInput(InferContext& context, const TensorType& first) {
  TensorType out = first;
  for (size_t i = 1; i < context.NumInputs("X"); ++i) {
    const TensorType* x = context.Input("X", i);
    if (x == nullptr || x->dtype != out.dtype || x->kind != out.kind ||
        x->dims.size() != out.dims.size()) {
      return absl::OkStatus();
    }
    for (size_t d = 0; d < out.dims.size(); ++d) {
      if (x->dims[d] != out.dims[d]) out.dims[d] = -1;
    }
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferSelectOutput(InferContext& context, const TensorType& x) {
  for (size_t i = 0; i < context.NumOutputs("Out"); ++i) context.SetOutput("Out", i, x);
  return absl::OkStatus();
}

absl::Status InferArrayLength(InferContext& context) {
  context.SetOutput("Out", {DType::kInt64, {1}});
  return absl::OkStatus();
}

}  // namespace

void AddControlSchemas(OpSchemaTable* schemas) {
  // Input (of a loop: X) and Out list the variables outside the sub-block that it reads and writes.
  // The types of Out do not change.
  schemas->Add(OpSchema("conditional_block", "Cond*, Input*? -> Out*, Scope")
                   .Attr("is_scalar_condition", false)
                   .RequiredAttr("sub_block", BlockRef())
                   .With(Trait::kSideEffect, Trait::kBranch));
  schemas->Add(OpSchema("conditional_block_grad",
                        "Cond*, Input*?, Out*?, Out@GRAD*?, Scope? -> Input@GRAD*?")
                   .Attr("is_scalar_condition", false)
                   .RequiredAttr("sub_block", BlockRef())
                   .With(Trait::kSideEffect, Trait::kBlockGrad)
                   .Infer(GradsLikeInputs()));
  schemas->Add(OpSchema("while", "X*?, Condition* -> Out*?, StepScopes?")
                   .Attr("is_test", false)
                   .RequiredAttr("sub_block", BlockRef())
                   .Since(kPaddle2, "keeps the tensors that it carries")
                   .With(Trait::kSideEffect, Trait::kLoop));
  // In the block, the variables of Out@GRAD have the names in attribute original_output_grad.
  schemas->Add(OpSchema("while_grad", "X*?, Out*?, Out@GRAD*?, StepScopes -> X@GRAD*?")
                   .RequiredAttr("original_output_grad", Strings{})
                   .RequiredAttr("sub_block", BlockRef())
                   .Since(kPaddle2, "carries gradients of tensors to earlier iterations")
                   .With(Trait::kSideEffect, Trait::kLoop, Trait::kBlockGrad)
                   .Infer(GradsLikeInputs()));

  // In the block, a sequence of inputs is one step of it, and an output its step. A state is called
  // as in attribute ex_states before the step and as in states after it.
  schemas->Add(
      OpSchema("recurrent", "initial_states*?, inputs*?, parameters*? -> outputs*?, step_scopes")
          .Attr("ex_states", Strings{})
          .Attr("has_states", false)
          .Attr("is_train", true)
          .Attr("reverse", false)
          .Attr("skip_eager_deletion_vars", Strings{})
          .Attr("states", Strings{})
          .RequiredAttr("sub_block", BlockRef())
          .With(Trait::kSideEffect, Trait::kLoop));
  schemas->Add(
      OpSchema("recurrent_grad",
               "initial_states*?, inputs*?, outputs*?, outputs@GRAD*?, parameters*?, step_scopes, "
               "step_scopes@GRAD? -> initial_states@GRAD*?, inputs@GRAD*?, parameters@GRAD*?")
          .Attr("ex_states", Strings{})
          .Attr("has_states", false)
          .Attr("is_train", true)
          .Attr("reverse", false)
          .Attr("skip_eager_deletion_vars", Strings{})
          .Attr("states", Strings{})
          .RequiredAttr("sub_block", BlockRef())
          .With(Trait::kSideEffect, Trait::kLoop, Trait::kBlockGrad)
          .Infer(GradsLikeInputs()));
  AddWithGrad(schemas,
              OpSchema("rnn_memory_helper", "X -> Out&X")
                  .Attr("dtype", kFp32)
                  .Infer(OutputsLike("X"))
                  .Algebra(Algebra::kCopy)
                  .Batch({batch::Elementwise}),
              // In a block, the name of Out@GRAD may also be that of a sequence outside.
              {{"X", "Out"}, {"Out"}, {"X"}}, OutputsLike("X"));

  schemas->Add(OpSchema("select_input", "X*, Mask -> Out")
                   .Infer(IfKnown("X", InferSelectInput))
                   .Algebra(Algebra::kMove)
                   .Batch({batch::Selected, Powers::kOwn}));
  schemas->Add(OpSchema("select_output", "X, Mask -> Out*")
                   .Infer(IfKnown("X", InferSelectOutput))
                   .Algebra(Algebra::kMove)
                   .Batch({batch::First, Powers::kFirst}));

  schemas->Add(OpSchema("write_to_array", "X, I -> Out")
                   .With(Trait::kKeepsOutputs)
                   .Algebra(Algebra::kMove)
                   .Batch({batch::First, Powers::kFirst}));
  schemas->Add(OpSchema("read_from_array", "X, I, X_W? -> Out")
                   .Infer(OutputsLike("X_W"))
                   .Algebra(Algebra::kMove)
                   .Batch({batch::ReadFromArray, Powers::kFirst}));
  schemas->Add(OpSchema("lod_array_length", "X -> Out")
                   .Infer(InferArrayLength)
                   .Batch({batch::Length, Powers::kAny}));
  // Paddle declares OutIndex a scalar but writes a vector.
  // Rows of X by a mask, or by the lengths of sequences; no kernel.
  schemas->Add(OpSchema("split_lod_tensor", "Mask, X -> OutFalse, OutTrue")
                   .Attr("level", 0)
                   .Algebra(Algebra::kMove)
                   .Batch(batch::Unrelated(batch::kUnknownSize)));
  schemas->Add(OpSchema("merge_lod_tensor", "InFalse, InTrue, Mask, X -> Out")
                   .Attr("level", 0)
                   .Algebra(Algebra::kMove)
                   .Batch(batch::Unrelated(batch::kUnknownSize)));
  for (const char* type : {"lod_tensor_to_array", "array_to_lod_tensor",
                           "reorder_lod_tensor_by_rank", "reorder_lod_tensor_by_rank_grad"}) {
    schemas->Add(OpSchema(type, "RankTable, X -> Out")
                     .Algebra(Algebra::kMove)
                     .Batch(batch::Unrelated(batch::kUnknownSize)));
  }

  // Also its own gradient op.
  schemas->Add(OpSchema("sequence_reverse", "X -> Y")
                   .Algebra(Algebra::kMove)
                   .Batch(batch::Unrelated(batch::kUnknownSize)));

  schemas->Add(OpSchema("tensor_array_to_tensor", "X -> Out, OutIndex")
                   .Attr("axis", 0)
                   .Attr("use_stack", false)
                   .Algebra(Algebra::kMove)
                   .Batch({batch::ArrayToTensor, Powers::kFirst}));
  schemas->Add(OpSchema("tensor_array_to_tensor_grad", "X, Out@GRAD -> X@GRAD")
                   .Attr("axis", 0)
                   .Attr("use_stack", false)
                   .Infer(GradsLikeInputs()));
}

}  // namespace weft
