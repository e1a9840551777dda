// Branches and loops of random programs (tests/properties/random_program.h), with states and fetch
// ops in their blocks.
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_BLOCKS_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_BLOCKS_H_

#include "tests/properties/random_pool.h"
#include "tests/properties/random_spec.h"

namespace weft::testing {

// x, or 2 x or another value if a condition holds.
void DrawBranch(const OpChoice& choice, ValuePool* pool);

// The sum of as many x as another value, at most 3, says.
void DrawLoop(const OpChoice& choice, ValuePool* pool);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_BLOCKS_H_
