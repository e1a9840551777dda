// Which vector units kernels use. They decide how kernels round.
#ifndef WEFT_OPS_CPU_VECTOR_UNITS_H_
#define WEFT_OPS_CPU_VECTOR_UNITS_H_

#include <string>
#include <vector>

namespace weft {

// Of this process: "AVX2, oneDNN AVX512_CORE_BF16". `onednn_limit`: the value of
// ONEDNN_MAX_CPU_ISA; null: none. Does not ask oneDNN, which could not be limited after that.
std::string VectorUnits(const char* onednn_limit);

struct VectorUnitsAgreement {
  std::string note;     // for the user; empty: all processes have the same
  bool is_kept = true;  // by this process
};
// Has the kernels of this process keep to what all processes have, whose texts are `all`; before
// any kernel is made.
VectorUnitsAgreement LimitVectorUnits(const std::string& own, const std::vector<std::string>& all);

}  // namespace weft

#endif  // WEFT_OPS_CPU_VECTOR_UNITS_H_
