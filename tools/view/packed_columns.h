// Columns of numbers and strings in few bytes, for a page that unpacks them (data.js).
#ifndef WEFT_TOOLS_VIEW_PACKED_COLUMNS_H_
#define WEFT_TOOLS_VIEW_PACKED_COLUMNS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace weft {

// Packs a header and columns:
//
//   size of the header   4 bytes, little endian
//   header               JSON: what Pack gets, and "columns": a list of {"name", "kind", "count",
//                        "size"}, where size counts bytes
//   the columns          one after the other, in that order
//
// A column of kind "integers" has, for each number, its difference from the one before, the first
// from 0: as zigzag, in LEB128. A column of kind "strings" has the lengths in LEB128, then the
// bytes. All of it is compressed as zlib does. Equal calls give equal bytes. O(bytes).
class PackedColumns {
 public:
  // Numbers from -2^52 to 2^52, which are exact in a page.
  void AddIntegers(const std::string& name, size_t count, absl::FunctionRef<int64_t(size_t)> at);
  void AddStrings(const std::string& name, size_t count,
                  absl::FunctionRef<absl::string_view(size_t)> at);

  // `header` must not have "columns". Internal if zlib fails.
  absl::StatusOr<std::string> Pack(nlohmann::ordered_json header) const;

 private:
  void Finish(const std::string& name, const char* kind, size_t count, size_t begin);

  nlohmann::ordered_json directory_ = nlohmann::ordered_json::array();
  std::string bytes_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_VIEW_PACKED_COLUMNS_H_
