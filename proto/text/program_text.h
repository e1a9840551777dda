// Program text: a program with one op or variable per line, to read, compare and edit.
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
#ifndef WEFT_PROTO_TEXT_PROGRAM_TEXT_H_
#define WEFT_PROTO_TEXT_PROGRAM_TEXT_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "proto/text/print_options.h"

namespace weft {

// Receives the text in pieces of about 64 KiB.
using TextSink = absl::FunctionRef<void(absl::string_view)>;

// O(size of the program), plus the depth of the block for each output. Decodes one op at a time.
void PrintProgram(const Program& program, const PrintOptions& options, TextSink sink);
std::string ProgramText(const Program& program, const PrintOptions& options = {});

// The line of an op or variable, without indentation and line end.
std::string OpText(const Op& op, const PrintOptions& options = {});
std::string VarText(const Var& var, const PrintOptions& options = {});
// The value of an attribute; the whole attribute if only a literal can express it.
std::string AttrValueText(const pb::OpDesc::Attr& attr);

// InvalidArgument: "line L, column C: expected ..., found ..."; columns count bytes. O(text).
absl::StatusOr<pb::ProgramDesc> ParseProgramDescText(absl::string_view text);
// Also refuses what Program::FromProto refuses.
absl::StatusOr<Program> ParseProgramText(absl::string_view text);

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_PROGRAM_TEXT_H_
