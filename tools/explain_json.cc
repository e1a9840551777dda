#include "tools/explain_json.h"

#include "nlohmann/json.hpp"

namespace weft {

std::string ExplainJson(const TranspileResult& result) {
  using Json = nlohmann::ordered_json;
  Json passes = Json::array();
  for (const PassReport& report : result.passes) {
    passes.push_back({{"pass", report.pass},
                      {"changed", report.changed},
                      {"main_ops", report.main_ops},
                      {"startup_ops", report.startup_ops}});
  }
  Json remarks = Json::array();
  for (const Remark& remark : result.remarks) {
    Json json = {{"pass", remark.pass},
                 {"subject", remark.subject},
                 {"what", remark.what},
                 {"why", remark.why}};
    for (const auto& [key, value] : remark.details) json[key] = value;
    remarks.push_back(std::move(json));
  }
  // Names are UTF-8; attribute strings do not occur here.
  return Json{{"passes", std::move(passes)}, {"notes", std::move(remarks)}}.dump(2) + "\n";
}

}  // namespace weft
