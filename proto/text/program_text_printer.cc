#include "absl/strings/str_cat.h"
#include "proto/text/program_text.h"
#include "proto/text/text_attr.h"
#include "proto/text/text_op.h"

namespace weft {
namespace {

constexpr size_t kFlushBytes = 64 << 10;

// The brief type of the variable that `name` means in a block; empty if there is none.
std::string TypeText(const Block& block, const Program& program, absl::string_view name) {
  std::string text;
  const VarId id = block.Resolve(name);
  if (id.valid()) AppendTypeNote(program.var(id).ToProto().type(), &text);
  return text;
}

}  // namespace

void PrintProgram(const Program& program, const PrintOptions& options, TextSink sink) {
  std::string text;
  // Adds a line: what `append` appends.
  const auto line = [&](int indent, absl::FunctionRef<void(std::string*)> append) {
    text.append(indent, ' ');
    append(&text);
    text.push_back('\n');
    if (text.size() < kFlushBytes) return;
    sink(text);
    text.clear();
  };
  const auto end_block = [](std::string* out) { out->push_back('}'); };
  const pb::ProgramDesc fields = program.OtherFields();
  line(0, [&](std::string* out) { AppendProgramHead(fields, out); });
  pb::OpDesc op;  // one for all, to reuse its memory
  for (int b = 0; b < program.num_blocks(); ++b) {
    const Block block = program.block(b);
    line(2, [&](std::string* out) { AppendBlockHead(program.OtherFields(b), options, out); });
    for (VarId id : options.vars ? block.vars() : absl::Span<const VarId>()) {
      line(4, [&](std::string* out) { AppendVar(program.var(id).ToProto(), options, out); });
    }
    std::string type;
    const auto type_of = [&](absl::string_view name) -> absl::string_view {
      return type = TypeText(block, program, name);
    };
    for (OpId id : block.ops()) {
      const absl::string_view bytes = program.op(id).bytes();
      // Partial: an enum number unknown to this version seems a missing field.
      op.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
      line(4, [&](std::string* out) { AppendOp(op, options, type_of, out); });
    }
    line(2, end_block);
  }
  if (options.op_versions && fields.has_op_version_map()) {
    line(2, [&](std::string* out) { AppendOpVersions(fields.op_version_map(), out); });
  }
  if (HasSettingLine(fields)) {
    line(2, [&](std::string* out) { absl::StrAppend(out, "setting ", fields.weft_setting()); });
  }
  line(0, end_block);
  sink(text);
}

std::string ProgramText(const Program& program, const PrintOptions& options) {
  std::string text;
  PrintProgram(program, options,
               [&](absl::string_view piece) { text.append(piece.data(), piece.size()); });
  return text;
}

std::string OpText(const Op& op, const PrintOptions& options) {
  const Program& program = op.program();
  std::string type, text;
  const auto type_of = [&](absl::string_view name) -> absl::string_view {
    return type = TypeText(program.block(op.block()), program, name);
  };
  AppendOp(op.ToProto(), options, type_of, &text);
  return text;
}

std::string AttrValueText(const pb::OpDesc::Attr& attr) {
  std::string text;
  if (HasShortForm(attr)) {
    AppendAttrValue(attr, &text);
  } else {
    AppendAttr(attr, &text);
  }
  return text;
}

std::string VarText(const Var& var, const PrintOptions& options) {
  std::string text;
  AppendVar(var.ToProto(), options, &text);
  return text;
}

}  // namespace weft
