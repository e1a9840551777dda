// Program text: a program with one op or variable a line, to read, compare and edit.
//
//   program version=2006002 {
//     block 0 parent=-1 {
//       var fc_0.w_0 : fp32[13, 1] parameter persistable
//       var x : fp32[-1, 13] lod=0 need_check_feed stop_gradient
//       Out=[fc_0.tmp_0 : fp32[-1, 1]] = mul(X=[x], Y=[fc_0.w_0]) role=forward {op_role, ...}
//     }
//   }
//
// docs/program_text.md has the grammar.
#ifndef WEFT_PROTO_PROGRAM_TEXT_H_
#define WEFT_PROTO_PROGRAM_TEXT_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"

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

// Receives the text in pieces of some 64 KiB.
using TextSink = absl::FunctionRef<void(absl::string_view)>;

// O(size of the program), plus the depth of the block for each output; memory for one op at a
// time. The same program gives the same text.
void PrintProgram(const Program& program, const PrintOptions& options, TextSink sink);
std::string ProgramText(const Program& program, const PrintOptions& options = {});

// One op or variable, as on its line, without indentation and line end.
std::string OpText(const Op& op, const PrintOptions& options = {});
std::string VarText(const Var& var, const PrintOptions& options = {});

// InvalidArgument: "line L, column C: expected ..., found ..."; columns count bytes. O(text).
absl::StatusOr<pb::ProgramDesc> ParseProgramDescText(absl::string_view text);
// The same, then whatever Program::FromProto refuses.
absl::StatusOr<Program> ParseProgramText(absl::string_view text);

}  // namespace weft

#endif  // WEFT_PROTO_PROGRAM_TEXT_H_
