#include "executor/files/npy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"

namespace weft {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kAlignment = 64;

struct DescrOf {
  absl::string_view descr;
  DType dtype;
};
constexpr DescrOf kDescrs[] = {
    {"|b1", DType::kBool},    {"|i1", DType::kInt8},    {"|u1", DType::kUint8},
    {"<i2", DType::kInt16},   {"<i4", DType::kInt32},   {"<i8", DType::kInt64},
    {"<f2", DType::kFloat16}, {"<f4", DType::kFloat32}, {"<f8", DType::kFloat64},
};

absl::Status BadHeader(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("bad .npy header: ", what));
}

constexpr size_t kVersionEnd = 8;  // magic and version

size_t LengthBytes(int version) { return version == 1 ? 2 : 4; }

uint32_t LittleEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Reads the Python dictionary literal of a header, e.g.
// {'descr': '<f4', 'fortran_order': False, 'shape': (20, 13), }
class DictReader {
 public:
  explicit DictReader(absl::string_view text) : rest_(text) {}

  bool Consume(absl::string_view token) {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    return absl::ConsumePrefix(&rest_, token);
  }
  absl::string_view rest() const { return rest_; }

  absl::optional<absl::string_view> String() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return absl::nullopt;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == absl::string_view::npos) return absl::nullopt;
    const absl::string_view value = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return value;
  }

  absl::optional<bool> Bool() {
    if (Consume("True")) return true;
    if (Consume("False")) return false;
    return absl::nullopt;
  }

  absl::optional<Dims> Tuple() {
    if (!Consume("(")) return absl::nullopt;
    Dims dims;
    while (!Consume(")")) {
      const absl::optional<int64_t> dim = Int();
      if (!dim) return absl::nullopt;
      dims.push_back(*dim);
      if (Consume(",")) continue;
      if (Consume(")")) break;
      return absl::nullopt;
    }
    return dims;
  }

 private:
  absl::optional<int64_t> Int() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    size_t digits = 0;
    while (digits < rest_.size() && absl::ascii_isdigit(rest_[digits])) ++digits;
    int64_t value = 0;
    if (!absl::SimpleAtoi(rest_.substr(0, digits), &value)) return absl::nullopt;
    rest_.remove_prefix(digits);
    Consume("L");  // Python 2 wrote long integers with this suffix
    return value;
  }

  absl::string_view rest_;
};

struct Fields {
  absl::optional<absl::string_view> descr;
  absl::optional<bool> fortran_order;
  absl::optional<Dims> shape;
};

absl::StatusOr<Fields> ParseFields(absl::string_view text) {
  DictReader reader(text);
  Fields fields;
  if (!reader.Consume("{")) return BadHeader("not a dictionary");
  while (!reader.Consume("}")) {
    const absl::optional<absl::string_view> key = reader.String();
    if (!key || !reader.Consume(":")) return BadHeader("not a dictionary");
    bool parsed = false;
    if (*key == "descr") {
      parsed = (fields.descr = reader.String()).has_value();
      if (!parsed) return BadHeader("element type is a structure; expected a plain number");
    } else if (*key == "fortran_order") {
      parsed = (fields.fortran_order = reader.Bool()).has_value();
    } else if (*key == "shape") {
      parsed = (fields.shape = reader.Tuple()).has_value();
    }
    if (!parsed) return BadHeader(absl::StrCat("key '", absl::CHexEscape(*key), "'"));
    if (reader.Consume(",")) continue;
    if (reader.Consume("}")) break;
    return BadHeader("not a dictionary");
  }
  if (!fields.descr || !fields.fortran_order || !fields.shape) {
    return BadHeader("expected the keys 'descr', 'fortran_order' and 'shape'");
  }
  return fields;
}

absl::StatusOr<DType> ParseDescr(absl::string_view descr) {
  std::string expected;
  for (const DescrOf& known : kDescrs) {
    if (known.descr == descr) return known.dtype;
    absl::StrAppend(&expected, " ", known.descr);
  }
  return absl::InvalidArgumentError(absl::StrCat("element type '", absl::CHexEscape(descr),
                                                 "' is not supported; expected one of", expected));
}

}  // namespace

absl::StatusOr<size_t> NpyHeaderBytes(absl::string_view prefix) {
  if (!absl::StartsWith(prefix, kMagic)) {
    return absl::InvalidArgumentError("not .npy data: it does not start with \\x93NUMPY");
  }
  if (prefix.size() < kNpyPrefixBytes) return BadHeader("truncated");
  const int version = static_cast<uint8_t>(prefix[6]);
  if (version < 1 || version > 3) {
    return BadHeader(absl::StrCat("version ", version, "; expected 1, 2 or 3"));
  }
  const size_t length_bytes = LengthBytes(version);
  const size_t length = LittleEndian(prefix.substr(kVersionEnd, length_bytes));
  const size_t header_bytes = kVersionEnd + length_bytes + length;
  if (header_bytes < kNpyPrefixBytes || header_bytes > kMaxNpyHeaderBytes) {
    return BadHeader(absl::StrCat("its length is ", length, " bytes"));
  }
  return header_bytes;
}

absl::StatusOr<size_t> ArrayBytes(DType dtype, const Dims& dims) {
  // Without zeros, so that no partial product overflows either.
  Dims sizes = dims;
  std::replace(sizes.begin(), sizes.end(), int64_t{0}, int64_t{1});
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  if (NumElements(sizes) >= std::numeric_limits<int64_t>::max() / size) {
    return absl::InvalidArgumentError(absl::StrCat("shape ", DimsToString(dims), " is too large"));
  }
  return NumElements(dims) * size;
}

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(const size_t header_bytes,
                        NpyHeaderBytes(bytes.substr(0, kNpyPrefixBytes)));
  if (bytes.size() < header_bytes) return BadHeader("truncated");
  const size_t dict = kVersionEnd + LengthBytes(static_cast<uint8_t>(bytes[6]));
  WEFT_ASSIGN_OR_RETURN(Fields fields, ParseFields(bytes.substr(dict, header_bytes - dict)));
  NpyHeader header;
  header.header_bytes = header_bytes;
  WEFT_ASSIGN_OR_RETURN(header.dtype, ParseDescr(*fields.descr));
  header.dims = *std::move(fields.shape);
  header.is_fortran_order = *fields.fortran_order && header.dims.size() > 1;
  WEFT_ASSIGN_OR_RETURN(header.data_bytes, ArrayBytes(header.dtype, header.dims));
  return header;
}

void CopyFromFortranOrder(const char* from, const Dims& dims, size_t element_bytes, char* to) {
  const int64_t size = NumElements(dims);
  std::vector<int64_t> strides(dims.size(), 1), index(dims.size(), 0);
  for (size_t d = 1; d < dims.size(); ++d) strides[d] = strides[d - 1] * dims[d - 1];
  int64_t source = 0;
  for (int64_t i = 0; i < size; ++i) {
    std::memcpy(to + i * element_bytes, from + source * element_bytes, element_bytes);
    for (size_t d = dims.size(); d-- > 0;) {  // the next index
      source += strides[d];
      if (++index[d] < dims[d]) break;
      source -= strides[d] * dims[d];
      index[d] = 0;
    }
  }
}

absl::StatusOr<std::string> NpyHeaderFor(DType dtype, const Dims& dims) {
  absl::string_view descr;
  for (const DescrOf& known : kDescrs) {
    if (known.dtype == dtype) descr = known.descr;
  }
  if (descr.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("NumPy has no element type for ", DTypeName(dtype)));
  }
  const std::string dict =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(dims, ", "), dims.size() == 1 ? ",), }" : "), }");

  // Padded with spaces to a multiple of 64 bytes; the last byte is a newline.
  size_t prefix = 10;
  int version = 1;
  auto padded = [&] {
    return (prefix + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  };
  if (padded() - prefix > std::numeric_limits<uint16_t>::max()) {
    prefix = 12;
    version = 2;
  }
  const size_t total = padded();
  const size_t length = total - prefix;
  std::string header(kMagic);
  header.push_back(static_cast<char>(version));
  header.push_back('\0');
  for (size_t i = 0; i < prefix - 8; ++i) header.push_back(static_cast<char>(length >> (8 * i)));
  header += dict;
  header.resize(total - 1, ' ');
  header.push_back('\n');
  return header;
}

}  // namespace weft
