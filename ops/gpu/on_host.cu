#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "ops/bound_kernel.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/on_host.h"

namespace weft {

KernelFactory OnHost(absl::string_view op_type) {
  const KernelFactory* const factory = CpuKernels().Find(op_type);
  return [factory](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    if (factory == nullptr) return absl::UnimplementedError("no kernel on the host either");
    WEFT_ASSIGN_OR_RETURN(Kernel kernel, (*factory)(spec));
    Kernel on_host([kernel = std::make_shared<BoundKernel>(std::move(kernel)),
                    in = std::vector<Tensor>(),
                    out = std::vector<Tensor>()](const KernelContext& ctx) mutable -> absl::Status {
      WEFT_RETURN_IF_ERROR(Synchronize(ctx));
      in.resize(ctx.inputs.size());
      out.resize(ctx.outputs.size());
      std::vector<const Tensor*> inputs(in.size());
      std::vector<Tensor*> outputs(out.size());
      for (size_t i = 0; i < in.size(); ++i) {
        if (ctx.inputs[i] == nullptr) continue;
        WEFT_RETURN_IF_ERROR(in[i].CopyFrom(*ctx.inputs[i]));
        inputs[i] = &in[i];
      }
      for (size_t i = 0; i < out.size(); ++i) {
        if (ctx.outputs[i] != nullptr) outputs[i] = &out[i];
      }
      KernelContext host = ctx;
      host.inputs = inputs;
      host.outputs = outputs;
      host.stream = nullptr;
      WEFT_RETURN_IF_ERROR(kernel->Run(host));
      for (size_t i = 0; i < out.size(); ++i) {
        if (outputs[i] != nullptr) WEFT_RETURN_IF_ERROR(ctx.outputs[i]->CopyFrom(out[i]));
      }
      return absl::OkStatus();
    });
    on_host.uses_host = true;
    return on_host;
  };
}

}  // namespace weft
