#include "base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

constexpr absl::string_view kOwner("GNU", 4);  // with its zero

size_t Aligned(size_t size) { return (size + 3) / 4 * 4; }

// The build id among the notes of a segment; empty: there is none.
std::string FindBuildId(const char* notes, size_t size) {
  size_t at = 0;
  while (at + sizeof(ElfW(Nhdr)) <= size) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes + at, sizeof(header));
    const size_t owner = at + sizeof(header);
    const size_t value = owner + Aligned(header.n_namesz);
    at = value + Aligned(header.n_descsz);
    if (at > size) break;
    if (header.n_type == NT_GNU_BUILD_ID &&
        absl::string_view(notes + owner, header.n_namesz) == kOwner) {
      return absl::BytesToHexString(absl::string_view(notes + value, header.n_descsz));
    }
  }
  return "";
}

// The first object is the program.
int OfProgram(dl_phdr_info* info, size_t, void* found) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const std::string id = FindBuildId(
        reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr), segment.p_memsz);
    if (!id.empty()) *static_cast<std::string*>(found) = id;
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  std::string id;
  dl_iterate_phdr(OfProgram, &id);
  return id;
}

}  // namespace weft
