#include "proto/symbol_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace weft {
namespace {

constexpr size_t kInitialSlots = 64;

}  // namespace

SymbolTable::SymbolTable() { Rehash(kInitialSlots); }

uint32_t SymbolTable::Hash(absl::string_view name) {
  return static_cast<uint32_t>(XXH3_64bits(name.data(), name.size()));
}

Symbol SymbolTable::Intern(absl::string_view name, uint32_t hash) {
  for (uint32_t i = hash & mask_;; i = (i + 1) & mask_) {
    const Slot slot = slots_[i];
    if (slot.id_plus_one == 0) {
      entries_.push_back({name.data(), static_cast<uint32_t>(name.size()), hash});
      slots_[i] = {hash, static_cast<uint32_t>(entries_.size())};
      const Symbol symbol(static_cast<uint32_t>(entries_.size() - 1));
      // At most 3/4 full.
      if (entries_.size() + entries_.size() / 3 >= slots_.size()) Rehash(slots_.size() * 2);
      return symbol;
    }
    if (slot.hash == hash) {
      const Entry& entry = entries_[slot.id_plus_one - 1];
      if (entry.size == name.size() && std::memcmp(entry.data, name.data(), name.size()) == 0) {
        return Symbol(slot.id_plus_one - 1);
      }
    }
  }
}

Symbol SymbolTable::Find(absl::string_view name) const {
  const uint32_t hash = Hash(name);
  for (uint32_t i = hash & mask_;; i = (i + 1) & mask_) {
    const Slot slot = slots_[i];
    if (slot.id_plus_one == 0) return Symbol();
    const Symbol symbol(slot.id_plus_one - 1);
    if (slot.hash == hash && this->name(symbol) == name) return symbol;
  }
}

void SymbolTable::Reserve(size_t count) {
  entries_.reserve(count);
  size_t slot_count = slots_.size();
  while (count + count / 3 >= slot_count) slot_count *= 2;
  if (slot_count > slots_.size()) Rehash(slot_count);
}

void SymbolTable::Rehash(size_t slot_count) {
  slots_.assign(slot_count, Slot{0, 0});
  mask_ = static_cast<uint32_t>(slot_count - 1);
  for (uint32_t id = 0; id < entries_.size(); ++id) {
    uint32_t i = entries_[id].hash & mask_;
    while (slots_[i].id_plus_one != 0) i = (i + 1) & mask_;
    slots_[i] = {entries_[id].hash, id + 1};
  }
}

}  // namespace weft
