// Ops and variables as Paddle's transpiler classes write them.
#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_OPS_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_OPS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Each works on `var` in place, under role `role`.
pb::OpDesc PaddleSyncCalc(const std::string& var, int role);
pb::OpDesc PaddleSyncComm(const std::string& var, int ring, int role);
pb::OpDesc PaddleAllReduceSum(const std::string& var, int ring, int role);
pb::OpDesc PaddleScale(const std::string& var, double factor, int role);
pb::OpDesc PaddleAssign(const std::string& from, const std::string& to, int role);

// A dense tensor that no gradient flows to, and that does not outlive a step.
pb::VarDesc PaddleTensorVar(const std::string& name, const pb::VarType::TensorDesc& tensor);

// Element type and dimensions of a variable of the root block. InvalidArgument where it is not
// declared there, or is no tensor; the second form names the op that it is about.
absl::StatusOr<pb::VarType::TensorDesc> TensorOfVar(const Program& program,
                                                    const std::string& name);
absl::StatusOr<pb::VarType::TensorDesc> TensorOfVar(const Op& op, const std::string& name);

// The number of trainers. InvalidArgument where it is not known.
absl::StatusOr<int> PaddleTrainers(const PassContext& context);
// How many devices a trainer drives: as given, else `if_not_given`, the default of the class.
int PaddleDevices(const PassContext& context, int if_not_given);

// InvalidArgument where the devices of a trainer are not given.
absl::Status RequireDevices(const PassContext& context);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_OPS_H_
