#include "proto/text/text_op.h"

#include <algorithm>
#include <array>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/op_role.h"
#include "proto/text/text_attr.h"
#include "proto/text/text_literal.h"
#include "proto/text/text_type.h"
#include "proto/text/text_words.h"

namespace weft {
namespace {

using Attr = pb::OpDesc::Attr;
using ::google::protobuf::Message;

// Fields other than `handled`, including unknown ones: the line has no other form for them.
void AppendExtra(const Message& message, std::initializer_list<int> handled, std::string* out) {
  if (HasOnly(message, handled)) return;
  out->append(" extra=");
  AppendLiteral(message, handled, out);
}

// " flag" for true, " !flag" for false, nothing if absent.
void AppendFlag(absl::string_view word, bool present, bool value, const PrintOptions& options,
                std::string* out) {
  if (!present || (!value && !options.defaults)) return;
  absl::StrAppend(out, value ? " " : " !", word);
}

void AppendNumberOrMissing(bool present, int32_t number, std::string* out) {
  if (present) {
    AppendInt(number, out);
  } else {
    out->push_back('?');
  }
}

// The last attribute of that name, if it has this type and a short form; else null.
const Attr* FindRoleAttr(const pb::OpDesc& op, absl::string_view name, pb::AttrType type) {
  for (int i = op.attrs_size() - 1; i >= 0; --i) {
    const Attr& attr = op.attrs(i);
    if (attr.name() != name) continue;
    const bool usual =
        attr.type() == type && HasShortForm(attr) && (type != pb::INT || attr.has_i());
    return usual ? &attr : nullptr;
  }
  return nullptr;
}

bool IsPrinted(const Attr& attr, const PrintOptions& options) {
  if (!options.callstack && attr.name() == "op_callstack") return false;
  return options.attrs == PrintOptions::Attrs::kFull || !IsMinorAttr(attr.name());
}

// Attributes in braces. The values of `role` and `role_vars` are elsewhere on the line; here, their
// names mark their positions.
void AppendOpAttrs(const pb::OpDesc& op, const Attr* role, const Attr* role_vars,
                   const PrintOptions& options, std::string* out) {
  if (options.attrs == PrintOptions::Attrs::kNone) return;
  const char* separator = " {";
  for (const Attr& attr : op.attrs()) {
    const bool elsewhere = &attr == role || &attr == role_vars;
    if (elsewhere ? options.attrs != PrintOptions::Attrs::kFull : !IsPrinted(attr, options)) {
      continue;
    }
    out->append(separator);
    separator = ", ";
    if (elsewhere) {
      out->append(attr.name());
    } else {
      AppendAttr(attr, out);
    }
  }
  if (separator[0] == ',') out->push_back('}');
}

template <typename Slots>
void AppendSlots(const Slots& slots, TypeOfVar type_of, std::string* out) {
  AppendList(slots, out, [&](const pb::OpDesc::Var& slot) { AppendSlot(slot, type_of, out); });
}

absl::string_view NoType(absl::string_view) { return {}; }

}  // namespace

PrintOptions PrintOptions::Short() {
  PrintOptions options;
  options.attrs = Attrs::kShort;
  options.callstack = false;
  options.defaults = false;
  options.op_versions = false;
  return options;
}

bool IsMinorAttr(absl::string_view name) {
  static constexpr std::array<absl::string_view, 21> kNames = {
      "Scale_out",         "Scale_x",        "Scale_y",          "exhaustive_search",
      "force_fp32_output", "fuse_with_relu", "mkldnn_data_type", "onednn_data_type",
      "op_callstack",      "op_device",      "op_namescope",     "scale_out",
      "scale_x",           "scale_y",        "use_addto",        "use_cudnn",
      "use_mkldnn",        "use_onednn",     "use_quantizer",    "with_quant_attr",
      "workspace_size_MB",
  };
  return std::binary_search(kNames.begin(), kNames.end(), name);
}

void AppendTypeNote(const pb::VarType& type, std::string* out) {
  if (HasShortForm(type)) AppendVarType(type, TextDetail::kBrief, out);
}

bool HasSettingLine(const pb::ProgramDesc& program) {
  const absl::string_view setting = program.weft_setting();
  return absl::StartsWith(setting, "{") && absl::EndsWith(setting, "}") && IsUtf8(setting) &&
         absl::c_none_of(setting, [](char c) { return absl::ascii_iscntrl(c); });
}

void AppendProgramHead(const pb::ProgramDesc& program, std::string* out) {
  out->append("program");
  if (program.has_version()) {
    out->append(" version=");
    if (program.version().has_version() && program.version().unknown_fields().empty()) {
      AppendInt(program.version().version(), out);
    } else {
      AppendLiteral(program.version(), {}, out);
    }
  }
  constexpr int kBlocks = pb::ProgramDesc::kBlocksFieldNumber,
                kVersion = pb::ProgramDesc::kVersionFieldNumber,
                kOpVersions = pb::ProgramDesc::kOpVersionMapFieldNumber,
                kSetting = pb::ProgramDesc::kWeftSettingFieldNumber;
  if (HasSettingLine(program)) {
    AppendExtra(program, {kBlocks, kVersion, kOpVersions, kSetting}, out);
  } else {
    AppendExtra(program, {kBlocks, kVersion, kOpVersions}, out);
  }
  out->append(" {");
}

void AppendOpVersions(const pb::OpVersionMap& versions, std::string* out) {
  out->append("op_versions {");
  AppendList(versions.pair(), out, [&](const pb::OpVersionMap::OpVersionPair& pair) {
    if (!pair.has_op_name() || !pair.unknown_fields().empty() || !pair.op_version().has_version() ||
        !pair.op_version().unknown_fields().empty()) {
      AppendLiteral(pair, {}, out);
      return;
    }
    AppendName(pair.op_name(), out);
    out->push_back('=');
    AppendInt(pair.op_version().version(), out);
  });
  out->push_back('}');
  AppendExtra(versions, {pb::OpVersionMap::kPairFieldNumber}, out);
}

void AppendBlockHead(const pb::BlockDesc& block, const PrintOptions& options, std::string* out) {
  out->append("block ");
  AppendNumberOrMissing(block.has_idx(), block.idx(), out);
  out->append(" parent=");
  AppendNumberOrMissing(block.has_parent_idx(), block.parent_idx(), out);
  if (options.defaults ? block.has_forward_block_idx() : block.forward_block_idx() != -1) {
    absl::StrAppend(out, " forward=", block.forward_block_idx());
  }
  AppendExtra(block,
              {pb::BlockDesc::kIdxFieldNumber, pb::BlockDesc::kParentIdxFieldNumber,
               pb::BlockDesc::kVarsFieldNumber, pb::BlockDesc::kOpsFieldNumber,
               pb::BlockDesc::kForwardBlockIdxFieldNumber},
              out);
  out->append(" {");
}

void AppendVar(const pb::VarDesc& var, const PrintOptions& options, std::string* out) {
  out->append("var ");
  if (var.has_name()) {
    AppendName(var.name(), out);
  } else {
    out->push_back('?');
  }
  out->append(" : ");
  if (var.has_type()) {
    AppendVarType(var.type(), options.defaults ? TextDetail::kExact : TextDetail::kBrief, out);
  } else {
    out->push_back('?');
  }
  AppendFlag("parameter", var.has_is_parameter(), var.is_parameter(), options, out);
  AppendFlag("persistable", var.has_persistable(), var.persistable(), options, out);
  AppendFlag("stop_gradient", var.has_stop_gradient(), var.stop_gradient(), options, out);
  AppendFlag("need_check_feed", var.has_need_check_feed(), var.need_check_feed(), options, out);
  if (var.attrs_size() > 0) {
    out->append(" {");
    AppendList(var.attrs(), out, [&](const pb::VarDesc::Attr& attr) { AppendAttr(attr, out); });
    out->push_back('}');
  }
  AppendExtra(var,
              {pb::VarDesc::kNameFieldNumber, pb::VarDesc::kTypeFieldNumber,
               pb::VarDesc::kPersistableFieldNumber, pb::VarDesc::kNeedCheckFeedFieldNumber,
               pb::VarDesc::kIsParameterFieldNumber, pb::VarDesc::kStopGradientFieldNumber,
               pb::VarDesc::kAttrsFieldNumber},
              out);
}

void AppendSlot(const pb::OpDesc::Var& slot, TypeOfVar type_of, std::string* out) {
  if (!slot.has_parameter() || !slot.unknown_fields().empty()) {
    AppendLiteral(slot, {}, out);
    return;
  }
  AppendName(slot.parameter(), out);
  out->append("=[");
  AppendList(slot.arguments(), out, [&](const std::string& name) {
    AppendName(name, out);
    const absl::string_view type = type_of(name);
    if (!type.empty()) absl::StrAppend(out, " : ", type);
  });
  out->push_back(']');
}

void AppendOp(const pb::OpDesc& op, const PrintOptions& options, TypeOfVar type_of,
              std::string* out) {
  AppendSlots(op.outputs(), options.output_types ? type_of : TypeOfVar(NoType), out);
  if (op.outputs_size() > 0) out->append(" = ");
  if (op.has_type()) {
    AppendName(op.type(), out);
  } else {
    out->push_back('?');
  }
  out->push_back('(');
  AppendSlots(op.inputs(), NoType, out);
  out->push_back(')');

  const Attr* role = FindRoleAttr(op, kOpRoleAttr, pb::INT);
  const Attr* role_vars = FindRoleAttr(op, kOpRoleVarAttr, pb::STRINGS);
  if (role != nullptr) absl::StrAppend(out, " role=", RoleName(role->i()));
  if (role_vars != nullptr && role_vars->strings_size() > 0) {
    out->append(" vars=[");
    AppendList(role_vars->strings(), out, [&](const std::string& name) { AppendName(name, out); });
    out->push_back(']');
  }
  AppendOpAttrs(op, role, role_vars, options, out);
  AppendExtra(op,
              {pb::OpDesc::kInputsFieldNumber, pb::OpDesc::kOutputsFieldNumber,
               pb::OpDesc::kTypeFieldNumber, pb::OpDesc::kAttrsFieldNumber},
              out);
}

}  // namespace weft
