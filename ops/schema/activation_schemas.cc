// Functions of one tensor, element by element, and their gradients.
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

OpSchema Activation(const char* type) {
  return OpSchema(type)
      .In("X")
      .Out("Out")
      .With(Trait::kElementwise)
      .With(Trait::kRowSplittable)
      .Infer(OutputsLike("X"));
}

// A gradient that is computed from the input, and one that is computed from the output.
OpSchema GradFromX(const char* type) {
  return OpSchema(type)
      .In("Out@GRAD")
      .In("X")
      .Out("X@GRAD")
      .With(Trait::kElementwise)
      .With(Trait::kRowSplittable)
      .Infer(InOrder({SameType("X", "Out@GRAD"), OutputsLike("X")}));
}

OpSchema GradFromOut(const char* type) {
  return OpSchema(type)
      .In("Out")
      .In("Out@GRAD")
      .Out("X@GRAD")
      .With(Trait::kElementwise)
      .With(Trait::kRowSplittable)
      .Infer(InOrder({SameType("Out", "Out@GRAD"), OutputsLike("Out")}));
}

}  // namespace

void AddActivationSchemas(OpSchemaTable* schemas) {
  schemas->Add(Activation("gelu").Attr("approximate", false));
  schemas->Add(Activation("relu"));
  schemas->Add(Activation("sigmoid"));
  schemas->Add(Activation("sqrt"));
  schemas->Add(Activation("square"));
  schemas->Add(Activation("tanh"));

  schemas->Add(GradFromX("gelu_grad").Attr("approximate", false));
  schemas->Add(GradFromOut("relu_grad"));
  schemas->Add(GradFromOut("sigmoid_grad"));
  schemas->Add(GradFromOut("sqrt_grad"));
  schemas->Add(GradFromX("square_grad"));
  schemas->Add(GradFromOut("tanh_grad"));
}

}  // namespace weft
