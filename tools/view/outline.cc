#include "tools/view/outline.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "proto/op_role.h"

namespace weft {
namespace {

constexpr absl::string_view kNamescopeAttr = "op_namescope";
constexpr size_t kMaxLevels = 16;

absl::string_view PhaseOf(int role) {
  if ((role & kRoleLrSched) != 0) return "learning rate";
  if ((role & kRoleBackward) != 0) return "backward";
  if ((role & kRoleOptimize) != 0) return "update";
  if ((role & (kRoleRpc | kRoleDist)) != 0) return "other";
  return "forward";
}

// Layers as a tree of names. Layer 0 is the root: none.
class LayerTree {
 public:
  struct Layer {
    uint32_t parent = 0;
    uint32_t depth = 0;
    std::string name;
  };

  // What has more levels ends in one that has the rest of the path.
  uint32_t Find(absl::string_view path, char separator) {
    uint32_t layer = 0;
    for (absl::string_view name :
         absl::StrSplit(path, absl::MaxSplits(separator, kMaxLevels - 1))) {
      if (!name.empty()) layer = Child(layer, name);
    }
    return layer;
  }
  const Layer& layer(uint32_t i) const { return layers_[i]; }

 private:
  uint32_t Child(uint32_t parent, absl::string_view name) {
    const auto [it, is_new] = child_.try_emplace(std::make_pair(parent, std::string(name)),
                                                 static_cast<uint32_t>(layers_.size()));
    if (is_new) layers_.push_back({parent, layers_[parent].depth + 1, std::string(name)});
    return it->second;
  }

  std::vector<Layer> layers_ = std::vector<Layer>(1);
  absl::flat_hash_map<std::pair<uint32_t, std::string>, uint32_t> child_;
};

class Outliner {
 public:
  explicit Outliner(const Program& program)
      : program_(program),
        traits_(program),
        communications_(program),
        layer_of_var_(program.symbols().size(), 0) {}

  std::vector<OutlineNode> Outline() {
    for (int block = 0; block < program_.num_blocks(); ++block) {
      top_.clear();
      layer_ = 0;
      for (OpId id : program_.block(block).ops()) AddOp(program_.op(id));
      CloseTo(0);
      open_top_.clear();
    }
    return std::move(nodes_);
  }

 private:
  void AddOp(const Op& op) {
    if (!StaysWithTheOpBefore(op)) {
      const std::string top =
          op.block() == 0 ? std::string(PhaseOf(op.role())) : absl::StrCat("block ", op.block());
      if (top != top_) layer_ = 0;
      top_ = top;
      layer_ = LayerOf(op);
    }
    Remember(op);
    Open();
    ++num_ops_;
  }

  bool StaysWithTheOpBefore(const Op& op) {
    if (top_.empty()) return false;
    return OnlyCommunicates(communications_.Of(op)) || traits_.Has(op, Trait::kStreamSync) ||
           traits_.Has(op, Trait::kAlias) || traits_.Has(op, Trait::kRingSetup);
  }

  static bool IsForward(const Op& op) { return PhaseOf(op.role()) == "forward"; }

  uint32_t LayerOf(const Op& op) {
    if (op.HasAttr(kNamescopeAttr)) {
      const uint32_t scope = layers_.Find(op.StringAttr(kNamescopeAttr).value_or(""), '/');
      if (scope != 0) return scope;
    }
    const uint32_t layer = IsForward(op) ? LayerOfParameter(op) : LayerOfGradient(op);
    return layer != 0 ? layer : layer_;
  }

  uint32_t LayerOfParameter(const Op& op) {
    const Block block = program_.block(op.block());
    for (Symbol name : op.input_args()) {
      const VarId id = block.Resolve(name);
      if (!id.valid() || !program_.var(id).persistable()) continue;
      const absl::string_view text = program_.name(name);
      return layers_.Find(text.substr(0, text.rfind('.')), '.');
    }
    return 0;
  }

  uint32_t LayerOfGradient(const Op& op) const {
    for (Symbol name : op.args()) {
      const absl::string_view text = program_.name(name);
      const size_t suffix = text.find(kGradSuffix);
      if (suffix == absl::string_view::npos) continue;
      const Symbol var = program_.FindSymbol(text.substr(0, suffix));
      if (var.valid() && layer_of_var_[var.value()] != 0) return layer_of_var_[var.value()];
    }
    return 0;
  }

  void Remember(const Op& op) {
    if (!IsForward(op)) return;
    for (Symbol name : op.args()) {
      uint32_t& layer = layer_of_var_[name.value()];
      if (layer == 0) layer = layer_;
    }
  }

  // Opens the nodes of the current phase and layer, and closes others.
  void Open() {
    std::vector<uint32_t> path;
    for (uint32_t layer = layer_; layer != 0; layer = layers_.layer(layer).parent) {
      path.push_back(layer);
    }
    std::reverse(path.begin(), path.end());
    if (top_ != open_top_) {
      CloseTo(0);
      open_top_ = top_;
      Push(top_);
    }
    size_t common = 0;
    while (common < path.size() && common < path_.size() && path[common] == path_[common]) ++common;
    CloseTo(1 + common);
    for (size_t i = common; i < path.size(); ++i) Push(layers_.layer(path[i]).name);
    path_ = std::move(path);
  }

  void Push(const std::string& name) {
    nodes_.push_back({name, static_cast<uint32_t>(open_.size()), num_ops_, 0});
    open_.push_back(nodes_.size() - 1);
  }
  void CloseTo(size_t depth) {
    for (; open_.size() > depth; open_.pop_back()) nodes_[open_.back()].end = num_ops_;
    if (depth == 0) path_.clear();
  }

  const Program& program_;
  OpTraits traits_;
  Communications communications_;
  LayerTree layers_;
  std::vector<uint32_t> layer_of_var_;  // by Symbol
  // Of the op before.
  std::string top_;
  uint32_t layer_ = 0;

  uint32_t num_ops_ = 0;
  std::vector<OutlineNode> nodes_;
  std::vector<size_t> open_;  // into nodes_
  std::string open_top_;
  std::vector<uint32_t> path_;  // layers of open_, without the first
};

}  // namespace

std::vector<OutlineNode> OutlineOf(const Program& program) { return Outliner(program).Outline(); }

}  // namespace weft
