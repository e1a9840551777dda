// Inference of one op, for tests.
//
//   EXPECT_THAT(Infer("mul(X: fp32[-1, 784], Y: fp32[784, 10]) -> Out", {{"x_num_col_dims", 1}}),
//               IsOkAndHolds("Out: fp32[-1, 10]"));
#ifndef WEFT_OPS_SCHEMA_INFER_TESTING_H_
#define WEFT_OPS_SCHEMA_INFER_TESTING_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/op_schema.h"
#include "proto/framework.pb.h"

namespace weft::testing {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

// The inferred types of the outputs of an op, slots in order of their names; slots of which
// nothing is known are left out. Several variables of a slot are written "X: fp32[2] | fp32[3]"
// among the inputs and "Out*2" among the outputs. "?" is a type that is not known.
absl::StatusOr<std::string> Infer(absl::string_view op,
                                  const std::vector<std::pair<std::string, AttrValue>>& attrs = {});

// An op made step by step.
class InferenceCase {
 public:
  explicit InferenceCase(const std::string& op_type);

  // Variables of those types, as ToString writes them, or "" for a type that is not known.
  // Variable i of slot X is called X_i.
  InferenceCase& In(const std::string& slot, const std::vector<std::string>& types);
  InferenceCase& Out(const std::string& slot, int count = 1);
  InferenceCase& Attr(const std::string& name, const AttrValue& value);
  // Of the writer of the program, as in Version.version.
  InferenceCase& Version(int64_t version);

  // As the function above.
  absl::StatusOr<std::string> Infer() const;

  const paddle::framework::proto::ProgramDesc& program() const { return program_; }

 private:
  void Declare(const std::string& name, const std::string& type);

  paddle::framework::proto::ProgramDesc program_;  // one block, one op
};

}  // namespace weft::testing

#endif  // WEFT_OPS_SCHEMA_INFER_TESTING_H_
