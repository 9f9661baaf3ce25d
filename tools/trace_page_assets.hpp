// The parts of the page that are the same for every trace, from tools/trace_page/ at the time of the build.
#pragma once

#include <string_view>

namespace kmm::tools {

extern const std::string_view page_style;   ///< CSS
extern const std::string_view page_body;    ///< HTML
extern const std::string_view page_script;  ///< JavaScript

}  // namespace kmm::tools
