// How long ops take, estimated from their declared shapes.
#ifndef WEFT_OPS_ANALYSIS_DEVICES_OP_TIMES_H_
#define WEFT_OPS_ANALYSIS_DEVICES_OP_TIMES_H_

#include <cstdint>
#include <vector>

#include "proto/program.h"

namespace weft {

struct OpTimeOptions {
  int64_t batch = 32;              // where shapes have an unknown dimension
  double flops_per_second = 5e10;  // of one core of a server
  double bytes_per_second = 1e10;
};

// Floating-point operations of an op: two for each multiplication of products and convolutions,
// which a gradient carries out twice; else none. 0 where types are unknown. O(arguments).
double FlopsOf(const Op& op, int64_t batch);

// By position in the root block, in seconds: what takes longer, the floating-point operations or
// moving all arguments once. A sub-block counts once. Variables of unknown type take no time.
// O(arguments).
std::vector<double> EstimateOpTimes(const Program& program, const OpTimeOptions& options = {});

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_DEVICES_OP_TIMES_H_
