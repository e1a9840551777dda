#include "proto/testing/message_text.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/text/text_op.h"

namespace weft::testing {
namespace {

// The types of variables: names by block.
class Types {
 public:
  explicit Types(const pb::ProgramDesc& desc) : desc_(desc), types_(desc.blocks_size()) {
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
        break;
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

}  // namespace

std::string MessageText(const pb::ProgramDesc& desc, const PrintOptions& options) {
  const Types types(desc);
  std::string text;
  AppendProgramHead(desc, &text);
  text.push_back('\n');
  for (int b = 0; b < desc.blocks_size(); ++b) {
    text.append("  ");
    AppendBlockHead(desc.blocks(b), options, &text);
    text.push_back('\n');
    if (options.vars) {
      for (const pb::VarDesc& var : desc.blocks(b).vars()) {
        text.append("    ");
        AppendVar(var, options, &text);
        text.push_back('\n');
      }
    }
    std::string type;
    const auto type_of = [&](absl::string_view name) -> absl::string_view {
      return type = types.Find(b, name);
    };
    for (const pb::OpDesc& op : desc.blocks(b).ops()) {
      text.append("    ");
      AppendOp(op, options, type_of, &text);
      text.push_back('\n');
    }
    text.append("  }\n");
  }
  if (options.op_versions && desc.has_op_version_map()) {
    text.append("  ");
    AppendOpVersions(desc.op_version_map(), &text);
    text.push_back('\n');
  }
  if (HasSettingLine(desc)) absl::StrAppend(&text, "  setting ", desc.weft_setting(), "\n");
  text.append("}\n");
  return text;
}

}  // namespace weft::testing
