# Writes OUTPUT, a header with the commit that is being built; it is touched only when that changes.
set(commit "")
set(description "unknown")
set(clean -1) # not known
# Not in a checkout of its own: what git would name is the repository that has a copy of Aeshna.
execute_process(COMMAND git rev-parse --show-prefix WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE prefix
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(NOT failed AND prefix STREQUAL "")
  execute_process(COMMAND git rev-parse HEAD WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE commit
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE description
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND git status --porcelain --untracked-files=no WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE changes
                  ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    string(COMPARE EQUAL "${changes}" "" clean)
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#define AESHNA_COMMIT \"@commit@\"
#define AESHNA_COMMIT_DESCRIPTION \"@description@\"
#define AESHNA_COMMIT_CLEAN @clean@
" @ONLY)
