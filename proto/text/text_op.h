// Writes the lines of program text.
#ifndef WEFT_PROTO_TEXT_TEXT_OP_H_
#define WEFT_PROTO_TEXT_TEXT_OP_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "proto/text/print_options.h"

namespace weft {

// The brief type of a variable; empty if it is unknown.
using TypeOfVar = absl::FunctionRef<absl::string_view(absl::string_view name)>;

// The type after an output; nothing if it has no short form.
void AppendTypeNote(const pb::VarType& type, std::string* out);

// "program version=2006002 {", "block 0 parent=-1 {", "op_versions {equal=1}", "var ...", an op.
void AppendProgramHead(const pb::ProgramDesc& program, std::string* out);
void AppendBlockHead(const pb::BlockDesc& block, const PrintOptions& options, std::string* out);
void AppendOpVersions(const pb::OpVersionMap& versions, std::string* out);
// Whether the setting has a line of its own, "setting {...}": a JSON object on one line.
bool HasSettingLine(const pb::ProgramDesc& program);
void AppendVar(const pb::VarDesc& var, const PrintOptions& options, std::string* out);
void AppendOp(const pb::OpDesc& op, const PrintOptions& options, TypeOfVar type_of,
              std::string* out);

// X=[a, b], with the types that `type_of` returns.
void AppendSlot(const pb::OpDesc::Var& slot, TypeOfVar type_of, std::string* out);

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_TEXT_OP_H_
