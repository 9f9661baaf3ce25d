// Names in texts for people: programs choose them, and a text that says what is wrong must stay readable.
//
// Owns: how long a name may be there. Must not know: what it names. Pure; any thread. Throws std::bad_alloc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kmm::driver {

/// The name, or the first of its characters (of UTF-8) and "...", 200 bytes together.
inline std::string name_text(std::string_view name) {
    constexpr std::size_t most_bytes = 200;
    constexpr std::string_view more = "...";
    if (name.size() <= most_bytes) return std::string(name);
    std::size_t length = most_bytes - more.size();
    constexpr std::size_t longest_character = 4;
    for (std::size_t i = 0; i < longest_character && (static_cast<unsigned char>(name[length]) & 0xc0) == 0x80; ++i)
        --length;
    return std::string(name.substr(0, length)) += more;
}

/// The same in single quotes.
inline std::string in_quotes(std::string_view word) { return "'" + name_text(word) + "'"; }

}  // namespace kmm::driver
