#include "tools/inspect/op_name.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

// Takes a number from the head of the text.
bool TakeNumber(absl::string_view* text, uint32_t* number) {
  size_t digits = 0;
  while (digits < text->size() && absl::ascii_isdigit((*text)[digits])) ++digits;
  if (!absl::SimpleAtoi(text->substr(0, digits), number)) return false;
  text->remove_prefix(digits);
  return true;
}

}  // namespace

OpId FindNamedOp(const Program& program, absl::string_view name) {
  uint32_t block = 0, position = 0;
  if (absl::ConsumePrefix(&name, "block ") &&
      !(TakeNumber(&name, &block) && absl::ConsumePrefix(&name, ", "))) {
    return OpId();
  }
  if (!absl::ConsumePrefix(&name, "op ") || !TakeNumber(&name, &position)) return OpId();
  if (block >= static_cast<uint32_t>(program.num_blocks())) return OpId();
  const absl::Span<const OpId> ops = program.block(static_cast<int>(block)).ops();
  if (position >= ops.size() || !absl::ConsumePrefix(&name, " (")) return OpId();
  const absl::string_view type = program.op(ops[position]).type();
  const bool is_this = absl::ConsumePrefix(&name, type) && absl::StartsWith(name, ")");
  return is_this ? ops[position] : OpId();
}

}  // namespace weft
