#include "proto/formats/pir/training.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/formats/pir/dataflow.h"
#include "proto/formats/pir/gradient_buffers.h"
#include "proto/formats/pir/losses.h"
#include "proto/formats/pir/op_table.h"
#include "proto/formats/pir/roles.h"
#include "proto/op_role.h"

namespace weft::pir {
namespace {

class Analysis {
 public:
  explicit Analysis(const Document& document) : document_(document), buffers_(document) {
    const size_t values = document.values().size();
    training_.roles.assign(document.ops().size(), kRoleForward);
    training_.primal.assign(values, kNoValue);
    training_.is_summand.assign(values, false);
    goes_on_.assign(values, false);
    read_by_update_.assign(values, false);
    depends_on_loss_.assign(values, false);
    reader_.assign(values, kNoOp);
    std::vector<bool> is_read(values, false);
    for (uint32_t i = 0; i < document.ops().size(); ++i) {
      for (const Operand& operand : operands(i)) {
        if (operand.value == kNoValue) continue;
        reader_[operand.value] = is_read[operand.value] ? kNoOp : i;
        is_read[operand.value] = true;
      }
    }
  }

  absl::StatusOr<Training> Run() {
    WEFT_RETURN_IF_ERROR(FindLosses());
    if (first_seed_ == kNoOp) return std::move(training_);  // a startup program
    WEFT_RETURN_IF_ERROR(FindUpdates());
    for (uint32_t i = first_seed_; i < document_.ops().size(); ++i) {
      WEFT_RETURN_IF_ERROR(Annotate(document_.DebugName(i), Follow(i)));
    }
    WEFT_RETURN_IF_ERROR(FindPairs());
    AssignRoles(document_, first_seed_, depends_on_loss_, &training_);
    return std::move(training_);
  }

 private:
  DocumentOp op(uint32_t i) const { return document_.op(i); }
  absl::Span<const Operand> operands(uint32_t i) const { return document_.operands(op(i)); }
  uint32_t MakerOf(ValueIndex value) const { return pir::MakerOf(document_, value); }
  absl::string_view MakerName(ValueIndex value) const { return pir::MakerName(document_, value); }
  ValueIndex OperandOf(uint32_t i, size_t k) const { return pir::OperandOf(document_, i, k); }

  // --- Losses ------------------------------------------------------------------------------------

  absl::Status FindLosses() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<uint32_t> seeds, FindSeeds(document_));
    for (const uint32_t seed : seeds) {
      const ValueIndex loss = OperandOf(seed, 0);
      depends_on_loss_[op(seed).first_result] = true;
      training_.primal[op(seed).first_result] = loss;
      training_.roles[seed] = kRoleBackward | kRoleLoss;
      training_.roles[MakerOf(loss)] |= kRoleLoss;
    }
    if (!seeds.empty()) first_seed_ = seeds.front();
    return absl::OkStatus();
  }

  // --- Backward ----------------------------------------------------------------------------------

  absl::Status Follow(uint32_t i) {
    if (!ReadsAny(document_, i, depends_on_loss_)) return absl::OkStatus();
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      depends_on_loss_[op(i).first_result + r] = true;
    }
    buffers_.Follow(i);
    const absl::string_view name = BaseName(op(i).name);
    if (IsLinear(name)) return FollowLinear(i);
    if (IsGradientOp(op(i).name)) {
      FollowGradientOp(i);
    } else if (op(i).name == kSplitOp) {
      FollowSplit(i);
    } else if (name == "add_n" || name == "add") {
      FollowSum(i);
    } else if (name == "concat" || name == "stack") {
      FollowConcat(i);
    } else if (name == "flip") {
      FollowFlip(i);
    } else if (name == "reshape") {
      FollowReshape(i);
    }
    return absl::OkStatus();
  }

  // The op whose gradients a gradient op computes: it made what a gradient that comes in is of.
  uint32_t ForwardOf(uint32_t i) {
    const absl::string_view forward = absl::StripSuffix(BaseName(op(i).name), "_grad");
    for (const Operand& operand : operands(i)) {
      if (operand.value == kNoValue || !depends_on_loss_[operand.value]) continue;
      const uint32_t maker = MakerOf(PrimalOfOperand(operand.value));
      if (maker != kNoOp && BaseName(op(maker).name) == forward) return maker;
    }
    return kNoOp;
  }

  // That of a list of gradients, of parts of a list that 0.split takes apart, is that list.
  ValueIndex PrimalOfOperand(ValueIndex value) {
    if (MakerName(value) != kCombineOp) return training_.primal[value];
    const auto [known, is_new] = primal_of_list_.emplace(value, kNoValue);
    if (!is_new) return known->second;
    for (const Operand& part : operands(MakerOf(value))) {
      const ValueIndex primal = part.value == kNoValue ? kNoValue : training_.primal[part.value];
      if (MakerName(primal) != kSplitOp) continue;
      known->second = OperandOf(MakerOf(primal), 0);
      break;
    }
    return known->second;
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

  // On the way into a buffer, and out of it. What also has other readers, such as a norm and what
  // it clips, is the gradient.
  void FollowReshape(uint32_t i) {
    const ValueIndex grad = OperandOf(i, 0);
    if (grad == kNoValue || op(i).num_results == 0 || ReaderOf(grad) != i) return;
    const ValueIndex result = op(i).first_result;
    if (!GoesIntoBuffer(result) && buffers_.OriginOf(grad) == kNoValue) return;
    if (MakerName(training_.primal[grad]) == "p") GoOn(grad, result);
  }

  // The op that alone reads the value, once; kNoOp: none, or several.
  uint32_t ReaderOf(ValueIndex value) const { return reader_[value]; }

  // An element of a list that becomes one tensor.
  bool GoesIntoBuffer(ValueIndex value) const {
    const uint32_t list = ReaderOf(value);
    if (list == kNoOp || op(list).name != kCombineOp || op(list).num_results != 1) return false;
    const uint32_t concat = ReaderOf(op(list).first_result);
    return concat != kNoOp && BaseName(op(concat).name) == "concat";
  }

  // The gradient takes the place of another, unless it is a copy beside that of a parameter, of
  // which nothing is updated.
  void GoOn(ValueIndex grad, ValueIndex result) {
    if (MakerName(training_.primal[grad]) == "p" &&
        (read_by_update_[grad] || !needed_by_update_[result])) {
      return;
    }
    training_.primal[result] = training_.primal[grad];
    goes_on_[grad] = true;
  }

  // A list of gradients is that of the list that 0.combine made. What comes out of a buffer is what
  // went in.
  void FollowSplit(uint32_t i) {
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      const ValueIndex origin = buffers_.OriginOf(op(i).first_result + r);
      if (origin != kNoValue && MakerName(training_.primal[origin]) == "p") {
        GoOn(origin, op(i).first_result + r);
      }
    }
    const ValueIndex list = OperandOf(i, 0);
    const ValueIndex primal = list == kNoValue ? kNoValue : training_.primal[list];
    if (primal == kNoValue || MakerName(primal) != kCombineOp) return;
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      training_.primal[op(i).first_result + r] = OperandOf(MakerOf(primal), r);
    }
  }

  // The gradient of a flip is one.
  void FollowFlip(uint32_t i) {
    const ValueIndex grad = OperandOf(i, 0);
    const ValueIndex primal = grad == kNoValue ? kNoValue : training_.primal[grad];
    if (op(i).num_results == 0 || BaseName(MakerName(primal)) != "flip") return;
    training_.primal[op(i).first_result] = OperandOf(MakerOf(primal), 0);
  }

  // The gradient of a split is the concat of those of its parts, that of an unbind their stack,
  // also where ops outside the table made some of them.
  void FollowConcat(uint32_t i) {
    const ValueIndex list = OperandOf(i, 0);
    if (op(i).num_results == 0 || MakerName(list) != kCombineOp) return;
    const auto [known, is_new] = primal_of_concat_.emplace(list, kNoValue);
    const bool is_stack = BaseName(op(i).name) == "stack";
    if (is_new) known->second = PrimalOfConcat(operands(MakerOf(list)), is_stack);
    if (known->second != kNoValue) training_.primal[op(i).first_result] = known->second;
  }

  ValueIndex PrimalOfConcat(absl::Span<const Operand> parts, bool is_stack) const {
    uint32_t split = kNoOp;  // takes apart the list that the forward op made
    for (size_t k = 0; k < parts.size(); ++k) {
      if (parts[k].value == kNoValue) return kNoValue;
      const ValueIndex primal = training_.primal[parts[k].value];
      if (primal == kNoValue) continue;
      const bool is_part =
          MakerName(primal) == kSplitOp && op(MakerOf(primal)).first_result + k == primal;
      if (!is_part || (split != kNoOp && split != MakerOf(primal))) return kNoValue;
      split = MakerOf(primal);
    }
    if (split == kNoOp || op(split).num_results != parts.size()) return kNoValue;
    const ValueIndex whole = OperandOf(split, 0);
    const absl::string_view forward = BaseName(MakerName(whole));
    const bool is_split = is_stack ? forward == "unbind" || forward == "unstack"
                                   : forward == "split" || forward == "split_with_num";
    return is_split ? OperandOf(MakerOf(whole), 0) : kNoValue;
  }

  // A sum of gradients of one value is one, too. That of some may be unknown, where ops outside the
  // table made them. What does not depend on a loss (decay) is no gradient, unless it is zeros, as
  // of a parameter that an op copies to another.
  void FollowSum(uint32_t i) {
    const ValueIndex first = OperandOf(i, 0);
    if (op(i).num_results == 0) return;
    ValueIndex primal;
    if (MakerName(first) == kCombineOp) {
      const auto [known, is_new] = primal_of_sum_.emplace(first, kNoValue);
      if (is_new) known->second = JoinSummands(operands(MakerOf(first)));
      primal = known->second;
    } else {
      primal = JoinSummands(operands(i));
    }
    if (primal != kNoValue) training_.primal[op(i).first_result] = primal;
  }

  // What they are gradients of, if it is one value. They are summands then.
  ValueIndex JoinSummands(absl::Span<const Operand> summands) {
    ValueIndex primal = kNoValue;
    for (const Operand& summand : summands) {
      if (summand.value == kNoValue) return kNoValue;
      if (!depends_on_loss_[summand.value]) {
        if (!IsZeros(document_, summand.value)) return kNoValue;
        continue;
      }
      const ValueIndex its = training_.primal[summand.value];
      if (its == kNoValue) continue;
      if (primal != kNoValue && its != primal) return kNoValue;
      primal = its;
    }
    if (primal == kNoValue) return kNoValue;
    for (const Operand& summand : summands) {
      if (!depends_on_loss_[summand.value]) continue;
      training_.is_summand[summand.value] = true;
      training_.primal[summand.value] = primal;
    }
    return primal;
  }

  // The gradient of scale, cast, assign is an op of the same name. That of add_n is a scale by 1
  // for each summand that has a gradient, in order. Other such ops scale the gradient, or sum it
  // over ranks.
  absl::Status FollowLinear(uint32_t i) {
    const ValueIndex grad = OperandOf(i, 0);
    if (grad == kNoValue || op(i).num_results == 0 || training_.primal[grad] == kNoValue) {
      return absl::OkStatus();
    }
    const ValueIndex result = op(i).first_result;
    const uint32_t forward = MakerOf(training_.primal[grad]);
    const absl::string_view forward_name = forward == kNoOp ? "" : BaseName(op(forward).name);
    if (forward_name == BaseName(op(i).name)) {
      training_.primal[result] = OperandOf(forward, 0);
      return absl::OkStatus();
    }
    // Zeros.
    if (forward_name == "sign" && BaseName(op(i).name) == "scale") {
      training_.primal[result] = OperandOf(forward, 0);
      return absl::OkStatus();
    }
    if (forward_name == "add_n") {
      WEFT_ASSIGN_OR_RETURN(const bool is_of_summand, IsScaleByOne(document_, i));
      if (is_of_summand) {
        WEFT_ASSIGN_OR_RETURN(training_.primal[result], NextSummand(forward, grad));
        return absl::OkStatus();
      }
    }
    GoOn(grad, result);
    return absl::OkStatus();
  }

  // The summand of an add_n whose gradient comes next.
  absl::StatusOr<ValueIndex> NextSummand(uint32_t add_n, ValueIndex grad) {
    const ValueIndex list = OperandOf(add_n, 0);
    if (MakerName(list) != kCombineOp) return kNoValue;
    const auto [known, is_new] = summands_.try_emplace(list);
    std::vector<ValueIndex>& with_gradient = known->second;
    for (const Operand& summand : is_new ? operands(MakerOf(list)) : absl::Span<const Operand>()) {
      if (summand.value == kNoValue) continue;
      WEFT_ASSIGN_OR_RETURN(const bool stops, StopsGradient(document_, summand.value));
      if (!stops) with_gradient.push_back(summand.value);
    }
    const size_t next = next_summand_[grad]++;
    return next < with_gradient.size() ? with_gradient[next] : kNoValue;
  }

  // --- Updates -----------------------------------------------------------------------------------

  // Some ops update a list of parameters; no two ops the same list.
  absl::Status FindUpdates() {
    std::vector<ValueIndex> all_grads;
    absl::flat_hash_set<ValueIndex> lists;
    for (uint32_t i = 0; i < document_.ops().size(); ++i) {
      if (!IsUpdate(document_, i)) continue;
      const ValueIndex of_grads = OperandOf(i, FindRule(op(i).name)->FindOperand("grad"));
      for (const ValueIndex value : {OperandOf(i, 0), of_grads}) {
        if (MakerName(value) == kCombineOp && !lists.insert(value).second) {
          return absl::InvalidArgumentError(absl::StrCat(
              document_.DebugName(i), ": expected lists of its own, found %",
              document_.value(value).id, ", which another update or operand has, too"));
        }
      }
      const std::vector<ValueIndex> params = ElementsOf(document_, OperandOf(i, 0));
      const std::vector<ValueIndex> grads = ElementsOf(document_, of_grads);
      if (grads.size() != params.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(document_.DebugName(i), ": expected a gradient for each of ",
                         params.size(), " parameters, found ", grads.size()));
      }
      for (size_t k = 0; k < params.size(); ++k) {
        training_.updates.push_back({i, ParameterOf(document_, params[k]), grads[k]});
        if (grads[k] != kNoValue) read_by_update_[grads[k]] = true;
        all_grads.push_back(grads[k]);
      }
    }
    needed_by_update_ = NeededFor(document_, all_grads);
    return absl::OkStatus();
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
      if (update.grad == kNoValue) {
        return absl::InvalidArgumentError(
            absl::StrCat(document_.DebugName(update.op), ": expected a gradient, found none"));
      }
      // Such as a state in which a program accumulates gradients.
      if (!depends_on_loss_[update.grad]) continue;
      auto& grads = complete[update.param];
      if (grads.empty()) {
        const ValueIndex grad = BeforeClipping(update.grad);
        training_.primal[grad] = update.param;
        grads.push_back(grad);
      }
      for (const ValueIndex grad : grads) {
        if (!paired.emplace(grad, true).second) continue;
        uint32_t maker = MakerOf(grad);
        if (op(maker).name == kSplitOp) maker = MakerOf(OperandOf(maker, 0));
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

  const Document& document_;
  GradientBuffers buffers_;
  Training training_;
  uint32_t first_seed_ = kNoOp;
  absl::flat_hash_map<ValueIndex, size_t> next_summand_;  // by gradient of an add_n
  // By list, which many ops may read: the summands that have gradients; what its elements are
  // summands of; what its elements together are the gradient of.
  absl::flat_hash_map<ValueIndex, std::vector<ValueIndex>> summands_;
  absl::flat_hash_map<ValueIndex, ValueIndex> primal_of_sum_, primal_of_concat_, primal_of_list_;
  // By value: a gradient that an op scales or sums over ranks, whose result takes its place.
  std::vector<bool> goes_on_;
  // By value: gradients that updates read, and what these are computed from.
  std::vector<bool> read_by_update_, needed_by_update_;
  std::vector<uint32_t> reader_;       // by value: see ReaderOf
  std::vector<bool> depends_on_loss_;  // by value
};

}  // namespace

absl::StatusOr<Training> FindTraining(const Document& document) { return Analysis(document).Run(); }

}  // namespace weft::pir
