// Passes by name.
#ifndef WEFT_TRANSPILER_PIPELINE_REGISTRY_H_
#define WEFT_TRANSPILER_PIPELINE_REGISTRY_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/option_binder.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// A value, not a global. BuiltinPasses (transpiler/passes/builtin_passes.h) returns one with Weft's
// passes.
class PassRegistry {
 public:
  struct Entry {
    std::string name;
    std::string description;  // one line
    std::vector<OptionBinder::Option> options;
    std::function<absl::StatusOr<std::unique_ptr<Pass>>(const Spec&)> create;
  };

  // Adds pass class P, which has
  //   static constexpr absl::string_view kName, kDescription;
  //   struct Options { ...; void Bind(OptionBinder& bind); };
  //   explicit P(Options options);
  // CHECK-fails if the name is taken.
  template <typename P>
  void Add() {
    typename P::Options defaults;
    OptionBinder binder;
    defaults.Bind(binder);
    AddEntry({std::string(P::kName), std::string(P::kDescription), binder.options(),
              [](const Spec& spec) -> absl::StatusOr<std::unique_ptr<Pass>> {
                typename P::Options options;
                OptionBinder bind;
                options.Bind(bind);
                WEFT_RETURN_IF_ERROR(bind.Set(spec.options));
                return std::unique_ptr<Pass>(std::make_unique<P>(std::move(options)));
              }});
  }

  // By name, sorted.
  const std::map<std::string, Entry>& entries() const { return entries_; }

  // InvalidArgument for an unknown option or name; the latter lists the known names.
  absl::StatusOr<std::unique_ptr<Pass>> Create(const Spec& spec) const;

 private:
  void AddEntry(Entry entry);
  std::map<std::string, Entry> entries_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_REGISTRY_H_
