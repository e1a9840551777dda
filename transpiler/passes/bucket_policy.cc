#include "transpiler/passes/bucket_policy.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "transpiler/pipeline/options.h"

namespace weft {

absl::StatusOr<BucketPolicy> BucketPolicy::Parse(absl::string_view text) {
  const absl::StatusOr<std::vector<PassSpec>> specs = ParsePipelineText(text);
  const auto unknown = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("buckets: expected ", kBucketPolicies, ", found '", text, "'"));
  };
  if (!specs.ok() || specs->size() != 1) return unknown();
  const PassSpec& spec = specs->front();
  BucketPolicy policy;
  OptionBinder bind;
  if (spec.name == "bytes") {
    policy.kind = Kind::kBytes;
    bind.Int64("first_bytes", &policy.first_bytes, "size of the first bucket", /*min=*/1);
    bind.Int64("max_bytes", &policy.max_bytes, "size of the others", /*min=*/1);
  } else if (spec.name == "count") {
    policy.kind = Kind::kCount;
    bind.Int("count", &policy.count, "gradients in a bucket", /*min=*/1);
  } else if (spec.name != "none") {
    return unknown();
  }
  WEFT_RETURN_IF_ERROR(Annotate("buckets", bind.Set(spec.options)));
  return policy;
}

bool BucketFiller::IsFull(const Open& open) const {
  switch (policy_.kind) {
    case BucketPolicy::Kind::kNone:
      return true;
    case BucketPolicy::Kind::kBytes:
      return open.bytes >= (open.is_first ? policy_.first_bytes : policy_.max_bytes);
    case BucketPolicy::Kind::kCount:
      return open.count >= policy_.count;
  }
  return true;
}

int BucketFiller::Add(DType dtype, int64_t bytes) {
  if (policy_.kind == BucketPolicy::Kind::kCount && dtype != last_dtype_) Close(last_dtype_);
  last_dtype_ = dtype;
  Open& open = open_[Index(dtype)];
  if (open.bucket < 0) {
    open.bucket = num_buckets_++;
    open.count = 0;
    open.bytes = 0;
  }
  ++open.count;
  open.bytes += bytes;
  const int bucket = open.bucket;
  if (IsFull(open)) {
    open.bucket = -1;
    open.is_first = false;
  }
  return bucket;
}

}  // namespace weft
