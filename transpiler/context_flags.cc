#include "transpiler/context_flags.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"

namespace weft {
namespace {

using BadWord = absl::optional<absl::string_view>;

BadWord SetInteger(absl::string_view text, absl::optional<int>* field) {
  int value = 0;
  if (!absl::SimpleAtoi(text, &value)) return text;
  *field = value;
  return absl::nullopt;
}

BadWord SetIntegers(absl::string_view text, absl::optional<std::vector<int>>* field) {
  std::vector<int> values;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(word, &values.emplace_back())) return word;
  }
  *field = std::move(values);
  return absl::nullopt;
}

BadWord SetPaddleVersion(absl::string_view text, TranspileOptions* options) {
  if (text != "2" && text != "3") return text;
  options->paddle_version = text == "2" ? 2 : 3;
  return absl::nullopt;
}

BadWord SetDeviceKind(absl::string_view text, TranspileOptions* options) {
  constexpr std::pair<absl::string_view, TargetDevice> kKinds[] = {
      {"cuda", TargetDevice::kCuda},
      {"xpu", TargetDevice::kXpu},
      {"custom", TargetDevice::kCustom},
      {"cpu", TargetDevice::kCpu}};
  for (const auto& [name, kind] : kKinds) {
    if (name != text) continue;
    options->device_kind = kind;
    return absl::nullopt;
  }
  return text;
}

}  // namespace

const std::vector<ContextFlag>& ContextFlags() {
  using Options = TranspileOptions;
  static const auto* flags = new std::vector<ContextFlag>{
      {"nranks", "an integer", "as option:endpoints says, else unknown",
       "number of ranks; if unknown, the result is valid for any number",
       [](const Options& options) { return options.cluster.nranks.has_value(); },
       [](absl::string_view text, Options* options) -> BadWord {
         return SetInteger(text, &options->cluster.nranks);
       }},
      {"endpoints", "host:port,host:port", "none", "the endpoint of each trainer, in order",
       [](const Options& options) { return !options.cluster.endpoints.empty(); },
       [](absl::string_view text, Options* options) -> BadWord {
         options->cluster.endpoints = absl::StrSplit(text, ',');
         return absl::nullopt;
       }},
      {"rank", "an integer", "0", "the trainer that the startup program is written for, from 0",
       [](const Options& options) { return options.cluster.rank.has_value(); },
       [](absl::string_view text, Options* options) -> BadWord {
         return SetInteger(text, &options->cluster.rank);
       }},
      {"current_endpoint", "host:port", "its entry in option:endpoints",
       "the endpoint of the trainer that option:rank names",
       [](const Options& options) { return options.cluster.current_endpoint.has_value(); },
       [](absl::string_view text, Options* options) -> BadWord {
         options->cluster.current_endpoint.emplace(text);
         return absl::nullopt;
       }},
      {"devices", "numbers, separated by commas",
       "one device per trainer; paddle dialect: Paddle's default",
       "the devices that each trainer drives",
       [](const Options& options) { return options.cluster.devices.has_value(); },
       [](absl::string_view text, Options* options) -> BadWord {
         return SetIntegers(text, &options->cluster.devices);
       }},
      {"device_kind", "cuda, cpu; paddle dialect: also xpu, custom", "cuda",
       "the devices that the result is for",
       [](const Options& options) { return options.device_kind.has_value(); }, SetDeviceKind},
      {"paddle_version", "2 or 3", "as the program",
       "the major version of the Paddle that runs the result",
       [](const Options& options) { return options.paddle_version.has_value(); }, SetPaddleVersion},
      {"distributed_params", "names, separated by commas", "none",
       "parameters that are not replicated",
       [](const Options& options) { return !options.distributed_params.empty(); },
       [](absl::string_view text, Options* options) -> BadWord {
         for (absl::string_view name : absl::StrSplit(text, ',', absl::SkipEmpty())) {
           options->distributed_params.emplace(name);
         }
         return absl::nullopt;
       }},
  };
  return *flags;
}

std::vector<std::string> ContextFlagsGiven(const TranspileOptions& options) {
  std::vector<std::string> names;
  for (const ContextFlag& flag : ContextFlags()) {
    if (flag.is_given(options)) names.emplace_back(flag.name);
  }
  return names;
}

}  // namespace weft
