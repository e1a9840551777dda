#include "tests/replay/storage.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::testing {

const std::vector<CellId>& RankStorage::CellsOf(const std::string& name) {
  const VarKey key = Key(name);
  const auto found = memory_.of_var.find(key);
  if (found != memory_.of_var.end()) return found->second;
  const pb::VarDesc* var = Var(name);
  const bool is_feed = setting_.feeds->count(name) > 0;
  const bool is_shared = !setting_.has_startup && var != nullptr && var->persistable();
  const std::string undefined =
      absl::StrCat("undefined ", name, " ", is_shared ? "of all" : absl::StrCat(setting_.rank));
  memory_.cells.push_back(is_feed ? Declared(name, Feed(name)) : table_.Named(undefined));
  return memory_.of_var[key] = {static_cast<CellId>(memory_.cells.size()) - 1};
}

ValueId RankStorage::Feed(const std::string& name) const {
  return table_.Named(
      absl::StrCat("feed ", name, " rank ", setting_.rank, " step ", setting_.step));
}

ValueId RankStorage::Declared(const std::string& name, ValueId value) {
  const auto expected = setting_.types->find(name);
  if (expected == setting_.types->end()) return value;
  auto [it, is_new] = is_as_expected_.emplace(name, true);
  if (is_new) {
    const pb::VarDesc* var = Var(name);
    it->second = var == nullptr || TypeText(*var) == expected->second;
    if (!it->second) as_[name] = TypeText(*var);
  }
  if (it->second) return value;
  return table_.Named(absl::StrCat("as ", as_[name], " ", value));
}

ValueId RankStorage::Read(const std::string& name) {
  const std::vector<CellId>& cells = CellsOf(name);
  if (cells.size() == 1 && SliceTypesOf(name) == nullptr) return memory_.cells[cells[0]];
  std::vector<ValueId> values;
  for (CellId cell : cells) values.push_back(memory_.cells[cell]);
  return table_.Named(absl::StrCat("buffer ", absl::StrJoin(values, " ")));
}

void RankStorage::Write(const std::string& name, ValueId value) {
  const std::vector<CellId>& cells = CellsOf(name);
  if (SliceTypesOf(name) == nullptr) return SetValue(cells[0], name, value);
  for (size_t i = 0; i < cells.size(); ++i) {
    SetValue(cells[i], name,
             table_.Named(absl::StrCat("slice ", i, " of ", cells.size(), " ", value)));
  }
}

CellId RankStorage::AddSlice(const std::string& name, ValueId value) {
  const CellId cell = static_cast<CellId>(memory_.cells.size());
  memory_.cells.push_back(value);
  memory_.of_var[Key(name)] = {cell};
  slice_types_.erase(Key(name));
  return cell;
}

void RankStorage::SetSlices(const std::string& buffer, std::vector<CellId> slices,
                            std::vector<std::string> types) {
  memory_.of_var[Key(buffer)] = std::move(slices);
  slice_types_[Key(buffer)] = std::move(types);
}

const std::vector<std::string>* RankStorage::SliceTypesOf(const std::string& name) const {
  const auto found = slice_types_.find(Key(name));
  return found == slice_types_.end() ? nullptr : &found->second;
}

}  // namespace weft::testing
