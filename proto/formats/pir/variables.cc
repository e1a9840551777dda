#include "proto/formats/pir/variables.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/host_schedules.h"
#include "proto/op_role.h"

namespace weft::pir {

namespace {

// Null for a type without dimensions.
pb::VarType::TensorDesc* MutableTensor(pb::VarType* type) {
  switch (type->type()) {
    case pb::VarType::LOD_TENSOR:
      return type->mutable_lod_tensor()->mutable_tensor();
    case pb::VarType::LOD_TENSOR_ARRAY:
      return type->mutable_tensor_array()->mutable_tensor();
    case pb::VarType::SPARSE_COO:
      return type->mutable_sparse_coo();
    case pb::VarType::SPARSE_CSR:
      return type->mutable_sparse_csr();
    default:
      return nullptr;
  }
}

}  // namespace

void Variable::WriteTo(pb::VarDesc* desc) const {
  desc->Clear();
  desc->set_name(name);
  if (is_scope) return desc->mutable_type()->set_type(pb::VarType::STEP_SCOPES);
  const ValueType unknown;
  const ValueType& of = type == nullptr ? unknown : *type;
  desc->mutable_type()->set_type(type == nullptr ? pb::VarType::LOD_TENSOR : of.variable);
  if (pb::VarType::TensorDesc* const tensor = MutableTensor(desc->mutable_type())) {
    tensor->set_data_type(of.dtype);
    for (const int64_t dim : of.dims) tensor->add_dims(dim);
  }
  desc->set_persistable(persistable);
  if (need_check_feed) desc->set_need_check_feed(true);
  desc->set_is_parameter(is_parameter);
  desc->set_stop_gradient(stop_gradient);
  if (lr_schedule == nullptr) return;
  pb::VarDesc::Attr* const attr = desc->add_attrs();
  attr->set_name(std::string(kScheduleAttr));
  attr->set_type(pb::STRING);
  attr->set_s(*lr_schedule);
}

Variables::Variables(const Document& document, const Training& training, const Survey& survey)
    : document_(document),
      training_(training),
      survey_(survey),
      var_of_value_(document.values().size(), kNoVar),
      version_of_value_(document.values().size(), 0) {}

VarIndex Variables::Named(absl::string_view name) {
  const auto found = vars_by_name_.find(name);
  if (found != vars_by_name_.end()) return found->second;
  const VarIndex var = vars_.size();
  vars_.emplace_back().name = std::string(name);
  vars_.back().block = block_;
  vars_by_name_.emplace(vars_.back().name, var);
  versions_.push_back(0);
  return var;
}

VarIndex Variables::New(std::string name) {
  while (vars_by_name_.contains(name)) name += "_";
  return Named(name);
}

absl::Status Variables::Define(ValueIndex value, VarIndex var, bool overwrites) {
  if (overwrites) ++versions_[var];
  var_of_value_[value] = var;
  version_of_value_[value] = versions_[var];
  if (vars_[var].type != nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(auto type, TypeOf(value));
  if (!type->is_variable()) {
    return absl::InvalidArgumentError(absl::StrCat("%", document_.value(value).id,
                                                   ": expected a value of a variable, found ",
                                                   document_.value(value).type.substr(0, 64)));
  }
  vars_[var].type = std::move(type);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ValueType>> Variables::TypeOf(ValueIndex value) const {
  const absl::string_view text = document_.value(value).type;
  std::shared_ptr<const ValueType>& type = types_[text];
  if (type == nullptr) {
    WEFT_ASSIGN_OR_RETURN(ValueType read, ReadType(text));
    type = std::make_shared<const ValueType>(std::move(read));
  }
  return type;
}

std::string Variables::NameOf(ValueIndex value, absl::string_view stem) const {
  const auto named = survey_.name_of_value.find(value);
  if (named != survey_.name_of_value.end()) return named->second;
  const int64_t id = document_.value(value).id;
  const ValueIndex primal = training_.primal[value];
  if (primal == kNoValue || var_of_value_[primal] == kNoVar) return absl::StrCat(stem, "_", id);
  const std::string grad = absl::StrCat(vars_[var_of_value_[primal]].name, kGradSuffix);
  if (training_.is_summand[value] || vars_by_name_.contains(grad)) {
    return absl::StrCat(grad, "@RENAME@", id);
  }
  return grad;
}

absl::StatusOr<VarIndex> Variables::Read(ValueIndex value) const {
  const VarIndex var = var_of_value_[value];
  if (var == kNoVar) {
    return absl::UnimplementedError(absl::StrCat("reads %", document_.value(value).id, ", ",
                                                 document_.value(value).type.substr(0, 64),
                                                 ": expected a dense tensor"));
  }
  if (version_of_value_[value] != versions_[var]) {
    return absl::InvalidArgumentError(
        absl::StrCat("reads %", document_.value(value).id, ", the content of variable ",
                     vars_[var].name, " that an earlier op has overwritten: expected its result"));
  }
  return var;
}

}  // namespace weft::pir
