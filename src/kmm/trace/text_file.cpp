#include "kmm/trace/text_file.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>
#include <set>
#include <utility>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "kmm/base/log.hpp"
#include "kmm/error.hpp"

namespace kmm::trace {

namespace {

/// Paths of the files that the process writes now. Never destroyed: runtimes may be static objects.
struct OpenPaths {
    locks::Mutex mutex;
    std::set<std::string> paths KMM_GUARDED_BY(mutex);
};

OpenPaths& open_paths() {
    static auto* const the_paths = new OpenPaths;
    return *the_paths;
}

template<typename N>
void append_number(std::string& text, N number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    text.append(digits, end);
}

/// Length of the character of UTF-8 at the beginning of the text; 0: there is none.
std::size_t character_bytes(std::string_view text) noexcept {
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xc2 ? 0
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf5 ? 4
                                              : 0;
    if (length == 0 || text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
    // What would be shorter in another form, and halves of pairs of UTF-16.
    const auto second = length > 2 ? static_cast<unsigned char>(text[1]) : 0;
    const bool bad = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
    return bad ? 0 : length;
}

}  // namespace

void append_json(std::string& out, std::string_view text) {
    static constexpr char hex[] = "0123456789abcdef";
    out += '"';
    while (!text.empty()) {
        const std::size_t length = character_bytes(text);
        const auto byte = static_cast<unsigned char>(text[0]);
        if (byte == '"' || byte == '\\') out += '\\';
        if (length == 0 || byte < 0x20) {
            out += "\\u00";
            out += hex[byte >> 4];
            out += hex[byte & 15];
        } else {
            out += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    out += '"';
}

TextFile::TextFile(const FilePath& path, const char* what_for) : path_(path.path) {
    buffer_.reserve(buffer_bytes + buffer_bytes / 16);
    const auto refuse = [&](const std::string& why) {
        throw InvalidArgument(driver::format("{} is \"{}\", which {}", what_for, path_, why));
    };
    {
        const locks::Guard guard(open_paths().mutex);
        std::set<std::string>& paths = open_paths().paths;
        if (!path.instead.empty() && paths.count(path_) != 0) path_ = path.instead;
        if (paths.count(path_) != 0)
            refuse("this process writes already: name another file, or one with %r, the number of the runtime, in its "
                   "name");
        // Without a buffer of the C library: the child of a fork would write it once more.
        file_ = std::fopen(path_.c_str(), "wbe");
        if (file_ == nullptr)
            refuse(driver::format("cannot be written ({}): name a file in a directory that exists and is writable",
                                  std::strerror(errno)));
        (void)std::setvbuf(file_, nullptr, _IONBF, 0);
        try {
            paths.insert(path_);
        } catch (...) {
            (void)std::fclose(file_);
            throw;
        }
    }
    if (path_ != path.path)
        log::post(log::Level::warn, driver::format("{} is \"{}\", which this process writes already: \"{}\" is "
                                                   "written instead",
                                                   what_for, path.path, path_));
}

TextFile::~TextFile() {
    flush();
    if (std::fclose(file_) != 0) note_failure();
    const locks::Guard guard(open_paths().mutex);
    open_paths().paths.erase(path_);
}

void TextFile::note_failure() noexcept {
    if (std::exchange(failed_, true)) return;
    try {
        log::post(log::Level::error, driver::format("{} is not complete: {}", path_, std::strerror(errno)));
    } catch (const std::bad_alloc&) {
        log::post(log::Level::error, "a trace or record is not complete, and there is no memory to say which");
    }
}

void TextFile::flush() noexcept {
    if (!failed_ && std::fwrite(buffer_.data(), 1, complete_bytes_, file_) != complete_bytes_) note_failure();
    buffer_.erase(0, complete_bytes_);
    complete_bytes_ = 0;
}

TextFile& TextFile::operator<<(std::string_view text) {
    buffer_ += text;
    return *this;
}

TextFile& TextFile::operator<<(char c) {
    buffer_ += c;
    return *this;
}

TextFile& TextFile::operator<<(std::uint64_t number) {
    append_number(buffer_, number);
    return *this;
}

TextFile& TextFile::operator<<(std::int64_t number) {
    append_number(buffer_, number);
    return *this;
}

TextFile& TextFile::quoted(std::string_view text) {
    append_json(buffer_, text);
    return *this;
}

TextFile& TextFile::microseconds(std::int64_t nanoseconds) {
    if (nanoseconds < 0) {
        *this << '-';
        nanoseconds = -nanoseconds;
    }
    append_number(buffer_, nanoseconds / 1000);
    const auto rest = static_cast<int>(nanoseconds % 1000);
    if (rest == 0) return *this;
    buffer_ += '.';
    buffer_ += static_cast<char>('0' + rest / 100);
    if (rest % 100 != 0) buffer_ += static_cast<char>('0' + rest / 10 % 10);
    if (rest % 10 != 0) buffer_ += static_cast<char>('0' + rest % 10);
    return *this;
}

}  // namespace kmm::trace
