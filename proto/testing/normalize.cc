#include "proto/testing/normalize.h"

#include <algorithm>
#include <array>

#include "absl/strings/string_view.h"

namespace weft::testing {
namespace {

namespace pb = ::paddle::framework::proto;

template <typename LoD>
void ClearDefaultLevel(LoD* lod) {
  if (lod->lod_level() == 0) lod->clear_lod_level();
}

void ClearDefaults(pb::VarDesc* var) {
  if (!var->persistable()) var->clear_persistable();
  if (!var->need_check_feed()) var->clear_need_check_feed();
  if (!var->is_parameter()) var->clear_is_parameter();
  if (!var->stop_gradient()) var->clear_stop_gradient();
  pb::VarType* type = var->mutable_type();
  if (type->has_lod_tensor()) ClearDefaultLevel(type->mutable_lod_tensor());
  if (type->has_tensor_array()) ClearDefaultLevel(type->mutable_tensor_array());
  if (type->has_reader()) {
    for (auto& lod : *type->mutable_reader()->mutable_lod_tensor()) ClearDefaultLevel(&lod);
  }
}

}  // namespace

void RemoveBookkeeping(pb::ProgramDesc* program) {
  static constexpr std::array<absl::string_view, 4> kNames = {"op_callstack", "op_namescope",
                                                              "op_device", "with_quant_attr"};
  const auto is_bookkeeping = [](const pb::OpDesc::Attr& attr) {
    return std::find(kNames.begin(), kNames.end(), attr.name()) != kNames.end();
  };
  for (pb::BlockDesc& block : *program->mutable_blocks()) {
    for (pb::OpDesc& op : *block.mutable_ops()) {
      auto* attrs = op.mutable_attrs();
      attrs->erase(std::remove_if(attrs->begin(), attrs->end(), is_bookkeeping), attrs->end());
    }
  }
}

void SortAttributes(pb::ProgramDesc* program) {
  for (pb::BlockDesc& block : *program->mutable_blocks()) {
    for (pb::OpDesc& op : *block.mutable_ops()) {
      std::stable_sort(
          op.mutable_attrs()->begin(), op.mutable_attrs()->end(),
          [](const pb::OpDesc::Attr& x, const pb::OpDesc::Attr& y) { return x.name() < y.name(); });
    }
  }
}

void ClearWrittenDefaults(pb::ProgramDesc* program) {
  for (pb::BlockDesc& block : *program->mutable_blocks()) {
    if (block.forward_block_idx() == -1) block.clear_forward_block_idx();
    for (pb::VarDesc& var : *block.mutable_vars()) ClearDefaults(&var);
    for (pb::OpDesc& op : *block.mutable_ops()) {
      if (!op.is_target()) op.clear_is_target();
    }
  }
}

}  // namespace weft::testing
