// Ops that passes insert, as ops of a PIR file.
#ifndef WEFT_PROTO_FORMATS_PIR_NEW_OP_H_
#define WEFT_PROTO_FORMATS_PIR_NEW_OP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/framework.pb.h"
#include "proto/program.h"

namespace weft::pir {

namespace pb = ::paddle::framework::proto;

enum class NewOpKind {
  kNone,     // has no form in PIR
  kLeftOut,  // orders streams or sets up communicators
  kBuffer,   // coalesce_tensor
  kBranch,   // conditional_block
  kWritten,  // NewOps::Translate knows it
};
NewOpKind KindOf(absl::string_view type);

// A value that an op reads.
struct NewOpInput {
  Symbol var;
  int64_t id;
  absl::string_view type;  // JSON
};

// The variable that an op writes, before it.
struct NewOpOutput {
  // Paddle keeps the variable, whatever values are made from it: what writes it does so in place.
  bool is_bound = false;
  // Of bound ones.
  int64_t id = 0;
  std::string type;  // JSON
  // A startup program makes a variable that outlives it.
  bool is_persistable = false;
};

struct NewOp {
  std::string name;
  std::string json;
  std::vector<int64_t> results;
  std::vector<std::string> types;  // of the results
};

// Writes ops, whose results get ids above those of the file.
class NewOps {
 public:
  explicit NewOps(int64_t max_id) : max_id_(max_id) {}

  // `attrs` are JSON. OutOfRange if the ids are used up.
  absl::StatusOr<NewOp> Make(absl::string_view name, absl::Span<const int64_t> operands,
                             absl::Span<const std::string> attrs, std::vector<std::string> types,
                             bool is_persistable = false);

  // Zeros in a tensor of that type (JSON), which ops write in place.
  absl::StatusOr<NewOp> Zeros(absl::string_view type);

  // An op of kind kWritten, after the constants and lists that it reads. The last op has the
  // results, one for each output; `output` is the only one, or not bound. `stream`: on which it
  // runs; empty: that of computation.
  absl::StatusOr<std::vector<NewOp>> Translate(const Op& op, absl::Span<const NewOpInput> inputs,
                                               const NewOpOutput& output, absl::string_view stream);

  // Takes an op that is ready: a buffer may have many thousands.
  using Take = absl::FunctionRef<absl::Status(const NewOp&)>;
  // One tensor of all elements, in order. Returns the last op, which has it as its result.
  absl::StatusOr<NewOp> Concatenate(absl::Span<const NewOpInput> parts, Take take);
  // The parts again, from value `id`; returns their ids. Parts have the types of `parts`.
  absl::StatusOr<std::vector<int64_t>> Split(int64_t id, absl::Span<const NewOpInput> parts,
                                             Take take);

 private:
  // What is written for an op: those that make its constants and lists, and itself.
  struct Form {
    std::vector<NewOp> before;
    std::string name;
    std::vector<int64_t> operands;
    std::vector<std::string> attrs;  // JSON
    std::string type;                // of the result
  };
  absl::Status AddScale(const Op& op, Form* form);
  static absl::Status AddCollective(const Op& op, Form* form);
  static absl::Status AddCast(const Op& op, Form* form);
  absl::Status AddClip(const Op& op, Form* form);
  absl::Status AddSlice(const Op& op, Form* form);
  absl::Status AddDraw(const Op& op, Form* form);
  static absl::Status AddProduct(const Op& op, absl::Span<const NewOpInput> inputs, Form* form);
  absl::Status AddSum(absl::Span<const NewOpInput> inputs, Form* form);
  absl::StatusOr<NewOp> Fill(const Op& op, bool is_persistable);

  // Q and R of a matrix.
  absl::StatusOr<std::vector<NewOp>> Factors(const Op& op, const NewOpInput& input);
  // Equal parts, as results of the last op.
  absl::StatusOr<std::vector<NewOp>> SplitEqually(const Op& op, const NewOpInput& input);
  // A tensor of one value, in place `place` (proto/formats/pir/attribute_json.h).
  absl::StatusOr<NewOp> Full(absl::Span<const int64_t> dims, double value, pb::VarType::Type dtype,
                             const std::string& place, bool is_persistable);
  // One number, that an op takes as an attribute.
  absl::StatusOr<NewOp> Constant(double value, pb::VarType::Type dtype);
  absl::StatusOr<NewOp> Integers(absl::Span<const int64_t> values);
  absl::StatusOr<int64_t> Reshape(int64_t id, absl::Span<const int64_t> dims, std::string type,
                                  Take take);

  int64_t max_id_;
};

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_NEW_OP_H_
