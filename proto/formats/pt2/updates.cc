#include "proto/formats/pt2/updates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::pt2 {
namespace {

constexpr char kTranspose[] = "aten.t.default";
constexpr char kAdd[] = "aten.add.Tensor", kSub[] = "aten.sub.Tensor", kMul[] = "aten.mul.Tensor";

// Of numbers that PyTorch computed from each other in double precision.
bool IsClose(double a, double b) { return std::abs(a - b) <= 1e-12 * (1 + std::abs(b)); }

// Matches a tree of nodes. A method returns whether the value is of that form, and sets its outputs
// only then.
class Matcher {
 public:
  Matcher(const Graph& graph, const Makers& makers) : makers_(makers) {
    for (const Input& input : graph.inputs) {
      const bool is_data = input.kind == Input::Kind::kData;
      if (!is_data) names_[input.value] = input.name;
    }
  }

  const Node* Find(const std::string& value, absl::string_view target) const {
    const Node* const node = makers_.Of(value);
    return node != nullptr && node->target == target ? node : nullptr;
  }
  // An operand's value; empty: it is no tensor.
  std::string Operand(const Node& node, absl::string_view argument) const {
    const absl::StatusOr<std::string> value = node.Tensor(argument);
    return value.ok() ? makers_.Origin(*value) : "";
  }
  bool Number(const Node& node, absl::string_view argument, double* number,
              absl::optional<double> otherwise = absl::nullopt) const {
    const absl::StatusOr<double> found = node.Number(argument, otherwise);
    if (found.ok()) *number = *found;
    return found.ok();
  }
  bool IsNumber(const Node& node, absl::string_view argument, double expected,
                absl::optional<double> otherwise = absl::nullopt) const {
    double number;
    return Number(node, argument, &number, otherwise) && number == expected;
  }
  // The parameter or buffer that has the value at the start of a step; empty: none.
  std::string NameOf(const std::string& value) const {
    const auto found = names_.find(makers_.Origin(value));
    return found == names_.end() ? "" : found->second;
  }

  // x + alpha y.
  bool IsSum(const std::string& value, std::string* x, std::string* y, double* alpha) const {
    const Node* node = Find(value, kAdd);
    const double sign = node != nullptr ? 1 : -1;
    if (node == nullptr) node = Find(value, kSub);
    if (node == nullptr || !node->IsTensor("self") || !node->IsTensor("other")) return false;
    if (!Number(*node, "alpha", alpha, 1)) return false;
    *alpha *= sign;
    *x = Operand(*node, "self");
    *y = Operand(*node, "other");
    return true;
  }
  // x times a number.
  bool IsMultiple(const std::string& value, std::string* x, double* factor) const {
    const Node* const node = Find(value, kMul);
    if (node == nullptr || node->IsTensor("other")) return false;
    *x = Operand(*node, "self");
    return !x->empty() && Number(*node, "other", factor);
  }
  bool IsUnary(const std::string& value, absl::string_view target, std::string* x) const {
    const Node* const node = Find(value, target);
    if (node == nullptr) return false;
    *x = Operand(*node, "self");
    return !x->empty();
  }
  // x y, in either order; then y is what is not of x.
  bool IsProduct(const std::string& value, std::string* x, std::string* y) const {
    const Node* const node = Find(value, kMul);
    if (node == nullptr) return false;
    *x = Operand(*node, "self");
    *y = Operand(*node, "other");
    return !x->empty() && !y->empty();
  }

 private:
  const Makers& makers_;
  absl::flat_hash_map<std::string, std::string> names_;
};

class Finder {
 public:
  Finder(const Graph& graph, const Makers& makers)
      : graph_(graph), makers_(makers), match_(graph, makers) {
    for (const Node& node : graph.nodes) {
      const absl::StatusOr<std::vector<std::string>> reads = node.Tensors();
      if (Makers::HandsOn(node) || !reads.ok()) continue;
      for (const std::string& value : *reads) ++num_readers_[makers.Origin(value)];
    }
    for (const std::string& value : graph.results) ++num_readers_[makers.Origin(value)];
    for (const auto& [name, value] : graph.mutations) ++num_readers_[makers.Origin(value)];
  }

  absl::StatusOr<Updates> Run() {
    for (const Input& input : graph_.inputs) {
      const auto mutation = graph_.mutations.find(input.name);
      if (input.kind != Input::Kind::kParameter || mutation == graph_.mutations.end()) continue;
      const std::string value = makers_.Origin(mutation->second);
      if (value == input.value) continue;  // it stays
      const Update update = FindUpdate(input.name, value);
      for (const std::string& state : {update.velocity, update.mean, update.square}) {
        if (state.empty() || result_.states.insert(state).second) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "parameter ", input.name, ": its state ", state, " belongs to another parameter, too"));
      }
      result_.updates.push_back(update);
    }
    return std::move(result_);
  }

 private:
  Update FindUpdate(const std::string& param, const std::string& last) {
    Update update;
    update.param = param;
    update.value = last;
    if (FindRule(&update)) return update;
    bool reduces = false;
    const Node* node;
    for (;;) {
      const std::string before = makers_.Before(update.value, &node);
      if (before.empty() || num_readers_[update.value] != 1 || num_readers_[before] != 1 ||
          graph_.tensors.at(before).dims != graph_.tensors.at(last).dims) {
        break;
      }
      reduces = reduces || node->Has("group_name");
      update.averages.insert(update.averages.begin(), update.value);
      update.value = before;
    }
    const auto has_type = [&](const std::string& value) {
      return graph_.tensors.at(value).dtype == graph_.tensors.at(last).dtype;
    };
    if (has_type(update.value) && FindRule(&update)) return update;
    if (!reduces) {
      update.averages.clear();
      update.value = last;
    }
    while (!has_type(update.value)) {  // an op writes the parameter
      update.value = update.averages.front();
      update.averages.erase(update.averages.begin());
    }
    update.rule = Update::Rule::kComputed;
    update.grad = update.value;
    return update;
  }

  bool FindRule(Update* update) {
    return IsAdam(update->value, update) || IsAdagrad(update->value, update) ||
           IsSgd(update->value, update);
  }

  // Whether the step leaves `value` in the state `name`.
  bool Leaves(const std::string& name, const std::string& value) const {
    const auto found = graph_.mutations.find(name);
    return !name.empty() && found != graph_.mutations.end() &&
           makers_.Origin(found->second) == value;
  }

  // v' = mu v + g of a buffer v.
  bool IsVelocity(const std::string& value, std::string* name, double* mu, std::string* grad) {
    std::string decayed, v;
    double alpha;
    if (!match_.IsSum(value, &decayed, grad, &alpha) || alpha != 1) return false;
    if (!match_.IsMultiple(decayed, &v, mu)) return false;
    *name = match_.NameOf(v);
    return Leaves(*name, value);
  }

  bool IsSgd(const std::string& value, Update* update) {
    std::string param, step;
    double alpha, factor;
    if (!match_.IsSum(value, &param, &step, &alpha) || match_.NameOf(param) != update->param) {
      return false;
    }
    update->rate = -alpha;
    // p - rate g, where torch.optim has p + (-rate) g: then a factor of g is no rate.
    if (match_.Find(value, kSub) != nullptr && alpha == -1 &&
        match_.IsMultiple(step, &step, &factor)) {
      update->rate = factor;
    }
    update->grad = step;
    double mu;
    std::string name, grad, ahead, velocity;
    if (IsVelocity(step, &name, &mu, &grad)) {
      update->nesterov = false;
    } else if (match_.IsSum(step, &ahead, &velocity, &alpha) &&
               IsVelocity(velocity, &name, &mu, &grad) && ahead == grad && alpha == mu) {
      update->nesterov = true;
    } else {
      return true;
    }
    update->rule = Update::Rule::kMomentum;
    update->velocity = name;
    update->mu = mu;
    update->grad = grad;
    return true;
  }

  // 1 - beta^t.
  bool IsCorrection(const std::string& value, std::string* power, double* beta) {
    const Node* const difference = match_.Find(value, "aten.rsub.Scalar");
    if (difference == nullptr || !match_.IsNumber(*difference, "other", 1) ||
        !match_.IsNumber(*difference, "alpha", 1, 1)) {
      return false;
    }
    *power = match_.Operand(*difference, "self");
    const Node* const node = match_.Find(*power, "aten.pow.Scalar");
    if (node == nullptr || !match_.Number(*node, "self", beta)) return false;
    // t + 1, of a counter that the step leaves so.
    std::string count = match_.Operand(*node, "exponent");
    const Node* const next = match_.Find(count, kAdd);
    if (next == nullptr || next->IsTensor("other") || !match_.IsNumber(*next, "other", 1) ||
        !match_.IsNumber(*next, "alpha", 1, 1)) {
      return false;
    }
    return Leaves(match_.NameOf(match_.Operand(*next, "self")), count);
  }

  // -rate / (1 - beta1^t).
  bool IsNegativeStep(const std::string& value, Update* update) {
    std::string step, inverse, correction;
    return match_.IsUnary(value, "aten.neg.default", &step) &&
           match_.IsMultiple(step, &inverse, &update->rate) &&
           match_.IsUnary(inverse, "aten.reciprocal.default", &correction) &&
           IsCorrection(correction, &update->beta1_power, &update->beta1);
  }

  // √s' / (√(1 - beta2^t) step) + epsilon / step, with step = IsNegativeStep.
  bool IsDenominator(const std::string& value, std::string* square, Update* update) {
    std::string ratio, rest, root, scaled, correction_root, step, correction, inverse, same_step;
    double alpha;
    if (!match_.IsSum(value, &ratio, &rest, &alpha) || alpha != 1) return false;
    const Node* const quotient = match_.Find(ratio, "aten.div.Tensor");
    if (quotient == nullptr || quotient->Has("rounding_mode")) return false;
    root = match_.Operand(*quotient, "self");
    scaled = match_.Operand(*quotient, "other");
    return match_.IsUnary(root, "aten.sqrt.default", square) &&
           match_.IsProduct(scaled, &correction_root, &step) &&
           match_.IsUnary(correction_root, "aten.sqrt.default", &correction) &&
           IsCorrection(correction, &update->beta2_power, &update->beta2) &&
           IsNegativeStep(step, update) && match_.IsMultiple(rest, &inverse, &update->epsilon) &&
           match_.IsUnary(inverse, "aten.reciprocal.default", &same_step) && same_step == step;
  }

  // m' = m + (g - m) (1 - beta1).
  bool IsMean(const std::string& value, Update* update) {
    const Node* const node = match_.Find(value, "aten.lerp.Scalar");
    double weight;
    if (node == nullptr || !match_.Number(*node, "weight", &weight) ||
        !IsClose(weight, 1 - update->beta1)) {
      return false;
    }
    update->mean = match_.NameOf(match_.Operand(*node, "self"));
    update->grad = match_.Operand(*node, "end");
    return Leaves(update->mean, value);
  }

  // s' = beta2 s + (1 - beta2) g g.
  bool IsSquare(const std::string& value, Update* update) {
    const Node* const node = match_.Find(value, "aten.addcmul.default");
    double weight, beta2;
    std::string s;
    if (node == nullptr || !match_.Number(*node, "value", &weight, 1) ||
        !match_.IsMultiple(match_.Operand(*node, "self"), &s, &beta2) || beta2 != update->beta2 ||
        !IsClose(weight, 1 - beta2) || match_.Operand(*node, "tensor1") != update->grad ||
        match_.Operand(*node, "tensor2") != update->grad) {
      return false;
    }
    update->square = match_.NameOf(s);
    return Leaves(update->square, value);
  }

  bool IsAdam(const std::string& value, Update* update) {
    const Node* const node = match_.Find(value, "aten.addcdiv.default");
    if (node == nullptr || !match_.IsNumber(*node, "value", 1, 1)) return false;
    Update found = *update;
    found.rule = Update::Rule::kAdam;
    std::string square, param = match_.Operand(*node, "self"), whole;
    double kept = 1;
    if (!IsDenominator(match_.Operand(*node, "tensor2"), &square, &found) ||
        !IsMean(match_.Operand(*node, "tensor1"), &found) || !IsSquare(square, &found)) {
      return false;
    }
    if (match_.IsMultiple(param, &whole, &kept)) {
      found.rule = Update::Rule::kAdamW;
      found.decay = (1 - kept) / found.rate;
      param = whole;
    }
    if (match_.NameOf(param) != found.param || !std::isfinite(found.decay)) return false;
    *update = std::move(found);
    return true;
  }

  bool IsAdagrad(const std::string& value, Update* update) {
    const Node* const node = match_.Find(value, "aten.addcdiv.default");
    double rate;
    if (node == nullptr || !match_.Number(*node, "value", &rate, 1) ||
        match_.NameOf(match_.Operand(*node, "self")) != update->param) {
      return false;
    }
    const std::string grad = match_.Operand(*node, "tensor1");
    const Node* const sum = match_.Find(match_.Operand(*node, "tensor2"), kAdd);
    double epsilon;
    std::string squares;
    if (sum == nullptr || !match_.Number(*sum, "other", &epsilon) ||
        !match_.IsNumber(*sum, "alpha", 1, 1) ||
        !match_.IsUnary(match_.Operand(*sum, "self"), "aten.sqrt.default", &squares)) {
      return false;
    }
    const Node* const added = match_.Find(squares, "aten.addcmul.default");
    if (added == nullptr || !match_.IsNumber(*added, "value", 1, 1) ||
        match_.Operand(*added, "tensor1") != grad || match_.Operand(*added, "tensor2") != grad) {
      return false;
    }
    const std::string square = match_.NameOf(match_.Operand(*added, "self"));
    if (!Leaves(square, squares)) return false;
    update->rule = Update::Rule::kAdagrad;
    update->grad = grad;
    update->rate = -rate;
    update->square = square;
    update->epsilon = epsilon;
    return true;
  }

  const Graph& graph_;
  const Makers& makers_;
  Matcher match_;
  absl::flat_hash_map<std::string, int> num_readers_;  // by value, under any name
  Updates result_;
};

}  // namespace

Makers::Makers(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    for (const std::string& value : node.outputs) {
      if (!value.empty()) maker_[value] = &node;
    }
    const bool transposes = node.target == kTranspose;
    if (!transposes && !HandsOn(node)) continue;
    absl::StatusOr<std::vector<std::string>> inputs = node.Tensors();
    if (inputs.ok() && transposes && inputs->size() == 1) {  // twice
      const Node* const before = Of((*inputs)[0]);
      if (before == nullptr || before->target != kTranspose) continue;
      inputs = before->Tensors();
    }
    if (!inputs.ok() || inputs->size() != node.outputs.size()) continue;
    for (size_t i = 0; i < inputs->size(); ++i) {
      std::string origin = Origin((*inputs)[i]);
      origin_[node.outputs[i]] = std::move(origin);
    }
  }
}

std::string Makers::Origin(absl::string_view value) const {
  const auto found = origin_.find(value);
  return found == origin_.end() ? std::string(value) : found->second;
}

const Node* Makers::Of(const std::string& value) const {
  const auto found = maker_.find(Origin(value));
  return found == maker_.end() ? nullptr : found->second;
}

std::string Makers::Before(const std::string& value, const Node** node) const {
  *node = Of(value);
  const bool makes = *node != nullptr && (absl::StartsWith((*node)->target, "_c10d_functional.") ||
                                          (*node)->target == "aten._to_copy.default" ||
                                          absl::StartsWith((*node)->target, "aten.mul.") ||
                                          absl::StartsWith((*node)->target, "aten.div."));
  if (!makes) return "";
  const absl::StatusOr<std::vector<std::string>> reads = (*node)->Tensors();
  const std::vector<std::string>& outputs = (*node)->outputs;
  const auto at = std::find(outputs.begin(), outputs.end(), Origin(value));
  if (!reads.ok() || reads->size() != outputs.size() || at == outputs.end()) return "";
  return Origin((*reads)[at - outputs.begin()]);
}

bool Makers::HandsOn(const Node& node) {
  static const auto* const targets =
      new std::set<std::string>{"_c10d_functional.wait_tensor.default",
                                "_c10d_functional.wait_tensors.default",
                                "aten.alias.default",
                                "aten.clone.default",
                                "aten.contiguous.default",
                                "aten.detach.default",
                                "aten.lift_fresh_copy.default"};
  return targets->count(node.target) > 0;
}

absl::StatusOr<Updates> FindUpdates(const Graph& graph, const Makers& makers) {
  return Finder(graph, makers).Run();
}

}  // namespace weft::pt2
