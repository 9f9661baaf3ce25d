// Numbers of bytes as text: what environment variables and configuration may say ("4GiB", "500 MB", "1.5k", "1e9",
// "90%"), and what messages and reports say ("1.50 MiB").
//
// Owns: both forms. Must not know: which variable a text came from. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kmm::driver {

/// `number [blank] [unit]`: decimal digits with optional fraction and exponent; units, in any letter case, `b`,
/// `k m g t` and `kb mb gb tb` (powers of 1000), `ki mi gi ti` and `kib mib gib tib` (powers of 1024), or `%` of
/// `whole` (above 0, at most 100). Rounded down to bytes. Empty, with the reason and the accepted forms in
/// `*error_text`, for anything else.
std::optional<std::size_t> parse_byte_size(std::string_view text, std::size_t whole, std::string* error_text);

/// The number with `decimals` digits, at most 9, behind a decimal point whatever the program's locale says: "1.50".
std::string fixed_text(double value, int decimals);

/// "512 B", "1.00 KiB", "2.50 GiB": two decimals of the largest unit, up to EiB, that is not above the size.
std::string byte_size_text(std::size_t bytes);

}  // namespace kmm::driver
