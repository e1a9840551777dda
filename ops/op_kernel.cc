#include "ops/op_kernel.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
OpKernel::OpKernel(const KernelSpec& spec)
    : spec_(spec), types_(std::make_shared<KernelTypes>(spec)) {}

In OpKernel::in(absl::string_view slot) {
  read_inputs_.emplace_back(slot);
  return Find(slot);
}

InTypes OpKernel::in_types(absl::string_view slot) { return InTypes(Find(slot)); }

In OpKernel::Find(absl::string_view slot) {
  known_inputs_.emplace_back(slot);
  const int first = spec_.Input(slot);
  if (first >= 0) return In(first, spec_.inputs.at(slot).count);
  const SlotSchema* schema = spec_.schema->FindInput(slot);
  if (status_.ok() && schema != nullptr && !schema->optional) {
    status_ = absl::InvalidArgumentError(absl::StrCat("input ", slot, ": missing"));
  }
  return In();
}

Out OpKernel::out(absl::string_view slot) {
  const int first = spec_.Output(slot);
  if (first >= 0) {
    has_output_ = true;
    return Out(first, spec_.outputs.at(slot).count);
  }
  // Programs leave out gradients that nobody needs.
  const SlotSchema* schema = spec_.schema->FindOutput(slot);
  const bool may_be_missing =
      schema == nullptr || schema->optional || absl::EndsWith(slot, "@GRAD");
  if (status_.ok() && !may_be_missing) {
    status_ = absl::InvalidArgumentError(absl::StrCat("output ", slot, ": missing"));
  }
  return Out();
}

OpKernel& OpKernel::Ignore(std::initializer_list<absl::string_view> slots) {
  for (absl::string_view slot : slots) known_inputs_.emplace_back(slot);
  return *this;
}

OpKernel& OpKernel::AllowEmptyArguments(In in) {
  if (in) types_->AllowEmptyArguments(in.index());
  return *this;
}

OpKernel& OpKernel::InPlace() {
  kernel_.in_place = true;
  return *this;
}

OpKernel& OpKernel::InPlace(Out out, In in) {
  for (int i = 0; i < std::min(out.count(), in.count()); ++i) {
    kernel_.in_place_pairs.emplace_back(out.index(i), in.index(i));
  }
  return *this;
}

OpKernel& OpKernel::View(Out out, In in) {
  if (out && in) kernel_.views.emplace_back(out.index(), in.index());
  return *this;
}

OpKernel& OpKernel::Pointwise() {
  kernel_.is_pointwise = true;
  return *this;
}

OpKernel& OpKernel::MergesUpdates() {
  kernel_.merges_updates = true;
  return *this;
}

OpKernel& OpKernel::UsesHost() {
  kernel_.uses_host = true;
  return *this;
}

const std::vector<PostOp>& OpKernel::TakePostOps() {
  kernel_.num_post_ops = spec_.post_ops.size();
  return spec_.post_ops;
}

OpKernel& OpKernel::StartsFromZero() {
  kernel_.starts_from_zero = true;
  return *this;
}

OpKernel& OpKernel::WithoutHalfConversion() {
  kernel_.keeps_halves = true;
  RecordElementTypes();
  return *this;
}

OpKernel& OpKernel::TakesHalves(In in) {
  for (int i = 0; i < in.count(); ++i) kernel_.half_inputs.push_back(in.index(i));
  return *this;
}

OpKernel& OpKernel::TakesBFloat16(std::initializer_list<In> ins) {
  std::vector<int> inputs;
  for (const In& in : ins) {
    for (int i = 0; i < in.count(); ++i) inputs.push_back(in.index(i));
  }
  for (const PostOp& post_op : spec_.post_ops) {
    if (post_op.input >= 0) inputs.push_back(post_op.input);
  }
  types_->TakeBFloat16(std::move(inputs));
  return *this;
}

OpKernel& OpKernel::TakesHalves(std::initializer_list<In> ins) {
  types_->TakeFloat16();
  return TakesBFloat16(ins);
}

std::string OpKernel::SlotName(In in) const {
  for (const auto& slot : spec_.inputs) {
    if (slot.second.first == in.index() && slot.second.count == in.count()) {
      return absl::StrCat("input ", slot.first);
    }
  }
  return "input";
}

absl::Status OpKernel::CheckSlots() const {
  WEFT_RETURN_IF_ERROR(status_);
  for (const SlotSchema& slot : spec_.schema->inputs()) {
    // Inference reads all required inputs.
    if (slot.IsRequired(spec_.attrs.version())) {
      WEFT_RETURN_IF_ERROR(RequiredInput(spec_, slot.name).status());
    } else if (spec_.Input(slot.name) >= 0 && !absl::c_linear_search(known_inputs_, slot.name)) {
      return absl::UnimplementedError(
          absl::StrCat("input ", slot.name, ": the kernel of this device does not support it"));
    }
  }
  return absl::OkStatus();
}

void OpKernel::RecordElementTypes() const {
  if (spec_.element_types == nullptr) return;
  *spec_.element_types = element_types_;
  const auto supports = [&](DType type) { return absl::c_linear_search(element_types_, type); };
  if (supports(DType::kFloat32) && !supports(DType::kFloat16) && !kernel_.keeps_halves) {
    spec_.element_types->push_back(DType::kFloat16);
    if (!supports(DType::kBFloat16)) spec_.element_types->push_back(DType::kBFloat16);
  }
}

void OpKernel::FindUnreadInputs() {
  for (const auto& [name, slot] : spec_.inputs) {
    if (absl::c_linear_search(read_inputs_, name)) continue;
    for (int i = 0; i < slot.count; ++i) kernel_.unread.push_back(slot.first + i);
  }
  absl::c_sort(kernel_.unread);
}

absl::StatusOr<Kernel> OpKernel::Finish(Prepare prepare) {
  WEFT_RETURN_IF_ERROR(CheckSlots());
  if (!has_output_) return Kernel([](const KernelContext&) { return absl::OkStatus(); });
  if (kernel_.num_post_ops != spec_.post_ops.size() ||
      kernel_.starts_from_zero != spec_.starts_from_zero) {
    return absl::UnimplementedError("no kernel that does more than the op");
  }
  FindUnreadInputs();
  kernel_.types = types_;
  kernel_.prepare = std::move(prepare);
  return kernel_;
}

}  // namespace weft
