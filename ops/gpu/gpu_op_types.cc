#include "ops/gpu/gpu_op_types.h"

namespace weft {

const std::vector<std::string>& GpuOpTypes() {
  static const auto* const types = new std::vector<std::string>{
      "elementwise_add",
      "elementwise_add_grad",
      "fill_constant",
      "gaussian_random",
      "mul",
      "mul_grad",
      "reduce_mean",
      "reduce_mean_grad",
      "relu",
      "relu_grad",
      "scale",
      "sgd",
      "softmax_with_cross_entropy",
      "softmax_with_cross_entropy_grad",
      "truncated_gaussian_random",
      "uniform_random",
  };
  return *types;
}

}  // namespace weft
