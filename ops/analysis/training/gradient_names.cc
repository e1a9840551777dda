#include "ops/analysis/training/gradient_names.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// How many names ahead of the current one are loaded into the cache.
constexpr uint32_t kAhead = 16;

// The name before the suffix; of no memory if there is no suffix.
absl::string_view Prefix(absl::string_view name, GradSuffix suffix) {
  // Most names have no '@', which is found fastest.
  size_t at = name.find(kGradSuffix[0]);
  if (at == absl::string_view::npos) return {};
  at = suffix == GradSuffix::kFirst ? name.find(kGradSuffix, at) : name.rfind(kGradSuffix);
  return at == absl::string_view::npos ? absl::string_view() : name.substr(0, at);
}

}  // namespace

Symbol DifferentiatedName(const Program& program, Symbol gradient, GradSuffix suffix) {
  const absl::string_view prefix = Prefix(program.name(gradient), suffix);
  return prefix.data() == nullptr ? Symbol() : program.FindSymbol(prefix);
}

absl::flat_hash_set<VarId> FindDifferentiated(const Program& program) {
  absl::flat_hash_set<VarId> found;
  for (const Op& op : AllOps(program)) {
    if (!IsBackward(op)) continue;
    for (const OpSignature::Slot& slot : op.signature().outputs) {
      absl::string_view name = program.name(slot.name);
      if (!absl::ConsumeSuffix(&name, kGradSuffix)) continue;
      const absl::Span<const Symbol> of = op.Input(name), gradients = op.args(slot);
      for (size_t i = 0; i < std::min(of.size(), gradients.size()); ++i) {
        if (program.name(gradients[i]) == kEmptyVarName) continue;
        const VarId var = program.block(op.block()).Resolve(of[i]);
        if (var.valid()) found.insert(var);
      }
    }
  }
  return found;
}

void GradientNames::FindAll() {
  const SymbolTable& symbols = program_.symbols();
  const auto num_symbols = static_cast<uint32_t>(symbols.size());
  differentiated_.resize(num_symbols);
  uint32_t last = 0;  // found
  const auto find = [&](absl::string_view prefix) {
    // Most programs declare gradients in the opposite order of their variables, some in the same.
    for (uint32_t next : {last - 1, last + 1}) {
      if (next < num_symbols && symbols.name(Symbol(next)) == prefix) return Symbol(next);
    }
    return symbols.Find(prefix);
  };
  for (uint32_t i = 0; i < num_symbols; ++i) {
    if (i + kAhead < num_symbols) __builtin_prefetch(symbols.name(Symbol(i + kAhead)).data());
    const absl::string_view prefix = Prefix(symbols.name(Symbol(i)), suffix_);
    if (prefix.data() == nullptr) continue;
    const Symbol found = find(prefix);
    differentiated_[i] = found;
    if (found.valid()) last = found.value();
  }
}

}  // namespace weft
