// How Paddle's transpiler was called for a golden, as options of Weft.
#ifndef WEFT_TESTS_GOLDENS_GOLDEN_OPTIONS_H_
#define WEFT_TESTS_GOLDENS_GOLDEN_OPTIONS_H_

#include "nlohmann/json.hpp"
#include "transpiler/transpile.h"

namespace weft::testing {

// `config` is one of "configs" of <model>/goldens/manifest.json in //tests:goldens. In the paddle
// dialect. Dies where the manifest has something that is not known.
TranspileOptions GoldenOptions(const nlohmann::json& config);

}  // namespace weft::testing

#endif  // WEFT_TESTS_GOLDENS_GOLDEN_OPTIONS_H_
