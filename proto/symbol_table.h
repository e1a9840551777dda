// Names of a program, interned: every name is stored once and compared as a number.
#ifndef WEFT_PROTO_SYMBOL_TABLE_H_
#define WEFT_PROTO_SYMBOL_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/strong_id.h"
#include "proto/shared_vector.h"

namespace weft {

// A name of a program: of a variable, an op type, a slot or an attribute. Symbols of different
// programs are unrelated. They count from 0, so they can index vectors.
using Symbol = StrongId<struct SymbolTag>;

class SymbolTable {
 public:
  SymbolTable();

  // Finds or adds a name. The table keeps the pointer: the bytes must outlive the table.
  // Amortized O(length).
  Symbol Intern(absl::string_view name) { return Intern(name, Hash(name)); }

  // Returns an invalid symbol if the program does not have the name. O(length).
  Symbol Find(absl::string_view name) const;

  absl::string_view name(Symbol symbol) const {
    const Entry& entry = entries_[symbol.value()];
    return absl::string_view(entry.data, entry.size);
  }
  size_t size() const { return entries_.size(); }

  // Makes copies share the names that exist now; called once, before the first copy.
  void Share();

  // The same in steps, for many names: compute the hashes of some dozens of them, prefetch the
  // slots of all, their entries, their names, then intern. So the four cache misses of each name
  // overlap. Without prefetching, reading 1,000,000 ops takes 1.5 times the processor time.
  static uint32_t Hash(absl::string_view name);
  uint32_t hash(Symbol symbol) const { return entries_[symbol.value()].hash; }
  void Prefetch(uint32_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }
  void PrefetchEntry(uint32_t hash) const {
    const uint32_t id_plus_one = slots_[hash & mask_].id_plus_one;
    if (id_plus_one != 0) __builtin_prefetch(&entries_[id_plus_one - 1]);
  }
  void PrefetchName(uint32_t hash) const {
    const uint32_t id_plus_one = slots_[hash & mask_].id_plus_one;
    if (id_plus_one != 0) __builtin_prefetch(entries_[id_plus_one - 1].data);
  }
  Symbol Intern(absl::string_view name, uint32_t hash);

  // Reserves memory for `count` names in all.
  void Reserve(size_t count);

 private:
  struct Entry {
    const char* data;
    uint32_t size;
    uint32_t hash;
  };
  // A slot of an open-addressing hash table. The hash next to the id saves most comparisons.
  struct Slot {
    uint32_t hash;
    uint32_t id_plus_one;  // 0: free
  };
  using Slots = std::vector<Slot>;  // a power of two of them

  // The slot of the name, or the free slot for it.
  const Slot& FindSlot(const Slots& slots, absl::string_view name, uint32_t hash) const;
  void Rehash(size_t slot_count);

  SharedVector<Entry> entries_;
  std::shared_ptr<const Slots> shared_slots_;  // of the shared entries; null: none
  uint32_t num_shared_ = 0;
  Slots slots_;  // of the others
  uint32_t mask_ = 0;
};

}  // namespace weft

#endif  // WEFT_PROTO_SYMBOL_TABLE_H_
