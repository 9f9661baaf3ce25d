// Running part of a test in a child process that ends within a bound, whatever happens in it.
#pragma once

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <string>
#include <utility>

namespace kmm::test {

/// AddressSanitizer's allocator takes no part in fork() (g++ 12, 13): a child that was forked while another thread
/// allocated waits for ever in its own `new`. What forks beside busy threads runs in the plain builds and under
/// ThreadSanitizer, which takes part.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool new_survives_a_fork_beside_threads = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool new_survives_a_fork_beside_threads = false;
#else
inline constexpr bool new_survives_a_fork_beside_threads = true;
#endif
#else
inline constexpr bool new_survives_a_fork_beside_threads = true;
#endif

/// Forks; `body()` runs in the child and returns what is wrong ("" for nothing). Returns that, or how else the child
/// ended. A child that has not ended after `seconds` is killed.
template<typename Body>
std::string in_child(Body&& body, unsigned seconds = 30) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    const pid_t child = fork();
    if (child < 0) return "no child";
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(seconds);
        close(ends[0]);
        std::string wrong;
        try {
            wrong = body();
        } catch (const std::exception& e) {
            wrong = std::string("threw ") + e.what();
        } catch (...) {
            wrong = "threw something";
        }
        for (std::size_t sent = 0; sent < wrong.size();) {
            const ssize_t n = write(ends[1], wrong.data() + sent, wrong.size() - sent);
            if (n <= 0) break;
            sent += static_cast<std::size_t>(n);
        }
        _exit(wrong.empty() ? 0 : 1);  // static objects are the parent's
    }
    close(ends[1]);
    std::string wrong;
    char text[4096];
    for (;;) {
        const ssize_t n = read(ends[0], text, sizeof text);
        if (n <= 0) break;
        wrong.append(text, static_cast<std::size_t>(n));
    }
    close(ends[0]);
    int status = 0;
    if (waitpid(child, &status, 0) != child) return "the child is not ours";
    if (WIFSIGNALED(status))
        return wrong + (WTERMSIG(status) == SIGALRM ? "hung" : std::string("died of ") + strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status) == 0 || !wrong.empty() ? wrong : "ended with " + std::to_string(WEXITSTATUS(status));
}

/// What is written to stderr while `work()` runs.
template<typename Work>
std::string said_on_stderr(Work&& work) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    const int before = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    std::forward<Work>(work)();
    dup2(before, STDERR_FILENO);
    close(before);
    std::string said;
    char text[4096];
    for (ssize_t n = 0; (n = read(ends[0], text, sizeof text)) > 0;) said.append(text, static_cast<std::size_t>(n));
    close(ends[0]);
    return said;
}

}  // namespace kmm::test
