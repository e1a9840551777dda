// Mistakes in what surrounds the computation of a step.
#ifndef WEFT_TESTS_MUTATION_SETUP_MUTATIONS_H_
#define WEFT_TESTS_MUTATION_SETUP_MUTATIONS_H_

#include <vector>

#include "tests/mutation/mutations.h"
#include "tests/support/program_descs.h"

namespace weft::testing {

// Every single mistake of these kinds, by all ranks and, where ranks then differ, by one alone:
//
// - declaration: a variable is persistable, or is not, has another element type or shape, another
//   stop_gradient, or is declared again in the block that uses it
// - mark: is_parameter, need_check_feed, op_role or op_role_var is missing or at another place
// - name: a parameter, a state or a gradient has another one, everywhere
// - initializer: another constant, seed or range, no seed, dropped or made twice
// - ring: its set-up is dropped, made twice, in another order, by another id, with other endpoints,
//   numbers of ranks or rings
// - border: a synchronization or a collective moves from one step to the next; a collective at the
//   end of a step is waited for in the next step, or not at all
// - communication: a barrier, a send, a receive, or batch normalization that talks to other ranks
//
// O(ops * variables); `program` is not kept.
std::vector<Mutation> SetupMutations(const ProgramDescs& program, int nranks);

}  // namespace weft::testing

#endif  // WEFT_TESTS_MUTATION_SETUP_MUTATIONS_H_
