# Writes OUTPUT, the source of version_text(), where it differs. It runs at every build, because CMake does not watch commits.
set(commit "not known, because these sources are in no git repository")
if(EXISTS ${ROOT}/.git)
  execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY ${ROOT}
    OUTPUT_VARIABLE found RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(found)
    set(commit ${found})
  elseif(failed MATCHES "No such file")
    set(commit "not known, because git is not installed here")
  else()
    set(commit "not known, because git cannot say it")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[#include "app/version_text.h"

std::string_view trident::version_text() {
  return R"(trident @VERSION@
commit:    @commit@
compiler:  @COMPILER@
libraries: @LIBRARIES@
)";
}
]])
