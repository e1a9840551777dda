// Programs without what writers need not agree on, for comparing them in tests.
#ifndef WEFT_PROTO_TESTING_NORMALIZE_H_
#define WEFT_PROTO_TESTING_NORMALIZE_H_

#include "proto/framework.pb.h"

namespace weft::testing {

// Removes the attributes op_callstack, op_namescope, op_device and with_quant_attr of all ops.
void RemoveBookkeeping(paddle::framework::proto::ProgramDesc* program);
// Sorts the attributes of each op by name.
void SortAttributes(paddle::framework::proto::ProgramDesc* program);
// Clears flags and levels that are written with their default values.
void ClearWrittenDefaults(paddle::framework::proto::ProgramDesc* program);

}  // namespace weft::testing

#endif  // WEFT_PROTO_TESTING_NORMALIZE_H_
