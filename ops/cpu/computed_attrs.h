// Attributes that the program computes: the shape of a tensor that depends on the size of the
// batch, the bounds of a slice. Slots give them instead of the attributes.
//
//   table->Add("reshape2", WithComputedAttrs({{{"shape"}, "Shape", "ShapeTensor"}}, Reshape));
#ifndef WEFT_OPS_CPU_COMPUTED_ATTRS_H_
#define WEFT_OPS_CPU_COMPUTED_ATTRS_H_

#include <string>
#include <vector>

#include "ops/kernel.h"

namespace weft {

struct ComputedAttr {
  // One that is a list of numbers; or some of one number each, of which fewer set the last.
  std::vector<std::string> attrs;
  std::string tensor;      // the slot of a variable that holds them all
  std::string parts = {};  // that of a variable for each of them, which counts before the other
};

// Kernels of a factory that knows of attributes only, for ops whose inputs may give some of them.
// Where they do, they are read in every step, and the factory makes another kernel when they
// change. More numbers than attributes are an error that names the slot.
KernelFactory WithComputedAttrs(std::vector<ComputedAttr> computed, KernelFactory factory);

}  // namespace weft

#endif  // WEFT_OPS_CPU_COMPUTED_ATTRS_H_
