// The options of rmm_open: text with entries key=value.
//
// Owns: the syntax, and which keys were asked for. Must not know: kinds. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {

/// Throws invalid_argument, with the text, for what is malformed. Every key is asked for once, then `expect_no_more`.
class options {
  public:
    /// `text` may be null. `whole_bytes()`: what percentages are of.
    options(const char* kind, const char* text, std::size_t (*whole_bytes)());

    std::optional<std::string> text(const char* key);
    std::optional<std::size_t> bytes(const char* key);
    std::optional<std::size_t> count(const char* key);
    bool flag(const char* key);
    /// Throws: the resource needs this key.
    [[noreturn]] void miss(const char* key, const char* example) const;
    /// Throws if an entry was not asked for; the text lists the known keys.
    void expect_no_more() const;

  private:
    struct entry {
        std::string key;
        std::string value;
        bool asked = false;
    };
    [[noreturn]] void refuse(const std::string& why) const;
    void parse(const char* text);

    std::string kind_;
    std::size_t (*whole_bytes_)();
    std::vector<entry> entries_;
    std::vector<std::string> known_;
};

}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm
