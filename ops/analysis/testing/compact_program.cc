#include "ops/analysis/testing/compact_program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/type_flow.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "proto/testing/message_text.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

// "var a, b : fp32[2]" as two lines. Names of variables have no comma.
std::string DeclarationLines(absl::string_view line) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(" : ", 1));
  std::string lines;
  for (absl::string_view name : absl::StrSplit(absl::StripPrefix(parts.first, "var "), ", ")) {
    absl::StrAppend(&lines, "var ", name, " : ", parts.second, "\n");
  }
  return lines;
}

// Makes a whole program of the lines of blocks.
std::string WholeProgram(absl::string_view text) {
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "program")) {
    return std::string(text);
  }
  std::string whole = "program version=2006002 {\n  block 0 parent=-1 {\n";
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::string_view head = absl::StripAsciiWhitespace(line);
    if (absl::StartsWith(head, "block ") && absl::ConsumeSuffix(&head, ":")) {
      const bool has_parent = absl::StrContains(head, "parent=");
      absl::StrAppend(&whole, "  }\n  ", head, has_parent ? "" : " parent=0", " {\n");
    } else if (absl::StartsWith(head, "var ") && absl::StrContains(head, " : ")) {
      absl::StrAppend(&whole, DeclarationLines(head));
    } else {
      absl::StrAppend(&whole, line, "\n");
    }
  }
  return absl::StrCat(whole, "  }\n}\n");
}

const pb::OpDesc::Attr* FindAttr(const pb::OpDesc& op, absl::string_view name) {
  for (const pb::OpDesc::Attr& attr : op.attrs()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

void GiveRoles(pb::ProgramDesc* program) {
  for (pb::BlockDesc& block : *program->mutable_blocks()) {
    for (pb::OpDesc& op : *block.mutable_ops()) {
      if (FindAttr(op, kOpRoleAttr) != nullptr) continue;
      pb::OpDesc::Attr* role = op.add_attrs();
      role->set_name(std::string(kOpRoleAttr));
      role->set_type(pb::INT);
      role->set_i(kRoleForward);
    }
  }
}

pb::VarType ToProto(const TensorType& type) {
  pb::VarType proto;
  const bool is_dense = type.kind == TensorType::Kind::kDense;
  proto.set_type(is_dense ? pb::VarType::LOD_TENSOR : pb::VarType::SELECTED_ROWS);
  pb::VarType::TensorDesc* tensor =
      is_dense ? proto.mutable_lod_tensor()->mutable_tensor() : proto.mutable_selected_rows();
  tensor->set_data_type(static_cast<pb::VarType::Type>(type.dtype));
  for (int64_t dim : type.dims) tensor->add_dims(dim);
  return proto;
}

// Declares missing variables in block 0, by their use.
class Declarer {
 public:
  explicit Declarer(pb::ProgramDesc* program) : program_(*program) {}

  void Declare() {
    for (const pb::BlockDesc& block : program_.blocks()) {
      for (const pb::VarDesc& var : block.vars()) declared_.insert(var.name());
    }
    for (const pb::BlockDesc& block : program_.blocks()) {
      for (const pb::OpDesc& op : block.ops()) Visit(op);
    }
    for (const std::string& name : order_) Add(name);
    InferTypes();
  }

 private:
  struct Use {
    bool is_param = false, is_state = false, is_scalar = false, is_data = false, is_scope = false;

    bool has_inferred_type() const { return !is_param && !is_state && !is_data && !is_scope; }
  };

  void Visit(const pb::OpDesc& op) {
    const OpSchema* schema = FindOpSchema(op.type());
    const bool is_optimizer = schema != nullptr && schema->Has(Trait::kOptimizer);
    for (const pb::OpDesc::Var& slot : op.inputs()) {
      for (const std::string& name : slot.arguments()) {
        const bool is_new = written_.count(name) == 0;
        Use* use = Find(name);
        if (use == nullptr) continue;
        if (is_optimizer && slot.parameter() == "Param") use->is_param = true;
        if (is_optimizer && slot.parameter() != "Grad" && is_new) use->is_state = true;
        if (slot.parameter() == "LearningRate" || absl::EndsWith(slot.parameter(), "Pow")) {
          use->is_scalar = true;
        }
        if (is_new) use->is_data = true;
      }
    }
    if (const pb::OpDesc::Attr* pairs = FindAttr(op, kOpRoleVarAttr)) {
      for (int i = 0; i + 1 < pairs->strings_size(); i += 2) {
        if (Use* use = Find(pairs->strings(i))) use->is_param = true;
      }
    }
    for (const pb::OpDesc::Var& slot : op.outputs()) {
      for (const std::string& name : slot.arguments()) {
        Use* use = Find(name);
        if (use != nullptr && slot.parameter() == "Scope") use->is_scope = true;
        written_.insert(name);
      }
    }
  }

  // Null if there is nothing to declare.
  Use* Find(const std::string& name) {
    if (name == kEmptyVarName || declared_.count(name) > 0) return nullptr;
    if (uses_.count(name) == 0) order_.push_back(name);
    return &uses_[name];
  }

  const pb::VarDesc* FindVar(absl::string_view name) const {
    for (const pb::VarDesc& var : program_.blocks(0).vars()) {
      if (var.name() == name) return &var;
    }
    return nullptr;
  }

  // The type of a variable that no op with a schema writes.
  pb::VarType TypeOf(const std::string& name) const {
    const size_t suffix = absl::string_view(name).find(kGradSuffix);
    const pb::VarDesc* forward =
        suffix == absl::string_view::npos ? nullptr : FindVar(name.substr(0, suffix));
    if (forward != nullptr) return forward->type();
    return ToProto({DType::kFloat32, uses_.at(name).is_scalar ? Dims{1} : Dims{2, 2}});
  }

  void Add(const std::string& name) {
    const Use& use = uses_[name];
    pb::VarDesc var;
    var.set_name(name);
    if (use.is_scope) {
      var.mutable_type()->set_type(pb::VarType::STEP_SCOPES);
    } else if (use.has_inferred_type()) {
      var.mutable_type()->set_type(pb::VarType::RAW);  // until InferTypes
    } else {
      *var.mutable_type() = TypeOf(name);
    }
    if (use.is_param) var.set_is_parameter(true);
    if (use.is_param || use.is_state) {
      var.set_persistable(true);
    } else if (use.is_data) {
      var.set_need_check_feed(true);
    }
    *program_.mutable_blocks(0)->add_vars() = std::move(var);
  }

  // Gives variables of no type the one that the first op that writes them infers.
  void InferTypes() {
    if (uses_.empty()) return;
    std::map<std::string, pb::VarType> inferred;
    const absl::StatusOr<Program> program = Program::FromProto(program_);
    if (program.ok()) {
      TypeFlow flow(*program);
      flow.Run(0, [&](const TypeFlow::Step& step) {
        for (VarId id : step.outputs) {
          if (!id.valid()) continue;
          const absl::optional<TensorType>& type = flow.types().type(flow.current(id));
          if (type.has_value()) inferred.emplace(program->var(id).name(), ToProto(*type));
        }
        return true;
      });
    }
    for (pb::VarDesc& var : *program_.mutable_blocks(0)->mutable_vars()) {
      const auto use = uses_.find(var.name());
      if (use == uses_.end() || !use->second.has_inferred_type()) continue;
      const auto found = inferred.find(var.name());
      *var.mutable_type() = found != inferred.end() ? found->second : TypeOf(var.name());
    }
  }

  pb::ProgramDesc& program_;
  std::set<std::string> declared_, written_;
  std::map<std::string, Use> uses_;
  std::vector<std::string> order_;
};

bool Declares(const pb::BlockDesc& block, const std::string& name) {
  return std::any_of(block.vars().begin(), block.vars().end(),
                     [&](const pb::VarDesc& var) { return var.name() == name; });
}

template <typename Items, typename Key>
void SortBy(const Key& key, Items* items) {
  std::stable_sort(items->begin(), items->end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

template <typename Items, typename Predicate>
void EraseIf(const Predicate& predicate, Items* items) {
  items->erase(std::remove_if(items->begin(), items->end(), predicate), items->end());
}

bool HasDefault(const pb::OpDesc::Attr& attr, const OpSchema* schema) {
  const AttrSchema* known = schema == nullptr ? nullptr : schema->FindAttr(attr.name());
  if (known == nullptr || known->required) return false;
  return MakeAttr(attr.name(), known->default_value).SerializeAsString() ==
         attr.SerializeAsString();
}

void Canonicalize(pb::OpDesc* op) {
  const OpSchema* schema = FindOpSchema(op->type());
  const auto is_empty = [](const pb::OpDesc::Var& slot) { return slot.arguments().empty(); };
  const auto slot_name = [](const pb::OpDesc::Var& slot) { return slot.parameter(); };
  for (auto* slots : {op->mutable_inputs(), op->mutable_outputs()}) {
    EraseIf(is_empty, slots);
    SortBy(slot_name, slots);
  }
  EraseIf([&](const pb::OpDesc::Attr& attr) { return HasDefault(attr, schema); },
          op->mutable_attrs());
  SortBy([](const pb::OpDesc::Attr& attr) { return attr.name(); }, op->mutable_attrs());
}

}  // namespace

absl::StatusOr<pb::ProgramDesc> ParseCompactProgram(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(pb::ProgramDesc program, ParseProgramDescText(WholeProgram(text)));
  GiveRoles(&program);
  Declarer(&program).Declare();
  return program;
}

absl::StatusOr<pb::ProgramDesc> ParseCompactProgram(absl::string_view text,
                                                    const pb::ProgramDesc& declarations) {
  WEFT_ASSIGN_OR_RETURN(pb::ProgramDesc program, ParseProgramDescText(WholeProgram(text)));
  GiveRoles(&program);
  for (int i = 0; i < std::min(program.blocks_size(), declarations.blocks_size()); ++i) {
    pb::BlockDesc* block = program.mutable_blocks(i);
    for (const pb::VarDesc& var : declarations.blocks(i).vars()) {
      if (!Declares(*block, var.name())) *block->add_vars() = var;
    }
  }
  return program;
}

Program CompactProgram(absl::string_view text) {
  const auto program = [&]() -> absl::StatusOr<Program> {
    WEFT_ASSIGN_OR_RETURN(const pb::ProgramDesc desc, ParseCompactProgram(text));
    return Program::FromProto(desc);
  }();
  if (!program.ok()) {
    std::fprintf(stderr, "%s\n", program.status().ToString().c_str());
    std::abort();
  }
  return *program;
}

std::string CanonicalText(const pb::ProgramDesc& program) {
  pb::ProgramDesc canonical = program;
  for (pb::BlockDesc& block : *canonical.mutable_blocks()) {
    SortBy([](const pb::VarDesc& var) { return var.name(); }, block.mutable_vars());
    for (pb::OpDesc& op : *block.mutable_ops()) Canonicalize(&op);
  }
  PrintOptions options = PrintOptions::Short();
  options.output_types = false;
  return MessageText(canonical, options);
}

}  // namespace weft::testing
