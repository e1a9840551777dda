// What program text shows.
#ifndef WEFT_PROTO_TEXT_PRINT_OPTIONS_H_
#define WEFT_PROTO_TEXT_PRINT_OPTIONS_H_

#include "absl/strings/string_view.h"

namespace weft {

// What to print. The default is lossless: the text reads back as an equal program, including
// unknown fields, order, presence and the bits of floats.
struct PrintOptions {
  enum class Attrs {
    kFull,   // all, in order
    kShort,  // without those of IsMinorAttr
    kNone,   // only op_role and op_role_var, which are outside of the braces
  };
  Attrs attrs = Attrs::kFull;
  // op_callstack: the Python stack that created the op, several lines.
  bool callstack = true;
  // The type of each output variable that is declared. Parsing ignores it.
  bool output_types = true;
  // Lines that declare variables.
  bool vars = true;
  // Fields that the file sets to their default value: !persistable, lod=0.
  bool defaults = true;
  // The table of op versions at the end.
  bool op_versions = true;

  // For readers and goldens: only what determines the computation.
  static PrintOptions Short();
};

// op_callstack, op_namescope, op_device, with_quant_attr, and the attributes that only steer
// Paddle's back ends (use_mkldnn, workspace_size_MB, ...).
bool IsMinorAttr(absl::string_view name);

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_PRINT_OPTIONS_H_
