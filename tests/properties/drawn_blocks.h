// Branches and loops of random programs (tests/properties/drawn_program.h), with states and fetch
// ops in their blocks.
#ifndef WEFT_TESTS_PROPERTIES_DRAWN_BLOCKS_H_
#define WEFT_TESTS_PROPERTIES_DRAWN_BLOCKS_H_

#include "tests/properties/drawn_pool.h"
#include "tests/properties/drawn_spec.h"

namespace weft::testing {

// x, or 2 x or another value if a condition holds.
void DrawBranch(const OpChoice& choice, ValuePool* pool);

// The sum of as many x as another value, at most 3, says.
void DrawLoop(const OpChoice& choice, ValuePool* pool);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_DRAWN_BLOCKS_H_
