// Mistakes in what blocks compute, and in whether gradients have rows.
#ifndef WEFT_TESTS_MUTATION_BLOCK_MUTATIONS_H_
#define WEFT_TESTS_MUTATION_BLOCK_MUTATIONS_H_

#include <vector>

#include "tests/mutation/mutations.h"

namespace weft::testing {

// Of a program for one device:
//
// - an op moves into a branch that runs in the first step only
// - an op of a branch moves to the ops after it, which run in every step
// - the gradient op of a block gives two of its gradients to each other's variables, or one of them
//   to another variable
// - an op with a block lists its variables in another order, which is no mistake
// - gradients of all embeddings become dense, which is none for most optimizers
//
// O(ops * variables).
std::vector<Mutation> BlockMutations(const ProgramDescs& program);

}  // namespace weft::testing

#endif  // WEFT_TESTS_MUTATION_BLOCK_MUTATIONS_H_
