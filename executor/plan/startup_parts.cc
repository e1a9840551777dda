#include "executor/plan/startup_parts.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/tensor_type.h"
#include "proto/rewriter.h"

namespace weft {
namespace {

// Where the ops of the root block access a variable.
struct Uses {
  size_t first = 0, last = 0;
  VarId var;
};
using UsesByName = absl::flat_hash_map<Symbol, Uses>;

UsesByName FindUses(const Program& startup) {
  UsesByName uses;
  const auto ops = startup.block(0).ops();
  for (size_t i = 0; i < ops.size(); ++i) {
    for (Symbol arg : startup.op(ops[i]).args()) {
      if (startup.name(arg) == kEmptyVarName) continue;
      const auto [it, is_new] = uses.try_emplace(arg);
      if (is_new) it->second = {i, i, startup.block(0).FindVar(arg)};
      it->second.last = i;
    }
  }
  return uses;
}

// None if it is no dense tensor of known size.
absl::optional<int64_t> BytesOf(const Program& startup, VarId var) {
  if (!var.valid()) return absl::nullopt;
  const absl::optional<TensorType> type = DeclaredType(startup.var(var));
  if (!type.has_value() || type->kind != TensorType::Kind::kDense) return absl::nullopt;
  int64_t bytes = static_cast<int64_t>(SizeOf(type->dtype));
  for (const int64_t dim : type->dims) {
    if (dim < 0) return absl::nullopt;
    bytes *= dim;
  }
  return bytes;
}

// The positions of the first ops of all parts but the first one.
std::vector<size_t> FindBorders(const Program& startup, const UsesByName& uses, int64_t bytes) {
  const size_t num_ops = startup.block(0).ops().size();
  std::vector<int64_t> made(num_ops, 0);     // by op that accesses it first
  std::vector<int> passing(num_ops + 1, 0);  // variables of a step that live from the op before on
  for (const auto& [name, use] : uses) {
    if (use.var.valid() && startup.var(use.var).persistable()) {
      const absl::optional<int64_t> of_variable = BytesOf(startup, use.var);
      if (!of_variable.has_value()) return {};
      made[use.first] += *of_variable;
      continue;
    }
    ++passing[use.first + 1];
    --passing[use.last + 1];
  }
  std::vector<size_t> borders;
  int64_t in_part = 0;
  int passes = 0;
  for (size_t i = 0; i < num_ops; ++i) {
    passes += passing[i];
    if (passes == 0 && in_part >= bytes) {
      borders.push_back(i);
      in_part = 0;
    }
    in_part += made[i];
  }
  return borders;
}

absl::StatusOr<Program> OpsOf(const Program& startup, size_t begin, size_t end) {
  Program part = startup;
  Rewriter rewriter(&part);
  const auto ops = startup.block(0).ops();
  for (size_t i = 0; i < ops.size(); ++i) {
    if (i < begin || i >= end) rewriter.Erase(ops[i]);
  }
  if (!rewriter.empty()) WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return part;
}

}  // namespace

absl::StatusOr<std::vector<StartupPart>> SplitStartup(const Program& startup, int64_t bytes) {
  const UsesByName uses = FindUses(startup);
  const auto all = startup.block(0).ops();
  const bool is_whole = startup.num_blocks() > 1 || AnyHas(startup, Trait::kAlias);
  std::vector<size_t> borders;
  if (!is_whole) borders = FindBorders(startup, uses, bytes);
  borders.push_back(all.size());
  std::vector<StartupPart> parts;
  size_t begin = 0;
  for (const size_t end : borders) {
    WEFT_ASSIGN_OR_RETURN(Program program, OpsOf(startup, begin, end));
    parts.push_back({std::move(program), {}});
    begin = end;
  }
  for (VarId var : startup.block(0).vars()) {
    const auto use = uses.find(startup.var(var).name_symbol());
    if (use == uses.end() || !startup.var(var).persistable()) continue;
    const auto part = std::upper_bound(borders.begin(), borders.end(), use->second.last);
    parts[part - borders.begin()].done.emplace_back(startup.var(var).name());
  }
  return parts;
}

}  // namespace weft
