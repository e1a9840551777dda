#include "checker/check.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "checker/walk.h"

namespace checker {
namespace {

// docs/certificate.md says what each line means. A % stands for a value.
constexpr std::string_view kClaim = R"(Weft certificate 1
original: %
result: %
original startup: %
result startup: %
startup of rank: %
ranks: %
gradients: %
schedule: %, % calls on % rings

Checked:
- On each rank, the result computes what the original computes on the data of this rank,
  with gradients (% of % parameters) replaced by their % over the ranks.
- Each gradient is replaced once, when it is complete and before its first use.
- States that are equal on all ranks before a step are equal after it.
- No result depends on the timing of streams; all ranks make the same calls in one order.
- %
Exceptions:
- states of which each rank has its own: %
- gradients that are rounded to fewer bits on their way: %
- variables that are not the original's when the step ends, but 1/n of them or unset: %
Assumed:
- Every rank runs this program, and a startup program that is certified for it.
- Kept ops compute the same from the same values, and write only their outputs, in place.
- Gradient ops (..._grad) are linear in their inputs ...@GRAD.
- Sums and quotients are rounded; states that no startup program sets are set equally.
Asserted by Weft, not checked:
- How this relates to one device with the batch of all ranks (weft verify).
)";

// What follows `key` in the first line that begins with it.
std::string ValueOf(std::string_view key, std::string_view claim) {
  const size_t begin = Text("\n", claim).find(Text("\n", key));
  Expect(begin != std::string::npos, "claim.txt: no line begins with ", key);
  const std::string_view rest = claim.substr(begin + key.size());
  return std::string(rest.substr(0, rest.find('\n')));
}

}  // namespace

std::string ClaimOf(const Files& files) {
  const std::string ranks = ValueOf("ranks: ", files.claim);
  const std::string by = ValueOf("gradients: ", files.claim);
  const Setting setting{std::strtoull(ranks.c_str(), nullptr, 10), by == "sum"};
  Expect((by == "sum" || by == "mean") && setting.nranks <= 1 << 20,
         "claim.txt: expected at most 2^20 ranks, and sum or mean");
  std::istringstream proof{std::string(files.proof)};
  std::string word, name;
  Expect(proof >> word && word == "weft-proof" && proof >> word && word == "1",
         "proof.txt: unknown version");
  Walk main(files.original, files.result, setting, nullptr);
  while (proof >> word && word == "own" && proof >> name) main.MarkOwn(name);
  Expect(word == "main", "proof.txt: expected the steps of the main program");
  const bool has_startup = !files.startup.empty();
  Expect(main.Run(&proof) == has_startup, "proof.txt: it is for other files");
  std::string rank = "all";
  if (has_startup) {
    Walk startup(files.original_startup, files.startup, setting, &main);
    startup.Run(&proof);
    if (!startup.endpoints.empty()) rank = Text(std::to_string(startup.rank), ", endpoints");
    for (const std::string_view endpoint : startup.endpoints) rank += Text(" ", endpoint);
  }
  const auto hash = [](bool is_there, std::string_view file) {
    return is_there ? Sha256(file) : "none";
  };
  const std::vector<std::string> values = {
      Sha256(files.original),
      Sha256(files.result),
      hash(has_startup, files.original_startup),
      hash(has_startup, files.startup),
      rank,
      setting.nranks == 0 ? "any" : std::to_string(setting.nranks),
      by,
      Sha256(main.schedule).substr(0, 16),
      std::to_string(main.num_calls),
      std::to_string(main.rings.size()),
      std::to_string(main.num_gradients),
      std::to_string(main.num_parameters),
      by,
      has_startup
          ? "After the startup program, states are equal: what the original's leaves on rank 0."
          : "Not checked, as no startup programs were given: that states are equal at first.",
      main.OwnStates(),
      std::to_string(main.num_rounded),
      std::to_string(main.num_others)};
  std::string claim;
  size_t next = 0;
  for (const char c : kClaim) claim += c == '%' ? values[next++] : std::string(1, c);
  return claim;
}

void Check(const Files& files) {
  const std::string right = ClaimOf(files);
  std::istringstream expected(right), given{std::string(files.claim)};
  for (std::string line, found; std::getline(expected, line);) {
    std::getline(given, found);
    Expect(line == found, "claim.txt: expected ", line, ", found ", found);
  }
  Expect(right == files.claim, "claim.txt: it says more than what follows");
}

}  // namespace checker
