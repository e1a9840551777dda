// Gives a test that links it the loops of a machine without AVX2 where its environment says
// WEFT_TEST_LOOPS=baseline (docs/testing.md).
#include <cstdio>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

[[maybe_unused]] const bool is_chosen = [] {
  const char* const loops = std::getenv("WEFT_TEST_LOOPS");
  if (loops == nullptr) return false;
  if (absl::string_view(loops) != "baseline") {
    std::fprintf(stderr, "WEFT_TEST_LOOPS: expected baseline, found %s\n", loops);
    std::exit(1);
  }
  use_baseline_loops = true;
  return true;
}();

}  // namespace
}  // namespace weft
