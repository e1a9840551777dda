#include "transpiler/buckets/bucket_policy.h"

#include <functional>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/annotate.h"
#include "base/option_binder.h"
#include "base/spec_text.h"
#include "base/status_macros.h"

namespace weft {
namespace {

using Measure = BucketPolicy::Measure;

// Options as they are written.
struct Values {
  int64_t first_bytes = 1 << 20;
  int64_t max_bytes = 25 << 20;
  int64_t count = 128;
  int64_t threshold_units = -1;          // MindSpore, by size
  int64_t threshold_elements = 2097152;  // SINGA
  int64_t buffer_elements = 4194304;     // SINGA
  int64_t threshold_bytes = 10 << 20;    // MegEngine's optimizer
  int64_t max_size_mib = 10;             // MegEngine's pass
};

absl::StatusOr<std::vector<int>> ParseIndices(absl::string_view text) {
  std::vector<int> indices;
  for (absl::string_view word : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    int index = 0;
    if (!absl::SimpleAtoi(word, &index)) return absl::InvalidArgumentError("not an integer");
    indices.push_back(index);
  }
  WEFT_RETURN_IF_ERROR(CheckSplitIndices(indices));
  return indices;
}

// A kind of policy: its options, and what they mean.
struct Kind {
  std::function<void(OptionBinder& bind, Values* values, BucketPolicy* policy)> bind;
  std::function<absl::Status(const Values& values, BucketPolicy* policy)> finish;
};

absl::Status None(const Values&, BucketPolicy*) { return absl::OkStatus(); }
void NoOptions(OptionBinder&, Values*, BucketPolicy*) {}

void BindCount(OptionBinder& bind, Values* values, BucketPolicy*) {
  bind.Int64("count", &values->count, "gradients in a bucket", /*min=*/1);
}

absl::Status Count(const Values& values, BucketPolicy* policy) {
  policy->limit = values.count;
  policy->types = BucketPolicy::Types::kInTurn;
  return absl::OkStatus();
}

absl::Status PaddleCount(const Values& values, BucketPolicy* policy) {
  policy->from_last = true;
  policy->by_first = false;
  policy->fuses_single = true;
  return Count(values, policy);
}

void BindBytes(OptionBinder& bind, Values* values, BucketPolicy*) {
  bind.Int64("first_bytes", &values->first_bytes, "size of the first bucket", /*min=*/0);
  bind.Int64("max_bytes", &values->max_bytes, "size of the others", /*min=*/1);
}

absl::Status Bytes(const Values& values, BucketPolicy* policy) {
  policy->measure = Measure::kBytes;
  policy->first_limit = values.first_bytes;
  policy->limit = values.max_bytes;
  return absl::OkStatus();
}

void BindMindSpore(OptionBinder& bind, Values*, BucketPolicy* policy) {
  bind.Parsed("split_indices", &policy->split_indices, "none", "positions that end a bucket",
              "ascending integers >= 0, separated by commas", ParseIndices);
  bind.Int("fusion_type", &policy->fusion_type, "the fusion id of all, where no other applies",
           /*min=*/0);
  bind.Bool("honour_comm_fusion", &policy->honour_comm_fusion,
            "comm_fusion counts even if all parameters have the same");
  bind.Bool("parallel_optimizer", &policy->parallel_optimizer,
            "split_indices count even if comm_fusion differs or fusion_type is not 1");
}

absl::Status MindSpore(const Values&, BucketPolicy* policy) {
  policy->limit = absl::nullopt;
  policy->by_fusion_id = true;
  return absl::OkStatus();
}

void BindMindSporeSize(OptionBinder& bind, Values* values, BucketPolicy*) {
  bind.Int64("threshold", &values->threshold_units, "in units of 262144 bytes; negative: no limit");
}

absl::Status MindSporeSize(const Values& values, BucketPolicy* policy) {
  constexpr int64_t kUnit = 262144;
  policy->measure = Measure::kBytes;
  policy->ends_above = true;
  policy->joins_empty_tail = true;
  policy->limit = absl::nullopt;
  if (values.threshold_units > INT64_MAX / kUnit) {
    return absl::InvalidArgumentError(absl::StrCat("option threshold: expected at most ",
                                                   INT64_MAX / kUnit, ", found ",
                                                   values.threshold_units));
  }
  if (values.threshold_units > 0) policy->limit = values.threshold_units * kUnit;
  if (values.threshold_units == 0) policy->alone_above = -1;
  return absl::OkStatus();
}

void BindSinga(OptionBinder& bind, Values* values, BucketPolicy*) {
  bind.Int64("threshold", &values->threshold_elements, "elements", /*min=*/0);
  bind.Int64("buffer_elements", &values->buffer_elements, "elements of the fused buffer",
             /*min=*/0);
}

// A bucket holds up to twice the threshold: at most that much before its last gradient, and that
// gradient. SINGA checks neither.
absl::Status Singa(const Values& values, BucketPolicy* policy) {
  if (values.threshold_elements > values.buffer_elements / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("the fused buffer is too small: expected buffer_elements >= 2 * threshold = 2 "
                     "* ",
                     values.threshold_elements, ", found ", values.buffer_elements));
  }
  policy->measure = Measure::kElements;
  policy->limit = policy->alone_above = values.threshold_elements;
  policy->ends_above = true;
  policy->by_first = false;
  policy->fuses_single = true;
  return absl::OkStatus();
}

void BindMegEngine(OptionBinder& bind, Values* values, BucketPolicy*) {
  bind.Int64("threshold_bytes", &values->threshold_bytes, "size of a bucket", /*min=*/1);
}

absl::Status MegEngine(const Values& values, BucketPolicy* policy) {
  policy->measure = Measure::kBytes;
  policy->limit = values.threshold_bytes;
  policy->ends_above = true;
  policy->ignore_first = 8;
  policy->sorts_tail = true;
  policy->by_first = false;
  return absl::OkStatus();
}

void BindMegEnginePass(OptionBinder& bind, Values* values, BucketPolicy* policy) {
  policy->ignore_first = 2;
  bind.Int64("max_size_mib", &values->max_size_mib, "size of a bucket; 0: no buckets", /*min=*/0);
  bind.Int("ignore_first", &policy->ignore_first, "the first gradients, which travel alone",
           /*min=*/0);
}

absl::Status MegEnginePass(const Values& values, BucketPolicy* policy) {
  constexpr int64_t kMib = 1 << 20;
  if (values.max_size_mib > INT64_MAX / kMib) {
    return absl::InvalidArgumentError(absl::StrCat("option max_size_mib: expected at most ",
                                                   INT64_MAX / kMib, ", found ",
                                                   values.max_size_mib));
  }
  policy->measure = Measure::kBytes;
  policy->limit = values.max_size_mib * kMib;
  if (values.max_size_mib == 0) policy->alone_above = -1;
  return absl::OkStatus();
}

const std::map<std::string, Kind>& Kinds() {
  static const auto* const kinds = new std::map<std::string, Kind>{
      {"none", {NoOptions, None}},
      {"optimal", {NoOptions, None}},
      {"bytes", {BindBytes, Bytes}},
      {"count", {BindCount, Count}},
      {"paddle_count", {BindCount, PaddleCount}},
      {"mindspore", {BindMindSpore, MindSpore}},
      {"mindspore_size", {BindMindSporeSize, MindSporeSize}},
      {"singa", {BindSinga, Singa}},
      {"megengine", {BindMegEngine, MegEngine}},
      {"megengine_pass", {BindMegEnginePass, MegEnginePass}},
  };
  return *kinds;
}

}  // namespace

absl::Status CheckSplitIndices(const std::vector<int>& indices) {
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0 && (i == 0 || indices[i] > indices[i - 1])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("expected ascending split indices >= 0, found ", absl::StrJoin(indices, ",")));
  }
  return absl::OkStatus();
}

absl::StatusOr<BucketPolicy> BucketPolicy::Parse(absl::string_view text) {
  const absl::StatusOr<std::vector<Spec>> specs = ParseSpecs(text);
  const bool is_one = specs.ok() && specs->size() == 1;
  const auto kind = is_one ? Kinds().find(specs->front().name) : Kinds().end();
  if (kind == Kinds().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("buckets: expected ", kBucketPolicies, ", found '", absl::CEscape(text), "'"));
  }
  BucketPolicy policy;
  policy.name = kind->first;
  Values values;
  OptionBinder bind;
  kind->second.bind(bind, &values, &policy);
  WEFT_RETURN_IF_ERROR(Annotate("buckets", bind.Set(specs->front().options)));
  WEFT_RETURN_IF_ERROR(Annotate("buckets", kind->second.finish(values, &policy)));
  return policy;
}

}  // namespace weft
