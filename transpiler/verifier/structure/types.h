// Layer 2: do declared types agree with the types that ops compute?
#ifndef WEFT_TRANSPILER_VERIFIER_STRUCTURE_TYPES_H_
#define WEFT_TRANSPILER_VERIFIER_STRUCTURE_TYPES_H_

#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Infers the types of all variables op by op, in program order (ops/analysis/core/type_flow.h), and
// checks that
// - the inputs and attributes of every op fit each other;
// - every op writes the declared type of the variable. A variable may be written with several
//   types, as by a reshape in place: one of them must be the declared one. For a persistable
//   variable, it must be the last, which the next step reads.
// Unknown types fit everything: dimensions of -1, variables that are no tensors, outputs of
// unregistered ops. Outputs XShape are not compared: they only hold a shape, in a form that differs
// between versions of Paddle. Collectives are ordinary ops here: an all-gather multiplies the rows
// by nranks, a reduce-scatter divides them.
//
// Stops after kMaxMisfits ops with wrong inputs. Requires a program without errors of layer 1.
// O(arguments); about 0.2 us per op in programs that repeat themselves, as large ones do
// (ops/schema/infer_cache.h).
void CheckTypes(const ProgramFacts& facts, ProgramRef ref, Findings* findings);

// Checks that the startup program leaves every persistable variable with the type that the main
// program declares for it (W206). Unknown types fit everything. The main program may declare a
// parameter of 16 bits that the startup program makes as fp32: Paddle casts it between the two
// (amp_init). Requires programs without errors of layer 1. O(arguments) of the startup program.
void CheckStartTypes(const ConstProgramPair& programs, ProgramRef ref, Findings* findings);

inline constexpr int kMaxMisfits = 1000;

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_STRUCTURE_TYPES_H_
