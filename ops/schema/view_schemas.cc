// Outputs that have the memory of an input, and not a copy (SlotSchema::memory_of).
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {

void AddViewSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("share_data", "X -> Out&X")
                   .With(Trait::kLinear)
                   .Infer(OutputsLike("X"))
                   .Algebra(Algebra::kCopy)
                   .Batch({batch::Elementwise, Powers::kFirst}));
  // Reuses memory for another variable, which need not have the type of X.
  schemas->Add(OpSchema("share_buffer", "X* -> Out*&X, XOut*?")
                   .Attr("share_dims_and_dtype", std::vector<bool>{})
                   .Batch(batch::Unrelated(batch::kNotNeeded)));
  // Views in other shapes, or of some of the elements.
  schemas->Add(OpSchema("as_strided", "input -> out&input")
                   .Attr("dims", Longs{})
                   .Attr("offset", int64_t{0})
                   .Attr("stride", Longs{})
                   .Batch(batch::Unrelated(batch::kNotNeeded))
                   .Pir("(input)"));
  schemas->Add(OpSchema("tensor_unfold", "input -> out&input")
                   .Attr("axis", int64_t{0})
                   .Attr("size", int64_t{0})
                   .Attr("step", int64_t{1})
                   .Batch(batch::Unrelated(batch::kNotNeeded))
                   .Pir("(input)"));
  schemas->Add(OpSchema("view_dtype", "input -> out&input")
                   .RequiredAttr("dtype", kFp32)
                   .Batch(batch::Unrelated(batch::kNotNeeded))
                   .Pir("(input)"));
  schemas->Add(OpSchema("view_shape", "input -> out&input")
                   .Attr("dims", Longs{})
                   .Batch(batch::Unrelated(batch::kNotNeeded))
                   .Pir("(input)"));
  // States of recurrent blocks.
  schemas->Add(OpSchema("shrink_rnn_memory", "I, RankTable, X -> Out")
                   .Batch(batch::Unrelated(batch::kNotNeeded)));
}

}  // namespace weft
