#include "executor/rewrites/fuse_attention.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "executor/plan/instructions.h"
#include "executor/rewrites/plan_uses.h"
#include "ops/make_kernel.h"
#include "ops/schema/attention_ops.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_attrs.h"

namespace weft {
namespace {

constexpr int kNone = -1;

// Ops of the plan; kNone: there is no such op.
struct Forward {
  int product = kNone, scale = kNone, add = kNone, softmax = kNone, dropout = kNone, mix = kNone;
};
struct Backward {
  int mix = kNone, dropout = kNone, softmax = kNone, add = kNone, scale = kNone, product = kNone;
};

// How an op multiplies X and Y.
struct ProductAttrs {
  bool transposes_x, transposes_y;
  double alpha;

  explicit ProductAttrs(const OpAttrs& attrs)
      : transposes_x(attrs.Bool(attrs.Has("trans_x") ? "trans_x" : "transpose_X")),
        transposes_y(attrs.Bool(attrs.Has("trans_x") ? "trans_y" : "transpose_Y")),
        alpha(attrs.Has("alpha") ? attrs.Float("alpha") : 1) {}

  friend bool operator==(const ProductAttrs& a, const ProductAttrs& b) {
    return a.transposes_x == b.transposes_x && a.transposes_y == b.transposes_y &&
           a.alpha == b.alpha;
  }
};

class AttentionFuser {
 public:
  AttentionFuser(const KernelTable& kernels, const std::vector<int>& accessed, Plan* plan)
      : kernels_(kernels),
        plan_(plan),
        uses_(accessed, *plan),
        is_removed_(plan->ops.size(), false) {}

  void Run() {
    for (size_t op = 0; op < plan_->ops.size(); ++op) {
      if (Is(static_cast<int>(op), AttentionPart::kSoftmax)) Fuse(static_cast<int>(op));
    }
    RemoveOps(is_removed_, &plan_->instructions, &plan_->branches);
  }

 private:
  const Plan::PlanOp& Op(int op) const { return plan_->ops[op]; }
  const OpAttrs& AttrsOf(int op) const { return Op(op).kernel_spec.attrs; }
  int In(int op, absl::string_view slot) const { return InputOf(Op(op), slot); }
  int Out(int op, absl::string_view slot) const { return OutputOf(Op(op), slot); }
  const absl::optional<TensorType>& TypeOf(int v) const { return plan_->variables[v].declared; }

  bool Is(int op, AttentionPart part) const {
    return op >= 0 && uses_.position[op] >= 0 && uses_.IsPlain(*plan_, uses_.position[op]) &&
           AttentionPartOf(Op(op).type) == part && !Op(op).kernel_spec.paddle_cpu_quirks &&
           Op(op).device == DeviceKind::kAccelerator;
  }

  // The op that writes a variable.
  int Writer(int v) const { return v < 0 || uses_.writes[v] != 1 ? kNone : uses_.writer[v]; }

  // An op that reads a variable in this slot.
  int Reader(int v, AttentionPart part, absl::string_view slot) const {
    if (v < 0) return kNone;
    for (const PlanUses::Reader& reader : uses_.readers[v]) {
      if (Is(reader.op, part) && In(reader.op, slot) == v) return reader.op;
    }
    return kNone;
  }

  void Fuse(int softmax) {
    Forward forward;
    forward.softmax = softmax;
    if (!FindForward(&forward) || !HasAttributes(forward)) return;
    Backward backward;
    const bool has_gradient = Reader(Out(softmax, "Out"), AttentionPart::kSoftmaxGrad, "Out") >= 0;
    if (has_gradient && !FindBackward(forward, &backward)) return;
    if (!HasTypes(forward) || !MayLoseValues(forward, backward)) return;
    if (!AreInputsThere(forward, backward) || !DrawsInOrder(forward)) return;

    Plan::PlanOp fused = Fused(forward), fused_grad;
    if (!MakeKernel(*fused.factory(), fused.kernel_spec).ok()) return;
    if (has_gradient) {
      fused_grad = FusedGrad(forward, backward);
      if (!MakeKernel(*fused_grad.factory(), fused_grad.kernel_spec).ok()) return;
      Replace(Ops(backward), backward.mix, std::move(fused_grad));
    }
    Replace(Ops(forward), forward.mix, std::move(fused));
  }

  bool FindForward(Forward* found) const {
    int op = Writer(In(found->softmax, "X"));
    if (Is(op, AttentionPart::kAdd)) {
      found->add = op;
      op = Writer(In(op, "X"));
    }
    if (Is(op, AttentionPart::kScale)) {
      found->scale = op;
      op = Writer(In(op, "X"));
    }
    if (!Is(op, AttentionPart::kProduct)) return false;
    found->product = op;
    int weights = Out(found->softmax, "Out");
    found->dropout = Reader(weights, AttentionPart::kDropout, "X");
    if (found->dropout >= 0) weights = Out(found->dropout, "Out");
    found->mix = Reader(weights, AttentionPart::kProduct, "X");
    return found->mix >= 0;
  }

  bool FindBackward(const Forward& forward, Backward* found) const {
    found->softmax = Reader(Out(forward.softmax, "Out"), AttentionPart::kSoftmaxGrad, "Out");
    int gradient = In(found->softmax, "Out@GRAD");
    if (forward.dropout >= 0) {
      found->dropout = Writer(gradient);
      if (!Is(found->dropout, AttentionPart::kDropoutGrad) ||
          In(found->dropout, "Mask") != Out(forward.dropout, "Mask")) {
        return false;
      }
      gradient = In(found->dropout, "Out@GRAD");
    }
    found->mix = Writer(gradient);
    if (!IsGradientOf(found->mix, forward.mix) || Out(found->mix, "X@GRAD") != gradient) {
      return false;
    }
    gradient = Out(found->softmax, "X@GRAD");
    if (forward.add >= 0) {
      found->add = Reader(gradient, AttentionPart::kAddGrad, "Out@GRAD");
      if (found->add < 0 || Out(found->add, "Y@GRAD") >= 0) return false;
      gradient = Out(found->add, "X@GRAD");
    }
    if (forward.scale >= 0) {
      found->scale = Reader(gradient, AttentionPart::kScale, "X");
      if (found->scale < 0 || FactorOf(found->scale) != FactorOf(forward.scale)) return false;
      gradient = Out(found->scale, "Out");
    }
    found->product = Reader(gradient, AttentionPart::kProductGrad, "Out@GRAD");
    return IsGradientOf(found->product, forward.product);
  }

  bool IsGradientOf(int grad, int product) const {
    return Is(grad, AttentionPart::kProductGrad) && In(grad, "X") == In(product, "X") &&
           In(grad, "Y") == In(product, "Y") &&
           ProductAttrs(AttrsOf(grad)) == ProductAttrs(AttrsOf(product));
  }

  // Of a scale without a bias; none: it has one, or finds its factor in a tensor.
  absl::optional<double> FactorOf(int scale) const {
    if (AttrsOf(scale).Float("bias") != 0 || In(scale, "ScaleTensor") >= 0 ||
        In(scale, "BiasTensor") >= 0) {
      return absl::nullopt;
    }
    return AttrsOf(scale).Float("scale");
  }

  bool HasAttributes(const Forward& ops) const {
    const ProductAttrs product(AttrsOf(ops.product)), mix(AttrsOf(ops.mix));
    if (product.transposes_x || !product.transposes_y) return false;
    if (mix.transposes_x || mix.transposes_y || mix.alpha != 1) return false;
    if (ops.scale >= 0 && !FactorOf(ops.scale).has_value()) return false;
    return ops.dropout < 0 ||
           (In(ops.dropout, "Seed") < 0 && (Out(ops.dropout, "Mask") >= 0 || !Draws(ops.dropout)));
  }

  bool Draws(int dropout) const { return dropout >= 0 && !AttrsOf(dropout).Bool("is_test"); }

  bool IsFloat(int v) const {
    const absl::optional<TensorType>& type = TypeOf(v);
    return type.has_value() && type->kind == TensorType::Kind::kDense &&
           type->dtype == DType::kFloat32;
  }

  // Batches of matrices of the same shape, and a mask that is broadcast to the scores.
  bool HasTypes(const Forward& ops) const {
    const int q = In(ops.product, "X"), k = In(ops.product, "Y"), v = In(ops.mix, "Y");
    const int scores = Out(ops.product, "Out");
    for (int matrices : {q, k, v, scores, Out(ops.mix, "Out")}) {
      if (matrices < 0 || !IsFloat(matrices)) return false;
    }
    const Dims& dims = TypeOf(scores)->dims;
    const size_t rank = dims.size();
    if (rank < 3) return false;
    for (int matrices : {q, k, v}) {
      const Dims& its = TypeOf(matrices)->dims;
      if (its.size() != rank || !std::equal(dims.begin(), dims.end() - 2, its.begin()))
        return false;
    }
    const int64_t axis = AttrsOf(ops.softmax).Int("axis");
    if (axis != -1 && axis != static_cast<int64_t>(rank) - 1) return false;
    if (ops.add < 0) return true;
    const int mask = In(ops.add, "Y");
    if (!IsFloat(mask) || TypeOf(Out(ops.add, "Out")) != TypeOf(scores)) return false;
    const Dims& its = TypeOf(mask)->dims;
    const int64_t add_axis = AttrsOf(ops.add).Int("axis");
    const auto first = static_cast<int64_t>(rank) - static_cast<int64_t>(its.size());
    if (first < 0 || its.empty() || (add_axis != -1 && add_axis != first)) return false;
    return std::equal(its.begin(), its.end(), dims.begin() + first,
                      [](int64_t m, int64_t d) { return m == 1 || m == d; });
  }

  template <typename Part>
  static std::vector<int> Ops(const Part& part) {
    std::vector<int> ops = {part.product, part.scale,   part.add,
                            part.softmax, part.dropout, part.mix};
    ops.erase(std::remove(ops.begin(), ops.end(), kNone), ops.end());
    return ops;
  }

  // Whether nothing else reads what is no longer written.
  bool MayLoseValues(const Forward& forward, const Backward& backward) const {
    std::vector<int> ops = Ops(forward);
    const std::vector<int> of_gradient = Ops(backward);
    ops.insert(ops.end(), of_gradient.begin(), of_gradient.end());
    std::vector<int> stay = {Out(forward.mix, "Out")};
    if (forward.dropout >= 0) stay.push_back(Out(forward.dropout, "Mask"));
    if (backward.mix >= 0) {
      stay.insert(stay.end(), {Out(backward.mix, "Y@GRAD"), Out(backward.product, "X@GRAD"),
                               Out(backward.product, "Y@GRAD")});
    }
    for (int op : ops) {
      for (int v : Op(op).outputs) {
        if (v < 0 || absl::c_linear_search(stay, v)) continue;
        if (uses_.is_kept[v] || uses_.writes[v] != 1 || !IsFloat(v)) return false;
        for (const PlanUses::Reader& reader : uses_.readers[v]) {
          if (!absl::c_linear_search(ops, reader.op)) return false;
        }
      }
    }
    return true;
  }

  // Whether the inputs have their values where the new ops run, which is where the last op and the
  // first one of the gradient did, and nothing else uses the gradients before.
  bool AreInputsThere(const Forward& forward, const Backward& backward) const {
    std::vector<int> inputs = {In(forward.product, "X"), In(forward.product, "Y"),
                               In(forward.mix, "Y")};
    if (forward.add >= 0) inputs.push_back(In(forward.add, "Y"));
    for (int v : inputs) {
      if (uses_.accesses.is_loose[v] || uses_.writes[v] > 1) return false;
      if (uses_.writes[v] == 0) continue;
      const int position = uses_.position[uses_.writer[v]];
      const bool is_v = v == inputs[2];
      if (!uses_.IsPlain(*plan_, position) ||
          position > uses_.position[is_v ? forward.mix : forward.product]) {
        return false;
      }
    }
    const auto is_written_once = [&](int v) {
      return v < 0 ||
             (uses_.writes[v] == 1 && !uses_.accesses.is_loose[v] && !uses_.accesses.is_entry[v]);
    };
    if (forward.dropout >= 0 && !is_written_once(Out(forward.dropout, "Mask"))) return false;
    return backward.mix < 0 || (is_written_once(Out(backward.mix, "Y@GRAD")) &&
                                is_written_once(Out(backward.product, "X@GRAD")) &&
                                is_written_once(Out(backward.product, "Y@GRAD")));
  }

  // Whether dropout may draw where the last op runs: no op between draws, too, or runs a block.
  bool DrawsInOrder(const Forward& ops) const {
    if (!Draws(ops.dropout)) return true;
    for (int i = uses_.position[ops.dropout] + 1; i < uses_.position[ops.mix]; ++i) {
      const Plan::Instruction& instruction = plan_->instructions[i];
      if (instruction.kind == Plan::Instruction::Kind::kBranch) return false;
      if (instruction.kind != Plan::Instruction::Kind::kRunOp) continue;
      const OpSchema* const schema = Op(instruction.index).kernel_spec.schema;
      if (schema != nullptr && schema->Has(Trait::kSideEffect)) return false;
    }
    return true;
  }

  // An op with variables yet to come.
  Plan::PlanOp NewOp(const char* type, const OpSchema& schema, const Forward& ops,
                     const std::string& first, const std::string& last) const {
    Plan::PlanOp op;
    op.name = absl::StrCat(first, " to ", last);
    op.type = type;
    op.work = Plan::KernelWork{kernels_.Find(type)};
    op.kernel_spec.schema = &schema;
    OpAttrs attrs = OpAttrs::Make(schema, {{"is_test", true}});
    if (ops.dropout >= 0) {
      for (const char* name : {"fix_seed", "is_test"}) {
        attrs.Set(name, AttrsOf(ops.dropout).Bool(name));
      }
      attrs.Set("seed", static_cast<int32_t>(AttrsOf(ops.dropout).Int("seed")));
      attrs.Set("dropout_prob", static_cast<float>(AttrsOf(ops.dropout).Float("dropout_prob")));
      constexpr char kImplementation[] = "dropout_implementation";
      attrs.Set(kImplementation, AttrsOf(ops.dropout).String(kImplementation));
    }
    double alpha = ProductAttrs(AttrsOf(ops.product)).alpha;
    if (ops.scale >= 0) alpha *= *FactorOf(ops.scale);
    attrs.Set("alpha", static_cast<float>(alpha));
    op.kernel_spec.attrs = std::move(attrs);
    for (const auto& [slot, v] :
         {std::make_pair("Q", In(ops.product, "X")), std::make_pair("K", In(ops.product, "Y")),
          std::make_pair("V", In(ops.mix, "Y"))}) {
      AddTo(slot, v, &op.kernel_spec.inputs, &op.inputs);
    }
    if (ops.add >= 0) AddTo("Mask", In(ops.add, "Y"), &op.kernel_spec.inputs, &op.inputs);
    return op;
  }

  static void AddTo(const char* slot, int v,
                    absl::flat_hash_map<std::string, KernelSpec::Slot>* slots,
                    std::vector<int>* variables) {
    if (v < 0) return;
    (*slots)[slot] = {static_cast<int>(variables->size()), 1};
    variables->push_back(v);
  }

  Plan::PlanOp Fused(const Forward& ops) const {
    Plan::PlanOp op =
        NewOp(kAttention, AttentionSchema(), ops, Op(ops.product).name, Op(ops.mix).name);
    AddTo("Out", Out(ops.mix, "Out"), &op.kernel_spec.outputs, &op.outputs);
    const int mask = ops.dropout < 0 ? Plan::kNoVariable : Out(ops.dropout, "Mask");
    const bool is_read = mask >= 0 && (uses_.is_kept[mask] || !uses_.readers[mask].empty());
    if (Draws(ops.dropout) || is_read) {
      AddTo("Kept", mask, &op.kernel_spec.outputs, &op.outputs);
    }
    return op;
  }

  Plan::PlanOp FusedGrad(const Forward& forward, const Backward& ops) const {
    Plan::PlanOp op = NewOp(kAttentionGrad, AttentionGradSchema(), forward, Op(ops.mix).name,
                            Op(ops.product).name);
    KernelSpec& spec = op.kernel_spec;
    if (forward.dropout >= 0) {
      AddTo("Kept", Out(forward.dropout, "Mask"), &spec.inputs, &op.inputs);
    }
    AddTo("Out@GRAD", In(ops.mix, "Out@GRAD"), &spec.inputs, &op.inputs);
    AddTo("Q@GRAD", Out(ops.product, "X@GRAD"), &spec.outputs, &op.outputs);
    AddTo("K@GRAD", Out(ops.product, "Y@GRAD"), &spec.outputs, &op.outputs);
    AddTo("V@GRAD", Out(ops.mix, "Y@GRAD"), &spec.outputs, &op.outputs);
    return op;
  }

  // Runs `fused` in the place of op `at`, and none of the others.
  void Replace(const std::vector<int>& ops, int at, Plan::PlanOp fused) {
    for (int op : ops) {
      if (op == at) continue;
      is_removed_[op] = true;
      plan_->ops[op].work = Plan::NoWork();
    }
    plan_->ops[at] = std::move(fused);
  }

  const KernelTable& kernels_;
  Plan* const plan_;
  const PlanUses uses_;
  std::vector<bool> is_removed_;  // by op
};

}  // namespace

void FuseAttention(const KernelTable& kernels, const std::vector<int>& accessed, Plan* plan) {
  if (kernels.Find(kAttention) == nullptr || kernels.Find(kAttentionGrad) == nullptr) return;
  AttentionFuser(kernels, accessed, plan).Run();
}

}  // namespace weft
