// Changes to an op as a message, for Rewriter::Replace.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_OP_EDITS_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_OP_EDITS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// Set the variables of a slot. A slot that the op does not have is added. O(slots).
void SetInput(pb::OpDesc* op, absl::string_view slot, const std::vector<std::string>& variables);
void SetOutput(pb::OpDesc* op, absl::string_view slot, const std::vector<std::string>& variables);

// Set an attribute, which has the type of the value, or is new. O(attributes).
void SetBoolAttr(pb::OpDesc* op, absl::string_view name, bool value);
void SetIntAttr(pb::OpDesc* op, absl::string_view name, int value);
void SetFloatAttr(pb::OpDesc* op, absl::string_view name, float value);
void SetStringAttr(pb::OpDesc* op, absl::string_view name, absl::string_view value);
void SetStringsAttr(pb::OpDesc* op, absl::string_view name, const std::vector<std::string>& values);

// Adds an attribute, which the op must not have, at its place in the order of names.
void AddAttr(absl::string_view name, const AttrValue& value, pb::OpDesc* op);

// Says that the op runs on the host: attribute op_device.
void SetOnHost(pb::OpDesc* op);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_OP_EDITS_H_
