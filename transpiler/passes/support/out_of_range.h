// Option out_of_range of passes that move embedding tables.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_OUT_OF_RANGE_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_OUT_OF_RANGE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/option_binder.h"

namespace weft {

// What a lookup does with an id that is no row of the table.
enum class OutOfRange : uint8_t { kError, kZeros };

// Of lookups and their gradients (ops/schema/lookup_table_schemas.cc).
inline constexpr absl::string_view kZerosOutOfRangeAttr = "zeros_out_of_range";

inline void BindOutOfRange(OptionBinder& bind, OutOfRange* out_of_range) {
  bind.Choice("out_of_range", out_of_range,
              "what an id without a row in the table does, in lookups on the host or in tables "
              "that servers hold by rows: it ends the run, or gives zeros and no gradient",
              {{"error", OutOfRange::kError}, {"zeros", OutOfRange::kZeros}});
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_OUT_OF_RANGE_H_
