#include "ops/analysis/core/group_variables.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/core/updates.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

class GroupFinder {
 public:
  explicit GroupFinder(const ProgramFacts& facts)
      : facts_(facts),
        main_(facts.program()),
        traits_(facts.Get<OpTraits>()),
        buffers_(facts.Get<Storage>()) {}

  std::map<std::string, std::vector<int>> Find() {
    if (!HasGroups()) return {};
    for (const ParamUpdate& update : facts_.Get(FindUpdates)) updates_[update.op].push_back(update);
    for (const Op& op : AllOps(main_)) Visit(op);
    return std::move(found_);
  }

 private:
  bool HasGroups() {
    return absl::c_any_of(AllOps(main_), [&](const Op& op) {
      if (!traits_.Has(op, Trait::kCollective)) return false;
      const absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
      return ranks.ok() && !ranks->empty();
    });
  }

  void Visit(const Op& op) {
    if (traits_.Has(op, Trait::kStreamSync)) return;
    buffers_.Pass(op.id());
    if (traits_.Has(op, Trait::kCollective)) return VisitCollective(op);
    const std::vector<int>* group = nullptr;
    for (Symbol in : op.input_args()) {
      const auto reduced = reduced_.find(in);
      if (reduced != reduced_.end()) group = &reduced->second;
    }
    const auto updates = updates_.find(op.id());
    if (updates != updates_.end()) {
      for (const ParamUpdate& update : updates->second) Update(update);
      return;
    }
    const std::vector<int> ranks = group == nullptr ? std::vector<int>() : *group;
    for (Symbol out : op.output_args()) Mark(op.block(), out, ranks);
  }

  void VisitCollective(const Op& op) {
    const absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
    for (Symbol out : op.output_args())
      Mark(op.block(), out, ranks.ok() ? *ranks : std::vector<int>());
  }

  void Mark(int block, Symbol variable, const std::vector<int>& ranks) {
    MarkOne(variable, ranks);
    const Storage::Buffer* const buffer = buffers_.Named(block, variable);
    if (buffer == nullptr) return;
    for (Symbol part : buffer->parts) MarkOne(part, ranks);
  }

  void MarkOne(Symbol variable, const std::vector<int>& ranks) {
    if (ranks.empty()) {
      reduced_.erase(variable);
    } else {
      reduced_[variable] = ranks;
    }
  }

  // An op may update several parameters: slot Grad is in the order of slot Param.
  void Update(const ParamUpdate& update) {
    const Op op = main_.op(update.op);
    const absl::Span<const Symbol> params = op.Input("Param"), grads = op.Input("Grad");
    for (size_t i = 0; i < params.size() && i < grads.size(); ++i) {
      const auto reduced = reduced_.find(grads[i]);
      if (params[i] != update.param || reduced == reduced_.end()) continue;
      Add(update.param, reduced->second);
      if (update.master.valid()) Add(update.master, reduced->second);
      for (Symbol state : update.states) Add(state, reduced->second);
    }
  }

  void Add(Symbol variable, const std::vector<int>& ranks) {
    found_.emplace(main_.name(variable), ranks);
  }

  const ProgramFacts& facts_;
  const Program& main_;
  const OpTraits& traits_;
  CurrentBuffers buffers_;
  absl::flat_hash_map<OpId, std::vector<ParamUpdate>> updates_;
  absl::flat_hash_map<Symbol, std::vector<int>> reduced_;  // over a group
  std::map<std::string, std::vector<int>> found_;
};

}  // namespace

std::map<std::string, std::vector<int>> FindGroupVariables(const ProgramFacts& main) {
  return GroupFinder(main).Find();
}

}  // namespace weft
