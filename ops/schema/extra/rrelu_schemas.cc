// ReLU with a random slope.
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {

void AddRreluSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("rrelu")
                   .In("X")
                   .Out("Noise", OpSchema::kLooseType)
                   .Out("Out")
                   .Attr("is_test", false)
                   .Attr("lower", 0.125f)
                   .Attr("upper", 1.0f / 3)
                   .With(Trait::kSideEffect)
                   .Infer(OutputsLike("X")));
  schemas->Add(
      OpSchema("rrelu_grad")
          .In("Noise")
          .In("Out@GRAD")
          .In("X")
          .Out("X@GRAD")
          .Infer(InOrder({SameType("X", "Noise"), SameType("X", "Out@GRAD"), GradsLikeInputs()})));
}

}  // namespace weft
