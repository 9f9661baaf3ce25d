// The GIL, let go of or taken for a scope.
//
// While Python ends, it unwinds threads that ask for the GIL (before 3.14), through frames of C++ that allow no such
// thing: the process would abort. Threads that are asked to leave here wait for the end of the process instead.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace rmm_python {

[[noreturn]] inline void wait_for_the_end() noexcept {
    for (;;) (void)pause();
}

/// Runs what may ask for the GIL.
template<typename F>
auto or_wait_for_the_end(F&& f) {
    try {
        return f();
    } catch (abi::__forced_unwind&) {
        wait_for_the_end();
    }
}

/// Whether the interpreter has ended, or is ending and this thread is none of its own: nothing of Python can be called.
inline bool is_python_gone() noexcept { return Py_IsInitialized() == 0 && PyGILState_GetThisThreadState() == nullptr; }

class without_gil {
  public:
    without_gil() noexcept : state_(PyEval_SaveThread()) {}
    ~without_gil() {
        or_wait_for_the_end([this] { PyEval_RestoreThread(state_); });
    }
    without_gil(const without_gil&) = delete;
    without_gil& operator=(const without_gil&) = delete;

  private:
    PyThreadState* const state_;
};

class with_gil {
  public:
    with_gil() : state_(or_wait_for_the_end([] { return PyGILState_Ensure(); })) {}
    ~with_gil() { PyGILState_Release(state_); }
    with_gil(const with_gil&) = delete;
    with_gil& operator=(const with_gil&) = delete;

  private:
    const PyGILState_STATE state_;
};

}  // namespace rmm_python
