#include "proto/symbol_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <utility>

namespace weft {
namespace {

constexpr size_t kInitialSlots = 64;

}  // namespace

SymbolTable::SymbolTable() { Rehash(kInitialSlots); }

uint32_t SymbolTable::Hash(absl::string_view name) {
  return static_cast<uint32_t>(XXH3_64bits(name.data(), name.size()));
}

const SymbolTable::Slot& SymbolTable::FindSlot(const Slots& slots, absl::string_view name,
                                               uint32_t hash) const {
  const uint32_t mask = static_cast<uint32_t>(slots.size() - 1);
  for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots[i];
    if (slot.id_plus_one == 0) return slot;
    if (slot.hash != hash) continue;
    const Entry& entry = entries_[slot.id_plus_one - 1];
    if (entry.size == name.size() && std::memcmp(entry.data, name.data(), name.size()) == 0) {
      return slot;
    }
  }
}

Symbol SymbolTable::Intern(absl::string_view name, uint32_t hash) {
  if (shared_slots_ != nullptr) {
    const Slot& shared = FindSlot(*shared_slots_, name, hash);
    if (shared.id_plus_one != 0) return Symbol(shared.id_plus_one - 1);
  }
  const Slot& slot = FindSlot(slots_, name, hash);
  if (slot.id_plus_one != 0) return Symbol(slot.id_plus_one - 1);
  const Symbol symbol(static_cast<uint32_t>(entries_.size()));
  entries_.push_back({name.data(), static_cast<uint32_t>(name.size()), hash});
  slots_[&slot - slots_.data()] = {hash, symbol.value() + 1};
  // At most 3/4 full.
  const size_t own = entries_.size() - num_shared_;
  if (own + own / 3 >= slots_.size()) Rehash(slots_.size() * 2);
  return symbol;
}

Symbol SymbolTable::Find(absl::string_view name) const {
  const uint32_t hash = Hash(name);
  const Slot* slot = &FindSlot(slots_, name, hash);
  if (slot->id_plus_one == 0 && shared_slots_ != nullptr) {
    slot = &FindSlot(*shared_slots_, name, hash);
  }
  return slot->id_plus_one == 0 ? Symbol() : Symbol(slot->id_plus_one - 1);
}

void SymbolTable::Share() {
  entries_.Share();
  num_shared_ = static_cast<uint32_t>(entries_.size());
  shared_slots_ = std::make_shared<const Slots>(std::move(slots_));
  Rehash(kInitialSlots);
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
  for (uint32_t id = num_shared_; id < entries_.size(); ++id) {
    uint32_t i = entries_[id].hash & mask_;
    while (slots_[i].id_plus_one != 0) i = (i + 1) & mask_;
    slots_[i] = {entries_[id].hash, id + 1};
  }
}

}  // namespace weft
