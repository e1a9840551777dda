// Layer 2: do shapes and element types agree with what ops compute?
#ifndef WEFT_TRANSPILER_VERIFY_TYPES_H_
#define WEFT_TRANSPILER_VERIFY_TYPES_H_

#include "proto/program.h"
#include "transpiler/verify/finding.h"

namespace weft {

// Infers the types of all variables op by op, in program order (ops/analysis/type_flow.h), and
// checks
// - that the inputs and attributes of every op fit each other;
// - that what an op writes has the stored type of the variable. A variable may be written with
//   several types, as by a reshape in place: one of them must be the stored one; of a persistable
//   variable, which the next step finds as this one leaves it, the last.
// What is not known fits everything: dimensions of -1, variables that are no tensors, outputs of
// ops without a schema. Outputs XShape are not compared: they only hold a shape, in a form that
// differs between versions of Paddle. Collectives are ops like others: an all-gather has nranks
// times the rows, a reduce-scatter the nranks-th part.
//
// A program is given up after kMaxMisfits ops whose inputs do not fit. Needs a program without
// errors of layer 1. O(arguments); some 0.2 us an op where the program repeats itself, as large
// ones do (ops/schema/infer_cache.h).
void CheckTypes(const Program& program, ProgramRef ref, Findings* findings);

inline constexpr int kMaxMisfits = 1000;

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_TYPES_H_
