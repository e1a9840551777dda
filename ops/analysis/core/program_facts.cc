#include "ops/analysis/core/program_facts.h"

namespace weft {

ProgramFacts::Result& ProgramFacts::Find(Key key) const {
  const std::lock_guard<std::mutex> lock(results_->mutex);
  if (results_->revision != program_->revision()) {
    results_->of.clear();
    results_->revision = program_->revision();
  }
  std::unique_ptr<Result>& result = results_->of[key];
  if (result == nullptr) result = std::make_unique<Result>();
  return *result;
}

}  // namespace weft
