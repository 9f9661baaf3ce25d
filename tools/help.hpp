// What all tools do with the words of their command line. Owns: nothing. Must not know: any tool. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace kmm::tools {

inline bool is_help(std::string_view word) { return word == "--help" || word == "-h"; }

/// Whether a word asks for the usage, wherever it stands; then it was printed to standard output.
inline bool printed_help(int num_words, char** words, const char* usage) {
    return std::any_of(words, words + num_words, is_help) && std::fputs(usage, stdout) >= 0;
}

}  // namespace kmm::tools
