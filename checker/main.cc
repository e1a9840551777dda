// weft_check: checks a certificate. Exit status 0: certified; 1: not; 2: wrong usage.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <new>
#include <string>

#include "checker/check.h"
#include "checker/format.h"

namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  checker::Expect(file.good(), path, ": cannot open");
  std::string bytes(static_cast<size_t>(std::max<std::streamoff>(0, file.tellg())), '\0');
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  checker::Expect(file.good(), path, ": cannot read");
  return bytes;
}

}  // namespace

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
    checker::Check({claim, proof, original, result, original_startup, startup});
    std::cout << "certified: " << argv[3] << "\n\n" << claim;
    return 0;
  } catch (const checker::Failure& failure) {
    std::cout << "not certified: " << failure.why << "\n";
  } catch (const std::bad_alloc&) {
    std::cout << "not certified: out of memory\n";
  }
  return 1;
}
