#include "tests/support/combinations.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace weft::testing {
namespace {

struct VerdictText {
  char letter;  // in kTable
  Verdict verdict;
  absl::string_view note;
};

constexpr VerdictText kVerdicts[] = {
    {'y', Verdict::kYes, ""},
    {'l', Verdict::kWhole,
     "Gradients that are accumulated, or of a scaled loss, travel whole: none is compressed."},
    {'r', Verdict::kPerRank,
     "Each rank clips its own gradients, so that ranks do not compute what one device computes."},
    {'s', Verdict::kOwnScale,
     "Each rank has its own loss scale, and skips an update by itself if its gradients overflow."},
    {'e', Verdict::kOneExchange,
     "One pass exchanges gradients or parameters. A second one would reduce what is reduced, or "
     "hide what is averaged. `sparsify-gradients`, `local-sgd` and `partial-averaging` fill "
     "buffers of their own."},
    {'f', Verdict::kNeedsFp32,
     "The gradients that AMP computes are fp16 already; only fp32 gradients are narrowed or "
     "sparsified."},
    {'d', Verdict::kNeedsDense,
     "Accumulators are dense. Put `dense-gradients{sparse=dense}` before `grad-accumulate`."},
    {'b', Verdict::kNeedsReduction,
     "Parameters differ between averages: a broadcast would drop what other ranks have learned."},
    {'u', Verdict::kNeedsEveryStep,
     "Servers update in every step; accumulated gradients are applied in a block, every few "
     "steps."},
    {'m', Verdict::kNeedsMerged,
     "Servers merge gradients; what clips or unscales them on a worker sees the gradients of this "
     "worker alone. The verifier refuses the result."},
    {'w', Verdict::kNeedsWhole,
     "Each rank has a part of the parameters: none has what a broadcast sends, and servers have "
     "none."},
};

// A row for each feature, with a letter for each feature before it.
constexpr absl::string_view kTable[] = {
    "",                     // accumulation
    "y",                    // clip by value
    "yy",                   // clip by global norm
    "yyy",                  // AMP
    "dyyy",                 // rows
    "yyyyy",                // set-optimizer
    "yyyyyy",               // buckets
    "yyyfyyy",              // half
    "yyyfyyee",             // top-k
    "yyyfyyeee",            // threshold
    "yyyyyyeeee",           // gather
    "yyyyyyeeeee",          // shares
    "lyylyyyeeeee",         // low rank
    "yrrsyyeeeeeee",        // LocalSGD
    "yrrsyyeeeeeeey",       // groups
    "yrrsyyeeeeeeeyy",      // outer
    "yrrsyyeeeeeeeeee",     // partial
    "yyyyyyyyyyywybbbb",    // broadcast
    "yyyyyyyyyyyyyyyyyy",   // placement
    "ummmyyyyyyywyyyyyyy",  // servers
};

const VerdictText& TextOf(Feature a, Feature b) {
  const auto row = static_cast<size_t>(std::max(a, b));
  const auto column = static_cast<size_t>(std::min(a, b));
  if (row < std::size(kTable) && column < kTable[row].size()) {
    for (const VerdictText& text : kVerdicts) {
      if (text.letter == kTable[row][column]) return text;
    }
  }
  std::fprintf(stderr, "tests/support/combinations.cc has no verdict in row %zu, column %zu\n", row,
               column);
  std::abort();
}

}  // namespace

const std::vector<FeatureText>& Features() {
  static const auto* const features = new std::vector<FeatureText>{
      {Feature::kAccumulation, "accumulation", "pass `grad-accumulate`"},
      {Feature::kClipByValue, "clip value", "the program clips gradients by value"},
      {Feature::kClipByGlobalNorm, "clip norm", "the program clips gradients by their global norm"},
      {Feature::kAmp, "AMP", "the program computes gradients in fp16"},
      {Feature::kRows, "rows", "the program has row-sparse gradients, of embeddings"},
      {Feature::kSetOptimizer, "optimizer", "pass `set-optimizer`"},
      {Feature::kBuckets, "buckets",
       "option `buckets` of `grad-all-reduce`, `grad-reduce` and `power-sgd`: fused buffers"},
      {Feature::kHalf, "half", "`grad-reduce{comm_dtype=fp16}`: gradients travel in fp16"},
      {Feature::kTopK, "top-k", "`sparsify-gradients{mode=topk}`"},
      {Feature::kThreshold, "threshold", "`sparsify-gradients{mode=threshold}`"},
      {Feature::kGather, "gather", "pass `gather-gradients`"},
      {Feature::kShares, "shares", "pass `shard-updates`: each rank updates a part"},
      {Feature::kLowRank, "low rank",
       "pass `power-sgd`: gradients travel as products of thin matrices"},
      {Feature::kLocalSgd, "LocalSGD", "pass `local-sgd`"},
      {Feature::kGroups, "groups",
       "options `group_size` and `rounds` of `local-sgd`: averages in groups of ranks"},
      {Feature::kOuter, "outer", "option `outer` of `local-sgd`: an outer optimizer"},
      {Feature::kPartial, "partial", "pass `partial-averaging`"},
      {Feature::kBroadcast, "broadcast", "pass `periodic-broadcast`"},
      {Feature::kPlacement, "placement",
       "pass `hetero-partition`: ops on the host and on an accelerator"},
      {Feature::kServers, "servers",
       "pass `parameter-server`: servers hold some parameters, among them tables with rows"},
  };
  return *features;
}

Verdict VerdictOf(Feature a, Feature b) { return TextOf(a, b).verdict; }

std::string CombinationsText() {
  std::string text = "| feature | is |\n|---|---|\n";
  for (const FeatureText& feature : Features()) {
    absl::StrAppend(&text, "| ", feature.name, " | ", feature.what, " |\n");
  }
  absl::StrAppend(&text, "\n| |");
  for (const FeatureText& column : Features()) absl::StrAppend(&text, " ", column.name, " |");
  absl::StrAppend(&text, "\n|---|");
  for (size_t i = 0; i < Features().size(); ++i) absl::StrAppend(&text, "---|");
  for (const FeatureText& row : Features()) {
    absl::StrAppend(&text, "\n| ", row.name, " |");
    for (const FeatureText& column : Features()) {
      if (row.feature == column.feature) {
        absl::StrAppend(&text, " |");
        continue;
      }
      const VerdictText& verdict = TextOf(row.feature, column.feature);
      absl::StrAppend(&text, IsRefused(verdict.verdict) ? " no" : " yes");
      if (verdict.verdict != Verdict::kYes) {
        absl::StrAppend(&text, " (", static_cast<int>(verdict.verdict), ")");
      }
      absl::StrAppend(&text, " |");
    }
  }
  absl::StrAppend(&text, "\n\n");
  for (const VerdictText& verdict : kVerdicts) {
    if (verdict.note.empty()) continue;
    absl::StrAppend(&text, static_cast<int>(verdict.verdict), ". ", verdict.note, "\n");
  }
  return text;
}

}  // namespace weft::testing
