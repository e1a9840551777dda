#include "proto/formats/pir/losses.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "proto/formats/pir/attributes.h"
#include "proto/formats/pir/dataflow.h"
#include "proto/formats/pir/op_table.h"

namespace weft::pir {
namespace {

absl::StatusOr<bool> FillsOneElementWithOne(const Document& document, uint32_t i) {
  if (document.op(i).name != "1.full_like" || document.op(i).num_operands != 2 ||
      document.op(i).num_results != 1 || MakerOf(document, OperandOf(document, i, 0)) == kNoOp ||
      MakerName(document, OperandOf(document, i, 1)) != "1.full") {
    return false;
  }
  const absl::StatusOr<double> value = ConstantOf(document, OperandOf(document, i, 1));
  const absl::StatusOr<ValueType> type = ReadType(document.value(document.op(i).first_result).type);
  for (const absl::Status& status : {value.status(), type.status()}) {
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(document.DebugName(i), ": ", status.message()));
    }
  }
  return *value == 1.0 && type->kind == ValueType::Kind::kTensor &&
         std::all_of(type->dims.begin(), type->dims.end(), [](int64_t d) { return d == 1; });
}

// Whether op i, which reads it, makes a seed the gradient of a loss.
absl::StatusOr<bool> Confirms(const Document& document, uint32_t i, uint32_t seed) {
  const absl::string_view made_by = BaseName(MakerName(document, OperandOf(document, seed, 0)));
  const absl::string_view reader = BaseName(document.op(i).name);
  if (IsGradientOp(document.op(i).name)) return absl::StripSuffix(reader, "_grad") == made_by;
  if (made_by == "add_n") return IsScaleByOne(document, i);
  return IsLinear(reader) && reader == made_by;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> FindSeeds(const Document& document) {
  absl::flat_hash_map<ValueIndex, uint32_t> candidates;  // value: its 1.full_like
  std::vector<uint32_t> seeds;
  for (uint32_t i = 0; i < document.ops().size(); ++i) {
    const DocumentOp& op = document.op(i);
    WEFT_ASSIGN_OR_RETURN(const bool is_candidate, FillsOneElementWithOne(document, i));
    if (is_candidate) {
      candidates.emplace(op.first_result, i);
      continue;
    }
    if (candidates.empty()) continue;
    for (const Operand& operand : document.operands(op)) {
      const auto found = candidates.find(operand.value);
      if (found == candidates.end()) continue;
      const uint32_t seed = found->second;
      WEFT_ASSIGN_OR_RETURN(const bool is_loss, Confirms(document, i, seed));
      if (is_loss) seeds.push_back(seed);
      if (IsLinear(BaseName(op.name)) && op.num_results == 1) {
        candidates.emplace(op.first_result, seed);
      }
      break;
    }
  }
  std::sort(seeds.begin(), seeds.end());
  seeds.erase(std::unique(seeds.begin(), seeds.end()), seeds.end());
  std::vector<ValueIndex> losses;
  for (const uint32_t seed : seeds) losses.push_back(OperandOf(document, seed, 0));
  const std::vector<bool> needed = NeededFor(document, losses);
  const auto is_inner = [&](uint32_t seed) { return needed[document.op(seed).first_result]; };
  seeds.erase(std::remove_if(seeds.begin(), seeds.end(), is_inner), seeds.end());
  return seeds;
}

bool IsLinear(absl::string_view base_name) {
  return base_name == "scale" || base_name == "cast" || base_name == "assign" ||
         base_name == "all_reduce" || base_name == "print";
}

absl::StatusOr<bool> IsScaleByOne(const Document& document, uint32_t i) {
  const ValueIndex factor = OperandOf(document, i, 1);
  if (BaseName(document.op(i).name) != "scale" || MakerName(document, factor) != "1.full") {
    return false;
  }
  WEFT_ASSIGN_OR_RETURN(const double number, ConstantOf(document, factor));
  return number == 1.0;
}

}  // namespace weft::pir
