#include "executor/feed_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/available_memory.h"
#include "base/status_macros.h"
#include "ops/analysis/type_flow.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

// A fed variable, as one rank gets it.
struct Part {
  std::string name;
  TensorType type;
};

std::string Describe(const std::vector<Part>& parts) {
  return absl::StrJoin(parts, ", ", [](std::string* out, const Part& part) {
    absl::StrAppend(out, part.name, " ", ToString(part.type));
  });
}

// Types tell what ops do in block 0 until an op runs a block: how often it does, if at all, depends
// on values.
absl::Status CheckOps(const Program& main, const std::vector<Part>& parts) {
  TypeFlow flow(main);
  for (const Part& part : parts) {
    const VarId var = main.block(0).FindVar(part.name);
    if (var.valid()) flow.Assume(var, part.type);
  }
  absl::Status status;
  flow.Run(0, [&](const TypeFlow::Step& step) {
    if (step.op.block() != 0) return false;
    if (!step.fits) status = flow.Error(step);
    return step.fits;
  });
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(), "; a rank is fed with ", Describe(parts)));
}

uint64_t Bytes(const TensorType& type) {
  return static_cast<uint64_t>(NumElements(type.dims)) * SizeOf(type.dtype);
}

}  // namespace

absl::Status CheckFeeds(const Program& main, const Plan& plan, const FeedSource& source, int nranks,
                        int64_t steps, int64_t begin_step) {
  if (!source.types) return absl::OkStatus();
  const uint64_t available = AvailableMemory();
  absl::flat_hash_set<std::string> checked;
  for (int64_t i = 0; i < std::min(steps, source.num_steps); ++i) {
    const int64_t step = begin_step + i;
    WEFT_ASSIGN_OR_RETURN(const std::vector<TensorType> types, source.types(step));
    std::vector<Part> parts;
    uint64_t bytes = 0;
    for (size_t v = 0; v < types.size(); ++v) {
      const Plan::Variable& variable = plan.variables()[plan.FindVariable(source.variables[v])];
      parts.push_back({variable.name, types[v]});
      parts.back().type.dims = PartDims(variable, types[v].dims, nranks);
      bytes += Bytes(types[v]) + nranks * Bytes(parts.back().type);
    }
    if (!checked.insert(Describe(parts)).second) continue;
    absl::Status status =
        CheckFitsMemory("the batch, with the parts of the ranks,", bytes, available);
    if (status.ok()) status = CheckOps(main, parts);
    if (!status.ok()) {
      return Annotate(source.name.empty() ? absl::StrCat("step ", step)
                                          : absl::StrCat(source.name, ": step ", step),
                      status);
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
