#include "transpiler/verify/rank_calls.h"

#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/verify/blocks_with_collectives.h"

namespace weft {
namespace {

std::string Describe(const Program& program, const Op& op, const CollectiveOp& collective) {
  const bool reduces = collective.kind != CollectiveKind::kAllGather &&
                       collective.kind != CollectiveKind::kBroadcast;
  std::string text(CollectiveKindName(collective.kind));
  if (reduces) absl::StrAppend(&text, " ", ReductionName(collective.reduction));
  if (!collective.root_attr.empty()) {
    absl::StrAppend(&text, " root ", op.IntAttr(collective.root_attr).value_or(0));
  }
  for (Symbol name : op.Input("X")) {
    const VarId var = program.block(op.block()).Resolve(name);
    const absl::optional<TensorType> type =
        var.valid() ? DeclaredType(program.var(var)) : absl::nullopt;
    if (!type.has_value()) continue;
    const int64_t elements = NumElements(type->dims);
    absl::StrAppend(&text, " of ", elements < 0 ? "?" : absl::StrCat(elements), " ",
                    DTypeName(type->dtype));
    if (type->kind == TensorType::Kind::kSelectedRows) text += " rows";
  }
  return text;
}

class CallReader {
 public:
  explicit CallReader(const Program& program)
      : program_(program), traits_(program), blocks_(program) {}

  std::vector<RankCall> Read() {
    ReadBlock(0);
    return std::move(calls_);
  }

 private:
  void ReadBlock(int block) {
    for (OpId id : program_.block(block).ops()) {
      const Op op = program_.op(id);
      if (traits_.Has(op, Trait::kAlias)) SetMembers(op);
      if (traits_.Has(op, Trait::kCollective)) {
        const CollectiveOp& collective = *FindCollectiveOp(op.type());
        calls_.push_back({id, op.IntAttr("ring_id").value_or(0), Describe(program_, op, collective),
                          Variables(op)});
      }
      for (int sub : op.SubBlocks()) {
        if (!blocks_.Has(sub) || !entered_.insert(sub).second) continue;
        const std::string condition = absl::StrJoin(
            op.Input("Cond"), ", ",
            [&](std::string* out, Symbol name) { absl::StrAppend(out, program_.name(name)); });
        calls_.push_back(
            {id, RankCall::kNoRing, absl::StrCat("block on condition ", condition), ""});
        ReadBlock(sub);
        calls_.push_back({id, RankCall::kNoRing, "end of block", ""});
      }
    }
  }

  void SetMembers(const Op& op) {
    const absl::Span<const Symbol> buffer = op.Output("FusedOutput");
    if (buffer.empty()) return;
    const absl::Span<const Symbol> members = op.Output("Output");
    members_[buffer[0]] = absl::StrCat("{", Names(members), "}");
  }

  std::string Names(absl::Span<const Symbol> names) const {
    return absl::StrJoin(names, ", ", [&](std::string* out, Symbol name) {
      const auto members = members_.find(name);
      absl::StrAppend(out, members == members_.end() ? program_.name(name)
                                                     : absl::string_view(members->second));
    });
  }

  // The inputs, and the outputs where they differ.
  std::string Variables(const Op& op) const {
    const absl::Span<const Symbol> in = op.Input("X"), out = op.Output("Out");
    return in == out ? Names(in) : absl::StrCat(Names(in), " -> ", Names(out));
  }

  const Program& program_;
  OpTraits traits_;
  const BlocksWithCollectives blocks_;
  std::set<int> entered_;
  absl::flat_hash_map<Symbol, std::string> members_;  // of buffers
  std::vector<RankCall> calls_;
};

}  // namespace

std::vector<RankCall> ReadRankCalls(const Program& program) { return CallReader(program).Read(); }

}  // namespace weft
