#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/text/program_text.h"
#include "proto/text/text_attr.h"
#include "proto/text/text_lexer.h"
#include "proto/text/text_literal.h"
#include "proto/text/text_type.h"
#include "proto/text/text_words.h"

namespace weft {
namespace {

using Attr = pb::OpDesc::Attr;

// Reads one program. Methods return false after a mistake, which the lexer has noted.
class ProgramTextParser {
 public:
  explicit ProgramTextParser(absl::string_view text) : lexer_(text) {
    role_names_.emplace_back(RoleName(kRoleForward), kRoleForward);
    for (int bit : {kRoleBackward, kRoleOptimize, kRoleRpc, kRoleDist, kRoleLrSched, kRoleLoss,
                    kRoleNotSpecified}) {
      role_names_.emplace_back(RoleName(bit), bit);
    }
  }

  bool ReadProgram(pb::ProgramDesc* program) {
    if (!lexer_.ExpectWord("program")) return false;
    if (lexer_.TryKey("version")) {
      if (lexer_.peek().Is('{')) {
        if (!ReadLiteral(&lexer_, program->mutable_version())) return false;
      } else {
        int64_t version;
        if (!lexer_.ExpectNumber(&version)) return false;
        program->mutable_version()->set_version(version);
      }
    }
    if (!ReadExtra(program) || !lexer_.Expect('{') || !lexer_.ExpectEndOfLine()) return false;
    while (!lexer_.Try('}')) {
      if (lexer_.TryWord("block")) {
        if (!ReadBlock(program->add_blocks())) return false;
      } else if (!program->has_op_version_map() && lexer_.TryWord("op_versions")) {
        if (!ReadOpVersions(program->mutable_op_version_map())) return false;
      } else if (!program->has_weft_setting() && lexer_.TryWord("setting")) {
        if (!lexer_.ExpectRestOfLine(program->mutable_weft_setting())) return false;
      } else {
        return lexer_.Fail("'block', 'op_versions' (once), 'setting' (once) or '}'");
      }
    }
    return lexer_.ExpectEndOfLine() &&
           (lexer_.peek().kind == Token::Kind::kEndOfText || lexer_.Fail("end of text"));
  }

  const absl::Status& status() const { return lexer_.status(); }

 private:
  bool ReadOpVersions(pb::OpVersionMap* versions) {
    return lexer_.Expect('{') &&
           ReadList(&lexer_, '}', [&] { return ReadOpVersion(versions->add_pair()); }) &&
           ReadExtra(versions) && lexer_.ExpectEndOfLine();
  }

  bool ReadOpVersion(pb::OpVersionMap::OpVersionPair* pair) {
    if (lexer_.peek().Is('{')) return ReadLiteral(&lexer_, pair);
    int32_t version;
    if (!lexer_.ExpectName(pair->mutable_op_name()) || !lexer_.Expect('=') ||
        !lexer_.ExpectNumber(&version)) {
      return false;
    }
    pair->mutable_op_version()->set_version(version);
    return true;
  }

  bool ReadBlockHead(pb::BlockDesc* block) {
    int32_t number;
    if (!lexer_.Try('?')) {
      if (!lexer_.ExpectNumber(&number)) return false;
      block->set_idx(number);
    }
    if (!lexer_.TryKey("parent")) return lexer_.Fail("'parent='");
    if (!lexer_.Try('?')) {
      if (!lexer_.ExpectNumber(&number)) return false;
      block->set_parent_idx(number);
    }
    if (lexer_.TryKey("forward")) {
      if (!lexer_.ExpectNumber(&number)) return false;
      block->set_forward_block_idx(number);
    }
    return ReadExtra(block) && lexer_.Expect('{') && lexer_.ExpectEndOfLine();
  }

  bool ReadBlock(pb::BlockDesc* block) {
    if (!ReadBlockHead(block)) return false;
    while (!lexer_.Try('}')) {
      const Token& first = lexer_.peek();
      if (first.kind != Token::Kind::kWord && first.kind != Token::Kind::kString &&
          !first.Is('{') && !first.Is('?')) {
        return lexer_.Fail("a variable, an op or '}'");
      }
      bool ok;
      if (lexer_.TryWord("var")) {
        // Ops and slots may be named "var", too.
        static const std::string& var = *new std::string("var");
        const bool is_op = lexer_.peek().Is('=') || lexer_.peek().Is('(');
        ok = is_op ? ReadOp(&var, block->add_ops()) : ReadVar(block->add_vars());
      } else {
        ok = ReadOp(nullptr, block->add_ops());
      }
      if (!ok || !lexer_.ExpectEndOfLine()) return false;
    }
    return lexer_.ExpectEndOfLine();
  }

  bool ReadVar(pb::VarDesc* var) {
    if (!lexer_.Try('?') && !lexer_.ExpectName(var->mutable_name())) return false;
    if (!lexer_.Expect(':')) return false;
    if (!lexer_.Try('?') && !ReadVarType(&lexer_, var->mutable_type())) return false;
    if (!ReadFlags(var)) return false;
    if (lexer_.Try('{') &&
        !ReadList(&lexer_, '}', [&] { return ReadAttr(&lexer_, var->add_attrs()); })) {
      return false;
    }
    return ReadExtra(var);
  }

  bool ReadFlags(pb::VarDesc* var) {
    while (true) {
      const bool value = !lexer_.Try('!');
      if (lexer_.TryWord("parameter")) {
        var->set_is_parameter(value);
      } else if (lexer_.TryWord("persistable")) {
        var->set_persistable(value);
      } else if (lexer_.TryWord("stop_gradient")) {
        var->set_stop_gradient(value);
      } else if (lexer_.TryWord("need_check_feed")) {
        var->set_need_check_feed(value);
      } else {
        return value || lexer_.Fail("parameter, persistable, stop_gradient or need_check_feed");
      }
    }
  }

  // `first` is the first word of the op if it is consumed already, else null.
  bool ReadOp(const std::string* first, pb::OpDesc* op) {
    pending_ = RoleAttrs();
    if (!ReadOutputsAndType(first, op) || !lexer_.Expect('(') ||
        !ReadList(&lexer_, ')', [&] { return ReadSlot(op->add_inputs()); })) {
      return false;
    }
    if (lexer_.TryKey("role")) {
      int role;
      if (!ReadRole(&role)) return false;
      pending_.has_role = true;
      pending_.role.set_name(std::string(kOpRoleAttr));
      pending_.role.set_type(pb::INT);
      pending_.role.set_i(role);
    }
    pending_.vars.set_name(std::string(kOpRoleVarAttr));
    pending_.vars.set_type(pb::STRINGS);
    if (lexer_.TryKey("vars")) {
      pending_.has_vars = true;
      if (!lexer_.Expect('[') ||
          !ReadList(&lexer_, ']', [&] { return lexer_.ExpectName(pending_.vars.add_strings()); })) {
        return false;
      }
    }
    if (lexer_.Try('{') && !ReadList(&lexer_, '}', [&] { return ReadOpAttr(op); })) return false;
    // At the end, unless the braces name them.
    if (pending_.has_role) *op->add_attrs() = pending_.role;
    if (pending_.has_vars) *op->add_attrs() = pending_.vars;
    return ReadExtra(op);
  }

  // Up to the '(' after the type.
  bool ReadOutputsAndType(const std::string* first, pb::OpDesc* op) {
    if (first == nullptr && lexer_.peek().Is('{')) {
      if (!ReadSlot(op->add_outputs())) return false;
    } else if (first == nullptr && lexer_.peek().Is('?')) {
      return ReadOpType(op);
    } else {
      // The name of a slot, or the type of an op without outputs.
      std::string name;
      if (first != nullptr) {
        name = *first;
      } else if (!lexer_.ExpectName(&name)) {
        return false;
      }
      if (lexer_.peek().Is('(')) {
        op->set_type(std::move(name));
        return true;
      }
      if (!lexer_.Try('=')) return lexer_.Fail("'=' or '('");
      pb::OpDesc::Var* slot = op->add_outputs();
      slot->set_parameter(std::move(name));
      if (!ReadArguments(slot)) return false;
    }
    while (lexer_.Try(',')) {
      if (!ReadSlot(op->add_outputs())) return false;
    }
    if (!lexer_.Try('=')) return lexer_.Fail("',' or '='");
    return ReadOpType(op);
  }

  bool ReadOpType(pb::OpDesc* op) {
    return lexer_.Try('?') || lexer_.ExpectName(op->mutable_type());
  }

  bool ReadSlot(pb::OpDesc::Var* slot) {
    if (lexer_.peek().Is('{')) return ReadLiteral(&lexer_, slot);
    return lexer_.ExpectName(slot->mutable_parameter()) && lexer_.Expect('=') &&
           ReadArguments(slot);
  }

  bool ReadArguments(pb::OpDesc::Var* slot) {
    return lexer_.Expect('[') && ReadList(&lexer_, ']', [&] {
             if (!lexer_.ExpectName(slot->add_arguments())) return false;
             // The type is for readers; the line of the variable counts.
             pb::VarType ignored;
             return !lexer_.Try(':') || ReadVarType(&lexer_, &ignored);
           });
  }

  // Names joined by '|', or the number as 0x... : what RoleName (proto/op_role.h) writes.
  bool ReadRole(int* role) {
    const Token& token = lexer_.peek();
    if (token.kind != Token::Kind::kWord) return lexer_.Fail("a role");
    uint32_t bits = 0;
    if (!ReadHex(token.text, &bits)) {
      for (absl::string_view part : absl::StrSplit(token.text, '|')) {
        bool found = false;
        for (const auto& [name, bit] : role_names_) {
          if (name != part) continue;
          bits |= bit;
          found = true;
        }
        if (!found) return lexer_.Fail("a role");
      }
    }
    *role = static_cast<int>(bits);
    lexer_.Next();
    return true;
  }

  bool ReadOpAttr(pb::OpDesc* op) {
    Attr* attr = op->add_attrs();
    if (lexer_.peek().Is('{')) return ReadLiteral(&lexer_, attr);
    const Token name = lexer_.peek();
    if (!lexer_.ExpectName(attr->mutable_name())) return false;
    if (lexer_.Try('=')) return ReadAttrValue(&lexer_, attr);

    // A name alone marks where an attribute belongs whose value precedes the braces.
    if (attr->name() == kOpRoleAttr) {
      if (!pending_.has_role) return lexer_.FailAt(name, "'role=' before the braces, once");
      *attr = pending_.role;
      pending_.has_role = false;
      return true;
    }
    if (attr->name() == kOpRoleVarAttr) {
      if (pending_.vars_placed) return lexer_.FailAt(name, "op_role_var without a value once");
      *attr = pending_.vars;  // without names if there is no `vars=`
      pending_.has_vars = false;
      pending_.vars_placed = true;
      return true;
    }
    return lexer_.Expect('=');
  }

  bool ReadExtra(google::protobuf::Message* message) {
    return !lexer_.TryKey("extra") || ReadLiteral(&lexer_, message);
  }

  TextLexer lexer_;
  std::vector<std::pair<std::string, int>> role_names_;  // the names of the bits of op_role

  // op_role and op_role_var of the op that is being read, until they are added to its attributes.
  struct RoleAttrs {
    bool has_role = false;
    bool has_vars = false;
    bool vars_placed = false;
    Attr role;
    Attr vars;
  } pending_;
};

}  // namespace

absl::StatusOr<pb::ProgramDesc> ParseProgramDescText(absl::string_view text) {
  ProgramTextParser parser(text);
  pb::ProgramDesc program;
  if (!parser.ReadProgram(&program)) return parser.status();
  return program;
}

absl::StatusOr<Program> ParseProgramText(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const pb::ProgramDesc desc, ParseProgramDescText(text));
  return Program::FromProto(desc);
}

}  // namespace weft
