#include "transpiler/verify/verify_example.h"

#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "proto/program.h"
#include "proto/program_text.h"
#include "transpiler/verify/verify.h"

namespace weft {
namespace {

absl::StatusOr<absl::optional<Program>> Parse(const char* text) {
  if (text == nullptr) return absl::nullopt;
  WEFT_ASSIGN_OR_RETURN(Program program, ParseProgramText(text));
  return absl::make_optional(std::move(program));
}

// Null where there is none.
const Program* Pointer(const absl::optional<Program>& program) {
  return program.has_value() ? &*program : nullptr;
}

}  // namespace

absl::StatusOr<Findings> VerifyExample(const Rule& rule) {
  WEFT_ASSIGN_OR_RETURN(const auto main, Parse(rule.example));
  WEFT_ASSIGN_OR_RETURN(const auto startup, Parse(rule.startup));
  WEFT_ASSIGN_OR_RETURN(const auto original, Parse(rule.original));
  WEFT_ASSIGN_OR_RETURN(const auto original_startup, Parse(rule.original_startup));
  WEFT_ASSIGN_OR_RETURN(const auto rank1, Parse(rule.rank1));
  WEFT_ASSIGN_OR_RETURN(const auto rank1_startup, Parse(rule.rank1_startup));

  VerifyOptions options;
  options.nranks = 2;
  options.original = {Pointer(original), Pointer(original_startup)};
  std::vector<RankPrograms> ranks = {{Pointer(main), Pointer(startup)}};
  if (rule.ranks_differ()) {
    ranks.push_back({Pointer(rank1.has_value() ? rank1 : main),
                     Pointer(rank1_startup.has_value() ? rank1_startup : startup)});
  }
  return Verify(ranks, options);
}

}  // namespace weft
