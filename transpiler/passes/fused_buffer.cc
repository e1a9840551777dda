#include "transpiler/passes/fused_buffer.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

pb::VarDesc FusedBuffer(const Program& program, const FusedTensors& tensors,
                        absl::string_view prefix, int* next) {
  pb::VarDesc var;
  do {
    var.set_name(absl::StrCat(prefix, "_", (*next)++));
  } while (program.FindSymbol(var.name()).valid());
  const int64_t alignment = kSliceAlignment / static_cast<int64_t>(SizeOf(tensors.dtype));
  int64_t elements = 0;
  for (const Dims& dims : tensors.dims) {
    elements += (NumElements(dims) + alignment - 1) / alignment * alignment;
  }
  var.mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  auto* tensor = var.mutable_type()->mutable_lod_tensor()->mutable_tensor();
  tensor->set_data_type(static_cast<pb::VarType::Type>(tensors.dtype));
  tensor->add_dims(elements);
  var.set_persistable(false);
  return var;
}

pb::OpDesc Coalesce(const FusedTensors& tensors, const std::string& buffer, bool copy, int role) {
  NewOp op;
  op.type = "coalesce_tensor";
  op.inputs = {{"Input", tensors.names}};
  op.outputs = {{"FusedOutput", {buffer}}, {"Output", tensors.names}};
  op.attrs = {{"align_size", kSliceAlignment},
              {"copy_data", copy},
              {"dtype", static_cast<int>(tensors.dtype)},
              {"use_align", true}};
  if (!copy) {
    // Paddle lays out tensors that hold nothing yet by these.
    std::vector<int64_t> shapes, ranks;
    for (const Dims& dims : tensors.dims) {
      shapes.insert(shapes.end(), dims.begin(), dims.end());
      ranks.push_back(static_cast<int64_t>(dims.size()));
    }
    op.attrs.push_back({"concated_ranks", ranks});
    op.attrs.push_back({"concated_shapes", shapes});
  }
  op.role = role;
  return BuildOp(op, Dialect::kWeft);
}

}  // namespace weft
