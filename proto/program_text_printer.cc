#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "proto/op_role.h"
#include "proto/program_text.h"
#include "proto/text_op.h"

namespace weft {
namespace {

constexpr size_t kFlushBytes = 64 << 10;

// The types of variables in their brief form, made once for each variable.
class TypeTexts {
 public:
  explicit TypeTexts(const Program& program) : program_(program), texts_(program.var_id_limit()) {}

  // Of the variable that `name` means in a block; empty where there is none.
  absl::string_view Find(int block, absl::string_view name) {
    const VarId id = program_.block(block).Resolve(name);
    if (!id.valid()) return {};
    std::string& text = texts_[id.value()];
    if (text.empty()) AppendTypeNote(program_.var(id).ToProto().type(), &text);
    return text;
  }

 private:
  const Program& program_;
  std::vector<std::string> texts_;
};

// The same for a message: names by block. Parents may be missing or in a cycle.
class MessageTypeTexts {
 public:
  explicit MessageTypeTexts(const pb::ProgramDesc& desc) : desc_(desc), types_(desc.blocks_size()) {
    for (int b = 0; b < desc.blocks_size(); ++b) {
      for (const pb::VarDesc& var : desc.blocks(b).vars()) {
        types_[b].emplace(var.name(), &var.type());
      }
    }
  }

  std::string Find(int block, absl::string_view name) const {
    std::string text;
    for (int steps = 0; steps < desc_.blocks_size(); ++steps) {
      const auto found = types_[block].find(name);
      if (found != types_[block].end()) {
        AppendTypeNote(*found->second, &text);
        return text;
      }
      block = desc_.blocks(block).parent_idx();
      if (block < 0 || block >= desc_.blocks_size()) break;
    }
    return text;
  }

 private:
  const pb::ProgramDesc& desc_;
  std::vector<absl::flat_hash_map<absl::string_view, const pb::VarType*>> types_;
};

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

void PrintHead(const pb::ProgramDesc& fields, Lines* lines) {
  AppendProgramHead(fields, lines->Begin(0));
  lines->End();
}

void PrintTail(const pb::ProgramDesc& fields, const PrintOptions& options, Lines* lines) {
  if (options.op_versions && fields.has_op_version_map()) {
    AppendOpVersions(fields.op_version_map(), lines->Begin(2));
    lines->End();
  }
  lines->Begin(0)->push_back('}');
  lines->End();
}

void PrintVar(const pb::VarDesc& var, const PrintOptions& options, Lines* lines) {
  AppendVar(var, options, lines->Begin(4));
  lines->End();
}

void PrintOp(const pb::OpDesc& op, const PrintOptions& options, TypeOfVar type_of, Lines* lines) {
  AppendOp(op, options, type_of, lines->Begin(4));
  lines->End();
}

}  // namespace

PrintOptions PrintOptions::Short() {
  PrintOptions options;
  options.attrs = Attrs::kShort;
  options.callstack = false;
  options.defaults = false;
  options.op_versions = false;
  return options;
}

void PrintProgram(const Program& program, const PrintOptions& options, TextSink sink) {
  Lines lines(sink);
  TypeTexts types(program);
  const pb::ProgramDesc fields = program.OtherFields();
  PrintHead(fields, &lines);
  pb::OpDesc op;  // one for all, so that its memory is used again
  for (int b = 0; b < program.num_blocks(); ++b) {
    const Block block = program.block(b);
    AppendBlockHead(program.OtherFields(b), options, lines.Begin(2));
    lines.End();
    if (options.vars) {
      for (VarId id : block.vars()) PrintVar(program.var(id).ToProto(), options, &lines);
    }
    for (OpId id : block.ops()) {
      const absl::string_view bytes = program.op(id).bytes();
      // Partial: an enum number unknown to this version seems a missing field.
      op.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
      PrintOp(
          op, options, [&](absl::string_view name) { return types.Find(b, name); }, &lines);
    }
    lines.Begin(2)->push_back('}');
    lines.End();
  }
  PrintTail(fields, options, &lines);
}

std::string ProgramText(const Program& program, const PrintOptions& options) {
  std::string text;
  PrintProgram(program, options,
               [&](absl::string_view piece) { text.append(piece.data(), piece.size()); });
  return text;
}

std::string ProgramText(const pb::ProgramDesc& desc, const PrintOptions& options) {
  std::string text;
  const auto sink = [&](absl::string_view piece) { text.append(piece.data(), piece.size()); };
  {
    Lines lines(sink);
    const MessageTypeTexts types(desc);
    PrintHead(desc, &lines);
    for (int b = 0; b < desc.blocks_size(); ++b) {
      AppendBlockHead(desc.blocks(b), options, lines.Begin(2));
      lines.End();
      if (options.vars) {
        for (const pb::VarDesc& var : desc.blocks(b).vars()) PrintVar(var, options, &lines);
      }
      std::string type;
      const auto type_of = [&](absl::string_view name) -> absl::string_view {
        return type = types.Find(b, name);
      };
      for (const pb::OpDesc& op : desc.blocks(b).ops()) PrintOp(op, options, type_of, &lines);
      lines.Begin(2)->push_back('}');
      lines.End();
    }
    PrintTail(desc, options, &lines);
  }
  return text;
}

std::string OpText(const Op& op, const PrintOptions& options) {
  const Program& program = op.program();
  std::string type;
  const auto type_of = [&](absl::string_view name) -> absl::string_view {
    type.clear();
    const VarId id = program.block(op.block()).Resolve(name);
    if (id.valid()) AppendTypeNote(program.var(id).ToProto().type(), &type);
    return type;
  };
  std::string text;
  AppendOp(op.ToProto(), options, type_of, &text);
  return text;
}

std::string VarText(const Var& var, const PrintOptions& options) {
  std::string text;
  AppendVar(var.ToProto(), options, &text);
  return text;
}

}  // namespace weft
