// What to do about a program in which nothing updates parameters.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_NO_UPDATES_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_NO_UPDATES_H_

namespace weft {

inline constexpr char kNoUpdatesHint[] =
    "was it saved before minimize(), after append_backward() alone, or for inference? "
    "tools/paddle/export_program.py writes the program that trains";

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_NO_UPDATES_H_
