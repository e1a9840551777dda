#include "executor/rewrites/channels_last.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "executor/plan/instructions.h"
#include "executor/step/step_resources.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

constexpr char kTranspose[] = "transpose";

Dims WithChannelsLast(Dims dims) {
  std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
  return dims;
}

// An image of two or three dimensions.
bool IsImage(const absl::optional<TensorType>& type) {
  return type.has_value() && (type->dims.size() == 4 || type->dims.size() == 5);
}

// Calls visit(slot, variable, position) for the inputs or outputs of an op, in their order.
template <typename Slots, typename Visit>
void ForEachArgument(const Slots& slots, const std::vector<int>& variables, Visit visit) {
  std::vector<absl::string_view> names(variables.size());
  for (const auto& [name, slot] : slots) std::fill_n(names.begin() + slot.first, slot.count, name);
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i] != Plan::kNoVariable) visit(names[i], variables[i], static_cast<int>(i));
  }
}

class Rewriter {
 public:
  Rewriter(const KernelTable& kernels, const std::vector<int>& accessed, Plan* plan)
      : kernels_(kernels),
        plan_(plan),
        accesses_(*plan),
        images_(plan->variables.size()),
        is_fixed_(plan->variables.size(), false),
        is_used_elsewhere_(accesses_.is_loose) {
    for (int v : accessed) is_fixed_[v] = true;
    for (size_t v = 0; v < is_fixed_.size(); ++v) {
      if (plan->variables[v].persistable || accesses_.is_entry[v]) is_fixed_[v] = true;
    }
    for (size_t i = 0; i < plan->instructions.size(); ++i) {
      if (!RunsOp(i) || IsForRewriting(i)) continue;
      const Plan::PlanOp& op = plan->ops[plan->instructions[i].index];
      for (const std::vector<int>* variables : {&op.inputs, &op.outputs}) {
        for (int v : *variables) {
          if (v != Plan::kNoVariable) is_used_elsewhere_[v] = true;
        }
      }
    }
  }

  void Run() {
    if (absl::c_none_of(plan_->ops, [this](const auto& op) { return IsConvolution(op); })) return;
    const std::vector<Plan::Instruction> instructions = std::move(plan_->instructions);
    plan_->instructions.clear();
    std::vector<int> new_position(instructions.size() + 1);
    for (size_t i = 0; i < instructions.size(); ++i) {
      new_position[i] = static_cast<int>(plan_->instructions.size());
      const bool rewrites = instructions[i].kind == Plan::Instruction::Kind::kRunOp &&
                            instructions[i].stream == 0 && !accesses_.in_block[i];
      if (rewrites) Rewrite(instructions[i].index);
      plan_->instructions.push_back(instructions[i]);
    }
    new_position.back() = static_cast<int>(plan_->instructions.size());
    MoveBranches(new_position, &plan_->branches);
  }

 private:
  // Where the value of a variable is at present.
  struct Image {
    int last = Plan::kNoVariable;  // the variable for channels last, once there is one
    bool is_first = true, is_last = false;
  };

  bool RunsOp(size_t i) const {
    return plan_->instructions[i].kind == Plan::Instruction::Kind::kRunOp;
  }

  // An op that only computes dense outputs from its inputs.
  static bool IsPlain(const Plan::PlanOp& op) {
    return !op.Is<Plan::ControlWork>() && op.reads_inputs && !op.has_rows;
  }

  bool IsForRewriting(size_t i) const {
    return plan_->instructions[i].stream == 0 && !accesses_.in_block[i] &&
           IsPlain(plan_->ops[plan_->instructions[i].index]);
  }

  // With a filter for all channels.
  static bool IsConvolution(const Plan::PlanOp& op) {
    const OpSchema* const schema = op.kernel_spec.schema;
    return schema != nullptr && schema->FindInput("Filter") != nullptr && HasImages(op) &&
           op.kernel_spec.attrs.Int("groups") == 1;
  }

  // Whether the op has images whose channels come first, not divided into groups.
  static bool HasImages(const Plan::PlanOp& op) {
    const OpSchema* const schema = op.kernel_spec.schema;
    if (schema == nullptr || schema->image_attr().empty()) return false;
    const OpAttrs& attrs = op.kernel_spec.attrs;
    const std::string& layout = attrs.String(schema->image_attr());
    return !absl::EndsWith(layout, "C") && (!attrs.Has("groups") || attrs.Int("groups") == 1);
  }

  // The positions of the images among inputs and outputs. Empty: the op stays as it is.
  struct Arguments {
    std::vector<int> inputs, outputs;
    // The axis of the broadcast, if that must change.
    absl::optional<int> axis;
  };

  const absl::optional<TensorType>& TypeOf(int variable) const {
    return plan_->variables[variable].declared;
  }

  // Of an op that says where the channels of its images are.
  Arguments Images(const Plan::PlanOp& op) const {
    const OpSchema& schema = *op.kernel_spec.schema;
    Arguments found;
    bool all_are_images = true;
    const auto add_to = [&](std::vector<int>* positions) {
      return [&schema, &all_are_images, positions, this](absl::string_view slot, int v, int i) {
        if (!schema.IsImage(slot)) return;
        positions->push_back(i);
        all_are_images = all_are_images && IsImage(TypeOf(v));
      };
    };
    ForEachArgument(op.kernel_spec.inputs, op.inputs, add_to(&found.inputs));
    ForEachArgument(op.kernel_spec.outputs, op.outputs, add_to(&found.outputs));
    return all_are_images ? found : Arguments();
  }

  // Of an op all of whose arguments are images of one shape, or a vector of the channels that is
  // broadcast to them.
  Arguments ImagesOfElementwise(const Plan::PlanOp& op) const {
    const OpSchema& schema = *op.kernel_spec.schema;
    const bool broadcasts = schema.Has(Trait::kBroadcasts);
    if (!broadcasts && (!schema.Has(Trait::kElementwise) || schema.Has(Trait::kSideEffect) ||
                        schema.Has(Trait::kOptimizer))) {
      return {};
    }
    Arguments found;
    const Dims* like = nullptr;
    bool fits = true, has_vector = false;
    const auto add_to = [&](std::vector<int>* positions) {
      return [&, positions](absl::string_view slot, int v, int i) {
        const absl::optional<TensorType>& type = TypeOf(v);
        if (!type.has_value()) {
          fits = false;
        } else if (broadcasts && type->dims.size() == 1 && absl::StartsWith(slot, "Y")) {
          has_vector = true;
        } else {
          if (like == nullptr) like = &type->dims;
          fits = fits && IsImage(type) && type->dims == *like;
          positions->push_back(i);
        }
      };
    };
    ForEachArgument(op.kernel_spec.inputs, op.inputs, add_to(&found.inputs));
    ForEachArgument(op.kernel_spec.outputs, op.outputs, add_to(&found.outputs));
    if (!fits || like == nullptr) return {};
    if (has_vector) {
      if (op.kernel_spec.attrs.Int("axis") != 1) return {};
      found.axis = static_cast<int>(like->size()) - 1;
    }
    return found;
  }

  void Rewrite(int index) {
    const Plan::PlanOp& op = plan_->ops[index];
    const bool has_images = IsPlain(op) && HasImages(op);
    Arguments images;
    if (has_images) {
      images = Images(op);
    } else if (IsPlain(op) && op.kernel_spec.schema != nullptr) {
      images = ImagesOfElementwise(op);
    }
    if (WantsChannelsLast(op, has_images, images)) {
      ToChannelsLast(index, has_images, images);
    } else {
      KeepAsIs(index);
    }
  }

  bool WantsChannelsLast(const Plan::PlanOp& op, bool has_images, const Arguments& images) const {
    if (images.inputs.empty()) return false;
    for (int i : images.inputs) {
      if (is_used_elsewhere_[op.inputs[i]]) return false;
    }
    for (int i : images.outputs) {
      if (is_fixed_[op.outputs[i]] || is_used_elsewhere_[op.outputs[i]]) return false;
    }
    if (IsConvolution(op)) return true;
    return absl::c_any_of(images.inputs, [&](int i) {
      const Image& image = images_[op.inputs[i]];
      return image.is_last && (has_images || !image.is_first);
    });
  }

  void ToChannelsLast(int index, bool has_images, const Arguments& images) {
    std::vector<int> inputs = plan_->ops[index].inputs, outputs = plan_->ops[index].outputs;
    for (int i : images.inputs) inputs[i] = ReadLast(index, inputs[i]);
    // Other inputs.
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!absl::c_linear_search(images.inputs, static_cast<int>(i))) ReadFirst(index, inputs[i]);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == Plan::kNoVariable) continue;
      const bool is_last = absl::c_linear_search(images.outputs, static_cast<int>(i));
      Image& image = images_[outputs[i]];
      image.is_last = is_last;
      image.is_first = !is_last;
      if (is_last) outputs[i] = VariableForLast(outputs[i]);
    }
    Plan::PlanOp& op = plan_->ops[index];
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    OpAttrs& attrs = op.kernel_spec.attrs;
    if (has_images) {
      const OpSchema& schema = *op.kernel_spec.schema;
      const size_t rank = TypeOf(op.inputs[images.inputs[0]])->dims.size();
      const auto& [of_two, of_three] = schema.channels_last();
      attrs.Set(schema.image_attr(), rank == 4 ? of_two : of_three);
    }
    if (images.axis.has_value()) attrs.Set("axis", *images.axis);
  }

  void KeepAsIs(int index) {
    std::vector<int> read = plan_->ops[index].inputs;
    const std::vector<int> written = plan_->ops[index].outputs;
    const OpSchema* const schema = plan_->ops[index].kernel_spec.schema;
    if (schema == nullptr || schema->Has(Trait::kKeepsOutputs)) {
      read.insert(read.end(), written.begin(), written.end());
    }
    for (int v : read) ReadFirst(index, v);
    for (int v : written) {
      if (v == Plan::kNoVariable || IsTwin(v)) continue;
      images_[v].is_first = true;
      images_[v].is_last = false;
    }
  }

  bool IsTwin(int v) const { return v >= static_cast<int>(images_.size()); }

  // For op `index`: the variable with the value of v, channels last.
  int ReadLast(int index, int v) {
    const int last = VariableForLast(v);
    if (!images_[v].is_last) {
      Transpose(index, v, last, /*to_last=*/true);
      images_[v].is_last = true;
    }
    return last;
  }

  // Gives v its value, channels first.
  void ReadFirst(int index, int v) {
    if (v == Plan::kNoVariable || IsTwin(v) || images_[v].is_first) return;
    Transpose(index, images_[v].last, v, /*to_last=*/false);
    images_[v].is_first = true;
  }

  int VariableForLast(int v) {
    int& last = images_[v].last;
    if (last != Plan::kNoVariable) return last;
    last = static_cast<int>(plan_->variables.size());
    Plan::Variable variable = plan_->variables[v];
    // The executor finds persistable variables by their names.
    absl::StrAppend(&variable.name, " (channels last)");
    variable.persistable = false;
    variable.is_feed = false;
    variable.is_written = true;
    variable.first_reader = -1;
    variable.declared->dims = WithChannelsLast(variable.declared->dims);
    plan_->variables.push_back(std::move(variable));
    return last;
  }

  void Transpose(int index, int from, int to, bool to_last) {
    Plan::PlanOp op;
    op.name = absl::StrCat(plan_->ops[index].name, ": transposing an image");
    op.type = kTranspose;
    op.inputs = {from};
    op.outputs = {to};
    op.work = Plan::KernelWork{kernels_.Find(kTranspose)};
    const OpSchema& schema = *FindOpSchema(kTranspose);
    std::vector<int32_t> axes(plan_->variables[to].declared->dims.size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int32_t>(i);
    if (to_last) {
      std::rotate(axes.begin() + 1, axes.begin() + 2, axes.end());
    } else {
      std::rotate(axes.begin() + 1, axes.end() - 1, axes.end());
    }
    KernelSpec& spec = op.kernel_spec;
    spec.schema = &schema;
    spec.attrs = OpAttrs::Make(schema, {{"axis", axes}});
    spec.inputs["X"] = {0, 1};
    spec.outputs["Out"] = {0, 1};
    plan_->instructions.push_back(
        {Plan::Instruction::Kind::kRunOp, /*stream=*/0, static_cast<int>(plan_->ops.size())});
    plan_->ops.push_back(std::move(op));
  }

  const KernelTable& kernels_;
  Plan* const plan_;
  const PlanAccesses accesses_;  // of the plan as it was
  std::vector<Image> images_;    // by variable of the plan as it was
  // By the same: always written with channels first.
  std::vector<bool> is_fixed_;
  // By the same: in blocks, on other streams, or through memory that variables share. Such uses may
  // change a value at any time, so that no copy of it is kept.
  std::vector<bool> is_used_elsewhere_;
};

}  // namespace

void KeepChannelsLast(const KernelTable& kernels, const std::vector<int>& accessed, Plan* plan) {
  if (kernels.Find(kTranspose) == nullptr) return;
  Rewriter(kernels, accessed, plan).Run();
}

}  // namespace weft
