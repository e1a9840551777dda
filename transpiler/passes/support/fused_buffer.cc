#include "transpiler/passes/support/fused_buffer.h"

#include <cstdint>

#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {
namespace {

NewOp CoalesceOp(const std::vector<std::string>& tensors, int dtype, const std::string& buffer,
                 FusedValues values, int role) {
  return {"coalesce_tensor",
          {{"Input", tensors}},
          {{"FusedOutput", {buffer}}, {"Output", tensors}},
          {{"copy_data", values == FusedValues::kCopied}, {"dtype", dtype}},
          role};
}

}  // namespace

pb::VarDesc FusedBuffer(const std::string& name, const FusedTensors& tensors, int alignment) {
  const int64_t step = alignment / static_cast<int64_t>(SizeOf(tensors.dtype));
  int64_t elements = 0;
  for (const Dims& dims : tensors.dims) elements += (NumElements(dims) + step - 1) / step * step;
  return TensorVar(name, tensors.dtype, {elements});
}

pb::OpDesc Coalesce(const FusedTensors& tensors, const std::string& buffer, FusedValues values,
                    int role, int alignment) {
  NewOp op = CoalesceOp(tensors.names, static_cast<int>(tensors.dtype), buffer, values, role);
  op.attrs.push_back({"align_size", alignment});
  op.attrs.push_back({"use_align", true});
  if (values == FusedValues::kDiscarded) {
    // Paddle needs these to lay out tensors without values.
    std::vector<int64_t> shapes, ranks;
    for (const Dims& dims : tensors.dims) {
      shapes.insert(shapes.end(), dims.begin(), dims.end());
      ranks.push_back(static_cast<int64_t>(dims.size()));
    }
    op.attrs.push_back({"concated_ranks", ranks});
    op.attrs.push_back({"concated_shapes", shapes});
  }
  return BuildOp(op);
}

pb::OpDesc PaddleCoalesce(const std::vector<std::string>& tensors, pb::VarType::Type dtype,
                          const std::string& buffer, int role) {
  return BuildOp(CoalesceOp(tensors, static_cast<int>(dtype), buffer, FusedValues::kCopied, role),
                 Dialect::kPaddle);
}

}  // namespace weft
