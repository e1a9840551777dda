#include "ops/analysis/values/sums_by_hand.h"

#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/reduced_dim.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// The only variable that a collective takes and leaves; none: it is not in place.
absl::optional<Symbol> InPlace(const Op& op, const CollectiveOp& collective) {
  const absl::Span<const Symbol> in = collective.Inputs(op), out = collective.Outputs(op);
  if (in.size() != 1 || out.size() != 1 || in[0] != out[0]) return absl::nullopt;
  return in[0];
}

int64_t RootOf(const Op& op, const CollectiveOp& collective) {
  return op.IntAttr(collective.root_attr).value_or(0);
}

bool AreOfOneRing(const Op& a, const Op& b) {
  return a.IntAttr("ring_id").value_or(0) == b.IntAttr("ring_id").value_or(0);
}

}  // namespace

absl::flat_hash_set<OpId> FindReducesForAll(const ProgramFacts& facts) {
  const Program& program = facts.program();
  absl::flat_hash_set<OpId> found;
  const auto reduces = [](const Op& op) {
    const CollectiveOp* const collective = FindCollectiveOp(op);
    return collective != nullptr && collective->kind == CollectiveKind::kReduce;
  };
  if (absl::c_none_of(AllOps(program), reduces)) return found;
  const Storage& storage = facts.Get<Storage>();
  for (int block = 0; block < program.num_blocks(); ++block) {
    absl::flat_hash_map<uint64_t, OpId> open;  // by memory: reduces
    for (OpId id : program.block(block).ops()) {
      const Op op = program.op(id);
      const OpSchema* const schema = FindOpSchema(op.type());
      if (schema != nullptr && schema->Has(Trait::kStreamSync)) continue;
      if (!op.SubBlocks().empty()) open.clear();
      const CollectiveOp* const collective = FindCollectiveOp(op);
      const absl::optional<Symbol> name =
          collective == nullptr ? absl::nullopt : InPlace(op, *collective);
      if (name.has_value() && collective->kind == CollectiveKind::kBroadcast) {
        const auto reduce = open.find(storage.ClassOf(block, *name));
        if (reduce != open.end()) {
          const Op sum = program.op(reduce->second);
          const CollectiveOp& to_one = *FindCollectiveOp(sum);
          const bool is_result = *InPlace(sum, to_one) == *name && AreOfOneRing(sum, op) &&
                                 RootOf(sum, to_one) == RootOf(op, *collective);
          if (is_result) found.insert(sum.id());
        }
      }
      // What the root makes of the sum, it sends to all.
      const bool scales = AlgebraOf(op, schema) == Algebra::kScale && op.args().size() == 2 &&
                          op.args()[0] == op.args()[1];
      if (scales) continue;
      for (Symbol arg : op.args()) open.erase(storage.ClassOf(block, arg));
      if (name.has_value() && collective->kind == CollectiveKind::kReduce &&
          collective->reduction == Reduction::kSum) {
        open[storage.ClassOf(block, *name)] = id;
      }
    }
  }
  return found;
}

Dims StackedDims(const Op& reshape, const TensorType& in) {
  const std::vector<int64_t> shape = reshape.IntsAttr("shape").value_or(std::vector<int64_t>());
  Dims dims(shape.begin(), shape.end());
  // The first dimension is what the attribute says, whatever dims the input turns out to have.
  if (dims.empty() || dims[0] < 1 || absl::c_linear_search(dims, 0)) return {};
  const auto unknown = absl::c_find(dims, -1);
  if (unknown == dims.end()) return dims;
  *unknown = 1;
  const int64_t known = NumElements(dims);
  if (known < 1 || NumElements(in.dims) % known != 0) return {};
  *unknown = NumElements(in.dims) / known;
  return dims;
}

bool StacksRanks(const Op& op, int64_t n, const absl::optional<TensorType>& in) {
  if (AlgebraOf(op, FindOpSchema(op.type())) != Algebra::kReshape) return false;
  if (n < 1 || !in.has_value() || in->dims.empty()) return false;
  Dims stacked = in->dims;
  stacked[0] /= n;
  if (stacked[0] < 1 || stacked[0] * n != in->dims[0]) return false;
  stacked.insert(stacked.begin(), n);
  return StackedDims(op, *in) == stacked && NumElements(stacked) >= 0;
}

absl::optional<Reduction> ReducesFirstDim(const Op& op, const Op& stacks,
                                          const absl::optional<TensorType>& gathered) {
  absl::optional<TensorType> in = gathered;
  if (in.has_value()) in->dims = StackedDims(stacks, *gathered);

  const bool sums = SumsAlongDims(op.type());
  if (!sums && !AveragesAlongDims(op.type())) return absl::nullopt;
  if (op.input_args().size() != 1 || !in.has_value() || !IsFloating(in->dtype)) {
    return absl::nullopt;
  }
  const absl::optional<int64_t> dim = ReducedDim(op);
  const auto rank = static_cast<int64_t>(in->dims.size());
  if (!dim.has_value() || (*dim != 0 && *dim != -rank)) return absl::nullopt;
  const int64_t dtype = op.IntAttr("out_dtype").value_or(-1);
  if (dtype >= 0 && dtype != static_cast<int64_t>(in->dtype)) return absl::nullopt;
  return sums ? Reduction::kSum : Reduction::kAvg;
}

}  // namespace weft
