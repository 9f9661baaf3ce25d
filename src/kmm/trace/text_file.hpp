// A file of text that is written from the beginning to the end.
//
// Owns: the file and a buffer. Must not know: what is written. One thread at a time. What is on the disk always ends
// where `complete` was called: a program that is killed leaves whole lines.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace kmm::trace {

/// Appends the text in quotes, as JSON writes strings. Bytes that are no UTF-8 count as Latin-1.
void append_json(std::string& out, std::string_view text);

/// Which file is written.
struct FilePath {
    std::string path;
    std::string instead;  ///< where the process writes `path` already; empty: that is an error

    FilePath(std::string the_path, std::string instead_of_it = {})
        : path(std::move(the_path)), instead(std::move(instead_of_it)) {}
    FilePath(const char* the_path) : path(the_path) {}
};

class TextFile {
  public:
    /// Makes the file empty. Throws InvalidArgument, naming `what_for` (a setting) and the remedy, where it cannot be
    /// written, or another TextFile of the process writes it. Where another name was taken instead, that is logged.
    TextFile(const FilePath& path, const char* what_for);
    /// Writes what is complete. What could not be written has been logged, once.
    ~TextFile();
    TextFile(const TextFile&) = delete;
    TextFile& operator=(const TextFile&) = delete;

    TextFile& operator<<(std::string_view text);
    TextFile& operator<<(char c);
    TextFile& operator<<(std::uint64_t number);
    TextFile& operator<<(std::int64_t number);
    TextFile& operator<<(std::uint32_t number) { return *this << std::uint64_t{number}; }
    /// As `append_json`.
    TextFile& quoted(std::string_view text);
    /// Nanoseconds as microseconds: "12.345".
    TextFile& microseconds(std::int64_t nanoseconds);
    /// What was added so far belongs together; it goes to the disk now or later.
    void complete() noexcept {
        complete_bytes_ = buffer_.size();
        if (complete_bytes_ >= buffer_bytes) flush();
    }
    /// Forgets what was added since `complete`.
    void drop_incomplete() noexcept { buffer_.resize(complete_bytes_); }
    /// What is complete goes to the disk now.
    void flush() noexcept;

  private:
    static constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
    void note_failure() noexcept;

    std::string path_;
    std::string buffer_;
    std::size_t complete_bytes_ = 0;
    std::FILE* file_ = nullptr;
    bool failed_ = false;
};

}  // namespace kmm::trace
