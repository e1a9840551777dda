// Programs that tests of runs share.
#ifndef WEFT_EXECUTOR_RUN_RUNNER_TESTING_H_
#define WEFT_EXECUTOR_RUN_RUNNER_TESTING_H_

#include <string>

#include "proto/testing/program_builder.h"

namespace weft::testing {

// Sets a variable of one element.
void FillConstant(ProgramBuilder* builder, const std::string& name, float value);

// w = `value`, equal on every rank: w comes from rank 0.
ProgramBuilder Startup(float value = 1);

// Per step, with data x: fp32[-1, 1] of one row per rank:
//   g = x, summed over the ranks on ring 0;  w = w + g;  loss = x
ProgramBuilder Main();

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_RUN_RUNNER_TESTING_H_
