// Attributes of ops, as a PIR file has them.
#ifndef WEFT_PROTO_FORMATS_PIR_ATTRIBUTE_JSON_H_
#define WEFT_PROTO_FORMATS_PIR_ATTRIBUTE_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::pir {

// {"AT":{"#":kind,"D":data},"N":name}. Numbers that JSON does not have are texts, under VD.
std::string AttrJson(absl::string_view name, absl::string_view kind, absl::string_view data);
std::string IntJson(absl::string_view name, int64_t value);
// A number of kind 0.a_f32 or 0.a_f64, finite or not.
std::string NumberJson(absl::string_view name, absl::string_view kind, double value);
std::string FloatJson(absl::string_view name, double value);
std::string BoolJson(absl::string_view name, bool value);
std::string StringJson(absl::string_view name, absl::string_view value);  // escapes it
// The data of an array.
std::string FlagsJson(const std::vector<bool>& flags);
std::string IntegersJson(absl::Span<const int64_t> values);
// 1.full's shape.
std::string ShapeJson(absl::Span<const int64_t> dims);
std::string DTypeJson(absl::string_view name);
// The place of constants that ops take as attributes, and that of other new values: the executor's.
std::string HostJson();
std::string AnyPlaceJson();

// The shortest decimal that reads back as the same number.
std::string Decimal(double value);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_ATTRIBUTE_JSON_H_
