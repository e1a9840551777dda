#include "ops/schema/type_table.h"

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "proto/wire_format.h"

namespace weft {
namespace {

// The bytes of the type of a variable that is written as every writer does: name, then type, then
// flags. Empty where that is not so.
absl::string_view TypeBytes(absl::string_view var) {
  constexpr uint32_t kName = wire::LengthDelimited(pb::VarDesc::kNameFieldNumber);
  constexpr uint32_t kType = wire::LengthDelimited(pb::VarDesc::kTypeFieldNumber);
  uint32_t tag;
  absl::string_view whole, type;
  if (!wire::TakeField(&var, &tag, &whole, &type) || tag != kName) return {};
  if (!wire::TakeField(&var, &tag, &whole, &type) || tag != kType) return {};
  // A second type would be merged into the first. Flags, of two bytes each, are passed over.
  while (var.size() >= 2 && (var[0] & 7) == 0 && static_cast<uint8_t>(var[0]) < 0x80 &&
         static_cast<uint8_t>(var[1]) < 0x80) {
    var.remove_prefix(2);
  }
  return var.empty() ? type : absl::string_view();
}

}  // namespace

size_t TypeTable::Hash::operator()(const TensorType& type) const {
  return absl::HashOf(type.dtype, type.layout, type.dims);
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
  absl::flat_hash_map<absl::string_view, TypeId> of_bytes;
  for (size_t i = 0; i < program.var_id_limit(); ++i) {
    const Var var = program.var(VarId(static_cast<uint32_t>(i)));
    wire::PrefetchBehind(var.bytes());
    const absl::string_view bytes = TypeBytes(var.bytes());
    if (bytes.empty()) {
      declared.push_back(types->Intern(DeclaredType(var)));
      continue;
    }
    const auto [it, is_new] = of_bytes.try_emplace(bytes, kUnknownType);
    if (is_new) it->second = types->Intern(DeclaredType(var));
    declared.push_back(it->second);
  }
  return declared;
}

}  // namespace weft
