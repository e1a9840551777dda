#include "tools/view/op_bytes.h"

#include <algorithm>

#include "absl/types/optional.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"

namespace weft {

void OpBytes::Remember(const Op& op) {
  const Storage::Buffer* const made = storage_.MadeBy(op.id());
  if (made == nullptr || !made->name.valid()) return;
  int64_t members = 0;
  for (Symbol source : made->sources) members += Of(op, source);
  buffers_[made->name] = std::max(members, Of(op, made->name));
}

int64_t OpBytes::OfCommunication(const Op& op) const {
  absl::Span<const Symbol> vars;
  if (const CollectiveOp* const collective = FindCollectiveOp(op)) {
    vars = collective->Inputs(op);
  } else if (const auto message = FindMessageOp(op.type())) {
    vars = message == MessageOp::kSend ? op.Input("X") : op.Output("Out");
  }
  int64_t bytes = 0;
  for (Symbol var : vars) {
    const auto buffer = buffers_.find(var);
    bytes += buffer != buffers_.end() ? buffer->second : Of(op, var);
  }
  return bytes;
}

int64_t OpBytes::Of(const Op& op, Symbol var) const {
  const VarId id = program_.block(op.block()).Resolve(var);
  if (!id.valid()) return 0;
  absl::optional<TensorType> type = DeclaredType(program_.var(id));
  if (!type.has_value()) return 0;
  for (int64_t& dim : type->dims) dim = dim < 0 ? batch_ : dim;
  // Far from the limits of what a page can show, however many there are.
  constexpr int64_t kMost = kMaxElements;
  return std::min(NumElements(type->dims), kMost) * static_cast<int64_t>(SizeOf(type->dtype));
}

}  // namespace weft
