// Ops that passes insert, as ops of a PIR file.
#ifndef WEFT_PROTO_PIR_NEW_OP_H_
#define WEFT_PROTO_PIR_NEW_OP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/program.h"

namespace weft::pir {

enum class NewOpKind {
  kNone,     // has no form in PIR
  kLeftOut,  // orders streams or sets up communicators
  kBuffer,   // coalesce_tensor
  kWritten,  // NewOps::Translate knows it
};
NewOpKind KindOf(absl::string_view type);

// A value that an op reads.
struct NewOpInput {
  Symbol var;
  int64_t id;
  std::string type;  // JSON
};

struct NewOp {
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

  // An op of kind kWritten, after the constants and lists that it reads. The last op has the
  // results, one for each output. `stream`: on which it runs; empty: that of computation.
  absl::StatusOr<std::vector<NewOp>> Translate(const Op& op, absl::Span<const NewOpInput> inputs,
                                               absl::string_view stream, bool in_place);

  // One tensor of all elements, in order; the last op has it as its result.
  absl::StatusOr<std::vector<NewOp>> Concatenate(absl::Span<const NewOpInput> parts);
  // The parts again, from value `id`, in `ids`. Parts have the types of `parts`.
  absl::StatusOr<std::vector<NewOp>> Split(int64_t id, absl::Span<const NewOpInput> parts,
                                           std::vector<int64_t>* ids);

 private:
  // Equal parts, as results of the last op.
  absl::StatusOr<std::vector<NewOp>> SplitEqually(const Op& op, const NewOpInput& input);
  absl::StatusOr<NewOp> Constant(double value, absl::string_view dtype);
  absl::StatusOr<NewOp> Integers(absl::Span<const int64_t> values);
  absl::StatusOr<int64_t> Reshape(int64_t id, absl::Span<const int64_t> dims, std::string type,
                                  std::vector<NewOp>* ops);

  int64_t max_id_;
};

}  // namespace weft::pir

#endif  // WEFT_PROTO_PIR_NEW_OP_H_
