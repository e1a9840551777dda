// What later ops of a file say about values: their names, their lists, whether they become
// attributes.
#ifndef WEFT_PROTO_FORMATS_PIR_SURVEY_H_
#define WEFT_PROTO_FORMATS_PIR_SURVEY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/op_table.h"

namespace weft::pir {

// Control flow: an op with two blocks, one with one, and what ends these.
inline constexpr absl::string_view kIf = "1.if", kWhile = "1.while", kYield = "2.yield";

struct Survey {
  // By block of the file: its number in the program. A branch without ops is none.
  static constexpr int kNoBlock = -1;
  std::vector<int> block_number;
  // Of constants (IsConstant): some op reads it as a tensor, or none as an attribute.
  std::vector<bool> is_kept;  // by op
  // A 1.coalesce_tensor that copies what nobody reads, which layers of recurrent networks write,
  // and what takes its list apart.
  std::vector<bool> is_unused;  // by op
  // The 0.split that takes a list apart.
  absl::flat_hash_map<ValueIndex, uint32_t> split_of;
  // Of a startup program: under which name a value is made.
  absl::flat_hash_map<ValueIndex, std::string> name_of_value;
};

// O(bytes of operands and constants).
absl::StatusOr<Survey> SurveyOf(const Document& document);

// Whether the table's rule fits an op: constants where the op of ProgramDesc has attributes, lists
// where it has lists.
bool Translates(const Document& document, uint32_t op);

// Whether a value is a constant that an op of ProgramDesc has as an attribute.
bool GivesAttribute(const Document& document, const OperandRule& operand, ValueIndex value);

// 1.full, 1.full_int_array.
bool IsConstant(absl::string_view name);
// Of a sink (IsSink).
absl::StatusOr<std::string> SinkName(const Document& document, uint32_t op);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_SURVEY_H_
