// What one rank runs, as decoded messages: for tests that change programs by hand, or look at them
// without the library's own views.
#ifndef WEFT_TESTS_SUPPORT_PROGRAM_DESCS_H_
#define WEFT_TESTS_SUPPORT_PROGRAM_DESCS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/framework.pb.h"

namespace weft::testing {

namespace pb = ::paddle::framework::proto;

struct ProgramDescs {
  pb::ProgramDesc main;
  pb::ProgramDesc startup;
};

// nullptr where the op has no attribute of that name.
const pb::OpDesc::Attr* FindAttr(const pb::OpDesc& op, absl::string_view name);
// 0 for one that is missing or no number.
double NumberOf(const pb::OpDesc& op, absl::string_view name);
void SetInt(pb::OpDesc* op, absl::string_view name, int value);
void SetFloat(pb::OpDesc* op, absl::string_view name, float value);

// Arguments of a slot; none where there is no such slot.
std::vector<std::string> ArgsOf(const google::protobuf::RepeatedPtrField<pb::OpDesc::Var>& slots,
                                absl::string_view slot);
// Replaces them; adds the slot where it is missing.
void SetArgs(const std::vector<std::string>& args, const std::string& slot,
             google::protobuf::RepeatedPtrField<pb::OpDesc::Var>* slots);

// The block that an op runs; -1: none.
int SubBlockOf(const pb::OpDesc& op);

// The declaration in the block or the nearest block around it; nullptr: there is none.
const pb::VarDesc* FindVar(const pb::ProgramDesc& program, int block, absl::string_view name);
pb::VarDesc* FindVar(pb::ProgramDesc* program, int block, absl::string_view name);

// Of a dense tensor or SelectedRows; nullptr for other types.
const pb::VarType::TensorDesc* TensorOf(const pb::VarDesc& var);
pb::VarType::TensorDesc* MutableTensorOf(pb::VarDesc* var);
// "fp32[2, 3]", "rows fp32[2, 3]"; "" for what is no tensor.
std::string TypeText(const pb::VarDesc& var);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_PROGRAM_DESCS_H_
