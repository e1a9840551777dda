// What program text shows.
#ifndef WEFT_PROTO_TEXT_PRINT_OPTIONS_H_
#define WEFT_PROTO_TEXT_PRINT_OPTIONS_H_

#include "absl/strings/string_view.h"

namespace weft {

// What to print. The default loses nothing: the text reads back as an equal program, unknown
// fields, order, presence and the bits of floats included.
struct PrintOptions {
  enum class Attrs {
    kFull,   // all, in order
    kShort,  // without those that do not change what the op computes (IsMinorAttr), and op_role
             // and op_role_var, which stand outside of the braces, in any case
    kNone,   // none but the latter two
  };
  Attrs attrs = Attrs::kFull;
  // op_callstack: where in the Python program the op was made; several lines long.
  bool callstack = true;
  // The type of each output variable, where a block that the op sees declares it. Told for the
  // reader: parsing passes over it.
  bool output_types = true;
  // Lines that declare variables.
  bool vars = true;
  // Fields that are written in the file but have their default value: !persistable, lod=0.
  bool defaults = true;
  // The table of op versions at the end.
  bool op_versions = true;

  // For people and goldens: what the program computes, and no more.
  static PrintOptions Short();
};

// op_callstack, op_namescope, op_device, with_quant_attr, and the attributes that only steer
// Paddle's back ends (use_mkldnn, workspace_size_MB, ...).
bool IsMinorAttr(absl::string_view name);

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_PRINT_OPTIONS_H_
