#include "ops/analysis/values/rank_buffers.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/values/rank_shares.h"
#include "ops/schema/tensor_type.h"

namespace weft {

RankBuffers::RankBuffers(const Program& program, const RankValuesOptions& options,
                         const RankMemory& memory, bool finds_flat)
    : program_(program), options_(options), memory_(memory) {
  if (finds_flat) flat_buffers_ = FlatBuffers(program);
}

bool RankBuffers::HasOtherNames(VarId whole, const FlatBuffer& buffer) const {
  const auto has_others = [&](VarId var) {
    return var.valid() && memory_.storage().SharesMemory(0, program_.var(var).name_symbol());
  };
  return has_others(whole) || absl::c_any_of(buffer.parts, [&](const FlatBuffer::Part& part) {
           return has_others(part.flat) || absl::c_any_of(part.others, has_others);
         });
}

ExpressionTable::Layout RankBuffers::LayoutOf(absl::Span<const VarId> tensors) const {
  ExpressionTable::Layout layout;
  for (VarId tensor : tensors) {
    const absl::optional<TensorType> type = DeclaredType(program_.var(tensor));
    layout.emplace_back();
    if (type.has_value()) layout.back().assign(type->dims.begin(), type->dims.end());
  }
  return layout;
}

std::vector<VarId> RankBuffers::FirstOfEach(const TensorsOfParts& tensors) {
  std::vector<VarId> first;
  for (const std::vector<VarId>& of_part : tensors) first.push_back(of_part[0]);
  return first;
}

RankBuffers::TensorsOfParts RankBuffers::WithDims(const FlatBuffer& buffer,
                                                  const ExpressionTable::Layout& layout,
                                                  int* num_others) const {
  TensorsOfParts tensors(layout.size());
  *num_others = 0;
  if (layout.size() != buffer.parts.size()) return {};
  for (size_t i = 0; i < layout.size(); ++i) {
    const FlatBuffer::Part& part = buffer.parts[i];
    for (VarId other : part.others) {
      if (LayoutOf({other})[0] == layout[i]) tensors[i].push_back(other);
    }
    if (!tensors[i].empty()) {
      ++*num_others;
    } else if (LayoutOf({part.flat})[0] == layout[i]) {
      tensors[i].push_back(part.flat);
    } else {
      return {};
    }
  }
  return tensors;
}

std::vector<VarId> RankBuffers::ScatteredIn(const FlatBuffer& buffer) const {
  std::vector<VarId> best;
  int most = -1;
  for (const auto& [name, share] : options_.setting.shares) {
    int num_others = 0;
    const TensorsOfParts tensors = WithDims(buffer, weft::LayoutOf(share), &num_others);
    if (tensors.empty() || num_others <= most) continue;
    most = num_others;
    best = FirstOfEach(tensors);
  }
  if (!options_.setting.shares.empty()) return best;
  for (const FlatBuffer::Part& part : buffer.parts) best.push_back(part.flat);
  return best;
}

RankBuffers::TensorsOfParts RankBuffers::GatheredIn(const FlatBuffer& buffer, VarId share) const {
  if (!share.valid()) return {};
  const auto found = options_.setting.shares.find(std::string(program_.var(share).name()));
  if (found == options_.setting.shares.end()) return {};
  int num_others = 0;
  return WithDims(buffer, weft::LayoutOf(found->second), &num_others);
}

bool RankBuffers::IsDense(VarId buffer) const {
  const Storage::Layout layout = memory_.storage().LayoutOf(*memory_.BufferOf(buffer));
  if (!layout.is_known()) return false;
  int64_t end = 0;
  for (size_t i = 0; i < layout.counts.size(); ++i) {
    if (layout.offsets[i] != end) return false;
    end += layout.counts[i];
  }
  return end == layout.size;
}

bool RankBuffers::AreDivided(const ExpressionTable::Layout& layout, VarId share,
                             int64_t parts_of_share) const {
  const absl::optional<TensorType> part = DeclaredType(program_.var(share));
  if (layout.empty() || !part.has_value()) return false;
  int64_t end = 0;
  for (const std::vector<int64_t>& dims : layout) {
    const int64_t elements = NumElements(dims);
    if (elements < 0) return false;
    end += elements;
  }
  const int64_t elements = NumElements(part->dims) / parts_of_share;
  const int64_t num_parts = elements > 0 ? end / elements : 0;
  return num_parts > 0 && end % elements == 0 &&
         options_.HasRanks(static_cast<double>(num_parts)) &&
         NumElements(part->dims) % parts_of_share == 0;
}

bool RankBuffers::DividesBuffer(const CollectiveOp& collective,
                                const ExpressionTable::Layout& layout, VarId to) const {
  if (!to.valid() || !memory_.PartsOf(to).empty()) return false;
  if (collective.kind == CollectiveKind::kReduceScatter) {
    return collective.reduction == Reduction::kSum && AreDivided(layout, to, 1);
  }
  return collective.kind == CollectiveKind::kAllToAll && options_.setting.nranks.has_value() &&
         AreDivided(layout, to, *options_.setting.nranks);
}

}  // namespace weft
