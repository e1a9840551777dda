#include "ops/schema/type_table.h"

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace weft {
size_t TypeTable::Hash::operator()(const TensorType& type) const {
  return absl::HashOf(type.dtype, type.kind, type.dims);
}

TypeId TypeTable::Intern(const absl::optional<TensorType>& type) {
  if (!type.has_value()) return kUnknownType;
  const auto [it, is_new] = ids_.try_emplace(*type, static_cast<TypeId>(types_.size()));
  if (is_new) types_.push_back(type);
  return it->second;
}

std::vector<TypeId> DeclaredTypes(const Program& program, TypeTable* types) {
  std::vector<TypeId> declared;
  declared.reserve(program.var_id_limit());
  absl::flat_hash_map<absl::string_view, TypeId> of_key;
  // Of the last variable with a key: many have the type of their neighbour.
  absl::string_view last_key;
  TypeId last = kUnknownType;
  for (size_t i = 0; i < program.var_id_limit(); ++i) {
    const Var var = program.var(VarId(static_cast<uint32_t>(i)));
    const absl::string_view key = var.TypeKey();
    // Of rows, the type does not say whether they are all rows of a table (DeclaredType).
    if (key.empty() || var.type() == pb::VarType::SELECTED_ROWS) {
      declared.push_back(types->Intern(DeclaredType(var)));
      continue;
    }
    if (key == last_key) {
      declared.push_back(last);
      continue;
    }
    const auto [it, is_new] = of_key.try_emplace(key, kUnknownType);
    if (is_new) it->second = types->Intern(DeclaredType(var));
    last_key = key;
    last = it->second;
    declared.push_back(last);
  }
  return declared;
}

}  // namespace weft
