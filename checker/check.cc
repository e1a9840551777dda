#include "checker/check.h"

#include <algorithm>

#include "checker/walk.h"
#include "checker/wire.h"

namespace checker {
namespace {

class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  bool Next(std::string_view* line) {
    if (rest_.empty()) return false;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    *line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return true;
  }

 private:
  std::string_view rest_;
};

// What follows `key` in the first line that begins with it.
std::string_view ValueOf(std::string_view key, std::string_view text) {
  std::string_view line;
  for (Lines lines(text); lines.Next(&line);) {
    if (line.substr(0, key.size()) == key) return line.substr(key.size());
  }
  throw Failure{Text("claim.txt: no line begins with ", key)};
}

uint64_t ParseCount(std::string_view text, std::string_view where) {
  uint64_t count = 0;
  for (const char c : text) {
    Expect(c >= '0' && c <= '9' && text.size() <= 18, where, ": expected a number, found ", text);
    count = 10 * count + static_cast<uint64_t>(c - '0');
  }
  Expect(count > 0, where, ": expected a number, found ", text);
  return count;
}

struct Proof {
  std::set<std::string_view> own;
  Steps main, startup;
};

Proof ParseProof(std::string_view text) {
  Proof proof;
  Steps* steps = nullptr;
  std::string_view line;
  Lines lines(text);
  Expect(lines.Next(&line) && line == "weft-proof 1", "proof.txt: unknown version");
  while (lines.Next(&line)) {
    if (line == "main") {
      steps = &proof.main;
    } else if (line == "startup") {
      steps = &proof.startup;
    } else if (line.substr(0, 4) == "own ") {
      proof.own.insert(line.substr(4));
    } else if (steps != nullptr && !line.empty() && (line[0] == '=' || line[0] == '+')) {
      steps->emplace_back(line[0], ParseCount(line.substr(1), "proof.txt"));
    } else {
      throw Failure{Text("proof.txt: unknown line ", line)};
    }
  }
  return proof;
}

std::string ClaimText(const Files& files, const Setting& setting, const Facts& main,
                      const Facts* startup) {
  const auto hash = [&](std::string_view file) {
    return startup == nullptr ? "none" : Sha256(file);
  };
  std::string rank = "all";
  if (startup != nullptr && startup->has_rank) {
    rank = Text(std::to_string(startup->rank), ", endpoints");
    for (const std::string_view endpoint : startup->endpoints) rank += Text(" ", endpoint);
  }
  const std::string by = setting.sums ? "sum" : "mean";
  std::string own;
  for (const std::string_view name : setting.own) own += Text(own.empty() ? "" : " ", name);
  std::string text =
      Text("Weft certificate 1\n", "original: ", Sha256(files.original),
           "\nresult: ", Sha256(files.result), "\noriginal startup: ", hash(files.original_startup),
           "\nresult startup: ", hash(files.startup), "\nstartup of rank: ", rank,
           "\nranks: ", setting.nranks == 0 ? "any" : std::to_string(setting.nranks),
           "\ngradients: ", by, "\nschedule: ", Sha256(main.schedule).substr(0, 16), ", ",
           std::to_string(main.num_calls), " calls on ", std::to_string(main.rings.size()),
           " rings\n\n");
  text += Text(
      "Checked:\n- On each rank, the result computes what the original computes on the data of "
      "this rank,\n"
      "  with gradients (",
      std::to_string(main.num_gradients), " of ", std::to_string(main.num_parameters),
      " parameters) replaced by their ", by,
      " over the ranks.\n"
      "- Each gradient is replaced once, when it is complete and before its first use.\n"
      "- States that are equal on all ranks before a step are equal after it.\n"
      "- No result depends on the timing of streams; all ranks make the same calls in one "
      "order.\n");
  text +=
      startup == nullptr
          ? "- Not checked, as no startup programs were given: that states are equal at first.\n"
          : "- After the startup program, states are equal: what the original's leaves on rank "
            "0.\n";
  text += Text(
      "Exceptions:\n- states of which each rank has its own: ", own.empty() ? "none" : own,
      "\n- gradients that are rounded to fewer bits on their way: ",
      std::to_string(main.num_rounded),
      "\n- variables that are not the original's when the step ends, but 1/n of them or unset: ",
      std::to_string(main.num_others), "\n");
  text +=
      "Assumed:\n- Every rank runs this program, and a startup program that is certified for it.\n"
      "- Kept ops compute the same from the same values, and write only their outputs, in place.\n"
      "- Gradient ops (..._grad) are linear in their inputs ...@GRAD.\n"
      "- Sums and quotients are rounded; states that no startup program sets are set equally.\n"
      "Asserted by Weft, not checked:\n"
      "- How this relates to one device with the batch of all ranks (weft verify).\n";
  return text;
}

}  // namespace

std::string ClaimOf(const Files& files) {
  Setting setting;
  const std::string_view ranks = ValueOf("ranks: ", files.claim);
  if (ranks != "any") setting.nranks = ParseCount(ranks, "claim.txt: ranks");
  Expect(setting.nranks <= 1 << 20, "claim.txt: too many ranks");
  const std::string_view by = ValueOf("gradients: ", files.claim);
  Expect(by == "mean" || by == "sum", "claim.txt: gradients: expected mean or sum, found ", by);
  setting.sums = by == "sum";
  const Proof proof = ParseProof(files.proof);
  setting.own = proof.own;
  const Facts main = Follow(files.original, files.result, setting, proof.main, nullptr);
  if (files.startup.empty()) return ClaimText(files, setting, main, nullptr);
  const Facts startup =
      Follow(files.original_startup, files.startup, setting, proof.startup, &main);
  return ClaimText(files, setting, main, &startup);
}

void Check(const Files& files) {
  const std::string expected = ClaimOf(files);
  if (expected == files.claim) return;
  std::string_view line, found;
  Lines right(expected), given(files.claim);
  while (right.Next(&line)) {
    Expect(given.Next(&found) && line == found, "claim.txt: expected ", line, ", found ", found);
  }
  throw Failure{"claim.txt: it says more than what follows"};
}

}  // namespace checker
