#include "executor/run/shared_states.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "executor/plan/run_checks.h"
#include "executor/run/run_state.h"
#include "ops/analysis/core/updates.h"
#include "ops/kernel_util.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

int64_t ElementsOf(const std::vector<SharedTensor>& tensors) {
  int64_t elements = 0;
  for (const SharedTensor& tensor : tensors) elements += NumElements(tensor.dims);
  return elements;
}

char* BytesOf(Tensor* tensor) { return static_cast<char*>(tensor->raw()); }
const char* BytesOf(const Tensor& tensor) { return static_cast<const char*>(tensor.raw()); }

bool AreEqual(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.bytes() == b.bytes() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

}  // namespace

absl::StatusOr<SharedStates> SharedStates::Of(const Program& main) {
  WEFT_ASSIGN_OR_RETURN(Setting setting, SettingOf(main));
  SharedStates states;
  states.shares_ = std::move(setting.shares);
  states.common_ = std::move(setting.common);
  for (const auto& [variable, tensors] : states.shares_) {
    for (const SharedTensor& tensor : tensors) states.whole_.insert(tensor.name);
  }
  for (const auto& [variable, names] : states.common_) {
    states.whole_.insert(names.begin(), names.end());
  }
  states.whole_.erase("");
  for (OpId id : main.block(0).ops()) {
    if (states.shares_.empty()) break;
    for (Symbol param : main.op(id).Input("Param")) {
      const auto share = states.shares_.find(std::string(main.name(param)));
      if (share == states.shares_.end()) continue;
      for (const SharedTensor& tensor : share->second) states.parameters_.insert(tensor.name);
    }
  }
  states.parameters_.erase("");
  for (const auto& [variable, tensors] : states.shares_) {
    const VarId id = main.block(0).FindVar(variable);
    const auto declared = id.valid() ? DeclaredType(main.var(id)) : absl::nullopt;
    const Dims expected = {ElementsOf(tensors) / *setting.nranks};
    if (declared.has_value() && declared->dims == expected) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("setting of the file: share ", variable,
                     ": expected a variable of dimensions ", DimsToString(expected), ", found ",
                     declared.has_value() ? DimsToString(declared->dims) : "none"));
  }
  return states;
}

absl::Status SharedStates::Join(int nranks, Find find, Tensors* whole) const {
  for (const auto& [variable, tensors] : shares_) {
    const Tensor* const first = find(0, variable);
    if (first == nullptr) continue;
    const int64_t elements = ElementsOf(tensors);
    const size_t size = SizeOf(first->dtype());
    std::string all;
    for (int rank = 0; rank < nranks; ++rank) {
      const Tensor* const part = find(rank, variable);
      const int64_t found = part == nullptr ? 0 : part->size();
      if (part == nullptr || found * nranks != elements || part->dtype() != first->dtype()) {
        return absl::FailedPreconditionError(absl::StrCat(
            "variable ", variable, ": expected the part of ", elements, " elements on ", nranks,
            " ranks (setting of the file), found ", found, " on rank ", rank));
      }
      all.append(BytesOf(*part), part->bytes());
    }
    size_t begin = 0;
    for (const SharedTensor& tensor : tensors) {
      const size_t bytes = NumElements(tensor.dims) * size;
      if (!tensor.name.empty()) {
        Tensor& value = (*whole)[tensor.name];
        value.Resize(first->dtype(), Dims(tensor.dims.begin(), tensor.dims.end()));
        if (bytes > 0) std::memcpy(value.raw(), all.data() + begin, bytes);
      }
      begin += bytes;
    }
  }
  for (const auto& [variable, names] : common_) {
    const Tensor* const value = find(0, variable);
    if (value == nullptr) continue;
    for (const std::string& name : names) WEFT_RETURN_IF_ERROR((*whole)[name].CopyFrom(*value));
  }
  return absl::OkStatus();
}

absl::Status SharedStates::JoinIn(Checkpoint* checkpoint) const {
  Tensors whole;
  const auto find = [&](int rank, const std::string& name) {
    return FindValue(*checkpoint, rank, name);
  };
  WEFT_RETURN_IF_ERROR(Join(checkpoint->nranks, find, &whole));
  const auto erase = [&](const std::string& name) {
    checkpoint->shared.erase(name);
    for (auto& own : checkpoint->own) own.erase(name);
  };
  for (const auto& [variable, tensors] : shares_) erase(variable);
  for (const auto& [variable, names] : common_) erase(variable);
  for (auto& [name, tensor] : whole) checkpoint->shared[name] = std::move(tensor);
  return absl::OkStatus();
}

absl::Status SharedStates::Overwrite(const std::string& variable, int rank, int nranks,
                                     const Tensors& whole, Tensor* share) const {
  const std::vector<SharedTensor>& tensors = shares_.at(variable);
  const int64_t count = ElementsOf(tensors) / nranks, first = rank * count;
  if (share->size() * nranks != ElementsOf(tensors)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "variable ", variable, ": expected the part of ", ElementsOf(tensors), " elements on ",
        nranks, " ranks (setting of the file), found ", share->size()));
  }
  const auto size = static_cast<int64_t>(SizeOf(share->dtype()));
  int64_t begin = 0;
  for (const SharedTensor& tensor : tensors) {
    const int64_t elements = NumElements(tensor.dims), end = begin + elements;
    const auto found = whole.find(tensor.name);
    if (found != whole.end()) {
      const Tensor& value = found->second;
      if (value.dtype() != share->dtype() || value.size() != elements) {
        return absl::InvalidArgumentError(absl::StrCat(
            "variable ", tensor.name, ": expected ",
            ToString(TensorType{share->dtype(), Dims(tensor.dims.begin(), tensor.dims.end())}),
            ", found ", ToString(TensorType{value.dtype(), value.dims()})));
      }
      const int64_t from = std::max(begin, first), to = std::min(end, first + count);
      if (from < to) {
        std::memcpy(BytesOf(share) + (from - first) * size, BytesOf(value) + (from - begin) * size,
                    (to - from) * size);
      }
    }
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status SharedStates::CheckParam(const Program& main, const std::string& name,
                                      const TensorType& type) const {
  for (const auto& [variable, names] : common_) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    return weft::CheckParam(main, variable, type);
  }
  for (const auto& [variable, tensors] : shares_) {
    for (const SharedTensor& tensor : tensors) {
      if (tensor.name != name) continue;
      const VarId id = main.block(0).FindVar(variable);
      const auto share = id.valid() ? DeclaredType(main.var(id)) : absl::nullopt;
      if (!share.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("variable ", variable, ": the setting of the file shares ", name,
                         " out there, but the program does not declare it as a tensor"));
      }
      const TensorType expected = {share->dtype, Dims(tensor.dims.begin(), tensor.dims.end())};
      if (type == expected) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", name, ": expected ", ToString(expected), ", found ", ToString(type)));
    }
  }
  return absl::OkStatus();
}

absl::Status SharedStates::AddMasters(const Program& main, Tensors* whole) const {
  for (const ParamUpdate& update : FindUpdates(main)) {
    if (!update.master.valid()) continue;
    const auto params = shares_.find(std::string(main.name(update.param)));
    const auto masters = shares_.find(std::string(main.name(update.master)));
    if (params == shares_.end() || masters == shares_.end()) continue;
    const size_t count = std::min(params->second.size(), masters->second.size());
    for (size_t i = 0; i < count; ++i) {
      const std::string &param = params->second[i].name, &master = masters->second[i].name;
      const auto found = whole->find(param);
      if (found == whole->end() || whole->count(master) > 0) continue;
      Tensor value;
      value.Resize(DType::kFloat32, found->second.dims());
      WEFT_RETURN_IF_ERROR(ConvertFloats(param, found->second, master, &value));
      (*whole)[master] = std::move(value);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SharedStates::Tensors> SharedStates::CommonOf(const Tensors& whole,
                                                             const Tensors& current) const {
  Tensors values;
  for (const auto& [variable, names] : common_) {
    const std::string* known = nullptr;
    std::vector<std::string> others;
    for (const std::string& name : names) {
      const auto found = whole.find(name);
      if (found == whole.end()) {
        others.push_back(name);
      } else if (known == nullptr) {
        known = &found->first;
        WEFT_RETURN_IF_ERROR(values[variable].CopyFrom(found->second));
      } else if (!AreEqual(found->second, whole.at(*known))) {
        return absl::InvalidArgumentError(absl::StrCat(
            "variables ", *known, " and ", name, ": expected equal values, as the program has ",
            variable, " for both (setting of the file)"));
      }
    }
    if (known == nullptr || others.empty()) continue;
    const auto kept = current.find(variable);
    if (kept != current.end() && AreEqual(kept->second, whole.at(*known))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "variable ", *known, ": expected the value that ", absl::StrJoin(others, ", "),
        " keep, as the program has ", variable,
        " for all of them (setting of the file), found another one; give values of all of them or "
        "of none, or train with option:mode grad_allreduce, which keeps them apart"));
  }
  return values;
}

absl::Status SharedStates::CheckHas(const std::string& variable, const Tensors& whole,
                                    absl::string_view what) const {
  std::vector<std::string> names;
  if (const auto share = shares_.find(variable); share != shares_.end()) {
    for (const SharedTensor& tensor : share->second) names.push_back(tensor.name);
  } else if (const auto common = common_.find(variable); common != common_.end()) {
    names = common->second;
  }
  for (const std::string& name : names) {
    if (name.empty() || whole.count(name) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("variable ", name, ": the program has ",
                                                   variable, " instead (setting of the file), but ",
                                                   what, " have no value of it"));
  }
  return absl::OkStatus();
}

absl::Status SharedStates::DivideIn(int nranks, Checkpoint* checkpoint) const {
  std::vector<Tensors> own(nranks);
  for (const auto& [variable, tensors] : shares_) {
    // A process of an elastic job has kept the parts of its own ranks.
    for (int rank = 0; rank < nranks; ++rank) {
      if (FindValue(*checkpoint, rank, variable) != nullptr) return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(CheckHas(variable, checkpoint->shared, "its states"));
    const Tensor* any = nullptr;
    for (const SharedTensor& tensor : tensors) {
      const auto found = checkpoint->shared.find(tensor.name);
      if (found != checkpoint->shared.end()) any = &found->second;
    }
    for (int rank = 0; rank < nranks && any != nullptr; ++rank) {
      Tensor& share = own[rank][variable];
      share.Resize(any->dtype(), {ElementsOf(tensors) / nranks});
      if (share.bytes() > 0) std::memset(share.raw(), 0, share.bytes());
      WEFT_RETURN_IF_ERROR(Overwrite(variable, rank, nranks, checkpoint->shared, &share));
    }
  }
  for (const auto& [variable, names] : common_) {
    WEFT_RETURN_IF_ERROR(CheckHas(variable, checkpoint->shared, "its states"));
  }
  WEFT_ASSIGN_OR_RETURN(Tensors common, CommonOf(checkpoint->shared, {}));
  for (const std::string& name : whole_) checkpoint->shared.erase(name);
  for (auto& [name, tensor] : common) checkpoint->shared[name] = std::move(tensor);
  WEFT_RETURN_IF_ERROR(CheckRanks(*checkpoint, nranks));
  checkpoint->nranks = nranks;
  checkpoint->random.resize(nranks);
  checkpoint->own.resize(nranks);
  for (int rank = 0; rank < nranks; ++rank) checkpoint->own[rank].merge(own[rank]);
  return absl::OkStatus();
}

}  // namespace weft
