#include "executor/run/run_buffers.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "executor/plan/startup_buffers.h"
#include "ops/analysis/core/startup_buffers.h"
#include "ops/schema/tensor_type.h"

namespace weft {

absl::Status PrepareBuffers(RunJob* job) {
  const RunInputs& inputs = job->inputs;
  // A checkpoint of an earlier version does not say them.
  if (inputs.resume != nullptr && !inputs.resume->buffers.empty()) {
    job->buffers = inputs.resume->buffers;
  } else if (inputs.startup != nullptr) {
    job->buffers = FindStartupBuffers(*inputs.startup);
  }
  job->buffer_uses = FindStartupBufferUses(*inputs.main, job->buffers);
  job->buffers_share_memory = !job->main_plan->on_two_devices && job->options.sim.memory_bytes == 0;
  for (size_t b = 0; b < job->buffers.size(); ++b) {
    const StartupBufferUse& use = job->buffer_uses[b];
    const auto fail = [](const std::string& what, absl::string_view why) {
      return absl::FailedPreconditionError(absl::StrCat(
          what, "; expected them in one memory, on one device without parameter servers, found ",
          why));
    };
    const bool shares = job->buffers_share_memory && !use.moves_parts;
    if (!use.conflict.empty() && !shares) {
      return fail(use.conflict, use.moves_parts ? "a coalesce_tensor that moves parts elsewhere"
                                                : "a program in two memories");
    }
    for (const StartupBuffer::Part& part : job->buffers[b].parts) {
      if (!job->IsOfServers(part.name) || !(use.reads_copy || use.writes_buffer)) continue;
      return fail(absl::StrCat("the main program uses ", job->buffers[b].name,
                               ", of which the startup program makes ", part.name, " a part"),
                  absl::StrCat(part.name, " on parameter servers"));
    }
  }
  return absl::OkStatus();
}

bool FetchesBuffers(const RunJob& job) {
  return absl::c_any_of(job.buffers, [&job](const StartupBuffer& buffer) {
    return absl::c_linear_search(job.fetch_names, buffer.name) ||
           absl::c_any_of(buffer.parts, [&job](const StartupBuffer::Part& part) {
             return absl::c_linear_search(job.fetch_names, part.name);
           });
  });
}

absl::Status FindParamsOfBuffers(RunJob* job, NameSet* holds_value) {
  WEFT_ASSIGN_OR_RETURN(auto parts, PartsOfGivenBuffers(job->buffers, *job->inputs.params));
  for (auto& [name, tensor] : parts) {
    const Program& of = job->IsOfServers(name) ? *job->inputs.server : *job->inputs.main;
    const VarId var = of.block(0).FindVar(name);
    if (!var.valid()) continue;
    const absl::optional<TensorType> declared = DeclaredType(of.var(var));
    if (declared.has_value() && NumElements(declared->dims) == tensor.size()) {
      tensor.Reshape(declared->dims);
    }
    WEFT_RETURN_IF_ERROR(CheckParam(of, name, {tensor.dtype(), tensor.dims()}));
    holds_value->insert(name);
    job->params_of_buffers[name] = std::move(tensor);
  }
  return absl::OkStatus();
}

absl::Status FillServedBuffers(const RunJob& job, std::map<std::string, Tensor>* values) {
  for (const StartupBuffer& buffer : job.buffers) {
    const bool is_served = absl::c_any_of(buffer.parts, [&job](const StartupBuffer::Part& part) {
      return job.IsOfServers(part.name);
    });
    const auto whole = values->find(buffer.name);
    if (!is_served || whole == values->end()) continue;
    whole->second = whole->second.Clone();
    WEFT_RETURN_IF_ERROR(CopyStartupBuffer(buffer, /*from_buffer=*/false, [&](const auto& name) {
      const auto found = values->find(name);
      return found == values->end() ? nullptr : &found->second;
    }));
  }
  return absl::OkStatus();
}

}  // namespace weft
