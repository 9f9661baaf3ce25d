// Included before every file of what a wheel holds: takes condition_variable::wait in its version of 2010, which does
// the same and which every libstdc++ has. It is the only symbol that would ask for that of GCC 12.
__asm__(".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
        "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
