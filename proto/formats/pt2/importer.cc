#include "proto/formats/pt2/importer.h"

#include <utility>

#include "base/status_macros.h"
#include "proto/formats/pt2/translator.h"
#include "proto/formats/pt2/updates.h"

namespace weft::pt2 {
namespace {

struct Translation {
  pb::ProgramDesc desc;
  std::map<std::string, double> rates;
};

absl::StatusOr<Translation> Translate(const Graph& graph) {
  const Makers makers(graph);
  WEFT_ASSIGN_OR_RETURN(const Updates updates, FindUpdates(graph, makers));
  Translator translator(graph, makers, updates);
  Translation translation;
  WEFT_ASSIGN_OR_RETURN(translation.desc, translator.Run());
  translation.rates = translator.rates();
  return translation;
}

}  // namespace

absl::StatusOr<Program> ImportProgram(FileBytes file) {
  WEFT_ASSIGN_OR_RETURN(const Archive archive, Archive::Open(file));
  WEFT_ASSIGN_OR_RETURN(const Graph graph, archive.ReadGraph());
  WEFT_ASSIGN_OR_RETURN(const Translation translation, Translate(graph));
  WEFT_ASSIGN_OR_RETURN(Program program, Program::FromProto(translation.desc));
  WEFT_ASSIGN_OR_RETURN(const std::string setting, archive.ReadSetting());
  program.set_setting(setting);
  program.set_origin(std::make_shared<Import>(std::move(file)));
  return program;
}

const Import* ImportOf(const Program& program) {
  return dynamic_cast<const Import*>(program.origin().get());
}

absl::StatusOr<std::map<std::string, Weight>> ReadStartValues(FileBytes file) {
  WEFT_ASSIGN_OR_RETURN(const Archive archive, Archive::Open(std::move(file)));
  WEFT_ASSIGN_OR_RETURN(const Graph graph, archive.ReadGraph());
  WEFT_ASSIGN_OR_RETURN(const Translation translation, Translate(graph));
  WEFT_ASSIGN_OR_RETURN(auto values, archive.ReadWeights(graph));
  for (const auto& [name, rate] : translation.rates) {
    const float value = static_cast<float>(rate);
    const std::string bytes(reinterpret_cast<const char*>(&value), sizeof(value));
    values.emplace(name, Weight{{pb::VarType::FP32, {1}}, bytes});
  }
  return values;
}

}  // namespace weft::pt2
