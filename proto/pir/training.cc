#include "proto/pir/training.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/pir/attributes.h"
#include "proto/pir/op_table.h"

namespace weft::pir {
namespace {

constexpr absl::string_view kSplit = "0.split", kCombine = "0.combine";

class Analysis {
 public:
  explicit Analysis(const Document& document) : document_(document) {
    const size_t values = document.values().size();
    training_.roles.assign(document.ops().size(), kRoleForward);
    training_.primal.assign(values, kNoValue);
    training_.is_summand.assign(values, false);
    goes_on_.assign(values, false);
    depends_on_loss_.assign(values, false);
    depends_on_gradient_.assign(values, false);
  }

  absl::StatusOr<Training> Run() {
    WEFT_RETURN_IF_ERROR(FindLosses());
    if (first_seed_ == kNoOp) return std::move(training_);  // a startup program
    for (uint32_t op = first_seed_; op < document_.ops().size(); ++op) Follow(op);
    FindUpdates();
    WEFT_RETURN_IF_ERROR(FindPairs());
    FollowGradients();
    AssignTheRest();
    AssignBlocks();
    return std::move(training_);
  }

 private:
  const DocumentOp& op(uint32_t i) const { return document_.op(i); }
  absl::Span<const Operand> operands(uint32_t i) const { return document_.operands(op(i)); }
  // The op that makes a value; kNoOp for arguments of blocks and for kNoValue.
  uint32_t MakerOf(ValueIndex value) const {
    return value == kNoValue ? kNoOp : document_.value(value).op;
  }
  absl::string_view MakerName(ValueIndex value) const {
    const uint32_t maker = MakerOf(value);
    return maker == kNoOp ? "" : op(maker).name;
  }
  // Whether the op, or one in its blocks, reads such a value.
  bool ReadsAny(uint32_t i, const std::vector<bool>& values) const {
    const uint32_t end = op(i).num_blocks == 0 ? i + 1 : document_.EndOf(i);
    for (uint32_t k = i; k < end; ++k) {
      for (const Operand& operand : operands(k)) {
        if (operand.value != kNoValue && values[operand.value]) return true;
      }
    }
    return false;
  }
  ValueIndex OperandOf(uint32_t i, size_t k) const {
    const auto all = operands(i);
    return k < all.size() ? all[k].value : kNoValue;
  }

  // --- Losses ------------------------------------------------------------------------------------

  // A candidate is one if the gradient op of what it resembles reads it, at once or scaled.
  absl::Status FindLosses() {
    absl::flat_hash_map<ValueIndex, uint32_t> candidates;  // value: its 1.full_like
    for (uint32_t i = 0; i < document_.ops().size(); ++i) {
      if (op(i).name == "1.full_like" && op(i).num_operands == 2 && op(i).num_results == 1) {
        WEFT_ASSIGN_OR_RETURN(const bool is_one, FillsOneElementWithOne(i));
        if (is_one) candidates.emplace(op(i).first_result, i);
        continue;
      }
      if (candidates.empty()) continue;
      for (const Operand& operand : operands(i)) {
        const auto found = candidates.find(operand.value);
        if (found == candidates.end()) continue;
        const uint32_t seed = found->second;
        const ValueIndex loss = OperandOf(seed, 0);
        const absl::string_view made_by = BaseName(MakerName(loss)), reader = BaseName(op(i).name);
        if (absl::StripSuffix(reader, "_grad") == made_by && IsGradientOp(op(i).name)) {
          AddLoss(seed);
        } else if (IsLinear(reader) && op(i).num_results == 1) {
          if (reader == made_by) AddLoss(seed);
          candidates.emplace(op(i).first_result, seed);
        }
        break;
      }
    }
    return absl::OkStatus();
  }

  void AddLoss(uint32_t seed) {
    const ValueIndex loss = OperandOf(seed, 0);
    depends_on_loss_[op(seed).first_result] = true;
    training_.primal[op(seed).first_result] = loss;
    training_.roles[seed] = kRoleBackward | kRoleLoss;
    training_.roles[MakerOf(loss)] |= kRoleLoss;
    first_seed_ = std::min(first_seed_, seed);
  }

  // Ops of one operand whose gradient is an op of the same name, or which scale a gradient.
  static bool IsLinear(absl::string_view name) {
    return name == "scale" || name == "cast" || name == "assign" || name == "all_reduce";
  }

  absl::StatusOr<bool> FillsOneElementWithOne(uint32_t i) const {
    if (MakerOf(OperandOf(i, 0)) == kNoOp || MakerName(OperandOf(i, 1)) != "1.full") return false;
    const absl::StatusOr<double> value = ConstantOf(document_, OperandOf(i, 1));
    const absl::StatusOr<ValueType> type = ReadType(document_.value(op(i).first_result).type);
    for (const absl::Status& status : {value.status(), type.status()}) {
      if (!status.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(document_.DebugName(i), ": ", status.message()));
      }
    }
    return *value == 1.0 && type->kind == ValueType::Kind::kTensor &&
           std::all_of(type->dims.begin(), type->dims.end(), [](int64_t d) { return d == 1; });
  }

  // --- Backward ----------------------------------------------------------------------------------

  void Follow(uint32_t i) {
    if (!ReadsAny(i, depends_on_loss_)) return;
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      depends_on_loss_[op(i).first_result + r] = true;
    }
    if (IsGradientOp(op(i).name)) return FollowGradientOp(i);
    if (op(i).name == kSplit) return FollowSplit(i);
    if (BaseName(op(i).name) == "add_n" || BaseName(op(i).name) == "add") return FollowSum(i);
    FollowLinear(i);
  }

  // The op whose gradients a gradient op computes: it made what a gradient that comes in is of.
  uint32_t ForwardOf(uint32_t i) const {
    const absl::string_view forward = absl::StripSuffix(BaseName(op(i).name), "_grad");
    for (const Operand& operand : operands(i)) {
      if (operand.value == kNoValue || !depends_on_loss_[operand.value]) continue;
      const uint32_t maker = MakerOf(training_.primal[operand.value]);
      if (maker != kNoOp && BaseName(op(maker).name) == forward) return maker;
    }
    return kNoOp;
  }

  // Result "x_grad" is the gradient of operand "x", of the op itself or of its forward op.
  void FollowGradientOp(uint32_t i) {
    const OpRule* const rule = FindRule(op(i).name);
    if (rule == nullptr) return;
    const uint32_t forward = ForwardOf(i);
    const OpRule* const forward_rule = forward == kNoOp ? nullptr : FindRule(op(forward).name);
    for (uint32_t r = 0; r < std::min<size_t>(op(i).num_results, rule->results.size()); ++r) {
      const absl::string_view name = absl::StripSuffix(rule->results[r].name, "_grad");
      ValueIndex& primal = training_.primal[op(i).first_result + r];
      const int own = rule->FindOperand(name);
      if (own >= 0) {
        primal = OperandOf(i, own);
      } else if (forward_rule != nullptr && forward_rule->FindOperand(name) >= 0) {
        primal = OperandOf(forward, forward_rule->FindOperand(name));
      }
    }
  }

  // A list of gradients is that of the list that 0.combine made.
  void FollowSplit(uint32_t i) {
    const ValueIndex list = OperandOf(i, 0);
    const ValueIndex primal = list == kNoValue ? kNoValue : training_.primal[list];
    if (primal == kNoValue || MakerName(primal) != kCombine) return;
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      training_.primal[op(i).first_result + r] = OperandOf(MakerOf(primal), r);
    }
  }

  // A sum of gradients of one value is one, too.
  void FollowSum(uint32_t i) {
    std::vector<ValueIndex> summands;
    const ValueIndex first = OperandOf(i, 0);
    if (first != kNoValue && MakerName(first) == kCombine) {
      for (const Operand& operand : operands(MakerOf(first))) summands.push_back(operand.value);
    } else {
      for (const Operand& operand : operands(i)) summands.push_back(operand.value);
    }
    ValueIndex primal = kNoValue;
    for (const ValueIndex summand : summands) {
      const ValueIndex its = summand == kNoValue ? kNoValue : training_.primal[summand];
      if (its == kNoValue || (primal != kNoValue && its != primal)) return;
      primal = its;
    }
    if (primal == kNoValue || op(i).num_results == 0) return;
    for (const ValueIndex summand : summands) training_.is_summand[summand] = true;
    training_.primal[op(i).first_result] = primal;
  }

  // The gradient of scale, cast, assign is an op of the same name. That of add_n is a scale by 1
  // for each summand, in order. Other such ops scale the gradient, or sum it over ranks.
  void FollowLinear(uint32_t i) {
    const ValueIndex grad = OperandOf(i, 0);
    if (grad == kNoValue || op(i).num_results == 0) return;
    const absl::string_view name = BaseName(op(i).name);
    if (!IsLinear(name) || training_.primal[grad] == kNoValue) return;
    const uint32_t forward = MakerOf(training_.primal[grad]);
    const absl::string_view forward_name = forward == kNoOp ? "" : BaseName(op(forward).name);
    ValueIndex& primal = training_.primal[op(i).first_result];
    if (forward_name == name) {
      primal = OperandOf(forward, 0);
    } else if (name == "scale" && forward_name == "add_n") {
      const ValueIndex list = OperandOf(forward, 0);
      if (list == kNoValue || MakerName(list) != kCombine) return;
      primal = OperandOf(MakerOf(list), next_summand_[grad]++);
    } else {
      primal = training_.primal[grad];
      goes_on_[grad] = true;
    }
  }

  // --- Updates -----------------------------------------------------------------------------------

  void FindUpdates() {
    for (uint32_t i = 0; i < document_.ops().size(); ++i) {
      if (!IsInPlace(op(i).name) || MakerName(OperandOf(i, 0)) != "p") continue;
      const OpRule* const rule = FindRule(op(i).name);
      const int grad = rule == nullptr ? -1 : rule->FindOperand("grad");
      if (grad < 0) continue;
      training_.updates.push_back({i, OperandOf(i, 0), OperandOf(i, grad)});
    }
  }

  absl::Status FindPairs() {
    absl::flat_hash_map<ValueIndex, std::vector<ValueIndex>> complete;  // by parameter
    for (ValueIndex v = 0; v < document_.values().size(); ++v) {
      const ValueIndex primal = training_.primal[v];
      if (primal == kNoValue || training_.is_summand[v] || goes_on_[v] || MakerName(primal) != "p")
        continue;
      complete[primal].push_back(v);
    }
    absl::flat_hash_map<ValueIndex, bool> paired;  // gradients
    for (const Training::Pair& update : training_.updates) {
      if (update.grad == kNoValue || !depends_on_loss_[update.grad]) {
        return absl::InvalidArgumentError(absl::StrCat(
            document_.DebugName(update.op), ": expected a gradient that depends on a loss, found ",
            update.grad == kNoValue ? "none" : absl::StrCat("%", document_.value(update.grad).id)));
      }
      auto& grads = complete[update.param];
      if (grads.empty()) {
        const ValueIndex grad = BeforeClipping(update.grad);
        training_.primal[grad] = update.param;
        grads.push_back(grad);
      }
      for (const ValueIndex grad : grads) {
        if (!paired.emplace(grad, true).second) continue;
        uint32_t maker = MakerOf(grad);
        if (op(maker).name == kSplit) maker = MakerOf(OperandOf(maker, 0));
        training_.pairs.push_back({maker, update.param, grad});
      }
    }
    return absl::OkStatus();
  }

  // A gradient that an op outside the table made, before what scales it.
  ValueIndex BeforeClipping(ValueIndex grad) const {
    constexpr int kMaxClippings = 8;
    for (int i = 0; i < kMaxClippings; ++i) {
      const absl::string_view name = BaseName(MakerName(grad));
      const bool is_clipping = name == "multiply" || name == "clip" || name == "clip_by_norm";
      const ValueIndex before = is_clipping ? OperandOf(MakerOf(grad), 0) : kNoValue;
      if (before == kNoValue || !depends_on_loss_[before]) return grad;
      grad = before;
    }
    return grad;
  }

  // --- Roles -------------------------------------------------------------------------------------

  void FollowGradients() {
    for (const Training::Pair& pair : training_.pairs) depends_on_gradient_[pair.grad] = true;
    std::vector<bool> updates(document_.ops().size(), false);
    for (const Training::Pair& update : training_.updates) updates[update.op] = true;
    for (uint32_t i = first_seed_; i < document_.ops().size(); ++i) {
      if ((training_.roles[i] & kRoleLoss) != 0) continue;
      const bool is_update = updates[i] || ReadsAny(i, depends_on_gradient_);
      const bool is_backward = ReadsAny(i, depends_on_loss_);
      if (is_update) {
        for (uint32_t r = 0; r < op(i).num_results; ++r) {
          depends_on_gradient_[op(i).first_result + r] = true;
        }
      }
      if (is_update || is_backward) {
        training_.roles[i] = is_update ? kRoleOptimize : kRoleBackward;
      }
    }
  }

  // Ops that depend on no loss and that only updates read belong to these: constants, decay, and
  // before the loss the learning rate.
  void AssignTheRest() {
    std::vector<char> read_by_update(document_.values().size(), 0),
        read_by_other(document_.values().size(), 0);
    for (uint32_t i = document_.ops().size(); i-- > 0;) {
      bool only_updates = false, others = false;
      for (uint32_t r = 0; r < op(i).num_results; ++r) {
        only_updates = only_updates || read_by_update[op(i).first_result + r] != 0;
        others = others || read_by_other[op(i).first_result + r] != 0;
      }
      int& role = training_.roles[i];
      if (role == kRoleForward && op(i).num_results > 0) {
        const bool is_behind = i > first_seed_;
        if (only_updates && !others) {
          role = is_behind ? kRoleOptimize : kRoleLrSched;
        } else if (is_behind && (only_updates || others)) {
          role = kRoleBackward;
        }
      }
      const bool updates = (role & (kRoleOptimize | kRoleLrSched)) != 0;
      for (const Operand& operand : operands(i)) {
        if (operand.value != kNoValue)
          (updates ? read_by_update : read_by_other)[operand.value] = 1;
      }
    }
  }

  // Ops in blocks have the role of the op around them.
  void AssignBlocks() {
    for (uint32_t i = 0; i < document_.ops().size(); ++i) {
      if (op(i).num_blocks == 0) continue;
      const int role = training_.roles[i] & ~kRoleLoss;
      const auto begin = training_.roles.begin();
      std::fill(begin + i + 1, begin + document_.EndOf(i), role);
    }
  }

  const Document& document_;
  Training training_;
  uint32_t first_seed_ = kNoOp;
  absl::flat_hash_map<ValueIndex, size_t> next_summand_;  // by gradient of an add_n
  // By value: a gradient that an op scales or sums over ranks, whose result takes its place.
  std::vector<bool> goes_on_;
  std::vector<bool> depends_on_loss_;      // by value
  std::vector<bool> depends_on_gradient_;  // by value: a complete one
};

}  // namespace

absl::StatusOr<Training> FindTraining(const Document& document) { return Analysis(document).Run(); }

absl::StatusOr<double> ConstantOf(const Document& document, ValueIndex value) {
  const uint32_t maker = document.value(value).op;
  if (maker == kNoOp || document.op(maker).name != "1.full") {
    return absl::InvalidArgumentError(
        absl::StrCat("%", document.value(value).id, ": expected a constant (1.full), found ",
                     maker == kNoOp ? "an argument of a block" : document.DebugName(maker)));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                        ReadAttributes(document.op(maker).attrs));
  const Attribute* const attribute = FindAttribute("value", attributes);
  if (attribute == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(document.DebugName(maker), ": expected an attribute value, found none"));
  }
  return DoubleOf(*attribute);
}

}  // namespace weft::pir
