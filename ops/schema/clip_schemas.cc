// Elements, and norms, that are limited.
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {

void AddClipSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("clip_grad")
                   .AttrIn("Max", {"max"})
                   .AttrIn("Min", {"min"})
                   .In("Out@GRAD")
                   .In("X")
                   .Out("X@GRAD")
                   .RequiredAttr("max", 0.0f)
                   .RequiredAttr("min", 0.0f)
                   .Infer(InOrder({SameType("X", "Out@GRAD"), OutputsLike("X")})));
  schemas->Add(OpSchema("clip")
                   .AttrIn("Max", {"max"})
                   .AttrIn("Min", {"min"})
                   .In("X")
                   .Out("Out")
                   .RequiredAttr("max", 0.0f)
                   .RequiredAttr("min", 0.0f)
                   .With(Trait::kElementwise)
                   .With(Trait::kRowSplittable)
                   .Infer(OutputsLike("X")));
  schemas->Add(OpSchema("clip_by_norm")
                   .In("X")
                   .Out("Out")
                   .RequiredAttr("max_norm", 0.0f)
                   .Infer(OutputsLike("X")));
}

}  // namespace weft
