#include "tests/goldens/golden_options.h"

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

[[noreturn]] void Die(const std::string& what) {
  std::cerr << "manifest of goldens: unknown " << what << "\n";
  std::abort();
}

std::string ModeOf(const Json& config) {
  static const auto* const modes = new std::map<std::string, std::string>{
      {"GradAllReduce", "grad_allreduce"},
      {"LocalSGD", "local_sgd"},
      {"SingleProcessMultiThread", "single_process_multi_thread"},
      {"MultiThread", "multi_thread"}};
  return modes->at(config["class"].get<std::string>());
}

std::vector<int> Devices(const std::string& text) {
  std::vector<int> devices;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    int device = -1;
    if (!absl::SimpleAtoi(word, &device)) Die(text);
    devices.push_back(device);
  }
  return devices;
}

}  // namespace

TranspileOptions GoldenOptions(const Json& config) {
  TranspileOptions options;
  options.mode = ModeOf(config);
  options.dialect = Dialect::kPaddle;
  for (const auto& [name, value] : config["constructor"].items()) {
    options.mode_flags[name] =
        value.is_string() ? value.get<std::string>() : absl::StrCat(value.get<int>());
  }
  for (const auto& [name, value] : config["env"].items()) {
    const std::string text = value.get<std::string>();
    if (name == "FLAGS_selected_gpus") {
      options.cluster.devices = Devices(text);
    } else if (name == "PADDLE_FUSE_ALLREDUCE") {
      options.mode_flags["fuse"] = text;
    } else if (name == "PADDLE_LOSS_SCALE") {
      options.mode_flags["loss_scale"] = text;
    } else {
      Die(name);
    }
  }
  const Json& call = config["transpile"];
  options.cluster.rank = call["rank"].get<int>();
  options.cluster.endpoints = call["endpoints"].get<std::vector<std::string>>();
  options.cluster.current_endpoint = call["current_endpoint"].get<std::string>();
  for (const Json& param : config["distributed_params"]) {
    options.distributed_params.insert(param.get<std::string>());
  }
  return options;
}

}  // namespace weft::testing
