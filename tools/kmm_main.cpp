// The program kmm: one subcommand a file. Owns: the choice among them. One thread.
#include <cstdio>
#include <cstring>
#include <exception>

#include "driver/name_text.hpp"
#include "help.hpp"
#include "kmm_info.hpp"
#if KMM_HAS_RUNTIME
#include "kmm_plan.hpp"
#include "kmm_simulate.hpp"
#endif
#include "kmm_trace.hpp"

namespace {

constexpr const char* usage =
    "usage: kmm COMMAND\n"
    "  info       devices, drivers and why one was refused, limits, links, versions\n"
    "  trace      what a runtime did, from the file of KMM_TRACE: check FILE, view FILE\n"
#if KMM_HAS_RUNTIME
    "  simulate   what a program moves, and how long it takes, on devices that are not there\n"
    "  plan       what one of several ranks plans of a program, as text or graph\n"
#endif
    "  help       this text; kmm COMMAND --help says more of one\n"
    "  --version  the version alone\n";

constexpr const char* usage_of_info =
    "usage: kmm info    takes no argument; KMM_DRIVER and other KMM_ variables are looked at as a program would\n";

int run(int argc, char** argv) {
    const char* command = argc > 1 ? argv[1] : "help";
    if (std::strcmp(command, "trace") == 0) return kmm::tools::trace(argc - 2, argv + 2);
#if KMM_HAS_RUNTIME
    if (std::strcmp(command, "simulate") == 0) return kmm::tools::simulate(argc - 2, argv + 2);
    if (std::strcmp(command, "plan") == 0) return kmm::tools::plan(argc - 2, argv + 2);
#endif
    const bool is_info = std::strcmp(command, "info") == 0;
    if (is_info && kmm::tools::printed_help(argc - 2, argv + 2, usage_of_info)) return 0;
    if (argc > 2) {
        std::fprintf(stderr, "kmm: '%s' takes no argument, but got '%s'\n%s", kmm::driver::name_text(command).c_str(),
                     kmm::driver::name_text(argv[2]).c_str(), usage);
        return 2;
    }
    if (is_info) return kmm::tools::info();
    if (std::strcmp(command, "--version") == 0) return std::puts(KMM_PROJECT_VERSION) < 0 ? 1 : 0;
    if (std::strcmp(command, "help") == 0 || kmm::tools::is_help(command)) return std::fputs(usage, stdout) < 0 ? 1 : 0;
    std::fprintf(stderr, "kmm: unknown command '%s'\n%s", kmm::driver::name_text(command).c_str(), usage);
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "kmm: %s\n", error.what());
        return 1;
    }
}
