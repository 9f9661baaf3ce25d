// Options in the style of RMM's benchmark programs: "-f X", "-fX", "--file X", "--file=X".
//
// Owns: the arguments that nobody has asked for yet; at the end they are for Report. Must not know: any library of
// ours.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common.hpp"

namespace kmm::bench {

class CommandLine {
  public:
    CommandLine(int argc, char** argv) : arguments_(argv, argv + argc) {}

    bool flag(const char* brief, const char* full) {
        bool found = false;
        for (std::size_t i = 1; i < arguments_.size();) {
            if (is(i, brief) || is(i, full)) {
                take(i);
                found = true;
            } else {
                ++i;
            }
        }
        return found;
    }

    /// The last one counts.
    std::optional<std::string> text(const char* brief, const char* full) {
        std::optional<std::string> result;
        for (std::size_t i = 1; i < arguments_.size();) {
            const std::string argument = arguments_[i];
            const std::string with_equals = std::string(full) + "=";
            if (argument == brief || argument == full) {
                take(i);
                if (i >= arguments_.size()) Report::stop("'" + argument + "' needs a value");
                result = take(i);
            } else if (argument.rfind(with_equals, 0) == 0) {
                result = std::string(take(i)).substr(with_equals.size());
            } else if (argument.rfind(brief, 0) == 0 && argument.rfind("--", 0) != 0) {
                result = std::string(take(i)).substr(std::strlen(brief));
            } else {
                ++i;
            }
        }
        return result;
    }

    std::optional<double> number(const char* brief, const char* full) {
        const std::optional<std::string> given = text(brief, full);
        if (!given) return std::nullopt;
        char* end = nullptr;
        const double value = std::strtod(given->c_str(), &end);
        if (given->empty() || *end != '\0' || !(value >= 0) || value > 1e9)
            Report::stop(std::string(full) + " is '" + *given + "': give a number that is not negative");
        return value;
    }

    std::optional<std::size_t> count(const char* brief, const char* full) {
        const std::optional<double> value = number(brief, full);
        if (!value) return std::nullopt;
        return static_cast<std::size_t>(*value);
    }

    /// What is left, the program's name in front.
    int num_left() const { return static_cast<int>(arguments_.size()); }
    char** left() { return arguments_.data(); }

  private:
    bool is(std::size_t i, const char* option) const { return std::strcmp(arguments_[i], option) == 0; }
    char* take(std::size_t i) {
        char* const taken = arguments_[i];
        arguments_.erase(arguments_.begin() + static_cast<std::ptrdiff_t>(i));
        return taken;
    }

    std::vector<char*> arguments_;
};

}  // namespace kmm::bench
