#include "executor/step/placed_buffers.h"

#include "absl/algorithm/container.h"
#include "absl/types/optional.h"
#include "ops/schema/buffer_slices.h"

namespace weft {
namespace {

bool MakesBuffer(const Plan::PlanOp& op) { return op.Is<Plan::KernelWork>() && !op.reads_inputs; }

// None if the slices do not lie in the buffer as its attributes say.
absl::optional<PlacedBuffer> LayOut(const Plan::PlanOp& op, const StepTypes& types) {
  const KernelSpec& spec = op.kernel_spec;
  if (spec.attrs.Bool("set_constant") || spec.attrs.Bool("persist_output")) return absl::nullopt;
  if (absl::c_any_of(op.outputs, [&](int v) { return v < 0 || !types.variables[v].has_value(); })) {
    return absl::nullopt;
  }
  const auto output = spec.outputs.find(kPartsSlot);
  const int fused = spec.Output(kBufferSlot);
  if (output == spec.outputs.end() || fused < 0) return absl::nullopt;
  const TensorType& buffer = *types.variables[op.outputs[fused]];
  PlacedBuffer placed{{op.outputs[fused]}, {0}};
  std::vector<Dims> dims;
  std::vector<int64_t> shapes;  // the same
  for (int k = 0; k < output->second.count; ++k) {
    placed.variables.push_back(op.outputs[output->second.first + k]);
    const TensorType& slice = *types.variables[placed.variables.back()];
    if (slice.dtype != buffer.dtype) return absl::nullopt;
    dims.push_back(slice.dims);
    shapes.insert(shapes.end(), slice.dims.begin(), slice.dims.end());
  }
  const std::vector<int64_t> given = spec.attrs.Ints("concated_shapes");
  if (!given.empty() && given != shapes) return absl::nullopt;
  const SliceLayout layout = LayOutSlices(
      dims,
      SliceAlignment(spec.attrs.Bool("use_align"), spec.attrs.Int("align_size"), buffer.dtype));
  if (NumElements(buffer.dims) != layout.size) return absl::nullopt;
  int64_t elements = 0;
  for (const Dims& slice : dims) elements += NumElements(slice);
  placed.has_gaps = elements != layout.size;
  for (int64_t offset : layout.offsets) {
    placed.offsets.push_back(offset * static_cast<int64_t>(SizeOf(buffer.dtype)));
  }
  return placed;
}

}  // namespace

std::vector<PlacedBuffer> FindPlacedBuffers(const StepResources& resources,
                                            const StepTypes& types) {
  const Plan& plan = *resources.plan;
  std::vector<PlacedBuffer> found;
  std::vector<int> num_makers(plan.variables.size(), 0);
  for (const Plan::PlanOp& op : plan.ops) {
    if (!MakesBuffer(op)) continue;
    for (int v : op.outputs) {
      if (v >= 0) ++num_makers[v];
    }
  }
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const Plan::Instruction& instruction = plan.instructions[i];
    if (instruction.kind != Plan::Instruction::Kind::kRunOp) continue;
    const Plan::PlanOp& op = plan.ops[instruction.index];
    if (!MakesBuffer(op) || resources.accesses->in_block[i]) continue;
    if (!absl::c_all_of(op.outputs, [&](int v) { return v >= 0 && num_makers[v] == 1; })) continue;
    absl::optional<PlacedBuffer> buffer = LayOut(op, types);
    if (buffer.has_value()) found.push_back(*std::move(buffer));
  }
  return found;
}

}  // namespace weft
