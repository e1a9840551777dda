// Which vector units kernels use.
#ifndef WEFT_OPS_CPU_VECTOR_UNITS_H_
#define WEFT_OPS_CPU_VECTOR_UNITS_H_

#include <string>

namespace weft {

// What decides how kernels round on this machine: "AVX2, oneDNN AVX512_CORE_BF16". Processes with
// different texts may get different bits from equal values.
std::string VectorUnits();

}  // namespace weft

#endif  // WEFT_OPS_CPU_VECTOR_UNITS_H_
