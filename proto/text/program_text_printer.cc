
#include "proto/text/program_text.h"
#include "proto/text/text_attr.h"
#include "proto/text/text_op.h"

namespace weft {
namespace {

constexpr size_t kFlushBytes = 64 << 10;

// The type of the variable that `name` means in a block, in brief; empty where there is none.
std::string TypeText(const Block& block, const Program& program, absl::string_view name) {
  std::string text;
  const VarId id = block.Resolve(name);
  if (id.valid()) AppendTypeNote(program.var(id).ToProto().type(), &text);
  return text;
}

// Lines of text, on their way to the sink.
class Lines {
 public:
  explicit Lines(TextSink sink) : sink_(sink) {}
  ~Lines() { sink_(buffer_); }

  // Starts a line; what is appended to the result belongs to it.
  std::string* Begin(int indent) {
    if (buffer_.size() >= kFlushBytes) {
      sink_(buffer_);
      buffer_.clear();
    }
    buffer_.append(indent, ' ');
    return &buffer_;
  }
  void End() { buffer_.push_back('\n'); }

 private:
  TextSink sink_;
  std::string buffer_;
};

}  // namespace

void PrintProgram(const Program& program, const PrintOptions& options, TextSink sink) {
  Lines lines(sink);
  const pb::ProgramDesc fields = program.OtherFields();
  AppendProgramHead(fields, lines.Begin(0));
  lines.End();
  pb::OpDesc op;  // one for all, so that its memory is used again
  for (int b = 0; b < program.num_blocks(); ++b) {
    const Block block = program.block(b);
    AppendBlockHead(program.OtherFields(b), options, lines.Begin(2));
    lines.End();
    if (options.vars) {
      for (VarId id : block.vars()) {
        AppendVar(program.var(id).ToProto(), options, lines.Begin(4));
        lines.End();
      }
    }
    std::string type;
    const auto type_of = [&](absl::string_view name) -> absl::string_view {
      return type = TypeText(block, program, name);
    };
    for (OpId id : block.ops()) {
      const absl::string_view bytes = program.op(id).bytes();
      // Partial: an enum number unknown to this version seems a missing field.
      op.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
      AppendOp(op, options, type_of, lines.Begin(4));
      lines.End();
    }
    lines.Begin(2)->push_back('}');
    lines.End();
  }
  if (options.op_versions && fields.has_op_version_map()) {
    AppendOpVersions(fields.op_version_map(), lines.Begin(2));
    lines.End();
  }
  lines.Begin(0)->push_back('}');
  lines.End();
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
