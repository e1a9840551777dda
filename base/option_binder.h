// Options as plain structs whose fields are set by name, from text.
#ifndef WEFT_BASE_OPTION_BINDER_H_
#define WEFT_BASE_OPTION_BINDER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

// Names the fields of an options struct, so that text can set them and help can list them.
//
//   struct Options {
//     int nrings = 1;  // communication rings
//     void Bind(OptionBinder& bind) {
//       bind.Int("nrings", &nrings, "communication rings", /*min=*/1);
//     }
//   };
//
//   Options options;
//   OptionBinder bind;
//   options.Bind(bind);
//   WEFT_RETURN_IF_ERROR(bind.Set({{"nrings", "2"}}));
//
// The value of a field when it is bound is its default. The struct must outlive the binder.
class OptionBinder {
 public:
  void Int(std::string name, int* field, std::string help, int min = INT32_MIN,
           int max = INT32_MAX);
  void Int64(std::string name, int64_t* field, std::string help, int64_t min = INT64_MIN);
  void Bool(std::string name, bool* field, std::string help);
  // On or off. A command line needs no value for it: --exact_loss.
  void Switch(std::string name, bool* field, std::string help);
  void String(std::string name, std::string* field, std::string help);
  // A field of any type: parse(absl::string_view) returns an absl::StatusOr of it.
  template <typename T, typename Parse>
  void Parsed(std::string name, T* field, std::string default_text, std::string help,
              std::string expected, Parse parse) {
    Add({std::move(name), std::move(default_text), std::move(help), std::move(expected),
         [field, parse](absl::string_view text) {
           auto parsed = parse(text);
           if (!parsed.ok()) return false;
           *field = *std::move(parsed);
           return true;
         }});
  }
  // One of a few words. E is an enum.
  template <typename E>
  void Choice(std::string name, E* field, std::string help,
              std::vector<std::pair<std::string, E>> choices) {
    std::string current;
    std::string words;
    for (const auto& [word, value] : choices) {
      if (value == *field) current = word;
      words += (words.empty() ? "" : "|") + word;
    }
    Add({std::move(name), current, std::move(help), words,
         [field, choices](absl::string_view text) {
           for (const auto& [word, value] : choices) {
             if (word == text) {
               *field = value;
               return true;
             }
           }
           return false;
         }});
  }

  // An earlier name of the option that was bound last, which Set still takes.
  void OldName(std::string name) { options_.back().old_name = std::move(name); }

  struct Option {
    std::string name;
    std::string default_value;
    std::string help;
    std::string expected;  // "an integer >= 1", "auto|avg"
    std::function<bool(absl::string_view)> set;
    std::string old_name = {};  // empty: none
  };
  // Option::expected of switches.
  static constexpr char kOnOrOff[] = "on or off";
  const std::vector<Option>& options() const { return options_; }

  // Sets the fields. InvalidArgument for an unknown name (lists the names), a repeated name, or a
  // value that does not fit (says what is expected).
  absl::Status Set(const std::vector<std::pair<std::string, std::string>>& values) const;

 private:
  void Add(Option option) { options_.push_back(std::move(option)); }
  std::vector<Option> options_;
};

}  // namespace weft

#endif  // WEFT_BASE_OPTION_BINDER_H_
