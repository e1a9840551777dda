// Cases of ops on images, and of their kin, for the kernels of GPUs: compiled for the host, and on
// a GPU. What they give is compared with what CPU kernels give.
#ifndef WEFT_OPS_GPU_IMAGE_CASES_H_
#define WEFT_OPS_GPU_IMAGE_CASES_H_

#include <string>
#include <vector>

#include "ops/cpu/testing.h"
#include "ops/tensor.h"

namespace weft::testing {

// An op with its operands: tensors by slot, and the slots of its results.
struct OpCase {
  std::string type;
  SlotTensors inputs;
  AttrValues attrs;
  std::vector<std::string> outputs;
};

// Numbers without a pattern, in [-1, 1).
Tensor NumbersWithoutPattern(const Dims& dims, int seed);

// Convolutions (padding of each kind, groups, dilations, both layouts, transposed ones), poolings
// (rounding up, paddings that count or do not, adaptive and global ones, masks), dropout, pad,
// prelu, swiglu, masked_fill; all with their gradients.
std::vector<OpCase> ImageCases();

}  // namespace weft::testing

#endif  // WEFT_OPS_GPU_IMAGE_CASES_H_
