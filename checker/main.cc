// weft_check: checks a certificate. Exit status 0: certified; 1: not; 2: wrong usage.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <new>
#include <string>

#include "checker/check.h"
#include "checker/format.h"

namespace {

// What may still be allocated. Whatever the files are made of, all that is kept, with the files, is
// three times as large as the files at most, besides 4 MB.
size_t memory_left = size_t{4} << 20;
constexpr size_t kHeader = alignof(std::max_align_t);  // before each piece: its size

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff end = file.tellg();  // of a folder, the greatest number
  checker::Expect(file.good() && end < std::streamoff{1} << 40, path, ": cannot open");
  const auto size = static_cast<size_t>(std::max<std::streamoff>(0, end));
  memory_left += 3 * size;
  std::string bytes(size, '\0');
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  checker::Expect(file.good(), path, ": cannot read");
  return bytes;
}

}  // namespace

void* operator new(size_t size) {
  void* const piece = size > memory_left ? nullptr : std::malloc(size + kHeader);
  if (piece == nullptr) throw std::bad_alloc();
  memory_left -= *static_cast<size_t*>(piece) = size;
  return static_cast<char*>(piece) + kHeader;
}
void operator delete(void* used) noexcept {
  if (used == nullptr) return;
  void* const piece = static_cast<char*>(used) - kHeader;
  memory_left += *static_cast<size_t*>(piece);
  std::free(piece);
}
void operator delete(void* used, size_t /*size*/) noexcept { operator delete(used); }

int main(int argc, char** argv) {
  if (argc != 4 && argc != 6) {
    std::cerr << "usage: weft_check DIR ORIGINAL RESULT [ORIGINAL_STARTUP RESULT_STARTUP]\n";
    return 2;
  }
  try {
    const std::string dir = argv[1], claim = ReadFile(dir + "/claim.txt"),
                      proof = ReadFile(dir + "/proof.txt"), original = ReadFile(argv[2]),
                      result = ReadFile(argv[3]);
    std::string original_startup, startup;
    if (argc == 6) original_startup = ReadFile(argv[4]), startup = ReadFile(argv[5]);
    checker::Expect(argc == 4 || (!original_startup.empty() && !startup.empty()),
                    "a startup program is empty");
    checker::Check({claim, proof, original, result, original_startup, startup});
    std::cout << "certified: " << argv[3] << "\n\n" << claim;
    return 0;
  } catch (const checker::Failure& failure) {
    std::cout << "not certified: " << failure.why << "\n";
  } catch (const std::bad_alloc&) {
    std::cout << "not certified: it takes more memory than files of this size may\n";
  }
  return 1;
}
