#include "proto/formats/pir/attribute_json.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace weft::pir {
namespace {

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace

std::string AttrJson(absl::string_view name, absl::string_view kind, absl::string_view data) {
  return absl::StrCat(R"({"AT":{"#":")", kind, R"(","D":)", data, R"(},"N":")", name, R"("})");
}

std::string IntJson(absl::string_view name, int64_t value) {
  return AttrJson(name, "0.a_i32", absl::StrCat(value));
}

std::string NumberJson(absl::string_view name, absl::string_view kind, double value) {
  if (std::isfinite(value)) return AttrJson(name, kind, Decimal(value));
  const absl::string_view text = std::isnan(value) ? "NaN" : value > 0 ? "INF" : "-INF";
  return absl::StrCat(R"({"AT":{"#":")", kind, R"(","VD":")", text, R"("},"N":")", name, R"("})");
}

std::string FloatJson(absl::string_view name, double value) {
  return NumberJson(name, "0.a_f32", value);
}

std::string BoolJson(absl::string_view name, bool value) {
  return AttrJson(name, "0.a_bool", value ? "true" : "false");
}

std::string StringJson(absl::string_view name, absl::string_view value) {
  return AttrJson(name, "0.a_str", Quoted(value));
}

std::string FlagsJson(const std::vector<bool>& flags) {
  const auto append = [](std::string* out, bool flag) {
    absl::StrAppend(out, R"({"#":"0.a_bool","D":)", flag ? "true" : "false", "}");
  };
  return absl::StrCat("[", absl::StrJoin(flags, ",", append), "]");
}

std::string IntegersJson(absl::Span<const int64_t> values) {
  const auto append = [](std::string* out, int64_t value) {
    absl::StrAppend(out, R"({"#":"0.a_i64","D":)", value, "}");
  };
  return absl::StrCat("[", absl::StrJoin(values, ",", append), "]");
}

std::string ShapeJson(absl::Span<const int64_t> dims) {
  return AttrJson("shape", "1.a_intarray", absl::StrCat("[", absl::StrJoin(dims, ","), "]"));
}

std::string DTypeJson(absl::string_view name) {
  return AttrJson("dtype", "1.a_dtype", Quoted(name));
}

std::string HostJson() { return AttrJson("place", "1.a_place", R"([1,0,""])"); }
std::string AnyPlaceJson() { return AttrJson("place", "1.a_place", R"([0,0,""])"); }

std::string Decimal(double value) {
  std::string text;
  for (int digits = 15; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    double back;
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace weft::pir
