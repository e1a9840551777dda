// Small mistakes in programs for many ranks, each made in turn: what a verifier should notice.
#ifndef WEFT_TESTS_MUTATION_MUTATIONS_H_
#define WEFT_TESTS_MUTATION_MUTATIONS_H_

#include <functional>
#include <string>
#include <vector>

#include "tests/support/program_descs.h"

namespace weft::testing {

struct Mutation {
  std::string kind;  // "collective: drop": what tables count by
  std::string what;  // "main block 0 op 17 (c_wait_comm)"
  // One rank, the last one, runs the mutant; the others run the program. Else all run the mutant.
  bool one_rank = false;
  bool of_startup = false;  // the mistake is in the startup program
  // Makes the mistake, in the programs that AllMutations was given, or in equal ones.
  std::function<void(ProgramDescs*)> apply;
};

// Every single mistake of the kinds that are known, in the order of kinds and ops:
//
// - a synchronization of streams, or a collective, is dropped, made twice, moved (past the nearest
//   op, in each direction, that shares a variable with it; to the end of its block), or given
//   another variable of its type, or another ring
// - two collectives of a ring, next to each other, are swapped
// - a collective has another element type, number of elements, root or reduction
// - a gradient is divided not at all, twice, by half or for another number of ranks
// - slices of a buffer overlap, a member is missing, members of two buffers are exchanged
// - an update is dropped, made twice, moved, or made by another gradient
// - a rank takes the part of another one, or uses a parameter before it is gathered
// - an op of the model is dropped, or has another input or another number for an attribute
// - of LocalSGD, an op that keeps, compares or averages is dropped
// - of gradients of low rank, the left matrix is not made orthonormal, a rank keeps its own right
//   matrix for the next step, or a residual adds its gradient twice or keeps what was sent
// - a collective of a group of ranks is of another group, or of all ranks
// - a block with collectives runs on a condition that is computed from a rank's own data
// - a block with collectives runs in other steps
// - one rank alone calls collectives in another order, on another ring, with another size, element
//   type, root or reduction, or on another condition
// - all that tests/mutation/setup_mutations.h lists
//
// O(ops * variables); `program` is not kept.
std::vector<Mutation> AllMutations(const ProgramDescs& program, int nranks);

}  // namespace weft::testing

#endif  // WEFT_TESTS_MUTATION_MUTATIONS_H_
