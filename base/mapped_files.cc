#include "base/mapped_files.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "base/file.h"

namespace weft {
namespace {

// Read in a signal handler: nothing is allocated, and `end` is set last.
struct Slot {
  std::atomic<bool> is_taken{false};
  std::atomic<uintptr_t> begin{0}, end{0};
  std::array<char, 512> path;
};
Slot slots[256];
static_assert(std::atomic<uintptr_t>::is_always_lock_free, "used in a signal handler");

std::array<char, 64> tool;

void CopyText(const std::string& text, char* to, size_t size) {
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

void Say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void OnLostPage(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    if (address < slot.begin || address >= slot.end) continue;
    Say(tool.data());
    Say(": error: ");
    Say(slot.path.data());
    Say(": has changed while it was read\n");
    RemoveTemporaryFiles();
    _exit(1);
  }
  ::signal(signal, SIG_DFL);  // the access is repeated
}

}  // namespace

MappedFile::MappedFile(const std::string& path, const void* begin, size_t size) : slot_(-1) {
  for (size_t i = 0; i < std::size(slots); ++i) {
    Slot& slot = slots[i];
    if (slot.is_taken.exchange(true)) continue;
    CopyText(path, slot.path.data(), slot.path.size());
    slot.begin = reinterpret_cast<uintptr_t>(begin);
    slot.end = slot.begin + size;
    slot_ = static_cast<int>(i);
    return;
  }
}

MappedFile::~MappedFile() {
  if (slot_ < 0) return;
  slots[slot_].end = 0;
  slots[slot_].is_taken = false;
}

void ReportShrunkFiles(const std::string& command) {
  CopyText(command, tool.data(), tool.size());
  struct sigaction action = {};
  action.sa_sigaction = OnLostPage;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace weft
