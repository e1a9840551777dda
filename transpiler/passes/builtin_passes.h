// The passes that come with Weft.
#ifndef WEFT_TRANSPILER_PASSES_BUILTIN_PASSES_H_
#define WEFT_TRANSPILER_PASSES_BUILTIN_PASSES_H_

#include "transpiler/pipeline/registry.h"

namespace weft {

// A registry with all of them; add your own to the copy.
PassRegistry BuiltinPasses();

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_BUILTIN_PASSES_H_
