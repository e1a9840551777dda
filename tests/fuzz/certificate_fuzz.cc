// Bytes as a claim, a proof, an original and a result, and perhaps their startup programs, one
// after the other: certified, or refused with a reason. What is certified anew passes the check.
#include <string_view>
#include <vector>

#include "checker/check.h"
#include "checker/format.h"
#include "tests/fuzz/fuzz.h"
#include "tools/files/certificate.h"

using weft::testing::Require;

namespace {

constexpr std::string_view kEnd = "\n--\n";  // of each part but the last

bool IsCertified(const checker::Files& files) {
  try {
    checker::Check(files);
    return true;
  } catch (const checker::Failure& failure) {
    Require(!failure.why.empty(), "refused without a reason");
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> parts(6);
  for (std::string_view& part : parts) {
    const size_t end = std::min(rest.find(kEnd), rest.size());
    part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + kEnd.size(), rest.size()));
  }
  IsCertified({parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]});
  if (parts[4].empty()) {
    IsCertified({parts[0], parts[1], parts[2], parts[3], parts[2], parts[3]});
  }
  const auto made = weft::MakeCertificate({parts[2], parts[3], parts[4], parts[5]}, {2});
  if (made.ok()) {
    Require(IsCertified({made->claim, made->proof, parts[2], parts[3], parts[4], parts[5]}),
            "a certificate that is made is not accepted");
  }
  return 0;
}
