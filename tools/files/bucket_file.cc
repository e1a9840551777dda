#include "tools/files/bucket_file.h"

#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "base/json_input.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "transpiler/buckets/optimal_plan.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// Names of a policy and of its parameters in a file, and in policy text.
struct Dialect {
  const char* policy;
  std::map<std::string, std::string> params;
};

const std::map<std::string, Dialect>& Dialects() {
  static const auto* const dialects = new std::map<std::string, Dialect>{
      {"mindspore_index", {"mindspore", {{"fusion_type", "fusion_type"}}}},
      {"mindspore_param", {"mindspore", {{"fusion_type", "fusion_type"}}}},
      {"mindspore_size", {"mindspore_size", {{"threshold", "threshold"}}}},
      {"singa_threshold",
       {"singa", {{"threshold", "threshold"}, {"buffer_elements", "buffer_elements"}}}},
      {"megengine_py", {"megengine", {{"threshold_bytes", "threshold_bytes"}}}},
      {"megengine_cc",
       {"megengine_pass", {{"max_size_mib", "max_size_mib"}, {"ignore_first", "ignore_first"}}}},
      {"paddle_count", {"paddle_count", {{"count", "count"}}}},
      {"ddp", {"bytes", {{"first_bytes", "first_bytes"}, {"cap_bytes", "max_bytes"}}}},
  };
  return *dialects;
}

absl::StatusOr<std::vector<int>> IntegersOf(const std::string& key, const Json& json) {
  if (!json.is_array()) return ExpectedInJson(key, "a list of integers", json);
  std::vector<int> integers;
  for (const Json& item : json) {
    WEFT_ASSIGN_OR_RETURN(const int64_t integer, JsonInteger(key, item));
    if (integer < INT32_MIN || integer > INT32_MAX)
      return ExpectedInJson(key, "a 32-bit integer", item);
    integers.push_back(static_cast<int>(integer));
  }
  return integers;
}

constexpr int64_t kUnknown = -1;

class Parser {
 public:
  absl::StatusOr<BucketFile> Parse(const Json& json) {
    for (const auto& [key, value] : json.items()) {
      if (key != "policy" && key != "params" && key != "grads" && key != "id" && key != "expect") {
        return absl::InvalidArgumentError(
            absl::StrCat("unknown key '", key, "': expected policy, params, grads"));
      }
    }
    if (!json.contains("policy") || !json["policy"].is_string()) {
      return absl::InvalidArgumentError("expected a string 'policy'");
    }
    if (!json.contains("grads")) return absl::InvalidArgumentError("expected a list 'grads'");
    WEFT_RETURN_IF_ERROR(ReadGradients(json["grads"]));
    WEFT_RETURN_IF_ERROR(
        ReadPolicy(json["policy"].get<std::string>(), json.value("params", Json::object())));
    return std::move(file_);
  }

 private:
  absl::Status ReadGradients(const Json& list) {
    if (!list.is_array()) return ExpectedInJson("grads", "a list", list);
    constexpr int64_t kMaxGradients = 10000000;
    double latest = 0;
    for (const Json& run : list) {
      if (!run.is_object()) return ExpectedInJson("grads", "objects", run);
      BucketGradient gradient;
      gradient.elements = gradient.bytes = kUnknown;
      int64_t repeat = 1;
      for (const auto& [key, value] : run.items()) {
        if (key == "dtype") {
          WEFT_RETURN_IF_ERROR(ReadType(value, &gradient.dtype));
        } else if (key == "elements" || key == "bytes" || key == "repeat") {
          WEFT_ASSIGN_OR_RETURN(const int64_t integer, JsonInteger(key, value));
          if (integer < 0) return ExpectedInJson(key, "an integer >= 0", value);
          (key == "elements" ? gradient.elements
           : key == "bytes"  ? gradient.bytes
                             : repeat) = integer;
        } else if (key == "ready_us") {
          latest = value.is_number() ? value.get<double>() * 1e-6 : -1;
          if (!(latest >= 0 && latest < 1e9)) return ExpectedInJson(key, "a number >= 0", value);
        } else if (key != "first" && key != "name") {
          return absl::InvalidArgumentError(
              absl::StrCat("unknown key '", key,
                           "' of a gradient: expected dtype, elements, bytes, repeat, ready_us"));
        }
      }
      WEFT_RETURN_IF_ERROR(CompleteSize(run, &gradient));
      if (repeat > kMaxGradients - static_cast<int64_t>(file_.gradients.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat("expected at most ", kMaxGradients, " gradients"));
      }
      file_.gradients.insert(file_.gradients.end(), repeat, gradient);
      file_.ready.insert(file_.ready.end(), repeat, latest);
    }
    file_.numbers.resize(file_.gradients.size());
    std::iota(file_.numbers.begin(), file_.numbers.end(), 0);
    return absl::OkStatus();
  }

  // Elements and bytes follow from each other; one of them must be given.
  static absl::Status CompleteSize(const Json& run, BucketGradient* gradient) {
    const auto size = static_cast<int64_t>(SizeOf(gradient->dtype));
    if (gradient->elements == kUnknown && gradient->bytes == kUnknown) {
      return ExpectedInJson("grads", "elements or bytes in every gradient", run);
    }
    if (gradient->elements == kUnknown) gradient->elements = gradient->bytes / size;
    if (gradient->elements > INT64_MAX / size) {
      return ExpectedInJson("elements", "fewer elements", run);
    }
    if (gradient->bytes == kUnknown) gradient->bytes = gradient->elements * size;
    if (gradient->bytes == gradient->elements * size) return absl::OkStatus();
    return ExpectedInJson("bytes", absl::StrCat(gradient->elements * size), run);
  }

  // "float32", or as program text spells it.
  static absl::Status ReadType(const Json& value, DType* dtype) {
    static const auto* const names =
        new std::map<std::string, DType>{{"float16", DType::kFloat16},
                                         {"bfloat16", DType::kBFloat16},
                                         {"float32", DType::kFloat32},
                                         {"float64", DType::kFloat64}};
    if (!value.is_string()) return ExpectedInJson("dtype", "a string", value);
    const auto it = names->find(value.get<std::string>());
    const absl::optional<DType> found = it != names->end() ? absl::optional<DType>(it->second)
                                                           : ParseDType(value.get<std::string>());
    if (!found.has_value()) return ExpectedInJson("dtype", "an element type", value);
    *dtype = *found;
    return absl::OkStatus();
  }

  absl::Status ReadPolicy(const std::string& name, const Json& params) {
    if (!params.is_object()) return ExpectedInJson("params", "an object", params);
    const auto dialect = Dialects().find(name);
    if (dialect == Dialects().end()) {
      if (!params.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("policy '", name, "' has its parameters in its text: expected no params"));
      }
      WEFT_ASSIGN_OR_RETURN(file_.policy, BucketPolicy::Parse(name));
      return absl::OkStatus();
    }
    Spec spec{dialect->second.policy, {}};
    for (const auto& [key, value] : params.items()) {
      const auto renamed = dialect->second.params.find(key);
      if (renamed != dialect->second.params.end()) {
        WEFT_ASSIGN_OR_RETURN(const int64_t integer, JsonInteger(key, value));
        spec.options.emplace_back(renamed->second, absl::StrCat(integer));
      } else {
        WEFT_RETURN_IF_ERROR(ReadList(name, key, value, &spec));
      }
    }
    WEFT_ASSIGN_OR_RETURN(file_.policy, BucketPolicy::Parse(ToString({spec})));
    return absl::OkStatus();
  }

  absl::Status ReadList(const std::string& policy, const std::string& key, const Json& value,
                        Spec* spec) {
    const bool is_mindspore = policy == "mindspore_index" || policy == "mindspore_param";
    if (is_mindspore && key == "split_indices_is") return absl::OkStatus();  // of a wrong type
    if (is_mindspore && key == "split_indices") {
      WEFT_ASSIGN_OR_RETURN(const std::vector<int> indices, IntegersOf(key, value));
      if (indices.empty() && policy == "mindspore_index") {
        return ExpectedInJson(key, "one split index or more", value);
      }
      WEFT_RETURN_IF_ERROR(CheckSplitIndices(indices));
      if (!indices.empty()) {
        spec->options.emplace_back("split_indices", absl::StrJoin(indices, ","));
      }
      return absl::OkStatus();
    }
    if (is_mindspore && key == "comm_fusion") return ReadFusionIds(key, value);
    if (policy == "megengine_py" && key == "order") return ReadOrder(key, value);
    if (policy == "ddp" && key == "sparse") return ReadSparse(key, value);
    return absl::InvalidArgumentError(
        absl::StrCat("policy '", policy, "' has no parameter '", key, "'"));
  }

  absl::Status ReadFusionIds(const std::string& key, const Json& value) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int> ids, IntegersOf(key, value));
    if (ids.size() != file_.gradients.size()) {
      return ExpectedInJson(key, absl::StrCat(file_.gradients.size(), " integers"), value);
    }
    for (size_t i = 0; i < ids.size(); ++i) file_.gradients[i].comm_fusion = ids[i];
    return absl::OkStatus();
  }

  absl::Status ReadOrder(const std::string& key, const Json& value) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int> order, IntegersOf(key, value));
    std::vector<BucketGradient> gradients;
    std::vector<bool> is_given(file_.gradients.size(), false);
    for (int number : order) {
      if (number < 0 || static_cast<size_t>(number) >= is_given.size() || is_given[number]) break;
      is_given[number] = true;
      gradients.push_back(file_.gradients[number]);
    }
    if (gradients.size() != order.size()) {
      return ExpectedInJson(key, "numbers of gradients, each at most once", value);
    }
    file_.gradients = std::move(gradients);
    file_.numbers = order;
    return absl::OkStatus();
  }

  absl::Status ReadSparse(const std::string& key, const Json& value) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int> numbers, IntegersOf(key, value));
    for (int number : numbers) {
      if (number < 0 || static_cast<size_t>(number) >= file_.gradients.size()) {
        return ExpectedInJson(key, "numbers of gradients", value);
      }
      file_.gradients[number].travels_alone = true;
    }
    return absl::OkStatus();
  }

  BucketFile file_;
};

}  // namespace

absl::StatusOr<BucketFile> ParseBucketFile(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  return Parser().Parse(json);
}

absl::StatusOr<std::string> PlanBucketFile(const BucketFile& file, const CollectiveTime& time,
                                           int nrings) {
  using Json = nlohmann::ordered_json;
  Json json = {{"policy", file.policy.name}};
  BucketPlan plan;
  if (file.policy.is_optimal()) {
    WEFT_ASSIGN_OR_RETURN(OptimalPlan optimal,
                          PlanOptimalBuckets(file.gradients, file.ready, time, nrings));
    plan = std::move(optimal.plan);
    json["finish_us"] = optimal.finish * 1e6;
    json["lower_bound_us"] = optimal.lower_bound * 1e6;
    json["gap_us"] = (optimal.finish - optimal.lower_bound) * 1e6;
    json["found_by"] = optimal.found_by;
  } else {
    WEFT_ASSIGN_OR_RETURN(plan, PlanBuckets(file.policy, file.gradients));
  }
  json["groups"] = Json::array();
  for (const Bucket& bucket : plan.buckets) {
    std::vector<int> members;
    for (int member : bucket.members) members.push_back(file.numbers[member]);
    Json group = {{"members", members}, {"fused", bucket.fused}};
    if (bucket.fusion_id.has_value()) group["id"] = *bucket.fusion_id;
    json["groups"].push_back(std::move(group));
  }
  json["warnings"] = plan.warnings;
  return json.dump() + "\n";
}

}  // namespace weft
