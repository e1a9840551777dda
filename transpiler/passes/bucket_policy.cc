#include "transpiler/passes/bucket_policy.h"

#include <map>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/option_binder.h"
#include "base/spec_text.h"
#include "base/status_macros.h"

namespace weft {

absl::StatusOr<BucketPolicy> BucketPolicy::Parse(absl::string_view text) {
  const absl::StatusOr<std::vector<Spec>> specs = ParseSpecs(text);
  const auto unknown = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("buckets: expected ", kBucketPolicies, ", found '", absl::CEscape(text), "'"));
  };
  if (!specs.ok() || specs->size() != 1) return unknown();
  const Spec& spec = specs->front();
  BucketPolicy policy;
  OptionBinder bind;
  if (spec.name == "bytes") {
    policy.kind = Kind::kBytes;
    bind.Int64("first_bytes", &policy.first_bytes, "size of the first bucket", /*min=*/0);
    bind.Int64("max_bytes", &policy.max_bytes, "size of the others", /*min=*/1);
  } else if (spec.name == "count" || spec.name == "paddle_count") {
    policy.kind = spec.name == "count" ? Kind::kCount : Kind::kPaddleCount;
    bind.Int("count", &policy.count, "gradients in a bucket", /*min=*/1);
  } else if (spec.name != "none") {
    return unknown();
  }
  WEFT_RETURN_IF_ERROR(Annotate("buckets", bind.Set(spec.options)));
  return policy;
}

namespace {

class BucketFiller {
 public:
  explicit BucketFiller(const BucketPolicy& policy) : policy_(policy) {}

  int Add(const BucketCandidate& gradient) {
    const bool type_changes = !open_.empty() && gradient.dtype != last_dtype_;
    if (gradient.starts_anew || (IsCounted() && type_changes)) CloseAll();
    last_dtype_ = gradient.dtype;
    Open& open = open_[gradient.dtype];
    if (open.bucket < 0) {
      open = {num_buckets_++, 0, 0, open.is_first};
    }
    ++open.count;
    open.bytes += gradient.bytes;
    const int bucket = open.bucket;
    if (IsFull(open)) {
      open.bucket = -1;
      open.is_first = false;
    }
    return bucket;
  }

 private:
  struct Open {
    int bucket = -1;  // none
    int count = 0;
    int64_t bytes = 0;
    bool is_first = true;  // of its element type
  };

  bool IsCounted() const {
    return policy_.kind == BucketPolicy::Kind::kCount ||
           policy_.kind == BucketPolicy::Kind::kPaddleCount;
  }

  bool IsFull(const Open& open) const {
    if (IsCounted()) return open.count >= policy_.count;
    if (policy_.kind == BucketPolicy::Kind::kNone) return true;
    return open.bytes >= (open.is_first ? policy_.first_bytes : policy_.max_bytes);
  }

  void CloseAll() {
    for (auto& [dtype, open] : open_) open.bucket = -1;
  }

  const BucketPolicy policy_;
  int num_buckets_ = 0;
  std::map<DType, Open> open_;
  DType last_dtype_ = DType::kFloat32;
};

}  // namespace

std::vector<int> AssignBuckets(const BucketPolicy& policy,
                               absl::Span<const BucketCandidate> candidates) {
  BucketFiller filler(policy);
  std::vector<int> buckets(candidates.size());
  if (policy.kind != BucketPolicy::Kind::kPaddleCount) {
    for (size_t i = 0; i < candidates.size(); ++i) buckets[i] = filler.Add(candidates[i]);
    return buckets;
  }
  // Backwards, a candidate that starts anew separates the gradients before it from those after it.
  int last = -1;
  for (size_t i = candidates.size(); i-- > 0;) {
    BucketCandidate candidate = candidates[i];
    candidate.starts_anew = i + 1 < candidates.size() && candidates[i + 1].starts_anew;
    last = buckets[i] = filler.Add(candidate);
  }
  for (int& bucket : buckets) bucket = last - bucket;
  return buckets;
}

}  // namespace weft
