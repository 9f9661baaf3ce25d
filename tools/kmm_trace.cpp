#include "kmm_trace.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "driver/name_text.hpp"
#include "help.hpp"
#include "trace_page.hpp"
#include "trace_reader.hpp"
#include "trace_summary.hpp"

namespace kmm::tools {
namespace {

constexpr const char* usage = "usage: kmm trace check FILE               is it a trace, and what does it say in sum\n"
                              "       kmm trace view FILE [-o OUT.html]  makes a page of it for a browser\n"
                              "FILE is what KMM_TRACE=FILE or rt.trace(FILE) has written.\n";

int refuse(const std::string& what) {
    std::fprintf(stderr, "kmm trace: %s\n%s", what.c_str(), usage);
    return 2;
}

int fail(const std::string& what) {
    std::fprintf(stderr, "kmm trace: %s\n", what.c_str());
    return 1;
}

int check(const std::string& file) {
    std::fputs((file + ": " + summary_of(read_trace(file))).c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : fail("cannot write to standard output");
}

/// A page is written beside its place first, so that a failure leaves no half of it and keeps the page that was there.
int view(const std::string& file, const std::string& page) {
    std::error_code ignored;
    if (std::filesystem::equivalent(file, page, ignored))
        return fail(page + " is the trace itself: give the page another name with -o");
    const Trace trace = read_trace(file);
    const std::string part = page + ".part";
    errno = 0;
    std::ofstream out(part, std::ios::binary);
    if (!out) return fail(part + ": cannot be written: " + std::strerror(errno));
    write_page(trace, std::filesystem::path(file).filename().string(), out);
    out.close();
    std::error_code error;
    if (!out)
        error = std::error_code(errno, std::generic_category());
    else
        std::filesystem::rename(part, page, error);
    if (error) {
        std::filesystem::remove(part, ignored);
        return fail(page + ": cannot be written: " + error.message());
    }
    std::printf("%s: %llu events%s\n", page.c_str(), static_cast<unsigned long long>(trace.num_events),
                trace.is_cut_off ? "; INCOMPLETE: the file ends before the trace does" : "");
    return 0;
}

}  // namespace

int trace(int num_arguments, char** arguments) {
    if (printed_help(num_arguments, arguments, usage)) return 0;
    const std::string command = num_arguments > 0 ? arguments[0] : "";
    if (command.empty()) return refuse("say what to do: check or view");
    if (command != "check" && command != "view") return refuse("unknown command " + driver::in_quotes(command));
    std::string file;
    std::string page;
    for (int i = 1; i < num_arguments; ++i) {
        const std::string word = arguments[i];
        if (word == "-o" && command == "view") {
            if (++i == num_arguments || arguments[i][0] == '\0') return refuse("-o needs the name of the page");
            page = arguments[i];
        } else if (word.size() > 1 && word[0] == '-') {
            return refuse("unknown option " + driver::in_quotes(word) + " of " + command);
        } else if (!file.empty()) {
            return refuse(command + " takes one file, but got " + driver::in_quotes(file) + " and " +
                          driver::in_quotes(word));
        } else {
            file = word;
        }
    }
    if (file.empty()) return refuse(command + " needs a file");
    try {
        if (command == "check") return check(file);
        if (page.empty()) page = std::filesystem::path(file).replace_extension(".html").string();
        return view(file, page);
    } catch (const TraceError& error) {
        return fail(error.what());
    }
}

}  // namespace kmm::tools
