// Ops and variables as Paddle's transpiler classes write them.
#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_OPS_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_OPS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Ops that work on `var` in place.
pb::OpDesc PaddleSyncCalc(const std::string& var, int role);
pb::OpDesc PaddleSyncComm(const std::string& var, int ring, int role);
pb::OpDesc PaddleAllReduceSum(const std::string& var, int ring, int role);
pb::OpDesc PaddleScale(const std::string& var, double factor, int role);
pb::OpDesc PaddleAssign(const std::string& from, const std::string& to, int role);

// A dense tensor that stops gradients and is not persistable.
pb::VarDesc PaddleTensorVar(const std::string& name, const pb::VarType::TensorDesc& tensor);

// Element type and dimensions of a variable of the root block. InvalidArgument if it is undeclared
// or no tensor; the second form names the op in the error.
absl::StatusOr<pb::VarType::TensorDesc> TensorOfVar(const Program& program,
                                                    const std::string& name);
absl::StatusOr<pb::VarType::TensorDesc> TensorOfVar(const Op& op, const std::string& name);

// The number of trainers. InvalidArgument if it is unknown.
absl::StatusOr<int> PaddleTrainers(const PassContext& context);
// The number of devices per trainer; without devices, the default of Paddle's class.
int PaddleDevices(const PassContext& context, int default_devices);

// InvalidArgument if the devices of a trainer are not given.
absl::Status RequireDevices(const PassContext& context);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_OPS_H_
